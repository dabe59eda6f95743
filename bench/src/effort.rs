//! Number and length of the runs.
//!
//! `report` makes one [`Effort`] from the options; each row asks for its numbers of rounds and
//! times. The default is 5 runs for each figure; `--quick` makes one, unless a later `--runs`
//! changes that, and shortens loops to a twentieth (at least one round) and observations to a
//! quarter, so that the figures only show that a row works. Measurements with a length of their
//! own, such as those of `floor`, are not shortened. The runs are rounds: `rounds` calls each
//! measurement with one run at a time. The first run that fails ends the figure with its reason.
//! Rows call it in the main thread.

use std::time::Duration;

/// Number and length of the measurements of a figure.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Runs per figure; the result is their median.
    pub runs: usize,
    /// Short runs, to check that all rows work: their figures are not representative.
    pub quick: bool,
}

impl Effort {
    /// Returns the rounds of a loop that has `full` rounds at full effort.
    pub fn rounds(&self, full: u64) -> u64 {
        if self.quick { (full / 20).max(1) } else { full }
    }

    /// Returns the duration of an observation that takes `full` at full effort.
    pub fn time(&self, full: Duration) -> Duration {
        if self.quick { full / 4 } else { full }
    }

    /// Measures a figure for each run, in order. Returns one figure per run, or the first error.
    pub fn each(&self, mut one: impl FnMut() -> Result<f64, String>) -> Result<Vec<f64>, String> {
        (0..self.runs).map(|_| one()).collect()
    }
}
