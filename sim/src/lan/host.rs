//! A host: a shard for each group, and the tunnels to other hosts that its groups share.
//!
//! What stands between them in the daemon is the service of links, with its sockets. Here is what
//! it does, without sockets.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use causeway_directory::{Change, Directory, MacKey, Place, Report};
use causeway_ethernet::Ethernet;
use causeway_fabric::PollConfig;
use causeway_fabric::carrier::{
    BufferPool, Join, LinkId, LinkStatus, Membership, Message, Notice, OpenInbox, ReceivedFrame,
    ReceivedFrames,
};
use causeway_fabric::limits::NOTICES_WAITING_MAX;
use causeway_fabric::mailbox::{Mailbox, Sender, mailbox};
use causeway_link::{Clock, Event, EventKind, Sink, Tunnel, TunnelConfig, TunnelSet, flood};
use causeway_model::Mac;
use causeway_model::keys::{PrivateKey, PublicKey};

use super::carrier::{Outbox, Way};
use super::net::{Letter, Net};
use crate::rng::Rng;
use crate::stage::{Stage, StageError};

/// The time of day when worlds begin, in nanoseconds since 1970.
const WALL_NS: u64 = 1_700_000_000_000_000_000;
/// Where the hosts' clocks begin.
const CLOCK_NS: u64 = 1_000_000_000;
/// How far a host's time of day is ahead of another's at most, in nanoseconds; 3 days, of which
/// peers believe one.
const AHEAD_NS: u64 = 3 * 86_400_000_000_000;
/// Notices taken in one go.
const NOTICES: usize = 64;

/// One of a host's groups.
#[derive(Debug)]
pub struct Room {
    /// Its shard.
    pub stage: Stage,
    inbox: Sender<Message>,
    directory: Directory<MacKey>,
}

impl Room {
    /// Tells the group where addresses are by the next best claim.
    fn change(&self, changes: impl IntoIterator<Item = Change<MacKey>>) {
        for Change { key: (_, mac), from, to } in changes {
            let macs = vec![Mac(mac)];
            let message = match (from, to) {
                (_, Some(Place::Link(id))) => Message::AddressAdded(LinkId(id), macs),
                (Some(Place::Link(id)), _) => Message::AddressRemoved(LinkId(id), macs),
                (Some(Place::Here) | None, _) => continue,
            };
            let _ = self.inbox.push_urgent(message);
        }
    }
}

/// The tunnels on one underlay.
#[derive(Debug)]
pub struct Under {
    /// The host's address there.
    pub address: SocketAddr,
    /// Its tunnels.
    pub hub: TunnelSet,
    sink: Sink,
    seats: BTreeMap<u16, Seat>,
}

/// The links of one tunnel, by their networks.
#[derive(Debug, Default)]
struct Seat {
    links: BTreeMap<u32, LinkId>,
    up: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Host {
    /// Its groups.
    pub rooms: Vec<Room>,
    /// Its underlays.
    pub unders: Vec<Under>,
    key: Arc<PrivateKey>,
    /// Where each link is: underlay, tunnel and group.
    links: BTreeMap<LinkId, (usize, u16, usize)>,
    notices: (Sender<Notice>, Mailbox<Notice>),
    outbox: Outbox,
    pool: BufferPool,
    entropy: Rng,
    /// How far its time of day is ahead, in nanoseconds.
    ahead_ns: u64,
}

/// The virtual network of a group.
pub const fn vni(group: usize) -> u32 {
    100 + group as u32
}

fn other(what: impl ToString) -> StageError {
    StageError::Host(io::Error::other(what.to_string()))
}

/// The address of that place in a directory.
const fn place(id: LinkId) -> Place {
    Place::Link(id.0)
}

/// Which link a tunnel is to be.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// On which underlay.
    pub under: usize,
    /// To which host.
    pub peer: usize,
    /// Its key; None: without secrets.
    pub key: Option<PublicKey>,
    /// Its address, if it is known.
    pub remote: Option<SocketAddr>,
    /// The longest datagram that leaves the host, in bytes of UDP payload.
    pub longest: usize,
    /// Whether frames of other links may leave by it.
    pub transit: bool,
}

impl Host {
    /// A host with shards for `groups` groups, at these addresses, without tunnels.
    ///
    /// # Errors
    /// The host fails us.
    pub fn new(
        addresses: &[SocketAddr],
        groups: usize,
        poll_config: PollConfig,
        mut entropy: Rng,
    ) -> Result<Self, StageError> {
        let mut secret = [0; 32];
        secret.fill_with(|| entropy.number() as u8);
        let key = Arc::new(PrivateKey::new(secret));
        let mut rooms = Vec::new();
        for group in 0..groups {
            let name = format!("g{group}").parse().map_err(|_| other("a name"))?;
            let stage = Stage::new(name, Box::new(Ethernet::new()), poll_config)?;
            let inbox = stage.with(|shard| shard.ask(OpenInbox))?;
            rooms.push(Room { stage, inbox, directory: Directory::default() });
        }
        let ahead_ns = entropy.within(0, AHEAD_NS);
        let mut host = Self {
            rooms,
            unders: Vec::new(),
            key,
            links: BTreeMap::new(),
            notices: mailbox(NOTICES_WAITING_MAX)?,
            outbox: Outbox::default(),
            pool: BufferPool::default(),
            entropy,
            ahead_ns,
        };
        for &address in addresses {
            let own = host.key.clone();
            let hub = host.at(0, |_, moment| TunnelSet::new(Some(own), moment));
            let (sink, seats) = Default::default();
            host.unders.push(Under { address, hub, sink, seats });
        }
        Ok(host)
    }

