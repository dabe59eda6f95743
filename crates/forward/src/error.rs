//! Errors: addresses that cannot be resolved, listeners and connections that fail.
//!
//! [`crate::SocketAddress::resolve`] returns `Resolve` and `HostSocket`; a wrong text of an address
//! is an error of the model. [`crate::Relay::open`] returns `TooMany`, `Listen`, `InUse` and
//! `Wait`: then nothing is forwarded. [`crate::Relay::run`] passes the errors of single connections
//! (`Connect`, `Timeout`, `Refused`, `Lost`) to its caller as events, and goes on; it returns
//! `Wait` alone, which ends it. [`crate::stdio::run`] returns the errors of its connection and
//! `Wait`. No failed connect is repeated except one to a Unix socket with a full queue.
//! `causeway forward` prints the text, which names the address.

use std::io;

/// A failed forward or connection.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// A name has no address.
    #[error("cannot resolve {host}: {error}")]
    Resolve {
        /// The host and port.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The host socket of a port of causewayd is unknown.
    #[error("{0}")]
    HostSocket(String),
    /// A source cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The source.
        address: String,
        /// Error of the system call.
        error: io::Error,
    },
    /// A process listens at the source already.
    #[error("{path} is in use: another process listens there")]
    InUse {
        /// The path of the Unix socket.
        path: String,
    },
    /// A target does not accept the connection.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// The target.
        address: String,
        /// Error of the system call.
        error: io::Error,
    },
    /// The target did not answer within 10 s ([`DIAL_TIME`](crate::limits::DIAL_TIME)).
    #[error("{address} did not answer within {seconds} s")]
    Timeout {
        /// The target.
        address: String,
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The host socket ended the connection without `OK`.
    #[error("the guest behind {address} refused the connection: {reason}")]
    Refused {
        /// The target.
        address: String,
        /// The answer of the host socket, or the possible reasons.
        reason: String,
    },
    /// A connection failed after it was open.
    #[error("a connection to {address} failed: {error}")]
    Lost {
        /// The target.
        address: String,
        /// Error of the system call.
        error: io::Error,
    },
    /// More than [`FORWARDS_MAX`](crate::limits::FORWARDS_MAX) forwards.
    #[error("at most {0} forwards of a process; start another process")]
    TooMany(usize),
    /// The process cannot wait for sockets.
    #[error("cannot wait for sockets: {0}")]
    Wait(io::Error),
}
