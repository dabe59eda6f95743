//! What guests may have at a time, and the time that the end of it takes from others.

use causeway_channel::mx_rings::{layout, write_request};
use causeway_model::{Mac, MxPeer, MxSpec, MxUdp, PortKind};
use causeway_wire::local::{ClientMessage, DaemonMessage};
use causeway_wire::mx::{Event, Request, Token};
use causeway_wire::session::SessionMessage;
use rustix::fs::{FlockOperation, flock};

use crate::rig::{Endpoint, Guest, Host, PAGE, Process, Scattered, at, soon};

/// `mx_return_t` of a reached limit.
const NO_RESOURCES: u32 = 15;
/// `mx_return_t` of a number in use.
const BUSY: u32 = 20;

#[test]
fn hostile_memory_is_lent_to_64_users_and_taken_from_all_at_once() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, mut a) = guest.endpoint(1);
    let memory = guest.adjacent(2 * PAGE);
    for user in 0..64 {
        assert_eq!(one.lend(&guest, 1, memory.offer).0, 0, "{user}");
    }
    assert_eq!(one.lend(&guest, 1, memory.offer).0, NO_RESOURCES, "a deregistration ends each use");
    guest.deregister(&memory.offer);
    // All numbers of regions are free again, and the process goes on.
    for _ in 0..4 {
        let again = guest.reregister(&memory);
        for _ in 0..64 {
            soon(|| one.lend(&guest, 1, again).0 == 0, "the regions are not ended");
        }
    }
    let peer = a.connect((&guest, &mut one), at(1, 1));
    assert_ne!(peer, causeway_wire::mx::PeerId::NONE);
    assert_eq!(host.fault("m1"), "");
}

#[test]
fn endpoints_of_a_process_that_ends_close_over_several_turns() {
    const ENDPOINTS: u8 = 40;
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut bystander = guest.endpoint(200);
    let mut process = guest.attach();
    let endpoints: Vec<Endpoint> = (0..ENDPOINTS)
        .map(|number| {
            let memory = guest.adjacent(layout().bytes() as u64);
            process.open_in(&guest, number, memory)
        })
        .collect();
    let (watcher, own) = &mut bystander;
    let peers: Vec<_> =
        (0..ENDPOINTS).map(|number| own.connect((&guest, watcher), at(1, number))).collect();
    let loopback = own.connect((&guest, watcher), at(1, 200));
    process.reset(&mut guest);
    // The guest uses the memory otherwise from now on.
    for endpoint in &endpoints {
        endpoint.memory.view.write(0, &[0xc3; 4096]).unwrap();
    }
    // A peer learns of each end, while it exchanges messages with itself.
    let mut gone = 0;
    soon(
        || {
            let token = Token::UNREPORTED;
            let request = Request::Eager { peer: loopback, token, match_info: 1, data: b"on" };
            // Without room, the daemon is behind.
            if write_request(&mut own.sender, &request).unwrap() && own.sender.take_wake_request() {
                watcher.ring(&guest, 200);
            }
            while let Some((event, _)) = own.poll() {
                gone += usize::from(matches!(event, Event::PeerGone { .. }));
            }
            gone >= peers.len()
        },
        "the ends are not reported",
    );
    host.wait("m1", "endpoints", 1);
    host.wait("m1", "processes", 1);
    for endpoint in &endpoints {
        let mut now = [0; 4096];
        endpoint.memory.view.read_into(0, &mut now).unwrap();
        assert_eq!(now, [0xc3; 4096], "endpoint {}", endpoint.number);
    }
    // The numbers are free.
    let mut next = guest.attach();
    assert_eq!(next.try_open(&guest, 7, endpoints[7].memory.offer), 0);
    assert_eq!(host.fault("m1"), "");
}

#[test]
fn hostile_region_of_an_endpoint_without_rings_is_refused_and_the_session_goes_on() {
    const ENDPOINTS: u8 = 60;
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut process = guest.attach();
    let rings = guest.adjacent(layout().bytes() as u64);
    let region = guest.adjacent(2 * PAGE);
    let offer = |endpoint| {
        let message = ClientMessage::Region { tag: 3, endpoint, len: region.offer.len };
        SessionMessage { message, offer: Some(region.offer) }.emit()
    };
    for round in 0..16 {
        let shared = guest.reregister(&rings);
        for number in 0..ENDPOINTS {
            assert_eq!(process.try_open(&guest, number, shared), 0);
        }
        // All lose their rings at once, and close over several turns.
        let (before, after) = (round % 8, 8);
        (0..before).for_each(|_| process.post(&guest, &offer(ENDPOINTS - 1)));
        guest.deregister(&shared);
        (0..after).for_each(|_| process.post(&guest, &offer(ENDPOINTS - 1)));
        for answer in 0..before + after {
            let DaemonMessage::Region { tag: 3, code, .. } = process.hear(&guest) else { panic!() };
            assert!(code == NO_RESOURCES || code == 0 && answer < before, "{code}");
        }
        host.wait("m1", "endpoints", 0);
    }
    assert_eq!(host.fault("m1"), "");
}

/// Asks to resume an endpoint. Returns the code of the answer.
fn resume(guest: &Guest, process: &mut Process, rings: &Scattered, endpoint: u8) -> u32 {
    let resume = ClientMessage::Resume { tag: 6, endpoint, key: 7, session: 9 };
    process.ask(guest, resume, Some(rings.offer));
    match process.hear(guest) {
        DaemonMessage::Opened { tag: 6, code, .. } => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_guest_does_not_take_the_number_of_a_process_of_the_host() {
    let host = Host::new();
    // A process of the previous daemon holds the lock file of its endpoint.
    let lock = std::fs::File::create(host.dir.join("m1.r5")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut guest = host.guest(1);
    let (mut liar, _own) = guest.endpoint(3);
    let rings = guest.rings();
    assert_eq!(resume(&guest, &mut liar, &rings, 5), BUSY);
    assert_eq!(liar.try_open(&guest, 5, rings.offer), BUSY);
    assert_eq!(resume(&guest, &mut liar, &rings, 3), BUSY, "its own is open");
    drop(lock);
    // The next check finds that the process ended.
    soon(|| liar.try_open(&guest, 5, rings.offer) == 0, "the number stays reserved");
}

#[test]
fn nic_that_knows_the_maximum_of_nics_names_the_neighbour_that_it_does_not_reach() {
    let host = Host::new();
    let peer = |number: u16| {
        let [high, low] = number.to_be_bytes();
        MxPeer { mac: Mac([2, 0, 0, 9, high, low]), name: None }
    };
    let [listen, peers] = ["127.0.0.1:0", "127.0.0.1:9"].map(|text| text.parse().unwrap());
    let udp = Some(MxUdp { listen, peers: vec![peers] });
    let local = MxSpec::local(Mac([2, 0, 0, 0, 2, 1]), "m1:0".into());
    let full = MxSpec { udp, peers: (0..1024).map(peer).collect(), ..local };
    host.add("m1", PortKind::of(full)).unwrap();
    assert_eq!(host.port("m1").notice, None);
    let next = MxSpec::local(Mac([2, 0, 0, 0, 2, 2]), "m2:0".into());
    host.add("m2", PortKind::of(next)).unwrap();
    let notice = host.port("m1").notice.unwrap();
    assert!(notice.contains("does not reach the NIC of m2"), "{notice}");
    assert_eq!(host.port("m2").notice, None);
}
