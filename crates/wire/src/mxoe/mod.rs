//! MXoE, the packets of Myrinet Express over Ethernet, in the wire format that native MX also uses:
//! medium fragments of 4096 bytes, and pulls of at most eight of them.
//!
//! Every packet follows an Ethernet header and the sender's peer index. All fields are big-endian.
//! Undocumented bytes are sent as zero and ignored, and so are the sender's generation and the
//! checksums, which no known implementation fills. This module parses and encodes single packets;
//! sequence numbers, sessions and retransmission are in the engine of the crate `mxoe`.
//!
//! One extension: a pull may carry a mark in its padding, which other implementations ignore, by
//! which the puller accepts two frames of the block in one ([`Pull::wide`]). With a frame size of
//! 9000 bytes, half as many frames cross the network. A peer that does not know the mark, or whose
//! interface has a smaller MTU, answers with ordinary frames.
//!
//! The parser checks lengths and positions and panics on no input; MAC, session and sequence of the
//! sender are checked by the crate `mxoe`. A packet that is cut off, of an unknown kind, or with an
//! invalid length or value is an [`Error`]: `mxoe` drops it and sends no answer. Callers of
//! [`parse`] for each received frame, and of [`emit()`] for each sent frame: the engine of `mxoe`,
//! in the dispatcher's turn of the service `mx` or, in direct mode, in the application's thread;
//! and the discovery of `mxoe`, in the dispatcher's turn alone. The service `mx` counts the frames
//! that its engine drops (`drop_malformed_total`). The engine of an application counts in its own
//! memory (`mxoe::NicCounters`), which no interface shows; invalid frames for discovery are not
//! counted.

mod announce;
mod control;
mod emit;
mod kind;
mod large;
mod message;
#[cfg(test)]
mod tests;

use crate::field::{Reader, Truncated};

pub use announce::Announcement;
pub use control::{
    Ack, Connect, ConnectBody, ConnectStatus, HostQuery, HostReply, Nack, PullNack, nack,
};
pub use emit::{Head, emit};
pub use kind::Kind;
pub use large::{Notify, Pull, PullReply, Rendezvous};
pub use message::{Eager, Fragment, FragmentPlace};

/// The EtherType.
pub const ETHER_TYPE: u16 = 0x86df;
/// Length of the bytes before every body: the Ethernet header and the peer index.
pub const HEADER_LEN: usize = 16;
/// Frames are padded up to this length, in bytes.
pub const FRAME_LEN_MIN: usize = 60;
/// Longest packet header, in bytes, including [`HEADER_LEN`].
pub const HEAD_LEN_MAX: usize = 48;
/// Payload of a full fragment of a medium message, and of a pulled frame, in bytes.
pub const FRAGMENT_LEN: usize = 4096;
/// Longest frame that every peer sends and accepts, in bytes.
pub const FRAME_LEN_NARROW: usize = HEAD_LEN_MAX + FRAGMENT_LEN;
/// Payload of two merged pulled frames, in bytes: for peers that accept it only.
pub const JUMBO_LEN: usize = 2 * FRAGMENT_LEN;
/// Longest frame, in bytes.
pub const FRAME_LEN_MAX: usize = HEAD_LEN_MAX + JUMBO_LEN;
/// `log2` of [`FRAGMENT_LEN`].
pub const PIPELINE: u8 = 12;
/// Longest tiny message, in bytes.
pub const TINY_LEN_MAX: usize = 32;
/// Longest small message, in bytes.
pub const SMALL_LEN_MAX: usize = 128;
/// Longest medium message, in bytes.
pub const MEDIUM_LEN_MAX: usize = 32_768;
/// Most frames of one pull.
pub const PULL_FRAMES_MAX: usize = 8;
/// Longest block of one pull, in bytes.
pub const BLOCK_LEN_MAX: usize = PULL_FRAMES_MAX * FRAGMENT_LEN;
/// Most fragments of a medium message, for any fragment length.
pub const FRAGMENTS_MAX: usize = 32;
/// Longest host name, in bytes, without the final NUL.
pub const NAME_LEN_MAX: usize = 79;
/// The peer index of a peer that does not know its index.
pub const PEER_UNKNOWN: u16 = 0xffff;
/// The endpoint number of raw packets, which no endpoint has.
pub const ENDPOINT_RAW: u8 = 255;

/// The bytes before every body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Address of the destination NIC.
    pub destination: [u8; 6],
    /// Address of the source NIC.
    pub source: [u8; 6],
    /// Index of the sender in the receiver's table of peers, or [`PEER_UNKNOWN`].
    pub peer_index: u16,
}

/// The two endpoints of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointPair {
    /// Destination endpoint.
    pub destination: u8,
    /// Source endpoint.
    pub source: u8,
}

