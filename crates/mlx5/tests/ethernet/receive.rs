//! Frames between two interfaces: checksums, completions, tags, filters and hashes.

use std::collections::{BTreeMap, BTreeSet};

use causeway_mlx5::ethernet::{Body, FrameRef, Next, Received};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::steering::MatchHeaders;
use causeway_wire::mlx5::vport::{NicVportContext, select};
use causeway_wire::mlx5::work_request::{
    CHECKSUM_L3, CHECKSUM_L4, EthernetSegment, INSERT_VLAN, SendOpcode,
};
use causeway_wire::virtio_net::Offload;

use crate::driver::World;
use crate::interface::*;

const SUMS: EthernetSegment = EthernetSegment {
    checksums: CHECKSUM_L3 | CHECKSUM_L4,
    parser_flags: 0,
    segment_size: 0,
    metadata: 0,
    inline_len: 0,
    start: [0; 2],
};

#[test]
fn ethernet_frame_arrives_with_checksums_and_both_completions() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    for payload in [0, 1, 17, 300, 1000, 1471] {
        let mut bytes = udp(payload);
        let expected = bytes.clone();
        // The driver's values of both checksums are ignored.
        bytes[24..26].copy_from_slice(&[0xaa; 2]);
        bytes[40..42].copy_from_slice(&[0xbb; 2]);
        let data = one.payload(&bytes[18..]);
        one.post_send(SendOpcode::Send, |w| w.ethernet(SUMS, &bytes[..18]).data(&data));
        let (next, received) = one.forward(&mut world, &two);
        assert_eq!((next, received), (Next::Frame, Some(Received::Delivered { frames: 1 })));
        let (entry, received) = two.receive(0).unwrap();
        assert_eq!(received, expected);
        verify(&entry, &received);
        // The value in the place of the queue's number is the flow tag: Linux marks packets with it.
        assert_eq!((entry.queue, entry.layer4, entry.has_vlan), (0x77, 2, false));
        let Some(Entry::Success(sent)) = one.sent_entry() else { panic!() };
        assert_eq!((sent.queue, sent.request_opcode, sent.opcode), (one.send, 10, 0));
        assert_eq!((sent.counter, sent.user_index), (one.sent.wrapping_sub(1), 0x51));
    }
    assert_eq!(one.forward(&mut world, &two), (Next::Empty, None));
    let counters = world.function(&two.guest).ethernet_counters();
    assert_eq!(counters.received.total().frames, 6);
    assert_eq!(world.function(&one.guest).ethernet_counters().sent.unicast.frames, 6);
}

#[test]
fn ethernet_frame_with_wrong_checksum_is_reported_as_such() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let mut bytes = tcp(5, 100);
    bytes[50] ^= 1;
    one.send_frame(&mut world, &two, &bytes);
    let (entry, received) = two.receive(0).unwrap();
    assert_eq!(received, bytes);
    // The sum is that of the bytes; the driver finds the error. Layer 4 is not reported as right.
    assert_eq!(entry.checksum, !causeway_wire::checksum::of(&bytes[14..]));
    assert_eq!(entry.checks, 3);
    bytes[24] ^= 1;
    one.send_frame(&mut world, &two, &bytes);
    assert_eq!(two.receive(0).unwrap().0.checks, 1);
}

#[test]
fn ethernet_sum_ends_with_the_packet_and_begins_behind_tags() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let packet = udp(10);
    let mut padded = packet.clone();
    padded.extend([0x55; 30]);
    one.send_frame(&mut world, &two, &padded);
    let (entry, received) = two.receive(0).unwrap();
    assert_eq!(received, padded);
    assert_eq!(entry.checksum, !causeway_wire::checksum::of(&packet[14..]));
    assert_eq!(entry.checks, 7);
    let mut tagged = packet.clone();
    tagged.splice(12..12, [0x81, 0, 0x20, 5]);
    one.send_frame(&mut world, &two, &tagged);
    let (entry, received) = two.receive(0).unwrap();
    assert_eq!((received, entry.has_vlan), (tagged, false));
    assert_eq!(entry.checksum, !causeway_wire::checksum::of(&packet[14..]));
}

#[test]
fn ethernet_tag_is_inserted_and_removed() {
    let mut world = World::new();
    let options = Options { keeps_vlan: false, ..Options::default() };
    let (mut one, mut two) = pair(&mut world, options);
    let bytes = udp(500);
    let data = one.payload(&bytes);
    let segment = EthernetSegment { inline_len: INSERT_VLAN, start: [0x60, 7], ..SUMS };
    one.post_send(SendOpcode::Send, |w| w.ethernet(segment, &[]).data(&data));
    one.forward(&mut world, &two);
    let (entry, received) = two.receive(0).unwrap();
    assert_eq!((entry.has_vlan, entry.vlan), (true, 0x6007));
    assert_eq!(received, bytes);
    verify(&entry, &received);
    // A service tag stays.
    let segment = EthernetSegment { inline_len: INSERT_VLAN | 1, ..segment };
    one.post_send(SendOpcode::Send, |w| w.ethernet(segment, &[]).data(&data));
    one.forward(&mut world, &two);
    let (entry, received) = two.receive(0).unwrap();
    assert!(!entry.has_vlan);
    assert_eq!(received[12..16], [0x88, 0xa8, 0x60, 7]);
}

