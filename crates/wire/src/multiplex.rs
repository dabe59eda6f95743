//! Datagrams of the stream protocol between two daemons: many reliable channels over datagrams that
//! may be lost, repeated or reordered.
//!
//! The socket service of a group exchanges these datagrams with the same service of a peer, inside
//! the records of a tunnel ([`SEGMENT`](crate::tunnel::record::SEGMENT)). A datagram is a [`Hello`],
//! which agrees on a session, or a [`Packet`]: a number, and [`Frame`]s. A [`Piece`] carries bytes
//! of a channel at an offset; the bytes of a channel are a sequence of messages, each behind its
//! length of 2 bytes. A [`SocketMessage`] is a socket packet without addresses: the channel stands for
//! them. All fields are big-endian. Numbers and offsets are the lower 32 bits of larger counters,
//! which the receiver completes ([`expand`]).
//!
//! The parsers check lengths, kinds and the order of ranges. Windows, duplicates, the order of bytes
//! and the meaning of messages are the caller's (`socket::multiplex`). No parser allocates. Threads
//! are those of the callers.

use crate::field::{Reader, Truncated, Writer};

/// Version of the protocol. A peer of another version is not answered.
pub const VERSION: u8 = 1;
/// Length of a hello, in bytes.
pub const HELLO_LEN: usize = 12;
/// Length of a packet's header, in bytes.
pub const PACKET_LEN: usize = 10;
/// Length of the header of a [`Piece`], in bytes.
pub const PIECE_LEN: usize = 11;
/// Length of the header of an acknowledgement, in bytes.
pub const ACK_LEN: usize = 2;
/// Length of a range of an acknowledgement, in bytes.
pub const RANGE_LEN: usize = 8;
/// Length of a message's length, in bytes.
pub const LENGTH_LEN: usize = 2;
/// Length of a [`SocketMessage`] without data, in bytes.
pub const MESSAGE_LEN: usize = 10;
/// Length of an [`Opening`], in bytes.
pub const OPENING_LEN: usize = 18;
/// Length of an [`Address`], in bytes.
pub const ADDRESS_LEN: usize = 13;
/// The channel of addresses, which is always open. Its messages are [`Address`]es.
pub const ADDRESSES: u32 = 0;

/// First byte: a hello.
const HELLO: u8 = 1;
/// First byte: a packet.
const PACKET: u8 = 2;
/// Flag of a hello: the sender asks for one in return.
const ASKS: u8 = 1;
/// Kind of a frame: an acknowledgement.
const ACK: u8 = 1;
/// Kind of a frame: bytes of a channel.
const PIECE: u8 = 2;
/// Kind of a frame: the last bytes of a channel in this direction.
const LAST_PIECE: u8 = 3;

/// The reason why bytes are not a datagram of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A header or a body is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The kind of the datagram is unknown.
    #[error("datagram of unknown kind {0}: is the peer newer?")]
    Datagram(u8),
    /// The kind of a frame is unknown.
    #[error("frame of unknown kind {0}: is the peer newer?")]
    Frame(u8),
}

/// Agrees on a session. A session is named by the tags of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Version of the sender ([`VERSION`]).
    pub version: u8,
    /// The sender has no session with the receiver, and asks for a hello.
    pub asks: bool,
    /// Tag of the sender, never 0.
    pub source: u32,
    /// Tag of the receiver, as far as the sender knows it; 0 if not.
    pub destination: u32,
}

impl Hello {
    /// Encodes the hello.
    pub fn emit(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put([HELLO, self.version, if self.asks { ASKS } else { 0 }, 0]);
        w.put(self.source.to_be_bytes());
        w.put(self.destination.to_be_bytes());
        bytes
    }
}

/// A numbered packet of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Tag of the receiver.
    pub tag: u32,
    /// Lower half of the packet's number.
    pub number: u32,
    /// The frames ([`Frame::next`]).
    pub frames: &'a [u8],
}

