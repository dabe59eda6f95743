//! The formats of vfio-user messages: a header of 16 bytes, and fixed structures in little-endian
//! byte order.
//!
//! Sources: the vfio-user specification (QEMU, `docs/interop/vfio-user.rst`) and Linux
//! `include/uapi/linux/vfio.h`, whose structures and flags the messages carry. `stream` parses
//! headers; `server` and the native client parse and emit the payloads.
//!
//! The module checks lengths only: a payload shorter than its structure is no structure (`None`).
//! Values and limits are checked by the server. Payloads of up to
//! [`VFIO_PAYLOAD_BYTES_MAX`](crate::limits::VFIO_PAYLOAD_BYTES_MAX) bytes are accepted.

use super::fault::Reason;
use crate::limits::VFIO_PAYLOAD_BYTES_MAX;

/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 16;

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
}

/// The message is a reply; a command has type 0.
const TYPE_REPLY: u32 = 1;
/// Bits of the message type.
const TYPE_MASK: u32 = 0xf;
/// The sender expects no reply.
const NO_REPLY: u32 = 0x10;
/// The reply carries an errno.
const ERROR: u32 = 0x20;

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

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the message; a reply repeats that of its command.
    pub id: u16,
    /// The command code.
    pub command: u16,
    /// Length of the message, in bytes, header included.
    pub size: u32,
    /// Type, no-reply and error bits.
    pub flags: u32,
    /// The errno of an error reply.
    pub error: u32,
}

impl Header {
    /// Returns the header of a command with `payload` bytes.
    pub fn command(id: u16, command: u16, payload: usize) -> Self {
        Self { id, command, size: Self::size_of(payload), flags: 0, error: 0 }
    }

    /// Returns the header, marked as needing no reply.
    #[must_use]
    pub fn without_reply(self) -> Self {
        Self { flags: self.flags | NO_REPLY, ..self }
    }

    /// Returns the header of a reply to this command with `payload` bytes.
    #[must_use]
    pub fn reply(&self, payload: usize) -> Self {
        Self { size: Self::size_of(payload), flags: TYPE_REPLY, error: 0, ..*self }
    }

    /// Returns the header of a refusal of this command. A reply with the error bit and errno 0
    /// would be a success to QEMU, so 0 becomes EINVAL.
    #[must_use]
    pub fn refusal(&self, errno: i32) -> Self {
        const EINVAL: u32 = 22;
        let errno = u32::try_from(errno).ok().filter(|errno| *errno != 0).unwrap_or(EINVAL);
        Self { flags: TYPE_REPLY | ERROR, error: errno, ..self.reply(0) }
    }

    /// Returns the length of a message with `payload` bytes.
    fn size_of(payload: usize) -> u32 {
        u32::try_from(payload.saturating_add(HEADER_BYTES)).unwrap_or(u32::MAX)
    }

    /// Returns whether the message is a command.
    pub fn is_command(&self) -> bool {
        self.flags & TYPE_MASK == 0
    }

    /// Returns whether the message is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    /// Returns whether the sender expects a reply.
    pub fn needs_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// Returns the errno of an error reply.
    pub fn errno(&self) -> Option<i32> {
        (self.flags & ERROR != 0).then(|| i32::try_from(self.error).unwrap_or(i32::MAX))
    }

    /// Returns the length of the payload, in bytes.
    pub fn payload_bytes(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES)
    }

    /// Parses a header and checks the length of the payload.
    ///
    /// # Errors
    /// Returns [`Reason::Size`] if the size is below that of a header, or the payload too long.
    pub fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, Reason> {
        let [i0, i1, c0, c1, s0, s1, s2, s3, f0, f1, f2, f3, e0, e1, e2, e3] = bytes;
        let header = Self {
            id: u16::from_le_bytes([i0, i1]),
            command: u16::from_le_bytes([c0, c1]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
            error: u32::from_le_bytes([e0, e1, e2, e3]),
        };
        let is_short = usize::try_from(header.size).is_ok_and(|size| size < HEADER_BYTES);
        if is_short || header.payload_bytes() > VFIO_PAYLOAD_BYTES_MAX {
            return Err(Reason::Size { command: header.command, size: header.size });
        }
        Ok(header)
    }

    /// Returns the bytes of the header.
    pub fn emit(&self) -> Vec<u8> {
        let Self { id, command, size, flags, error } = self;
        let mut bytes = [id.to_le_bytes(), command.to_le_bytes()].concat();
        for word in [size, flags, error] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }
}

/// Returns the concatenation of 32-bit numbers.
fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// DMA_MAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaMap {
    /// [`DMA_READABLE`] and [`DMA_WRITABLE`].
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
    /// [`UNMAP_ALL`].
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
    /// Parses the payload. Areas beyond [`AREAS_MAX`](crate::limits::AREAS_MAX) are ignored.
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
    let count = usize::try_from(count).ok()?.min(crate::limits::AREAS_MAX);
    (0..count).map(|_| Some((reader.u64()?, reader.u64()?))).collect()
}

/// The reply to DEVICE_GET_IRQ_INFO, and its request with `flags` and `count` 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IrqInfo {
    /// [`IRQ_EVENTFD`] and [`IRQ_NORESIZE`].
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
