//! Ports: what is attached where, and how a service reaches its rings.

use std::collections::{BTreeMap, HashMap};

use causeway_attach::{Connection, Device, VirtQueue};
use causeway_host::Account;
use causeway_memory::Map;
use causeway_ring::{DoorbellError, Queue, RingError};

use crate::charged;
use crate::footprint::Footprint;
use crate::limits::{BARRED_DOUBLINGS_MAX, BARRED_NS, PUNCHED_BYTES};
use crate::listen::Listener;
use crate::loglimit::LogLimit;
use crate::pace::{Pace, Pacing};
use crate::rate::Bucket;
use crate::wakes::{self, Verdict, Wakes};
use crate::watch::Watch;
use causeway_model::PollMode;
use causeway_model::PortState;
use causeway_model::{Name, PortSpec};

/// Bytes of a MiB, as a power of two.
const MIB_SHIFT: u32 = 20;

/// Names a port for as long as it exists; never reused for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId {
    pub(crate) slot: u16,
    pub(crate) serial: u32,
}

impl PortId {
    /// A small number that no other living port has: for tables with a place per port.
    #[inline]
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }
}

/// Names a group; groups are few and compared often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub(crate) u32);

/// One port.
#[derive(Debug)]
pub struct Port {
    /// As configured.
    pub spec: PortSpec,
    /// Its tenant.
    pub group: GroupId,
    pub(crate) id: PortId,
    /// The account of the descriptors that its frontends hand over.
    pub giver: Account,
    pub(crate) state: PortState,
    pub(crate) fault: Option<Noted>,
    /// The last event that cost the guest something although it broke no rule.
    pub(crate) notice: Option<Noted>,
    pub(crate) faults_total: u64,
    /// Why this host last could not serve a frontend.
    pub(crate) host_fault: Option<String>,
    pub(crate) host_faults_total: u64,
    pub(crate) connects_total: u64,
    /// No frontend is taken before.
    pub(crate) barred_until_ns: u64,
    pub(crate) log: LogLimit,
    /// None where frontends are handed in ([`crate::Shard::connect`]).
    pub(crate) listener: Option<Door>,
    /// Frontends that it may still take.
    pub(crate) connects: Bucket,
    /// What its frontends may still say.
    pub(crate) messages: Bucket,
    /// The attachment of the present front end.
    pub(crate) connection: Option<Connection>,
    /// `None` while the port reads no messages of its front end.
    pub(crate) connection_watch: Option<Watch>,
    pub(crate) queues: Vec<QueueWork>,
    /// Bytes that its memory files had when they were last looked at, by inode.
    pub(crate) files: BTreeMap<u64, u64>,
    /// When one of them was last found to have lost many.
    pub(crate) punched_ns: Option<u64>,
    /// What its frontend's memory costs this process.
    pub(crate) footprint: Footprint,
    /// How often a frontend was closed for that.
    pub(crate) footprint_faults: u32,
    /// What notifications of its frontends cost.
    pub(crate) wakes: Wakes,
    /// No notification is sent before: see [`QueueWork::unwoken`].
    pub(crate) wakes_paused_until_ns: u64,
}

/// An event that `causeway port show` shows with its age.
#[derive(Debug, Clone)]
pub(crate) struct Noted {
    pub text: String,
    pub at_ns: u64,
    /// `connects_total` at that time: which frontend it concerned.
    pub frontend: u64,
}

impl Noted {
    /// Whole seconds since it happened.
    pub(crate) fn age_seconds(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.at_ns) / 1_000_000_000
    }
}

/// A port's socket.
#[derive(Debug)]
pub(crate) struct Door {
    pub listener: Listener,
    /// None while it is left alone.
    pub watch: Option<Watch>,
}

/// Why a guest could not be shown what was put in its ring.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Notification(#[from] DoorbellError),
    #[error("{}", wakes::EXCESS)]
    Excess,
}

impl PublishError {
    /// Returns whether the frontend held up the dispatcher, and could again at once.
    pub(crate) fn bars(&self) -> bool {
        matches!(self, Self::Notification(_) | Self::Excess)
    }
}

/// What the dispatcher knows of one queue.
#[derive(Debug, Default)]
pub(crate) struct QueueWork {
    pub doorbell: Option<Watch>,
    /// In the dispatcher's list of queues to serve.
    pub active: bool,
    /// When it last gave work, for the idle spin.
    pub worked_ns: u64,
    /// Whether it is polled or rings.
    pub pace: Pace,
    /// Has used entries that are not published.
    pub dirty: bool,
    /// Its guest is to be notified at the end of the turn.
    pub notify_due: bool,
    /// Its guest is to be notified when the pause of its port's notifications is over.
    pub unwoken: bool,
    /// Doorbells since the queue started for which its ring had never had a chain.
    pub vain_doorbells: u8,
}

