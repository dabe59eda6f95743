//! Ethernet: the header and up to two VLAN tags (IEEE 802.3, 802.1Q, 802.1ad). First step of every
//! frame of a port, adapter or link; the lookup of addresses is in `ethernet`'s tables and in
//! `hca::switch`.
//!
//! At most [`TAGS_MAX`] (2) tags are parsed; the EtherType behind them may be that of a third tag.
//! Addresses are not checked (a group address as source is parsed), and neither are the length of a
//! frame and its CRC, which virtio frames do not have. [`numbers`] is for the fast path of the
//! switch and the check of addresses in `tap`; [`Header`] serves all other uses. A frame that ends
//! within the header or a tag is an error of [`Header::parse`]; [`crate::frame`] takes it as a
//! frame of an unknown protocol if the header is whole. Callers run in a dispatcher's turn.

use crate::field::{Reader, Truncated, Writer};

/// Length of an untagged header, in bytes.
pub const HEADER_LEN: usize = 14;
/// Length of one VLAN tag, in bytes.
pub const TAG_LEN: usize = 4;
/// Most tags that are parsed; a third tag is the EtherType of the payload.
pub const TAGS_MAX: usize = 2;
/// Longest header that [`Header`] describes, in bytes.
pub const HEADER_LEN_MAX: usize = 22;

/// The broadcast address.
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const TYPE_ARP: u16 = 0x0806;
/// EtherType of a customer VLAN tag.
pub const TYPE_VLAN: u16 = 0x8100;
/// EtherType of a service VLAN tag.
pub const TYPE_VLAN_SERVICE: u16 = 0x88a8;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;
/// EtherType of MAC control: PAUSE and other frames between the two ends of a physical link (IEEE
/// 802.3, clause 31).
pub const TYPE_MAC_CONTROL: u16 = 0x8808;

/// Returns an address as a number, which is faster to pass and compare than six bytes.
#[inline]
pub const fn number(address: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Returns the address of a number.
#[inline]
pub const fn address(number: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, _, _] = number.to_le_bytes();
    [a, b, c, d, e, f]
}

/// Returns destination and source as numbers, and the EtherType or tag behind them, or `None` if
/// `bytes` is shorter than [`HEADER_LEN`].
#[inline]
pub fn numbers(bytes: &[u8]) -> Option<(u64, u64, u16)> {
    // Two aligned loads: a frame starts 4 bytes before a word boundary, behind its virtio-net
    // header.
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    let (second, rest) = rest.split_first_chunk::<8>()?;
    let third = rest.first_chunk::<2>()?;
    let (first, second) = (u32::from_le_bytes(*first), u64::from_le_bytes(*second));
    let destination = u64::from(first) | (second & 0xffff).wrapping_shl(32);
    Some((destination, second.wrapping_shr(16), u16::from_be_bytes(*third)))
}

/// Returns whether an address, by its [`number`], is 01:80:C2:00:00:00 to 0F. Frames to these are
/// for the other end of a link only; no bridge forwards them (IEEE 802.1Q, table 8-1).
#[inline]
pub const fn is_link_local(number: u64) -> bool {
    const FIRST: u64 = self::number([0x01, 0x80, 0xc2, 0x00, 0x00, 0x00]);
    const ALIKE: u64 = self::number([0xff, 0xff, 0xff, 0xff, 0xff, 0xf0]);
    number & ALIKE == FIRST
}

/// Returns whether the group bit is set: a multicast address or the broadcast address.
pub const fn is_group(address: [u8; 6]) -> bool {
    let [first, ..] = address;
    first & 1 == 1
}

/// Returns whether this EtherType starts a VLAN tag.
pub const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, TYPE_VLAN | TYPE_VLAN_SERVICE)
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// [`TYPE_VLAN`] or [`TYPE_VLAN_SERVICE`].
    pub protocol: u16,
    /// Priority (3 bits), drop eligible (1 bit), VLAN id (12 bits).
    pub control: u16,
}

impl Tag {
    /// Returns the VLAN id, 0 to 4095.
    pub const fn vlan(self) -> u16 {
        self.control & 0x0fff
    }
}

/// An Ethernet header with its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// Outer and inner tag; an inner tag requires an outer tag.
    pub tags: [Option<Tag>; TAGS_MAX],
    /// EtherType of the payload, or a length below 1536. Behind two tags it may be that of a third
    /// tag.
    pub ether_type: u16,
}

impl Header {
    /// Parses a header.
    ///
    /// # Errors
    /// [`Truncated`] if the header or a tag is cut off.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let header = Self::untagged(bytes)?;
        if is_tag(header.ether_type) { header.with_tags(bytes) } else { Ok(header) }
    }

    /// Parses a header without its tags.
    ///
    /// # Errors
    /// [`Truncated`] if the header is cut off.
    #[inline]
    pub fn untagged(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("Ethernet header", HEADER_LEN, bytes)?;
        let (destination, source, ether_type) = (r.take(), r.take(), r.u16_be());
        Ok(Self { destination, source, tags: [None; TAGS_MAX], ether_type })
    }

    /// Parses the tags behind the addresses.
    fn with_tags(self, bytes: &[u8]) -> Result<Self, Truncated> {
        let Self { destination, source, mut ether_type, .. } = self;
        let mut r = Reader::new("Ethernet header", HEADER_LEN, bytes)?;
        let _: [u8; HEADER_LEN] = r.take();
        let mut tags = [None; TAGS_MAX];
        let mut need = HEADER_LEN;
        for tag in &mut tags {
            if !is_tag(ether_type) {
                break;
            }
            need = need.saturating_add(TAG_LEN);
            Truncated::check("VLAN tag", need, bytes.len())?;
            *tag = Some(Tag { protocol: ether_type, control: r.u16_be() });
            ether_type = r.u16_be();
        }
        Ok(Self { destination, source, tags, ether_type })
    }

    /// Returns the length of this header, in bytes: 14, 18 or 22.
    pub fn len(&self) -> usize {
        match self.tags {
            [Some(_), Some(_)] => HEADER_LEN_MAX,
            [Some(_), None] | [None, Some(_)] => 18,
            [None, None] => HEADER_LEN,
        }
    }

    /// Returns false: a header has at least 14 bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the front of `out`.
    ///
    /// # Errors
    /// [`Truncated`] if `out` is shorter than [`Header::len`].
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Truncated> {
        Truncated::check("Ethernet header", self.len(), out.len())?;
        let mut w = Writer::new(out);
        w.put(self.destination);
        w.put(self.source);
        for tag in self.tags.iter().flatten() {
            w.put(tag.protocol.to_be_bytes());
            w.put(tag.control.to_be_bytes());
        }
        w.put(self.ether_type.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_numbers_are_the_addresses_of_the_header() {
        let bytes: Vec<u8> = (1..=14).collect();
        let header = Header::parse(&bytes).unwrap();
        let (destination, source, follows) = numbers(&bytes).unwrap();
        assert_eq!(address(destination), header.destination);
        assert_eq!(address(source), header.source);
        assert_eq!((number(header.source), follows), (source, header.ether_type));
        assert_eq!(destination >> 48 | source >> 48, 0);
        assert_eq!(numbers(&bytes[..13]), None);
    }
}
