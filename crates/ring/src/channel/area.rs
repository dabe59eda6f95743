//! The channel's memory: words and bytes that the peer reads and writes at the same time.
//!
//! Offsets are checked against one length, kept here and never read from the memory. They come
//! from the layout and from our own counts, so a check never fails; if one did, the first bytes of
//! the header would be touched instead, which nobody reads after opening.
#![allow(
    unsafe_code,
    reason = "memory shared with the peer: atomics and copies at checked offsets"
)]

use std::sync::atomic::{AtomicU64, Ordering, fence};

use causeway_memory::View;

use super::copy;
use super::handshake::Words;

/// The memory of one channel.
#[derive(Debug, Clone)]
pub(super) struct Area {
    view: View,
    /// The last offset at which a whole word lies.
    last: usize,
    len: usize,
}

impl Area {
    /// The first `len` bytes of `view`; `None` if it is shorter or does not begin on a cache line.
    pub(super) fn new(view: View, len: usize) -> Option<Self> {
        let last = len.checked_sub(8)?;
        let aligned = (view.as_ptr() as usize).is_multiple_of(64);
        (view.len() >= len && aligned).then_some(Self { view, last, len })
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        let at = if at <= self.last { at & !7 } else { 0 };
        // SAFETY: at + 8 <= len <= the view's length, so the word is mapped while `self.view`
        // lives; view and offset are aligned. Both sides access it by atomics or by copies of
        // their own; no reference to the bytes themselves exists.
        unsafe { AtomicU64::from_ptr(self.view.as_ptr().add(at).cast()) }
    }

    /// Loads a word.
    #[inline]
    pub(super) fn get(&self, at: usize, order: Ordering) -> u64 {
        u64::from_le(self.word(at).load(order))
    }

    /// Stores a word.
    #[inline]
    pub(super) fn put(&self, at: usize, value: u64, order: Ordering) {
        self.word(at).store(value.to_le(), order);
    }

    /// Copies bytes in; none if they would not fit.
    #[inline]
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        if at.checked_add(bytes.len()).is_some_and(|end| end <= self.len) {
            // SAFETY: the bytes lie in the view, by the check; `bytes` is private.
            unsafe { copy::copy(self.view.as_ptr().add(at), bytes.as_ptr(), bytes.len()) }
        }
    }

    /// Copies bytes out; none if they would not lie within.
    #[inline]
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        if at.checked_add(into.len()).is_some_and(|end| end <= self.len) {
            // SAFETY: the bytes lie in the view, by the check; `into` is private.
            unsafe { copy::copy(into.as_mut_ptr(), self.view.as_ptr().add(at), into.len()) }
        }
    }

    /// Whether a page of it was lost.
    pub(super) fn poisoned(&self) -> bool {
        self.view.poisoned()
    }
}

impl Words for Area {
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
}
