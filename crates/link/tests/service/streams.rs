//! Hosts joined by links over TCP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::hosts::{
    Host, LENGTHS, accept, crowd, dial, exchange, frame, is_closed, mac, name, receive, segment,
    send, spec, unicast, wait, wait_counter, wait_state,
};
use causeway_model::LinkState;
use causeway_model::commands::links;
use causeway_model::{LinkKind, LinkSpec, StreamSpec};

/// Returns a link that connects; all connect from 127.0.0.1.
fn connects(link: &str, remote: SocketAddr) -> LinkSpec {
    spec(link, "red", LinkKind::Tcp(StreamSpec { remote, listen: None }))
}

/// Returns a link that accepts connections from `remote`.
fn listens(link: &str, listen: SocketAddr, remote: &str) -> LinkSpec {
    let remote = format!("{remote}:1").parse().unwrap();
    spec(link, "red", LinkKind::Tcp(StreamSpec { remote, listen: Some(listen) }))
}

fn at(n: u8) -> SocketAddr {
    format!("127.0.0.{n}:22000").parse().unwrap()
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [b"et", &u32::try_from(frame.len()).unwrap().to_le_bytes()[..], frame].concat()
}

#[test]
fn frames_of_every_length_cross_by_tcp() {
    let (a, b) = (Host::new(), Host::new());
    let merge = causeway_wire::virtio::mask(causeway_wire::virtio_net::VIRTIO_NET_F_MRG_RXBUF);
    let mut one = a.port_with(1, "red", merge, 65535);
    let mut two = b.port_with(2, "red", merge, 65535);
    b.link(listens("to-a", at(31), "127.0.0.1")).unwrap();
    a.link(connects("to-b", at(31))).unwrap();
    wait_state(&a, "to-b", LinkState::Up);
    wait_state(&b, "to-a", LinkState::Up);
    exchange(&mut one, &mut two, &LENGTHS);
    crowd(&mut one, &mut two);
    let view = a.link_view("to-b");
    assert_eq!(view.endpoint, Some(at(31)));
    assert_eq!((view.mtu, view.ups_total), (65535, 1));
    assert!(view.rtt_us.is_some_and(|rtt| rtt > 0.0), "{view:?}");
    // The loopback interface carries the longest packets.
    assert_eq!(view.path_mtu, Some(65535), "{view:?}");
    // On a busy machine TCP sends a segment again whose acknowledgement is late.
    assert!(view.loss_percent.is_some_and(|loss| loss <= 1), "{view:?}");
    assert_eq!(view.counters["transmit_packets_total"], 406, "{view:?}");
    assert_eq!(view.counters["receive_packets_total"], 6, "{view:?}");
}

#[test]
fn frames_cross_by_tcp_over_ipv6() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    let at: SocketAddr = "[::1]:22001".parse().unwrap();
    let stream = StreamSpec { remote: "[::1]:1".parse().unwrap(), listen: Some(at) };
    b.link(spec("to-a", "red", LinkKind::Tcp(stream))).unwrap();
    a.link(connects("to-b", at)).unwrap();
    wait_state(&a, "to-b", LinkState::Up);
    wait_state(&b, "to-a", LinkState::Up);
    let there = unicast(1, 2, 1514);
    send(&mut one, &there);
    assert_eq!(receive(&mut two).1, there);
}

