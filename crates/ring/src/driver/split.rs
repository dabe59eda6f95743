//! The driver side of a split ring (virtio 1.3, 2.7).
//!
//! Implements [`super::Driver`] for rings of a power of two, at most [`QUEUE_SIZE_MAX`] (32,768)
//! entries. `attach::native` calls it in the thread that owns the port; errors are those of
//! [`super`]. Descriptors are allocated from a private free list, never from values in shared
//! memory. A chain of several spans uses an indirect table if that was negotiated and the table has
//! room, and else several descriptors. Used chains are taken in the device's order, which may
//! differ from the order of additions. A new driver clears both rings and starts at index 0.

use std::sync::atomic::Ordering;

use causeway_memory::{Map, OutOfGrant, Span, View};

use super::{DriverError, Layout, Used, free_list, write_indirect};
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, NO_INTERRUPT, RING};
use crate::handshake::{arm_index, load_index, publish_index};
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};

/// Maximum number of used entries prefetched at once.
const FETCHED_MAX: u16 = 64;
/// Number of used entries in a cache line.
const USED_PER_LINE: usize = 8;
/// End of the list of free descriptors.
const NONE: u16 = u16::MAX;

/// State of an outstanding chain.
#[derive(Debug, Clone, Copy, Default)]
struct OutstandingChain {
    /// Number of its descriptors in the table; zero if the chain is not outstanding.
    descriptors: u16,
    /// Its last descriptor.
    tail: u16,
    /// Number of writable bytes.
    room: u32,
}

/// The driver side of one split ring.
#[derive(Debug)]
pub struct SplitDriver {
    layout: Layout,
    /// Whether VIRTIO_F_EVENT_IDX was negotiated.
    event_index: bool,
    /// Whether chains of several spans may use an indirect table.
    indirect: bool,
    /// The three parts of the ring.
    desc: View,
    avail: View,
    used: View,
    /// Links between descriptors; private, never read from shared memory.
    next: Vec<u16>,
    /// Outstanding chains, by head.
    chains: Vec<OutstandingChain>,
    /// First free descriptor, and the number of free descriptors.
    free: u16,
    free_count: u16,
    /// Next available index to write, and the published index.
    added: u16,
    published: u16,
    /// Next used index to take, and the device's index as last loaded.
    taken: u16,
    seen: u16,
    /// Whether notifications are suppressed (without event index).
    disarmed: bool,
}

