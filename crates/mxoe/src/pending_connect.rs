//! A connect of this endpoint that has not ended: its target, and the times of its requests.
//!
//! [`connect`](crate::connect) sends the requests and reports the end; the value computes when: a
//! request is repeated after 40 ms, doubled up to 0.5 s ([`RECONNECT`]), until the connect's time is
//! over. It neither sends nor finds the peer.

use causeway_wire::mx::{Status, Token};

use crate::limits::RECONNECT;
use crate::liveness::LivenessQuery;
use crate::timers::RoundTrip;

/// A connect that has not ended.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    /// Token of the event at the end.
    token: Token,
    /// NIC number and endpoint of the target.
    address: (u16, u8),
    /// Key of the target.
    key: u32,
    /// Number of the request, which its answer repeats.
    number: u8,
    /// Time of the next repetition, in ns.
    again_at: u64,
    /// Requests sent.
    tries: u32,
    /// Time of the first request, in ns.
    begun_at: u64,
    /// Time at which the connect ends without an answer, in ns.
    ends_at: u64,
    /// Status of the connect at `ends_at`.
    ends_with: Status,
}

impl PendingConnect {
    /// Returns a connect to `address` with number `number`, whose first request is due now.
    pub(crate) const fn new(
        token: Token,
        address: (u16, u8),
        key: u32,
        number: u8,
        (now, ends_at): (u64, u64),
    ) -> Self {
        let ends_with = Status::Timeout;
        Self {
            token,
            address,
            key,
            number,
            again_at: now,
            tries: 0,
            begun_at: now,
            ends_at,
            ends_with,
        }
    }

    /// Returns the token of the event at the end.
    pub(crate) const fn token(&self) -> Token {
        self.token
    }

    /// Returns the NIC number and endpoint of the target.
    pub(crate) const fn address(&self) -> (u16, u8) {
        self.address
    }

    /// Returns whether an answer of this address and number is for this connect.
    pub(crate) fn is_answered(&self, address: (u16, u8), number: u8) -> bool {
        (self.address, self.number) == (address, number)
    }

    /// Returns the time of the next request or of the end.
    pub(crate) fn due(&self) -> u64 {
        self.again_at.min(self.ends_at)
    }

    /// Returns the status of the connect if its time is over.
    pub(crate) fn end(&self, now: u64) -> Option<Status> {
        (self.ends_at <= now).then_some(self.ends_with)
    }

    /// Returns key and number of the request that is due, if one is, and plans the next.
    pub(crate) fn next_request(&mut self, now: u64) -> Option<(u32, u8)> {
        if self.again_at > now {
            return None;
        }
        let wait = RoundTrip::new(RECONNECT).wait(self.tries);
        self.again_at = now.saturating_add(wait);
        self.tries = self.tries.saturating_add(1);
        Some((self.key, self.number))
    }

    /// Repeats the request at once, with another number.
    pub(crate) fn renew(&mut self, number: u8, now: u64) {
        self.number = number;
        // Not at the current time: its timers may have run already.
        self.again_at = now.saturating_add(1);
    }

    /// Repeats the request at once after a refusal, and ends the connect with `status` unless an
    /// answer arrives in time. `trip` is the known round trip in ns. Later refusals have no effect.
    pub(crate) fn doubt(&mut self, now: u64, status: Status, trip: u64) {
        if self.ends_with != Status::Timeout {
            return;
        }
        self.ends_with = status;
        // The refusal itself is the measurement of a round trip.
        let trip = trip.max(now.saturating_sub(self.begun_at));
        let doubt = LivenessQuery::new(now, status, trip);
        self.ends_at = self.ends_at.min(doubt.deadline());
        self.again_at = now.saturating_add(1);
    }
}
