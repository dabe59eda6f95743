//! TCP: the header with its options (RFC 9293). Read for checksum and segmentation offloads;
//! connections are never tracked.
//!
//! The parser checks that header and options are complete and the data offset is 20 to 60 bytes.
//! Checksum, sequence numbers and the combination of flags are not checked, and options are not
//! interpreted. A header that is cut off or invalid is an error: a frame that requests segmentation
//! is then dropped, any other is forwarded as a frame of an unknown protocol. Callers:
//! [`crate::frame`], [`crate::virtio_net::segment`] where a frame is cut, `link` (maximum segment
//! size) and `mlx5` (rules, hashes and offloads). All run in a dispatcher's turn.

use crate::field::{Reader, Truncated, Writer};

/// IP protocol number.
pub const PROTOCOL: u8 = 6;
/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Longest header, in bytes.
pub const HEADER_LEN_MAX: usize = 60;
/// Offset of the checksum in the header, in bytes.
pub const CHECKSUM_OFFSET: usize = 16;

/// No more data from the sender.
pub const FIN: u16 = 0x001;
/// Synchronise sequence numbers.
pub const SYN: u16 = 0x002;
/// Reset the connection.
pub const RST: u16 = 0x004;
/// Push to the application.
pub const PSH: u16 = 0x008;
/// The acknowledgement field is valid.
pub const ACK: u16 = 0x010;
/// The urgent pointer is valid.
pub const URG: u16 = 0x020;
/// ECN echo (RFC 3168).
pub const ECE: u16 = 0x040;
/// Congestion window reduced (RFC 3168).
pub const CWR: u16 = 0x080;

/// The reason why bytes are not a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The data offset is below 20 bytes, or the options exceed 40.
    #[error("TCP header: header length {0} is not a multiple of 4 from 20 to 60")]
    HeaderLen(usize),
}

/// A TCP header; the options are borrowed from the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags: [`FIN`] to [`CWR`], and the four reserved bits above them.
    pub flags: u16,
    /// Receive window, unscaled.
    pub window: u16,
    /// Checksum, unverified.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options with their padding: a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl<'a> Header<'a> {
    /// Parses a header.
    ///
    /// # Errors
    /// [`Error`] if the header is cut off or its length is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut r = Reader::new("TCP header", HEADER_LEN, bytes)?;
        let (source, destination) = (r.u16_be(), r.u16_be());
        let (sequence, acknowledgement) = (r.u32_be(), r.u32_be());
        let bits = r.u16_be();
        let header_len = usize::from(bits >> 12).saturating_mul(4);
        if header_len < HEADER_LEN {
            return Err(Error::HeaderLen(header_len));
        }
        let options = bytes.get(HEADER_LEN..header_len).ok_or(Truncated {
            what: "TCP header",
            need: header_len,
            have: bytes.len(),
        })?;
        Ok(Self {
            source,
            destination,
            sequence,
            acknowledgement,
            flags: bits & 0x0fff,
            window: r.u16_be(),
            checksum: r.u16_be(),
            urgent: r.u16_be(),
            options,
        })
    }

    /// Returns the length of this header, in bytes: 20 to 60.
    pub fn header_len(&self) -> usize {
        HEADER_LEN.saturating_add(self.options.len())
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
        Truncated::check("TCP header", len, out.len())?;
        let words = u16::try_from(len / 4).unwrap_or(0x0f);
        let mut w = Writer::new(out);
        w.put(self.source.to_be_bytes());
        w.put(self.destination.to_be_bytes());
        w.put(self.sequence.to_be_bytes());
        w.put(self.acknowledgement.to_be_bytes());
        w.put(((words << 12) | (self.flags & 0x0fff)).to_be_bytes());
        w.put(self.window.to_be_bytes());
        w.put(self.checksum.to_be_bytes());
        w.put(self.urgent.to_be_bytes());
        w.slice(self.options);
        Ok(())
    }
}
