//! Peers that break rules, flood, or do not read: they lose their own connection or frames.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use causeway_model::{PortKind, PortState};
use causeway_testing::wait::wait;

use crate::rig::{Host, StreamPeer, dgram, frame, mac, stream};

/// Two peers that exchange frames must not notice the others.
fn expect_traffic(a: &mut StreamPeer, b: &mut StreamPeer) {
    let start = Instant::now();
    for number in 0..50_u8 {
        a.send(&frame(1, mac(2), &[number]));
        assert_eq!(b.receive(), frame(1, mac(2), &[number]));
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn hostile_stream_lengths_close_their_connection_alone() {
    let host = Host::new();
    let (mut a, mut b) = (host.peer("a", stream(1)), host.peer("b", stream(2)));
    let good = [&[0, 0, 0, 60][..], &frame(9, mac(2), &[1; 46])].concat();
    let evil: [&[u8]; 5] = [
        &[0xff; 4],
        &[0; 4],
        // One byte more than MTU and tags.
        &[0, 0, 5, 0xf3],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3],
    ];
    host.add("e", PortKind::of(stream(9)));
    for (number, bytes) in (1..).zip(evil) {
        let mut peer = StreamPeer::unix(UnixStream::connect(host.path("e")).unwrap());
        peer.0.write_all(&[&good[..], bytes].concat()).unwrap();
        peer.expect_end();
        // The frame before the error went on.
        assert_eq!(b.receive().len(), 60);
        wait(|| host.view("e").faults_total == number, || format!("{:?}", host.view("e")));
        let reason = host.view("e").fault.unwrap();
        assert!(reason.contains("outside 1 to 1522"), "{reason}");
        host.wait_state("e", PortState::Listening);
        expect_traffic(&mut a, &mut b);
    }
}

#[test]
fn hostile_stream_peers_that_do_not_read_lose_frames_alone() {
    let host = Host::new();
    let (mut a, mut b) = (host.peer("a", stream(1)), host.peer("b", stream(2)));
    let mut slow = host.peer("s", stream(9));
    let payload = [5; 1486];
    let sent = 4000_u64;
    for _ in 0..sent {
        a.send(&frame(1, mac(9), &payload));
    }
    host.wait_counter_least("s", "receive_drop_no_room_total", 1);
    expect_traffic(&mut a, &mut b);
    // The peer reads again: all frames that were queued arrive whole.
    let came = |view: &causeway_model::PortView| {
        view.counters["receive_packets_total"] + view.counters["receive_drop_no_room_total"]
    };
    wait(|| came(&host.view("s")) == sent, || format!("{:?}", host.view("s")));
    for _ in 0..host.counter("s", "receive_packets_total") {
        assert_eq!(slow.receive(), frame(1, mac(9), &payload));
    }
    a.send(&frame(1, mac(9), b"and goes on"));
    assert_eq!(slow.receive(), frame(1, mac(9), b"and goes on"));
}

#[test]
fn hostile_stream_floods_of_invalid_frames_are_dropped_and_counted() {
    let host = Host::new();
    let (mut a, mut b) = (host.peer("a", stream(1)), host.peer("b", stream(2)));
    let mut evil = host.peer("e", stream(9));
    let flood = std::thread::spawn(move || {
        for number in 0..20_000_u32 {
            match number % 3 {
                0 => evil.send(&frame(1, mac(2), b"spoofed")),
                1 => evil.send(&[number as u8]),
                _ => evil.send(&frame(9, mac(2), b"own")),
            }
        }
        evil
    });
    let mut own = 0;
    for number in 0..50_u8 {
        a.send(&frame(1, mac(2), &[number]));
        while b.receive() != frame(1, mac(2), &[number]) {
            own += 1;
        }
    }
    let evil = flood.join().unwrap();
    let count = |counter| host.counter("e", counter);
    wait(|| count("transmit_packets_total") == 20_000, || format!("{:?}", host.view("e")));
    assert_eq!(count("transmit_drop_spoofed_source_total"), 6667);
    assert_eq!(count("transmit_drop_runt_total"), 6667);
    while own < 6666 {
        assert_eq!(b.receive(), frame(9, mac(2), b"own"));
        own += 1;
    }
    let notice = host.view("e").notice.unwrap();
    assert!(notice.contains("02:00:00:00:00:01") && notice.contains("learn = true"), "{notice}");
    drop(evil);
}

#[test]
fn hostile_stream_peers_that_connect_and_leave_do_not_disturb_others() {
    let host = Host::new();
    let (mut a, mut b) = (host.peer("a", stream(1)), host.peer("b", stream(2)));
    host.add("e", PortKind::of(stream(9)));
    for round in 0..100_u8 {
        if let Ok(mut peer) = UnixStream::connect(host.path("e")) {
            let _ = peer.write_all(&[0, 0, 0, 60, round]);
        }
    }
    expect_traffic(&mut a, &mut b);
    // A peer that sends a descriptor is closed; before Linux 6.16, with a fault.
    host.wait_state("e", PortState::Listening);
    let mut peer = UnixStream::connect(host.path("e")).unwrap();
    host.wait_state("e", PortState::Running);
    let file = std::fs::File::open("/dev/null").unwrap();
    let fds = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
    let bytes = [std::io::IoSlice::new(&[0, 0, 0, 60])];
    let flags = rustix::net::SendFlags::empty();
    if rustix::net::sendmsg(&peer, &bytes, &mut control, flags).is_ok() {
        assert_eq!(peer.read(&mut [0; 9]).unwrap_or(0), 0);
        assert!(host.view("e").fault.unwrap().contains("file descriptors"));
    }
    expect_traffic(&mut a, &mut b);
}

#[test]
fn hostile_datagrams_are_dropped_and_a_peer_that_does_not_read_loses_frames_alone() {
    let host = Host::new();
    let (mut a, mut b) = (host.peer("a", stream(1)), host.peer("b", stream(2)));
    host.add("d", PortKind::of(dgram(9)));
    // Not connected to the port, as QEMU's socket: the kernel bounds its queue by frames.
    let peer = UnixDatagram::bind(host.path("peer")).unwrap();
    let send = |bytes: &[u8]| peer.send_to(bytes, host.path("d")).unwrap();
    send(&frame(9, mac(2), b"hello"));
    assert_eq!(b.receive(), frame(9, mac(2), b"hello"));
    send(&[]);
    send(&[7; 13]);
    send(&frame(9, mac(2), &[1; 1509]));
    send(&frame(1, mac(2), b"spoofed"));
    send(&frame(9, mac(2), b"still here"));
    assert_eq!(b.receive(), frame(9, mac(2), b"still here"));
    let count = |counter: &str| host.counter("d", &format!("transmit_drop_{counter}_total"));
    assert_eq!((count("runt"), count("too_big"), count("spoofed_source")), (2, 1, 1));
    // A socket without a name cannot be answered.
    UnixDatagram::unbound().unwrap().send_to(b"VFKT", host.path("d")).unwrap();
    host.wait_counter_least("d", "transmit_drop_foreign_sender_total", 1);
    let sent = 3000_u64;
    for _ in 0..sent {
        a.send(&frame(1, mac(9), &[5; 1486]));
    }
    host.wait_counter_least("d", "receive_drop_no_room_total", 1);
    expect_traffic(&mut a, &mut b);
    // The peer reads again: frames that were queued follow without another from the group.
    let mut room = [0; 2000];
    wait(
        || {
            let counters = host.view("d").counters;
            counters["receive_packets_total"] + counters["receive_drop_no_room_total"] == sent
        },
        || format!("{:?}", host.view("d").counters),
    );
    for _ in 0..host.counter("d", "receive_packets_total") {
        let len = peer.recv(&mut room).unwrap();
        assert_eq!(&room[..len], &frame(1, mac(9), &[5; 1486]));
    }
}
