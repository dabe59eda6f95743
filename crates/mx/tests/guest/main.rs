//! Sessions of guests' processes with the NIC of their adapter: endpoints in registered memory.

mod bounds;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod other_host;
mod rig;

use causeway_attach::local::LocalAttachment;
use causeway_channel::far_fence;
use causeway_channel::mx_rings::layout;
use causeway_wire::local::{ClientMessage, DaemonMessage, HELLO_NO_CHANNELS, Name, VERSION};
use causeway_wire::mx::{Event, RegionId, Request, Status, Token, Window};

use rig::{Host, at, soon};

/// Returns `len` bytes that depend on their position.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8 ^ seed).collect()
}

#[test]
fn guest_processes_exchange_messages_through_rings_in_their_memory() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, mut a) = guest.endpoint(1);
    let (mut two, mut b) = guest.endpoint(2);
    host.wait("m1", "processes", 2);
    // The process asks by a message first, as on a socket.
    let nic = at(1, 0).nic.0;
    let connect = ClientMessage::Connect { endpoint: 1, to: 2, key: 7, token: 9, nic };
    one.ask(&guest, connect, None);
    let remote = one.hear(&guest);
    assert_eq!(remote, DaemonMessage::Remote { endpoint: 1, known: 1, token: 9 });
    let peer = a.connect((&guest, &mut one), at(1, 2));
    for (info, len) in [(1, 0), (2, 8), (3, 4096), (4, 32_768), (5, 100)] {
        let data = pattern(len, info as u8);
        a.send((&guest, &mut one), peer, info, &data);
        assert_eq!(b.receive(), (info, data), "{len} bytes");
    }
    // Rings in adjacent memory.
    let memory = guest.adjacent(layout().bytes() as u64);
    let mut c = two.open_in(&guest, 3, memory);
    let peer = a.connect((&guest, &mut one), at(1, 3));
    a.send((&guest, &mut one), peer, 6, b"adjacent");
    assert_eq!(c.receive(), (6, b"adjacent".to_vec()));
    two.ask(&guest, ClientMessage::Close { endpoint: 3 }, None);
    let back = b.connect((&guest, &mut two), at(1, 1));
    for info in 0..200 {
        b.send((&guest, &mut two), back, info, &info.to_le_bytes());
        assert_eq!(a.receive(), (info, info.to_le_bytes().to_vec()));
    }
    one.ask(&guest, ClientMessage::Find { tag: 5, name: Name::new("m1:0").unwrap() }, None);
    assert!(matches!(one.hear(&guest), DaemonMessage::Host { tag: 5, known: 1, .. }));
    one.ask(&guest, ClientMessage::Close { endpoint: 1 }, None);
    host.wait("m1", "endpoints", 1);
    assert_eq!((host.fault("m1"), host.fault("a1")), (String::new(), String::new()));
}

#[test]
fn guest_process_that_sleeps_gets_a_wake_message() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, mut a) = guest.endpoint(1);
    let (mut two, mut b) = guest.endpoint(2);
    let peer = a.connect((&guest, &mut one), at(1, 2));
    while b.poll().is_some() {}
    for info in 0..20 {
        assert_eq!(two.next(&guest), None, "a process that polls gets no message");
        if b.receiver.request_wake() {
            assert!(far_fence());
        }
        assert!(!b.receiver.ready());
        a.send((&guest, &mut one), peer, info, b"wake");
        assert_eq!(two.hear(&guest), DaemonMessage::Wake { endpoint: 2 });
        b.receiver.disarm();
        assert_eq!(b.receive(), (info, b"wake".to_vec()));
    }
}

#[test]
fn guests_on_one_host_pull_large_messages_between_scattered_regions() {
    let host = Host::new();
    let (mut left, mut right) = (host.guest(1), host.guest(2));
    let (mut one, mut a) = left.endpoint(1);
    let (mut two, mut b) = right.endpoint(1);
    let len = 1_000_003;
    let (from, into) = (left.scattered(1 << 20), right.scattered(1 << 20));
    let data = pattern(len, 3);
    from.view.write(77, &data).unwrap();
    let (code, source) = one.lend(&left, 1, from.offer);
    let (its_code, target) = two.lend(&right, 1, into.offer);
    assert_eq!((code, its_code), (0, 0));
    let peer = a.connect((&left, &mut one), at(2, 1));
    let window = Window { region: RegionId(source), offset: 77, len: len as u32 };
    let offer = Request::Offer { peer, token: Token(1), match_info: 5, from: window };
    a.request((&left, &mut one), &offer);
    let (Event::Offered { match_info: 5, len: offered, handle, .. }, _) = b.hear() else {
        panic!()
    };
    assert_eq!(offered as usize, len);
    let window = Window { region: RegionId(target), offset: 1234, len: offered };
    b.request((&right, &mut two), &Request::Pull { handle, token: Token(2), into: window });
    let pulled = b.hear().0;
    assert_eq!(pulled, Event::Pulled { token: Token(2), status: Status::Success });
    let sent = a.hear().0;
    assert_eq!(sent, Event::Sent { token: Token(1), status: Status::Success, taken: offered });
    let mut got = vec![0; len];
    into.view.read_into(1234, &mut got).unwrap();
    assert!(got == data, "the content differs");
    assert_eq!(into.view.read::<1>(1234 + len).unwrap(), [0]);
}

