//! The steps of a lock of one word, and of a room, in an order that all who meet there rely on.
//!
//! They are written over [`Word`], so that the checker in `tests/loom_lock.rs` runs the code that
//! runs in production.

use std::sync::atomic::Ordering;
use std::time::Duration;

/// A lock that nobody has.
pub const FREE: u32 = 0;
/// One that somebody has.
pub const HELD: u32 = 1;
/// Held, and others wait.
const WANTED: u32 = 2;

/// A word that threads share and sleep on, as futex(2) has it.
pub trait Word {
    /// Loads it, in no order with anything else.
    fn load(&self) -> u32;
    /// Loads it, and sees then all that was done before what is there was stored.
    fn acquire(&self) -> u32;
    /// Stores `value`, which shows all that was done before.
    fn release(&self, value: u32);
    /// Stores `value`, and gives what was there.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Stores `to` if `from` is there, and sees then all that was done before it was stored.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Adds one.
    fn increment(&self);
    /// Sleeps until it is woken, or the time is over, or for no reason; not at all if `value` is
    /// not there any more.
    fn sleep(&self, value: u32, time: Option<Duration>);
    /// Wakes `count` of those who sleep.
    fn wake(&self, count: u32);
    /// Keeps what is before it before what is after it, for whoever has a [`Self::far_fence`].
    fn near_fence();
    /// Makes a fence of each [`Self::near_fence`] of this process.
    fn far_fence();
}

/// Takes the lock if it is free.
#[inline]
pub fn try_take(word: &impl Word) -> bool {
    word.exchange(FREE, HELD)
}

/// Takes the lock; looks so often before it sleeps.
pub fn take(word: &impl Word, looks: u32) {
    for _ in 0..looks {
        if word.load() == FREE && try_take(word) {
            return;
        }
        std::hint::spin_loop();
    }
    // From here on whoever gives it wakes somebody: there may be others beside us.
    while word.swap(WANTED, Ordering::Acquire) != FREE {
        word.sleep(WANTED, None);
    }
}

/// Lets the lock go. Only for who has it.
#[inline]
pub fn give(word: &impl Word) {
    if word.swap(FREE, Ordering::Release) == WANTED {
        word.wake(1);
    }
}

/// Takes a lock that one thread has at a time anyway, without a word to the other processors: only
/// a claim is in its way.
#[inline]
pub fn try_take_alone<W: Word>(word: &W, claim: &W) -> bool {
    if word.load() != FREE || claim.acquire() != FREE {
        return false;
    }
    word.release(HELD);
    W::near_fence();
    if claim.acquire() == FREE {
        return true;
    }
    word.release(FREE);
    false
}

/// Takes a lock from a thread that uses [`try_take_alone`]: once that thread is out, all that it did
/// is seen. Claimants take turns by `queue`, a lock of [`take`]. [`end_claim`] comes after it.
pub fn claim<W: Word>(word: &W, claim: &W, queue: &W, mut rest: impl FnMut()) {
    take(queue, 0);
    claim.release(HELD);
    W::far_fence();
    while word.acquire() != FREE {
        rest();
    }
}

/// Lets go what was claimed, and the next claimant in. Only for the claimant.
pub fn end_claim<W: Word>(claim: &W, queue: &W) {
    claim.release(FREE);
    give(queue);
}

/// Calls `count` of those who sleep in a room. What they wait for was done before, under a lock
/// that they take when they wake.
#[inline]
pub fn call(calls: &impl Word, count: u32) {
    calls.increment();
    calls.wake(count);
}
