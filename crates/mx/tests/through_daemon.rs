//! Messages between NICs of one daemon by rings: for processes that get no channels.

mod common;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_memory::{Mapping, View, create};
use causeway_wire::local::{ClientMessage, DaemonMessage, HELLO_NO_CHANNELS};
use causeway_wire::mx::{Event, PeerId, RegionId, Request, Status, Token, Window};

use common::rings::{Rings, at};
use common::{Host, Process, nic, soon};

/// A process without channels, and its endpoint.
fn endpoint(host: &Host, board: &str, number: u8) -> (Process, Rings) {
    let mut process = host.attach_as(board, HELLO_NO_CHANNELS);
    let rings = Rings::open(&mut process, number);
    (process, rings)
}

/// Requests a connect from the daemon. Returns its answer.
fn ask(process: &mut Process, endpoint: u8, to: (&str, u8), key: u32) -> DaemonMessage {
    process.ask(ClientMessage::Connect { endpoint, to: to.1, key, token: 9, nic: nic(to.0) });
    process.hear().0
}

/// Returns two connected endpoints, and each as a peer of the other.
fn connected(
    host: &Host,
    one: (&str, u8),
    two: (&str, u8),
) -> ((Process, Rings), (Process, Rings), PeerId) {
    let (mut a, b) = (endpoint(host, one.0, one.1), endpoint(host, two.0, two.1));
    let remote = ask(&mut a.0, one.1, two, 7);
    assert!(matches!(remote, DaemonMessage::Remote { known: 1, token: 9, .. }), "{remote:?}");
    let (status, peer) = a.1.connect(at(two.0, two.1), 7);
    assert_eq!(status, Status::Success);
    (a, b, peer)
}

/// Lends memory of `len` bytes. Returns its number and a view of it.
fn lend((process, _): &mut (Process, Rings), endpoint: u8, len: usize) -> (RegionId, View) {
    let file: OwnedFd = create("region", len as u64).unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
    let request = ClientMessage::Region { tag: 3, endpoint, len: len as u64 };
    process.0.send(request.emit(), vec![file]).unwrap();
    let (tell, _) = process.hear();
    let DaemonMessage::Region { tag: 3, code: 0, region, .. } = tell else { panic!("{tell:?}") };
    (RegionId(region), View::new(Arc::new(mapping), 0, len).unwrap())
}

/// Returns the next event that is no introduction.
fn hear(rings: &mut Rings) -> Event<'static> {
    loop {
        match rings.hear() {
            Event::PeerSeen { .. } => {}
            event => return event,
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at) as u8).collect()
}

#[test]
fn through_daemon_messages_cross_between_nics_and_within_one() {
    let host = Host::new();
    for (one, two) in [(("a", 1), ("b", 2)), (("a", 3), ("a", 4))] {
        let ((_p, mut a), (_q, mut b), peer) = connected(&host, one, two);
        for (number, len) in [0_usize, 8, 32, 33, 128, 4096, 32_768].into_iter().enumerate() {
            a.send(peer, number as u64, &pattern(len));
            assert_eq!(b.receive(), (number as u64, pattern(len)));
        }
        // The receiver knows the peer, and answers.
        b.send(PeerId(0), 99, b"back");
        assert_eq!(a.receive(), (99, b"back".to_vec()));
    }
}

#[test]
fn through_daemon_a_process_with_channels_gets_rings_when_it_needs_them() {
    let host = Host::new();
    let (mut with, mut without) = (host.attach("b"), endpoint(&host, "a", 1));
    // The endpoint has no rings.
    with.open(2, 7);
    let remote = ask(&mut without.0, 1, ("b", 2), 7);
    assert!(matches!(remote, DaemonMessage::Remote { known: 1, .. }), "{remote:?}");
    let (tell, fds) = with.hear();
    assert!(matches!(tell, DaemonMessage::Opened { code: 0, endpoint: 2, .. }), "{tell:?}");
    let mut rings = Rings::of(fds);
    let (status, peer) = without.1.connect(at("b", 2), 7);
    assert_eq!(status, Status::Success);
    without.1.send(peer, 5, b"through the daemon");
    assert_eq!(rings.receive(), (5, b"through the daemon".to_vec()));
    // A connect from the other side gets rings too, and none twice.
    let mut other = host.attach("b");
    other.open(3, 7);
    other.ask(ClientMessage::Connect { endpoint: 3, to: 1, key: 7, token: 4, nic: nic("a") });
    let (tell, fds) = other.hear();
    assert!(matches!(tell, DaemonMessage::Opened { endpoint: 3, .. }), "{tell:?}");
    assert_eq!(fds.len(), 3);
    assert!(matches!(other.hear().0, DaemonMessage::Remote { known: 1, token: 4, .. }));
    assert!(matches!(ask(&mut without.0, 1, ("b", 2), 7), DaemonMessage::Remote { .. }));
    // Endpoints with channels keep them.
    with.ask(ClientMessage::Connect { endpoint: 2, to: 3, key: 7, token: 5, nic: nic("b") });
    assert!(matches!(with.hear().0, DaemonMessage::Channel { .. }));
}

