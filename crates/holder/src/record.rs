//! The vhost-user state that a frontend has set up, for replay to the next causewayd.
//!
//! [`crate::relay`] owns a record per frontend, in the thread of the relay. The relay notes each
//! message once causewayd has acknowledged it ([`Record::note`]), with the effects that causewayd
//! gives it; [`crate::replay`] sends the record to the next causewayd. The record does not
//! validate; causewayd does. A later message about the same state replaces the earlier.
//!
//! The record keeps the received descriptors (memory files, eventfds) open, for at most
//! [`QUEUES_MAX`] (64) queues and [`MEMORY_SLOTS_MAX`] (64) regions. causewayd accepts no more; if
//! it did, the message would be forwarded and not recorded. Requests without lasting effect are not
//! recorded, nor is the dirty log, which held frontends are not offered. The record is lost with
//! the frontend's connection.

use causeway_attach::limits::{MEMORY_SLOTS_MAX, QUEUES_MAX};
use causeway_attach::vhost_user::message::{Message, RegionSpec, RingAddresses, RingValue};
use causeway_host::ReceivedFd;

use crate::inflight::Inflight;

/// A memory region and its file.
pub type RegionFile = (RegionSpec, ReceivedFd);

/// A doorbell or notification: never set, or set with or without a descriptor.
pub type EventFd = Option<Option<ReceivedFd>>;

/// State of one queue.
#[derive(Debug, Default)]
pub struct Ring {
    /// Ring size, in descriptors.
    pub size: Option<u32>,
    /// Addresses of the ring's parts.
    pub addresses: Option<RingAddresses>,
    /// Start index, as the frontend set it or causewayd reported it on stop.
    pub base: Option<u32>,
    /// Position at the last stop: a start from another position is a restart by the driver.
    pub stopped_at: Option<RingPosition>,
    /// The doorbell; the queue runs while it is set.
    pub kick: EventFd,
    /// The notification.
    pub call: EventFd,
    /// The eventfd for errors.
    pub error: EventFd,
    /// The value of SET_VRING_ENABLE.
    pub enabled: Option<u32>,
}

/// Addresses, size and start index: equal before and after a stop if the driver continues the
/// queue.
pub type RingPosition = (Option<RingAddresses>, Option<u32>, Option<u32>);

impl Ring {
    /// Returns the current position.
    pub fn position(&self) -> RingPosition {
        (self.addresses, self.size, self.base)
    }

    /// Marks the queue as stopped.
    fn stop(&mut self) {
        self.kick = None;
    }
}

/// The state that one frontend has set up.
#[derive(Debug, Default)]
pub struct Record {
    /// Acknowledged virtio features.
    pub features: Option<u64>,
    /// Acknowledged protocol features, as the frontend sent them.
    pub protocol: Option<u64>,
    /// Whether SET_OWNER was sent.
    pub owner: bool,
    /// The regions of the last SET_MEM_TABLE.
    pub table: Vec<RegionFile>,
    /// Regions added since.
    pub added: Vec<RegionFile>,
    /// Queues, by index.
    pub rings: Vec<Ring>,
    /// The inflight region.
    pub inflight: Option<Inflight>,
    /// Socket for requests of the backend.
    pub requests: Option<ReceivedFd>,
    /// The virtio status byte.
    pub status: Option<u64>,
}

impl Record {
    /// Returns whether the frontend has negotiated nothing yet.
    pub fn is_new(&self) -> bool {
        self.features.is_none() && self.protocol.is_none() && !self.owner
    }

    /// Returns whether any queue runs.
    pub fn is_running(&self) -> bool {
        self.rings.iter().any(|ring| ring.kick.is_some())
    }

    /// Returns all granted regions.
    pub fn regions(&self) -> impl Iterator<Item = &RegionFile> {
        self.table.iter().chain(&self.added)
    }

    /// Returns queue `index`; `None` for an index that no device has.
    pub fn ring(&mut self, index: u32) -> Option<&mut Ring> {
        let index = usize::try_from(index).ok().filter(|index| *index < QUEUES_MAX)?;
        if self.rings.len() <= index {
            self.rings.resize_with(index.saturating_add(1), Ring::default);
        }
        self.rings.get_mut(index)
    }

