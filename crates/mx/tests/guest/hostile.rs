//! Guests that lie, take memory away, or do not read: each costs itself only.

use std::time::{Duration, Instant};

use causeway_channel::mx_rings::layout;
use causeway_channel::{EventHead, Side, open};
use causeway_mlx5_driver::Post;
use causeway_wire::local::{ClientMessage, DaemonMessage, Name, VERSION};
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::completion_queue::Syndrome;
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};
use causeway_wire::mx::{Event, RegionId, Request, Status, Token, Window};
use causeway_wire::session::{Offer, SessionMessage};

use crate::rig::{Endpoint, Guest, Host, PAGE, Process, Scattered, at, soon};

/// Bytes of the rings of an endpoint.
fn ring_bytes() -> u64 {
    layout().bytes() as u64
}

/// `mx_return_t` of a reached limit.
const NO_RESOURCES: u32 = 15;
/// Remote invalid request.
const REFUSED: u8 = Syndrome::RemoteInvalidRequest.raw();

/// Asserts that a bystander still exchanges messages.
#[track_caller]
fn assert_serves(guest: &Guest, side: &mut (Process, Endpoint), info: u64) {
    let (process, endpoint) = side;
    let peer = endpoint.connect((guest, process), at(guest.number, endpoint.number));
    let token = Token(info);
    let request = Request::Eager { peer, token, match_info: info, data: b"on" };
    endpoint.request((guest, process), &request);
    let (mut was_sent, mut was_received) = (false, false);
    while !(was_sent && was_received) {
        match endpoint.hear() {
            (Event::Sent { status: Status::Success, .. }, _) => was_sent = true,
            (Event::Message { match_info, .. }, data) if match_info == info => {
                assert_eq!(data, b"on");
                was_received = true;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn hostile_offers_end_their_session_or_are_refused() {
    let host = Host::new();
    let (mut guest, mut other) = (host.guest(1), host.guest(2));
    let mut bystander = guest.endpoint(9);
    let (foreign, good) = (other.rings(), guest.rings());
    let free = guest.adjacent(ring_bytes());
    guest.deregister(&free.offer);
    let weak = {
        let mut context = guest.key_context(good.offer.address, good.offer.len);
        context.remote_write = false;
        let key = guest.driver.create_key(&mut guest.bar, &context, &good.pages).unwrap();
        Offer { key, ..good.offer }
    };
    let other_domain = {
        let opcode = Opcode::AllocateProtectionDomain;
        let domain = guest.driver.simple(&mut guest.bar, opcode, 0).unwrap();
        let mut context = guest.key_context(good.offer.address, good.offer.len);
        context.domain = domain;
        let key = guest.driver.create_key(&mut guest.bar, &context, &good.pages).unwrap();
        Offer { key, ..good.offer }
    };
    let unaligned = {
        let context = guest.key_context(good.offer.address + 64, good.offer.len);
        let pages = [good.pages.clone(), good.pages[..1].to_vec()].concat();
        let key = guest.driver.create_key(&mut guest.bar, &context, &pages).unwrap();
        Offer { key, address: good.offer.address + 64, len: good.offer.len }
    };
    let ungranted = {
        // A page of the last 4 KiB of the address space.
        let context = guest.key_context(good.offer.address, good.offer.len);
        let pages = vec![!(PAGE - 1); good.pages.len()];
        let key = guest.driver.create_key(&mut guest.bar, &context, &pages).unwrap();
        Offer { key, ..good.offer }
    };
    let cases: [(&str, Offer, &str); 12] = [
        ("foreign key", foreign.offer, "the offered memory is refused"),
        ("unknown key", Offer { key: 0xffff_ff07, ..good.offer }, "no region has its key"),
        ("variable byte", Offer { key: good.offer.key ^ 1, ..good.offer }, "no region has its key"),
        ("deregistered", free.offer, "no region has its key"),
        ("no rights", weak, "lacks local write"),
        ("protection domain", other_domain, "another protection domain"),
        ("behind the end", Offer { len: good.offer.len + 1, ..good.offer }, "outside"),
        ("before the start", Offer { address: 0, ..good.offer }, "outside"),
        ("wraps", Offer { address: u64::MAX - 5, ..good.offer }, "outside"),
        ("short", Offer { len: ring_bytes() - 1, ..good.offer }, "are needed"),
        ("not whole pages", unaligned, "whole pages"),
        ("not granted", ungranted, "outside the granted memory"),
    ];
    for (case, offer, reason) in cases {
        let mut liar = guest.attach();
        let message = ClientMessage::Open { tag: 1, endpoint: 3, key: 7 };
        liar.ask(&guest, message, Some(offer));
        liar.expect_end(&guest);
        host.expect_fault("m1", reason);
        assert!(host.fault("m1").contains("process was disconnected"), "{case}");
    }
    hostile_regions(&host, &mut guest, good.offer);
    // Rings of two endpoints and a region in the same memory harm their process only.
    let mut liar = guest.attach();
    assert_eq!(liar.try_open(&guest, 4, good.offer), 0);
    assert_eq!(liar.try_open(&guest, 5, good.offer), 0);
    assert_eq!(liar.lend(&guest, 4, good.offer).0, 0);
    let (mut sender, _) = open(&good.view, Side::First).unwrap();
    assert!(sender.send(EventHead { kind: 99, words: [1; 3] }, b"").unwrap());
    liar.ring(&guest, 4);
    liar.expect_end(&guest);
    host.expect_fault("m1", "malformed");
    assert_serves(&guest, &mut bystander, 1);
    host.wait("m1", "processes", 1);
}

/// Offers memory for a region of another length, and for one of more than 256 MiB.
fn hostile_regions(host: &Host, guest: &mut Guest, good: Offer) {
    let (mut liar, _endpoint) = guest.endpoint(3);
    let huge = ClientMessage::Region { tag: 1, endpoint: 3, len: 5 << 30 };
    liar.ask(guest, huge, Some(Offer { len: 5 << 30, ..good }));
    liar.expect_end(guest);
    host.expect_fault("m1", "more than 256 MiB");
    let (mut liar, _endpoint) = guest.endpoint(3);
    let other = ClientMessage::Region { tag: 1, endpoint: 3, len: 77 };
    liar.ask(guest, other, Some(good));
    liar.expect_end(guest);
    host.expect_fault("m1", "another length");
}

#[test]
fn hostile_messages_end_their_session_with_a_reason() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut bystander = guest.endpoint(9);
    let rings = guest.rings();
    let hello = ClientMessage::Hello { version: VERSION, direct: 0 };
    let valid = SessionMessage { message: hello, offer: None }.emit();
    let mut kind = valid;
    kind[0] = 99;
    let mut reserved = valid;
    reserved[159] = 1;
    let offered = SessionMessage { message: hello, offer: Some(rings.offer) }.emit();
    let open = ClientMessage::Open { tag: 1, endpoint: 3, key: 7 };
    let bare = SessionMessage { message: open, offer: None }.emit();
    // The carrier refuses the first three, the NIC the others.
    let cases: [(&[u8], &str, &str); 6] = [
        (&valid[..159], "a1", "a message has 159 bytes"),
        (&valid[..4], "a1", "a message has 4 bytes"),
        (&reserved, "a1", "reserved"),
        (&kind, "m1", "kind 99 is unknown"),
        (&offered, "m1", "offers memory in vain"),
        (&bare, "m1", "offers no memory"),
    ];
    for (bytes, port, reason) in cases {
        let mut liar = guest.attach();
        liar.send(&guest, bytes);
        liar.expect_end(&guest);
        host.expect_fault(port, reason);
        // The queue pair stays in the error state.
        liar.failed = None;
        liar.send(&guest, &valid);
        assert!(liar.failed.is_some());
    }
    // No Hello; doorbells of no endpoint; other operations.
    let mut liar = guest.process();
    liar.ask(&guest, ClientMessage::Close { endpoint: 9 }, None);
    liar.expect_end(&guest);
    let mut liar = guest.attach();
    liar.ring(&guest, 256);
    assert_eq!(liar.failed.map(|(_, syndrome)| syndrome), Some(REFUSED));
    host.expect_fault("a1", "names no endpoint");
    for opcode in [SendOpcode::Write, SendOpcode::Read] {
        let mut liar = guest.attach();
        let remote = RemoteAddressSegment { address: rings.offer.address, key: rings.offer.key };
        let post = Post::new(opcode);
        guest.driver.post(&mut liar.pair, post, |entry| entry.remote(&remote)).unwrap();
        liar.expect_end(&guest);
    }
    assert_serves(&guest, &mut bystander, 1);
    host.wait("m1", "processes", 1);
}

#[test]
fn hostile_forged_numbers_reach_no_endpoint_of_another_process() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut bystander = guest.endpoint(9);
    let (mut liar, _own) = guest.endpoint(3);
    let region = guest.adjacent(2 * PAGE);
    liar.ask(&guest, ClientMessage::Close { endpoint: 9 }, None);
    liar.ask(&guest, ClientMessage::Unregion { endpoint: 9, region: 0 }, None);
    let nic = at(1, 0).nic.0;
    let disconnect = ClientMessage::Disconnect { endpoint: 9, to: 3, way: 0, nic };
    liar.ask(&guest, disconnect, None);
    for value in 0..256 {
        liar.ring(&guest, value);
    }
    assert_eq!(liar.lend(&guest, 9, region.offer).0, NO_RESOURCES, "not its endpoint");
    assert_eq!(liar.lend(&guest, 77, region.offer).0, NO_RESOURCES, "not open");
    let connect = ClientMessage::Connect { endpoint: 9, to: 3, key: 7, token: 1, nic };
    liar.ask(&guest, connect, None);
    assert!(matches!(liar.hear(&guest), DaemonMessage::Refused { endpoint: 9, .. }));
    let rings = guest.rings();
    assert_eq!(liar.try_open(&guest, 9, rings.offer), 20, "busy");
    assert_serves(&guest, &mut bystander, 1);
    assert_eq!(host.counter("m1", "endpoints"), 2);
    host.expect_fault("m1", "named endpoint 9 of another process");
    assert!(host.counter("m1", "guest_forged_requests_total") >= 5);
}

#[test]
fn hostile_process_that_reads_no_events_is_named_and_stops_its_senders_only() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut bystander = guest.endpoint(9);
    let (mut one, mut a) = guest.endpoint(1);
    let (mut two, mut deaf) = guest.endpoint(2);
    let peer = a.connect((&guest, &mut one), at(1, 2));
    while deaf.poll().is_some() {}
    // As many messages as the rings and the sender take.
    let since = Instant::now();
    while host.counter("m1", "library_full_total") == 0 {
        assert!(since.elapsed() < causeway_testing::wait::PATIENCE);
        flood((&guest, &mut one), &mut a, peer);
    }
    soon(
        || host.port("m1").warnings.iter().any(|text| text.contains("process of endpoint 2 has")),
        "no warning",
    );
    assert_serves(&guest, &mut bystander, 1);
    // It reads at last, and tells the daemon of the room.
    soon(
        || {
            while deaf.poll().is_some() {}
            two.ring(&guest, 2);
            host.port("m1").warnings.is_empty()
        },
        "the warning stays",
    );
}

#[test]
fn process_with_another_version_is_answered_and_named() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut process = guest.process();
    let hello = ClientMessage::Hello { version: VERSION + 1, direct: 0 };
    process.ask(&guest, hello, None);
    // The library compares the versions.
    let DaemonMessage::Welcome { version: VERSION, .. } = process.hear(&guest) else { panic!() };
    let notice = host.port("m1").notice.unwrap();
    assert!(notice.contains("a process has version 5 of the protocol, causewayd 4"), "{notice}");
}

