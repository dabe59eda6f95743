//! Frames of an interface to the service that forwards the group's frames, with back-pressure.
//!
//! [`FrameReader::read`] reads frames into a batch of at most [`BATCH_FRAMES_MAX`] (64) frames and
//! [`BATCH_BYTES`] (about 200 KiB), which goes to the mailbox of the forwarding service when it is
//! full and at the end of a call. Without room for a batch, or while [`BATCHES_MAX`] (3) are under
//! way, no frame is read: frames wait in the kernel's queue of the interface, and a flood delays or
//! loses frames of its own interface only. `service` calls it in the thread of the TAP shard. A
//! call ends after its budget of frames, and when the turn has used its time.
//!
//! The kernel writes the header before each frame from its own socket buffer, and the frame from
//! whatever a program of the host sent. Lengths and the source address are checked here (the MTU
//! only for a frame that is not to be cut); the forwarding service checks header and offload
//! against the frame, as those of a guest.
//!
//! # Budget
//! One system call (`read`) a frame, one more that finds no frame, and two copies: by the kernel
//! into the batch, and by the forwarding service to the receiver. One wake-up of the forwarding
//! service a batch, none if it runs in the same dispatcher or polls.

use causeway_fabric::carrier::{
    BufferPool, LinkId, Message, OFFLOAD_BYTES, PooledBuffer, ReceivedFrame, ReceivedFrames,
};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::{Context, cost};
use causeway_host::net::tap::{TAP_HEADER_BYTES, TapInterface};
use causeway_wire::ethernet;
use causeway_wire::virtio_net::{GSO_NONE, Header};
use rustix::io::Errno;

use crate::limits::{
    BATCH_BYTES, BATCH_FRAMES_MAX, BATCHES_MAX, FRAME_BYTES_MIN, HEADERS_BYTES_MAX, READ_NS,
    READ_ROOM,
};
use crate::stats::{Counter, TapStats};

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// The budget or the time of the turn is used; the interface may have more frames.
    Budget,
    /// The interface has no frame.
    Empty,
    /// The forwarding service has no room for a batch.
    NoRoom,
    /// The interface is gone, or failed.
    Failed(Errno),
}

/// Checks of frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameRules {
    /// The only source address; `None` if the port learns.
    pub(crate) source: Option<u64>,
    /// Largest payload of a frame that is no segment to be cut, in bytes.
    pub(crate) mtu: usize,
}

impl FrameRules {
    /// Returns the offloads of a frame, and the reason to drop it.
    fn check(
        &self,
        header: &[u8; TAP_HEADER_BYTES],
        frame: &[u8],
    ) -> Result<[u8; OFFLOAD_BYTES], Counter> {
        let header = Header::from_host(header);
        let Some((_, source, _)) = ethernet::numbers(frame) else { return Err(Counter::Runt) };
        let is_whole = header.gso_type == GSO_NONE;
        if is_whole && frame.len() > self.mtu.saturating_add(HEADERS_BYTES_MAX) {
            return Err(Counter::TooBig);
        }
        if self.source.is_some_and(|own| own != source) {
            return Err(Counter::SpoofedSource);
        }
        Ok(header.emit().first_chunk().copied().unwrap_or_default())
    }
}

/// Reads the frames of an interface.
#[derive(Debug)]
pub(crate) struct FrameReader {
    /// Identifier of the port in the forwarding service, and that service's mailbox.
    id: LinkId,
    to: Sender<Message>,
    rules: FrameRules,
    /// Buffers of batches; the only handle, so that it counts the batches under way.
    pool: BufferPool,
    batch: Option<PooledBuffer>,
    /// End of the last frame in the batch.
    used: usize,
    frames: Vec<ReceivedFrame>,
    /// Batch that found no room in the mailbox.
    refused: Option<Message>,
}

impl FrameReader {
    /// Returns the reader of a port.
    pub(crate) fn new(id: LinkId, to: Sender<Message>, rules: FrameRules) -> Self {
        Self {
            id,
            to,
            rules,
            pool: BufferPool::default(),
            batch: None,
            used: 0,
            frames: Vec::new(),
            refused: None,
        }
    }

