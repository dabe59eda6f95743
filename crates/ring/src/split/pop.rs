//! Popping of chains from a split ring, the first access to a guest's frame: copy, check, and mark
//! as in flight.
//!
//! Services call [`crate::Queue::pop_batch`] for chains of a single descriptor, and
//! [`crate::Queue::pop`] for any chain, in the dispatcher's thread. Each descriptor is copied once
//! and checked in its private copy: index, length, rights, order, at most as many descriptors as
//! the queue has entries, no nested indirect table, at most 2^32 bytes. Buffers are prefetched, not
//! read.
//!
//! A batch ends before the first chain that is not a single valid descriptor, and reports it in
//! [`PoppedBatch::needs_pop`]; `pop` then returns the chain or its error. Chains that were put
//! back, or left by an earlier process, are popped before new chains, by `pop` alone: while there
//! are any, a batch is empty and needs a pop. A chain with an error breaks the queue, and every
//! later call returns the error.

use std::sync::atomic::Ordering;

use causeway_memory::{Map, OutOfGrant, Rights, Span, View};

use super::SplitQueue;
use crate::chain::{Chain, prefetch_buffer};
use crate::error::RingError;
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, RING};
use crate::limits::{BATCH_CHAINS, DESCRIPTOR_BYTES};
use crate::queue::PoppedBatch;

/// Number of used entries in a cache line.
const USED_PER_LINE: usize = 8;

/// A copied descriptor of a split ring.
struct SplitDescriptor {
    /// Guest address and length of the buffer.
    span: Span,
    /// FLAG_NEXT, FLAG_WRITE and FLAG_INDIRECT.
    flags: u16,
    /// Index of the next descriptor, if FLAG_NEXT is set.
    next: u16,
}

/// Returns the descriptor with these two words, as loaded from the table.
#[inline]
fn parse_descriptor([addr, high]: [u64; 2]) -> SplitDescriptor {
    SplitDescriptor {
        span: Span { addr, len: high as u32 },
        flags: (high >> 32) as u16,
        next: (high >> 48) as u16,
    }
}

/// Table that a chain's descriptors are read from: the ring's, or an indirect table.
enum DescriptorTable<'a> {
    /// The ring's own descriptor table.
    Ring(&'a View),
    /// An indirect table at guest address `addr`.
    Indirect { map: &'a Map, addr: u64 },
}

impl DescriptorTable<'_> {
    /// Copies descriptor `index`, which the caller checked against the table's size.
    #[inline]
    fn get(&self, index: u16) -> Result<SplitDescriptor, RingError> {
        let at = usize::from(index).wrapping_mul(DESCRIPTOR_BYTES);
        let words = match self {
            Self::Ring(view) => view.load_pair(at).map_err(RingError::Lost)?,
            Self::Indirect { map, addr } => {
                let addr = addr.checked_add(at as u64).ok_or(RingError::Bytes)?;
                map.load_pair(addr).map_err(RingError::Descriptor)?
            }
        };
        Ok(parse_descriptor(words))
    }
}

impl SplitQueue {
    /// Implements [`crate::Queue::pop`].
    #[inline]
    pub fn pop(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        self.broken.check()?;
        let popped = self.pop_next(map, chain);
        self.broken.latch(popped)
    }

    /// Pops the next chain of any form.
    #[inline]
    fn pop_next(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        let fresh = self.pending.is_empty();
        let head = match self.pending.front() {
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
        if !self.pop_single(map, head, chain) {
            chain.clear(head);
            self.copy_chain(map, head, chain)?;
            self.heads_in_flight.add(head);
        }
        if fresh {
            self.next = self.next.wrapping_add(1);
            if let Some(record) = &mut self.record {
                record.take(head)?;
            }
        } else {
            self.pending.pop_front();
        }
        self.popped = self.popped.wrapping_add(1);
        Ok(true)
    }

    /// Implements [`crate::Queue::pop_batch`].
    #[inline]
    pub fn pop_batch<'a>(
        &mut self,
        map: &Map,
        into: impl Iterator<Item = &'a mut Chain>,
        most: usize,
    ) -> Result<PoppedBatch, RingError> {
        self.broken.check()?;
        let popped = self.pop_singles(map, into, most);
        self.broken.latch(popped)
    }

