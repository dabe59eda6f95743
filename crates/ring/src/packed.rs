//! The device side of a packed ring (virtio 1.3, 2.8).
//!
//! Pops available chains (in the child module `pop`) and publishes used entries; backends and
//! services reach it through [`crate::Queue`], in the dispatcher's thread. Rings have 1 to
//! [`QUEUE_SIZE_MAX`] (32,768) slots, any number. The child module `locate` recovers a lost
//! position when a backend takes over a ring without a record.
//!
//! It never accesses buffers, never waits, and trusts no value of the driver. A used entry is
//! visible to the driver only after [`PackedQueue::publish`]. Chains that were put back, and chains
//! left by an earlier process, are popped first. Only the latest chain in the ring that was popped
//! and not put back, or a chain left by an earlier process, can be put back. The first violation
//! breaks the queue for good.
//!
//! # Budget
//! Accesses to shared memory for a chain of one or two descriptors in a batch: a 16-byte copy per
//! descriptor, the word with the flags first, and an 8-byte store of the used entry into a line
//! that is in the cache already. Per batch: a store of the first used flags, and a load of the
//! driver's event suppression structure. Four descriptors share a line, which is transferred once
//! for reading and once back after writing; a split ring transfers three lines for the same. No
//! system call, no allocation. A chain of one descriptor popped by the batch costs some 80
//! instructions including its prefetches, and 40 for its push.
//!
//! # Publication of a batch
//! Used entries are written when they are pushed, with their flags except for the first entry: the
//! driver reads slots in order, so the flags of the first entry publish all.
//!
//! # Out of order
//! A used entry goes to the next slot in order, whichever chain it belongs to, so it can overwrite
//! a descriptor of a chain in flight; that descriptor was copied at its pop. The driver identifies
//! chains by buffer ids, which must be below the queue size (those of all known drivers are) and
//! unique in flight.
//!
//! # In order
//! VIRTIO_F_IN_ORDER is not offered. It would save one used entry per batch, whose line is in the
//! cache anyway; and frames and packets for different receivers finish out of order by design.
//!
//! # Measured
//! Round trip of a chain of one descriptor, both sides on one core of a Zen 3 class processor, best
//! of 400 runs: split 60.6, 53.2 and 51.7 ns in batches of 1, 8 and 32; packed 63.2, 51.7 and 50.6
//! ns. So the advantage of a packed ring is in the cache lines that it transfers between cores.

mod locate;
mod pop;

use std::collections::VecDeque;

use causeway_memory::{Map, View};

use crate::error::RingError;
use crate::format::packed::{AVAIL, EVENT_BYTES, EVENT_DISABLE, EVENT_FLAGS, LEN, USED};
use crate::format::{FLAG_NEXT, FLAG_WRITE};
use crate::handshake::{arm_slots, load_flags, publish_slots};
use crate::inflight::{Inflight, PackedInflight};
use crate::latch::Latch;
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::packed::locate::{RingPosition, SlotFlags};
use crate::position::Position;
use crate::queue::QueueSetup;

/// State of a buffer id.
#[derive(Debug, Clone, Copy)]
struct InFlightChain {
    /// Position of the chain's first slot.
    at: Position,
    /// Number of slots of the chain; 0 while the id is not in flight.
    slots: u16,
    /// Entry of the chain in the record, if there is a record.
    entry: u16,
    /// Whether the chain was popped from the record.
    from_record: bool,
}

impl InFlightChain {
    /// State of an id that is not in flight.
    const NONE: Self = Self { at: Position::START, slots: 0, entry: 0, from_record: false };
}

