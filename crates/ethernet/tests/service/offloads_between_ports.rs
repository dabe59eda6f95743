//! Offloads: uncut where both sides negotiated them, in software where the receiver did not.

use crate::common::*;
use causeway_attach::native::NetOptions;
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::*;

const PARTIAL: u64 = mask(VIRTIO_NET_F_GUEST_CSUM) | MERGE;

#[test]
fn big_segments_pass_uncut() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    for (header, frame) in [
        tcp(1, 2, false, &pattern(65_000), 1448),
        tcp(1, 2, true, &pattern(60_000), 1428),
        udp(1, 2, &pattern(40_000), 1472),
    ] {
        send(&mut a, &header, &frame);
        let (got, bytes) = receive(&mut b);
        assert_eq!(Header { num_buffers: 0, ..got }, header);
        assert_eq!(usize::from(got.num_buffers), (frame.len() + 12).div_ceil(4096));
        assert!(bytes == frame);
    }
    assert_eq!(rig.counter("b", "receive_cut_total"), 0);
    assert_eq!(rig.counter("b", "receive_checksummed_total"), 0);
}

/// Sends `frame` and reassembles the received segments. Every checksum is correct, or left to the
/// receiver if `partial` is set.
fn cut_and_join(rig: &Rig, features: u64, header: Header, frame: &[u8], partial: bool) {
    let mut b = rig.attach("b", NetOptions { features, ..Default::default() });
    let mut a = rig.attach("a", NetOptions { features: ALL, ..Default::default() });
    send(&mut a, &header, frame);
    let mut joined = Vec::new();
    let whole = payload_of(frame);
    while joined.len() < whole.len() {
        let (got, mut bytes) = receive(&mut b);
        assert_eq!((got.gso_type, got.gso_size), (GSO_NONE, 0));
        assert_eq!(got.flags, if partial { HDR_F_NEEDS_CSUM } else { 0 });
        if partial {
            assert_eq!((got.csum_start, got.csum_offset), (header.csum_start, header.csum_offset));
            let place = ChecksumPlace { start: got.csum_start, offset: got.csum_offset };
            place.complete(&mut bytes);
        }
        assert!(checksum_is_right(&bytes));
        let payload = payload_of(&bytes);
        assert!(payload.len() <= usize::from(header.gso_size));
        joined.extend_from_slice(payload);
    }
    assert!(joined == whole);
    assert!(is_silent(&mut b));
    drop((a, b));
    let listening = causeway_model::PortState::Listening;
    wait(
        || ["a", "b"].iter().all(|p| rig.view(p).state == listening),
        || "the ports are still attached".into(),
    );
}

#[test]
fn big_segments_are_cut_for_a_receiver_without_offloads() {
    let rig = Rig::new();
    rig.try_add("a", "red", net(1)).unwrap();
    rig.try_add("b", "red", net(2)).unwrap();
    let frames = [
        tcp(1, 2, false, &pattern(65_000), 1448),
        tcp(1, 2, true, &pattern(60_001), 1428),
        udp(1, 2, &pattern(40_000), 1472),
    ];
    for (header, frame) in frames {
        cut_and_join(&rig, PARTIAL, header, &frame, true);
        cut_and_join(&rig, MERGE, header, &frame, false);
        cut_and_join(&rig, 0, header, &frame, false);
    }
    assert_eq!(rig.counter("b", "receive_cut_total"), 9);
}

#[test]
fn checksums_are_completed_for_a_receiver_that_does_not() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), MERGE);
    for (header, frame) in
        [tcp(1, 2, false, &pattern(1000), 0), tcp(1, 2, true, &[], 0), udp(1, 2, &pattern(999), 0)]
    {
        assert!(!checksum_is_right(&frame));
        send(&mut a, &header, &frame);
        let (got, bytes) = receive(&mut b);
        assert_eq!(got, Header { num_buffers: 1, ..Header::default() });
        assert!(checksum_is_right(&bytes));
        assert_eq!(payload_of(&bytes), payload_of(&frame));
    }
    assert_eq!(rig.counter("b", "receive_checksummed_total"), 3);
}

#[test]
fn a_broadcast_suits_each_receiver() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    let mut c = rig.port("c", net(3), MERGE);
    let (header, mut frame) = udp(1, 2, &pattern(700), 0);
    frame[..6].fill(0xff);
    send(&mut a, &header, &frame);
    let (got, bytes) = receive(&mut b);
    assert_eq!((got.flags, bytes == frame), (HDR_F_NEEDS_CSUM, true));
    let (got, bytes) = receive(&mut c);
    assert_eq!((got.flags, checksum_is_right(&bytes)), (0, true));
}

#[test]
fn hostile_headers_are_dropped_and_the_port_goes_on() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    let (good, frame) = tcp(1, 2, false, &pattern(3000), 1448);
    let bad = [
        Header { gso_size: 0, ..good },
        Header { gso_size: 0xffff, ..good },
        Header { flags: 0, ..good },
        Header { gso_type: GSO_TCPV6, ..good },
        Header { gso_type: GSO_UDP, ..good },
        Header { gso_type: 0x7f, ..good },
        Header { csum_start: 0xffff, ..good },
        Header { csum_offset: 0xffff, ..good },
        Header { csum_start: 0, ..good },
        Header { hdr_len: 0xffff, ..good },
    ];
    for header in &bad {
        send(&mut a, header, &frame);
    }
    rig.wait_counter("a", "drop_bad_header_total", bad.len() as u64);
    send(&mut a, &good, &frame);
    assert!(receive(&mut b).1 == frame);
    assert_eq!(rig.view("a").faults_total, 0);
}

#[test]
fn hostile_offload_without_negotiation_is_dropped() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), MERGE);
    let mut b = rig.port("b", net(2), ALL);
    let (header, frame) = tcp(1, 2, false, &pattern(3000), 1448);
    send(&mut a, &header, &frame);
    let (header, frame) = tcp(1, 2, false, &pattern(300), 0);
    send(&mut a, &header, &frame);
    rig.wait_counter("a", "drop_bad_header_total", 2);
    assert!(is_silent(&mut b));
}
