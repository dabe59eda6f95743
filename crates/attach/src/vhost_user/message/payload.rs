//! The payload structures of messages, and their encoding.
//!
//! [`super::Message::decode`] builds the structures, the backend reads them, and [`crate::native`]
//! encodes them. Numbers are in host byte order, as the protocol defines. The structures are plain
//! values; nothing here checks them against the state of a device, maps a file, or checks that an
//! address is granted. The decoder checks the lengths. The threads are those of [`super`].

use causeway_host::ReceivedFd;

/// Flag of a ring event message: no descriptor is attached, poll instead.
pub(super) const NO_DESCRIPTOR: u64 = 0x100;

/// A region as the frontend describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionSpec {
    /// Guest-physical address of the first byte.
    pub guest: u64,
    /// Length, in bytes.
    pub len: u64,
    /// The frontend's own address of the first byte.
    pub user: u64,
    /// Offset of the region in its file, in bytes.
    pub offset: u64,
}

/// A queue index and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingValue {
    /// Queue index.
    pub index: u32,
    /// The value.
    pub value: u32,
}

/// The addresses of a ring in the frontend's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// Queue index.
    pub index: u32,
    /// Bit 0: log writes to the used ring.
    pub flags: u32,
    /// The descriptor table.
    pub descriptors: u64,
    /// The used ring.
    pub used: u64,
    /// The available ring.
    pub available: u64,
    /// Guest address for logging the used ring. Unused: the log is addressed by the ring's own
    /// guest address.
    pub log: u64,
}

impl RingAddresses {
    /// Returns whether the ring has the same addresses as `other`; the logging fields may differ.
    pub fn has_same_addresses(&self, other: &Self) -> bool {
        *self == Self { flags: self.flags, log: self.log, ..*other }
    }
}

/// A queue index and an eventfd; `None` means that the receiver must poll.
#[derive(Debug)]
pub struct RingEvent {
    /// Queue index.
    pub index: u32,
    /// The eventfd.
    pub fd: Option<ReceivedFd>,
}

/// A part of the configuration space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSpace {
    /// Offset of the first byte.
    pub offset: u32,
    /// Number of bytes, requested or given.
    pub size: u32,
    /// Bit 0: writable fields only; bit 1: migration.
    pub flags: u32,
    /// The bytes; zeroes in a request.
    pub bytes: Vec<u8>,
}

/// Position of the dirty log in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSpec {
    /// Length, in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// Description of the in-flight buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InflightSpec {
    /// Length of the buffer, in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of queues.
    pub queues: u16,
    /// Descriptors of each queue.
    pub ring_size: u16,
    /// Whether the sender's structure ends in four bytes of padding.
    pub padded: bool,
}

impl RegionSpec {
    /// Returns the region's encoding.
    pub fn emit(&self) -> Vec<u8> {
        words([self.guest, self.len, self.user, self.offset])
    }
}

impl RingValue {
    /// Returns the pair's encoding.
    pub fn emit(&self) -> Vec<u8> {
        [self.index.to_ne_bytes(), self.value.to_ne_bytes()].concat()
    }
}

impl RingAddresses {
    /// Returns the encoding of the addresses.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = RingValue { index: self.index, value: self.flags }.emit();
        bytes.extend(words([self.descriptors, self.used, self.available, self.log]));
        bytes
    }
}

impl RingEvent {
    /// Returns the encoding of a ring event, with or without an eventfd.
    pub fn emit(index: u32, attached: bool) -> Vec<u8> {
        let flag = if attached { 0 } else { NO_DESCRIPTOR };
        words([u64::from(index) | flag])
    }
}

impl ConfigSpace {
    /// Returns the part's encoding.
    pub fn emit(&self) -> Vec<u8> {
        let head = [self.offset, self.size, self.flags].map(u32::to_ne_bytes);
        let mut bytes = head.concat();
        bytes.extend(&self.bytes);
        bytes
    }
}

impl InflightSpec {
    /// Returns the description's encoding.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = words([self.len, self.offset]);
        bytes.extend([self.queues, self.ring_size].map(u16::to_ne_bytes).concat());
        if self.padded {
            bytes.extend([0; 4]);
        }
        bytes
    }
}

/// Returns the encoding of a memory table.
pub fn emit_table(regions: &[RegionSpec]) -> Vec<u8> {
    let count = u32::try_from(regions.len()).unwrap_or(u32::MAX);
    let mut bytes = RingValue { index: count, value: 0 }.emit();
    bytes.extend(regions.iter().flat_map(RegionSpec::emit));
    bytes
}

/// Returns the encoding of ADD_MEM_REG and REM_MEM_REG.
pub fn emit_region(region: &RegionSpec) -> Vec<u8> {
    let mut bytes = words([0]);
    bytes.extend(region.emit());
    bytes
}

/// Returns the bytes of numbers.
fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.map(u64::to_ne_bytes).concat()
}

/// Reads numbers in host byte order from the front of a slice; zeroes past its end.
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl FieldReader<'_> {
    /// Takes the next `N` bytes.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => {
                self.0 = &[];
                [0; N]
            }
        }
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// Reads a region: guest address, length, frontend address, file offset.
    pub(super) fn region(&mut self) -> RegionSpec {
        RegionSpec { guest: self.u64(), len: self.u64(), user: self.u64(), offset: self.u64() }
    }
}
