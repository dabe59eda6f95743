//! The impossible acknowledgements of a peer, and the query that they may cause.
//!
//! A few are tolerated, because packets can be late: more than [`CONFLICTS_TOLERATED`] (4) in a row
//! over more than 1 s are a conflict. A peer has the value from the first impossible acknowledgement
//! to the next possible one; [`sequence_conflict`](crate::sequence_conflict) decides what is
//! possible and queries the peer.

use crate::limits::{CONFLICTS_NS, CONFLICTS_TOLERATED};
use crate::liveness::LivenessQuery;

/// Impossible acknowledgements since the last possible one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceConflict {
    /// Time of the first, in ns.
    since: u64,
    /// Number of them.
    times: u32,
    /// The pending query. The peer is gone unless it answers with a possible number.
    asked: Option<LivenessQuery>,
}

impl SequenceConflict {
    /// Returns a conflict without acknowledgements, which begins now.
    pub(crate) const fn new(now: u64) -> Self {
        Self { since: now, times: 0, asked: None }
    }

    /// Counts an impossible acknowledgement. Returns whether there were too many in a row.
    pub(crate) fn count(&mut self, now: u64) -> bool {
        self.times = self.times.saturating_add(1);
        self.times > CONFLICTS_TOLERATED && now.saturating_sub(self.since) > CONFLICTS_NS
    }

    /// Records the query of the peer.
    pub(crate) fn ask(&mut self, query: LivenessQuery) {
        self.asked = Some(query);
    }

    /// Returns the query that the peer has not answered.
    pub(crate) const fn query(&self) -> Option<LivenessQuery> {
        self.asked
    }

    /// Returns the query that the peer has not answered, to repeat it.
    pub(crate) fn query_mut(&mut self) -> Option<&mut LivenessQuery> {
        self.asked.as_mut()
    }
}