impl QueueWork {
    /// Whether it is polled although it gives nothing.
    #[inline]
    pub(crate) fn polled(&self, pacing: &Pacing, now_ns: u64, spin_ns: u64) -> bool {
        self.pace.mode(pacing) == PollMode::VmmDriven
            && now_ns.saturating_sub(self.worked_ns) < spin_ns
    }
}

impl Port {
    /// Its name in the shard.
    pub fn id(&self) -> PortId {
        self.id
    }

    /// Returns the virtio device that the front end has set up, if one is connected.
    #[inline]
    pub fn device(&self) -> Option<&Device> {
        self.connection.as_ref()?.device()
    }

    /// Negotiated virtio features; 0 while none are.
    #[inline]
    pub fn features(&self) -> u64 {
        self.device().map_or(0, Device::features)
    }

    /// The running queue `index` and the memory its chains lie in.
    #[inline]
    pub fn queue(&mut self, index: usize) -> Option<(&Map, &mut Queue)> {
        let device = self.connection.as_mut()?.device_mut()?;
        let queue: &mut VirtQueue = device.queues.get_mut(index)?;
        Some((&device.map, queue.ring.as_mut()?))
    }

    /// Returns whether queue `index` runs.
    #[inline]
    pub fn runs(&self, index: usize) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.runs(index))
    }

    /// Returns the guest's memory in its present epoch.
    #[inline]
    pub fn map(&self) -> Option<&Map> {
        self.connection.as_ref()?.map()
    }

    /// Whether a part of what the guest granted is gone, because its file shrank.
    #[inline]
    pub(crate) fn memory_lost(&self) -> bool {
        self.map().is_some_and(Map::poisoned)
    }

    /// An event of now, of the present frontend or, if there is none, of the last one.
    pub(crate) fn noted(&self, now_ns: u64, text: String) -> Noted {
        Noted { text, at_ns: now_ns, frontend: self.connects_total }
    }

    /// Takes no frontend for a while: the last one held us up, and could again at once.
    pub(crate) fn bar(&mut self, now_ns: u64) {
        self.barred_until_ns = now_ns.saturating_add(BARRED_NS);
    }

    /// Looks at what this process pays for the guest's memory, if it is time to. Returns why the port
    /// is to be closed, if it is.
    #[inline]
    pub(crate) fn look_at_memory(&mut self, now_ns: u64) -> Option<String> {
        if self.footprint.is_due(now_ns) { self.pay_for_memory(now_ns) } else { None }
    }

    #[cold]
    fn pay_for_memory(&mut self, now_ns: u64) -> Option<String> {
        let allocated = self.look_at_files(now_ns);
        let paid = self.footprint.look(now_ns, allocated, charged::charged());
        let own = self.spec.memory_max.map(|mib| u64::from(mib) << MIB_SHIFT);
        let most = own.or_else(charged::default_max)?;
        if paid <= most {
            return None;
        }
        let longer = self.footprint_faults.min(BARRED_DOUBLINGS_MAX);
        self.footprint_faults = self.footprint_faults.saturating_add(1);
        self.barred_until_ns = now_ns.saturating_add(BARRED_NS << longer);
        let [paid, most] = [paid, most].map(|bytes| bytes >> MIB_SHIFT);
        Some(format!(
            "the daemon had to allocate {paid} MiB of its memory that it had never touched, more \
             than memory_max ({most} MiB): let the VMM allocate it, or raise memory_max"
        ))
    }

    /// Looks at how much the guest's memory files have allocated; returns the sum.
    pub(crate) fn look_at_files(&mut self, now_ns: u64) -> u64 {
        let files = self.map().map(Map::allocated).unwrap_or_default();
        let lost = |(inode, before): (&u64, &u64)| {
            let now = files.get(inode).unwrap_or(before);
            before.saturating_sub(*now)
        };
        if self.files.iter().map(lost).max().is_some_and(|lost| lost >= PUNCHED_BYTES) {
            self.punched_ns = Some(now_ns);
        }
        self.files = files;
        self.files.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    }

    /// Returns whether its memory files lost pages while its queues had work, since `since_ns`: such
    /// a port held up its dispatcher if anything did.
    pub(crate) fn punched_since(&mut self, since_ns: u64, now_ns: u64) -> bool {
        if self.connection.is_none() || self.queues.iter().all(|work| work.worked_ns < since_ns) {
            return false;
        }
        self.look_at_files(now_ns);
        self.punched_ns.is_some_and(|at| at >= since_ns)
    }

    /// Judges how queue `index` is dispatched, by the chains that were taken from it.
    #[inline]
    pub(crate) fn judge(&mut self, index: usize, pacing: &Pacing, now_ns: u64) {
        let Some(taken) = self.queue(index).map(|(_, ring)| ring.popped()) else { return };
        if let Some(work) = self.queues.get_mut(index) {
            work.pace.judge(pacing, now_ns, taken);
        }
    }

    /// Shows the guest what was pushed to queue `index`. Returns whether the guest asks to be notified
    /// of it.
    pub(crate) fn publish(&mut self, index: usize) -> Result<bool, PublishError> {
        let Some((_, ring)) = self.queue(index) else { return Ok(false) };
        Ok(ring.publish()?)
    }

    /// Notifies the guest of queue `index`, now or after the pause. Returns how long no notifications
    /// are sent from now on, in nanoseconds, if their cost demands that.
    pub(crate) fn notify(
        &mut self,
        index: usize,
        now_ns: u64,
    ) -> Result<Option<u64>, PublishError> {
        let paused = now_ns < self.wakes_paused_until_ns;
        let Some(work) = self.queues.get_mut(index) else { return Ok(None) };
        (work.unwoken, work.notify_due) = (paused, false);
        let Some(connection) = self.connection.as_ref().filter(|_| !paused) else {
            return Ok(None);
        };
        let attachment = connection.attachment();
        let (notified, verdict) = self.wakes.charge(|| attachment.notify(index));
        notified?;
        match verdict {
            Verdict::Fine => Ok(None),
            Verdict::Pause(pause) => {
                self.wakes_paused_until_ns = now_ns.saturating_add(pause);
                Ok(Some(pause))
            }
            Verdict::Excess => Err(PublishError::Excess),
        }
    }
}

