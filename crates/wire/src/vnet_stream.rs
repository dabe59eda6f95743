//! Ethernet frames on a byte stream, in the framing of VNET/U: "et", the length in 32 bits,
//! little-endian, and the frame. Used by links over TCP and TLS. The format has no marks for
//! resynchronisation: after an invalid header the stream must be closed.
//!
//! A frame has at least [`FRAME_LEN_MIN`] (14) bytes and at most the caller's maximum. The parser
//! reads the header only and keeps no state: the caller collects bytes until the frame is complete.
//! Frames carry no virtio-net metadata, so offloads are completed before. Encryption is TLS's task,
//! in `link`. `link::framing` writes headers in the thread of the sending group, `link::io::stream`
//! reads them in the shard of links.

use crate::deframer::FrameHeader;
use crate::ethernet;
use crate::field::{Reader, Truncated};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 6;
/// Shortest frame, in bytes: its Ethernet header.
pub const FRAME_LEN_MIN: usize = ethernet::HEADER_LEN;
/// First bytes of the header.
const TYPE: [u8; 2] = *b"et";

/// The header of a frame, for [`Deframer`](crate::deframer::Deframer).
#[derive(Debug, Clone, Copy)]
pub struct VnetHeader;

impl FrameHeader for VnetHeader {
    type Error = Error;

    const LEN: usize = HEADER_LEN;

    fn parse(bytes: &[u8], most: usize) -> Result<Option<usize>, Error> {
        parse(bytes, most)
    }
}

/// The reason why bytes are not a header. The stream must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The type is not that of Ethernet frames.
    #[error("stream: type {0:02x?} is not \"et\": does the peer use VNET's framing?")]
    Type([u8; 2]),
    /// The length is invalid for a frame.
    #[error("stream: frame length {len} is outside {FRAME_LEN_MIN} to {most}")]
    Len {
        /// Length in the header, in bytes.
        len: u32,
        /// Longest permitted frame, in bytes.
        most: usize,
    },
}

/// Returns the length of the frame that follows the header at the front of `bytes`, or `None` if
/// the header is incomplete. `most` is the longest permitted frame. An incomplete header is refused
/// as soon as its present bytes are wrong.
///
/// # Errors
/// [`Error`] if the type or the length is invalid.
pub fn parse(bytes: &[u8], most: usize) -> Result<Option<usize>, Error> {
    let front = [0, 1].map(|at| bytes.get(at).copied());
    let same = |(byte, expected): (Option<u8>, u8)| byte.is_none_or(|byte| byte == expected);
    if !front.into_iter().zip(TYPE).all(same) {
        return Err(Error::Type(front.map(Option::unwrap_or_default)));
    }
    let Ok(mut r) = Reader::new("stream header", HEADER_LEN, bytes) else { return Ok(None) };
    let [_, _] = r.take();
    let claimed = r.u32_le();
    let len = usize::try_from(claimed).ok().filter(|len| (FRAME_LEN_MIN..=most).contains(len));
    len.map(Some).ok_or(Error::Len { len: claimed, most })
}

/// Encodes the header of a frame of `len` bytes.
///
/// # Errors
/// [`Truncated`] if `len` exceeds 32 bits.
pub fn emit(len: usize) -> Result<[u8; HEADER_LEN], Truncated> {
    let too_long = Truncated { what: "stream header's length", need: len, have: u32::MAX as usize };
    let [a, b, c, d] = u32::try_from(len).map_err(|_| too_long)?.to_le_bytes();
    let [e, t] = TYPE;
    Ok([e, t, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vnet_header_has_the_layout_of_vnet() {
        assert_eq!(emit(0x0102), Ok([b'e', b't', 2, 1, 0, 0]));
        assert_eq!(parse(b"et\x3c\0\0\0rest", 1514), Ok(Some(60)));
    }

    #[test]
    fn hostile_headers_are_refused_as_soon_as_they_are_wrong() {
        assert_eq!(parse(b"x", 1514), Err(Error::Type([b'x', 0])));
        assert_eq!(parse(b"ex", 1514), Err(Error::Type(*b"ex")));
        for len in [0_u32, 13, 1515, u32::MAX] {
            let header = [&b"et"[..], &len.to_le_bytes()].concat();
            assert_eq!(parse(&header, 1514), Err(Error::Len { len, most: 1514 }));
        }
        for len in 0..HEADER_LEN {
            assert_eq!(parse(&b"et\x3c\0\0\0"[..len], 1514), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn vnet_parse_undoes_emit(len in FRAME_LEN_MIN..100_000_usize) {
            prop_assert_eq!(parse(&emit(len).unwrap(), 100_000), Ok(Some(len)));
            prop_assert!(parse(&emit(len).unwrap(), len - 1).is_err());
        }
    }
}
