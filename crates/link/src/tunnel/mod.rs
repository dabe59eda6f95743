//! One peer on one underlay socket: session, health, reassembly and address announcements.
//!
//! The owner calls [`Tunnel::receive`] for datagrams and [`Tunnel::tick`] for timers, at the latest
//! at [`Tunnel::deadline`]; results go into a [`Sink`]. Sending threads do not call the tunnel:
//! they read its TX path ([`Outlet`]) and seal frames themselves. The tunnel does not decide who
//! owns an address; it relays claims of the peer as events.

mod agree;
mod records;
mod speak;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use causeway_directory::{Advertisement, MacKey};
use causeway_wire::tunnel::{Kind, Outer};

use crate::event::{Event, What};
use crate::fragment::Fragments;
use crate::handshake::Initiation;
use crate::health::{Changes, Health};
use crate::limits::{ADDRESSES_MAX, TROUBLE_NS, VNIS_MAX};
use crate::moment::Moment;
use crate::outlet::{Outlet, Path};
use crate::refusal::{Refusal, Refusals};
use crate::replay::Replay;
use crate::session::Session;
use crate::unpack::Sink;
use causeway_model::keys::{PrivateKey, PublicKey};

/// Configuration of a tunnel.
#[derive(Debug, Clone)]
pub struct Config {
    /// Our key and the peer's; `None` for a tunnel without encryption.
    pub keys: Option<(Arc<PrivateKey>, PublicKey)>,
    /// The peer's address; `None` to wait for the peer's first initiation, which needs keys.
    pub remote: Option<SocketAddr>,
    /// The longest datagram that leaves this host, in bytes of UDP payload: the underlay
    /// interface's MTU less IP and UDP headers.
    pub longest: usize,
}

/// A session on which datagrams are accepted.
#[derive(Debug)]
struct Slot {
    session: Arc<Session>,
    replay: Replay,
    since: u64,
    /// Datagrams received, and the counter and number of the last report to the peer.
    came: u64,
    reported: (u64, u64),
    /// The time in the peer's initiation; 0 for our own.
    peer_time: u64,
    /// Whether we initiated the handshake.
    ours: bool,
}

impl Slot {
    /// Returns whether datagrams with this receiver index belong to the session.
    fn is(&self, receiver: u32) -> bool {
        self.session.local() == receiver && !self.session.is_plain()
    }
}

/// An announcement that is repeated.
#[derive(Debug, Clone, Copy)]
struct Again {
    epoch: u64,
    gone: bool,
    /// How often it was sent.
    said: usize,
}

/// A tunnel to one peer.
#[derive(Debug)]
pub struct Tunnel {
    number: u16,
    keys: Option<(Arc<PrivateKey>, PublicKey)>,
    /// Whether our initiation has precedence if both ends begin a handshake.
    first: bool,
    remote: Option<SocketAddr>,
    /// The peer's configured addresses, the preferred address first. Initiations go there and to
    /// the address where the peer was seen last, in turn.
    configured: Vec<SocketAddr>,
    /// Destination of the pending initiation.
    called: Option<SocketAddr>,
    outlet: Arc<Outlet>,
    vnis: BTreeSet<u32>,

    current: Option<Slot>,
    previous: Option<Slot>,
    /// The session that we answered with; the peer has not used it yet.
    next: Option<Slot>,
    pending: Option<Initiation>,
    initiate_at: u64,
    tries: u32,
    handshakes: u64,
    own_time: u64,
    peer_time: u64,
    /// When the last datagram of the current session arrived.
    heard_at: u64,
    /// The fault of the peer's handshakes, and when it was first noticed.
    trouble: Option<(Trouble, u64)>,

    health: Health,
    fragments: Fragments,
    own: Advertisement<MacKey>,
    heard: Advertisement<MacKey>,
    /// Announcements to repeat, by due time.
    again: BTreeMap<(u64, MacKey), Again>,
    asked_at: Option<u64>,
    told_at: Option<u64>,
    refusals: Refusals,
    datagrams: u64,
    frames: u64,
}

/// A fault of initiations that carry the peer's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Another host at this address uses the same key.
    Clone(SocketAddr),
    /// Their time is this many ns older than that of the last.
    Behind(u64),
}

/// State of a tunnel for `link show`.
#[derive(Debug, Clone)]
pub struct State {
    /// Whether the peer answers.
    pub up: bool,
    /// The peer's key; `None` without encryption.
    pub peer: Option<PublicKey>,
    /// The fault of the peer's handshakes within the last minute.
    pub trouble: Option<Trouble>,
    /// The peer's address, as last proven.
    pub remote: Option<SocketAddr>,
    /// Age of the session, in ns; `None` without a session.
    pub session_age: Option<u64>,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Whether loss on the path is high.
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
    pub refusals: Refusals,
}