#[test]
fn ethernet_flows_spread_over_queues_and_each_stays_on_one() {
    let mut world = World::new();
    let options = Options { queues: 4, ..Options::default() };
    let (mut one, mut two) = pair(&mut world, options);
    let mut queue_of: BTreeMap<u16, usize> = BTreeMap::new();
    for round in 0..3 {
        for port in 100..160 {
            let received = one.send_frame(&mut world, &two, &tcp(port, 10 * round));
            assert_eq!(received, Received::Delivered { frames: 1 });
            let queue = (0..4).find(|queue| two.receive(*queue).is_some()).unwrap();
            assert_eq!(*queue_of.entry(port).or_insert(queue), queue);
            one.sent_entry().unwrap();
        }
    }
    assert_eq!(queue_of.values().collect::<BTreeSet<_>>().len(), 4);
    // A completion carries the hash and its kind.
    one.send_frame(&mut world, &two, &tcp(100, 0));
    let (entry, _) = two.receive(queue_of[&100]).unwrap();
    assert_eq!((entry.hash_type, entry.layer4, entry.queue), (0x55, 3, 0));
    assert_ne!(entry.hash, 0);
}

#[test]
fn ethernet_receiver_filters_addresses() {
    let mut world = World::new();
    let (one, two) = pair(&mut world, Options::default());
    let offer_to = |world: &mut World, to: [u8; 6]| {
        let mut bytes = udp(1);
        bytes[..6].copy_from_slice(&to);
        let frame = FrameRef {
            offload: &Offload::None,
            head: &bytes,
            body: Body::Private(&[]),
            len: bytes.len(),
        };
        offer(world, &two, &frame)
    };
    let (own, other, group) = (two.guest.mac, one.guest.mac, [1, 0, 0x5e, 0, 0, 1]);
    let one_frame = Received::Delivered { frames: 1 };
    assert_eq!(offer_to(&mut world, own), one_frame);
    assert_eq!(offer_to(&mut world, [0xff; 6]), one_frame);
    assert_eq!(offer_to(&mut world, other), Received::Filtered);
    assert_eq!(offer_to(&mut world, group), Received::Filtered);
    let modes = NicVportContext { is_promiscuous: true, ..Default::default() };
    modify_vport(&mut world, &two.guest, select::PROMISCUOUS, modes).unwrap();
    assert_eq!(offer_to(&mut world, other), one_frame);
    assert_eq!(offer_to(&mut world, group), one_frame);
    let counters = world.function(&two.guest).ethernet_counters();
    assert_eq!(counters.filtered, 2);
    assert_eq!((counters.received.multicast.frames, counters.received.broadcast.frames), (1, 1));
}

#[test]
fn ethernet_no_operation_completes_and_sends_nothing() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    one.post_send(SendOpcode::Nop, |w| w);
    let bytes = udp(3);
    let data = one.payload(&bytes[18..]);
    one.post_send(SendOpcode::Send, |w| w.ethernet(SUMS, &bytes[..18]).data(&data));
    assert_eq!(one.forward(&mut world, &two).0, Next::Frame);
    assert!(two.receive(0).is_some());
    let opcodes: Vec<u8> = std::iter::from_fn(|| one.sent_entry())
        .map(|entry| match entry {
            Entry::Success(entry) => entry.request_opcode,
            Entry::Error(_) => panic!(),
        })
        .collect();
    assert_eq!(opcodes, [0, 10]);
}

#[test]
fn ethernet_entry_continues_at_the_begin_of_the_ring() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let bytes = udp(400);
    for _ in 0..40 {
        let data = one.payload(&bytes[90..]);
        // 3 blocks: two parts in the entry, and one in memory.
        one.post_send(SendOpcode::Send, |w| {
            w.ethernet(SUMS, &bytes[..50]).inline(&bytes[50..90]).data(&data)
        });
        assert_eq!(one.forward(&mut world, &two).1, Some(Received::Delivered { frames: 1 }));
        assert_eq!(two.receive(0).unwrap().1, bytes);
        one.sent_entry().unwrap();
    }
}

#[test]
fn ethernet_rules_match_fields_and_not_bits_without_a_field() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options { queues: 2, ..Options::default() });
    two.clear_rules(&mut world);
    let mask = MatchHeaders { hop_limit: 255, udp_destination: 0xffff, ..Default::default() };
    let value = MatchHeaders { hop_limit: 64, udp_destination: 2000, ..Default::default() };
    two.add_rule(&mut world, 0, (mask, value), two.hashed, 1);
    one.send_frame(&mut world, &two, &udp(1));
    assert_eq!(two.receive(0).unwrap().0.queue, 1);
    let mut expired = udp(1);
    expired[22] = 1;
    assert_eq!(one.send_frame(&mut world, &two, &expired), Received::Filtered);
    two.clear_rules(&mut world);
    let bit: [(usize, &[u8]); 1] = [(0x58, &[0x80])];
    two.add_rule_with(&mut world, 0, Default::default(), (two.hashed, 1), &bit);
    assert_eq!(one.send_frame(&mut world, &two, &udp(1)), Received::Filtered);
}
