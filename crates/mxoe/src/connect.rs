//! Connects of this endpoint: requests, answers, and the detection of restarted peers. Requests of
//! other endpoints are processed in [`connect_request`](crate::connect_request).
//!
//! Each side reports the number that it expects next. A *session* is the random number of one
//! opening of an endpoint. A peer that answers with another session, or expects a number of another
//! generation, has restarted: its operations end, and both sides continue with numbers of a new
//! generation, which separates late packets from new ones. An answer that acknowledges a number
//! never sent starts a query ([`sequence_conflict`](crate::sequence_conflict)). Several connects of
//! one pair of endpoints share a peer.
//!
//! At most [`CONNECTS_MAX`] (256) connects of an endpoint run or wait; a further request is
//! deferred. A connect packet is repeated after 40 ms, doubled up to 0.5 s,
//! until the answer or the timeout of the request ([`NicConfig::give_up_ns`](crate::NicConfig) if
//! it has none; status `Timeout`); while the peer table is full nothing is sent. A connect to an
//! unknown NIC waits in [`undiscovered`](crate::undiscovered) while discovery runs, and fails with
//! `EndpointUnreachable` otherwise. A refusal can be forged: the connect is repeated at once, and
//! ends with the refusal's status unless an answer arrives within three round trips, 20 ms to 0.5
//! s. A reply other than success, and a refusal by a local NIC, end it at once. The host side
//! requests each connect; called by [`request`](crate::request),
//! [`Nic::receive`](crate::Nic::receive), the connect timer, and the end of a peer or NIC. The
//! number `host` names the sending or receiving NIC in the [`NicTable`].

use causeway_wire::mx::{Address, Event, PeerId, Status, Token};
use causeway_wire::mxoe::{Connect, ConnectBody, ConnectStatus, EndpointPair, Packet};

use crate::Admission;
use crate::context::{EngineContext, count};
use crate::drop_reason::DropReason;
use crate::endpoint::NicEndpoint;
use crate::limits::{CONNECTS_MAX, ENDPOINTS_MAX};
use crate::nic_table::NicTable;
use crate::peer::Incarnation;
use crate::pending_connect::PendingConnect;
use crate::sequence::SequenceNumber;
use crate::sequence_conflict::AckCheck;
use crate::timers::TimerOwner;
use crate::undiscovered::UndiscoveredConnect;

/// Returns the number of an address's NIC, if the NIC is known.
fn number_of(hosts: &NicTable, to: Address) -> Option<u16> {
    crate::endpoint::mac_of(to.nic).and_then(|mac| hosts.number(mac))
}

impl NicEndpoint {
    /// Starts a connect. The event [`Event::Connected`] ends it.
    pub(crate) fn connect(
        &mut self,
        ctx: &mut EngineContext<'_>,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Admission {
        if self.connects.len().saturating_add(self.undiscovered.len()) >= CONNECTS_MAX {
            return Admission::Later;
        }
        if usize::from(to.endpoint) >= ENDPOINTS_MAX {
            self.end_connect(ctx, token, Status::BadEndpoint);
            return Admission::Yes;
        }
        let ends_at = ctx.now.saturating_add(timeout_ns.unwrap_or(ctx.give_up_ns));
        match number_of(ctx.hosts, to) {
            Some(host) => self.start_connect(ctx, token, (host, to.endpoint), key, ends_at),
            None if ctx.now < ctx.discovery_ends_ns => {
                let fails_at = ends_at.min(ctx.discovery_ends_ns);
                let connect = UndiscoveredConnect { token, to, key, fails_at, ends_at };
                self.undiscovered.push(ctx.now, connect);
                self.rearm_connects(ctx);
            }
            None => self.end_connect(ctx, token, Status::EndpointUnreachable),
        }
        Admission::Yes
    }

    /// Adds a connect to a known NIC and sends its first request.
    fn start_connect(
        &mut self,
        ctx: &mut EngineContext<'_>,
        token: Token,
        address: (u16, u8),
        key: u32,
        ends_at: u64,
    ) {
        self.connect_number = self.connect_number.wrapping_add(1);
        let (number, times) = (self.connect_number, (ctx.now, ends_at));
        self.connects.push(PendingConnect::new(token, address, key, number, times));
        self.connects_due(ctx);
    }

    /// Starts the connects whose NIC was found since, and ends those whose time is over.
    fn undiscovered_due(&mut self, ctx: &mut EngineContext<'_>) {
        let is_known = |to| number_of(ctx.hosts, to).is_some();
        for connect in self.undiscovered.take_ready(ctx.now, is_known) {
            let UndiscoveredConnect { token, to, key, ends_at, .. } = connect;
            match number_of(ctx.hosts, to) {
                Some(host) => self.start_connect(ctx, token, (host, to.endpoint), key, ends_at),
                None => self.end_connect(ctx, token, Status::EndpointUnreachable),
            }
        }
    }

