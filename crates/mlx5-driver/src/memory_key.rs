//! Memory keys: registration of the driver's memory with the function.
//!
//! A key of [`Driver::register`] permits local and remote reads and writes and remote atomic
//! operations, and lives until the function is reset: no method here destroys a key. Its page list
//! names the pages of [`DriverMemory`](crate::DriverMemory) that hold the bytes. The page list
//! travels in the command, so a registration has as many pages as a command has room for
//! ([`DriverError::CommandLen`] beyond); a key beyond the limits of the port is
//! [`DriverError::Refused`]. Each call is a command of the thread that owns the [`Driver`], and
//! makes a further key. Programs register before they post; posts name the bytes by key and
//! address, which causewayd checks for each work request.

use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::memory_key::{
    ANY_QUEUE_PAIR, CREATE_ACTUAL_SIZE, CREATE_CONTEXT, CREATE_PAGES, MemoryKeyContext, key,
};

use crate::limits::PAGE;
use crate::memory::page_list;
use crate::{Bar, Driver, DriverError};

/// Variable byte of keys that [`Driver::register`] creates.
const VARIABLE: u8 = 7;
/// Access mode: a list of pages.
const PAGE_LIST: u8 = 1;
/// Binary logarithm of a page's length.
const LOG_PAGE: u8 = PAGE.trailing_zeros() as u8;

impl Driver {
    /// Registers `len` bytes at `at` for local and remote access. Work requests name the bytes by
    /// addresses from `start` on, which has the same offset in its page as `at`. Returns the key.
    ///
    /// # Errors
    /// As [`Driver::execute`].
    pub fn register(
        &self,
        bar: &mut dyn Bar,
        start: u64,
        at: u64,
        len: u64,
    ) -> Result<u32, DriverError> {
        let context = MemoryKeyContext {
            access_mode: PAGE_LIST,
            has_update: true,
            remote_atomic: true,
            remote_write: true,
            remote_read: true,
            local_write: true,
            local_read: true,
            queue_pair: ANY_QUEUE_PAIR,
            variable: VARIABLE,
            domain: self.domain(),
            start,
            len,
            list_size: 8,
            log_page_size: LOG_PAGE,
            ..Default::default()
        };
        let first = at & !PAGE.wrapping_sub(1);
        let bytes = at.wrapping_sub(first).saturating_add(len);
        self.create_key(bar, &context, &page_list(first, bytes))
    }

    /// Creates the key of all the driver's memory for local access: addresses are those of the
    /// memory.
    ///
    /// # Errors
    /// As [`Driver::execute`].
    pub fn create_local_key(&self, bar: &mut dyn Bar) -> Result<u32, DriverError> {
        let context = MemoryKeyContext {
            local_read: true,
            local_write: true,
            is_unlimited: true,
            domain: self.domain(),
            variable: VARIABLE,
            ..Default::default()
        };
        self.create_key(bar, &context, &[])
    }

    /// Creates a key from a context and a page list. Returns the key.
    ///
    /// # Errors
    /// As [`Driver::execute`].
    pub fn create_key(
        &self,
        bar: &mut dyn Bar,
        context: &MemoryKeyContext,
        pages: &[u64],
    ) -> Result<u32, DriverError> {
        const SIZE_AT: usize = CREATE_ACTUAL_SIZE - CREATE_CONTEXT;
        let mut bytes = context.to_bytes().to_vec();
        bytes.resize(SIZE_AT, 0);
        let units = u32::try_from(pages.len().div_ceil(2)).unwrap_or(u32::MAX);
        bytes.extend(units.to_be_bytes());
        let opcode = Opcode::CreateMemoryKey;
        let number = self.create(bar, opcode, (CREATE_CONTEXT, &bytes), (CREATE_PAGES, pages))?;
        Ok(key(number, context.variable))
    }
}