/// The device side of one packed ring.
#[derive(Debug)]
pub struct PackedQueue {
    /// Parameters of the ring.
    setup: QueueSetup,
    /// The descriptor ring.
    ring: View,
    /// The event suppression structures of the driver and of the device.
    driver_events: View,
    device_events: View,
    /// Position of the next chain.
    next: Position,
    /// Position of the next used entry, and of the first unpublished used entry.
    pushed: Position,
    published: Position,
    /// Flags of the entry at `published`, once it is written.
    first_flags: u16,
    /// States by buffer id.
    held: Vec<InFlightChain>,
    /// Number of chains in flight.
    in_flight: u16,
    /// Number of slots of all chains in flight.
    slots: u16,
    /// Number of chains popped since set-up, less those put back; wraps.
    popped: u32,
    /// Whether doorbells are suppressed.
    disarmed: bool,
    /// The in-flight record, if the frontend keeps one.
    record: Option<PackedInflight>,
    /// Whether an earlier process started the record.
    pub(crate) resumed: bool,
    /// Chains to pop before new chains, in flight when an earlier process ended: their entries in
    /// the record, and their numbers of slots.
    pending: VecDeque<(u16, u16)>,
    /// With a record, the flags of pushed and unpublished used entries. They are written at
    /// publication only: a successor must not take these entries for published.
    flags: Vec<(Position, u16)>,
    /// The first error.
    broken: Latch,
}

/// Returns views of the ring and both event suppression structures, after checks of grant and
/// alignment.
fn views(setup: &QueueSetup, map: &Map) -> Result<(View, View, View), RingError> {
    let part = |part, addr: u64, align: u64, len: usize| {
        if addr.checked_rem(align) != Some(0) {
            return Err(RingError::Alignment { part, addr, align });
        }
        map.view(addr, len).map_err(|gap| RingError::Hole { part, gap })
    };
    let len = usize::from(setup.size).saturating_mul(DESCRIPTOR_BYTES);
    let ring = part("descriptor ring", setup.desc, 16, len)?;
    // An aligned guest address can be unaligned in this process.
    if !ring.as_ptr().cast::<u64>().is_aligned() {
        return Err(RingError::Alignment {
            part: "descriptor ring in its file",
            addr: setup.desc,
            align: 8,
        });
    }
    Ok((
        ring,
        part("driver event area", setup.avail, 4, EVENT_BYTES)?,
        part("device event area", setup.used, 4, EVENT_BYTES)?,
    ))
}

/// Returns whether no slot was ever used. Frontends that know only split rings (user-mode Linux)
/// start at 0, which means wrap counter 0, a position after a whole pass; such a pass would have
/// left used entries.
fn untouched(ring: &View, size: u16) -> Result<bool, RingError> {
    let mut at = Position::START;
    for _ in 0..size {
        if load_flags(ring, at).map_err(RingError::Lost)? & USED != 0 {
            return Ok(false);
        }
        at = at.next(size);
    }
    Ok(true)
}

/// Returns the word with length and buffer id of a used entry, and its flags.
#[inline]
fn entry(at: Position, id: u16, written: u32) -> (u64, u16) {
    let wrote = if written > 0 { FLAG_WRITE } else { 0 };
    (u64::from(written) | u64::from(id).wrapping_shl(32), at.used() | wrote)
}

