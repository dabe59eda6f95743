//! Connections between guests of a group: content, boundaries and ends are kept.

use crate::common::*;
use causeway_attach::native::VsockOptions;
use causeway_attach::native::{SocketError, Sockets};
use causeway_model::Command;
use causeway_model::{PortKind, PortSpec, RuleAction, VsockSpec};
use causeway_wire::vsock::{Op, Type};

#[test]
fn streams_keep_their_content_at_every_write_size() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 5000);
    for (seed, write) in [64, 3777, 4096, 65_536, 1 << 20].into_iter().enumerate() {
        let total = if write == 64 { 64 << 10 } else { 3 << 20 };
        let data = pattern(seed as u32, total);
        transfer((&mut a, ca), (&mut b, cb), &data, write);
        transfer((&mut b, cb), (&mut a, ca), &data, write);
    }
    assert_eq!(
        rig.counter("red", 3, "transmit_bytes_total"),
        rig.counter("red", 4, "receive_bytes_total")
    );
}

#[test]
fn streams_fit_every_receive_buffer_and_descriptor_layout() {
    let rig = Rig::new();
    let mut cid = 10;
    for receive_bytes in [45, 100, 4096, 65_580] {
        for descriptor_bytes in [None, Some(44), Some(1000), Some(7)] {
            for features in [0, 1 << 28, 1 << 29, 1 << 28 | 1 << 29] {
                let options = |descriptor_bytes| VsockOptions {
                    receive_bytes,
                    descriptor_bytes,
                    features,
                    ring_size: 64,
                    reconnect: None,
                };
                // A large packet in pieces of seven bytes would need more descriptors than the ring
                // has.
                let (total, write) =
                    if descriptor_bytes == Some(7) { (4000, 300) } else { (100_000, 20_000) };
                let mut a = Sockets::new(rig.port_with("red", cid, options(descriptor_bytes)));
                let mut b = Sockets::new(rig.port_with("red", cid + 1, options(None)));
                cid += 2;
                let (ca, cb) = join(&mut a, &mut b, Type::Stream, 1);
                transfer((&mut a, ca), (&mut b, cb), &pattern(cid, total), write);
            }
        }
    }
}

#[test]
fn messages_keep_their_boundaries() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let (ca, cb) = join(&mut a, &mut b, Type::Seqpacket, 77);
    for (seed, len) in [1, 64, 4052, 4053, 20_000, 100_000, 4052 * 3].into_iter().enumerate() {
        let message = pattern(seed as u32, len);
        a.send(ca, &message, PATIENCE).unwrap();
        assert_eq!(b.receive_message(cb, PATIENCE).unwrap(), message, "{len} bytes");
    }
}

#[test]
fn messages_read_in_part_by_bytes_are_shorter_afterwards() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let (ca, cb) = join(&mut a, &mut b, Type::Seqpacket, 77);
    for message in [&b"abcdef"[..], b"xyz", b"123", b"last"] {
        a.send(ca, message, PATIENCE).unwrap();
    }
    let mut part = [0; 4];
    b.receive(cb, &mut part, PATIENCE).unwrap();
    assert_eq!(&part, b"abcd");
    assert_eq!(b.receive_message(cb, PATIENCE).unwrap(), b"ef");
    b.receive(cb, &mut part, PATIENCE).unwrap();
    assert_eq!(&part, b"xyz1");
    assert_eq!(b.receive_message(cb, PATIENCE).unwrap(), b"23");
    assert_eq!(b.receive_message(cb, PATIENCE).unwrap(), b"last");
}

