//! Limits of the web page's server: counts, sizes and times, each a constant.
//!
//! At the limit of connections a further one takes the place of a slow browser's or is closed, and
//! a longer request is refused (`causeway_http`, with the values that `WebServer` passes). Further
//! groups (their traffic), pages of connections, talks and NICs are left out of the state, which
//! has the number of omitted groups and talks; the page shows only that there are more connections.
//! `causeway web` refuses a longer interval and further names. `sample`, `talks` and `state` read
//! the limits of the state in the poller's thread, `poller` those of time.

use std::time::Duration;

/// Most connections of browsers that are served at the same time.
pub const WEB_CONNECTIONS_MAX: usize = 64;
/// Most connections of one address that wait: for a request, or for the reply to be read.
pub const WEB_CONNECTIONS_EACH_MAX: usize = 48;
/// Most bytes of a request of a browser, head and body together.
pub const WEB_REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Default interval of samples, in seconds.
pub const INTERVAL_S_DEFAULT: u64 = 2;
/// Longest interval of samples, in seconds.
pub const INTERVAL_S_MAX: u64 = 60;
/// Longest interval between the first sample and the second, from which rates are known.
pub const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Time after the last request of a browser in which the daemon is still sampled.
pub const IDLE_TIME: Duration = Duration::from_secs(15);
/// Longest time for which a request waits for a first or newer sample.
pub const WAIT_TIME_MAX: Duration = Duration::from_secs(1);
/// Most groups that are asked for their traffic in a sample.
pub const TRAFFIC_GROUPS_MAX: usize = 64;
/// Most pages of connections in a sample, of 1,000 connections each.
pub const CONNECTION_PAGES_MAX: usize = 8;
/// Most pairs of talkers that the page gets; the busiest come first.
pub const TALKS_MAX: usize = 2000;
/// Most NICs of other hosts that the page gets.
pub const NICS_MAX: usize = 2000;
/// Most hosts of a cluster that the page gets.
pub const HOSTS_MAX: usize = 1_000;
/// Most names by which browsers may address the server, besides IP addresses and localhost.
pub const HOST_NAMES_MAX: usize = 64;
