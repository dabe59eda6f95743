//! Unexpected messages: messages without a posted receive, in their order of arrival, and a pool of
//! buffers for their bytes.
//!
//! Limits: [`UNEXPECTED_MAX`] (65,536) messages and [`UNEXPECTED_BYTES_MAX`] (64 MiB) per endpoint
//! by default ([`Library::set_unexpected_max`](super::Library::set_unexpected_max) changes both).
//! One sender occupies at most as much as is free, but always may have [`UNEXPECTED_PER_PEER_MIN`]
//! (16) messages with [`UNEXPECTED_BYTES_PER_PEER_MIN`] (64 KiB) together, also beyond the limits
//! of the endpoint. An offer counts as a message of 0 bytes. The pool keeps at most `KEPT_MAX` (64)
//! buffers of each of `CLASSES` (10) sizes, 64 bytes to 32 KiB; longer buffers are freed.
//!
//! This module does not refuse, match or drop messages: the caller checks the room first, and the
//! transport keeps a message or offer that does not fit. A message that the unexpected handler let
//! through is kept beyond the limits; one to the own endpoint is kept without a copy of its bytes.
//! Eager messages of a lost peer stay until a receive takes them; its offers are dropped.
//!
//! Filled by `library::progress` and `library::send` (own endpoint); emptied by `library::receive`,
//! `library::directed` and, of the offers of a lost peer, `library::connect`. The lists per context
//! id are in `library::contexts`. All under the lock of the endpoint, in the thread that calls the
//! library.

use super::slab::{Slab, SlabList};
use super::{EndpointIdentity, Partner};
use crate::limits::{
    PEER_NUMBERS_MAX, UNEXPECTED_BYTES_MAX, UNEXPECTED_BYTES_PER_PEER_MIN, UNEXPECTED_LIMIT_MAX,
    UNEXPECTED_MAX, UNEXPECTED_PER_PEER_MIN,
};

/// Buffer sizes are powers of two from 64 bytes.
const CLASS_FIRST_LOG2: u32 = 6;
/// Number of buffer sizes.
const CLASSES: usize = 10;
/// Pooled buffers of each size.
const KEPT_MAX: usize = 64;
/// Entries for the largest limit that an endpoint may request, and for the guaranteed messages of
/// each peer.
const SLOTS: usize = UNEXPECTED_LIMIT_MAX + PEER_NUMBERS_MAX * UNEXPECTED_PER_PEER_MIN;

/// Content of an unexpected message.
#[derive(Debug)]
pub(super) enum UnexpectedContent {
    /// All bytes.
    Whole(Vec<u8>),
    /// The transport's number of an offer ([`TransportEvent::Offered`](super::TransportEvent)); the
    /// bytes are with the sender.
    Offered(u64),
    /// A send of this endpoint to itself: its request, and a copy of its bytes if there was room.
    Own(u32, Option<Vec<u8>>),
}

impl UnexpectedContent {
    /// Returns the number of bytes that this endpoint keeps.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Whole(bytes) | Self::Own(_, Some(bytes)) => bytes.len(),
            Self::Offered(_) | Self::Own(_, None) => 0,
        }
    }
}

/// A message without a receive.
#[derive(Debug)]
pub(super) struct UnexpectedMessage {
    pub partner: Partner,
    /// Identity of the sender at arrival.
    pub source: EndpointIdentity,
    pub match_info: u64,
    /// Length of the message, in bytes.
    pub len: u32,
    pub content: UnexpectedContent,
    /// Increases with each message.
    pub order: u64,
}

/// Unexpected messages of one peer, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnexpectedUsage {
    /// Number of messages.
    pub messages: usize,
    /// Their bytes; an offer has 0.
    pub bytes: usize,
}

/// All unexpected messages of an endpoint, over all contexts.
#[derive(Debug)]
pub(super) struct Unexpected {
    messages: Slab<UnexpectedMessage>,
    /// A message did not fit since [`Self::take_full`].
    was_full: bool,
    /// Bytes in buffers of [`Self::buffer`].
    bytes: usize,
    /// Limits of `messages` and `bytes`.
    messages_max: usize,
    bytes_max: usize,
    /// Order of the last message.
    order: u64,
    /// Pool of free buffers, by size.
    pool: [Vec<Vec<u8>>; CLASSES],
}

impl Unexpected {
    pub(super) fn new() -> Self {
        Self {
            messages: Slab::new(64, SLOTS),
            was_full: false,
            bytes: 0,
            messages_max: UNEXPECTED_MAX,
            bytes_max: UNEXPECTED_BYTES_MAX,
            order: 0,
            pool: std::array::from_fn(|_| Vec::new()),
        }
    }

