//! A window of one mapping, by which rings and channels reach their indices and descriptors.
//!
//! Offsets are checked against the window, not against the map: a view costs one check per access.
//! `ring` and `channel` take a view when a queue is set up, and keep it as long as the queue runs.
//! The view keeps its mapping alive; it does not notice a new epoch, so a changed memory table
//! requires new views.
//!
//! Only the loads and stores with an `Ordering`, and [`View::load_entry`], order accesses; these
//! and [`View::load_all`] need aligned offsets. All other accesses are plain moves that another
//! process may see in part. Writes are not recorded in the dirty log: the caller marks them
//! ([`crate::DirtyLog`]). A page lost from its file reads as zeros: callers check
//! [`View::is_poisoned`]. [`crate::Map::view`] checks that the grant permits reading and writing;
//! [`View::new`] and accesses check no rights. An access beyond the window is [`OutOfGrant`] and
//! touches nothing. No access blocks; any thread may use a view.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::kernel;
use crate::map::OutOfGrant;
use crate::mapping::Mapping;
use crate::trace;

/// A checked window of a mapping. It keeps the mapping alive, so it stays valid over a change of
/// the memory table; the next epoch's window is taken from the next map.
#[derive(Debug, Clone)]
pub struct View {
    /// The window's first byte; stored, because rings are accessed for every chain.
    start: NonNull<u8>,
    len: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: `start` lies in the mapping, which may itself be used from any thread; no reference to
// the bytes is ever made.
unsafe impl Send for View {}
// SAFETY: as for Send.
unsafe impl Sync for View {}

impl View {
    /// Returns the window of `len` bytes at `base` of `mapping`.
    ///
    /// # Errors
    /// [`OutOfGrant`] if the mapping ends before.
    pub fn new(mapping: Arc<Mapping>, base: usize, len: usize) -> Result<Self, OutOfGrant> {
        let start = mapping.at(base).filter(|&(_, left)| len <= left);
        match start.and_then(|(start, _)| NonNull::new(start)) {
            Some(start) => Ok(Self { start, len, mapping }),
            None => Err(OutOfGrant { addr: base as u64, len: len as u64 }),
        }
    }

    /// Returns the length, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the window has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a pointer to the first byte, for rings that check their offsets at set-up. The bytes
    /// are mapped while this view or a clone of it lives; other processes write to them at any
    /// time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns whether a page of the mapping was lost because its file shrank.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.mapping.is_poisoned()
    }

