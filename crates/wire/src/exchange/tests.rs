//! Tests of the exchange on frames that `etherparse` builds and verifies, and on arbitrary bytes.

use etherparse::{ArpHardwareId, ArpOperation, ArpPacket, EtherType, PacketBuilder};
use etherparse::{Icmpv6Slice, Ipv4HeaderSlice, Ipv6HeaderSlice, UdpSlice};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ethernet::BROADCAST;
use crate::frame::HEADERS_MAX;

const SHOWN: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const OWN: [u8; 6] = [2, 0xff, 0xff, 0, 0, 7];
const PEER: [u8; 6] = [2, 9, 9, 9, 9, 9];
const FE80: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const FF02: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2];

fn pair() -> MacExchange {
    MacExchange::new(SHOWN, OWN)
}

/// Returns the frame after the exchange of its first 192 bytes, and checks that a second exchange
/// restores it.
fn exchanged(frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    let head = bytes.len().min(HEADERS_MAX);
    pair().apply(&mut bytes[..head], None);
    let mut back = bytes.clone();
    pair().apply(&mut back[..head], None);
    assert_eq!(back, frame, "the exchange is its own inverse");
    bytes
}

/// Returns the offsets at which two frames differ.
fn differences(one: &[u8], other: &[u8]) -> Vec<usize> {
    assert_eq!(one.len(), other.len());
    (0..one.len()).filter(|at| one[*at] != other[*at]).collect()
}

/// Returns an ARP packet of `SHOWN` for `target`.
fn arp(operation: ArpOperation, target: [u8; 6], destination: [u8; 6]) -> Vec<u8> {
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        operation,
        &SHOWN,
        &[10, 0, 0, 1],
        &target,
        &[10, 0, 0, 2],
    );
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(SHOWN, destination).arp(packet.unwrap()).write(&mut bytes).unwrap();
    bytes
}

/// Returns an ND message with a valid checksum: fixed part of `fixed` bytes, then `options`.
fn nd(kind: u8, fixed: usize, options: &[u8], tags: usize) -> Vec<u8> {
    let body = [&vec![0x5a; fixed - 8][..], options].concat();
    let builder = PacketBuilder::ethernet2(SHOWN, PEER);
    let mut bytes = Vec::new();
    let ip = match tags {
        0 => builder.ipv6(FE80, FF02, 255),
        1 => builder.single_vlan(etherparse::VlanId::try_new(7).unwrap()).ipv6(FE80, FF02, 255),
        _ => {
            let id = |n| etherparse::VlanId::try_new(n).unwrap();
            builder.double_vlan(id(7), id(9)).ipv6(FE80, FF02, 255)
        }
    };
    ip.icmpv6_raw(kind, 0, [0; 4]).write(&mut bytes, &body).unwrap();
    bytes
}

fn option(kind: u8, address: [u8; 6]) -> Vec<u8> {
    [&[kind, 1][..], &address].concat()
}

/// Returns whether etherparse accepts the checksum of the ICMPv6 message behind `tags` tags.
fn icmpv6_is_valid(frame: &[u8], tags: usize) -> bool {
    let packet = &frame[14 + 4 * tags..];
    let ip = Ipv6HeaderSlice::from_slice(packet).unwrap();
    let message = Icmpv6Slice::from_slice(&packet[40..]).unwrap();
    message.is_checksum_valid(ip.source(), ip.destination())
}

/// Returns a DHCP request of `SHOWN` with a valid checksum and IPv4 options of `options` bytes.
fn dhcp(ports: (u16, u16), address: [u8; 6]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0];
    message.extend([0x11; 24]);
    message.extend(address);
    message.resize(240, 0);
    // The client identifier stays.
    message.extend([61, 7, 1]);
    message.extend(SHOWN);
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(SHOWN, BROADCAST)
        .ipv4([0; 4], [255; 4], 64)
        .udp(ports.0, ports.1)
        .write(&mut bytes, &message)
        .unwrap();
    bytes
}

fn udp_is_valid(frame: &[u8]) -> bool {
    let ip = Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
    let udp = UdpSlice::from_slice(&frame[34..]).unwrap();
    let header = udp.to_header();
    let sum = header.calc_checksum_ipv4_raw(ip.source(), ip.destination(), udp.payload()).unwrap();
    sum == header.checksum
}

