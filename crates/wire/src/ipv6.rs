//! IPv6: the fixed header, and a bounded walk over extension headers (RFC 8200). Read for offloads
//! of frames and ECN; packets are never routed.
//!
//! The walk skips at most [`EXTENSIONS_MAX`] (8) extension headers; more are an error, and the
//! frame is forwarded like a frame of an unknown protocol. Jumbograms (payload length 0) and the
//! content of extension headers are not interpreted. Callers: [`crate::frame`], [`crate::exchange`]
//! and `mlx5` (rules and offloads). All run in a dispatcher's turn.

use crate::field::{Reader, Truncated, Writer};

/// Length of the fixed header, in bytes.
pub const HEADER_LEN: usize = 40;
/// Maximum number of extension headers that the walk skips. A packet with more is an error.
pub const EXTENSIONS_MAX: usize = 8;

/// Hop-by-hop options.
pub const NEXT_HOP_BY_HOP: u8 = 0;
/// Routing.
pub const NEXT_ROUTING: u8 = 43;
/// Fragment.
pub const NEXT_FRAGMENT: u8 = 44;
/// Authentication (RFC 4302).
pub const NEXT_AUTHENTICATION: u8 = 51;
/// Nothing follows.
pub const NEXT_NONE: u8 = 59;
/// Destination options.
pub const NEXT_DESTINATION: u8 = 60;
/// Mobility (RFC 6275).
pub const NEXT_MOBILITY: u8 = 135;

/// The reason why bytes are not an IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A header is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version is not 6.
    #[error("IPv6 header: version is {0}")]
    Version(u8),
    /// More extension headers than [`EXTENSIONS_MAX`].
    #[error("IPv6 header: more than {EXTENSIONS_MAX} extension headers")]
    Extensions,
}

/// The fixed IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes that follow the fixed header.
    pub payload_len: u16,
    /// Type of the header that follows the fixed header.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Header {
    /// Parses the fixed header.
    ///
    /// # Errors
    /// [`Error`] if the header is cut off or its version is not 6.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new("IPv6 header", HEADER_LEN, bytes)?;
        let first = r.u32_be();
        let version = low_byte(first >> 28);
        if version != 6 {
            return Err(Error::Version(version));
        }
        Ok(Self {
            traffic_class: low_byte(first >> 20),
            flow_label: first & 0x000f_ffff,
            payload_len: r.u16_be(),
            next_header: r.u8(),
            hop_limit: r.u8(),
            source: r.take(),
            destination: r.take(),
        })
    }

    /// Writes the fixed header to the front of `out`.
    ///
    /// # Errors
    /// [`Truncated`] if `out` is shorter than 40 bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Truncated> {
        Truncated::check("IPv6 header", HEADER_LEN, out.len())?;
        let class = u32::from(self.traffic_class) << 20;
        let first = 0x6000_0000 | class | (self.flow_label & 0x000f_ffff);
        let mut w = Writer::new(out);
        w.put(first.to_be_bytes());
        w.put(self.payload_len.to_be_bytes());
        w.put([self.next_header, self.hop_limit]);
        w.put(self.source);
        w.put(self.destination);
        Ok(())
    }
}

/// Returns the lowest byte.
const fn low_byte(value: u32) -> u8 {
    let [.., low] = value.to_be_bytes();
    low
}

/// The end of the extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Protocol of the payload; [`NEXT_NONE`] if there is none.
    pub protocol: u8,
    /// Length of the extension headers, in bytes.
    pub offset: usize,
    /// Whether the packet is a fragment (an "atomic" fragment, which is a whole packet, is not).
    pub fragment: bool,
}

/// Walks over the extension headers at the front of `bytes`, the first of type `next`.
///
/// Stops at the first header that is not an extension, and behind the first fragment header of a
/// fragmented packet, whose payload may be any bytes.
///
/// # Errors
/// [`Error`] if a header is cut off, or there are more than [`EXTENSIONS_MAX`].
pub fn walk_extensions(mut next: u8, bytes: &[u8]) -> Result<Payload, Error> {
    let mut offset = 0_usize;
    for _ in 0..=EXTENSIONS_MAX {
        // The length field counts units of 8 bytes beyond the first 8; that of AH units of 4.
        let unit = match next {
            NEXT_HOP_BY_HOP | NEXT_ROUTING | NEXT_DESTINATION | NEXT_MOBILITY => 8,
            NEXT_AUTHENTICATION => 4,
            NEXT_FRAGMENT => 0,
            _ => return Ok(Payload { protocol: next, offset, fragment: false }),
        };
        let rest = bytes.get(offset..).unwrap_or(&[]);
        let mut r = Reader::new("IPv6 extension header", 8, rest)?;
        let was = next;
        next = r.u8();
        let len = usize::from(r.u8()).saturating_mul(unit).saturating_add(8);
        Truncated::check("IPv6 extension header", len, rest.len())?;
        offset = offset.saturating_add(len);
        // Offset and more-fragments bit; the two bits between are reserved.
        if was == NEXT_FRAGMENT && r.u16_be() & 0xfff9 != 0 {
            return Ok(Payload { protocol: next, offset, fragment: true });
        }
    }
    Err(Error::Extensions)
}
