//! Sequence conflicts: a peer acknowledges a number that was never sent, or has lost its state.
//!
//! The acknowledgement may be late, damaged or forged, so the engine queries the peer and closes the
//! connection if the peer confirms. Until the answer the engine sends nothing new: the peer would
//! acknowledge a reused number as if it had received the new message.

use causeway_wire::mx::{PeerId, Status};

use crate::context::{Env, count};
use crate::endpoint::Endpoint;
use crate::limits::CONTRADICTIONS;
use crate::peer::{Doubt, Sending};
use crate::receive_order::HALF;
use crate::sequence::Number;

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

/// Impossible acknowledgements since the last possible one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceConflict {
    since: u64,
    times: u32,
    /// The pending query. The peer is gone unless it answers with a possible number.
    asked: Option<Doubt>,
}

impl Sending {
    /// Checks an acknowledgement of every message before `number`.
    pub(crate) fn said(&self, number: Number) -> AckCheck {
        match number.ahead_of(self.first).map(usize::from) {
            Some(ahead) if ahead <= self.flight.len() => AckCheck::Possible,
            Some(ahead) if ahead < HALF => AckCheck::Ahead,
            _ => AckCheck::Other,
        }
    }

    /// Returns the query that the peer has not answered.
    pub(crate) fn question(&self) -> Option<Doubt> {
        self.dispute.and_then(|dispute| dispute.asked)
    }

    /// Records an impossible acknowledgement. Returns whether to query the peer now; a few such
    /// acknowledgements are tolerated, because packets can be late.
    fn disputes(&mut self, said: AckCheck, now: u64) -> bool {
        let new = SequenceConflict { since: now, times: 0, asked: None };
        let SequenceConflict { since, times, asked } = self.dispute.get_or_insert(new);
        *times = times.saturating_add(1);
        let (most, ns) = CONTRADICTIONS;
        let often = *times > most && now.saturating_sub(*since) > ns;
        // Old numbers can still arrive during the quiet time.
        let ahead = said == AckCheck::Ahead && self.quiet_until.is_none_or(|until| until <= now);
        asked.is_none() && (ahead || often)
    }
}

impl Endpoint {
    /// Processes an acknowledgement. Returns whether it is valid. If `answers`, it is newer than every
    /// packet so far and answers a pending query.
    pub(crate) fn at_one(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        number: Number,
        answers: bool,
    ) -> bool {
        let Some(partner) = self.peers.get_mut(peer) else { return false };
        if partner.session.is_none() {
            return true;
        }
        let said = partner.send.said(number);
        let asked = partner.send.question().is_some();
        if said == AckCheck::Possible && (answers || !asked) {
            partner.send.dispute = None;
            if asked {
                self.pump(env, peer);
            }
            return true;
        }
        if said != AckCheck::Possible && partner.send.disputes(said, env.now) {
            let doubt = Doubt::new(env.now, Status::EndpointUnreachable, partner.trip());
            if let Some(dispute) = &mut partner.send.dispute {
                dispute.asked = Some(doubt);
            }
            count(&mut self.counters.doubts);
            self.ask_whether_there(env, peer);
            self.rearm(env, peer);
        }
        false
    }

    /// Runs the timer of a query. Returns whether the peer is gone because it did not answer.
    pub(crate) fn question_due(&mut self, env: &mut Env<'_>, peer: PeerId) -> bool {
        let Some(partner) = self.peers.get_mut(peer) else { return true };
        let asked = partner.send.dispute.as_mut().and_then(|dispute| dispute.asked.as_mut());
        let Some(doubt) = asked.filter(|doubt| doubt.due() <= env.now) else { return false };
        let status = doubt.status;
        if doubt.asked_again {
            self.end_peer(env, peer, status);
            return true;
        }
        doubt.ask_again(env.now);
        self.ask_whether_there(env, peer);
        false
    }
}
