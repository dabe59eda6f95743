//! What a frontend has set up: everything that a new causewayd has to be told again.

use causeway_attach::limits::{MEMORY_SLOTS_MAX, QUEUES_MAX};
use causeway_attach::vhost_user::message::{Message, RegionSpec, RingAddresses, RingValue};
use causeway_host::ReceivedFd;

use crate::inflight::Inflight;

/// One region and its file.
pub type Region = (RegionSpec, ReceivedFd);

/// A doorbell or notification: never told of, or told with a descriptor or without one.
pub type Event = Option<Option<ReceivedFd>>;

/// One queue.
#[derive(Debug, Default)]
pub struct Ring {
    /// Descriptors of the ring.
    pub size: Option<u32>,
    /// Where it lies.
    pub addresses: Option<RingAddresses>,
    /// Where it begins, as the frontend last said, or causewayd when it stopped.
    pub base: Option<u32>,
    /// How it stood when it stopped: a start from elsewhere is a driver's new beginning.
    pub stood: Option<Stand>,
    /// Its doorbell; started while there is one.
    pub kick: Event,
    /// Its notification.
    pub call: Event,
    /// Where errors are told.
    pub error: Event,
    /// As SET_VRING_ENABLE said.
    pub enabled: Option<u32>,
}

/// What a queue that goes on has in common with the one that was stopped: where it lies, how
/// large it is, and where it begins.
pub type Stand = (Option<RingAddresses>, Option<u32>, Option<u32>);

impl Ring {
    /// As it is set up now.
    pub fn stands(&self) -> Stand {
        (self.addresses, self.size, self.base)
    }

    fn stop(&mut self) {
        self.kick = None;
    }
}

/// Everything that one frontend has set up.
#[derive(Debug, Default)]
pub struct Record {
    /// Acknowledged virtio features.
    pub features: Option<u64>,
    /// Acknowledged protocol features, as the frontend said them.
    pub protocol: Option<u64>,
    /// SET_OWNER was said.
    pub owner: bool,
    /// The last whole memory table...
    pub table: Vec<Region>,
    /// ... and what was added since.
    pub added: Vec<Region>,
    /// Queues, by their index.
    pub rings: Vec<Ring>,
    /// The record of chains in flight.
    pub inflight: Option<Inflight>,
    /// Where the backend may make requests.
    pub requests: Option<ReceivedFd>,
    /// The virtio status byte.
    pub status: Option<u64>,
}

impl Record {
    /// Whether any queue is started.
    pub fn runs(&self) -> bool {
        self.rings.iter().any(|ring| ring.kick.is_some())
    }

    /// All granted regions.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.table.iter().chain(&self.added)
    }

    /// Queue `index`; none beyond those that any device has.
    pub fn ring(&mut self, index: u32) -> Option<&mut Ring> {
        let index = usize::try_from(index).ok().filter(|index| *index < QUEUES_MAX)?;
        if self.rings.len() <= index {
            self.rings.resize_with(index.saturating_add(1), Ring::default);
        }
        self.rings.get_mut(index)
    }

    fn with_ring(&mut self, index: u32, set: impl FnOnce(&mut Ring)) {
        if let Some(ring) = self.ring(index) {
            set(ring);
        }
    }

    fn stop_all(&mut self) {
        self.rings.iter_mut().for_each(Ring::stop);
    }

    /// Notes a message that causewayd has taken.
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
                // QEMU before 8.1 adds each region once for every queue pair.
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

    fn note_ring(&mut self, message: Message) {
        use Message as M;
        match message {
            M::SetVringNum(RingValue { index, value }) => self.with_ring(index, |ring| {
                ring.size = Some(value);
                ring.stop();
            }),
            M::SetVringAddr(addresses) => self.with_ring(addresses.index, |ring| {
                // A started queue stays so if only what is noted of it changes, as in causewayd.
                if !ring.addresses.as_ref().is_some_and(|old| addresses.lies_as(old)) {
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
                ring.stood = None;
            }),
            M::SetVringCall(event) => self.with_ring(event.index, |r| r.call = Some(event.fd)),
            M::SetVringErr(event) => self.with_ring(event.index, |r| r.error = Some(event.fd)),
            M::SetVringEnable(RingValue { index, value }) => {
                self.with_ring(index, |ring| ring.enabled = Some(value));
            }
            _ => {}
        }
    }

    /// Notes that a queue was stopped and stands at `base`.
    pub fn stopped(&mut self, RingValue { index, value }: RingValue) {
        self.with_ring(index, |ring| {
            ring.stop();
            ring.base = Some(value);
            ring.stood = Some(ring.stands());
        });
    }

    /// As causewayd does it: memory stays, because QEMU says only what changes of it.
    fn reset(&mut self) {
        self.stop_all();
        self.rings.iter_mut().for_each(|ring| ring.enabled = None);
        self.features = None;
        self.status = None;
    }

    fn remove(&mut self, spec: &RegionSpec) {
        self.table.retain(|(one, _)| !is_same(one, spec));
        self.added.retain(|(one, _)| !is_same(one, spec));
    }
}

/// Whether two messages name the same region: an offset does not count.
fn is_same(one: &RegionSpec, other: &RegionSpec) -> bool {
    (one.guest, one.user, one.len) == (other.guest, other.user, other.len)
}
