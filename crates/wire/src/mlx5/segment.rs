//! The segments of which work queue entries consist, each a multiple of [`UNIT`] (16) bytes.
//!
//! [`super::work_request`] puts segments together and re-exports them: drivers ([`super`]) write
//! entries; the device reads them after it has copied an entry to private memory. The functions
//! check that segments are complete ([`Truncated`]), not keys, addresses, lengths of payloads, or
//! the combination of segments.
//!
//! The device ignores the fence and the signature of [`ControlSegment`], the rate, service level
//! and local identifier of [`DatagramSegment`] (fields of InfiniBand links), and refuses entries of
//! masked atomic operations. The device runs in the dispatcher's turn.

use super::completion_queue::CompletionOpcode;
use super::field::{at, codes, layout};
use crate::Truncated;

/// Unit of lengths in work queue entries, in bytes.
pub const UNIT: usize = 16;
/// Bit of a data segment's first word: the data follows the word.
pub const INLINE: u32 = 1 << 31;
/// Length of a data segment whose length field is 0, in bytes.
pub const ZERO_LENGTH_MEANS: u32 = 1 << 31;

codes! {
    /// Operation of a send queue entry.
    pub enum SendOpcode: u8 {
        /// Completes without an effect.
        Nop = 0x00 "NOP",
        /// Sends a message; the responder invalidates a key.
        SendInvalidate = 0x01 "SEND_INVAL",
        /// Writes to the responder's memory.
        Write = 0x08 "RDMA_WRITE",
        /// Writes, and consumes a receive work request with immediate data.
        WriteImmediate = 0x09 "RDMA_WRITE_IMM",
        /// Sends a message, or an Ethernet frame.
        Send = 0x0a "SEND",
        /// Sends a message with immediate data.
        SendImmediate = 0x0b "SEND_IMM",
        /// Sends an Ethernet frame that the device cuts to segments.
        Segmentation = 0x0e "LSO",
        /// Reads the responder's memory.
        Read = 0x10 "RDMA_READ",
        /// Compares and swaps 8 bytes.
        CompareSwap = 0x11 "ATOMIC_CS",
        /// Adds to 8 bytes.
        FetchAdd = 0x12 "ATOMIC_FA",
        /// As [`Self::CompareSwap`], under masks.
        MaskedCompareSwap = 0x14 "ATOMIC_MASKED_CS",
        /// As [`Self::FetchAdd`], under a mask.
        MaskedFetchAdd = 0x15 "ATOMIC_MASKED_FA",
        /// Changes a memory key.
        Update = 0x25 "UMR",
    }
}

impl SendOpcode {
    /// Returns true if a [`RemoteAddressSegment`] follows.
    pub const fn has_remote_address(self) -> bool {
        use SendOpcode as O;
        matches!(self, O::Write | O::WriteImmediate | O::Read) || self.is_atomic()
    }

    /// Returns true for operations on 8 bytes of the responder.
    pub const fn is_atomic(self) -> bool {
        use SendOpcode as O;
        matches!(self, O::CompareSwap | O::FetchAdd | O::MaskedCompareSwap | O::MaskedFetchAdd)
    }

    /// Returns the opcode of the receiver's completion, or `None` if there is none.
    pub const fn receive_opcode(self) -> Option<CompletionOpcode> {
        match self {
            Self::Send => Some(CompletionOpcode::ReceiveSend),
            Self::SendImmediate => Some(CompletionOpcode::ReceiveSendImmediate),
            Self::SendInvalidate => Some(CompletionOpcode::ReceiveSendInvalidate),
            Self::WriteImmediate => Some(CompletionOpcode::ReceiveWriteImmediate),
            _ => None,
        }
    }
}

/// [`ControlSegment::completion`]: only an error makes a completion.
pub const COMPLETION_ON_ERROR: u8 = 0;
/// [`ControlSegment::completion`]: the entry makes a completion.
pub const COMPLETION_ALWAYS: u8 = 2;
/// [`ControlSegment::completion`]: the entry makes a completion and an event.
pub const COMPLETION_AND_EVENT: u8 = 3;

layout! {
    /// The first segment of each entry of a send queue.
    pub struct ControlSegment("control segment", 16) {
        /// Variant of the operation.
        modifier: u8 = at(0x00, 0, 8),
        /// Counter of the queue's blocks at this entry.
        index: u16 = at(0x01, 0, 16),
        /// Code of a [`SendOpcode`].
        opcode: u8 = at(0x03, 0, 8),
        /// Queue.
        queue: u32 = at(0x04, 0, 24),
        /// Length of the entry, in units of 16 bytes, with this segment. 0 is invalid.
        size: u8 = at(0x07, 2, 6),
        /// Signature; unused.
        signature: u8 = at(0x08, 0, 8),
        /// Order relative to earlier entries; 0 none.
        fence: u8 = at(0x0b, 0, 3),
        /// A `COMPLETION_` constant.
        completion: u8 = at(0x0b, 4, 2),
        /// The receiver's completion is a solicited event.
        is_solicited: bool = at(0x0b, 6, 1),
        /// Immediate data, or the key that the operation changes.
        immediate: u32 = at(0x0c, 0, 32),
    }
}

