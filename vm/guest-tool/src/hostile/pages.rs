//! Pages of this process whose physical addresses are known. They are reached through
//! `/proc/self/mem`, so that what a device writes there is no business of the compiler.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Pages that stay where they are: there is no swap in the guest, and they are too few for the
/// kernel to make a huge page of them.
#[derive(Debug)]
pub struct Pages {
    /// Keeps the pages; never touched again.
    _owner: Vec<u8>,
    memory: File,
    first: u64,
    physical: Vec<u64>,
}

impl Pages {
    /// `count` pages of zeros.
    ///
    /// # Errors
    /// When this process may not know physical addresses.
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
                return Err(io::Error::other("a page's physical address is hidden"));
            }
            Ok((entry & FRAME) * PAGE)
        });
        let physical = physical.collect::<io::Result<_>>()?;
        Ok(Self { _owner: owner, memory, first, physical })
    }

    /// The physical address of page `n`.
    #[must_use]
    pub fn address(&self, n: usize) -> u64 {
        self.physical[n]
    }

    /// Writes to page `n`.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn write(&self, n: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, self.first + n as u64 * PAGE + at)
    }

    /// Reads from page `n`.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn read(&self, n: usize, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, self.first + n as u64 * PAGE + at)
    }
}
