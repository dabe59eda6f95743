//! MXoE, the packets of Myrinet Express over Ethernet, in the form of the wire that native MX
//! speaks too: medium fragments of 4096 bytes, and pulls of at most eight of them.
//!
//! Every packet stands behind an Ethernet header and the peer index of its sender. All fields are
//! big-endian. What a field's place says nothing of is sent as zero and not looked at; so are the
//! sender's generation and the checksums, which no release of any sender fills.
//!
//! One thing is ours. Who asks for a block may say, behind its pull, where all others have padding
//! that nobody looks at, that it takes two frames of the block in one ([`Pull::wide`]): on a
//! network whose frames have 9000 bytes, half as many cross it. Who does not know that answers as
//! ever, and so does whose interface is too narrow.

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
pub use control::{Ack, Answer, Connect, Greeting, HostQuery, HostReply, Nack, PullNack, nack};
pub use emit::{Head, emit};
pub use kind::Kind;
pub use large::{Notify, Pull, PullReply, Rendezvous};
pub use message::{Eager, Fragment, FragmentPlace};

/// The EtherType.
pub const ETHER_TYPE: u16 = 0x86df;
/// Length of what stands before every body, in bytes: the Ethernet header and the peer index.
pub const HEADER_LEN: usize = 16;
/// Frames are padded up to this length, in bytes.
pub const FRAME_LEN_MIN: usize = 60;
/// Longest header of all, in bytes, with [`HEADER_LEN`].
pub const HEAD_LEN_MAX: usize = 48;
/// Payload of a full fragment of a medium message, and of a pulled frame, in bytes.
pub const FRAGMENT_LEN: usize = 4096;
/// Longest frame that everybody sends and takes, in bytes.
pub const FRAME_LEN_NARROW: usize = HEAD_LEN_MAX + FRAGMENT_LEN;
/// Payload of two pulled frames in one, which only those take who said so, in bytes.
pub const WIDE_LEN: usize = 2 * FRAGMENT_LEN;
/// Longest frame, in bytes.
pub const FRAME_LEN_MAX: usize = HEAD_LEN_MAX + WIDE_LEN;
/// `log2` of [`FRAGMENT_LEN`].
pub const PIPELINE: u8 = 12;
/// Longest tiny message, in bytes.
pub const TINY_LEN_MAX: usize = 32;
/// Longest small message, in bytes.
pub const SMALL_LEN_MAX: usize = 128;
/// Longest medium message, in bytes.
pub const MEDIUM_LEN_MAX: usize = 32_768;
/// Most frames that one pull asks for.
pub const PULL_FRAMES_MAX: usize = 8;
/// Longest block that one pull asks for, in bytes.
pub const BLOCK_LEN_MAX: usize = PULL_FRAMES_MAX * FRAGMENT_LEN;
/// Most fragments of a medium message, whatever their length.
pub const FRAGMENTS_MAX: usize = 32;
/// Longest name of a host, in bytes, without the NUL behind it.
pub const NAME_LEN_MAX: usize = 79;
/// The peer index of a peer that did not say which.
pub const PEER_UNKNOWN: u16 = 0xffff;
/// The endpoint number that is none: raw packets.
pub const ENDPOINT_RAW: u8 = 255;

/// What stands before every body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// To which board.
    pub destination: [u8; 6],
    /// From which board.
    pub source: [u8; 6],
    /// Index of the sender in the receiver's table of peers, or [`PEER_UNKNOWN`].
    pub peer_index: u16,
}

/// The two endpoints of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// To which endpoint.
    pub destination: u8,
    /// From which endpoint.
    pub source: u8,
}

/// A packet behind its [`Header`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its type says")]
pub enum Packet<'a> {
    /// For mappers; what it says is theirs.
    Raw(&'a [u8]),
    HostQuery(HostQuery),
    HostReply(HostReply<'a>),
    Ack(Ack),
    Connect(Connect),
    /// A message of at most [`TINY_LEN_MAX`].
    Tiny(Eager<'a>),
    /// A message of at most [`SMALL_LEN_MAX`].
    Small(Eager<'a>),
    Medium(Fragment<'a>),
    Rendezvous(Rendezvous),
    Pull(Pull),
    PullReply(PullReply<'a>),
    Notify(Notify),
    Nack(Nack),
    PullNack(PullNack),
}

/// Why bytes are no MXoE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// Not MXoE.
    #[error("MXoE: EtherType {0:#06x} is another protocol's")]
    EtherType(u16),
    /// No such packet, or one that nobody sends over Ethernet.
    #[error("MXoE: packets of type {0} are not known")]
    Kind(u8),
    /// A length that its packet cannot have.
    #[error("MXoE: {what} says {is}, which is not {expected}")]
    Length {
        /// Of which field.
        what: &'static str,
        /// What it says.
        is: u32,
        /// What it could be.
        expected: &'static str,
    },
    /// A field that says what nobody defined.
    #[error("MXoE: {what} {is} is not known")]
    Value {
        /// Which field.
        what: &'static str,
        /// What it says.
        is: u32,
    },
}

/// Reads a whole frame.
///
/// # Errors
/// [`Error`] says what is wrong.
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

impl Ends {
    /// Behind the type that was taken; the generation is looked past.
    fn take(r: &mut Reader<'_>) -> Self {
        let [destination, source, _] = r.take();
        Self { destination, source }
    }
}

/// A reader of `body` behind its type.
fn behind_type<'a>(what: &'static str, need: usize, body: &'a [u8]) -> Result<Reader<'a>, Error> {
    let mut r = Reader::new(what, need, body)?;
    let _ = r.u8();
    Ok(r)
}

/// The `len` bytes at `at`, where a packet says that there are as many.
fn data<'a>(what: &'static str, body: &'a [u8], at: usize, len: usize) -> Result<&'a [u8], Error> {
    let need = at.saturating_add(len);
    Truncated::check(what, need, body.len())?;
    Ok(body.get(at..need).unwrap_or(&[]))
}