    /// Sends the connect requests that are due, and ends connects after their timeout.
    pub(crate) fn connects_due(&mut self, ctx: &mut EngineContext<'_>) {
        self.undiscovered_due(ctx);
        let mut at = 0_usize;
        while let Some(connecting) = self.connects.get_mut(at) {
            if let Some(status) = connecting.end(ctx.now) {
                let ended = self.connects.swap_remove(at);
                self.connect_ended(ctx, &ended, status);
                continue;
            }
            at = at.saturating_add(1);
            let address = connecting.address();
            let Some((key, number)) = connecting.next_request(ctx.now) else { continue };
            // If the peer table is full, the connect is repeated later.
            if let Some(peer) = self.peers.at_or_new(address, ctx.now) {
                count(&mut self.counters.connects_sent);
                self.send_connect(ctx, peer, number, self.session, ConnectBody::Request { key });
            }
        }
        self.rearm_connects(ctx);
    }

    /// Arms the timer of the connects for the earliest repetition or end.
    fn rearm_connects(&mut self, ctx: &mut EngineContext<'_>) {
        let times = self.connects.iter().map(PendingConnect::due);
        let times = times.chain(self.undiscovered.due());
        let owner = TimerOwner { endpoint: self.id, peer: None };
        ctx.timers.disarm(&mut self.connect_timer, owner);
        if let Some(due) = times.min() {
            ctx.timers.arm(&mut self.connect_timer, due, owner);
        }
    }

    /// Sends a connect packet with the number that is expected of the peer.
    pub(crate) fn send_connect(
        &self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        number: u8,
        session: u32,
        greeting: ConnectBody,
    ) {
        let Some(remote) = self.peers.get(peer) else { return };
        let connect = Connect {
            ends: EndpointPair { destination: remote.endpoint, source: self.id },
            index_of_destination: remote.host,
            session,
            expected: remote.receive.next.0,
            number,
            greeting,
        };
        ctx.send(remote.host, &Packet::Connect(connect));
    }

    /// Reports the failure of a connect.
    fn end_connect(&mut self, ctx: &mut EngineContext<'_>, token: Token, status: Status) {
        self.report(ctx, Event::Connected { token, status, peer: PeerId::NONE });
    }

    /// Ends a connect without success, and removes its peer if nothing else is known of it.
    fn connect_ended(
        &mut self,
        ctx: &mut EngineContext<'_>,
        ended: &PendingConnect,
        status: Status,
    ) {
        if let Some(peer) = self.peers.at(ended.address()) {
            let unknown = self.peers.get(peer).is_some_and(|remote| remote.session.is_none());
            let alone = !self.connects.iter().any(|other| other.address() == ended.address());
            if unknown && alone {
                self.end_peer(ctx, peer, Status::EndpointUnreachable);
            }
        }
        self.end_connect(ctx, ended.token(), status);
    }

    /// Cancels a connect. Returns whether it existed.
    pub(crate) fn cancel_connect(&mut self, ctx: &mut EngineContext<'_>, token: Token) -> bool {
        if self.undiscovered.cancel(token) {
            self.end_connect(ctx, token, Status::Cancelled);
            return true;
        }
        let Some(at) = self.connects.iter().position(|connect| connect.token() == token) else {
            return false;
        };
        let ended = self.connects.swap_remove(at);
        self.connect_ended(ctx, &ended, Status::Cancelled);
        true
    }

    /// Processes a refusal of connects to an address, which may be forged: the request is repeated
    /// at once, and the connects end unless an answer arrives within three round trips, at least
    /// [`DOUBT_NS`](crate::limits::DOUBT_NS) (20 ms). Later refusals have no effect. Returns
    /// whether there were any connects.
    pub(crate) fn doubt_connects(
        &mut self,
        ctx: &mut EngineContext<'_>,
        address: (u16, u8),
        status: Status,
    ) -> bool {
        let mut some = false;
        let there = self.peers.all().filter(|(_, remote)| remote.host == address.0);
        let trip = there.map(|(_, remote)| remote.trip()).max().unwrap_or(0);
        for connect in self.connects.iter_mut().filter(|connect| connect.address() == address) {
            some = true;
            connect.doubt(ctx.now, status, trip);
        }
        if some {
            self.rearm_connects(ctx);
        }
        some
    }

