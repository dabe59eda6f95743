//! Entries of a send queue: the segments of an operation in their order, read and written.
//!
//! An entry begins with a [`ControlSegment`], which has the operation and the length. The segments
//! that follow depend on the operation and on the queue's kind ([`SendQueueKind`]). An entry has at
//! most [`ENTRY_MAX`] bytes and fills whole blocks of [`BLOCK`] bytes; it may continue at the
//! ring's begin. [`SendRequest::parse`] expects one contiguous copy of [`ControlSegment::len`]
//! bytes.
//!
//! Guests write entries. The device parses them: `mlx5::send_entry` for queue pairs, which turns
//! them into work of `causeway_verbs`, and `mlx5::ethernet::transmit` for frames; after an error it
//! puts the queue into its error state. [`SendWriter`] serves `causeway-mlx5-driver`, tests and
//! fuzz targets.
//!
//! The parser checks that the size is not 0 and within the bytes, that the queue's kind has the
//! operation, and that the segments before the payload are complete; [`Payloads`] returns an error
//! for an incomplete data segment. It does not check keys and addresses (`causeway_verbs` does),
//! total lengths (`causeway_verbs` does, and for frames `mlx5::ethernet::transmit`), or the queue
//! number and index in the control segment. It parses masked atomic operations, which the device
//! does not offer: `mlx5::send_entry` refuses them. The device runs in the dispatcher's turn.

pub use super::segment::*;

use super::memory_key::{MemoryKeyContext, UpdateControl, mask};
use super::queue_pair::{SEND_BLOCK, Service};
use crate::Truncated;

/// Length of a block of the send queue, in bytes (64).
pub const BLOCK: usize = SEND_BLOCK;
/// Largest length of an entry, in bytes (1,008): the control segment's field has 6 bits, and counts
/// units of 16 bytes ([`UNIT`]).
pub const ENTRY_MAX: usize = 63 * UNIT;

/// The kind of a send queue, which selects the segments of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendQueueKind {
    /// Of a connected queue pair.
    Connected,
    /// Of an extended reliable connection: an [`XrcSegment`] follows the control segment.
    ExtendedConnected,
    /// Of a datagram queue pair: a [`DatagramSegment`] follows the control segment.
    Datagram,
    /// Of a queue pair that changes memory keys only.
    Registration,
    /// Of Ethernet frames: an [`EthernetSegment`] follows the control segment.
    Ethernet,
}

impl SendQueueKind {
    /// Returns the kind for a queue pair's service, or `None` if the service is not supported.
    pub const fn of(service: Service) -> Option<Self> {
        Some(match service {
            Service::ReliableConnection | Service::UnreliableConnection => Self::Connected,
            Service::ExtendedReliableConnection => Self::ExtendedConnected,
            Service::UnreliableDatagram | Service::GeneralServices => Self::Datagram,
            Service::Registration => Self::Registration,
            Service::RawEthernet => Self::Ethernet,
            Service::SubnetManagement | Service::DynamicInitiator | Service::DynamicTarget => {
                return None;
            }
        })
    }
}

/// The reason why bytes are not a send queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A segment is cut off by the end of the entry.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The length in the control segment is 0, or more than the bytes at hand.
    #[error("send queue entry: size {0} of 16-byte units is out of range")]
    Size(u8),
    /// The operation is not known.
    #[error("send queue entry: unknown opcode {0:#04x}")]
    Opcode(u8),
    /// The queue's kind does not have the operation.
    #[error("send queue entry: {opcode} is not possible in a queue of kind {kind:?}")]
    Kind {
        /// Operation.
        opcode: SendOpcode,
        /// Kind of the queue.
        kind: SendQueueKind,
    },
}

/// The change of a memory key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// Mask, flags and length.
    pub control: UpdateControl,
    /// New values of the fields that the mask selects.
    pub context: MemoryKeyContext,
    /// New entries of the list.
    pub list: UpdateList<'a>,
}

/// The place of the new entries of a memory key's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateList<'a> {
    /// No list.
    None,
    /// In the entry of the send queue, [`super::page_list`] format.
    Inline(&'a [u8]),
    /// In memory.
    Memory(DataSegment),
}

