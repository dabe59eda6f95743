//! Forwarding between ports: the receivers of a frame, and its unchanged content.

use crate::common::*;
use causeway_attach::native::NetOptions;
use causeway_model::Command;
use causeway_model::Name;
use causeway_model::NetSpec;
use causeway_model::{GroupKind, GroupSpec};
use causeway_wire::ethernet::BROADCAST;
use causeway_wire::virtio::{VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1, mask};
use causeway_wire::virtio_net::Header;

const PLAIN: Header = Header {
    flags: 0,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 0,
    csum_offset: 0,
    num_buffers: 0,
};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn ethernet_frame_arrives_unchanged() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    assert_eq!(a.mac(), Some(mac(1)));
    for len in [0, 1, 46, 177, 178, 179, 300, 1486] {
        let frame = plain(1, mac(2), &pattern(len));
        send(&mut a, &PLAIN, &frame);
        let (header, got) = receive(&mut b);
        assert_eq!(header, Header { num_buffers: 1, ..PLAIN });
        assert_eq!(got, frame);
    }
    rig.wait_counter("b", "receive_packets_total", 8);
    assert_eq!(rig.counter("b", "receive_bytes_total"), rig.counter("a", "transmit_bytes_total"));
}

/// BPDU, PAUSE, LACP, LLDP and the last address of the reserved block; and the first address behind
/// it.
#[test]
fn link_local_frames_cross_wires_and_no_bridges() {
    let rig = Rig::new();
    let lab = GroupSpec { kind: GroupKind::Wire, ..name("lab").into() };
    rig.handle.call(Command::GroupAdd(lab)).unwrap();
    let add = |port: &str, group, n| {
        rig.try_add(port, group, net(n)).unwrap();
        rig.attach(port, NetOptions::default())
    };
    let (mut a, mut b) = (add("a", "red", 1), add("b", "red", 2));
    let (mut x, mut y) = (add("x", "lab", 1), add("y", "lab", 2));
    rig.wait_running(&["a", "b", "x", "y"]);
    let to = |last: u8| plain(1, [1, 0x80, 0xc2, 0, 0, last], &[last; 50]);
    for last in [0, 1, 2, 0x0e, 0x0f] {
        send(&mut a, &PLAIN, &to(last));
        send(&mut x, &PLAIN, &to(last));
        assert_eq!(receive(&mut y).1, to(last));
    }
    send(&mut a, &PLAIN, &to(0x10));
    assert_eq!(receive(&mut b).1, to(0x10), "and no frame before it");
    rig.wait_counter("a", "drop_link_local_total", 5);
    let trace = |port| rig.trace(port, None, [1, 0x80, 0xc2, 0, 0, 2]).verdict;
    assert_eq!((trace("a").as_str(), trace("x").as_str()), ("drop", "flood"));
}

#[test]
fn frames_cut_into_many_descriptors_arrive() {
    let rig = Rig::new();
    rig.try_add("a", "red", NetSpec { mtu: 65535, ..net(1) }).unwrap();
    rig.try_add("b", "red", NetSpec { mtu: 65535, ..net(2) }).unwrap();
    for (descriptor_bytes, receive_bytes) in [(Some(7), 100), (Some(1000), 4096), (None, 1526)] {
        let options =
            NetOptions { features: ALL, descriptor_bytes, receive_bytes, ..Default::default() };
        let mut b = rig.attach("b", NetOptions { ring_size: 1024, ..options.clone() });
        let mut a = rig.attach("a", options);
        for len in [10, 400, 5000, 65535] {
            let frame = plain(1, mac(2), &pattern(len));
            send(&mut a, &PLAIN, &frame);
            let (header, got) = receive(&mut b);
            let buffers = (frame.len() + 12).div_ceil(receive_bytes as usize);
            assert_eq!(usize::from(header.num_buffers), buffers);
            assert!(got == frame, "{len} bytes");
        }
        let views = || [rig.view("a"), rig.view("b")].map(|v| v.state);
        drop((a, b));
        let listening = causeway_model::PortState::Listening;
        wait(|| views() == [listening; 2], || format!("{:?}", views()));
    }
}

