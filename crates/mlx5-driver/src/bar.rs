//! BAR 0 of the function, as a driver reaches it.
//!
//! [`Bar`] separates the driver from the transport: [`crate::VfioBar`] sends vfio-user messages to
//! causewayd, as a VMM does for its guest; a test calls the registers of a function in its own
//! process. The thread that owns the driver makes all calls: [`crate::Driver`] for the start and
//! for commands, a message for each register. [`DoorbellPages`] are shared memory: the driver
//! stores the same words as a guest's driver, although the function reads none of them. A store
//! outside of the pages is [`DriverError::Address`]; nothing here retries.

use causeway_memory::View;
use causeway_wire::mlx5::registers::UAR_LEN;

use crate::DriverError;

/// Access to BAR 0.
pub trait Bar {
    /// Reads registers at `offset`.
    ///
    /// # Errors
    /// Returns an error if the transport failed.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DriverError>;

    /// Writes registers at `offset`.
    ///
    /// # Errors
    /// Returns an error if the transport failed.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DriverError>;

    /// Returns the doorbell pages; `None` if the transport has none.
    fn doorbells(&self) -> Option<DoorbellPages> {
        None
    }
}

/// The mapped doorbell pages.
#[derive(Debug, Clone)]
pub struct DoorbellPages {
    /// Mapping of the pages.
    view: View,
    /// Offset of the view in the BAR.
    first: u64,
}

impl DoorbellPages {
    /// Returns the pages of a view that begins at offset `first` of the BAR.
    pub fn new(view: View, first: u64) -> Self {
        Self { view, first }
    }

    /// Stores eight bytes at `offset` of a page.
    ///
    /// # Errors
    /// Returns an error if the page is not mapped.
    #[inline]
    pub fn store(&self, page: u32, offset: u64, bytes: [u8; 8]) -> Result<(), DriverError> {
        let at = u64::from(page).saturating_mul(UAR_LEN).saturating_add(offset);
        let at = usize::try_from(at.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        Ok(self.view.store_word(at, u64::from_le_bytes(bytes))?)
    }
}
