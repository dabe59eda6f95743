//! Frames of the peer on their way to the service that forwards the group's frames.
//!
//! [`Ingress`] counts the frames of a port and drops those without a whole header and, unless the
//! port learns, those from another source address than the port's. [`UplinkSender`] passes the
//! others on in batches, at most [`BATCHES_MAX`] (2) at a time and while the inbox of the
//! forwarding service is not half full; without room the frames wait in the socket, so that a
//! stream peer waits and none is lost here. The shard of the port calls both in its dispatcher's
//! thread. The callers, [`crate::stream_end`] and [`crate::datagram_end`], ask
//! [`UplinkSender::has_room`] before each batch: a batch sent without room replaces the one that
//! waits, whose frames are lost. A frame shorter than an Ethernet header is a runt. The report of a
//! refused source address is given once, until another address is refused.

use std::ops::Range;

use causeway_fabric::carrier::{
    BufferPool, LinkId, Message, OFFLOAD_BYTES, PooledBuffer, ReceivedFrame, ReceivedFrames,
};
use causeway_fabric::mailbox::Sender;
use causeway_model::Mac;
use causeway_wire::ethernet;

use crate::counters::TransmitCounters;
use crate::limits::BATCHES_MAX;

/// Checks the frames of a peer.
#[derive(Debug)]
pub(crate) struct Ingress {
    mac: Mac,
    learns: bool,
    /// The refused source address that was reported last.
    refused: Option<[u8; 6]>,
    /// A refused source address that was not reported.
    unreported: Option<[u8; 6]>,
    pub counters: TransmitCounters,
}

impl Ingress {
    /// Returns the check of a port with this address.
    pub fn new(mac: Mac, learns: bool) -> Self {
        let counters = TransmitCounters::default();
        Self { mac, learns, refused: None, unreported: None, counters }
    }

    /// Counts a frame. Returns whether the frame goes on.
    pub fn admit(&mut self, frame: &[u8]) -> bool {
        self.counters.packets = self.counters.packets.wrapping_add(1);
        self.counters.bytes = self.counters.bytes.wrapping_add(frame.len() as u64);
        let Ok(header) = ethernet::Header::parse(frame) else {
            self.counters.runt = self.counters.runt.wrapping_add(1);
            return false;
        };
        if self.learns || header.source == self.mac.0 {
            return true;
        }
        self.counters.spoofed = self.counters.spoofed.wrapping_add(1);
        if self.refused != Some(header.source) {
            self.refused = Some(header.source);
            self.unreported = self.refused;
        }
        false
    }

    /// Returns the report of a refused source address, once until another address is refused.
    pub fn take_report(&mut self) -> Option<String> {
        let source = Mac(self.unreported.take()?);
        let own = self.mac;
        Some(format!(
            "frames from {source} are dropped: the port's address is {own}; give the peer's interface \
             that address, add the port with mac = {source}, or set learn = true for a network stack or \
             a bridge"
        ))
    }
}

/// Passes the frames of a port to the forwarding service.
#[derive(Debug)]
pub(crate) struct UplinkSender {
    /// Identifier in the forwarding service.
    id: LinkId,
    to: Sender<Message>,
    /// Buffers of batches; the only handle, so that it counts the batches under way.
    pool: BufferPool,
    /// Batch that found no room in the inbox.
    refused: Option<Message>,
    /// The last answer of [`Self::has_room`] was false.
    is_blocked: bool,
}

impl UplinkSender {
    /// Returns the sender of the station `id` to the inbox of the forwarding service.
    pub fn new(id: LinkId, to: Sender<Message>) -> Self {
        Self { id, to, pool: BufferPool::default(), refused: None, is_blocked: false }
    }

    /// Returns whether a batch has room now; counts the beginning of a wait.
    pub fn has_room(&mut self, counters: &mut TransmitCounters) -> bool {
        if let Some(batch) = self.refused.take() {
            self.refused = self.to.push_bulk(batch).err();
        }
        let has_room = self.refused.is_none() && self.pool.in_use() < BATCHES_MAX;
        if !has_room && !self.is_blocked {
            counters.waits = counters.waits.wrapping_add(1);
        }
        self.is_blocked = !has_room;
        has_room
    }

    /// Returns a buffer of at least `len` bytes.
    pub fn buffer(&self, len: usize) -> PooledBuffer {
        self.pool.take(len)
    }

    /// Makes the bytes of frames a buffer that returns for reuse.
    pub fn adopt(&self, bytes: Vec<u8>) -> PooledBuffer {
        self.pool.adopt(bytes)
    }

    /// Sends frames at places of a buffer.
    pub fn send(&mut self, bytes: PooledBuffer, frames: Vec<Range<usize>>) {
        if frames.is_empty() {
            return;
        }
        let offload = [0; OFFLOAD_BYTES];
        let frame = |at| ReceivedFrame { at, offload, hops: 0, flood: None };
        let frames = frames.into_iter().map(frame).collect();
        let batch = Message::ReceivedFrames(ReceivedFrames { link: self.id, bytes, frames });
        self.refused = self.to.push_bulk(batch).err();
    }
}

#[cfg(test)]
mod tests {
    use causeway_fabric::mailbox::mailbox;

    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn frame(source: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, source, 8, 0];
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn ingress_drops_runts_and_foreign_sources_and_reports_them_once() {
        let mut ingress = Ingress::new(OWN, false);
        assert!(ingress.admit(&frame(1)) && !ingress.admit(&frame(1)[..13]));
        assert!(!ingress.admit(&frame(7)) && !ingress.admit(&frame(7)));
        let report = ingress.take_report().unwrap();
        assert!(report.contains("02:00:00:00:00:07") && report.contains("learn"), "{report}");
        assert!(!ingress.admit(&frame(7)));
        assert_eq!(ingress.take_report(), None);
        assert!(Ingress::new(OWN, true).admit(&frame(7)));
        let TransmitCounters { packets, runt, spoofed, .. } = ingress.counters;
        assert_eq!((packets, runt, spoofed), (5, 1, 3));
    }

    #[test]
    fn uplink_sender_has_two_batches_under_way_and_loses_none() {
        let (to, inbox) = mailbox(2).unwrap();
        let (mut counters, send) = (TransmitCounters::default(), |sender: &mut UplinkSender| {
            let buffer = sender.buffer(60);
            sender.send(buffer, std::iter::once(0..60).collect());
        });
        let mut first = UplinkSender::new(LinkId(1), to.clone());
        let mut second = UplinkSender::new(LinkId(2), to);
        assert!(first.has_room(&mut counters));
        send(&mut first);
        assert!(first.has_room(&mut counters));
        send(&mut first);
        assert!(!first.has_room(&mut counters) && !first.has_room(&mut counters));
        assert_eq!(counters.waits, 1, "a wait counts once");
        assert!(second.has_room(&mut counters));
        send(&mut second);
        let mut links = Vec::new();
        while let Some(Message::ReceivedFrames(received)) = inbox.next() {
            links.push(received.link.0);
            drop(received);
            first.has_room(&mut counters);
            second.has_room(&mut counters);
        }
        links.sort_unstable();
        assert_eq!(links, [1, 1, 2]);
    }
}
