//! The runs of pages of all mirrors of this process, of which there may be
//! [`MIRROR_RUNS_MAX`] (4,096): a run takes an entry of the kernel's table of mappings.
//!
//! A mirror counts its runs by [`Runs`] before it maps a page, and keeps the count until its mapping
//! ends. Any thread may count.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::MIRROR_RUNS_MAX;

/// Returns the number of runs of pages of all mirrors of this process.
pub fn mirrored_runs() -> usize {
    RUNS.load(Ordering::Relaxed)
}

/// Runs of pages of all mirrors.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Runs of pages that a mirror counts, given back by the drop.
#[derive(Debug)]
pub(crate) struct Runs(usize);

impl Runs {
    /// Counts `runs`; `None` if there would be too many.
    pub(crate) fn take(runs: usize) -> Option<Self> {
        let next = |used: usize| used.checked_add(runs).filter(|sum| *sum <= MIRROR_RUNS_MAX);
        RUNS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|_| Self(runs))
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        RUNS.fetch_sub(self.0, Ordering::Relaxed);
    }
}
