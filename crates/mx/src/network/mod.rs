//! The network of a NIC: the NIC side of its endpoints, between their rings and the wire.
//!
//! The network passes frames of a carrier to the engine and to discovery, and notes the processes
//! to wake or disconnect. It does not interpret messages.
//!
//! # Budget
//! That of [`causeway_mxoe::driver`], and a message on the socket of a process that sleeps.
//!
//! | module | content |
//! |---|---|
//! | `carrier` | the carrier of frames: interface or datagrams |
//! | `interface` | an interface, which can go down and come back |
//! | `survivors` | endpoints that survive the daemon |
//! | `guest` | endpoints in the memory of guests' processes |
//! | `endpoint_filter` | packet filters of endpoints in direct mode |
//! | `udp` | datagrams between networks with routers |
//! | `neighbours` | packets between the NICs of the daemon, in memory |
//! | `address_table` | the addresses of NICs in datagram mode |
//!
//! A [`NicNetwork`] has one engine, one discovery and one carrier. Its endpoints are those that the
//! daemon serves; those in direct mode have only their filter and lock file here. Frames that the
//! engine drops are counted by reason; frames that discovery ignores are not. The network retries
//! deferred requests after frames, timers, removals of regions and turns of neighbours, and the
//! binding of an interface that is down every second ([`REBIND_NS`](crate::limits::REBIND_NS)); the
//! engine repeats lost packets and unsent frames. When the NIC is removed, its served endpoints
//! close, and those in direct mode continue. Wake-ups and disconnects are left to `mx::service`, by
//! [`NetworkAction`]. Called on the dispatcher's thread by `mx::service` (frames, timers, closes),
//! `mx::exchange` (rings, neighbours), `mx::requests` and `mx::session_requests` (opens, regions)
//! and `mx::sessions` (memory that a guest took away).

mod address_table;
mod carrier;
mod endpoint_filter;
mod guest;
mod interface;
mod neighbours;
mod rings;
mod survivors;
mod udp;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use causeway_fabric::{Context, LogLimit, Progress, ServiceWatch, SourceProgress};
use causeway_model::Mac;
use causeway_model::PortSpec;
use causeway_model::{PairView, PeerView};
use causeway_mxoe::discovery::{DiscoveredNic, Discovery, NicChange, NicOrigin};
use causeway_mxoe::driver::limits::FRAMES_BEFORE_DUE_MAX;
use causeway_mxoe::driver::{
    EndpointAction, EndpointIo, Engine, RegionRefusal, ServeOutcome, random,
};
use causeway_mxoe::{DropReason, EndpointCounters, NicConfig, PeerCounters, PeerState};
use causeway_wire::mx::{NicId, RegionId};
use rustix::event::{EventfdFlags, eventfd};

use crate::limits::{DISCOVERY_NS, SERVED_AWAITED_NS};
use carrier::{NicCarrier, ReceiveResult};
use neighbours::{Engines, NicEngine};
use survivors::Survivors;

pub use neighbours::FindNetwork;
pub use rings::RingState;
pub use survivors::LockFiles;

/// An action for the service after a turn of the network.
#[derive(Debug, PartialEq, Eq)]
pub enum NetworkAction {
    /// Wake a process that sleeps: an event waits for it.
    Wake { client: u32, endpoint: u8 },
    /// Serve a source.
    Serve(u32),
    /// Disconnect a process that broke a rule.
    Broken { client: u32, why: String },
}

/// Owner of an endpoint.
#[derive(Debug)]
struct EndpointOwner {
    /// Number of the process in `MxService::clients`.
    client: u32,
    /// Number by which the rings are served.
    source: u32,
    /// Watches the doorbell of a host process; a guest's process rings by a message.
    #[expect(dead_code, reason = "held for its drop")]
    watch: Option<ServiceWatch>,
}