    /// Calls `set` with queue `index`, if a device can have that queue.
    fn with_ring(&mut self, index: u32, set: impl FnOnce(&mut Ring)) {
        if let Some(ring) = self.ring(index) {
            set(ring);
        }
    }

    /// Marks all queues as stopped.
    fn stop_all(&mut self) {
        self.rings.iter_mut().for_each(Ring::stop);
    }

    /// Records a message that causewayd has acknowledged.
    pub fn note(&mut self, message: Message) {
        use Message as M;
        match message {
            M::SetFeatures(features) => self.features = Some(features),
            M::SetProtocolFeatures(features) => self.protocol = Some(features),
            M::SetOwner => self.owner = true,
            M::ResetOwner => self.stop_all(),
            M::ResetDevice => self.reset(),
            M::SetStatus(status) => {
                self.status = Some(status);
                if status == 0 {
                    self.stop_all();
                }
            }
            M::SetMemTable(table) => {
                self.table = table;
                self.added.clear();
            }
            M::AddMemReg(spec, file) => {
                // QEMU before 8.1 adds each region once per queue pair.
                let again = self.regions().any(|(one, _)| is_same(one, &spec));
                if !again && self.regions().count() < MEMORY_SLOTS_MAX {
                    self.added.push((spec, file));
                }
            }
            M::RemMemReg(spec) => self.remove(&spec),
            M::SetBackendReqFd(channel) => self.requests = Some(channel),
            M::SetInflightFd(spec, file) => self.inflight = Some(Inflight::theirs(spec, file)),
            ring => self.note_ring(ring),
        }
    }

    /// Records a message about one queue; ignores other messages.
    fn note_ring(&mut self, message: Message) {
        use Message as M;
        match message {
            M::SetVringNum(RingValue { index, value }) => self.with_ring(index, |ring| {
                ring.size = Some(value);
                ring.stop();
            }),
            M::SetVringAddr(addresses) => self.with_ring(addresses.index, |ring| {
                // A running queue continues if only the log address changes, as in causewayd.
                if !ring.addresses.as_ref().is_some_and(|old| addresses.has_same_addresses(old)) {
                    ring.stop();
                }
                ring.addresses = Some(addresses);
            }),
            M::SetVringBase(RingValue { index, value }) => self.with_ring(index, |ring| {
                ring.base = Some(value);
                ring.stop();
            }),
            M::SetVringKick(event) => self.with_ring(event.index, |ring| {
                ring.kick = Some(event.fd);
                ring.stopped_at = None;
            }),
            M::SetVringCall(event) => self.with_ring(event.index, |r| r.call = Some(event.fd)),
            M::SetVringErr(event) => self.with_ring(event.index, |r| r.error = Some(event.fd)),
            M::SetVringEnable(RingValue { index, value }) => {
                self.with_ring(index, |ring| ring.enabled = Some(value));
            }
            _ => {}
        }
    }

    /// Records that a queue was stopped at `base`.
    pub fn stopped(&mut self, RingValue { index, value }: RingValue) {
        self.with_ring(index, |ring| {
            ring.stop();
            ring.base = Some(value);
            ring.stopped_at = Some(ring.position());
        });
    }

    /// Resets as causewayd does: memory stays, because QEMU sends only its changes.
    fn reset(&mut self) {
        self.stop_all();
        self.rings.iter_mut().for_each(|ring| ring.enabled = None);
        self.features = None;
        self.status = None;
    }

    /// Removes a region and its file.
    fn remove(&mut self, spec: &RegionSpec) {
        self.table.retain(|(one, _)| !is_same(one, spec));
        self.added.retain(|(one, _)| !is_same(one, spec));
    }
}

/// Returns whether two messages name the same region; the file offset is not compared.
fn is_same(one: &RegionSpec, other: &RegionSpec) -> bool {
    (one.guest, one.user, one.len) == (other.guest, other.user, other.len)
}
