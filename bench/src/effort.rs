//! How much work a figure is worth.

use std::time::Duration;

/// How often and how long each figure is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Runs per figure; the median counts.
    pub runs: usize,
    /// Short runs, to see that all rows work: their figures mean little.
    pub quick: bool,
}

impl Effort {
    /// Rounds of a loop that takes `full` of them at full effort.
    pub fn rounds(&self, full: u64) -> u64 {
        if self.quick { (full / 20).max(1) } else { full }
    }

    /// How long something is watched that is watched for `full` at full effort.
    pub fn time(&self, full: Duration) -> Duration {
        if self.quick { full / 4 } else { full }
    }

    /// A figure for each run.
    pub fn each(&self, mut one: impl FnMut() -> Result<f64, String>) -> Result<Vec<f64>, String> {
        (0..self.runs).map(|_| one()).collect()
    }
}
