//! Number of operations of peers that are in progress at this target, by peer.
//!
//! A peer may have [`SERVED_PER_PEER_MIN`] (512) operations in progress always, and up to
//! [`SERVED_PER_PEER_MAX`] (4,096) while it has fewer than are left of [`SERVED_ALL_MAX`] (65,536).
//! A correct initiator never exceeds the limit.
//!
//! [`target`](super::target) asks before it serves a request, and drops the request of a peer at
//! its limit. It counts the receive of a long write and each reply as started;
//! [`target`](super::target) or [`receive`](super::receive) counts them as ended. A refused long
//! write therefore counts twice while both are in progress. Counts are by the engine's peer number,
//! below 65,536: a number that is reused while operations of the earlier peer are in progress
//! counts them, too. Under the lock of the domain.

use causeway_message::limits::PEER_NUMBERS_MAX;

use crate::limits::{SERVED_ALL_MAX, SERVED_PER_PEER_MAX, SERVED_PER_PEER_MIN};

/// Counts of operations in progress.
#[derive(Debug, Default)]
pub(super) struct ServedCalls {
    /// By the peer number of the initiator.
    by_peer: Vec<u32>,
    /// The sum of `by_peer`.
    all: usize,
}

impl ServedCalls {
    /// Returns whether a peer may have a further operation in progress.
    pub(super) fn may_start(&self, peer: u32) -> bool {
        let in_progress = self.by_peer.get(peer as usize).copied().unwrap_or(0);
        let left = SERVED_ALL_MAX.saturating_sub(self.all);
        in_progress < SERVED_PER_PEER_MIN
            || in_progress < SERVED_PER_PEER_MAX && (in_progress as usize) < left
    }

    /// Counts an operation of a peer as started.
    pub(super) fn start(&mut self, peer: u32) {
        let at = peer as usize;
        if at < PEER_NUMBERS_MAX && self.by_peer.len() <= at {
            self.by_peer.resize(at.saturating_add(1), 0);
        }
        if let Some(in_progress) = self.by_peer.get_mut(at) {
            *in_progress = in_progress.saturating_add(1);
            self.all = self.all.saturating_add(1);
        }
    }

    /// Counts an operation of a peer as ended.
    pub(super) fn end(&mut self, peer: u32) {
        if let Some(in_progress) = self.by_peer.get_mut(peer as usize) {
            *in_progress = in_progress.saturating_sub(1);
            self.all = self.all.saturating_sub(1);
        }
    }

    /// Returns the number of operations in progress of all peers.
    #[cfg(any(test, feature = "scenario"))]
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// Returns whether no peer has an operation in progress.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all == 0 && self.by_peer.iter().all(|in_progress| *in_progress == 0)
    }
}
