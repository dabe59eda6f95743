//! Links of the kinds `causeway` and `causeway-plain`: the tunnels of one UDP socket.
//!
//! The module connects the core ([`crate::tunnel_set`]) to its socket: it passes received datagrams
//! and the time in, and executes the results. Links of several groups to one peer share a tunnel
//! and are distinguished by their virtual networks. Frames to send do not pass through
//! [`TunnelSocket`]: each shard has a [`TunnelCarrier`], which `ethernet` calls in the thread of
//! the group.
//!
//! Frames up to `FRAME_BYTES_MAX` (65,557) bytes cross with their offloads unfinished, except
//! while loss is high (0.2 %, [`crate::health`]): then `ethernet` finishes them before. The module
//! neither queues nor retransmits frames: a carrier without a session or an address of the peer
//! refuses them (`Refusal::Down`), and datagrams of frames that the kernel refuses are counted as
//! lost. The carrier of a dormant tunnel keeps its first frames for the next session
//! ([`crate::tx_path`]) and wakes the tunnel by a notice to the shard of links. Handshakes,
//! heartbeats and announcements that the kernel refuses are lost without a counter: timers repeat them. Frames of one carrier keep their order up to the network. A full
//! mailbox of the group drops received frames (`LinkInbox`). A tunnel carries at most `VNIS_MAX`
//! (4,096) virtual networks, a socket `TUNNELS_MAX` (4,096) tunnels: as many as a daemon has
//! links. [`super::service`] calls [`TunnelSocket`] in the shard of links.
//!
//! # Budget
//! Send: one copy from the sender's memory into the plaintext of a datagram, one pass that seals it
//! into the batch, one system call for up to 64 datagrams. Receive: one pass that opens a datagram
//! into the buffer in which its frames are passed on; reassembled frames are copied twice more
//! ([`crate::unpack`]), and frames of a further link in one receive buffer once more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_directory::{MacKey, Place, Report, Source};
use causeway_fabric::LogLimit;
use causeway_fabric::carrier::{
    BufferPool, LinkId, LinkStatus, Notice, OFFLOAD_BYTES, ReceivedFrame, ReceivedFrames,
};
use causeway_fabric::limits::UDP_RECEIVE_BYTES;
use causeway_fabric::mailbox::Sender;
use causeway_fabric::udp::{Burst, Origin, Udp, UdpReceiver, canonical};
use causeway_fabric::{Context, Progress, SourceProgress, cost};
use causeway_model::TrafficClass;
use causeway_wire::ecn::Ecn;

use super::addresses::place;
use super::inbox::LinkInbox;
use super::local_address::LocalAddressRecorder;
use super::service::with_clock;
use super::stats::LinkStats;
use super::tunnel_carrier::{CarrierOutput, TunnelCarrier};
use crate::clock::Clock;
use crate::event::{Event, EventKind};
use crate::flood;
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::tunnel::{OnDemand, Tunnel, TunnelConfig, TunnelState};
use crate::tunnel_set::{AddError, TunnelSet};
use crate::unpack::{Sink, UnpackedFrame};
use causeway_model::keys::{PrivateKey, PublicKey};

/// A tunnel, and the links that share it.
#[derive(Debug)]
struct TunnelEntry {
    /// By virtual network.
    links: BTreeMap<u32, LinkInbox>,
    /// The peer's key; `None` without encryption.
    peer: Option<PublicKey>,
    /// The peer's configured address.
    remote: Option<SocketAddr>,
    /// Host name of the peer, if it was given by name.
    host: Option<String>,
    /// Set by senders when the host rejects a datagram as too long.
    too_long: Arc<AtomicBool>,
    /// For peers that identify us by our address.
    local_address: LocalAddressRecorder,
    /// Whether the peer answers, or the tunnel is dormant.
    up: bool,
    is_dormant: bool,
    /// Networks of links that are always awake, if the tunnel is on demand.
    pins: BTreeSet<u32>,
    /// Whether the path is poor: another path to the peer is preferred.
    poor: bool,
    /// How often the tunnel came up.
    ups: u64,
    /// Whether an address could not be announced because of the peer's quota.
    over_quota: bool,
    /// Limits log lines about this quota: guests may change their addresses at any rate.
    log: LogLimit,
}

