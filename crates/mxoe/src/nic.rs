//! A NIC: the endpoints of one MAC, and the dispatch of frames, requests and timers to them.
//!
//! The NIC checks the addresses of a frame and finds the sender in the table of known NICs; frames
//! of unknown NICs or to other MACs, and frames of the network in the name of a NIC of this daemon,
//! are dropped with a [`DropReason`]. Packets to endpoints that are not open are dropped too, and
//! answered with a nack if their kind is refused ([`refusal`](crate::refusal)). All protocol steps
//! are methods of its endpoints (`mxoe::endpoint` and the modules that it names).
//!
//! Callers: [`driver::Engine`](crate::driver::Engine) and its owner, in the daemon for all
//! endpoints of a NIC, or in a process in direct mode for its own endpoint. The caller passes
//! frames, requests and the time, and calls [`Nic::tick`] at [`Nic::deadline`]; a late tick delays
//! acknowledgements, retransmissions and the end of silent peers, and loses nothing.
//!
//! The NIC does not find other NICs: [`discovery`](crate::discovery) does, and the caller adds them
//! by [`Nic::nic_add`], at most [`KNOWN_NICS_MAX`](crate::limits::KNOWN_NICS_MAX) (1,024). Name
//! queries of known NICs are answered here if the NIC has a name; announcements and answers to name
//! queries are for discovery, and dropped here ([`DropReason::NotServed`]). There is no lock: one
//! thread at a time.

use std::collections::{BTreeMap, BTreeSet};

use causeway_wire::mx::{NicId, PeerId, RegionId, Request, Status};
use causeway_wire::mxoe::{
    self, EndpointPair, Header, HostQuery, HostReply, Packet, Pull, PullNack, nack, parse,
};

use crate::buffer_pool::BufferPool;
use crate::context::{EngineContext, count};
use crate::counters::{EndpointCounters, NicCounters, PeerCounters};
use crate::drop_reason::DropReason;
use crate::endpoint::{NicEndpoint, PeerState, mac_of};
use crate::limits::{ENDPOINTS_MAX, GIVE_UP_NS};
use crate::local::LocalQueue;
use crate::nic_table::NicTable;
use crate::pull::endpoint_of;
use crate::receive_order::{Envelope, PacketContent};
use crate::refusal::refuse;
use crate::timers::{TimerOwner, Timers};
use crate::{Admission, Outside};

/// Configuration of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicConfig {
    /// MAC of the NIC.
    pub nic: NicId,
    /// Answer to name queries. If empty, queries are not answered.
    pub name: String,
    /// Time in ns without a packet after which a peer that is waited for is gone, 500 s
    /// ([`GIVE_UP_NS`]) by default. Also the timeout of connects that
    /// have none, and of pulls.
    pub give_up_ns: u64,
    /// Live peers can be silent for long: a process in direct mode acknowledges only while it calls
    /// the library. A peer that was reported gone by a refusal then ends only if the liveness query
    /// is refused as well; [`Self::give_up_ns`] applies in any case.
    pub silent: bool,
    /// The network carries frames of [`FRAME_LEN_MAX`](mxoe::FRAME_LEN_MAX) (8,240 bytes), so that
    /// pulls use jumbo frames. If a part of the network drops them, pulls fall back after a few
    /// attempts.
    pub wide: bool,
    /// Time in ns until which a connect to an unknown NIC waits for discovery. Later, such a
    /// connect fails at once.
    pub discovery_ends_ns: u64,
}

impl NicConfig {
    /// Creates a configuration with the timeout of MX.
    pub fn new(nic: NicId, name: &str) -> Self {
        Self {
            nic,
            name: name.to_owned(),
            give_up_ns: GIVE_UP_NS,
            silent: false,
            wide: false,
            discovery_ends_ns: 0,
        }
    }
}

/// Reason why an endpoint was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The endpoint is open.
    #[error("endpoint {0} is open already: close it, or open another one")]
    Busy(u8),
    /// The number is 255.
    #[error("endpoint {0} cannot be opened: endpoints are 0 to 254")]
    InvalidNumber(u8),
}

