//! The header fields of a frame that flow entries match and hashes cover.
//!
//! Reads the copied head of a frame only, at most the headers that `wire::frame` found; a field
//! whose header is absent, malformed or behind the head is zero, and so are the ports of a later
//! fragment. Of a tunnel, only the outer headers are read. `ethernet::receive` calls
//! [`match_headers`] for each frame that passes the address filter, in the dispatcher's turn,
//! before the steering (`flow`) and the choice of a queue (`hash`). No call fails or drops a frame.

use causeway_wire::ethernet::{self, TYPE_VLAN};
use causeway_wire::frame::{Frame, Network, Protocol, Version};
use causeway_wire::mlx5::steering::MatchHeaders;
use causeway_wire::{ipv4, ipv6, tcp, udp};

/// Returns the fields of a frame. `head` are its first bytes, from which `frame` was parsed. Fields
/// of headers that were not found are zero.
pub(crate) fn match_headers(head: &[u8], frame: &Frame) -> MatchHeaders {
    let mut fields = MatchHeaders {
        source_mac: frame.source,
        destination_mac: frame.destination,
        ..MatchHeaders::default()
    };
    if let Ok(header) = ethernet::Header::parse(head) {
        fields.ether_type = header.ether_type;
        if let [Some(tag), _] = header.tags {
            fields.vlan = tag.vlan();
            fields.vlan_priority = (tag.control >> 13) as u8;
            fields.is_drop_eligible = tag.control & 0x1000 != 0;
            fields.has_customer_vlan = tag.protocol == TYPE_VLAN;
            fields.has_service_vlan = tag.protocol != TYPE_VLAN;
        }
    }
    if let Some(network) = &frame.network {
        fields.is_fragment = network.fragment;
        let packet = head.get(network.offset..).unwrap_or(&[]);
        network_fields(&mut fields, packet, network.version);
        transport_fields(&mut fields, head, network);
    }
    fields
}

/// Takes the fields of an IP header, which [`Frame::parse`] found complete.
fn network_fields(fields: &mut MatchHeaders, packet: &[u8], version: Version) {
    match version {
        Version::V4 => {
            let Some(header) = packet.first_chunk::<{ ipv4::HEADER_LEN }>() else { return };
            let [_, service, _, _, _, _, _, _, ttl, protocol, _, _, addresses @ ..] = *header;
            let [a, b, c, d, w, x, y, z] = addresses;
            fields.ip_version = 4;
            fields.protocol = protocol;
            fields.hop_limit = ttl;
            (fields.dscp, fields.ecn) = (service >> 2, service & 3);
            fields.source_ip = from_v4([a, b, c, d]);
            fields.destination_ip = from_v4([w, x, y, z]);
        }
        Version::V6 => {
            let Ok(header) = ipv6::Header::parse(packet) else { return };
            fields.ip_version = 6;
            fields.protocol = header.next_header;
            fields.hop_limit = header.hop_limit;
            (fields.dscp, fields.ecn) = (header.traffic_class >> 2, header.traffic_class & 3);
            fields.source_ip = header.source;
            fields.destination_ip = header.destination;
        }
    }
}

/// Returns an IPv4 address as the last part of its field.
fn from_v4([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}

/// Takes the ports and flags of a TCP or UDP header.
fn transport_fields(fields: &mut MatchHeaders, head: &[u8], network: &Network) {
    let Some(transport) = &network.transport else { return };
    let bytes = head.get(transport.offset..).unwrap_or(&[]);
    // Behind IPv6 extension headers, the last header counts.
    fields.protocol = transport.protocol.number();
    match transport.protocol {
        Protocol::Tcp => {
            let Ok(header) = tcp::Header::parse(bytes) else { return };
            (fields.tcp_source, fields.tcp_destination) = (header.source, header.destination);
            fields.tcp_flags = header.flags & 0x1ff;
        }
        Protocol::Udp => {
            let Ok(header) = udp::Header::parse(bytes) else { return };
            (fields.udp_source, fields.udp_destination) = (header.source, header.destination);
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn fields(bytes: &[u8]) -> MatchHeaders {
        match_headers(bytes, &Frame::parse(bytes).unwrap())
    }

    #[test]
    fn ethernet_match_fields_are_those_of_the_headers() {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .single_vlan(5.try_into().unwrap())
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(80, 4000, 1, 1000)
            .syn()
            .write(&mut bytes, &[])
            .unwrap();
        let found = fields(&bytes);
        assert_eq!((found.ether_type, found.vlan, found.has_customer_vlan), (0x800, 5, true));
        assert_eq!((found.ip_version, found.protocol, found.tcp_flags), (4, 6, 2));
        assert_eq!((found.tcp_source, found.tcp_destination), (80, 4000));
        assert_eq!(found.hop_limit, 64);
        assert_eq!(found.destination_ip[10..], [0, 0, 10, 0, 0, 2]);
        assert_eq!(found.destination_mac, [2, 0, 0, 0, 0, 2]);
        // The headers that are cut off are absent.
        let short = fields(&bytes[..20]);
        assert_eq!((short.ip_version, short.ether_type, short.vlan), (0, 0x800, 5));
    }

    #[test]
    fn ethernet_match_fields_of_ipv6_udp() {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 2])
            .ipv6([0xfd; 16], [0xfe; 16], 64)
            .udp(53, 54)
            .write(&mut bytes, &[1])
            .unwrap();
        let found = fields(&bytes);
        assert_eq!((found.ip_version, found.protocol), (6, 17));
        assert_eq!((found.udp_source, found.udp_destination, found.tcp_source), (53, 54, 0));
        assert_eq!((found.source_ip, found.destination_ip), ([0xfd; 16], [0xfe; 16]));
    }
}