#[test]
fn guest_process_and_host_process_exchange_messages() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, mut a) = guest.endpoint(1);
    // The host process attaches to the socket of the guest's NIC.
    let stream = std::os::unix::net::UnixStream::connect(host.path("m1")).unwrap();
    let mut process = common::Process(LocalAttachment::new(stream.into()));
    process.ask(ClientMessage::Hello { version: VERSION, direct: HELLO_NO_CHANNELS });
    assert!(matches!(process.hear().0, DaemonMessage::Welcome { .. }));
    let mut rings = common::rings::Rings::open(&mut process, 5);
    let (status, to_guest) = rings.connect(at(1, 1), 7);
    assert_eq!(status, Status::Success);
    let to_host = a.connect((&guest, &mut one), at(1, 5));
    for (info, len) in [(1, 16), (2, 5000), (3, 32_768)] {
        let data = pattern(len, info as u8);
        rings.send(to_guest, info, &data);
        assert_eq!(a.receive(), (info, data.clone()));
        a.send((&guest, &mut one), to_host, info, &data);
        assert_eq!(rings.receive(), (info, data));
    }
    assert_eq!(host.counter("m1", "processes"), 2);
}

#[test]
fn guest_that_leaves_frees_the_endpoints_of_its_processes_at_once() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (_one, _a) = guest.endpoint(1);
    let (_two, _b) = guest.endpoint(2);
    host.wait("m1", "endpoints", 2);
    drop(guest);
    host.wait("m1", "processes", 0);
    host.wait("m1", "endpoints", 0);
    let mut next = host.boot(1);
    let (mut one, mut a) = next.endpoint(1);
    let peer = a.connect((&next, &mut one), at(1, 1));
    assert_ne!(peer, causeway_wire::mx::PeerId::NONE);
}

#[test]
fn sessions_are_counted_at_the_nic_and_at_the_adapter() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, _a) = guest.endpoint(1);
    let len = 1 << 20;
    let region = guest.scattered(len);
    assert_eq!(one.lend(&guest, 1, region.offer).0, 0);
    let _other = guest.endpoint(2);
    let rings = 2 * layout().bytes() as u64;
    for (counter, value) in [
        ("guest_sessions", 2),
        ("guest_sessions_begun_total", 2),
        ("guest_memory_bytes", len + rings),
        ("guest_mirrored_bytes", rings),
        ("guest_revocations_total", 0),
    ] {
        assert_eq!(host.counter("m1", counter), value, "{counter}");
    }
    for (counter, value) in [
        ("sessions", 2),
        ("sessions_begun_total", 2),
        ("session_offers", 3),
        ("session_offers_made_total", 3),
        ("session_offered_bytes", len + rings),
        // Hello and Open of each, and Region.
        ("session_requests_total", 5),
        ("session_answers_total", 5),
    ] {
        assert_eq!(host.counter("a1", counter), value, "{counter}");
    }
    let view = host.adapter("a1");
    let services =
        view.queue_pair_list.iter().filter(|pair| pair.peer.as_deref() == Some("(service)"));
    assert_eq!(services.count(), 2);
    assert_eq!(view.activity.objects["sessions"].count, 2);
    assert!(view.activity.objects["offered ranges"].count > 500);
    guest.deregister(&region.offer);
    host.wait("m1", "guest_revocations_total", 1);
    host.wait("m1", "guest_memory_bytes", rings);
    host.wait("a1", "session_offered_bytes", rings);
    one.reset(&mut guest);
    host.wait("m1", "guest_sessions", 1);
    assert_eq!(
        (host.counter("a1", "sessions"), host.counter("a1", "sessions_begun_total")),
        (1, 2)
    );
    assert_eq!(host.counter("m1", "guest_sessions_failed_total"), 0);
}

