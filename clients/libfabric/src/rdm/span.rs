//! Pieces of the application's memory, accessed by raw pointers.
//!
//! The application may poll or write registered memory during an operation. [`AppSpan::load`]
//! (acquire), [`AppSpan::store`] and [`AppSpan::publish`] (release) therefore access it atomically,
//! as values of any length: in a single access if the value has 1, 2, 4 or 8 bytes and is aligned,
//! else byte by byte, in the order of the addresses. A longer or unaligned value may be seen half
//! written.
//!
//! The module does not check whether memory is mapped, and does not track its life:
//! [`AppSpan::new`] states what the caller must guarantee. Offsets beyond the end yield nothing or
//! `false`; no access leaves the piece. A span does not own memory and frees none.
//!
//! `shell` creates spans from the arguments of calls and registrations; [`buffer`](super::buffer)
//! and [`regions`](super::regions) combine them. For [`target`](super::target) they load, store and
//! publish, under the lock of the domain, in the thread that makes progress: the application's, in
//! a call, or the provider's own.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A piece of memory that the application lends to an operation, or registered for peers.
#[derive(Debug)]
pub struct AppSpan {
    /// The first byte.
    start: *mut u8,
    /// Length in bytes.
    len: usize,
}

// SAFETY: `AppSpan::new` requires memory that any thread may access.
unsafe impl Send for AppSpan {}

impl AppSpan {
    /// A piece without bytes.
    pub const EMPTY: Self = Self { start: std::ptr::null_mut(), len: 0 };

    /// Returns the piece of `len` bytes at `start`.
    ///
    /// # Safety
    /// Until the span and all that is derived from it are dropped, any thread must be able to read
    /// these bytes, and to write them if they receive data. While a call of this crate holds a
    /// reference to them, no other code may write them, or read them if the call writes.
    #[inline]
    pub const unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Returns the number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first byte, which completions report.
    #[inline]
    pub fn address(&self) -> usize {
        self.start.addr()
    }

    /// Returns the piece without its first `count` bytes.
    #[inline]
    pub fn skip(self, count: usize) -> Self {
        let count = count.min(self.len);
        Self { start: self.start.wrapping_add(count), len: self.len.saturating_sub(count) }
    }

    /// Returns at most the first `count` bytes of the piece.
    #[inline]
    pub fn first(self, count: usize) -> Self {
        Self { len: self.len.min(count), ..self }
    }

    /// Returns a second span of the same memory.
    ///
    /// # Safety
    /// While a reference from one of both lives, nothing may be written through the other, nor read
    /// if the reference is mutable.
    #[inline]
    pub unsafe fn alias(&self) -> Self {
        Self { ..*self }
    }

    /// Returns the bytes from `at` on; empty beyond the end.
    #[inline]
    pub fn bytes(&self, at: usize) -> &[u8] {
        let at = at.min(self.len);
        let (start, len) = (self.start.wrapping_add(at), self.len.saturating_sub(at));
        if len == 0 {
            return &[];
        }
        // SAFETY: as `new` requires, the bytes exist, and no code writes them meanwhile.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Returns the bytes from `at` on, to be written; empty beyond the end.
    #[inline]
    pub fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        let at = at.min(self.len);
        let (start, len) = (self.start.wrapping_add(at), self.len.saturating_sub(at));
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as `new` requires, the bytes exist, and no other code accesses them meanwhile.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Reads the value at `at` into `value`: in a single access if it has 1, 2, 4 or 8 bytes and is
    /// aligned, else byte by byte. The application may write the value meanwhile. Returns `false`
    /// if the value is not completely inside.
    pub fn load(&self, at: usize, value: &mut [u8]) -> bool {
        let Some(from) = self.locate(at, value.len()) else { return false };
        macro_rules! load {
            ($word:ty) => {{
                // SAFETY: `locate` found the value inside, and it is aligned for the word.
                let word = unsafe { <$word>::from_ptr(from.cast()) };
                value.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
            }};
        }
        match value.len() {
            2 if from.addr().is_multiple_of(2) => load!(AtomicU16),
            4 if from.addr().is_multiple_of(4) => load!(AtomicU32),
            8 if from.addr().is_multiple_of(8) => load!(AtomicU64),
            _ => {
                for (at, byte) in value.iter_mut().enumerate() {
                    // SAFETY: `locate` found the whole value inside.
                    let from = unsafe { AtomicU8::from_ptr(from.wrapping_add(at)) };
                    *byte = from.load(Ordering::Acquire);
                }
            }
        }
        true
    }

    /// Writes `value` at `at`, in the accesses of [`Self::load`]: an application that polls it sees
    /// earlier writes as well. Returns `false` if the value is not completely inside.
    #[inline]
    pub fn store(&mut self, at: usize, value: &[u8]) -> bool {
        let Some(to) = self.locate(at, value.len()) else { return false };
        macro_rules! store {
            ($word:ty, $number:ty, $bytes:expr) => {{
                // SAFETY: `locate` found the value inside, and it is aligned for the word.
                let word = unsafe { <$word>::from_ptr(to.cast()) };
                word.store(<$number>::from_ne_bytes($bytes), Ordering::Release);
            }};
        }
        match *value {
            [a, b] if to.addr().is_multiple_of(2) => store!(AtomicU16, u16, [a, b]),
            [a, b, c, d] if to.addr().is_multiple_of(4) => store!(AtomicU32, u32, [a, b, c, d]),
            [a, b, c, d, e, f, g, h] if to.addr().is_multiple_of(8) => {
                store!(AtomicU64, u64, [a, b, c, d, e, f, g, h]);
            }
            _ => {
                for (at, byte) in value.iter().enumerate() {
                    // SAFETY: `locate` found the whole value inside.
                    let to = unsafe { AtomicU8::from_ptr(to.wrapping_add(at)) };
                    to.store(*byte, Ordering::Release);
                }
            }
        }
        true
    }

    /// Writes as many of `bytes` from `at` on as fit, in order: 8 bytes in a single access where
    /// these are aligned, the others byte by byte. Each access is a release store, so that an
    /// application that polls a byte sees all bytes before it. Returns their number.
    pub fn publish(&mut self, at: usize, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len.saturating_sub(at));
        let bytes = bytes.get(..len).unwrap_or_default();
        let lead = self.start.wrapping_add(at).align_offset(size_of::<u64>()).min(len);
        let (lead, rest) = bytes.split_at(lead);
        let (words, tail) = rest.as_chunks::<{ size_of::<u64>() }>();
        let mut at = at;
        self.store_each(&mut at, lead.as_chunks::<1>().0);
        self.store_each(&mut at, words);
        self.store_each(&mut at, tail.as_chunks::<1>().0);
        len
    }

