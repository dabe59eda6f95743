//! The device side of a split ring (virtio 1.3, 2.7).
//!
//! # Budget
//! Of a chain of one or two descriptors, in a batch of n: one 2-byte load of the available ring,
//! one 16-byte copy a descriptor, one 8-byte store to the used ring; per batch one load of the
//! available index, one store of the used index, and one look at whether a notification is wanted.
//! The driver's lines come over once each. Nothing that counts is read twice: a look ahead reads
//! heads and descriptors to know what to fetch, and forgets them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use causeway_memory::{Map, OutOfGrant, Span, View};

use crate::chain::{Chain, prefetch};
use crate::error::RingError;
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, INDEX, NO_NOTIFY, RING};
use crate::handshake::{ask_index, look_index, show_index};
use crate::inflight::{Inflight, SplitInflight};
use crate::latch::Latch;
use crate::limits::{BATCH_CHAINS, DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::marks::Marks;
use crate::queue::{Popped, Setup};

/// Used entries in a cache line.
const USED_PER_LINE: usize = 8;

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
    /// Heads to give before new ones: put back, or in flight when an earlier process ended.
    again: VecDeque<u16>,
    broken: Latch,
}

/// A descriptor, copied out.
struct Descriptor {
    span: Span,
    flags: u16,
    next: u16,
}

#[inline]
fn descriptor([addr, high]: [u64; 2]) -> Descriptor {
    Descriptor {
        span: Span { addr, len: high as u32 },
        flags: (high >> 32) as u16,
        next: (high >> 48) as u16,
    }
}