/// A NIC of the network with its endpoints. See the [crate documentation](crate).
#[derive(Debug)]
pub struct Nic {
    /// MAC of this NIC.
    pub(crate) own: [u8; 6],
    config: NicConfig,
    /// Known NICs of the network and of this daemon.
    pub(crate) hosts: NicTable,
    pool: BufferPool,
    timers: Timers,
    /// Open endpoints, by number.
    pub(crate) endpoints: Vec<Option<Box<NicEndpoint>>>,
    counters: NicCounters,
    /// Endpoints in whose name nothing is refused, because their processes will open them again.
    awaited: BTreeSet<u8>,
    /// Work for NICs of the same daemon.
    pub(crate) local: LocalQueue,
}

impl Nic {
    /// Creates a NIC without endpoints and known NICs. The upper 16 bits of the MAC are ignored.
    pub fn new(config: NicConfig) -> Self {
        let own = mac_of(NicId(config.nic.0 & 0xffff_ffff_ffff)).unwrap_or_default();
        Self {
            own,
            config,
            hosts: NicTable::default(),
            pool: BufferPool::default(),
            timers: Timers::default(),
            endpoints: (0..ENDPOINTS_MAX).map(|_| None).collect(),
            counters: NicCounters::default(),
            awaited: BTreeSet::new(),
            local: LocalQueue::default(),
        }
    }

    /// Replaces the set of endpoints in whose name nothing is refused while they are not open:
    /// their packets are dropped, and peers retransmit until the processes open them again.
    pub fn set_awaited(&mut self, endpoints: impl Iterator<Item = u8>) {
        self.awaited = endpoints.collect();
    }