#[test]
fn operator_sees_sessions_with_their_endpoints_traffic_and_the_last_refusal() {
    let host = Host::new();
    host.add_nic(1, "a1").unwrap();
    let view = host.nic("m1");
    assert_eq!((&*view.guest, view.warnings.len(), view.sessions), ("waits", 1, 0));
    host.add_adapter(1);
    let mut guest = host.boot(1);
    let (mut one, mut a) = guest.endpoint(1);
    let (two, mut b) = guest.endpoint(2);
    let peer = a.connect((&guest, &mut one), at(1, 2));
    a.send((&guest, &mut one), peer, 5, &[7; 3000]);
    assert_eq!(b.receive(), (5, vec![7; 3000]));
    let region = guest.scattered(1 << 20);
    assert_eq!(one.lend(&guest, 1, region.offer).0, 0);
    let view = host.nic("m1");
    assert_eq!(view.adapter.as_ref().unwrap().as_str(), "a1");
    assert_eq!((&*view.guest, view.warnings.len(), view.refusal.as_deref()), ("served", 0, None));
    assert_eq!((view.processes, view.sessions, view.endpoints), (2, 2, 2));
    assert_eq!(view.counters["messages_sent_total"], 1);
    let processes = &view.process_list;
    let numbers: Vec<u64> = processes.iter().filter_map(|process| process.session).collect();
    assert!(numbers[0] < numbers[1], "{numbers:?}");
    let shape = |at: usize| {
        let process = &processes[at];
        let endpoint = &process.endpoint_list[0];
        (&*process.place, &*process.state, process.regions, process.region_bytes, endpoint.number)
    };
    assert_eq!(shape(0), ("guest", "active", 1, 1 << 20, 1));
    assert_eq!(shape(1), ("guest", "active", 0, 0, 2));
    let [sender, receiver] = [0, 1].map(|at| processes[at].endpoint_list[0].clone());
    assert_eq!((sender.peers, sender.counters["bytes_sent_total"]), (1, 3000));
    assert_eq!(receiver.counters["bytes_received_total"], 3000);
    // A dispatcher without work waits for doorbells.
    let state = |number: usize| {
        host.nic("m1")
            .process_list
            .iter()
            .flat_map(|process| process.endpoint_list.clone())
            .find(|endpoint| usize::from(endpoint.number) == number)
            .map(|endpoint| endpoint.state)
    };
    soon(
        || state(1).as_deref() == Some("parked") && state(2).as_deref() == Some("parked"),
        "parked",
    );
    // A process that names another's endpoint is noted; the list names no process.
    one.ask(&guest, ClientMessage::Close { endpoint: 2 }, None);
    host.wait("m1", "guest_forged_requests_total", 1);
    let refusal = host.nic("m1").refusal.unwrap_or_default();
    assert!(refusal.contains("named endpoint 2 of another process"), "{refusal}");
    let list = host.handle.ask(causeway_model::commands::nics::List).unwrap();
    assert_eq!((list.len(), list[0].sessions, list[0].process_list.len()), (1, 2, 0));
    let missing = host.handle.ask(causeway_model::commands::nics::Show(rig::name("a1")));
    assert!(missing.unwrap_err().to_string().contains("mx port"));
    drop(two);
    one.reset(&mut guest);
    host.wait("m1", "guest_sessions", 1);
    assert_eq!(host.nic("m1").process_list.len(), 1);
}

#[test]
fn nic_and_adapter_are_added_in_either_order_and_only_one_nic_serves_an_adapter() {
    let host = Host::new();
    host.add_nic(1, "a1").unwrap();
    let warnings = || host.port("m1").warnings;
    assert!(warnings()[0].contains("group red has no port a1 of kind hca"), "{:?}", warnings());
    host.add_adapter(1);
    assert_eq!(warnings(), Vec::<String>::new());
    let mut guest = host.boot(1);
    let (mut process, _endpoint) = guest.endpoint(3);
    let again = host.add_nic(2, "a1").unwrap_err().to_string();
    assert!(again.contains("adapter a1 belongs to the NIC of port m1"), "{again}");
    let other = host.add_nic(3, "m1").unwrap_err().to_string();
    assert!(other.contains("expected a port of kind hca"), "{other}");
    // The removal of the NIC ends the session, and another NIC takes the adapter.
    host.handle.call(causeway_model::Command::PortDel(rig::name("m1"))).unwrap();
    process.expect_end(&guest);
    let mut orphan = guest.process();
    orphan.send(&guest, &[0; 160]);
    assert!(orphan.failed.is_some(), "no service answers");
    host.add_nic(2, "a1").unwrap();
    let mut next = guest.process();
    next.ask(&guest, ClientMessage::Hello { version: 4, direct: 0 }, None);
    let DaemonMessage::Welcome { nic, .. } = next.hear(&guest) else { panic!() };
    assert_eq!(nic, at(2, 0).nic.0);
    // So does the removal of the adapter, which the NIC survives.
    host.handle.call(causeway_model::Command::PortDel(rig::name("a1"))).unwrap();
    assert!(host.port("m2").warnings[0].contains("no port a1"));
    host.wait("m2", "processes", 0);
    host.add_adapter(1);
    let mut guest = host.boot(1);
    let mut process = guest.process();
    process.ask(&guest, ClientMessage::Hello { version: 4, direct: 0 }, None);
    assert!(matches!(process.hear(&guest), DaemonMessage::Welcome { .. }));
    soon(|| host.counter("m2", "processes") == 1, "the NIC has one process");
}
