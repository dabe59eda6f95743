//! The description of a vfio-user device, and the interface of its registers.
//!
//! The creator of an attachment passes both; the server answers messages from them. A description
//! is constant. PCI configuration space and the MSI-X table are regions like any other, so their
//! content comes from [`Registers`].
//!
//! A device has the [`REGIONS`] (9) regions and [`INTERRUPT_TYPES`] (5) interrupt types of
//! `vfio-pci`. A region has at most [`AREAS_MAX`](crate::limits::AREAS_MAX) (64) mappable areas,
//! and an interrupt type at most [`VECTORS_MAX`](crate::limits::VECTORS_MAX) (64) vectors: the
//! server does not report the rest to frontends. The description is not checked otherwise: areas
//! must be whole pages inside the region and the file.
//!
//! `causeway-hca` describes its PCI function here and passes it to
//! [`VfioUserAttachment`](super::VfioUserAttachment). An area that a frontend has mapped is read
//! and written without a message, so that [`Registers`] does not see these accesses. The control
//! thread of each frontend reads the description and calls [`Registers`].

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Number of regions of a PCI device: six BARs, ROM, configuration space, VGA.
pub const REGIONS: u32 = 9;
/// Number of interrupt types of a PCI device: INTx, MSI, MSI-X, error, request.
pub const INTERRUPT_TYPES: u32 = 5;
/// Index of the region that is the PCI configuration space.
pub const CONFIG_REGION: u32 = 7;
/// Index of the MSI interrupt type.
pub const INTERRUPT_MSI: u32 = 1;
/// Index of the MSI-X interrupt type.
pub const INTERRUPT_MSIX: u32 = 2;

/// Device flag: the frontend may reset the device.
pub const DEVICE_RESET: u32 = 1;
/// Device flag: the device is a PCI device.
pub const DEVICE_PCI: u32 = 2;

/// Region flag: the frontend may read the region.
pub const REGION_READ: u32 = 1;
/// Region flag: the frontend may write the region.
pub const REGION_WRITE: u32 = 2;

/// The registers of a device. The control thread calls them, at the same time as the dispatcher
/// uses the device; no call may block.
pub trait Registers: Send + Sync {
    /// Fills `bytes` with the content of a region. The range lies in the region.
    fn read(&self, region: u32, offset: u64, bytes: &mut [u8]);

    /// Writes `bytes` to a region. The range lies in the region. Returns the doorbell that the
    /// dispatcher receives as [`Event::Doorbell`](crate::Event::Doorbell), if the write rings one;
    /// a number of [`REGION_DOORBELLS_MAX`](crate::limits::REGION_DOORBELLS_MAX) (64) or more is
    /// ignored.
    fn write(&self, region: u32, offset: u64, bytes: &[u8]) -> Option<usize>;

    /// Informs the registers that the holder repeats the set-up of a frontend that an earlier
    /// daemon served; called before the first grant of memory.
    fn begin_resume(&self) {}

    /// Resets all registers. The dispatcher receives [`Event::Reset`](crate::Event::Reset)
    /// afterwards.
    fn reset(&self);
}

/// A file that frontends map in place of register accesses.
#[derive(Debug, Clone)]
pub struct MappableFile {
    /// The file. Byte `n` of the file is byte `n` of the region.
    pub file: Arc<OwnedFd>,
    /// The areas that may be mapped, as offsets in the region; whole pages.
    pub areas: Vec<Range<u64>>,
}

/// A region of a device.
#[derive(Debug, Clone)]
pub struct RegionDescription {
    /// The index, below [`REGIONS`].
    pub index: u32,
    /// Length, in bytes.
    pub size: u64,
    /// [`REGION_READ`] and [`REGION_WRITE`].
    pub flags: u32,
    /// The areas that frontends map.
    pub mmap: Option<MappableFile>,
}

/// A vfio-user device.
#[derive(Debug, Clone)]
pub struct DeviceDescription {
    /// The regions. Indexes that are left out are empty regions.
    pub regions: Vec<RegionDescription>,
    /// The interrupt types: index, and number of vectors. [`INTERRUPT_MSIX`] and [`INTERRUPT_MSI`]
    /// can be raised.
    pub interrupts: Vec<(u32, u32)>,
    /// [`DEVICE_RESET`] and [`DEVICE_PCI`].
    pub flags: u32,
    /// The peer is the holder, which may resume the device for a frontend of an earlier daemon
    /// ([`RESUME`](super::message::command::RESUME)).
    pub may_resume: bool,
}

impl DeviceDescription {
    /// Returns a region, unless the device has none of that index.
    pub fn region(&self, index: u32) -> Option<&RegionDescription> {
        self.regions.iter().find(|region| region.index == index)
    }
}
