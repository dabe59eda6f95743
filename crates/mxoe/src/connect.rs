//! Connecting, being connected to, and peers that begin anew.
//!
//! Each side says which number it expects next. A peer whose session is another one, or who
//! expects a number that it cannot, began anew: what was under way with it ends, and both numbers
//! are of a new generation, so that packets of before are told from those of after.

use causeway_wire::mx::{Address, Event, PeerId, Status, Token};
use causeway_wire::mxoe::{Answer, Connect, Ends, Greeting, Packet};

use crate::Admission;
use crate::context::{Env, count};
use crate::endpoint::Endpoint;
use crate::limits::{CONNECT_AGAIN_NS, CONNECTS_MAX, ENDPOINTS_MAX};
use crate::nic::Dropped;
use crate::peer::{Doubt, Life};
use crate::sequence::Number;
use crate::sequence_conflict::AckCheck;
use crate::timers::{Owner, RoundTrip};

/// A connect that has not ended.
#[derive(Debug)]
pub(crate) struct Connecting {
    token: Token,
    address: (u16, u8),
    key: u32,
    number: u8,
    again_at: u64,
    tries: u32,
    begun_at: u64,
    ends_at: u64,
    /// What it ends with then.
    ends_with: Status,
}

impl Endpoint {
    /// Begins to connect.
    pub(crate) fn connect(
        &mut self,
        env: &mut Env<'_>,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Admission {
        if self.connects.len() >= CONNECTS_MAX {
            return Admission::Later;
        }
        let mac = crate::endpoint::mac_of(to.nic);
        let host = mac.and_then(|mac| env.hosts.number(mac));
        let Some(host) = host.filter(|_| usize::from(to.endpoint) < ENDPOINTS_MAX) else {
            let known = usize::from(to.endpoint) < ENDPOINTS_MAX;
            let status = if known { Status::EndpointUnreachable } else { Status::BadEndpoint };
            self.end_connect(env, token, status);
            return Admission::Yes;
        };
        self.connect_number = self.connect_number.wrapping_add(1);
        let ends_at = env.now.saturating_add(timeout_ns.unwrap_or(env.give_up_ns));
        self.connects.push(Connecting {
            token,
            address: (host, to.endpoint),
            key,
            number: self.connect_number,
            again_at: env.now,
            tries: 0,
            begun_at: env.now,
            ends_at,
            ends_with: Status::Timeout,
        });
        self.connects_due(env);
        Admission::Yes
    }

    /// Sends what is to be sent of connects, and ends those that took too long.
    pub(crate) fn connects_due(&mut self, env: &mut Env<'_>) {
        let mut at = 0_usize;
        while let Some(connecting) = self.connects.get_mut(at) {
            if connecting.ends_at <= env.now {
                let ended = self.connects.swap_remove(at);
                self.connect_ended(env, &ended, ended.ends_with);
                continue;
            }
            at = at.saturating_add(1);
            if connecting.again_at > env.now {
                continue;
            }
            let wait = RoundTrip::new(CONNECT_AGAIN_NS).wait(connecting.tries);
            connecting.again_at = env.now.saturating_add(wait);
            connecting.tries = connecting.tries.saturating_add(1);
            let (address, key, number) = (connecting.address, connecting.key, connecting.number);
            // Without room for a peer it is tried again later.
            if let Some(peer) = self.peers.at_or_new(address, env.now) {
                count(&mut self.counters.connects_sent);
                self.greet(env, peer, number, self.session, Greeting::Request { key });
            }
        }
        self.rearm_connects(env);
    }

    fn rearm_connects(&mut self, env: &mut Env<'_>) {
        let times = self.connects.iter().map(|connect| connect.again_at.min(connect.ends_at));
        let owner = Owner { endpoint: self.id, peer: None };
        env.alarms.disarm(&mut self.connect_alarm, owner);
        if let Some(due) = times.min() {
            env.alarms.arm(&mut self.connect_alarm, due, owner);
        }
    }

    /// Says to a peer which number is expected of it.
    fn greet(&self, env: &mut Env<'_>, peer: PeerId, number: u8, session: u32, greeting: Greeting) {
        let Some(partner) = self.peers.get(peer) else { return };
        let connect = Connect {
            ends: Ends { destination: partner.endpoint, source: self.id },
            index_of_destination: partner.host,
            session,
            expected: partner.receive.next.0,
            number,
            greeting,
        };
        env.send(partner.host, &Packet::Connect(connect));
    }

    /// A connect ended without success.
    fn end_connect(&mut self, env: &mut Env<'_>, token: Token, status: Status) {
        self.tell(env, Event::Connected { token, status, peer: PeerId::NONE });
    }

