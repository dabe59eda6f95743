//! Stream ports: frames in both directions, offloads, reconnects, TCP.

use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};

use causeway_model::{PortKind, PortState};
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::{
    GSO_TCPV4, HDR_F_NEEDS_CSUM, Header, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4,
};

use crate::rig::{ALL, Host, StreamPeer, frame, mac, receive, send, stream};

#[test]
fn stream_ports_exchange_frames_with_each_other_and_with_guests() {
    let host = Host::new();
    let (mut a, mut b) = (host.peer("a", stream(1)), host.peer("b", stream(2)));
    let mut guest = host.guest("g", 3, 0);
    // Both directions, in order, also in pieces.
    for number in 0..200_u8 {
        a.send(&frame(1, mac(2), &[number; 1486]));
    }
    for number in 0..200 {
        assert_eq!(b.receive(), frame(1, mac(2), &[number; 1486]));
    }
    let bytes = [&[0, 0, 0, 60][..], &frame(2, mac(1), &[7; 46])].concat();
    for byte in bytes {
        b.0.write_all(&[byte]).unwrap();
    }
    assert_eq!(a.receive(), frame(2, mac(1), &[7; 46]));
    // A guest, and broadcast to all others.
    a.send(&frame(1, mac(3), b"to the guest"));
    assert_eq!(receive(&mut guest), frame(1, mac(3), b"to the guest"));
    send(&mut guest, &[0; 12], &frame(3, mac(1), b"to a"));
    assert_eq!(a.receive(), frame(3, mac(1), b"to a"));
    send(&mut guest, &[0; 12], &frame(3, ALL, b"to all"));
    assert_eq!(a.receive(), frame(3, ALL, b"to all"));
    assert_eq!(b.receive(), frame(3, ALL, b"to all"));
    b.send(&frame(2, ALL, b"and again"));
    assert_eq!(receive(&mut guest), frame(2, ALL, b"and again"));
    assert_eq!(a.receive(), frame(2, ALL, b"and again"));
    b.expect_silence();
    assert_eq!(host.counter("a", "transmit_packets_total"), 201);
    assert_eq!(host.counter("b", "receive_packets_total"), 201);
}

#[test]
fn stream_port_receives_segments_cut_and_with_checksums() {
    let host = Host::new();
    let mut peer = host.peer("a", stream(1));
    let features = mask(VIRTIO_NET_F_CSUM) | mask(VIRTIO_NET_F_HOST_TSO4);
    let mut guest = host.guest("g", 3, features);
    let payload: Vec<u8> = (0..5000_u32).map(|at| at as u8).collect();
    let mut segment = Vec::new();
    etherparse::PacketBuilder::ethernet2(mac(3), mac(1))
        .ipv4([10, 0, 0, 3], [10, 0, 0, 1], 64)
        .tcp(1000, 2000, 77, 4096)
        .write(&mut segment, &payload)
        .unwrap();
    // The field has the checksum of the pseudo-header only.
    let pseudo = {
        let mut sum = causeway_wire::checksum::Sum::new();
        sum.add(&segment[26..34]);
        sum.add_u16(6);
        sum.add_u16((segment.len() - 34) as u16);
        sum.partial()
    };
    segment[50..52].copy_from_slice(&pseudo.to_be_bytes());
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: 54,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
        ..Header::default()
    };
    send(&mut guest, &header.emit(), &segment);
    let mut came = Vec::new();
    while came.len() < payload.len() {
        let frame = peer.receive();
        assert!(frame.len() <= 1514);
        let packet = etherparse::PacketHeaders::from_ethernet_slice(&frame).unwrap();
        let Some(etherparse::NetHeaders::Ipv4(ip, _)) = &packet.net else { panic!("IPv4") };
        let Some(etherparse::TransportHeader::Tcp(tcp)) = &packet.transport else { panic!("TCP") };
        let data = packet.payload.slice();
        assert_eq!(tcp.calc_checksum_ipv4(ip, data).unwrap(), tcp.checksum);
        assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
        assert_eq!(tcp.sequence_number as usize, 77 + came.len());
        came.extend_from_slice(data);
    }
    assert_eq!(came, payload);
}

#[test]
fn stream_port_serves_the_next_peer_after_the_last() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    let mut first = host.peer("a", stream(1));
    first.send(&frame(1, mac(2), b"first"));
    assert_eq!(b.receive(), frame(1, mac(2), b"first"));
    // One peer at a time.
    let mut second = StreamPeer::unix(UnixStream::connect(host.path("a")).unwrap());
    second.expect_end();
    assert_eq!(host.counter("a", "refused_connections_total"), 1);
    // The peer leaves inside a frame.
    first.0.write_all(&[0, 0, 0, 60, 1, 2, 3]).unwrap();
    drop(first);
    host.wait_state("a", PortState::Listening);
    b.send(&frame(2, mac(1), b"to nobody"));
    host.wait_counter_least("a", "receive_drop_down_total", 1);
    let mut third = StreamPeer::unix(UnixStream::connect(host.path("a")).unwrap());
    host.wait_state("a", PortState::Running);
    third.send(&frame(1, mac(2), b"third"));
    assert_eq!(b.receive(), frame(1, mac(2), b"third"));
    let view = host.view("a");
    assert_eq!((view.connects_total, view.faults_total), (2, 0));
    host.delete("a");
    third.expect_end();
    assert!(!host.path("a").exists());
    b.send(&frame(2, mac(1), b"to nobody"));
    assert_eq!(host.view("b").state, PortState::Running);
}

