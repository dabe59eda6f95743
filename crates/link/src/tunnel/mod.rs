//! One peer on one underlay socket: session, health, fragments and directory together.
//!
//! The tunnel is driven by what comes in ([`Tunnel::receive`]) and by time ([`Tunnel::tick`],
//! at the latest at [`Tunnel::deadline`]). Threads that send frames do so by themselves, through
//! the [`Outlet`].

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

/// How a tunnel is to be.
#[derive(Debug, Clone)]
pub struct Config {
    /// Our own key and the peer's; None for a tunnel without secrets, which is asked for by name.
    pub keys: Option<(Arc<PrivateKey>, PublicKey)>,
    /// The peer's address; None to wait for the peer's first word, which needs keys.
    pub remote: Option<SocketAddr>,
    /// The longest datagram that leaves this host, in bytes of UDP payload: the underlay
    /// interface's MTU less IP and UDP headers.
    pub longest: usize,
}

/// A session that is received on.
#[derive(Debug)]
struct Slot {
    session: Arc<Session>,
    replay: Replay,
    since: u64,
    /// Datagrams that came, and up to which counter and how many were reported.
    came: u64,
    reported: (u64, u64),
    /// The time in the peer's initiation; 0 of ours.
    peer_time: u64,
    /// Whether we began its handshake.
    ours: bool,
}

impl Slot {
    /// Whether datagrams that say `receiver` belong to it.
    fn is(&self, receiver: u32) -> bool {
        self.session.local() == receiver && !self.session.is_plain()
    }
}

/// Something said again later.
#[derive(Debug, Clone, Copy)]
struct Again {
    epoch: u64,
    gone: bool,
    /// How often it was said.
    said: usize,
}

/// A tunnel.
#[derive(Debug)]
pub struct Tunnel {
    number: u16,
    keys: Option<(Arc<PrivateKey>, PublicKey)>,
    /// Whether our initiation goes first where both ends begin one.
    first: bool,
    remote: Option<SocketAddr>,
    /// Where the peer is by the configuration, the preferred address first. Initiations go there as
    /// well as to where it was seen last, in turn.
    configured: Vec<SocketAddr>,
    /// Where the pending initiation was sent.
    called: Option<SocketAddr>,
    outlet: Arc<Outlet>,
    vnis: BTreeSet<u32>,

    current: Option<Slot>,
    previous: Option<Slot>,
    /// We answered; the peer has not used it yet.
    next: Option<Slot>,
    pending: Option<Initiation>,
    initiate_at: u64,
    tries: u32,
    handshakes: u64,
    own_time: u64,
    peer_time: u64,
    /// When the peer was last heard on the current session.
    heard_at: u64,
    /// What is wrong with the peer's handshakes, and when that was noticed.
    trouble: Option<(Trouble, u64)>,

    health: Health,
    fragments: Fragments,
    own: Advertisement<MacKey>,
    heard: Advertisement<MacKey>,
    /// By when it is due.
    again: BTreeMap<(u64, MacKey), Again>,
    asked_at: Option<u64>,
    told_at: Option<u64>,
    refusals: Refusals,
    datagrams: u64,
    frames: u64,
}

/// What is wrong with initiations that have the peer's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Another host at this address uses the same key.
    Clone(SocketAddr),
    /// They are older than the last one by so many ns.
    Behind(u64),
}

/// What there is to show.
#[derive(Debug, Clone)]
pub struct State {
    /// Whether the peer answers.
    pub up: bool,
    /// The peer's key; None without secrets.
    pub peer: Option<PublicKey>,
    /// What is wrong with the peer's handshakes, or was within the last minute.
    pub trouble: Option<Trouble>,
    /// The peer's address, as last proven.
    pub remote: Option<SocketAddr>,
    /// How old the session is, in ns; None where there is none.
    pub session_age: Option<u64>,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Whether much is lost on the path.
    pub poor: bool,
    /// The smoothed round trip, in ns.
    pub rtt: Option<u64>,
    /// Of the last heartbeats: how many, and how many were not answered.
    pub loss: (usize, usize),
    /// The longest datagram to the peer, in bytes of UDP payload.
    pub datagram: usize,
    /// Addresses that we told the peer, and that it told us.
    pub addresses: (usize, usize),
    /// Whether segments are cut, because much is lost.
    pub lossy: bool,
    /// Incomplete frames, and the bytes that they take up.
    pub fragments: (usize, usize),
    /// Datagrams and frames taken.
    pub received: (u64, u64),
    /// What was refused, by reason.
    pub refusals: Refusals,
}

