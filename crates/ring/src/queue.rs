//! A queue of either format, as the services see it.

use causeway_memory::Map;

use crate::chain::Chain;
use crate::error::RingError;
use crate::inflight::Inflight;
use crate::packed::PackedQueue;
use crate::split::SplitQueue;

/// How the driver set a queue up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Entries, 1 to 32768; of a split ring a power of two.
    pub size: u16,
    /// Guest address of the descriptor table, or of the packed ring, 16-byte aligned.
    pub desc: u64,
    /// Guest address of the available ring, 2-byte aligned; of a packed ring that of the
    /// driver's event suppression structure, 4-byte aligned.
    pub avail: u64,
    /// Guest address of the used ring, or of the device's event suppression structure, 4-byte
    /// aligned.
    pub used: u64,
    /// VIRTIO_F_EVENT_IDX was negotiated.
    pub event_index: bool,
    /// VIRTIO_F_INDIRECT_DESC was negotiated.
    pub indirect: bool,
    /// The next available index to take (vhost-user's vring base); of a packed ring the slot,
    /// with the wrap counter in bit 15.
    pub next: u16,
}

/// What a batch got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Popped {
    /// Chains that were taken.
    pub count: usize,
    /// The next chain is there, but has to be popped on its own.
    pub odd: bool,
}

/// The device side of one virtio queue.
///
/// Every error is the guest's fault and latches: the queue gives the same error from then on.
#[derive(Debug)]
pub enum Queue {
    /// A split ring (virtio 1.3, 2.7).
    Split(SplitQueue),
    /// A packed ring (virtio 1.3, 2.8).
    Packed(PackedQueue),
}

/// Hands each call to the ring's format.
macro_rules! each {
    ($self:expr, $queue:ident => $call:expr) => {
        match $self {
            Self::Split($queue) => $call,
            Self::Packed($queue) => $call,
        }
    };
}

impl Queue {
    /// Sets up a split queue over granted memory.
    pub fn new(setup: Setup, map: &Map) -> Result<Self, RingError> {
        Ok(Self::Split(SplitQueue::new(setup, map)?))
    }

    /// Sets up a packed queue over granted memory. `setup.next` is where it goes on to take
    /// chains and `used` where it goes on to use them: slots, with the wrap counter in bit 15.
    pub fn packed(setup: Setup, used: u16, map: &Map) -> Result<Self, RingError> {
        Ok(Self::Packed(PackedQueue::new(setup, used, map)?))
    }

    /// Continues in a new epoch of the guest's memory: same indices, rings taken from `map`.
    pub fn remap(&mut self, map: &Map) -> Result<(), RingError> {
        each!(self, q => q.remap(map))
    }

    /// Records what is in flight in memory that outlives this process, and first gives the
    /// chains again that an earlier process took and did not finish.
    pub fn record(&mut self, inflight: Inflight) -> Result<(), RingError> {
        each!(self, q => q.record(inflight))
    }

    /// Checks the position of a packed ring that has no record against its descriptors, and finds the
    /// true one where the frontend's is that of a backend before: used entries that the driver was
    /// not shown are shown, and what was in flight is taken again. Returns whether it moved. The
    /// driver is to be notified then.
    ///
    /// # Errors
    /// [`RingError::PositionLost`]: the position that was given is wrong, and chains take several
    /// slots, or their order does not show the true one.
    pub fn locate(&mut self) -> Result<bool, RingError> {
        match self {
            Self::Split(_) => Ok(false),
            Self::Packed(queue) => queue.locate(),
        }
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        each!(self, q => q.size())
    }