impl SplitDriver {
    /// Implements [`super::Driver::new`].
    pub fn new(
        layout: Layout,
        event_index: bool,
        indirect: bool,
        map: &Map,
    ) -> Result<Self, DriverError> {
        let size = layout.size;
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(DriverError::Size(size));
        }
        let view = |(at, len): (u64, usize)| map.view(at, len);
        let (desc, avail, used) =
            (view(layout.desc())?, view(layout.avail())?, view(layout.used())?);
        for (view, len) in [(&avail, layout.avail().1), (&used, layout.used().1)] {
            view.write(0, &vec![0; len])?;
        }
        Ok(Self {
            event_index,
            indirect: indirect && layout.table_entries > 1,
            desc,
            avail,
            used,
            next: free_list(size),
            chains: vec![OutstandingChain::default(); usize::from(size)],
            free: 0,
            free_count: size,
            added: 0,
            published: 0,
            taken: 0,
            seen: 0,
            disarmed: false,
            layout,
        })
    }

    /// Implements [`super::Driver::layout`].
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Implements [`super::Driver::free_descriptors`].
    pub fn free_descriptors(&self) -> u16 {
        self.free_count
    }

    /// Implements [`super::Driver::outstanding`].
    pub fn outstanding(&self) -> u16 {
        self.added.wrapping_sub(self.taken)
    }

    /// Implements [`super::Driver::next_head`].
    #[inline]
    pub fn next_head(&self) -> Option<u16> {
        (self.free_count > 0).then_some(self.free)
    }

    /// Implements [`super::Driver::add_one`].
    #[inline]
    pub fn add_one(&mut self, span: Span, writable: bool) -> Result<u16, DriverError> {
        let head = self.allocate(1)?;
        let (flags, room) = if writable { (FLAG_WRITE, span.len) } else { (0, 0) };
        self.describe(head, span, flags, 0)?;
        self.offer(head, OutstandingChain { descriptors: 1, tail: head, room })?;
        Ok(head)
    }

    /// Puts a chain into the available ring.
    #[inline]
    fn offer(&mut self, head: u16, chain: OutstandingChain) -> Result<(), DriverError> {
        if let Some(held) = self.chains.get_mut(usize::from(head)) {
            *held = chain;
        }
        self.avail.store(self.avail_slot(self.added), head, Ordering::Relaxed)?;
        self.added = self.added.wrapping_add(1);
        Ok(())
    }

    /// Implements [`super::Driver::add`].
    #[inline(never)]
    pub fn add(
        &mut self,
        map: &Map,
        readable: &[Span],
        writable: &[Span],
    ) -> Result<u16, DriverError> {
        let count = readable.len().saturating_add(writable.len());
        let room = writable.iter().fold(0_u32, |sum, span| sum.saturating_add(span.len));
        let all = readable
            .iter()
            .map(|span| (*span, 0))
            .chain(writable.iter().map(|span| (*span, FLAG_WRITE)));
        let fits_table = count <= usize::from(self.layout.table_entries);
        if count > usize::from(self.layout.size) {
            return Err(DriverError::Full);
        }
        let (head, tail, descriptors) = if count == 0 {
            return Err(DriverError::Empty);
        } else if count > 1 && self.indirect && fits_table {
            let head = self.allocate(1)?;
            let table = self.layout.table(head);
            for (at, (span, flags)) in (0_u16..).zip(all) {
                let (flags, next) = link(flags, at, count);
                let to = table.wrapping_add(u64::from(at).wrapping_mul(DESCRIPTOR_BYTES as u64));
                write_indirect(map, to, descriptor(span, flags, next))?;
            }
            let len = u32::try_from(count.saturating_mul(DESCRIPTOR_BYTES)).unwrap_or(u32::MAX);
            self.describe(head, Span { addr: table, len }, FLAG_INDIRECT, 0)?;
            (head, head, 1)
        } else {
            let descriptors = u16::try_from(count).map_err(|_| DriverError::Full)?;
            let head = self.allocate(descriptors)?;
            let (mut at, mut tail) = (head, head);
            for (nth, (span, flags)) in (1_usize..).zip(all) {
                let next = self.next.get(usize::from(at)).copied().unwrap_or(NONE);
                let last = nth == count;
                let (flags, link) = if last { (flags, 0) } else { (flags | FLAG_NEXT, next) };
                self.describe(at, span, flags, link)?;
                (tail, at) = (at, next);
            }
            (head, tail, descriptors)
        };
        self.offer(head, OutstandingChain { descriptors, tail, room })?;
        Ok(head)
    }

    /// Takes `count` linked descriptors off the free list.
    #[inline]
    fn allocate(&mut self, count: u16) -> Result<u16, DriverError> {
        self.free_count = self.free_count.checked_sub(count).ok_or(DriverError::Full)?;
        let head = self.free;
        for _ in 0..count {
            self.free = self.next.get(usize::from(self.free)).copied().unwrap_or(NONE);
        }
        Ok(head)
    }

    /// Writes a descriptor.
    #[inline]
    fn describe(&self, at: u16, span: Span, flags: u16, next: u16) -> Result<(), OutOfGrant> {
        let offset = usize::from(at).wrapping_mul(DESCRIPTOR_BYTES);
        self.desc.store_pair(offset, descriptor(span, flags, next))
    }

    /// Returns the offset of an entry in the available ring, in bytes.
    #[inline]
    fn avail_slot(&self, index: u16) -> usize {
        let slot = index & self.layout.size.wrapping_sub(1);
        usize::from(slot).wrapping_mul(2).wrapping_add(RING)
    }

    /// Implements [`super::Driver::publish`].
    #[inline]
    pub fn publish(&mut self) -> Result<bool, DriverError> {
        if self.published == self.added {
            return Ok(false);
        }
        let after = usize::from(self.layout.size).wrapping_mul(8).wrapping_add(RING);
        let event_at = self.event_index.then_some(after);
        let batch = (self.published, self.added);
        self.published = self.added;
        Ok(publish_index(&self.avail, &self.used, batch, event_at)?)
    }

    /// Implements [`super::Driver::take`].
    #[inline]
    pub fn take(&mut self) -> Result<Option<Used>, DriverError> {
        if self.taken == self.seen {
            self.refresh()?;
            if self.taken == self.seen {
                return Ok(None);
            }
        }
        let entry = self.used.load_word(self.used_slot(self.taken))?;
        let (id, written) = (entry as u32, (entry >> 32) as u32);
        let head = u16::try_from(id).map_err(|_| DriverError::Unknown(id))?;
        let held = self.chains.get_mut(usize::from(head)).map(std::mem::take);
        let held = held.filter(|h| h.descriptors > 0).ok_or(DriverError::Unknown(id))?;
        self.release(head, held);
        self.taken = self.taken.wrapping_add(1);
        if written > held.room {
            return Err(DriverError::Overrun { written, room: held.room });
        }
        Ok(Some(Used { head, written }))
    }

    /// Returns a chain's descriptors to the front of the free list, where they are still in the
    /// cache.
    #[inline]
    fn release(&mut self, head: u16, held: OutstandingChain) {
        if let Some(link) = self.next.get_mut(usize::from(held.tail)) {
            *link = self.free;
        }
        self.free = head;
        self.free_count = self.free_count.saturating_add(held.descriptors);
    }

    /// Loads the device's index.
    #[inline]
    fn refresh(&mut self) -> Result<(), DriverError> {
        let index = load_index(&self.used)?;
        self.accept_index(index)?;
        // Prefetches the used entries in parallel; no more than the processor can have outstanding.
        let count = self.seen.wrapping_sub(self.taken).min(FETCHED_MAX);
        for nth in (0..count).step_by(USED_PER_LINE) {
            self.used.prefetch(self.used_slot(self.taken.wrapping_add(nth)));
        }
        Ok(())
    }

    /// Returns the offset of an entry in the used ring, in bytes.
    #[inline]
    fn used_slot(&self, index: u16) -> usize {
        let slot = index & self.layout.size.wrapping_sub(1);
        usize::from(slot).wrapping_mul(8).wrapping_add(RING)
    }

    /// Accepts the device's index if it is within the published chains.
    #[inline]
    fn accept_index(&mut self, index: u16) -> Result<(), DriverError> {
        if index.wrapping_sub(self.taken) > self.published.wrapping_sub(self.taken) {
            return Err(DriverError::IndexJump { from: self.taken, to: index });
        }
        self.seen = index;
        Ok(())
    }

    /// Implements [`super::Driver::arm_after`].
    pub fn arm_after(&mut self, skip: u16) -> Result<bool, DriverError> {
        let after = usize::from(self.layout.size).wrapping_mul(2).wrapping_add(RING);
        let event_at = self.event_index.then_some(after);
        let ahead = skip.min(self.outstanding().saturating_sub(1));
        self.disarmed = false;
        let index = arm_index(&self.avail, &self.used, self.taken.wrapping_add(ahead), event_at)?;
        self.accept_index(index)?;
        Ok(self.seen != self.taken)
    }

    /// Implements [`super::Driver::disarm`]. With event index it writes nothing: the device
    /// notifies once when it passes the requested index.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        if self.event_index || self.disarmed {
            return Ok(());
        }
        self.disarmed = true;
        Ok(self.avail.store(0, NO_INTERRUPT, Ordering::Relaxed)?)
    }
}

/// Returns flags and next field of entry `at` in an indirect table of `count` entries.
fn link(flags: u16, at: u16, count: usize) -> (u16, u16) {
    let next = at.wrapping_add(1);
    if usize::from(next) < count { (flags | FLAG_NEXT, next) } else { (flags, 0) }
}

/// Returns a descriptor's two words.
#[inline]
fn descriptor(span: Span, flags: u16, next: u16) -> [u64; 2] {
    let high =
        u64::from(span.len) | u64::from(flags).wrapping_shl(32) | u64::from(next).wrapping_shl(48);
    [span.addr, high]
}
