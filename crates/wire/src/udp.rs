//! UDP: the header (RFC 768). Read for checksum and segmentation offloads of frames.
//!
//! The parser checks that 8 bytes are present, and no field: a length below 8 or beyond the packet,
//! and a wrong checksum, are left to the caller. If the header is cut off, a frame that requests
//! segmentation is dropped, and any other is forwarded. Ports and payload are not interpreted, and
//! sockets are not involved (the UDP sockets of links are in `fabric`). Callers: [`crate::frame`],
//! after the IP header was found, `mlx5` (rules, hashes and checksums) and `hca::packets`
//! (captures). All run in a dispatcher's turn.

use crate::field::{Reader, Truncated, Writer};

/// IP protocol number.
pub const PROTOCOL: u8 = 17;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum in the header, in bytes.
pub const CHECKSUM_OFFSET: usize = 6;

/// A UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Length of header and payload, in bytes, by the sender's claim; invalid below 8.
    pub len: u16,
    /// Checksum, unverified; 0 means none over IPv4.
    pub checksum: u16,
}

impl Header {
    /// Parses a header.
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` is shorter than 8 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("UDP header", HEADER_LEN, bytes)?;
        Ok(Self {
            source: r.u16_be(),
            destination: r.u16_be(),
            len: r.u16_be(),
            checksum: r.u16_be(),
        })
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.source.to_be_bytes());
        w.put(self.destination.to_be_bytes());
        w.put(self.len.to_be_bytes());
        w.put(self.checksum.to_be_bytes());
        bytes
    }
}
