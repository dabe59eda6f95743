//! Recording of accesses to guest memory, for tests of their cost.
//!
//! With the feature `trace`, the accesses of [`crate::Map`], [`crate::View`] and
//! [`crate::WordWatch`] are reported here; without it the calls compile to nothing, as in the
//! daemon's builds. `record` counts the bytes read and written per cache line of 64 bytes, for
//! threads with a name prefix. It takes a lock per access and records one run at a time: not for
//! measurements of time. Prefetches, marks of the dirty log, accesses by pointers of other crates
//! ([`crate::copy_shared`]), to private memory, and by the kernel are not recorded.

#[cfg(feature = "trace")]
pub use recorder::{Line, record};

/// Records a read of `len` bytes.
#[inline(always)]
pub(crate) fn read(at: *const u8, len: usize) {
    #[cfg(feature = "trace")]
    recorder::touch(at.addr(), len, |line, bytes| line.read = line.read.saturating_add(bytes));
    #[cfg(not(feature = "trace"))]
    let _ = (at, len);
}

/// Records a write of `len` bytes.
#[inline(always)]
pub(crate) fn written(at: *const u8, len: usize) {
    #[cfg(feature = "trace")]
    recorder::touch(at.addr(), len, |line, bytes| {
        line.written = line.written.saturating_add(bytes)
    });
    #[cfg(not(feature = "trace"))]
    let _ = (at, len);
}

#[cfg(feature = "trace")]
mod recorder {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Bytes of a cache line.
    const LINE: usize = 64;

    /// Accesses to one cache line.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Line {
        /// Bytes read, counted as often as they were read.
        pub read: usize,
        /// Bytes written, counted as often as they were written.
        pub written: usize,
    }

    /// The prefix of the names of recorded threads, and the accesses by line number.
    static RECORDED: Mutex<(&str, BTreeMap<usize, Line>)> = Mutex::new(("", BTreeMap::new()));
    static ON: AtomicBool = AtomicBool::new(false);

    fn recorded() -> MutexGuard<'static, (&'static str, BTreeMap<usize, Line>)> {
        RECORDED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records accesses to guest memory by threads with this name prefix while `act` runs. Returns
    /// one entry per line. Calls must not overlap.
    pub fn record(thread_prefix: &'static str, act: impl FnOnce()) -> Vec<Line> {
        *recorded() = (thread_prefix, BTreeMap::new());
        ON.store(true, Ordering::SeqCst);
        act();
        ON.store(false, Ordering::SeqCst);
        std::mem::take(&mut recorded().1).into_values().collect()
    }

    /// Passes each line of an access, with its bytes there, to `note`. No effect outside of
    /// [`record`], for other threads, and for memory that is not mapped by this crate.
    pub(super) fn touch(at: usize, len: usize, note: impl Fn(&mut Line, usize)) {
        if !ON.load(Ordering::Relaxed) || !crate::fault::is_mapped(at) {
            return;
        }
        let mut recorded = recorded();
        if !std::thread::current().name().is_some_and(|name| name.starts_with(recorded.0)) {
            return;
        }
        let end = at.saturating_add(len);
        let mut from = at;
        while from < end {
            let line = from.checked_div(LINE).unwrap_or(0);
            let next = line.saturating_add(1).saturating_mul(LINE).min(end);
            note(recorded.1.entry(line).or_default(), next.saturating_sub(from));
            from = next;
        }
    }
}
