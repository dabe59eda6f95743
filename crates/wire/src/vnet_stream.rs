//! Ethernet frames on a byte stream, as VNET/U frames them: "et", the length in 32 bits, little
//! endian, and the frame. It has no marks to find the way back by: after one wrong header
//! everything that follows means nothing.

use crate::ethernet;
use crate::field::{Reader, Truncated};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 6;
/// Shortest frame, in bytes: its Ethernet header.
pub const FRAME_LEN_MIN: usize = ethernet::HEADER_LEN;
/// What the header opens with.
const TYPE: [u8; 2] = *b"et";

/// Why bytes are no header. The stream has to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not the type of Ethernet frames.
    #[error("stream: type {0:02x?} is not \"et\": does the peer speak VNET's framing?")]
    Type([u8; 2]),
    /// A length that no frame has.
    #[error("stream: a frame of {len} bytes; {FRAME_LEN_MIN} to {most} are taken")]
    Len {
        /// The frame's length as told, in bytes.
        len: u32,
        /// The longest that is taken, in bytes.
        most: usize,
    },
}

/// The length of the frame that follows the header at the front of `bytes`, if it is all there; at
/// most `most` bytes. What of the header is there is checked even where the rest is yet to come.
///
/// # Errors
/// [`Error`] says what is wrong.
pub fn parse(bytes: &[u8], most: usize) -> Result<Option<usize>, Error> {
    let front = [0, 1].map(|at| bytes.get(at).copied());
    let same = |(told, right): (Option<u8>, u8)| told.is_none_or(|told| told == right);
    if !front.into_iter().zip(TYPE).all(same) {
        return Err(Error::Type(front.map(Option::unwrap_or_default)));
    }
    let Ok(mut r) = Reader::new("stream header", HEADER_LEN, bytes) else { return Ok(None) };
    let [_, _] = r.take();
    let told = r.u32_le();
    let len = usize::try_from(told).ok().filter(|len| (FRAME_LEN_MIN..=most).contains(len));
    len.map(Some).ok_or(Error::Len { len: told, most })
}

/// The header of a frame of `len` bytes.
///
/// # Errors
/// [`Truncated`] for a length that the field does not hold.
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
    fn the_layout_is_vnets() {
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
        fn parse_undoes_emit(len in FRAME_LEN_MIN..100_000_usize) {
            prop_assert_eq!(parse(&emit(len).unwrap(), 100_000), Ok(Some(len)));
            prop_assert!(parse(&emit(len).unwrap(), len - 1).is_err());
        }
    }
}
