//! Limits of the daemon's control plane: sizes, counts and times, each a constant.
//!
//! The module has no code: each user enforces its limit. None of the limits can be configured, and
//! none applies to traffic of guests; limits of ports, groups, links and routes are in
//! [`causeway_model::limits`].
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | requests | `http::request` | an error reply: 408 (time), 413 or 431 (bytes, headers) |
//! | control connections | `http::server` | the connection that has waited longest is closed without a reply; if none has waited 250 ms, the new one gets 503 |
//! | metrics | `metrics` | the last sample is served again; a further connection is closed |
//! | configuration and state files | `config`, `kept` | the file is refused, or not written, and the old file stays |
//! | problems and notes of a reply | `config::problem`, `http::reply` | the others are counted, or left out |
//! | VNET | `vnet` | the session ends, or the attempt is refused for a time |
//! | log | `logger` | a text or line is cut with `…`; a further line is dropped and counted |
//! | lock, sandbox | `instance`, `sandbox` | the pid is unknown; further links are not followed |
//!
//! All run in threads of the control plane, one for each connection; a dispatcher only formats log
//! lines.

use std::time::Duration;

pub use causeway_http::limits::{
    ACCEPT_RETRY, CONNECTION_GRACE, DRAIN_TIME_MAX, NOTES_MAX, REPLY_TIME_MAX, REQUEST_HEADERS_MAX,
    REQUEST_TIME_MAX,
};

/// Most bytes of a control request, head and body together. A longer request gets an error reply
/// and has no effect.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a control request that carries a file: [`CONFIG_BYTES_MAX`], and as much again for
/// the JSON encoding.
pub const FILE_REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most control connections served at the same time.
pub const CONNECTIONS_MAX: usize = 64;
/// Most control connections of one user that wait: for a request, or for the reply to be read.
pub const CONNECTIONS_WAITING_PER_USER_MAX: usize = 48;

/// Longest age of a sample of metrics that is served again: the daemon samples once in this time at
/// most.
pub const METRICS_AGE_MAX: Duration = Duration::from_secs(1);
/// Most connections served at the same time at the TCP address of metrics.
pub const METRICS_CONNECTIONS_MAX: usize = 16;

/// Time for the reply to a shutdown request to be sent before the process ends.
pub const STOP_REPLY_GRACE: Duration = Duration::from_millis(200);

/// Most bytes of a configuration file.
pub const CONFIG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Most problems reported of one configuration file.
pub const PROBLEMS_MAX: usize = 20;

/// Most bytes of the state file. A longer text is not written, and the old file stays.
pub const STATE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most files that are kept aside because they could not be used as the state file.
pub const STATE_ASIDE_MAX: u32 = 9;
/// Longest time that the reply to a command waits for the state file to be written. The reply then
/// has a note that the change is not saved yet.
pub const STATE_WRITE_TIME_MAX: Duration = Duration::from_secs(4);
/// Time after which a failed write of the state file is tried again.
pub const STATE_RETRY: Duration = Duration::from_secs(10);

/// Most bytes of a line of the VNET language, without its end.
pub const VNET_LINE_BYTES_MAX: usize = 256;
/// Most VNET connections at the same time.
pub const VNET_CONNECTIONS_MAX: usize = 16;
/// Most VNET connections without a valid HELLO of one source (address, and user if it is on this
/// host). The limit leaves slots to other sources.
pub const VNET_STRANGERS_PER_SOURCE_MAX: usize = 4;
/// Time for which a connection without a valid HELLO keeps its slot when slots run out.
pub const VNET_GRACE: Duration = Duration::from_secs(1);
/// Most bytes of the host's table of TCP sockets that are searched for the user of a connection.
pub const TCP_TABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest time from the connect of a VNET client to its valid HELLO. The session then ends.
pub const VNET_HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time between two lines of a VNET session; the session then ends.
pub const VNET_IDLE_TIME_MAX: Duration = Duration::from_secs(300);
/// Longest time for registering a link with the peer's VNET server, from connect to answer.
pub const VNET_TELL_TIME_MAX: Duration = Duration::from_secs(3);
/// Most bytes of the VNET password.
pub const VNET_PASSWORD_BYTES_MAX: usize = 128;
/// Most sources with failed passwords that are remembered; the least recent one is evicted.
pub const VNET_SOURCES_MAX: usize = 1024;
/// Delay of a source after its first failed password; each further failure doubles it.
pub const VNET_DELAY_FIRST: Duration = Duration::from_secs(1);
/// Longest delay of a source.
pub const VNET_DELAY_MAX: Duration = Duration::from_secs(300);
/// Time after which the failures of a source are forgotten.
pub const VNET_FORGET_AFTER: Duration = Duration::from_secs(3600);

/// Most bytes of a value in a log line; longer values are truncated.
pub const LOG_VALUE_BYTES_MAX: usize = 2048;
/// Most bytes of a log line; longer lines are truncated. With [`LOG_LINES_QUEUED_MAX`] it bounds
/// the memory of a log that is not read to 8 MiB.
pub const LOG_LINE_BYTES_MAX: usize = 8192;
/// Most queued log lines; further lines are dropped.
pub const LOG_LINES_QUEUED_MAX: usize = 1024;
/// Time that a process which ends waits for the reader of its log. Lines that are not written by
/// then are lost.
pub const LOG_FLUSH_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause between two checks whether the log is written, at the end of the process.
pub const LOG_FLUSH_PAUSE: Duration = Duration::from_millis(1);
/// Attempts to read the pid of a daemon that has just taken the lock.
pub const LOCK_PID_TRIES: u32 = 20;
/// Pause between two attempts to read the pid.
pub const LOCK_PID_PAUSE: Duration = Duration::from_millis(10);
/// Most symbolic links of a path that are followed to find the directories that the sandbox opens.
pub const SYMLINKS_MAX: usize = 8;
/// Fewest components of a directory that the sandbox opens because it contains a link; `/` is the
/// first component.
pub const HOLDER_DEPTH_MIN: usize = 3;
