//! The switch of a group: its ports, and the tables that forwarding consults.
//!
//! `crate::service` adds and removes ports; the modules of the data path and `crate::trace` look
//! up. A *switch index* ([`SwitchIndex`]) identifies a port by its slot in the shard, or a link
//! bundle by an index from 2^16 on ([`is_link`]). It is stable until the port or the bundle is
//! removed; then another may get it. The variables `place` hold switch indices.
//!
//! The module stores state and answers look-ups. It moves no frames, and it has no lock: the
//! dispatcher of the group owns it. Look-ups by name, and [`Switch::owner`], scan the ports and
//! belong to the control plane; look-ups by switch index cost one array access, other look-ups by
//! address a hash look-up.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use causeway_fabric::PortId;
use causeway_fabric::traffic::TrafficMatrix;
use causeway_model::GroupKind;
use causeway_model::{Mac, Name};
use causeway_model::{NetSpec, RouteEnd};
use causeway_wire::ethernet;
use causeway_wire::exchange::MacExchange;
use causeway_wire::frame::FlowKey;

use crate::counters::PortCounters;
use crate::duplicates::DuplicateFilter;
use crate::flood_sequence::FloodSequences;
use crate::guest_mac;
use crate::mirror::Mirrors;
use crate::pending_queue::PendingQueue;
use crate::resume::UnfinishedFrame;
use crate::route::{RouteTable, SwitchIndex};
use crate::standby::ForwarderElection;
use crate::table::{AddressInUse, AddressTable};
use crate::uplink::{Uplinks, is_link};

/// One net port.
#[derive(Debug)]
pub(crate) struct NetPortState {
    pub id: PortId,
    pub name: Name,
    pub spec: NetSpec,
    /// The configured address, as [`ethernet::number`].
    pub mac: u64,
    /// Exchange of the configured address and that of the guest, if they differ.
    pub exchange: Option<MacExchange>,
    /// Features that the driver negotiated; 0 while the device does not run.
    pub features: u64,
    /// Queue numbers of the running receive queues; empty while the device does not run.
    pub receive: Vec<usize>,
    /// Pending frames, by queue pair.
    pub pending_queues: Vec<PendingQueue>,
    /// Frames that did not fit in the port's turn, by queue pair.
    pub unfinished: Vec<VecDeque<UnfinishedFrame>>,
    pub counters: PortCounters,
    /// Next hop of the last unicast frame.
    pub cached_hop: Option<CachedHop>,
    /// The last refused source address, and whether it was reported.
    pub refused_source: Option<(u64, bool)>,
    /// Calls for any transmit queue of the port that serve no frame, because all frames of a call
    /// broke a rule.
    pub penalty_turns: u8,
}

/// A cached next hop, valid while the table version stays and the address does not age.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedHop {
    /// The address as [`ethernet::number`].
    pub destination: u64,
    /// Switch index of the next hop.
    pub to: u32,
    /// Version of the address table at the look-up.
    pub version: u64,
    /// Time at which the table entry ages.
    pub until_ns: u64,
}

impl CachedHop {
    /// Returns whether the cached next hop applies to a frame now.
    #[inline]
    pub fn holds(&self, destination: u64, version: u64, now_ns: u64) -> bool {
        (self.destination, self.version) == (destination, version) && now_ns < self.until_ns
    }
}

/// Returns the receive queue of a pair. Queues are ordered receiveq1, transmitq1, receiveq2, …
/// (virtio 1.3, 5.1.2).
pub(crate) const fn receive_queue(pair: usize) -> usize {
    pair.saturating_mul(2)
}

/// Returns the pair that a queue belongs to.
pub(crate) const fn pair(queue: usize) -> usize {
    queue >> 1
}

/// Returns whether a queue is a transmit queue.
pub(crate) const fn transmits(queue: usize) -> bool {
    queue & 1 == 1
}

impl NetPortState {
    pub fn new(id: PortId, name: Name, spec: NetSpec) -> Self {
        let pairs = usize::from(spec.queue_pairs);
        Self {
            id,
            name,
            mac: ethernet::number(spec.mac.0),
            exchange: guest_mac::of(&spec),
            spec,
            features: 0,
            receive: Vec::new(),
            pending_queues: std::iter::repeat_with(PendingQueue::default).take(pairs).collect(),
            unfinished: std::iter::repeat_with(VecDeque::new).take(pairs).collect(),
            counters: PortCounters::default(),
            cached_hop: None,
            refused_source: None,
            penalty_turns: 0,
        }
    }

    /// Returns the running receive queue of a flow. It is stable while the same queues run.
    #[inline]
    pub fn receive_queue_for(&self, flow: impl FnOnce() -> u64) -> Option<usize> {
        match self.receive.as_slice() {
            [] => None,
            [only] => Some(*only),
            many => {
                let at = flow().checked_rem(many.len() as u64)?;
                many.get(usize::try_from(at).ok()?).copied()
            }
        }
    }
}

