//! Frames that the sender leaves uncut.

use causeway_mlx5::ethernet::limits::DELIVERIES_PER_FRAME_MAX;
use causeway_mlx5::ethernet::{Body, Deliveries, Frame, FrameRef, Next, Received, next_frame};
use causeway_wire::mlx5::work_request::{CHECKSUM_L3, CHECKSUM_L4, EthernetSegment, SendOpcode};
use causeway_wire::virtio_net::{GsoKind, Offload};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use crate::driver::World;
use crate::interface::*;

#[derive(Debug, Clone, Copy)]
struct Kind {
    v6: bool,
    udp: bool,
    tagged: bool,
    options: bool,
}

/// Returns the frame of a driver that leaves lengths and checksums to the device, and the length of
/// its headers.
fn build(kind: Kind, payload: &[u8]) -> (Vec<u8>, usize) {
    let ethernet = PacketBuilder::ethernet2([2, 0x43, 0x57, 0, 0, 1], [2, 0x43, 0x57, 0, 0, 2]);
    let vlan = 5.try_into().unwrap();
    let ip = match (kind.tagged, kind.v6) {
        (false, false) => ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        (false, true) => ethernet.ipv6([0xfd; 16], [0xfe; 16], 64),
        (true, false) => ethernet.single_vlan(vlan).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        (true, true) => ethernet.single_vlan(vlan).ipv6([0xfd; 16], [0xfe; 16], 64),
    };
    let mut bytes = Vec::new();
    if kind.udp {
        ip.udp(80, 4000).write(&mut bytes, payload).unwrap();
    } else {
        let tcp = ip.tcp(80, 4000, 0xffff_ff00, 1000).ack(7).psh().fin().cwr();
        let options: &[u8] =
            if kind.options { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2] } else { &[] };
        tcp.options_raw(options).unwrap().write(&mut bytes, payload).unwrap();
    }
    let headers = bytes.len() - payload.len();
    let network = if kind.tagged { 18 } else { 14 };
    // Values that the device has to compute.
    if kind.v6 {
        bytes[network + 4..network + 6].fill(0);
    } else {
        bytes[network + 10..network + 12].fill(0x99);
    }
    (bytes, headers)
}

fn post(one: &mut Interface, bytes: &[u8], headers: usize, segment_size: u16) {
    let checksums = CHECKSUM_L3 | CHECKSUM_L4;
    let segment = EthernetSegment { checksums, segment_size, ..Default::default() };
    let data = one.payload(&bytes[headers..]);
    one.post_send(SendOpcode::Segmentation, |w| w.ethernet(segment, &bytes[..headers]).data(&data));
}

/// Checks a segment against the frame that was cut. Returns its payload.
fn check(kind: Kind, received: &[u8], index: usize, done: usize, is_last: bool) -> Vec<u8> {
    let packet = SlicedPacket::from_ethernet(received).unwrap();
    if let Some(NetSlice::Ipv4(ip)) = &packet.net {
        assert_eq!(usize::from(ip.header().identification()), index);
    }
    match packet.transport.unwrap() {
        TransportSlice::Tcp(tcp) => {
            assert_eq!(tcp.sequence_number(), 0xffff_ff00_u32.wrapping_add(done as u32));
            assert_eq!((tcp.fin(), tcp.psh(), tcp.cwr()), (is_last, is_last, index == 0));
            assert_eq!((tcp.ack(), tcp.acknowledgment_number()), (true, 7));
            assert_eq!(tcp.options().len(), if kind.options { 12 } else { 0 });
            tcp.payload().to_vec()
        }
        TransportSlice::Udp(udp) => udp.payload().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn cut(kind: Kind, payload: usize, segment_size: u16) {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let content: Vec<u8> = (0..payload).map(|index| ((index * 13) >> 3) as u8).collect();
    let (bytes, headers) = build(kind, &content);
    post(&mut one, &bytes, headers, segment_size);
    let pieces = payload.div_ceil(usize::from(segment_size)).max(1);
    let received = one.forward(&mut world, &two).1;
    assert_eq!(received, Some(Received::Delivered { frames: pieces as u32 }));
    let mut whole = Vec::new();
    for index in 0..pieces {
        let (entry, received) = two.receive(0).unwrap();
        verify(&entry, &received);
        whole.extend(check(kind, &received, index, whole.len(), index + 1 == pieces));
    }
    assert_eq!(whole, content);
    assert!(two.receive(0).is_none());
    assert!(one.sent_entry().is_some() && one.sent_entry().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..Default::default() })]

    #[test]
    fn ethernet_segments_have_the_headers_and_bytes_of_the_frame(
        (v6, udp, tagged, options) in any::<(bool, bool, bool, bool)>(),
        // The longest headers, of IPv6 and TCP with options, take 72 bytes of the MTU.
        segment_size in 600_u16..=1428,
        pieces in 1_usize..14,
        rest in 0_usize..600,
    ) {
        let payload = usize::from(segment_size) * pieces + rest;
        cut(Kind { v6, udp, tagged, options: options && !udp }, payload, segment_size);
    }
}

#[test]
fn ethernet_frame_of_64_kib_is_cut() {
    let kind = Kind { v6: false, udp: false, tagged: false, options: true };
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let content = vec![3; 65_000];
    let (bytes, headers) = build(kind, &content);
    post(&mut one, &bytes, headers, 1448);
    // The receiver has 16 entries.
    let received = one.forward(&mut world, &two).1;
    assert_eq!(received, Some(Received::Delivered { frames: 16 }));
    let mut count = 0;
    while let Some((entry, received)) = two.receive(0) {
        verify(&entry, &received);
        check(kind, &received, count, count * 1448, false);
        count += 1;
    }
    assert_eq!(count, 16);
    let counters = world.function(&two.guest).ethernet_counters();
    assert_eq!((counters.received.total().frames, counters.out_of_buffer), (16, 1));
}

