//! An entry of the table of mappings that the SIGBUS handler reads while other threads change it.
//!
//! The handler must not wait, and must not combine the base of one mapping with the length of
//! another: it would replace memory outside the mapping. So an entry is a sequence lock: it counts
//! its changes, and a reader that finds it changing, or changed meanwhile, skips it. The mapping
//! that the handler searches does not change, because it is being accessed. The code is generic
//! over [`SharedWord`], so that the model checker in `tests/loom_slot.rs` runs the production code.
//!
//! `crate::fault` has one entry per mapping. Any thread may claim a free entry; only the claimant
//! fills and empties it, so there is one writer at a time. Readers never wait, and may miss an
//! entry that changes. An entry holds no reference: the caller empties it before it unmaps the
//! range.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// A machine word that threads share.
pub trait SharedWord {
    /// Loads the word.
    fn load(&self, order: Ordering) -> usize;
    /// Stores the word.
    fn store(&self, value: usize, order: Ordering);
    /// Replaces `from` by `to` with acquire and release order. Returns whether `from` was there.
    fn exchange(&self, from: usize, to: usize) -> bool;
    /// Fences accesses of this word and others.
    fn fence(order: Ordering);
}

impl SharedWord for AtomicUsize {
    #[inline]
    fn load(&self, order: Ordering) -> usize {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: usize, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn exchange(&self, from: usize, to: usize) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// The value of `base` in a free entry.
const FREE: usize = 0;
/// Claimed by a thread, without a mapping yet.
const CLAIMED: usize = 1;

/// An entry: base and length of a mapping. `base` is also the claim.
#[derive(Debug)]
pub struct MappingSlot<W> {
    base: W,
    len: W,
    /// Number of changes; odd during a change.
    changes: W,
}

impl MappingSlot<AtomicUsize> {
    /// Returns a free entry.
    pub const fn new() -> Self {
        Self::of(AtomicUsize::new(FREE), AtomicUsize::new(0), AtomicUsize::new(0))
    }
}

impl Default for MappingSlot<AtomicUsize> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: SharedWord> MappingSlot<W> {
    /// Returns a free entry of these words, all of them zero.
    pub const fn of(base: W, len: W, changes: W) -> Self {
        Self { base, len, changes }
    }

    /// Claims a free entry and returns true. The claimant must call [`Self::fill`] next.
    pub fn claim(&self) -> bool {
        self.base.exchange(FREE, CLAIMED)
    }

    /// Sets the mapping `[base, base + len)`. Only the claimant may call it; `base` is
    /// page-aligned.
    pub fn fill(&self, base: usize, len: usize) {
        self.change(base, len);
    }

    /// Frees the entry. Only the thread that called [`Self::fill`], or its successor, may call it.
    pub fn empty(&self) {
        self.change(CLAIMED, 0);
        self.base.store(FREE, Ordering::Release);
    }

    /// Writes base and length as one change for readers. One writer at a time.
    fn change(&self, base: usize, len: usize) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(1), Ordering::Relaxed);
        W::fence(Ordering::Release);
        self.len.store(len, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(2), Ordering::Release);
    }

    /// Returns base and length of the mapping. `None` if there is none, or if the entry changed
    /// while it was read.
    pub fn get(&self) -> Option<(usize, usize)> {
        let changes = self.changes.load(Ordering::Acquire);
        let (base, len) = (self.base.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        W::fence(Ordering::Acquire);
        let still = changes & 1 == 0 && self.changes.load(Ordering::Relaxed) == changes;
        (still && base > CLAIMED).then_some((base, len))
    }
}
