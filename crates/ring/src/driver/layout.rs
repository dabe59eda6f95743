//! Memory layout of a driver's ring: offsets only.
//!
//! The owner of the memory (`attach::native`, and tests) places the ring and its buffers, and
//! passes the layout to [`super::Driver`]. Parts are aligned to [`ALIGN`] bytes. The module
//! accesses no memory and checks nothing. The driver refuses an invalid size and parts outside the
//! map when it is made, and an indirect table outside the map when a chain needs the table; nothing
//! checks the alignment of the base. Results beyond 2^64 saturate, and then lie in no map.
//!
//! The functions run in the process that attaches itself: `attach::native` calls them when it sets
//! a queue up, resumes it or reconnects. On the way of a packet only `table` runs: the driver calls
//! it for each chain of several buffers that uses an indirect table, in the thread that owns the
//! port.

use super::{DESCRIPTOR_BYTES, RING};

/// Alignment of parts: a pair of cache lines, because the two sides write different parts.
const ALIGN: u64 = 128;

/// Layout of a ring in guest memory: descriptor table, available ring, used ring, and an indirect
/// table for each descriptor. A packed ring has its descriptors in the first part, and the event
/// suppression structures of driver and device at the start of the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Guest address of the first byte; a multiple of 128.
    pub base: u64,
    /// Number of descriptors; for a split ring a power of two.
    pub size: u16,
    /// Number of entries of each indirect table; below 2 there are no tables.
    pub table_entries: u16,
}

/// Returns the first aligned address after the part with this address and length.
fn after((at, len): (u64, usize)) -> u64 {
    at.saturating_add(len as u64).checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

impl Layout {
    /// Returns address and length (in bytes) of the descriptor table.
    pub fn desc(&self) -> (u64, usize) {
        (self.base, usize::from(self.size).saturating_mul(DESCRIPTOR_BYTES))
    }

    /// Returns address and length (in bytes) of the available ring with its event index.
    pub fn avail(&self) -> (u64, usize) {
        let ring = usize::from(self.size).saturating_mul(2);
        (after(self.desc()), ring.saturating_add(RING).saturating_add(2))
    }

    /// Returns address and length (in bytes) of the used ring with its event index.
    pub fn used(&self) -> (u64, usize) {
        let ring = usize::from(self.size).saturating_mul(8);
        (after(self.avail()), ring.saturating_add(RING).saturating_add(2))
    }

    /// Returns the length of an indirect table, in bytes; 0 if there are none.
    fn table_bytes(&self) -> u64 {
        let entries = if self.table_entries < 2 { 0 } else { u64::from(self.table_entries) };
        entries.saturating_mul(DESCRIPTOR_BYTES as u64)
    }

    /// Returns the address of descriptor `head`'s indirect table. `head` is below the ring size; if
    /// there are no tables the result has no meaning.
    pub(super) fn table(&self, head: u16) -> u64 {
        after(self.used()).saturating_add(u64::from(head).saturating_mul(self.table_bytes()))
    }

    /// Returns the address after the last part.
    pub fn end(&self) -> u64 {
        let tables = u64::from(self.size).saturating_mul(self.table_bytes());
        after((after(self.used()).saturating_add(tables), 0))
    }
}
