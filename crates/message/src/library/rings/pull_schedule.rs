//! Pull schedule: a few large messages of each peer at a time, in the order of the requests, so
//! that staging is reused while it is in a cache. Separate staging for each of the 64 messages of a
//! window would go to memory and back.
//!
//! Per peer, pulls run up to [`PULL_AHEAD_BYTES`] (4 MiB), and [`PULLS_AHEAD_MIN`] (2) pulls
//! whatever their length; later pulls wait, in order, without a limit (each belongs to a request).
//! A pull of 0 bytes declines an offer and bypasses the schedule. Peers are independent of each
//! other; the waiting pulls of a lost peer are dropped. The schedule allocates no staging and sends
//! no request: [`Rings`](super::Rings) asks it before each pull and after each end of a pull, in
//! the thread of the application that holds the endpoint. `Rings` reports each pull that the NIC
//! side has accepted ([`PullSchedule::started`]), also after [`PullSchedule::next`], and its end
//! once; an end for a lost peer has no effect.

use std::collections::{HashMap, VecDeque};

use causeway_wire::mx::{PeerId, Token};

use crate::limits::{PULL_AHEAD_BYTES, PULLS_AHEAD_MIN};

/// A message to pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuedPull {
    /// The NIC side's handle of the offer.
    pub(super) offer: u64,
    /// The receive.
    pub(super) token: Token,
    pub(super) len: u32,
    /// Address of the receive's memory, if it is contiguous. It belongs to the receive while the pull
    /// waits.
    pub(super) memory: Option<usize>,
}

/// Pulls of one peer.
#[derive(Debug, Default)]
struct PeerPulls {
    /// Running pulls, and their bytes.
    pulls: usize,
    bytes: u64,
    /// Pulls that wait, in the order of their requests.
    waiting: VecDeque<QueuedPull>,
}

impl PeerPulls {
    /// Returns whether a pull of `len` bytes may start now.
    fn has_room(&self, len: u32) -> bool {
        let bytes = self.bytes.saturating_add(len.into());
        self.pulls < PULLS_AHEAD_MIN || bytes <= PULL_AHEAD_BYTES
    }
}

/// Pulls of all peers.
#[derive(Debug, Default)]
pub(super) struct PullSchedule(HashMap<PeerId, PeerPulls>);

impl PullSchedule {
    /// Returns true if a pull may start now: the caller then calls [`Self::started`]. Queues the
    /// pull and returns false otherwise.
    pub(super) fn try_start(&mut self, peer: PeerId, wanted: QueuedPull) -> bool {
        let turn = self.0.entry(peer).or_default();
        let now = turn.waiting.is_empty() && turn.has_room(wanted.len);
        if !now {
            turn.waiting.push_back(wanted);
        }
        now
    }

    /// Counts a started pull.
    pub(super) fn started(&mut self, peer: PeerId, len: u32) {
        let turn = self.0.entry(peer).or_default();
        turn.pulls = turn.pulls.saturating_add(1);
        turn.bytes = turn.bytes.saturating_add(len.into());
    }

    /// Counts an ended pull.
    pub(super) fn ended(&mut self, peer: PeerId, len: u32) {
        if let Some(turn) = self.0.get_mut(&peer) {
            turn.pulls = turn.pulls.saturating_sub(1);
            turn.bytes = turn.bytes.saturating_sub(len.into());
        }
    }

    /// Returns the next queued pull of a peer, if it may start. The pull stays in the queue until
    /// [`Self::dequeue`].
    pub(super) fn next(&mut self, peer: PeerId) -> Option<QueuedPull> {
        let turn = self.0.get_mut(&peer)?;
        let wanted = *turn.waiting.front()?;
        turn.has_room(wanted.len).then_some(wanted)
    }

    /// Removes the first queued pull of a peer.
    pub(super) fn dequeue(&mut self, peer: PeerId) {
        if let Some(turn) = self.0.get_mut(&peer) {
            turn.waiting.pop_front();
        }
    }

    /// Drops all pulls of a peer.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId(3);

    fn wanted(token: u64, len: u32) -> QueuedPull {
        QueuedPull { offer: token, token: Token(token), len, memory: None }
    }

    #[test]
    fn pull_schedule_starts_a_few_pulls_in_order() {
        let mut turns = PullSchedule::default();
        let half = (PULL_AHEAD_BYTES / 2) as u32;
        for token in 0..2 {
            assert!(turns.try_start(PEER, wanted(token, half)));
            turns.started(PEER, half);
        }
        assert!(!turns.try_start(PEER, wanted(2, half)));
        assert!(!turns.try_start(PEER, wanted(3, 1)), "behind the other");
        assert!(turns.try_start(PeerId(5), wanted(4, half)), "another's turn");
        assert_eq!(turns.next(PEER), None);
        turns.ended(PEER, half);
        assert_eq!(turns.next(PEER), Some(wanted(2, half)));
        turns.dequeue(PEER);
        turns.started(PEER, half);
        assert_eq!(turns.next(PEER), None);
        turns.forget(PEER);
        assert!(turns.try_start(PEER, wanted(5, half)));
    }

    #[test]
    fn pull_schedule_starts_two_of_the_longest() {
        let mut turns = PullSchedule::default();
        for token in 0..PULLS_AHEAD_MIN as u64 {
            assert!(turns.try_start(PEER, wanted(token, u32::MAX)));
            turns.started(PEER, u32::MAX);
        }
        assert!(!turns.try_start(PEER, wanted(9, 1)));
        for _ in 0..PULLS_AHEAD_MIN {
            turns.ended(PEER, u32::MAX);
        }
        assert_eq!(turns.next(PEER), Some(wanted(9, 1)));
    }
}
