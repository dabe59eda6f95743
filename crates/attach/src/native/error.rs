//! Why a native port cannot be attached, or cannot go on.

use std::path::PathBuf;

use causeway_memory::{MapError, MappingError, OutOfGrant};
use causeway_ring::DoorbellError;
use causeway_ring::driver::DriverError;
use rustix::io::Errno;

use crate::vhost_user::fault::Reason;

/// Why a native port cannot be attached, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// Nobody listens at the port's socket.
    #[error("cannot connect to {path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The conversation with the backend failed.
    #[error("vhost-user: {0}")]
    Conversation(#[from] Reason),
    /// The backend is gone; attach again.
    #[error("the backend closed the connection")]
    Gone,
    /// The backend does not offer what is needed.
    #[error("the backend does not offer {0}")]
    Lacking(&'static str),
    /// Options that make no sense.
    #[error("{0}")]
    Options(&'static str),
    /// The backend broke a rule of the ring.
    #[error(transparent)]
    Ring(#[from] DriverError),
    /// The memory file cannot be made or mapped.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The memory cannot be described.
    #[error(transparent)]
    Map(#[from] MapError),
    /// An access outside our own memory.
    #[error(transparent)]
    Memory(#[from] OutOfGrant),
    /// An eventfd cannot be made.
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
