//! Frames that wait for a receiver's buffers.
//!
//! A waiting frame stays in its sender's ring: the sender keeps it until it is
//! delivered or dropped, which is the back-pressure. So one receiver that gives
//! no buffers may keep a part of a sender's ring, for a short time, and no more.

use std::collections::{HashMap, VecDeque};

use crate::job::Taken;
use crate::limits::{
    HELD_BYTES_MAX, HELD_NS_MAX, HELD_PER_LINK_SIZE, HELD_PER_QUEUE_MAX, HELD_PER_RECEIVER_DIVISOR,
    HELD_PER_SENDER_DIVISOR,
};

/// A transmit ring: the port's place in the service, and the queue.
pub(crate) type Sender = (u32, usize);

/// One frame that waits.
#[derive(Debug)]
pub(crate) struct Held {
    pub sender: Sender,
    pub frame: Taken,
    /// Its bytes, where a link brought it.
    pub bytes: Option<Box<[u8]>>,
    /// Pieces delivered already, where it is cut.
    pub done: usize,
    pub since_ns: u64,
}

impl Held {
    /// Bytes of it that we keep.
    fn copied(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    /// When it is dropped.
    pub fn deadline_ns(&self) -> u64 {
        self.since_ns.saturating_add(HELD_NS_MAX)
    }
}

/// The frames that wait for one receive queue, in their order.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    frames: VecDeque<Held>,
    counts: HashMap<Sender, u16>,
    /// Bytes of frames that links brought.
    bytes: usize,
}

impl Backlog {
    /// Whether one more frame may wait: of a sender with a ring of `size` entries, `in_flight` of
    /// which wait somewhere, this frame among them.
    pub fn has_room(&self, sender: Sender, size: u16, in_flight: u16) -> bool {
        let here = self.counts.get(&sender).copied().unwrap_or(0);
        let part = |divisor: u16| size.checked_div(divisor).unwrap_or(0).max(1);
        self.frames.len() < HELD_PER_QUEUE_MAX
            && here < part(HELD_PER_RECEIVER_DIVISOR)
            && in_flight <= part(HELD_PER_SENDER_DIVISOR)
    }

    /// Whether one more frame of `len` bytes may wait that a link at `sender` brought: here we keep
    /// its bytes.
    pub fn has_room_for_copy(&self, sender: Sender, len: usize) -> bool {
        self.has_room(sender, HELD_PER_LINK_SIZE, 0)
            && self.bytes.saturating_add(len) <= HELD_BYTES_MAX
    }

    /// Adds a frame behind the others.
    pub fn push(&mut self, held: Held) {
        self.bytes = self.bytes.saturating_add(held.copied());
        let count = self.counts.entry(held.sender).or_insert(0);
        *count = count.saturating_add(1);
        self.frames.push_back(held);
    }

    /// Puts a frame that was popped before the others again.
    pub fn put_back(&mut self, held: Held) {
        self.bytes = self.bytes.saturating_add(held.copied());
        let count = self.counts.entry(held.sender).or_insert(0);
        *count = count.saturating_add(1);
        self.frames.push_front(held);
    }

    /// The first frame.
    pub fn pop(&mut self) -> Option<Held> {
        let held = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(held.copied());
        self.count_off(held.sender);
        Some(held)
    }

    /// The first frame if it has waited as long as it may.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<Held> {
        self.deadline_ns().filter(|&at| at <= now_ns)?;
        self.pop()
    }

    /// When the first frame is dropped.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.frames.front().map(Held::deadline_ns)
    }

    /// Takes out all frames of one port.
    pub fn take_from(&mut self, port: u32) -> Vec<Held> {
        if !self.counts.keys().any(|sender| sender.0 == port) {
            return Vec::new();
        }
        self.counts.retain(|sender, _| sender.0 != port);
        let all = std::mem::take(&mut self.frames);
        let (gone, stay): (Vec<_>, Vec<_>) = all.into_iter().partition(|h| h.sender.0 == port);
        self.bytes = stay.iter().map(Held::copied).fold(0, usize::saturating_add);
        self.frames = stay.into();
        gone
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    fn count_off(&mut self, sender: Sender) {
        if let Some(count) = self.counts.get_mut(&sender) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&sender);
            }
        }
    }
}