    /// Writes consecutive values, and advances `at` behind them.
    #[inline]
    fn store_each<const N: usize>(&mut self, at: &mut usize, values: &[[u8; N]]) {
        for value in values {
            self.store(*at, value);
            *at = at.saturating_add(N);
        }
    }

    /// Returns the address of `len` bytes at `at`, if all are inside.
    #[inline]
    fn locate(&self, at: usize, len: usize) -> Option<*mut u8> {
        let within = at.checked_add(len).is_some_and(|end| end <= self.len);
        within.then(|| self.start.wrapping_add(at))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Payload;
    use super::*;

    fn span(memory: &mut [u8]) -> AppSpan {
        // SAFETY: each test keeps the memory longer than the span, and accesses it between calls
        // only.
        unsafe { AppSpan::new(memory.as_mut_ptr(), memory.len()) }
    }

    #[test]
    fn span_values_are_stored_and_loaded_at_any_offset_and_width() {
        let value = *b"ABCDEFGH";
        for at in 0..24 {
            for len in 1..=8 {
                let mut memory = [0_u64; 3].map(u64::to_ne_bytes).concat();
                let mut expected = memory.clone();
                let mut span = span(&mut memory);
                let (value, mut loaded) = (&value[..len], vec![0; len]);
                let fits = at + len <= 24;
                assert_eq!(span.store(at, value), fits);
                assert_eq!(span.load(at, &mut loaded), fits);
                if fits {
                    expected[at..at + len].copy_from_slice(value);
                    assert_eq!(loaded, value);
                }
                assert_eq!(memory, expected, "{at} {len}");
            }
        }
    }

    #[test]
    fn span_values_cross_pieces() {
        let (mut one, mut two) = ([0_u8; 3], [0_u8; 9]);
        let mut payload =
            Payload::of(vec![span(&mut one), AppSpan::EMPTY, span(&mut two)]).unwrap();
        payload.store(1, b"eight by");
        let mut loaded = [0; 8];
        payload.load(1, &mut loaded);
        assert_eq!((&loaded, &one, &two), (b"eight by", b"\0ei", b"ght by\0\0\0"));
        payload.publish(b"all of them and more");
        assert_eq!((&one, &two), (b"all", b" of them "));
    }

    #[test]
    fn span_polled_values_are_never_torn() {
        use std::sync::atomic::AtomicBool;
        let mut memory = Box::new([0_u64; 2]);
        let start = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the memory outlives the threads, which access it by atomic accesses only.
        let (mut span, polled) =
            unsafe { (AppSpan::new(start, 16), AtomicU64::from_ptr(start.add(8).cast())) };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000_000 {
                    span.store(8, &[[0, 0xff][round % 2]; 8]);
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                let value = polled.load(Ordering::Relaxed);
                assert!([0, u64::MAX].contains(&value), "{value:x}");
            }
        });
    }
}
