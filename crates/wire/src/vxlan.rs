//! VXLAN: an Ethernet frame behind a header of 8 bytes, in UDP (RFC 7348, section 5). Used by links
//! to VXLAN peers; learning of addresses is not here.
//!
//! The header has no checksum, sequence number or authentication: any host that can send to the
//! port can send frames. The frame behind the header is not parsed. Group policy and other
//! extensions are ignored. A packet that is cut off or has no network identifier is an [`Error`],
//! and `link` drops it. Callers: `link`'s VXLAN paths, below UDP on the way out and after it on the
//! way in. On the way out they run in the thread of the sending group, on the way in in the shard
//! of links.

use crate::field::{Reader, Truncated, Writer};

/// UDP port assigned by IANA.
pub const PORT: u16 = 4789;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 8;
/// Largest network identifier.
pub const VNI_MAX: u32 = 0x00ff_ffff;

/// Flag I: the network identifier is valid.
const FLAG_VNI: u8 = 0x08;

/// The reason why bytes are not a VXLAN packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The I flag is not set.
    #[error("VXLAN header: flags {0:#04x} without the I flag")]
    NoVni(u8),
}

/// Parses a header. Returns the network identifier and the frame behind it. Reserved fields are
/// ignored, as the RFC requires.
///
/// # Errors
/// [`Error`] if the header is cut off or has no network identifier.
pub fn parse(bytes: &[u8]) -> Result<(u32, &[u8]), Error> {
    let mut r = Reader::new("VXLAN header", HEADER_LEN, bytes)?;
    let [flags, _, _, _] = r.take();
    let vni = r.u32_be() >> 8;
    if flags & FLAG_VNI == 0 {
        return Err(Error::NoVni(flags));
    }
    Ok((vni, bytes.get(HEADER_LEN..).unwrap_or(&[])))
}

/// Encodes a header, with the lower 24 bits of the network identifier.
pub fn emit(vni: u32) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    let mut w = Writer::new(&mut bytes);
    w.put([FLAG_VNI, 0, 0, 0]);
    w.put((vni << 8).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vxlan_header_has_the_layout_of_rfc_7348() {
        assert_eq!(emit(0x01_0203), [8, 0, 0, 0, 1, 2, 3, 0]);
        let packet = [&emit(7)[..], &[0xaa; 14]].concat();
        assert_eq!(parse(&packet), Ok((7, &[0xaa; 14][..])));
        let reserved = [0xff, 1, 2, 3, 0xff, 0xff, 0xff, 9];
        assert_eq!(parse(&reserved), Ok((VNI_MAX, &[][..])), "reserved bits are ignored");
    }

    #[test]
    fn hostile_headers_are_refused() {
        assert!(matches!(parse(&[8, 0, 0, 0, 0, 0, 1]), Err(Error::Truncated(_))));
        assert_eq!(parse(&[0xf7, 0, 0, 0, 0, 0, 1, 0]), Err(Error::NoVni(0xf7)));
    }
}