/// Asserts that no byte of memory that a guest took away changes, while `act` runs again and again.
#[track_caller]
fn assert_untouched(memory: &Scattered, mut act: impl FnMut()) {
    let bytes = vec![0xc3; memory.view.len()];
    memory.view.write(0, &bytes).unwrap();
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(100) {
        act();
        let mut now = vec![0; bytes.len()];
        memory.view.read_into(0, &mut now).unwrap();
        let place = now.iter().position(|byte| *byte != 0xc3);
        assert_eq!(place, None, "a byte changed after the command had completed");
    }
}

/// Sends messages without waiting for their end, as far as the ring has room.
fn flood(
    (guest, process): (&Guest, &mut Process),
    from: &mut Endpoint,
    to: causeway_wire::mx::PeerId,
) {
    let data = [0x11; 512];
    for _ in 0..8 {
        let request = Request::Eager { peer: to, token: Token(9), match_info: 9, data: &data };
        if !causeway_channel::mx_rings::write_request(&mut from.sender, &request).unwrap() {
            break;
        }
    }
    if from.sender.take_wake_request() {
        process.ring(guest, u32::from(from.number));
    }
    while from.poll().is_some() {}
}

#[test]
fn rings_are_not_touched_after_their_deregistration_during_traffic() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, mut a) = guest.endpoint(1);
    for round in 0..8 {
        let mut two = guest.attach();
        let memory = match round % 4 < 2 {
            true => guest.rings(),
            false => guest.adjacent(ring_bytes()),
        };
        let b = two.open_in(&guest, 2, memory);
        let peer = a.connect((&guest, &mut one), at(1, 2));
        for _ in 0..20 {
            flood((&guest, &mut one), &mut a, peer);
        }
        let offer = b.memory.offer;
        if round % 2 == 0 {
            guest.deregister(&offer);
        } else {
            two.reset(&mut guest);
        }
        assert_untouched(&b.memory, || flood((&guest, &mut one), &mut a, peer));
        soon(|| host.counter("m1", "endpoints") == 1, "the endpoint closes");
        if round % 2 == 0 {
            // The session goes on, and may open the endpoint again.
            let again = guest.reregister(&b.memory);
            assert_eq!(two.try_open(&guest, 2, again), 0);
            two.ask(&guest, ClientMessage::Close { endpoint: 2 }, None);
            two.reset(&mut guest);
        }
        host.wait("m1", "processes", 1);
    }
}