#[test]
fn stream_port_connects_again_while_its_peer_is_away() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    host.try_add("a", PortKind::of(stream(1)), true).unwrap();
    let away = host.view("a");
    assert_eq!(away.state, PortState::Connecting);
    assert!(away.connect_error.unwrap().contains("no process listens there"));
    for round in 0..2_u8 {
        let listener = UnixListener::bind(host.path("a")).unwrap();
        let mut peer = StreamPeer::unix(listener.accept().unwrap().0);
        host.wait_state("a", PortState::Running);
        assert_eq!(host.view("a").connect_error, None);
        peer.send(&frame(1, mac(2), &[round]));
        assert_eq!(b.receive(), frame(1, mac(2), &[round]));
        std::fs::remove_file(host.path("a")).unwrap();
        drop((peer, listener));
        host.wait_state("a", PortState::Connecting);
    }
    assert_eq!(host.view("a").connects_total, 2);
    host.delete("a");
}

#[test]
fn stream_port_over_tcp_listens_and_connects() {
    let host = Host::new();
    let mut b = host.peer("b", stream(2));
    // An address that is free now.
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = free();
    let tcp = |number, at| causeway_model::port::StreamSpec { tcp: Some(at), ..stream(number) };
    host.add("a", PortKind::of(tcp(1, at)));
    assert!(!host.path("a").exists(), "no Unix socket");
    let error = host.try_add("z", PortKind::of(tcp(9, at)), false).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    let mut peer = StreamPeer::tcp(at);
    host.wait_state("a", PortState::Running);
    peer.send(&frame(1, mac(2), b"by tcp"));
    assert_eq!(b.receive(), frame(1, mac(2), b"by tcp"));
    b.send(&frame(2, mac(1), b"back"));
    assert_eq!(peer.receive(), frame(2, mac(1), b"back"));
    let mut second = StreamPeer::tcp(at);
    second.expect_end();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = tcp(3, listener.local_addr().unwrap());
    host.try_add("c", PortKind::of(spec), true).unwrap();
    let mut peer = StreamPeer(Box::new(listener.accept().unwrap().0));
    host.wait_state("c", PortState::Running);
    peer.send(&frame(3, mac(2), b"as client"));
    assert_eq!(b.receive(), frame(3, mac(2), b"as client"));
    drop((peer, listener));
    host.wait_state("c", PortState::Connecting);
}

#[test]
fn stream_port_that_learns_stands_for_several_addresses() {
    let host = Host::new();
    let (mut stack, mut b) = (
        host.peer("s", causeway_model::port::StreamSpec { learn: true, ..stream(1) }),
        host.peer("b", stream(2)),
    );
    let mut guest = host.guest("g", 3, 0);
    // Frames to unknown addresses go there, and to no other port.
    send(&mut guest, &[0; 12], &frame(3, mac(77), b"unknown"));
    assert_eq!(stack.receive(), frame(3, mac(77), b"unknown"));
    b.expect_silence();
    stack.send(&frame(77, mac(3), b"learnt"));
    assert_eq!(receive(&mut guest), frame(77, mac(3), b"learnt"));
    // Not the address of another port.
    stack.send(&frame(2, mac(3), b"forged"));
    stack.send(&frame(78, mac(3), b"another"));
    assert_eq!(receive(&mut guest), frame(78, mac(3), b"another"));
    b.send(&frame(2, mac(78), b"to the other"));
    assert_eq!(stack.receive(), frame(2, mac(78), b"to the other"));
}

/// A process that is killed at the end.
struct Program(std::process::Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a DHCP request for an offer, as a broadcast frame of `from`.
fn discover(from: u8) -> Vec<u8> {
    let mut request = vec![1, 1, 6, 0, 0, 0, 0x12, 0x34];
    request.resize(28, 0);
    request.extend(mac(from));
    request.resize(236, 0);
    // The magic number, and the message type "discover".
    request.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 255]);
    request.resize(300, 0);
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2(mac(from), ALL)
        .ipv4([0; 4], [255; 4], 64)
        .udp(68, 67)
        .write(&mut frame, &request)
        .unwrap();
    frame
}

#[test]
fn stream_port_to_passt_gets_an_address_by_dhcp() {
    use std::process::{Command, Stdio};
    let host = Host::new();
    // passt changes to another user before it binds its socket.
    let folder = host.path("passt");
    std::fs::create_dir(&folder).unwrap();
    for dir in [folder.parent().unwrap(), &folder] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir, open).unwrap();
    }
    let path = folder.join("socket");
    let passt = Command::new("passt")
        .args(["--foreground", "--socket"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(passt) = passt.map(Program) else {
        eprintln!("skipped: passt is not installed (apt-get install passt)");
        return;
    };
    let mut guest = host.peer("g", stream(1));
    let spec = causeway_model::port::StreamSpec { learn: true, ..stream(9) };
    host.try_add_at("s", &path, PortKind::of(spec), true).unwrap();
    let mut passt = passt;
    let start = std::time::Instant::now();
    while host.view("s").state != PortState::Running {
        if passt.0.try_wait().unwrap().is_some() {
            eprintln!("skipped: passt ended at once, as on a host without a default route");
            return;
        }
        assert!(start.elapsed() < causeway_testing::wait::PATIENCE, "{:?}", host.view("s"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    guest.send(&discover(1));
    loop {
        let frame = guest.receive();
        let packet = etherparse::PacketHeaders::from_ethernet_slice(&frame).unwrap();
        if let Some(etherparse::TransportHeader::Udp(udp)) = packet.transport
            && (udp.source_port, udp.destination_port) == (67, 68)
        {
            let reply = packet.payload.slice();
            assert_eq!((reply[0], &reply[4..8]), (2, &[0, 0, 0x12, 0x34][..]));
            assert_ne!(reply[16..20], [0; 4], "an address is offered");
            break;
        }
    }
}
