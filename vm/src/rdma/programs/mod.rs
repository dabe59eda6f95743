//! Programs that run unmodified in two guests, by subject. Each function appends steps.

pub mod device;
pub mod mpi;
pub mod sockets;
pub mod storage;
pub mod verbs;

/// Bytes of a stream.
const STREAM_BYTES: u64 = 4 << 20;