    /// A connect ended without success: a peer of whom nothing else is known is none.
    fn connect_ended(&mut self, env: &mut Env<'_>, ended: &Connecting, status: Status) {
        if let Some(peer) = self.peers.at(ended.address) {
            let unknown = self.peers.get(peer).is_some_and(|partner| partner.session.is_none());
            let alone = !self.connects.iter().any(|other| other.address == ended.address);
            if unknown && alone {
                self.end_peer(env, peer, Status::EndpointUnreachable);
            }
        }
        self.end_connect(env, ended.token, status);
    }

    /// Gives up a connect: whether there was one.
    pub(crate) fn cancel_connect(&mut self, env: &mut Env<'_>, token: Token) -> bool {
        let Some(at) = self.connects.iter().position(|connect| connect.token == token) else {
            return false;
        };
        let ended = self.connects.swap_remove(at);
        self.connect_ended(env, &ended, Status::Cancelled);
        true
    }

    /// Connects to an address were refused, by whomever: they are asked once more, and end if nothing
    /// else is heard. Whether there were some.
    pub(crate) fn connect_doubted(
        &mut self,
        env: &mut Env<'_>,
        address: (u16, u8),
        status: Status,
    ) -> bool {
        let mut some = false;
        let there = self.peers.all().filter(|(_, partner)| partner.host == address.0);
        let trip = there.map(|(_, partner)| partner.trip()).max().unwrap_or(0);
        for connect in self.connects.iter_mut().filter(|connect| connect.address == address) {
            some = true;
            if connect.ends_with == Status::Timeout {
                connect.ends_with = status;
                // Who refuses it itself was there and back since it began.
                let trip = trip.max(env.now.saturating_sub(connect.begun_at));
                let doubt = Doubt::new(env.now, status, trip);
                connect.ends_at = connect.ends_at.min(doubt.ends());
                connect.again_at = env.now.saturating_add(1);
            }
        }
        if some {
            self.rearm_connects(env);
        }
        some
    }

    /// Connects to an address were refused: whether there were some.
    pub(crate) fn connect_refused(
        &mut self,
        env: &mut Env<'_>,
        address: (u16, u8),
        status: Status,
    ) -> bool {
        let mut some = false;
        while let Some(at) = self.connects.iter().position(|connect| connect.address == address) {
            some = true;
            let ended = self.connects.swap_remove(at);
            self.connect_ended(env, &ended, status);
        }
        some
    }

    /// A connect packet came.
    pub(crate) fn greeted(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        connect: &Connect,
    ) -> Result<(), Dropped> {
        env.hosts.learn(host, connect.index_of_destination);
        match connect.greeting {
            Greeting::Request { key } => self.asked(env, host, connect, key),
            Greeting::Reply { session, answer } => {
                self.answered(env, host, connect, session, answer)
            }
        }
    }

    /// A peer began anew, or another one took its place: whatever it is, it is there again.
    fn replace(&mut self, env: &mut Env<'_>, address: (u16, u8)) -> Option<PeerId> {
        if let Some(old) = self.peers.at(address) {
            count(&mut self.counters.restarts);
            self.end_peer(env, old, Status::EndpointUnreachable);
        }
        self.peers.at_or_new(address, env.now)
    }

    /// A peer is gone: connects that are under way said which number was expected of it, and
    /// say anew what is expected of the next.
    pub(crate) fn connect_anew(&mut self, env: &mut Env<'_>, address: (u16, u8)) {
        let mut some = false;
        for connect in &mut self.connects {
            if connect.address == address {
                some = true;
                self.connect_number = self.connect_number.wrapping_add(1);
                connect.number = self.connect_number;
                // Not in this moment, whose alarms may all have been called.
                connect.again_at = env.now.saturating_add(1);
            }
        }
        if some {
            self.rearm_connects(env);
        }
    }

