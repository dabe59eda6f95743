//! The device side of a split ring (virtio 1.3, 2.7).
//!
//! # Budget
//! Of a chain of one or two descriptors, in a batch of n: one 2-byte load of the available ring,
//! one 16-byte copy a descriptor, one 8-byte store to the used ring; per batch one load of the
//! available index, one store of the used index, and one look at whether a notification is wanted.
//! The driver's lines come over once each. Chains of one descriptor that are taken by the batch
//! cost some 75 instructions each, their prefetches among them, and 25 to be used. Nothing that
//! counts is read twice: a look ahead, or a batch that ends before a chain, reads heads and
//! descriptors to know what to do, and forgets them.

mod take;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use causeway_memory::{Map, View};

use crate::error::RingError;
use crate::format::{INDEX, NO_NOTIFY, RING};
use crate::handshake::{ask_index, look_index, show_index};
use crate::inflight::{Inflight, SplitInflight};
use crate::latch::Latch;
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::marks::Marks;
use crate::queue::Setup;

/// The device side of one split ring.
#[derive(Debug)]
pub struct SplitQueue {
    setup: Setup,
    desc: View,
    avail: View,
    used: View,
    /// Next available index to take, and the driver's index as last seen.
    next: u16,
    seen: u16,
    /// Next used index to write, and the one published.
    pushed: u16,
    published: u16,
    /// Heads that are taken and not yet used.
    taken: Marks,
    /// Chains taken since set-up, less those put back; wraps.
    popped: u32,
    /// Whether the driver was told not to ring (without event index).
    quiet: bool,
    record: Option<SplitInflight>,
    /// An earlier process had begun the record.
    pub(crate) resumed: bool,
    /// Heads to give before new ones: put back, or in flight when an earlier process ended.
    again: VecDeque<u16>,
    broken: Latch,
}

