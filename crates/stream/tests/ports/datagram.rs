//! Datagram ports: VFKT, learnt and configured peers, UDP.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use causeway_model::port::DgramSpec;
use causeway_model::{PortKind, PortState};
use causeway_testing::wait::{PATIENCE, wait};

use crate::rig::{Host, dgram, frame, mac, stream};

/// Returns a socket at `path` that is connected to the port.
fn vmm(host: &Host, path: &Path, port: &str) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.connect(host.path(port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive(socket: &UnixDatagram) -> Vec<u8> {
    let mut room = vec![0; 70_000];
    let len = socket.recv(&mut room).expect("a frame");
    room.truncate(len);
    room
}

#[test]
fn dgram_port_serves_the_vmm_that_announces_itself() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    host.add("a", PortKind::of(dgram(1)));
    assert_eq!(host.view("a").state, PortState::Listening);
    b.send(&frame(2, mac(1), b"to nobody"));
    host.wait_counter_least("a", "receive_drop_down_total", 1);
    let first = vmm(&host, &host.path("vmm-1"), "a");
    first.send(b"VFKT").unwrap();
    host.wait_state("a", PortState::Running);
    // Before the guest sent anything.
    b.send(&frame(2, mac(1), b"early"));
    assert_eq!(receive(&first), frame(2, mac(1), b"early"));
    for number in 0..300_u32 {
        first.send(&frame(1, mac(2), &number.to_be_bytes())).unwrap();
    }
    for number in 0..300_u32 {
        assert_eq!(b.receive(), frame(1, mac(2), &number.to_be_bytes()));
    }
    // A socket beside it is not heard while the first is there.
    let other = vmm(&host, &host.path("other"), "a");
    other.send(&frame(1, mac(2), b"not heard")).unwrap();
    host.wait_counter_least("a", "transmit_drop_foreign_sender_total", 1);
    // The VMM is started again, with another socket.
    let second = vmm(&host, &host.path("vmm-2"), "a");
    second.send(b"VFKT").unwrap();
    second.send(&frame(1, mac(2), b"again")).unwrap();
    assert_eq!(b.receive(), frame(1, mac(2), b"again"));
    b.send(&frame(2, mac(1), b"to the second"));
    assert_eq!(receive(&second), frame(2, mac(1), b"to the second"));
    assert_eq!(host.view("a").connects_total, 2);
    // A port whose path is in use is refused; a deleted port leaves no file.
    let error = host.try_add("vmm-2", PortKind::of(dgram(9)), false).unwrap_err().to_string();
    assert!(error.contains("another process has a socket there"), "{error}");
    host.delete("a");
    assert!(!host.path("a").exists());
}

#[test]
fn dgram_port_learns_its_peer_and_the_next_when_the_last_is_gone() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    host.add("a", PortKind::of(dgram(1)));
    let first = vmm(&host, &host.path("vmm-1"), "a");
    first.send(&frame(1, mac(2), b"one")).unwrap();
    assert_eq!(b.receive(), frame(1, mac(2), b"one"));
    b.send(&frame(2, mac(1), b"back"));
    assert_eq!(receive(&first), frame(2, mac(1), b"back"));
    drop(first);
    // Without an announcement, as QEMU's: the port finds that the first socket is gone.
    let second = vmm(&host, &host.path("vmm-2"), "a");
    wait(
        || {
            second.send(&frame(1, mac(2), b"two")).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            host.view("a").connects_total == 2
        },
        || format!("{:?}", host.view("a")),
    );
    assert_eq!(b.receive(), frame(1, mac(2), b"two"));
    b.send(&frame(2, mac(1), b"back again"));
    assert_eq!(receive(&second), frame(2, mac(1), b"back again"));
    // The same path with another socket.
    drop(second);
    std::fs::remove_file(host.path("vmm-2")).unwrap();
    b.send(&frame(2, mac(1), b"lost"));
    host.wait_counter_least("a", "receive_drop_down_total", 1);
    host.wait_state("a", PortState::Listening);
    let third = vmm(&host, &host.path("vmm-2"), "a");
    third.send(&frame(1, mac(2), b"three")).unwrap();
    loop {
        let came = b.receive();
        if came == frame(1, mac(2), b"three") {
            break;
        }
        assert_eq!(came, frame(1, mac(2), b"two"));
    }
    b.send(&frame(2, mac(1), b"third time"));
    assert_eq!(receive(&third), frame(2, mac(1), b"third time"));
}

