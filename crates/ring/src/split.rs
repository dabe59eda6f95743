//! The device side of a split ring (virtio 1.3, 2.7).
//!
//! Pops available chains (in the child module `pop`) and publishes used entries; backends and
//! services reach it through [`crate::Queue`], in the dispatcher's thread. It accesses the ring
//! through [`crate::handshake`] where order matters, and records chains in flight in
//! [`crate::Inflight`] if a record is set.
//!
//! It never accesses buffers, never waits, and trusts no value of the driver. Rings have 1 to
//! [`QUEUE_SIZE_MAX`] (32,768) entries, a power of two. A used entry is written at the push but
//! visible to the driver only after [`SplitQueue::publish`]. The first violation breaks the queue
//! for good.
//!
//! # Budget
//! Accesses to shared memory for a chain of one or two descriptors in a batch: a 2-byte load of the
//! available ring, a 16-byte copy per descriptor, an 8-byte store to the used ring. Per batch: a
//! load of the available index, a store of the used index, and a load of the driver's event index
//! or flags. Each of the driver's cache lines is transferred once. A chain of one descriptor popped
//! by the batch costs some 75 instructions including its prefetches, and 25 for its push. No
//! checked value is read twice: prefetches, and batches that end before a chain, read heads and
//! descriptors as hints and discard them.

mod pop;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use causeway_memory::{Map, View};

use crate::error::RingError;
use crate::format::{INDEX, NO_NOTIFY, RING};
use crate::handshake::{arm_index, load_index, publish_index};
use crate::head_set::HeadSet;
use crate::inflight::{Inflight, SplitInflight};
use crate::latch::Latch;
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::queue::QueueSetup;

/// The device side of one split ring.
#[derive(Debug)]
pub struct SplitQueue {
    /// Parameters of the ring.
    setup: QueueSetup,
    /// The three parts of the ring, in granted memory.
    desc: View,
    avail: View,
    used: View,
    /// Next available index to pop, and the driver's index as last loaded.
    next: u16,
    seen: u16,
    /// Next used index to write, and the published index.
    pushed: u16,
    published: u16,
    /// Heads in flight.
    heads_in_flight: HeadSet,
    /// Number of chains popped since set-up, less those put back; wraps.
    popped: u32,
    /// Whether doorbells are suppressed (without event index).
    disarmed: bool,
    /// The in-flight record, if the frontend keeps one.
    record: Option<SplitInflight>,
    /// Whether an earlier process started the record.
    pub(crate) resumed: bool,
    /// Heads to pop before new heads: those put back, or in flight when an earlier process ended.
    pending: VecDeque<u16>,
    /// The first error.
    broken: Latch,
}

/// Returns views of the three parts of a ring, after checks of grant and alignment.
fn views(setup: &QueueSetup, map: &Map) -> Result<(View, View, View), RingError> {
    let size = usize::from(setup.size);
    let event = if setup.event_index { 2 } else { 0 };
    let part = |part, addr: u64, align: u64, len: usize| {
        if addr.checked_rem(align) != Some(0) {
            return Err(RingError::Alignment { part, addr, align });
        }
        map.view(addr, len).map_err(|gap| RingError::Hole { part, gap })
    };
    let table = size.saturating_mul(DESCRIPTOR_BYTES);
    let avail = size.saturating_mul(2).saturating_add(RING).saturating_add(event);
    let used = size.saturating_mul(8).saturating_add(RING).saturating_add(event);
    Ok((
        part("descriptor table", setup.desc, 16, table)?,
        part("available ring", setup.avail, 2, avail)?,
        part("used ring", setup.used, 4, used)?,
    ))
}