/// Configuration of the network of a NIC.
#[derive(Debug)]
pub struct NetworkConfig {
    /// The carrier.
    pub carrier: CarrierSpec,
    /// Number by which the carrier is served.
    pub source: u32,
    /// Configured NICs of other hosts.
    pub peers: Vec<(NicId, Option<String>)>,
    /// Lock files of endpoints that survive the daemon.
    pub locks: LockFiles,
    /// Processes may use direct mode.
    pub bypass: bool,
}

/// Kind of the carrier.
#[derive(Debug)]
pub enum CarrierSpec {
    /// An interface of this host.
    Interface(String),
    /// Datagrams: the local address, and the addresses of peers.
    Udp(SocketAddr, Vec<SocketAddr>),
    /// None: only NICs of the same daemon are reached.
    Local,
}

/// The network of a NIC.
#[derive(Debug)]
pub struct NicNetwork {
    engine: NicEngine,
    carrier: NicCarrier,
    discovery: Discovery,
    /// Processes may use direct mode.
    bypass: bool,
    /// Endpoints in direct mode that survived a daemon; `None` without an interface.
    survivors: Option<Survivors>,
    /// Endpoints of the previous daemon, and the time until which they may be resumed.
    served: Survivors,
    served_until_ns: u64,
    /// Number of endpoints opened in direct mode.
    bypassed_total: u64,
    /// The NIC is being removed: endpoints in direct mode continue without it.
    is_leaving: bool,
    /// Numbers of dropped frames by reason.
    dropped: BTreeMap<&'static str, u64>,
    /// Limits warnings that other hosts cause.
    log: LogLimit,
    /// Counters of closed endpoints and their peers.
    past: (EndpointCounters, PeerCounters),
    /// Actions for the service after this turn.
    pub notes: Vec<NetworkAction>,
}

/// Returns the name of the counter for a reason.
fn reason(dropped: &DropReason) -> &'static str {
    match dropped {
        DropReason::Malformed(_) => "drop_malformed_total",
        DropReason::NotOurs => "drop_not_ours_total",
        DropReason::UnknownNic => "drop_unknown_board_total",
        DropReason::NotServed => "drop_not_served_total",
        DropReason::NoEndpoint => "drop_no_endpoint_total",
        DropReason::Session => "drop_session_total",
        DropReason::Key => "drop_key_total",
        DropReason::UnknownPeer => "drop_stranger_total",
        DropReason::Number => "drop_number_total",
        DropReason::NoRoom => "drop_no_room_total",
        DropReason::Window => "drop_window_total",
        DropReason::Handle => "drop_handle_total",
        DropReason::Refusal => "drop_refusal_total",
    }
}

/// Converts a round trip from ns to us.
fn microseconds(trip_ns: u64) -> f64 {
    Duration::from_nanos(trip_ns).as_secs_f64() * 1e6
}

/// Returns the counters of a peer by name.
fn named(counters: &PeerCounters) -> BTreeMap<String, u64> {
    counters.named().map(|(name, value)| (format!("{name}_total"), value)).collect()
}

/// Returns the view of a peer of a local endpoint.
fn pair(endpoint: u8, partner: &PeerState) -> PairView {
    let (in_flight, waiting) = partner.sending;
    PairView {
        endpoint,
        partner: partner.address.endpoint,
        in_flight,
        waiting,
        parked_bytes: partner.pending_bytes,
        rtt_us: Some(partner.round_trip_ns).filter(|trip| *trip > 0).map(microseconds),
        counters: named(&partner.counters),
    }
}

