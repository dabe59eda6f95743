//! Limits of the daemon's control plane: sizes, counts and times, each a constant.
//!
//! The module has no code: each user enforces its limit. None of the limits can be configured, and
//! none applies to traffic of guests; limits of ports, groups, links and routes are in
//! [`causeway_model::limits`].
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | requests | `crate::http`, for `causeway_http::request` | an error reply: 408 (time), 413 or 431 (bytes, headers) |
//! | control connections | `crate::http::server` | a waiting connection is closed without a reply; if none has waited 250 ms, the new one gets 503 |
//! | metrics | `metrics` | the last sample is served again; a connection is evicted or closed |
//! | stop | `lifecycle` | the process goes on to end |
//! | configuration and state files | `config`, `api::vnet`, `kept` | the file is refused, or not written, and the old file stays |
//! | problems | `config::problem`, `vnet::file` | the number of the others is stated |
//! | notes of a reply ([`NOTES_MAX`]) | `causeway_http::reply` | the number of the others is sent |
//! | VNET | `vnet` | a session ends or is refused; passwords are not checked for a time |
//! | log | `logger` | a text or line is cut with `…`; a further line is dropped and counted |
//! | lock, sandbox | `instance`, `sandbox` | the pid is unknown; further links are not followed |
//!
//! The limits that every HTTP server has, among them the times, come from
//! [`causeway_http::limits`].
//!
//! Threads: requests, metrics and VNET have one for each connection (`metrics` also in the thread
//! of a control request). `config`, `instance` and `sandbox` run on the main thread, before
//! connections are accepted, and `config` also in the thread of a request that has a file. The
//! thread `lifecycle` reads the state file and the file of VNET commands of the configuration; the
//! thread `state` writes the state file, the thread `log` the log. Dispatchers only format and
//! queue log lines.

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
/// Most control connections served at the same time. A further one takes the slot of the connection
/// that has waited longest among those of the user with the most waiting connections, if that is at
/// least [`CONNECTION_GRACE`]; else it gets 503.
pub const CONNECTIONS_MAX: usize = 64;
/// Most control connections of one user that wait: for a request, or for the reply to be read. A
/// further one takes the slot of the user's own connection that has waited longest.
pub const CONNECTIONS_WAITING_PER_USER_MAX: usize = 48;

/// Longest age of a sample of metrics that is served again: the daemon samples once in this time at
/// most.
pub const METRICS_AGE_MAX: Duration = Duration::from_secs(1);
/// Most connections served at the same time at the TCP address of metrics. A further one takes the
/// slot of a connection that has waited for 250 ms, or is closed.
pub const METRICS_CONNECTIONS_MAX: usize = 16;

/// Time for the reply to a shutdown request to be sent before the process ends. `lifecycle` sleeps
/// for all of it; a reply that is not sent by then may be lost.
pub const STOP_REPLY_GRACE: Duration = Duration::from_millis(200);

/// Most bytes of a configuration file, or of a file of VNET commands. A longer one is refused.
pub const CONFIG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Most problems reported of one configuration file, or file of VNET commands; the number of the
/// others is stated.
pub const PROBLEMS_MAX: usize = 20;

/// Most bytes of the state file. A longer text is not written, and the old file stays.
pub const STATE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most files that are kept aside because they could not be used as the state file. A further one
/// replaces the last.
pub const STATE_ASIDE_MAX: u32 = 9;
/// Longest time that the reply to a command waits for the state file to be written. The reply then
/// has a note that the change is not saved yet.
pub const STATE_WRITE_TIME_MAX: Duration = Duration::from_secs(4);
/// Time after which a failed write of the state file is tried again.
pub const STATE_RETRY: Duration = Duration::from_secs(10);

/// Most bytes of a line of the VNET language, without its end. A longer line is refused; it also
/// ends the session if 259 of its bytes arrive without a line feed, or before a valid HELLO.
pub const VNET_LINE_BYTES_MAX: usize = 256;
/// Most VNET connections at the same time. A further one takes the slot of a connection that has
/// been without a valid HELLO for [`VNET_GRACE`]; if there is none, it gets an `ERROR` line and is
/// closed.
pub const VNET_CONNECTIONS_MAX: usize = 16;
/// Most VNET connections without a valid HELLO of one source (address, and user if it is on this
/// host). The limit leaves slots to other sources; a further connection takes the slot of the
/// source's own oldest, or is closed, as at [`VNET_CONNECTIONS_MAX`].
pub const VNET_STRANGERS_PER_SOURCE_MAX: usize = 4;
/// Time for which a connection without a valid HELLO keeps its slot when slots run out.
pub const VNET_GRACE: Duration = Duration::from_secs(1);
/// Most bytes of each of the host's two tables of TCP sockets that are searched for the user of a
/// connection. Beyond it the address alone is the source, and local users share its limits.
pub const TCP_TABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest time from the connect of a VNET client to its valid HELLO. The session then ends.
pub const VNET_HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time between two lines of a VNET session; the session then ends.
pub const VNET_IDLE_TIME_MAX: Duration = Duration::from_secs(300);
/// Longest time for registering a link with the peer's VNET server, from connect to answer. Then
/// the registration has failed.
pub const VNET_TELL_TIME_MAX: Duration = Duration::from_secs(3);
/// Most bytes of the VNET password. A file with a longer one is refused.
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
/// Attempts to read the pid of a daemon that has just taken the lock. Then the error names no pid.
pub const LOCK_PID_TRIES: u32 = 20;
/// Pause between two attempts to read the pid.
pub const LOCK_PID_PAUSE: Duration = Duration::from_millis(10);
/// Most paths of a chain of symbolic links whose directories the sandbox opens, the first path
/// included. Directories of further paths are not opened for their sake.
pub const SYMLINKS_MAX: usize = 8;
/// Fewest components of a directory that the sandbox opens because it contains (holds) a symbolic
/// link to a directory, or its target; `/` is the first component. `/` and its direct entries are
/// not opened for this reason.
pub const HOLDER_DEPTH_MIN: usize = 3;
