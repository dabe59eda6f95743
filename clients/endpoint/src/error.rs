//! Errors of NICs and endpoints: the reasons for which opening, a command to the daemon or a call
//! of the matching engine fails.
//!
//! The text of an error contains the remedy, if the user has one; an errno of the kernel is not
//! kept. A failure of a request after its start is no [`Error`] but the status of its completion.
//! [`crate::Endpoint`], [`crate::nic`] and [`crate::connection`] return these errors, in the
//! calling thread; the API libraries map them to their own numbers. Nothing is logged here. After
//! an error of opening nothing stays open.

use causeway_message::library;

/// Reason for which an operation on a NIC or an endpoint failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `CAUSEWAY_MX` names no place; or the variable is not set, and there is neither a NIC socket
    /// in the default directory nor an active adapter.
    #[error(
        "no NIC found: neither a socket /run/causeway/mx*.sock nor an active RDMA adapter exists; \
         add a port of kind mx, or set CAUSEWAY_MX to socket:PATH or adapter:DEVICE"
    )]
    NoNic,
    /// libibverbs is missing or too old.
    #[error(
        "the NIC is behind an adapter, and libibverbs.so.1 cannot be loaded: install rdma-core 31 or \
         later (Debian: ibverbs-providers)"
    )]
    NoLibrary,
    /// The adapter does not exist, or its port has no link or no RoCE v2 address.
    #[error(
        "the adapter of the NIC is missing or its port is not active: check `rdma link`, and set the \
         network interface of the adapter up"
    )]
    NoAdapter,
    /// The daemon behind the adapter serves no messages.
    #[error(
        "no NIC serves the adapter of this machine: on the host, add a port of kind mx with the \
         option adapter = \"PORT\" of this adapter"
    )]
    NoSession,
    /// There is no NIC with that number.
    #[error("no NIC has this number")]
    UnknownNic,
    /// The socket refuses connections, or the daemon does not answer in time, or with another
    /// message than the awaited one.
    #[error("the NIC's daemon does not answer: check that causewayd runs")]
    NoDaemon,
    /// The process may not connect to the socket.
    #[error("permission denied for the NIC's socket: check its owner, group and mode")]
    NoPermission,
    /// The daemon has another protocol version.
    #[error("the daemon has another protocol version: update causewayd and this library together")]
    Version,
    /// The daemon closed the connection or sent an invalid message, or too many commands wait.
    #[error("the NIC's daemon closed the connection")]
    DaemonGone,
    /// A limit of this machine or of the daemon is reached.
    #[error(
        "a limit of the host or of the daemon is reached; behind an adapter, the limit of locked \
         memory counts, too (ulimit -l)"
    )]
    NoResources,
    /// The endpoint number is out of range.
    #[error("the endpoint's number is out of range")]
    EndpointNumber,
    /// The endpoint is open already, or all endpoints are, or the daemon refused for a reason
    /// without a variant here.
    #[error("the endpoint is already open")]
    Taken,
    /// No NIC has that name.
    #[error("no NIC has this name")]
    HostUnknown,
    /// The name is invalid.
    #[error("invalid host name")]
    HostName,
    /// No NIC has that address.
    #[error("no NIC has this address")]
    NicUnknown,
    /// The matching engine refused the call.
    #[error(transparent)]
    Engine(#[from] library::Error),
}
