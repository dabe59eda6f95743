//! RoCE version 2: the InfiniBand transport over UDP (InfiniBand specification, 5.2, 9 and annex
//! A17).
//!
//! A packet is an IP header, a UDP header to port [`PORT`], the base transport header, headers that
//! the opcode selects, the payload, up to 3 bytes of padding and the invariant CRC. [`Headers`]
//! holds the base header and those of the opcode; [`packet`] splits a datagram into headers,
//! payload and CRC; [`invariant_crc`] makes the CRC.
//!
//! ```
//! use causeway_wire::roce::{BaseHeader, Headers, Opcode, Operation, Transport};
//!
//! let opcode = Opcode::message(Transport::Reliable, Operation::Acknowledge).unwrap();
//! let headers = Headers { acknowledgement: Some(7), ..Headers::new(BaseHeader::new(opcode, 9, 42)) };
//! let (bytes, len) = headers.emit();
//! assert_eq!(len, 16);
//! assert_eq!(Headers::parse(&bytes[..len])?, (headers, 16));
//! # Ok::<(), causeway_wire::roce::Error>(())
//! ```
//!
//! # Limits
//! The parsers check lengths, opcode, version and padding ([`Error`]). Reserved bits are ignored,
//! and written as zero. The order of the packets of a message, sequence numbers and keys are left
//! to the caller, and so is the check of the CRC. The daemon neither sends nor receives these
//! packets: captures of adapters (`hca::packets`, in the dispatcher's turn) write them into pcapng
//! files. Only tests and fuzz targets parse them.

mod crc;
mod opcode;

use crate::field::{Reader, Truncated, Writer};

pub use crc::invariant_crc;
pub use opcode::{Opcode, Operation, Transport};

/// UDP port of RoCE version 2.
pub const PORT: u16 = 4791;
/// Length of a UDP header, in bytes.
pub const UDP_LEN: usize = crate::udp::HEADER_LEN;
/// Length of the base transport header (BTH), in bytes.
pub const BASE_LEN: usize = 12;
/// Largest length of all transport headers, in bytes: those of an atomic operation of an extended
/// reliable connection.
pub const HEADERS_LEN_MAX: usize = 44;
/// Length of the invariant CRC, in bytes.
pub const CRC_LEN: usize = 4;
/// The default partition key.
pub const PARTITION_DEFAULT: u16 = 0xffff;
/// Bits of queue pair numbers, sequence numbers and message numbers.
const NUMBER_MASK: u32 = 0xff_ffff;

/// The reason why bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A header is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The opcode is unknown.
    #[error("base transport header: opcode is {0:#04x}")]
    Opcode(u8),
    /// The version of the transport is not 0.
    #[error("base transport header: version is {0}")]
    Version(u8),
    /// The padding is longer than the payload.
    #[error("base transport header: {0} bytes of padding in a shorter payload")]
    Padding(u8),
}

/// The base transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseHeader {
    /// Opcode.
    pub opcode: Opcode,
    /// The responder reports a solicited event.
    pub is_solicited: bool,
    /// The connection uses its primary path.
    pub is_migrated: bool,
    /// Bytes of padding, 0 to 3.
    pub padding: u8,
    /// Partition key.
    pub partition: u16,
    /// The packet met congestion.
    pub has_fecn: bool,
    /// A packet to the sender met congestion.
    pub has_becn: bool,
    /// Destination queue pair; 24 bits.
    pub queue_pair: u32,
    /// The responder acknowledges the packet.
    pub wants_acknowledgement: bool,
    /// Packet sequence number; 24 bits.
    pub sequence: u32,
}

impl BaseHeader {
    /// Returns a header with the default partition, and without padding and flags.
    pub const fn new(opcode: Opcode, queue_pair: u32, sequence: u32) -> Self {
        Self {
            opcode,
            is_solicited: false,
            is_migrated: true,
            padding: 0,
            partition: PARTITION_DEFAULT,
            has_fecn: false,
            has_becn: false,
            queue_pair: queue_pair & NUMBER_MASK,
            wants_acknowledgement: false,
            sequence: sequence & NUMBER_MASK,
        }
    }

