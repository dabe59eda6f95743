//! The redo entry: several stores that take effect together, whenever the process is killed.
//!
//! A commit writes all its stores into the entry, makes the entry valid by a single store, applies
//! the stores, and clears the entry. A kill before the entry is valid leaves none of the stores;
//! the next process applies a valid entry again, which is harmless because each store sets a word
//! to a value. The 64 bytes of a completion or event belong to the commit: the caller writes them
//! to the guest's memory before it clears the entry. A commit of a single word needs no entry.
//!
//! The stores of a killed process stay in a shared mapping in their order; a crash of the host ends
//! the guests too. So only the compiler has to keep the order, and the compiler does not reorder
//! accesses of [`View`]. `super` writes, applies and clears entries, [`super::restore`] repeats
//! one, in the dispatcher's thread. A commit has at most [`WORDS_MAX`] (10) words; one with more
//! ends the record, and a malformed entry makes it [`super::RecordError::Damaged`].

use causeway_memory::View;

use super::layout::REDO;

/// Maximum number of words of a commit.
pub(super) const WORDS_MAX: usize = 10;
/// Mark of a valid entry, above the kind of guest entry and the number of words.
const VALID: u64 = 0x7264 << 48;
/// Bits of the mark.
const MARK: u64 = 0xffff << 48;
/// Offset of the guest entry behind the valid word.
const GUEST: usize = 24;
/// Offset of the words behind the valid word.
const PAIRS: usize = GUEST + 64;

/// The ring of a guest entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    Completion,
    Event,
}

/// An entry of a ring in the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestEntry<'a> {
    pub ring: Ring,
    /// Number of the queue.
    pub number: u32,
    /// Offset in the ring, in bytes.
    pub at: u64,
    pub bytes: &'a [u8; 64],
}

/// A guest entry that was read from a redo entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredEntry {
    pub ring: Ring,
    pub number: u32,
    pub at: u64,
    pub bytes: [u8; 64],
}

/// Words that a commit stores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changes {
    pairs: [(usize, u64); WORDS_MAX],
    len: usize,
    is_overfull: bool,
}

impl Default for Changes {
    #[inline]
    fn default() -> Self {
        Self { pairs: [(0, 0); WORDS_MAX], len: 0, is_overfull: false }
    }
}

impl Changes {
    /// Adds a word.
    #[inline]
    pub fn push(&mut self, (at, word): (usize, u64)) {
        match self.pairs.get_mut(self.len) {
            Some(pair) => {
                *pair = (at, word);
                self.len = self.len.wrapping_add(1);
            }
            None => self.is_overfull = true,
        }
    }

    /// Returns whether a word had no room.
    pub fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    /// Returns the words.
    #[inline]
    pub fn pairs(&self) -> &[(usize, u64)] {
        self.pairs.get(..self.len).unwrap_or(&[])
    }
}

/// Writes an entry and makes it valid. `step` is called between the stores. Returns `None` if the
/// file is too short.
///
/// Each word goes to the file by a store of its own: a copy of an entry that was composed in memory
/// would load what the processor has not stored yet.
#[inline]
pub(super) fn write(
    view: &View,
    changes: &Changes,
    entry: Option<&GuestEntry<'_>>,
    mut step: impl FnMut(),
) -> Option<()> {
    let kind = match entry {
        None => 0,
        Some(entry) => {
            let place = [u64::from(entry.number), entry.at];
            view.store_pair(REDO.wrapping_add(8), place).ok()?;
            view.write(REDO.wrapping_add(GUEST), entry.bytes).ok()?;
            match entry.ring {
                Ring::Completion => 1,
                Ring::Event => 2,
            }
        }
    };
    let mut at = REDO.wrapping_add(PAIRS);
    for (place, word) in changes.pairs() {
        view.store_pair(at, [*place as u64, *word]).ok()?;
        at = at.wrapping_add(16);
    }
    step();
    view.store_word(REDO, VALID | kind << 8 | changes.len as u64).ok()?;
    step();
    Some(())
}

/// Stores the words of a commit. `step` is called after each.
#[inline]
pub(super) fn apply(view: &View, changes: &Changes, mut step: impl FnMut()) -> Option<()> {
    for (at, word) in changes.pairs() {
        view.store_word(*at, *word).ok()?;
        step();
    }
    Some(())
}

/// Clears the entry.
#[inline]
pub(super) fn clear(view: &View) -> Option<()> {
    view.store_word(REDO, 0).ok()
}

/// Applies the words of a valid entry again. Returns its guest entry, which the caller writes
/// before it clears the entry. The outer value is `None` if the entry is malformed.
pub(super) fn repeat(view: &View) -> Option<Option<StoredEntry>> {
    let valid = view.load_word(REDO).ok()?;
    if valid == 0 {
        return Some(None);
    }
    let count = usize::try_from(valid & 0xff).ok().filter(|&count| count <= WORDS_MAX)?;
    if valid & MARK != VALID {
        return None;
    }
    let mut at = REDO.wrapping_add(PAIRS);
    for _ in 0..count {
        let [place, word] = view.load_pair(at).ok()?;
        view.store_word(usize::try_from(place).ok()?, word).ok()?;
        at = at.wrapping_add(16);
    }
    let ring = match valid >> 8 & 0xff {
        0 => return Some(None),
        1 => Ring::Completion,
        2 => Ring::Event,
        _ => return None,
    };
    let number = u32::try_from(view.load_word(REDO.wrapping_add(8)).ok()?).ok()?;
    let at = view.load_word(REDO.wrapping_add(16)).ok()?;
    let bytes = view.read(REDO.wrapping_add(GUEST)).ok()?;
    Some(Some(StoredEntry { ring, number, at, bytes }))
}
