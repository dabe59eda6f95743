//! Ethernet frames on sockets of VMMs and user-mode network stacks.
//!
//! On a byte stream, each frame follows its length in 32 bits, big-endian: QEMU's `-netdev stream`
//! and `-netdev socket`, passt and gvproxy. The format has no marks for resynchronisation: after an
//! invalid length the stream must be closed. On datagram sockets, each datagram is a frame; VMMs
//! with the protocol of vfkit (vfkit, krunkit, libkrun with `NET_FLAG_VFKIT`) send the four bytes
//! [`VFKT`] first, so that the other side learns the address of their socket.
//!
//! The functions read and write single headers, keep no state and allocate nothing. Frames carry no
//! virtio-net header: checksums and segmentation are completed before. A frame of 1 to 13 bytes is
//! no Ethernet frame, but leaves the stream in step: the caller drops the frame. `causeway-stream`
//! calls them: to receive in the dispatcher of the port's shard, to send in the thread of the
//! forwarding service.

use crate::deframer::FrameHeader;

/// Length of the header before each frame of a stream, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// The datagram by which a VMM announces its socket.
pub const VFKT: [u8; 4] = *b"VFKT";

/// The header of a frame, for [`Deframer`](crate::deframer::Deframer).
#[derive(Debug, Clone, Copy)]
pub struct LengthHeader;

impl FrameHeader for LengthHeader {
    type Error = LengthError;

    const LEN: usize = LENGTH_BYTES;

    fn parse(bytes: &[u8], most: usize) -> Result<Option<usize>, LengthError> {
        parse(bytes, most)
    }
}

/// The length of a frame is 0, or longer than permitted. The stream must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a frame length of {len} bytes is outside 1 to {most}: the stream is out of step, or the MTU of the peer is larger than the port's"
)]
pub struct LengthError {
    /// Length in the header, in bytes.
    pub len: u32,
    /// Longest permitted frame, in bytes.
    pub most: usize,
}

/// Returns the length of the frame that follows the header at the front of `bytes`, in bytes (1 to
/// `most`), or `None` if the header is incomplete.
///
/// # Errors
/// [`LengthError`].
pub fn parse(bytes: &[u8], most: usize) -> Result<Option<usize>, LengthError> {
    let Some(header) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let claimed = u32::from_be_bytes(*header);
    let len = usize::try_from(claimed).ok().filter(|len| (1..=most).contains(len));
    len.map(Some).ok_or(LengthError { len: claimed, most })
}

/// Returns the header of a frame of `len` bytes; `None` for a frame that is empty or longer than 32
/// bits express.
pub fn emit(len: usize) -> Option<[u8; LENGTH_BYTES]> {
    u32::try_from(len).ok().filter(|len| *len > 0).map(u32::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vmm_stream_header_is_the_length_in_network_order() {
        assert_eq!(emit(0x0102), Some([0, 0, 1, 2]));
        assert_eq!(parse(&[0, 0, 5, 0xea, 9], 1514), Ok(Some(1514)));
        assert_eq!(parse(&[0, 0, 5], 1514), Ok(None));
        assert_eq!(emit(0), None);
    }

    #[test]
    fn hostile_vmm_stream_lengths_are_refused() {
        for (bytes, len) in [([0; 4], 0), ([0xff; 4], u32::MAX), ([0, 0, 5, 0xeb], 1515)] {
            assert_eq!(parse(&bytes, 1514), Err(LengthError { len, most: 1514 }));
        }
        assert!(parse(b"GET ", 65_557).is_err());
    }

    proptest! {
        #[test]
        fn vmm_stream_headers_are_read_as_they_were_written(len in 1_usize..=65_557) {
            prop_assert_eq!(parse(&emit(len).unwrap(), 65_557), Ok(Some(len)));
        }
    }
}
