//! The results of a restoration: why a record or a function is not restored, and the size of a
//! restored function.
//!
//! `causeway-hca` shows the texts to the operator. After an error the function has no objects.

use causeway_verbs::QueuePairError;
use causeway_wire::mlx5::command::Status;

/// Why a file is not a record that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The file is shorter than the record.
    #[error("the record of the adapter is shorter than {0} bytes")]
    Short(usize),
    /// The host has no memory for the file.
    #[error("the host has no memory for the record of the adapter")]
    NoMemory,
    /// The file has another version, or was made for other limits of the port.
    #[error("the record of the adapter has another version or other limits")]
    Mismatch,
    /// The file's content is inconsistent.
    #[error("the record of the adapter is damaged: {0}")]
    Damaged(&'static str),
}

/// The size of a restored function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Entries of the journal.
    pub entries: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
}

/// Why a function is not restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The adapter does not exist.
    #[error("the adapter does not exist")]
    NoAdapter,
    /// The file is not a record of this function.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Earlier processes ended while or soon after they restored the record.
    #[error("{times} earlier processes ended while or soon after they restored the record")]
    Interrupted {
        /// Number of restorations since the function was served.
        times: u32,
    },
    /// A command of the journal failed.
    #[error("the recorded command {opcode:#x} failed: {status}")]
    Command {
        /// Opcode.
        opcode: u16,
        /// Status of the command.
        status: Status,
    },
    /// An object does not get its number.
    #[error("the number {number} of an object of command {opcode:#x} is taken")]
    Number {
        /// Opcode of the command that makes the object.
        opcode: u16,
        /// Number.
        number: u32,
    },
    /// A queue pair cannot have the recorded attributes.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
}