#[test]
fn exchange_of_an_ethernet_header_leaves_the_payload() {
    let frame = [&PEER[..], &SHOWN, &[0x88, 0xb5], &SHOWN, &OWN].concat();
    let out = exchanged(&frame);
    assert_eq!(out, [&PEER[..], &OWN, &[0x88, 0xb5], &SHOWN, &OWN].concat());
    // In the other direction, and for a peer with the guest's own address.
    let frame = [&OWN[..], &SHOWN, &[0x88, 0xb5]].concat();
    assert_eq!(exchanged(&frame), [&SHOWN[..], &OWN, &[0x88, 0xb5]].concat());
    let broadcast = [&BROADCAST[..], &PEER, &[0x88, 0xb5], &SHOWN].concat();
    assert_eq!(exchanged(&broadcast), broadcast);
}

#[test]
fn exchange_in_arp_covers_sender_and_target() {
    let request = exchanged(&arp(ArpOperation::REQUEST, [0; 6], BROADCAST));
    assert_eq!(request[..6], BROADCAST);
    assert_eq!(
        (&request[6..12], &request[22..28], &request[32..38]),
        (&OWN[..], &OWN[..], &[0; 6][..])
    );
    let reply = exchanged(&arp(ArpOperation::REPLY, OWN, OWN));
    assert_eq!((&reply[..6], &reply[6..12]), (&SHOWN[..], &OWN[..]));
    assert_eq!((&reply[22..28], &reply[32..38]), (&OWN[..], &SHOWN[..]));
    // As QEMU announces a guest after a restore.
    let mut rarp = arp(ArpOperation(3), SHOWN, BROADCAST);
    rarp[12..14].copy_from_slice(&[0x80, 0x35]);
    assert_eq!(exchanged(&rarp)[32..38], OWN);
}

#[test]
fn exchange_ignores_arp_of_other_forms() {
    let whole = arp(ArpOperation::REQUEST, SHOWN, BROADCAST);
    for (at, value) in [(15, 6), (16, 9), (18, 8), (19, 16)] {
        let mut frame = whole.clone();
        frame[at] = value;
        assert_eq!(exchanged(&frame)[14..], frame[14..], "byte {at}");
    }
    for len in 14..42 {
        assert_eq!(exchanged(&whole[..len])[14..], whole[14..len], "{len} bytes");
    }
}

#[test]
fn exchange_in_nd_keeps_the_checksum_valid() {
    let options = [option(1, SHOWN), option(2, OWN), option(1, PEER)].concat();
    for (kind, fixed) in [(133, 8), (134, 16), (135, 24), (136, 24), (137, 40)] {
        for tags in 0..=2 {
            let frame = nd(kind, fixed, &options, tags);
            assert!(icmpv6_is_valid(&frame, tags) && needs_headers(&frame[..64]));
            let out = exchanged(&frame);
            let at = 14 + 4 * tags + 40 + fixed;
            assert_eq!(out[at + 2..at + 8], OWN, "type {kind}, {tags} tags");
            assert_eq!(out[at + 10..at + 16], SHOWN);
            assert_eq!(out[at + 16..], frame[at + 16..], "an address of a third guest");
            assert!(icmpv6_is_valid(&out, tags), "type {kind}, {tags} tags");
        }
    }
}

#[test]
fn exchange_leaves_other_icmpv6_messages_and_hostile_options() {
    let own = option(1, SHOWN);
    let echo = nd(128, 24, &own, 0);
    assert_eq!(exchanged(&echo)[14..], echo[14..]);
    let mut hops = nd(135, 24, &own, 0);
    hops[21] = 254;
    assert_eq!(exchanged(&hops)[14..], hops[14..], "another hop limit");
    // A length of 0 ends the walk; another length than 8 bytes holds no Ethernet address.
    for first in [[3, 0], [1, 0], [1, 2], [14, 3], [14, 255]] {
        let options = [&first[..], &SHOWN, &own].concat();
        let frame = nd(135, 24, &options, 0);
        assert_eq!(exchanged(&frame)[14..], frame[14..], "{first:?}");
    }
    // Three tags: the third is content of an unknown type.
    let mut tagged = nd(135, 24, &own, 2);
    tagged.splice(12..12, [0x88, 0xa8, 0, 1]);
    assert_eq!(exchanged(&tagged)[14..], tagged[14..]);
    // The packet's own length ends the walk before the option.
    let mut short = nd(135, 24, &own, 0);
    short[18..20].copy_from_slice(&31_u16.to_be_bytes());
    assert_eq!(exchanged(&short)[14..], short[14..]);
    // An extension header before the message.
    let mut extended = nd(135, 24, &own, 0);
    extended[20] = ipv6::NEXT_HOP_BY_HOP;
    assert_eq!(exchanged(&extended)[14..], extended[14..]);
}

