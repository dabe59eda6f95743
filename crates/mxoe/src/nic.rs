//! All endpoints of one MAC, and which of them a frame, a request or a moment is for.

use std::collections::{BTreeMap, BTreeSet};

use causeway_wire::mx::{NicId, PeerId, RegionId, Request, Status};
use causeway_wire::mxoe::{
    self, Ends, Header, HostQuery, HostReply, Packet, Pull, PullNack, nack, parse,
};

use crate::buffer_pool::Pool;
use crate::context::{Env, count};
use crate::counters::{EndpointCounters, NicCounters, PeerCounters};
use crate::endpoint::{Endpoint, PeerState, mac_of};
use crate::limits::{ENDPOINTS_MAX, GIVE_UP_NS};
use crate::nic_table::NicTable;
use crate::pull::endpoint_of;
use crate::receive_order::{Brought, Envelope};
use crate::refusal::refuse;
use crate::timers::{Alarms, Owner};
use crate::{Admission, Outside};

/// How a NIC is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Its MAC.
    pub nic: NicId,
    /// What it answers who asks for its name; empty: nothing.
    pub name: String,
    /// A peer that is not heard of for so long is gone, in ns.
    pub give_up_ns: u64,
    /// Peers may say nothing for long although they are there: nobody answers for those that are
    /// at the network themselves and do not call. One that is said to be gone is so only if that is
    /// said again when it is asked.
    pub silent: bool,
    /// Frames of [`FRAME_LEN_MAX`](mxoe::FRAME_LEN_MAX) cross its network: of what is pulled two
    /// may come and go in one. Where they do not cross all of it, they are not asked for after a
    /// while.
    pub wide: bool,
}

impl Config {
    /// With MX's patience.
    pub fn new(nic: NicId, name: &str) -> Self {
        Self { nic, name: name.to_owned(), give_up_ns: GIVE_UP_NS, silent: false, wide: false }
    }
}

/// Why an endpoint is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Somebody has it.
    #[error("endpoint {0} is open already: close it, or open another one")]
    Busy(u8),
    /// 255.
    #[error("endpoint {0} cannot be opened: endpoints are 0 to 254")]
    Number(u8),
}

/// Why a frame changed nothing, or nearly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// It is no packet.
    #[error(transparent)]
    Malformed(#[from] mxoe::Error),
    /// It is to another NIC.
    #[error("it is to another board")]
    NotOurs,
    /// It is of a NIC that is not in the table of peers.
    #[error("its board is not in the table of peers")]
    UnknownBoard,
    /// NICs do not serve such packets: mappers and tables of peers do.
    #[error("it is not for a board")]
    NotServed,
    /// Its endpoint is not open.
    #[error("its endpoint is not open")]
    NoEndpoint,
    /// It is for another session of its endpoint, or of a session that is over.
    #[error("it is for another session")]
    Session,
    /// A connect with another key.
    #[error("it has another key")]
    Key,
    /// Of an endpoint that is not connected.
    #[error("it is of no partner")]
    UnknownPeer,
    /// Its number or place is none that is expected.
    #[error("its number is not expected")]
    Number,
    /// There is no room for it.
    #[error("there is no room for it")]
    NoRoom,
    /// A pull that names what is not offered to its sender.
    #[error("it names what is not offered to its sender")]
    Window,
    /// A piece of what is not pulled from its sender.
    #[error("it is a piece of what is not pulled from its sender")]
    Handle,
    /// A refusal of nothing that was sent, or without a known reason.
    #[error("it refuses nothing that was sent, or without a known reason")]
    Refusal,
}

/// All endpoints of one MAC.
#[derive(Debug)]
pub struct Nic {
    own: [u8; 6],
    config: Config,
    hosts: NicTable,
    pool: Pool,
    alarms: Alarms,
    endpoints: Vec<Option<Box<Endpoint>>>,
    counters: NicCounters,
    /// Endpoints in whose name nothing is refused: their processes open them again soon.
    awaited: BTreeSet<u8>,
}

impl Nic {
    /// Without endpoints, and without NICs that it knows. Of the MAC the upper 16 bits do not
    /// count.
    pub fn new(config: Config) -> Self {
        let own = mac_of(NicId(config.nic.0 & 0xffff_ffff_ffff)).unwrap_or_default();
        Self {
            own,
            config,
            hosts: NicTable::default(),
            pool: Pool::default(),
            alarms: Alarms::default(),
            endpoints: (0..ENDPOINTS_MAX).map(|_| None).collect(),
            counters: NicCounters::default(),
            awaited: BTreeSet::new(),
        }
    }