    /// Splits the NIC into its endpoints and the state that they share.
    fn split<'a>(
        &'a mut self,
        now: u64,
        out: &'a mut dyn Outside,
    ) -> (&'a mut Vec<Option<Box<NicEndpoint>>>, EngineContext<'a>) {
        let Self { own, config, hosts, pool, timers, endpoints, counters, local, .. } = self;
        let (own, config) = (*own, &*config);
        let ctx = EngineContext {
            now,
            out,
            hosts,
            pool,
            timers,
            counters,
            local,
            own,
            give_up_ns: config.give_up_ns,
            silent: config.silent,
            wide: config.wide,
            discovery_ends_ns: config.discovery_ends_ns,
        };
        (endpoints, ctx)
    }

    /// Returns an open endpoint and the state that endpoints share.
    pub(crate) fn at<'a>(
        &'a mut self,
        now: u64,
        out: &'a mut dyn Outside,
        endpoint: u8,
    ) -> Option<(&'a mut NicEndpoint, EngineContext<'a>)> {
        let (endpoints, ctx) = self.split(now, out);
        let endpoint = endpoints.get_mut(usize::from(endpoint))?.as_mut()?;
        Some((endpoint, ctx))
    }

    /// Sets [`NicConfig::wide`], because the interface or its MTU changed.
    pub fn set_wide(&mut self, wide: bool) {
        self.config.wide = wide;
        self.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.peers.forget_jumbo());
    }

    /// Adds a known NIC. Returns its number in the table, which stays valid until the NIC is
    /// removed, or `None` if the table is full or `nic` has more than 48 bits. A known NIC keeps
    /// its number. A NIC that reaches itself over the network is added like any other.
    pub fn nic_add(&mut self, nic: NicId) -> Option<u16> {
        self.hosts.add(mac_of(nic)?)
    }

    /// Removes a known NIC. Its peers, their operations and the connects to it end with
    /// [`Status::EndpointUnreachable`]; an unknown NIC has no effect.
    pub fn nic_remove(&mut self, now: u64, nic: NicId, out: &mut dyn Outside) {
        let Some(number) = mac_of(nic).and_then(|mac| self.hosts.number(mac)) else { return };
        let (endpoints, mut ctx) = self.split(now, out);
        for endpoint in endpoints.iter_mut().flatten() {
            endpoint.remove_host(&mut ctx, number);
            endpoint.deliver_offers(&mut ctx);
        }
        if let Some(mac) = mac_of(nic) {
            self.hosts.remove(mac);
        }
    }

    /// Opens an endpoint with a random session. Returns the session.
    ///
    /// # Errors
    /// [`OpenError`]: the endpoint is open, or its number is invalid.
    pub fn open(
        &mut self,
        endpoint: u8,
        key: u32,
        out: &mut dyn Outside,
    ) -> Result<u32, OpenError> {
        let session = out.random();
        self.open_as(endpoint, key, session, out).map(|()| session)
    }

    /// Opens an endpoint with a session that the caller chose at random.
    ///
    /// # Errors
    /// [`OpenError`]: the endpoint is open, or its number is invalid.
    pub fn open_as(
        &mut self,
        endpoint: u8,
        key: u32,
        session: u32,
        out: &mut dyn Outside,
    ) -> Result<(), OpenError> {
        let place = self.endpoints.get_mut(usize::from(endpoint));
        let place = place.ok_or(OpenError::InvalidNumber(endpoint))?;
        if place.is_some() {
            return Err(OpenError::Busy(endpoint));
        }
        *place = Some(Box::new(NicEndpoint::new(endpoint, session, key, out.random())));
        Ok(())
    }

    /// Closes an endpoint. Received messages are acknowledged, pending sends, pulls and connects
    /// are discarded, and no event follows. Later packets to the endpoint are refused with a nack.
    pub fn close(&mut self, now: u64, endpoint: u8, out: &mut dyn Outside) {
        if let Some((endpoint, mut ctx)) = self.at(now, out, endpoint) {
            endpoint.close(&mut ctx);
        }
        if let Some(place) = self.endpoints.get_mut(usize::from(endpoint)) {
            *place = None;
        }
    }

    /// Registers `len` bytes for an endpoint. Returns `None` if all 256 numbers are in use, or if
    /// the endpoint is not open.
    pub fn region_add(&mut self, endpoint: u8, len: u64) -> Option<RegionId> {
        self.endpoints.get_mut(usize::from(endpoint))?.as_mut()?.region_add(len)
    }

    /// Deregisters a region, and ends its offers and pulls with [`Status::BadRdmaWindow`]. Returns
    /// whether the region was registered.
    pub fn region_remove(
        &mut self,
        now: u64,
        endpoint: u8,
        region: RegionId,
        out: &mut dyn Outside,
    ) -> bool {
        let found = self.at(now, out, endpoint);
        found.is_some_and(|(endpoint, mut ctx)| endpoint.region_remove(&mut ctx, region))
    }

    /// Performs a request of the host side. Requests of an endpoint that is not open are ignored:
    /// they return [`Admission::Yes`] without an event.
    pub fn request(
        &mut self,
        now: u64,
        endpoint: u8,
        request: &Request<'_>,
        out: &mut dyn Outside,
    ) -> Admission {
        match self.at(now, out, endpoint) {
            Some((endpoint, mut ctx)) => endpoint.request(&mut ctx, request),
            None => Admission::Yes,
        }
    }

    /// Sends as [`Request::Eager`] does, but reports only failures. For callers in the same
    /// process. At most `EARLY_SENDS_MAX` (512) such messages of an endpoint are pending. Returns
    /// false without an effect if a limit is reached or the peer is not known; the caller must
    /// submit a request then.
    #[inline]
    pub fn send_unreported(
        &mut self,
        now: u64,
        endpoint: u8,
        (peer, match_info): (PeerId, u64),
        data: &[u8],
        out: &mut dyn Outside,
    ) -> bool {
        let found = self.at(now, out, endpoint);
        found.is_some_and(|(of, mut ctx)| of.send_unreported(&mut ctx, peer, match_info, data))
    }

    /// Returns whether [`Self::send_unreported`] admits another message.
    #[inline]
    pub fn admits_unreported(&self, endpoint: u8) -> bool {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        endpoint.is_some_and(|endpoint| endpoint.admits_unreported())
    }

    /// Returns the number of unreported messages that have not ended.
    pub fn unreported(&self, endpoint: u8) -> usize {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        endpoint.map_or(0, |endpoint| endpoint.sends.unreported)
    }

    /// Returns the additional cost of a cancel in requests: it searches the sends of the endpoint.
    pub fn cancel_cost(&self, endpoint: u8) -> usize {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        endpoint.map_or(0, |endpoint| endpoint.cancel_cost())
    }

    /// Continues an endpoint: its host side has room for events again.
    pub fn room(&mut self, now: u64, endpoint: u8, out: &mut dyn Outside) {
        if let Some((endpoint, mut ctx)) = self.at(now, out, endpoint) {
            endpoint.room(&mut ctx);
        }
    }

    /// Returns the latest time of the next call of [`Self::tick`] in ns.
    pub fn deadline(&self) -> Option<u64> {
        self.timers.deadline()
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: u64, out: &mut dyn Outside) {
        // A timer that is armed meanwhile runs in the next call, so that the loop ends.
        for _ in 0..self.timers.len() {
            let Some(TimerOwner { endpoint, peer }) = self.timers.next(now) else { return };
            let Some((endpoint, mut ctx)) = self.at(now, out, endpoint) else { continue };
            match peer {
                Some(peer) => endpoint.peer_due(&mut ctx, PeerId(peer)),
                None => {
                    endpoint.connect_timer.fired();
                    endpoint.connects_due(&mut ctx);
                }
            }
            endpoint.deliver_offers(&mut ctx);
        }
    }

    /// Processes a received frame.
    ///
    /// # Errors
    /// [`DropReason`]: the reason why the frame was dropped.
    pub fn receive(
        &mut self,
        now: u64,
        frame: &[u8],
        out: &mut dyn Outside,
    ) -> Result<(), DropReason> {
        count(&mut self.counters.frames_received);
        self.receive_by(now, frame, false, out)
    }

    /// Processes a frame from the network, or (`is_local`) from a NIC of the same daemon. A frame
    /// that names the other kind of source is dropped: it is forged or outdated.
    pub(crate) fn receive_by(
        &mut self,
        now: u64,
        frame: &[u8],
        is_local: bool,
        out: &mut dyn Outside,
    ) -> Result<(), DropReason> {
        let (header, packet) = parse(frame).inspect_err(|_| count(&mut self.counters.malformed))?;
        if header.destination != self.own {
            count(&mut self.counters.not_ours);
            return Err(DropReason::NotOurs);
        }
        let host = self.host_of(&header);
        let Some(host) = host.filter(|host| self.hosts.is_local(*host) == is_local) else {
            count(&mut self.counters.unknown_boards);
            return Err(DropReason::UnknownNic);
        };
        match packet {
            Packet::Raw(_) | Packet::HostReply(_) => {
                count(&mut self.counters.not_served);
                Err(DropReason::NotServed)
            }
            Packet::HostQuery(query) => self.answer_name_query(now, host, query, out),
            packet => self.dispatch(now, host, &packet, out),
        }
    }

    /// Returns the number of the sending NIC in the table; `None` if it is not known.
    fn host_of(&self, header: &Header) -> Option<u16> {
        self.hosts.find(header.source, header.peer_index)
    }

    /// Answers a name query.
    fn answer_name_query(
        &mut self,
        now: u64,
        host: u16,
        query: HostQuery,
        out: &mut dyn Outside,
    ) -> Result<(), DropReason> {
        let name = std::mem::take(&mut self.config.name);
        self.hosts.learn(host, query.index_of_destination);
        let reply =
            HostReply { index_of_destination: host, magic: query.magic, name: name.as_bytes() };
        if !name.is_empty() {
            let (_, mut ctx) = self.split(now, out);
            ctx.send(host, &Packet::HostReply(reply));
        }
        self.config.name = name;
        Ok(())
    }

    /// Passes a packet of a known NIC to its endpoint, by kind.
    fn dispatch(
        &mut self,
        now: u64,
        host: u16,
        packet: &Packet<'_>,
        out: &mut dyn Outside,
    ) -> Result<(), DropReason> {
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
        let Some((endpoint, mut ctx)) = self.at(now, out, to) else {
            return self.refuse_closed(now, host, packet, out);
        };
        let ctx = &mut ctx;
        let heard = match packet {
            Packet::Ack(ack) => endpoint.on_ack(ctx, host, ack),
            Packet::Connect(connect) => endpoint.on_connect(ctx, host, connect),
            Packet::Tiny(eager) | Packet::Small(eager) => {
                let content = PacketContent::Whole(eager.match_info, eager.data);
                endpoint.on_sequenced(ctx, host, &Envelope::of(eager), &content)
            }
            Packet::Medium(fragment) => {
                let eager = &fragment.eager;
                let content = PacketContent::Fragment(eager.match_info, fragment.place, eager.data);
                endpoint.on_sequenced(ctx, host, &Envelope::of(eager), &content)
            }
            Packet::Rendezvous(offer) => {
                let (envelope, content) = PacketContent::of_rendezvous(offer);
                endpoint.on_sequenced(ctx, host, &envelope, &content)
            }
            Packet::Notify(notify) => {
                let (envelope, content) = PacketContent::of_notify(notify);
                endpoint.on_sequenced(ctx, host, &envelope, &content)
            }
            Packet::Pull(pull) => endpoint.on_pull(ctx, host, pull),
            Packet::PullReply(reply) => endpoint.on_pull_reply(ctx, host, reply),
            Packet::PullNack(nack) => endpoint.on_pull_nack(ctx, host, nack),
            Packet::Nack(nack) => endpoint.on_nack(ctx, host, nack),
            Packet::Raw(_) | Packet::HostQuery(_) | Packet::HostReply(_) => Ok(()),
        };
        endpoint.deliver_offers(ctx);
        heard
    }

    /// Refuses a packet for an endpoint that is not open, if its kind is refused.
    fn refuse_closed(
        &mut self,
        now: u64,
        host: u16,
        packet: &Packet<'_>,
        out: &mut dyn Outside,
    ) -> Result<(), DropReason> {
        count(&mut self.counters.no_endpoint);
        let (ends, sequence) = match packet {
            Packet::Connect(connect)
                if matches!(connect.greeting, mxoe::ConnectBody::Reply { .. }) =>
            {
                return Err(DropReason::NoEndpoint);
            }
            Packet::Connect(connect) => (connect.ends, 0),
            Packet::Tiny(eager) | Packet::Small(eager) => (eager.ends, eager.sequence),
            Packet::Medium(fragment) => (fragment.eager.ends, fragment.eager.sequence),
            Packet::Rendezvous(offer) => (offer.ends, offer.sequence),
            Packet::Notify(notify) => (notify.ends, notify.sequence),
            Packet::Pull(Pull { ends, .. }) if self.awaited.contains(&ends.destination) => {
                return Err(DropReason::NoEndpoint);
            }
            Packet::Pull(Pull { ends, handle, magic, .. }) => {
                let (source, reason) = (ends.destination, reason(ends.destination));
                let nack = PullNack { source, reason, handle: *handle, magic: *magic };
                let (_, mut ctx) = self.split(now, out);
                ctx.send(host, &Packet::PullNack(nack));
                return Err(DropReason::NoEndpoint);
            }
            _ => return Err(DropReason::NoEndpoint),
        };
        if self.awaited.contains(&ends.destination) {
            return Err(DropReason::NoEndpoint);
        }
        let back = EndpointPair { destination: ends.source, source: ends.destination };
        let (_, mut ctx) = self.split(now, out);
        refuse(&mut ctx, host, back, sequence, reason(ends.destination));
        Err(DropReason::NoEndpoint)
    }

    /// Returns the name of the NIC.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the counters of the NIC.
    pub fn counters(&self) -> NicCounters {
        self.counters
    }

    /// Returns the counters of an endpoint, and the sum of the counters of its removed peers.
    pub fn endpoint_counters(&self, endpoint: u8) -> Option<(EndpointCounters, PeerCounters)> {
        let endpoint = self.endpoints.get(usize::from(endpoint))?.as_ref()?;
        Some((endpoint.counters, endpoint.past))
    }

    /// Returns the NICs of the peers, and the time in ns of the latest packet of each.
    pub fn last_heard(&self) -> Vec<(NicId, u64)> {
        let mut last = BTreeMap::new();
        for endpoint in self.endpoints.iter().flatten() {
            for (_, remote) in endpoint.peers.all().filter(|(_, p)| p.session.is_some()) {
                let at: &mut u64 = last.entry(remote.host).or_default();
                *at = remote.heard_at.max(*at);
            }
        }
        let named = |(host, at)| Some((NicId::of(self.hosts.get(host)?.0), at));
        last.into_iter().filter_map(named).collect()
    }

    /// Returns the states of the peers of an endpoint.
    pub fn peer_states(&self, endpoint: u8) -> Vec<PeerState> {
        let endpoint = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        let mac = |host| self.hosts.get(host).map(|(mac, _)| mac);
        endpoint.map(|endpoint| endpoint.states(mac)).unwrap_or_default()
    }
}

