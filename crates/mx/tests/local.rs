//! Attached processes, ordinary and hostile.

mod common;

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use causeway_attach::doorbell::SocketDoorbell;
use causeway_attach::local::{LocalAttachment, LocalError};
use causeway_channel::{EventHead, Layout, Receiver, Sender, Side, open};
use causeway_memory::{Mapping, View};
use causeway_model::Command;
use causeway_mx::limits;
use causeway_testing::slow::watch_often;
use causeway_wire::local::{ClientMessage, DaemonMessage, Name};
use causeway_wire::mx::Status;
use rustix::event::{PollFd, PollFlags, poll};

use common::{Host, PATIENCE, Process, nic, soon};

/// A channel: both its ends, and the doorbell of this side.
type Joined = (Sender, Receiver, SocketDoorbell);

fn channel(tell: DaemonMessage, fds: Vec<OwnedFd>) -> Joined {
    let DaemonMessage::Channel { side, .. } = tell else { panic!("{tell:?}") };
    let [file, bell]: [OwnedFd; 2] = fds.try_into().unwrap();
    let len = Layout::DEFAULT.bytes();
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
    let view = View::new(Arc::new(mapping), 0, len).unwrap();
    let side = if side == 0 { Side::First } else { Side::Second };
    let (sender, receiver) = open(&view, side).unwrap();
    (sender, receiver, SocketDoorbell::new(bell))
}

fn is_rung(bell: &SocketDoorbell) -> bool {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)).unwrap() == 1
}

#[test]
fn processes_of_one_user_are_handed_on_to_each_other_where_both_ask_for_that() {
    for (ones, twos) in [(1, 1), (0, 1), (1, 0), (0, 0)] {
        let host = Host::new();
        let (mut one, mut two) = (host.attach_as("a", ones), host.attach_as("b", twos));
        one.open(0, 1);
        two.open(3, 77);
        one.ask(ClientMessage::Connect { endpoint: 0, to: 3, key: 77, token: 9, nic: nic("b") });
        for process in [&mut one, &mut two] {
            let (_, fds) = process.hear();
            assert_eq!(fds.len(), if (ones, twos) == (1, 1) { 3 } else { 2 });
            if let Some(process) = fds.get(2) {
                use std::os::fd::AsRawFd as _;
                let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
                let info = std::fs::read_to_string(info).unwrap();
                let own = format!("Pid:\t{}", std::process::id());
                assert!(info.lines().any(|line| line == own), "{info}");
            }
        }
    }
}

