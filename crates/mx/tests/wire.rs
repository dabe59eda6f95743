//! Limits of the kernel: batches that it does not segment, and frames for which it has no room.

mod common;

use std::time::{Duration, Instant};

use causeway_testing::wait::patient;
use causeway_wire::mx::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{PeerId, Request, Status, Token};

use common::rings::{Rings, at};
use common::{Host, ip, loopback, soon, with_wire};

fn connect(from: &mut Rings, board: &str, endpoint: u8) -> PeerId {
    let mut peer = PeerId::NONE;
    let connects = || {
        let (status, its) = from.connect(at(board, endpoint), 7);
        peer = its;
        status == Status::Success
    };
    soon(connects, "the endpoints do not connect");
    peer
}

fn uncut() {
    ip("link set lo up");
    // IP fragments these datagrams, because UDP segmentation fails at this MTU.
    ip("route replace local 127.0.0.2 dev lo table local mtu 1500");
    let [one, two, three] = [loopback(1, 9101), loopback(1, 9102), loopback(2, 9103)];
    let a = Host::with_udp_at("a", one, &[two, three]);
    let (b, c) = (Host::with_udp_at("b", two, &[one]), Host::with_udp_at("c", three, &[one]));
    let (mut of_a, mut of_b, mut of_c) = (a.attach("a"), b.attach("b"), c.attach("c"));
    let mut from = Rings::open(&mut of_a, 3);
    let (mut near, mut narrow) = (Rings::open(&mut of_b, 4), Rings::open(&mut of_c, 4));
    let (to_near, to_narrow) = (connect(&mut from, "b", 4), connect(&mut from, "c", 4));
    let long: Vec<u8> = (0..MEDIUM_BYTES_MAX).map(|at| (at / 5) as u8).collect();
    let counted = || (a.counter("a", "frames_left_total"), a.counter("a", "send_calls_total"));
    // Frames per system call, in hundredths.
    let mut sends = |to, at: &mut Rings, info| {
        let before = counted();
        for _ in 0..10 {
            from.send(to, info, &long);
            assert_eq!(at.receive(), (info, long.clone()));
        }
        let after = counted();
        (after.0 - before.0) * 100 / (after.1 - before.1)
    };
    let before = sends(to_near, &mut near, 1);
    assert!(before > 200, "{before} do not leave together");
    let alone = sends(to_narrow, &mut narrow, 2);
    assert!(alone <= 110, "{alone} leave together");
    let still = sends(to_near, &mut near, 3);
    assert!(still > 200, "{still} do not leave together any more");
}

#[test]
fn frames_that_the_host_does_not_cut_leave_one_by_one_to_that_address_alone() {
    with_wire("frames_that_the_host_does_not_cut_leave_one_by_one_to_that_address_alone", uncut);
}

fn stuck() {
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let (mut of_one, mut of_two) = (one.attach("a"), two.attach("b"));
    let (mut long, mut short) = (Rings::open(&mut of_one, 3), Rings::open(&mut of_one, 5));
    let (_, mut hears) = (Rings::open(&mut of_two, 4), Rings::open(&mut of_two, 6));
    let (to_long, to_short) = (connect(&mut long, "b", 4), connect(&mut short, "b", 6));
    // The far end accepts no long frames now, and the near end reports that it has no room.
    ip("link set far mtu 1500");
    let (token, data) = (Token(1), &vec![7; MEDIUM_BYTES_MAX][..]);
    long.request(&Request::Eager { peer: to_long, token, match_info: 1, data });
    soon(|| one.counter("a", "drop_interface_full_total") > 0, "no frame is stuck");
    let since = Instant::now();
    for info in 0..20 {
        short.send(to_short, info, b"short");
        assert_eq!(hears.receive(), (info, b"short".to_vec()));
    }
    assert!(since.elapsed() < patient(Duration::from_secs(10)), "{:?}", since.elapsed());
    assert!(!long.receiver.ready(), "the message has not arrived");
    // Sending continues when there is room again.
    ip("link set far mtu 9000");
    assert!(matches!(
        long.hear(),
        causeway_wire::mx::Event::Sent { token: Token(1), status: Status::Success, .. }
    ));
}

#[test]
fn frames_that_the_host_never_takes_hold_others_up_for_a_moment() {
    with_wire("frames_that_the_host_never_takes_hold_others_up_for_a_moment", stuck);
}
