//! One peer on one underlay socket: session, health, reassembly and address announcements.
//!
//! The owner ([`crate::tunnel_set`]) calls [`Tunnel::receive`] for datagrams and [`Tunnel::tick`]
//! for timers, at the latest at [`Tunnel::deadline`]; results go into a [`Sink`]. All calls come
//! from one thread at a time, the *thread of the tunnel*: in the daemon, the dispatcher that serves
//! the shard of links. Sending threads do not call the tunnel: they read its TX path
//! ([`TunnelTxPath`]) and seal frames themselves.
//!
//! A tunnel carries up to [`VNIS_MAX`] (4,096) virtual networks, announces up to [`ADDRESSES_MAX`]
//! (4,096) addresses and keeps as many of the peer: a further address of the peer is ignored, with
//! the rest of its datagram, and counted ([`Refusal::Directory`]). Frames of networks that were not
//! passed to [`Tunnel::carry`] are dropped and counted ([`Refusal::Vni`]). [`crate::reassembly`]
//! keeps up to 64 incomplete frames with 2 MiB for 1 s; the oldest yields to a new frame. The
//! tunnel does not retransmit frames, restore their order, decide which host owns an address (it
//! relays claims of the peer as events), or choose between paths to the peer.
//!
//! The private modules hold the parts: `records` opens received datagrams, `rekey` runs handshakes,
//! `keepalive` sends heartbeats and announcements, `dormancy` ends sessions without traffic.

mod dormancy;
mod keepalive;
mod records;
mod rekey;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use causeway_directory::{Advertisement, MacKey};
use causeway_wire::tunnel::{DatagramKind, Outer};

use crate::clock::Clock;
use crate::event::{Event, EventKind};
use crate::handshake::Initiation;
use crate::health::{Changes, Health};
use crate::limits::{ADDRESSES_MAX, HANDSHAKE_FAULT_NS, VNIS_MAX};
use crate::reassembly::Reassembler;
use crate::refusal::{Refusal, RefusalCounters};
use crate::replay::Replay;
use crate::session::TunnelSession;
use crate::tx_path::{Path, TunnelTxPath};
use crate::unpack::Sink;
use causeway_model::keys::{PrivateKey, PublicKey};

pub use dormancy::OnDemand;
pub(crate) use records::carries_connections;

/// Configuration of a tunnel.
#[derive(Debug, Clone)]
pub struct TunnelConfig {
    /// Our key and the peer's; `None` for a tunnel without encryption.
    pub keys: Option<(Arc<PrivateKey>, PublicKey)>,
    /// The peer's address; `None` to wait for the peer's first initiation, which needs keys.
    pub remote: Option<SocketAddr>,
    /// The longest datagram that may leave this host, in bytes of UDP payload; in the daemon the
    /// longest of UDP (65,507).
    pub longest: usize,
    /// `None` for a tunnel that is always awake. Has no effect without keys or an address.
    pub on_demand: Option<OnDemand>,
}

/// A session on which datagrams are accepted.
#[derive(Debug)]
struct SessionSlot {
    session: Arc<TunnelSession>,
    /// The counters received on the session.
    replay: Replay,
    /// When the session was answered, became current or was replaced, whichever was last, in ns of
    /// the caller's clock.
    since: u64,
    /// Datagrams received.
    received: u64,
    /// State at the last delivery report to the peer: the next expected counter, and `received`.
    reported: (u64, u64),
    /// The time in the peer's initiation; 0 for our own.
    peer_time: u64,
    /// Whether we initiated the handshake.
    ours: bool,
}

impl SessionSlot {
    /// Returns whether datagrams with this receiver index belong to the session.
    fn is(&self, receiver: u32) -> bool {
        self.session.local() == receiver && !self.session.is_plain()
    }
}

/// An announcement that is repeated.
#[derive(Debug, Clone, Copy)]
struct Announcement {
    /// Epoch of the claim.
    epoch: u64,
    /// Whether the announcement withdraws the address.
    withdrawn: bool,
    /// How often the announcement was sent.
    sent: usize,
}