impl Packet<'_> {
    /// Encodes the header.
    pub fn header(tag: u32, number: u32) -> [u8; PACKET_LEN] {
        let mut bytes = [0; PACKET_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put([PACKET, VERSION]);
        w.put(tag.to_be_bytes());
        w.put(number.to_be_bytes());
        bytes
    }
}

/// A datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// Agrees on a session.
    Hello(Hello),
    /// Carries frames.
    Packet(Packet<'a>),
}

impl<'a> Datagram<'a> {
    /// Parses a datagram. Bytes behind a hello are ignored.
    ///
    /// # Errors
    /// [`Error`] if the header is cut off or the kind is unknown.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        match bytes.first() {
            Some(&HELLO) => {
                let mut r = Reader::new("hello", HELLO_LEN, bytes)?;
                let [_, version, flags, _] = r.take();
                let (source, destination) = (r.u32_be(), r.u32_be());
                Ok(Self::Hello(Hello { version, asks: flags & ASKS != 0, source, destination }))
            }
            Some(&PACKET) => {
                let mut r = Reader::new("packet", PACKET_LEN, bytes)?;
                let [_, _] = r.take();
                let (tag, number) = (r.u32_be(), r.u32_be());
                let frames = bytes.get(PACKET_LEN..).unwrap_or(&[]);
                Ok(Self::Packet(Packet { tag, number, frames }))
            }
            Some(&other) => Err(Error::Datagram(other)),
            None => Err(Truncated { what: "datagram", need: PACKET_LEN, have: 0 }.into()),
        }
    }
}

/// Bytes of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Number of the channel.
    pub channel: u32,
    /// Lower half of the offset of the first byte.
    pub offset: u32,
    /// The channel ends behind these bytes, in this direction.
    pub last: bool,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Piece<'_> {
    /// Returns the channel of the piece that begins at `frames`, of which the bytes may be elsewhere;
    /// `None` if no whole header of a piece is there.
    pub fn channel_at(frames: &[u8]) -> Option<u32> {
        let header = frames.first_chunk::<PIECE_LEN>()?;
        let [PIECE | LAST_PIECE, a, b, c, d, ..] = *header else { return None };
        Some(u32::from_be_bytes([a, b, c, d]))
    }

    /// Encodes the header of a piece of `len` bytes.
    pub fn header(channel: u32, offset: u32, last: bool, len: u16) -> [u8; PIECE_LEN] {
        let mut bytes = [0; PIECE_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put([if last { LAST_PIECE } else { PIECE }]);
        w.put(channel.to_be_bytes());
        w.put(offset.to_be_bytes());
        w.put(len.to_be_bytes());
        bytes
    }
}

/// The ranges of an acknowledgement: lower halves of the first and the last number of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges<'a>(&'a [u8]);

impl Ranges<'_> {
    /// Returns the ranges, in the sender's order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (all, _) = self.0.as_chunks::<RANGE_LEN>();
        all.iter().map(|[a, b, c, d, e, f, g, h]| {
            (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]))
        })
    }

    /// Appends an acknowledgement of at most 255 ranges to `out`.
    pub fn emit(ranges: impl Iterator<Item = (u32, u32)>, out: &mut Vec<u8>) {
        out.push(ACK);
        let at = out.len();
        out.push(0);
        let mut count = 0_u8;
        for (first, last) in ranges.take(usize::from(u8::MAX)) {
            out.extend(first.to_be_bytes());
            out.extend(last.to_be_bytes());
            count = count.saturating_add(1);
        }
        if let Some(place) = out.get_mut(at) {
            *place = count;
        }
    }
}