#[test]
fn small_packets_of_a_batch_share_a_receive_buffer() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    open(&mut a, &mut b, 1, 2);
    let before = rig.counter("red", 4, "receive_packets_total");
    let mut header = packet((3, 1), (4, 2), Op::Data, 10);
    header.len = 10;
    for i in 0..50_u8 {
        assert!(a.queue(&header, &[i; 10]).unwrap());
    }
    a.flush().unwrap();
    let (mut all, mut data) = (Vec::new(), Vec::new());
    while all.len() < 500 {
        receive(&mut b, &mut data);
        all.extend_from_slice(&data);
    }
    let expected: Vec<u8> = (0..50_u8).flat_map(|i| [i; 10]).collect();
    assert_eq!(all, expected);
    let packets = rig.counter("red", 4, "receive_packets_total") - before;
    assert!(packets <= 5, "50 packets of 10 bytes came in {packets} buffers");
}

#[test]
fn vsock_half_closes_and_closes_reach_the_peer() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 5000);
    a.send(ca, b"last words", PATIENCE).unwrap();
    a.shutdown_send(ca).unwrap();
    let mut got = [0; 10];
    b.receive(cb, &mut got, PATIENCE).unwrap();
    assert_eq!(&got, b"last words");
    let mut more = [0; 1];
    wait(
        || matches!(b.try_receive(cb, &mut more), Err(SocketError::Closed)),
        || "no end seen".into(),
    );
    // The other direction still works.
    b.send(cb, b"answer", PATIENCE).unwrap();
    let mut answer = [0; 6];
    a.receive(ca, &mut answer, PATIENCE).unwrap();
    assert_eq!(&answer, b"answer");
    b.close(cb).unwrap();
    wait(|| a.try_receive(ca, &mut more).is_err(), || "no close seen".into());
}

#[test]
fn unknown_peers_ports_groups_and_types_are_reset() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let mut other = rig.sockets("blue", 5);
    other.listen(Type::Stream, 1);
    assert!(is_reset(a.connect(Type::Stream, 99, 1, PATIENCE)), "no such CID");
    assert!(is_reset(a.connect(Type::Stream, 5, 1, PATIENCE)), "another group");
    assert!(is_reset(a.connect(Type::Stream, 3, 1, PATIENCE)), "itself");
    assert!(
        is_reset(a.connect(Type::Seqpacket, 2, 1, PATIENCE)),
        "messages to a host port without a socket"
    );
    assert_eq!(rig.counter("red", 3, "reject_unknown_peer_total"), 4);
    assert_eq!(rig.counter("blue", 5, "connects_total"), 0);
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| is_reset(a.connect(Type::Stream, 4, 1, PATIENCE)));
        wait(
            || {
                b.turn().unwrap();
                answer.is_finished()
            },
            || "no reset".into(),
        );
        assert!(answer.join().unwrap(), "no listener");
    });
}

#[test]
fn the_same_cid_lives_in_two_groups_and_only_once_in_one() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let (mut c, mut d) = (rig.sockets("blue", 3), rig.sockets("blue", 4));
    assert!(rig.try_add("red", 3).is_err());
    let spec = |name: &str, socket: &str, host: &str| PortSpec {
        name: name.parse().unwrap(),
        group: "red".parse().unwrap(),
        socket: rig.path(socket),
        access: Default::default(),
        memory_max: None,
        kind: PortKind::of(VsockSpec {
            cid: 3,
            guest_cid: None,
            host_socket: Some(rig.path(host)),
            processes: false,
        }),
    };
    for (socket, host, word) in [
        ("new", "new.host", "cid 3: port red-3"),
        ("red-4", "new.host", "red-4: port red-4 listens there"),
        ("new", "red-4.host", "red-4.host: port red-4 listens there"),
    ] {
        let refused = rig.handle.call(Command::PortAdd(spec("twin", socket, host))).unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
        assert!(!rig.path("new").exists(), "nothing is left of it");
    }
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 9);
    let (cc, cd) = join(&mut c, &mut d, Type::Stream, 9);
    transfer((&mut a, ca), (&mut b, cb), &pattern(1, 50_000), 5000);
    transfer((&mut c, cc), (&mut d, cd), &pattern(2, 50_000), 5000);
}

