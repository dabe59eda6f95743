//! The device side of a packed ring (virtio 1.3, 2.8).
//!
//! # Budget
//! Of a chain of one or two descriptors, in a batch of n: one 2-byte load of the first flags and
//! one 16-byte copy a descriptor, both of the same cache line, and one 8-byte store of the used
//! entry into a line that is already here; per batch one store of the first used flags and one
//! look at whether a notification is wanted. Four descriptors share a line, which comes over
//! once to be read and once goes back written; a split ring moves three lines for the same.
//! No system call, no allocation.
//!
//! # What a batch looks like to the driver
//! Used entries are written as they are pushed, each with its flags but for the first: the
//! driver looks at the slots in order, so the flags of the first show all of them.
//!
//! # Out of order
//! A used entry goes to the next slot in order whatever chain it is of, so it may overwrite a
//! descriptor of a chain that is still in flight; that one was copied out when it was taken.
//! The driver names chains by buffer ids, which have to be below the queue size (every known
//! driver's are) and differ while they are in flight.
//!
//! # In order
//! VIRTIO_F_IN_ORDER is not offered: it would save one used entry a batch, and the entries of a
//! batch lie in lines that are here anyway; beside that, frames and packets for different
//! receivers finish out of order by design.
//!
//! # Measured
//! A chain of one descriptor there and back, both sides on one core of a Zen 3 class processor,
//! best of 400 runs: split 60.6, 53.2 and 51.7 ns in batches of 1, 8 and 32; packed 63.2, 51.7
//! and 50.6 ns. So it is the lines that move between cores that a packed ring saves.

use std::collections::VecDeque;

use causeway_memory::{Map, OutOfGrant, Span, View};

use crate::chain::{Chain, prefetch};
use crate::error::RingError;
use crate::format::packed::{Descriptor, EVENT_BYTES, EVENT_DISABLE, EVENT_FLAGS, LEN, USED};
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use crate::handshake::{ask_slot, look_slot, show_slot};
use crate::inflight::{Inflight, PackedInflight};
use crate::latch::Latch;
use crate::limits::{BATCH_CHAINS, DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::marks::Marks;
use crate::position::Position;
use crate::queue::{Popped, Setup};

/// Descriptors in a cache line.
const PER_LINE: u16 = 4;

/// What is known of a chain by its buffer id.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Where it began.
    at: Position,
    /// Slots of the ring that it takes.
    slots: u16,
    /// Its entry in the record, if there is one.
    entry: u16,
    /// It was taken from the record.
    again: bool,
}

/// The device side of one packed ring.
#[derive(Debug)]
pub struct PackedQueue {
    setup: Setup,
    ring: View,
    /// The driver's event suppression structure, and ours.
    theirs: View,
    ours: View,
    /// Where the next chain begins.
    next: Position,
    /// Where the next used entry goes, and the first one that is not shown.
    pushed: Position,
    shown: Position,
    /// Flags of the entry at `shown`, once there is one.
    gate: u16,
    taken: Marks,
    held: Vec<Held>,
    /// Slots of all chains in flight.
    slots: u16,
    /// Chains taken since set-up, less those put back; wraps.
    popped: u32,
    /// Whether the driver was told not to ring.
    quiet: bool,
    record: Option<PackedInflight>,
    /// Chains to give before new ones, that were in flight when an earlier process ended: their
    /// entries in the record, and the slots that they take.
    again: VecDeque<(u16, u16)>,
    /// With a record, flags of the used entries that are pushed and not shown: whoever finds the
    /// ring after a death must not take them for shown.
    flags: Vec<(Position, u16)>,
    broken: Latch,
}

/// The ring and the two event suppression structures, checked for place and alignment.
fn views(setup: &Setup, map: &Map) -> Result<(View, View, View), RingError> {
    let part = |part, addr: u64, align: u64, len: usize| {
        if addr.checked_rem(align) != Some(0) {
            return Err(RingError::Alignment { part, addr, align });
        }
        map.view(addr, len).map_err(|gap| RingError::Hole { part, gap })
    };
    let ring = usize::from(setup.size).saturating_mul(DESCRIPTOR_BYTES);
    Ok((
        part("descriptor ring", setup.desc, 16, ring)?,
        part("driver event area", setup.avail, 4, EVENT_BYTES)?,
        part("device event area", setup.used, 4, EVENT_BYTES)?,
    ))
}