impl Tunnel {
    /// A tunnel of that number, which is the upper half of its sessions' numbers and stands in
    /// all it tells.
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

    /// Its number.
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Where threads that send find what they need.
    pub const fn outlet(&self) -> &Arc<Outlet> {
        &self.outlet
    }

    /// The peer's key; None without secrets.
    pub fn peer(&self) -> Option<&PublicKey> {
        self.keys.as_ref().map(|(_, peer)| peer)
    }

    /// The peer's address.
    pub const fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Whether the peer may be at that address, by the configuration.
    pub fn is_configured(&self, at: SocketAddr) -> bool {
        self.configured.contains(&at)
    }

    /// The peer may be at these addresses from now on, the preferred one first.
    pub fn configure(&mut self, addresses: Vec<SocketAddr>) {
        if self.keys.is_some() && !addresses.is_empty() {
            self.configured = addresses;
        }
    }

    /// Whether the peer answers.
    pub const fn is_up(&self) -> bool {
        self.health.is_up()
    }

    /// Takes frames of a virtual network from now on; what the peer told of it is told again, as
    /// events. False where there are too many networks.
    pub fn carry(&mut self, vni: u32, sink: &mut Sink) -> bool {
        if self.vnis.len() >= VNIS_MAX && !self.vnis.contains(&vni) {
            return false;
        }
        if self.vnis.insert(vni) {
            self.tell_again(vni, sink);
        }
        true
    }

    /// Gives what the peer told of a virtual network once more, as events.
    pub fn tell_again(&self, vni: u32, sink: &mut Sink) {
        for ((of, mac), epoch) in self.heard.iter().filter(|((of, _), _)| *of == vni) {
            self.event(What::Here { vni: of, mac, epoch }, sink);
        }
    }

    /// Whether the peer may be told of one more address.
    pub fn has_room(&self) -> bool {
        self.own.len() < ADDRESSES_MAX
    }

    /// Takes frames of a virtual network no longer; our addresses there are withdrawn.
    pub fn release(&mut self, now: u64, vni: u32) {
        self.vnis.remove(&vni);
        let all: Vec<_> = self.own.iter().filter(|((of, _), _)| *of == vni).collect();
        for ((_, mac), _) in all {
            self.withdraw(now, vni, mac);
        }
    }

    /// What there is to show at `now`.
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

    /// What was refused, by reason.
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Takes a datagram that came from `from`. Initiations do not come here but to
    /// [`crate::hub::Hub`], because only their content says whose they are.
    ///
    /// # Errors
    /// Why it was not taken, already counted; of a datagram with many records, why the rest.
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

    /// Does what is due at this moment.
    pub fn tick(&mut self, moment: &mut Moment<'_>, sink: &mut Sink) {
        self.fragments.expire(moment.now, &mut self.refusals);
        if self.current.is_some() && self.remote.is_some() {
            self.beat(moment, sink);
            self.say_again(moment, sink);
        }
        // Last, because silence makes a new session wanted.
        self.tick_sessions(moment, sink);
    }

    /// When [`Tunnel::tick`] has something to do, at the latest.
    pub fn deadline(&self) -> u64 {
        let mut first = self.fragments.deadline().unwrap_or(u64::MAX).min(self.sessions_deadline());
        if self.current.is_some() && self.remote.is_some() {
            let again = self.again.keys().next().map_or(u64::MAX, |(due, _)| *due);
            first = first.min(self.health.deadline()).min(again);
        }
        first
    }

    /// A datagram was longer than the underlay takes (EMSGSIZE): short ones from now on, until
    /// longer ones are found to get there.
    pub fn too_long(&mut self, now: u64, sink: &mut Sink) {
        let datagram = self.health.shrink(now);
        self.changed(Changes { datagram, ..Changes::default() }, sink);
    }

    /// Changes what senders find.
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

    /// Tells what has changed in health.
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