/// Where a chain's descriptors are read: the ring's table, or an indirect one.
enum Table<'a> {
    Ring(&'a View),
    Indirect { map: &'a Map, addr: u64 },
}

impl Table<'_> {
    /// Copies descriptor `index` out; the caller has checked it against the table's size.
    #[inline]
    fn get(&self, index: u16) -> Result<Descriptor, RingError> {
        let at = usize::from(index).wrapping_mul(DESCRIPTOR_BYTES);
        let words = match self {
            Self::Ring(view) => view.load_pair(at).map_err(RingError::Lost)?,
            Self::Indirect { map, addr } => {
                let addr = addr.checked_add(at as u64).ok_or(RingError::Bytes)?;
                map.load_pair(addr).map_err(RingError::Descriptor)?
            }
        };
        Ok(descriptor(words))
    }
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
        }
        self.record = Some(inflight);
        Ok(())
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.setup.size
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

    /// See [`crate::Queue::pop`].
    #[inline]
    pub fn pop(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        self.broken.check()?;
        let taken = self.take(map, chain);
        self.broken.latch(taken)
    }

    #[inline]
    fn take(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        let fresh = self.again.is_empty();
        let head = match self.again.front() {
            Some(&head) => head,
            None => {
                if self.next == self.seen {
                    self.refresh()?;
                    if self.next == self.seen {
                        return Ok(false);
                    }
                }
                self.avail
                    .load(self.avail_slot(self.next), Ordering::Relaxed)
                    .map_err(RingError::Lost)?
            }
        };
        if !self.single(map, head, chain) {
            chain.clear(head);
            self.walk(map, head, chain)?;
            self.taken.add(head);
        }
        if fresh {
            self.next = self.next.wrapping_add(1);
            if let Some(record) = &mut self.record {
                record.take(head)?;
            }
        } else {
            self.again.pop_front();
        }
        self.popped = self.popped.wrapping_add(1);
        Ok(true)
    }

    /// See [`crate::Queue::pop_batch`].
    #[inline]
    pub fn pop_batch<'a>(
        &mut self,
        map: &Map,
        into: impl Iterator<Item = &'a mut Chain>,
        most: usize,
    ) -> Result<Popped, RingError> {
        self.broken.check()?;
        let taken = self.take_batch(map, into, most);
        self.broken.latch(taken)
    }

    #[inline]
    fn take_batch<'a>(
        &mut self,
        map: &Map,
        into: impl Iterator<Item = &'a mut Chain>,
        most: usize,
    ) -> Result<Popped, RingError> {
        if !self.again.is_empty() {
            return Ok(Popped { count: 0, odd: true });
        }
        let mut heads = [0; BATCH_CHAINS];
        let heads = self.heads(&mut heads, most)?;
        let mut got = Popped::default();
        for (&head, chain) in heads.iter().zip(into) {
            if !self.single(map, head, chain) {
                got.odd = true;
                break;
            }
            self.next = self.next.wrapping_add(1);
            if let Some(record) = &mut self.record {
                record.take(head)?;
            }
            got.count = got.count.wrapping_add(1);
        }
        self.popped = self.popped.wrapping_add(got.count as u32);
        Ok(got)
    }

    /// Copies up to `most` of the next heads out, and has what belongs to them on its way: their
    /// descriptors, and used entries for as many. None of them is checked.
    #[inline]
    fn heads<'a>(
        &mut self,
        into: &'a mut [u16; BATCH_CHAINS],
        most: usize,
    ) -> Result<&'a [u16], RingError> {
        if usize::from(self.seen.wrapping_sub(self.next)) < most {
            self.refresh()?;
        }
        let ready = usize::from(self.seen.wrapping_sub(self.next)).min(most);
        let heads = into.get_mut(..ready.min(BATCH_CHAINS)).unwrap_or(&mut []);
        // The ring's end may lie between two of them.
        let slot = self.next & self.setup.size.wrapping_sub(1);
        let before = usize::from(self.setup.size.wrapping_sub(slot)).min(heads.len());
        let (now, later) = heads.split_at_mut_checked(before).unwrap_or_default();
        self.avail.load_all(self.avail_slot(self.next), now).map_err(RingError::Lost)?;
        self.avail.load_all(RING, later).map_err(RingError::Lost)?;
        for &head in heads.iter() {
            self.desc.prefetch(usize::from(head).wrapping_mul(DESCRIPTOR_BYTES));
        }
        // The driver read the used entries of the last turn: they are its lines still.
        for ahead in (0..heads.len()).step_by(USED_PER_LINE) {
            self.used.prefetch_write(self.used_slot(self.pushed.wrapping_add(ahead as u16)));
        }
        Ok(heads)
    }

    /// See [`crate::Queue::look_ahead`].
    #[inline]
    pub fn look_ahead(&mut self, map: &Map, most: u16) {
        if self.next == self.seen && !self.broken.is_set() {
            // An error shows again at the pop.
            let _ = self.refresh();
        }
        let ready = self.seen.wrapping_sub(self.next).min(most);
        let place = |ahead: u16| {
            let slot = self.avail_slot(self.next.wrapping_add(ahead));
            let head = self.avail.load(slot, Ordering::Relaxed).unwrap_or(0);
            usize::from(head).wrapping_mul(DESCRIPTOR_BYTES)
        };
        for ahead in 0..ready {
            self.desc.prefetch(place(ahead));
        }
        // The driver read the used entries of the last turn: they are its lines still.
        for ahead in (0..ready).step_by(USED_PER_LINE) {
            self.used.prefetch_write(self.used_slot(self.pushed.wrapping_add(ahead)));
        }
        for ahead in 0..ready {
            if let Ok(words) = self.desc.load_pair(place(ahead)) {
                let one = descriptor(words);
                prefetch(map, one.span, one.flags);
            }
        }
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

    /// Copies the chain at `head` out and marks it taken if it is one descriptor in the ring's table
    /// and all is well; else nothing is marked, and [`Self::walk`] tells what is wrong, or goes on.
    #[inline]
    fn single(&mut self, map: &Map, head: u16, chain: &mut Chain) -> bool {
        // The table has as many descriptors as the ring entries: there is none at a head too large.
        let at = usize::from(head).wrapping_mul(DESCRIPTOR_BYTES);
        let Ok(words) = self.desc.load_pair(at) else { return false };
        let Descriptor { span, flags, .. } = descriptor(words);
        flags & (FLAG_NEXT | FLAG_INDIRECT) == 0
            && chain.only(map, head, span, flags & FLAG_WRITE != 0)
            && self.taken.add(head)
    }

    /// Copies the chain at `head` out, checking each descriptor; never more than `size` of them.
    fn walk(&self, map: &Map, head: u16, chain: &mut Chain) -> Result<(), RingError> {
        let size = u32::from(self.setup.size);
        if u32::from(head) >= size {
            return Err(RingError::Head { head, size: self.setup.size });
        }
        if self.taken.has(head) {
            return Err(RingError::Twice(head));
        }
        let mut table = Table::Ring(&self.desc);
        let mut entries = size;
        let mut left = size;
        let mut index = head;
        // Ends: each turn uses up one of `left`, but for the one step into an indirect table.
        loop {
            let one = table.get(index)?;
            if one.flags & FLAG_INDIRECT != 0 {
                if matches!(table, Table::Indirect { .. }) {
                    return Err(RingError::Nested);
                }
                entries = self.indirect(&one)?;
                if !map.contains(one.span.addr, u64::from(one.span.len)) {
                    let Span { addr, len } = one.span;
                    return Err(RingError::Descriptor(OutOfGrant { addr, len: u64::from(len) }));
                }
                table = Table::Indirect { map, addr: one.span.addr };
                index = 0;
                continue;
            }
            left = left.checked_sub(1).ok_or(RingError::Endless(size))?;
            chain.add(map, one.span, one.flags & FLAG_WRITE != 0)?;
            if one.flags & FLAG_NEXT == 0 {
                return Ok(());
            }
            if u32::from(one.next) >= entries {
                return Err(RingError::Next { next: one.next, size: entries });
            }
            index = one.next;
        }
    }

    /// Entries of the indirect table that `one` names.
    fn indirect(&self, one: &Descriptor) -> Result<u32, RingError> {
        if !self.setup.indirect {
            return Err(RingError::NotNegotiated);
        }
        let bytes = one.span.len;
        let entries = bytes.wrapping_shr(4);
        let whole = bytes.is_multiple_of(DESCRIPTOR_BYTES as u32);
        if !whole || entries == 0 || one.flags & FLAG_NEXT != 0 {
            return Err(RingError::IndirectTable(bytes));
        }
        Ok(entries)
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
    #[inline]
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