impl PackedQueue {
    /// Implements [`crate::Queue::packed`].
    pub fn new(setup: QueueSetup, used: u16, map: &Map) -> Result<Self, RingError> {
        let size = setup.size;
        if size == 0 || size > QUEUE_SIZE_MAX {
            return Err(RingError::Size(size));
        }
        let (ring, driver_events, device_events) = views(&setup, map)?;
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
            driver_events,
            device_events,
            next,
            pushed: used,
            published: used,
            first_flags: 0,
            held: vec![InFlightChain::NONE; usize::from(size)],
            in_flight: 0,
            slots: 0,
            popped: 0,
            disarmed: false,
            record: None,
            resumed: false,
            pending: VecDeque::new(),
            flags: Vec::new(),
            broken: Latch::default(),
            setup,
        })
    }

    /// Implements [`crate::Queue::remap`].
    pub fn remap(&mut self, map: &Map) -> Result<(), RingError> {
        (self.ring, self.driver_events, self.device_events) = views(&self.setup, map)?;
        Ok(())
    }

    /// Implements [`crate::Queue::record`]. The positions in the record take precedence.
    pub fn record(&mut self, inflight: Inflight) -> Result<(), RingError> {
        let Inflight::Packed(mut inflight) = inflight else { return Err(RingError::Inflight) };
        if let Some(left) = inflight.recover(self.published, &self.ring)? {
            (self.pushed, self.published) = (left.used, left.used);
            // No overflow: the record checked that they fit the ring.
            self.slots = left.open.iter().fold(0, |sum, (_, slots)| sum.saturating_add(*slots));
            self.pending = left.open.into();
            self.next = left.used.advance(self.slots, self.setup.size);
            self.resumed = true;
        }
        self.record = Some(inflight);
        Ok(())
    }

    /// Implements [`crate::Queue::locate`].
    pub fn locate(&mut self) -> Result<bool, RingError> {
        let size = self.setup.size;
        let slots = SlotFlags::read(&self.ring, size)?;
        let given = self.published;
        let Some(RingPosition { used, unpublished }) = slots.locate() else {
            return if slots.may_stand(given) { Ok(false) } else { Err(RingError::PositionLost) };
        };
        // Drivers that may use indirect tables do so for longer chains: each chain takes one slot
        // then.
        let single = self.setup.indirect && slots.are_single();
        let right = match unpublished {
            Some(_) => false,
            None if used == given => !single || !self.is_used_unpublished(used)?,
            // The chain used last may have taken several slots: then both positions are consistent.
            None => slots.is_rest_of_chain(used, given) && !(single && given == Position::START),
        };
        if right {
            return Ok(false);
        }
        if !single {
            return if slots.may_stand(given) { Ok(false) } else { Err(RingError::PositionLost) };
        }
        let mut used = used;
        let first_hidden = match unpublished {
            None if self.is_used_unpublished(used)? => {
                let first_hidden = used;
                used = used.next(size);
                Some(first_hidden)
            }
            unpublished => unpublished,
        };
        if let Some(first_hidden) = first_hidden {
            let wrote = load_flags(&self.ring, first_hidden).map_err(RingError::Lost)? & FLAG_WRITE;
            let order = std::sync::atomic::Ordering::Release;
            let published =
                self.ring.store(first_hidden.flags_at(), first_hidden.used() | wrote, order);
            published.map_err(RingError::Lost)?;
        }
        (self.next, self.pushed, self.published) = (used, used, used);
        self.resumed = true;
        Ok(true)
    }

    /// Returns whether the chain at `at` is available in the ring but was used by an earlier
    /// process without publication.
    fn is_used_unpublished(&self, at: Position) -> Result<bool, RingError> {
        let flags = load_flags(&self.ring, at).map_err(RingError::Lost)?;
        Ok(at.is_available(flags) && locate::is_used_unpublished(&self.ring, at, flags)?)
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
        self.next.bits()
    }

    /// Implements [`crate::Queue::in_flight`].
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Implements [`crate::Queue::popped`].
    pub fn popped(&self) -> u32 {
        self.popped
    }

    /// Implements [`crate::Queue::broken`].
    pub fn broken(&self) -> Option<RingError> {
        self.broken.get()
    }

    /// Implements [`crate::Queue::available`]. Walks the ring, because a packed ring has no index.
    pub fn available(&mut self) -> Result<u16, RingError> {
        self.broken.check()?;
        let counted = self.count();
        let (chains, _) = self.broken.latch(counted)?;
        Ok(chains.saturating_add(u16::try_from(self.pending.len()).unwrap_or(u16::MAX)))
    }

    /// Returns the number of chains that were not popped, and the position after them.
    fn count(&self) -> Result<(u16, Position), RingError> {
        let mut chains = 0_u16;
        let mut at = self.next;
        let mut begins = true;
        for _ in self.slots..self.setup.size {
            let flags = load_flags(&self.ring, at).map_err(RingError::Lost)?;
            // The flags of the first descriptor make the whole chain available.
            if begins && !at.is_available(flags) {
                break;
            }
            begins = flags & FLAG_NEXT == 0;
            chains = chains.saturating_add(u16::from(begins));
            at = at.next(self.setup.size);
        }
        // A chain that does not end within the ring counts: its pop returns the error.
        let chains = if begins { chains } else { chains.saturating_add(1) };
        Ok((chains, at))
    }

    /// Removes chain `id` from those in flight. Returns its state if it was in flight.
    #[inline]
    fn end_flight(&mut self, id: u16) -> Option<InFlightChain> {
        let place = self.held.get_mut(usize::from(id)).filter(|held| held.slots != 0)?;
        let held = *place;
        place.slots = 0;
        self.in_flight = self.in_flight.wrapping_sub(1);
        Some(held)
    }

    /// Implements [`crate::Queue::put_back`]. The chain's descriptors are intact: used entries
    /// overwrite only slots of earlier chains.
    pub fn put_back(&mut self, id: u16) {
        let Some(&InFlightChain { at, slots, entry, from_record }) = self.held.get(usize::from(id))
        else {
            return;
        };
        // Only the chain popped last can go back into the ring; any other stays in flight.
        let latest = at.advance(slots, self.setup.size) == self.next;
        if !(latest || from_record) || self.end_flight(id).is_none() {
            return;
        }
        self.popped = self.popped.wrapping_sub(1);
        if from_record {
            self.pending.push_front((entry, slots));
            return;
        }
        self.slots = self.slots.saturating_sub(slots);
        self.next = at;
        if let Some(record) = &mut self.record {
            let noted = record.put_back(entry);
            // The next call returns the error.
            let _ = self.broken.latch(noted);
        }
    }

    /// Implements [`crate::Queue::finish`].
    pub fn finish(&mut self) -> Result<bool, RingError> {
        for id in 0..self.setup.size {
            self.push(id, 0)?;
        }
        self.publish()
    }

    /// Implements [`crate::Queue::push`].
    #[inline]
    pub fn push(&mut self, id: u16, written: u32) -> Result<(), RingError> {
        self.push_batch(std::iter::once((id, written)))
    }

    /// Implements [`crate::Queue::push_batch`].
    #[inline]
    pub fn push_batch(&mut self, used: impl Iterator<Item = (u16, u32)>) -> Result<(), RingError> {
        self.broken.check()?;
        let stored = self.store_used(used);
        self.broken.latch(stored)
    }

    /// Writes the used entries of those chains that are in flight.
    #[inline(always)]
    fn store_used(&mut self, mut used: impl Iterator<Item = (u16, u32)>) -> Result<(), RingError> {
        while self.record.is_some() || self.pushed == self.published {
            let Some((id, written)) = used.next() else { return Ok(()) };
            self.store_used_hidden(id, written)?;
        }
        // The driver does not read the further entries before publication.
        let size = self.setup.size;
        let (mut at, mut count) = (self.pushed, 0_u16);
        for (id, written) in used {
            let Some(place) = self.held.get_mut(usize::from(id)) else { continue };
            let slots = std::mem::take(&mut place.slots);
            if slots == 0 {
                continue;
            }
            if place.at != at {
                let own = place.at;
                self.preserve_older(at, own, slots)?;
            }
            let (high, flags) = entry(at, id, written);
            let high = high | u64::from(flags).wrapping_shl(48);
            let stored = self.ring.store_word(at.at().wrapping_add(LEN), high);
            stored.map_err(RingError::Lost)?;
            count = count.wrapping_add(1);
            at = if slots == 1 { at.next(size) } else { at.advance(slots, size) };
        }
        self.in_flight = self.in_flight.wrapping_sub(count);
        self.advance_used(at);
        Ok(())
    }

    /// Writes the used entry of chain `id`, if it is in flight, without its flags, which are
    /// written at publication.
    #[inline(never)]
    fn store_used_hidden(&mut self, id: u16, written: u32) -> Result<(), RingError> {
        let Some(InFlightChain { at: own, slots, entry: noted, .. }) = self.end_flight(id) else {
            return Ok(());
        };
        let at = self.pushed;
        if own != at && self.record.is_none() {
            self.preserve_older(at, own, slots)?;
        }
        let (high, flags) = entry(at, id, written);
        if at == self.published {
            self.first_flags = flags;
        } else {
            self.flags.push((at, flags));
        }
        let [l0, l1, l2, l3, i0, i1, _, _] = high.to_le_bytes();
        let stored = self.ring.write(at.at().wrapping_add(LEN), &[l0, l1, l2, l3, i0, i1]);
        stored.map_err(RingError::Lost)?;
        if let Some(record) = &mut self.record {
            record.push(noted);
        }
        self.advance_used(at.advance(slots, self.setup.size));
        Ok(())
    }

    /// Preserves an older chain, whose descriptor at `at` the used entry of a younger chain
    /// overwrites: moves the descriptor to `own`, the slot of the younger chain. So the ring
    /// contains the descriptors of all chains in flight, and a process that takes over without a
    /// record finds them ([`Self::locate`]). This is impossible for chains of several slots.
    #[cold]
    fn preserve_older(&mut self, at: Position, own: Position, slots: u16) -> Result<(), RingError> {
        let size = self.setup.size;
        // Slots outside those in flight belong to the driver.
        let in_flight = own.after(at, size) < self.next.after(at, size);
        if slots != 1 || !in_flight {
            return Ok(());
        }
        let [addr, high] = self.ring.load_pair(at.at()).map_err(RingError::Lost)?;
        let [_, _, _, _, i0, i1, f0, f1] = high.to_le_bytes();
        let older = self.held.get_mut(usize::from(u16::from_le_bytes([i0, i1])));
        // The driver may write here too, so the id is untrusted.
        let Some(older) = older.filter(|held| held.slots == 1 && held.at == at) else {
            return Ok(());
        };
        older.at = own;
        let flags = u16::from_le_bytes([f0, f1]) & !(AVAIL | USED) | own.available();
        let high = high & !(u64::from(u16::MAX) << 48) | u64::from(flags) << 48;
        self.ring.store_word(own.at(), addr).map_err(RingError::Lost)?;
        self.ring.store_word(own.at().wrapping_add(LEN), high).map_err(RingError::Lost)
    }

    /// Advances past the slots up to `at`, which were in flight.
    #[inline]
    fn advance_used(&mut self, at: Position) {
        let count = at.after(self.pushed, self.setup.size) as u16;
        self.slots = self.slots.wrapping_sub(count);
        self.pushed = at;
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

    /// Publishes the pushed entries, in the record and in the ring.
    #[inline]
    fn publish_pushed(&mut self) -> Result<bool, RingError> {
        if let Some(record) = &mut self.record {
            record.prepare(self.pushed)?;
            for (at, flags) in self.flags.drain(..) {
                let order = std::sync::atomic::Ordering::Relaxed;
                self.ring.store(at.flags_at(), flags, order).map_err(RingError::Lost)?;
            }
        }
        let batch = (self.published, self.pushed);
        let wanted = publish_slots(
            &self.ring,
            &self.driver_events,
            self.first_flags,
            batch,
            self.setup.size,
        );
        self.published = self.pushed;
        if let Some(record) = &mut self.record {
            record.published(self.published)?;
        }
        wanted.map_err(RingError::Lost)
    }

    /// Implements [`crate::Queue::arm`].
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.broken.check()?;
        // Behind the chains that were left or put back: the driver signals a position only once,
        // when it passes it.
        let counted = self.count();
        let (chains, next) = self.broken.latch(counted)?;
        let at = self.setup.event_index.then_some(next);
        let flags = arm_slots(&self.device_events, &self.ring, at, next).map_err(RingError::Lost);
        self.disarmed = false;
        let flags = self.broken.latch(flags)?;
        Ok(chains > 0 || next.is_available(flags) || !self.pending.is_empty())
    }

    /// Implements [`crate::Queue::disarm`]. Needed with event index too: positions recur, so the
    /// driver would ring once in two passes.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), RingError> {
        if self.disarmed {
            return Ok(());
        }
        self.broken.check()?;
        let order = std::sync::atomic::Ordering::Relaxed;
        let stored = self.device_events.store(EVENT_FLAGS, EVENT_DISABLE, order);
        self.disarmed = true;
        self.broken.latch(stored.map_err(RingError::Lost))
    }
}