/// Returns the view of a NIC of another host, with its peers by local endpoint.
fn view(
    now: u64,
    own: &PortSpec,
    partners: &[(u8, PeerState)],
    nic: NicId,
    peer: &DiscoveredNic,
) -> PeerView {
    let [_, _, mac @ ..] = nic.0.to_be_bytes();
    let pairs = || partners.iter().filter(|(_, partner)| partner.address.nic == nic);
    let its = || pairs().map(|(_, partner)| partner);
    let mut counters = PeerCounters::default();
    its().for_each(|partner| counters.add(&partner.counters));
    let trips = its().map(|partner| partner.round_trip_ns).filter(|trip| *trip > 0);
    let seconds = |at: u64| Duration::from_nanos(now.saturating_sub(at)).as_secs_f64();
    PeerView {
        port: own.name.clone(),
        group: own.group.clone(),
        mac: Mac(mac),
        hostname: peer.name.clone(),
        known: match peer.origin {
            NicOrigin::Static => "static",
            NicOrigin::Announced => "announced",
        }
        .into(),
        state: if peer.answered { "answers" } else { "silent" }.into(),
        heard_seconds: peer.heard_at.map(seconds),
        partners: its().count(),
        sending: its().map(|p| p.sending.0.saturating_add(p.sending.1)).sum(),
        rtt_us: trips.min().map(microseconds),
        counters: named(&counters),
        pairs: pairs().map(|(endpoint, partner)| pair(*endpoint, partner)).collect(),
    }
}

impl NicNetwork {
    /// Creates the network of a NIC.
    ///
    /// # Errors
    /// The reason why the carrier cannot be used. An interface that is down is no error.
    pub fn new(
        cx: &Context<'_>,
        nic: NicId,
        name: &str,
        config: NetworkConfig,
    ) -> Result<Self, String> {
        let (serial, magic) = (random(), random());
        let [_, _, mac @ ..] = nic.0.to_be_bytes();
        let with_sockets = matches!(config.carrier, CarrierSpec::Interface(_));
        let survivors = with_sockets.then(|| Survivors::new(config.locks.clone(), cx.now_ns));
        let served = Survivors::new(config.locks.served(), cx.now_ns);
        let direct = survivors.iter().flat_map(Survivors::endpoints);
        let carrier = NicCarrier::open(cx, &config, mac, direct)?;
        let discovers = if carrier.is_external() { DISCOVERY_NS } else { 0 };
        let nic_config = NicConfig {
            wide: carrier.is_wide(),
            discovery_ends_ns: cx.now_ns.saturating_add(discovers),
            ..NicConfig::new(nic, name)
        };
        let mut network = Self {
            engine: Engine::new(nic_config, carrier.output()),
            carrier,
            discovery: Discovery::new(nic, serial, magic, cx.now_ns),
            bypass: config.bypass,
            survivors,
            served,
            served_until_ns: cx.now_ns.saturating_add(SERVED_AWAITED_NS),
            bypassed_total: 0,
            is_leaving: false,
            dropped: BTreeMap::new(),
            log: LogLimit::default(),
            past: Default::default(),
            notes: Vec::new(),
        };
        network.await_served();
        // Endpoints of one NIC belong to different processes.
        network.add_neighbour(cx.now_ns, nic);
        for (peer, name) in config.peers {
            let news = network.discovery.add_static(peer, name, cx.now_ns);
            news.into_iter().for_each(|news| network.apply_change(cx.now_ns, news));
        }
        Ok(network)
    }

    /// Updates the endpoints in whose name the engine refuses nothing.
    fn await_served(&mut self) {
        self.engine.nic.set_awaited(self.served.endpoints());
    }

    /// Returns whether a process of the previous daemon may still resume an endpoint.
    pub fn is_awaited(&self, endpoint: u8) -> bool {
        self.served.endpoints().any(|other| other == endpoint)
    }

    /// Stops waiting for processes that ended, and for all of them after the time limit.
    fn check_served(&mut self, now: u64) {
        let mut ended = self.served.check(now);
        if now >= self.served_until_ns {
            ended.extend(self.served.endpoints());
        }
        if !ended.is_empty() {
            ended.into_iter().for_each(|endpoint| self.served.forget(endpoint));
            self.await_served();
        }
    }

