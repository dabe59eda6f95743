//! VXLAN: an Ethernet frame behind 8 bytes, in UDP (RFC 7348, section 5).

use crate::field::{Reader, Truncated, Writer};

/// The port that IANA gave it.
pub const PORT: u16 = 4789;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 8;
/// Largest network identifier.
pub const VNI_MAX: u32 = 0x00ff_ffff;

/// The flag that says that a network identifier is there.
const FLAG_VNI: u8 = 0x08;

/// Why bytes are no VXLAN packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The I flag, which must be set, is not.
    #[error("VXLAN header: flags {0:#04x} without the I flag")]
    NoVni(u8),
}

/// Reads a header: the network identifier, and the frame behind it. Reserved fields are ignored, as
/// receivers must.
///
/// # Errors
/// [`Error`] says what is wrong.
pub fn parse(bytes: &[u8]) -> Result<(u32, &[u8]), Error> {
    let mut r = Reader::new("VXLAN header", HEADER_LEN, bytes)?;
    let [flags, _, _, _] = r.take();
    let vni = r.u32_be() >> 8;
    if flags & FLAG_VNI == 0 {
        return Err(Error::NoVni(flags));
    }
    Ok((vni, bytes.get(HEADER_LEN..).unwrap_or(&[])))
}

/// A header; of the network identifier the lower 24 bits.
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
    fn the_layout_is_the_rfcs() {
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
