//! Comparison of the formats with `etherparse`, an independent implementation, on arbitrary bytes.

use causeway_wire::frame::{Frame, Protocol, Version};
use causeway_wire::{checksum, ethernet, ipv4, ipv6, tcp, udp};
use etherparse::{
    Ethernet2HeaderSlice, Ipv4HeaderSlice, Ipv6HeaderSlice, PacketBuilder, TcpHeaderSlice,
    UdpHeaderSlice,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns the checksum by the definition of RFC 1071, word by word.
fn naive_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// Returns bytes that likely start an IP header of `version`.
fn ip_like(version: u8) -> impl Strategy<Value = Vec<u8>> {
    (vec(any::<u8>(), 0..120), 3_u8..16).prop_map(move |(mut bytes, low)| {
        if let Some(first) = bytes.first_mut() {
            *first = version << 4 | low;
        }
        bytes
    })
}

/// EtherTypes of the known tags.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

proptest! {
    #[test]
    fn checksums_equal_the_definition_for_any_split(bytes in vec(any::<u8>(), 0..400), cuts in vec(0_usize..400, 0..6)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut sum = checksum::Sum::new();
        let mut from = 0;
        for cut in cuts {
            sum.add(&bytes[from..cut]);
            from = cut;
        }
        prop_assert_eq!(sum.finish(), naive_checksum(&bytes));
        prop_assert_eq!(checksum::of(&bytes), naive_checksum(&bytes));
    }

    #[test]
    fn checksum_update_equals_a_new_checksum(mut bytes in vec(any::<u8>(), 2..60), at in 0_usize..29, new: u16) {
        let at = at * 2 % (bytes.len() / 2 * 2);
        let before = checksum::of(&bytes);
        let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        let (updated, whole) = (checksum::update(before, old, new), checksum::of(&bytes));
        // Both zeroes of ones' complement are equal.
        prop_assert!(updated == whole || (updated ^ whole) == 0xffff && [0, 0xffff].contains(&updated));
    }

    #[test]
    fn ethernet_headers_equal_the_oracle(bytes in vec(any::<u8>(), 0..40), tags in 0_usize..4) {
        let mut bytes = bytes;
        for tag in 0..tags {
            if let Some(place) = bytes.get_mut(12 + 4 * tag..14 + 4 * tag) {
                place.copy_from_slice(&TAGS[tag % 2]);
            }
        }
        // Arbitrary bytes behind these may be a tag too.
        let stands = |tag: &usize| TAGS.iter().any(|kind| bytes[12 + 4 * tag..].starts_with(kind));
        match (ethernet::Header::parse(&bytes), Ethernet2HeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!(ours.destination, theirs.destination());
                prop_assert_eq!(ours.source, theirs.source());
                let outer = ours.tags[0].map_or(ours.ether_type, |t| t.protocol);
                prop_assert_eq!(outer, theirs.ether_type().0);
                prop_assert_eq!(ours.len(), 14 + 4 * (0..2).take_while(stands).count());
                let mut out = vec![0; ours.len()];
                ours.emit(&mut out).unwrap();
                prop_assert_eq!(&out[..], &bytes[..ours.len()]);
                prop_assert!(ours.emit(&mut out[1..]).is_err());
            }
            (Err(error), _) => prop_assert!(error.have < error.need),
            (ours, theirs) => prop_assert!(false, "{ours:?} {theirs:?}"),
        }
    }

    #[test]
    fn ipv4_headers_equal_the_oracle(bytes in ip_like(4)) {
        match (ipv4::Header::parse(&bytes), Ipv4HeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!(ours.total_len, theirs.total_len());
                prop_assert_eq!(ours.id, theirs.identification());
                prop_assert_eq!(ours.fragment & 0x1fff, theirs.fragments_offset().value());
                prop_assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
                prop_assert_eq!(ours.fragment & ipv4::DONT_FRAGMENT != 0, theirs.dont_fragment());
                prop_assert_eq!((ours.ttl, ours.protocol), (theirs.ttl(), theirs.protocol().0));
                prop_assert_eq!((ours.source, ours.destination), (theirs.source(), theirs.destination()));
                prop_assert_eq!(ours.options, theirs.options());
                let mut out = vec![0; ours.header_len()];
                ours.emit(&mut out).unwrap();
                prop_assert_eq!(&out[..], &bytes[..ours.header_len()]);
                let right = theirs.to_header().calc_header_checksum();
                let mut filled = ours;
                filled.fill_checksum();
                // Our encoding keeps the reserved flag, which theirs has no field for.
                if ours.fragment & 0x8000 == 0 {
                    prop_assert_eq!(filled.checksum, right);
                }
                prop_assert!(filled.checksum_is_right());
            }
            // Our parser refuses a total length below the header's; theirs does not check it here.
            (Err(ipv4::Error::TotalLen { .. }), _) | (Err(_), Err(_)) => {}
            (ours, theirs) => prop_assert!(false, "{ours:?} {theirs:?}"),
        }
    }

    #[test]
    fn ipv6_headers_equal_the_oracle(bytes in ip_like(6)) {
        match (ipv6::Header::parse(&bytes), Ipv6HeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!(ours.traffic_class, theirs.traffic_class());
                prop_assert_eq!(ours.flow_label, theirs.flow_label().value());
                prop_assert_eq!(ours.payload_len, theirs.payload_length());
                prop_assert_eq!((ours.next_header, ours.hop_limit), (theirs.next_header().0, theirs.hop_limit()));
                prop_assert_eq!((ours.source, ours.destination), (theirs.source(), theirs.destination()));
                let mut out = [0; ipv6::HEADER_LEN];
                ours.emit(&mut out).unwrap();
                prop_assert_eq!(&out[..], &bytes[..ipv6::HEADER_LEN]);
            }
            (Err(_), Err(_)) => {}
            (ours, theirs) => prop_assert!(false, "{ours:?} {theirs:?}"),
        }
    }

    #[test]
    fn tcp_headers_equal_the_oracle(bytes in vec(any::<u8>(), 0..90)) {
        match (tcp::Header::parse(&bytes), TcpHeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!((ours.source, ours.destination), (theirs.source_port(), theirs.destination_port()));
                prop_assert_eq!(ours.sequence, theirs.sequence_number());
                prop_assert_eq!(ours.acknowledgement, theirs.acknowledgment_number());
                prop_assert_eq!(ours.flags & tcp::CWR != 0, theirs.cwr());
                prop_assert_eq!(ours.flags & tcp::FIN != 0, theirs.fin());
                prop_assert_eq!((ours.window, ours.checksum), (theirs.window_size(), theirs.checksum()));
                prop_assert_eq!(ours.options, theirs.options());
                let mut out = vec![0; ours.header_len()];
                ours.emit(&mut out).unwrap();
                prop_assert_eq!(&out[..], &bytes[..ours.header_len()]);
            }
            (Err(_), Err(_)) => {}
            (ours, theirs) => prop_assert!(false, "{ours:?} {theirs:?}"),
        }
    }

    #[test]
    fn udp_headers_equal_the_oracle(bytes in vec(any::<u8>(), 0..20)) {
        match (udp::Header::parse(&bytes), UdpHeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!((ours.source, ours.destination), (theirs.source_port(), theirs.destination_port()));
                prop_assert_eq!((ours.len, ours.checksum), (theirs.length(), theirs.checksum()));
                prop_assert_eq!(&ours.emit()[..], &bytes[..udp::HEADER_LEN]);
            }
            (Err(_), Err(_)) => {}
            (ours, theirs) => prop_assert!(false, "{ours:?} {theirs:?}"),
        }
    }

    #[test]
    fn ipv6_extension_walk_ends_and_stays_inside(next: u8, bytes in vec(prop_oneof![Just(0_u8), any::<u8>()], 0..300)) {
        if let Ok(end) = ipv6::walk_extensions(next, &bytes) {
            prop_assert!(end.offset <= bytes.len());
        }
    }

    #[test]
    fn frames_of_arbitrary_bytes_are_parsed(mut bytes in vec(any::<u8>(), 0..200), kind in 0_usize..3) {
        if let Some(place) = bytes.get_mut(12..14) {
            place.copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0]][kind]);
        }
        let frame = Frame::parse(&bytes);
        prop_assert_eq!(frame.is_ok(), bytes.len() >= 14);
        if let Ok(frame) = frame {
            let transport = frame.network.and_then(|n| n.transport);
            prop_assert!(transport.is_none_or(|t| t.payload <= bytes.len()));
            frame.flow_key(&bytes);
        }
    }

    #[test]
    fn frames_of_the_oracle_are_parsed(payload in vec(any::<u8>(), 0..100), v6: bool, use_tcp: bool, vlan: bool) {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = match (vlan, v6) {
            (false, false) => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            (false, true) => builder.ipv6([1; 16], [2; 16], 64),
            (true, false) => builder.single_vlan(7.try_into().unwrap()).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            (true, true) => builder.single_vlan(7.try_into().unwrap()).ipv6([1; 16], [2; 16], 64),
        };
        let mut bytes = Vec::new();
        if use_tcp {
            ip.tcp(1, 2, 3, 4).write(&mut bytes, &payload).unwrap();
        } else {
            ip.udp(1, 2).write(&mut bytes, &payload).unwrap();
        }
        let frame = Frame::parse(&bytes).unwrap();
        let network = frame.network.unwrap();
        let transport = network.transport.unwrap();
        prop_assert_eq!((frame.source[5], frame.destination[5]), (1, 2));
        prop_assert_eq!(network.version, if v6 { Version::V6 } else { Version::V4 });
        prop_assert_eq!(network.end, bytes.len());
        prop_assert_eq!(transport.protocol, if use_tcp { Protocol::Tcp } else { Protocol::Udp });
        prop_assert_eq!(&bytes[transport.payload..], &payload[..]);
        let mut other = bytes.clone();
        other[transport.offset] ^= 1;
        prop_assert_ne!(frame.flow_key(&bytes), frame.flow_key(&other));
    }
}
