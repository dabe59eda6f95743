//! BAR 0 over vfio-user: the conversation that a VMM has for its guest.
//!
//! [`VfioBar::attach`] connects to a port's socket, maps the doorbell pages, assigns an eventfd to
//! each MSI-X vector (at most 64), and grants the driver's memory as a single range. Each register
//! access is one message to the control thread of causewayd; [`VfioBar::register_accesses`] counts
//! them. Each message blocks for at most 5 s, and then fails with [`DriverError::Vfio`]. The
//! connection closes when the value is dropped, and the function then loses all objects of the
//! driver; nothing reconnects. The thread that owns the driver makes all calls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use causeway_attach::native::VfioUserClient;
use causeway_attach::vfio_user::device::INTERRUPT_MSIX;
use causeway_attach::vfio_user::message::{DMA_READABLE, DMA_WRITABLE, DmaMap};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::limits::BASE;
use crate::{Bar, DoorbellPages, Driver, DriverError, DriverMemory};

/// Region of BAR 0 (VFIO).
const REGION_BAR: u32 = 0;
/// Maximum number of vectors that the driver uses.
const VECTORS_MAX: u32 = 64;

/// A connection to the function of a port.
#[derive(Debug)]
pub struct VfioBar {
    /// Connection to the port.
    client: VfioUserClient,
    doorbells: DoorbellPages,
    /// Eventfd of each vector.
    vectors: Vec<OwnedFd>,
    accesses: u64,
}

impl VfioBar {
    /// Connects to the port with the socket `path`, and grants the memory.
    ///
    /// # Errors
    /// Returns an error if no port accepts the connection or the conversation fails.
    pub fn attach(path: &Path, memory: &DriverMemory) -> Result<Self, DriverError> {
        let mut client = VfioUserClient::connect(path)?;
        let region = client.region(REGION_BAR)?;
        let first = region.info.areas.first().map_or(0, |area| area.0);
        let doorbells = DoorbellPages::new(region.view(0)?, first);
        let count = client.interrupt_info(INTERRUPT_MSIX)?.count.min(VECTORS_MAX);
        let new = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let vectors: Vec<OwnedFd> = (0..count).map(new).collect::<Result<_, Errno>>()?;
        let fds: Vec<BorrowedFd<'_>> = vectors.iter().map(AsFd::as_fd).collect();
        client.set_interrupts(INTERRUPT_MSIX, 0, &fds)?;
        let grant = DmaMap {
            flags: DMA_READABLE | DMA_WRITABLE,
            offset: 0,
            address: BASE,
            size: memory.len(),
        };
        client.map(&grant, Some(memory.file()))?;
        Ok(Self { client, doorbells, vectors, accesses: 0 })
    }

    /// Connects to the port with the socket `path`, and starts a driver with `memory_len` bytes of
    /// memory.
    ///
    /// # Errors
    /// As [`Self::attach`] and [`Driver::start`].
    pub fn start(path: &Path, memory_len: u64) -> Result<(Self, Driver), DriverError> {
        let memory = DriverMemory::new(memory_len)?;
        let mut bar = Self::attach(path, &memory)?;
        let mut driver = Driver::new(&mut bar, memory)?;
        driver.start(&mut bar)?;
        Ok((bar, driver))
    }

    /// Returns the eventfd of an interrupt vector.
    pub fn vector(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.vectors.get(index).map(AsFd::as_fd)
    }

    /// Takes the interrupts of a vector. Returns whether there were any.
    ///
    /// # Errors
    /// Returns an error if the eventfd cannot be read.
    pub fn take_interrupts(&self, index: usize) -> Result<bool, DriverError> {
        let Some(vector) = self.vector(index) else { return Ok(false) };
        match rustix::io::read(vector, &mut [0_u8; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of messages for registers so far.
    pub fn register_accesses(&self) -> u64 {
        self.accesses
    }
}

impl Bar for VfioBar {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DriverError> {
        self.accesses = self.accesses.saturating_add(1);
        Ok(self.client.read(REGION_BAR, offset, into)?)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DriverError> {
        self.accesses = self.accesses.saturating_add(1);
        Ok(self.client.write(REGION_BAR, offset, bytes)?)
    }

    fn doorbells(&self) -> Option<DoorbellPages> {
        Some(self.doorbells.clone())
    }
}
