//! Chains out of a split ring: copied, checked, noted as in flight.

use std::sync::atomic::Ordering;

use causeway_memory::{Map, OutOfGrant, Rights, Span, View};

use super::SplitQueue;
use crate::chain::{Chain, prefetch};
use crate::error::RingError;
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, RING};
use crate::limits::{BATCH_CHAINS, DESCRIPTOR_BYTES};
use crate::queue::Popped;

/// Used entries in a cache line.
const USED_PER_LINE: usize = 8;

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

impl SplitQueue {
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

    #[inline(never)]
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
        let (mut count, mut odd) = (0_usize, false);
        for (&head, chain) in heads.iter().zip(into) {
            if !self.single(map, head, chain) {
                odd = true;
                break;
            }
            count = count.wrapping_add(1);
        }
        self.next = self.next.wrapping_add(count as u16);
        self.popped = self.popped.wrapping_add(count as u32);
        if let Some(record) = &mut self.record {
            heads.iter().take(count).try_for_each(|&head| record.take(head))?;
        }
        Ok(Popped { count, odd })
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

    /// Copies the chain at `head` out and marks it taken if it is one descriptor in the ring's table
    /// and all is well; else nothing is marked, and [`Self::walk`] tells what is wrong, or goes on.
    #[inline(always)]
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
                if !map.contains(one.span.addr, u64::from(one.span.len), Rights::READ) {
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
}