#[test]
fn through_daemon_connects_end_with_a_reason() {
    let host = Host::new();
    let mut a = endpoint(&host, "a", 1);
    let _b = endpoint(&host, "b", 2);
    let cases = [
        (("b", 2), 8, Status::BadKey),
        (("b", 3), 7, Status::EndpointClosed),
        (("c", 2), 7, Status::EndpointUnknown),
        (("a", 1), 7, Status::BadEndpoint),
    ];
    for (to, key, status) in cases {
        let refused = ask(&mut a.0, 1, to, key);
        let DaemonMessage::Refused { status: its, .. } = refused else { panic!("{refused:?}") };
        assert_eq!(u32::from(its), status as u32, "{to:?}");
    }
    // The rings are no way around the daemon's answer.
    assert_eq!(a.1.connect(at("b", 2), 8).0, Status::BadKey);
    assert_eq!(a.1.connect(at("c", 2), 7).0, Status::EndpointUnreachable, "another group");
    let closed = [Status::EndpointClosed, Status::EndpointUnreachable];
    assert!(closed.contains(&a.1.connect(at("b", 3), 7).0));
}

#[test]
fn through_daemon_large_messages_are_pulled() {
    let host = Host::new();
    let (mut a, mut b, peer) = connected(&host, ("a", 1), ("b", 2));
    for (len, wanted) in
        [(1_usize, 1), (4096, 4096), (100_000, 100_000), (3 << 20, 3 << 20), (50_000, 20_000)]
    {
        let (from, view) = lend(&mut a, 1, len + 3);
        let (into, other) = lend(&mut b, 2, len + 5);
        let data = pattern(len);
        view.write(3, &data).unwrap();
        let window = Window { region: from, offset: 3, len: len as u32 };
        a.1.request(&Request::Offer { peer, token: Token(6), match_info: 8, from: window });
        let Event::Offered { match_info: 8, len: offered, handle, .. } = hear(&mut b.1) else {
            panic!("no offer")
        };
        assert_eq!(offered as usize, len);
        let window = Window { region: into, offset: 5, len: wanted as u32 };
        b.1.request(&Request::Pull { handle, token: Token(7), into: window });
        assert_eq!(hear(&mut b.1), Event::Pulled { token: Token(7), status: Status::Success });
        let sent = Event::Sent { token: Token(6), status: Status::Success, taken: wanted as u32 };
        assert_eq!(hear(&mut a.1), sent);
        let mut bytes = vec![0; len];
        other.read_into(5, &mut bytes).unwrap();
        assert_eq!(bytes[..wanted], data[..wanted], "{len} bytes");
        assert!(bytes[wanted..].iter().all(|byte| *byte == 0), "only {wanted} bytes are written");
        for (process, endpoint, region) in [(&mut a.0, 1, from), (&mut b.0, 2, into)] {
            process.ask(ClientMessage::Unregion { endpoint, region: region.0 });
        }
    }
}

#[test]
fn through_daemon_an_end_is_reported_to_the_peer() {
    let host = Host::new();
    // A process that ends, and a NIC that is removed.
    for (one, two, removes) in [(("a", 1), ("b", 2), false), (("a", 3), ("b", 4), true)] {
        let ((_p, mut a), (process, b), peer) = connected(&host, one, two);
        a.send(peer, 1, b"x");
        if removes {
            host.handle.call(causeway_model::Command::PortDel("b".parse().unwrap())).unwrap();
        }
        drop((process, b));
        host.wait("a", "processes", 1);
        soon(
            || {
                a.request(&Request::Eager { peer, token: Token(2), match_info: 2, data: b"x" });
                loop {
                    match hear(&mut a) {
                        Event::PeerGone { peer: gone, .. } => return gone == peer,
                        Event::Sent { token: Token(2), .. } => return false,
                        _ => {}
                    }
                }
            },
            "the end is not reported",
        );
    }
}

#[test]
fn through_daemon_a_full_receiver_holds_its_sender_back_and_no_other() {
    let host = Host::new();
    let ((_p, mut a), (_q, mut b), peer) = connected(&host, ("a", 1), ("b", 2));
    let (third, mut c) = endpoint(&host, "b", 3);
    assert_eq!(a.connect(at("b", 3), 7).0, Status::Success);
    // Far more than the ring of the receiver.
    const COUNT: u64 = 1_000;
    for number in 0..COUNT {
        let (token, data) = (Token::UNREPORTED, [number as u8; 4096]);
        let request = Request::Eager { peer, token, match_info: number, data: &data };
        soon(
            || causeway_channel::mx_rings::write_request(&mut a.sender, &request).unwrap(),
            "the daemon takes no requests",
        );
        a.ring();
    }
    let other = PeerId(peer.0 + 1);
    a.request(&Request::Eager { peer: other, token: Token(1), match_info: 1, data: b"passes" });
    assert_eq!(c.receive(), (1, b"passes".to_vec()), "another receiver waits");
    for number in 0..COUNT {
        assert_eq!(b.receive(), (number, vec![number as u8; 4096]));
    }
    drop(third);
}
