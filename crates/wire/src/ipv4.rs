//! IPv4: the header with its options (RFC 791). Read for offloads of frames and ECN; packets are
//! never routed.
//!
//! The parser checks version, header length (20 to 60 bytes) and that the total length covers the
//! header. It checks neither the checksum nor that the packet is complete: the frame may be longer
//! (padding) or shorter. Fragments are parsed like other packets and never reassembled. A header
//! that fails a check is an error: a frame that requests segmentation is then dropped, any other is
//! forwarded as a frame of an unknown protocol. Callers: [`crate::frame`], [`crate::exchange`] and
//! `mlx5` (rules); [`crate::ecn`] reads its two fields itself. All run in a dispatcher's turn.

use crate::checksum;
use crate::field::{Reader, Truncated, Writer};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Longest header, in bytes.
pub const HEADER_LEN_MAX: usize = 60;

/// Bit of [`Header::fragment`]: more fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Bit of [`Header::fragment`]: do not cut this packet.
pub const DONT_FRAGMENT: u16 = 0x4000;

/// The reason why bytes are not an IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version is not 4.
    #[error("IPv4 header: version is {0}")]
    Version(u8),
    /// The header claims to be shorter than 20 bytes.
    #[error("IPv4 header: header length {0} is below 20")]
    HeaderLen(usize),
    /// The packet claims to be shorter than its header.
    #[error("IPv4 header: total length {total} is below the header length {header}")]
    TotalLen {
        /// Total length, in bytes.
        total: u16,
        /// Header length, in bytes.
        header: usize,
    },
}

/// An IPv4 header; the options are borrowed from the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Type of service: DSCP and ECN.
    pub service: u8,
    /// Length of header and payload, in bytes.
    pub total_len: u16,
    /// Identification of fragments.
    pub id: u16,
    /// Flags (upper 3 bits) and fragment offset in units of 8 bytes (lower 13).
    pub fragment: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Header checksum, unverified; [`Header::fill_checksum`] computes it.
    pub checksum: u16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Options with their padding: a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl<'a> Header<'a> {
    /// Parses a header without verifying the checksum (see [`Header::checksum_is_right`]).
    ///
    /// # Errors
    /// [`Error`] if the header is cut off or a length or the version is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut r = Reader::new("IPv4 header", HEADER_LEN, bytes)?;
        let first = r.u8();
        if first >> 4 != 4 {
            return Err(Error::Version(first >> 4));
        }
        let header_len = usize::from(first & 0x0f).saturating_mul(4);
        if header_len < HEADER_LEN {
            return Err(Error::HeaderLen(header_len));
        }
        let options = bytes.get(HEADER_LEN..header_len).ok_or(Truncated {
            what: "IPv4 header",
            need: header_len,
            have: bytes.len(),
        })?;
        let header = Self {
            service: r.u8(),
            total_len: r.u16_be(),
            id: r.u16_be(),
            fragment: r.u16_be(),
            ttl: r.u8(),
            protocol: r.u8(),
            checksum: r.u16_be(),
            source: r.take(),
            destination: r.take(),
            options,
        };
        if usize::from(header.total_len) < header_len {
            return Err(Error::TotalLen { total: header.total_len, header: header_len });
        }
        Ok(header)
    }

    /// Returns the length of this header, in bytes: 20 to 60.
    pub fn header_len(&self) -> usize {
        HEADER_LEN.saturating_add(self.options.len())
    }

    /// Returns whether the packet is a fragment.
    pub const fn is_fragment(&self) -> bool {
        self.fragment & !(DONT_FRAGMENT | 0x8000) != 0
    }

    /// Writes the header to the front of `out`.
    ///
    /// # Errors
    /// [`Truncated`] if `out` is too short, [`Error::HeaderLen`] if the options are longer than 40
    /// bytes or not a multiple of 4.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Error> {
        let len = self.header_len();
        if len > HEADER_LEN_MAX || !len.is_multiple_of(4) {
            return Err(Error::HeaderLen(len));
        }
        Truncated::check("IPv4 header", len, out.len())?;
        let words = u8::try_from(len / 4).unwrap_or(0x0f);
        let mut w = Writer::new(out);
        w.put([0x40 | words, self.service]);
        w.put(self.total_len.to_be_bytes());
        w.put(self.id.to_be_bytes());
        w.put(self.fragment.to_be_bytes());
        w.put([self.ttl, self.protocol]);
        w.put(self.checksum.to_be_bytes());
        w.put(self.source);
        w.put(self.destination);
        w.slice(self.options);
        Ok(())
    }

    /// Computes the checksum.
    pub fn fill_checksum(&mut self) {
        self.checksum = 0;
        self.checksum = self.sum().finish();
    }

    /// Returns whether the checksum is valid.
    pub fn checksum_is_right(&self) -> bool {
        self.sum().finish() == 0
    }

    fn sum(&self) -> checksum::Sum {
        let mut head = [0; HEADER_LEN_MAX];
        // `emit` cannot fail for a parsed header; an invalid header sums to nothing.
        let _ = self.emit(&mut head);
        let mut sum = checksum::Sum::new();
        sum.add(head.get(..self.header_len()).unwrap_or(&[]));
        sum
    }
}
