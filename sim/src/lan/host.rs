//! A host: a shard for each group, and the tunnels to other hosts that its groups share.
//!
//! In the daemon the link service connects shards and tunnels through sockets. This module does the
//! same work without sockets: `super` passes datagrams in ([`Host::receive`]), runs timers
//! ([`Host::tick`]), takes datagrams out ([`Host::post`]) and passes notices of the groups to the
//! peers ([`Host::notice`]), all in the thread of the world. The tunnels, their encryption and the
//! address directory are the product's own; each host has a wall clock of its own, up to 3 days
//! ahead. A datagram that the tunnels refuse is dropped, as is a frame for a group with a full
//! inbox. An error is a shard, tunnel or link that cannot be created, and is a violation.

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

use super::carrier::{LinkTxPath, Outbox};
use super::net::{Datagram, Net};
use crate::rng::Rng;
use crate::stage::{Stage, StageError};

/// Wall-clock time at which worlds begin, in nanoseconds since 1970.
const WALL_NS: u64 = 1_700_000_000_000_000_000;
/// Monotonic time at which the hosts' clocks begin.
const CLOCK_NS: u64 = 1_000_000_000;
/// The largest difference between the wall clocks of two hosts: 3 days, of which peers accept 1.
const AHEAD_NS: u64 = 3 * 86_400_000_000_000;
/// Notices taken at a time.
const NOTICES: usize = 64;

/// One group of a host.
#[derive(Debug)]
pub struct HostGroup {
    /// The shard of the group.
    pub stage: Stage,
    inbox: Sender<Message>,
    directory: Directory<MacKey>,
}

impl HostGroup {
    /// Reports changed locations of addresses to the shard.
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

/// The tunnels over one underlay.
#[derive(Debug)]
pub struct Under {
    /// The host's address on the underlay.
    pub address: SocketAddr,
    /// The tunnels.
    pub tunnel_set: TunnelSet,
    sink: Sink,
    tunnel_links: BTreeMap<u16, TunnelLinks>,
}

/// The links of one tunnel by virtual network, and whether the tunnel is up.
#[derive(Debug, Default)]
struct TunnelLinks {
    links: BTreeMap<u32, LinkId>,
    up: bool,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// The groups of the host.
    pub host_groups: Vec<HostGroup>,
    /// The underlays of the host.
    pub unders: Vec<Under>,
    key: Arc<PrivateKey>,
    /// Underlay, tunnel and group of each link.
    links: BTreeMap<LinkId, (usize, u16, usize)>,
    notices: (Sender<Notice>, Mailbox<Notice>),
    outbox: Outbox,
    pool: BufferPool,
    entropy: Rng,
    /// The offset of the host's wall clock, in nanoseconds.
    ahead_ns: u64,
}

/// Returns the virtual network identifier of a group.
pub const fn vni(group: usize) -> u32 {
    100 + group as u32
}

fn other(what: impl ToString) -> StageError {
    StageError::Host(io::Error::other(what.to_string()))
}

/// Returns the directory's location for a link.
const fn place(id: LinkId) -> Place {
    Place::Link(id.0)
}

/// Parameters of a link.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// The underlay.
    pub under: usize,
    /// The peer host.
    pub peer: usize,
    /// The peer's public key; `None` for a tunnel without encryption.
    pub key: Option<PublicKey>,
    /// The peer's address, if configured.
    pub remote: Option<SocketAddr>,
    /// The longest UDP payload that leaves the host, in bytes.
    pub longest: usize,
    /// Frames from other links may be forwarded over this link.
    pub transit: bool,
}

impl Host {
    /// Creates a host with shards for `groups` groups, at these addresses, without tunnels.
    ///
    /// # Errors
    /// A shard or key cannot be created.
    pub fn new(
        addresses: &[SocketAddr],
        groups: usize,
        poll_config: PollConfig,
        mut entropy: Rng,
    ) -> Result<Self, StageError> {
        let mut secret = [0; 32];
        secret.fill_with(|| entropy.number() as u8);
        let key = Arc::new(PrivateKey::new(secret));
        let mut host_groups = Vec::new();
        for group in 0..groups {
            let name = format!("g{group}").parse().map_err(|_| other("a name"))?;
            let stage = Stage::new(name, Box::new(Ethernet::new()), poll_config)?;
            let inbox = stage.with(|shard| shard.ask(OpenInbox))?;
            host_groups.push(HostGroup { stage, inbox, directory: Directory::default() });
        }
        let ahead_ns = entropy.within(0, AHEAD_NS);
        let mut host = Self {
            host_groups,
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
            let tunnel_set = host.at(0, |_, moment| TunnelSet::new(Some(own), moment));
            let (sink, tunnel_links) = Default::default();
            host.unders.push(Under { address, tunnel_set, sink, tunnel_links });
        }
        Ok(host)
    }

