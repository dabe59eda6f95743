//! Pages of this process with known physical addresses.
//!
//! Access goes through `/proc/self/mem`: a device writes these pages, so that no Rust reference to
//! them may exist. Root is needed for physical addresses; without them the allocation is an error.
//! The pages are freed at the drop; [`super::device`] resets the device before. A read or write
//! beyond its page is an error, and [`Pages::address`] panics for a page beyond the last.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Pages that do not move: the guest has no swap, and the pages are too few for a huge page.
#[derive(Debug)]
pub struct Pages {
    /// Owner of the pages; never accessed.
    _owner: Vec<u8>,
    memory: File,
    first: u64,
    physical: Vec<u64>,
}

impl Pages {
    /// Allocates `count` zeroed pages.
    ///
    /// # Errors
    /// When this process may not read physical addresses.
    pub fn new(count: usize) -> io::Result<Self> {
        Self::with(count, physical_addresses)
    }

    /// Allocates pages, of which `addresses` returns the physical addresses from the first virtual
    /// one.
    fn with(
        count: usize,
        addresses: impl FnOnce(u64, usize) -> io::Result<Vec<u64>>,
    ) -> io::Result<Self> {
        let page = PAGE as usize;
        let owner = vec![1_u8; (count + 1) * page];
        let start = owner.as_ptr().addr() as u64;
        let first = start.next_multiple_of(PAGE);
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
        memory.write_all_at(&vec![0; count * page], first)?;
        let physical = addresses(first, count)?;
        Ok(Self { _owner: owner, memory, first, physical })
    }

    /// Allocates pages for tests, without physical addresses.
    #[cfg(test)]
    pub fn without_addresses(count: usize) -> Self {
        Self::with(count, |_, count| Ok(vec![0; count])).unwrap()
    }

    /// Returns the physical address of page `n`.
    #[must_use]
    pub fn address(&self, n: usize) -> u64 {
        self.physical[n]
    }

    /// Writes to page `n`.
    ///
    /// # Errors
    /// When the bytes do not lie in one of the pages; the kernel's error.
    pub fn write(&self, n: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, self.place(n, at, bytes.len())?)
    }

    /// Reads from page `n`.
    ///
    /// # Errors
    /// When the bytes do not lie in one of the pages; the kernel's error.
    pub fn read(&self, n: usize, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, self.place(n, at, bytes.len())?)
    }

    /// Returns the virtual address of `len` bytes from offset `at` of page `n`.
    fn place(&self, n: usize, at: u64, len: usize) -> io::Result<u64> {
        let count = self.physical.len();
        let is_inside = at.checked_add(len as u64).is_some_and(|end| end <= PAGE);
        if n >= count || !is_inside {
            let what = format!(
                "{len} bytes at offset {at} of page {n} do not lie in one of the {count} pages"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(self.first + n as u64 * PAGE + at)
    }
}

/// Returns the physical addresses of `count` pages from the virtual address `first`.
fn physical_addresses(first: u64, count: usize) -> io::Result<Vec<u64>> {
    let map = File::open("/proc/self/pagemap")?;
    let address = |n| {
        let mut entry = [0; 8];
        map.read_exact_at(&mut entry, (first / PAGE + n) * 8)?;
        let entry = u64::from_le_bytes(entry);
        if entry & PRESENT == 0 || entry & FRAME == 0 {
            return Err(io::Error::other("/proc/self/pagemap hides physical addresses"));
        }
        Ok((entry & FRAME) * PAGE)
    };
    (0..count as u64).map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_pages_refuse_accesses_beyond_a_page() {
        let pages = Pages::without_addresses(2);
        pages.write(1, PAGE - 3, b"end").unwrap();
        let mut bytes = [0; 3];
        pages.read(1, PAGE - 3, &mut bytes).unwrap();
        assert_eq!(&bytes, b"end");
        for (page, at) in [(0, PAGE - 2), (2, 0), (usize::MAX, 0), (0, PAGE), (0, u64::MAX)] {
            let why = pages.write(page, at, b"out").unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::InvalidInput, "{page} {at}: {why}");
            assert!(pages.read(page, at, &mut bytes).is_err(), "{page} {at}");
        }
        pages.read(0, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 3]);
    }
}