/// Whether no slot was ever used. Frontends that know only split rings (user-mode Linux) begin at
/// 0, which would be wrap counter 0: after a turn of the ring, of which used entries tell.
fn untouched(ring: &View, size: u16) -> Result<bool, RingError> {
    let mut at = Position::START;
    for _ in 0..size {
        if look_slot(ring, at).map_err(RingError::Lost)? & USED != 0 {
            return Ok(false);
        }
        at = at.advance(1, size);
    }
    Ok(true)
}

impl PackedQueue {
    /// Sets the queue up over granted memory. `setup.next` and `used` are positions in the ring
    /// with the wrap counter in bit 15: the next chain to take, the next used entry to write.
    pub fn new(setup: Setup, used: u16, map: &Map) -> Result<Self, RingError> {
        let size = setup.size;
        if size == 0 || size > QUEUE_SIZE_MAX {
            return Err(RingError::Size(size));
        }
        let (ring, theirs, ours) = views(&setup, map)?;
        let position =
            |bits| Position::from_bits(bits, size).ok_or(RingError::Position { bits, size });
        let (mut next, mut used) = (position(setup.next)?, position(used)?);
        if setup.next == 0 && used.bits() == 0 && untouched(&ring, size)? {
            (next, used) = (Position::START, Position::START);
        }
        if next.after(used, size) > u32::from(size) {
            return Err(RingError::Position { bits: setup.next, size });
        }
        Ok(Self {
            ring,
            theirs,
            ours,
            next,
            pushed: used,
            shown: used,
            gate: 0,
            taken: Marks::new(size),
            held: vec![
                Held { at: Position::START, slots: 0, entry: 0, again: false };
                usize::from(size)
            ],
            slots: 0,
            popped: 0,
            quiet: false,
            record: None,
            again: VecDeque::new(),
            flags: Vec::new(),
            broken: Latch::default(),
            setup,
        })
    }

    /// See [`crate::Queue::remap`].
    pub fn remap(&mut self, map: &Map) -> Result<(), RingError> {
        (self.ring, self.theirs, self.ours) = views(&self.setup, map)?;
        Ok(())
    }