    /// Returns the public key of the host.
    pub fn key(&self) -> PublicKey {
        self.key.public()
    }

    /// Returns all tunnels of the host.
    pub fn tunnels(&self) -> impl Iterator<Item = &Tunnel> {
        self.unders.iter().flat_map(|under| under.tunnel_set.tunnels())
    }

    /// Returns the monotonic time of the tunnels at this time of the world.
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

    /// Adds a tunnel to a peer, and a link over the tunnel to each group.
    ///
    /// # Errors
    /// The tunnel or a link is refused.
    pub fn link(&mut self, now: u64, line: &Line) -> Result<(), StageError> {
        let keys = line.key.map(|key| (self.key.clone(), key));
        let config =
            TunnelConfig { keys, remote: line.remote, longest: line.longest, on_demand: None };
        let Line { under, peer, transit, .. } = *line;
        let number =
            self.at(now, |host, moment| host.unders[under].tunnel_set.add(&config, moment));
        let number = number.map_err(other)?;
        self.unders[under].tunnel_links.insert(number, TunnelLinks::default());
        for group in 0..self.host_groups.len() {
            let id = LinkId(self.links.len() as u32 + 1);
            let tunnel =
                self.unders[under].tunnel_set.tunnel(number).ok_or_else(|| other("no tunnel"))?;
            let tx_path = tunnel.tx_path().clone();
            let carrier = LinkTxPath::new(tx_path, self.outbox.clone(), under, vni(group));
            let member = Membership {
                id,
                name: format!("l{}", id.0).parse().map_err(|_| other("a name"))?,
                peer: format!("h{peer}"),
                metric: under as u16,
                transit,
                segment: false,
                notices: Some(self.notices.0.clone()),
                station: None,
                carrier: Box::new(carrier),
            };
            self.links.insert(id, (under, number, group));
            self.host_groups[group].stage.with(|shard| shard.ask(Join(member)))?;
            let Under { tunnel_set, sink, tunnel_links, .. } = &mut self.unders[under];
            if let Some(links_of_tunnel) = tunnel_links.get_mut(&number) {
                links_of_tunnel.links.insert(vni(group), id);
            }
            if let Some(tunnel) = tunnel_set.tunnel_mut(number) {
                tunnel.carry(vni(group), sink);
            }
        }
        Ok(())
    }

    /// Receives a datagram. Returns true if the groups have work.
    pub fn receive(&mut self, now: u64, under: usize, datagram: &Datagram) -> bool {
        if self.unders.get(under).is_none_or(|under| under.address != datagram.to) {
            return false;
        }
        self.at(now, |host, moment| {
            let Under { tunnel_set, sink, .. } = &mut host.unders[under];
            // The tunnel set counts refused datagrams.
            let _ = tunnel_set.receive(moment, datagram.from, &datagram.bytes, sink);
            host.empty(under, moment.wall)
        })
    }

    /// Runs the timers that are due. Returns true if the groups have work.
    pub fn tick(&mut self, now: u64) -> bool {
        let mut busy = false;
        for under in 0..self.unders.len() {
            if self.unders[under].tunnel_set.deadline() <= Self::clock(now) {
                busy |= self.at(now, |host, moment| {
                    let Under { tunnel_set, sink, .. } = &mut host.unders[under];
                    tunnel_set.tick(moment, sink);
                    host.empty(under, moment.wall)
                });
            }
        }
        busy
    }

    /// Returns the time of the next timer, in time of the world.
    pub fn deadline(&self) -> u64 {
        let tunnel_deadline = self.unders.iter().map(|under| under.tunnel_set.deadline());
        let tunnel_deadline = tunnel_deadline.min().unwrap_or(u64::MAX).saturating_sub(CLOCK_NS);
        let shard_deadlines =
            self.host_groups.iter().filter_map(|host_group| host_group.stage.deadline_ns());
        shard_deadlines.fold(tunnel_deadline, u64::min)
    }

    /// Sends the datagrams in the outbox. Returns true if any was pending.
    pub fn post(&self, now: u64, net: &mut Net) -> bool {
        let parcels = self.outbox.take();
        let any = !parcels.is_empty();
        for (under, to, bytes) in parcels {
            net.post(now, Datagram { from: self.unders[under].address, to, bytes });
        }
        any
    }