    /// Returns a pointer to `len` bytes at offset `at` of the window.
    #[inline]
    fn pointer(&self, at: usize, len: usize) -> Result<*mut u8, OutOfGrant> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(OutOfGrant { addr: at as u64, len: len as u64 });
        }
        // SAFETY: at <= self.len, and `new` found as many bytes mapped behind `start`.
        Ok(unsafe { self.start.as_ptr().add(at) })
    }

    /// Returns the two little-endian words at `at`, each loaded once; no alignment needed.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn load_pair(&self, at: usize) -> Result<[u64; 2], OutOfGrant> {
        let from = self.pointer(at, 16)?;
        // SAFETY: `pointer` checked that 16 bytes lie in the mapping.
        Ok(unsafe { kernel::load_pair(from) }.map(u64::from_le))
    }

    /// Returns the two little-endian words at `at`, aligned to 8 bytes. Loads each once and as a
    /// whole, the second first with acquire order, so that writes before it are visible afterwards,
    /// including the first word. For entries whose last bytes mark them as valid: the preceding
    /// bytes of the second word were written before the mark, and a load of all eight bytes sees
    /// both.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `at` is unaligned.
    #[inline]
    pub fn load_entry(&self, at: usize) -> Result<[u64; 2], OutOfGrant> {
        let from = self.pointer(at, 16)?.cast::<u64>();
        if !from.is_aligned() {
            return Err(OutOfGrant { addr: at as u64, len: 16 });
        }
        trace::read(from.cast(), 8);
        // SAFETY: 16 mapped, aligned bytes that live as long as `self.mapping`; else as in
        // `atomic`.
        let second = unsafe { AtomicU64::from_ptr(from.add(1)) }.load(Ordering::Acquire);
        // SAFETY: as above.
        let first = unsafe { kernel::load_word(from.cast()) };
        Ok([first, second].map(u64::from_le))
    }

    /// Returns the little-endian word at `at`, loaded once; no alignment needed.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn load_word(&self, at: usize) -> Result<u64, OutOfGrant> {
        let from = self.pointer(at, 8)?;
        // SAFETY: `pointer` checked that 8 bytes lie in the mapping.
        Ok(u64::from_le(unsafe { kernel::load_word(from) }))
    }

    /// Stores two little-endian words at `at`; no alignment needed.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn store_pair(&self, at: usize, [first, second]: [u64; 2]) -> Result<(), OutOfGrant> {
        let to = self.pointer(at, 16)?;
        // SAFETY: `pointer` checked that 16 bytes lie in the mapping.
        unsafe {
            kernel::store_word(to, first.to_le());
            kernel::store_word(to.add(8), second.to_le());
        }
        Ok(())
    }

    /// Stores a little-endian word at `at`; no alignment needed.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn store_word(&self, at: usize, word: u64) -> Result<(), OutOfGrant> {
        let to = self.pointer(at, 8)?;
        // SAFETY: `pointer` checked that 8 bytes lie in the mapping.
        unsafe { kernel::store_word(to, word.to_le()) };
        Ok(())
    }

    /// Returns a copy of the `N` bytes at `at`, read once.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn read<const N: usize>(&self, at: usize) -> Result<[u8; N], OutOfGrant> {
        let from = self.pointer(at, N)?;
        let mut bytes = [0_u8; N];
        // SAFETY: `pointer` checked that N bytes lie in the mapping; `bytes` is private.
        unsafe { kernel::copy(bytes.as_mut_ptr(), from, N) };
        Ok(bytes)
    }

    /// Copies the bytes at `at` out, once.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn read_into(&self, at: usize, into: &mut [u8]) -> Result<(), OutOfGrant> {
        let from = self.pointer(at, into.len())?;
        // SAFETY: `pointer` checked that the bytes lie in the mapping; `into` is private.
        unsafe { kernel::copy(into.as_mut_ptr(), from, into.len()) };
        Ok(())
    }

    /// Prefetches the cache line at `at`; a hint that never fails.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        if let Ok(pointer) = self.pointer(at, 1) {
            kernel::prefetch(pointer);
        }
    }

    /// As [`Self::prefetch`], for a line that will be written.
    #[inline]
    pub fn prefetch_write(&self, at: usize) {
        if let Ok(pointer) = self.pointer(at, 1) {
            kernel::prefetch_write(pointer);
        }
    }

    /// Copies `bytes` to `at`.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), OutOfGrant> {
        let to = self.pointer(at, bytes.len())?;
        // SAFETY: `pointer` checked that the bytes lie in the mapping; `bytes` is private.
        unsafe { kernel::copy(to, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Returns the index of 16 bits at `at`, which must be even.
    #[inline]
    fn atomic(&self, at: usize) -> Result<&AtomicU16, OutOfGrant> {
        let pointer = self.pointer(at, 2)?.cast::<u16>();
        if !pointer.is_aligned() {
            return Err(OutOfGrant { addr: at as u64, len: 2 });
        }
        // SAFETY: two mapped, aligned bytes that live as long as `self.mapping`. The other side
        // may be another process; atomics are the access that both sides may make at once.
        Ok(unsafe { AtomicU16::from_ptr(pointer) })
    }

    /// Loads the little-endian index at `at`, which must be even.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `at` is odd.
    #[inline]
    pub fn load(&self, at: usize, order: Ordering) -> Result<u16, OutOfGrant> {
        let index = self.atomic(at)?;
        trace::read(index.as_ptr().cast(), 2);
        Ok(u16::from_le(index.load(order)))
    }

    /// Loads consecutive little-endian words from `at` on, which must be even, each once: heads
    /// that became visible with an index.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `at` is odd.
    #[inline]
    pub fn load_all(&self, at: usize, into: &mut [u16]) -> Result<(), OutOfGrant> {
        let len = into.len().saturating_mul(2);
        let start = self.pointer(at, len)?.cast::<u16>();
        if !start.is_aligned() {
            return Err(OutOfGrant { addr: at as u64, len: len as u64 });
        }
        trace::read(start.cast(), len);
        for (index, word) in into.iter_mut().enumerate() {
            // SAFETY: `pointer` checked that as many words as `into` has lie in the mapping, and
            // they are aligned; else as in `atomic`.
            let shared = unsafe { AtomicU16::from_ptr(start.add(index)) };
            *word = u16::from_le(shared.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Stores the little-endian index at `at`, which must be even.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `at` is odd.
    #[inline]
    pub fn store(&self, at: usize, value: u16, order: Ordering) -> Result<(), OutOfGrant> {
        let index = self.atomic(at)?;
        trace::written(index.as_ptr().cast(), 2);
        index.store(value.to_le(), order);
        Ok(())
    }
}
