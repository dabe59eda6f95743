//! NICs with a network, and hostile processes, in a namespace with a pair of veth interfaces.

mod common;

use std::os::fd::OwnedFd;

use causeway_channel::EventHead;
use causeway_channel::mx_rings::Holds;
use causeway_memory::create;
use causeway_model::Command;
use causeway_model::{MxSpec, PortKind, PortSpec};
use causeway_wire::local::{ClientMessage, DaemonMessage, Name};
use causeway_wire::mx::{Event, RegionId, Request, Status, Token, Window};
use causeway_wire::mxoe::{Eager, EndpointPair, Header, Packet, emit};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};

use common::rings::{Rings, at};
use common::{Host, Process, interface_board, nic, soon, with_wire};

/// Returns two daemons that know each other, with an endpoint each.
fn met() -> (Host, Host, (Process, Rings), (Process, Rings)) {
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let (mut of_one, mut of_two) = (one.attach("a"), two.attach("b"));
    let (mut a, b) = (Rings::open(&mut of_one, 3), Rings::open(&mut of_two, 4));
    soon(|| a.connect(at("b", 4), 7).0 == Status::Success, "the endpoints do not connect");
    (one, two, (of_one, a), (of_two, b))
}

fn lies() {
    let (one, _two, (mut of_one, mut a), _far) = met();
    let mut honest = one.attach("a");
    let mut its = Rings::open(&mut honest, 9);
    // An unknown request.
    assert!(a.sender.send(EventHead { kind: 99, words: [1; 3] }, b"").unwrap());
    a.ring();
    assert!(of_one.is_parted());
    // An invalid field; a message that is too long; invalid indices.
    let mut liar = one.attach("a");
    let mut rings = Rings::open(&mut liar, 1);
    assert!(rings.sender.send(EventHead { kind: 2, words: [1, 1, 1] }, b"").unwrap());
    rings.ring();
    assert!(liar.is_parted());
    let mut liar = one.attach("a");
    let mut rings = Rings::open(&mut liar, 1);
    assert!(rings.sender.send(EventHead { kind: 4, words: [0; 3] }, &[0; 40_000]).unwrap());
    rings.ring();
    assert!(liar.is_parted());
    // Random content everywhere: with or without disconnection, others are not affected.
    for seed in 0..20_u64 {
        let mut liar = one.attach("a");
        let rings = Rings::open(&mut liar, 1);
        let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for place in (64..rings.view.len() - 8).step_by(8) {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
            // Some values resemble the first lap of a ring.
            let value = if word >> 60 == 0 { 0x8000 | (word >> 16 & 7) << 16 } else { word };
            rings.view.store_word(place, value).unwrap();
        }
        rings.ring();
        drop(liar);
    }
    one.wait("a", "processes", 1);
    assert_eq!(its.connect(at("b", 4), 7).0, Status::Success, "other processes continue");
    assert_eq!(its.connect(at("b", 4), 8).0, Status::BadKey);
    assert_eq!(its.connect(at("z", 4), 8).0, Status::EndpointUnreachable, "the NIC is unknown");
}

#[test]
fn hostile_rings_cost_only_their_process() {
    with_wire("hostile_rings_cost_only_their_process", lies);
}

fn lend(process: &mut Process, endpoint: u8, len: u64, file: OwnedFd) {
    process.0.send(ClientMessage::Region { tag: 5, endpoint, len }.emit(), vec![file]).unwrap();
}

