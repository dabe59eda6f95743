//! Popping of chains from a packed ring, the first access to a guest's frame: copy, check, and mark
//! as in flight.
//!
//! Services call [`crate::Queue::pop_batch`] for chains of a single descriptor, and
//! [`crate::Queue::pop`] for any chain, in the dispatcher's thread. A chain is available when the
//! flags of its first descriptor match the wrap counter. Each descriptor is copied once and checked
//! in its private copy, by the rules of a split ring; the buffer id must be below the ring's size
//! and not in flight. Buffers are prefetched, not read.
//!
//! A batch ends before the first chain that is not a single valid descriptor, and reports it in
//! [`PoppedBatch::needs_pop`]. Used entries may already overwrite the slots of a popped chain, so
//! its descriptors cannot be read again. While chains of an earlier process are left, a batch is
//! empty and needs a pop. A chain that was put back is simply the next in the ring. A chain with an
//! error breaks the queue, and every later call returns the error.

use causeway_memory::{Map, OutOfGrant, Rights, Span};

use super::{InFlightChain, PackedQueue};
use crate::chain::{Chain, prefetch_buffer};
use crate::error::RingError;
use crate::format::packed::{Descriptor, PER_LINE};
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use crate::limits::{BATCH_CHAINS, DESCRIPTOR_BYTES};
use crate::position::Position;
use crate::queue::PoppedBatch;