    /// Ends the connects to an address. Returns whether there were any.
    pub(crate) fn end_connects(
        &mut self,
        ctx: &mut EngineContext<'_>,
        address: (u16, u8),
        status: Status,
    ) -> bool {
        let mut some = false;
        while let Some(at) = self.connects.iter().position(|connect| connect.address() == address) {
            some = true;
            let ended = self.connects.swap_remove(at);
            self.connect_ended(ctx, &ended, status);
        }
        some
    }

    /// Processes a connect packet.
    ///
    /// # Errors
    /// [`DropReason`]: the key or session is wrong, no connect has the number of an answer, or the
    /// peer table is full.
    pub(crate) fn on_connect(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        connect: &Connect,
    ) -> Result<(), DropReason> {
        ctx.hosts.learn(host, connect.index_of_destination);
        match connect.greeting {
            ConnectBody::Request { key } => self.on_connect_request(ctx, host, connect, key),
            ConnectBody::Reply { session, answer } => {
                self.on_answer(ctx, host, connect, session, answer)
            }
        }
    }

    /// Ends the operations of a restarted peer and returns the new peer at its address, or `None`
    /// if the table is full.
    pub(crate) fn replace_peer(
        &mut self,
        ctx: &mut EngineContext<'_>,
        address: (u16, u8),
    ) -> Option<PeerId> {
        if let Some(old) = self.peers.at(address) {
            count(&mut self.counters.restarts);
            self.end_peer(ctx, old, Status::EndpointUnreachable);
        }
        self.peers.at_or_new(address, ctx.now)
    }

    /// Repeats the connects to a removed peer: the expected number that they reported is outdated.
    pub(crate) fn renew_connects(&mut self, ctx: &mut EngineContext<'_>, address: (u16, u8)) {
        let mut some = false;
        for connect in &mut self.connects {
            if connect.address() == address {
                some = true;
                self.connect_number = self.connect_number.wrapping_add(1);
                connect.renew(self.connect_number, ctx.now);
            }
        }
        if some {
            self.rearm_connects(ctx);
        }
    }

    /// Checks the number that a known peer expects. A lower number may be late and is ignored.
    pub(crate) fn check_expected(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        number: SequenceNumber,
    ) {
        let check = self.peers.get(peer).map(|remote| remote.send.check_ack(number));
        if check == Some(AckCheck::Ahead) {
            self.accepts_ack(ctx, peer, number, false);
        }
    }

    /// Processes the answer to a connect.
    fn on_answer(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        connect: &Connect,
        session: u32,
        answer: ConnectStatus,
    ) -> Result<(), DropReason> {
        let Connect { ends, expected, number, .. } = *connect;
        let address = (host, ends.source);
        let ours = |other: &PendingConnect| other.is_answered(address, number);
        let Some(at) = self.connects.iter().position(ours) else {
            return Err(DropReason::UnknownPeer);
        };
        if connect.session != self.session {
            count(&mut self.counters.wrong_session);
            return Err(DropReason::Session);
        }
        if answer != ConnectStatus::SUCCESS {
            let ended = self.connects.swap_remove(at);
            let wrong_key = answer == ConnectStatus::BAD_KEY;
            let status = if wrong_key { Status::BadKey } else { Status::Rejected };
            self.connect_ended(ctx, &ended, status);
            return Ok(());
        }
        let peer = self.peers.at(address);
        let remote = peer.and_then(|peer| self.peers.get(peer));
        let incarnation = remote.map(|remote| match remote.session {
            None if remote.unaware.is_some_and(|unaware| unaware.session != session) => {
                Incarnation::New
            }
            None => Incarnation::Same,
            Some(known) if known == session => {
                remote.incarnation(SequenceNumber(expected), true, ctx.now)
            }
            Some(_) => Incarnation::New,
        });
        if incarnation == Some(Incarnation::Unknown) {
            return Err(DropReason::Session);
        }
        let Some(peer) = peer.filter(|_| incarnation == Some(Incarnation::Same)) else {
            // The peer restarted meanwhile and has an outdated number: the request is repeated.
            self.replace_peer(ctx, address);
            self.connects_due(ctx);
            return Ok(());
        };
        let token = self.connects.swap_remove(at).token();
        let before = self.peers.past_generation(address);
        if let Some(remote) = self.peers.get_mut(peer) {
            remote.heard_at = ctx.now;
            if remote.session.is_none() {
                remote.adopt(session, expected, ctx.now, before);
                self.forget_early(ctx, peer);
            }
        }
        self.check_expected(ctx, peer, SequenceNumber(expected));
        self.report_of(ctx, peer, Event::Connected { token, status: Status::Success, peer });
        self.pump(ctx, peer);
        self.begin_pulls(ctx, peer);
        Ok(())
    }
}