#[test]
fn segments_are_cut_and_finished_before_they_cross_a_stream() {
    use causeway_wire::virtio::mask;
    use causeway_wire::virtio_net::*;
    let all = mask(VIRTIO_NET_F_CSUM) | mask(VIRTIO_NET_F_HOST_TSO4);
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port_with(1, "red", all, 1500), b.port(2, "red"));
    b.link(listens("to-a", at(32), "127.0.0.1")).unwrap();
    a.link(connects("to-b", at(32))).unwrap();
    wait_state(&b, "to-a", LinkState::Up);
    wait_state(&a, "to-b", LinkState::Up);
    let (header, packet) = segment(4000);
    crate::hosts::send_with(&mut one, &header, &packet);
    let mut bytes = 0;
    while bytes < 4000 {
        let (_, got) = receive(&mut two);
        let sliced = etherparse::SlicedPacket::from_ethernet(&got).unwrap();
        let Some(etherparse::TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!() };
        let right = tcp.calc_checksum_ipv4([10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
        assert_eq!(tcp.checksum(), right);
        bytes += tcp.payload().len();
    }
    assert_eq!(bytes, 4000);
}

#[test]
fn hostile_reconnects_are_bounded_and_harm_only_their_own_link() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    b.link(listens("to-a", at(39), "127.0.0.1")).unwrap();
    b.link(listens("to-c", at(39), "127.0.0.38")).unwrap();
    a.link(connects("to-b", at(39))).unwrap();
    wait_state(&a, "to-b", LinkState::Up);
    wait_state(&b, "to-a", LinkState::Up);
    for _ in 0..100 {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&"127.0.0.38:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.connect(&at(39).into()).unwrap();
        // Above the rate limit, the connection is closed at once.
        drop(socket);
    }
    wait_counter(&b, "to-c", "socket_drop_too_often_total", 50);
    assert!(b.link_view("to-c").ups_total <= 50, "{:?}", b.link_view("to-c"));
    let there = unicast(1, 2, 100);
    send(&mut one, &there);
    assert_eq!(receive(&mut two).1, there);
    let view = b.link_view("to-a");
    assert_eq!((view.state, view.ups_total), (LinkState::Up, 1), "{view:?}");
}

#[test]
fn a_link_comes_back_when_its_peer_does() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    a.link(connects("to-b", at(33))).unwrap();
    let refused = || a.link_view("to-b").reason.contains("connection refused");
    wait(refused, || format!("{:?}", a.link_view("to-b")));
    for round in 1..=2 {
        b.link(listens("to-a", at(33), "127.0.0.1")).unwrap();
        wait_state(&a, "to-b", LinkState::Up);
        wait_state(&b, "to-a", LinkState::Up);
        let there = unicast(1, 2, 100);
        send(&mut one, &there);
        assert_eq!(receive(&mut two).1, there);
        assert_eq!(a.link_view("to-b").ups_total, round);
        b.ask(links::Delete(name("to-a")));
        wait_state(&a, "to-b", LinkState::Down);
    }
    send(&mut one, &unicast(1, 2, 60));
    let dropped = || {
        a.view("p1").counters["drop_unknown_destination_total"] > 0
            || a.view("p1").counters["drop_link_down_total"] > 0
    };
    wait(dropped, || format!("{:?}", a.view("p1").counters));
}

#[test]
fn links_share_a_listener_and_a_connection_that_answers_is_not_replaced() {
    let b = Host::new();
    let mut two = b.port(2, "red");
    b.link(listens("to-a", at(34), "127.0.0.1")).unwrap();
    b.link(listens("to-c", at(34), "127.0.0.77")).unwrap();
    let error = b.link(listens("to-d", at(34), "127.0.0.1")).unwrap_err().to_string();
    assert!(error.contains("to-a") && error.contains("127.0.0.1"), "{error}");
    let mut old = dial(at(34));
    old.write_all(&framed(&unicast(7, 2, 60))).unwrap();
    assert_eq!(receive(&mut two).1, unicast(7, 2, 60));
    assert_eq!(b.link_view("to-c").state, LinkState::Down);
    // Any user of the peer's host could open this connection.
    let mut other = dial(at(34));
    assert_eq!(other.read(&mut [0]).unwrap(), 0, "closed");
    old.write_all(&framed(&unicast(7, 2, 65))).unwrap();
    assert_eq!(receive(&mut two).1, unicast(7, 2, 65));
    assert_eq!(b.link_view("to-a").ups_total, 1);
    drop(old);
    let mut new = dial(at(34));
    new.write_all(&framed(&unicast(7, 2, 70))).unwrap();
    assert_eq!(receive(&mut two).1, unicast(7, 2, 70));
    assert_eq!(b.link_view("to-a").ups_total, 2);
    // The listener stays for the other link.
    b.ask(links::Delete(name("to-a")));
    assert_eq!(new.read(&mut [0]).unwrap(), 0, "closed");
    assert_eq!(b.link_view("to-c").counters["socket_drop_unknown_peer_total"], 0);
    b.ask(links::Delete(name("to-c")));
    assert!(TcpStream::connect(at(34)).is_err(), "nobody listens any more");
}

