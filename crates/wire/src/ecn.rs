//! Explicit congestion notification (RFC 3168) of packets inside frames, and its way through a
//! tunnel (RFC 6040).
//!
//! Used where a frame enters or leaves a tunnel between hosts. The daemon that encapsulates (RFC
//! 6040's ingress) reads DSCP and ECN of the inner packet ([`traffic_class`]); the link's
//! configuration decides which of both the outer header takes. A router on the path marks the outer
//! header. The daemon that decapsulates combines the ECN of both ([`decapsulate`]), so that the
//! inner receiver learns of the congestion; the inner DSCP stays. A mark on a packet without ECN is
//! [`Unmarkable`]: `link` drops the frame and counts it. A frame that was sent in fragments has the
//! ECN of all of them ([`Ecn::join`]). IP is found behind at most two VLAN tags; a frame without IP
//! has class 0 and is not changed. This module sets no marks of its own and reads no socket
//! options. Caller: `link` (tunnels, VXLAN, VNET's bare frames, reassembly); `model` uses
//! [`ECN_MASK`]. The class is read in the thread of the sending group; marks are combined in the
//! shard of links.

use crate::checksum;
use crate::ethernet::{Header, TYPE_IPV4, TYPE_IPV6};
use crate::ipv4;

/// Mask of the ECN field in a traffic class; the other bits are the DSCP.
pub const ECN_MASK: u8 = 0b11;

/// Offset of the checksum in an IPv4 header, in bytes.
const CHECKSUM_OFFSET: usize = 10;

/// The ECN field (RFC 3168, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not support ECN.
    #[default]
    NotEct = 0,
    /// The transport supports ECN; in L4S (RFC 9331) it responds to each mark.
    Ect1 = 1,
    /// The transport supports ECN.
    Ect0 = 2,
    /// Congestion was experienced on the path.
    Ce = 3,
}

impl Ecn {
    /// All codepoints, by number.
    pub const ALL: [Self; 4] = [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce];

    /// Returns the ECN field of a traffic class.
    #[inline]
    pub const fn of(class: u8) -> Self {
        match class & ECN_MASK {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Returns the ECN field of a packet reassembled from fragments with `self` and `other` (RFC
    /// 3168, section 5.3): a mark on any fragment marks the packet.
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ce, _) | (_, Self::Ce) => Self::Ce,
            (Self::Ect1, _) | (_, Self::Ect1) => Self::Ect1,
            (Self::Ect0, _) | (_, Self::Ect0) => Self::Ect0,
            (Self::NotEct, Self::NotEct) => Self::NotEct,
        }
    }

    /// Returns the ECN field of a decapsulated packet: `self` is the inner field, `outer` that of
    /// the outer header (RFC 6040, figure 4).
    ///
    /// # Errors
    /// [`Unmarkable`]: the packet must be dropped.
    pub const fn combine(self, outer: Self) -> Result<Self, Unmarkable> {
        match (self, outer) {
            (Self::NotEct, Self::Ce) => Err(Unmarkable),
            (Self::Ect0 | Self::Ect1, Self::Ce) => Ok(Self::Ce),
            (Self::Ect0, Self::Ect1) => Ok(Self::Ect1),
            (inner, _) => Ok(inner),
        }
    }
}

/// A router marked a packet whose transport responds to loss only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("congestion was experienced by a packet whose transport does not take part in ECN")]
pub struct Unmarkable;

/// Returns the position of a frame's IP header, and whether it is IPv4.
#[inline]
fn network(frame: &[u8]) -> Option<(bool, usize)> {
    let header = Header::parse(frame).ok()?;
    match header.ether_type {
        TYPE_IPV4 => Some((true, header.len())),
        TYPE_IPV6 => Some((false, header.len())),
        _ => None,
    }
}

/// Returns the traffic class (DSCP and ECN) of the IP packet in a frame, or 0 if the frame has
/// none. The frame's first bytes suffice.
#[inline]
pub fn traffic_class(frame: &[u8]) -> u8 {
    let class = || {
        let (v4, at) = network(frame)?;
        let [first, second] = *frame.get(at..)?.first_chunk::<2>()?;
        match (v4, first >> 4) {
            (true, 4) => Some(second),
            (false, 6) => Some(first << 4 | second >> 4),
            _ => None,
        }
    };
    class().unwrap_or(0)
}

/// Combines the ECN field of the outer header with that of the IP packet in a frame, and updates an
/// IPv4 header's checksum. A frame without an IP packet is left unchanged.
///
/// # Errors
/// [`Unmarkable`]: the frame must be dropped; it is unchanged.
#[inline]
pub fn decapsulate(frame: &mut [u8], outer: Ecn) -> Result<(), Unmarkable> {
    // Most datagrams: no combination changes the packet.
    if outer == Ecn::NotEct { Ok(()) } else { mark(frame, outer) }
}