impl SplitQueue {
    /// Implements [`crate::Queue::new`].
    pub fn new(setup: QueueSetup, map: &Map) -> Result<Self, RingError> {
        if !setup.size.is_power_of_two() || setup.size > QUEUE_SIZE_MAX {
            return Err(RingError::Size(setup.size));
        }
        let (desc, avail, used) = views(&setup, map)?;
        // A driver that keeps its rings over a reconnect has a used index; a new driver has zero.
        let index = used.load(INDEX, Ordering::Acquire).map_err(RingError::Lost)?;
        Ok(Self {
            desc,
            avail,
            used,
            next: setup.next,
            seen: setup.next,
            pushed: index,
            published: index,
            heads_in_flight: HeadSet::new(setup.size),
            popped: 0,
            disarmed: false,
            record: None,
            resumed: false,
            pending: VecDeque::new(),
            broken: Latch::default(),
            setup,
        })
    }

    /// Implements [`crate::Queue::remap`].
    pub fn remap(&mut self, map: &Map) -> Result<(), RingError> {
        let (desc, avail, used) = views(&self.setup, map)?;
        (self.desc, self.avail, self.used) = (desc, avail, used);
        Ok(())
    }

    /// Implements [`crate::Queue::record`].
    pub fn record(&mut self, inflight: Inflight) -> Result<(), RingError> {
        let Inflight::Split(mut inflight) = inflight else { return Err(RingError::Inflight) };
        if let Some(open) = inflight.recover(self.published)? {
            // Chains in flight were popped already: continue behind them.
            self.pending = open.into();
            let open = u16::try_from(self.pending.len()).unwrap_or(u16::MAX);
            self.next = self.published.wrapping_add(open);
            self.seen = self.next;
            self.resumed = true;
        }
        self.record = Some(inflight);
        Ok(())
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        self.setup.size
    }

    /// Implements [`crate::Queue::is_published`].
    pub fn is_published(&self) -> bool {
        self.published == self.pushed
    }

    /// Implements [`crate::Queue::next_available`].
    pub fn next_available(&self) -> u16 {
        // Heads that were put back are just before `next` in the available ring. With a record they
        // are popped again from the record instead.
        let back = if self.record.is_some() { 0 } else { self.pending.len() };
        self.next.wrapping_sub(u16::try_from(back).unwrap_or(0))
    }

    /// Implements [`crate::Queue::in_flight`].
    pub fn in_flight(&self) -> u16 {
        self.heads_in_flight.count()
    }

    /// Implements [`crate::Queue::popped`].
    pub fn popped(&self) -> u32 {
        self.popped
    }

    /// Implements [`crate::Queue::broken`].
    pub fn broken(&self) -> Option<RingError> {
        self.broken.get()
    }

    /// Implements [`crate::Queue::available`].
    pub fn available(&mut self) -> Result<u16, RingError> {
        self.broken.check()?;
        let pending = u16::try_from(self.pending.len()).unwrap_or(u16::MAX);
        if self.next == self.seen {
            let fresh = self.refresh();
            self.broken.latch(fresh)?;
        }
        Ok(self.seen.wrapping_sub(self.next).saturating_add(pending))
    }

    /// Loads the driver's index.
    #[inline]
    fn refresh(&mut self) -> Result<(), RingError> {
        let index = load_index(&self.avail).map_err(RingError::Lost)?;
        self.accept_index(index)
    }

    /// Accepts the driver's index if it is within the queue size.
    #[inline]
    fn accept_index(&mut self, index: u16) -> Result<(), RingError> {
        if index.wrapping_sub(self.next) > self.setup.size {
            return Err(RingError::IndexJump { from: self.next, to: index, size: self.setup.size });
        }
        self.seen = index;
        Ok(())
    }

    /// Returns the offset of an entry in the available ring, in bytes.
    #[inline]
    fn avail_slot(&self, index: u16) -> usize {
        let slot = index & self.setup.size.wrapping_sub(1);
        usize::from(slot).wrapping_mul(2).wrapping_add(RING)
    }

    /// Returns the offset of an entry in the used ring, in bytes.
    #[inline]
    fn used_slot(&self, index: u16) -> usize {
        let slot = index & self.setup.size.wrapping_sub(1);
        usize::from(slot).wrapping_mul(8).wrapping_add(RING)
    }