    /// Parses a header.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Opcode`] or [`Error::Version`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new("base transport header", BASE_LEN, bytes)?;
        let (code, flags) = (r.u8(), r.u8());
        let opcode = Opcode::from_raw(code).ok_or(Error::Opcode(code))?;
        let version = flags & 0x0f;
        if version != 0 {
            return Err(Error::Version(version));
        }
        let partition = r.u16_be();
        let [queue_pair, sequence] = [(); 2].map(|()| u32::from_be_bytes(r.take()));
        Ok(Self {
            opcode,
            is_solicited: flags & 0x80 != 0,
            is_migrated: flags & 0x40 != 0,
            padding: flags >> 4 & 3,
            partition,
            has_fecn: queue_pair >> 31 != 0,
            has_becn: queue_pair >> 30 & 1 != 0,
            queue_pair: queue_pair & NUMBER_MASK,
            wants_acknowledgement: sequence >> 31 != 0,
            sequence: sequence & NUMBER_MASK,
        })
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; BASE_LEN] {
        let bit = |flag: bool, at: u32| u32::from(flag).wrapping_shl(at);
        let flags = u8::from(self.is_solicited) << 7
            | u8::from(self.is_migrated) << 6
            | (self.padding & 3) << 4;
        let queue_pair = bit(self.has_fecn, 31) | bit(self.has_becn, 30);
        let queue_pair = queue_pair | self.queue_pair & NUMBER_MASK;
        let sequence = bit(self.wants_acknowledgement, 31) | self.sequence & NUMBER_MASK;
        let mut bytes = [0; BASE_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put([self.opcode.raw(), flags]);
        w.put(self.partition.to_be_bytes());
        w.put(queue_pair.to_be_bytes());
        w.put(sequence.to_be_bytes());
        bytes
    }
}

/// The datagram header (DETH).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Datagram {
    /// Queue key.
    pub queue_key: u32,
    /// Source queue pair; 24 bits.
    pub source: u32,
}

/// The RDMA header (RETH).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remote {
    /// Address in the responder's region.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Length of the message, in bytes.
    pub len: u32,
}

/// The atomic header (AtomicETH).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Atomic {
    /// Address in the responder's region.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Value to store, or summand.
    pub swap_or_add: u64,
    /// Expected value; 0 in a fetch-and-add.
    pub compare: u64,
}

/// The transport headers of a packet. Each header that the opcode does not have is `None`; [`emit`]
/// writes zeroes for a header that is missing, and omits one that is superfluous.
///
/// [`emit`]: Self::emit
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Base header.
    pub base: BaseHeader,
    /// Of a datagram.
    pub datagram: Option<Datagram>,
    /// Shared receive queue of a request of an extended reliable connection (XRCETH); 24 bits.
    pub xrc_queue: Option<u32>,
    /// Of a write or read request.
    pub remote: Option<Remote>,
    /// Of an atomic request.
    pub atomic: Option<Atomic>,
    /// Of an acknowledgement (AETH): the syndrome in the upper 8 bits, the message number below.
    pub acknowledgement: Option<u32>,
    /// Of an atomic acknowledgement (AtomicAckETH): the value before the operation.
    pub original: Option<u64>,
    /// Immediate data (ImmDt).
    pub immediate: Option<u32>,
    /// Key that the responder invalidates (IETH).
    pub invalidated: Option<u32>,
}

impl Headers {
    /// Returns headers with a base header alone.
    pub const fn new(base: BaseHeader) -> Self {
        Self {
            base,
            datagram: None,
            xrc_queue: None,
            remote: None,
            atomic: None,
            acknowledgement: None,
            original: None,
            immediate: None,
            invalidated: None,
        }
    }