/// All ports, by id and by name.
#[derive(Debug, Default)]
pub struct Ports {
    slots: Vec<Option<Port>>,
    names: HashMap<Name, PortId>,
    groups: Vec<(GroupId, Name)>,
    serial: u32,
    next_group: u32,
}

impl Ports {
    /// The port, if it still exists.
    #[inline]
    pub fn get(&self, id: PortId) -> Option<&Port> {
        self.slots.get(usize::from(id.slot))?.as_ref().filter(|p| p.id == id)
    }

    /// The port, if it still exists.
    #[inline]
    pub fn get_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.slots.get_mut(usize::from(id.slot))?.as_mut().filter(|p| p.id == id)
    }

    /// Two different ports at once: a sender and a receiver.
    #[inline]
    pub fn pair(&mut self, a: PortId, b: PortId) -> Option<(&mut Port, &mut Port)> {
        let slots = [usize::from(a.slot), usize::from(b.slot)];
        let [first, second] = self.slots.get_disjoint_mut(slots).ok()?;
        let first = first.as_mut().filter(|p| p.id == a)?;
        let second = second.as_mut().filter(|p| p.id == b)?;
        Some((first, second))
    }

    /// By name.
    pub fn by_name(&self, name: &Name) -> Option<&Port> {
        self.get(*self.names.get(name)?)
    }

    /// The port in `slot`, whichever it is now.
    pub(crate) fn at_slot(&self, slot: u16) -> Option<&Port> {
        self.slots.get(usize::from(slot))?.as_ref()
    }

    /// All ports, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.slots.iter().flatten()
    }

    /// A free place for a new port; `None` when `room` are there.
    pub(crate) fn vacancy(&mut self, room: usize) -> Option<PortId> {
        let free = self.slots.iter().position(Option::is_none);
        let slot = match free {
            Some(slot) => slot,
            None if self.slots.len() < room => {
                self.slots.push(None);
                self.slots.len().saturating_sub(1)
            }
            None => return None,
        };
        self.serial = self.serial.wrapping_add(1);
        Some(PortId { slot: u16::try_from(slot).ok()?, serial: self.serial })
    }

    pub(crate) fn insert(&mut self, port: Port) {
        let id = port.id;
        self.names.insert(port.spec.name.clone(), id);
        if let Some(slot) = self.slots.get_mut(usize::from(id.slot)) {
            *slot = Some(port);
        }
    }

    pub(crate) fn remove(&mut self, id: PortId) -> Option<Port> {
        let slot = self.slots.get_mut(usize::from(id.slot))?;
        let port = slot.take_if(|p| p.id == id)?;
        self.names.remove(&port.spec.name);
        Some(port)
    }

    /// The id of a group.
    pub fn group(&self, name: &Name) -> Option<GroupId> {
        self.groups.iter().find(|(_, n)| n == name).map(|(id, _)| *id)
    }

    /// The name of a group.
    pub fn group_name(&self, id: GroupId) -> Option<&Name> {
        self.groups.iter().find(|(i, _)| *i == id).map(|(_, name)| name)
    }

    /// All groups, in the order they were added.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Name)> {
        self.groups.iter().map(|(id, name)| (*id, name))
    }

    pub(crate) fn add_group(&mut self, name: Name) -> GroupId {
        let id = GroupId(self.next_group);
        self.next_group = self.next_group.wrapping_add(1);
        self.groups.push((id, name));
        id
    }
}
