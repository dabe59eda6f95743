//! Datagrams of a Causeway tunnel: the protocol between two daemons over UDP.
//!
//! A frame for another host passes here between `ethernet` and the UDP socket of `link`. Every
//! datagram starts with an [`Outer`] header of 16 bytes. A handshake message follows, or data: the
//! [`Inner`] word, then consecutive records (see [`record`]). [`DatagramKind::Plain`] carries data
//! in clear text; [`DatagramKind::Data`] seals the same bytes with the counter as nonce and appends
//! a tag of 16 bytes. All fields are big-endian, except the virtio-net metadata of a frame, which
//! keeps virtio's byte order. A datagram of another format, version or kind is an [`Error`], and
//! `link` drops it. A virtual network has a number of 24 bits. Encryption, replay protection and
//! sessions are not here. `link` encodes frames in the thread of the sending group, and encodes and
//! parses all else in the shard of links.

pub mod record;

use crate::field::{Reader, Truncated, Writer};

/// First byte of every datagram: format and version.
pub const MAGIC: u8 = 0xc1;
/// Length of [`Outer`], in bytes.
pub const OUTER_LEN: usize = 16;
/// Length of [`Inner`], in bytes.
pub const INNER_LEN: usize = 4;
/// Length of the tag behind sealed text, in bytes.
pub const TAG_LEN: usize = 16;
/// Largest virtual network number.
pub const VNI_MAX: u32 = 0x00ff_ffff;

/// Kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DatagramKind {
    /// The first message of a handshake.
    Init = 1,
    /// The second and last message of a handshake.
    Response = 2,
    /// Sealed records.
    Data = 3,
    /// Records in clear text, unauthenticated.
    Plain = 4,
    /// A request to repeat the handshake message with this cookie.
    Cookie = 5,
}

impl DatagramKind {
    /// Returns the kind with number `raw`, or `None` if it is unknown.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Init),
            2 => Some(Self::Response),
            3 => Some(Self::Data),
            4 => Some(Self::Plain),
            5 => Some(Self::Cookie),
            _ => None,
        }
    }
}

/// The reason why bytes are not a datagram of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// Another protocol, or another version of this protocol.
    #[error("tunnel header: first byte is {0:#04x}, not {MAGIC:#04x}: is the peer a causewayd?")]
    Magic(u8),
    /// The kind is unknown.
    #[error("tunnel header: kind {0} is unknown: is the peer newer?")]
    Kind(u8),
    /// The reserved field is not zero.
    #[error("tunnel header: reserved field is {0:#06x}, not zero")]
    Reserved(u16),
}

/// The outer header, first in every datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Kind of the datagram.
    pub kind: DatagramKind,
    /// The receiver's index of the session or handshake; 0 in [`DatagramKind::Init`] and
    /// [`DatagramKind::Plain`].
    pub receiver: u32,
    /// In [`DatagramKind::Data`] the nonce; in [`DatagramKind::Plain`] a sequence number; in
    /// [`DatagramKind::Init`] the sender's index, which the response must carry as `receiver`; in
    /// other kinds 0.
    pub counter: u64,
}

impl Outer {
    /// Parses a header. Returns it with the bytes that follow.
    ///
    /// # Errors
    /// [`Error`] if the header is cut off or a field is invalid.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let mut r = Reader::new("tunnel header", OUTER_LEN, bytes)?;
        match r.u8() {
            MAGIC => {}
            other => return Err(Error::Magic(other)),
        }
        let raw = r.u8();
        let kind = DatagramKind::from_raw(raw).ok_or(Error::Kind(raw))?;
        match r.u16_be() {
            0 => {}
            other => return Err(Error::Reserved(other)),
        }
        let outer = Self { kind, receiver: r.u32_be(), counter: u64::from_be_bytes(r.take()) };
        Ok((outer, bytes.get(OUTER_LEN..).unwrap_or(&[])))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; OUTER_LEN] {
        let mut bytes = [0; OUTER_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put([MAGIC, self.kind as u8, 0, 0]);
        w.put(self.receiver.to_be_bytes());
        w.put(self.counter.to_be_bytes());
        bytes
    }
}

/// The word before the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inner {
    /// Virtual network, 0 to [`VNI_MAX`]; 0 for records about the tunnel itself.
    pub vni: u32,
    /// Reserved: senders write 0, receivers ignore it.
    pub flags: u8,
}

impl Inner {
    /// Parses the word. The records start at [`INNER_LEN`].
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` is shorter than 4 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("tunnel text", INNER_LEN, bytes)?;
        let word = r.u32_be();
        let [.., flags] = word.to_be_bytes();
        Ok(Self { vni: word >> 8, flags })
    }

    /// Encodes the word, with the lower 24 bits of the network number.
    pub fn emit(&self) -> [u8; INNER_LEN] {
        (self.vni << 8 | u32::from(self.flags)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tunnel_headers_have_the_documented_layout() {
        let outer = Outer { kind: DatagramKind::Data, receiver: 0x0102_0304, counter: 0x0a0b };
        assert_eq!(outer.emit(), [0xc1, 3, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x0a, 0x0b]);
        assert_eq!(Inner { vni: 0x0a_0b0c, flags: 1 }.emit(), [0x0a, 0x0b, 0x0c, 1]);
    }

    #[test]
    fn hostile_headers_are_refused_with_the_wrong_field() {
        let good = Outer { kind: DatagramKind::Init, receiver: 0, counter: 0 }.emit();
        for (at, value, error) in [
            (0, 0xc2, Error::Magic(0xc2)),
            (1, 0, Error::Kind(0)),
            (1, 6, Error::Kind(6)),
            (3, 1, Error::Reserved(1)),
        ] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Outer::parse(&bytes), Err(error));
        }
        for len in 0..OUTER_LEN {
            assert!(matches!(Outer::parse(&good[..len]), Err(Error::Truncated(_))));
        }
    }

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes in prop::collection::vec(any::<u8>(), 0..40), kind in 0_u8..8) {
            let mut bytes = bytes;
            for (at, byte) in [MAGIC, kind, 0, 0].into_iter().enumerate() {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok((outer, rest)) = Outer::parse(&bytes) {
                let mut again = outer.emit().to_vec();
                again.extend(rest);
                prop_assert_eq!(&again, &bytes);
            }
            if let Ok(inner) = Inner::parse(&bytes) {
                prop_assert_eq!(&inner.emit()[..], &bytes[..4]);
            }
        }
    }
}
