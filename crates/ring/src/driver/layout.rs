//! Where the parts of a driver's ring lie.

use super::{DESCRIPTOR_BYTES, RING};

/// Parts begin on their own pair of cache lines: the two sides write different parts.
const ALIGN: u64 = 128;

/// A ring in guest memory: descriptor table, available ring, used ring, and an indirect table
/// for each descriptor. A packed ring has the same places: its descriptors in the first, the
/// driver's and the device's event suppression structures at the beginning of the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Guest address of the first byte; a multiple of 128.
    pub base: u64,
    /// Descriptors; of a split ring a power of two.
    pub size: u16,
    /// Entries of each indirect table; below 2 there are none.
    pub table_entries: u16,
}

fn after((at, len): (u64, usize)) -> u64 {
    at.saturating_add(len as u64).checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

impl Layout {
    /// Address and length of the descriptor table.
    pub fn desc(&self) -> (u64, usize) {
        (self.base, usize::from(self.size).saturating_mul(DESCRIPTOR_BYTES))
    }

    /// Address and length of the available ring, with its event index.
    pub fn avail(&self) -> (u64, usize) {
        let ring = usize::from(self.size).saturating_mul(2);
        (after(self.desc()), ring.saturating_add(RING).saturating_add(2))
    }

    /// Address and length of the used ring, with its event index.
    pub fn used(&self) -> (u64, usize) {
        let ring = usize::from(self.size).saturating_mul(8);
        (after(self.avail()), ring.saturating_add(RING).saturating_add(2))
    }

    fn table_bytes(&self) -> u64 {
        let entries = if self.table_entries < 2 { 0 } else { u64::from(self.table_entries) };
        entries.saturating_mul(DESCRIPTOR_BYTES as u64)
    }

    /// Address of descriptor `head`'s indirect table.
    pub(super) fn table(&self, head: u16) -> u64 {
        after(self.used()).saturating_add(u64::from(head).saturating_mul(self.table_bytes()))
    }

    /// The address after the last part.
    pub fn end(&self) -> u64 {
        let tables = u64::from(self.size).saturating_mul(self.table_bytes());
        after((after(self.used()).saturating_add(tables), 0))
    }
}
