//! The steps of the lock and of the room, in the memory order that their users rely on.
//!
//! They are generic over [`FutexWord`], so that the model checker in `tests/loom_lock.rs` runs the
//! production code. A word is used in one of two ways: any threads call [`take`], [`try_take`] and
//! [`give`]; or, for a *serial* lock, calls that never overlap in time, of any threads, use
//! [`try_take_alone`], a release store of [`FREE`] ends each, and other threads use [`claim`] and
//! [`end_claim`]. The functions check no preconditions: a release by a thread that does not hold
//! the lock breaks it. A [`Room`](super::Room) is a word that counts events, on which threads
//! sleep. Only [`Lock`](super::Lock) and [`Room`](super::Room) call them, on the words of one
//! process.

use std::sync::atomic::Ordering;
use std::time::Duration;

/// Value of a free lock.
pub const FREE: u32 = 0;
/// Value of a held lock.
pub const HELD: u32 = 1;
/// Value of a held lock with waiters.
const WANTED: u32 = 2;

/// A word that threads share and sleep on, as with futex(2).
pub trait FutexWord {
    /// Loads the word, relaxed.
    fn load(&self) -> u32;
    /// Loads the word with acquire order.
    fn acquire(&self) -> u32;
    /// Stores `value` with release order.
    fn release(&self, value: u32);
    /// Stores `value` and returns the old value.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Replaces `from` by `to` with acquire order, and returns whether `from` was there.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Adds 1, relaxed.
    fn increment(&self);
    /// Sleeps until a wake-up or the timeout, perhaps spuriously; returns at once if the word is
    /// not `value`.
    fn sleep(&self, value: u32, time: Option<Duration>);
    /// Wakes `count` sleepers.
    fn wake(&self, count: u32);
    /// Orders accesses around it against a [`Self::far_fence`] of another thread.
    fn near_fence();
    /// Turns every [`Self::near_fence`] of this process into a full fence.
    fn far_fence();
}

/// Takes the lock if it is free.
#[inline]
pub fn try_take(word: &impl FutexWord) -> bool {
    word.exchange(FREE, HELD)
}

/// Takes the lock; polls `polls` times before it sleeps.
pub fn take(word: &impl FutexWord, polls: u32) {
    for _ in 0..polls {
        if word.load() == FREE && try_take(word) {
            return;
        }
        std::hint::spin_loop();
    }
    // From here on each release wakes a sleeper: there may be other waiters.
    while word.swap(WANTED, Ordering::Acquire) != FREE {
        word.sleep(WANTED, None);
    }
}

/// Releases the lock. Only its holder may call it.
#[inline]
pub fn give(word: &impl FutexWord) {
    if word.swap(FREE, Ordering::Release) == WANTED {
        word.wake(1);
    }
}

/// Takes a serial lock without an atomic read-modify-write. Returns false if the lock is held, or
/// if a claimant holds it or waits for it. The holder releases the lock by a store of [`FREE`].
#[inline]
pub fn try_take_alone<W: FutexWord>(word: &W, claim: &W) -> bool {
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

/// Takes a lock from the thread that uses [`try_take_alone`]. After its release, all writes of that
/// thread are visible. `rest` is called between two polls of a held lock. Claimants take turns by
/// the lock `queue`. [`end_claim`] follows.
pub fn claim<W: FutexWord>(word: &W, claim: &W, queue: &W, mut rest: impl FnMut()) {
    take(queue, 0);
    claim.release(HELD);
    W::far_fence();
    while word.acquire() != FREE {
        rest();
    }
}

/// Releases a claimed lock and admits the next claimant. Only the claimant may call it.
pub fn end_claim<W: FutexWord>(claim: &W, queue: &W) {
    claim.release(FREE);
    give(queue);
}

/// Wakes `count` sleepers of a room. The caller has caused their event before, under a lock that
/// they take after the wake-up.
#[inline]
pub fn call(calls: &impl FutexWord, count: u32) {
    calls.increment();
    calls.wake(count);
}
