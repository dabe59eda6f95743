//! Flooded frames and dormant links: which frames begin a session with a peer.
//!
//! A group of a site has a link to each host, and most of them are dormant. If every broadcast woke
//! them, all hosts would have sessions with each other. Therefore a flooded frame wakes a dormant link
//! only if it resolves an address or configures one (ARP, neighbour and router solicitation, DHCP, an
//! announcement of an MX NIC), and only if the peer has an address in the group, which its claims show. Links that are awake carry
//! all flooded frames. Unicast frames to an address behind a link always wake the link.
//!
//! `crate::link_tx` asks for each flooded frame to a dormant link, in the dispatcher's thread of the
//! group. The module reads the first bytes of the frame only; a frame that is cut off wakes no link.

use causeway_wire::ethernet::is_tag;
use causeway_wire::mxoe;

use crate::port::Switch;
use crate::route::SwitchIndex;

/// EtherType of ARP.
const ARP: u16 = 0x0806;
/// EtherType of IPv4.
const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
const IPV6: u16 = 0x86dd;
/// IP protocol of UDP.
const UDP: u8 = 17;
/// IP protocol of ICMPv6.
const ICMPV6: u8 = 58;
/// ICMPv6 types: router solicitation and neighbour solicitation (RFC 4861).
const SOLICITATIONS: [u8; 2] = [133, 135];
/// UDP ports of DHCP and DHCPv6.
const DHCP_PORTS: [u16; 4] = [67, 68, 546, 547];
/// Most VLAN tags that are skipped.
const TAGS_MAX: usize = 2;

impl Switch {
    /// Returns whether a flooded frame that begins with `head` wakes the dormant link of a bundle.
    pub(crate) fn wakes(&self, to: SwitchIndex, head: &[u8]) -> bool {
        resolves(head).unwrap_or(false) && self.table.learnt_at(to) > 0
    }
}

/// Returns whether a frame resolves or configures an address; `None` if it is cut off.
fn resolves(head: &[u8]) -> Option<bool> {
    let (mut kind, mut payload) = ethertype(head.get(12..)?)?;
    for _ in 0..TAGS_MAX {
        if is_tag(kind) {
            (kind, payload) = ethertype(payload.get(2..)?)?;
        }
    }
    Some(match kind {
        // A request in which sender and target are the same is an announcement.
        mxoe::ETHER_TYPE => true,
        ARP => payload.get(6..8)? == [0, 1] && payload.get(14..18)? != payload.get(24..28)?,
        IPV4 => {
            let len = usize::from(payload.first()? & 0xf).saturating_mul(4);
            let is_first = u16_at(payload, 6)? & 0x1fff == 0;
            *payload.get(9)? == UDP && is_first && is_dhcp(payload.get(len..)?)?
        }
        IPV6 => match (*payload.get(6)?, payload.get(40..)?) {
            (ICMPV6, text) => SOLICITATIONS.contains(text.first()?),
            (UDP, text) => is_dhcp(text)?,
            _ => false,
        },
        _ => false,
    })
}

/// Returns an EtherType and the bytes behind it.
fn ethertype(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (kind, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*kind), rest))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let (value, _) = bytes.get(at..)?.split_first_chunk::<2>()?;
    Some(u16::from_be_bytes(*value))
}

/// Returns whether a UDP header has a port of DHCP as destination.
fn is_dhcp(udp: &[u8]) -> Option<bool> {
    Some(DHCP_PORTS.contains(&u16_at(udp, 2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
        [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &kind.to_be_bytes(), payload].concat()
    }

    fn arp(op: u8, from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        [&[0, 1, 8, 0, 6, 4, 0, op], &[2; 6][..], &from, &[0; 6], &to].concat()
    }

    fn ipv4(protocol: u8, fragment: u8, port: u16) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        let header =
            [0x45, 0, 0, 40, 0, 0, 0, fragment, 64, protocol, 0, 0, 1, 2, 3, 4, 9, 9, 9, 9];
        [&header[..], &[0, 68, high, low, 0, 20, 0, 0]].concat()
    }

    fn ipv6(next: u8, text: &[u8]) -> Vec<u8> {
        [&[0x60, 0, 0, 0, 0, 8, next, 255][..], &[0xfe; 32], text].concat()
    }

    #[test]
    fn dormant_links_wake_for_address_resolution_only() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for (wakes, frame) in [
            (true, frame(ARP, &arp(1, a, b))),
            (true, frame(ARP, &arp(1, [0; 4], b))),
            (false, frame(ARP, &arp(1, a, a))),
            (false, frame(ARP, &arp(2, a, b))),
            (true, frame(IPV4, &ipv4(17, 0, 67))),
            (false, frame(IPV4, &ipv4(17, 9, 67))),
            (false, frame(IPV4, &ipv4(6, 0, 67))),
            (false, frame(IPV4, &ipv4(17, 0, 5353))),
            (true, frame(IPV6, &ipv6(58, &[135, 0]))),
            (true, frame(IPV6, &ipv6(58, &[133, 0]))),
            (false, frame(IPV6, &ipv6(58, &[128, 0]))),
            (true, frame(IPV6, &ipv6(17, &[0, 1, 2, 0x23]))),
            (false, frame(0x88cc, &[0; 40])),
            (true, frame(0x86df, &[0; 40])),
            (true, frame(0x8100, &[&[0, 5, 8, 6][..], &arp(1, a, b)].concat())),
        ] {
            assert_eq!(resolves(&frame), Some(wakes), "{frame:02x?}");
            for len in 0..14 {
                assert_ne!(resolves(&frame[..len]), Some(true), "cut off");
            }
        }
    }
}
