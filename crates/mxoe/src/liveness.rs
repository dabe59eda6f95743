//! A query whether a peer is still there: its times, and the status of the peer's end.
//!
//! The peer has three round trips, 20 ms ([`DOUBT_NS`]) to 0.5 s, to answer; the query is repeated
//! once at half of the time. The module computes times only: [`refusal`](crate::refusal),
//! [`sequence_conflict`](crate::sequence_conflict) and [`connect`](crate::connect) start queries,
//! and the timers of peers repeat and end them.

use causeway_wire::mx::Status;

use crate::limits::{DOUBT_NS, RESEND};

/// A query whether a peer is still there, after a report that it is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LivenessQuery {
    /// Time of the query, in ns.
    pub(crate) since: u64,
    /// Status of the peer's end if no packet of it arrives.
    pub(crate) status: Status,
    /// Time in ns that the peer has to answer.
    pub(crate) lasts: u64,
    /// The query was repeated.
    pub(crate) is_repeated: bool,
    /// The query was refused as well, by the host of the peer or by a node on the path.
    pub(crate) refused: bool,
}

impl LivenessQuery {
    /// Starts a query. `trip` is the known round trip in ns.
    pub(crate) fn new(now: u64, status: Status, trip: u64) -> Self {
        let lasts = trip.saturating_mul(3).clamp(DOUBT_NS, RESEND.most_ns);
        Self { since: now, status, lasts, is_repeated: false, refused: false }
    }

    /// Returns the time at which the peer is gone.
    pub(crate) const fn deadline(self) -> u64 {
        self.since.saturating_add(self.lasts)
    }

    /// Returns the time of the repetition: the query or its answer may be lost.
    pub(crate) const fn repeat_at(self) -> u64 {
        self.since.saturating_add(self.lasts / 2)
    }

    /// Records the repetition. If it is late, the time to answer is extended by the delay.
    pub(crate) fn repeat(&mut self, now: u64) {
        let late = now.saturating_sub(self.repeat_at());
        self.lasts = self.lasts.saturating_add(late);
        self.is_repeated = true;
    }

    /// Returns the time of the next action.
    pub(crate) const fn due(self) -> u64 {
        if self.is_repeated { self.deadline() } else { self.repeat_at() }
    }
}