/// A send queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// First segment.
    pub control: ControlSegment,
    /// Operation.
    pub opcode: SendOpcode,
    /// Receive queue at the responder, in queues of [`SendQueueKind::ExtendedConnected`].
    pub xrc: Option<XrcSegment>,
    /// Destination, in queues of [`SendQueueKind::Datagram`].
    pub datagram: Option<DatagramSegment>,
    /// Offloads, in queues of [`SendQueueKind::Ethernet`].
    pub ethernet: Option<EthernetSegment>,
    /// First bytes of the frame, in queues of [`SendQueueKind::Ethernet`].
    pub headers: &'a [u8],
    /// Memory of the responder.
    pub remote: Option<RemoteAddressSegment>,
    /// Operands of an atomic operation.
    pub atomic: Option<AtomicSegment>,
    /// Masks of a masked atomic operation.
    pub atomic_mask: Option<AtomicMaskSegment>,
    /// Change of a memory key.
    pub update: Option<Update<'a>>,
    /// Memory of the requester, or inline data.
    pub payload: Payloads<'a>,
}

/// The bytes of an entry that were not parsed yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Removes `len` bytes from the front.
    fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], Truncated> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Truncated {
            what,
            need: len,
            have: self.0.len(),
        })?;
        self.0 = rest;
        Ok(head)
    }

    /// Removes a segment from the front.
    #[inline]
    fn segment<T>(
        &mut self,
        len: usize,
        parse: fn(&[u8]) -> Result<T, Truncated>,
    ) -> Result<T, Truncated> {
        let value = parse(self.0)?;
        self.0 = self.0.get(len..).unwrap_or(&[]);
        Ok(value)
    }

    /// Removes an Ethernet segment with its headers from the front. Returns both.
    #[inline]
    fn ethernet(&mut self) -> Result<(EthernetSegment, &'a [u8]), Truncated> {
        let segment = EthernetSegment::parse(self.0)?;
        let bytes = self.take("inline headers", segment.padded_len())?;
        let headers = bytes.get(EthernetSegment::HEADERS..).unwrap_or(&[]);
        Ok((segment, headers.get(..segment.headers_len()).unwrap_or(&[])))
    }
}

/// An entry of a send queue of frames: the fields of a [`SendRequest`] that such entries have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRequest<'a> {
    /// First segment.
    pub control: ControlSegment,
    /// The device cuts the frame to segments.
    pub is_segmented: bool,
    /// Offloads.
    pub ethernet: EthernetSegment,
    /// First bytes of the frame.
    pub headers: &'a [u8],
    /// The other bytes.
    pub payload: Payloads<'a>,
}

impl<'a> FrameRequest<'a> {
    /// Parses an entry. Returns `None` for an entry without effect ([`SendOpcode::Nop`]).
    ///
    /// # Errors
    /// As for [`SendRequest::parse`] of [`SendQueueKind::Ethernet`]; entries without a frame are
    /// refused.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Error> {
        let control = ControlSegment::parse(bytes)?;
        let opcode = control.operation().ok_or(Error::Opcode(control.opcode))?;
        let entry = bytes.get(..control.len()).filter(|entry| !entry.is_empty());
        let entry = entry.ok_or(Error::Size(control.size))?;
        let is_segmented = match opcode {
            SendOpcode::Nop => return Ok(None),
            SendOpcode::Send => false,
            SendOpcode::Segmentation => true,
            _ => return Err(Error::Kind { opcode, kind: SendQueueKind::Ethernet }),
        };
        let mut rest = Rest(entry.get(ControlSegment::LEN..).unwrap_or(&[]));
        let (ethernet, headers) = rest.ethernet()?;
        let payload = Payloads::new(rest.0);
        Ok(Some(Self { control, is_segmented, ethernet, headers, payload }))
    }
}

impl<'a> SendRequest<'a> {
    /// Parses an entry of a queue of this kind. Bytes beyond the entry's length are ignored.
    ///
    /// # Errors
    /// [`Error`] if the length or operation is invalid, or a segment is incomplete.
    #[inline]
    pub fn parse(bytes: &'a [u8], kind: SendQueueKind) -> Result<Self, Error> {
        let control = ControlSegment::parse(bytes)?;
        let opcode = control.operation().ok_or(Error::Opcode(control.opcode))?;
        let entry = bytes.get(..control.len()).filter(|entry| !entry.is_empty());
        let entry = entry.ok_or(Error::Size(control.size))?;
        if !opcode.is_possible(kind) {
            return Err(Error::Kind { opcode, kind });
        }
        let mut request = Self {
            control,
            opcode,
            xrc: None,
            datagram: None,
            ethernet: None,
            headers: &[],
            remote: None,
            atomic: None,
            atomic_mask: None,
            update: None,
            payload: Payloads::new(&[]),
        };
        let mut rest = Rest(entry.get(ControlSegment::LEN..).unwrap_or(&[]));
        if opcode == SendOpcode::Nop {
            return Ok(request);
        }
        if opcode == SendOpcode::Update {
            request.update = Some(Self::parse_update(&mut rest)?);
            return Ok(request);
        }
        request.parse_transport(kind, &mut rest)?;
        request.parse_operands(&mut rest)?;
        request.payload = Payloads::new(rest.0);
        Ok(request)
    }

