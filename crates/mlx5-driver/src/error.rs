//! The reasons why a call of the driver fails.
//!
//! Every module of the crate returns [`DriverError`]. An error of a command leaves the driver
//! usable, with two exceptions. After [`DriverError::Late`] the function may still write the
//! answer, so the caller gives the driver up; after [`DriverError::Vfio`] the connection may be
//! gone. A completion with an error is returned as an entry by [`crate::Driver::poll_cq`], and as
//! [`DriverError::Malformed`] by [`crate::Driver::drain_cq`] and [`crate::EthernetInterface`]. No
//! call is repeated. The callers are the benchmark and tests, in the thread that owns the driver.

use causeway_attach::native::VfioUserError;
use causeway_memory::{MapError, MappingError, OutOfGrant};
use causeway_wire::Truncated;
use causeway_wire::mlx5::command::Status;
use rustix::io::Errno;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The function refused a command.
    #[error("the function refused command {opcode:#x}: {status:?}")]
    Refused {
        /// Code of the operation.
        opcode: u16,
        /// The function's answer.
        status: Status,
    },
    /// The function could not read or write a command.
    #[error("the function did not execute a command: delivery status {0}")]
    Undelivered(u8),
    /// The function did not finish a command within [`crate::limits::COMMAND_TIMEOUT`] (10 s).
    #[error("the function did not finish a command in time")]
    Late,
    /// A command is longer than the driver's mailboxes.
    #[error("a command of {0} bytes is longer than the driver's mailboxes: use more memory")]
    CommandLen(usize),
    /// The function's answer is malformed, or its status is unknown.
    #[error("the function's {0} is malformed")]
    Malformed(&'static str),
    /// The driver's memory is full.
    #[error("the driver's memory is full: start the driver with more")]
    MemoryFull,
    /// A size is beyond the driver's limits.
    #[error("the {0} is beyond the driver's limits")]
    Size(&'static str),
    /// An address is outside the driver's memory.
    #[error("memory of the driver: {0}")]
    Address(#[from] OutOfGrant),
    /// A queue entry does not fit.
    #[error("queue entry: {0}")]
    Entry(#[from] Truncated),
    /// The host has no memory file or eventfd for the driver.
    #[error("the host has no memory file or eventfd for the driver: {0}")]
    Host(#[from] Errno),
    /// The memory file cannot be mapped.
    #[error("the driver's memory cannot be mapped: {0}")]
    Mapping(#[from] MappingError),
    /// The memory map is refused.
    #[error("the driver's memory map: {0}")]
    Map(#[from] MapError),
    /// The vfio-user conversation failed.
    #[error(transparent)]
    Vfio(#[from] VfioUserError),
}
