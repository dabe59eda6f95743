//! What is touched of guests' memory, for tests of what it costs: with the feature `trace` every
//! access goes by here, without it nothing is left of it. Prefetches are not told: they fetch what
//! is touched later.

#[cfg(feature = "trace")]
pub use recorder::{Line, record};

/// Bytes are read.
#[inline(always)]
pub(crate) fn read(at: *const u8, len: usize) {
    #[cfg(feature = "trace")]
    recorder::touch(at.addr(), len, |line, bytes| line.read = line.read.saturating_add(bytes));
    #[cfg(not(feature = "trace"))]
    let _ = (at, len);
}

/// Bytes are written.
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

    /// What was done to one line, in bytes.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Line {
        /// How many of its bytes were read, each as often as it was.
        pub read: usize,
        /// As many that were written.
        pub written: usize,
    }

    /// Whose accesses are recorded, by the beginning of their threads' names; and which, by the
    /// address of each line.
    static WHO: Mutex<(&str, BTreeMap<usize, Line>)> = Mutex::new(("", BTreeMap::new()));
    static ON: AtomicBool = AtomicBool::new(false);

    fn recorded() -> MutexGuard<'static, (&'static str, BTreeMap<usize, Line>)> {
        WHO.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What threads whose names begin so touch of guests' memory while `act` runs. One at a time.
    pub fn record(who: &'static str, act: impl FnOnce()) -> Vec<Line> {
        *recorded() = (who, BTreeMap::new());
        ON.store(true, Ordering::SeqCst);
        act();
        ON.store(false, Ordering::SeqCst);
        std::mem::take(&mut recorded().1).into_values().collect()
    }

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