    /// Refuses nothing in the name of these endpoints while they are not open: their processes open
    /// them again soon, and what is for them is sent again until then.
    pub fn set_awaited(&mut self, endpoints: impl Iterator<Item = u8>) {
        self.awaited = endpoints.collect();
    }

    /// Splits into the endpoints and what they share.
    fn split<'a>(
        &'a mut self,
        now: u64,
        out: &'a mut dyn Outside,
    ) -> (&'a mut Vec<Option<Box<Endpoint>>>, Env<'a>) {
        let Self { own, config, hosts, pool, alarms, endpoints, counters, .. } = self;
        let (own, &mut Config { give_up_ns, silent, wide, .. }) = (*own, config);
        let env = Env { now, out, hosts, pool, alarms, counters, own, give_up_ns, silent, wide };
        (endpoints, env)
    }

    /// An endpoint that is open, and what it shares.
    fn at<'a>(
        &'a mut self,
        now: u64,
        out: &'a mut dyn Outside,
        endpoint: u8,
    ) -> Option<(&'a mut Endpoint, Env<'a>)> {
        let (endpoints, env) = self.split(now, out);
        let endpoint = endpoints.get_mut(usize::from(endpoint))?.as_mut()?;
        Some((endpoint, env))
    }

    /// Its network is another one, or has changed: see [`Config::wide`].
    pub fn set_wide(&mut self, wide: bool) {
        self.config.wide = wide;
        self.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.peers.forget_wide());
    }

    /// Adds a NIC to those that are known: its number in the table, which stays until it is
    /// removed; none if the table is full. A NIC that reaches itself over the network is added
    /// like any other.
    pub fn host_add(&mut self, nic: NicId) -> Option<u16> {
        self.hosts.add(mac_of(nic)?)
    }

    /// A NIC is not known any more: peers there are gone.
    pub fn host_remove(&mut self, now: u64, nic: NicId, out: &mut dyn Outside) {
        let Some(number) = mac_of(nic).and_then(|mac| self.hosts.number(mac)) else { return };
        let (endpoints, mut env) = self.split(now, out);
        for endpoint in endpoints.iter_mut().flatten() {
            endpoint.host_gone(&mut env, number);
            endpoint.heed_freed(&mut env);
        }
        if let Some(mac) = mac_of(nic) {
            self.hosts.remove(mac);
        }
    }

    /// Opens an endpoint: its session.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be opened.
    pub fn open(
        &mut self,
        endpoint: u8,
        key: u32,
        out: &mut dyn Outside,
    ) -> Result<u32, OpenError> {
        let session = out.random();
        self.open_as(endpoint, key, session, out).map(|()| session)
    }

    /// Opens an endpoint whose session was chosen elsewhere, at random.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn open_as(
        &mut self,
        endpoint: u8,
        key: u32,
        session: u32,
        out: &mut dyn Outside,
    ) -> Result<(), OpenError> {
        let place = self.endpoints.get_mut(usize::from(endpoint));
        let place = place.ok_or(OpenError::Number(endpoint))?;
        if place.is_some() {
            return Err(OpenError::Busy(endpoint));
        }
        *place = Some(Box::new(Endpoint::new(endpoint, session, key, out.random())));
        Ok(())
    }

    /// Closes an endpoint: what came is acknowledged, and the rest forgotten. No event of it comes
    /// any more.
    pub fn close(&mut self, now: u64, endpoint: u8, out: &mut dyn Outside) {
        if let Some((endpoint, mut env)) = self.at(now, out, endpoint) {
            endpoint.close(&mut env);
        }
        if let Some(place) = self.endpoints.get_mut(usize::from(endpoint)) {
            *place = None;
        }
    }

    /// Registers `len` bytes for an endpoint; none if it has no number left.
    pub fn region_add(&mut self, endpoint: u8, len: u64) -> Option<RegionId> {
        self.endpoints.get_mut(usize::from(endpoint))?.as_mut()?.region_add(len)
    }

    /// A region is not registered any more: whether it was. What is offered of it or pulled into
    /// it ends with [`Status::BadRdmaWindow`].
    pub fn region_remove(
        &mut self,
        now: u64,
        endpoint: u8,
        region: RegionId,
        out: &mut dyn Outside,
    ) -> bool {
        let found = self.at(now, out, endpoint);
        found.is_some_and(|(endpoint, mut env)| endpoint.region_remove(&mut env, region))
    }

    /// The host side of an endpoint asks for something. Of an endpoint that is not open it is
    /// taken, and nothing comes of it.
    pub fn request(
        &mut self,
        now: u64,
        endpoint: u8,
        request: &Request<'_>,
        out: &mut dyn Outside,
    ) -> Admission {
        match self.at(now, out, endpoint) {
            Some((endpoint, mut env)) => endpoint.request(&mut env, request),
            None => Admission::Yes,
        }
    }

    /// As [`Request::Eager`] of who is in the same process, and is told only if it fails. False:
    /// nothing was done, and it is to be asked for.
    #[inline]
    pub fn send_untold(
        &mut self,
        now: u64,
        endpoint: u8,
        (peer, match_info): (PeerId, u64),
        data: &[u8],
        out: &mut dyn Outside,
    ) -> bool {
        let found = self.at(now, out, endpoint);
        found.is_some_and(|(of, mut env)| of.send_untold(&mut env, peer, match_info, data))
    }

    /// Whether [`Self::send_untold`] may take one more.
    #[inline]
    pub fn takes_untold(&self, endpoint: u8) -> bool {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        endpoint.is_some_and(|endpoint| endpoint.takes_untold())
    }

    /// How many messages of [`Self::send_untold`] have not ended.
    pub fn untold(&self, endpoint: u8) -> usize {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        endpoint.map_or(0, |endpoint| endpoint.sends.untold)
    }

    /// How many requests the one that gives a send of an endpoint up is worth: it looks through
    /// them.
    pub fn cancel_cost(&self, endpoint: u8) -> usize {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        endpoint.map_or(0, |endpoint| endpoint.cancel_cost())
    }

    /// The host side of an endpoint has room for events again.
    pub fn room(&mut self, now: u64, endpoint: u8, out: &mut dyn Outside) {
        if let Some((endpoint, mut env)) = self.at(now, out, endpoint) {
            endpoint.room(&mut env);
        }
    }

    /// When [`Self::tick`] is to be called at the latest.
    pub fn deadline(&self) -> Option<u64> {
        self.alarms.deadline()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: u64, out: &mut dyn Outside) {
        // Whoever is called now is not due again now: each at most once.
        for _ in 0..self.alarms.len() {
            let Some(Owner { endpoint, peer }) = self.alarms.next(now) else { return };
            let Some((endpoint, mut env)) = self.at(now, out, endpoint) else { continue };
            match peer {
                Some(peer) => endpoint.peer_due(&mut env, PeerId(peer)),
                None => {
                    endpoint.connect_alarm.rang();
                    endpoint.connects_due(&mut env);
                }
            }
            endpoint.heed_freed(&mut env);
        }
    }

    /// A frame came.
    ///
    /// # Errors
    /// [`Dropped`] says why nothing, or nearly nothing, came of it.
    pub fn receive(
        &mut self,
        now: u64,
        frame: &[u8],
        out: &mut dyn Outside,
    ) -> Result<(), Dropped> {
        count(&mut self.counters.frames_received);
        let (header, packet) = parse(frame).inspect_err(|_| count(&mut self.counters.malformed))?;
        if header.destination != self.own {
            count(&mut self.counters.not_ours);
            return Err(Dropped::NotOurs);
        }
        let Some(host) = self.host_of(&header) else {
            count(&mut self.counters.unknown_boards);
            return Err(Dropped::UnknownBoard);
        };
        match packet {
            Packet::Raw(_) | Packet::HostReply(_) => {
                count(&mut self.counters.not_served);
                Err(Dropped::NotServed)
            }
            Packet::HostQuery(query) => self.name(now, host, query, out),
            packet => self.for_endpoint(now, host, &packet, out),
        }
    }

    fn host_of(&self, header: &Header) -> Option<u16> {
        self.hosts.find(header.source, header.peer_index)
    }

    /// Says the NIC's name.
    fn name(
        &mut self,
        now: u64,
        host: u16,
        query: HostQuery,
        out: &mut dyn Outside,
    ) -> Result<(), Dropped> {
        let name = std::mem::take(&mut self.config.name);
        self.hosts.learn(host, query.index_of_destination);
        let reply =
            HostReply { index_of_destination: host, magic: query.magic, name: name.as_bytes() };
        if !name.is_empty() {
            let (_, mut env) = self.split(now, out);
            env.send(host, &Packet::HostReply(reply));
        }
        self.config.name = name;
        Ok(())
    }

    fn for_endpoint(
        &mut self,
        now: u64,
        host: u16,
        packet: &Packet<'_>,
        out: &mut dyn Outside,
    ) -> Result<(), Dropped> {
        let to = match packet {
            Packet::Ack(ack) => ack.ends.destination,
            Packet::Connect(connect) => connect.ends.destination,
            Packet::Tiny(eager) | Packet::Small(eager) => eager.ends.destination,
            Packet::Medium(fragment) => fragment.eager.ends.destination,
            Packet::Rendezvous(offer) => offer.ends.destination,
            Packet::Pull(pull) => pull.ends.destination,
            Packet::Notify(notify) => notify.ends.destination,
            Packet::Nack(nack) => nack.ends.destination,
            Packet::PullReply(reply) => endpoint_of(reply.magic),
            Packet::PullNack(nack) => endpoint_of(nack.magic),
            Packet::Raw(_) | Packet::HostQuery(_) | Packet::HostReply(_) => return Ok(()),
        };
        let Some((endpoint, mut env)) = self.at(now, out, to) else {
            return self.no_endpoint(now, host, packet, out);
        };
        let env = &mut env;
        let heard = match packet {
            Packet::Ack(ack) => endpoint.acked(env, host, ack),
            Packet::Connect(connect) => endpoint.greeted(env, host, connect),
            Packet::Tiny(eager) | Packet::Small(eager) => {
                let brought = Brought::Whole(eager.match_info, eager.data);
                endpoint.sequenced(env, host, &Envelope::of(eager), &brought)
            }
            Packet::Medium(fragment) => {
                let eager = &fragment.eager;
                let brought = Brought::Fragment(eager.match_info, fragment.place, eager.data);
                endpoint.sequenced(env, host, &Envelope::of(eager), &brought)
            }
            Packet::Rendezvous(offer) => {
                let (envelope, brought) = Brought::of_rendezvous(offer);
                endpoint.sequenced(env, host, &envelope, &brought)
            }
            Packet::Notify(notify) => {
                let (envelope, brought) = Brought::of_notify(notify);
                endpoint.sequenced(env, host, &envelope, &brought)
            }
            Packet::Pull(pull) => endpoint.pulled(env, host, pull),
            Packet::PullReply(reply) => endpoint.replied(env, host, reply),
            Packet::PullNack(nack) => endpoint.pull_refused(env, host, nack),
            Packet::Nack(nack) => endpoint.refused(env, host, nack),
            Packet::Raw(_) | Packet::HostQuery(_) | Packet::HostReply(_) => Ok(()),
        };
        endpoint.heed_freed(env);
        heard
    }

    /// A packet for an endpoint that is not open is refused, where packets are.
    fn no_endpoint(
        &mut self,
        now: u64,
        host: u16,
        packet: &Packet<'_>,
        out: &mut dyn Outside,
    ) -> Result<(), Dropped> {
        count(&mut self.counters.no_endpoint);
        let (ends, sequence) = match packet {
            Packet::Connect(connect)
                if matches!(connect.greeting, mxoe::Greeting::Reply { .. }) =>
            {
                return Err(Dropped::NoEndpoint);
            }
            Packet::Connect(connect) => (connect.ends, 0),
            Packet::Tiny(eager) | Packet::Small(eager) => (eager.ends, eager.sequence),
            Packet::Medium(fragment) => (fragment.eager.ends, fragment.eager.sequence),
            Packet::Rendezvous(offer) => (offer.ends, offer.sequence),
            Packet::Notify(notify) => (notify.ends, notify.sequence),
            Packet::Pull(Pull { ends, .. }) if self.awaited.contains(&ends.destination) => {
                return Err(Dropped::NoEndpoint);
            }
            Packet::Pull(Pull { ends, handle, magic, .. }) => {
                let (source, reason) = (ends.destination, reason(ends.destination));
                let nack = PullNack { source, reason, handle: *handle, magic: *magic };
                let (_, mut env) = self.split(now, out);
                env.send(host, &Packet::PullNack(nack));
                return Err(Dropped::NoEndpoint);
            }
            _ => return Err(Dropped::NoEndpoint),
        };
        if self.awaited.contains(&ends.destination) {
            return Err(Dropped::NoEndpoint);
        }
        let back = Ends { destination: ends.source, source: ends.destination };
        let (_, mut env) = self.split(now, out);
        refuse(&mut env, host, back, sequence, reason(ends.destination));
        Err(Dropped::NoEndpoint)
    }

    /// What the NIC is called.
    pub fn called(&self) -> &str {
        &self.config.name
    }

    /// What the NIC counted.
    pub fn counters(&self) -> NicCounters {
        self.counters
    }

    /// What an endpoint counted, and what peers that are gone had counted.
    pub fn endpoint_counters(&self, endpoint: u8) -> Option<(EndpointCounters, PeerCounters)> {
        let endpoint = self.endpoints.get(usize::from(endpoint))?.as_ref()?;
        Some((endpoint.counters, endpoint.past))
    }

    /// NICs of peers, and when one of them was heard last.
    pub fn heard(&self) -> Vec<(NicId, u64)> {
        let mut last = BTreeMap::new();
        for endpoint in self.endpoints.iter().flatten() {
            for (_, partner) in endpoint.peers.all().filter(|(_, p)| p.session.is_some()) {
                let at: &mut u64 = last.entry(partner.host).or_default();
                *at = partner.heard_at.max(*at);
            }
        }
        let named = |(host, at)| Some((NicId::of(self.hosts.get(host)?.0), at));
        last.into_iter().filter_map(named).collect()
    }

    /// The peers of an endpoint, as they are now.
    pub fn partners(&self, endpoint: u8) -> Vec<PeerState> {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        let mac = |host| self.hosts.get(host).map(|(mac, _)| mac);
        endpoint.map(|endpoint| endpoint.states(mac)).unwrap_or_default()
    }
}

