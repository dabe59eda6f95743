//! The payloads of messages: the structures of `vfio.h`, in little-endian byte order.
//!
//! Each type parses the payload of a command or reply and emits both; the first number of most
//! structures is their length and is ignored. A payload shorter than its structure is `None`;
//! longer payloads are accepted here. The server compares the length of DMA commands and register
//! accesses, and checks flags, indices, alignment and ranges. The server parses commands and emits
//! replies; the native client does the reverse. Areas of a region beyond [`AREAS_MAX`] (64) are
//! ignored. It runs in the caller's thread: the control thread, the native client's, or a relay of
//! the holder.

use super::{REGION_CAPS, REGION_MMAP};
use crate::limits::AREAS_MAX;

/// Identifier of the capability that lists mappable areas.
const CAP_SPARSE_MMAP: u16 = 1;
/// Length of a region structure, in bytes.
pub const REGION_INFO_BYTES: usize = 32;
/// Length of the capability before its areas, in bytes.
const SPARSE_BYTES: usize = 16;

/// Reads little-endian numbers from the start of a payload.
#[derive(Debug, Clone, Copy)]
pub struct PayloadReader<'a>(pub &'a [u8]);

impl<'a> PayloadReader<'a> {
    /// Returns the next `N` bytes.
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*value)
    }

    /// Returns the next 16-bit number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Returns the next 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Returns the next 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns the unread bytes.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Returns the concatenation of 32-bit numbers.
fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// DMA_MAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaMap {
    /// [`DMA_READABLE`](super::DMA_READABLE) and [`DMA_WRITABLE`](super::DMA_WRITABLE).
    pub flags: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Guest address (I/O virtual address).
    pub address: u64,
    /// Length, in bytes.
    pub size: u64,
}

impl DmaMap {
    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = PayloadReader(payload);
        reader.u32()?;
        let (flags, offset) = (reader.u32()?, reader.u64()?);
        Some(Self { flags, offset, address: reader.u64()?, size: reader.u64()? })
    }

    /// Returns the payload.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = words([32, self.flags]);
        for word in [self.offset, self.address, self.size] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }
}

/// DMA_UNMAP, and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaUnmap {
    /// [`UNMAP_ALL`](super::UNMAP_ALL).
    pub flags: u32,
    /// Guest address.
    pub address: u64,
    /// Length, in bytes.
    pub size: u64,
}

impl DmaUnmap {
    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = PayloadReader(payload);
        reader.u32()?;
        Some(Self { flags: reader.u32()?, address: reader.u64()?, size: reader.u64()? })
    }

    /// Returns the payload.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = words([24, self.flags]);
        bytes.extend(self.address.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes
    }
}

/// The reply to DEVICE_GET_INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Flags of the device.
    pub flags: u32,
    /// Number of regions.
    pub regions: u32,
    /// Number of interrupt types.
    pub interrupts: u32,
}

impl DeviceInfo {
    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = PayloadReader(payload);
        reader.u32()?;
        Some(Self { flags: reader.u32()?, regions: reader.u32()?, interrupts: reader.u32()? })
    }

    /// Returns the payload.
    pub fn emit(&self) -> Vec<u8> {
        words([16, self.flags, self.regions, self.interrupts])
    }
}

/// DEVICE_GET_REGION_INFO, and its reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegionInfo {
    /// Bytes that the sender has room for; in a reply, the bytes that all capabilities need.
    pub room: u32,
    /// Flags of the region.
    pub flags: u32,
    /// Index of the region.
    pub index: u32,
    /// Length of the region, in bytes.
    pub size: u64,
    /// Mappable areas: offset and length.
    pub areas: Vec<(u64, u64)>,
}

