//! Guests that try to exceed their quotas of memory, copies and connections.

use crate::common::*;
use causeway_attach::native::{VsockOptions, VsockPort};
use causeway_memory::Span;
use causeway_testing::frontend;
use causeway_wire::vsock::{Op, Type};

/// Opens a connection from 3 to 4 and uses up the few receive buffers of 4.
fn starve(rig: &Rig) -> (VsockPort, VsockPort) {
    let mut a = rig.port("red", 3);
    let small = VsockOptions { ring_size: 16, ..VsockOptions::default() };
    let mut b = rig.port_with("red", 4, small);
    open(&mut a, &mut b, 1, 2);
    let data = pattern(1, 60_000);
    for _ in 0..2 {
        send(&mut a, &packet((3, 1), (4, 2), Op::Data, 60_000), &data);
    }
    wait(|| rig.counter("red", 3, "transmit_held_total") > 0, || "nothing waits".into());
    (a, b)
}

/// Sends `count` packets of `data`, or fewer if the ring stops.
fn flood(a: &mut VsockPort, count: usize, data: &[u8]) {
    let header = packet((3, 1), (4, 2), Op::Data, data.len() as u32);
    let mut quiet = 0;
    let mut sent = 0;
    while sent < count && quiet < 100 {
        if a.queue(&header, data).unwrap() {
            (sent, quiet) = (sent + 1, 0);
        } else {
            quiet += 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        a.flush().unwrap();
    }
}

#[test]
fn hostile_empty_packets_are_not_kept() {
    let rig = Rig::new();
    let (mut a, _b) = starve(&rig);
    let kept = |name| rig.counter("red", 3, name);
    let before = kept("transmit_held_total") + kept("transmit_staged_total");
    flood(&mut a, 2000, &[]);
    assert_eq!(kept("transmit_held_total") + kept("transmit_staged_total"), before);
}

#[test]
fn hostile_tiny_packets_take_little_more_than_their_bytes() {
    let rig = Rig::new();
    let (mut a, _b) = starve(&rig);
    flood(&mut a, 8000, b"x");
    assert!(rig.counter("red", 3, "transmit_staged_total") > 7000, "they share a copy");
    assert_eq!(rig.counter("red", 3, "transmit_waited_total"), 0, "8000 bytes stop no ring");
}

#[test]
fn hostile_packets_of_megabytes_are_refused() {
    let rig = Rig::new();
    let mut others = (rig.sockets("red", 14), rig.sockets("red", 15));
    let ids = join(&mut others.0, &mut others.1, Type::Stream, 1);
    let mut b = rig.port("red", 4);
    let mut a = rig.raw("red", 3);
    a.send(&packet((3, 1), (4, 2), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    let mut response = packet((4, 2), (3, 1), Op::Response, 0);
    response.buf_alloc = u32::MAX;
    send(&mut b, &response, &[]);
    wait(|| a.receive().is_some(), || "no response".into());
    // The same 64 KiB, 60 times.
    let spans = [Span { addr: frontend::SEND_AT, len: 64 << 10 }; 60];
    a.send(&packet((3, 1), (4, 2), Op::Data, 60 << 16), &spans);
    let fault = rig.wait_fault("red", 3);
    assert!(fault.contains("a packet of 3932160 bytes") && fault.contains("65536"), "{fault}");
    transfer((&mut others.0, ids.0), (&mut others.1, ids.1), &pattern(8, 100_000), 7000);
}

#[test]
fn hostile_receiver_whose_memory_shrinks_is_closed_without_its_doorbell() {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    let mut b = rig.raw("red", 4);
    send(&mut a, &packet((3, 1), (4, 2), Op::Request, 0), &[]);
    wait(|| b.receive().is_some(), || "no request".into());
    b.send(&packet((4, 2), (3, 1), Op::Response, 0), &[]);
    assert_eq!(next_op(&mut a), Op::Response);
    b.file.set_len(frontend::RINGS_END).unwrap();
    send(&mut a, &packet((3, 1), (4, 2), Op::Data, 100), &[1; 100]);
    assert!(rig.wait_fault("red", 4).contains("shrank"));
    assert_eq!(next_op(&mut a), Op::Reset);
}

#[test]
fn hostile_connects_to_host_processes_stay_in_their_quota() {
    let rig = Rig::new();
    let listener = std::os::unix::net::UnixListener::bind(rig.path("red-3.host_9")).unwrap();
    let mut a = rig.port("red", 3);
    let most = causeway_socket::limits::HOST_CONNECTIONS_PER_PORT_MAX as u32;
    let mut ends = Vec::new();
    for port in 0..most {
        send(&mut a, &packet((3, port), (2, 9), Op::Request, 0), &[]);
        assert_eq!(next_op(&mut a), Op::Response);
        ends.push(accept(&listener));
    }
    send(&mut a, &packet((3, most), (2, 9), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
    assert_eq!(rig.counter("red", 3, "reject_limit_total"), 1);
    // Connections between guests are not limited by it, and ended connections free their share.
    let mut b = rig.port("red", 4);
    open(&mut a, &mut b, 5000, 2);
    send(&mut a, &packet((3, 0), (2, 9), Op::Reset, 0), &[]);
    send(&mut a, &packet((3, most), (2, 9), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut a), Op::Response);
    assert_eq!(rig.counter("red", 3, "host_connections"), u64::from(most));
}