#[test]
fn rules_decide_in_their_order() {
    let rig = Rig::new();
    rig.rule(RuleAction::Accept, "red/3:*", "red/4:80");
    rig.rule(RuleAction::Reject, "red/*:*", "red/4:1-1024");
    let (mut a, mut b, mut c) =
        (rig.sockets("red", 3), rig.sockets("red", 4), rig.sockets("red", 5));
    join(&mut a, &mut b, Type::Stream, 80);
    join(&mut c, &mut b, Type::Stream, 2000);
    assert!(is_reset(c.connect(Type::Stream, 4, 80, PATIENCE)));
    assert!(is_reset(a.connect(Type::Stream, 4, 81, PATIENCE)));
    assert_eq!(rig.counter("red", 5, "reject_rule_total"), 1);
}

#[test]
fn a_peer_whose_rings_are_not_ready_is_reset_and_unharmed() {
    let rig = Rig::new();
    let mut a = rig.sockets("red", 3);
    rig.try_add("red", 4).unwrap();
    assert!(is_reset(a.connect(Type::Stream, 4, 1, PATIENCE)), "not attached yet");
    let path = rig.path("red-4");
    let port = causeway_attach::native::VsockPort::attach(&path, VsockOptions::default()).unwrap();
    rig.wait_for("red", 4, |v| v.queues[..2].iter().all(|q| q.running));
    let mut b = Sockets::new(port);
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 1);
    transfer((&mut a, ca), (&mut b, cb), &pattern(1, 10_000), 1000);
}

#[test]
fn vsock_departed_guest_resets_its_connections_and_may_return() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let (ca, _) = join(&mut a, &mut b, Type::Stream, 1);
    drop(b);
    wait(|| is_reset(a.try_send(ca, b"x")) || a.try_send(ca, b"x").is_err(), || "no reset".into());
    rig.wait_for("red", 3, |v| v.counters["connections"] == 0);
    let path = rig.path("red-4");
    let again = causeway_attach::native::VsockPort::attach(&path, VsockOptions::default()).unwrap();
    let mut b = Sockets::new(again);
    rig.wait_for("red", 4, |v| v.queues[..2].iter().all(|q| q.running));
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 1);
    transfer((&mut a, ca), (&mut b, cb), &pattern(3, 200_000), 9000);
}

#[test]
fn vsock_many_connections_share_a_ring_fairly() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let pairs: Vec<_> = (0..50).map(|i| join(&mut a, &mut b, Type::Stream, 100 + i)).collect();
    let data: Vec<_> = (0..50).map(|i| pattern(i, 60_000)).collect();
    let (mut sent, mut got) = (vec![0; 50], vec![0; 50]);
    let mut room = vec![0; 8192];
    let since = std::time::Instant::now();
    while got.iter().any(|&n| n < 60_000) {
        for (i, (ca, cb)) in pairs.iter().enumerate() {
            let end = (sent[i] + 700).min(60_000);
            sent[i] += a.try_send(*ca, &data[i][sent[i]..end]).unwrap();
            let taken = b.try_receive(*cb, &mut room).unwrap();
            assert_eq!(room[..taken], data[i][got[i]..got[i] + taken]);
            got[i] += taken;
        }
        assert!(since.elapsed() < PATIENCE);
    }
    assert_eq!(rig.counter("red", 3, "connections"), 50);
}

#[test]
fn vsock_connect_may_be_repeated_until_answered() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    let request = packet((3, 1), (4, 2), Op::Request, 0);
    send(&mut a, &request, &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    // Linux drops a connect that timed out without a packet; the next connect has the same
    // addresses.
    send(&mut a, &request, &[]);
    wait(|| a.is_idle().unwrap(), || "not taken".into());
    send(&mut b, &packet((4, 2), (3, 1), Op::Response, 0), &[]);
    assert_eq!(next_op(&mut a), Op::Response);
    assert_eq!(rig.counter("red", 3, "reset_breach_total"), 0);
}
