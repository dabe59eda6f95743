//! The tunnels of one underlay socket: finds the tunnel of each received datagram.
//!
//! A datagram of a session, a response and a cookie reply carry the tunnel's number; a plain
//! datagram is known by its source address, and an initiation by the key that it proves to own,
//! after the [`HandshakeGuard`] admitted it (of several tunnels to that key, the tunnel to the
//! source address, else one without an address, else the first). [`crate::io`] passes all datagrams
//! of a socket here and sends the datagrams of the [`Sink`]. The set passes each datagram to its
//! [`Tunnel`], which opens it.
//!
//! A set has at most [`TUNNELS_MAX`] (4,096) tunnels. One thread at a time calls it: in the daemon,
//! the dispatcher that serves the shard of links. The caller runs [`TunnelSet::tick`] by
//! [`TunnelSet::deadline`]. Datagrams that match no tunnel are counted and dropped, never answered,
//! except that the guard may answer an initiation with a cookie.
//!
//! The set owns no socket and compares addresses literally: pass IPv4 addresses as IPv4, also those
//! that a dual-stack socket reports as mapped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use causeway_wire::tunnel::{DatagramKind, Error, Outer};

use crate::clock::Clock;
use crate::handshake::{ReceivedInitiation, cookie_reply, split_init};
use crate::handshake_guard::{Admission, HandshakeGuard};
use crate::limits::TUNNELS_MAX;
use crate::refusal::{Refusal, RefusalCounters};
use crate::tunnel::{Tunnel, TunnelConfig};
use crate::unpack::Sink;
use causeway_model::keys::{PrivateKey, PublicKey};

/// Why a tunnel was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The socket has [`TUNNELS_MAX`] (4,096) tunnels.
    #[error(
        "an underlay socket has at most {TUNNELS_MAX} tunnels: remove links, or use another port"
    )]
    Full,
    /// A tunnel with that peer and address exists.
    #[error("a tunnel to this peer and address exists already")]
    Twice,
    /// A link without encryption recognises its peer by the address only.
    #[error("a link without encryption needs the peer's address")]
    NoAddress,
}

/// The tunnels of one underlay socket.
#[derive(Debug)]
pub struct TunnelSet {
    /// Our private key; `None` if the set has only tunnels without encryption.
    own: Option<Arc<PrivateKey>>,
    guard: HandshakeGuard,
    /// The tunnels, indexed by number; `None` for a free number.
    tunnels: Vec<Option<Box<Tunnel>>>,
    /// Numbers of the encrypted tunnels, by the peer's key.
    by_key: BTreeMap<PublicKey, Vec<u16>>,
    /// Numbers of the tunnels without encryption, by the peer's address.
    by_address: BTreeMap<SocketAddr, u16>,
    /// Bytes of frames that wait for sessions.
    waiting_bytes: Arc<AtomicUsize>,
    /// No tunnel has work before this time.
    due: u64,
    refusals: RefusalCounters,
}

impl TunnelSet {
    /// Returns an empty set. `own` is our key; without it only tunnels without encryption can be
    /// added.
    pub fn new(own: Option<Arc<PrivateKey>>, clock: &mut Clock<'_>) -> Self {
        Self {
            own,
            guard: HandshakeGuard::new(clock),
            tunnels: Vec::new(),
            by_key: BTreeMap::new(),
            by_address: BTreeMap::new(),
            waiting_bytes: Arc::default(),
            due: u64::MAX,
            refusals: RefusalCounters::default(),
        }
    }

    /// Adds a tunnel and returns its number. The tunnel begins with the next [`TunnelSet::tick`].
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add(&mut self, config: &TunnelConfig, clock: &Clock<'_>) -> Result<u16, AddError> {
        let free = self.tunnels.iter().position(Option::is_none).unwrap_or(self.tunnels.len());
        let number =
            u16::try_from(free).ok().filter(|_| free < TUNNELS_MAX).ok_or(AddError::Full)?;
        match (&config.keys, config.remote) {
            (Some((_, peer)), remote) => {
                let others = self.by_key.get(peer).into_iter().flatten();
                let mut others = others.filter_map(|other| self.tunnel(*other));
                if others.any(|other| {
                    other.remote() == remote || remote.is_some_and(|at| other.is_configured(at))
                }) {
                    return Err(AddError::Twice);
                }
                self.by_key.entry(*peer).or_default().push(number);
            }
            (None, None) => return Err(AddError::NoAddress),
            (None, Some(remote)) => {
                if self.by_address.contains_key(&remote) {
                    return Err(AddError::Twice);
                }
                self.by_address.insert(remote, number);
            }
        }
        let tunnel = Some(Box::new(Tunnel::new(number, config, &self.waiting_bytes, clock)));
        match self.tunnels.get_mut(free) {
            Some(place) => *place = tunnel,
            None => self.tunnels.push(tunnel),
        }
        self.due = 0;
        Ok(number)
    }

    /// Removes a tunnel and closes its TX path; an unknown number has no effect.
    pub fn remove(&mut self, number: u16) {
        let place = self.tunnels.get_mut(usize::from(number));
        let Some(tunnel) = place.and_then(Option::take) else { return };
        tunnel.tx_path().set(None);
        self.by_address.retain(|_, of| *of != number);
        self.by_key.retain(|_, all| {
            all.retain(|of| *of != number);
            !all.is_empty()
        });
    }

    /// Returns a tunnel.
    pub fn tunnel(&self, number: u16) -> Option<&Tunnel> {
        self.tunnels.get(usize::from(number))?.as_deref()
    }