#[test]
fn hostile_connections_from_elsewhere_are_closed_and_counted() {
    let (a, b) = (Host::new(), Host::new());
    let mut two = b.port(2, "red");
    b.link(listens("to-a", at(35), "127.0.0.99")).unwrap();
    let mut stranger = dial(at(35));
    let _ = stranger.write_all(&framed(&unicast(7, 2, 60)));
    assert!(is_closed(&mut stranger));
    assert_eq!(b.link_counter("to-a", "socket_drop_unknown_peer_total"), 1);
    assert_eq!(b.link_view("to-a").state, LinkState::Down);
    a.link(connects("to-b", at(35))).unwrap();
    let is_reported = || a.link_view("to-b").reason.contains("closed the connection");
    wait(is_reported, || format!("{:?}", a.link_view("to-b")));
    assert!(crate::hosts::is_silent(&mut two));
}

#[test]
fn hostile_bytes_on_a_stream_cost_the_connection_and_nothing_else() {
    let b = Host::new();
    let mut two = b.port(2, "red");
    b.link(listens("to-a", at(36), "127.0.0.1")).unwrap();
    let good = unicast(7, 2, 60);
    let long = [&b"et"[..], &u32::MAX.to_le_bytes()].concat();
    let more = [&b"et"[..], &65_558_u32.to_le_bytes()].concat();
    let short = [&b"et"[..], &13_u32.to_le_bytes()].concat();
    for (number, bad) in [&b"GET / HTTP/1.1\r\n\r\n"[..], &long, &more, &short].iter().enumerate() {
        let mut peer = dial(at(36));
        // Frames before the fault count, in pieces of any size.
        for byte in framed(&good) {
            peer.write_all(&[byte]).unwrap();
        }
        assert_eq!(receive(&mut two).1, good);
        peer.write_all(bad).unwrap();
        wait_counter(&b, "to-a", "drop_out_of_step_total", number as u64 + 1);
        assert!(is_closed(&mut peer));
        assert_eq!(b.link_view("to-a").state, LinkState::Down);
    }
    // Half a frame, and then no more bytes.
    let mut peer = dial(at(36));
    peer.write_all(&framed(&good)[..30]).unwrap();
    drop(peer);
    let closed = || b.link_view("to-a").reason.contains("closed the connection");
    wait(closed, || format!("{:?}", b.link_view("to-a")));
    let mut peer = dial(at(36));
    peer.write_all(&framed(&good)).unwrap();
    assert_eq!(receive(&mut two).1, good);
    assert_eq!(b.link_counter("to-a", "receive_packets_total"), 5);
}

#[test]
fn hostile_readers_that_do_not_read_cost_frames_and_no_memory() {
    let a = Host::new();
    let mut one = a.port(1, "red");
    let mut four = a.port(4, "red");
    let listener = TcpListener::bind(at(37)).unwrap();
    a.link(connects("to-b", at(37))).unwrap();
    let mut peer = accept(&listener);
    wait_state(&a, "to-b", LinkState::Up);
    let all = frame([0xff; 6], mac(1), 1514);
    let full = || a.link_counter("to-b", "drop_no_room_total") > 100;
    for sent in 0.. {
        send(&mut one, &all);
        // Other links are served as before.
        assert_eq!(receive(&mut four).1, all);
        if sent % 100 == 0 && full() {
            break;
        }
        assert!(sent < 100_000, "what waits has no bound: {:?}", a.link_view("to-b"));
    }
    // The peer reads again: it receives whole frames, and the link continues.
    let sent = a.link_counter("to-b", "transmit_packets_total");
    let mut bytes = vec![0; 6 + 1514];
    for _ in 0..sent {
        peer.read_exact(&mut bytes).unwrap();
        assert!(bytes == framed(&all));
    }
    send(&mut one, &frame([0xff; 6], mac(1), 200));
    let mut bytes = vec![0; 6 + 200];
    peer.read_exact(&mut bytes).unwrap();
    assert!(bytes == framed(&frame([0xff; 6], mac(1), 200)));
}