#[test]
fn regions_are_not_touched_after_their_deregistration_during_a_pull() {
    let host = Host::new();
    let (mut left, mut right) = (host.guest(1), host.guest(2));
    let (mut one, mut a) = left.endpoint(1);
    let (mut two, mut b) = right.endpoint(1);
    let len = 4 << 20;
    let from = left.adjacent(len);
    let source = one.lend(&left, 1, from.offer).1;
    let peer = a.connect((&left, &mut one), at(2, 1));
    for takes_source in [false, true] {
        let into = right.scattered(len);
        let (code, target) = two.lend(&right, 1, into.offer);
        assert_eq!(code, 0);
        let window = Window { region: RegionId(source), offset: 0, len: len as u32 };
        let offer = Request::Offer { peer, token: Token(1), match_info: 5, from: window };
        a.request((&left, &mut one), &offer);
        let (Event::Offered { handle, .. }, _) = b.hear() else { panic!() };
        let window = Window { region: RegionId(target), offset: 0, len: len as u32 };
        let pull = Request::Pull { handle, token: Token(2), into: window };
        b.request((&right, &mut two), &pull);
        if takes_source {
            left.deregister(&from.offer);
            assert_untouched(&from, || ());
        } else {
            right.deregister(&into.offer);
            assert_untouched(&into, || ());
        }
        // Both ends hear of it, and the endpoints go on.
        let (Event::Pulled { token: Token(2), .. }, _) = b.hear() else { panic!() };
        let (Event::Sent { token: Token(1), .. }, _) = a.hear() else { panic!() };
        a.send((&left, &mut one), peer, 8, b"after");
        assert_eq!(b.receive(), (8, b"after".to_vec()));
    }
}