impl ControlSegment {
    /// Returns the operation, or `None` if the code is not known.
    pub const fn operation(&self) -> Option<SendOpcode> {
        SendOpcode::from_raw(self.opcode)
    }

    /// Returns the length of the entry, in bytes.
    pub const fn len(&self) -> usize {
        (self.size as usize).wrapping_mul(UNIT)
    }

    /// Returns true if the length is 0, which is invalid.
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Returns true if the success of the entry makes a completion.
    pub const fn is_signaled(&self) -> bool {
        self.completion & COMPLETION_ALWAYS != 0
    }
}

layout! {
    /// Destination of a datagram.
    pub struct DatagramSegment("datagram segment", 48) {
        /// Queue key; with the top bit set, the sender's own.
        queue_key: u32 = at(0x00, 0, 32),
        /// The segment has all fields; otherwise those up to the local identifier.
        is_extended: bool = at(0x08, 0, 1),
        /// Queue pair of the destination.
        queue_pair: u32 = at(0x09, 0, 24),
        /// Rate limit, in the codes of InfiniBand.
        static_rate: u8 = at(0x0c, 0, 4),
        /// Service level.
        service_level: u8 = at(0x0c, 4, 4),
        /// Packets return to the sending function.
        is_forced_loopback: bool = at(0x0d, 0, 1),
        /// Lower bits of the source's local identifier.
        lid_path_bits: u8 = at(0x0d, 1, 7),
        /// Local identifier of the destination (InfiniBand links), or UDP source port (RoCE).
        lid_or_udp_port: u16 = at(0x0e, 0, 16),
        /// Ethernet address of the destination.
        mac: [u8; 6] = at(0x14, 0, 48),
        /// Traffic class.
        traffic_class: u8 = at(0x1a, 0, 8),
        /// Hop limit.
        hop_limit: u8 = at(0x1b, 0, 8),
        /// The packet has a global route header.
        has_grh: bool = at(0x1c, 1, 1),
        /// Index of the source in the GID table.
        source_gid_index: u8 = at(0x1c, 4, 8),
        /// Flow label.
        flow_label: u32 = at(0x1d, 4, 20),
        /// GID of the destination.
        gid: [u8; 16] = at(0x20, 0, 128),
    }
}

layout! {
    /// Memory of the responder.
    pub struct RemoteAddressSegment("remote address segment", 16) {
        /// Address of the first byte.
        address: u64 = at(0x00, 0, 64),
        /// Remote key.
        key: u32 = at(0x08, 0, 32),
    }
}

layout! {
    /// Operands of an atomic operation.
    pub struct AtomicSegment("atomic segment", 16) {
        /// New value, or summand.
        swap_or_add: u64 = at(0x00, 0, 64),
        /// Expected value; for [`SendOpcode::MaskedFetchAdd`] the bits that end a summand.
        compare: u64 = at(0x08, 0, 64),
    }
}

layout! {
    /// Masks of [`SendOpcode::MaskedCompareSwap`], behind the [`AtomicSegment`]. The mask of
    /// [`SendOpcode::MaskedFetchAdd`] is in the field `compare` of the [`AtomicSegment`].
    pub struct AtomicMaskSegment("atomic mask segment", 16) {
        /// Bits that are swapped.
        swap_or_add: u64 = at(0x00, 0, 64),
        /// Bits that are compared.
        compare: u64 = at(0x08, 0, 64),
    }
}

layout! {
    /// Receive queue of an XRC message.
    pub struct XrcSegment("XRC segment", 16) {
        /// Number of the shared receive queue.
        receive_queue: u32 = at(0x01, 0, 24),
    }
}

layout! {
    /// Memory of the requester.
    pub struct DataSegment("data segment", 16) {
        /// Length, in bytes; 0 means [`ZERO_LENGTH_MEANS`].
        raw_len: u32 = at(0x00, 0, 32),
        /// Local key.
        key: u32 = at(0x04, 0, 32),
        /// Address of the first byte.
        address: u64 = at(0x08, 0, 64),
    }
}

impl DataSegment {
    /// Returns the length, in bytes. The bit [`INLINE`] is not part of the length.
    pub const fn len(&self) -> u32 {
        match self.raw_len & !INLINE {
            0 => ZERO_LENGTH_MEANS,
            len => len,
        }
    }

    /// Returns true if the segment ends a list of a receive queue.
    pub const fn is_empty(&self) -> bool {
        self.raw_len == 0 && self.key == super::memory_key::RESERVED_LOCAL_KEY
    }