    /// Its public key.
    pub fn key(&self) -> PublicKey {
        self.key.public()
    }

    /// All its tunnels.
    pub fn tunnels(&self) -> impl Iterator<Item = &Tunnel> {
        self.unders.iter().flat_map(|under| under.hub.tunnels())
    }

    /// The clock of its tunnels at this time of the world.
    pub const fn clock(now: u64) -> u64 {
        CLOCK_NS.saturating_add(now)
    }

    fn at<R>(&mut self, now: u64, act: impl FnOnce(&mut Self, &mut Clock<'_>) -> R) -> R {
        let wall = WALL_NS + now + self.ahead_ns;
        let mut rng = self.entropy.clone();
        let mut entropy = |bytes: &mut [u8]| bytes.fill_with(|| rng.number() as u8);
        let mut moment = Clock { now: Self::clock(now), wall, random: &mut entropy };
        let result = act(self, &mut moment);
        self.entropy = rng;
        result
    }

    /// Adds a tunnel to a peer, and a link on it to each group.
    ///
    /// # Errors
    /// A refusal.
    pub fn link(&mut self, now: u64, line: &Line) -> Result<(), StageError> {
        let keys = line.key.map(|key| (self.key.clone(), key));
        let config = TunnelConfig { keys, remote: line.remote, longest: line.longest };
        let Line { under, peer, transit, .. } = *line;
        let number = self.at(now, |host, moment| host.unders[under].hub.add(&config, moment));
        let number = number.map_err(other)?;
        self.unders[under].seats.insert(number, Seat::default());
        for group in 0..self.rooms.len() {
            let id = LinkId(self.links.len() as u32 + 1);
            let tunnel = self.unders[under].hub.tunnel(number).ok_or_else(|| other("no tunnel"))?;
            let tx_path = tunnel.tx_path().clone();
            let carrier = Way::new(tx_path, self.outbox.clone(), under, vni(group));
            let member = Membership {
                id,
                name: format!("l{}", id.0).parse().map_err(|_| other("a name"))?,
                peer: format!("h{peer}"),
                metric: under as u16,
                transit,
                segment: false,
                notices: Some(self.notices.0.clone()),
                carrier: Box::new(carrier),
            };
            self.links.insert(id, (under, number, group));
            self.rooms[group].stage.with(|shard| shard.ask(Join(member)))?;
            let Under { hub, sink, seats, .. } = &mut self.unders[under];
            if let Some(seat) = seats.get_mut(&number) {
                seat.links.insert(vni(group), id);
            }
            if let Some(tunnel) = hub.tunnel_mut(number) {
                tunnel.carry(vni(group), sink);
            }
        }
        Ok(())
    }

    /// Takes a datagram; says whether its groups have anything to do.
    pub fn receive(&mut self, now: u64, under: usize, letter: &Letter) -> bool {
        if self.unders.get(under).is_none_or(|under| under.address != letter.to) {
            return false;
        }
        self.at(now, |host, moment| {
            let Under { hub, sink, .. } = &mut host.unders[under];
            // A refusal is counted.
            let _ = hub.receive(moment, letter.from, &letter.bytes, sink);
            host.empty(under, moment.wall)
        })
    }

    /// Does what is due; says whether its groups have anything to do.
    pub fn tick(&mut self, now: u64) -> bool {
        let mut busy = false;
        for under in 0..self.unders.len() {
            if self.unders[under].hub.deadline() <= Self::clock(now) {
                busy |= self.at(now, |host, moment| {
                    let Under { hub, sink, .. } = &mut host.unders[under];
                    hub.tick(moment, sink);
                    host.empty(under, moment.wall)
                });
            }
        }
        busy
    }

    /// When it has something to do by itself, in the time of the world.
    pub fn deadline(&self) -> u64 {
        let hubs = self.unders.iter().map(|under| under.hub.deadline());
        let hubs = hubs.min().unwrap_or(u64::MAX).saturating_sub(CLOCK_NS);
        let rooms = self.rooms.iter().filter_map(|room| room.stage.deadline_ns());
        rooms.fold(hubs, u64::min)
    }

    /// Puts what is to be sent on the network; says whether there was anything.
    pub fn post(&self, now: u64, net: &mut Net) -> bool {
        let parcels = self.outbox.take();
        let any = !parcels.is_empty();
        for (under, to, bytes) in parcels {
            net.post(now, Letter { from: self.unders[under].address, to, bytes });
        }
        any
    }

    /// Tells peers what groups say of their addresses; says whether there was anything.
    pub fn notice(&mut self, now: u64) -> bool {
        let mut all = Vec::new();
        self.notices.1.take(NOTICES, &mut all);
        let any = !all.is_empty();
        for notice in all {
            self.at(now, |host, moment| host.announce(notice, moment));
        }
        any
    }

    fn announce(&mut self, notice: Notice, moment: &mut Clock<'_>) {
        let (Notice::AddressAdded(id, mac) | Notice::AddressRemoved(id, mac)) = notice;
        let Some(&(under, number, group)) = self.links.get(&id) else { return };
        let directory = &mut self.rooms[group].directory;
        let epoch = match notice {
            Notice::AddressAdded(..) => Some(directory.claim_local((0, mac.0), moment.wall)),
            Notice::AddressRemoved(..) => {
                let change = directory.withdraw(Place::Here, (0, mac.0));
                self.rooms[group].change(change);
                None
            }
        };
        let Under { hub, sink, .. } = &mut self.unders[under];
        if let Some(tunnel) = hub.tunnel_mut(number) {
            match epoch {
                // A handful of guests is never too many.
                Some(epoch) => drop(tunnel.announce(moment.now, vni(group), mac.0, epoch)),
                None => tunnel.withdraw(moment.now, vni(group), mac.0),
            }
        }
        hub.tick(moment, sink);
        self.empty(under, moment.wall);
    }

    /// Carries out what the core gave; says whether the groups have anything to do.
    fn empty(&mut self, under: usize, wall: u64) -> bool {
        let Self { rooms, unders, outbox, links, pool, .. } = self;
        let Under { sink, seats, .. } = &mut unders[under];
        for (to, datagram) in sink.datagrams.drain(..) {
            outbox.put((under, to, datagram));
        }
        let busy = !sink.events.is_empty() || !sink.frames.is_empty();
        for event in sink.events.drain(..) {
            if let Some(seat) = seats.get_mut(&event.tunnel) {
                happened(rooms, links, seat, &event, wall);
            }
        }
        for frame in &sink.frames {
            let seat = seats.get(&frame.tunnel);
            let Some(&link) = seat.and_then(|seat| seat.links.get(&frame.vni)) else { continue };
            let Some(&(_, _, group)) = links.get(&link) else { continue };
            let Some(arrival) = flood::arrival(sink, frame) else { continue };
            let bytes = sink.bytes().get(arrival.at.clone()).unwrap_or(&[]);
            let frames = vec![ReceivedFrame { at: 0..bytes.len(), ..arrival }];
            let bytes = pool.adopt(bytes.to_vec());
            // A group that is too busy loses it, as in the daemon.
            let _ = rooms[group].inbox.push(Message::ReceivedFrames(ReceivedFrames {
                link,
                bytes,
                frames,
            }));
        }
        sink.clear();
        busy
    }
}

/// Something became known of a tunnel: its groups are told what is news to them.
fn happened(
    rooms: &mut [Room],
    links: &BTreeMap<LinkId, (usize, u16, usize)>,
    seat: &mut Seat,
    event: &Event,
    wall: u64,
) {
    let room_of = |id: &LinkId| links.get(id).map(|(_, _, group)| *group);
    match event.kind {
        EventKind::Up | EventKind::Down => {
            seat.up = event.kind == EventKind::Up;
            for id in seat.links.values() {
                let standing = LinkStatus { up: seat.up, poor: false, rtt_ns: None };
                if let Some(group) = room_of(id) {
                    let _ = rooms[group].inbox.push_urgent(Message::LinkStatus(*id, standing));
                    let report = Report::Reachable { place: place(*id), up: seat.up };
                    let changes = rooms[group].directory.apply(report, wall);
                    rooms[group].change(changes);
                }
            }
        }
        EventKind::Here { vni, mac, epoch } => {
            let Some(id) = seat.links.get(&vni) else { return };
            let Some(group) = room_of(id) else { return };
            let report = Report::Claimed { place: place(*id), key: (0, mac), epoch };
            let changes = rooms[group].directory.apply(report, wall);
            rooms[group].change(changes);
        }
        EventKind::Gone { vni, mac, .. } => {
            let Some(id) = seat.links.get(&vni) else { return };
            let Some(group) = room_of(id) else { return };
            let directory = &mut rooms[group].directory;
            let change = directory.withdraw(place(*id), (0, mac));
            rooms[group].change(change);
        }
        EventKind::Session
        | EventKind::Datagram(_)
        | EventKind::Roamed(_)
        | EventKind::Poor(_)
        | EventKind::Clone(_)
        | EventKind::Behind(_) => {}
    }
}
