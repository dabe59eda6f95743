//! The steps of a channel whose order both sides rely on.
//!
//! One side *shows* a word and then looks whether the other sleeps; the other *asks* to be woken
//! and then looks at the word for the last time. A full fence lies between the two steps of each,
//! so whichever comes second sees the first. Events are shown by the last word of their slot, room
//! by the word with what was given back; the steps are the same. They are written over [`Words`]
//! so that the checker in `tests/loom_handshake.rs` runs the code that runs in production.
//!
//! A fence for each event costs more than the event, and nobody sleeps most of the time. So a side
//! may leave its fence out and say so beforehand ([`spare`]): who is about to sleep then makes a
//! fence in both places ([`Words::far_fence`]).

use std::sync::atomic::Ordering;

/// Words that another side reads and writes at the same time.
pub trait Words {
    /// Loads the word at byte `at`.
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// Stores the word at byte `at`.
    fn store(&self, at: usize, value: u64, order: Ordering);
    /// Everything before is visible to whoever sees, or has a fence before, anything after.
    fn full_fence();
    /// A full fence here and in every process that said beforehand that it may be needed there.
    /// False if that cannot be.
    fn far_fence() -> bool;
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

/// Tells at `spares`, before anything is shown, that [`must_wake_sparing`] is used.
pub fn spare<W: Words>(words: &W, spares: usize) {
    words.store(spares, 1, Ordering::Relaxed);
    W::full_fence();
}

/// As [`must_wake`], without its fence.
#[inline]
pub fn must_wake_sparing<W: Words>(words: &W, sleeps: usize) -> bool {
    // The compiler keeps the order; the processor is made to by who asks.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    words.load(sleeps, Ordering::Relaxed) != 0
}

/// As [`take_wish`], without its fence.
#[inline]
pub fn take_wish_sparing<W: Words>(words: &W, sleeps: usize) -> bool {
    let wanted = must_wake_sparing(words, sleeps);
    if wanted {
        awake(words, sleeps);
    }
    wanted
}

/// The first half of [`ask`], of any number of channels: asks at `sleeps`. Says whether
/// [`Words::far_fence`] is needed before the other half, [`look`]; else all is done that is.
pub fn wish<W: Words>(words: &W, sleeps: usize, spares: usize) -> bool {
    words.store(sleeps, 1, Ordering::Relaxed);
    W::full_fence();
    words.load(spares, Ordering::Relaxed) != 0
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
