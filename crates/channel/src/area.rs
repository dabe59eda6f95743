//! Memory of a channel: words and bytes that the peer reads and writes concurrently.
//!
//! [`crate::Sender`], [`crate::Receiver`] and [`crate::handshake`] access a channel through an
//! [`Area`]. Offsets are checked against a private length, never against a value in the memory.
//! They come from the layout and from private counts, so a check never fails; with a wrong offset a
//! word or line would be that at the first bytes of the header instead, which are not read after
//! opening, and a copy of bytes would do nothing.
//!
//! The module knows no layout and checks no value; the meaning of the words is defined in the other
//! modules. Words are atomic with the ordering that the caller gives; byte copies are not atomic
//! and may contain bytes from several writes of the peer. A lost page (the file was truncated)
//! reads as zeroes, writes to it are lost, and [`Area::is_poisoned`] is true from then on: the
//! owner of the channel checks it through [`crate::Receiver::is_poisoned`] and drops the channel.
//!
//! [`far_fence`] and [`allow_fences`] concern the process, not a channel. A process calls
//! [`allow_fences`] once before its senders omit their fences, and again in the child after a fork;
//! a thread that is about to sleep calls [`far_fence`] if a sender of a peer omits its fences. Both
//! run in the calling thread, in the process of an application (the libraries of `clients`, and
//! `message`); causewayd calls neither.
#![allow(
    unsafe_code,
    reason = "memory shared with the peer: atomics and copies at checked offsets"
)]

use std::sync::atomic::{AtomicU64, Ordering, fence};

use causeway_memory::{View, copy_shared};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::cooperative_copy::Cell;
use crate::handshake::ChannelWords;

/// Length from which bytes are copied by `rep movsb`, in bytes. One side of the copy is private and
/// cached, so `rep movsb` is slower below.
const STRING_FROM: usize = 4096;

/// The memory of one channel.
#[derive(Debug, Clone)]
pub(crate) struct Area {
    /// The mapped memory.
    view: View,
    /// Largest offset of a whole word, and of a whole line.
    last: usize,
    last_line: usize,
    /// Length of the channel, in bytes.
    len: usize,
}

impl Area {
    /// Returns the first `len` bytes of `view`, or `None` if it is shorter or does not start on a
    /// cache line.
    pub(crate) fn new(view: View, len: usize) -> Option<Self> {
        let (last, last_line) = (len.checked_sub(8)?, len.checked_sub(64)?);
        let aligned = (view.as_ptr() as usize).is_multiple_of(64);
        (view.len() >= len && aligned).then_some(Self { view, last, last_line, len })
    }

    /// Returns the word at offset `at`.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        let at = if at <= self.last { at & !7 } else { 0 };
        // SAFETY: at + 8 <= len <= the view's length, so the word is mapped while `self.view`
        // lives; view and offset are aligned. Both sides access it by atomics or by copies of
        // their own; no reference to the bytes themselves exists.
        unsafe { AtomicU64::from_ptr(self.view.as_ptr().add(at).cast()) }
    }

    /// Returns the cache line at `at`: a single check for all its words.
    #[inline]
    pub(crate) fn line(&self, at: usize) -> CacheLine<'_> {
        let at = if at <= self.last_line { at & !63 } else { 0 };
        // SAFETY: at + 64 <= len <= the view's length, and view and offset are aligned to 64, so
        // the eight words are mapped while `self.view` lives. All access is by atomics or by
        // copies.
        CacheLine(unsafe { &*self.view.as_ptr().add(at).cast::<[AtomicU64; 8]>() })
    }

    /// Prefetches the line at `at` for writing.
    #[inline]
    pub(crate) fn prefetch_write(&self, at: usize) {
        self.view.prefetch_write(at);
    }

    /// Loads a word.
    #[inline]
    pub(crate) fn get(&self, at: usize, order: Ordering) -> u64 {
        u64::from_le(self.word(at).load(order))
    }

    /// Stores a word.
    #[inline]
    pub(crate) fn put(&self, at: usize, value: u64, order: Ordering) {
        self.word(at).store(value.to_le(), order);
    }

    /// Returns the word at `at`, for compare-and-exchange by both sides.
    pub(crate) fn cell(&self, at: usize) -> impl Cell + '_ {
        ExchangedWord(self.word(at))
    }

    /// Copies `bytes` to `at`, or nothing if they do not fit.
    #[inline]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        if at.checked_add(bytes.len()).is_some_and(|end| end <= self.len) {
            // SAFETY: the bytes lie in the view, by the check; `bytes` is private.
            unsafe {
                copy_shared::<STRING_FROM>(self.view.as_ptr().add(at), bytes.as_ptr(), bytes.len())
            }
        }
    }

    /// Copies bytes from `at`, or nothing if they are not inside.
    #[inline]
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        if at.checked_add(into.len()).is_some_and(|end| end <= self.len) {
            // SAFETY: the bytes lie in the view, by the check; `into` is private.
            unsafe {
                copy_shared::<STRING_FROM>(
                    into.as_mut_ptr(),
                    self.view.as_ptr().add(at),
                    into.len(),
                )
            }
        }
    }

    /// Returns whether a page of the memory was lost.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.view.is_poisoned()
    }
}

/// A cache line of eight words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheLine<'a>(&'a [AtomicU64; 8]);

impl CacheLine<'_> {
    /// Loads a word by its index.
    #[inline]
    pub(crate) fn get<const WORD: usize>(&self, order: Ordering) -> u64 {
        let CacheLine(words) = self;
        words.get(WORD).map_or(0, |word| u64::from_le(word.load(order)))
    }

    /// Stores a word by its index.
    #[inline]
    pub(crate) fn put<const WORD: usize>(&self, value: u64, order: Ordering) {
        let CacheLine(words) = self;
        if let Some(word) = words.get(WORD) {
            word.store(value.to_le(), order);
        }
    }
}

/// A word that both sides compare and exchange.
struct ExchangedWord<'a>(&'a AtomicU64);

impl Cell for ExchangedWord<'_> {
    fn load(&self, order: Ordering) -> u64 {
        let Self(word) = self;
        u64::from_le(word.load(order))
    }

    fn store(&self, value: u64, order: Ordering) {
        let Self(word) = self;
        word.store(value.to_le(), order);
    }

    fn exchange(&self, current: u64, new: u64) -> Result<(), u64> {
        let Self(word) = self;
        let (done, not) = (Ordering::AcqRel, Ordering::Acquire);
        word.compare_exchange(current.to_le(), new.to_le(), done, not)
            .map(drop)
            .map_err(u64::from_le)
    }
}

impl ChannelWords for Area {
    #[inline]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.get(at, order)
    }

    #[inline]
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.put(at, value, order);
    }

    #[inline]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }

    fn far_fence() -> bool {
        far_fence()
    }
}

/// Executes a fence here and in all processes that called [`allow_fences`] (`membarrier`). A
/// receiver calls it before its thread sleeps, once for all channels, if
/// [`crate::Receiver::request_wake`] returned true; the lock of `causeway_endpoint` uses it too.
/// Returns false if the kernel does not support it: then the caller must not sleep.
pub fn far_fence() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Registers this process for the fences of others ([`far_fence`]). A process calls it before
/// [`crate::Sender::omit_fences`], and again in a forked child, because the kernel does not pass
/// the registration on; a further call has no effect. Returns false if the kernel does not support
/// it: then senders must keep their fences.
pub fn allow_fences() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}
