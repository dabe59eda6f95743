//! The journal's memory: extents of powers of two of 64 bytes, walked by their headers.
//!
//! An extent begins with a word: whether it is used, and its length. A used extent holds an entry.
//! The word of an extent is stored as a whole, so the extents can be walked after a kill between
//! any two stores: an extent is split by the header of its second part, then of its first; it
//! becomes used by a single store, which the caller makes part of a commit ([`super::redo`]).
//!
//! The memory of an extent is allocated ([`super::space`]) before its word is stored. Extents are
//! not merged. Free extents are found by their length in constant time; the space that was never
//! used lies in one extent at the end. A journal that has no extent for an entry, or no memory for
//! the extent, is full: [`Heap::allocate`] returns `None`, and `super` gives the record up. `super`
//! allocates and releases, [`super::restore`] walks, both in the dispatcher's thread.

use causeway_memory::View;

use super::space::RecordSpace;

/// Bytes of a unit.
const UNIT: usize = 64;
/// Classes of lengths: 2^0 to 2^31 units.
const CLASSES: usize = 32;
/// Tag of a free extent.
const FREE: u64 = 0x46 << 56;
/// Tag of an extent with an entry.
const USED: u64 = 0x55 << 56;
/// Bits of the tag.
const TAG: u64 = 0xff << 56;

/// An extent of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Offset in the file.
    pub at: usize,
    class: u8,
}

impl Extent {
    /// Returns the store that makes the extent used.
    pub fn used(self) -> (usize, u64) {
        (self.at, USED | self.units())
    }

    /// Returns the store that makes the extent free.
    pub fn free(self) -> (usize, u64) {
        (self.at, FREE | self.units())
    }

    /// Returns the length, in bytes.
    pub fn bytes(self) -> usize {
        UNIT.wrapping_shl(u32::from(self.class))
    }

    fn units(self) -> u64 {
        1_u64.wrapping_shl(u32::from(self.class))
    }
}

/// The free memory of the journal.
#[derive(Debug)]
pub(super) struct Heap {
    start: usize,
    end: usize,
    /// Offset of the space that was never used.
    fresh: usize,
    /// Free extents, by class.
    free: [Vec<usize>; CLASSES],
}

impl Heap {
    /// Returns the journal between two offsets, all free, and writes its header, for which the file
    /// must have memory.
    pub fn clear(view: &View, start: usize, end: usize) -> Option<Self> {
        let units = (end.checked_sub(start)? / UNIT) as u64;
        view.store_word(start, FREE | units).ok()?;
        Some(Self { start, end, fresh: start, free: Default::default() })
    }

    /// Walks the extents between two offsets. Returns the memory and the used extents; `None` if
    /// headers are invalid.
    pub fn walk(view: &View, start: usize, end: usize) -> Option<(Self, Vec<Extent>)> {
        let mut heap = Self { start, end, fresh: end, free: Default::default() };
        let mut used = Vec::new();
        let mut at = start;
        while at < end {
            let header = view.load_word(at).ok()?;
            let units = header & !TAG;
            let len = usize::try_from(units).ok()?.checked_mul(UNIT)?;
            let next = at.checked_add(len).filter(|&next| len > 0 && next <= end)?;
            let class = u8::try_from(units.trailing_zeros()).ok()?;
            let extent = Extent { at, class };
            match header & TAG {
                FREE if next == end => heap.fresh = at,
                FREE if units.is_power_of_two() => heap.release(extent),
                USED if units.is_power_of_two() => used.push(extent),
                _ => return None,
            }
            at = next;
        }
        Some((heap, used))
    }

    /// Returns the offsets of begin and end.
    pub fn range(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// Returns the offset behind the header of the space that was never used.
    pub fn used_end(&self) -> usize {
        self.fresh.saturating_add(UNIT).min(self.end)
    }

    /// Takes an extent of at least `bytes`; it stays free in the file. Returns `None` if none is
    /// left, or the host has no memory for it.
    pub fn allocate(&mut self, space: &mut RecordSpace, bytes: usize) -> Option<Extent> {
        let units = bytes.div_ceil(UNIT).checked_next_power_of_two()?;
        let class = units.trailing_zeros();
        let bytes = units.checked_mul(UNIT)?;
        let own = self.free.get_mut(class as usize)?.pop();
        let at = match own.or_else(|| self.extend(space, bytes)) {
            Some(at) => at,
            None => self.split(space.view(), class)?,
        };
        Some(Extent { at, class: class as u8 })
    }

    /// Takes an extent of the space that was never used.
    fn extend(&mut self, space: &mut RecordSpace, bytes: usize) -> Option<usize> {
        let at = self.fresh;
        let next = at.checked_add(bytes).filter(|&next| next <= self.end)?;
        space.reserve(at..next.saturating_add(UNIT).min(self.end))?;
        let view = space.view();
        let rest = (self.end.checked_sub(next)? / UNIT) as u64;
        if rest > 0 {
            view.store_word(next, FREE | rest).ok()?;
        }
        view.store_word(at, FREE | (bytes / UNIT) as u64).ok()?;
        self.fresh = next;
        Some(at)
    }

    /// Splits a longer free extent. Returns its first part, of `class`.
    fn split(&mut self, view: &View, class: u32) -> Option<usize> {
        let longer = class.checked_add(1)? as usize;
        let from = (longer..CLASSES)
            .find(|&index| self.free.get(index).is_some_and(|extents| !extents.is_empty()))?;
        let at = self.free.get_mut(from)?.pop()?;
        for half in (class as usize..from).rev() {
            let first = Extent { at, class: half as u8 };
            let second = Extent { at: at.checked_add(first.bytes())?, class: half as u8 };
            for (place, word) in [second.free(), first.free()] {
                view.store_word(place, word).ok()?;
            }
            self.release(second);
        }
        Some(at)
    }

    /// Returns an extent that is free in the file.
    pub fn release(&mut self, extent: Extent) {
        if let Some(extents) = self.free.get_mut(usize::from(extent.class)) {
            extents.push(extent.at);
        }
    }
}
