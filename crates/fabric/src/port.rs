//! Ports: attached devices, and access to their rings.
//!
//! A [`Port`] holds the attachment of its frontend, the dispatch state of its queues and the
//! accounts that bound its cost. The shard adds and deletes ports and connects their frontends; a
//! service reaches a port by [`Context::ports`](crate::Context::ports) and its rings by
//! [`Port::queue`]. A service sees neither the socket nor the attachment of a port, unless it makes
//! or keeps the attachment itself ([`crate::Service::connect`], [`crate::Service::attached`]).
//!
//! A port belongs to a single shard and is not shared between threads. Without a frontend it has no
//! device, no queue and no memory: accessors return `None`, no features, or false. [`PortId`]
//! becomes stale
//! when its port is deleted; look-ups then return `None`. The module does not parse frames or
//! packets, and does not limit the number of ports: the caller of `Ports::free_slot` does.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use causeway_attach::{Connection, Device, VirtQueue};
use causeway_host::Account;
use causeway_memory::Map;
use causeway_ring::{DoorbellError, Queue, RingError};

use crate::connector::Connector;
use crate::dispatch_mode::{PollConfig, QueueMode};
use crate::footprint::Footprint;
use crate::limits::{BARRED_DOUBLINGS_MAX, BARRED_NS, PUNCHED_BYTES};
use crate::listen::Listener;
use crate::log_limit::LogLimit;
use crate::memory_charge;
use crate::peer_user::RefusedUsers;
use crate::rate::Bucket;
use crate::wakes::{self, Verdict, WakeAccount};
use crate::watch::Watch;
use causeway_model::PollMode;
use causeway_model::PortState;
use causeway_model::{Name, PortSpec};

/// Binary logarithm of a MiB.
const MIB_SHIFT: u32 = 20;

/// Identifies a port in its shard for as long as the port exists; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId {
    /// Index in [`Ports`]; reused after the port is deleted.
    pub(crate) slot: u16,
    /// Distinguishes the port from earlier ports in the slot.
    pub(crate) serial: u32,
}

impl PortId {
    /// Returns an index that no other existing port has, for tables with an entry per port.
    #[inline]
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }
}

/// Identifies a group in a shard; a small number, because groups are compared often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub(crate) u32);

/// A port: a device that one frontend at a time attaches.
#[derive(Debug)]
pub struct Port {
    /// Configuration; it does not change while the port exists.
    pub spec: PortSpec,
    /// Group.
    pub group: GroupId,
    pub(crate) id: PortId,
    /// Account of the descriptors that the port's frontends send.
    pub descriptor_account: Account,
    /// State of the attachment.
    pub(crate) state: PortState,
    /// Last violation by a guest or frontend.
    pub(crate) fault: Option<PortEvent>,
    /// Last event that affected the guest although it broke no rule.
    pub(crate) notice: Option<PortEvent>,
    /// Violations by guests and frontends, also those that left the port open.
    pub(crate) faults_total: u64,
    /// Reason of the last frontend that this host could not serve.
    pub(crate) host_fault: Option<String>,
    /// Frontends that this host could not serve.
    pub(crate) host_faults_total: u64,
    /// Frontends that connected.
    pub(crate) connects_total: u64,
    /// Time before which no frontend is accepted.
    pub(crate) barred_until_ns: u64,
    /// Limit of log lines that the port causes.
    pub(crate) log: LogLimit,
    /// `None` if frontends are passed in by [`crate::Shard::connect`].
    pub(crate) listener: Option<ListeningSocket>,
    /// State of the port's own attempts to connect, if its frontend listens.
    pub(crate) connector: Option<Connector>,
    /// Users whose processes may attach; `None` admits all.
    pub(crate) users: Option<Vec<u32>>,
    /// Processes of other users.
    pub(crate) refused_users: RefusedUsers,
    /// Limit of accepted frontends.
    pub(crate) connects: Bucket,
    /// Limit of the cost of their messages.
    pub(crate) messages: Bucket,
    /// Attachment of the present frontend.
    pub(crate) connection: Option<Connection>,
    /// `None` while the port reads no messages of its frontend.
    pub(crate) connection_watch: Option<Watch>,
    /// Queues of the device, in virtio order; their number does not change.
    pub(crate) queues: Vec<QueueWork>,
    /// Bytes of its memory files in the last sample, by inode.
    pub(crate) files: BTreeMap<u64, u64>,
    /// Time at which a sample last found that a file had lost many bytes.
    pub(crate) files_shrank_ns: Option<u64>,
    /// Guest memory that is charged to this process.
    pub(crate) footprint: Footprint,
    /// Number of frontends that were closed for their `footprint`; each doubles the next refusal
    /// period.
    pub(crate) footprint_faults: u32,
    /// Cost of its notifications.
    pub(crate) wakes: WakeAccount,
    /// Time before which no notification is sent: see [`QueueWork::notify_later`].
    pub(crate) wakes_paused_until_ns: u64,
}

