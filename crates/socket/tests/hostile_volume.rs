//! Guests that want the daemon to keep, copy or remember more than is theirs.

mod common;

use causeway_attach::native::{VsockOptions, VsockPort};
use causeway_wire::vsock::Op;
use common::*;

/// Opens a connection from 3 to 4, whose few receive buffers are then all used up.
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
fn hostile_tiny_packets_are_charged_for_what_they_cost() {
    let rig = Rig::new();
    let (mut a, _b) = starve(&rig);
    flood(&mut a, 8000, b"x");
    assert!(rig.counter("red", 3, "transmit_waited_total") > 0, "8000 packets were copied aside");
}