impl TunnelEntry {
    /// Returns the state of the tunnel's links.
    const fn standing(&self) -> LinkStatus {
        let Self { up, poor, is_dormant, .. } = *self;
        LinkStatus { up, poor, rtt_ns: None, is_dormant }
    }
}

/// Why a link was not added to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkAddError {
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
    /// The tunnels, by number.
    tunnels: TunnelSet,
    /// Our private key; `None` for tunnels without encryption.
    own: Option<Arc<PrivateKey>>,
    receiver: UdpReceiver,
    /// Received datagrams of one call; empty between calls.
    bursts: Vec<Burst>,
    /// Results of the core; empty between calls.
    sink: Sink,
    pool: BufferPool,
    /// The links of each tunnel, by the tunnel's number.
    entries: BTreeMap<u16, TunnelEntry>,
    /// Reports about addresses of peers, and about links that came up or went down.
    reports: Vec<Report<MacKey>>,
}

impl Source<MacKey> for TunnelSocket {
    fn take_reports(&mut self, reports: &mut Vec<Report<MacKey>>) {
        reports.append(&mut self.reports);
    }

    fn repeat(&mut self, place: Place) {
        let Place::Link(id) = place else { return };
        let Some((number, vni)) = self.tunnel_of(LinkId(id)) else { return };
        if let Some(tunnel) = self.tunnels.tunnel_mut(number) {
            tunnel.repeat_claims(vni, &mut self.sink);
        }
        self.execute();
    }
}