/// A packet without its [`Header`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Data of mappers, which this module does not parse.
    Raw(&'a [u8]),
    /// Queries the name of a NIC.
    HostQuery(HostQuery),
    /// Answers a query.
    HostReply(HostReply<'a>),
    /// Acknowledges messages.
    Ack(Ack),
    /// Requests or answers a connect.
    Connect(Connect),
    /// A message of at most [`TINY_LEN_MAX`].
    Tiny(Eager<'a>),
    /// A message of at most [`SMALL_LEN_MAX`].
    Small(Eager<'a>),
    /// A fragment of a message of at most [`MEDIUM_LEN_MAX`].
    Medium(Fragment<'a>),
    /// Offers a large message.
    Rendezvous(Rendezvous),
    /// Requests a block of a large message.
    Pull(Pull),
    /// One frame of a block.
    PullReply(PullReply<'a>),
    /// Reports the end of the pulls.
    Notify(Notify),
    /// Refuses a packet.
    Nack(Nack),
    /// Refuses a pull.
    PullNack(PullNack),
}

/// The reason why bytes are not an MXoE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The packet is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The frame is not MXoE.
    #[error("MXoE: EtherType {0:#06x} belongs to another protocol")]
    EtherType(u16),
    /// The packet type is unknown, or never crosses Ethernet.
    #[error("MXoE: packet type {0} is unknown")]
    Kind(u8),
    /// A length is invalid for its packet.
    #[error("MXoE: length of {what} is {is}, not {expected}")]
    Length {
        /// Name of the field.
        what: &'static str,
        /// Value of the field.
        is: u32,
        /// Valid values.
        expected: &'static str,
    },
    /// A field has an undefined value.
    #[error("MXoE: value {is} of {what} is unknown")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// Value of the field.
        is: u32,
    },
}

/// Parses a whole frame.
///
/// # Errors
/// [`Error`] if the frame is cut off, of another protocol, or a field is invalid.
pub fn parse(frame: &[u8]) -> Result<(Header, Packet<'_>), Error> {
    let mut r = Reader::new("MXoE header", HEADER_LEN, frame)?;
    let (destination, source) = (r.take(), r.take());
    let ether_type = r.u16_be();
    if ether_type != ETHER_TYPE {
        return Err(Error::EtherType(ether_type));
    }
    let header = Header { destination, source, peer_index: r.u16_be() };
    let body = frame.get(HEADER_LEN..).unwrap_or(&[]);
    let first = body.first().copied();
    let kind = first.ok_or(Truncated { what: "MXoE packet", need: 1, have: 0 })?;
    let kind = Kind::of(kind).ok_or(Error::Kind(kind))?;
    let packet = match kind {
        Kind::Raw => Packet::Raw(body.get(1..).unwrap_or(&[])),
        Kind::HostQuery => Packet::HostQuery(HostQuery::parse(body)?),
        Kind::HostReply => Packet::HostReply(HostReply::parse(body)?),
        Kind::Truc => Packet::Ack(Ack::parse(body)?),
        Kind::Connect => Packet::Connect(Connect::parse(body)?),
        Kind::Tiny => Packet::Tiny(Eager::parse("tiny", TINY_LEN_MAX, body)?),
        Kind::Small => Packet::Small(Eager::parse("small", SMALL_LEN_MAX, body)?),
        Kind::Medium => Packet::Medium(Fragment::parse(body)?),
        Kind::Rendezvous => Packet::Rendezvous(Rendezvous::parse(body)?),
        Kind::Pull => Packet::Pull(Pull::parse(body)?),
        Kind::PullReply => Packet::PullReply(PullReply::parse(body)?),
        Kind::Notify => Packet::Notify(Notify::parse(body)?),
        Kind::Nack => Packet::Nack(Nack::parse(body)?),
        Kind::PullNack => Packet::PullNack(PullNack::parse(body)?),
    };
    Ok((header, packet))
}

impl EndpointPair {
    /// Reads both endpoints behind the packet type, and skips the generation.
    fn take(r: &mut Reader<'_>) -> Self {
        let [destination, source, _] = r.take();
        Self { destination, source }
    }
}

/// Returns a reader of `body` behind the packet type.
fn behind_type<'a>(what: &'static str, need: usize, body: &'a [u8]) -> Result<Reader<'a>, Error> {
    let mut r = Reader::new(what, need, body)?;
    let _ = r.u8();
    Ok(r)
}

/// Returns the `len` bytes at `at`, where `len` is a length field of the packet.
fn data<'a>(what: &'static str, body: &'a [u8], at: usize, len: usize) -> Result<&'a [u8], Error> {
    let need = at.saturating_add(len);
    Truncated::check(what, need, body.len())?;
    Ok(body.get(at..need).unwrap_or(&[]))
}
