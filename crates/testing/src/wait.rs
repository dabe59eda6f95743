//! Waiting for a condition with a time limit.
//!
//! [`wait`] polls every millisecond and panics after [`PATIENCE`] with the state of the test. It
//! blocks the calling thread: a test that must drive an object meanwhile does that in the
//! condition. It measures no times; a test must not depend on how long a wait takes. A test that
//! does check a time asks [`patient`] for its limit. Users: tests of the services that wait for
//! another thread.

use std::thread;
use std::time::{Duration, Instant};

/// Time limit of every wait: long enough for the slowest machine. No test waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Names a factor of time limits, for a busy machine. `scripts/test.sh` sets 2.
const FACTOR: &str = "CAUSEWAY_PATIENCE";
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until `done` returns true.
///
/// # Panics
/// After [`PATIENCE`], with the text of `state`.
#[track_caller]
pub fn wait(mut done: impl FnMut() -> bool, state: impl Fn() -> String) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting: {}", state());
        thread::sleep(PAUSE);
    }
}

/// Returns the upper limit of a time that a test measures, multiplied by the number in
/// `CAUSEWAY_PATIENCE` (1 to 100, default 1): other programs use the same processors, and a limit
/// of a second measures their load too.
#[must_use]
pub fn patient(limit: Duration) -> Duration {
    let factor = std::env::var(FACTOR).ok().and_then(|factor| factor.parse::<u32>().ok());
    limit.saturating_mul(factor.unwrap_or(1).clamp(1, 100))
}
