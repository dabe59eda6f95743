//! The memory of a driver: one file with rings, mailboxes and buffers.
//!
//! The file is mapped once by this process. [`crate::VfioBar::attach`] grants the whole file to the
//! function, and causewayd maps the file, too; a function in this process uses
//! [`DriverMemory::map`]. Addresses begin at [`BASE`] (4 GiB). Memory is handed out in whole pages
//! of 4 KiB and never taken back; an allocation beyond the end is [`DriverError::MemoryFull`], an
//! access outside of the memory [`DriverError::Address`]. The function writes to the same bytes at
//! any time, so all accesses are copies. The thread that owns the [`Driver`](crate::Driver) makes
//! all calls; none is a system call after the creation.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use causeway_memory::{Map, Mapping, Region, View, create};

use crate::DriverError;
use crate::limits::{
    BASE, HEAP_OFFSET, LONG_COMMANDS_MEMORY_MIN, LONG_MAILBOX_BYTES, MEMORY_MIN, PAGE,
};

/// The memory of one driver.
#[derive(Debug)]
pub struct DriverMemory {
    file: OwnedFd,
    map: Arc<Map>,
    view: View,
    /// Length of the file, in bytes.
    len: u64,
    /// First free address.
    next: u64,
    /// End of the memory for rings and buffers.
    end: u64,
}

impl DriverMemory {
    /// Creates memory of `len` bytes: at least [`MEMORY_MIN`] (8 MiB), in whole pages.
    ///
    /// # Errors
    /// [`DriverError::Size`] if `len` is too short or no multiple of a page; another error if the
    /// host has no memory.
    pub fn new(len: u64) -> Result<Self, DriverError> {
        if len < MEMORY_MIN || !len.is_multiple_of(PAGE) {
            return Err(DriverError::Size("length of memory"));
        }
        let file = create("mlx5-driver", len)?;
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len)?);
        let view = View::new(Arc::clone(&mapping), 0, mapping.len())?;
        let map = Arc::new(Map::new(vec![Region { guest: BASE, user: 0, mapping }])?);
        let long = if len >= LONG_COMMANDS_MEMORY_MIN { LONG_MAILBOX_BYTES } else { 0 };
        let end = BASE.saturating_add(len).saturating_sub(long);
        Ok(Self { file, map, view, len, next: BASE.saturating_add(HEAP_OFFSET), end })
    }

    /// Returns the file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the map, for a function in the same process.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Returns the length, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the mailboxes for long commands, if there is enough memory for them.
    pub(crate) fn long_mailboxes(&self) -> Option<u64> {
        (self.len >= LONG_COMMANDS_MEMORY_MIN).then_some(self.end)
    }

    /// Allocates page-aligned memory. Returns its address.
    ///
    /// # Errors
    /// [`DriverError::MemoryFull`].
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError> {
        let at = self.next;
        let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(DriverError::MemoryFull)?;
        let next = at.checked_add(bytes).filter(|next| *next <= self.end);
        self.next = next.ok_or(DriverError::MemoryFull)?;
        Ok(at)
    }

    /// Returns the offset of an address.
    #[inline]
    fn offset(at: u64) -> usize {
        usize::try_from(at.wrapping_sub(BASE)).unwrap_or(usize::MAX)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DriverError> {
        Ok(self.view.read_into(Self::offset(at), into)?)
    }

    /// Copies `N` bytes out.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn read_array<const N: usize>(&self, at: u64) -> Result<[u8; N], DriverError> {
        Ok(self.view.read(Self::offset(at))?)
    }

    /// Loads the last byte of an entry of 64 bytes, before all bytes that a later call reads.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub(crate) fn load_mark(&self, entry: u64) -> Result<u8, DriverError> {
        let at = Self::offset(entry.wrapping_add(62));
        let [_, mark] = self.view.load(at, Ordering::Acquire)?.to_le_bytes();
        Ok(mark)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DriverError> {
        Ok(self.view.write(Self::offset(at), bytes)?)
    }

    /// Stores a big-endian word after all earlier stores.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn publish(&self, at: u64, word: u32) -> Result<(), DriverError> {
        fence(Ordering::Release);
        self.write(at, &word.to_be_bytes())
    }
}

/// Returns the pages of `bytes` bytes at the page-aligned address `first`.
pub fn page_list(first: u64, bytes: u64) -> Vec<u64> {
    let pages = bytes.div_ceil(PAGE);
    (0..pages).map(|page| first.wrapping_add(page.wrapping_mul(PAGE))).collect()
}