impl Tunnel {
    /// Returns a tunnel. `number` is the upper half of its session indices and identifies it in all
    /// results.
    pub fn new(number: u16, config: &Config, moment: &Moment<'_>) -> Self {
        let first = config.keys.as_ref().is_some_and(|(own, peer)| own.public() < *peer);
        let initiates = config.keys.is_some() && config.remote.is_some();
        let mut tunnel = Self {
            number,
            keys: config.keys.clone(),
            first,
            remote: config.remote,
            configured: config.remote.into_iter().collect(),
            called: None,
            outlet: Arc::default(),
            vnis: BTreeSet::new(),
            current: None,
            previous: None,
            next: None,
            pending: None,
            initiate_at: if initiates { moment.now } else { u64::MAX },
            tries: 0,
            handshakes: 0,
            own_time: 0,
            peer_time: 0,
            heard_at: 0,
            trouble: None,
            health: Health::new(config.longest),
            fragments: Fragments::default(),
            own: Advertisement::default(),
            heard: Advertisement::default(),
            again: BTreeMap::new(),
            asked_at: None,
            told_at: None,
            refusals: Refusals::default(),
            datagrams: 0,
            frames: 0,
        };
        if tunnel.keys.is_none() {
            let session = Arc::new(Session::plain());
            tunnel.current = Some(Slot {
                session,
                replay: Replay::default(),
                since: moment.now,
                came: 0,
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
    pub const fn outlet(&self) -> &Arc<Outlet> {
        &self.outlet
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

    /// Replaces the peer's configured addresses; the preferred address comes first.
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
    /// events. Returns false if the tunnel carries [`VNIS_MAX`] networks.
    pub fn carry(&mut self, vni: u32, sink: &mut Sink) -> bool {
        if self.vnis.len() >= VNIS_MAX && !self.vnis.contains(&vni) {
            return false;
        }
        if self.vnis.insert(vni) {
            self.tell_again(vni, sink);
        }
        true
    }

    /// Repeats the peer's claims in a virtual network as events.
    pub fn tell_again(&self, vni: u32, sink: &mut Sink) {
        for ((of, mac), epoch) in self.heard.iter().filter(|((of, _), _)| *of == vni) {
            self.event(What::Here { vni: of, mac, epoch }, sink);
        }
    }

    /// Returns whether another address can be announced to the peer.
    pub fn has_room(&self) -> bool {
        self.own.len() < ADDRESSES_MAX
    }

    /// Refuses frames of a virtual network from now on, and withdraws our addresses there.
    pub fn release(&mut self, now: u64, vni: u32) {
        self.vnis.remove(&vni);
        let all: Vec<_> = self.own.iter().filter(|((of, _), _)| *of == vni).collect();
        for ((_, mac), _) in all {
            self.withdraw(now, vni, mac);
        }
    }

    /// Returns the state of the tunnel at `now`.
    pub fn state(&self, now: u64) -> State {
        State {
            up: self.health.is_up(),
            peer: self.peer().copied(),
            trouble: self
                .trouble
                .filter(|(_, at)| now < at.saturating_add(TROUBLE_NS))
                .map(|(what, _)| what),
            remote: self.remote,
            session_age: self.current.as_ref().map(|slot| now.saturating_sub(slot.since)),
            handshakes: self.handshakes,
            poor: self.health.is_poor(),
            rtt: self.health.rtt(),
            loss: self.health.loss(now),
            datagram: self.health.datagram(),
            addresses: (self.own.len(), self.heard.len()),
            lossy: self.health.is_lossy(),
            fragments: self.fragments.held(),
            received: (self.datagrams, self.frames),
            refusals: self.refusals.clone(),
        }
    }

    /// Returns the counts of refused datagrams.
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Processes a datagram from `from`, except an initiation: only its content identifies the
    /// tunnel, so [`crate::hub::Hub`] decrypts it.
    ///
    /// # Errors
    /// Why the datagram was dropped, already counted. Records before the refused record have been
    /// processed.
    pub fn receive(
        &mut self,
        moment: &mut Moment<'_>,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let taken = match Outer::parse(datagram) {
            Ok((outer, body)) => match outer.kind {
                Kind::Data => self.data(moment, from, &outer, body, sink),
                Kind::Plain => self.plain(moment, from, &outer, body, sink),
                Kind::Response => self.response(moment, from, &outer, body, sink),
                Kind::Cookie => self.cookie(from, &outer, body, sink),
                Kind::Init => Err(Refusal::Unasked),
            },
            Err(causeway_wire::tunnel::Error::Truncated(_)) => Err(Refusal::Truncated),
            Err(_) => Err(Refusal::Foreign),
        };
        if let Err(refusal) = taken {
            self.refusals.count(refusal);
        }
        taken
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, moment: &mut Moment<'_>, sink: &mut Sink) {
        self.fragments.expire(moment.now, &mut self.refusals);
        if self.current.is_some() && self.remote.is_some() {
            self.beat(moment, sink);
            self.say_again(moment, sink);
        }
        // After the heartbeats, because a peer that is found down needs a new session.
        self.tick_sessions(moment, sink);
    }

    /// Returns the time by which [`Tunnel::tick`] must be called.
    pub fn deadline(&self) -> u64 {
        let mut first = self.fragments.deadline().unwrap_or(u64::MAX).min(self.sessions_deadline());
        if self.current.is_some() && self.remote.is_some() {
            let again = self.again.keys().next().map_or(u64::MAX, |(due, _)| *due);
            first = first.min(self.health.deadline()).min(again);
        }
        first
    }

    /// Shortens datagrams after the underlay rejected a datagram as too long (EMSGSIZE).
    pub fn too_long(&mut self, now: u64, sink: &mut Sink) {
        let datagram = self.health.shrink(now);
        self.changed(Changes { datagram, ..Changes::default() }, sink);
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
        self.outlet.set(path);
    }

    fn event(&self, what: What, sink: &mut Sink) {
        sink.events.push(Event { tunnel: self.number, what });
    }

    /// Reports changes of health as events.
    fn changed(&mut self, changes: Changes, sink: &mut Sink) {
        if let Some(datagram) = changes.datagram {
            self.publish();
            self.event(What::Datagram(datagram), sink);
        }
        match changes.up {
            Some(true) => self.event(What::Up, sink),
            Some(false) => self.event(What::Down, sink),
            None => {}
        }
        if let Some(poor) = changes.poor {
            self.event(What::Poor(poor), sink);
        }
    }
}