/// Returns the reason for refusing packets to an endpoint that is not open.
fn reason(endpoint: u8) -> u8 {
    let possible = usize::from(endpoint) < ENDPOINTS_MAX;
    if possible { nack::ENDPOINT_CLOSED } else { nack::BAD_ENDPOINT }
}

impl NicEndpoint {
    /// Runs the timer of a peer.
    fn peer_due(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        remote.timer.fired();
        if let Some(doubt) =
            remote.doubt.filter(|doubt| doubt.is_repeated && doubt.deadline() <= ctx.now)
        {
            if remote.heard_at <= doubt.since && (doubt.refused || !ctx.silent) {
                self.end_peer(ctx, peer, doubt.status);
                return;
            }
            remote.doubt = None;
        } else if let Some(doubt) = &mut remote.doubt
            && !doubt.is_repeated
            && doubt.repeat_at() <= ctx.now
        {
            doubt.repeat(ctx.now);
            self.query_liveness(ctx, peer);
        }
        if self.query_due(ctx, peer) {
            return;
        }
        let Some(remote) = self.peers.get_mut(peer) else { return };
        if remote.receive.ack_at.is_some_and(|at| at <= ctx.now) {
            self.send_ack(ctx, peer);
        }
        let Some(remote) = self.peers.get_mut(peer) else { return };
        if remote.send.resend_at.is_some_and(|at| at <= ctx.now) {
            self.resend(ctx, peer);
        }
        let Some(remote) = self.peers.get_mut(peer) else { return };
        if remote.send.probe_at.is_some_and(|at| at <= ctx.now) {
            self.probe(ctx, peer);
        }
        if let Some(remote) = self.peers.get_mut(peer)
            && remote.send.quiet_until.is_some_and(|at| at <= ctx.now)
        {
            remote.send.quiet_until = None;
            self.pump(ctx, peer);
        }
        self.pulls_due(ctx, peer);
        // The timer may have been armed for an action that was performed meanwhile.
        if let Some(remote) = self.peers.get_mut(peer) {
            let owner = TimerOwner { endpoint: self.id, peer: Some(peer.0) };
            ctx.timers.disarm(&mut remote.timer, owner);
        }
        self.rearm(ctx, peer);
    }

