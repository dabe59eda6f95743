//! Why something of a board or an endpoint failed.

use causeway_message::library;

/// See above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing that could be one is where they are looked for.
    #[error("no board of this host is found; is a port of kind mx there, or CAUSEWAY_MX set?")]
    NoBoard,
    /// There is no board of that number.
    #[error("no such board")]
    UnknownBoard,
    /// The socket lets nobody in, or says nothing.
    #[error("the daemon of the board does not answer; is it running?")]
    NoDaemon,
    /// The socket belongs to others.
    #[error("the board's socket may not be used: permission denied")]
    NoPermission,
    /// The daemon is of another version.
    #[error("the daemon speaks another version")]
    Version,
    /// It was there, and is not any more.
    #[error("the daemon of the board is gone")]
    DaemonGone,
    /// Of the host, or of the daemon.
    #[error("a limit is reached")]
    NoResources,
    /// There is no endpoint of that number.
    #[error("the endpoint's number is out of range")]
    EndpointNumber,
    /// Somebody has this endpoint, or all.
    #[error("the endpoint is taken")]
    Taken,
    /// No board has the name.
    #[error("no board has this name")]
    HostUnknown,
    /// It cannot be one.
    #[error("bad arguments with a host name")]
    HostName,
    /// No board has the address.
    #[error("no board has this address")]
    NicUnknown,
    /// The engine says no.
    #[error(transparent)]
    Engine(#[from] library::Error),
}
