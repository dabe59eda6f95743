//! A board's network: the backend half of its endpoints, between their rings and the wire.
//!
//! # Budget
//! That of [`causeway_mxoe::driver`], and a message on the socket where a process sleeps.
//!
//! | module | idea |
//! |---|---|
//! | `carried` | by what frames come and leave |
//! | `interface` | an interface, which may go and come back |
//! | `outlived` | who is at the network itself, and was before this daemon came |
//! | `sieve` | which frames are whose, where processes are at the network themselves |
//! | `udp` | datagrams to hosts that routers part |
//! | `book` | which boards are behind which address there |

mod book;
mod carried;
mod interface;
mod outlived;
mod sieve;
mod udp;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use causeway_fabric::{Context, LogLimit, Progress, Served, ServiceWatch};
use causeway_model::Mac;
use causeway_model::PortSpec;
use causeway_model::{PairView, PeerView};
use causeway_mxoe::discovery::{Discovery, How, News, Peer};
use causeway_mxoe::driver::limits::FRAMES_BEFORE_DUE_MAX;
use causeway_mxoe::driver::{Action, EndpointIo, Engine, RegionRefusal, ServeOutcome, random};
use causeway_mxoe::{Config, Dropped, EndpointCounters, PeerCounters, PeerState};
use causeway_wire::mx::{NicId, RegionId};
use rustix::event::{EventfdFlags, eventfd};

use crate::limits::SERVED_AWAITED_NS;
use carried::{Came, Carrier, Exit};
use outlived::Outlived;

pub use outlived::Locks;

/// What is to be done after a board had its turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Note {
    /// A process sleeps, and something is there for it.
    Wake { client: u32, endpoint: u8 },
    /// A source is to be served.
    Serve(u32),
    /// A process broke a rule.
    Broken { client: u32, why: String },
}

/// Whose an endpoint is.
#[derive(Debug)]
struct Whose {
    client: u32,
    /// What it is served as.
    source: u32,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
}

/// How a board is on the network.
#[derive(Debug)]
pub struct Wiring {
    /// By what.
    pub by: By,
    /// As what that is served.
    pub source: u32,
    /// Boards that the operator named.
    pub peers: Vec<(NicId, Option<String>)>,
    /// Where it is written down who is at the network itself.
    pub locks: Locks,
    /// Whether processes are let there.
    pub bypass: bool,
}

/// By what a board is on the network.
#[derive(Debug)]
pub enum By {
    /// An interface of this host.
    Interface(String),
    /// Datagrams: where they come to, and from whom.
    Udp(SocketAddr, Vec<SocketAddr>),
}

/// See above.
#[derive(Debug)]
pub struct Network {
    half: Engine<Whose, Exit>,
    carrier: Carrier,
    discovery: Discovery,
    /// Whether processes are let at it; and those that were, before us or by a board that was
    /// other.
    bypass: bool,
    outlived: Option<Outlived>,
    /// Endpoints that a daemon before us served, and until when they are waited for.
    served: Outlived,
    served_until_ns: u64,
    /// Endpoints whose processes were let at it.
    bypassed_total: u64,
    /// The board goes: its processes are not to hear of that at the network.
    leaving: bool,
    /// Frames that changed nothing, by reason.
    dropped: BTreeMap<&'static str, u64>,
    /// Of what others on the network cause.
    log: LogLimit,
    /// What endpoints that are closed had counted.
    past: (EndpointCounters, PeerCounters),
    pub notes: Vec<Note>,
}

/// What frames that changed nothing are counted as.
fn reason(dropped: &Dropped) -> &'static str {
    match dropped {
        Dropped::Malformed(_) => "drop_malformed_total",
        Dropped::NotOurs => "drop_not_ours_total",
        Dropped::UnknownBoard => "drop_unknown_board_total",
        Dropped::NotServed => "drop_not_served_total",
        Dropped::NoEndpoint => "drop_no_endpoint_total",
        Dropped::Session => "drop_session_total",
        Dropped::Key => "drop_key_total",
        Dropped::UnknownPeer => "drop_stranger_total",
        Dropped::Number => "drop_number_total",
        Dropped::NoRoom => "drop_no_room_total",
        Dropped::Window => "drop_window_total",
        Dropped::Handle => "drop_handle_total",
        Dropped::Refusal => "drop_refusal_total",
    }
}