/// A tunnel to one peer.
#[derive(Debug)]
pub struct Tunnel {
    /// Number of the tunnel in its set.
    number: u16,
    /// Our key and the peer's; `None` without encryption.
    keys: Option<(Arc<PrivateKey>, PublicKey)>,
    /// Whether our initiation has precedence if both ends begin a handshake.
    has_precedence: bool,
    /// The address where the peer was seen last; before its first datagram the address of the
    /// configuration, if there is one.
    remote: Option<SocketAddr>,
    /// The peer's configured addresses, the preferred address first. Initiations go there and to
    /// the address where the peer was seen last, in turn.
    configured: Vec<SocketAddr>,
    /// Destination of the pending initiation.
    initiated_to: Option<SocketAddr>,
    tx_path: Arc<TunnelTxPath>,
    /// The virtual networks whose frames are accepted.
    vnis: BTreeSet<u32>,

    /// The session that seals.
    current: Option<SessionSlot>,
    /// Its predecessor; only opens.
    previous: Option<SessionSlot>,
    /// The session that we answered with; the peer has not used it yet.
    next: Option<SessionSlot>,
    /// Our initiation that waits for a response.
    pending: Option<Initiation>,
    /// When the next initiation is sent; `u64::MAX` for never.
    initiate_at: u64,
    /// Initiations since the last completed handshake.
    tries: u32,
    /// Completed handshakes.
    handshakes: u64,
    /// Time in our last initiation, in ns since 1970.
    own_time: u64,
    /// Newest time in an accepted initiation of the peer, in ns since 1970.
    peer_time: u64,
    /// When the last datagram of the current session arrived.
    received_at: u64,
    /// The fault of the peer's handshakes, and when it was first noticed.
    fault: Option<(HandshakeFault, u64)>,

    health: Health,
    /// `None` if the tunnel is always awake.
    dormancy: Option<dormancy::Dormancy>,
    /// Incomplete frames.
    fragments: Reassembler,
    /// Addresses announced to the peer.
    own_claims: Advertisement<MacKey>,
    /// Addresses announced by the peer.
    peer_claims: Advertisement<MacKey>,
    /// Announcements to send or repeat, by due time.
    announcements: BTreeMap<(u64, MacKey), Announcement>,
    /// When all addresses of the peer were last requested.
    requested_at: Option<u64>,
    /// When such a request of the peer was last answered.
    replied_at: Option<u64>,
    refusals: RefusalCounters,
    /// Accepted datagrams.
    datagrams: u64,
    /// Accepted frames.
    frames: u64,
}

/// A fault of initiations that carry the peer's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFault {
    /// Another host at this address uses the same key.
    Clone(SocketAddr),
    /// Their time is this many ns older than that of the last.
    Behind(u64),
}

/// State of a tunnel for `link show`.
#[derive(Debug, Clone)]
pub struct TunnelState {
    /// Whether the peer answers.
    pub up: bool,
    /// Whether the tunnel is dormant: the next frame wakes it.
    pub is_dormant: bool,
    /// Whether it waits for the peer's first answer after it was dormant.
    pub is_waking: bool,
    /// Frames that wait for a session, and frames that were dropped because the peer did not answer.
    pub waiting: (usize, u64),
    /// The peer's key; `None` without encryption.
    pub peer: Option<PublicKey>,
    /// The fault of the peer's handshakes within the last minute.
    pub fault: Option<HandshakeFault>,
    /// The peer's address, as last proven, or as configured before.
    pub remote: Option<SocketAddr>,
    /// Age of the session, in ns; `None` without a session.
    pub session_age: Option<u64>,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Whether the path is poor: another path to the peer is preferred.
    pub poor: bool,
    /// The smoothed round trip, in ns.
    pub rtt: Option<u64>,
    /// Recent heartbeats: all, and those without an answer.
    pub loss: (usize, usize),
    /// The longest datagram to the peer, in bytes of UDP payload.
    pub datagram: usize,
    /// Number of addresses announced to the peer, and by the peer.
    pub addresses: (usize, usize),
    /// Whether segments are cut because of loss.
    pub lossy: bool,
    /// Number of incomplete frames, and their bytes.
    pub fragments: (usize, usize),
    /// Datagrams and frames accepted.
    pub received: (u64, u64),
    /// Refused datagrams, by reason.
    pub refusals: RefusalCounters,
}