#[test]
fn ethernet_uncut_frame_has_the_header_fields_of_a_virtio_request() {
    let mut world = World::new();
    let (mut one, _) = pair(&mut world, Options::default());
    let kind = Kind { v6: true, udp: false, tagged: false, options: false };
    let (bytes, headers) = build(kind, &[5; 20_000]);
    post(&mut one, &bytes, headers, 1400);
    let mut frame = Frame::default();
    let adapter = world.subnet.adapter_mut(one.guest.adapter).unwrap();
    assert_eq!(next_frame(adapter, &mut frame), Next::Frame);
    let Offload::Segment(place, gso) = frame.offload else { panic!("{:?}", frame.offload) };
    assert_eq!(gso.kind, GsoKind::Tcp6 { ecn: true });
    assert_eq!((gso.size, gso.header_len), (1400, 74));
    assert_eq!((place.start, place.offset), (54, 16));
    assert_eq!((frame.len, frame.head.len()), (20_074, 256));
    assert_eq!(frame.head[18..20], 20_020_u16.to_be_bytes());
    let pseudo = causeway_wire::checksum::pseudo_v6([0xfd; 16], [0xfe; 16], 6, 20_020);
    assert_eq!(frame.head[70..72], pseudo.partial().to_be_bytes());
}

#[test]
fn ethernet_segmentation_that_contradicts_the_headers_is_dropped_and_completed() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let kind = Kind { v6: false, udp: false, tagged: false, options: false };
    let (bytes, headers) = build(kind, &[5; 20_000]);
    let mut arp = bytes.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut fragment = bytes.clone();
    fragment[20] = 0x20;
    for (bytes, size) in [(&arp, 1400), (&fragment, 1400), (&bytes, 0), (&bytes, 7)] {
        post(&mut one, bytes, headers, size);
        assert_eq!(one.forward(&mut world, &two), (Next::Dropped, None));
        assert!(matches!(
            one.sent_entry(),
            Some(causeway_wire::mlx5::completion_queue::Entry::Success(_))
        ));
    }
    assert!(two.receive(0).is_none());
    assert_eq!(world.function(&one.guest).ethernet_counters().refused_sends, 4);
}

#[test]
fn ethernet_uncut_frame_of_private_bytes_is_cut_and_loses_its_tag() {
    let mut world = World::new();
    let options = Options { keeps_vlan: false, ..Options::default() };
    let (mut one, mut two) = pair(&mut world, options);
    let kind = Kind { v6: false, udp: false, tagged: true, options: true };
    let content: Vec<u8> = (0..5000).map(|index| (index / 7) as u8).collect();
    let (bytes, headers) = build(kind, &content);
    post(&mut one, &bytes, headers, 1000);
    let mut frame = Frame::default();
    let adapter = world.subnet.adapter_mut(one.guest.adapter).unwrap();
    assert_eq!(next_frame(adapter, &mut frame), Next::Frame);
    let body = Body::Private(&bytes[256..]);
    let (offload, head, len) = (&frame.offload, &frame.head[..], frame.len);
    let received = offer(&mut world, &two, &FrameRef { offload, head, body, len });
    assert_eq!(received, Received::Delivered { frames: 5 });
    let mut whole = Vec::new();
    for index in 0..5 {
        let (entry, received) = two.receive(0).unwrap();
        assert_eq!((entry.has_vlan, entry.vlan), (true, 5));
        verify(&entry, &received);
        whole.extend(check(kind, &received, index, whole.len(), index == 4));
    }
    assert_eq!(whole, content);
}

#[test]
fn ethernet_deliveries_of_a_frame_are_counted_and_bounded() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let kind = Kind { v6: false, udp: true, tagged: false, options: false };
    let (bytes, headers) = build(kind, &[1; 1600]);
    post(&mut one, &bytes, headers, 100);
    let mut frame = Frame::default();
    let adapter = world.subnet.adapter_mut(one.guest.adapter).unwrap();
    assert_eq!(next_frame(adapter, &mut frame), Next::Frame);
    let body = Body::Private(&bytes[256..]);
    let (offload, head, len) = (&frame.offload, &frame.head[..], frame.len);
    let frame = FrameRef { offload, head, body, len };
    let mut deliveries = Deliveries::default();
    let max = DELIVERIES_PER_FRAME_MAX;
    // As for a frame to many adapters: the deliveries of all are summed.
    for round in 1..=max / 16 {
        let received = offer_counted(&mut world, &two, &frame, &mut deliveries);
        assert_eq!(received, Received::Delivered { frames: 16 });
        assert_eq!(deliveries.pieces(), round * 16);
        assert_eq!(deliveries.bytes(), u64::from(round) * 16 * (headers as u64 + 100));
        while two.receive(0).is_some() {}
    }
    let received = offer_counted(&mut world, &two, &frame, &mut deliveries);
    assert_eq!((received, deliveries.pieces()), (Received::OverLimit, max));
    assert!(two.receive(0).is_none());
    assert_eq!(world.function(&two.guest).ethernet_counters().over_limit, 1);
}

#[test]
fn ethernet_receiver_that_gets_nothing_counts_as_a_delivery() {
    let mut world = World::new();
    let (_, two) = pair(&mut world, Options::default());
    let mut bytes = udp(100);
    bytes[5] = 9;
    let frame =
        FrameRef { offload: &Offload::None, head: &bytes, body: Body::Private(&[]), len: 142 };
    let mut deliveries = Deliveries::default();
    let received = offer_counted(&mut world, &two, &frame, &mut deliveries);
    assert_eq!((received, deliveries.pieces(), deliveries.bytes()), (Received::Filtered, 1, 0));
}
