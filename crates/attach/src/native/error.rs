//! Errors of a native port, each with its cause.
//!
//! The calls of [`super::NetPort`], [`super::VsockPort`], [`super::Frontend`] and [`super::Client`]
//! return them. No data, no room and the expired time of a wait are not errors but results of the
//! calls. [`NativeError::Long`] and [`NativeError::Options`] reject one call and leave an attached
//! port as it was; after any other error the port must be dropped. A port with `reconnect` waits
//! for the backend's successor inside `wait` and `reconnect`; an error then means that no successor
//! completed the attachment in its time ([`NativeError::Connect`], [`NativeError::Gone`] or
//! [`NativeError::Conversation`]), or that it is unsuitable ([`NativeError::Lacking`]). Without
//! `reconnect` a lost backend is [`NativeError::Gone`]. Errors of connections over a vsock port are
//! in [`super::SocketError`]. Errors are values for any thread; nothing is retried or logged here.

use std::path::PathBuf;

use causeway_memory::{MapError, MappingError, OutOfGrant};
use causeway_ring::DoorbellError;
use causeway_ring::driver::DriverError;
use rustix::io::Errno;

use crate::vhost_user::fault::Reason;

/// The reason why a native port cannot be attached, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// No backend accepts connections at the port's socket.
    #[error("cannot connect to {path}: {source}")]
    Connect {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system call.
        source: Errno,
    },
    /// The vhost-user conversation failed.
    #[error("vhost-user: {0}")]
    Conversation(#[from] Reason),
    /// The backend closed the connection.
    #[error("the backend closed the connection")]
    Gone,
    /// The backend does not offer a required feature: VIRTIO_F_VERSION_1, the number of queue
    /// pairs, a record of chains in flight (with `reconnect`), a CID, or, after a reconnection, a
    /// feature that was negotiated before.
    #[error("the backend does not offer {0}")]
    Lacking(&'static str),
    /// The options are invalid, or a call names a queue that does not exist.
    #[error("{0}")]
    Options(&'static str),
    /// The backend broke a rule of the ring.
    #[error(transparent)]
    Ring(#[from] DriverError),
    /// The memory file cannot be created or mapped.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The memory map is invalid.
    #[error(transparent)]
    Map(#[from] MapError),
    /// An access outside the port's own memory.
    #[error(transparent)]
    Memory(#[from] OutOfGrant),
    /// An eventfd cannot be created.
    #[error(transparent)]
    Doorbell(#[from] DoorbellError),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] Errno),
    /// More bytes than a buffer of the port holds.
    #[error("{len} bytes do not fit a buffer of {room}")]
    Long {
        /// Bytes given.
        len: usize,
        /// Bytes that a buffer holds.
        room: usize,
    },
}