/// An event that `causeway port show` shows with its age.
#[derive(Debug, Clone)]
pub(crate) struct PortEvent {
    pub text: String,
    /// Time of the event, on the shard's clock.
    pub at_ns: u64,
    /// `connects_total` at that time, which identifies the frontend.
    pub frontend: u64,
}

impl PortEvent {
    /// Returns the age in whole seconds.
    pub(crate) fn age_seconds(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.at_ns) / 1_000_000_000
    }
}

/// The listening socket of a port.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub listener: Listener,
    /// `None` while the socket is paused.
    pub watch: Option<Watch>,
}

/// An error that keeps used entries or their notification from a guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    /// The ring is broken.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The notification failed, or blocked for too long.
    #[error(transparent)]
    Notification(#[from] DoorbellError),
    /// Notifications take more than their share of the dispatcher ([`crate::wakes`]).
    #[error("{}", wakes::EXCESS)]
    Excess,
}

impl PublishError {
    /// Returns whether the frontend stalled the dispatcher and could at once do so again.
    pub(crate) fn is_barred(&self) -> bool {
        matches!(self, Self::Notification(_) | Self::Excess)
    }
}

/// Dispatch state of a queue.
#[derive(Debug, Default)]
pub(crate) struct QueueWork {
    /// Watch of its doorbell; `None` while the queue is stopped, or if the guest rings by messages.
    pub doorbell: Option<Watch>,
    /// The queue is in the list of active queues.
    pub is_active: bool,
    /// The queue is served when other frontends have returned (`crate::shard::returns`).
    pub is_withheld: bool,
    /// Time of its last work, for the idle spin.
    pub worked_ns: u64,
    /// Dispatch mode.
    pub queue_mode: QueueMode,
    /// The queue has used entries that are not published.
    pub is_dirty: bool,
    /// The guest is to be notified at the end of the turn.
    pub notify_due: bool,
    /// The guest is to be notified when the pause of its port's notifications ends.
    pub notify_later: bool,
    /// Doorbells since the queue started while its ring had never had a chain.
    pub empty_doorbells: u8,
}

impl QueueWork {
    /// Returns whether the empty queue is still polled.
    #[inline]
    pub(crate) fn is_polled(&self, poll_config: &PollConfig, now_ns: u64, spin_ns: u64) -> bool {
        self.queue_mode.mode(poll_config) == PollMode::VmmDriven
            && now_ns.saturating_sub(self.worked_ns) < spin_ns
    }
}

impl Port {
    /// Returns its identifier in the shard.
    pub fn id(&self) -> PortId {
        self.id
    }

    /// Returns the virtio device that the frontend has set up, if a frontend is connected.
    #[inline]
    pub fn device(&self) -> Option<&Device> {
        self.connection.as_ref()?.device()
    }

    /// Returns the negotiated virtio features; 0 before negotiation.
    #[inline]
    pub fn features(&self) -> u64 {
        self.device().map_or(0, Device::features)
    }

    /// Returns the running queue `index` and the memory map of its chains; `None` if the queue does
    /// not run.
    #[inline]
    pub fn queue(&mut self, index: usize) -> Option<(&Map, &mut Queue)> {
        let device = self.connection.as_mut()?.device_mut()?;
        let queue: &mut VirtQueue = device.queues.get_mut(index)?;
        Some((&device.map, queue.ring.as_mut()?))
    }

