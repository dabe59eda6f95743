//! Messages and offers that the library half could not take, and what came behind them of the same
//! partners. Other partners' go past.

use std::collections::{HashMap, VecDeque};

use causeway_wire::mx::PeerId;

use crate::library::Arrival;
use crate::limits::{ASIDE_ALL_BYTES_MAX, ASIDE_ALL_MAX, ASIDE_BYTES_MAX, ASIDE_MAX};

/// What waits of one partner; never nothing.
#[derive(Debug, Default)]
struct Queue {
    all: VecDeque<(Arrival, Vec<u8>)>,
    bytes: usize,
}

impl Queue {
    fn is_long(&self) -> bool {
        self.bytes >= ASIDE_BYTES_MAX || self.all.len() >= ASIDE_MAX
    }
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct Aside {
    queues: HashMap<PeerId, Queue>,
    /// Whose turn it is, in order.
    turns: VecDeque<PeerId>,
    /// How many had it in this round.
    round: usize,
    /// How many in a row had it in vain.
    vain: usize,
    messages: usize,
    bytes: usize,
    /// Queues that are as long as they may be.
    long: usize,
}

impl Aside {
    /// Whether anything of a partner waits.
    #[inline]
    pub(super) fn has(&self, peer: PeerId) -> bool {
        !self.queues.is_empty() && self.queues.contains_key(&peer)
    }

    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whether as much waits as may: then nothing more is to come.
    #[inline]
    pub(super) fn is_stuffed(&self) -> bool {
        self.long > 0 || self.bytes >= ASIDE_ALL_BYTES_MAX || self.messages >= ASIDE_ALL_MAX
    }

    /// Whether all wait for the application alone.
    pub(super) fn is_vain(&self) -> bool {
        self.vain >= self.turns.len()
    }

    /// The application did something: they may be taken now. Says whether there are any.
    pub(super) fn stir(&mut self) -> bool {
        (self.round, self.vain) = (0, 0);
        !self.turns.is_empty()
    }

    /// Adds what came of a partner; says whether it is the first. The first was deferred.
    pub(super) fn push(&mut self, peer: PeerId, arrival: Arrival, bytes: Vec<u8>) -> bool {
        let queue = self.queues.entry(peer).or_default();
        let (first, long) = (queue.all.is_empty(), queue.is_long());
        self.messages = self.messages.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes.len());
        queue.bytes = queue.bytes.saturating_add(bytes.len());
        queue.all.push_back((arrival, bytes));
        if !long && queue.is_long() {
            self.long = self.long.saturating_add(1);
        }
        if first {
            self.turns.push_back(peer);
            self.round = self.round.saturating_add(1);
            self.vain = self.vain.saturating_add(1);
        }
        first
    }

    fn front(&self) -> Option<&(Arrival, Vec<u8>)> {
        self.queues.get(self.turns.front()?)?.all.front()
    }

    /// The first of the partner whose turn it is; nothing after each round.
    pub(super) fn next(&mut self) -> Option<Arrival> {
        if self.round >= self.turns.len() {
            self.round = 0;
            return None;
        }
        self.front().map(|(arrival, _)| *arrival)
    }

    /// Copies bytes of it, from `at` on; says how many.
    pub(super) fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        let bytes = self.front().and_then(|(_, bytes)| bytes.get(at..)).unwrap_or_default();
        let len = bytes.len().min(into.len());
        if let (Some(to), Some(from)) = (into.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
        }
        len
    }

    /// It cannot be taken now: another's turn.
    pub(super) fn defer(&mut self) {
        if let Some(peer) = self.turns.pop_front() {
            self.turns.push_back(peer);
            self.round = self.round.saturating_add(1);
            self.vain = self.vain.saturating_add(1);
        }
    }

    /// It was taken. Gives its sender if nothing more of it waits.
    pub(super) fn done(&mut self) -> Option<PeerId> {
        self.vain = 0;
        let peer = *self.turns.front()?;
        let queue = self.queues.get_mut(&peer)?;
        let long = queue.is_long();
        if let Some((_, bytes)) = queue.all.pop_front() {
            queue.bytes = queue.bytes.saturating_sub(bytes.len());
            self.bytes = self.bytes.saturating_sub(bytes.len());
            self.messages = self.messages.saturating_sub(1);
        }
        if long && !queue.is_long() {
            self.long = self.long.saturating_sub(1);
        }
        if !queue.all.is_empty() {
            return None;
        }
        self.queues.remove(&peer);
        self.turns.pop_front();
        Some(peer)
    }
}
