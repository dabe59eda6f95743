//! The steps of a channel whose order both sides rely on.
//!
//! One side *shows* a word and then looks whether the other sleeps; the other *asks* to be woken
//! and then looks at the word for the last time. A full fence lies between the two steps of each,
//! so whichever comes second sees the first. Events are shown by the last word of their slot, room
//! by the word with what was given back; the steps are the same. They are written over [`Words`]
//! so that the checker in `tests/loom_channel.rs` runs the code that runs in production.

use std::sync::atomic::Ordering;

/// Words that another side reads and writes at the same time.
pub trait Words {
    /// Loads the word at byte `at`.
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// Stores the word at byte `at`.
    fn store(&self, at: usize, value: u64, order: Ordering);
    /// Everything before is visible to whoever sees, or has a fence before, anything after.
    fn full_fence();
}

/// Shows `value` at `at`, and with it all that was written before.
#[inline]
pub fn show<W: Words>(words: &W, at: usize, value: u64) {
    words.store(at, value, Ordering::Release);
}

/// After any number of [`show`]s: whether the other side, which tells at `sleeps`, is to be woken.
#[inline]
pub fn must_wake<W: Words>(words: &W, sleeps: usize) -> bool {
    W::full_fence();
    words.load(sleeps, Ordering::Relaxed) != 0
}

/// As [`must_wake`], and takes the wish with it: who asked is woken once for it, however much is
/// shown before it asks again. It must be woken *after* this.
#[inline]
pub fn take_wish<W: Words>(words: &W, sleeps: usize) -> bool {
    let wanted = must_wake(words, sleeps);
    if wanted {
        awake(words, sleeps);
    }
    wanted
}

/// Asks at `sleeps` to be woken; gives the word at `at` as it is now. Only if that says that there
/// is nothing, the caller may sleep.
#[inline]
pub fn ask<W: Words>(words: &W, sleeps: usize, at: usize) -> u64 {
    words.store(sleeps, 1, Ordering::Relaxed);
    W::full_fence();
    look(words, at)
}

/// The word at `at`; what was written before it was shown is visible afterwards.
#[inline]
pub fn look<W: Words>(words: &W, at: usize) -> u64 {
    words.load(at, Ordering::Acquire)
}

/// Takes back what [`ask`] asked.
#[inline]
pub fn awake<W: Words>(words: &W, sleeps: usize) {
    words.store(sleeps, 0, Ordering::Relaxed);
}