impl PackedQueue {
    /// Implements [`crate::Queue::prefetch`].
    #[inline]
    pub fn prefetch(&mut self, map: &Map, most: u16) {
        let size = self.setup.size;
        let most = most.min(size.saturating_sub(self.slots));
        self.fetch_lines(most);
        let mut at = self.next;
        for _ in 0..most {
            let Ok(words) = self.ring.load_pair(at.at()) else { return };
            let descriptor = Descriptor::parse(words);
            if !at.is_available(descriptor.flags) {
                return;
            }
            prefetch_buffer(map, descriptor.span, descriptor.flags);
            at = at.next(size);
        }
    }

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
        if !self.pending.is_empty() {
            return self.pop_pending(map, chain);
        }
        let at = self.next;
        let Some(first) = self.load_available(at)? else { return Ok(false) };
        if self.slots < self.setup.size && self.pop_single(map, (at, &first), chain)? {
            self.count_popped(1, at.next(self.setup.size));
            return Ok(true);
        }
        let size = self.setup.size;
        let room = size.saturating_sub(self.slots);
        let mut slot = at;
        let mut first = Some(first);
        let (id, slots) = self.copy_chain(map, chain, room, || {
            let here = slot;
            slot = slot.next(size);
            // The first descriptor was loaded with acquire ordering; this copy is the checked copy.
            match first.take() {
                Some(first) => Ok(first),
                None => {
                    self.ring.load_pair(here.at()).map(Descriptor::parse).map_err(RingError::Lost)
                }
            }
        })?;
        let mut entry = 0;
        if let Some(record) = &mut self.record {
            entry = record.take(&self.ring, at, slots)?;
        }
        self.mark_in_flight(id, InFlightChain { at, slots, entry, from_record: false })?;
        // `copy_chain` checked that all slots in flight fit the ring.
        self.slots = self.slots.wrapping_add(slots);
        self.next = at.advance(slots, size);
        Ok(true)
    }

    /// Returns the descriptor at `at`, if it is available. Acquires like [`load_flags`]: the word
    /// with the flags is loaded first.
    ///
    /// [`load_flags`]: crate::handshake::load_flags
    #[inline]
    fn load_available(&self, at: Position) -> Result<Option<Descriptor>, RingError> {
        let descriptor =
            self.ring.load_entry(at.at()).map(Descriptor::parse).map_err(RingError::Lost)?;
        Ok(if at.is_available(descriptor.flags) { Some(descriptor) } else { None })
    }

    /// Pops the chain at `at`, the next chain, if it is a valid single descriptor in the ring. The
    /// caller checked that a slot is free. Otherwise changes nothing, and [`Self::copy_chain`]
    /// copies the chain or finds the error.
    #[inline(always)]
    fn pop_single(
        &mut self,
        map: &Map,
        (at, descriptor): (Position, &Descriptor),
        chain: &mut Chain,
    ) -> Result<bool, RingError> {
        let &Descriptor { span, id, flags } = descriptor;
        let Some(place) = self.held.get_mut(usize::from(id)) else { return Ok(false) };
        let plain = flags & (FLAG_NEXT | FLAG_INDIRECT) == 0 && place.slots == 0;
        if !plain || !chain.only(map, id, span, flags & FLAG_WRITE != 0) {
            return Ok(false);
        }
        *place = InFlightChain { at, slots: 1, entry: 0, from_record: false };
        if let Some(record) = &mut self.record {
            place.entry = record.take(&self.ring, at, 1)?;
        }
        Ok(true)
    }

    /// Counts `count` popped chains of one descriptor each; `next` is the position after them.
    #[inline]
    fn count_popped(&mut self, count: u16, next: Position) {
        self.in_flight = self.in_flight.wrapping_add(count);
        self.popped = self.popped.wrapping_add(u32::from(count));
        self.slots = self.slots.wrapping_add(count);
        self.next = next;
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
        // An empty ring is not prefetched for writing, since its driver is about to write there.
        if !self.pending.is_empty() || self.load_available(self.next)?.is_none() {
            return Ok(PoppedBatch { count: 0, needs_pop: !self.pending.is_empty() });
        }
        let most = most.min(BATCH_CHAINS);
        self.fetch_lines(most as u16);
        let size = self.setup.size;
        let room = usize::from(size.wrapping_sub(self.slots));
        let (mut count, mut at, mut needs_pop) = (0_u16, self.next, false);
        for chain in into.take(most.min(room)) {
            let Some(descriptor) = self.load_available(at)? else { break };
            if !self.pop_single(map, (at, &descriptor), chain)? {
                needs_pop = true;
                break;
            }
            count = count.wrapping_add(1);
            at = at.next(size);
        }
        self.count_popped(count, at);
        let count = usize::from(count);
        // A chain for which no slot is free is refused by [`Self::pop`].
        let needs_pop =
            needs_pop || count == room && room < most && self.load_available(at)?.is_some();
        Ok(PoppedBatch { count, needs_pop })
    }

    /// Prefetches the lines of the next `most` slots for writing: used entries go there.
    #[inline]
    fn fetch_lines(&self, most: u16) {
        let size = self.setup.size;
        let mut at = self.next;
        for _ in 0..most.div_ceil(PER_LINE) {
            self.ring.prefetch_write(at.at());
            at = at.advance(PER_LINE.min(size), size);
        }
    }

    /// Pops the oldest chain that an earlier process left in flight.
    fn pop_pending(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        let (Some(record), Some(&(entry, slots))) = (&self.record, self.pending.front()) else {
            return Ok(false);
        };
        let mut at = entry;
        let (id, _) = self.copy_chain(map, chain, slots, || {
            let (words, next) = record.descriptor(at)?;
            at = next;
            Ok(Descriptor::parse(words))
        })?;
        self.mark_in_flight(id, InFlightChain { at: self.next, slots, entry, from_record: true })?;
        self.pending.pop_front();
        Ok(true)
    }

    /// Marks chain `id` as in flight.
    #[inline]
    fn mark_in_flight(&mut self, id: u16, held: InFlightChain) -> Result<(), RingError> {
        let size = self.setup.size;
        let place = self.held.get_mut(usize::from(id)).ok_or(RingError::Head { head: id, size })?;
        if place.slots != 0 {
            return Err(RingError::Twice(id));
        }
        *place = held;
        self.in_flight = self.in_flight.wrapping_add(1);
        self.popped = self.popped.wrapping_add(1);
        Ok(())
    }

    /// Copies a chain of descriptors from `next`, and checks each; at most `room` descriptors.
    /// Returns its buffer id and number of slots.
    fn copy_chain(
        &self,
        map: &Map,
        chain: &mut Chain,
        room: u16,
        mut next: impl FnMut() -> Result<Descriptor, RingError>,
    ) -> Result<(u16, u16), RingError> {
        let mut slots = 0_u16;
        chain.clear(0);
        loop {
            if slots >= room {
                // With no other chain in flight it is a cycle or too long; otherwise the driver
                // reuses slots in flight.
                let size = self.setup.size;
                return Err(match self.slots {
                    0 => RingError::Endless(u32::from(size)),
                    _ => RingError::Overfull(size),
                });
            }
            let descriptor = next()?;
            slots = slots.wrapping_add(1);
            // The last descriptor has the chain's id.
            chain.head = descriptor.id;
            if descriptor.flags & FLAG_INDIRECT != 0 {
                // An indirect descriptor must be alone in its chain (2.8.19).
                if slots > 1 || descriptor.flags & FLAG_NEXT != 0 {
                    return Err(RingError::IndirectTable(descriptor.span.len));
                }
                self.copy_table(map, descriptor.span, chain)?;
                return Ok((descriptor.id, slots));
            }
            chain.add(map, descriptor.span, descriptor.flags & FLAG_WRITE != 0)?;
            if descriptor.flags & FLAG_NEXT == 0 {
                return Ok((descriptor.id, slots));
            }
        }
    }

    /// Copies the descriptors of an indirect table. They are consecutive: NEXT, ids and other flags
    /// are ignored there (2.8.8).
    fn copy_table(&self, map: &Map, table: Span, chain: &mut Chain) -> Result<(), RingError> {
        if !self.setup.indirect {
            return Err(RingError::NotNegotiated);
        }
        let Span { addr, len } = table;
        if len == 0 || !len.is_multiple_of(DESCRIPTOR_BYTES as u32) {
            return Err(RingError::IndirectTable(len));
        }
        let size = u32::from(self.setup.size);
        if len.wrapping_shr(4) > size {
            return Err(RingError::Endless(size));
        }
        let gap = OutOfGrant { addr, len: u64::from(len) };
        if !map.contains(addr, u64::from(len), Rights::READ) {
            return Err(RingError::Descriptor(gap));
        }
        for offset in (0..len).step_by(DESCRIPTOR_BYTES) {
            let at = addr.checked_add(u64::from(offset)).ok_or(RingError::Descriptor(gap))?;
            let words = map.load_pair(at).map_err(RingError::Descriptor)?;
            let descriptor = Descriptor::parse(words);
            if descriptor.flags & FLAG_INDIRECT != 0 {
                return Err(RingError::Nested);
            }
            chain.add(map, descriptor.span, descriptor.flags & FLAG_WRITE != 0)?;
        }
        Ok(())
    }
}