    /// Ends the peers and connects at a removed NIC.
    fn remove_host(&mut self, ctx: &mut EngineContext<'_>, host: u16) {
        let mut from = 0;
        while let Some(peer) = self.peers.first_from(from) {
            from = peer.0.saturating_add(1);
            if self.peers.get(peer).is_some_and(|remote| remote.host == host) {
                self.end_peer(ctx, peer, Status::EndpointUnreachable);
            }
        }
        for endpoint in 0..=u8::MAX {
            self.end_connects(ctx, (host, endpoint), Status::EndpointUnreachable);
        }
    }

    /// Acknowledges received messages, and disarms all timers.
    fn close(&mut self, ctx: &mut EngineContext<'_>) {
        let mut from = 0;
        while let Some(peer) = self.peers.first_from(from) {
            from = peer.0.saturating_add(1);
            self.acknowledge(ctx, peer, true);
            if let Some(remote) = self.peers.get(peer) {
                self.part_from_local(ctx, remote, Status::EndpointClosed);
            }
            let Some(remote) = self.peers.get_mut(peer) else { continue };
            let owner = TimerOwner { endpoint: self.id, peer: Some(peer.0) };
            ctx.timers.disarm(&mut remote.timer, owner);
        }
        let owner = TimerOwner { endpoint: self.id, peer: None };
        ctx.timers.disarm(&mut self.connect_timer, owner);
    }
}