    /// Adds or removes a NIC of discovery in the engine. If the engine has no room, discovery drops
    /// the NIC.
    fn apply_change(&mut self, now: u64, news: NicChange) {
        let Engine { nic: engine_nic, tx_path, .. } = &mut self.engine;
        match news {
            NicChange::Added(nic) => match engine_nic.nic_add(nic) {
                Some(number) => self.discovery.set_number(nic, number),
                None => self.discovery.remove(nic),
            },
            // The NIC of this daemon has precedence.
            NicChange::Removed(nic) if engine_nic.is_local(nic) => {}
            NicChange::Removed(nic) => engine_nic.nic_remove(now, nic, tx_path),
        }
    }

    /// Opens an endpoint in direct mode. Returns its packet socket and its lock file, or `None` if
    /// direct mode is not permitted, the lock file cannot be locked, or the carrier has no packet
    /// socket for it; the caller then opens the endpoint by [`Self::open`].
    pub fn open_direct(&mut self, endpoint: u8) -> Option<Vec<OwnedFd>> {
        let locks = self.survivors.as_ref().filter(|_| self.bypass)?.locks();
        let lock = locks
            .take(endpoint)
            .inspect_err(|error| log::warn!(endpoint, error:%; "cannot lock the file of an endpoint: the daemon carries its frames instead"));
        let lock = lock.ok()?;
        let Some(socket) = self.carrier.open_direct(endpoint) else {
            locks.remove(endpoint);
            return None;
        };
        self.bypassed_total = self.bypassed_total.wrapping_add(1);
        Some(vec![socket, lock])
    }

    /// Returns whether the process of an endpoint in direct mode survived a daemon, or a process
    /// still holds the lock file of an endpoint that this daemon closed.
    pub fn is_survivor(&self, endpoint: u8) -> bool {
        self.survivors.iter().flat_map(Survivors::endpoints).any(|other| other == endpoint)
    }

    /// Returns whether an endpoint stays on the network although its NIC is removed.
    pub fn stays(&self, endpoint: u8) -> bool {
        self.is_leaving
            && self.survivors.is_some()
            && !self.engine.tx_path.endpoints.contains_key(&endpoint)
    }

