//! The queue of frames that wait for the buffers of one receive queue.
//!
//! A port (`crate::port`) has one queue for each of its receive queues; `crate::pending` fills and
//! empties it. A pending frame of a guest stays in its sender's ring until it is delivered or
//! dropped; the occupied ring is the back-pressure. A receiver without buffers may therefore hold
//! 1/[`PENDING_PER_RECEIVER_DIVISOR`] (a quarter) of a sender's ring, all receivers together
//! 1/[`PENDING_PER_SENDER_DIVISOR`] (half), and each frame for at most [`PENDING_NS_MAX`] (100 ms).
//! A queue holds at most [`PENDING_PER_QUEUE_MAX`] (1,024) frames. Frames of links wait as copies,
//! at most 256 of one bundle and [`PENDING_BYTES_MAX`] bytes (4 MiB) of all in one queue.
//!
//! The module delivers nothing, returns no chain and enforces no bound by itself: callers must ask
//! [`PendingQueue::has_room`], or [`PendingQueue::has_room_for_copy`], before
//! [`PendingQueue::push`]. All of it runs in the dispatcher's thread of the group.

use std::collections::{HashMap, VecDeque};

use crate::headers::RxFrame;
use crate::limits::{
    PENDING_BYTES_MAX, PENDING_NS_MAX, PENDING_PER_LINK_SIZE, PENDING_PER_QUEUE_MAX,
    PENDING_PER_RECEIVER_DIVISOR, PENDING_PER_SENDER_DIVISOR,
};

/// A transmit ring: the port's switch index and the virtio queue number. Frames of a link have the
/// switch index of its bundle and queue 0.
pub(crate) type TransmitQueue = (u32, usize);

/// A frame that waits for receive buffers.
#[derive(Debug)]
pub(crate) struct PendingFrame {
    /// The transmit ring that the frame occupies.
    pub sender: TransmitQueue,
    /// The frame. Its chain is empty if a link brought it.
    pub frame: RxFrame,
    /// The frame's bytes, if a link brought it.
    pub bytes: Option<Box<[u8]>>,
    /// Segments that were delivered already.
    pub done: usize,
    /// Time of enqueueing, on the shard's clock.
    pub since_ns: u64,
}

impl PendingFrame {
    /// Returns the bytes that the queue keeps for the frame.
    fn copied(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    /// Returns the time at which the frame is dropped.
    pub fn deadline_ns(&self) -> u64 {
        self.since_ns.saturating_add(PENDING_NS_MAX)
    }
}

/// Pending frames of one receive queue, in arrival order.
#[derive(Debug, Default)]
pub(crate) struct PendingQueue {
    /// The frames, oldest first.
    frames: VecDeque<PendingFrame>,
    /// Pending frames of each sender.
    counts: HashMap<TransmitQueue, u16>,
    /// Bytes of frames from links.
    bytes: usize,
}

impl PendingQueue {
    /// Returns whether the queue accepts another frame of `sender`, whose ring has `size` entries,
    /// `in_flight` of which are pending anywhere, this frame included.
    pub fn has_room(&self, sender: TransmitQueue, size: u16, in_flight: u16) -> bool {
        let here = self.counts.get(&sender).copied().unwrap_or(0);
        let part = |divisor: u16| size.checked_div(divisor).unwrap_or(0).max(1);
        self.frames.len() < PENDING_PER_QUEUE_MAX
            && here < part(PENDING_PER_RECEIVER_DIVISOR)
            && in_flight <= part(PENDING_PER_SENDER_DIVISOR)
    }

    /// Returns whether the queue accepts a copy of `len` bytes from the link at `sender`.
    pub fn has_room_for_copy(&self, sender: TransmitQueue, len: usize) -> bool {
        self.has_room(sender, PENDING_PER_LINK_SIZE, 0)
            && self.bytes.saturating_add(len) <= PENDING_BYTES_MAX
    }

    /// Appends a frame.
    pub fn push(&mut self, entry: PendingFrame) {
        self.bytes = self.bytes.saturating_add(entry.copied());
        let count = self.counts.entry(entry.sender).or_insert(0);
        *count = count.saturating_add(1);
        self.frames.push_back(entry);
    }

    /// Puts a frame that [`Self::pop`] returned back at the front. Its deadline stays.
    pub fn put_back(&mut self, entry: PendingFrame) {
        self.bytes = self.bytes.saturating_add(entry.copied());
        let count = self.counts.entry(entry.sender).or_insert(0);
        *count = count.saturating_add(1);
        self.frames.push_front(entry);
    }

    /// Pops the first frame.
    pub fn pop(&mut self) -> Option<PendingFrame> {
        let entry = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(entry.copied());
        self.count_off(entry.sender);
        Some(entry)
    }

    /// Pops the first frame if its deadline has passed.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<PendingFrame> {
        self.deadline_ns().filter(|&at| at <= now_ns)?;
        self.pop()
    }

    /// Returns the deadline of the first frame.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.frames.front().map(PendingFrame::deadline_ns)
    }

    /// Removes and returns all frames of one port.
    pub fn take_from(&mut self, port: u32) -> Vec<PendingFrame> {
        if !self.counts.keys().any(|sender| sender.0 == port) {
            return Vec::new();
        }
        self.counts.retain(|sender, _| sender.0 != port);
        let all = std::mem::take(&mut self.frames);
        let (gone, stay): (Vec<_>, Vec<_>) = all.into_iter().partition(|h| h.sender.0 == port);
        self.bytes = stay.iter().map(PendingFrame::copied).fold(0, usize::saturating_add);
        self.frames = stay.into();
        gone
    }

    /// Returns whether no frame is pending.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Subtracts one frame from the count of `sender`.
    fn count_off(&mut self, sender: TransmitQueue) {
        if let Some(count) = self.counts.get_mut(&sender) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&sender);
            }
        }
    }
}
