//! The in-flight record of a packed queue.
//!
//! [`crate::packed`] calls it at each pop, push and publication, in the dispatcher's thread. Used
//! entries overwrite descriptors in the ring, so the record has copies of the descriptors in
//! flight, in entries that come from a linked free list. The `old` fields hold the committed state.
//! A batch is prepared in the other fields, published in the ring by the flags of its first entry,
//! and then committed. A successor that finds a prepared batch sees by these flags whether it was
//! published.
//!
//! Every value that a successor reads is checked; an inconsistent record is
//! [`RingError::Inflight`]. The record has 32 bytes, and 32 for each slot of the ring. The number
//! of descriptors in flight never exceeds the queue's size, so the free list always suffices.

use causeway_memory::View;

use super::lost;
use crate::error::RingError;
use crate::handshake::load_flags;
use crate::limits::DESCRIPTOR_BYTES;
use crate::position::Position;

const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 32;
// Offsets in the header: features u64, version, desc_num, free_head, old_free_head, used_idx,
// old_used_idx u16, used_wrap_counter, old_used_wrap_counter u8.
const VERSION: usize = 8;
const DESC_NUM: usize = 10;
const FREE: usize = 12;
const OLD_FREE: usize = 14;
const USED: usize = 16;
// Offsets in an entry: inflight u8, padding u8, next, last, num u16, counter u64, and then a
// descriptor's id u16, flags u16, len u32, addr u64.
const NEXT: usize = 2;
const LAST: usize = 4;
const NUM: usize = 6;
const COUNTER: usize = 8;
const ID: usize = 16;

/// The part of the record that belongs to one packed queue.
#[derive(Debug)]
pub struct PackedInflight {
    /// The record's memory.
    view: View,
    /// Number of entries of the queue and of the record.
    size: u16,
    /// Counter of the last pop.
    counter: u64,
    /// Whether the record is new.
    fresh: bool,
    /// Entries of the chains pushed since the last publication.
    batch: Vec<u16>,
}

/// State that an earlier process left.
pub(crate) struct Recovered {
    /// Position of the next used entry.
    pub used: Position,
    /// Entries of the chains in flight with their numbers of slots, oldest first.
    pub open: Vec<(u16, u16)>,
}

impl PackedInflight {
    /// Implements [`super::Inflight::packed_bytes`].
    pub(super) fn bytes(size: u16) -> usize {
        usize::from(size)
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(HEADER_BYTES)
            .next_multiple_of(64)
    }

    /// Implements [`super::Inflight::packed`].
    pub(super) fn new(view: View, size: u16) -> Result<Self, RingError> {
        if view.len() < Self::bytes(size) {
            return Err(RingError::Inflight);
        }
        let record = Self { view, size, counter: 0, fresh: false, batch: Vec::new() };
        let version = record.get(VERSION)?;
        if version > 1 || version == 1 && record.get(DESC_NUM)? != size {
            return Err(RingError::Inflight);
        }
        Ok(Self { fresh: version == 0, ..record })
    }

    /// Loads the 16-bit word at offset `at`.
    fn get(&self, at: usize) -> Result<u16, RingError> {
        Ok(u16::from_le_bytes(self.view.read(at).map_err(lost)?))
    }

    /// Stores the 16-bit word at offset `at`.
    fn set(&self, at: usize, value: u16) -> Result<(), RingError> {
        self.view.write(at, &value.to_le_bytes()).map_err(lost)
    }

    /// Returns the offset of a field of an entry.
    fn at(entry: u16, field: usize) -> usize {
        usize::from(entry).wrapping_mul(ENTRY_BYTES).wrapping_add(HEADER_BYTES).wrapping_add(field)
    }

    /// Reads an entry number, and checks it.
    fn entry(&self, at: usize) -> Result<u16, RingError> {
        let entry = self.get(at)?;
        if entry < self.size { Ok(entry) } else { Err(RingError::Inflight) }
    }