#[test]
fn exchange_in_dhcp_covers_chaddr_both_ways() {
    for ports in [(68, 67), (67, 68), (67, 67)] {
        for (address, expected) in [(SHOWN, OWN), (OWN, SHOWN), (PEER, PEER)] {
            let frame = dhcp(ports, address);
            assert!(udp_is_valid(&frame) && needs_headers(&frame[..64]));
            let out = exchanged(&frame);
            assert_eq!(out[70..76], expected);
            assert_eq!(out[frame.len() - 6..], SHOWN, "the client identifier stays");
            assert!(udp_is_valid(&out));
        }
    }
    let other = dhcp((68, 53), SHOWN);
    assert_eq!(exchanged(&other)[14..], other[14..]);
    assert!(!needs_headers(&other));
    let mut fragment = dhcp((68, 67), SHOWN);
    fragment[20] = 0x20;
    assert_eq!(exchanged(&fragment)[14..], fragment[14..], "the first fragment");
    let mut none = dhcp((68, 67), SHOWN);
    none[40..42].fill(0);
    let out = exchanged(&none);
    assert_eq!((&out[40..42], &out[70..76]), (&[0; 2][..], &OWN[..]), "no checksum stays none");
}

#[test]
fn exchange_leaves_a_checksum_that_is_completed_later() {
    let frame = nd(135, 24, &option(1, SHOWN), 0);
    let mut out = frame.clone();
    pair().apply(&mut out, Some(56));
    assert_eq!(differences(&frame, &out).iter().filter(|at| (56..58).contains(*at)).count(), 0);
    assert_eq!(out[80..86], OWN);
    let frame = dhcp((68, 67), SHOWN);
    let mut out = frame.clone();
    pair().apply(&mut out, Some(40));
    assert_eq!((&out[40..42], &out[70..76]), (&frame[40..42], &OWN[..]));
}

/// Bytes in which the parts of frames are likely.
fn frame_like() -> impl Strategy<Value = Vec<u8>> {
    let any_bytes = vec(any::<u8>(), 0..220).boxed();
    let options = vec((0_u8..5, 0_u8..4, prop_oneof![Just(SHOWN), Just(OWN), Just(PEER)]), 0..20);
    let messages = (0_usize..5, options, 0_usize..3).prop_map(|(kind, options, tags)| {
        let kinds = [(133, 8), (134, 16), (135, 24), (136, 24), (137, 40)];
        let option =
            |(kind, blocks, address): (u8, u8, [u8; 6])| [&[kind, blocks][..], &address].concat();
        let options: Vec<u8> = options.into_iter().flat_map(option).collect();
        nd(kinds[kind].0, kinds[kind].1, &options, tags)
    });
    let known = prop_oneof![
        messages,
        Just(arp(ArpOperation::REPLY, OWN, SHOWN)),
        Just(dhcp((68, 67), SHOWN)),
        Just(dhcp((67, 68), OWN)),
    ];
    // One byte of a known frame is replaced, and the frame is cut off.
    let hostile =
        (known, any::<(usize, u8)>(), 0_usize..300).prop_map(|(mut frame, (at, value), len)| {
            let at = at % frame.len();
            frame[at] = value;
            frame.truncate(len);
            frame
        });
    prop_oneof![any_bytes, hostile.boxed()]
}

proptest! {
    #[test]
    fn exchange_twice_is_the_identity(frame in frame_like()) {
        let once = {
            let mut bytes = frame.clone();
            pair().apply(&mut bytes, None);
            bytes
        };
        let mut twice = once.clone();
        pair().apply(&mut twice, None);
        let restored = frame == twice
            // The one value with two forms.
            || differences(&frame, &twice).iter().all(|at| (frame[*at], twice[*at]) == (0xff, 0));
        prop_assert!(restored, "{frame:02x?} became {twice:02x?}");
    }

    #[test]
    fn exchange_leaves_frames_without_the_addresses(frame in frame_like()) {
        let foreign = MacExchange::new([0xaa; 6], [0xae; 6]);
        let mut bytes = frame.clone();
        foreign.apply(&mut bytes, None);
        prop_assert_eq!(bytes, frame);
    }
}
