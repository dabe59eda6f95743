//! Pending queue: messages and offers that the matching engine deferred, and later messages, offers
//! and the loss of the same peers. Messages of other peers, and ends of sends and pulls of all
//! peers, pass.
//!
//! The queue holds copies, so that the ring can go on. Limits: [`PENDING_MAX`] (1,024) messages and
//! [`PENDING_BYTES_MAX`] (1 MiB) per peer, [`PENDING_ALL_MAX`] (65,536) messages and
//! [`PENDING_ALL_BYTES_MAX`] (64 MiB) in total; an offer and a loss count as messages of 0 bytes.
//! The queue does not refuse a message: at a limit [`PendingMessages::is_full`] is true, and
//! [`Rings`](super::Rings) takes no more events from the ring until the application took messages.
//! The last message may exceed a limit of bytes by less than its length (32 KiB at most).
//!
//! This module drops nothing. After the NIC side is gone or the ring is invalid, `Rings` appends at
//! most 256 further events whatever the limits, discards each offer when it has its turn, and
//! delivers the messages as before, and then the loss of their peers.
//!
//! Peers are served in turn: a peer keeps its turn until its next message is deferred again or its
//! queue is empty; the messages of one peer keep their order. After a round in which every peer's
//! next message was deferred again, [`Rings::arm`](super::Rings::arm) permits the poll loop of
//! `causeway-endpoint` to sleep: only the application can make progress
//! ([`PendingMessages::nudge`]). All calls come from `Rings`, in the thread that holds the lock of
//! the endpoint.

use std::collections::{HashMap, VecDeque};

use causeway_wire::mx::PeerId;

use crate::library::TransportEvent;
use crate::limits::{PENDING_ALL_BYTES_MAX, PENDING_ALL_MAX, PENDING_BYTES_MAX, PENDING_MAX};

/// Pending messages of one peer; never empty.
#[derive(Debug, Default)]
struct PeerQueue {
    /// Events with their bytes, oldest first.
    all: VecDeque<(TransportEvent, Vec<u8>)>,
    /// Sum of the bytes.
    bytes: usize,
}

impl PeerQueue {
    /// Returns whether the queue is at a limit of one peer.
    fn is_long(&self) -> bool {
        self.bytes >= PENDING_BYTES_MAX || self.all.len() >= PENDING_MAX
    }
}

/// Pending messages of all peers, served in turn.
#[derive(Debug, Default)]
pub(super) struct PendingMessages {
    queues: HashMap<PeerId, PeerQueue>,
    /// Peers in the order of their turns.
    turns: VecDeque<PeerId>,
    /// Turns in this round.
    round: usize,
    /// Turns in a row without progress.
    fruitless: usize,
    messages: usize,
    bytes: usize,
    /// Peers at the limit of their queue.
    long: usize,
}

impl PendingMessages {
    /// Returns whether a peer has pending messages.
    #[inline]
    pub(super) fn has(&self, peer: PeerId) -> bool {
        !self.queues.is_empty() && self.queues.contains_key(&peer)
    }

    /// Returns whether there are no pending messages.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Returns whether a limit is reached; then no more events may be taken from the ring.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.long > 0 || self.bytes >= PENDING_ALL_BYTES_MAX || self.messages >= PENDING_ALL_MAX
    }

    /// Returns whether every peer had a turn without progress.
    pub(super) fn is_exhausted(&self) -> bool {
        self.fruitless >= self.turns.len()
    }

    /// Starts a new round, because the application posted a receive or collected a request. Returns
    /// whether there are pending messages.
    pub(super) fn nudge(&mut self) -> bool {
        (self.round, self.fruitless) = (0, 0);
        !self.turns.is_empty()
    }

    /// Appends a message of a peer. Returns whether it is the first, which counts as deferred.
    pub(super) fn push(&mut self, peer: PeerId, arrival: TransportEvent, bytes: Vec<u8>) -> bool {
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
            self.fruitless = self.fruitless.saturating_add(1);
        }
        first
    }

    /// Returns the first message of the peer that has its turn.
    fn front(&self) -> Option<&(TransportEvent, Vec<u8>)> {
        self.queues.get(self.turns.front()?)?.all.front()
    }

    /// Returns the first message of the peer that has its turn; `None` once per round.
    pub(super) fn next(&mut self) -> Option<TransportEvent> {
        if self.round >= self.turns.len() {
            self.round = 0;
            return None;
        }
        self.front().map(|(arrival, _)| *arrival)
    }

    /// Copies bytes of the message that [`Self::next`] returned, from byte `at` on, and returns
    /// their number.
    pub(super) fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        let bytes = self.front().and_then(|(_, bytes)| bytes.get(at..)).unwrap_or_default();
        let len = bytes.len().min(into.len());
        if let (Some(to), Some(from)) = (into.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
        }
        len
    }

    /// Defers the message that [`Self::next`] returned; the next peer has its turn.
    pub(super) fn defer(&mut self) {
        if let Some(peer) = self.turns.pop_front() {
            self.turns.push_back(peer);
            self.round = self.round.saturating_add(1);
            self.fruitless = self.fruitless.saturating_add(1);
        }
    }

    /// Removes the message that [`Self::next`] returned. Returns its sender if the sender has no
    /// more pending messages.
    pub(super) fn done(&mut self) -> Option<PeerId> {
        self.fruitless = 0;
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