#[test]
fn ethernet_mixed_batches_arrive_in_order() {
    const BUFFER: usize = 200;
    let rig = Rig::new();
    for ring in [0, VIRTIO_F_RING_PACKED] {
        let features = ALL | mask(VIRTIO_F_VERSION_1) | if ring == 0 { 0 } else { mask(ring) };
        let name = |port| format!("{port}{ring}");
        let (n, m) = if ring == 0 { (1, 2) } else { (3, 4) };
        let mut a = rig.port(&name("a"), net(n), features);
        rig.try_add(&name("b"), "red", net(m)).unwrap();
        let receive_bytes = BUFFER as u32;
        let options = NetOptions { features, receive_bytes, ring_size: 512, ..Default::default() };
        let mut b = rig.attach(&name("b"), options);
        for round in 0..40_usize {
            // Frames for one buffer, for several buffers, and with offloads.
            let frames: Vec<(Header, Vec<u8>)> = (0..29)
                .map(|at| match (at + round) % 7 {
                    3 => tcp(n, m, false, &pattern(400 + at), 100),
                    5 if round % 3 == 0 => (PLAIN, plain(n, mac(m), &pattern(700 + at))),
                    _ => (PLAIN, plain(n, mac(m), &pattern(round + at))),
                })
                .collect();
            for (header, frame) in &frames {
                assert!(a.queue(0, &header.emit(), frame).unwrap());
            }
            a.flush(0).unwrap();
            for (sent, frame) in &frames {
                let (header, got) = receive(&mut b);
                assert!(got == *frame, "round {round}: {} for {} bytes", got.len(), frame.len());
                let buffers = (frame.len() + 12).div_ceil(BUFFER);
                assert_eq!(usize::from(header.num_buffers), buffers);
                assert_eq!(header.gso_size, sent.gso_size);
            }
        }
        rig.wait_counter(&name("b"), "receive_packets_total", 29 * 40);
        let [sent, got] = [("a", "transmit_bytes_total"), ("b", "receive_bytes_total")]
            .map(|(port, counter)| rig.counter(&name(port), counter));
        assert_eq!(sent, got);
    }
}

#[test]
fn order_is_kept_under_load() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    let sender = std::thread::spawn(move || {
        for n in 0..20_000_u32 {
            let mut payload = n.to_be_bytes().to_vec();
            payload.resize(4 + (n % 900) as usize, n as u8);
            send(&mut a, &PLAIN, &plain(1, mac(2), &payload));
        }
        wait(|| a.is_idle(0).unwrap(), || "the sender's ring".into());
        a
    });
    let mut last = None;
    let mut count = 0_u64;
    while rig_count(&rig) + count < 20_000 || !sender.is_finished() {
        let mut frame = Vec::new();
        while b.receive(0, &mut frame).unwrap().is_some() {
            let n = u32::from_be_bytes(frame[14..18].try_into().unwrap());
            assert!(last.is_none_or(|last| n > last), "{last:?} then {n}");
            assert_eq!(frame.len(), 18 + (n % 900) as usize);
            assert!(frame[18..].iter().all(|&b| b == n as u8));
            last = Some(n);
            count += 1;
        }
    }
    sender.join().unwrap();
    assert!(count > 0);
}

/// Returns the number of frames that did not reach `b`.
fn rig_count(rig: &Rig) -> u64 {
    rig.counter("b", "drop_no_buffer_total")
}

#[test]
fn broadcast_and_multicast_stay_in_the_group() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    let mut c = rig.port("c", net(3), 0);
    rig.try_add("d", "blue", net(4)).unwrap();
    let mut d = rig.attach("d", NetOptions::default());
    for group in [BROADCAST, [0x33, 0x33, 0, 0, 0, 1]] {
        let frame = plain(1, group, b"to all of us");
        send(&mut a, &PLAIN, &frame);
        assert_eq!(receive(&mut b).1, frame);
        assert_eq!(receive(&mut c).1, frame);
    }
    // A port of another group with the same neighbour addresses receives nothing.
    send(&mut a, &PLAIN, &plain(1, mac(4), b"to the other group"));
    rig.wait_counter("a", "drop_unknown_destination_total", 1);
    assert!(is_silent(&mut a) && is_silent(&mut d));
    assert_eq!(rig.counters("d").len(), 0);
}

#[test]
fn broadcast_without_receivers_is_counted() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    send(&mut a, &Header::default(), &plain(1, [0xff; 6], b"hello?"));
    rig.wait_counter("a", "drop_unknown_destination_total", 1);
    wait(|| a.is_idle(0).unwrap(), || "the sender's ring".into());
}

#[test]
fn ethernet_address_is_unique_within_a_group() {
    let rig = Rig::new();
    rig.try_add("a", "red", net(1)).unwrap();
    rig.try_add("b", "blue", net(1)).unwrap();
    let error = rig.try_add("c", "red", net(1)).unwrap_err().to_string();
    assert!(error.contains("port a") && error.contains("52:54:00:00:00:01"), "{error}");
    // The refusal left no state behind.
    rig.try_add("c", "red", net(2)).unwrap();
}

#[test]
fn hostile_forged_source_is_dropped() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    for source in [mac(2), mac(9), BROADCAST, [0; 6]] {
        let mut frame = plain(1, mac(2), b"not me");
        frame[6..12].copy_from_slice(&source);
        send(&mut a, &PLAIN, &frame);
    }
    rig.wait_counter("a", "drop_spoofed_source_total", 4);
    assert!(is_silent(&mut b));
}