    /// Returns the segment that ends a list of a receive queue.
    pub const fn end() -> Self {
        Self { raw_len: 0, key: super::memory_key::RESERVED_LOCAL_KEY, address: 0 }
    }
}

/// [`EthernetSegment::checksums`]: the device writes the checksum of layer 3.
pub const CHECKSUM_L3: u8 = 1 << 6;
/// [`EthernetSegment::checksums`]: the device writes the checksum of layer 4.
pub const CHECKSUM_L4: u8 = 1 << 7;
/// [`EthernetSegment::checksums`]: the device writes the checksum of the inner layer 3.
pub const CHECKSUM_INNER_L3: u8 = 1 << 4;
/// [`EthernetSegment::checksums`]: the device writes the checksum of the inner layer 4.
pub const CHECKSUM_INNER_L4: u8 = 1 << 5;
/// Bit of [`EthernetSegment::inline_len`]: the device inserts the tag [`EthernetSegment::start`].
pub const INSERT_VLAN: u16 = 1 << 15;

layout! {
    /// Offloads and first bytes of an Ethernet frame.
    pub struct EthernetSegment("Ethernet segment", 16) {
        /// Sum of `CHECKSUM_` constants.
        checksums: u8 = at(0x04, 0, 8),
        /// Types of headers for [`SendQueueContext::has_software_parser`].
        ///
        /// [`SendQueueContext::has_software_parser`]:
        ///     super::work_queue::SendQueueContext::has_software_parser
        parser_flags: u8 = at(0x05, 0, 8),
        /// Payload of each segment that the device cuts; 14 bits.
        segment_size: u16 = at(0x06, 0, 16),
        /// Value that flow tables match.
        metadata: u32 = at(0x08, 0, 32),
        /// Length of the headers in the entry, in bytes; or [`INSERT_VLAN`].
        inline_len: u16 = at(0x0c, 0, 16),
        /// First bytes of the headers, or the VLAN tag. The others follow the segment.
        start: [u8; 2] = at(0x0e, 0, 16),
    }
}

impl EthernetSegment {
    /// Offset of the headers in the segment.
    pub const HEADERS: usize = 0x0e;

    /// Returns the length of the headers in the entry, in bytes: at most 1023.
    pub const fn headers_len(&self) -> usize {
        if self.inline_len & INSERT_VLAN != 0 { 0 } else { (self.inline_len & 0x3ff) as usize }
    }

    /// Returns the length of this segment with the headers, in bytes: a multiple of [`UNIT`].
    pub const fn padded_len(&self) -> usize {
        let end = Self::HEADERS.saturating_add(self.headers_len()).next_multiple_of(UNIT);
        if end < Self::LEN { Self::LEN } else { end }
    }

    /// Returns the tag to insert, or `None`.
    pub const fn vlan(&self) -> Option<u16> {
        if self.inline_len & INSERT_VLAN != 0 { Some(u16::from_be_bytes(self.start)) } else { None }
    }
}

/// A part of the payload of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Memory of the requester.
    Memory(DataSegment),
    /// Bytes in the entry.
    Inline(&'a [u8]),
}

/// The parts of the payload of a send work request, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payloads<'a> {
    rest: &'a [u8],
}

impl<'a> Payloads<'a> {
    /// Returns the parts that are in `bytes`, the end of an entry.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    fn split(&mut self) -> Result<Option<Payload<'a>>, Truncated> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let segment = DataSegment::parse(self.rest)?;
        if segment.raw_len & INLINE == 0 {
            self.rest = self.rest.get(DataSegment::LEN..).unwrap_or(&[]);
            return Ok(Some(Payload::Memory(segment)));
        }
        let len = (segment.raw_len & !INLINE) as usize;
        let end = len.saturating_add(4);
        let inline = self.rest.get(4..end).ok_or(Truncated {
            what: "inline segment",
            need: end,
            have: self.rest.len(),
        })?;
        self.rest = self.rest.get(end.next_multiple_of(UNIT)..).unwrap_or(&[]);
        Ok(Some(Payload::Inline(inline)))
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Result<Payload<'a>, Truncated>;

    /// Returns the next part. After an error there are no further parts.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let part = self.split();
        if part.is_err() {
            self.rest = &[];
        }
        part.transpose()
    }
}

/// The segments of a receive queue entry, up to the end mark. `bytes` are those of the entry,
/// without the [`super::work_queue::NextSegment`] of a linked list.
#[inline]
pub fn receive_segments(bytes: &[u8]) -> impl Iterator<Item = DataSegment> + '_ {
    let (segments, _) = bytes.as_chunks::<{ DataSegment::LEN }>();
    let segments = segments.iter().filter_map(|segment| DataSegment::parse(segment).ok());
    segments.take_while(|segment| !segment.is_empty())
}
