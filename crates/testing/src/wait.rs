//! Waiting for a condition with a time limit.
//!
//! [`wait`] polls every millisecond and panics after [`PATIENCE`] with the state of the test. It
//! blocks the calling thread: a test that must drive an object meanwhile does that in the
//! condition. It measures no times; a test must not depend on how long a wait takes. Users: tests
//! of the services that wait for another thread.

use std::thread;
use std::time::{Duration, Instant};

/// Time limit of every wait: long enough for the slowest machine. No test waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(30);
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
