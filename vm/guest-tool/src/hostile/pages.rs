//! Pages of this process with known physical addresses.
//!
//! Access goes through `/proc/self/mem`: a device writes these pages, so that no Rust reference to
//! them may exist. Root is needed for physical addresses; without them the allocation is an error.
//! The pages are freed at the drop, while a device that was not reset may still write to them:
//! `super::run` resets the device after a recovery, but not after an error. [`Pages::address`]
//! panics for a page beyond the last; reads and writes check no bounds, and reach other memory of
//! the process beyond the pages.

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
        let page = PAGE as usize;
        let owner = vec![1_u8; (count + 1) * page];
        let start = owner.as_ptr().addr() as u64;
        let first = start.next_multiple_of(PAGE);
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
        memory.write_all_at(&vec![0; count * page], first)?;
        let map = File::open("/proc/self/pagemap")?;
        let physical = (0..count as u64).map(|n| {
            let mut entry = [0; 8];
            map.read_exact_at(&mut entry, (first / PAGE + n) * 8)?;
            let entry = u64::from_le_bytes(entry);
            if entry & PRESENT == 0 || entry & FRAME == 0 {
                return Err(io::Error::other("/proc/self/pagemap hides physical addresses"));
            }
            Ok((entry & FRAME) * PAGE)
        });
        let physical = physical.collect::<io::Result<_>>()?;
        Ok(Self { _owner: owner, memory, first, physical })
    }

    /// Returns the physical address of page `n`.
    #[must_use]
    pub fn address(&self, n: usize) -> u64 {
        self.physical[n]
    }

    /// Writes to page `n`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn write(&self, n: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, self.first + n as u64 * PAGE + at)
    }

    /// Reads from page `n`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self, n: usize, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, self.first + n as u64 * PAGE + at)
    }
}
