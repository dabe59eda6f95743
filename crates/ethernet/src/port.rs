//! What the service knows of its ports and groups.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use causeway_fabric::spec::NetSpec;
use causeway_fabric::{GroupId, Mac, Name, PortId};

use crate::backlog::Backlog;
use crate::counters::Counters;
use crate::table::Table;

/// One net port.
#[derive(Debug)]
pub(crate) struct NetPort {
    pub id: PortId,
    pub name: Name,
    pub group: GroupId,
    pub spec: NetSpec,
    /// What its driver negotiated; 0 while it does not run.
    pub features: u64,
    /// Receive queues that run.
    pub receive: Vec<usize>,
    /// Frames that wait, by queue pair.
    pub backlogs: Vec<Backlog>,
    pub counters: Counters,
}

/// The receive queue of a pair, and the pair of a queue: receiveq1, transmitq1, receiveq2, …
pub(crate) const fn receive_queue(pair: usize) -> usize {
    pair.saturating_mul(2)
}

/// The pair that a queue belongs to.
pub(crate) const fn pair(queue: usize) -> usize {
    queue >> 1
}

/// Whether a queue carries what the guest sends.
pub(crate) const fn transmits(queue: usize) -> bool {
    queue & 1 == 1
}

impl NetPort {
    pub fn new(id: PortId, name: Name, group: GroupId, spec: NetSpec) -> Self {
        let pairs = usize::from(spec.queue_pairs);
        Self {
            id,
            name,
            group,
            spec,
            features: 0,
            receive: Vec::new(),
            backlogs: std::iter::repeat_with(Backlog::default).take(pairs).collect(),
            counters: Counters::default(),
        }
    }

    /// The running receive queue for a flow, the same for all its frames while the same queues run.
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

/// The ports that may talk to each other.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub table: Table<u32>,
    pub members: Vec<u32>,
    /// Those of `members` that learn: where frames to unknown addresses go.
    pub learners: Vec<u32>,
}

/// All ports and groups. Ports are named by their place, which stays as long as they do.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    places: Vec<Option<NetPort>>,
    by_id: HashMap<PortId, u32>,
    pub groups: HashMap<GroupId, Group>,
    /// Keyed anew in every process: guests choose the flows.
    flows: RandomState,
}

impl Directory {
    /// The place of a port.
    #[inline]
    pub fn place(&self, id: PortId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    #[inline]
    pub fn get(&self, place: u32) -> Option<&NetPort> {
        self.places.get(place as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut NetPort> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut NetPort> {
        self.places.iter_mut().flatten()
    }

    /// Adds a port; its address must have been entered before.
    pub fn insert(&mut self, place: u32, port: NetPort) {
        let group = self.groups.entry(port.group).or_default();
        group.members.push(place);
        if port.spec.learn {
            group.learners.push(place);
        }
        self.by_id.insert(port.id, place);
        if let Some(slot) = self.places.get_mut(place as usize) {
            *slot = Some(port);
        }
    }

    /// A free place for one more port.
    pub fn vacancy(&mut self) -> u32 {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len().saturating_sub(1)
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Removes a port and its addresses, and its group with the last port.
    pub fn remove(&mut self, place: u32) -> Option<NetPort> {
        let port = self.places.get_mut(place as usize)?.take()?;
        self.by_id.remove(&port.id);
        if let Some(group) = self.groups.get_mut(&port.group) {
            group.table.remove(place);
            group.members.retain(|&p| p != place);
            group.learners.retain(|&p| p != place);
            if group.members.is_empty() {
                self.groups.remove(&port.group);
            }
        }
        Some(port)
    }

    /// The port of a group that has an address configured.
    pub fn owner(&self, group: GroupId, mac: Mac) -> Option<&NetPort> {
        let members = &self.groups.get(&group)?.members;
        members.iter().filter_map(|&p| self.get(p)).find(|p| p.spec.mac == mac)
    }

    /// The hash of a flow.
    pub fn flow(&self, key: [u8; 40]) -> u64 {
        self.flows.hash_one(key)
    }
}
