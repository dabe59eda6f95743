//! A queue of either format: the interface that backends and services use. Dispatches each call to
//! the format's module ([`crate::split`], [`crate::packed`]).
//!
//! `attach` creates a [`Queue`] when the frontend starts a virtqueue, and moves it to new memory
//! maps ([`Queue::remap`]). A service pops a batch of chains, copies payload through `memory`, and
//! pushes the heads; the dispatcher publishes and sends the notification at the end of the turn.
//! Chains may be pushed in any order.
//!
//! A queue accesses no buffer, waits for nothing, sends no signal and has no lock: one thread owns
//! it at a time, the dispatcher of its port. It holds popped chains until they are pushed or put
//! back: the caller must do so for each chain, or the driver misses its descriptors until the queue
//! stops ([`Queue::finish`]). Descriptors of a popped chain are not checked again; after
//! [`Queue::remap`] the caller must look its addresses up in the new map.

use causeway_memory::Map;

use crate::chain::Chain;
use crate::error::RingError;
use crate::inflight::Inflight;
use crate::packed::PackedQueue;
use crate::split::SplitQueue;

/// Parameters of a queue, as the driver and frontend chose them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSetup {
    /// Number of entries, 1 to 32768; for a split ring a power of two.
    pub size: u16,
    /// Guest address of the descriptor table, or of the packed ring, 16-byte aligned.
    pub desc: u64,
    /// Guest address of the available ring, 2-byte aligned; for a packed ring that of the driver's
    /// event suppression structure, 4-byte aligned.
    pub avail: u64,
    /// Guest address of the used ring, or of the device's event suppression structure, 4-byte
    /// aligned.
    pub used: u64,
    /// Whether VIRTIO_F_EVENT_IDX was negotiated.
    pub event_index: bool,
    /// Whether VIRTIO_F_INDIRECT_DESC was negotiated.
    pub indirect: bool,
    /// Next available index to pop (vhost-user's vring base); for a packed ring the slot, with the
    /// wrap counter in bit 15.
    pub next: u16,
}

/// Result of a batch pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoppedBatch {
    /// Number of chains popped.
    pub count: usize,
    /// Whether another chain is available that [`Queue::pop`] must pop.
    pub needs_pop: bool,
}

/// The device side of a virtio queue.
///
/// A [`RingError`] latches: all later calls that access the ring return the same error. Errors of
/// [`Self::remap`], [`Self::record`] and [`Self::locate`] do not latch; the caller stops or drops
/// the queue.
#[derive(Debug)]
pub enum Queue {
    /// A split ring (virtio 1.3, 2.7).
    Split(SplitQueue),
    /// A packed ring (virtio 1.3, 2.8).
    Packed(PackedQueue),
}