fn bad_regions() {
    let (one, _two, (mut of_one, mut a), _far) = met();
    let sealed = || create("region", 8192).unwrap();
    // Not memory; memory that can shrink; memory that is too short; a foreign endpoint; an unknown
    // one.
    let unsealed = || {
        let file = rustix::fs::memfd_create("u", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        file
    };
    let counter = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    type Case = (u8, u64, fn() -> OwnedFd);
    let cases: [Case; 6] = [
        (1, 8192, counter),
        (1, 8192, unsealed),
        (1, 8193, sealed),
        (1, 0, sealed),
        (1, u64::MAX, sealed),
        (3, 8192, sealed),
    ];
    for (endpoint, len, file) in cases {
        let mut liar = one.attach("a");
        let _rings = Rings::open(&mut liar, 1);
        lend(&mut liar, endpoint, len, file());
        assert!(liar.is_parted(), "endpoint {endpoint}, {len} bytes");
    }
    let mut liar = one.attach("a");
    liar.ask(ClientMessage::Region { tag: 5, endpoint: 1, len: 8192 });
    assert!(liar.is_parted(), "the request has no descriptor");
    // The maximum number of regions.
    let mut greedy = one.attach("a");
    let _rings = Rings::open(&mut greedy, 1);
    let mut taken = 0;
    loop {
        lend(&mut greedy, 1, 8192, sealed());
        match greedy.hear().0 {
            DaemonMessage::Region { tag: 5, code: 0, .. } => taken += 1,
            DaemonMessage::Region { tag: 5, code: 15, .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(taken, 256);
    // Unregistered memory, deregistered memory, and bytes outside of a region are not sent.
    let (_, peer) = a.connect(at("b", 4), 7);
    lend(&mut of_one, 3, 8192, sealed());
    let DaemonMessage::Region { code: 0, region, .. } = of_one.hear().0 else { panic!() };
    let mut refused = |region: u8, offset: u64, len: u32| {
        let from = Window { region: RegionId(region), offset, len };
        a.request(&Request::Offer { peer, token: Token(9), match_info: 1, from });
        match a.hear() {
            Event::Sent { token: Token(9), status, .. } => status == Status::BadRdmaWindow,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(region + 1, 0, 1) && refused(region, 8000, 193));
    assert!(refused(region, u64::MAX, 1) && refused(region, 0, u32::MAX));
    of_one.ask(ClientMessage::Unregion { endpoint: 3, region });
    // Twice, and a region of another process.
    of_one.ask(ClientMessage::Unregion { endpoint: 3, region });
    of_one.ask(ClientMessage::Unregion { endpoint: 1, region: 0 });
    of_one.ask(ClientMessage::Find { tag: 1, name: Name::new("a:0").unwrap() });
    assert!(
        matches!(of_one.hear().0, DaemonMessage::Host { known: 1, .. }),
        "the process is served"
    );
    assert!(refused(region, 0, 8192), "stale");
}

#[test]
fn hostile_regions_are_refused() {
    with_wire("hostile_regions_are_refused", bad_regions);
}

fn sleeper() {
    let (one, two, (mut of_one, mut a), (mut of_two, mut b)) = met();
    let (_, peer) = a.connect(at("b", 4), 7);
    // The process asks for a wake-up, and gets one, regardless of the number of events.
    b.receiver.arm();
    for number in 0..50 {
        let (token, match_info, data) = (Token(number), number, &b"bytes"[..]);
        a.request(&Request::Eager { peer, token, match_info, data });
    }
    assert_eq!(of_two.hear().0, DaemonMessage::Wake { endpoint: 4 });
    assert!(matches!(b.hear(), Event::PeerSeen { .. }));
    for number in 0..50 {
        match b.hear() {
            Event::Message { match_info, .. } => assert_eq!(match_info, number),
            other => panic!("{other:?}"),
        }
    }
    for number in 0..50 {
        match a.hear() {
            Event::Sent { token, status, .. } => {
                assert_eq!((token, status), (Token(number), Status::Success));
            }
            other => panic!("{other:?}"),
        }
    }
    // NICs of other hosts answer name queries.
    let named = |process: &mut Process, ask: ClientMessage| {
        process.ask(ask);
        let DaemonMessage::Host { known, nic, name, .. } = process.hear().0 else {
            panic!("woken again")
        };
        (known == 1).then(|| (nic, name.as_str().to_owned()))
    };
    let (name_of, find) =
        (ClientMessage::Name { tag: 2, nic: nic("a") }, Name::new("b:0").unwrap());
    let a_is = Some((nic("a"), "a:0".to_owned()));
    soon(|| named(&mut of_two, name_of) == a_is, "the name is unknown");
    let find = ClientMessage::Find { tag: 2, name: find };
    soon(|| named(&mut of_one, find) == Some((nic("b"), "b:0".to_owned())), "the NIC is not found");
    let peers = one.peers();
    assert_eq!(peers.len(), 1);
    let view = &peers[0];
    assert_eq!((&*view.known, &*view.state, view.partners), ("announced", "answers", 1));
    assert_eq!(peers[0].counters["messages_sent_total"], 50);
    assert_eq!(two.peers()[0].counters["messages_received_total"], 50);
    // When the process ends, the peer learns of it with the next message.
    drop(of_two);
    two.wait("b", "endpoints", 0);
    let (token, match_info, data) = (Token(99), 0, &b""[..]);
    a.request(&Request::Eager { peer, token, match_info, data });
    let ended = a.hear();
    assert!(
        matches!(ended, Event::Sent { token: Token(99), status: Status::EndpointClosed, .. }),
        "{ended:?}"
    );
    assert!(matches!(a.hear(), Event::PeerGone { status: Status::EndpointClosed, .. }));
}

#[test]
fn sleeper_is_woken_once_and_process_death_is_noticed() {
    with_wire("sleeper_is_woken_once_and_process_death_is_noticed", sleeper);
}

fn held() {
    let (one, two, (_of_one, mut a), (_of_two, mut b)) = met();
    let mut of_third = two.attach("b");
    let mut c = Rings::open(&mut of_third, 5);
    let to_a = |from: &mut Rings, info: u64| {
        let (status, peer) = from.connect(at("a", 3), 7);
        assert_eq!(status, Status::Success);
        let (token, data) = (Token(info), &b""[..]);
        from.request(&Request::Eager { peer, token, match_info: info, data });
    };
    let (_, peer_b) = a.connect(at("b", 4), 7);
    let mut holds = Holds::new(a.view.clone());
    assert!(holds.set(peer_b, true));
    to_a(&mut b, 1);
    soon(|| one.counter("a", "library_full_total") > 0, "the peer is not held");
    // Messages of another peer are delivered.
    to_a(&mut c, 2);
    let message = |a: &mut Rings| loop {
        match a.hear() {
            Event::PeerSeen { .. } => {}
            Event::Message { peer, match_info, .. } => return (peer, match_info),
            other => panic!("{other:?}"),
        }
    };
    let (peer_c, info) = message(&mut a);
    assert!(peer_c != peer_b && info == 2);
    assert!(holds.set(peer_b, false));
    a.ring();
    assert_eq!(message(&mut a), (peer_b, 1));
}

#[test]
fn held_peer_does_not_hold_others() {
    with_wire("held_peer_does_not_hold_others", held);
}

fn frames() {
    let (one, _two, (_of_one, mut a), _far) = met();
    // Random frames of an unknown NIC, to this NIC and to others.
    let socket = causeway_host::net::socket::PacketSocket::open("far").unwrap();
    let [_, _, own @ ..] = nic("a").to_be_bytes();
    let mut sent = 0_u64;
    for kind in 0..=255_u8 {
        for source in [[2, 0, 0, 0, 0, 9], own] {
            let mut frame = vec![0; 10];
            frame.extend(own);
            frame.extend(source);
            frame.extend([0x86, 0xdf, 0, 0, kind]);
            frame.extend((0..60).map(|at: u8| at.wrapping_mul(kind)));
            if rustix::io::write(&socket, &frame).is_ok() {
                sent += 1;
            }
        }
    }
    assert_eq!(sent, 512);
    let dropped = |why: &str| one.counter("a", &format!("drop_{why}_total"));
    // Announcements and names are excluded: they go to discovery.
    let all = || dropped("unknown_board") + dropped("malformed") == 512 - 4;
    soon(all, "the frames do not arrive");
    assert!(dropped("unknown_board") >= 8 && dropped("malformed") >= 2 * (256 - 14));
    assert_eq!(a.connect(at("b", 4), 7).0, Status::Success, "other processes continue");
}

#[test]
fn hostile_frames_are_counted_by_reason() {
    with_wire("hostile_frames_are_counted_by_reason", frames);
}

fn datagrams() {
    common::ip("link set lo up");
    let (one, two) = (Host::with_udp("a", 9101, &[9102]), Host::with_udp("b", 9102, &[9101]));
    let (mut of_one, mut of_two) = (one.attach("a"), two.attach("b"));
    let (mut a, _b) = (Rings::open(&mut of_one, 3), Rings::open(&mut of_two, 4));
    soon(|| a.connect(at("b", 4), 7).0 == Status::Success, "the endpoints do not connect");
    // From an unknown address; from a configured one with another MAC or none.
    let [_, _, own @ ..] = nic("a").to_be_bytes();
    let frame = |source: [u8; 6]| [&own[..], &source, &[0x86, 0xdf, 0, 0, 3], &[0; 50]].concat();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&frame([2, 0, 0, 0, 0, 1]), "127.0.0.1:9101").unwrap();
    one.wait("a", "drop_unknown_address_total", 1);
    drop((of_two, two));
    let [_, _, b @ ..] = nic("b").to_be_bytes();
    let peer = std::net::UdpSocket::bind("127.0.0.1:9102").unwrap();
    peer.send_to(&frame(own), "127.0.0.1:9101").unwrap();
    one.wait("a", "drop_board_elsewhere_total", 1);
    peer.send_to(&[], "127.0.0.1:9101").unwrap();
    peer.send_to(&[7; 13], "127.0.0.1:9101").unwrap();
    peer.send_to(&[7; 60_000], "127.0.0.1:9101").unwrap();
    let odd = one.counter("a", "drop_odd_total");
    soon(|| one.counter("a", "drop_odd_total") >= 5, &format!("{odd} are odd"));
    peer.send_to(&frame(b), "127.0.0.1:9101").unwrap();
    let mut answer = [0; 2000];
    soon(
        || {
            let len = peer.recv(&mut answer).unwrap();
            answer[..6] == b && answer[16] == 4 && len > 16
        },
        "it does not say its name",
    );
}

#[test]
fn hostile_datagrams_need_a_configured_address_and_their_own_mac() {
    with_wire("hostile_datagrams_need_a_configured_address_and_their_own_mac", datagrams);
}

fn hollow() {
    common::ip("link set lo up");
    let huge = rustix::fs::memfd_create(
        "hollow",
        MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING,
    );
    let free = std::fs::read_to_string("/proc/meminfo").unwrap();
    let none = free.lines().any(|line| line.starts_with("HugePages_Free:") && line.ends_with(" 0"));
    let (Ok(huge), true) = (huge, none) else {
        return eprintln!("skipped: it takes a host that can have huge pages, and has none");
    };
    const LEN: u32 = 1 << 20;
    rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
    let (one, two) = (Host::with_udp("a", 9111, &[9112]), Host::with_udp("b", 9112, &[9111]));
    let (mut liar, mut of_one, mut of_two) = (one.attach("a"), one.attach("a"), two.attach("b"));
    let (mut bad, mut a) = (Rings::open(&mut liar, 3), Rings::open(&mut of_one, 5));
    let (mut b, mut its) = (Rings::open(&mut of_two, 4), Rings::open(&mut of_two, 6));
    soon(|| bad.connect(at("b", 4), 7).0 == Status::Success, "the endpoints do not connect");
    let (_, peer) = bad.connect(at("b", 4), 7);
    let (_, honest) = a.connect(at("b", 6), 7);
    let region_of = |process: &mut Process, endpoint: u8, file: OwnedFd| {
        lend(process, endpoint, LEN.into(), file);
        let DaemonMessage::Region { code: 0, region, .. } = process.hear().0 else { panic!() };
        Window { region: RegionId(region), offset: 0, len: LEN }
    };
    let from = region_of(&mut liar, 3, huge);
    let into = region_of(&mut of_two, 4, create("into", LEN.into()).unwrap());
    bad.request(&Request::Offer { peer, token: Token(9), match_info: 1, from });
    let handle = loop {
        match b.hear() {
            Event::Offered { handle, .. } => break handle,
            Event::PeerSeen { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    b.request(&Request::Pull { handle, token: Token(8), into });
    for number in 0..200 {
        a.send(honest, number, &[5; 1000]);
        assert_eq!(its.receive(), (number, vec![5; 1000]));
    }
    match bad.hear() {
        Event::Sent { token: Token(9), status: Status::BadRdmaWindow, .. } => {}
        other => panic!("{other:?}"),
    }
    assert!(one.counter("a", "drop_memory_gone_total") >= 1);
    assert_eq!(one.counter("a", "drop_interface_down_total"), 0, "frames of others are not lost");
}

#[test]
fn hostile_missing_memory_affects_no_other_endpoint() {
    with_wire("hostile_missing_memory_affects_no_other_endpoint", hollow);
}

fn interfaces() {
    let host = Host::new();
    let text = host.add_on("x", "red", nic("x"), Some("nowhere0")).unwrap_err().to_string();
    assert!(text.contains("there is no interface nowhere0"), "{text}");
    common::ip("link set near mtu 1500");
    let text = host.add_on("x", "red", nic("x"), Some("near")).unwrap_err().to_string();
    assert!(text.contains("MTU is 1500") && text.contains("mtu 9000"), "{text}");
    common::ip("link set near mtu 9000");
    // Down, and up again.
    common::ip("link set near down");
    host.add_on("x", "red", nic("x"), Some("near")).unwrap();
    assert_eq!(host.counter("x", "interface_ups_total"), 0);
    common::ip("link set near up");
    host.wait("x", "interface_ups_total", 1);
}

#[test]
fn interfaces_may_be_down_and_must_carry_the_frames() {
    with_wire("interfaces_may_be_down_and_must_carry_the_frames", interfaces);
}

/// Binds the socket of an endpoint (descriptor in the first argument) to another protocol, and
/// prints whether it receives a frame (second argument, hexadecimal), and the same as an IP packet.
const REBIND: &str = r"
import ctypes, socket, struct, sys
s = socket.socket(fileno=int(sys.argv[1]))
s.settimeout(0.1)
frame = bytes.fromhex(sys.argv[2])
ip = frame[:12] + bytes([8, 0]) + frame[14:]
tagged = frame[:12] + bytes([0x81, 0, 0, 5]) + frame[12:]
libc = ctypes.CDLL(None)
def hears(by, what):
    r = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    r.bind((by, 0))
    r.send(what)
    try:
        return len(s.recv(9999)) > 0
    except TimeoutError:
        return False
assert hears('far', frame), 'its own'
assert not hears('far', ip)
try:
    s.setsockopt(socket.SOL_SOCKET, 27, struct.pack('i', 0))
    raise SystemExit('the filter can be taken off')
except PermissionError:
    pass
s.setsockopt(263, 23, struct.pack('i', 0))
every = [0, socket.if_nametoindex('near'), socket.if_nametoindex('far')]
for protocol in [3, 0x800]:
    for index in every:
        to = struct.pack('=HHiHBB8s', 17, socket.htons(protocol), index, 0, 0, 0, b'')
        assert libc.bind(s.fileno(), to, len(to)) == 0, 'it may be bound anew'
        for by in ['near', 'far']:
            for what in [ip, tagged]:
                assert not hears(by, what), (protocol, index, by)
        # Sent by this host at its interface, or heard at the other.
        assert not hears('near', frame), (protocol, index)
";

fn rebound() {
    let host = Host::new();
    let spec = interface_board(host.dir.path(), "x", "near");
    let mx: MxSpec = spec.kind.get().unwrap();
    let kind = PortKind::of(MxSpec { bypass: true, ..mx });
    host.handle.call(Command::PortAdd(PortSpec { kind, ..spec })).unwrap();
    let mut process = host.attach("x");
    process.ask(ClientMessage::Open { tag: 5, endpoint: 3, key: 9 });
    let (tell, fds) = process.hear();
    assert!(matches!(tell, DaemonMessage::Opened { code: 0, bypass: 1, .. }), "{tell:?}");
    let [_, _, board @ ..] = nic("x").to_be_bytes();
    let header = Header { destination: board, source: [2; 6], peer_index: 7 };
    let eager = Eager {
        ends: EndpointPair { destination: 3, source: 1 },
        data: &[7; 40],
        sequence: 1,
        acknowledged: 2,
        match_info: 3,
        session: 4,
    };
    let (head, data) = emit(&header, &Packet::Tiny(eager));
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let socket = fds.first().unwrap();
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).unwrap();
    let mut python = std::process::Command::new("python3");
    let number = std::os::fd::AsRawFd::as_raw_fd(socket).to_string();
    python.args(["-c", REBIND, &number, &(hex(head.bytes()) + &hex(data))]);
    match python.status() {
        Err(_) => eprintln!("skipped: takes python3"),
        Ok(status) => assert!(status.success(), "the output of the process has the reason"),
    }
}

/// A process receives only packets of its endpoint, even if it binds its socket anew.
#[test]
fn hostile_process_that_rebinds_its_socket_receives_nothing_of_others() {
    with_wire("hostile_process_that_rebinds_its_socket_receives_nothing_of_others", rebound);
}