    /// Pops leading chains of a single descriptor.
    #[inline(never)]
    fn pop_singles<'a>(
        &mut self,
        map: &Map,
        into: impl Iterator<Item = &'a mut Chain>,
        most: usize,
    ) -> Result<PoppedBatch, RingError> {
        if !self.pending.is_empty() {
            return Ok(PoppedBatch { count: 0, needs_pop: true });
        }
        let mut heads = [0; BATCH_CHAINS];
        let heads = self.load_heads(&mut heads, most)?;
        let (mut count, mut needs_pop) = (0_usize, false);
        for (&head, chain) in heads.iter().zip(into) {
            if !self.pop_single(map, head, chain) {
                needs_pop = true;
                break;
            }
            count = count.wrapping_add(1);
        }
        self.next = self.next.wrapping_add(count as u16);
        self.popped = self.popped.wrapping_add(count as u32);
        if let Some(record) = &mut self.record {
            heads.iter().take(count).try_for_each(|&head| record.take(head))?;
        }
        Ok(PoppedBatch { count, needs_pop })
    }

    /// Copies up to `most` of the next heads, and prefetches their descriptors and as many used
    /// entries. The heads are not checked.
    #[inline]
    fn load_heads<'a>(
        &mut self,
        into: &'a mut [u16; BATCH_CHAINS],
        most: usize,
    ) -> Result<&'a [u16], RingError> {
        if usize::from(self.seen.wrapping_sub(self.next)) < most {
            self.refresh()?;
        }
        let ready = usize::from(self.seen.wrapping_sub(self.next)).min(most);
        let heads = into.get_mut(..ready.min(BATCH_CHAINS)).unwrap_or(&mut []);
        // The heads may wrap around the end of the ring.
        let slot = self.next & self.setup.size.wrapping_sub(1);
        let before = usize::from(self.setup.size.wrapping_sub(slot)).min(heads.len());
        let (now, later) = heads.split_at_mut_checked(before).unwrap_or_default();
        self.avail.load_all(self.avail_slot(self.next), now).map_err(RingError::Lost)?;
        self.avail.load_all(RING, later).map_err(RingError::Lost)?;
        for &head in heads.iter() {
            self.desc.prefetch(usize::from(head).wrapping_mul(DESCRIPTOR_BYTES));
        }
        // The driver read these used entries in the last pass, so their lines are in its cache.
        for ahead in (0..heads.len()).step_by(USED_PER_LINE) {
            self.used.prefetch_write(self.used_slot(self.pushed.wrapping_add(ahead as u16)));
        }
        Ok(heads)
    }

    /// Implements [`crate::Queue::prefetch`].
    #[inline]
    pub fn prefetch(&mut self, map: &Map, most: u16) {
        if self.next == self.seen && !self.broken.is_set() {
            // The pop returns the error again.
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
        // The driver read these used entries in the last pass, so their lines are in its cache.
        for ahead in (0..ready).step_by(USED_PER_LINE) {
            self.used.prefetch_write(self.used_slot(self.pushed.wrapping_add(ahead)));
        }
        for ahead in 0..ready {
            if let Ok(words) = self.desc.load_pair(place(ahead)) {
                let descriptor = parse_descriptor(words);
                prefetch_buffer(map, descriptor.span, descriptor.flags);
            }
        }
    }

    /// Copies the chain at `head` and marks it as in flight if it is a valid single descriptor in
    /// the ring's table. Otherwise marks nothing, and [`Self::copy_chain`] copies the chain or
    /// finds the error.
    #[inline(always)]
    fn pop_single(&mut self, map: &Map, head: u16, chain: &mut Chain) -> bool {
        // The table has as many descriptors as the ring has entries, so the load fails for a head
        // that is too large.
        let at = usize::from(head).wrapping_mul(DESCRIPTOR_BYTES);
        let Ok(words) = self.desc.load_pair(at) else { return false };
        let SplitDescriptor { span, flags, .. } = parse_descriptor(words);
        flags & (FLAG_NEXT | FLAG_INDIRECT) == 0
            && chain.only(map, head, span, flags & FLAG_WRITE != 0)
            && self.heads_in_flight.add(head)
    }

    /// Copies the chain at `head`, and checks each descriptor; reads at most `size` descriptors.
    fn copy_chain(&self, map: &Map, head: u16, chain: &mut Chain) -> Result<(), RingError> {
        let size = u32::from(self.setup.size);
        if u32::from(head) >= size {
            return Err(RingError::Head { head, size: self.setup.size });
        }
        if self.heads_in_flight.has(head) {
            return Err(RingError::Twice(head));
        }
        let mut table = DescriptorTable::Ring(&self.desc);
        let mut entries = size;
        let mut left = size;
        let mut index = head;
        // Terminates: each step decrements `left`, except the single step into an indirect table.
        loop {
            let descriptor = table.get(index)?;
            if descriptor.flags & FLAG_INDIRECT != 0 {
                if matches!(table, DescriptorTable::Indirect { .. }) {
                    return Err(RingError::Nested);
                }
                entries = self.table_entries(&descriptor)?;
                if !map.contains(descriptor.span.addr, u64::from(descriptor.span.len), Rights::READ)
                {
                    let Span { addr, len } = descriptor.span;
                    return Err(RingError::Descriptor(OutOfGrant { addr, len: u64::from(len) }));
                }
                table = DescriptorTable::Indirect { map, addr: descriptor.span.addr };
                index = 0;
                continue;
            }
            left = left.checked_sub(1).ok_or(RingError::Endless(size))?;
            chain.add(map, descriptor.span, descriptor.flags & FLAG_WRITE != 0)?;
            if descriptor.flags & FLAG_NEXT == 0 {
                return Ok(());
            }
            if u32::from(descriptor.next) >= entries {
                return Err(RingError::Next { next: descriptor.next, size: entries });
            }
            index = descriptor.next;
        }
    }

    /// Returns the number of entries of the indirect table that `descriptor` refers to.
    fn table_entries(&self, descriptor: &SplitDescriptor) -> Result<u32, RingError> {
        if !self.setup.indirect {
            return Err(RingError::NotNegotiated);
        }
        let bytes = descriptor.span.len;
        let entries = bytes.wrapping_shr(4);
        let whole = bytes.is_multiple_of(DESCRIPTOR_BYTES as u32);
        if !whole || entries == 0 || descriptor.flags & FLAG_NEXT != 0 {
            return Err(RingError::IndirectTable(bytes));
        }
        Ok(entries)
    }
}