    /// Starts the removal of the NIC. Endpoints in direct mode stay on the network.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Opens an endpoint with its key and session. Returns the descriptors of its rings, its
    /// doorbell and, unless the process has it, its lock file. An endpoint without a lock file is
    /// not waited for after a daemon restart.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left, or the endpoint is open.
    pub fn open(
        &mut self,
        cx: &Context<'_>,
        endpoint: u8,
        (client, source): (u32, u32),
        secrets: (u32, u32),
    ) -> std::io::Result<Vec<OwnedFd>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watch = cx.watch_source(bell.as_fd(), source)?;
        let (endpoint_io, file) =
            EndpointIo::new(EndpointOwner { client, source, watch: Some(watch) })?;
        self.engine.open(endpoint, secrets, endpoint_io)?;
        // A process that resumes the endpoint holds its file already.
        let lock = match self.is_awaited(endpoint) {
            true => None,
            false => self.served.locks().take(endpoint).ok(),
        };
        self.served.forget(endpoint);
        self.await_served();
        Ok([file, bell].into_iter().chain(lock).collect())
    }

    /// Closes an endpoint, after the caller called [`Self::drain`]. Returns the number by which it
    /// was served, or `None` if it had no rings.
    pub fn close(&mut self, now: u64, endpoint: u8) -> Option<u32> {
        if self.stays(endpoint) {
            return None;
        }
        if self.carrier.end_direct(endpoint) {
            self.survivors.iter_mut().for_each(|survivors| survivors.end(endpoint, now));
        }
        if !self.has_rings(endpoint) {
            return None;
        }
        let (counted, of_partners) = self.counted(endpoint);
        self.past.0.add(&counted);
        self.past.1.add(&of_partners);
        let endpoint_io = self.engine.close(now, endpoint);
        self.served.locks().remove(endpoint);
        self.commit(now);
        endpoint_io.map(|endpoint_io| endpoint_io.owner.source)
    }

    /// Registers memory for large messages of an endpoint.
    ///
    /// # Errors
    /// [`RegionRefusal`]: the memory breaks a rule, or a limit is reached.
    pub fn add_region(
        &mut self,
        endpoint: u8,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<RegionId, RegionRefusal> {
        self.engine.add_region(endpoint, file, len)
    }

    /// Deregisters memory.
    pub fn remove_region(&mut self, now: u64, endpoint: u8, region: RegionId) {
        self.engine.remove_region(now, endpoint, region);
        self.retry();
        self.commit(now);
    }

    /// Returns the number of regions of the matching processes, and their bytes.
    pub fn regions_of(&self, mut those: impl FnMut(u32) -> bool) -> (usize, u64) {
        let its = self
            .engine
            .tx_path
            .endpoints
            .values()
            .filter(|endpoint_io| those(endpoint_io.owner.client));
        its.fold((0_usize, 0_u64), |(regions, bytes), endpoint_io| {
            let regions = regions.saturating_add(endpoint_io.region_count());
            (regions, bytes.saturating_add(endpoint_io.region_bytes))
        })
    }

    /// Serves the rings of an endpoint. `polled`: the next pass comes without a doorbell.
    pub fn serve_endpoint(
        &mut self,
        now: u64,
        endpoint: u8,
        budget: usize,
        polled: bool,
        neighbours: &mut impl FindNetwork,
    ) -> SourceProgress {
        let neighbours = &mut Engines(neighbours);
        let (after, count) = self.engine.serve_among(now, endpoint, budget, polled, neighbours);
        self.commit(now);
        let progress = match after {
            ServeOutcome::Worked => Progress::Worked,
            ServeOutcome::Idle => Progress::Idle,
            ServeOutcome::Parked => Progress::Parked,
        };
        SourceProgress { progress, count }
    }

    /// Serves the carrier. `polled`: the next pass comes without a wake-up.
    pub fn serve_carrier(&mut self, now: u64, budget: usize, polled: bool) -> SourceProgress {
        let (count, last) = self.take_frames(now, budget, polled);
        let progress = match last {
            ReceiveResult::Empty if self.carrier.end_pass(polled) => {
                if polled {
                    Progress::Idle
                } else {
                    Progress::Parked
                }
            }
            ReceiveResult::Down => Progress::Parked,
            _ => Progress::Worked,
        };
        self.commit(now);
        SourceProgress { progress, count }
    }

    /// Polls the carrier at most `budget` times. Returns the number of frames and the last result.
    fn take_frames(&mut self, now: u64, budget: usize, polled: bool) -> (u32, ReceiveResult) {
        let (mut polls, mut count, mut last) = (0_usize, 0_u32, ReceiveResult::Invalid);
        self.carrier.begin_pass();
        while polls < budget {
            last = self.carrier.receive(now, !polled && polls == 0);
            polls = polls.saturating_add(1);
            match last {
                ReceiveResult::Frame => {
                    self.arrive(now);
                    count = count.saturating_add(1);
                }
                // Invalid and foreign frames do not keep the dispatcher awake.
                ReceiveResult::Invalid => self.count("drop_odd_total"),
                ReceiveResult::Empty => break,
                ReceiveResult::Down => {
                    self.engine.tx_path.frames.output = None;
                    break;
                }
            }
        }
        if count > 0 {
            self.retry();
        }
        (count, last)
    }

    /// Passes the received frame to discovery or to the engine; counts it if the engine drops it.
    fn arrive(&mut self, now: u64) {
        let frame = self.carrier.frame();
        if Discovery::takes(frame) {
            let duplicates = self.discovery.duplicate_addresses;
            if let Some(news) = self.discovery.receive(now, frame) {
                self.apply_change(now, news);
            }
            if self.discovery.duplicate_addresses != duplicates {
                self.warn_of_duplicate(now);
            }
            return;
        }
        if let Err(dropped) = self.engine.receive(now, frame) {
            self.count(reason(&dropped));
        }
    }

    #[cold]
    /// Logs, within the log limit, that another NIC has this address.
    fn warn_of_duplicate(&mut self, now: u64) {
        if let Some(more) = self.log.admit(now) {
            let board = self.engine.nic.name();
            log::warn!(
                board, suppressed = more;
                "another NIC has the same address, so neither receives all of its frames: set a different \
                 `mac` for the port (copied machines have the same machine ID)"
            );
        }
    }

    /// Returns the time of the next step of discovery in ns.
    fn discovery_at_ns(&self) -> u64 {
        if self.carrier.is_external() { self.discovery.deadline() } else { u64::MAX }
    }

    /// Counts a dropped frame by its reason.
    fn count(&mut self, reason: &'static str) {
        let counter = self.dropped.entry(reason).or_default();
        *counter = counter.wrapping_add(1);
    }

    /// Returns the latest time of the next call of [`Self::tick`] in ns.
    pub fn deadline(&self) -> u64 {
        let again = self.carrier.rebind_at_ns().unwrap_or(u64::MAX);
        let survivors = self.survivors.as_ref().map_or(u64::MAX, Survivors::deadline);
        let own = self.discovery_at_ns().min(self.carrier.poll_at_ns());
        let served = self.served.deadline();
        self.engine.deadline().min(again).min(own).min(survivors).min(served)
    }

    /// Runs what is due: timers, announcements, and attempts to bind the interface.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        if self.carrier.rebind_at_ns().is_some_and(|at| at <= now) && self.carrier.rebind(cx) {
            self.engine.tx_path.frames.output = self.carrier.output();
            self.engine.nic.set_wide(self.carrier.is_wide());
        }
        let ended =
            self.survivors.as_mut().map(|survivors| survivors.check(now)).unwrap_or_default();
        for endpoint in ended {
            self.carrier.end_direct(endpoint);
        }
        self.check_served(now);
        if self.carrier.poll_at_ns() <= now {
            self.notes.push(NetworkAction::Serve(self.carrier.source()));
        }
        if self.discovery_at_ns() <= now {
            if self.discovery.would_end(now) {
                let heard = self.engine.nic.last_heard();
                heard.into_iter().for_each(|(nic, at)| self.discovery.record_activity(nic, at));
            }
            let frames = &mut self.engine.tx_path.frames;
            let gone = self.discovery.tick(now, &mut |head, data| frames.push(head, data));
            gone.into_iter().for_each(|news| self.apply_change(now, news));
        }
        if self.engine.is_due(now) {
            // The answer that a timer waits for may be in the socket already.
            let (_, last) = self.take_frames(now, FRAMES_BEFORE_DUE_MAX, true);
            if !matches!(last, ReceiveResult::Empty | ReceiveResult::Down) {
                // Frames that were taken from the kernel but not processed cause no further
                // wake-up.
                self.notes.push(NetworkAction::Serve(self.carrier.source()));
            }
        }
        if self.engine.is_due(now) {
            self.engine.tick(now);
        }
        self.retry();
        self.commit(now);
    }

    /// Sends the queued frames, and notes the actions that endpoints need.
    pub fn commit(&mut self, now: u64) {
        let notes = &mut self.notes;
        self.engine.tx_path.commit(now, |endpoint, owner, said| {
            let client = owner.client;
            notes.push(match said {
                EndpointAction::Wake => NetworkAction::Wake { client, endpoint },
                EndpointAction::Serve => NetworkAction::Serve(owner.source),
                EndpointAction::Broken(why) => NetworkAction::Broken { client, why },
            });
        });
    }

    /// Serves endpoints with deferred requests, because a limit may allow them now.
    fn retry(&mut self) {
        let notes = &mut self.notes;
        self.engine.tx_path.retry(|owner| notes.push(NetworkAction::Serve(owner.source)));
    }

    /// Returns the counters of an endpoint, and the sum of those of its peers.
    fn counted(&self, endpoint: u8) -> (EndpointCounters, PeerCounters) {
        let (its, mut partners) = self.engine.nic.endpoint_counters(endpoint).unwrap_or_default();
        for partner in self.engine.nic.peer_states(endpoint) {
            partners.add(&partner.counters);
        }
        (its, partners)
    }

    /// Returns the endpoints with an event that has waited for `least` or longer because their
    /// process reads none.
    pub fn unread_endpoints(&self, least: Duration) -> impl Iterator<Item = (u8, Duration)> {
        let all = self.engine.tx_path.endpoints.iter();
        all.filter_map(move |(endpoint, endpoint_io)| {
            Some((*endpoint, endpoint_io.full_for().filter(|time| *time >= least)?))
        })
    }

    /// Returns whether an event was written since the last call.
    pub fn take_written(&mut self) -> bool {
        std::mem::take(&mut self.engine.tx_path.has_written)
    }

    /// Returns the NIC with a name.
    pub fn find(&self, name: &str) -> Option<NicId> {
        self.discovery.find(name)
    }

    /// Returns a known NIC.
    pub fn peer(&self, nic: NicId) -> Option<&DiscoveredNic> {
        self.discovery.peer(nic)
    }

    /// Returns the NICs of other hosts for the operator.
    pub fn peers(&self, now: u64, own: &PortSpec) -> Vec<PeerView> {
        let of_endpoint = |endpoint: &u8| {
            let endpoint = *endpoint;
            self.engine
                .nic
                .peer_states(endpoint)
                .into_iter()
                .map(move |partner| (endpoint, partner))
        };
        let partners: Vec<_> = self.engine.tx_path.endpoints.keys().flat_map(of_endpoint).collect();
        self.discovery.peers().map(|(nic, peer)| view(now, own, &partners, nic, peer)).collect()
    }

    /// Returns the counters with their names.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        let frames = &self.engine.tx_path.frames;
        let mut put = |name: String, value: u64| {
            let counter = all.entry(name).or_default();
            *counter = counter.wrapping_add(value);
        };
        let total = |name: &str| format!("{name}_total");
        self.engine.nic.counters().named().for_each(|(name, value)| put(total(name), value));
        let (mut endpoints, mut partners) = self.past;
        for endpoint in self.engine.tx_path.endpoints.keys() {
            let (its, of_partners) = self.counted(*endpoint);
            endpoints.add(&its);
            partners.add(&of_partners);
        }
        endpoints.named().for_each(|(name, value)| put(total(name), value));
        partners.named().for_each(|(name, value)| put(total(name), value));
        for (name, value) in &self.dropped {
            put((*name).to_owned(), *value);
        }
        self.carrier.counters().into_iter().for_each(|(name, value)| put(name.into(), value));
        put("frames_left_total".into(), frames.sent);
        put("send_calls_total".into(), frames.calls);
        put("drop_interface_full_total".into(), frames.no_room);
        put("drop_interface_down_total".into(), frames.down);
        put("drop_memory_gone_total".into(), frames.hollow);
        put("lent_bytes_copied_total".into(), frames.kept);
        put("names_contested_total".into(), self.discovery.contested);
        put("addresses_contested_total".into(), self.discovery.duplicate_addresses);
        put("endpoints_bypassing_total".into(), self.bypassed_total);
        let survivors = self.survivors.iter().flat_map(Survivors::endpoints).count();
        put("endpoints_outlived".into(), survivors as u64);
        put("boards_known".into(), self.discovery.peers().count() as u64);
        all
    }
}
