//! Messages that no receive was posted for, in the order in which they came.

use super::slab::Slab;
use super::{Partner, Source};
use crate::limits::{
    PEER_NUMBERS_MAX, UNEXPECTED_ASKED_MAX, UNEXPECTED_BYTES_MAX, UNEXPECTED_BYTES_OF_ONE_MIN,
    UNEXPECTED_MAX, UNEXPECTED_OF_ONE_MIN,
};

/// How buffers are sized: powers of two from 64 bytes.
const CLASS_FIRST_LOG2: u32 = 6;
const CLASSES: usize = 10;
/// Buffers kept of each class.
const KEPT_MAX: usize = 64;
/// All that endpoints ask for, and what each partner has in any case.
const SLOTS: usize = UNEXPECTED_ASKED_MAX + PEER_NUMBERS_MAX * UNEXPECTED_OF_ONE_MIN;

/// What there is of a message.
#[derive(Debug)]
pub(super) enum Content {
    /// All of it.
    Whole(Vec<u8>),
    /// An offer.
    Offered(u64),
    /// A send of this endpoint to itself: the request, and a copy of its bytes if there was room.
    Own(u32, Option<Vec<u8>>),
}

impl Content {
    /// What is kept, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Whole(bytes) | Self::Own(_, Some(bytes)) => bytes.len(),
            Self::Offered(_) | Self::Own(_, None) => 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Message {
    pub partner: Partner,
    /// Who that was when it came.
    pub source: Source,
    pub match_info: u64,
    pub len: u32,
    pub content: Content,
    /// What came before has a lower one.
    pub order: u64,
}

/// How much is kept of one partner.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    pub messages: usize,
    pub bytes: usize,
}

/// All messages of an endpoint, of all contexts, and buffers for more.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub messages: Slab<Message>,
    bytes: usize,
    /// Bounds of both.
    messages_max: usize,
    bytes_max: usize,
    order: u64,
    kept: [Vec<Vec<u8>>; CLASSES],
}

impl Unexpected {
    pub(super) fn new() -> Self {
        Self {
            messages: Slab::new(64, SLOTS),
            bytes: 0,
            messages_max: UNEXPECTED_MAX,
            bytes_max: UNEXPECTED_BYTES_MAX,
            order: 0,
            kept: std::array::from_fn(|_| Vec::new()),
        }
    }

    pub(super) fn set_max(&mut self, messages: usize, bytes: usize) {
        (self.messages_max, self.bytes_max) = (messages.min(UNEXPECTED_ASKED_MAX), bytes);
    }

    /// Whether a message with `len` bytes to keep finds room.
    pub(super) fn has_room(&self, len: usize) -> bool {
        let bytes = self.bytes.saturating_add(len);
        self.messages.len() < self.messages_max && bytes <= self.bytes_max
    }

    /// The same of one partner, of which so much is kept already: no partner has more than what is
    /// left for the others, and each has a little whatever the others have.
    pub(super) fn has_room_for(&self, kept: Kept, len: usize) -> bool {
        let its = kept.bytes.saturating_add(len);
        if kept.messages < UNEXPECTED_OF_ONE_MIN && its <= UNEXPECTED_BYTES_OF_ONE_MIN {
            return !self.messages.is_full();
        }
        let messages = self.messages_max.saturating_sub(self.messages.len());
        let bytes = self.bytes_max.saturating_sub(self.bytes);
        kept.messages < messages && its <= bytes.saturating_sub(len)
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.order = self.order.saturating_add(1);
        self.order
    }

    /// A buffer of `len` zeros, of those that were given back if there is one.
    pub(super) fn buffer(&mut self, len: usize) -> Vec<u8> {
        self.bytes = self.bytes.saturating_add(len);
        if len == 0 {
            return Vec::new();
        }
        let class = class(len);
        let mut buffer = match self.kept.get_mut(class) {
            Some(kept) => kept.pop().unwrap_or_else(|| Vec::with_capacity(class_bytes(class))),
            None => Vec::with_capacity(len),
        };
        buffer.resize(len, 0);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        self.bytes = self.bytes.saturating_sub(buffer.len());
        let class = class(buffer.len());
        if !buffer.is_empty()
            && let Some(kept) = self.kept.get_mut(class)
            && kept.len() < KEPT_MAX
        {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

fn class(len: usize) -> usize {
    let log2 = len.max(1).next_power_of_two().trailing_zeros();
    log2.saturating_sub(CLASS_FIRST_LOG2) as usize
}

fn class_bytes(class: usize) -> usize {
    (1_usize << CLASS_FIRST_LOG2).checked_shl(u32::try_from(class).unwrap_or(0)).unwrap_or(0)
}
