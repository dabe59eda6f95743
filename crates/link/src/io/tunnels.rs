//! Links of the kinds `causeway` and `causeway-plain`: the tunnels of one UDP socket.
//!
//! Connects the core ([`crate::hub`]) to its socket: passes received datagrams and the time in, and
//! executes the results. Links of several groups to one peer share a tunnel and are distinguished
//! by their virtual networks. Frames to send do not pass through [`TunnelSocket`]: each shard has a
//! [`TunnelCarrier`].
//!
//! # Budget
//! Send: one copy from the sender's memory into the plaintext of a datagram, one pass that seals it
//! into the batch, one system call for up to 64 datagrams. Receive: one pass that opens a datagram
//! into the buffer in which its frames are passed on; reassembled frames are copied once more,
//! within the cache.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_directory::{MacKey, Place, Report, Source};
use causeway_fabric::LogLimit;
use causeway_fabric::carrier::{Arrivals, Carrier, LinkId, Outgoing, Pool, Refusal, Standing};
use causeway_fabric::limits::UDP_RECEIVE_BYTES;
use causeway_fabric::udp::{Burst, Origin, Receiver, Udp, canonical};
use causeway_fabric::{Context, Progress, Served, cost};
use causeway_model::TrafficClass;
use causeway_wire::ecn::{Ecn, traffic_class};

use super::addresses::place;
use super::called::{Caller, Listener};
use super::inbox::Inbox;
use super::service::at_moment;
use super::tally::{Loss, Tally};
use super::together::Together;
use crate::event::{Event, What};
use crate::flood;
use crate::hub::{AddError, Hub};
use crate::limits::{DATAGRAM_BYTES_MAX, FRAME_BYTES_MAX};
use crate::moment::Moment;
use crate::pack::{Batch, Packer, PushError};
use crate::tunnel::{Config, State, Tunnel};
use crate::unpack::{Arrived, Sink};
use causeway_model::keys::{PrivateKey, PublicKey};

/// A tunnel, and the links that share it.
#[derive(Debug)]
struct Seat {
    /// By virtual network.
    links: BTreeMap<u32, Inbox>,
    peer: Option<PublicKey>,
    remote: Option<SocketAddr>,
    /// Host name of the peer, if it was given by name.
    host: Option<String>,
    /// Set by senders when the host rejects a datagram as too long.
    too_long: Arc<AtomicBool>,
    /// For peers that identify us by our address.
    called: Listener,
    up: bool,
    poor: bool,
    ups: u64,
    /// Whether an address could not be announced because of the peer's quota.
    untold: bool,
    /// Limits log lines about this quota: guests may change their addresses at any rate.
    log: LogLimit,
}

/// Why a link was not added to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Another link has this network on the tunnel.
    By(LinkId),
    /// The core refuses the tunnel.
    Refused(AddError),
}

/// The tunnels of one UDP socket.
#[derive(Debug)]
pub struct TunnelSocket {
    /// The socket.
    pub udp: Arc<Udp>,
    hub: Hub,
    own: Option<Arc<PrivateKey>>,
    receiver: Receiver,
    bursts: Vec<Burst>,
    sink: Sink,
    pool: Pool,
    seats: BTreeMap<u16, Seat>,
    /// Reports about addresses of peers, and about links that came up or went down.
    reports: Vec<Report<MacKey>>,
}

impl Source<MacKey> for TunnelSocket {
    fn take_reports(&mut self, reports: &mut Vec<Report<MacKey>>) {
        reports.append(&mut self.reports);
    }

    fn repeat(&mut self, place: Place) {
        let Place::Link(id) = place else { return };
        let Some((number, vni)) = self.whose(LinkId(id)) else { return };
        if let Some(tunnel) = self.hub.tunnel_mut(number) {
            tunnel.tell_again(vni, &mut self.sink);
        }
        self.empty();
    }
}

