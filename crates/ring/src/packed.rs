//! The device side of a packed ring (virtio 1.3, 2.8).
//!
//! # Budget
//! Of a chain of one or two descriptors, in a batch of n: one 16-byte copy a descriptor, the word
//! with the flags first, and one 8-byte store of the used entry into a line that is already here;
//! per batch one store of the first used flags and one look at whether a notification is wanted.
//! Four descriptors share a line, which comes over once to be read and once goes back written; a
//! split ring moves three lines for the same. No system call, no allocation. Chains of one descriptor that are taken by the batch cost some
//! 80 instructions each, their prefetches among them, and 40 to be used.
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

mod locate;
mod take;

use std::collections::VecDeque;

use causeway_memory::{Map, View};

use crate::error::RingError;
use crate::format::packed::{AVAIL, EVENT_BYTES, EVENT_DISABLE, EVENT_FLAGS, LEN, USED};
use crate::format::{FLAG_NEXT, FLAG_WRITE};
use crate::handshake::{ask_slot, look_slot, show_slot};
use crate::inflight::{Inflight, PackedInflight};
use crate::latch::Latch;
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::packed::locate::{Located, Slots};
use crate::position::Position;
use crate::queue::Setup;

/// What is known of a chain by its buffer id.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Where it began.
    at: Position,
    /// Slots of the ring that it takes; 0 while it is not in flight.
    slots: u16,
    /// Its entry in the record, if there is one.
    entry: u16,
    /// It was taken from the record.
    again: bool,
}