#[test]
fn region_that_was_released_may_be_deregistered_at_once() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, mut a) = guest.endpoint(1);
    for _ in 0..50 {
        let memory = guest.adjacent(2 * PAGE);
        let (code, region) = one.lend(&guest, 1, memory.offer);
        assert_eq!(code, 0);
        one.ask(&guest, ClientMessage::Unregion { endpoint: 1, region }, None);
        guest.deregister(&memory.offer);
    }
    // The same of an endpoint.
    let rings = guest.rings();
    assert_eq!(one.try_open(&guest, 2, rings.offer), 0);
    one.ask(&guest, ClientMessage::Close { endpoint: 2 }, None);
    guest.deregister(&rings.offer);
    let peer = a.connect((&guest, &mut one), at(1, 1));
    assert_ne!(peer, causeway_wire::mx::PeerId::NONE);
    assert_eq!((host.fault("m1"), host.fault("a1")), (String::new(), String::new()));
}

#[test]
fn hostile_process_that_reads_no_answers_costs_itself_only() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut bystander = guest.endpoint(9);
    let mut deaf = guest.silent_process();
    let hello = ClientMessage::Hello { version: VERSION, direct: 0 };
    deaf.ask(&guest, hello, None);
    let find = ClientMessage::Find { tag: 5, name: Name::new("m1:0").unwrap() };
    let find = SessionMessage { message: find, offer: None }.emit();
    // 16 answers, and 32 requests wait; further requests wait in the send queue.
    let mut completed = 0;
    for _ in 0..47 {
        deaf.send(&guest, &find);
        completed += 1;
    }
    for _ in 0..15 {
        deaf.post(&guest, &find);
    }
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(200) {
        completed += usize::from(deaf.poll(&guest) == Some(true));
    }
    assert_eq!(completed, 47, "its requests wait");
    for info in 0..20 {
        assert_serves(&guest, &mut bystander, info);
    }
    // It reads at last: all requests are answered.
    let mut answers = 0;
    for index in 0..16 {
        deaf.post_receive(&guest, index);
    }
    soon(
        || {
            while deaf.next(&guest).is_some() {
                answers += 1;
            }
            answers == 1 + 47 + 15
        },
        "the requests are not answered",
    );
    assert_eq!((host.fault("m1"), host.fault("a1")), (String::new(), String::new()));
}