    /// Reads at most `budget` frames and sends them. Returns the number of frames and why it ended.
    pub(crate) fn read(
        &mut self,
        cx: &mut Context<'_>,
        interface: &TapInterface,
        stats: &TapStats,
        budget: usize,
    ) -> (usize, ReadEnd) {
        let mut count = 0_usize;
        let end = loop {
            if count >= budget || (count > 0 && cx.is_over()) {
                break ReadEnd::Budget;
            }
            if !self.has_room() {
                break ReadEnd::NoRoom;
            }
            cx.charge(READ_NS);
            match self.read_one(interface, stats) {
                Ok(len) => {
                    count = count.saturating_add(1);
                    cx.charge(cost::bytes(len));
                }
                Err(Errno::AGAIN) => break ReadEnd::Empty,
                Err(Errno::INTR) => {}
                Err(error) => break ReadEnd::Failed(error),
            }
        };
        self.flush();
        (count, end)
    }

    /// Returns whether the batch has room for a frame; sends a full batch.
    fn has_room(&mut self) -> bool {
        if let Some(batch) = self.refused.take() {
            self.send(batch);
        }
        let is_full = self.frames.len() >= BATCH_FRAMES_MAX
            || self.used.saturating_add(READ_ROOM) > BATCH_BYTES;
        if is_full {
            self.flush();
        }
        self.refused.is_none() && (self.batch.is_some() || self.pool.in_use() < BATCHES_MAX)
    }

    /// Reads a frame, and keeps it if it obeys the rules. Returns its length.
    fn read_one(&mut self, interface: &TapInterface, stats: &TapStats) -> Result<usize, Errno> {
        let batch = self.batch.get_or_insert_with(|| self.pool.take(BATCH_BYTES));
        let end = self.used.saturating_add(READ_ROOM);
        let room = batch.get_mut(self.used..end).ok_or(Errno::NOBUFS)?;
        let len = interface.read(room)?;
        let is_cut = len >= READ_ROOM;
        let len = len.saturating_sub(TAP_HEADER_BYTES);
        stats.add(Counter::TransmitPackets, 1);
        stats.add(Counter::TransmitBytes, len);
        let parts = room.split_first_chunk::<TAP_HEADER_BYTES>();
        let frame = parts.and_then(|(header, rest)| Some((header, rest.get(..len)?)));
        let checked = match frame {
            _ if is_cut => Err(Counter::TooBig),
            Some((header, frame)) if len >= FRAME_BYTES_MIN => self.rules.check(header, frame),
            _ => Err(Counter::Runt),
        };
        match checked {
            Ok(offload) => {
                let start = self.used.saturating_add(TAP_HEADER_BYTES);
                let at = start..start.saturating_add(len);
                self.used = at.end;
                self.frames.push(ReceivedFrame { at, offload, hops: 0, flood: None });
            }
            Err(why) => stats.add(why, 1),
        }
        Ok(len)
    }

    /// Sends the frames of the open batch.
    fn flush(&mut self) {
        if self.refused.is_some() || self.frames.is_empty() {
            return;
        }
        let Some(bytes) = self.batch.take() else { return };
        let frames = std::mem::take(&mut self.frames);
        self.used = 0;
        self.send(Message::ReceivedFrames(ReceivedFrames { link: self.id, bytes, frames }));
    }

    fn send(&mut self, batch: Message) {
        self.refused = self.to.push_bulk(batch).err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(source: [u8; 6], len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[6..12].copy_from_slice(&source);
        frame
    }

    #[test]
    fn tap_frames_are_checked_for_length_and_source() {
        let (own, other) = ([0x52, 0x54, 0, 0, 0, 1], [0x52, 0x54, 0, 0, 0, 2]);
        let rules = FrameRules { source: Some(ethernet::number(own)), mtu: 1500 };
        let plain = Header::default().to_host();
        assert_eq!(rules.check(&plain, &frame(own, 1518)), Ok([0; OFFLOAD_BYTES]));
        assert_eq!(rules.check(&plain, &frame(own, 1519)), Err(Counter::TooBig));
        assert_eq!(rules.check(&plain, &frame(other, 60)), Err(Counter::SpoofedSource));
        let learning = FrameRules { source: None, ..rules };
        assert!(learning.check(&plain, &frame(other, 60)).is_ok());
        let segment = Header { flags: 3, gso_type: 1, gso_size: 1448, ..Header::default() };
        let offload = rules.check(&segment.to_host(), &frame(own, 40_000)).unwrap();
        let kept = Header { flags: 1, ..segment }.emit();
        assert_eq!(offload[..], kept[..OFFLOAD_BYTES], "flags that request no work are cleared");
    }
}