#[test]
fn learning_ports_receive_learnt_and_unknown_addresses() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", NetSpec { learn: true, ..net(2) }, ALL);
    let mut c = rig.port("c", NetSpec { learn: true, ..net(3) }, ALL);
    // Unknown: to both ports that learn.
    let question = plain(1, mac(99), b"who is 99");
    send(&mut a, &PLAIN, &question);
    assert_eq!(receive(&mut b).1, question);
    assert_eq!(receive(&mut c).1, question);
    // A frame from 99 arrives from behind b: from now on frames to 99 go to b only.
    let answer = plain(99, mac(1), b"I am");
    send(&mut b, &PLAIN, &answer);
    assert_eq!(receive(&mut a).1, answer);
    send(&mut a, &PLAIN, &question);
    assert_eq!(receive(&mut b).1, question);
    assert!(is_silent(&mut c));
    assert_eq!(rig.trace("a", None, mac(99)).to, ["b"]);
    // A frame to an address behind its own port is dropped.
    send(&mut b, &PLAIN, &plain(2, mac(99), b"we are neighbours"));
    rig.wait_counter("b", "drop_same_port_total", 1);
    // No port may send from a configured address of another.
    send(&mut b, &PLAIN, &plain(1, mac(3), b"I am a"));
    rig.wait_counter("b", "drop_spoofed_source_total", 1);
    // When b's guest leaves, the addresses behind it are forgotten.
    drop(b);
    wait(|| rig.trace("a", None, mac(99)).verdict == "flood", || "b is known".into());
}

#[test]
fn flows_spread_over_queue_pairs_and_each_stays_on_one() {
    let rig = Rig::new();
    rig.try_add("b", "red", NetSpec { queue_pairs: 4, ..net(2) }).unwrap();
    let mut a = rig.port("a", net(1), ALL);
    let options = NetOptions { pairs: 4, features: ALL, ..Default::default() };
    let mut b = rig.attach("b", options);
    let mut used = std::collections::BTreeSet::new();
    for port in 0..64_u16 {
        let (header, mut frame) = udp(1, 2, &port.to_be_bytes(), 0);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        let mut pairs = std::collections::BTreeSet::new();
        for _ in 0..3 {
            send(&mut a, &header, &frame);
            let (pair, _, got) = receive_of(&mut b, 4);
            assert_eq!(got, frame);
            pairs.insert(pair);
        }
        assert_eq!(pairs.len(), 1, "flow {port} is on several queues");
        used.extend(pairs);
    }
    assert_eq!(used.len(), 4);
    // For these more headers are read than for others, and the payload comes from the sender.
    for len in [30, 150, 151, 700] {
        let (_, frame) = udp(1, 2, &pattern(len), 0);
        send(&mut a, &PLAIN, &frame);
        assert_eq!(receive_of(&mut b, 4).2, frame);
    }
    // Every queue pair of the sender is served.
    for pair in 0..4 {
        let frame = plain(2, mac(1), &[pair as u8; 50]);
        send_by(&mut b, pair, &PLAIN, &frame);
        assert_eq!(receive(&mut a).1, frame);
    }
}

#[test]
fn ethernet_frame_longer_than_an_mtu_is_dropped() {
    let rig = Rig::new();
    rig.try_add("a", "red", NetSpec { mtu: 9000, ..net(1) }).unwrap();
    let mut a = rig.attach("a", NetOptions { features: ALL, ..Default::default() });
    let mut b = rig.port("b", net(2), ALL);
    send(&mut a, &PLAIN, &plain(1, mac(2), &pattern(9001)));
    rig.wait_counter("a", "drop_too_big_total", 1);
    send(&mut a, &PLAIN, &plain(1, mac(2), &pattern(9000)));
    rig.wait_counter("b", "drop_too_big_total", 1);
    send(&mut a, &PLAIN, &plain(1, mac(2), &pattern(1500)));
    assert_eq!(receive(&mut b).1.len(), 1514);
    assert_eq!(rig.counter("a", "drop_too_big_total"), 1);
}

#[test]
fn trace_explains_forwarding() {
    let rig = Rig::new();
    rig.try_add("a", "red", net(1)).unwrap();
    let _b = rig.port("b", net(2), ALL);
    rig.try_add("c", "red", net(3)).unwrap();
    let there = rig.trace("a", None, mac(2));
    assert_eq!((there.verdict.as_str(), &there.to[..]), ("forward", &["b".to_string()][..]));
    let down = rig.trace("a", None, mac(3));
    assert!(down.steps.iter().any(|s| s.contains("does not run")), "{down:?}");
    assert_eq!(down.verdict, "drop", "no guest runs the device");
    let all = rig.trace("a", None, BROADCAST);
    assert_eq!((all.verdict.as_str(), all.to.len()), ("flood", 2));
    let unknown = rig.trace("a", None, mac(9));
    assert_eq!(unknown.verdict, "drop");
    let forged = rig.trace("a", Some(mac(2)), mac(3));
    assert_eq!(forged.verdict, "drop");
    assert!(forged.steps.last().unwrap().contains("spoofed_source"));
}

#[test]
fn ethernet_refused_source_address_is_named_once() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let _b = rig.port("b", net(2), ALL);
    for _ in 0..3 {
        send(&mut a, &PLAIN, &plain(7, mac(2), b"not mine"));
    }
    wait(|| rig.view("a").notice.is_some(), || "no notice".into());
    let view = rig.view("a");
    let notice = view.notice.unwrap();
    for named in [mac(7), mac(1)] {
        assert!(notice.contains(&causeway_model::Mac(named).to_string()), "{notice}");
    }
    assert_eq!(view.faults_total, 0);
}