#[test]
fn dgram_port_with_a_configured_peer_hears_no_other() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    let peer = Some(host.path("vmm"));
    host.add("a", PortKind::of(DgramSpec { peer, ..dgram(1) }));
    let qemu = vmm(&host, &host.path("vmm"), "a");
    // The daemon knows the peer before it sends.
    b.send(&frame(2, mac(1), b"first"));
    assert_eq!(receive(&qemu), frame(2, mac(1), b"first"));
    let other = vmm(&host, &host.path("other"), "a");
    other.send(b"VFKT").unwrap();
    other.send(&frame(1, mac(2), b"not heard")).unwrap();
    host.wait_counter_least("a", "transmit_drop_foreign_sender_total", 2);
    qemu.send(&frame(1, mac(2), b"heard")).unwrap();
    assert_eq!(b.receive(), frame(1, mac(2), b"heard"));
}

#[test]
fn dgram_port_reaches_a_configured_peer_that_starts_late_or_again() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    let peer = Some(host.path("vmm"));
    host.add("a", PortKind::of(DgramSpec { peer, ..dgram(1) }));
    // The path does not exist.
    b.send(&frame(2, mac(1), b"too early"));
    host.wait_counter_least("a", "receive_drop_down_total", 1);
    let first = vmm(&host, &host.path("vmm"), "a");
    b.send(&frame(2, mac(1), b"first"));
    assert_eq!(receive(&first), frame(2, mac(1), b"first"));
    first.send(&frame(1, mac(2), b"heard")).unwrap();
    assert_eq!(b.receive(), frame(1, mac(2), b"heard"));
    host.wait_state("a", PortState::Running);
    // The path leads to a socket that is closed.
    drop(first);
    b.send(&frame(2, mac(1), b"lost"));
    host.wait_counter_least("a", "receive_drop_down_total", 2);
    host.wait_state("a", PortState::Listening);
    std::fs::remove_file(host.path("vmm")).unwrap();
    let second = vmm(&host, &host.path("vmm"), "a");
    b.send(&frame(2, mac(1), b"second"));
    assert_eq!(receive(&second), frame(2, mac(1), b"second"));
    host.wait_state("a", PortState::Running);
}

#[test]
fn dgram_port_over_udp_hears_its_remote_address_only() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let remote = Some(peer.local_addr().unwrap());
    host.add("a", PortKind::of(DgramSpec { udp: Some(udp), remote, ..dgram(1) }));
    assert!(!host.path("a").exists(), "no Unix socket");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    // A connected socket refuses the datagram by ICMP, or the kernel drops it.
    let _ = stranger.send_to(&frame(1, mac(2), b"not heard"), udp);
    for number in 0..100_u8 {
        peer.send_to(&frame(1, mac(2), &[number; 1486]), udp).unwrap();
    }
    for number in 0..100_u8 {
        assert_eq!(b.receive(), frame(1, mac(2), &[number; 1486]));
    }
    let mut room = [0; 2000];
    for round in 0..5_u8 {
        // As many as the receive buffer of the peer has room for.
        for number in 0..50 {
            b.send(&frame(2, mac(1), &[round + number; 1486]));
        }
        for number in 0..50 {
            let len = peer.recv(&mut room).unwrap();
            assert!(room[..len] == frame(2, mac(1), &[round + number; 1486]));
        }
    }
    host.wait_state("a", PortState::Running);
    // A peer that is gone answers by ICMP: the port goes on.
    let at = peer.local_addr().unwrap();
    drop(peer);
    for _ in 0..3 {
        b.send(&frame(2, mac(1), b"to nobody"));
    }
    host.wait_state("a", PortState::Listening);
    let peer = UdpSocket::bind(at).unwrap();
    peer.send_to(&frame(1, mac(2), b"here again"), udp).unwrap();
    assert_eq!(b.receive(), frame(1, mac(2), b"here again"));
}