    /// See [`crate::Queue::record`]. What the record says of positions counts.
    pub fn record(&mut self, inflight: Inflight) -> Result<(), RingError> {
        let Inflight::Packed(mut inflight) = inflight else { return Err(RingError::Inflight) };
        if let Some(left) = inflight.recover(self.shown, &self.ring)? {
            (self.pushed, self.shown) = (left.used, left.used);
            // No overflow: the record has seen to it that they fit the ring.
            self.slots = left.open.iter().fold(0, |sum, (_, slots)| sum.saturating_add(*slots));
            self.again = left.open.into();
            self.next = left.used.advance(self.slots, self.setup.size);
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
        self.next.bits()
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

    /// See [`crate::Queue::available`]. Walks the ring, for it says nowhere how many there are.
    pub fn available(&mut self) -> Result<u16, RingError> {
        self.broken.check()?;
        let counted = self.count();
        let (chains, _) = self.broken.latch(counted)?;
        Ok(chains.saturating_add(u16::try_from(self.again.len()).unwrap_or(u16::MAX)))
    }

    /// Chains that were not taken, and where the next one will come.
    fn count(&self) -> Result<(u16, Position), RingError> {
        let mut chains = 0_u16;
        let mut at = self.next;
        let mut begins = true;
        for _ in self.slots..self.setup.size {
            let flags = look_slot(&self.ring, at).map_err(RingError::Lost)?;
            // The flags of the first descriptor make the whole chain available.
            if begins && !at.is_available(flags) {
                break;
            }
            begins = flags & FLAG_NEXT == 0;
            chains = chains.saturating_add(u16::from(begins));
            at = at.advance(1, self.setup.size);
        }
        // One that does not end within the ring is there to be taken, and refused.
        let chains = if begins { chains } else { chains.saturating_add(1) };
        Ok((chains, at))
    }

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
            at = at.advance(1, size);
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
        let Some(flags) = self.next_flags()? else { return Ok(false) };
        if self.single(map, flags, chain)? {
            return Ok(true);
        }
        let size = self.setup.size;
        let at = self.next;
        let room = size.saturating_sub(self.slots);
        let mut slot = at;
        let mut flags = Some(flags);
        let (id, slots) = self.walk(map, chain, room, || {
            let words = self.ring.load_pair(slot.at()).map_err(RingError::Lost)?;
            let mut one = Descriptor::parse(words);
            // The first flags were read with the order that they need, and count.
            one.flags = flags.take().unwrap_or(one.flags);
            slot = slot.advance(1, size);
            Ok(one)
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

    /// The flags of the next descriptor, if it is available.
    #[inline]
    fn next_flags(&self) -> Result<Option<u16>, RingError> {
        let flags = look_slot(&self.ring, self.next).map_err(RingError::Lost)?;
        Ok(self.next.is_available(flags).then_some(flags))
    }

    /// Takes the next chain if it is one descriptor in the ring and all is well; else nothing is
    /// done, and [`Self::walk`] tells what is wrong, or goes on. `flags` are the descriptor's, read
    /// with the order that they need.
    #[inline]
    fn single(&mut self, map: &Map, flags: u16, chain: &mut Chain) -> Result<bool, RingError> {
        let at = self.next;
        if flags & (FLAG_NEXT | FLAG_INDIRECT) != 0 || self.slots >= self.setup.size {
            return Ok(false);
        }
        let Ok(words) = self.ring.load_pair(at.at()) else { return Ok(false) };
        let Descriptor { span, id, .. } = Descriptor::parse(words);
        let Some(place) = self.held.get_mut(usize::from(id)) else { return Ok(false) };
        let all_well = chain.only(map, id, span, flags & FLAG_WRITE != 0) && self.taken.add(id);
        if !all_well {
            return Ok(false);
        }
        let mut entry = 0;
        if let Some(record) = &mut self.record {
            entry = record.take(&self.ring, at, 1)?;
        }
        *place = Held { at, slots: 1, entry, again: false };
        self.popped = self.popped.wrapping_add(1);
        self.slots = self.slots.wrapping_add(1);
        self.next = at.advance(1, self.setup.size);
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
        let most = most.min(BATCH_CHAINS);
        let mut got = Popped { count: 0, odd: !self.again.is_empty() };
        // A ring that has nothing is left to its driver, who writes there.
        if got.odd || self.next_flags()?.is_none() {
            return Ok(got);
        }
        self.fetch_lines(most as u16);
        for chain in into.take(most) {
            let Some(flags) = self.next_flags()? else { return Ok(got) };
            if !self.single(map, flags, chain)? {
                got.odd = true;
                return Ok(got);
            }
            got.count = got.count.wrapping_add(1);
        }
        Ok(got)
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
        if !self.taken.add(id) {
            return Err(RingError::Twice(id));
        }
        *place = held;
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
        if !map.contains(addr, u64::from(len)) {
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

    /// See [`crate::Queue::put_back`]. Its descriptors are still there: used entries overwrite
    /// only what was taken before them.
    pub fn put_back(&mut self, id: u16) {
        let Some(&Held { at, slots, entry, again }) = self.held.get(usize::from(id)) else {
            return;
        };
        // Only the latest can go back into the ring; what is out of order stays in flight.
        let latest = at.advance(slots, self.setup.size) == self.next;
        if !(latest || again) || !self.taken.remove(id) {
            return;
        }
        self.popped = self.popped.wrapping_sub(1);
        if again {
            self.again.push_front((entry, slots));
            return;
        }
        self.slots = self.slots.saturating_sub(slots);
        self.next = at;
        if let Some(record) = &mut self.record {
            let noted = record.put_back(entry);
            // The error is given at the next call.
            let _ = self.broken.latch(noted);
        }
    }

    /// See [`crate::Queue::finish`].
    pub fn finish(&mut self) -> Result<bool, RingError> {
        for id in 0..self.setup.size {
            if self.taken.has(id) {
                self.push(id, 0)?;
            }
        }
        self.publish()
    }

    /// See [`crate::Queue::push`].
    #[inline]
    pub fn push(&mut self, id: u16, written: u32) -> Result<(), RingError> {
        self.push_batch(std::iter::once((id, written)))
    }

    /// See [`crate::Queue::push_batch`].
    #[inline]
    pub fn push_batch(
        &mut self,
        mut used: impl Iterator<Item = (u16, u32)>,
    ) -> Result<(), RingError> {
        self.broken.check()?;
        let stored = used.try_for_each(|(id, written)| self.give(id, written));
        self.broken.latch(stored)
    }

    /// Writes the used entry of chain `id`, if it is in flight.
    #[inline]
    fn give(&mut self, id: u16, written: u32) -> Result<(), RingError> {
        if !self.taken.remove(id) {
            return Ok(());
        }
        let Some(&Held { slots, entry, .. }) = self.held.get(usize::from(id)) else {
            return Ok(());
        };
        let wrote = if written > 0 { FLAG_WRITE } else { 0 };
        self.write_used(id, written, self.pushed.used() | wrote).map_err(RingError::Lost)?;
        if let Some(record) = &mut self.record {
            record.push(entry);
        }
        self.slots = self.slots.saturating_sub(slots);
        self.pushed = self.pushed.advance(slots, self.setup.size);
        Ok(())
    }

    /// Writes the next used entry; its flags too, if the driver does not look at them yet.
    #[inline]
    fn write_used(&mut self, id: u16, written: u32, flags: u16) -> Result<(), OutOfGrant> {
        let at = self.pushed.at().wrapping_add(LEN);
        let entry = u64::from(written) | u64::from(id).wrapping_shl(32);
        let first = self.pushed == self.shown;
        if first {
            self.gate = flags;
        } else if self.record.is_some() {
            self.flags.push((self.pushed, flags));
        } else {
            let entry = entry | u64::from(flags).wrapping_shl(48);
            return self.ring.store_word(at, entry);
        }
        let [l0, l1, l2, l3, i0, i1, _, _] = entry.to_le_bytes();
        self.ring.write(at, &[l0, l1, l2, l3, i0, i1])
    }

    /// See [`crate::Queue::publish`].
    #[inline]
    pub fn publish(&mut self) -> Result<bool, RingError> {
        self.broken.check()?;
        if self.shown == self.pushed {
            return Ok(false);
        }
        let done = self.show();
        self.broken.latch(done)
    }

    #[inline]
    fn show(&mut self) -> Result<bool, RingError> {
        if let Some(record) = &mut self.record {
            record.prepare(self.pushed)?;
            for (at, flags) in self.flags.drain(..) {
                let order = std::sync::atomic::Ordering::Relaxed;
                self.ring.store(at.flags_at(), flags, order).map_err(RingError::Lost)?;
            }
        }
        let batch = (self.shown, self.pushed);
        let wanted = show_slot(&self.ring, &self.theirs, self.gate, batch, self.setup.size);
        self.shown = self.pushed;
        if let Some(record) = &mut self.record {
            record.published(self.shown)?;
        }
        wanted.map_err(RingError::Lost)
    }

    /// See [`crate::Queue::arm`].
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.broken.check()?;
        // Behind what was left or put back: the driver rings for a position once, as it passes it.
        let counted = self.count();
        let (chains, next) = self.broken.latch(counted)?;
        let at = self.setup.event_index.then_some(next);
        let flags = ask_slot(&self.ours, &self.ring, at, next).map_err(RingError::Lost);
        self.quiet = false;
        let flags = self.broken.latch(flags)?;
        Ok(chains > 0 || next.is_available(flags) || !self.again.is_empty())
    }

    /// See [`crate::Queue::disarm`]. Also with event index: positions come round so soon that the
    /// driver would ring once in two turns.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), RingError> {
        if self.quiet {
            return Ok(());
        }
        self.broken.check()?;
        let order = std::sync::atomic::Ordering::Relaxed;
        let stored = self.ours.store(EVENT_FLAGS, EVENT_DISABLE, order);
        self.quiet = true;
        self.broken.latch(stored.map_err(RingError::Lost))
    }
}