/// Does the work of [`decapsulate`] for an outer header of a transport with ECN.
fn mark(frame: &mut [u8], outer: Ecn) -> Result<(), Unmarkable> {
    let Some((v4, at)) = network(frame) else { return Ok(()) };
    let header = frame.get_mut(at..).unwrap_or_default();
    if v4 {
        let Some(header) = header.first_chunk_mut::<{ ipv4::HEADER_LEN }>() else { return Ok(()) };
        let [first, class, ..] = header;
        if *first >> 4 != 4 {
            return Ok(());
        }
        let inner = Ecn::of(*class);
        let marked = inner.combine(outer)?;
        if marked == inner {
            return Ok(());
        }
        let old = u16::from_be_bytes([*first, *class]);
        *class = *class & !ECN_MASK | marked as u8;
        let new = u16::from_be_bytes([*first, *class]);
        if let Some(field) =
            header.get_mut(CHECKSUM_OFFSET..).and_then(<[u8]>::first_chunk_mut::<2>)
        {
            *field = checksum::update(u16::from_be_bytes(*field), old, new).to_be_bytes();
        }
    } else {
        let Some([first, second]) = header.first_chunk_mut::<2>() else { return Ok(()) };
        if *first >> 4 != 6 {
            return Ok(());
        }
        // The field lies in the upper half of the second byte.
        let marked = Ecn::of(*second >> 4).combine(outer)?;
        *second = *second & !(ECN_MASK << 4) | (marked as u8) << 4;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// A DSCP that is not 0.
    const EF: u8 = 46 << 2;

    /// A frame with so many tags around a packet of that traffic class.
    fn frame(v4: bool, tags: usize, class: u8) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = match v4 {
            true => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            false => builder.ipv6([1; 16], [2; 16], 64),
        };
        let mut plain = Vec::new();
        builder.udp(1000, 2000).write(&mut plain, b"payload").unwrap();
        let mut frame = plain[..12].to_vec();
        for tag in 0..tags {
            frame.extend(if tag + 1 < tags { [0x88, 0xa8, 0, 5] } else { [0x81, 0x00, 0, 6] });
        }
        let at = frame.len() + 2;
        frame.extend(&plain[12..]);
        if v4 {
            frame[at + 1] = class;
            frame[at + 10..at + 12].fill(0);
            let sum = checksum::of(&frame[at..at + 20]);
            frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame[at] = 0x60 | class >> 4;
            frame[at + 1] = class << 4 | 0x0a;
        }
        frame
    }

    #[test]
    fn ecn_is_combined_as_in_figure_4_of_rfc_6040() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        // By row (inner): the columns are outer Not-ECT, ECT(0), ECT(1) and CE.
        let figure = [
            (NotEct, [Ok(NotEct), Ok(NotEct), Ok(NotEct), Err(Unmarkable)]),
            (Ect0, [Ok(Ect0), Ok(Ect0), Ok(Ect1), Ok(Ce)]),
            (Ect1, [Ok(Ect1), Ok(Ect1), Ok(Ect1), Ok(Ce)]),
            (Ce, [Ok(Ce), Ok(Ce), Ok(Ce), Ok(Ce)]),
        ];
        let mut combinations = 0;
        for (inner, row) in figure {
            for (outer, leaves) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                assert_eq!(inner.combine(outer), leaves, "{inner:?} behind {outer:?}");
                // The DSCP and all other bytes stay as they were, and the checksum stays right.
                for (v4, tags) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 2)] {
                    let mut bytes = frame(v4, tags, EF | inner as u8);
                    let before = bytes.clone();
                    assert_eq!(decapsulate(&mut bytes, outer), leaves.map(drop));
                    let left = leaves.unwrap_or(inner);
                    assert_eq!(bytes, frame(v4, tags, EF | left as u8));
                    assert_eq!(bytes == before, left == inner);
                }
                combinations += 1;
            }
        }
        assert_eq!(combinations, 16);
    }

    #[test]
    fn ecn_updates_any_checksum_and_leaves_a_wrong_one_wrong() {
        for class in (0..=255).step_by(4).map(|dscp| dscp | Ecn::Ect0 as u8) {
            for wrong in [0, 1] {
                let mut bytes = frame(true, 0, class);
                bytes[24] ^= wrong;
                decapsulate(&mut bytes, Ecn::Ce).unwrap();
                assert_eq!(bytes[15], class | Ecn::Ce as u8);
                assert_eq!(checksum::of(&bytes[14..34]) == 0, wrong == 0, "class {class}");
            }
        }
    }

    #[test]
    fn ecn_is_read_behind_tags_and_of_ip_only() {
        for class in 0..=255 {
            for (v4, tags) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2)]
            {
                assert_eq!(traffic_class(&frame(v4, tags, class)), class);
            }
        }
        let mut other = frame(true, 0, 255);
        other[13] = 6;
        assert_eq!(traffic_class(&other), 0, "ARP");
        let before = other.clone();
        assert_eq!(decapsulate(&mut other, Ecn::Ce), Ok(()));
        assert_eq!(other, before);
        // A version that contradicts the EtherType: not an IP packet.
        let mut other = frame(true, 0, 255);
        other[14] = 0x65;
        assert_eq!((traffic_class(&other), decapsulate(&mut other, Ecn::Ce)), (0, Ok(())));
    }

    #[test]
    fn hostile_frames_of_every_length_stay_unchanged_or_are_marked() {
        for (v4, tags) in [(true, 0), (true, 2), (false, 0), (false, 2)] {
            let whole = frame(v4, tags, Ecn::Ect0 as u8);
            for len in 0..whole.len() {
                let mut cut = whole[..len].to_vec();
                traffic_class(&cut);
                decapsulate(&mut cut, Ecn::Ce).unwrap();
            }
        }
    }

    #[test]
    fn ecn_of_a_packet_is_that_of_its_fragments() {
        for (a, b) in Ecn::ALL.into_iter().flat_map(|a| Ecn::ALL.map(|b| (a, b))) {
            assert_eq!(a.join(b), b.join(a));
            assert_eq!(a.join(b) == Ecn::Ce, a == Ecn::Ce || b == Ecn::Ce);
            assert_eq!(a.join(a), a);
        }
    }
}