fn microseconds(trip_ns: u64) -> f64 {
    Duration::from_nanos(trip_ns).as_secs_f64() * 1e6
}

fn named(counters: &PeerCounters) -> BTreeMap<String, u64> {
    counters.named().map(|(name, value)| (format!("{name}_total"), value)).collect()
}

/// An endpoint of ours and a partner of it.
fn pair(endpoint: u8, partner: &PeerState) -> PairView {
    let (in_flight, waiting) = partner.sending;
    PairView {
        endpoint,
        partner: partner.address.endpoint,
        in_flight,
        waiting,
        parked_bytes: partner.parked,
        rtt_us: Some(partner.round_trip_ns).filter(|trip| *trip > 0).map(microseconds),
        counters: named(&partner.counters),
    }
}

/// A board of another host, with what is counted of its partners, each with the number of our
/// endpoint.
fn view(
    now: u64,
    own: &PortSpec,
    partners: &[(u8, PeerState)],
    nic: NicId,
    peer: &Peer,
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
        known: match peer.how {
            How::Static => "static",
            How::Announced => "announced",
        },
        state: if peer.answered { "answers" } else { "silent" },
        heard_seconds: peer.heard_at.map(seconds),
        partners: its().count(),
        sending: its().map(|p| p.sending.0.saturating_add(p.sending.1)).sum(),
        rtt_us: trips.min().map(microseconds),
        counters: named(&counters),
        pairs: pairs().map(|(endpoint, partner)| pair(*endpoint, partner)).collect(),
    }
}

impl Network {
    /// Of a board.
    ///
    /// # Errors
    /// It cannot be on the network so, and why. That an interface is down is none: it is tried
    /// again.
    pub fn new(cx: &Context<'_>, nic: NicId, name: &str, wiring: Wiring) -> Result<Self, String> {
        let (serial, magic) = (random(), random());
        let [_, _, mac @ ..] = nic.0.to_be_bytes();
        let with_sockets = matches!(wiring.by, By::Interface(_));
        let outlived = with_sockets.then(|| Outlived::new(wiring.locks.clone(), cx.now_ns));
        let served = Outlived::new(wiring.locks.served(), cx.now_ns);
        let elsewhere = outlived.iter().flat_map(Outlived::endpoints);
        let carrier = Carrier::open(cx, &wiring, mac, elsewhere)?;
        let config = Config { wide: carrier.is_wide(), ..Config::new(nic, name) };
        let mut network = Self {
            half: Engine::new(config, carrier.exit()),
            carrier,
            discovery: Discovery::new(nic, serial, magic, cx.now_ns),
            bypass: wiring.bypass,
            outlived,
            served,
            served_until_ns: cx.now_ns.saturating_add(SERVED_AWAITED_NS),
            bypassed_total: 0,
            leaving: false,
            dropped: BTreeMap::new(),
            log: LogLimit::default(),
            past: Default::default(),
            notes: Vec::new(),
        };
        network.await_served();
        for (peer, name) in wiring.peers {
            let news = network.discovery.name_static(peer, name, cx.now_ns);
            news.into_iter().for_each(|news| network.follow(cx.now_ns, news));
        }
        Ok(network)
    }

    /// Tells the board which endpoints are waited for.
    fn await_served(&mut self) {
        self.half.board.set_awaited(self.served.endpoints());
    }

    /// Whether a process that a daemon before us served may open that endpoint again.
    pub fn is_awaited(&self, endpoint: u8) -> bool {
        self.served.endpoints().any(|other| other == endpoint)
    }

