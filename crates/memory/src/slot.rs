//! An entry of a table that a signal handler reads while other threads fill and empty it.
//!
//! The handler must not wait, and must not see one mapping's base with another's length: it would
//! put memory over what is somebody else's. So an entry counts its changes, and who finds it
//! changing, or changed meanwhile, looks past it: the mapping that it looks for does not change, for
//! it is being touched. Written over [`Word`], so that the checker in `tests/loom_slot.rs` runs the
//! code that runs in production.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// A word that threads share.
pub trait Word {
    /// Loads it.
    fn load(&self, order: Ordering) -> usize;
    /// Stores it.
    fn store(&self, value: usize, order: Ordering);
    /// Stores `to` if `from` is there, acquiring and releasing.
    fn exchange(&self, from: usize, to: usize) -> bool;
    /// A fence between this word and others.
    fn fence(order: Ordering);
}

impl Word for AtomicUsize {
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

const FREE: usize = 0;
/// Somebody's, and no mapping's.
const CLAIMED: usize = 1;

/// See above. `base` says too whose it is.
#[derive(Debug)]
pub struct Slot<W> {
    base: W,
    len: W,
    /// Odd while it changes.
    changes: W,
}

impl Slot<AtomicUsize> {
    /// Of nobody.
    pub const fn new() -> Self {
        Self::of(AtomicUsize::new(FREE), AtomicUsize::new(0), AtomicUsize::new(0))
    }
}

impl Default for Slot<AtomicUsize> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Word> Slot<W> {
    /// Of these words, all of them zero.
    pub const fn of(base: W, len: W, changes: W) -> Self {
        Self { base, len, changes }
    }

    /// Claims it, if it is nobody's. Whoever did says what it is for by [`Self::fill`].
    pub fn claim(&self) -> bool {
        self.base.exchange(FREE, CLAIMED)
    }

    /// It is for `[base, base + len)` from now on. For who claimed it; `base` is a page's.
    pub fn fill(&self, base: usize, len: usize) {
        self.change(base, len);
    }

    /// It is nobody's any more. For who filled it.
    pub fn empty(&self) {
        self.change(CLAIMED, 0);
        self.base.store(FREE, Ordering::Release);
    }

    fn change(&self, base: usize, len: usize) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(1), Ordering::Relaxed);
        W::fence(Ordering::Release);
        self.len.store(len, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(2), Ordering::Release);
    }

    /// What it is for: base and length. None: nothing that stayed the same while it was read.
    pub fn get(&self) -> Option<(usize, usize)> {
        let changes = self.changes.load(Ordering::Acquire);
        let (base, len) = (self.base.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        W::fence(Ordering::Acquire);
        let still = changes & 1 == 0 && self.changes.load(Ordering::Relaxed) == changes;
        (still && base > CLAIMED).then_some((base, len))
    }
}