    /// Returns a tunnel for changes: carried networks, announced addresses. Announcements leave
    /// with the next [`TunnelSet::tick`], which then looks at every tunnel.
    pub fn tunnel_mut(&mut self, number: u16) -> Option<&mut Tunnel> {
        self.due = 0;
        self.tunnels.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// Wakes a dormant tunnel ([`Tunnel::wake`]) and begins its handshake, without a look at the
    /// other tunnels.
    pub fn wake(&mut self, number: u16, clock: &mut Clock<'_>, sink: &mut Sink) {
        let tunnel = self.tunnels.get_mut(usize::from(number)).and_then(Option::as_mut);
        if let Some(tunnel) = tunnel.filter(|tunnel| tunnel.is_dormant()) {
            tunnel.wake(clock.now);
            tunnel.tick(clock, sink);
            self.due = self.due.min(tunnel.deadline());
        }
    }

    /// Returns all tunnels.
    pub fn tunnels(&self) -> impl Iterator<Item = &Tunnel> {
        self.tunnels.iter().flatten().map(Box::as_ref)
    }

    /// Returns the counts of refused datagrams that belong to no tunnel.
    pub const fn refusals(&self) -> &RefusalCounters {
        &self.refusals
    }

    /// Processes a datagram from `from`.
    ///
    /// # Errors
    /// Why the datagram, or a part of it, was dropped, already counted: by its tunnel if it has
    /// one.
    pub fn receive(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let (outer, body) = match Outer::parse(datagram) {
            Ok(parsed) => parsed,
            Err(Error::Truncated(_)) => return Err(self.refuse(Refusal::Truncated)),
            Err(_) => return Err(self.refuse(Refusal::Foreign)),
        };
        let number = match outer.kind {
            DatagramKind::Init => return self.accept_initiation(clock, from, &outer, body, sink),
            DatagramKind::Plain => self.by_address.get(&from).copied().ok_or(Refusal::Peer),
            DatagramKind::Data | DatagramKind::Response | DatagramKind::Cookie => {
                let [high, low, ..] = outer.receiver.to_be_bytes();
                Ok(u16::from_be_bytes([high, low]))
            }
        };
        let number = number.map_err(|refusal| self.refuse(refusal))?;
        let tunnel = self.tunnels.get_mut(usize::from(number)).and_then(Option::as_mut);
        let Some(tunnel) = tunnel else { return Err(self.refuse(Refusal::Session)) };
        let result = tunnel.receive(clock, from, datagram, sink);
        self.due = self.due.min(tunnel.deadline());
        result
    }

    /// Processes an initiation.
    fn accept_initiation(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        outer: &Outer,
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let found = self.find_tunnel(clock, from, outer, body, sink);
        let (number, initiation) = found.map_err(|refusal| self.refuse(refusal))?;
        let tunnel = self.tunnels.get_mut(usize::from(number)).and_then(Option::as_mut);
        let Some(tunnel) = tunnel else { return Err(self.refuse(Refusal::Peer)) };
        let result = tunnel.accept(clock, from, initiation, sink);
        self.due = self.due.min(tunnel.deadline());
        result
    }

    /// Finds the tunnel of an initiation.
    fn find_tunnel(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        outer: &Outer,
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<(u16, ReceivedInitiation), Refusal> {
        let own = self.own.clone().ok_or(Refusal::Peer)?;
        let (cookie, message) = split_init(body)?;
        let tunnels = &self.tunnels;
        let known = || {
            let at = |tunnel: &Tunnel| tunnel.remote() == Some(from) || tunnel.is_configured(from);
            tunnels.iter().flatten().any(|tunnel| at(tunnel))
        };
        match self.guard.admit(clock, from, &cookie, known) {
            Admission::Pass => {}
            Admission::Ask(cookie) => {
                sink.datagrams.push((from, cookie_reply(outer, message, &cookie)));
                return Err(Refusal::Cookie);
            }
            Admission::Refuse(refusal) => return Err(refusal),
        }
        let initiation = ReceivedInitiation::read(&own, outer, message, clock.random())?;
        let all = self.by_key.get(initiation.peer()).map_or(&[][..], Vec::as_slice);
        let remote = |number: &u16| self.tunnel(*number).and_then(Tunnel::remote);
        // Where several tunnels lead to one peer, the source address decides.
        let configured =
            |number: &u16| self.tunnel(*number).is_some_and(|tunnel| tunnel.is_configured(from));
        let number = all.iter().find(|number| remote(number) == Some(from));
        let number = number.or_else(|| all.iter().find(|number| configured(number)));
        let number = number.or_else(|| all.iter().find(|number| remote(number).is_none()));
        let number = *number.or_else(|| all.first()).ok_or(Refusal::Peer)?;
        Ok((number, initiation))
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, clock: &mut Clock<'_>, sink: &mut Sink) {
        if clock.now < self.due {
            return;
        }
        self.due = u64::MAX;
        for tunnel in self.tunnels.iter_mut().flatten() {
            if tunnel.deadline() <= clock.now {
                tunnel.tick(clock, sink);
            }
            self.due = self.due.min(tunnel.deadline());
        }
    }

    /// Returns the time by which [`TunnelSet::tick`] must be called, in ns of the caller's clock.
    pub const fn deadline(&self) -> u64 {
        self.due
    }

    /// Counts the drop of a datagram that belongs to no tunnel, and returns its reason.
    fn refuse(&mut self, refusal: Refusal) -> Refusal {
        self.refusals.count(refusal);
        refusal
    }
}
