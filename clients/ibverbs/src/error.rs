//! Errors of the library and of its calls.
//!
//! A work request that fails after it was posted is no [`Error`] but a completion with an error.
//! The callers in the endpoint crate map the errors to their own; nothing is logged or repeated
//! here.

use std::io;

/// Reason for which an adapter cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library is not installed, or too old.
    #[error(
        "libibverbs cannot be loaded: install rdma-core 31 or later (Debian: ibverbs-providers)"
    )]
    Library(#[source] libloading::Error),
    /// No device has that name.
    #[error("this machine has no RDMA device {0}: `ls /sys/class/infiniband` lists them")]
    NoDevice(String),
    /// The port has no RoCE v2 address.
    #[error("port {port} of {device} has no RoCE v2 GID: set its network interface up")]
    NoGid {
        /// Name of the device.
        device: String,
        /// Number of the port.
        port: u8,
    },
    /// The adapter cannot copy a message of this length into a work request.
    #[error("a send of {wanted} bytes is larger than {most}, the longest that is copied inline")]
    Inline {
        /// Bytes of the message.
        wanted: usize,
        /// Bytes that fit.
        most: usize,
    },
    /// The bytes do not lie in the registration.
    #[error("{len} bytes at offset {at} exceed the registered memory")]
    Range {
        /// Offset of the first byte.
        at: usize,
        /// Number of bytes.
        len: usize,
    },
    /// A call of the library failed.
    #[error("{call} failed on {device}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// Name of the device.
        device: String,
        /// The error of the kernel or the provider.
        source: io::Error,
    },
}

impl Error {
    /// Returns whether the kernel refuses access to the device.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Call { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Returns whether a limit of the machine, the process or the adapter is reached.
    pub fn is_shortage(&self) -> bool {
        let Self::Call { source, .. } = self else { return false };
        let errno = source.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        use rustix::io::Errno;
        matches!(
            errno,
            Some(Errno::NOMEM | Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOSPC)
        )
    }
}