    #[inline]
    fn parse_transport(
        &mut self,
        kind: SendQueueKind,
        rest: &mut Rest<'a>,
    ) -> Result<(), Truncated> {
        match kind {
            SendQueueKind::ExtendedConnected => {
                self.xrc = Some(rest.segment(XrcSegment::LEN, XrcSegment::parse)?);
            }
            SendQueueKind::Datagram => {
                self.datagram = Some(rest.segment(DatagramSegment::LEN, DatagramSegment::parse)?);
            }
            SendQueueKind::Ethernet => {
                let (ethernet, headers) = rest.ethernet()?;
                (self.ethernet, self.headers) = (Some(ethernet), headers);
            }
            SendQueueKind::Connected | SendQueueKind::Registration => {}
        }
        Ok(())
    }

    #[inline]
    fn parse_operands(&mut self, rest: &mut Rest<'a>) -> Result<(), Truncated> {
        if self.opcode.has_remote_address() {
            let segment = rest.segment(RemoteAddressSegment::LEN, RemoteAddressSegment::parse)?;
            self.remote = Some(segment);
        }
        if self.opcode.is_atomic() {
            self.atomic = Some(rest.segment(AtomicSegment::LEN, AtomicSegment::parse)?);
        }
        if self.opcode == SendOpcode::MaskedCompareSwap {
            let segment = rest.segment(AtomicMaskSegment::LEN, AtomicMaskSegment::parse)?;
            self.atomic_mask = Some(segment);
        }
        Ok(())
    }

    fn parse_update(rest: &mut Rest<'a>) -> Result<Update<'a>, Truncated> {
        let control = rest.segment(UpdateControl::LEN, UpdateControl::parse)?;
        let context = rest.segment(MemoryKeyContext::LEN, MemoryKeyContext::parse)?;
        let len = usize::from(control.list_size).saturating_mul(UNIT);
        let is_freed = control.changes(mask::FREE) && context.is_free;
        let list = if len == 0 || is_freed {
            // The revocation of a key has a list size, but no list.
            UpdateList::None
        } else if control.is_inline {
            UpdateList::Inline(rest.take("inline list", len)?)
        } else {
            UpdateList::Memory(rest.segment(DataSegment::LEN, DataSegment::parse)?)
        };
        Ok(Update { control, context, list })
    }

    /// Returns the number of blocks that the entry fills.
    pub const fn blocks(&self) -> u16 {
        self.control.blocks()
    }
}

impl ControlSegment {
    /// Returns the number of blocks that the entry fills: 1 to 16.
    pub const fn blocks(&self) -> u16 {
        let blocks = (self.size as u16).div_ceil(const { (BLOCK / UNIT) as u16 });
        if blocks == 0 { 1 } else { blocks }
    }
}

impl SendOpcode {
    /// Returns true if a queue of this kind has the operation.
    pub const fn is_possible(self, kind: SendQueueKind) -> bool {
        use SendOpcode as O;
        match kind {
            SendQueueKind::Connected | SendQueueKind::ExtendedConnected => {
                !matches!(self, O::Segmentation)
            }
            SendQueueKind::Datagram => matches!(self, O::Nop | O::Send | O::SendImmediate),
            SendQueueKind::Registration => matches!(self, O::Nop | O::Update),
            SendQueueKind::Ethernet => {
                matches!(self, O::Nop | O::Send | O::Segmentation | O::Update)
            }
        }
    }
}

/// Writes a send queue entry, segment by segment.
///
/// The first segment that does not fit ends the entry: [`Self::finish`] then returns an error.
#[derive(Debug)]
pub struct SendWriter<'a> {
    bytes: &'a mut [u8],
    control: ControlSegment,
    len: usize,
    missing: Option<Truncated>,
}

impl<'a> SendWriter<'a> {
    /// Returns a writer to `bytes`, with room for at most [`ENTRY_MAX`] bytes. The size in
    /// `control` is ignored.
    pub fn new(bytes: &'a mut [u8], control: ControlSegment) -> Self {
        let mut writer = Self { bytes, control, len: 0, missing: None };
        writer.push(ControlSegment::LEN, &[]);
        writer
    }

