//! Every bound of this crate, in one place.

use std::time::Duration;

/// Endpoints of one process: their number must fit beside a request's name.
pub const ENDPOINTS_MAX: usize = 1024;
/// How long a call that waits looks before it sleeps.
pub const LOOK: Duration = Duration::from_micros(50);
/// How often it looks before it lets other threads in, in calls' worth.
pub const LOOKS_AT_ONCE: u32 = 8;
/// How often a call that does not wait looks while nothing comes: some ten nanoseconds each.
pub const LOOKS_OF_TEST: u32 = 6;
/// After so many calls that do not wait and found nothing others have the processor, where the daemon
/// brings messages.
pub const TESTS_PER_YIELD: u32 = 4;
/// Longest sleep. Whatever a thread waits for wakes it.
pub const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Pages of the application that are known to be mapped.
pub const KNOWN_PAGES: usize = 256;
/// Sets of runs of many pages that are known to be mapped, and runs of each.
pub const KNOWN_SETS: usize = 32;
/// See [`KNOWN_SETS`].
pub const RUNS_OF_SET: usize = 4;
/// From so many pages on, a buffer is known as a run.
pub const RUN_PAGES: usize = 4;
