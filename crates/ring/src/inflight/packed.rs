//! A packed queue's record.
//!
//! Used entries overwrite descriptors in the ring, so the record has copies of those in flight,
//! in entries of its own that free ones are linked to. What is written as `old` stands; a batch
//! is prepared beside it, shown in the ring by the flags of its first entry, and then stands
//! itself. Whoever finds a batch prepared sees by these flags whether it was shown.

use causeway_memory::View;

use super::lost;
use crate::error::RingError;
use crate::handshake::look_slot;
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

/// One packed queue's part of the record.
#[derive(Debug)]
pub struct PackedInflight {
    view: View,
    size: u16,
    counter: u64,
    /// Nothing was recorded before.
    fresh: bool,
    /// Entries of the chains pushed since the last publish.
    batch: Vec<u16>,
}

/// What an earlier process left.
pub(crate) struct Recovered {
    /// Where the next used entry goes.
    pub used: Position,
    /// Entries of the chains in flight with the slots that each takes, oldest first.
    pub open: Vec<(u16, u16)>,
}

impl PackedInflight {
    pub(super) fn bytes(size: u16) -> usize {
        usize::from(size)
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(HEADER_BYTES)
            .next_multiple_of(64)
    }

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

    fn get(&self, at: usize) -> Result<u16, RingError> {
        Ok(u16::from_le_bytes(self.view.read(at).map_err(lost)?))
    }

    fn set(&self, at: usize, value: u16) -> Result<(), RingError> {
        self.view.write(at, &value.to_le_bytes()).map_err(lost)
    }

    fn at(entry: u16, field: usize) -> usize {
        usize::from(entry).wrapping_mul(ENTRY_BYTES).wrapping_add(HEADER_BYTES).wrapping_add(field)
    }

    /// A number that should name an entry.
    fn entry(&self, at: usize) -> Result<u16, RingError> {
        let entry = self.get(at)?;
        if entry < self.size { Ok(entry) } else { Err(RingError::Inflight) }
    }

    /// Where the used entries go on: as prepared, and as it stands.
    fn used(&self) -> Result<(Position, Position), RingError> {
        let [n0, n1, o0, o1, new, old, _, _] = self.view.read::<8>(USED).map_err(lost)?;
        let position = |index, wrap| {
            let bits = u16::from_le_bytes(index) & 0x7fff | if wrap == 0 { 0 } else { 0x8000 };
            Position::from_bits(bits, self.size).ok_or(RingError::Inflight)
        };
        Ok((position([n0, n1], new)?, position([o0, o1], old)?))
    }

    /// One store, so that slots never go without their wrap counters.
    fn set_used(&self, new: Position, old: Position) -> Result<(), RingError> {
        let wrap = |at: Position| u8::from(at.bits() != at.index());
        let ([n0, n1], [o0, o1]) = (new.index().to_le_bytes(), old.index().to_le_bytes());
        let bytes = [n0, n1, o0, o1, wrap(new), wrap(old), 0, 0];
        self.view.write(USED, &bytes).map_err(lost)
    }

    /// Begins a fresh record of a queue that stands at `used`. The version comes last, so that a
    /// record which has one is whole.
    fn begin(&self, used: Position) -> Result<(), RingError> {
        for entry in 0..self.size {
            self.set(Self::at(entry, NEXT), entry.wrapping_add(1))?;
        }
        self.set(DESC_NUM, self.size)?;
        self.set_used(used, used)?;
        self.set(VERSION, 1)
    }

    /// Finishes what the last process had begun, and says what it left; none if nothing was
    /// recorded before. `used` is where the queue stands then.
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
            if old.is_available(look_slot(ring, old).map_err(lost)?) {
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

    /// The driver has not seen the batch from `old` to `new`: nor may it see its later entries.
    fn withdraw(&self, old: Position, new: Position, ring: &View) -> Result<(), RingError> {
        let slots = u16::try_from(new.after(old, self.size)).unwrap_or(u16::MAX).min(self.size);
        for by in 1..slots {
            let at = old.advance(by, self.size);
            if at.is_used(look_slot(ring, at).map_err(lost)?) {
                let order = std::sync::atomic::Ordering::Relaxed;
                ring.store(at.flags_at(), at.available(), order).map_err(lost)?;
            }
        }
        Ok(())
    }

    /// Which entries are free: as many as the list has before it leaves the table.
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

    /// Chains in flight, oldest first; what is free is not in flight, whatever its mark says.
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

    /// A chain of `slots` descriptors that begins at `at` in `ring` was taken; gives its entry.
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
        // Not free any more: from here on it is in flight.
        self.set(OLD_FREE, next)?;
        self.set(FREE, next)?;
        Ok(head)
    }

    /// The descriptor in `entry`, as in the ring, and the entry of the next one of its chain.
    pub(crate) fn descriptor(&self, entry: u16) -> Result<([u64; 2], u16), RingError> {
        if entry >= self.size {
            return Err(RingError::Inflight);
        }
        let [low, addr] = self.view.load_pair(Self::at(entry, ID)).map_err(lost)?;
        // Id, flags and length lie the other way round than in the ring.
        let words = [addr, low.rotate_left(32)];
        Ok((words, self.get(Self::at(entry, NEXT))?))
    }

    /// The chain of `head` was put back into the ring.
    pub(crate) fn put_back(&mut self, head: u16) -> Result<(), RingError> {
        self.release(head)?;
        self.set(OLD_FREE, head)?;
        self.view.write(Self::at(head, 0), &[0]).map_err(lost)
    }

    /// Puts the entries of the chain of `head` before the free ones.
    fn release(&self, head: u16) -> Result<(), RingError> {
        let last = self.entry(Self::at(head, LAST))?;
        self.set(Self::at(last, NEXT), self.get(FREE)?)?;
        self.set(FREE, head)
    }

    /// The chain of `head` is pushed, not yet published.
    pub(crate) fn push(&mut self, head: u16) {
        self.batch.push(head);
    }

    /// The batch is about to be shown, up to `used`.
    pub(crate) fn prepare(&mut self, used: Position) -> Result<(), RingError> {
        for &head in &self.batch {
            self.release(head)?;
        }
        let (_, old) = self.used()?;
        self.set_used(used, old)
    }

    /// The batch is shown.
    pub(crate) fn published(&mut self, used: Position) -> Result<(), RingError> {
        for &head in &self.batch {
            self.view.write(Self::at(head, 0), &[0]).map_err(lost)?;
        }
        self.batch.clear();
        self.set(OLD_FREE, self.get(FREE)?)?;
        self.set_used(used, used)
    }
}
