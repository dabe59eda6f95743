//! The formats of vfio-user messages: a header of 16 bytes, and fixed structures in little-endian
//! byte order.
//!
//! Sources: the vfio-user specification (QEMU, `docs/interop/vfio-user.rst`) and Linux
//! `include/uapi/linux/vfio.h`, whose structures and flags the messages carry. `stream` parses
//! headers; `server` (in the control thread of a frontend), the native client and the holder parse
//! and emit the payloads.
//!
//! The module checks lengths, and the value of a RESUME: a payload shorter than its structure is no
//! structure (`None`), which the server refuses with EINVAL. Other values and limits are checked by
//! the server. Payloads of up to [`VFIO_PAYLOAD_BYTES_MAX`](crate::limits::VFIO_PAYLOAD_BYTES_MAX)
//! bytes (64 KiB + 16) are accepted. DEVICE_GET_REGION_IO_FDS, DMA_READ, DMA_WRITE,
//! REGION_WRITE_MULTI and DEVICE_FEATURE have codes only; the server refuses them, and commands
//! without a code, with EOPNOTSUPP.

mod header;
mod payload;
mod resume;

pub use header::{HEADER_BYTES, Header};
pub use payload::{
    DeviceInfo, DmaMap, DmaUnmap, IrqInfo, PayloadReader, RegionAccess, RegionInfo, SetIrqs,
};
pub use resume::ResumePhase;

/// Command codes.
pub mod command {
    /// Agrees on the version and on limits.
    pub const VERSION: u16 = 1;
    /// Grants a range of guest addresses.
    pub const DMA_MAP: u16 = 2;
    /// Revokes a range of guest addresses.
    pub const DMA_UNMAP: u16 = 3;
    /// Returns the numbers of regions and interrupt types.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// Returns the size and the mappable areas of a region.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Returns the I/O descriptors of a region.
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    /// Returns the number of vectors of an interrupt type.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Assigns eventfds to vectors.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Reads a region.
    pub const REGION_READ: u16 = 9;
    /// Writes a region.
    pub const REGION_WRITE: u16 = 10;
    /// Reads guest memory (sent by a server).
    pub const DMA_READ: u16 = 11;
    /// Writes guest memory (sent by a server).
    pub const DMA_WRITE: u16 = 12;
    /// Resets the device.
    pub const DEVICE_RESET: u16 = 13;
    /// Writes several registers of regions.
    pub const REGION_WRITE_MULTI: u16 = 15;
    /// Reads or sets an optional feature.
    pub const DEVICE_FEATURE: u16 = 16;
    /// Private to this project: the holder sets a device up again for a frontend that has been
    /// connected before. The payload is a [`ResumePhase`](super::ResumePhase). A frontend's own
    /// command of this code is refused.
    pub const RESUME: u16 = 0xca00;
}

/// DMA flag: the device may read.
pub const DMA_READABLE: u32 = 1;
/// DMA flag: the device may write.
pub const DMA_WRITABLE: u32 = 2;
/// Unmap flag: all mappings.
pub const UNMAP_ALL: u32 = 2;
/// Region flag: areas may be mapped.
pub const REGION_MMAP: u32 = 4;
/// Region flag: capabilities follow the structure.
pub const REGION_CAPS: u32 = 8;
/// Interrupt flag: signalled by eventfd.
pub const IRQ_EVENTFD: u32 = 1;
/// Interrupt flag: the number of vectors is fixed.
pub const IRQ_NORESIZE: u32 = 8;
/// SET_IRQS flag: no data.
pub const SET_DATA_NONE: u32 = 1;
/// SET_IRQS flag: one byte for each vector.
pub const SET_DATA_BOOL: u32 = 2;
/// SET_IRQS flag: one eventfd for each vector.
pub const SET_DATA_EVENTFD: u32 = 4;
/// SET_IRQS flag: the action triggers vectors.
pub const SET_ACTION_TRIGGER: u32 = 32;