/// Dispatches a call to the ring's format.
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
    ///
    /// # Errors
    /// [`RingError`] if the size, alignment or grant of a ring part is invalid.
    pub fn new(setup: QueueSetup, map: &Map) -> Result<Self, RingError> {
        Ok(Self::Split(SplitQueue::new(setup, map)?))
    }

    /// Sets up a packed queue over granted memory. `setup.next` is the position of the next chain
    /// to pop, and `used` that of the next used entry: slots, with the wrap counter in bit 15.
    ///
    /// # Errors
    /// [`RingError`] if the size, alignment or grant of a ring part, or a position is invalid.
    pub fn packed(setup: QueueSetup, used: u16, map: &Map) -> Result<Self, RingError> {
        Ok(Self::Packed(PackedQueue::new(setup, used, map)?))
    }

    /// Continues in a new epoch of the guest's memory: with the same indices, over the rings in
    /// `map`.
    ///
    /// # Errors
    /// [`RingError`] if a ring part is not granted in `map`; the caller stops the queue then.
    pub fn remap(&mut self, map: &Map) -> Result<(), RingError> {
        each!(self, q => q.remap(map))
    }

    /// Starts to record chains in flight in memory that outlives this process. Chains that a
    /// previous process left in flight are popped first. Call it once, before the first pop: it may
    /// move the position of the queue.
    ///
    /// # Errors
    /// [`RingError::Inflight`] if the record does not match the queue or is inconsistent,
    /// [`RingError::Lost`] if its memory or the ring's is unreachable.
    pub fn record(&mut self, inflight: Inflight) -> Result<(), RingError> {
        each!(self, q => q.record(inflight))
    }

    /// Verifies the position of a packed ring without record by its descriptors, and corrects it if
    /// the frontend sent that of an earlier backend: publishes used entries that the driver did not
    /// see, and pops chains in flight again. Returns whether the position changed; the caller must
    /// notify the driver then. Call it once, before the first pop.
    ///
    /// # Errors
    /// [`RingError::PositionLost`] if the position is wrong and the descriptors do not determine
    /// the right position, because chains take several slots or are out of order;
    /// [`RingError::Lost`] if the ring is unreachable.
    pub fn locate(&mut self) -> Result<bool, RingError> {
        match self {
            Self::Split(_) => Ok(false),
            Self::Packed(queue) => queue.locate(),
        }
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        each!(self, q => q.size())
    }

    /// Returns `split` or `packed`.
    pub fn format(&self) -> &'static str {
        match self {
            Self::Split(_) => "split",
            Self::Packed(_) => "packed",
        }
    }

    /// Returns the next available index to pop, as in [`QueueSetup::next`]: the value for
    /// GET_VRING_BASE.
    pub fn next_available(&self) -> u16 {
        each!(self, q => q.next_available())
    }

    /// Returns whether no device has popped a chain of this ring yet. The index can wrap to its
    /// start again, soon in a small packed ring; the result is certain only with a record of chains
    /// in flight.
    pub fn is_fresh(&self) -> bool {
        // A packed ring starts with its wrap counter set (virtio 1.3, 2.8.1).
        const WRAP: u16 = 1 << 15;
        let (resumed, start) = match self {
            Self::Split(queue) => (queue.resumed, 0),
            Self::Packed(queue) => (queue.resumed, WRAP),
        };
        !resumed && self.next_available() == start
    }

    /// Returns whether all pushed chains are published.
    pub fn is_published(&self) -> bool {
        each!(self, q => q.is_published())
    }

    /// Returns the number of chains that were popped and neither pushed nor put back.
    pub fn in_flight(&self) -> u16 {
        each!(self, q => q.in_flight())
    }

    /// Returns the number of chains popped since set-up, less those put back. Wraps: only
    /// differences are meaningful.
    #[inline]
    pub fn popped(&self) -> u32 {
        each!(self, q => q.popped())
    }

    /// Returns the number of available chains that were not popped.
    ///
    /// # Errors
    /// [`RingError`] if the driver's index is invalid.
    pub fn available(&mut self) -> Result<u16, RingError> {
        each!(self, q => q.available())
    }

    /// Prefetches the lines that the next `most` pops and their callers will touch: descriptors,
    /// then the first lines of buffers, all in parallel. The values read here are hints only; each
    /// pop reads and checks them again.
    #[inline]
    pub fn prefetch(&mut self, map: &Map, most: u16) {
        each!(self, q => q.prefetch(map, most));
    }

    /// Pops the next available chain into `chain`. Returns `false` if there is none.
    ///
    /// # Errors
    /// [`RingError`] if the chain violates a rule of the ring.
    #[inline]
    pub fn pop(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        each!(self, q => q.pop(map, chain))
    }

    /// Pops up to `most` chains, at most [`BATCH_CHAINS`] (32), as long as each consists of a
    /// single descriptor in the ring, which is the common case. Prefetches as [`Self::prefetch`]
    /// does. Any other chain, and any violation, is left to [`Self::pop`].
    ///
    /// # Errors
    /// [`RingError`] if the ring is broken or became unreachable.
    ///
    /// [`BATCH_CHAINS`]: crate::limits::BATCH_CHAINS
    #[inline]
    pub fn pop_batch<'a>(
        &mut self,
        map: &Map,
        into: impl Iterator<Item = &'a mut Chain>,
        most: usize,
    ) -> Result<PoppedBatch, RingError> {
        each!(self, q => q.pop_batch(map, into, most))
    }

    /// Puts a popped chain back; it is the next chain to be popped. Several chains must be put back
    /// in the reverse order of their pops, and only while no chain popped after them was pushed. No
    /// effect for a head that is not in flight; a packed queue also ignores a chain that is not the
    /// last popped and was not left by an earlier process: it stays in flight.
    pub fn put_back(&mut self, head: u16) {
        each!(self, q => q.put_back(head));
    }

    /// Pushes every chain in flight with 0 written bytes and publishes: for a queue that stops.
    /// Chains that were put back, or left by an earlier process and not popped, are not pushed.
    /// Returns whether the driver wants a notification.
    ///
    /// # Errors
    /// [`RingError`] if the queue is broken or became unreachable.
    pub fn finish(&mut self) -> Result<bool, RingError> {
        each!(self, q => q.finish())
    }

    /// Marks chain `head` as used, with `written` bytes written. The driver sees it at the next
    /// [`Self::publish`]. Ignores a head that is not in flight. Does not compare `written` with the
    /// chain's length.
    ///
    /// # Errors
    /// [`RingError`] if the queue is broken or became unreachable.
    #[inline]
    pub fn push(&mut self, head: u16, written: u32) -> Result<(), RingError> {
        each!(self, q => q.push(head, written))
    }

    /// Like [`Self::push`] for many chains: heads, and the number of bytes written to each.
    ///
    /// # Errors
    /// [`RingError`] if the queue is broken or became unreachable.
    #[inline]
    pub fn push_batch(&mut self, used: impl Iterator<Item = (u16, u32)>) -> Result<(), RingError> {
        each!(self, q => q.push_batch(used))
    }

    /// Publishes all pushed chains. Returns whether the driver wants a notification.
    ///
    /// # Errors
    /// [`RingError`] if the queue is broken or became unreachable.
    #[inline]
    pub fn publish(&mut self) -> Result<bool, RingError> {
        each!(self, q => q.publish())
    }

    /// Requests a doorbell for the next chain. Returns whether a chain is available already; the
    /// caller must poll again then instead of parking.
    ///
    /// # Errors
    /// [`RingError`] if the driver's index is invalid or the queue is broken.
    pub fn arm(&mut self) -> Result<bool, RingError> {
        each!(self, q => q.arm())
    }

    /// Suppresses doorbells until the next [`Self::arm`].
    ///
    /// # Errors
    /// [`RingError`] if the queue is broken or became unreachable.
    pub fn disarm(&mut self) -> Result<(), RingError> {
        each!(self, q => q.disarm())
    }

    /// Returns the error that broke the queue, if any.
    pub fn broken(&self) -> Option<RingError> {
        each!(self, q => q.broken())
    }
}