    /// Gives up waiting for processes that ended, and for all after a while.
    fn look_at_served(&mut self, now: u64) {
        let mut ended = self.served.look(now);
        if now >= self.served_until_ns {
            ended.extend(self.served.endpoints());
        }
        if !ended.is_empty() {
            ended.into_iter().for_each(|endpoint| self.served.forget(endpoint));
            self.await_served();
        }
    }

    fn follow(&mut self, now: u64, news: News) {
        let Engine { board, outlet, .. } = &mut self.half;
        match news {
            News::Added(nic) => match board.host_add(nic) {
                Some(number) => self.discovery.number(nic, number),
                None => self.discovery.remove(nic),
            },
            News::Removed(nic) => board.host_remove(now, nic, outlet),
        }
    }

    /// Opens an endpoint whose process has the backend half itself, where such are let at the
    /// network: the socket for it, and what it holds as long as it has the endpoint.
    pub fn open_bypass(&mut self, endpoint: u8) -> Option<Vec<OwnedFd>> {
        let locks = self.outlived.as_ref().filter(|_| self.bypass)?.locks();
        let lock = locks
            .take(endpoint)
            .inspect_err(|error| log::warn!(endpoint, error:%; "the daemon serves it"));
        let lock = lock.ok()?;
        let Some(socket) = self.carrier.give(endpoint) else {
            locks.remove(endpoint);
            return None;
        };
        self.bypassed_total = self.bypassed_total.wrapping_add(1);
        Some(vec![socket, lock])
    }

    /// Whether a process that outlived a daemon has that endpoint.
    pub fn is_outlived(&self, endpoint: u8) -> bool {
        self.outlived.iter().flat_map(Outlived::endpoints).any(|other| other == endpoint)
    }

    /// Whether the process of an endpoint stays at the network although the board goes.
    pub fn stays(&self, endpoint: u8) -> bool {
        self.leaving && !self.half.outlet.desks.contains_key(&endpoint)
    }