impl Held {
    /// Nothing is known.
    const NONE: Self = Self { at: Position::START, slots: 0, entry: 0, again: false };
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
    /// By buffer id.
    held: Vec<Held>,
    /// Chains in flight.
    in_flight: u16,
    /// Slots of all chains in flight.
    slots: u16,
    /// Chains taken since set-up, less those put back; wraps.
    popped: u32,
    /// Whether the driver was told not to ring.
    quiet: bool,
    record: Option<PackedInflight>,
    /// An earlier process had begun the record.
    pub(crate) resumed: bool,
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
    let len = usize::from(setup.size).saturating_mul(DESCRIPTOR_BYTES);
    let ring = part("descriptor ring", setup.desc, 16, len)?;
    // The guest's addresses may be aligned to what they are here, or not.
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

/// Whether no slot was ever used. Frontends that know only split rings (user-mode Linux) begin at
/// 0, which would be wrap counter 0: after a turn of the ring, of which used entries tell.
fn untouched(ring: &View, size: u16) -> Result<bool, RingError> {
    let mut at = Position::START;
    for _ in 0..size {
        if look_slot(ring, at).map_err(RingError::Lost)? & USED != 0 {
            return Ok(false);
        }
        at = at.next(size);
    }
    Ok(true)
}

/// Length and buffer id of a used entry, and its flags.
#[inline]
fn entry(at: Position, id: u16, written: u32) -> (u64, u16) {
    let wrote = if written > 0 { FLAG_WRITE } else { 0 };
    (u64::from(written) | u64::from(id).wrapping_shl(32), at.used() | wrote)
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
            held: vec![Held::NONE; usize::from(size)],
            in_flight: 0,
            slots: 0,
            popped: 0,
            quiet: false,
            record: None,
            resumed: false,
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
            self.resumed = true;
        }
        self.record = Some(inflight);
        Ok(())
    }

    /// See [`crate::Queue::locate`].
    pub fn locate(&mut self) -> Result<bool, RingError> {
        let size = self.setup.size;
        let slots = Slots::read(&self.ring, size)?;
        let given = self.shown;
        let Some(Located { used, unshown }) = slots.locate() else {
            return if slots.may_stand(given) { Ok(false) } else { Err(RingError::PositionLost) };
        };
        // Drivers that may put chains into tables do so: each then takes one slot.
        let single = self.setup.indirect && slots.are_single();
        let right = match unshown {
            Some(_) => false,
            None if used == given => !single || !self.is_used_up(used)?,
            // The last chain that was used may have taken several slots: then both are right.
            None => slots.is_rest_of_chain(used, given) && !(single && given == Position::START),
        };
        if right {
            return Ok(false);
        }
        if !single {
            return if slots.may_stand(given) { Ok(false) } else { Err(RingError::PositionLost) };
        }
        let mut used = used;
        let gate = match unshown {
            None if self.is_used_up(used)? => {
                let gate = used;
                used = used.next(size);
                Some(gate)
            }
            unshown => unshown,
        };
        if let Some(gate) = gate {
            let wrote = look_slot(&self.ring, gate).map_err(RingError::Lost)? & FLAG_WRITE;
            let order = std::sync::atomic::Ordering::Release;
            let shown = self.ring.store(gate.flags_at(), gate.used() | wrote, order);
            shown.map_err(RingError::Lost)?;
        }
        (self.next, self.pushed, self.shown) = (used, used, used);
        self.resumed = true;
        Ok(true)
    }

    /// Whether the chain at `at` is available in the ring, but was used: the driver was not shown.
    fn is_used_up(&self, at: Position) -> Result<bool, RingError> {
        let flags = look_slot(&self.ring, at).map_err(RingError::Lost)?;
        Ok(at.is_available(flags) && locate::is_used_up(&self.ring, at, flags)?)
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.setup.size
    }

    /// See [`crate::Queue::is_published`].
    pub fn is_published(&self) -> bool {
        self.shown == self.pushed
    }

    /// See [`crate::Queue::next_available`].
    pub fn next_available(&self) -> u16 {
        self.next.bits()
    }

    /// See [`crate::Queue::in_flight`].
    pub fn in_flight(&self) -> u16 {
        self.in_flight
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
            at = at.next(self.setup.size);
        }
        // One that does not end within the ring is there to be taken, and refused.
        let chains = if begins { chains } else { chains.saturating_add(1) };
        Ok((chains, at))
    }

    /// Chain `id` is no longer in flight; what was known of it, if it was.
    #[inline]
    fn release(&mut self, id: u16) -> Option<Held> {
        let place = self.held.get_mut(usize::from(id)).filter(|held| held.slots != 0)?;
        let held = *place;
        place.slots = 0;
        self.in_flight = self.in_flight.wrapping_sub(1);
        Some(held)
    }

    /// See [`crate::Queue::put_back`]. Its descriptors are still there: used entries overwrite
    /// only what was taken before them.
    pub fn put_back(&mut self, id: u16) {
        let Some(&Held { at, slots, entry, again }) = self.held.get(usize::from(id)) else {
            return;
        };
        // Only the latest can go back into the ring; what is out of order stays in flight.
        let latest = at.advance(slots, self.setup.size) == self.next;
        if !(latest || again) || self.release(id).is_none() {
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
            self.push(id, 0)?;
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
    pub fn push_batch(&mut self, used: impl Iterator<Item = (u16, u32)>) -> Result<(), RingError> {
        self.broken.check()?;
        let stored = self.give(used);
        self.broken.latch(stored)
    }

    /// Writes the used entries of chains, as far as they are in flight.
    #[inline(always)]
    fn give(&mut self, mut used: impl Iterator<Item = (u16, u32)>) -> Result<(), RingError> {
        while self.record.is_some() || self.pushed == self.shown {
            let Some((id, written)) = used.next() else { return Ok(()) };
            self.give_hidden(id, written)?;
        }
        // The driver does not look at the others yet.
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
                self.keep_older(at, own, slots)?;
            }
            let (high, flags) = entry(at, id, written);
            let high = high | u64::from(flags).wrapping_shl(48);
            let stored = self.ring.store_word(at.at().wrapping_add(LEN), high);
            stored.map_err(RingError::Lost)?;
            count = count.wrapping_add(1);
            at = if slots == 1 { at.next(size) } else { at.advance(slots, size) };
        }
        self.in_flight = self.in_flight.wrapping_sub(count);
        self.pass(at);
        Ok(())
    }

    /// Writes the used entry of chain `id`, if it is in flight, without its flags, which are shown
    /// with the batch.
    #[inline(never)]
    fn give_hidden(&mut self, id: u16, written: u32) -> Result<(), RingError> {
        let Some(Held { at: own, slots, entry: noted, .. }) = self.release(id) else {
            return Ok(());
        };
        let at = self.pushed;
        if own != at && self.record.is_none() {
            self.keep_older(at, own, slots)?;
        }
        let (high, flags) = entry(at, id, written);
        if at == self.shown {
            self.gate = flags;
        } else {
            self.flags.push((at, flags));
        }
        let [l0, l1, l2, l3, i0, i1, _, _] = high.to_le_bytes();
        let stored = self.ring.write(at.at().wrapping_add(LEN), &[l0, l1, l2, l3, i0, i1]);
        stored.map_err(RingError::Lost)?;
        if let Some(record) = &mut self.record {
            record.push(noted);
        }
        self.pass(at.advance(slots, self.setup.size));
        Ok(())
    }

    /// A chain is used before an older one, whose descriptor at `at` the used entry overwrites: that
    /// goes to `own`, the slot of the chain that is used. So the ring has the descriptors of all
    /// chains in flight, and a process that takes over without a record finds them
    /// ([`Self::locate`]). Of chains that take several slots it cannot have them.
    #[cold]
    fn keep_older(&mut self, at: Position, own: Position, slots: u16) -> Result<(), RingError> {
        let size = self.setup.size;
        // What lies outside is the driver's.
        let in_flight = own.after(at, size) < self.next.after(at, size);
        if slots != 1 || !in_flight {
            return Ok(());
        }
        let [addr, high] = self.ring.load_pair(at.at()).map_err(RingError::Lost)?;
        let [_, _, _, _, i0, i1, f0, f1] = high.to_le_bytes();
        let older = self.held.get_mut(usize::from(u16::from_le_bytes([i0, i1])));
        // The driver may write here too, and may name any.
        let Some(older) = older.filter(|held| held.slots == 1 && held.at == at) else {
            return Ok(());
        };
        older.at = own;
        let flags = u16::from_le_bytes([f0, f1]) & !(AVAIL | USED) | own.available();
        let high = high & !(u64::from(u16::MAX) << 48) | u64::from(flags) << 48;
        self.ring.store_word(own.at(), addr).map_err(RingError::Lost)?;
        self.ring.store_word(own.at().wrapping_add(LEN), high).map_err(RingError::Lost)
    }

    /// The slots up to `at` are used: they were among those in flight.
    #[inline]
    fn pass(&mut self, at: Position) {
        let count = at.after(self.pushed, self.setup.size) as u16;
        self.slots = self.slots.wrapping_sub(count);
        self.pushed = at;
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
