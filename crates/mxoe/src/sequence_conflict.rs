//! Partners that are not at one with us about the numbers of what they are sent.
//!
//! What a packet says may be late, damaged or of another who speaks in the partner's name; so the
//! partner is asked. Until it answers nothing new is sent to it: numbers that it had already, because
//! we forgot that we used them, would be acknowledged as if it had what has them now.

use causeway_wire::mx::{PeerId, Status};

use crate::context::{Env, count};
use crate::endpoint::Endpoint;
use crate::limits::CONTRADICTIONS;
use crate::peer::{Doubt, Sending};
use crate::receive_order::HALF;
use crate::sequence::Number;

/// What a partner says of our numbers, beside what we know of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It can be.
    Possible,
    /// It has what was never sent.
    Ahead,
    /// It lacks what it had, or has another generation.
    Other,
}

/// What was said that cannot be, since something was said that can.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dispute {
    since: u64,
    times: u32,
    /// It was asked, and is gone unless it says what can be.
    asked: Option<Doubt>,
}

impl Sending {
    /// It says that it has every message before this number.
    pub(crate) fn said(&self, number: Number) -> Said {
        match number.ahead_of(self.first).map(usize::from) {
            Some(ahead) if ahead <= self.flight.len() => Said::Possible,
            Some(ahead) if ahead < HALF => Said::Ahead,
            _ => Said::Other,
        }
    }

    /// The question that it has not answered.
    pub(crate) fn question(&self) -> Option<Doubt> {
        self.dispute.and_then(|dispute| dispute.asked)
    }

    /// What cannot be was said: whether it is to be asked now. Once or twice it is late.
    fn disputes(&mut self, said: Said, now: u64) -> bool {
        let new = Dispute { since: now, times: 0, asked: None };
        let Dispute { since, times, asked } = self.dispute.get_or_insert(new);
        *times = times.saturating_add(1);
        let (most, ns) = CONTRADICTIONS;
        let often = *times > most && now.saturating_sub(*since) > ns;
        // Numbers of before may be said while they are on their way.
        let ahead = said == Said::Ahead && self.quiet_until.is_none_or(|until| until <= now);
        asked.is_none() && (ahead || often)
    }
}

impl Endpoint {
    /// A partner says what it has of ours: whether that counts. `answers`: it says so later than
    /// all that was heard, so that it is an answer if it was asked.
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
        if said == Said::Possible && (answers || !asked) {
            partner.send.dispute = None;
            if asked {
                self.pump(env, peer);
            }
            return true;
        }
        if said != Said::Possible && partner.send.disputes(said, env.now) {
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

    /// What is due of a question: whether the partner is gone, because it did not answer.
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
