//! Chains out of a packed ring: copied, checked, noted as in flight.

use causeway_memory::{Map, OutOfGrant, Rights, Span};

use super::{Held, PackedQueue};
use crate::chain::{Chain, prefetch};
use crate::error::RingError;
use crate::format::packed::{Descriptor, PER_LINE};
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use crate::limits::{BATCH_CHAINS, DESCRIPTOR_BYTES};
use crate::position::Position;
use crate::queue::Popped;

impl PackedQueue {
    /// See [`crate::Queue::look_ahead`].
    #[inline]
    pub fn look_ahead(&mut self, map: &Map, most: u16) {
        let size = self.setup.size;
        let most = most.min(size.saturating_sub(self.slots));
        self.fetch_lines(most);
        let mut at = self.next;
        for _ in 0..most {
            let Ok(words) = self.ring.load_pair(at.at()) else { return };
            let one = Descriptor::parse(words);
            if !at.is_available(one.flags) {
                return;
            }
            prefetch(map, one.span, one.flags);
            at = at.next(size);
        }
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
        if !self.again.is_empty() {
            return self.take_again(map, chain);
        }
        let at = self.next;
        let Some(first) = self.look(at)? else { return Ok(false) };
        if self.slots < self.setup.size && self.single(map, (at, &first), chain)? {
            self.took(1, at.next(self.setup.size));
            return Ok(true);
        }
        let size = self.setup.size;
        let room = size.saturating_sub(self.slots);
        let mut slot = at;
        let mut first = Some(first);
        let (id, slots) = self.walk(map, chain, room, || {
            let here = slot;
            slot = slot.next(size);
            // The first was read with the order that it needs, and counts.
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
        self.hold(id, Held { at, slots, entry, again: false })?;
        // The walk has seen to it that all slots in flight fit the ring.
        self.slots = self.slots.wrapping_add(slots);
        self.next = at.advance(slots, size);
        Ok(true)
    }

    /// The descriptor at `at`, if it is available. As [`look_slot`]: the flags are in the word that
    /// is loaded first.
    ///
    /// [`look_slot`]: crate::handshake::look_slot
    #[inline]
    fn look(&self, at: Position) -> Result<Option<Descriptor>, RingError> {
        let one = self.ring.load_entry(at.at()).map(Descriptor::parse).map_err(RingError::Lost)?;
        Ok(if at.is_available(one.flags) { Some(one) } else { None })
    }

    /// Takes the chain at `at`, the next one, for which there is room, if it is one descriptor in the
    /// ring and all is well; else nothing is done, and [`Self::walk`] tells what is wrong, or goes
    /// on.
    #[inline(always)]
    fn single(
        &mut self,
        map: &Map,
        (at, one): (Position, &Descriptor),
        chain: &mut Chain,
    ) -> Result<bool, RingError> {
        let &Descriptor { span, id, flags } = one;
        let Some(place) = self.held.get_mut(usize::from(id)) else { return Ok(false) };
        let plain = flags & (FLAG_NEXT | FLAG_INDIRECT) == 0 && place.slots == 0;
        if !plain || !chain.only(map, id, span, flags & FLAG_WRITE != 0) {
            return Ok(false);
        }
        *place = Held { at, slots: 1, entry: 0, again: false };
        if let Some(record) = &mut self.record {
            place.entry = record.take(&self.ring, at, 1)?;
        }
        Ok(true)
    }

    /// Counts chains of one descriptor each, the next ones in the ring, up to `next`.
    #[inline]
    fn took(&mut self, count: u16, next: Position) {
        self.in_flight = self.in_flight.wrapping_add(count);
        self.popped = self.popped.wrapping_add(u32::from(count));
        self.slots = self.slots.wrapping_add(count);
        self.next = next;
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
        // A ring that has nothing is left to its driver, who writes there.
        if !self.again.is_empty() || self.look(self.next)?.is_none() {
            return Ok(Popped { count: 0, odd: !self.again.is_empty() });
        }
        let most = most.min(BATCH_CHAINS);
        self.fetch_lines(most as u16);
        let size = self.setup.size;
        let room = usize::from(size.wrapping_sub(self.slots));
        let (mut count, mut at, mut odd) = (0_u16, self.next, false);
        for chain in into.take(most.min(room)) {
            let Some(one) = self.look(at)? else { break };
            if !self.single(map, (at, &one), chain)? {
                odd = true;
                break;
            }
            count = count.wrapping_add(1);
            at = at.next(size);
        }
        self.took(count, at);
        let count = usize::from(count);
        // One for which there is no room is refused by name.
        let odd = odd || count == room && room < most && self.look(at)?.is_some();
        Ok(Popped { count, odd })
    }

    /// Has the lines of the next `most` slots on their way: used entries will be written there.
    #[inline]
    fn fetch_lines(&self, most: u16) {
        let size = self.setup.size;
        let mut at = self.next;
        for _ in 0..most.div_ceil(PER_LINE) {
            self.ring.prefetch_write(at.at());
            at = at.advance(PER_LINE.min(size), size);
        }
    }

    /// Takes the oldest chain that an earlier process took and did not finish.
    fn take_again(&mut self, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
        let (Some(record), Some(&(entry, slots))) = (&self.record, self.again.front()) else {
            return Ok(false);
        };
        let mut at = entry;
        let (id, _) = self.walk(map, chain, slots, || {
            let (words, next) = record.descriptor(at)?;
            at = next;
            Ok(Descriptor::parse(words))
        })?;
        self.hold(id, Held { at: self.next, slots, entry, again: true })?;
        self.again.pop_front();
        Ok(true)
    }

    /// Notes that chain `id` is in flight.
    #[inline]
    fn hold(&mut self, id: u16, held: Held) -> Result<(), RingError> {
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

    /// Copies a chain out of what `next` gives, checking each descriptor; never more than `room`
    /// of them. Gives its buffer id and how many slots of the ring it takes.
    fn walk(
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
                // Alone it is a cycle or too long; else the driver takes back what it gave.
                let size = self.setup.size;
                return Err(match self.slots {
                    0 => RingError::Endless(u32::from(size)),
                    _ => RingError::Overfull(size),
                });
            }
            let one = next()?;
            slots = slots.wrapping_add(1);
            // The last descriptor names the chain.
            chain.head = one.id;
            if one.flags & FLAG_INDIRECT != 0 {
                // Alone in its chain (2.8.19).
                if slots > 1 || one.flags & FLAG_NEXT != 0 {
                    return Err(RingError::IndirectTable(one.span.len));
                }
                self.table(map, one.span, chain)?;
                return Ok((one.id, slots));
            }
            chain.add(map, one.span, one.flags & FLAG_WRITE != 0)?;
            if one.flags & FLAG_NEXT == 0 {
                return Ok((one.id, slots));
            }
        }
    }

    /// Copies the descriptors of an indirect table out. They follow each other: NEXT, ids and
    /// all other flags mean nothing there (2.8.8).
    fn table(&self, map: &Map, table: Span, chain: &mut Chain) -> Result<(), RingError> {
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
            let one = Descriptor::parse(words);
            if one.flags & FLAG_INDIRECT != 0 {
                return Err(RingError::Nested);
            }
            chain.add(map, one.span, one.flags & FLAG_WRITE != 0)?;
        }
        Ok(())
    }
}