    /// Parses the headers at the start of `bytes`. Returns them with their length.
    ///
    /// # Errors
    /// [`Error`], but for [`Error::Padding`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Error> {
        let mut headers = Self::new(BaseHeader::parse(bytes)?);
        let Opcode::Message(transport, operation) = headers.base.opcode else {
            return Ok((headers, BASE_LEN));
        };
        let len = len_of(transport, operation);
        let mut r = Reader::new("transport headers", len, bytes)?;
        let _: [u8; BASE_LEN] = r.take();
        if transport == Transport::Datagram {
            let [queue_key, source] = [(); 2].map(|()| u32::from_be_bytes(r.take()));
            headers.datagram = Some(Datagram { queue_key, source: source & NUMBER_MASK });
        }
        if has_xrc_queue(transport, operation) {
            headers.xrc_queue = Some(u32::from_be_bytes(r.take()) & NUMBER_MASK);
        }
        if operation.has_remote() {
            let address = u64::from_be_bytes(r.take());
            let [key, len] = [(); 2].map(|()| u32::from_be_bytes(r.take()));
            headers.remote = Some(Remote { address, key, len });
        }
        if operation.has_atomic() {
            let (address, key) = (u64::from_be_bytes(r.take()), u32::from_be_bytes(r.take()));
            let [swap_or_add, compare] = [(); 2].map(|()| u64::from_be_bytes(r.take()));
            headers.atomic = Some(Atomic { address, key, swap_or_add, compare });
        }
        if operation.has_acknowledgement() {
            headers.acknowledgement = Some(u32::from_be_bytes(r.take()));
        }
        if operation == Operation::AtomicAcknowledge {
            headers.original = Some(u64::from_be_bytes(r.take()));
        }
        if operation.has_immediate() {
            headers.immediate = Some(u32::from_be_bytes(r.take()));
        }
        if operation.has_invalidated() {
            headers.invalidated = Some(u32::from_be_bytes(r.take()));
        }
        Ok((headers, len))
    }

    /// Encodes the headers. Returns the bytes, and how many of them are used.
    pub fn emit(&self) -> ([u8; HEADERS_LEN_MAX], usize) {
        let mut bytes = [0; HEADERS_LEN_MAX];
        let mut w = Writer::new(&mut bytes);
        w.put(self.base.emit());
        let Opcode::Message(transport, operation) = self.base.opcode else {
            return (bytes, BASE_LEN);
        };
        if transport == Transport::Datagram {
            let datagram = self.datagram.unwrap_or_default();
            w.put(datagram.queue_key.to_be_bytes());
            w.put((datagram.source & NUMBER_MASK).to_be_bytes());
        }
        if has_xrc_queue(transport, operation) {
            w.put((self.xrc_queue.unwrap_or_default() & NUMBER_MASK).to_be_bytes());
        }
        if operation.has_remote() {
            let remote = self.remote.unwrap_or_default();
            w.put(remote.address.to_be_bytes());
            w.put(remote.key.to_be_bytes());
            w.put(remote.len.to_be_bytes());
        }
        if operation.has_atomic() {
            let atomic = self.atomic.unwrap_or_default();
            w.put(atomic.address.to_be_bytes());
            w.put(atomic.key.to_be_bytes());
            w.put(atomic.swap_or_add.to_be_bytes());
            w.put(atomic.compare.to_be_bytes());
        }
        if operation.has_acknowledgement() {
            w.put(self.acknowledgement.unwrap_or_default().to_be_bytes());
        }
        if operation == Operation::AtomicAcknowledge {
            w.put(self.original.unwrap_or_default().to_be_bytes());
        }
        if operation.has_immediate() {
            w.put(self.immediate.unwrap_or_default().to_be_bytes());
        }
        if operation.has_invalidated() {
            w.put(self.invalidated.unwrap_or_default().to_be_bytes());
        }
        (bytes, len_of(transport, operation))
    }
}

/// Returns whether a header with a shared receive queue (XRCETH) follows the base header.
fn has_xrc_queue(transport: Transport, operation: Operation) -> bool {
    transport == Transport::Extended && !operation.is_response()
}

/// Returns the length of the headers of an opcode.
fn len_of(transport: Transport, operation: Operation) -> usize {
    let parts = [
        (transport == Transport::Datagram, 8),
        (has_xrc_queue(transport, operation), 4),
        (operation.has_remote(), 16),
        (operation.has_atomic(), 28),
        (operation.has_acknowledgement(), 4),
        (operation == Operation::AtomicAcknowledge, 8),
        (operation.has_immediate(), 4),
        (operation.has_invalidated(), 4),
    ];
    let present = parts.iter().filter(|(is_present, _)| *is_present);
    present.fold(BASE_LEN, |sum: usize, (_, len)| sum.saturating_add(*len))
}

/// A packet, from the base transport header on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Headers.
    pub headers: Headers,
    /// Payload without padding.
    pub payload: &'a [u8],
    /// The invariant CRC, unverified.
    pub crc: [u8; CRC_LEN],
}