    /// Returns the prepared and the committed position of the next used entry.
    fn used(&self) -> Result<(Position, Position), RingError> {
        let [n0, n1, o0, o1, new, old, _, _] = self.view.read::<8>(USED).map_err(lost)?;
        let position = |index, wrap| {
            let bits = u16::from_le_bytes(index) & 0x7fff | if wrap == 0 { 0 } else { 0x8000 };
            Position::from_bits(bits, self.size).ok_or(RingError::Inflight)
        };
        Ok((position([n0, n1], new)?, position([o0, o1], old)?))
    }

    /// Stores both positions in one store, so that no slot is visible without its wrap counter.
    fn set_used(&self, new: Position, old: Position) -> Result<(), RingError> {
        let wrap = |at: Position| u8::from(at.bits() != at.index());
        let ([n0, n1], [o0, o1]) = (new.index().to_le_bytes(), old.index().to_le_bytes());
        let bytes = [n0, n1, o0, o1, wrap(new), wrap(old), 0, 0];
        self.view.write(USED, &bytes).map_err(lost)
    }

    /// Initialises a new record of a queue at position `used`. The version is written last, so that
    /// a record with a version is complete.
    fn begin(&self, used: Position) -> Result<(), RingError> {
        for entry in 0..self.size {
            self.set(Self::at(entry, NEXT), entry.wrapping_add(1))?;
        }
        self.set(DESC_NUM, self.size)?;
        self.set_used(used, used)?;
        self.set(VERSION, 1)
    }

    /// Completes or withdraws the last batch of an earlier process, and returns the state that it
    /// left, or `None` if the record is new. `used` is the position of the queue in that case.
    pub(crate) fn recover(
        &mut self,
        used: Position,
        ring: &View,
    ) -> Result<Option<Recovered>, RingError> {
        if std::mem::take(&mut self.fresh) {
            self.begin(used)?;
            return Ok(None);
        }
        let (new, old) = self.used()?;
        let mut used = old;
        if old != new {
            if old.is_available(load_flags(ring, old).map_err(lost)?) {
                self.withdraw(old, new, ring)?;
            } else {
                self.set(OLD_FREE, self.get(FREE)?)?;
                used = new;
            }
        }
        self.set_used(used, used)?;
        self.set(FREE, self.get(OLD_FREE)?)?;
        let open = self.open(self.free()?)?;
        Ok(Some(Recovered { used, open }))
    }

    /// Withdraws the batch from `old` to `new`, which the driver has not seen: clears the flags of
    /// its later entries.
    fn withdraw(&self, old: Position, new: Position, ring: &View) -> Result<(), RingError> {
        let slots = u16::try_from(new.after(old, self.size)).unwrap_or(u16::MAX).min(self.size);
        for by in 1..slots {
            let at = old.advance(by, self.size);
            if at.is_used(load_flags(ring, at).map_err(lost)?) {
                let order = std::sync::atomic::Ordering::Relaxed;
                ring.store(at.flags_at(), at.available(), order).map_err(lost)?;
            }
        }
        Ok(())
    }

    /// Returns which entries are free. The walk ends where the list leaves the table.
    fn free(&self) -> Result<Vec<bool>, RingError> {
        let mut free = vec![false; usize::from(self.size)];
        let mut entry = self.get(OLD_FREE)?;
        while let Some(is_free) = free.get_mut(usize::from(entry)) {
            if std::mem::replace(is_free, true) {
                return Err(RingError::Inflight);
            }
            entry = self.get(Self::at(entry, NEXT))?;
        }
        Ok(free)
    }

    /// Returns the chains in flight, oldest first. A free entry is not in flight, whatever its
    /// mark.
    fn open(&mut self, free: Vec<bool>) -> Result<Vec<(u16, u16)>, RingError> {
        let mut open = Vec::new();
        let mut slots = 0_u16;
        for (entry, free) in (0..self.size).zip(free) {
            let [mark] = self.view.read::<1>(Self::at(entry, 0)).map_err(lost)?;
            if free {
                self.view.write(Self::at(entry, 0), &[0]).map_err(lost)?;
            } else if mark != 0 {
                let counter = self.view.read(Self::at(entry, COUNTER)).map_err(lost)?;
                let num = self.get(Self::at(entry, NUM))?;
                slots = slots.checked_add(num).ok_or(RingError::Inflight)?;
                if num == 0 || slots > self.size {
                    return Err(RingError::Inflight);
                }
                open.push((u64::from_le_bytes(counter), entry, num));
            }
        }
        open.sort_unstable();
        self.counter = open.last().map_or(0, |&(counter, ..)| counter.wrapping_add(1));
        Ok(open.into_iter().map(|(_, entry, num)| (entry, num)).collect())
    }

