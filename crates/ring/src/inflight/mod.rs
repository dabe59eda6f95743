//! The shared record of chains in flight (vhost-user, "Inflight I/O tracking").
//!
//! The record lives in a memory file that the frontend keeps. When this process
//! dies, its successor finds there which chains were taken and not finished,
//! in the order they were taken. Its content is as hostile as any guest memory.

mod packed;
mod split;

use causeway_memory::{OutOfGrant, View};

use crate::error::RingError;
pub use packed::PackedInflight;
pub use split::SplitInflight;

/// One queue's part of the record.
#[derive(Debug)]
pub enum Inflight {
    /// Of a split queue.
    Split(SplitInflight),
    /// Of a packed queue.
    Packed(PackedInflight),
}

impl Inflight {
    /// Bytes that a split queue of `size` entries needs, rounded so that queues follow each other
    /// aligned.
    pub fn bytes(size: u16) -> usize {
        SplitInflight::bytes(size)
    }

    /// As [`Self::bytes`], of a packed queue.
    pub fn packed_bytes(size: u16) -> usize {
        PackedInflight::bytes(size)
    }

    /// Takes the record at `view` for a split queue of `size` entries. A fresh (all-zero) one is
    /// initialised when the queue begins to use it.
    pub fn new(view: View, size: u16) -> Result<Self, RingError> {
        Ok(Self::Split(SplitInflight::new(view, size)?))
    }

    /// As [`Self::new`], for a packed queue.
    pub fn packed(view: View, size: u16) -> Result<Self, RingError> {
        Ok(Self::Packed(PackedInflight::new(view, size)?))
    }
}

fn lost(gap: OutOfGrant) -> RingError {
    RingError::Lost(gap)
}
