//! The shared record of chains in flight (vhost-user, "Inflight I/O tracking").
//!
//! The record lives in a memory file that the frontend keeps; `attach` maps it and gives each queue
//! its part. The queue writes it at its start and at each pop, push and publication, in the
//! dispatcher's thread. After the death of this process its successor reads there which chains were
//! popped and not pushed, in the order of their pops, and pops them again first.
//!
//! The content is as untrusted as any guest memory: an inconsistent record is
//! [`RingError::Inflight`], with which the attachment ends. Chains that the predecessor pushed and
//! did not publish are popped again. So are chains that it put back. The record tracks rings only,
//! no connection or service state, and no payload that was already written into a chain: a
//! successor serves the chain from its beginning, so a frame may be sent twice.

mod packed;
mod split;

use causeway_memory::{OutOfGrant, View};

use crate::error::RingError;
pub use packed::PackedInflight;
pub use split::SplitInflight;

/// The part of the record that belongs to one queue.
#[derive(Debug)]
pub enum Inflight {
    /// For a split queue.
    Split(SplitInflight),
    /// For a packed queue.
    Packed(PackedInflight),
}

impl Inflight {
    /// Returns the size of the record of a split queue with `size` entries, in bytes, rounded to
    /// the alignment of the next queue's record.
    pub fn bytes(size: u16) -> usize {
        SplitInflight::bytes(size)
    }

    /// Like [`Self::bytes`], for a packed queue.
    pub fn packed_bytes(size: u16) -> usize {
        PackedInflight::bytes(size)
    }

    /// Opens the record at `view` for a split queue of `size` entries. A new (all-zero) record is
    /// initialised when the queue starts to use it.
    ///
    /// # Errors
    /// [`RingError::Inflight`] if the record is too small or of another version or size.
    pub fn new(view: View, size: u16) -> Result<Self, RingError> {
        Ok(Self::Split(SplitInflight::new(view, size)?))
    }

    /// Like [`Self::new`], for a packed queue.
    ///
    /// # Errors
    /// [`RingError::Inflight`] if the record is too small or of another version or size.
    pub fn packed(view: View, size: u16) -> Result<Self, RingError> {
        Ok(Self::Packed(PackedInflight::new(view, size)?))
    }
}

/// Returns the error for a record that became unreachable.
fn lost(gap: OutOfGrant) -> RingError {
    RingError::Lost(gap)
}