impl TunnelSocket {
    /// Returns a `TunnelSocket` on a bound UDP socket. Without a key it has tunnels without
    /// encryption only.
    pub fn new(udp: Udp, own: Option<PrivateKey>, pool: Pool, moment: &mut Moment<'_>) -> Self {
        let own = own.map(Arc::new);
        if own.is_none() {
            udp.tell_destinations();
        }
        udp.report_classes();
        Self {
            udp: Arc::new(udp),
            hub: Hub::new(own.clone(), moment),
            own,
            receiver: Receiver::new(pool.clone()),
            bursts: Vec::new(),
            sink: Sink::default(),
            pool,
            seats: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// Returns our public key.
    pub fn key(&self) -> Option<PublicKey> {
        self.own.as_ref().map(|own| own.public())
    }

    /// Adds a link to a peer, on an existing tunnel to it or on a new one. Returns the tunnel's
    /// number.
    ///
    /// # Errors
    /// [`LinkAddError`]: another link has the network, or the core refuses the tunnel.
    pub fn add(
        &mut self,
        peer: Option<PublicKey>,
        (remote, host): (Option<SocketAddr>, Option<String>),
        vni: u32,
        inbox: Inbox,
        moment: &Moment<'_>,
    ) -> Result<u16, Taken> {
        let same = |seat: &Seat| {
            let named = host.is_some() && seat.host == host;
            seat.peer == peer && (named || seat.remote == remote)
        };
        let shared = self.seats.iter().find(|(_, seat)| same(seat)).map(|(number, _)| *number);
        if let Some(other) = shared.and_then(|number| self.seats.get(&number)?.links.get(&vni)) {
            return Err(Taken::By(other.id));
        }
        let number = match shared {
            Some(number) => number,
            None => {
                let keys = self.own.clone().zip(peer);
                let config = Config { keys, remote, longest: DATAGRAM_BYTES_MAX };
                let number = self.hub.add(&config, moment).map_err(Taken::Refused)?;
                let seat = Seat {
                    links: BTreeMap::new(),
                    peer,
                    remote,
                    host,
                    too_long: Arc::default(),
                    called: Listener::default(),
                    up: false,
                    poor: false,
                    ups: 0,
                    untold: false,
                    log: LogLimit::default(),
                };
                self.seats.insert(number, seat);
                number
            }
        };
        if let Some(seat) = self.seats.get_mut(&number) {
            seat.links.insert(vni, inbox);
        }
        Ok(number)
    }

    /// Starts a link after its group has joined it.
    pub fn start(&mut self, number: u16, vni: u32, moment: &mut Moment<'_>) {
        if let Some(tunnel) = self.hub.tunnel_mut(number)
            && !tunnel.carry(vni, &mut self.sink)
        {
            log::error!(vni; "a tunnel has as many networks as it may");
        }
        let seat = self.seats.get(&number);
        if let Some(seat) = seat.filter(|seat| seat.up)
            && let Some(inbox) = seat.links.get(&vni)
        {
            inbox.stands(Standing { up: true, poor: seat.poor, rtt_ns: None });
        }
        self.tick(moment);
    }

    /// Sets the possible addresses of a tunnel's peer, the preferred address first.
    pub fn candidates(&mut self, number: u16, found: &[SocketAddr]) {
        let found = found.iter().copied().map(canonical).collect();
        if let Some(tunnel) = self.hub.tunnel_mut(number) {
            tunnel.configure(found);
        }
    }

    /// Returns the tunnel of a link, and its virtual network there.
    fn whose(&self, id: LinkId) -> Option<(u16, u32)> {
        self.seats.iter().find_map(|(number, seat)| {
            let mut links = seat.links.iter();
            links.find(|(_, inbox)| inbox.id == id).map(|(vni, _)| (*number, *vni))
        })
    }

    /// Removes a link, and its tunnel with the last link.
    pub fn remove(&mut self, id: LinkId, moment: &mut Moment<'_>) {
        let Some((number, vni)) = self.whose(id) else { return };
        if let Some(tunnel) = self.hub.tunnel_mut(number) {
            tunnel.release(moment.now, vni);
        }
        self.tick(moment);
        let Some(seat) = self.seats.get_mut(&number) else { return };
        seat.links.remove(&vni);
        if seat.links.is_empty() {
            self.seats.remove(&number);
            self.hub.remove(number);
        }
    }

    /// Returns the carrier of a link, whose datagrams have that traffic class.
    pub fn carrier(
        &self,
        number: u16,
        vni: u32,
        class: TrafficClass,
        tally: Arc<Tally>,
    ) -> Option<TunnelCarrier> {
        let outlet = self.hub.tunnel(number)?.outlet().clone();
        let seat = self.seats.get(&number)?;
        let (too_long, called) = (seat.too_long.clone(), seat.called.caller());
        let (udp, packer) = (self.udp.clone(), Packer::new(outlet));
        let out = Out { udp, tally, too_long, called, together: Together::default(), lost: 0 };
        Some(TunnelCarrier { packer, out, vni, class })
    }

    /// Returns the state of a tunnel, and how often it came up.
    pub fn state(&self, number: u16, now: u64) -> Option<(State, u64)> {
        let ups = self.seats.get(&number)?.ups;
        Some((self.hub.tunnel(number)?.state(now), ups))
    }

    /// Returns the counts of refused datagrams that belong to no tunnel.
    pub fn refusals(&self) -> &crate::Refusals {
        self.hub.refusals()
    }

    /// Announces an address to the peer, or withdraws it (no epoch).
    pub fn announce(&mut self, id: LinkId, mac: [u8; 6], epoch: Option<u64>, now: u64) {
        let Some((number, vni)) = self.whose(id) else { return };
        let Some(tunnel) = self.hub.tunnel_mut(number) else { return };
        match epoch {
            Some(epoch) => {
                let full = tunnel.announce(now, vni, mac, epoch).is_err();
                if let Some(seat) = self.seats.get_mut(&number).filter(|_| full)
                    && !std::mem::replace(&mut seat.untold, true)
                    && let Some(more) = seat.log.admit(now)
                {
                    let link = id.0;
                    log::error!(link, suppressed = more; "a peer is told of no more addresses");
                }
            }
            None => tunnel.withdraw(now, vni, mac),
        }
    }

    /// Returns the links whose addresses have to be announced again: some exceeded the peer's
    /// quota, and now there is room.
    pub fn untold(&mut self) -> Vec<LinkId> {
        let mut all = Vec::new();
        for (number, seat) in self.seats.iter_mut().filter(|(_, seat)| seat.untold) {
            if self.hub.tunnel(*number).is_some_and(Tunnel::has_room) {
                seat.untold = false;
                all.extend(seat.links.values().map(|inbox| inbox.id));
            }
        }
        all
    }

    /// Returns when [`Self::tick`] must be called.
    pub fn deadline(&self) -> u64 {
        self.hub.deadline()
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, moment: &mut Moment<'_>) {
        for (number, seat) in &self.seats {
            if seat.too_long.swap(false, Ordering::Relaxed)
                && let Some(tunnel) = self.hub.tunnel_mut(*number)
            {
                tunnel.too_long(moment.now, &mut self.sink);
            }
        }
        self.hub.tick(moment, &mut self.sink);
        self.empty();
    }

    /// Receives about `budget` datagrams, until the turn's time is over. `polled` tells whether the
    /// call is a poll, or follows a readiness event.
    pub fn serve(&mut self, cx: &mut Context<'_>, budget: usize, polled: bool) -> Served {
        let mut count = 0_u32;
        while (count as usize) < budget && !(count > 0 && cx.is_over()) {
            let mut bursts = std::mem::take(&mut self.bursts);
            let received =
                self.receiver.receive(&self.udp, &mut bursts, polled, cx.steps(cost::BURST_NS));
            for burst in bursts.drain(..) {
                cx.charge(cost::CALL_NS.saturating_add(cost::bytes(burst.len).saturating_mul(2)));
                // Reads the clock only after a successful receive, so that an idle poll does not.
                let taken = at_moment(cx.now_ns, |moment| self.take(&burst, moment));
                // An empty datagram costs a call as well.
                count = count.saturating_add(taken.max(1));
                self.empty();
            }
            self.bursts = bursts;
            match received {
                Ok(true) => {}
                Ok(false) => return Served { progress: Progress::Idle, count },
                // The error of an earlier send, reported once; the carrier has counted that loss.
                Err(_) => count = count.saturating_add(1),
            }
        }
        Served { progress: Progress::Worked, count }
    }

    /// Passes the datagrams of a burst to the core. Returns their number.
    fn take(&mut self, burst: &Burst, moment: &mut Moment<'_>) -> u32 {
        let mut count = 0_u32;
        if burst.to.is_some() {
            let mut seats = self.seats.values_mut();
            if let Some(seat) = seats.find(|seat| seat.remote == Some(burst.from)) {
                seat.called.note(burst.to);
            }
        }
        self.sink.ecn = Ecn::of(burst.class);
        for at in burst.datagrams() {
            let datagram = burst.buffer.get(at).unwrap_or(&[]);
            // Refusals are counted by the core.
            let _ = self.hub.receive(moment, burst.from, datagram, &mut self.sink);
            count = count.saturating_add(1);
        }
        count
    }

    /// Executes the core's results.
    fn empty(&mut self) {
        for (to, datagram) in self.sink.datagrams.drain(..) {
            let mut seats = self.seats.values().filter(|_| self.own.is_none());
            let from =
                seats.find(|seat| seat.remote == Some(to)).and_then(|seat| seat.called.last());
            // Losses are repaired by timers; EMSGSIZE answers a probe.
            let origin = Origin { from, class: 0 };
            let _ = self.udp.send_as(to, origin, &datagram, datagram.len());
        }
        for index in 0..self.sink.events.len() {
            if let Some(event) = self.sink.events.get(index).copied() {
                self.happened(event);
            }
        }
        if !self.sink.frames.is_empty() {
            self.hand_on();
        }
        self.sink.clear();
    }

    fn happened(&mut self, event: Event) {
        let Some(seat) = self.seats.get_mut(&event.tunnel) else { return };
        match event.what {
            What::Up | What::Down => {
                seat.up = event.what == What::Up;
                seat.ups = seat.ups.saturating_add(u64::from(seat.up));
                for inbox in seat.links.values() {
                    inbox.stands(Standing { up: seat.up, poor: seat.poor, rtt_ns: None });
                    let (place, up) = (place(inbox.id), seat.up);
                    self.reports.push(Report::Reachable { place, up });
                    let state = if seat.up { "up" } else { "down" };
                    log::info!(link = inbox.name.as_str(), state; "link");
                }
            }
            What::Here { vni, mac, epoch } | What::Gone { vni, mac, epoch } => {
                if let Some(inbox) = seat.links.get(&vni) {
                    // A link has one virtual network, so the directory of its group needs no
                    // number.
                    let (place, key) = (place(inbox.id), (0, mac));
                    self.reports.push(match event.what {
                        What::Here { .. } => Report::Claimed { place, key, epoch },
                        _ => Report::Withdrawn { place, key },
                    });
                }
            }
            What::Poor(poor) => {
                seat.poor = poor;
                for inbox in seat.links.values() {
                    inbox.stands(Standing { up: seat.up, poor, rtt_ns: None });
                }
            }
            What::Clone(at) => {
                for inbox in seat.links.values() {
                    let link = inbox.name.as_str();
                    log::warn!(link, other:% = at; "another host uses the peer's private key: it is refused; make each host a key of its own with `causeway key generate`");
                }
            }
            What::Behind(ns) => {
                let behind_s = ns / 1_000_000_000;
                for inbox in seat.links.values() {
                    let link = inbox.name.as_str();
                    log::warn!(link, behind_s; "the peer's clock was set back: its handshakes are refused until its last session has ended, five minutes at most");
                }
            }
            What::Session | What::Datagram(_) | What::Roamed(_) => {}
        }
    }

    /// Passes frames to their groups. Frames of the first frame's link keep their buffer.
    fn hand_on(&mut self) {
        let inbox = |frame: &Arrived| self.seats.get(&frame.tunnel)?.links.get(&frame.vni);
        let Some(first) = self.sink.frames.first() else { return };
        let whose = (first.tunnel, first.vni);
        let Some(main) = inbox(first).cloned() else { return };
        let mut frames = Vec::with_capacity(self.sink.frames.len());
        for frame in &self.sink.frames {
            let Some(arrival) = flood::arrival(&self.sink, frame) else { continue };
            if (frame.tunnel, frame.vni) == whose {
                frames.push(arrival);
            } else if let Some(other) = inbox(frame) {
                // Another link's frame in the same burst is rare, so it is copied.
                let bytes = self.sink.bytes().get(arrival.at.clone()).unwrap_or(&[]);
                other.copy(bytes, arrival);
            }
        }
        let room = self.pool.take(UDP_RECEIVE_BYTES).into_bytes();
        let bytes = self.pool.adopt(self.sink.take_bytes(room));
        main.put(Arrivals { link: main.id, bytes, frames });
    }
}

/// Sends batches of one carrier.
#[derive(Debug)]
struct Out {
    udp: Arc<Udp>,
    tally: Arc<Tally>,
    too_long: Arc<AtomicBool>,
    called: Caller,
    together: Together,
    /// Datagrams that the kernel refused.
    lost: u64,
}

impl Out {
    fn send(&mut self, batch: &Batch) {
        let Some(to) = batch.to() else { return };
        let count = batch.datagrams() as u64;
        let (tally, too_long) = (&self.tally, &self.too_long);
        let refused = |error: &io::Error, count| {
            let why = match rustix::io::Errno::from_io_error(error) {
                Some(rustix::io::Errno::AGAIN) => Loss::NoRoom,
                Some(rustix::io::Errno::MSGSIZE | rustix::io::Errno::INVAL) => {
                    too_long.store(true, Ordering::Relaxed);
                    Loss::TooBig
                }
                _ => Loss::Unreachable,
            };
            tally.lost(why, count);
        };
        let (from, bytes) = (self.called.from(), (batch.bytes(), batch.segment()));
        let origin = Origin { from, class: batch.class() };
        let lost = self.together.send(&self.udp, to, origin, bytes, refused);
        if lost > 0 && from.is_some() {
            self.called.forget();
        }
        self.tally.transmitted(0, 0, count.saturating_sub(lost));
        self.lost = self.lost.saturating_add(lost);
    }
}

/// Carrier of one link, for one shard.
#[derive(Debug)]
pub struct TunnelCarrier {
    packer: Packer,
    out: Out,
    vni: u32,
    class: TrafficClass,
}

impl Carrier for TunnelCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let class = self.class.outer(traffic_class(frame.head));
        let out = &mut self.out;
        // Losses of pending frames are counted as in `flush`.
        if self.packer.classify(class, |batch| out.send(batch)).is_err() {
            out.tally.lost(Loss::Down, 1);
        }
        let packed = flood::pack(&mut self.packer, self.vni, frame, |batch| out.send(batch));
        let (loss, refusal) = match packed {
            Ok(()) => {
                self.out.tally.transmitted(1, frame.len as u64, 0);
                return Ok(());
            }
            Err(PushError::NoPath | PushError::Seal(_)) => (Loss::Down, Refusal::Down),
            Err(PushError::Oversized(_)) => (Loss::TooBig, Refusal::TooBig),
            Err(PushError::Source(_)) => (Loss::SenderFault, Refusal::Lost),
        };
        self.out.tally.lost(loss, 1);
        Err(refusal)
    }

    fn flush(&mut self) -> u64 {
        let out = &mut self.out;
        if self.packer.finish(|batch| out.send(batch)).is_err() {
            self.out.tally.lost(Loss::Down, 1);
        }
        std::mem::take(&mut self.out.lost)
    }

    fn takes_offloads(&self) -> bool {
        !self.packer.is_lossy()
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}