impl RegionInfo {
    /// Parses the payload. Areas beyond [`AREAS_MAX`] (64) are ignored.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = PayloadReader(payload);
        let (room, flags, index) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (at, size, _offset) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let mut areas = Vec::new();
        if flags & REGION_CAPS != 0
            && let Some(capability) = payload.get(usize::try_from(at).ok()?..)
        {
            areas = parse_areas(capability).unwrap_or_default();
        }
        Some(Self { room, flags, index, size, areas })
    }

    /// Returns the number of bytes of the complete payload.
    pub fn full_bytes(&self) -> usize {
        if self.areas.is_empty() {
            return REGION_INFO_BYTES;
        }
        let areas = self.areas.len().saturating_mul(16);
        areas.saturating_add(REGION_INFO_BYTES).saturating_add(SPARSE_BYTES)
    }

    /// Returns the payload of a request.
    pub fn emit_request(index: u32, room: u32) -> Vec<u8> {
        let mut bytes = words([room, 0, index, 0]);
        bytes.extend([0; 16]);
        bytes
    }

    /// Returns the payload of a reply, with the areas if `with_areas`. The offset of the capability
    /// is emitted even if the areas do not fit, because QEMU refuses a smaller offset.
    pub fn emit(&self, with_areas: bool) -> Vec<u8> {
        let has_areas = !self.areas.is_empty();
        let at = if has_areas { 32 } else { 0 };
        let flags = if has_areas { self.flags | REGION_MMAP | REGION_CAPS } else { self.flags };
        let full = u32::try_from(self.full_bytes()).unwrap_or(u32::MAX);
        let mut bytes = words([full, flags, self.index, at]);
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        if has_areas && with_areas {
            let count = u32::try_from(self.areas.len()).unwrap_or(u32::MAX);
            bytes.extend(CAP_SPARSE_MMAP.to_le_bytes());
            bytes.extend(1_u16.to_le_bytes());
            bytes.extend(words([0, count, 0]));
            for (offset, size) in &self.areas {
                bytes.extend(offset.to_le_bytes());
                bytes.extend(size.to_le_bytes());
            }
        }
        bytes
    }
}

/// Parses the first capability, if it lists mappable areas.
fn parse_areas(capability: &[u8]) -> Option<Vec<(u64, u64)>> {
    let mut reader = PayloadReader(capability);
    let (id, _version, _next) = (reader.u16()?, reader.u16()?, reader.u32()?);
    if id != CAP_SPARSE_MMAP {
        return None;
    }
    let (count, _reserved) = (reader.u32()?, reader.u32()?);
    let count = usize::try_from(count).ok()?.min(AREAS_MAX);
    (0..count).map(|_| Some((reader.u64()?, reader.u64()?))).collect()
}

/// The reply to DEVICE_GET_IRQ_INFO, and its request with `flags` and `count` 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IrqInfo {
    /// [`IRQ_EVENTFD`](super::IRQ_EVENTFD) and [`IRQ_NORESIZE`](super::IRQ_NORESIZE).
    pub flags: u32,
    /// Index of the interrupt type.
    pub index: u32,
    /// Number of vectors.
    pub count: u32,
}

impl IrqInfo {
    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = PayloadReader(payload);
        reader.u32()?;
        Some(Self { flags: reader.u32()?, index: reader.u32()?, count: reader.u32()? })
    }

    /// Returns the payload.
    pub fn emit(&self) -> Vec<u8> {
        words([16, self.flags, self.index, self.count])
    }
}

/// DEVICE_SET_IRQS, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetIrqs {
    /// Kind of the data, and action.
    pub flags: u32,
    /// Index of the interrupt type.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Number of vectors.
    pub count: u32,
}

impl SetIrqs {
    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = PayloadReader(payload);
        reader.u32()?;
        let (flags, index) = (reader.u32()?, reader.u32()?);
        Some(Self { flags, index, start: reader.u32()?, count: reader.u32()? })
    }

    /// Returns the payload.
    pub fn emit(&self) -> Vec<u8> {
        words([20, self.flags, self.index, self.start, self.count])
    }
}

/// REGION_READ and REGION_WRITE, before the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionAccess {
    /// Offset in the region, in bytes.
    pub offset: u64,
    /// Index of the region.
    pub region: u32,
    /// Length, in bytes.
    pub count: u32,
}

impl RegionAccess {
    /// Parses the payload and returns the data after it.
    pub fn parse(payload: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = PayloadReader(payload);
        let (offset, region) = (reader.u64()?, reader.u32()?);
        let access = Self { offset, region, count: reader.u32()? };
        Some((access, reader.rest()))
    }

    /// Returns the payload before the data.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = self.offset.to_le_bytes().to_vec();
        bytes.extend(words([self.region, self.count]));
        bytes
    }
}