/// The three windows of a ring, checked for place and alignment.
fn views(setup: &Setup, map: &Map) -> Result<(View, View, View), RingError> {
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
    /// Sets the queue up over granted memory, continuing at `setup.next`.
    pub fn new(setup: Setup, map: &Map) -> Result<Self, RingError> {
        if !setup.size.is_power_of_two() || setup.size > QUEUE_SIZE_MAX {
            return Err(RingError::Size(setup.size));
        }
        let (desc, avail, used) = views(&setup, map)?;
        // A driver that keeps its rings over a reconnect has a used index; a fresh one has zero.
        let index = used.load(INDEX, Ordering::Acquire).map_err(RingError::Lost)?;
        Ok(Self {
            desc,
            avail,
            used,
            next: setup.next,
            seen: setup.next,
            pushed: index,
            published: index,
            taken: Marks::new(setup.size),
            popped: 0,
            quiet: false,
            record: None,
            resumed: false,
            again: VecDeque::new(),
            broken: Latch::default(),
            setup,
        })
    }

    /// See [`crate::Queue::remap`].
    pub fn remap(&mut self, map: &Map) -> Result<(), RingError> {
        let (desc, avail, used) = views(&self.setup, map)?;
        (self.desc, self.avail, self.used) = (desc, avail, used);
        Ok(())
    }

    /// See [`crate::Queue::record`].
    pub fn record(&mut self, inflight: Inflight) -> Result<(), RingError> {
        let Inflight::Split(mut inflight) = inflight else { return Err(RingError::Inflight) };
        if let Some(open) = inflight.recover(self.published)? {
            // What was in flight had been taken: continue behind it.
            self.again = open.into();
            let open = u16::try_from(self.again.len()).unwrap_or(u16::MAX);
            self.next = self.published.wrapping_add(open);
            self.seen = self.next;
            self.resumed = true;
        }
        self.record = Some(inflight);
        Ok(())
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.setup.size
    }

    /// See [`crate::Queue::is_published`].
    pub fn is_published(&self) -> bool {
        self.published == self.pushed
    }

    /// See [`crate::Queue::next_available`].
    pub fn next_available(&self) -> u16 {
        // What was put back lies just before `next` in the available ring. What the record
        // holds is given again by the record instead.
        let back = if self.record.is_some() { 0 } else { self.again.len() };
        self.next.wrapping_sub(u16::try_from(back).unwrap_or(0))
    }

    /// See [`crate::Queue::in_flight`].
    pub fn in_flight(&self) -> u16 {
        self.taken.count()
    }

    /// See [`crate::Queue::popped`].
    pub fn popped(&self) -> u32 {
        self.popped
    }

    /// See [`crate::Queue::broken`].
    pub fn broken(&self) -> Option<RingError> {
        self.broken.get()
    }

    /// See [`crate::Queue::available`].
    pub fn available(&mut self) -> Result<u16, RingError> {
        self.broken.check()?;
        let again = u16::try_from(self.again.len()).unwrap_or(u16::MAX);
        if self.next == self.seen {
            let fresh = self.refresh();
            self.broken.latch(fresh)?;
        }
        Ok(self.seen.wrapping_sub(self.next).saturating_add(again))
    }

    /// Loads the driver's index.
    #[inline]
    fn refresh(&mut self) -> Result<(), RingError> {
        let index = look_index(&self.avail).map_err(RingError::Lost)?;
        self.saw(index)
    }

    /// Takes the driver's index for true, if it can be.
    #[inline]
    fn saw(&mut self, index: u16) -> Result<(), RingError> {
        if index.wrapping_sub(self.next) > self.setup.size {
            return Err(RingError::IndexJump { from: self.next, to: index, size: self.setup.size });
        }
        self.seen = index;
        Ok(())
    }

    #[inline]
    fn avail_slot(&self, index: u16) -> usize {
        let slot = index & self.setup.size.wrapping_sub(1);
        usize::from(slot).wrapping_mul(2).wrapping_add(RING)
    }

    #[inline]
    fn used_slot(&self, index: u16) -> usize {
        let slot = index & self.setup.size.wrapping_sub(1);
        usize::from(slot).wrapping_mul(8).wrapping_add(RING)
    }

    /// See [`crate::Queue::put_back`].
    pub fn put_back(&mut self, head: u16) {
        if self.taken.remove(head) {
            self.popped = self.popped.wrapping_sub(1);
            self.again.push_front(head);
        }
    }

    /// See [`crate::Queue::finish`].
    pub fn finish(&mut self) -> Result<bool, RingError> {
        for head in 0..self.setup.size {
            if self.taken.has(head) {
                self.push(head, 0)?;
            }
        }
        self.publish()
    }

    /// See [`crate::Queue::push`].
    #[inline]
    pub fn push(&mut self, head: u16, written: u32) -> Result<(), RingError> {
        self.push_batch(std::iter::once((head, written)))
    }

    /// See [`crate::Queue::push_batch`].
    #[inline]
    pub fn push_batch(
        &mut self,
        mut used: impl Iterator<Item = (u16, u32)>,
    ) -> Result<(), RingError> {
        self.broken.check()?;
        let stored = used.try_for_each(|(head, written)| self.give(head, written));
        self.broken.latch(stored)
    }

    /// Writes the next used entry, if the chain is in flight.
    #[inline(always)]
    fn give(&mut self, head: u16, written: u32) -> Result<(), RingError> {
        if !self.taken.remove(head) {
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

    /// See [`crate::Queue::publish`].
    #[inline]
    pub fn publish(&mut self) -> Result<bool, RingError> {
        self.broken.check()?;
        if self.published == self.pushed {
            return Ok(false);
        }
        let done = self.show();
        self.broken.latch(done)
    }

    #[inline]
    fn show(&mut self) -> Result<bool, RingError> {
        let batch = (self.published, self.pushed);
        let wanted = show_index(&self.used, &self.avail, batch, self.used_event_at());
        self.published = self.pushed;
        if let Some(record) = &mut self.record {
            record.published(self.published)?;
        }
        wanted.map_err(RingError::Lost)
    }

    /// Where the driver says at which used index it wants a notification.
    #[inline]
    fn used_event_at(&self) -> Option<usize> {
        let after = usize::from(self.setup.size).wrapping_mul(2).wrapping_add(RING);
        self.setup.event_index.then_some(after)
    }

    /// Where we say at which available index we want a doorbell.
    #[inline]
    fn avail_event_at(&self) -> Option<usize> {
        let after = usize::from(self.setup.size).wrapping_mul(8).wrapping_add(RING);
        self.setup.event_index.then_some(after)
    }

    /// See [`crate::Queue::arm`].
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.broken.check()?;
        let armed = self.request();
        self.broken.latch(armed)
    }

    fn request(&mut self) -> Result<bool, RingError> {
        let at = self.avail_event_at();
        self.quiet = false;
        let index = ask_index(&self.used, &self.avail, self.next, at).map_err(RingError::Lost)?;
        self.saw(index)?;
        Ok(self.next != self.seen || !self.again.is_empty())
    }

    /// See [`crate::Queue::disarm`]. With event index nothing is written: the driver rings once
    /// when it passes the index we asked for, and not again until asked anew.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), RingError> {
        if self.setup.event_index || self.quiet {
            return Ok(());
        }
        self.broken.check()?;
        let stored = self.used.store(0, NO_NOTIFY, Ordering::Relaxed).map_err(RingError::Lost);
        self.quiet = true;
        self.broken.latch(stored)
    }
}
