//! The ordered memory accesses of a channel.
//!
//! A side *publishes* a word and then reads whether the other side sleeps; the other side
//! *requests* a wake-up and then reads the word once more. Both have a full fence between their two
//! steps, so that at least the later side sees the first step of the earlier side, and no wake-up
//! is lost. Events are published by the last word of their slot, room by the word with the consumed
//! counts; the steps are the same. [`crate::Sender`] and [`crate::Receiver`] call them; they are
//! generic over [`ChannelWords`], so that the model checker in `tests/loom_handshake.rs` runs the
//! production code.
//!
//! The functions ring no doorbell, wait for nothing and check no value: the thread that owns the
//! sender or receiver calls them, rings if a result requires it, and sleeps elsewhere. A wake-up
//! may be superfluous. A peer that does not follow the order costs wake-ups of this channel only:
//! its own, and those of a side that sleeps until the peer publishes.
//!
//! A fence for each event would cost more than the event, and mostly the other side is awake. So a
//! side may omit its fence after declaring this ([`omit_fences`]): a side that is about to sleep
//! then executes a fence on both processors ([`ChannelWords::far_fence`]), and must not sleep if
//! the kernel cannot: it then withdraws its requests by [`disarm`], as after any sleep. A process
//! of `message` requests wake-ups in all its channels, executes one fence for them, and then loads
//! the word of each.

use std::sync::atomic::Ordering;

/// Shared memory of 64-bit words that the other side reads and writes concurrently.
pub trait ChannelWords {
    /// Loads the word at byte offset `at`.
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// Stores the word at byte offset `at`.
    fn store(&self, at: usize, value: u64, order: Ordering);
    /// Orders all earlier accesses before all later accesses, sequentially consistent.
    fn full_fence();
    /// Executes a full fence here and in every process that registered for it. Returns false if the
    /// kernel cannot.
    fn far_fence() -> bool;
}

/// Publishes `value` at `at`, with all earlier writes.
#[inline]
pub fn publish<W: ChannelWords>(words: &W, at: usize, value: u64) {
    words.store(at, value, Ordering::Release);
}

/// Returns whether the other side, which writes its state at `sleeps`, must be woken. Called after
/// any number of [`publish`]s.
#[inline]
pub fn must_wake<W: ChannelWords>(words: &W, sleeps: usize) -> bool {
    W::full_fence();
    words.load(sleeps, Ordering::Relaxed) != 0
}

/// Like [`must_wake`], but also clears the request: the other side is woken once per request, for
/// any number of published words. The caller must wake it *after* this call.
#[inline]
pub fn take_wake_request<W: ChannelWords>(words: &W, sleeps: usize) -> bool {
    let wake = must_wake(words, sleeps);
    if wake {
        disarm(words, sleeps);
    }
    wake
}

/// Declares at `omits_fences`, before anything is published, that this side uses
/// [`must_wake_unfenced`].
pub fn omit_fences<W: ChannelWords>(words: &W, omits_fences: usize) {
    words.store(omits_fences, 1, Ordering::Relaxed);
    W::full_fence();
}

/// Like [`must_wake`], without its fence.
#[inline]
pub fn must_wake_unfenced<W: ChannelWords>(words: &W, sleeps: usize) -> bool {
    // Orders the compiler only; the requesting side orders this processor by a far fence.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    words.load(sleeps, Ordering::Relaxed) != 0
}

/// Like [`take_wake_request`], without its fence.
#[inline]
pub fn take_wake_request_unfenced<W: ChannelWords>(words: &W, sleeps: usize) -> bool {
    let wake = must_wake_unfenced(words, sleeps);
    if wake {
        disarm(words, sleeps);
    }
    wake
}

/// First half of [`arm`], for any number of channels: requests a wake-up at `sleeps`. Returns
/// whether [`ChannelWords::far_fence`] is needed before the second half, [`load_word`].
pub fn request_wake<W: ChannelWords>(words: &W, sleeps: usize, omits_fences: usize) -> bool {
    words.store(sleeps, 1, Ordering::Relaxed);
    W::full_fence();
    words.load(omits_fences, Ordering::Relaxed) != 0
}

/// Requests a wake-up at `sleeps`, and returns the word at `at`. The caller may sleep only if that
/// word shows nothing new. For a peer that keeps its fences; otherwise [`request_wake`].
#[inline]
pub fn arm<W: ChannelWords>(words: &W, sleeps: usize, at: usize) -> u64 {
    words.store(sleeps, 1, Ordering::Relaxed);
    W::full_fence();
    load_word(words, at)
}

/// Returns the word at `at`. Writes before its publication are visible afterwards.
#[inline]
pub fn load_word<W: ChannelWords>(words: &W, at: usize) -> u64 {
    words.load(at, Ordering::Acquire)
}

/// Withdraws the request of [`arm`].
#[inline]
pub fn disarm<W: ChannelWords>(words: &W, sleeps: usize) {
    words.store(sleeps, 0, Ordering::Relaxed);
}