    /// The board goes, and processes that are at the network themselves stay there.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Opens an endpoint with its key and session: the descriptors of its rings.
    pub fn open(
        &mut self,
        cx: &Context<'_>,
        endpoint: u8,
        (client, source): (u32, u32),
        secrets: (u32, u32),
    ) -> std::io::Result<Vec<OwnedFd>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watch = cx.watch_source(bell.as_fd(), source)?;
        let (desk, file) = EndpointIo::new(Whose { client, source, watch })?;
        self.half.open(endpoint, secrets, desk)?;
        // Who resumes it has the file of before.
        let lock = match self.is_awaited(endpoint) {
            true => None,
            false => self.served.locks().take(endpoint).ok(),
        };
        self.served.forget(endpoint);
        self.await_served();
        Ok([file, bell].into_iter().chain(lock).collect())
    }

    /// Closes an endpoint, having sent what was to be sent. Gives its source.
    pub fn close(&mut self, now: u64, endpoint: u8) -> Option<u32> {
        if self.stays(endpoint) {
            return None;
        }
        if self.carrier.take_back(endpoint) {
            self.outlived.iter_mut().for_each(|outlived| outlived.over(endpoint, now));
            return None;
        }
        self.half.take_last(now, endpoint);
        let (counted, of_partners) = self.counted(endpoint);
        self.past.0.add(&counted);
        self.past.1.add(&of_partners);
        let desk = self.half.close(now, endpoint);
        self.served.locks().remove(endpoint);
        self.settle(now);
        desk.map(|desk| desk.whose.source)
    }

    /// Takes memory for large messages of an endpoint.
    ///
    /// # Errors
    /// It is not taken.
    pub fn lend(
        &mut self,
        endpoint: u8,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<RegionId, RegionRefusal> {
        self.half.lend(endpoint, file, len)
    }

    /// Lets memory go.
    pub fn give_back(&mut self, now: u64, endpoint: u8, region: RegionId) {
        self.half.give_back(now, endpoint, region);
        self.retry();
        self.settle(now);
    }

    /// How many regions those processes have, and how many bytes.
    pub fn regions_of(&self, mut those: impl FnMut(u32) -> bool) -> (usize, u64) {
        let its = self.half.outlet.desks.values().filter(|desk| those(desk.whose.client));
        its.fold((0_usize, 0_u64), |(regions, bytes), desk| {
            let regions = regions.saturating_add(desk.region_count());
            (regions, bytes.saturating_add(desk.region_bytes))
        })
    }

    /// Serves the rings of an endpoint. `polled`: whether it is looked at again without a cause.
    pub fn serve_endpoint(
        &mut self,
        now: u64,
        endpoint: u8,
        budget: usize,
        polled: bool,
    ) -> Served {
        let (after, count) = self.half.serve(now, endpoint, budget, polled);
        self.settle(now);
        let progress = match after {
            ServeOutcome::Worked => Progress::Worked,
            ServeOutcome::Idle => Progress::Idle,
            ServeOutcome::Parked => Progress::Parked,
        };
        Served { progress, count }
    }

    /// Serves what carries frames. `polled`: whether it is looked at again without a cause.
    pub fn serve_carrier(&mut self, now: u64, budget: usize, polled: bool) -> Served {
        let (count, last) = self.take_frames(now, budget, polled);
        let progress = match last {
            Came::Nothing if self.carrier.rest(polled) => {
                if polled {
                    Progress::Idle
                } else {
                    Progress::Parked
                }
            }
            Came::Down => Progress::Parked,
            _ => Progress::Worked,
        };
        self.settle(now);
        Served { progress, count }
    }

    /// Takes so many frames at most: how many came, and what the last look came to.
    fn take_frames(&mut self, now: u64, budget: usize, polled: bool) -> (u32, Came) {
        let (mut looked, mut count, mut last) = (0_usize, 0_u32, Came::Odd);
        self.carrier.look();
        while looked < budget {
            last = self.carrier.receive(now, !polled && looked == 0);
            looked = looked.saturating_add(1);
            match last {
                Came::Frame => {
                    self.arrive(now);
                    count = count.saturating_add(1);
                }
                // Strangers do not keep us awake.
                Came::Odd => self.count("drop_odd_total"),
                Came::Nothing => break,
                Came::Down => {
                    self.half.outlet.frames.exit = None;
                    break;
                }
            }
        }
        if count > 0 {
            self.retry();
        }
        (count, last)
    }

    fn arrive(&mut self, now: u64) {
        let frame = self.carrier.frame();
        if Discovery::takes(frame) {
            let twins = self.discovery.twins;
            if let Some(news) = self.discovery.hear(now, frame) {
                self.follow(now, news);
            }
            if self.discovery.twins != twins {
                self.warn_of_twin(now);
            }
            return;
        }
        if let Err(dropped) = self.half.arrive(now, frame) {
            self.count(reason(&dropped));
        }
    }

    #[cold]
    fn warn_of_twin(&mut self, now: u64) {
        if let Some(more) = self.log.admit(now) {
            let board = self.half.board.called();
            log::warn!(
                board, suppressed = more;
                "another board has this one's address, and neither reaches the other: give the port \
                 a `mac` of its own (machines that were copied have one machine id)"
            );
        }
    }

    fn count(&mut self, what: &'static str) {
        let counter = self.dropped.entry(what).or_default();
        *counter = counter.wrapping_add(1);
    }

    /// When [`Self::tick`] is to be called.
    pub fn deadline(&self) -> u64 {
        let again = self.carrier.again_ns().unwrap_or(u64::MAX);
        let outlived = self.outlived.as_ref().map_or(u64::MAX, Outlived::deadline);
        let own = self.discovery.deadline().min(self.carrier.look_ns());
        let served = self.served.deadline();
        self.half.deadline().min(again).min(own).min(outlived).min(served)
    }

    /// Does what is due.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        if self.carrier.again_ns().is_some_and(|at| at <= now) && self.carrier.again(cx) {
            self.half.outlet.frames.exit = self.carrier.exit();
            self.half.board.set_wide(self.carrier.is_wide());
        }
        let ended = self.outlived.as_mut().map(|outlived| outlived.look(now)).unwrap_or_default();
        for endpoint in ended {
            self.carrier.take_back(endpoint);
        }
        self.look_at_served(now);
        if self.carrier.look_ns() <= now {
            self.notes.push(Note::Serve(self.carrier.source()));
        }
        if self.discovery.deadline() <= now {
            if self.discovery.would_end(now) {
                let heard = self.half.board.heard();
                heard.into_iter().for_each(|(nic, at)| self.discovery.spoke(nic, at));
            }
            let frames = &mut self.half.outlet.frames;
            let gone = self.discovery.tick(now, &mut |head, data| frames.push(head, data));
            gone.into_iter().for_each(|news| self.follow(now, news));
        }
        if self.half.is_due(now) {
            // What is waited for may be here: who was kept from looking is not to take it for lost.
            let (_, last) = self.take_frames(now, FRAMES_BEFORE_DUE_MAX, true);
            if !matches!(last, Came::Nothing | Came::Down) {
                // What was taken from the kernel and is not looked at yet rings no more.
                self.notes.push(Note::Serve(self.carrier.source()));
            }
        }
        if self.half.is_due(now) {
            self.half.tick(now);
        }
        self.retry();
        self.settle(now);
    }

    fn settle(&mut self, now: u64) {
        let notes = &mut self.notes;
        self.half.outlet.settle(now, |endpoint, whose, said| {
            let client = whose.client;
            notes.push(match said {
                Action::Wake => Note::Wake { client, endpoint },
                Action::Serve => Note::Serve(whose.source),
                Action::Broken(why) => Note::Broken { client, why },
            });
        });
    }

    /// Something changed: requests that were not taken may be now.
    fn retry(&mut self) {
        let notes = &mut self.notes;
        self.half.outlet.retry(|whose| notes.push(Note::Serve(whose.source)));
    }

    /// What an endpoint counted, and what it counted of all its partners.
    fn counted(&self, endpoint: u8) -> (EndpointCounters, PeerCounters) {
        let (its, mut partners) = self.half.board.endpoint_counters(endpoint).unwrap_or_default();
        for partner in self.half.board.partners(endpoint) {
            partners.add(&partner.counters);
        }
        (its, partners)
    }

    /// Whether a process was told something since this was last asked.
    pub fn told(&mut self) -> bool {
        std::mem::take(&mut self.half.outlet.told)
    }

    /// The board of that name.
    pub fn find(&self, name: &str) -> Option<NicId> {
        self.discovery.find(name)
    }

    /// What is known of a board.
    pub fn peer(&self, nic: NicId) -> Option<&Peer> {
        self.discovery.peer(nic)
    }

    /// Boards of other hosts, as an operator sees them.
    pub fn peers(&self, now: u64, own: &PortSpec) -> Vec<PeerView> {
        let of_endpoint = |endpoint: &u8| {
            let endpoint = *endpoint;
            self.half.board.partners(endpoint).into_iter().map(move |partner| (endpoint, partner))
        };
        let partners: Vec<_> = self.half.outlet.desks.keys().flat_map(of_endpoint).collect();
        self.discovery.peers().map(|(nic, peer)| view(now, own, &partners, nic, peer)).collect()
    }

    /// What was counted.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        let frames = &self.half.outlet.frames;
        let mut put = |name: String, value: u64| {
            let counter = all.entry(name).or_default();
            *counter = counter.wrapping_add(value);
        };
        let total = |name: &str| format!("{name}_total");
        self.half.board.counters().named().for_each(|(name, value)| put(total(name), value));
        let (mut endpoints, mut partners) = self.past;
        for endpoint in self.half.outlet.desks.keys() {
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
        put("addresses_contested_total".into(), self.discovery.twins);
        put("endpoints_bypassing_total".into(), self.bypassed_total);
        let outlived = self.outlived.iter().flat_map(Outlived::endpoints).count();
        put("endpoints_outlived".into(), outlived as u64);
        put("boards_known".into(), self.discovery.peers().count() as u64);
        all
    }
}
