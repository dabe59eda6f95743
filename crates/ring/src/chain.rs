//! One available chain, copied out and checked.

use causeway_memory::{Cursor, Span};

/// A chain of descriptors as plain values: what the device may read, then what it may write.
///
/// Reuse one value over many pops: its vectors keep their room.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// Names the chain to the driver when it is used.
    pub(crate) head: u16,
    pub(crate) readable: Vec<Span>,
    pub(crate) writable: Vec<Span>,
    pub(crate) readable_bytes: u64,
    pub(crate) writable_bytes: u64,
}

impl Chain {
    /// An empty chain, to be filled by a pop.
    pub fn new() -> Self {
        Self::default()
    }

    /// The descriptor index that names this chain in the used ring.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// From the first byte that the device may read.
    pub fn reader(&self) -> Cursor<'_> {
        Cursor::new(&self.readable)
    }

    /// From the first byte that the device may write.
    pub fn writer(&self) -> Cursor<'_> {
        Cursor::new(&self.writable)
    }

    /// Spans that the device may read.
    pub fn readable(&self) -> &[Span] {
        &self.readable
    }

    /// Spans that the device may write.
    pub fn writable(&self) -> &[Span] {
        &self.writable
    }

    /// Bytes that the device may read; at most 2^32.
    pub fn readable_bytes(&self) -> u64 {
        self.readable_bytes
    }

    /// Bytes that the device may write; at most 2^32.
    pub fn writable_bytes(&self) -> u64 {
        self.writable_bytes
    }

    pub(crate) fn clear(&mut self, head: u16) {
        self.head = head;
        self.readable.clear();
        self.writable.clear();
        self.readable_bytes = 0;
        self.writable_bytes = 0;
    }
}