#[test]
fn two_processes_are_joined_by_a_channel_of_their_own() {
    let host = Host::new();
    let (mut one, mut two) = (host.attach("a"), host.attach("b"));
    let (of_one, of_two) = (one.open(0, 1), two.open(3, 77));
    one.ask(ClientMessage::Connect { endpoint: 0, to: 3, key: 77, token: 9, nic: nic("b") });
    let (tell, fds) = two.hear();
    let DaemonMessage::Channel { way, .. } = tell else { panic!("{tell:?}") };
    let (session, token) = (of_one, 0);
    let asked =
        DaemonMessage::Channel { endpoint: 3, of: 0, side: 1, session, way, token, nic: nic("a") };
    assert_eq!(tell, asked);
    let (mut to_one, from_one, bell_of_two) = channel(tell, fds);
    let (tell, fds) = one.hear();
    let (session, token) = (of_two, 9);
    let joined =
        DaemonMessage::Channel { endpoint: 0, of: 3, side: 0, session, way, token, nic: nic("b") };
    assert_eq!(tell, joined);
    let (mut to_two, from_two, bell_of_one) = channel(tell, fds);
    assert!(to_two.send(EventHead { kind: 1, words: [1, 2, 3] }, b"there").unwrap());
    assert!(to_one.send(EventHead { kind: 2, words: [4, 5, 6] }, b"back").unwrap());
    let bytes = |receiver: &Receiver| {
        let event = receiver.poll().unwrap().unwrap();
        let mut bytes = vec![0; event.len];
        assert_eq!(receiver.copy(&event, 0, &mut bytes), event.len);
        (event.head.kind, event.head.words, bytes)
    };
    assert_eq!(bytes(&from_one), (1, [1, 2, 3], b"there".to_vec()));
    assert_eq!(bytes(&from_two), (2, [4, 5, 6], b"back".to_vec()));
    // Each process rings the other's end, and cannot block the other: each end is a file of its
    // own.
    for (ring, hear) in [(&bell_of_one, &bell_of_two), (&bell_of_two, &bell_of_one)] {
        let flags = rustix::fs::fcntl_getfl(hear).unwrap();
        rustix::fs::fcntl_setfl(hear, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        ring.ring();
        assert!(is_rung(hear) && !is_rung(ring));
        assert!(hear.clear() && !is_rung(hear));
        (0..10_000).for_each(|_| ring.ring());
        assert!(is_rung(hear) && hear.clear());
    }
    // A single channel for both directions of a pair.
    assert_eq!(two.refused(3, ("a", 0), 1), Status::Success as u8);
    assert_eq!(host.counter("a", "ways_total"), 1);
    // When a process ends, the other is informed and may be connected again.
    drop(one);
    let (tell, _) = two.hear();
    assert_eq!(tell, DaemonMessage::Gone { endpoint: 3, of: 0, way, nic: nic("a") });
    host.wait("a", "endpoints", 0);
    let mut one = host.attach("a");
    assert_ne!(one.open(0, 1), of_one, "a new session");
    one.ask(ClientMessage::Connect { endpoint: 0, to: 3, key: 77, token: 9, nic: nic("b") });
    assert!(matches!(two.hear().0, DaemonMessage::Channel { .. }));
}

#[test]
fn hostile_connects_to_strangers_and_with_wrong_keys_are_refused() {
    let host = Host::new();
    let (mut one, mut two, mut other) = (host.attach("a"), host.attach("b"), host.attach("c"));
    one.open(0, 1);
    two.open(1, 2);
    other.open(2, 3);
    assert_eq!(one.refused(0, ("b", 1), 3), Status::BadKey as u8);
    assert_eq!(one.refused(0, ("b", 2), 2), Status::EndpointClosed as u8);
    assert_eq!(
        one.refused(0, ("c", 2), 3),
        Status::EndpointUnknown as u8,
        "the NIC belongs to another group"
    );
    assert_eq!(one.refused(0, ("a", 0), 1), Status::BadEndpoint as u8, "itself");
    assert_eq!(
        one.refused(1, ("b", 1), 2),
        Status::BadEndpoint as u8,
        "the process has no such endpoint"
    );
    let mut third = host.attach("a");
    assert_eq!(
        third.refused(0, ("b", 1), 2),
        Status::BadEndpoint as u8,
        "the endpoint belongs to another process"
    );
    // Another process cannot close it, nor open its number.
    third.ask(ClientMessage::Close { endpoint: 0 });
    third.ask(ClientMessage::Open { tag: 1, endpoint: 0, key: 0 });
    assert!(matches!(third.hear().0, DaemonMessage::Opened { code: 20, .. }));
    third.ask(ClientMessage::Open { tag: 1, endpoint: 255, key: 0 });
    assert!(
        matches!(third.hear().0, DaemonMessage::Opened { code: 0, endpoint: 1, .. }),
        "any free endpoint"
    );
}

#[test]
fn process_resumes_its_endpoint_with_number_and_session() {
    let host = Host::new();
    let (mut one, mut two) = (host.attach("a"), host.attach("b"));
    let resume = ClientMessage::Resume { tag: 5, endpoint: 9, key: 77, session: 0x1234 };
    one.ask(resume);
    let opened = DaemonMessage::Opened { tag: 5, code: 0, session: 0x1234, endpoint: 9, bypass: 0 };
    assert_eq!(one.hear().0, opened);
    two.open(1, 2);
    two.ask(ClientMessage::Connect { endpoint: 1, to: 9, key: 77, token: 3, nic: nic("a") });
    let (tell, _) = two.hear();
    assert!(matches!(tell, DaemonMessage::Channel { of: 9, session: 0x1234, .. }), "{tell:?}");
    // An endpoint in use cannot be resumed, nor can any number.
    let mut third = host.attach("a");
    third.ask(resume);
    assert!(matches!(third.hear().0, DaemonMessage::Opened { code: 20, .. }));
    third.ask(ClientMessage::Resume { tag: 5, endpoint: 255, key: 77, session: 1 });
    assert!(matches!(third.hear().0, DaemonMessage::Opened { code: 20, .. }));
}

#[test]
fn nics_are_found_by_name_in_their_group_only() {
    let host = Host::new();
    let mut one = host.attach("a");
    for (name, known) in [("b:0", 1), ("b", 1), ("c:0", 0), ("c", 0)] {
        one.ask(ClientMessage::Find { tag: 3, name: Name::new(name).unwrap() });
        let (tell, _) = one.hear();
        let DaemonMessage::Host { tag: 3, known: found, nic: its, .. } = tell else {
            panic!("{tell:?}")
        };
        assert_eq!(found, known, "{name}");
        assert!(found == 0 || its == nic("b"));
    }
    one.ask(ClientMessage::Name { tag: 4, nic: nic("b") });
    let DaemonMessage::Host { tag: 4, known: 1, name, .. } = one.hear().0 else { panic!() };
    assert_eq!(name.as_str(), "b:0");
    one.ask(ClientMessage::Name { tag: 4, nic: nic("c") });
    assert!(matches!(one.hear().0, DaemonMessage::Host { known: 0, .. }));
    let text = host.add("d", "red", nic("b")).unwrap_err().to_string();
    assert!(text.contains("mac"), "{text}");
}

#[test]
fn hostile_processes_cost_only_themselves() {
    let host = Host::new();
    let mut honest = host.attach("a");
    honest.open(7, 0);
    // Garbage, and requests before the greeting.
    let mut garbage = UnixStream::connect(host.dir.join("a")).unwrap();
    garbage.write_all(&[0xff; 1000]).unwrap();
    assert!(Process(LocalAttachment::new(garbage.into())).is_parted());
    let rude = UnixStream::connect(host.dir.join("a")).unwrap();
    let mut rude = Process(LocalAttachment::new(rude.into()));
    rude.ask(ClientMessage::Open { tag: 0, endpoint: 1, key: 0 });
    assert!(rude.is_parted());
    // Unexpected descriptors.
    let mut odd = host.attach("a");
    let file = causeway_memory::create("odd", 4096).unwrap();
    odd.0.send(ClientMessage::Close { endpoint: 0 }.emit(), vec![file]).unwrap();
    assert!(odd.is_parted());
    // The removal of a port disconnects its processes.
    host.wait("a", "processes", 1);
    assert_eq!(host.counter("a", "endpoints"), 1);
    host.handle.call(Command::PortDel("a".parse().unwrap())).unwrap();
    assert!(honest.is_parted());
}

/// Returns the number of the next channel.
fn way_of(process: &mut Process) -> u32 {
    let (tell, _) = process.hear();
    let DaemonMessage::Channel { way, .. } = tell else { panic!("{tell:?}") };
    way
}

#[test]
fn hostile_and_late_disconnects_close_no_other_way() {
    let host = Host::new();
    let (mut one, mut two, mut third) = (host.attach("a"), host.attach("b"), host.attach("b"));
    one.open(0, 1);
    two.open(1, 2);
    third.open(2, 3);
    let connect = ClientMessage::Connect { endpoint: 0, to: 1, key: 2, token: 9, nic: nic("b") };
    let close = |way| ClientMessage::Disconnect { endpoint: 0, to: 1, way, nic: nic("b") };
    one.ask(connect);
    let first = way_of(&mut one);
    assert_eq!(way_of(&mut two), first);
    // With another number, or by a process at neither end.
    one.ask(close(first + 1));
    third.ask(ClientMessage::Disconnect { endpoint: 1, to: 0, way: first, nic: nic("a") });
    third.ask(ClientMessage::Disconnect { endpoint: 2, to: 0, way: first, nic: nic("a") });
    assert_eq!(two.refused(1, ("a", 0), 1), Status::Success as u8, "already present");
    // A side that cannot use its channel closes it, and the other is informed.
    one.ask(close(first));
    assert_eq!(two.hear().0, DaemonMessage::Gone { endpoint: 1, of: 0, way: first, nic: nic("a") });
    one.ask(connect);
    let second = way_of(&mut one);
    assert_ne!(first, second);
    assert_eq!(way_of(&mut two), second);
    // A late request for the first channel does not close the second.
    two.ask(ClientMessage::Disconnect { endpoint: 1, to: 0, way: first, nic: nic("a") });
    assert_eq!(two.refused(1, ("a", 0), 1), Status::Success as u8, "already present");
    assert_eq!(one.refused(0, ("b", 1), 2), Status::Success as u8, "on both sides");
}

#[test]
fn hostile_floods_of_connects_disconnect_no_busy_process() {
    let host = Host::new();
    let (mut busy, mut other) = (host.attach("a"), host.attach("b"));
    busy.open(0, 1);
    other.open(0, 0);
    let mut flood = host.attach("b");
    for endpoint in 1..=80 {
        flood.open(endpoint, 0);
    }
    let connect =
        |endpoint| ClientMessage::Connect { endpoint, to: 0, key: 1, token: 9, nic: nic("a") };
    // More channels than a process may have to an endpoint.
    let mut ways = Vec::new();
    for endpoint in 1..=80 {
        flood.ask(connect(endpoint));
        match flood.hear().0 {
            DaemonMessage::Channel { way, .. } => ways.push(way),
            DaemonMessage::Refused { status, .. } => assert_eq!(status, Status::NoResources as u8),
            tell => panic!("{tell:?}"),
        }
    }
    assert_eq!(ways.len(), 64);
    // Repeatedly, while the other process reads nothing.
    let (mut refused, mut made) = (0, 64);
    for (round, way) in ways.iter().cycle().take(3000).enumerate() {
        let (endpoint, way) = (round as u8 % 64 + 1, if round < 64 { *way } else { u32::MAX });
        flood.ask(ClientMessage::Disconnect { endpoint, to: 0, way, nic: nic("a") });
        flood.ask(connect(endpoint));
        match flood.hear().0 {
            DaemonMessage::Channel { way, .. } => {
                made += 1;
                flood.ask(ClientMessage::Disconnect { endpoint, to: 0, way, nic: nic("a") });
            }
            DaemonMessage::Refused { .. } => refused += 1,
            tell => panic!("{tell:?}"),
        }
    }
    assert!(refused > 0 && made < 2000, "{made} ways to one that does not read");
    drop(flood);
    host.wait("b", "processes", 1);
    // When it reads at last, it gets all messages, and is still attached.
    let (mut came, mut gone) = (0, 0);
    busy.ask(ClientMessage::Find { tag: 3, name: Name::new("b:0").unwrap() });
    let mut answered = false;
    while !answered || gone < came {
        match busy.hear().0 {
            DaemonMessage::Channel { .. } => came += 1,
            DaemonMessage::Gone { .. } => gone += 1,
            DaemonMessage::Host { .. } => answered = true,
            tell => panic!("{tell:?}"),
        }
    }
    assert_eq!((came, gone), (made, made));
    other.ask(ClientMessage::Connect { endpoint: 0, to: 0, key: 1, token: 9, nic: nic("a") });
    assert!(
        matches!(other.hear().0, DaemonMessage::Channel { .. }),
        "other processes can connect again"
    );
    soon(|| host.counter("a", "endpoints") == 1, "the process is disconnected");
}

/// Repeats a request as often as possible.
fn ask_on(process: &mut Process, ask: ClientMessage, most: usize) -> usize {
    let (mut asked, mut full) = (0, 0);
    while asked < most && full < 100 {
        match process.0.send(ask.emit(), Vec::new()) {
            Ok(()) => (asked, full) = (asked + 1, 0),
            Err(LocalError::Unread) => {
                full += 1;
                process.0.flush().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(ended) => panic!("{ended}"),
        }
    }
    asked
}

#[test]
fn hostile_processes_that_do_not_read_are_not_listened_to() {
    let host = Host::new();
    let (mut deaf, mut honest) = (host.attach("a"), host.attach("a"));
    let asked = ask_on(&mut deaf, ClientMessage::Name { tag: 0, nic: nic("b") }, 20_000);
    assert!(asked < 20_000, "requests are read without a limit");
    // Other processes are served.
    honest.open(7, 0);
    // When the process reads, it gets all answers.
    for _ in 0..asked {
        deaf.0.flush().unwrap();
        assert!(matches!(deaf.hear().0, DaemonMessage::Host { known: 1, .. }));
    }
    deaf.open(8, 0);
    // The end of a process that does not read is noticed.
    ask_on(&mut deaf, ClientMessage::Name { tag: 0, nic: nic("b") }, 20_000);
    drop(deaf);
    host.wait("a", "processes", 1);
}

#[test]
fn hostile_processes_whose_wake_ups_take_long_are_delayed_and_parted_from() {
    let host = Host::new();
    let (mut slow, mut honest) = (host.attach("a"), host.attach("a"));
    honest.open(7, 0);
    let watchers = watch_often(slow.0.as_fd());
    let (since, mut asked) = (Instant::now(), 0);
    'parted: while slow
        .0
        .send(ClientMessage::Name { tag: 0, nic: nic("b") }.emit(), Vec::new())
        .is_ok()
    {
        asked += 1;
        loop {
            match slow.0.receive() {
                Ok(Some(_)) => break,
                Ok(None) => std::thread::yield_now(),
                Err(_) => break 'parted,
            }
            assert!(since.elapsed() < PATIENCE, "{asked} answers went on");
        }
    }
    drop(watchers);
    honest.open(8, 0);
    host.wait("a", "processes", 1);
    // The next process of the user could do the same.
    let _next = host.connect("a");
    host.wait("a", "refused_total", 1);
}

#[test]
fn hostile_floods_of_questions_that_are_work_are_slowed() {
    let host = Host::new();
    let (mut flood, mut honest) = (host.attach("a"), host.attach("a"));
    honest.open(7, 0);
    let since = Instant::now();
    let mut opened = 0_u64;
    while since.elapsed().as_millis() < 1500 {
        flood.open(1, 0);
        flood.ask(ClientMessage::Close { endpoint: 1 });
        opened += 1;
    }
    let may = u64::try_from(since.elapsed().as_nanos()).unwrap() + limits::WORK_AHEAD_NS;
    assert!(opened <= may / limits::WORK_NS + 1, "{opened} were opened");
    assert!(opened > limits::WORK_AHEAD_NS / limits::WORK_NS / 2, "{opened}: at once, at first");
}

#[test]
fn hostile_paused_processes_that_end_are_disconnected_at_once() {
    let host = Host::new();
    // A request without an answer, more often than is answered soon.
    let unanswered = (0..20).any(|_| {
        let before = host.counter("a", "asked_total");
        let mut flood = host.attach("a");
        let (mut asked, since) = (1, Instant::now());
        // More than the burst limit, and then as much as the socket holds.
        while flood.0.backlog() == 0 || asked < 2 * limits::WORK_AHEAD_NS / limits::WORK_NS {
            assert!(since.elapsed() < common::PATIENCE);
            if flood.0.backlog() > 0 {
                flood.0.flush().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            flood.ask(ClientMessage::Unregion { endpoint: 1, region: 1 });
            asked += 1;
        }
        asked -= flood.0.backlog() as u64;
        drop(flood);
        host.wait("a", "processes", 0);
        host.counter("a", "asked_total") - before < asked
    });
    assert!(unanswered, "all requests were answered before the pause");
}

#[test]
fn hostile_users_leave_endpoints_to_others() {
    let host = Host::new();
    let mut processes: Vec<_> = (0..4).map(|_| host.attach("a")).collect();
    let mut opened = 0;
    for at in 0..255 {
        let process = &mut processes[at % 4];
        process.ask(ClientMessage::Open { tag: 1, endpoint: 255, key: 0 });
        match process.hear().0 {
            DaemonMessage::Opened { code: 0, .. } => opened += 1,
            DaemonMessage::Opened { code: 15, .. } => {}
            tell => panic!("{tell:?}"),
        }
    }
    assert_eq!(opened, limits::ENDPOINTS_PER_USER_MAX);
}

#[test]
fn hostile_users_leave_ways_to_others() {
    let host = Host::new();
    for board in ["d", "e", "f"] {
        host.add(board, "red", nic(board)).unwrap();
    }
    let mut target = host.attach("a");
    target.open(0, 1);
    let mut made = 0;
    // Each process has the maximum of channels to an endpoint.
    let boards = ["a", "b", "d", "e", "f"];
    for at in 0..15 {
        let mut process = host.attach(boards[at % 5]);
        for endpoint in 1..=limits::CHANNELS_OF_CLIENT_MAX {
            let endpoint = (at / 5 * limits::CHANNELS_OF_CLIENT_MAX + endpoint) as u8;
            process.open(endpoint, 0);
            process.ask(ClientMessage::Connect {
                endpoint,
                to: 0,
                key: 1,
                token: 9,
                nic: nic("a"),
            });
            match process.hear().0 {
                DaemonMessage::Channel { .. } => {
                    made += 1;
                    assert!(matches!(target.hear().0, DaemonMessage::Channel { .. }));
                }
                DaemonMessage::Refused { status, .. } => {
                    assert_eq!(status, Status::NoResources as u8)
                }
                tell => panic!("{tell:?}"),
            }
        }
        std::mem::forget(process);
    }
    assert_eq!(made, limits::CHANNELS_OF_USER_MAX);
}
