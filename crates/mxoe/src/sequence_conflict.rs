//! Sequence conflicts: a peer acknowledges a number that was never sent, or has lost its state.
//!
//! The acknowledgement may be late, damaged or forged, so the engine queries the peer, twice at
//! most. A separate acknowledgement, newer than all before, with a possible number ends the
//! conflict; before the query any possible number does. Without an answer the peer
//! is removed after three round trips (20 ms to 0.5 s), and its operations end with
//! `EndpointUnreachable`. During the query the engine sends no new messages, offers and
//! notifications (the peer would acknowledge a reused number as if it had received the new
//! message); retransmissions, acknowledgements and pulls continue.
//!
//! The query starts at once if a number that was never sent is acknowledged. Acknowledgements with
//! another generation, or without acknowledged numbers, start it after more than 4 in a row over
//! more than 1 s ([`impossible_acks`](crate::impossible_acks)): late packets cause a few. Not here: conflicts of
//! connect requests ([`connect`](crate::connect)), and reports that a peer is gone
//! ([`refusal`](crate::refusal)). Called by [`receive_order`](crate::receive_order) for each
//! acknowledgement, by [`connect`](crate::connect) for numbers beyond those sent, and by the peer's
//! timer.

use causeway_wire::mx::{PeerId, Status};

use crate::context::{EngineContext, count};
use crate::endpoint::NicEndpoint;
use crate::impossible_acks::SequenceConflict;
use crate::liveness::LivenessQuery;
use crate::peer::SendState;
use crate::sequence::{HALF, SequenceNumber};

/// Result of comparing an acknowledgement with the sent numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckCheck {
    /// The acknowledgement is possible.
    Possible,
    /// It acknowledges a number that was never sent.
    Ahead,
    /// It lacks acknowledged numbers, or has another generation.
    Other,
}

impl SendState {
    /// Checks an acknowledgement of every message before `number`.
    pub(crate) fn check_ack(&self, number: SequenceNumber) -> AckCheck {
        match number.ahead_of(self.first).map(usize::from) {
            Some(ahead) if ahead <= self.flight.len() => AckCheck::Possible,
            Some(ahead) if ahead < HALF => AckCheck::Ahead,
            _ => AckCheck::Other,
        }
    }

    /// Returns the query that the peer has not answered.
    pub(crate) fn pending_query(&self) -> Option<LivenessQuery> {
        self.conflict.and_then(|conflict| conflict.query())
    }

    /// Records an impossible acknowledgement. Returns whether to query the peer now; a few such
    /// acknowledgements are tolerated, because packets can be late.
    fn records_conflict(&mut self, check: AckCheck, now: u64) -> bool {
        let conflict = self.conflict.get_or_insert(SequenceConflict::new(now));
        let often = conflict.count(now);
        // Old numbers can still arrive during the quiet time.
        let ahead = check == AckCheck::Ahead && self.quiet_until.is_none_or(|until| until <= now);
        conflict.query().is_none() && (ahead || often)
    }
}

impl NicEndpoint {
    /// Processes an acknowledgement. Returns whether it is valid. If `answers`, it is newer than
    /// every packet so far and answers a pending query.
    pub(crate) fn accepts_ack(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        number: SequenceNumber,
        answers: bool,
    ) -> bool {
        let Some(remote) = self.peers.get_mut(peer) else { return false };
        if remote.session.is_none() {
            return true;
        }
        let check = remote.send.check_ack(number);
        let asked = remote.send.pending_query().is_some();
        if check == AckCheck::Possible && (answers || !asked) {
            remote.send.conflict = None;
            if asked {
                self.pump(ctx, peer);
            }
            return true;
        }
        if check != AckCheck::Possible && remote.send.records_conflict(check, ctx.now) {
            let doubt = LivenessQuery::new(ctx.now, Status::EndpointUnreachable, remote.trip());
            if let Some(conflict) = &mut remote.send.conflict {
                conflict.ask(doubt);
            }
            count(&mut self.counters.doubts);
            self.query_liveness(ctx, peer);
            self.rearm(ctx, peer);
        }
        false
    }

    /// Runs the timer of a query. Returns whether the peer is gone because it did not answer.
    pub(crate) fn query_due(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) -> bool {
        let Some(remote) = self.peers.get_mut(peer) else { return true };
        let asked = remote.send.conflict.as_mut().and_then(SequenceConflict::query_mut);
        let Some(doubt) = asked.filter(|doubt| doubt.due() <= ctx.now) else { return false };
        let status = doubt.status;
        if doubt.is_repeated {
            self.end_peer(ctx, peer, status);
            return true;
        }
        doubt.repeat(ctx.now);
        self.query_liveness(ctx, peer);
        false
    }
}