    /// Implements [`crate::Queue::put_back`].
    pub fn put_back(&mut self, head: u16) {
        if self.heads_in_flight.remove(head) {
            self.popped = self.popped.wrapping_sub(1);
            self.pending.push_front(head);
        }
    }

    /// Implements [`crate::Queue::finish`].
    pub fn finish(&mut self) -> Result<bool, RingError> {
        for head in 0..self.setup.size {
            if self.heads_in_flight.has(head) {
                self.push(head, 0)?;
            }
        }
        self.publish()
    }

    /// Implements [`crate::Queue::push`].
    #[inline]
    pub fn push(&mut self, head: u16, written: u32) -> Result<(), RingError> {
        self.push_batch(std::iter::once((head, written)))
    }

    /// Implements [`crate::Queue::push_batch`].
    #[inline]
    pub fn push_batch(
        &mut self,
        mut used: impl Iterator<Item = (u16, u32)>,
    ) -> Result<(), RingError> {
        self.broken.check()?;
        let stored = used.try_for_each(|(head, written)| self.store_used(head, written));
        self.broken.latch(stored)
    }

    /// Writes the next used entry, if the chain is in flight.
    #[inline(always)]
    fn store_used(&mut self, head: u16, written: u32) -> Result<(), RingError> {
        if !self.heads_in_flight.remove(head) {
            return Ok(());
        }
        let at = self.used_slot(self.pushed);
        let entry = u64::from(head) | u64::from(written).wrapping_shl(32);
        self.used.store_word(at, entry).map_err(RingError::Lost)?;
        if let Some(record) = &mut self.record {
            record.push(head)?;
        }
        self.pushed = self.pushed.wrapping_add(1);
        Ok(())
    }

    /// Implements [`crate::Queue::publish`].
    #[inline]
    pub fn publish(&mut self) -> Result<bool, RingError> {
        self.broken.check()?;
        if self.published == self.pushed {
            return Ok(false);
        }
        let done = self.publish_pushed();
        self.broken.latch(done)
    }

    /// Publishes the pushed entries, in the ring and in the record.
    #[inline]
    fn publish_pushed(&mut self) -> Result<bool, RingError> {
        let batch = (self.published, self.pushed);
        let wanted = publish_index(&self.used, &self.avail, batch, self.used_event_at());
        self.published = self.pushed;
        if let Some(record) = &mut self.record {
            record.published(self.published)?;
        }
        wanted.map_err(RingError::Lost)
    }

    /// Returns the offset of the used event index, at which the driver wants a notification.
    #[inline]
    fn used_event_at(&self) -> Option<usize> {
        let after = usize::from(self.setup.size).wrapping_mul(2).wrapping_add(RING);
        self.setup.event_index.then_some(after)
    }

    /// Returns the offset of the available event index, at which the device wants a doorbell.
    #[inline]
    fn avail_event_at(&self) -> Option<usize> {
        let after = usize::from(self.setup.size).wrapping_mul(8).wrapping_add(RING);
        self.setup.event_index.then_some(after)
    }

    /// Implements [`crate::Queue::arm`].
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.broken.check()?;
        let armed = self.request();
        self.broken.latch(armed)
    }

    /// Requests a doorbell. Returns whether a chain is available.
    fn request(&mut self) -> Result<bool, RingError> {
        let at = self.avail_event_at();
        self.disarmed = false;
        let index = arm_index(&self.used, &self.avail, self.next, at).map_err(RingError::Lost)?;
        self.accept_index(index)?;
        Ok(self.next != self.seen || !self.pending.is_empty())
    }

    /// Implements [`crate::Queue::disarm`]. With event index it writes nothing: the driver rings
    /// once when it passes the requested index, and not again until the next request.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), RingError> {
        if self.setup.event_index || self.disarmed {
            return Ok(());
        }
        self.broken.check()?;
        let stored = self.used.store(0, NO_NOTIFY, Ordering::Relaxed).map_err(RingError::Lost);
        self.disarmed = true;
        self.broken.latch(stored)
    }
}