/// A frame of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Numbers of packets that the sender received.
    Ack(Ranges<'a>),
    /// Bytes of a channel.
    Piece(Piece<'a>),
}

impl<'a> Frame<'a> {
    /// Splits the next frame off `frames`; `None` at the end.
    ///
    /// # Errors
    /// [`Error`] if the frame is cut off or its kind is unknown; `frames` is unchanged.
    pub fn next(frames: &mut &'a [u8]) -> Result<Option<Self>, Error> {
        let Some(&kind) = frames.first() else { return Ok(None) };
        let body = |header: usize, len: usize| {
            let behind = frames.get(header..).unwrap_or(&[]);
            let short = Truncated { what: "frame's body", need: len, have: behind.len() };
            behind.split_at_checked(len).ok_or(short)
        };
        let (frame, rest) = match kind {
            ACK => {
                let mut r = Reader::new("acknowledgement", ACK_LEN, frames)?;
                let [_, count] = r.take();
                let (ranges, rest) = body(ACK_LEN, usize::from(count).saturating_mul(RANGE_LEN))?;
                (Self::Ack(Ranges(ranges)), rest)
            }
            PIECE | LAST_PIECE => {
                let mut r = Reader::new("piece", PIECE_LEN, frames)?;
                let [_] = r.take();
                let (channel, offset, len) = (r.u32_be(), r.u32_be(), r.u16_be());
                let (bytes, rest) = body(PIECE_LEN, usize::from(len))?;
                (Self::Piece(Piece { channel, offset, last: kind == LAST_PIECE, bytes }), rest)
            }
            other => return Err(Error::Frame(other)),
        };
        *frames = rest;
        Ok(Some(frame))
    }
}

/// A socket packet on its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMessage {
    /// Number of a [`vsock::Op`](crate::vsock::Op); unchecked.
    pub op: u8,
    /// `SHUTDOWN_*` or `SEQ_*` of [`vsock`](crate::vsock), according to `op`; unchecked.
    pub flags: u8,
    /// Receive buffer of the sender's side, in bytes.
    pub buf_alloc: u32,
    /// Bytes that the sender's side has consumed so far, modulo 2^32.
    pub fwd_cnt: u32,
}

impl SocketMessage {
    /// Parses a message. Returns it with its data.
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` is shorter than 10 bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Truncated> {
        let mut r = Reader::new("message", MESSAGE_LEN, bytes)?;
        let [op, flags] = r.take();
        let message = Self { op, flags, buf_alloc: r.u32_be(), fwd_cnt: r.u32_be() };
        Ok((message, bytes.get(MESSAGE_LEN..).unwrap_or(&[])))
    }

    /// Encodes the message without its data.
    pub fn emit(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put([self.op, self.flags]);
        w.put(self.buf_alloc.to_be_bytes());
        w.put(self.fwd_cnt.to_be_bytes());
        bytes
    }
}

/// Data of a request: the addresses of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// CID and port number of the caller.
    pub from: (u32, u32),
    /// CID and port number of the callee.
    pub to: (u32, u32),
    /// Number of a [`vsock::Type`](crate::vsock::Type); unchecked.
    pub kind: u16,
}

impl Opening {
    /// Parses the addresses.
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` is shorter than 18 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("request", OPENING_LEN, bytes)?;
        let from = (r.u32_be(), r.u32_be());
        Ok(Self { from, to: (r.u32_be(), r.u32_be()), kind: r.u16_be() })
    }

    /// Encodes the addresses.
    pub fn emit(&self) -> [u8; OPENING_LEN] {
        let mut bytes = [0; OPENING_LEN];
        let mut w = Writer::new(&mut bytes);
        for word in [self.from.0, self.from.1, self.to.0, self.to.1] {
            w.put(word.to_be_bytes());
        }
        w.put(self.kind.to_be_bytes());
        bytes
    }
}

