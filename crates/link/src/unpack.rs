//! Datagrams into frames: what came in, and where its bytes are.

use std::net::SocketAddr;
use std::ops::Range;

use causeway_wire::ecn::Ecn;
use causeway_wire::virtio_net::Header as Metadata;

use crate::event::Event;
use crate::limits::SINK_BYTES_MIN;

/// A frame that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The tunnel on which it came, by its number in the [`crate::hub::Hub`].
    pub tunnel: u16,
    /// The virtual network.
    pub vni: u32,
    /// Daemons that passed it on so far.
    pub hops: u8,
    /// What is left to do for it, as the sender's guest said: to be checked against the frame.
    pub metadata: Metadata,
    /// Where its bytes are in [`Sink::bytes`].
    pub at: Range<usize>,
}

/// What receiving and the passing of time gave. The caller takes what is in it and clears it.
#[derive(Debug, Default)]
pub struct Sink {
    /// Frames, in the order of their arrival.
    pub frames: Vec<Arrived>,
    /// Datagrams that are to be sent: to whom, and the bytes.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// What became known.
    pub events: Vec<Event>,
    /// The ECN field of the outer header of the next datagram that is received.
    pub ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
    used: usize,
}

impl Sink {
    /// The bytes of frames, with gaps between them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of a frame of [`Sink::frames`].
    pub fn frame(&self, frame: &Arrived) -> &[u8] {
        self.bytes.get(frame.at.clone()).unwrap_or(&[])
    }

    /// Takes the bytes away, to hand them on with their frames; `other` is written to from now
    /// on, whatever is in it.
    pub fn take_bytes(&mut self, other: Vec<u8>) -> Vec<u8> {
        self.used = 0;
        std::mem::replace(&mut self.bytes, other)
    }

    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.datagrams.clear();
        self.events.clear();
        self.used = 0;
    }
}

impl Sink {
    /// Room for `len` bytes behind what is used; says where it begins. What is written there is
    /// kept by [`Sink::keep`] only.
    pub(crate) fn tail(&mut self, len: usize) -> (usize, &mut [u8]) {
        let end = self.used.saturating_add(len);
        if self.bytes.len() < end {
            // Once made, room is kept and never cleared again.
            self.bytes.resize(end.max(SINK_BYTES_MIN), 0);
        }
        (self.used, self.bytes.get_mut(self.used..end).unwrap_or(&mut []))
    }

    /// Keeps all up to `end`.
    pub(crate) fn keep(&mut self, end: usize) {
        self.used = self.used.max(end);
    }

    /// Puts bytes behind what is used, and keeps them.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let (start, room) = self.tail(bytes.len());
        room.copy_from_slice(bytes);
        let end = start.saturating_add(bytes.len());
        self.used = end;
        start..end
    }

    /// A part of the bytes, to be changed.
    pub(crate) fn part_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.bytes.get_mut(range).unwrap_or(&mut [])
    }

    /// A part of the bytes.
    pub(crate) fn part(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or(&[])
    }
}
