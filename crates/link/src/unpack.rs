//! Received frames, events and datagrams to send: the output of the core.
//!
//! [`crate::tunnel_set::TunnelSet`] and [`crate::tunnel::Tunnel`] append to a [`Sink`]; the driver
//! ([`crate::io::tunnels`], the simulator) sends the datagrams, handles the events, passes the
//! frames to their groups, and then calls [`Sink::clear`]. Frames stay in the buffer into which
//! their datagram was opened, so a whole frame is not copied; a reassembled frame is copied twice,
//! into the buffer of its fragments and back.
//!
//! A sink has no limit of its own: the driver bounds it by the number of datagrams that it passes
//! in before it empties the sink. The frame buffer starts at [`SINK_BYTES_MIN`] (128 KiB), grows as
//! needed and never shrinks; [`Sink::take_bytes`] exchanges it. The bytes of frames are the peer's:
//! this module does not check them. The driver must process all lists before it clears the
//! sink: the core does not repeat them. A sink has no lock and belongs to its driver, in causewayd
//! to the shard of links on its dispatcher's thread.

use std::net::SocketAddr;
use std::ops::Range;

use causeway_wire::ecn::Ecn;
use causeway_wire::virtio_net::Header as Metadata;

use crate::event::Event;
use crate::limits::SINK_BYTES_MIN;

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedFrame {
    /// The tunnel that received it, by its number in the [`crate::tunnel_set::TunnelSet`].
    pub tunnel: u16,
    /// The virtual network.
    pub vni: u32,
    /// Daemons that forwarded it so far.
    pub hops: u8,
    /// Offloads that the sender's guest requested. Untrusted: check against the frame.
    pub metadata: Metadata,
    /// Range of its bytes in [`Sink::bytes`].
    pub at: Range<usize>,
}

/// Results of receiving and of the passing of time. The caller processes and clears them.
#[derive(Debug, Default)]
pub struct Sink {
    /// Received frames, in order of arrival.
    pub frames: Vec<UnpackedFrame>,
    /// Received datagrams of the stream protocol, in order of arrival; without metadata.
    pub segments: Vec<UnpackedFrame>,
    /// Datagrams to send: destination and bytes.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Changes of tunnel state, in order.
    pub events: Vec<Event>,
    /// ECN field of the outer header of the next datagram to receive. The caller sets it.
    pub ecn: Ecn,
    /// The frame buffer, initialised to its whole length.
    pub(crate) bytes: Vec<u8>,
    /// End of the bytes that frames or earlier datagrams occupy; the free tail begins here.
    used: usize,
}

impl Sink {
    /// Returns the buffer of all frames, with gaps between them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of a frame of [`Sink::frames`].
    pub fn frame(&self, frame: &UnpackedFrame) -> &[u8] {
        self.bytes.get(frame.at.clone()).unwrap_or(&[])
    }

    /// Returns the buffer, so that frames can be passed on without a copy; `other` becomes the
    /// buffer, its contents are ignored.
    pub fn take_bytes(&mut self, other: Vec<u8>) -> Vec<u8> {
        self.used = 0;
        std::mem::replace(&mut self.bytes, other)
    }

    /// Removes all frames, datagrams and events; keeps the allocations.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.segments.clear();
        self.datagrams.clear();
        self.events.clear();
        self.used = 0;
    }
}

impl Sink {
    /// Returns the offset of the buffer's free tail, and `len` bytes of it. Only bytes confirmed by
    /// [`Sink::keep`] survive the next call.
    pub(crate) fn tail(&mut self, len: usize) -> (usize, &mut [u8]) {
        let end = self.used.saturating_add(len);
        if self.bytes.len() < end {
            // The buffer stays initialised once it has grown, so that no call clears it again.
            self.bytes.resize(end.max(SINK_BYTES_MIN), 0);
        }
        (self.used, self.bytes.get_mut(self.used..end).unwrap_or(&mut []))
    }

    /// Keeps all bytes before `end`.
    pub(crate) fn keep(&mut self, end: usize) {
        self.used = self.used.max(end);
    }

    /// Appends bytes to the buffer and keeps them.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let (start, room) = self.tail(bytes.len());
        room.copy_from_slice(bytes);
        let end = start.saturating_add(bytes.len());
        self.used = end;
        start..end
    }

    /// Returns a range of the buffer for writing.
    pub(crate) fn part_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.bytes.get_mut(range).unwrap_or(&mut [])
    }

    /// Returns a range of the buffer.
    pub(crate) fn part(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or(&[])
    }
}