    /// Announces address changes of the groups to the peers. Returns true if any was pending.
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
        let (Notice::AddressAdded(id, mac) | Notice::AddressRemoved(id, mac)) = notice else {
            // The tunnels are always awake.
            return;
        };
        let Some(&(under, number, group)) = self.links.get(&id) else { return };
        let directory = &mut self.host_groups[group].directory;
        let epoch = match notice {
            Notice::AddressAdded(..) => Some(directory.claim_local((0, mac.0), moment.wall)),
            Notice::AddressRemoved(..) | Notice::Wake(_) => {
                let change = directory.withdraw(Place::Here, (0, mac.0));
                self.host_groups[group].change(change);
                None
            }
        };
        let Under { tunnel_set, sink, .. } = &mut self.unders[under];
        if let Some(tunnel) = tunnel_set.tunnel_mut(number) {
            match epoch {
                // The number of guests stays below the limit of addresses.
                Some(epoch) => drop(tunnel.announce(moment.now, vni(group), mac.0, epoch)),
                None => tunnel.withdraw(moment.now, vni(group), mac.0),
            }
        }
        tunnel_set.tick(moment, sink);
        self.empty(under, moment.wall);
    }

    /// Delivers the output of the tunnel core to outbox and groups. Returns true if the groups have
    /// work.
    fn empty(&mut self, under: usize, wall: u64) -> bool {
        let Self { host_groups, unders, outbox, links, pool, .. } = self;
        let Under { sink, tunnel_links, .. } = &mut unders[under];
        for (to, datagram) in sink.datagrams.drain(..) {
            outbox.put((under, to, datagram));
        }
        let busy = !sink.events.is_empty() || !sink.frames.is_empty();
        for event in sink.events.drain(..) {
            if let Some(links_of_tunnel) = tunnel_links.get_mut(&event.tunnel) {
                apply_event(host_groups, links, links_of_tunnel, &event, wall);
            }
        }
        for frame in &sink.frames {
            let links_of_tunnel = tunnel_links.get(&frame.tunnel);
            let Some(&link) =
                links_of_tunnel.and_then(|links_of_tunnel| links_of_tunnel.links.get(&frame.vni))
            else {
                continue;
            };
            let Some(&(_, _, group)) = links.get(&link) else { continue };
            let Some(arrival) = flood::arrival(sink, frame) else { continue };
            let bytes = sink.bytes().get(arrival.at.clone()).unwrap_or(&[]);
            let frames = vec![ReceivedFrame { at: 0..bytes.len(), ..arrival }];
            let bytes = pool.adopt(bytes.to_vec());
            // A group with a full inbox loses the frame, as in the daemon.
            let _ = host_groups[group].inbox.push(Message::ReceivedFrames(ReceivedFrames {
                link,
                bytes,
                frames,
            }));
        }
        sink.clear();
        busy
    }
}

/// Applies a tunnel event to the groups that it concerns.
fn apply_event(
    host_groups: &mut [HostGroup],
    links: &BTreeMap<LinkId, (usize, u16, usize)>,
    links_of_tunnel: &mut TunnelLinks,
    event: &Event,
    wall: u64,
) {
    let group_of = |id: &LinkId| links.get(id).map(|(_, _, group)| *group);
    match event.kind {
        EventKind::Up | EventKind::Down => {
            links_of_tunnel.up = event.kind == EventKind::Up;
            for id in links_of_tunnel.links.values() {
                let standing = LinkStatus {
                    up: links_of_tunnel.up,
                    poor: false,
                    rtt_ns: None,
                    is_dormant: false,
                };
                if let Some(group) = group_of(id) {
                    let _ =
                        host_groups[group].inbox.push_urgent(Message::LinkStatus(*id, standing));
                    let report = Report::Reachable { place: place(*id), up: links_of_tunnel.up };
                    let changes = host_groups[group].directory.apply(report, wall);
                    host_groups[group].change(changes);
                }
            }
        }
        EventKind::Here { vni, mac, epoch } => {
            let Some(id) = links_of_tunnel.links.get(&vni) else { return };
            let Some(group) = group_of(id) else { return };
            let report = Report::Claimed { place: place(*id), key: (0, mac), epoch };
            let changes = host_groups[group].directory.apply(report, wall);
            host_groups[group].change(changes);
        }
        EventKind::Gone { vni, mac, .. } => {
            let Some(id) = links_of_tunnel.links.get(&vni) else { return };
            let Some(group) = group_of(id) else { return };
            let directory = &mut host_groups[group].directory;
            let change = directory.withdraw(place(*id), (0, mac));
            host_groups[group].change(change);
        }
        EventKind::Session
        | EventKind::Datagram(_)
        | EventKind::Roamed(_)
        | EventKind::Poor(_)
        | EventKind::Dormant
        | EventKind::Clone(_)
        | EventKind::Behind(_) => {}
    }
}
