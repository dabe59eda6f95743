//! Exchange of two Ethernet addresses in a frame: a guest has one address, its group sees another.
//!
//! The clones of one snapshot have equal addresses. The switch gives each clone an address of its
//! own and exchanges the two in each frame of the clone, before the source is checked, and in each
//! frame for the clone, in the private copy of its headers. Caller: `ethernet`, for ports with
//! `guest_mac`. It runs in the dispatcher's turn.
//!
//! # What is exchanged
//! - Destination and source of the Ethernet header. Group addresses are not exchanged, because both
//!   addresses of a [`MacExchange`] are unicast.
//! - ARP and RARP for Ethernet and IPv4: sender and target hardware address ([`arp`]).
//! - IPv6 neighbour discovery: source and target link-layer address options; the ICMPv6 checksum is
//!   updated ([`nd`]).
//! - DHCP for IPv4: the client's hardware address (`chaddr`), because a server sends its answer to
//!   that address; the UDP checksum is updated ([`dhcp`]).
//!
//! These are found behind at most two VLAN tags.
//!
//! # Limits
//! IP addresses are never changed, and so are addresses in other places: DHCP options (client
//! identifier), DHCPv6 DUIDs, LLDP, spanning tree, MACsec, packets inside tunnels, and addresses
//! that an interface identifier of IPv6 contains. Fragments, ND behind extension headers or with a
//! hop limit other than 255, frames with more than two tags, and fields behind the first
//! [`HEADERS_MAX`](crate::frame::HEADERS_MAX) (192) bytes keep their content; the Ethernet header
//! of these frames is exchanged. Secure neighbour discovery (RFC 3971) signs its options, so a
//! signed message with an exchanged option is invalid.
//!
//! # Properties
//! The exchange is its own inverse: applied twice, it restores every byte (an ICMPv6 checksum of
//! 0xffff becomes 0, which is equal in ones' complement). It never changes the length of a frame.
//! An incorrect checksum stays incorrect. The work is bounded by the length of the given bytes: at
//! most 24 options.

pub mod arp;
pub mod dhcp;
pub mod nd;

#[cfg(test)]
mod tests;

use crate::{checksum, ethernet, ipv4, ipv6, udp};

/// Two unicast addresses that are exchanged.
///
/// ```
/// use causeway_wire::exchange::MacExchange;
///
/// let exchange = MacExchange::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
/// let mut frame = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
/// exchange.apply(&mut frame, None);
/// assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 2]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacExchange {
    one: [u8; 6],
    other: [u8; 6],
}

/// Content of a frame that holds addresses, with its offset in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// An ARP or RARP packet.
    Arp(usize),
    /// An IPv6 packet whose first header is ICMPv6.
    Icmpv6(usize),
    /// An IPv4 packet with a UDP header.
    Udp4(usize),
}

impl MacExchange {
    /// Returns the exchange of two addresses. Both must be unicast: group addresses of a frame
    /// would be exchanged too.
    pub const fn new(one: [u8; 6], other: [u8; 6]) -> Self {
        Self { one, other }
    }

    /// Returns the other address for each of the two, and any third address unchanged.
    #[inline]
    pub fn address(&self, address: [u8; 6]) -> [u8; 6] {
        if address == self.one {
            self.other
        } else if address == self.other {
            self.one
        } else {
            address
        }
    }

    /// Exchanges the addresses in a frame, of which `head` holds the first bytes.
    ///
    /// `incomplete` is the offset of a checksum that is completed later (a checksum offload), in
    /// bytes from the frame's start; the field holds no sum over the message and is not updated.
    /// Fields that `head` does not hold completely are not exchanged.
    pub fn apply(&self, head: &mut [u8], incomplete: Option<usize>) {
        self.field(head, 0);
        self.field(head, 6);
        match content(head) {
            None => {}
            Some(Content::Arp(at)) => arp::exchange(self, head, at),
            Some(Content::Icmpv6(at)) => nd::exchange(self, head, at, incomplete),
            Some(Content::Udp4(at)) => dhcp::exchange(self, head, at, incomplete),
        }
    }

    /// Exchanges the address at an offset. Returns the old and the new value if it changed.
    fn field(&self, bytes: &mut [u8], at: usize) -> Option<([u8; 6], [u8; 6])> {
        let field = bytes.get_mut(at..)?.first_chunk_mut::<6>()?;
        let (old, new) = (*field, self.address(*field));
        *field = new;
        (old != new).then_some((old, new))
    }
}

/// Returns whether a frame may hold addresses behind its first 64 bytes: the caller of
/// [`MacExchange::apply`] should pass [`HEADERS_MAX`](crate::frame::HEADERS_MAX) (192) bytes of it.
/// Most frames need 14 bytes, ARP at most 50.
pub fn needs_headers(head: &[u8]) -> bool {
    match content(head) {
        None | Some(Content::Arp(_)) => false,
        Some(Content::Icmpv6(_)) => true,
        Some(Content::Udp4(at)) => dhcp::may_be(head, at),
    }
}

/// Returns the content of a frame that may hold addresses.
fn content(head: &[u8]) -> Option<Content> {
    let header = ethernet::Header::parse(head).ok()?;
    let at = header.len();
    let packet = head.get(at..)?;
    match header.ether_type {
        ethernet::TYPE_ARP | arp::TYPE_RARP => Some(Content::Arp(at)),
        ethernet::TYPE_IPV6 => {
            let header = ipv6::Header::parse(packet).ok()?;
            // RFC 4861, 6.1 and 7.1: receivers ignore messages with another hop limit.
            let is_nd = header.next_header == nd::NEXT_ICMPV6 && header.hop_limit == 255;
            is_nd.then_some(Content::Icmpv6(at))
        }
        ethernet::TYPE_IPV4 => {
            let header = ipv4::Header::parse(packet).ok()?;
            let is_udp = header.protocol == udp::PROTOCOL && !header.is_fragment();
            is_udp.then_some(Content::Udp4(at))
        }
        _ => None,
    }
}

/// Returns a checksum after six covered bytes at an even offset changed.
fn updated(checksum: u16, old: [u8; 6], new: [u8; 6]) -> u16 {
    let words = old.as_chunks::<2>().0.iter().zip(new.as_chunks::<2>().0);
    let word = |bytes: &[u8; 2]| u16::from_be_bytes(*bytes);
    words.fold(checksum, |sum, (old, new)| checksum::update(sum, word(old), word(new)))
}

/// Returns the 16-bit field at an offset.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}

/// Writes the 16-bit field at an offset, if the bytes hold it.
fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}