    /// A request to connect.
    fn asked(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        connect: &Connect,
        key: u32,
    ) -> Result<(), Dropped> {
        count(&mut self.counters.connects_received);
        let Connect { ends, session, expected, number, .. } = *connect;
        let address = (host, ends.source);
        if key != self.key {
            count(&mut self.counters.wrong_key);
            let greeting = Greeting::Reply { session: 0, answer: Answer::BAD_KEY };
            let ends = Ends { destination: ends.source, source: self.id };
            let (index_of_destination, expected) = (host, 0);
            let refusal =
                Connect { ends, index_of_destination, session, expected, number, greeting };
            env.send(host, &Packet::Connect(refusal));
            return Err(Dropped::Key);
        }
        let past = self.peers.past(address, session);
        let mut peer = self.peers.at_or_new(address, env.now);
        let mut anew = false;
        if let Some((id, partner)) = peer.and_then(|peer| Some((peer, self.peers.get_mut(peer)?))) {
            let newer = partner.is_newer(number);
            anew = match partner.session {
                // What came early is of another one than asks now.
                None if partner.unaware.is_some_and(|unaware| unaware.session != session) => {
                    peer = self.replace(env, address);
                    false
                }
                None => false,
                Some(known) if known == session => {
                    match partner.life(Number(expected), newer, env.now) {
                        Life::Same => false,
                        Life::Anew => true,
                        Life::Round if partner.insists(env.now) => true,
                        Life::Round | Life::Unknown => return Err(Dropped::Session),
                        Life::Other => {
                            self.doubt(env, id, Status::EndpointUnreachable);
                            return Err(Dropped::Session);
                        }
                    }
                }
                // Late, from before it began anew: one that we know, or one so short that this is
                // the first of it. Who is there asks again.
                Some(_) if past.is_some() || !partner.is_quiet(env.now) => {
                    return Err(Dropped::Session);
                }
                // It asks again when it is known that the one before is gone.
                Some(_) => {
                    self.doubt(env, id, Status::EndpointUnreachable);
                    return Err(Dropped::Session);
                }
            };
            if anew {
                peer = self.replace(env, address);
            }
        }
        let before = self.peers.past_generation(address);
        let Some((peer, partner)) = peer.and_then(|peer| Some((peer, self.peers.get_mut(peer)?)))
        else {
            count(&mut self.counters.no_partner);
            return Err(Dropped::NoRoom);
        };
        partner.heard_at = env.now;
        let newer = partner.is_newer(number);
        if newer {
            partner.connect_seen = Some(number);
        }
        // Who does not know yet that we began anew may have kept what was sent before: it is told
        // by the answer, and asks again; or sends, if it has kept nothing. Not one that began anew
        // itself: its generations may have come round to the one before.
        let unaware = !anew && past == Some(Number(expected).generation());
        match partner.session {
            None if unaware => partner.is_unaware(session, env.now),
            None => {
                partner.adopt(session, expected, env.now, before);
                self.forget_early(env, peer);
            }
            Some(_) if newer => self.expects(env, peer, Number(expected)),
            Some(_) => {}
        }
        let greeting = Greeting::Reply { session: self.session, answer: Answer::SUCCESS };
        self.greet(env, peer, number, session, greeting);
        self.pump(env, peer);
        self.begin_pulls(env, peer);
        self.connects_due(env);
        Ok(())
    }

    /// One that connects, and is still the peer that we know, says what it expects: what is behind
    /// may be late.
    fn expects(&mut self, env: &mut Env<'_>, peer: PeerId, number: Number) {
        if self.peers.get(peer).is_some_and(|partner| partner.send.said(number) == AckCheck::Ahead)
        {
            self.at_one(env, peer, number, false);
        }
    }

    /// An answer to a connect.
    fn answered(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        connect: &Connect,
        session: u32,
        answer: Answer,
    ) -> Result<(), Dropped> {
        let Connect { ends, expected, number, .. } = *connect;
        let address = (host, ends.source);
        let ours = |one: &Connecting| one.address == address && one.number == number;
        let Some(at) = self.connects.iter().position(ours) else {
            return Err(Dropped::UnknownPeer);
        };
        if connect.session != self.session {
            count(&mut self.counters.wrong_session);
            return Err(Dropped::Session);
        }
        if answer != Answer::SUCCESS {
            let ended = self.connects.swap_remove(at);
            let wrong_key = answer == Answer::BAD_KEY;
            let status = if wrong_key { Status::BadKey } else { Status::Rejected };
            self.connect_ended(env, &ended, status);
            return Ok(());
        }
        let peer = self.peers.at(address);
        let partner = peer.and_then(|peer| self.peers.get(peer));
        let life = partner.map(|partner| match partner.session {
            None if partner.unaware.is_some_and(|unaware| unaware.session != session) => Life::Anew,
            None => Life::Same,
            Some(known) if known == session => partner.life(Number(expected), true, env.now),
            Some(_) => Life::Anew,
        });
        if life == Some(Life::Unknown) {
            return Err(Dropped::Session);
        }
        let Some(peer) = peer.filter(|_| life == Some(Life::Same)) else {
            // It began anew between. What it was told is of before: it is asked again.
            self.replace(env, address);
            self.connects_due(env);
            return Ok(());
        };
        let Connecting { token, .. } = self.connects.swap_remove(at);
        let before = self.peers.past_generation(address);
        if let Some(partner) = self.peers.get_mut(peer) {
            partner.heard_at = env.now;
            if partner.session.is_none() {
                partner.adopt(session, expected, env.now, before);
                self.forget_early(env, peer);
            }
        }
        self.expects(env, peer, Number(expected));
        self.tell_of(env, peer, Event::Connected { token, status: Status::Success, peer });
        self.pump(env, peer);
        self.begin_pulls(env, peer);
        Ok(())
    }
}
