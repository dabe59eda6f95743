//! The redo entry: several stores that take effect together, whenever the process is killed.
//!
//! A commit writes all its stores into the entry, makes the entry valid by a single store, applies
//! the stores, and clears the entry. A kill before the entry is valid leaves none of the stores; the
//! next process applies a valid entry again, which is harmless because each store sets a word to a
//! value. The 64 bytes of a completion or event belong to the commit: the caller writes them to the
//! guest's memory before it clears the entry. A commit of a single word needs no entry.
//!
//! The stores of a killed process stay in a shared mapping in their order; a crash of the host ends
//! the guests too. So only the compiler has to keep the order, and accesses of [`View`] are not
//! reordered by it.

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
/// Length of an entry behind the valid word, in bytes.
const BODY: usize = PAIRS + 16 * WORDS_MAX - 8;

/// The ring of a guest entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    Completion,
    Event,
}

/// An entry of a ring in the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestEntry {
    pub ring: Ring,
    /// Number of the queue.
    pub number: u32,
    /// Offset in the ring, in bytes.
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

/// Writes an entry and makes it valid. `step` is called between the stores.
#[inline]
pub(super) fn write(
    view: &View,
    changes: &Changes,
    entry: Option<&GuestEntry>,
    mut step: impl FnMut(),
) -> Option<()> {
    let mut body = [0_u8; BODY];
    let kind = match entry {
        None => 0,
        Some(GuestEntry { ring: Ring::Completion, .. }) => 1,
        Some(GuestEntry { ring: Ring::Event, .. }) => 2,
    };
    if let Some(entry) = entry {
        put(&mut body, 0, u64::from(entry.number));
        put(&mut body, 8, entry.at);
        body.get_mut(GUEST.wrapping_sub(8)..PAIRS.wrapping_sub(8))?.copy_from_slice(&entry.bytes);
    }
    let mut at = PAIRS.wrapping_sub(8);
    for (place, word) in changes.pairs() {
        put(&mut body, at, *place as u64);
        put(&mut body, at.wrapping_add(8), *word);
        at = at.wrapping_add(16);
    }
    view.write(REDO.wrapping_add(8), body.get(..at)?).ok()?;
    step();
    view.store_word(REDO, VALID | kind << 8 | changes.len as u64).ok()?;
    step();
    Some(())
}

fn put(body: &mut [u8; BODY], at: usize, word: u64) {
    if let Some(place) = body.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<8>()) {
        *place = word.to_le_bytes();
    }
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

/// Applies the words of a valid entry again. Returns its guest entry, which the caller writes before
/// it clears the entry. The outer value is `None` if the entry is malformed.
pub(super) fn repeat(view: &View) -> Option<Option<GuestEntry>> {
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
    Some(Some(GuestEntry { ring, number, at, bytes }))
}
