//! A port number that is reused at once: packets of the old connection reach the new connection.

use std::time::{Duration, Instant};

use crate::common::*;
use causeway_attach::native::VsockPort;
use causeway_wire::vsock::{Header, Op, SHUTDOWN_BOTH};

/// Sends `op` from guest 3 to guest 4, or back, on the single address pair that this file uses.
fn send_op(port: &mut VsockPort, op: Op, fwd_cnt: u32, data: &[u8]) {
    let (src, dst) = if port.cid() == 3 { ((3, 1), (4, 2)) } else { ((4, 2), (3, 1)) };
    let flags = if op == Op::Shutdown { SHUTDOWN_BOTH } else { 0 };
    let header = Header { fwd_cnt, flags, ..packet(src, dst, op, data.len() as u32) };
    send(port, &header, data);
    wait(|| port.is_idle().unwrap(), || "not taken".into());
}

/// Opens a connection, passes 100 B, lets guest 4 reset it, and connects again.
fn reused(rig: &Rig) -> (VsockPort, VsockPort) {
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    open(&mut a, &mut b, 1, 2);
    send_op(&mut a, Op::Data, 0, &[1; 100]);
    assert_eq!(next_op(&mut b), Op::Data);
    send_op(&mut b, Op::Reset, 0, &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
    send_op(&mut a, Op::Request, 0, &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    (a, b)
}

#[test]
fn vsock_late_credit_of_an_old_connection_does_not_end_the_new_one() {
    let rig = Rig::new();
    let (mut a, mut b) = reused(&rig);
    // Guest 4 reads data of the old connection, before and after it accepts the new connection.
    send_op(&mut b, Op::CreditUpdate, 100, &[]);
    send_op(&mut b, Op::Response, 0, &[]);
    assert_eq!(next_op(&mut a), Op::Response);
    send_op(&mut b, Op::CreditUpdate, 100, &[]);
    send_op(&mut a, Op::Data, 0, b"new");
    let mut data = Vec::new();
    assert_eq!(receive(&mut b, &mut data).operation(), Some(Op::Data));
    assert_eq!(data, b"new");
    for cid in [3, 4] {
        assert_eq!(rig.counter("red", cid, "reset_breach_total"), 0);
    }
    // Data cannot be late, because a socket that was reset sends none.
    send_op(&mut b, Op::Data, 50, b"lie");
    assert_eq!(next_op(&mut a), Op::Reset);
    assert_eq!(rig.counter("red", 4, "reset_breach_total"), 1);
}

#[test]
fn vsock_late_reset_is_told_to_both_and_leaves_nobody_waiting() {
    for late in [3, 4] {
        let rig = Rig::new();
        let (mut a, mut b) = reused(&rig);
        send_op(&mut b, Op::Response, 0, &[]);
        assert_eq!(next_op(&mut a), Op::Response);
        let of_old = if late == 3 { &mut a } else { &mut b };
        send_op(of_old, Op::Reset, 0, &[]);
        assert_eq!((next_op(&mut a), next_op(&mut b)), (Op::Reset, Op::Reset));
    }
}

#[test]
fn vsock_connect_over_a_connection_that_the_guest_has_forgotten_begins_anew() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    open(&mut a, &mut b, 1, 2);
    send_op(&mut a, Op::Request, 0, &[]);
    assert_eq!((next_op(&mut b), next_op(&mut b)), (Op::Reset, Op::Request));
    send_op(&mut b, Op::Response, 0, &[]);
    assert_eq!(next_op(&mut a), Op::Response);
    assert_eq!(rig.counter("red", 3, "reset_breach_total"), 0);
}

#[test]
fn vsock_repeated_connect_reaches_its_callee_again() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    for _ in 0..2 {
        send_op(&mut a, Op::Request, 0, &[]);
        assert_eq!(next_op(&mut b), Op::Request, "it may have ignored the first");
    }
    send_op(&mut b, Op::Reset, 0, &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
}

#[test]
fn vsock_closes_that_cross_end_the_connection_at_once() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    open(&mut a, &mut b, 1, 2);
    let since = Instant::now();
    send_op(&mut a, Op::Shutdown, 0, &[]);
    send_op(&mut b, Op::Shutdown, 0, &[]);
    for port in [&mut a, &mut b] {
        while next_op(port) != Op::Reset {}
    }
    assert!(since.elapsed() < Duration::from_secs(6), "Linux waits 8 s by itself");
    rig.wait_for("red", 3, |v| v.counters["connections"] == 0);
}
