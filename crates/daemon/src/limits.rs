//! Every bound of the daemon's control plane, in one place.

use std::time::Duration;

/// Bytes of one control request, head and body together.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// The same for a request that carries a file: [`CONFIG_BYTES_MAX`], and as much again for what JSON
/// adds to it.
pub const FILE_REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Headers of one control request.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// Control connections served at the same time.
pub const CONNECTIONS_MAX: usize = 64;
/// Of these, such of one user that have yet to send a request or to read a reply.
pub const CONNECTIONS_WAITING_PER_USER_MAX: usize = 48;
/// How long such a connection keeps its place when places run out.
pub const CONNECTION_GRACE: Duration = Duration::from_millis(250);
/// From accepting a control connection to the last byte of its request.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// For one write of a reply to make progress.
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a refused request is still read, so that its sender gets to see why.
pub const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);
/// Pause after `accept` failed for want of descriptors or memory.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// For the reply to the client that asked for a stop to go out before the process ends.
pub const STOP_REPLY_GRACE: Duration = Duration::from_millis(200);

/// Bytes of a configuration file.
pub const CONFIG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Problems reported from one configuration file.
pub const PROBLEMS_MAX: usize = 20;

/// Bytes of one line of the VNET language, without its end.
pub const VNET_LINE_BYTES_MAX: usize = 256;
/// Connections that speak it at the same time.
pub const VNET_CONNECTIONS_MAX: usize = 16;
/// Of these, such from one source (address, and user where it is on this host) that have not said a
/// good HELLO: the others are for others.
pub const VNET_STRANGERS_PER_SOURCE_MAX: usize = 4;
/// How long a connection without a good HELLO keeps its place when places run out.
pub const VNET_GRACE: Duration = Duration::from_secs(1);
/// Bytes of the host's table of TCP sockets that are searched for the user of a connection.
pub const TCP_TABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// From connecting to a good HELLO.
pub const VNET_HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// Between two lines.
pub const VNET_IDLE_TIME_MAX: Duration = Duration::from_secs(300);
/// How long a peer may take to hear of a link.
pub const VNET_TELL_TIME_MAX: Duration = Duration::from_secs(3);
/// Bytes of the password.
pub const VNET_PASSWORD_BYTES_MAX: usize = 128;
/// Sources whose failed passwords are remembered; the one that failed longest ago gives way.
pub const VNET_SOURCES_MAX: usize = 1024;
/// How long a source waits after its first failed password; twice as long after each further one.
pub const VNET_DELAY_FIRST: Duration = Duration::from_secs(1);
/// How long it waits at most.
pub const VNET_DELAY_MAX: Duration = Duration::from_secs(300);
/// When a source's failures are forgotten.
pub const VNET_FORGET_AFTER: Duration = Duration::from_secs(3600);

/// Bytes of one value in a log line; longer ones are cut.
pub const LOG_VALUE_BYTES_MAX: usize = 2048;
/// Bytes of one log line; longer ones are cut. With [`LOG_LINES_QUEUED_MAX`] it bounds the memory
/// of a log that is not read to 8 MiB.
pub const LOG_LINE_BYTES_MAX: usize = 8192;
/// Log lines that wait for a reader of the log that does not read; more are dropped.
pub const LOG_LINES_QUEUED_MAX: usize = 1024;
/// How long a process that ends waits for the reader of its log.
pub const LOG_FLUSH_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks at whether the log is written, at the end of the process.
pub const LOG_FLUSH_PAUSE: Duration = Duration::from_millis(1);
/// Tries to read the pid of a daemon that has only just taken the lock.
pub const LOCK_PID_TRIES: u32 = 20;
/// Pause between these tries.
pub const LOCK_PID_PAUSE: Duration = Duration::from_millis(10);
/// Symbolic links of one path that are followed to find the directories that the sandbox opens.
pub const SYMLINKS_MAX: usize = 8;
/// Components of a directory that the sandbox opens because a link is in it; `/` is the first.
pub const HOLDER_DEPTH_MIN: usize = 3;