    /// Appends `len` bytes that begin with `content`; the others are zero.
    fn push(&mut self, len: usize, content: &[u8]) {
        let end = self.len.saturating_add(len);
        match self.bytes.get_mut(self.len..end).filter(|_| end <= ENTRY_MAX) {
            Some(place) if self.missing.is_none() => {
                place.fill(0);
                for (to, from) in place.iter_mut().zip(content) {
                    *to = *from;
                }
                self.len = end;
            }
            _ => {
                let have = self.bytes.len().min(ENTRY_MAX);
                self.missing = Some(Truncated { what: "send queue entry", need: end, have });
            }
        }
    }

    /// Appends the receive queue of an XRC message.
    pub fn xrc(mut self, segment: &XrcSegment) -> Self {
        self.push(XrcSegment::LEN, &segment.to_bytes());
        self
    }

    /// Appends the destination of a datagram.
    pub fn datagram(mut self, segment: &DatagramSegment) -> Self {
        self.push(DatagramSegment::LEN, &segment.to_bytes());
        self
    }

    /// Appends the offloads of an Ethernet frame with its first bytes, `headers`. The length of
    /// `headers` replaces the segment's unless the segment inserts a VLAN tag.
    pub fn ethernet(mut self, mut segment: EthernetSegment, headers: &[u8]) -> Self {
        if segment.vlan().is_some() {
            self.push(EthernetSegment::LEN, &segment.to_bytes());
            return self;
        }
        segment.inline_len = u16::try_from(headers.len()).unwrap_or(u16::MAX) & 0x3ff;
        let begin = self.len;
        self.push(segment.padded_len(), &segment.to_bytes());
        let headers = headers.get(..segment.headers_len()).unwrap_or(headers);
        let place = self.bytes.get_mut(begin.saturating_add(EthernetSegment::HEADERS)..self.len);
        for (to, from) in place.into_iter().flatten().zip(headers) {
            *to = *from;
        }
        self
    }

    /// Appends the memory of the responder.
    pub fn remote(mut self, segment: &RemoteAddressSegment) -> Self {
        self.push(RemoteAddressSegment::LEN, &segment.to_bytes());
        self
    }

    /// Appends the operands of an atomic operation.
    pub fn atomic(mut self, segment: &AtomicSegment) -> Self {
        self.push(AtomicSegment::LEN, &segment.to_bytes());
        self
    }

    /// Appends the masks of an atomic operation.
    pub fn atomic_mask(mut self, segment: &AtomicMaskSegment) -> Self {
        self.push(AtomicMaskSegment::LEN, &segment.to_bytes());
        self
    }

    /// Appends the change of a memory key. The entries of an inline list follow.
    pub fn update(mut self, control: &UpdateControl, context: &MemoryKeyContext) -> Self {
        self.push(UpdateControl::LEN, &control.to_bytes());
        self.push(MemoryKeyContext::LEN, &context.to_bytes());
        self
    }

    /// Appends the inline list of a memory key; the length is padded to [`UNIT`].
    pub fn list(mut self, list: &[u8]) -> Self {
        self.push(list.len().next_multiple_of(UNIT), list);
        self
    }

    /// Appends memory of the requester.
    pub fn data(mut self, segment: &DataSegment) -> Self {
        self.push(DataSegment::LEN, &segment.to_bytes());
        self
    }

    /// Appends inline data; the length is padded to [`UNIT`].
    pub fn inline(mut self, data: &[u8]) -> Self {
        let begin = self.len;
        let len = data.len().saturating_add(4).next_multiple_of(UNIT);
        self.push(len, &((data.len() as u32 & !INLINE) | INLINE).to_be_bytes());
        let place = self.bytes.get_mut(begin.saturating_add(4)..self.len);
        for (to, from) in place.into_iter().flatten().zip(data) {
            *to = *from;
        }
        self
    }

    /// Writes the control segment with the size. Returns the number of blocks that the entry fills.
    ///
    /// # Errors
    /// [`Truncated`] if the entry is longer than the bytes, or than [`ENTRY_MAX`].
    pub fn finish(mut self) -> Result<u16, Truncated> {
        if let Some(missing) = self.missing {
            return Err(missing);
        }
        self.control.size = (self.len / UNIT) as u8;
        self.control.emit(self.bytes)?;
        Ok(self.control.blocks())
    }
}
