//! Clones of one snapshot: guests with equal CIDs, whose group sees different ones.

use std::io::{Read, Write};

use crate::common::*;
use causeway_attach::native::{Sockets, VsockOptions, VsockPort};
use causeway_model::{Command, PortKind, PortSpec, PortState, RuleAction, VsockSpec};
use causeway_wire::vsock::{Op, SHUTDOWN_BOTH, Type};

/// The CID of every clone's guest.
const GUEST: u32 = 3;

/// Adds the port of a clone to the group `red` and attaches to it.
fn clone(rig: &Rig, cid: u32) -> VsockPort {
    let name = format!("red-{cid}");
    let host_socket = Some(rig.path(&format!("{name}.host")));
    let kind =
        PortKind::of(VsockSpec { cid, guest_cid: Some(GUEST), host_socket, processes: false });
    let spec = PortSpec {
        socket: rig.path(&name),
        access: Default::default(),
        memory_max: None,
        kind,
        name: name.parse().unwrap(),
        group: "red".parse().unwrap(),
    };
    rig.handle.call(Command::PortAdd(spec)).unwrap();
    let port = VsockPort::attach(&rig.path(&name), VsockOptions::default()).unwrap();
    rig.wait_for("red", cid, |v| {
        v.state == PortState::Running && v.queues[..2].iter().all(|q| q.running)
    });
    assert_eq!(port.cid(), u64::from(GUEST), "the configuration space shows the guest's CID");
    port
}

/// Connects `a` to `b`, a clone with CID `cid` in the group.
fn connect(
    a: &mut Sockets,
    b: &mut Sockets,
    cid: u64,
    kind: Type,
) -> (causeway_attach::native::ConnectionId, causeway_attach::native::ConnectionId) {
    b.listen(kind, 5000);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(move || b.accept(PATIENCE).unwrap());
        let connected = a.connect(kind, cid, 5000, PATIENCE).unwrap();
        (connected, accepted.join().unwrap())
    })
}

#[test]
fn clones_with_one_cid_exchange_streams_both_ways() {
    let rig = Rig::new();
    let (mut a, mut b) = (Sockets::new(clone(&rig, 10)), Sockets::new(clone(&rig, 11)));
    for _ in 0..2 {
        let (ca, cb) = connect(&mut a, &mut b, 11, Type::Stream);
        transfer((&mut a, ca), (&mut b, cb), &pattern(1, 300_000), 9000);
        transfer((&mut b, cb), (&mut a, ca), &pattern(2, 300_000), 70_000);
        std::mem::swap(&mut a, &mut b);
        let (cb, ca) = connect(&mut a, &mut b, 10, Type::Stream);
        transfer((&mut a, cb), (&mut b, ca), &pattern(3, 50_000), 9000);
        std::mem::swap(&mut a, &mut b);
    }
}

#[test]
fn clone_headers_carry_the_cids_of_each_view() {
    let rig = Rig::new();
    let (mut a, mut b) = (clone(&rig, 10), clone(&rig, 11));
    // The rules name the group's CIDs.
    rig.rule(RuleAction::Reject, "red/10:*", "red/11:22");
    let mut data = Vec::new();
    let cids = |header: causeway_wire::vsock::Header| (header.src_cid, header.dst_cid);
    send(&mut a, &packet((GUEST, 7), (11, 9), Op::Request, 0), &[]);
    let request = receive(&mut b, &mut data);
    assert_eq!((cids(request), request.operation()), ((10, 3), Some(Op::Request)));
    send(&mut b, &packet((GUEST, 9), (10, 7), Op::Response, 0), &[]);
    assert_eq!(cids(receive(&mut a, &mut data)), (11, 3));
    send(&mut a, &packet((GUEST, 7), (11, 9), Op::Data, 3), b"abc");
    let header = receive(&mut b, &mut data);
    assert_eq!((cids(header), &data[..]), ((10, 3), &b"abc"[..]));
    let shutdown = packet((GUEST, 9), (10, 7), Op::Shutdown, 0);
    send(&mut b, &causeway_wire::vsock::Header { flags: SHUTDOWN_BOTH, ..shutdown }, &[]);
    assert_eq!(cids(receive(&mut a, &mut data)), (11, 3));
    // A refused connect, and a connect to the guest's own CID, are answered in the guest's view.
    send(&mut a, &packet((GUEST, 8), (11, 22), Op::Request, 0), &[]);
    let reset = receive(&mut a, &mut data);
    assert_eq!((cids(reset), reset.operation()), ((11, 3), Some(Op::Reset)));
    assert_eq!(rig.counter("red", 10, "reject_rule_total"), 1);
    send(&mut a, &packet((GUEST, 8), (GUEST, 9), Op::Request, 0), &[]);
    let reset = receive(&mut a, &mut data);
    assert_eq!((cids(reset), reset.operation()), ((3, 3), Some(Op::Reset)));
    assert_eq!(rig.counter("red", 10, "reject_unknown_peer_total"), 1);
}