impl Tunnel {
    /// Returns a tunnel. `number` is the upper half of its session indices and identifies it in all
    /// results.
    /// `waiting_bytes` counts the bytes of frames that wait for sessions of the socket's tunnels.
    pub fn new(
        number: u16,
        config: &TunnelConfig,
        waiting_bytes: &Arc<AtomicUsize>,
        clock: &Clock<'_>,
    ) -> Self {
        let has_precedence = config.keys.as_ref().is_some_and(|(own, peer)| own.public() < *peer);
        let dormancy = dormancy::Dormancy::new(config, clock.now);
        let is_dormant = dormancy.as_ref().is_some_and(dormancy::Dormancy::is_dormant);
        let initiates = config.keys.is_some() && config.remote.is_some() && !is_dormant;
        let mut tunnel = Self {
            number,
            keys: config.keys.clone(),
            has_precedence,
            remote: config.remote,
            configured: config.remote.into_iter().collect(),
            initiated_to: None,
            tx_path: dormancy::tx_path_of(dormancy.as_ref(), waiting_bytes),
            vnis: BTreeSet::new(),
            current: None,
            previous: None,
            next: None,
            pending: None,
            initiate_at: if initiates { clock.now } else { u64::MAX },
            tries: 0,
            handshakes: 0,
            own_time: 0,
            peer_time: 0,
            received_at: 0,
            fault: None,
            health: Health::new(config.longest),
            dormancy,
            fragments: Reassembler::default(),
            own_claims: Advertisement::default(),
            peer_claims: Advertisement::default(),
            announcements: BTreeMap::new(),
            requested_at: None,
            replied_at: None,
            refusals: RefusalCounters::default(),
            datagrams: 0,
            frames: 0,
        };
        if tunnel.keys.is_none() {
            let session = Arc::new(TunnelSession::plain());
            tunnel.current = Some(SessionSlot {
                session,
                replay: Replay::default(),
                since: clock.now,
                received: 0,
                reported: (0, 0),
                peer_time: 0,
                ours: true,
            });
            tunnel.publish();
        }
        tunnel
    }

    /// Returns the tunnel's number.
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Returns the TX path, for sending threads.
    pub const fn tx_path(&self) -> &Arc<TunnelTxPath> {
        &self.tx_path
    }

    /// Returns the peer's key; `None` without encryption.
    pub fn peer(&self) -> Option<&PublicKey> {
        self.keys.as_ref().map(|(_, peer)| peer)
    }

    /// Returns the peer's current address.
    pub const fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Returns whether `at` is a configured address of the peer.
    pub fn is_configured(&self, at: SocketAddr) -> bool {
        self.configured.contains(&at)
    }

    /// Replaces the peer's configured addresses; the preferred address comes first. Has no effect
    /// with an empty list or on a tunnel without encryption.
    pub fn configure(&mut self, addresses: Vec<SocketAddr>) {
        if self.keys.is_some() && !addresses.is_empty() {
            self.configured = addresses;
        }
    }

    /// Returns whether the peer answers.
    pub const fn is_up(&self) -> bool {
        self.health.is_up()
    }

    /// Accepts frames of a virtual network from now on, and repeats the peer's claims there as
    /// events. Returns false if the tunnel carries [`VNIS_MAX`] (4,096) networks.
    pub fn carry(&mut self, vni: u32, sink: &mut Sink) -> bool {
        if self.vnis.len() >= VNIS_MAX && !self.vnis.contains(&vni) {
            return false;
        }
        if self.vnis.insert(vni) {
            self.repeat_claims(vni, sink);
        }
        true
    }

    /// Repeats the peer's claims in a virtual network as events.
    pub fn repeat_claims(&self, vni: u32, sink: &mut Sink) {
        for ((of, mac), epoch) in self.peer_claims.iter().filter(|((of, _), _)| *of == vni) {
            self.event(EventKind::Here { vni: of, mac, epoch }, sink);
        }
    }

    /// Returns whether another address can be announced to the peer.
    pub fn has_room(&self) -> bool {
        self.own_claims.len() < ADDRESSES_MAX
    }

    /// Refuses frames of a virtual network from now on, and withdraws our addresses there.
    pub fn release(&mut self, now: u64, vni: u32) {
        self.vnis.remove(&vni);
        let all: Vec<_> = self.own_claims.iter().filter(|((of, _), _)| *of == vni).collect();
        for ((_, mac), _) in all {
            self.withdraw(now, vni, mac);
        }
    }