    /// Sets the limits; messages beyond new limits stay.
    pub(super) fn set_max(&mut self, messages: usize, bytes: usize) {
        (self.messages_max, self.bytes_max) = (messages.min(UNEXPECTED_LIMIT_MAX), bytes);
    }

    /// Returns whether a message of this endpoint to itself, with `len` bytes to keep, fits.
    pub(super) fn has_room(&self, len: usize) -> bool {
        let bytes = self.bytes.saturating_add(len);
        self.messages.len() < self.messages_max && bytes <= self.bytes_max
    }

    /// Returns whether a message with `len` bytes to keep fits, of a peer with the usage `kept`. A
    /// peer may use at most as much as is free, and a guaranteed minimum in any case.
    pub(super) fn has_room_for(&self, kept: UnexpectedUsage, len: usize) -> bool {
        let its = kept.bytes.saturating_add(len);
        if kept.messages < UNEXPECTED_PER_PEER_MIN && its <= UNEXPECTED_BYTES_PER_PEER_MIN {
            return !self.messages.is_full();
        }
        let messages = self.messages_max.saturating_sub(self.messages.len());
        let bytes = self.bytes_max.saturating_sub(self.bytes);
        kept.messages < messages && its <= bytes.saturating_sub(len)
    }

    /// Records that a message found room or not.
    #[inline]
    pub(super) fn note_room(&mut self, room: bool) {
        self.was_full |= !room;
    }

    /// Returns whether a message did not fit since the last call.
    #[inline]
    pub(super) fn take_full(&mut self) -> bool {
        std::mem::take(&mut self.was_full)
    }

    /// Returns the number of messages.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether no further message can be kept at all.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.messages.is_full()
    }

    /// Returns a bound of the indices of messages.
    #[inline]
    pub(super) fn places(&self) -> u32 {
        self.messages.places()
    }

    /// Returns the message at an index.
    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&UnexpectedMessage> {
        self.messages.get(at)
    }

    /// Returns the messages of a context, oldest first.
    #[inline]
    pub(super) fn iter(&self, list: &SlabList) -> impl Iterator<Item = (u32, &UnexpectedMessage)> {
        self.messages.iter(list)
    }

    /// Appends a message to the list of its context; drops the message if none can be kept.
    #[inline]
    pub(super) fn insert(&mut self, list: &mut SlabList, message: UnexpectedMessage) {
        if let Some(at) = self.messages.insert(message) {
            self.messages.push(list, at);
        }
    }

    /// Removes a message from the list of its context.
    #[inline]
    pub(super) fn remove(&mut self, list: &mut SlabList, at: u32) -> Option<UnexpectedMessage> {
        self.messages.unlink(list, at);
        self.messages.remove(at)
    }

    /// Returns the order of the next message.
    pub(super) fn next_order(&mut self) -> u64 {
        self.order = self.order.saturating_add(1);
        self.order
    }

    /// Returns a zeroed buffer of `len` bytes, from the pool if possible.
    pub(super) fn buffer(&mut self, len: usize) -> Vec<u8> {
        self.bytes = self.bytes.saturating_add(len);
        if len == 0 {
            return Vec::new();
        }
        let class = class(len);
        let mut buffer = match self.pool.get_mut(class) {
            Some(free) => free.pop().unwrap_or_else(|| Vec::with_capacity(class_bytes(class))),
            None => Vec::with_capacity(len),
        };
        buffer.resize(len, 0);
        buffer
    }

    /// Returns a buffer to the pool, or frees it if the pool is full or has no such size.
    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        self.bytes = self.bytes.saturating_sub(buffer.len());
        let class = class(buffer.len());
        if !buffer.is_empty()
            && let Some(free) = self.pool.get_mut(class)
            && free.len() < KEPT_MAX
        {
            buffer.clear();
            free.push(buffer);
        }
    }
}

/// Returns the class of the buffer for `len` bytes; `CLASSES` or more for a buffer without a pool.
fn class(len: usize) -> usize {
    let log2 = len.max(1).next_power_of_two().trailing_zeros();
    log2.saturating_sub(CLASS_FIRST_LOG2) as usize
}

/// Returns the size of the buffers of a class, in bytes.
fn class_bytes(class: usize) -> usize {
    (1_usize << CLASS_FIRST_LOG2).checked_shl(u32::try_from(class).unwrap_or(0)).unwrap_or(0)
}