#[test]
fn clone_reaches_the_original_with_its_own_cid() {
    let rig = Rig::new();
    // The original of the snapshot still runs, with the CID of all of its clones.
    let (mut original, mut a) = (rig.port("red", GUEST), clone(&rig, 10));
    let mut data = Vec::new();
    send(&mut original, &packet((GUEST, 7), (10, 9), Op::Request, 0), &[]);
    let request = receive(&mut a, &mut data);
    assert_eq!((request.src_cid, request.dst_cid), (10, 3), "the guest knows it as CID 10");
    send(&mut a, &packet((GUEST, 9), (10, 7), Op::Response, 0), &[]);
    let answer = receive(&mut original, &mut data);
    assert_eq!((answer.src_cid, answer.dst_cid), (10, 3));
    assert_eq!(answer.operation(), Some(Op::Response));
}

#[test]
fn clone_is_closed_for_a_forged_source() {
    let rig = Rig::new();
    for (number, forged) in [(10, 10), (11, 10), (12, 4)] {
        let mut a = clone(&rig, number);
        send(&mut a, &packet((forged, 7), (11, 9), Op::Request, 0), &[]);
        let fault = rig.wait_fault("red", number);
        assert!(fault.contains(&format!("source CID {forged} is forged")), "{fault}");
        assert!(fault.ends_with("this guest's is 3"), "{fault}");
    }
}

#[test]
fn clone_and_host_processes_connect_both_ways() {
    let rig = Rig::new();
    let mut a = Sockets::new(clone(&rig, 10));
    let listener = std::os::unix::net::UnixListener::bind(rig.path("red-10.host_80")).unwrap();
    let id = a.connect(Type::Stream, 2, 80, PATIENCE).unwrap();
    let mut process = accept(&listener);
    a.send(id, b"ping", PATIENCE).unwrap();
    let mut bytes = [0; 4];
    process.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
    process.write_all(b"pong").unwrap();
    a.receive(id, &mut bytes, PATIENCE).unwrap();
    assert_eq!(&bytes, b"pong");
    a.listen(Type::Stream, 22);
    let process = std::os::unix::net::UnixStream::connect(rig.path("red-10.host")).unwrap();
    let mut process = limited(process);
    process.write_all(b"CONNECT 22\n").unwrap();
    let id = a.accept(PATIENCE).unwrap();
    a.send(id, b"hello", PATIENCE).unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"hello") {
        let mut byte = [0];
        process.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    assert!(text.starts_with(b"OK "), "{text:?}");
}

#[test]
fn clones_by_the_hundred_share_one_group() {
    let rig = Rig::new();
    let mut all: Vec<VsockPort> = (0..100).map(|number| clone(&rig, 1000 + number)).collect();
    let mut data = Vec::new();
    // Each connects to the next, all from the same port number of the same CID.
    for at in 0..100_usize {
        let (from, to) = (1000 + at as u32, 1000 + (at as u32 + 1) % 100);
        send(&mut all[at], &packet((GUEST, 7), (to, 9), Op::Request, 0), &[]);
        let peer = (at + 1) % 100;
        let request = receive(&mut all[peer], &mut data);
        assert_eq!((request.src_cid, request.dst_cid), (u64::from(from), 3));
        send(&mut all[peer], &packet((GUEST, 9), (from, 7), Op::Response, 0), &[]);
        let answer = receive(&mut all[at], &mut data);
        assert_eq!((answer.src_cid, answer.dst_cid), (u64::from(to), 3));
        let text = format!("from {from}");
        let len = text.len() as u32;
        send(&mut all[at], &packet((GUEST, 7), (to, 9), Op::Data, len), text.as_bytes());
        receive(&mut all[peer], &mut data);
        assert_eq!(data, text.as_bytes());
    }
    assert!((1000..1100).all(|cid| rig.counter("red", cid, "connections") == 2));
}
