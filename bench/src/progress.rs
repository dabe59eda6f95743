//! Estimate of the remaining time, and the end of a run on a signal.
//!
//! A row is estimated by its time in the last run of the same effort, which its JSON file has, or
//! by the mean of the rows that have ended (before the first, of the known times). The first SIGINT
//! or SIGTERM ends the run after the current figure, with status 130, and leaves the row of that
//! figure out; the second ends the process at once, with 128 and the number of the signal. A thread
//! of its own takes the signals. Results are on disk after each row.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit status after the first signal.
pub const INTERRUPTED: u8 = 130;

/// Whether a signal asked for the end of the run.
static STOPS: AtomicBool = AtomicBool::new(false);

/// Returns whether the run should end.
pub fn is_stopped() -> bool {
    STOPS.load(Ordering::Relaxed)
}

/// Installs the handler of signals.
///
/// # Errors
/// The system refuses the handler.
pub fn stop_on_signals() -> Result<(), String> {
    let signals = Signals::new([SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|error| format!("signal handlers: {error}"))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if STOPS.swap(true, Ordering::Relaxed) {
                std::process::exit(128 + signal);
            }
            eprintln!(
                "  interrupted: the row ends after its current figure and is left out; interrupt \
                 again to end at once"
            );
        }
    });
    Ok(())
}

/// The estimate.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    /// Seconds of each row in its last run of the same effort, if it had one.
    known: Vec<Option<f64>>,
    /// Number of rows that ended, and their seconds.
    done: usize,
    seconds: f64,
}

impl Progress {
    /// Creates the estimate for rows, each with the seconds of its last run.
    pub fn new(known: Vec<Option<f64>>) -> Self {
        Self { started: Instant::now(), known, done: 0, seconds: 0.0 }
    }

    /// Counts a row that ended.
    pub fn ended(&mut self, seconds: f64) {
        self.done += 1;
        self.seconds += seconds;
    }

    /// Returns the seconds that remain; `None` if nothing is known yet.
    fn remaining(&self) -> Option<f64> {
        let rest = self.known.get(self.done..)?;
        let mean = (self.done > 0).then(|| self.seconds / self.done as f64);
        let known: Vec<f64> = rest.iter().flatten().copied().collect();
        let average = known.iter().sum::<f64>() / known.len() as f64;
        let usual = mean.or((!known.is_empty()).then_some(average))?;
        Some(rest.iter().map(|seconds| seconds.unwrap_or(usual)).sum())
    }

    /// Returns the elapsed time and the estimate, as text.
    pub fn text(&self) -> String {
        let elapsed = duration(self.started.elapsed());
        match self.remaining() {
            Some(rest) => {
                let rest = duration(Duration::from_secs_f64(rest.clamp(0.0, 1e6)));
                format!("{elapsed} elapsed, about {rest} remain")
            }
            None => format!("{elapsed} elapsed"),
        }
    }
}

/// Returns a duration in minutes, or in seconds below two minutes.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// Returns the seconds of a row in its last run with the same effort, from its JSON file.
pub fn last_seconds(file: &Path, quick: bool, runs: usize) -> Option<f64> {
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let is_same = value["quick"] == quick && value["runs"] == runs;
    value["seconds"].as_f64().filter(|seconds| is_same && seconds.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_estimates_by_the_last_run_and_the_mean() {
        let mut progress = Progress::new(vec![None, Some(10.0), None]);
        assert_eq!(progress.remaining(), Some(30.0), "the mean of the last run");
        progress.ended(2.0);
        assert_eq!(progress.remaining(), Some(12.0));
        progress.ended(4.0);
        progress.ended(3.0);
        assert_eq!(progress.remaining(), Some(0.0));
        assert_eq!(Progress::new(vec![None]).remaining(), None);
        assert_eq!(duration(Duration::from_secs(119)), "119 s");
        assert_eq!(duration(Duration::from_secs(121)), "3 min");
    }
}
