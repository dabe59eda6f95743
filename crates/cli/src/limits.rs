//! Limits of the tool: sizes of replies and files, and times, each a constant.
//!
//! The module that uses a limit enforces it: a longer reply or file is an error of the command.
//! Only lists are cut: the interfaces of `extcap`, with a note, and the connections of `top` and of
//! `connection list`, with a note in text output (of `top` only in a batch). The timeout, the
//! connections of a list and the intervals can be chosen by options; the other values are fixed.
//! The daemon has its own limits for requests (`daemon::limits`).
//!
//! `client` reads the limits of replies and the timeout, `args` the ranges of options, `commands`
//! those of files and of forwards, `program` those of programs that the tool runs, and `top` its
//! own. All run in the main thread but the requests of `top` and `web`, the readers of the
//! forwarder's reports, and the reader of a program's output.

use std::time::Duration;

/// Most bytes of a reply: enough for all ports that a daemon may have. A longer reply is an error.
pub const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most headers of a reply. With more, the reply is an error.
pub const REPLY_HEADERS_MAX: usize = 32;
/// Default time to wait for the daemon, in seconds. Then the command fails with exit status 5.
pub const TIMEOUT_S_DEFAULT: u64 = 10;
/// Longest time to wait, longest `capture --seconds`, and longest time between two reports of
/// `stats` and `forward --stats`, in seconds: a day. A larger value of an option is refused.
pub const SECONDS_MAX: u64 = 86_400;
/// Default of the most connections that `connection list` prints.
pub const CONNECTIONS_SHOWN_DEFAULT: usize = 1000;
/// Most bytes of a file that is sent to the daemon. A longer file is an error.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Longest run time of a program of the host that the tool asks; a later one is killed; its output
/// is not used.
pub const PROGRAM_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of the output of such a program. The rest is not read, which ends most programs.
pub const PROGRAM_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Most bytes of a key file: a key, a line end and blanks. A longer file is an error.
pub const KEY_FILE_BYTES_MAX: u64 = 256;
/// Shortest time between two looks of `cluster watch`, in seconds. An option below it is refused.
pub const CLUSTER_WATCH_S_MIN: f64 = 0.1;
/// Longest time between two looks of `cluster watch`, in seconds. An option above it is refused.
pub const CLUSTER_WATCH_S_MAX: f64 = 60.0;
/// Shortest time between two samples of `top`, in seconds. An option below it is refused; a key
/// stops at it.
pub const TOP_INTERVAL_S_MIN: f64 = 0.1;
/// Longest time between two samples of `top`, in seconds: an hour. An option above it is refused; a
/// key stops at it.
pub const TOP_INTERVAL_S_MAX: f64 = 3600.0;
/// Most interfaces that `extcap` prints: Wireshark asks for the options of each. The number of the
/// others is printed on stderr.
pub const EXTCAP_INTERFACES_MAX: usize = 1024;
/// Most connections that `top` requests and shows: a page of the daemon. A remark of a batch states
/// that there are more.
pub const TOP_CONNECTIONS_MAX: usize = causeway_model::limits::CONNECTIONS_PAGE_MAX;
/// Most characters of the filter of `top`. A longer option is refused, further keys have no effect.
pub const TOP_FILTER_CHARS_MAX: usize = 64;
/// Longest time after which `top` handles a signal, a key or a new sample.
pub const TOP_TICK: Duration = Duration::from_millis(100);
/// Interval at which the forwarder reports and gets its tasks.
pub const FORWARDER_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which the forwarder starts a failed forward again, at first; doubled at each failure.
pub const FORWARD_RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest time after which the forwarder starts a failed forward again.
pub const FORWARD_RETRY_MAX: Duration = Duration::from_secs(15);
/// Time for which a process of the forwarder may end by itself before it is killed.
pub const FORWARD_END_TIME: Duration = Duration::from_secs(2);
/// Most bytes of a report of a process of the forwarder. A longer report is not understood, and the
/// last one stays.
pub const FORWARD_REPORT_BYTES_MAX: u64 = 16 * 1024;
/// Time for which `forward add` waits for the state of the new forward. Then the command prints the
/// state *starting*.
pub const FORWARD_STATE_TIME: Duration = Duration::from_secs(4);