    /// `split` or `packed`.
    pub fn format(&self) -> &'static str {
        match self {
            Self::Split(_) => "split",
            Self::Packed(_) => "packed",
        }
    }

    /// The next available index that would be taken, as in [`Setup::next`]: what GET_VRING_BASE
    /// reports.
    pub fn next_available(&self) -> u16 {
        each!(self, q => q.next_available())
    }

    /// Whether the ring begins at the beginning: no device has taken a chain of it yet. An index
    /// may come by there again, a small packed ring's soon; only with a record of chains in
    /// flight, which an earlier process has begun or not, is this certain.
    pub fn is_fresh(&self) -> bool {
        // A packed ring begins with its wrap counter set (virtio 1.3, 2.8.1).
        const WRAP: u16 = 1 << 15;
        let (resumed, start) = match self {
            Self::Split(queue) => (queue.resumed, 0),
            Self::Packed(queue) => (queue.resumed, WRAP),
        };
        !resumed && self.next_available() == start
    }

    /// Whether the driver has been shown all that was pushed.
    pub fn is_published(&self) -> bool {
        each!(self, q => q.is_published())
    }

    /// Chains that were taken and neither used nor put back.
    pub fn in_flight(&self) -> u16 {
        each!(self, q => q.in_flight())
    }

    /// Chains taken since set-up, less those put back. Wraps: only differences mean something.
    #[inline]
    pub fn popped(&self) -> u32 {
        each!(self, q => q.popped())
    }

    /// Chains that the driver has made available and that were not taken.
    pub fn available(&mut self) -> Result<u16, RingError> {
        each!(self, q => q.available())
    }

    /// Has what the next at most `most` pops and their users will touch on its way: descriptors,
    /// then the first lines of buffers, all of them at once instead of one after the other. What
    /// is read for it only says where; each pop reads and checks it again.
    #[inline]
    pub fn look_ahead(&mut self, map: &Map, most: u16) {
        each!(self, q => q.look_ahead(map, most));
    }

    /// Takes the next available chain into `chain`; `false` when there is none.
    #[inline]
    pub fn pop(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        each!(self, q => q.pop(map, chain))
    }

    /// Takes up to `most` chains in one go, at most [`BATCH_CHAINS`], as long as each is one
    /// descriptor in the ring: what most are, and cheap. All they touch is on its way as after
    /// [`Self::look_ahead`]. What is not so, or breaks a rule, is left to [`Self::pop`].
    ///
    /// [`BATCH_CHAINS`]: crate::limits::BATCH_CHAINS
    #[inline]
    pub fn pop_batch<'a>(
        &mut self,
        map: &Map,
        into: impl Iterator<Item = &'a mut Chain>,
        most: usize,
    ) -> Result<Popped, RingError> {
        each!(self, q => q.pop_batch(map, into, most))
    }

    /// Puts back a chain that was popped and not used; it is the next one to be popped.
    /// Several are put back in the reverse order of their pops, and none of which a later one
    /// was pushed.
    pub fn put_back(&mut self, head: u16) {
        each!(self, q => q.put_back(head));
    }

    /// Gives every chain in flight back unused and publishes: before the queue stops.
    /// Says whether the driver wants a notification.
    pub fn finish(&mut self) -> Result<bool, RingError> {
        each!(self, q => q.finish())
    }

    /// Says that chain `head` is used and `written` bytes were written to it. The driver sees it
    /// at the next [`Self::publish`]. A head that is not in flight is left alone.
    #[inline]
    pub fn push(&mut self, head: u16, written: u32) -> Result<(), RingError> {
        each!(self, q => q.push(head, written))
    }

    /// As [`Self::push`], of many: heads, and the bytes that were written to each.
    #[inline]
    pub fn push_batch(&mut self, used: impl Iterator<Item = (u16, u32)>) -> Result<(), RingError> {
        each!(self, q => q.push_batch(used))
    }

    /// Shows the driver all that was pushed; says whether it wants a notification for it.
    #[inline]
    pub fn publish(&mut self) -> Result<bool, RingError> {
        each!(self, q => q.publish())
    }

    /// Asks for a doorbell when the next chain comes; says whether one is there already,
    /// in which case the caller must look again instead of parking.
    pub fn arm(&mut self) -> Result<bool, RingError> {
        each!(self, q => q.arm())
    }

    /// Says that no doorbell is needed for now.
    pub fn disarm(&mut self) -> Result<(), RingError> {
        each!(self, q => q.disarm())
    }

    /// The error that broke the queue, if one did.
    pub fn broken(&self) -> Option<RingError> {
        each!(self, q => q.broken())
    }
}