/// Why there is no such endpoint.
fn reason(endpoint: u8) -> u8 {
    let possible = usize::from(endpoint) < ENDPOINTS_MAX;
    if possible { nack::ENDPOINT_CLOSED } else { nack::BAD_ENDPOINT }
}

impl Endpoint {
    /// What is due of a peer.
    fn peer_due(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        partner.alarm.rang();
        if let Some(doubt) =
            partner.doubt.filter(|doubt| doubt.asked_again && doubt.ends() <= env.now)
        {
            if partner.heard_at <= doubt.since && (doubt.refused || !env.silent) {
                self.end_peer(env, peer, doubt.status);
                return;
            }
            partner.doubt = None;
        } else if let Some(doubt) = &mut partner.doubt
            && !doubt.asked_again
            && doubt.again() <= env.now
        {
            doubt.ask_again(env.now);
            self.ask_whether_there(env, peer);
        }
        if self.question_due(env, peer) {
            return;
        }
        let Some(partner) = self.peers.get_mut(peer) else { return };
        if partner.receive.ack_at.is_some_and(|at| at <= env.now) {
            self.send_ack(env, peer);
        }
        let Some(partner) = self.peers.get_mut(peer) else { return };
        if partner.send.resend_at.is_some_and(|at| at <= env.now) {
            self.resend(env, peer);
        }
        let Some(partner) = self.peers.get_mut(peer) else { return };
        if partner.send.probe_at.is_some_and(|at| at <= env.now) {
            self.probe(env, peer);
        }
        if let Some(partner) = self.peers.get_mut(peer)
            && partner.send.quiet_until.is_some_and(|at| at <= env.now)
        {
            partner.send.quiet_until = None;
            self.pump(env, peer);
        }
        self.pulls_due(env, peer);
        // Set between, it may be for what is done by now.
        if let Some(partner) = self.peers.get_mut(peer) {
            let owner = Owner { endpoint: self.id, peer: Some(peer.0) };
            env.alarms.disarm(&mut partner.alarm, owner);
        }
        self.rearm(env, peer);
    }

    /// A NIC is not known any more.
    fn host_gone(&mut self, env: &mut Env<'_>, host: u16) {
        let mut from = 0;
        while let Some(peer) = self.peers.first_from(from) {
            from = peer.0.saturating_add(1);
            if self.peers.get(peer).is_some_and(|partner| partner.host == host) {
                self.end_peer(env, peer, Status::EndpointUnreachable);
            }
        }
        for endpoint in 0..=u8::MAX {
            self.connect_refused(env, (host, endpoint), Status::EndpointUnreachable);
        }
    }

    /// Acknowledges what is not acknowledged, and stops all alarms.
    fn close(&mut self, env: &mut Env<'_>) {
        let mut from = 0;
        while let Some(peer) = self.peers.first_from(from) {
            from = peer.0.saturating_add(1);
            self.acknowledge(env, peer, true);
            let Some(partner) = self.peers.get_mut(peer) else { continue };
            let owner = Owner { endpoint: self.id, peer: Some(peer.0) };
            env.alarms.disarm(&mut partner.alarm, owner);
        }
        let owner = Owner { endpoint: self.id, peer: None };
        env.alarms.disarm(&mut self.connect_alarm, owner);
    }
}