/// Splits the payload of a UDP datagram.
///
/// # Errors
/// [`Error`].
pub fn packet(bytes: &[u8]) -> Result<Packet<'_>, Error> {
    let (headers, len) = Headers::parse(bytes)?;
    let needed = len.saturating_add(CRC_LEN);
    Truncated::check("RoCE packet", needed, bytes.len())?;
    let (rest, crc) = bytes.split_last_chunk().unwrap_or((bytes, &[0; CRC_LEN]));
    let padded = rest.get(len..).unwrap_or_default();
    let padding = headers.base.padding;
    let end = padded.len().checked_sub(usize::from(padding)).ok_or(Error::Padding(padding))?;
    Ok(Packet { headers, payload: padded.get(..end).unwrap_or_default(), crc: *crc })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns headers of every opcode with values from `seed`.
    fn samples(seed: u32) -> Vec<Headers> {
        let opcodes = (0..=u8::MAX).filter_map(Opcode::from_raw);
        let wide = u64::from(seed) << 32 | u64::from(!seed);
        opcodes
            .map(|opcode| {
                let mut headers = Headers::new(BaseHeader {
                    is_solicited: seed & 1 != 0,
                    is_migrated: seed & 2 != 0,
                    padding: (seed & 3) as u8,
                    partition: seed as u16,
                    has_fecn: seed & 4 != 0,
                    has_becn: seed & 8 != 0,
                    wants_acknowledgement: seed & 16 != 0,
                    ..BaseHeader::new(opcode, seed, !seed)
                });
                let Opcode::Message(transport, operation) = opcode else { return headers };
                let has = |exists: bool| exists.then_some(seed);
                headers.datagram = (transport == Transport::Datagram)
                    .then_some(Datagram { queue_key: seed, source: seed >> 8 });
                headers.xrc_queue = has(has_xrc_queue(transport, operation)).map(|own| own >> 8);
                headers.remote =
                    has(operation.has_remote()).map(|key| Remote { address: wide, key, len: !key });
                headers.atomic = has(operation.has_atomic()).map(|key| Atomic {
                    address: wide,
                    key,
                    swap_or_add: !wide,
                    compare: wide ^ 5,
                });
                headers.acknowledgement = has(operation.has_acknowledgement());
                headers.original = (operation == Operation::AtomicAcknowledge).then_some(wide);
                headers.immediate = has(operation.has_immediate());
                headers.invalidated = has(operation.has_invalidated());
                headers
            })
            .collect()
    }

    #[test]
    fn roce_headers_are_read_as_written() {
        for seed in [0, 1, 0x1234_5678, 0xffff_ffff, 0x8765_4321, 0xdead_beef] {
            for headers in samples(seed) {
                let (bytes, len) = headers.emit();
                assert_eq!(Headers::parse(&bytes[..len]), Ok((headers, len)), "{headers:?}");
                assert!(bytes[len..].iter().all(|byte| *byte == 0));
                let cut = Headers::parse(&bytes[..len - 1]);
                assert!(matches!(cut, Err(Error::Truncated(_))), "{headers:?}");
            }
        }
    }

    #[test]
    fn roce_packet_has_payload_without_padding_and_crc() {
        let opcode = Opcode::message(Transport::Unreliable, Operation::SendOnly).unwrap();
        let base = BaseHeader { padding: 2, ..BaseHeader::new(opcode, 211, 13_571_856) };
        let (headers, len) = Headers::new(base).emit();
        let bytes = [&headers[..len], b"abcdef\0\0", &[1, 2, 3, 4]].concat();
        let found = packet(&bytes).unwrap();
        assert_eq!((found.payload, found.crc), (&b"abcdef"[..], [1, 2, 3, 4]));
        assert_eq!((found.headers.base.queue_pair, found.headers.base.sequence), (211, 13_571_856));
        let short = [&headers[..len], &[0, 1, 2, 3, 4]].concat();
        assert_eq!(packet(&short), Err(Error::Padding(2)));
        assert!(matches!(packet(&bytes[..len + 3]), Err(Error::Truncated(_))));
    }

    #[test]
    fn roce_parser_refuses_unknown_opcodes_and_versions() {
        let mut bytes = [0; 64];
        bytes[0] = 0x15;
        assert_eq!(packet(&bytes), Err(Error::Opcode(0x15)));
        bytes[..2].copy_from_slice(&[0x04, 0x01]);
        assert_eq!(packet(&bytes), Err(Error::Version(1)));
    }
}
