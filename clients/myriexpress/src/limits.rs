//! Limits of the library: endpoints, polling, and the cache of mapped memory.
//!
//! The limits are not configurable. Limits of messages and requests are in
//! `causeway_message::limits`, and those that both sides of an endpoint share in
//! `causeway_wire::mx::limits`. With [`ENDPOINTS_MAX`] endpoints, `mx_open_endpoint` fails with
//! `MX_NO_RESOURCES`; the other constants affect speed only.
//!
//! `table` reads the number of endpoints, `wait` and `endpoint` the times and numbers of polls,
//! `memory` the sizes of the cache, all in the calling thread of the application. Every endpoint
//! has a cache of its own, and an entry that does not fit replaces another.

use std::time::Duration;

/// Number of endpoints of a process. The number must fit into a request handle.
pub const ENDPOINTS_MAX: usize = 1024;
/// Time for which a waiting call polls before it sleeps.
pub const POLL_TIME: Duration = Duration::from_micros(50);
/// Number of polling rounds of a waiting call before it releases the lock for other threads.
pub const POLL_ROUNDS: u32 = 8;
/// Number of polls of a call that does not wait, and of each polling round of a waiting call, while
/// nothing arrives: about ten nanoseconds each.
pub const POLLS_OF_TEST: u32 = 6;
/// Number of calls without a result after which a call yields the processor, if the daemon carries
/// messages.
pub const TESTS_PER_YIELD: u32 = 4;
/// Maximum sleep. Every awaited event wakes the thread earlier.
pub const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Number of single pages in the cache of mapped memory.
pub const KNOWN_PAGES: usize = 256;
/// Number of sets of page runs in the cache of mapped memory.
pub const KNOWN_SETS: usize = 32;
/// Number of page runs in a set.
pub const RUNS_OF_SET: usize = 4;
/// Number of pages from which on a buffer is cached as a run.
pub const RUN_PAGES: usize = 4;