    /// Records a popped chain of `slots` descriptors at `at` in `ring`. Returns its entry.
    pub(crate) fn take(&mut self, ring: &View, at: Position, slots: u16) -> Result<u16, RingError> {
        let head = self.entry(FREE)?;
        let (mut at, mut last, mut next) = (at, head, head);
        for _ in 0..slots {
            if next >= self.size {
                return Err(RingError::Inflight);
            }
            let bytes: [u8; DESCRIPTOR_BYTES] = ring.read(at.at()).map_err(lost)?;
            let [addr @ .., l0, l1, l2, l3, i0, i1, f0, f1] = bytes;
            let [a0, a1, a2, a3, a4, a5, a6, a7] = addr;
            let copy = [i0, i1, f0, f1, l0, l1, l2, l3, a0, a1, a2, a3, a4, a5, a6, a7];
            self.view.write(Self::at(next, ID), &copy).map_err(lost)?;
            last = next;
            next = self.get(Self::at(next, NEXT))?;
            at = at.next(self.size);
        }
        self.set(Self::at(head, LAST), last)?;
        self.set(Self::at(head, NUM), slots)?;
        self.view.write(Self::at(head, COUNTER), &self.counter.to_le_bytes()).map_err(lost)?;
        self.counter = self.counter.wrapping_add(1);
        self.view.write(Self::at(head, 0), &[1]).map_err(lost)?;
        // From this store on the chain is in flight.
        self.set(OLD_FREE, next)?;
        self.set(FREE, next)?;
        Ok(head)
    }

    /// Returns the descriptor in `entry`, in the ring's format, and the entry of the chain's next
    /// descriptor.
    pub(crate) fn descriptor(&self, entry: u16) -> Result<([u64; 2], u16), RingError> {
        if entry >= self.size {
            return Err(RingError::Inflight);
        }
        let [low, addr] = self.view.load_pair(Self::at(entry, ID)).map_err(lost)?;
        // Id, flags and length have the reverse order of the ring's.
        let words = [addr, low.rotate_left(32)];
        Ok((words, self.get(Self::at(entry, NEXT))?))
    }

    /// Records that the chain of `head` was put back into the ring.
    pub(crate) fn put_back(&mut self, head: u16) -> Result<(), RingError> {
        self.release(head)?;
        self.set(OLD_FREE, head)?;
        self.view.write(Self::at(head, 0), &[0]).map_err(lost)
    }

    /// Prepends the entries of the chain of `head` to the free list.
    fn release(&self, head: u16) -> Result<(), RingError> {
        let last = self.entry(Self::at(head, LAST))?;
        self.set(Self::at(last, NEXT), self.get(FREE)?)?;
        self.set(FREE, head)
    }

    /// Records that the chain of `head` is pushed, but not published.
    pub(crate) fn push(&mut self, head: u16) {
        self.batch.push(head);
    }

    /// Prepares the batch for publication up to `used`.
    pub(crate) fn prepare(&mut self, used: Position) -> Result<(), RingError> {
        for &head in &self.batch {
            self.release(head)?;
        }
        let (_, old) = self.used()?;
        self.set_used(used, old)
    }

    /// Commits the batch after its publication.
    pub(crate) fn published(&mut self, used: Position) -> Result<(), RingError> {
        for &head in &self.batch {
            self.view.write(Self::at(head, 0), &[0]).map_err(lost)?;
        }
        self.batch.clear();
        self.set(OLD_FREE, self.get(FREE)?)?;
        self.set_used(used, used)
    }
}