impl TunnelSocket {
    /// Returns a `TunnelSocket` on a bound UDP socket. Without a key it has tunnels without
    /// encryption only.
    pub fn new(udp: Udp, own: Option<PrivateKey>, pool: BufferPool, clock: &mut Clock<'_>) -> Self {
        let own = own.map(Arc::new);
        if own.is_none() {
            udp.report_destinations();
        }
        udp.report_classes();
        Self {
            udp: Arc::new(udp),
            tunnels: TunnelSet::new(own.clone(), clock),
            own,
            receiver: UdpReceiver::new(pool.clone()),
            bursts: Vec::new(),
            sink: Sink::default(),
            pool,
            entries: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// Returns our public key.
    pub fn key(&self) -> Option<PublicKey> {
        self.own.as_ref().map(|own| own.public())
    }

    /// Adds a link to a peer, on an existing tunnel to it or on a new one. Returns the tunnel's
    /// number. A tunnel goes dormant only if all its links are on demand; the first link decides
    /// about the idle time.
    ///
    /// # Errors
    /// [`LinkAddError`]: another link has the network, or the core refuses the tunnel.
    pub fn add(
        &mut self,
        peer: Option<PublicKey>,
        (remote, host): (Option<SocketAddr>, Option<String>),
        (vni, on_demand): (u32, Option<OnDemand>),
        inbox: LinkInbox,
        clock: &Clock<'_>,
    ) -> Result<u16, LinkAddError> {
        let same = |entry: &TunnelEntry| {
            let named = host.is_some() && entry.host == host;
            entry.peer == peer && (named || entry.remote == remote)
        };
        let shared = self.entries.iter().find(|(_, entry)| same(entry)).map(|(number, _)| *number);
        if let Some(other) = shared.and_then(|number| self.entries.get(&number)?.links.get(&vni)) {
            return Err(LinkAddError::By(other.id));
        }
        let number = match shared {
            Some(number) => number,
            None => {
                let keys = self.own.clone().zip(peer);
                let config = TunnelConfig { keys, remote, longest: DATAGRAM_BYTES_MAX, on_demand };
                let number = self.tunnels.add(&config, clock).map_err(LinkAddError::Refused)?;
                let is_dormant = self.tunnels.tunnel(number).is_some_and(Tunnel::is_dormant);
                let entry = TunnelEntry {
                    links: BTreeMap::new(),
                    peer,
                    remote,
                    host,
                    too_long: Arc::default(),
                    local_address: LocalAddressRecorder::default(),
                    up: is_dormant,
                    is_dormant,
                    pins: BTreeSet::new(),
                    poor: false,
                    ups: 0,
                    over_quota: false,
                    log: LogLimit::default(),
                };
                self.entries.insert(number, entry);
                number
            }
        };
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.links.insert(vni, inbox);
            if on_demand.is_none() && entry.pins.insert(vni) && shared.is_some() {
                let tunnel = self.tunnels.tunnel_mut(number);
                tunnel.into_iter().for_each(|tunnel| tunnel.pin(clock.now, true));
            }
        }
        Ok(number)
    }

    /// Starts a link after its group has joined it.
    pub fn start(&mut self, number: u16, vni: u32, clock: &mut Clock<'_>) {
        if let Some(tunnel) = self.tunnels.tunnel_mut(number)
            && !tunnel.carry(vni, &mut self.sink)
        {
            log::error!(vni; "cannot add a network to a tunnel: its limit is reached, so frames of this network are dropped");
        }
        let entry = self.entries.get(&number);
        if let Some(entry) = entry.filter(|entry| entry.up)
            && let Some(inbox) = entry.links.get(&vni)
        {
            inbox.report_standing(entry.standing());
        }
        self.tick(clock);
    }

    /// Sets the possible addresses of a tunnel's peer, the preferred address first.
    pub fn candidates(&mut self, number: u16, found: &[SocketAddr]) {
        let found = found.iter().copied().map(canonical).collect();
        if let Some(tunnel) = self.tunnels.tunnel_mut(number) {
            tunnel.configure(found);
        }
    }

    /// Returns the tunnel of a link, and its virtual network there.
    fn tunnel_of(&self, id: LinkId) -> Option<(u16, u32)> {
        self.entries.iter().find_map(|(number, entry)| {
            let mut links = entry.links.iter();
            links.find(|(_, inbox)| inbox.id == id).map(|(vni, _)| (*number, *vni))
        })
    }

    /// Removes a link, and its tunnel with the last link.
    pub fn remove(&mut self, id: LinkId, clock: &mut Clock<'_>) {
        let Some((number, vni)) = self.tunnel_of(id) else { return };
        if let Some(tunnel) = self.tunnels.tunnel_mut(number) {
            tunnel.release(clock.now, vni);
        }
        self.tick(clock);
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.links.remove(&vni);
        if entry.pins.remove(&vni)
            && entry.pins.is_empty()
            && let Some(tunnel) = self.tunnels.tunnel_mut(number)
        {
            tunnel.pin(clock.now, false);
        }
        if entry.links.is_empty() {
            self.entries.remove(&number);
            self.tunnels.remove(number);
        }
    }

    /// Wakes a dormant tunnel: frames wait for it.
    pub fn wake(&mut self, number: u16, clock: &mut Clock<'_>) {
        self.tunnels.wake(number, clock, &mut self.sink);
        self.execute();
    }

    /// Returns the carrier of a link, whose datagrams have that traffic class. A carrier of a dormant
    /// tunnel sends a notice to wake it.
    pub fn carrier(
        &self,
        number: u16,
        vni: u32,
        class: TrafficClass,
        (stats, notices): (Arc<LinkStats>, Option<Sender<Notice>>),
    ) -> Option<TunnelCarrier> {
        let tx_path = self.tunnels.tunnel(number)?.tx_path().clone();
        let entry = self.entries.get(&number)?;
        let link = entry.links.get(&vni).map(|inbox| inbox.id);
        let output = CarrierOutput {
            udp: self.udp.clone(),
            stats,
            too_long: entry.too_long.clone(),
            local_address: entry.local_address.reader(),
            wake: notices.zip(link),
        };
        Some(TunnelCarrier::new(tx_path, (vni, class), output))
    }

    /// Returns the state of a tunnel, and how often it came up.
    pub fn state(&self, number: u16, now: u64) -> Option<(TunnelState, u64)> {
        let ups = self.entries.get(&number)?.ups;
        Some((self.tunnels.tunnel(number)?.state(now), ups))
    }

    /// Returns the counts of refused datagrams that belong to no tunnel.
    pub fn refusals(&self) -> &crate::RefusalCounters {
        self.tunnels.refusals()
    }

    /// Announces an address to the peer, or withdraws it (no epoch).
    pub fn announce(&mut self, id: LinkId, mac: [u8; 6], epoch: Option<u64>, now: u64) {
        let Some((number, vni)) = self.tunnel_of(id) else { return };
        let Some(tunnel) = self.tunnels.tunnel_mut(number) else { return };
        match epoch {
            Some(epoch) => {
                let full = tunnel.announce(now, vni, mac, epoch).is_err();
                if let Some(entry) = self.entries.get_mut(&number).filter(|_| full)
                    && !std::mem::replace(&mut entry.over_quota, true)
                    && let Some(more) = entry.log.admit(now)
                {
                    let link = id.0;
                    log::error!(link, suppressed = more; "cannot announce an address to a peer: the peer's quota is used up");
                }
            }
            None => tunnel.withdraw(now, vni, mac),
        }
    }

    /// Returns the links whose addresses have to be announced again: some exceeded the peer's
    /// quota, and now there is room.
    pub fn over_quota(&mut self) -> Vec<LinkId> {
        let mut all = Vec::new();
        for (number, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.over_quota) {
            if self.tunnels.tunnel(*number).is_some_and(Tunnel::has_room) {
                entry.over_quota = false;
                all.extend(entry.links.values().map(|inbox| inbox.id));
            }
        }
        all
    }

    /// Returns when [`Self::tick`] must be called.
    pub fn deadline(&self) -> u64 {
        self.tunnels.deadline()
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, clock: &mut Clock<'_>) {
        for (number, entry) in &self.entries {
            if entry.too_long.swap(false, Ordering::Relaxed)
                && let Some(tunnel) = self.tunnels.tunnel_mut(*number)
            {
                tunnel.shorten_datagrams(clock.now, &mut self.sink);
            }
        }
        self.tunnels.tick(clock, &mut self.sink);
        self.execute();
    }

    /// Receives about `budget` datagrams, until the turn's time is over. `polled`: whether the call
    /// is a poll, or follows a readiness event.
    pub fn serve(&mut self, cx: &mut Context<'_>, budget: usize, polled: bool) -> SourceProgress {
        let mut count = 0_u32;
        while (count as usize) < budget && !(count > 0 && cx.is_over()) {
            let mut bursts = std::mem::take(&mut self.bursts);
            let received =
                self.receiver.receive(&self.udp, &mut bursts, polled, cx.steps(cost::BURST_NS));
            for burst in bursts.drain(..) {
                cx.charge(cost::CALL_NS.saturating_add(cost::bytes(burst.len).saturating_mul(2)));
                // Reads the clock only after a successful receive, so that an idle poll does not.
                let taken = with_clock(cx.now_ns, |clock| self.take(&burst, clock));
                // An empty datagram costs a call as well.
                count = count.saturating_add(taken.max(1));
                self.execute();
            }
            self.bursts = bursts;
            match received {
                Ok(true) => {}
                Ok(false) => return SourceProgress { progress: Progress::Idle, count },
                // The error of an earlier send (ICMP), reported once.
                Err(_) => count = count.saturating_add(1),
            }
        }
        SourceProgress { progress: Progress::Worked, count }
    }

    /// Passes the datagrams of a burst to the core. Returns their number.
    fn take(&mut self, burst: &Burst, clock: &mut Clock<'_>) -> u32 {
        let mut count = 0_u32;
        if burst.to.is_some() {
            let mut entries = self.entries.values_mut();
            if let Some(entry) = entries.find(|entry| entry.remote == Some(burst.from)) {
                entry.local_address.record(burst.to);
            }
        }
        self.sink.ecn = Ecn::of(burst.class);
        for at in burst.datagrams() {
            let datagram = burst.buffer.get(at).unwrap_or(&[]);
            // Refusals are counted by the core.
            let _ = self.tunnels.receive(clock, burst.from, datagram, &mut self.sink);
            count = count.saturating_add(1);
        }
        count
    }

    /// Executes the core's results.
    fn execute(&mut self) {
        for (to, datagram) in self.sink.datagrams.drain(..) {
            let mut entries = self.entries.values().filter(|_| self.own.is_none());
            let from = entries
                .find(|entry| entry.remote == Some(to))
                .and_then(|entry| entry.local_address.last());
            // Losses are repaired by timers; EMSGSIZE answers a probe.
            let origin = Origin { from, class: 0 };
            let _ = self.udp.send_as(to, origin, &datagram, datagram.len());
        }
        for index in 0..self.sink.events.len() {
            if let Some(event) = self.sink.events.get(index).copied() {
                self.handle_event(event);
            }
        }
        if !self.sink.segments.is_empty() {
            self.deliver_segments();
        }
        if !self.sink.frames.is_empty() {
            self.deliver_frames();
        }
        self.sink.clear();
    }

    /// Reports an event to the groups of the tunnel's links, and to the directory.
    fn handle_event(&mut self, event: Event) {
        let Some(entry) = self.entries.get_mut(&event.tunnel) else { return };
        match event.kind {
            EventKind::Up | EventKind::Down | EventKind::Dormant => {
                let was_up = entry.up;
                entry.up = event.kind != EventKind::Down;
                entry.is_dormant = event.kind == EventKind::Dormant;
                // The next session measures anew.
                entry.poor &= !entry.is_dormant;
                entry.ups = entry.ups.saturating_add(u64::from(event.kind == EventKind::Up));
                for inbox in entry.links.values() {
                    inbox.report_standing(entry.standing());
                    let (place, up) = (place(inbox.id), entry.up);
                    if up != was_up {
                        self.reports.push(Report::Reachable { place, up });
                    }
                    let link = inbox.name.as_str();
                    match event.kind {
                        EventKind::Dormant => log::debug!(link, state = "dormant"; "link"),
                        // A dormant link that wakes is no news for an operator.
                        EventKind::Up if was_up => log::debug!(link, state = "up"; "link"),
                        EventKind::Up => log::info!(link, state = "up"; "link"),
                        _ => log::info!(link, state = "down"; "link"),
                    }
                }
            }
            EventKind::Here { vni, mac, epoch } | EventKind::Gone { vni, mac, epoch } => {
                if let Some(inbox) = entry.links.get(&vni) {
                    // A link has one virtual network, so the directory of its group needs no
                    // number.
                    let (place, key) = (place(inbox.id), (0, mac));
                    self.reports.push(match event.kind {
                        EventKind::Here { .. } => Report::Claimed { place, key, epoch },
                        _ => Report::Withdrawn { place, key },
                    });
                }
            }
            EventKind::Poor(poor) => {
                entry.poor = poor;
                for inbox in entry.links.values() {
                    inbox.report_standing(entry.standing());
                }
            }
            EventKind::Clone(at) => {
                for inbox in entry.links.values() {
                    let link = inbox.name.as_str();
                    log::warn!(link, other:% = at; "another host uses the peer's private key and is refused: create a key for each host with `causeway key generate`");
                }
            }
            EventKind::Behind(ns) => {
                let behind_s = ns / 1_000_000_000;
                for inbox in entry.links.values() {
                    let link = inbox.name.as_str();
                    log::warn!(link, behind_s; "the peer's clock was set back: its handshakes are refused until its last session has ended, five minutes at most");
                }
            }
            EventKind::Session | EventKind::Datagram(_) | EventKind::Roamed(_) => {}
        }
    }

    /// Passes datagrams of the stream protocol to their groups, those of one link together. They are
    /// copied if the burst has frames, which keep the buffer, or datagrams of several links.
    fn deliver_segments(&mut self) {
        let mut segments = std::mem::take(&mut self.sink.segments);
        let link_of = |segment: &UnpackedFrame| (segment.tunnel, segment.vni);
        let is_one = segments.windows(2).all(|two| match two {
            [a, b] => link_of(a) == link_of(b),
            _ => true,
        });
        if self.sink.frames.is_empty()
            && is_one
            && let Some(first) = segments.first()
            && let Some(entry) = self.entries.get(&first.tunnel)
            && let Some(inbox) = entry.links.get(&first.vni)
            && inbox.segments.is_some()
        {
            let room = self.pool.take(UDP_RECEIVE_BYTES).into_bytes();
            let bytes = self.pool.adopt(self.sink.take_bytes(room));
            let frames = segments.drain(..).map(|segment| received(segment.at)).collect();
            inbox.deliver_segments(ReceivedFrames { link: inbox.id, bytes, frames });
        }
        for run in segments.chunk_by(|a, b| (a.tunnel, a.vni) == (b.tunnel, b.vni)) {
            let Some(first) = run.first() else { continue };
            let entry = self.entries.get(&first.tunnel);
            let Some(inbox) = entry.and_then(|entry| entry.links.get(&first.vni)) else { continue };
            if inbox.segments.is_none() {
                continue;
            }
            let total = run.iter().fold(0_usize, |sum, s| sum.saturating_add(s.at.len()));
            let mut bytes = self.pool.take(total);
            let (mut frames, mut at) = (Vec::with_capacity(run.len()), 0_usize);
            for segment in run {
                let text = self.sink.frame(segment);
                let end = at.saturating_add(text.len());
                if let Some(room) = bytes.get_mut(at..end) {
                    room.copy_from_slice(text);
                }
                frames.push(received(at..end));
                at = end;
            }
            inbox.deliver_segments(ReceivedFrames { link: inbox.id, bytes, frames });
        }
        segments.clear();
        self.sink.segments = segments;
    }

    /// Passes frames to their groups. Frames of the first frame's link keep their buffer.
    fn deliver_frames(&mut self) {
        let inbox = |frame: &UnpackedFrame| self.entries.get(&frame.tunnel)?.links.get(&frame.vni);
        let Some(first) = self.sink.frames.first() else { return };
        let tunnel_of = (first.tunnel, first.vni);
        let Some(main) = inbox(first).cloned() else { return };
        let mut frames = Vec::with_capacity(self.sink.frames.len());
        for frame in &self.sink.frames {
            let Some(arrival) = flood::arrival(&self.sink, frame) else { continue };
            if (frame.tunnel, frame.vni) == tunnel_of {
                frames.push(arrival);
            } else if let Some(other) = inbox(frame) {
                // Another link's frame in the same burst is rare, so it is copied.
                let bytes = self.sink.bytes().get(arrival.at.clone()).unwrap_or(&[]);
                other.deliver_copy(bytes, arrival);
            }
        }
        let room = self.pool.take(UDP_RECEIVE_BYTES).into_bytes();
        let bytes = self.pool.adopt(self.sink.take_bytes(room));
        main.deliver(ReceivedFrames { link: main.id, bytes, frames });
    }
}

/// Returns the entry of a datagram of the stream protocol.
const fn received(at: std::ops::Range<usize>) -> ReceivedFrame {
    ReceivedFrame { at, offload: [0; OFFLOAD_BYTES], hops: 0, flood: None }
}