    /// Returns whether queue `index` runs.
    #[inline]
    pub fn is_running(&self, index: usize) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_running(index))
    }

    /// Returns the guest's memory in its present epoch; `None` without a frontend.
    #[inline]
    pub fn map(&self) -> Option<&Map> {
        self.connection.as_ref()?.map()
    }

    /// Returns the guest's memory in its present epoch, shared, if the attachment offers it.
    pub fn shared_map(&self) -> Option<Arc<Map>> {
        self.connection.as_ref()?.attachment().shared_map()
    }

    /// Returns whether granted memory is gone because its file shrank.
    #[inline]
    pub(crate) fn memory_lost(&self) -> bool {
        self.map().is_some_and(Map::is_poisoned)
    }

    /// Returns the reason of the last violation of a rule, and its age in seconds.
    pub fn last_fault(&self, now_ns: u64) -> Option<(&str, u64)> {
        self.fault.as_ref().map(|fault| (fault.text.as_str(), fault.age_seconds(now_ns)))
    }

    /// Returns the last event that affected the guest although it broke no rule, and its age in
    /// seconds.
    pub fn last_notice(&self, now_ns: u64) -> Option<(&str, u64)> {
        self.notice.as_ref().map(|notice| (notice.text.as_str(), notice.age_seconds(now_ns)))
    }

    /// Returns an event of now, of the present frontend or, if there is none, of the last frontend.
    pub(crate) fn event_now(&self, now_ns: u64, text: String) -> PortEvent {
        PortEvent { text, at_ns: now_ns, frontend: self.connects_total }
    }

    /// Refuses frontends for [`BARRED_NS`] (30 s): the last frontend stalled the dispatcher, and
    /// could at once do so again. A further call starts the time again; a later end stays.
    pub(crate) fn bar(&mut self, now_ns: u64) {
        self.barred_until_ns = self.barred_until_ns.max(now_ns.saturating_add(BARRED_NS));
    }

    /// Samples the charged memory of the guest if a sample is due. Returns the reason if the port
    /// is to be closed.
    #[inline]
    pub(crate) fn check_memory(&mut self, now_ns: u64) -> Option<String> {
        if self.footprint.is_due(now_ns) { self.sample_memory(now_ns) } else { None }
    }

    /// As [`Self::check_memory`], without regard to when a sample is due.
    #[cold]
    fn sample_memory(&mut self, now_ns: u64) -> Option<String> {
        let allocated = self.sample_files(now_ns);
        let paid = self.footprint.sample(now_ns, allocated, memory_charge::charged_bytes());
        let own = self.spec.memory_max.map(|mib| u64::from(mib) << MIB_SHIFT);
        let most = own.or_else(memory_charge::default_max)?;
        if paid <= most {
            return None;
        }
        let longer = self.footprint_faults.min(BARRED_DOUBLINGS_MAX);
        self.footprint_faults = self.footprint_faults.saturating_add(1);
        let until_ns = now_ns.saturating_add(BARRED_NS << longer);
        self.barred_until_ns = self.barred_until_ns.max(until_ns);
        let [paid, most] = [paid, most].map(|bytes| bytes >> MIB_SHIFT);
        Some(format!(
            "the daemon had to allocate {paid} MiB of guest memory that the guest had never \
             touched, more than memory_max ({most} MiB): let the VMM allocate it, or raise memory_max"
        ))
    }

    /// Samples the allocation of the guest's memory files, and returns the sum in bytes.
    pub(crate) fn sample_files(&mut self, now_ns: u64) -> u64 {
        let files = self.map().map(Map::allocated).unwrap_or_default();
        let lost = |(inode, before): (&u64, &u64)| {
            let now = files.get(inode).unwrap_or(before);
            before.saturating_sub(*now)
        };
        if self.files.iter().map(lost).max().is_some_and(|lost| lost >= PUNCHED_BYTES) {
            self.files_shrank_ns = Some(now_ns);
        }
        self.files = files;
        self.files.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    }

    /// Returns whether the memory files lost pages while the queues had work, since `since_ns`:
    /// such a port may have stalled its dispatcher.
    pub(crate) fn shrank_since(&mut self, since_ns: u64, now_ns: u64) -> bool {
        if self.connection.is_none() || self.queues.iter().all(|work| work.worked_ns < since_ns) {
            return false;
        }
        self.sample_files(now_ns);
        self.files_shrank_ns.is_some_and(|at| at >= since_ns)
    }

    /// Updates the dispatch mode of queue `index` by the chains popped from it.
    #[inline]
    pub(crate) fn update_mode(&mut self, index: usize, poll_config: &PollConfig, now_ns: u64) {
        let Some(taken) = self.queue(index).map(|(_, ring)| ring.popped()) else { return };
        if let Some(work) = self.queues.get_mut(index) {
            work.queue_mode.update(poll_config, now_ns, taken);
        }
    }

    /// Publishes the used entries of queue `index`. Returns whether the guest asks for a
    /// notification.
    pub(crate) fn publish(&mut self, index: usize) -> Result<bool, PublishError> {
        let Some((_, ring)) = self.queue(index) else { return Ok(false) };
        Ok(ring.publish()?)
    }

    /// Notifies the guest of queue `index`, now or after the pause. Returns the length of a new
    /// pause of notifications, in nanoseconds, if their cost demands a pause.
    pub(crate) fn notify(
        &mut self,
        index: usize,
        now_ns: u64,
    ) -> Result<Option<u64>, PublishError> {
        let paused = now_ns < self.wakes_paused_until_ns;
        let Some(work) = self.queues.get_mut(index) else { return Ok(None) };
        (work.notify_later, work.notify_due) = (paused, false);
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

/// All ports of a shard, by identifier and by name.
#[derive(Debug, Default)]
pub struct Ports {
    slots: Vec<Option<Port>>,
    /// Identifiers by name; names are unique.
    names: HashMap<Name, PortId>,
    groups: Vec<(GroupId, Name)>,
    /// Serial number of the last port.
    serial: u32,
    next_group: u32,
}

impl Ports {
    /// Returns the port if it still exists.
    #[inline]
    pub fn get(&self, id: PortId) -> Option<&Port> {
        self.slots.get(usize::from(id.slot))?.as_ref().filter(|p| p.id == id)
    }

    /// Returns the port if it still exists.
    #[inline]
    pub fn get_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.slots.get_mut(usize::from(id.slot))?.as_mut().filter(|p| p.id == id)
    }

    /// Returns two different ports: a sender and a receiver. `None` if either is gone, or both are
    /// the same port.
    #[inline]
    pub fn pair(&mut self, a: PortId, b: PortId) -> Option<(&mut Port, &mut Port)> {
        let slots = [usize::from(a.slot), usize::from(b.slot)];
        let [first, second] = self.slots.get_disjoint_mut(slots).ok()?;
        let first = first.as_mut().filter(|p| p.id == a)?;
        let second = second.as_mut().filter(|p| p.id == b)?;
        Some((first, second))
    }

    /// Returns the port of this name.
    pub fn by_name(&self, name: &Name) -> Option<&Port> {
        self.get(*self.names.get(name)?)
    }

    /// Returns the present port of `slot`.
    pub(crate) fn at_slot(&self, slot: u16) -> Option<&Port> {
        self.slots.get(usize::from(slot))?.as_ref()
    }

    /// Returns all ports, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.slots.iter().flatten()
    }

    /// Returns an identifier in a free slot; `None` if `room` ports exist.
    pub(crate) fn free_slot(&mut self, room: usize) -> Option<PortId> {
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

    /// Adds a port under its identifier, whose slot is free.
    pub(crate) fn insert(&mut self, port: Port) {
        let id = port.id;
        self.names.insert(port.spec.name.clone(), id);
        if let Some(slot) = self.slots.get_mut(usize::from(id.slot)) {
            *slot = Some(port);
        }
    }

    /// Removes a port and returns it; `None` if it is gone.
    pub(crate) fn remove(&mut self, id: PortId) -> Option<Port> {
        let slot = self.slots.get_mut(usize::from(id.slot))?;
        let port = slot.take_if(|p| p.id == id)?;
        self.names.remove(&port.spec.name);
        Some(port)
    }

    /// Returns the identifier of a group.
    pub fn group(&self, name: &Name) -> Option<GroupId> {
        self.groups.iter().find(|(_, n)| n == name).map(|(id, _)| *id)
    }

    /// Returns the name of a group.
    pub fn group_name(&self, id: GroupId) -> Option<&Name> {
        self.groups.iter().find(|(i, _)| *i == id).map(|(_, name)| name)
    }

    /// Returns all groups, in the order in which they were added.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Name)> {
        self.groups.iter().map(|(id, name)| (*id, name))
    }

    /// Adds a group, and returns its identifier.
    pub(crate) fn add_group(&mut self, name: Name) -> GroupId {
        let id = GroupId(self.next_group);
        self.next_group = self.next_group.wrapping_add(1);
        self.groups.push((id, name));
        id
    }
}