/// Announces or withdraws a CID of a guest of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Whether the guest is attached to the sender; if not, the sender withdraws the CID.
    pub is_here: bool,
    /// The CID.
    pub cid: u32,
    /// Time of day at which the guest attached, in ns.
    pub epoch: u64,
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` is shorter than 13 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("address", ADDRESS_LEN, bytes)?;
        let is_here = r.u8() == 1;
        Ok(Self { is_here, cid: r.u32_be(), epoch: u64::from_be_bytes(r.take()) })
    }

    /// Encodes the address.
    pub fn emit(&self) -> [u8; ADDRESS_LEN] {
        let mut bytes = [0; ADDRESS_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put([u8::from(self.is_here)]);
        w.put(self.cid.to_be_bytes());
        w.put(self.epoch.to_be_bytes());
        bytes
    }
}

/// Returns the counter nearest to `near` with the lower half `low`; `None` if it would be negative.
pub fn expand(low: u32, near: u64) -> Option<u64> {
    let [a, b, c, d, e, f, g, h] = near.to_be_bytes();
    let (high, now) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    let with = |high: u32| u64::from(high) << 32 | u64::from(low);
    // The distance as a signed number decides on which side of `near` the counter lies.
    let ahead = low.wrapping_sub(now);
    if ahead <= u32::MAX / 2 {
        if low >= now { Some(with(high)) } else { high.checked_add(1).map(with) }
    } else if low <= now {
        Some(with(high))
    } else {
        high.checked_sub(1).map(with)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn multiplex_counters_are_completed_next_to_the_known_one() {
        let near = (5_u64 << 32) + 10;
        assert_eq!(expand(12, near), Some(near + 2));
        assert_eq!(expand(u32::MAX, near), Some((5 << 32) - 1));
        assert_eq!(expand(3, u64::from(u32::MAX)), Some((1 << 32) + 3));
        assert_eq!(expand(u32::MAX, 0), None);
    }

    #[test]
    fn hostile_frames_are_refused() {
        assert!(Datagram::parse(&[]).is_err() && Datagram::parse(&[2; 9]).is_err());
        assert_eq!(Datagram::parse(&[9; 20]), Err(Error::Datagram(9)));
        for mut frames in [&[1][..], &[1, 1, 0][..], &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..]] {
            assert!(matches!(Frame::next(&mut frames), Err(Error::Truncated(_))));
        }
        assert_eq!(Frame::next(&mut &[7_u8, 0][..]), Err(Error::Frame(7)));
    }

    #[test]
    fn multiplex_channel_of_a_piece_is_known_without_its_bytes() {
        let header = Piece::header(0x0102_0304, 5, true, 1000);
        assert_eq!(Piece::channel_at(&header), Some(0x0102_0304));
        assert_eq!((Piece::channel_at(&header[..10]), Piece::channel_at(&[ACK; 20])), (None, None));
    }

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0_u8..4) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = kind; }
            match Datagram::parse(&bytes) {
                Ok(Datagram::Hello(hello)) => {
                    let again = hello.emit();
                    prop_assert_eq!(Datagram::parse(&again), Ok(Datagram::Hello(hello)));
                }
                Ok(Datagram::Packet(packet)) => {
                    let again = [&Packet::header(packet.tag, packet.number), packet.frames].concat();
                    prop_assert_eq!(Datagram::parse(&again), Ok(Datagram::Packet(packet)));
                }
                Err(_) => {}
            }
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = Frame::next(&mut rest) {
                let mut again = Vec::new();
                match frame {
                    Frame::Ack(ranges) => Ranges::emit(ranges.iter(), &mut again),
                    Frame::Piece(p) => {
                        again.extend(Piece::header(p.channel, p.offset, p.last, p.bytes.len() as u16));
                        again.extend(p.bytes);
                    }
                }
                prop_assert_eq!(Frame::next(&mut &again[..]), Ok(Some(frame)));
            }
            if let Ok((message, _)) = SocketMessage::parse(&bytes) {
                prop_assert_eq!(&message.emit()[..], &bytes[..MESSAGE_LEN]);
            }
            if let Ok(opening) = Opening::parse(&bytes) {
                prop_assert_eq!(&opening.emit()[..], &bytes[..OPENING_LEN]);
            }
            if let Ok(address) = Address::parse(&bytes) {
                prop_assert_eq!(Address::parse(&address.emit()), Ok(address));
            }
        }

        #[test]
        fn multiplex_counters_within_half_the_range_are_exact(near: u64, step in -1_i64 << 31 .. 1 << 31) {
            let exact = near.checked_add_signed(step);
            if let Some(exact) = exact {
                prop_assert_eq!(expand(exact as u32, near), Some(exact));
            }
        }
    }
}