/// The switch of a group. A port is identified by its slot in the shard, which is stable until the
/// port is removed.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    /// The ports, by switch index.
    places: Vec<Option<NetPortState>>,
    /// Addresses of ports and of peers, by switch index.
    pub table: AddressTable<u32>,
    /// Configured addresses of local ports (as [`ethernet::number`]) that are now behind the bundle
    /// at this switch index; the flag is set if the peer advertised the address. Ignored while the
    /// port's guest runs ([`Self::moved_to`]).
    pub away: HashMap<u64, (SwitchIndex, bool)>,
    /// The links.
    pub uplinks: Uplinks,
    /// Copies of flooded frames, detected by number.
    pub flood_sequences: FloodSequences,
    /// Copies of flooded frames, detected by content.
    pub duplicates: DuplicateFilter,
    /// The election of forwarding links to network segments.
    pub election: ForwarderElection,
    /// The operator's routes.
    pub routes: RouteTable,
    /// Decides whether link-local frames are forwarded.
    pub kind: GroupKind,
    /// The traffic matrix.
    pub traffic: TrafficMatrix,
    /// Running captures.
    pub mirrors: Mirrors,
    /// Addresses of the stations with a capture, as they were published last.
    pub observed_stations: Arc<[Mac]>,
    /// Switch indices of all ports and stations: the receivers of broadcasts.
    pub members: Vec<u32>,
    /// Members that learn: the receivers of frames to unknown addresses.
    pub learners: Vec<u32>,
    /// Random for each process, because guests choose the flows.
    flows: RandomState,
}

impl Switch {
    /// Returns the switch index of a port, if it exists.
    #[inline]
    pub fn place(&self, id: PortId) -> Option<u32> {
        let place = u32::try_from(id.slot()).ok()?;
        self.get(place).filter(|port| port.id == id).map(|_| place)
    }

    /// Returns the port at a switch index.
    #[inline]
    pub fn get(&self, place: u32) -> Option<&NetPortState> {
        self.places.get(place as usize)?.as_ref()
    }

    /// Returns the port at a switch index.
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut NetPortState> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// Returns all ports.
    pub fn iter(&self) -> impl Iterator<Item = &NetPortState> {
        self.places.iter().flatten()
    }

    /// Returns the switch index of a route's end, if it exists.
    pub fn end(&self, end: &RouteEnd) -> Option<SwitchIndex> {
        match end {
            RouteEnd::Interface(name) => {
                let port = self.iter().find(|p| p.name == *name).and_then(|p| self.place(p.id));
                port.or_else(|| self.station_named(name))
            }
            RouteEnd::Edge(name) => self.uplinks.place_named(name),
        }
    }

    /// Returns the name of the port or link at a switch index, or "-".
    pub fn name(&self, place: SwitchIndex) -> String {
        let port = || self.get(place).map(|port| port.name.to_string());
        let link = || self.uplinks.name(place).map(Name::to_string);
        if is_link(place) { link() } else { port() }.unwrap_or_else(|| "-".into())
    }

    /// Returns all ports.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut NetPortState> {
        self.places.iter_mut().flatten()
    }

    /// Adds a port.
    ///
    /// # Errors
    /// Returns [`AddressInUse`] if another port has its address.
    pub fn insert(&mut self, port: NetPortState) -> Result<(), AddressInUse> {
        let slot = port.id.slot();
        let place = u32::try_from(slot).map_err(|_| AddressInUse)?;
        self.table.add(port.spec.mac.0, place)?;
        self.members.push(place);
        if port.spec.learn {
            self.learners.push(place);
        }
        if self.places.len() <= slot {
            self.places.resize_with(slot.saturating_add(1), || None);
        }
        if let Some(free) = self.places.get_mut(slot) {
            *free = Some(port);
        }
        Ok(())
    }

    /// Removes a port and its addresses.
    pub fn remove(&mut self, place: u32) -> Option<NetPortState> {
        let port = self.places.get_mut(place as usize)?.take()?;
        self.away.remove(&port.mac);
        self.table.remove(place);
        self.members.retain(|&p| p != place);
        self.learners.retain(|&p| p != place);
        Some(port)
    }

    /// Returns the port with a configured address.
    pub fn owner(&self, mac: Mac) -> Option<&NetPortState> {
        self.places.iter().flatten().find(|p| p.spec.mac == mac)
    }

    /// Returns the switch index of the port with a configured address, if its guest runs.
    pub fn running(&self, number: u64) -> Option<u32> {
        let place = self.table.configured(number)?;
        self.get(place).filter(|port| !port.receive.is_empty()).map(|_| place)
    }

    /// Returns the bundle behind which a port's configured address is now. A peer's claim has no
    /// effect while the port's guest runs.
    pub fn moved_to(&self, number: u64) -> Option<SwitchIndex> {
        let (at, _) = self.away.get(&number)?;
        self.running(number).is_none().then_some(*at)
    }

    /// Returns the peer that claims the address of a port whose guest runs.
    pub fn contesting_peer(&self, port: &NetPortState) -> Option<SwitchIndex> {
        let (at, reported) = self.away.get(&port.mac)?;
        (*reported && self.uplinks.is_up(*at) && !port.receive.is_empty()).then_some(*at)
    }

    /// Returns the keyed hash of a flow.
    pub fn flow(&self, key: FlowKey) -> u64 {
        self.flows.hash_one(key)
    }
}