    /// Returns the state of the tunnel at `now`.
    pub fn state(&self, now: u64) -> TunnelState {
        TunnelState {
            up: self.health.is_up(),
            is_dormant: self.is_dormant(),
            is_waking: self.is_waking(),
            waiting: self.tx_path.waiting(),
            peer: self.peer().copied(),
            fault: self
                .fault
                .filter(|(_, at)| now < at.saturating_add(HANDSHAKE_FAULT_NS))
                .map(|(what, _)| what),
            remote: self.remote,
            session_age: self.current.as_ref().map(|slot| now.saturating_sub(slot.since)),
            handshakes: self.handshakes,
            poor: self.health.is_poor(),
            rtt: self.health.rtt(),
            loss: self.health.loss(now),
            datagram: self.health.datagram(),
            addresses: (self.own_claims.len(), self.peer_claims.len()),
            lossy: self.health.is_lossy(),
            fragments: self.fragments.held(),
            received: (self.datagrams, self.frames),
            refusals: self.refusals.clone(),
        }
    }

    /// Returns the counts of refused datagrams.
    pub const fn refusals(&self) -> &RefusalCounters {
        &self.refusals
    }

    /// Processes a datagram from `from`, except an initiation, which is refused here: only its
    /// content identifies the tunnel, so [`crate::tunnel_set::TunnelSet`] decrypts it and calls
    /// [`Tunnel::accept`].
    ///
    /// # Errors
    /// Why the datagram was dropped, already counted. Records before the refused record have been
    /// processed.
    pub fn receive(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let result = match Outer::parse(datagram) {
            Ok((outer, body)) => match outer.kind {
                DatagramKind::Data => self.data(clock, from, &outer, body, sink),
                DatagramKind::Plain => self.plain(clock, from, &outer, body, sink),
                DatagramKind::Response => self.response(clock, from, &outer, body, sink),
                DatagramKind::Cookie => self.cookie(from, &outer, body, sink),
                DatagramKind::Init => Err(Refusal::Unasked),
            },
            Err(causeway_wire::tunnel::Error::Truncated(_)) => Err(Refusal::Truncated),
            Err(_) => Err(Refusal::Foreign),
        };
        if let Err(refusal) = result {
            self.refusals.count(refusal);
        }
        result
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, clock: &mut Clock<'_>, sink: &mut Sink) {
        self.fragments.expire(clock.now, &mut self.refusals);
        self.tick_dormancy(clock.now, sink);
        if self.current.is_some() && self.remote.is_some() {
            self.send_heartbeats(clock, sink);
            self.send_due_announcements(clock, sink);
        }
        // After the heartbeats, because a peer that is found down needs a new session.
        self.tick_sessions(clock, sink);
    }

    /// Returns the time by which [`Tunnel::tick`] must be called.
    pub fn deadline(&self) -> u64 {
        let mut first = self.fragments.deadline().unwrap_or(u64::MAX).min(self.sessions_deadline());
        first = first.min(self.dormancy_deadline());
        if self.current.is_some() && self.remote.is_some() {
            let again = self.announcements.keys().next().map_or(u64::MAX, |(due, _)| *due);
            first = first.min(self.health.deadline()).min(again);
        }
        first
    }

    /// Shortens datagrams after the underlay rejected a datagram as too long (EMSGSIZE).
    pub fn shorten_datagrams(&mut self, now: u64, sink: &mut Sink) {
        let datagram = self.health.shrink(now);
        self.report_changes(Changes { datagram, ..Changes::default() }, sink);
    }

    /// Publishes the current session, address and datagram length on the TX path.
    fn publish(&self) {
        let path = match (&self.current, self.remote) {
            (Some(slot), Some(to)) => {
                let datagram = self.health.datagram();
                Some(Path { session: Arc::clone(&slot.session), to, datagram })
            }
            _ => None,
        };
        self.tx_path.set(path);
    }

    /// Appends an event of this tunnel to the sink.
    fn event(&self, kind: EventKind, sink: &mut Sink) {
        sink.events.push(Event { tunnel: self.number, kind });
    }

    /// Reports changes of health as events.
    fn report_changes(&mut self, changes: Changes, sink: &mut Sink) {
        if let Some(datagram) = changes.datagram {
            self.publish();
            self.event(EventKind::Datagram(datagram), sink);
        }
        if let Some(up) = changes.up {
            self.note_reachable(up);
        }
        match changes.up {
            Some(true) => self.event(EventKind::Up, sink),
            Some(false) => self.event(EventKind::Down, sink),
            None => {}
        }
        if let Some(poor) = changes.poor {
            self.event(EventKind::Poor(poor), sink);
        }
    }
}