#[test]
fn hostile_process_that_is_woken_in_vain_is_disconnected() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let (mut one, mut a) = guest.endpoint(1);
    let mut deaf = guest.silent_process();
    deaf.ask(&guest, ClientMessage::Hello { version: VERSION, direct: 0 }, None);
    let rings = guest.rings();
    let message = ClientMessage::Open { tag: 4, endpoint: 2, key: 7 };
    deaf.ask(&guest, message, Some(rings.offer));
    host.wait("m1", "endpoints", 2);
    let (_sender, mut receiver) = open(&rings.view, Side::First).unwrap();
    let peer = a.connect((&guest, &mut one), at(1, 2));
    // It sleeps before each message, takes the message, and reads no wake message.
    for info in 0..1100 {
        receiver.request_wake();
        a.request(
            (&guest, &mut one),
            &Request::Eager { peer, token: Token(info), match_info: info, data: b"x" },
        );
        match a.hear().0 {
            Event::Sent { status: Status::Success, .. } => {}
            _ => break,
        }
        while let Ok(Some(event)) = receiver.poll() {
            receiver.advance(&event);
        }
        if info > 1000 && host.counter("m1", "processes") == 1 {
            break;
        }
    }
    host.expect_fault("m1", "does not read its messages");
    host.wait("m1", "processes", 1);
}

#[test]
fn hostile_sessions_beyond_the_limit_are_refused_with_a_reason() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut shared = guest.driver.create_cq(&mut guest.bar, 6).unwrap();
    // All but the last use one completion queue.
    let mut attach = |guest: &mut Guest| {
        let mut process = guest.process_on(shared);
        process.post_receive(guest, 0);
        process.ask(guest, ClientMessage::Hello { version: VERSION, direct: 0 }, None);
        assert!(matches!(process.hear(guest), DaemonMessage::Welcome { .. }));
        shared = process.cq;
        process
    };
    let mut processes: Vec<Process> = (0..224).map(|_| attach(&mut guest)).collect();
    let mut more = guest.process();
    let hello = ClientMessage::Hello { version: VERSION, direct: 0 };
    more.send(&guest, &SessionMessage { message: hello, offer: None }.emit());
    more.expect_end(&guest);
    host.expect_fault("m1", "224 is the maximum");
    processes.pop().unwrap().reset(&mut guest);
    host.wait("m1", "processes", 223);
    processes.push(attach(&mut guest));
    host.wait("m1", "processes", 224);
    drop(processes);
}

#[test]
fn ten_thousand_attaches_leave_nothing() {
    let host = Host::new();
    let mut guest = host.guest(1);
    let mut bystander = guest.endpoint(9);
    let mut process = guest.process();
    let rings = guest.rings();
    let hello = ClientMessage::Hello { version: VERSION, direct: 0 };
    let hello = SessionMessage { message: hello, offer: None }.emit();
    let own = guest.mac();
    for round in 0..10_000_u32 {
        process.send(&guest, &hello);
        if round % 16 == 0 {
            assert!(matches!(process.hear(&guest), DaemonMessage::Welcome { .. }), "{round}");
            if round % 64 == 0 {
                assert_eq!(process.try_open(&guest, 3, rings.offer), 0);
            }
        }
        process.reset(&mut guest);
        // A reset forgets the posted work requests and the positions of the queues.
        (process.pair.sent, process.pair.received) = (0, 0);
        let Guest { bar, driver, .. } = &mut guest;
        driver.memory().write(process.pair.record, &[0; 8]).unwrap();
        while process.poll_only(driver) {}
        driver.connect(bar, &process.pair, own, causeway_wire::session::SERVICE_QPN).unwrap();
        for index in 0..16 {
            process.post_receive(&guest, index);
        }
    }
    assert_serves(&guest, &mut bystander, 1);
    host.wait("m1", "processes", 1);
    assert_eq!(host.counter("m1", "endpoints"), 1);
    assert_eq!((host.fault("m1"), host.fault("a1")), (String::new(), String::new()));
}
