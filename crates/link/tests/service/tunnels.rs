//! Hosts joined by encrypted and plain tunnels.

use std::net::SocketAddr;

use crate::hosts::{
    Host, LENGTHS, bare, exchange, frame, is_silent, mac, name, receive, segment, send, send_with,
    spec, unicast, wait, wait_counter, wait_state, wait_up,
};
use causeway_attach::native::NetPort;
use causeway_model::LinkState;
use causeway_model::commands::links;
use causeway_model::keys::PrivateKey;
use causeway_model::{LinkKind, TunnelSpec, UdpSpec};

fn key(n: u8) -> PrivateKey {
    PrivateKey::new([n; 32])
}

/// Returns a link from host `from` to host `to`; hosts have their own loopback addresses and keys.
fn link(host: &Host, from: u8, to: u8, port: u16, group: &str, vni: u32) -> String {
    let file = host.path("key");
    std::fs::write(&file, key(from).to_text().as_str()).unwrap();
    let at = |n: u8| -> SocketAddr { format!("127.0.0.{n}:{port}").parse().unwrap() };
    let link = format!("to-{to}-{group}");
    let kind = LinkKind::Causeway(TunnelSpec {
        remote: Some(at(to)),
        local: at(from),
        key: key(to).public().to_string().parse().unwrap(),
        private_key: file,
        vni,
        idle: None,
        has_directory: false,
        class: Default::default(),
    });
    host.link(spec(&link, group, kind)).unwrap();
    link
}

fn wait_heard(host: &Host, link: &str, count: u64) {
    let heard = || host.link_counter(link, "addresses_heard") == count;
    wait(heard, || format!("{:?}", host.link_view(link)));
}

#[test]
fn frames_of_every_length_cross_encrypted() {
    let (a, b) = (Host::new(), Host::new());
    let merge = causeway_wire::virtio::mask(causeway_wire::virtio_net::VIRTIO_NET_F_MRG_RXBUF);
    let mut one = a.port_with(1, "red", merge, 65535);
    let mut two = b.port_with(2, "red", merge, 65535);
    let to_b = link(&a, 11, 12, 21001, "red", 7);
    let to_a = link(&b, 12, 11, 21001, "red", 7);
    wait_up(&a, &to_b);
    wait_up(&b, &to_a);
    wait_heard(&a, &to_b, 1);
    wait_heard(&b, &to_a, 1);
    exchange(&mut one, &mut two, &LENGTHS);
    let all = frame([0xff; 6], mac(1), 60);
    send(&mut one, &all);
    assert_eq!(receive(&mut two).1, all);
    let counted = || a.link_counter(&to_b, "transmit_packets_total") == 7;
    wait(counted, || format!("{:?}", a.link_view(&to_b)));
    let view = a.link_view(&to_b);
    assert_eq!(view.counters["receive_packets_total"], 6, "{view:?}");
    let shown = format!("{view:?} {}", serde_json::to_string(&view).unwrap());
    assert!(!shown.contains(key(11).to_text().as_str()), "a private key is shown");
}

/// Each guest has one frame in flight at a time, so that a datagram with two frames has frames of
/// two guests.
#[test]
fn frames_of_several_guests_share_a_datagram() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut three, mut two) = (a.port(1, "red"), a.port(3, "red"), b.port(2, "red"));
    let (x, y) = ("127.0.0.45:21010", "127.0.0.46:21010");
    a.link(bare("to-b", "red", LinkKind::CausewayPlain, (x, y, 0))).unwrap();
    b.link(bare("to-a", "red", LinkKind::CausewayPlain, (y, x, 0))).unwrap();
    wait_up(&a, "to-b");
    wait_up(&b, "to-a");
    let mut sent = 0;
    let mut together = || {
        for _ in 0..100 {
            send(&mut one, &unicast(1, 2, 60));
            send(&mut three, &unicast(3, 2, 60));
            receive(&mut two);
            receive(&mut two);
        }
        sent += 200;
        wait_counter(&a, "to-b", "transmit_packets_total", sent);
        a.link_counter("to-b", "transmit_datagrams_total") < sent
    };
    // Both frames have to be queued when the dispatcher polls, which the test cannot force.
    wait(&mut together, || "no frames of two guests ever left in one datagram".to_owned());
}

#[test]
fn groups_share_a_tunnel_and_nothing_else() {
    let (a, b) = (Host::new(), Host::new());
    let (mut red1, mut red2) = (a.port(1, "red"), b.port(2, "red"));
    let (mut blue1, mut blue2) = (a.port(3, "blue"), b.port(4, "blue"));
    let red = link(&a, 13, 14, 21002, "red", 1);
    let blue = link(&a, 13, 14, 21002, "blue", 2);
    link(&b, 14, 13, 21002, "red", 1);
    link(&b, 14, 13, 21002, "blue", 2);
    wait_up(&a, &red);
    wait_up(&a, &blue);
    let all = frame([0xff; 6], mac(1), 60);
    send(&mut red1, &all);
    assert_eq!(receive(&mut red2).1, all);
    let other = unicast(3, 4, 80);
    send(&mut blue1, &other);
    assert_eq!(receive(&mut blue2).1, other);
    assert!(is_silent(&mut red2) && is_silent(&mut blue1));
    assert_eq!(a.link_view(&red).counters["handshakes_total"], 1, "one tunnel");
    a.ask(links::Delete(name(&red)));
    let again = unicast(3, 4, 90);
    send(&mut blue1, &again);
    assert_eq!(receive(&mut blue2).1, again, "the other group goes on");
}

#[test]
fn a_segment_crosses_as_one() {
    use causeway_wire::virtio::mask;
    use causeway_wire::virtio_net::*;
    let all = mask(VIRTIO_NET_F_CSUM)
        | mask(VIRTIO_NET_F_HOST_TSO4)
        | mask(VIRTIO_NET_F_GUEST_CSUM)
        | mask(VIRTIO_NET_F_GUEST_TSO4)
        | mask(VIRTIO_NET_F_MRG_RXBUF);
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port_with(1, "red", all, 1500), b.port_with(2, "red", all, 1500));
    let to_b = link(&a, 15, 16, 21003, "red", 7);
    link(&b, 16, 15, 21003, "red", 7);
    wait_up(&a, &to_b);
    let (header, packet) = segment(40_000);
    send_with(&mut one, &header, &packet);
    let (got, bytes) = receive(&mut two);
    assert_eq!(bytes, packet, "uncut");
    assert_eq!((got.gso_type, got.gso_size), (GSO_TCPV4, 1460));
}

#[test]
fn plain_tunnels_are_asked_for_by_name() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    let kind: fn(UdpSpec) -> LinkKind = LinkKind::CausewayPlain;
    let (x, y) = ("127.0.0.17:21004", "127.0.0.18:21004");
    a.link(bare("to-b", "red", kind, (x, y, 5))).unwrap();
    b.link(bare("to-a", "red", kind, (y, x, 5))).unwrap();
    wait_up(&a, "to-b");
    wait_up(&b, "to-a");
    let there = unicast(1, 2, 1514);
    send(&mut one, &there);
    assert_eq!(receive(&mut two).1, there);
}

#[test]
fn a_guest_that_moves_is_found_at_once() {
    let (a, b) = (Host::new(), Host::new());
    let mut one = a.port(1, "red");
    let mut roamer = a.port(9, "red");
    let to_b = link(&a, 19, 20, 21005, "red", 7);
    let to_a = link(&b, 20, 19, 21005, "red", 7);
    wait_up(&a, &to_b);
    wait_heard(&b, &to_a, 2);
    let first = unicast(1, 9, 60);
    send(&mut one, &first);
    assert_eq!(receive(&mut roamer).1, first);
    // The guest stops here and starts there, without sending a frame.
    drop(roamer);
    let mut roamer = b.port(9, "red");
    wait_heard(&a, &to_b, 1);
    let second = unicast(1, 9, 70);
    send(&mut one, &second);
    assert_eq!(receive(&mut roamer).1, second);
    // And back, while the other guest still runs: the newest claim counts.
    let mut back = a.attach(9, 0);
    let third = unicast(1, 9, 80);
    send(&mut one, &third);
    assert_eq!(receive(&mut back).1, third);
}

#[test]
fn hostile_peer_takes_no_address_of_a_guest_that_runs_here() {
    let (a, b) = (Host::new(), Host::new());
    let mut one = a.port(1, "red");
    let mut here = a.port(9, "red");
    let to_b = link(&a, 27, 28, 21008, "red", 7);
    let to_a = link(&b, 28, 27, 21008, "red", 7);
    wait_up(&a, &to_b);
    wait_heard(&b, &to_a, 2);
    assert!(a.view("p9").warnings.is_empty());
    let mut thief = b.port(9, "red");
    let claims = || a.view("p9").counters["contested_addresses_total"];
    wait(|| claims() > 0, || format!("{:?}", a.view("p9")));
    let first = unicast(1, 9, 60);
    send(&mut one, &first);
    assert_eq!(receive(&mut here).1, first);
    // Frames with the guest's source address are dropped, too.
    send(&mut thief, &frame([0xff; 6], mac(9), 61));
    wait_counter(&a, &to_b, "drop_spoofed_source_total", 1);
    assert!(is_silent(&mut one) && is_silent(&mut thief));
    let warnings = a.view("p9").warnings;
    let names = |text: &str| warnings[0].contains(text);
    assert!(names(&to_b) && names("52:54:00:00:00:09"), "{warnings:?}");
    assert!(a.link_counter(&to_b, "contested_addresses_total") > 0);
    // The claim takes effect once the guest has stopped.
    drop(here);
    reaches(&mut one, &mut thief, 62);
    assert!(a.view("p9").warnings.is_empty());
}

/// Waits until frames to address 9 arrive there; the first frames may take the old path.
fn reaches(from: &mut NetPort, to: &mut NetPort, len: usize) {
    let there = unicast(1, 9, len);
    let mut got = Vec::new();
    let mut look = || {
        send(from, &there);
        to.receive(0, &mut got).unwrap().is_some_and(|_| got == there)
    };
    wait(&mut look, || format!("frames of {len} bytes"));
    while !is_silent(to) {}
}

#[test]
fn a_claim_that_lost_counts_when_its_winner_goes_or_is_silent() {
    let (a, b, c) = (Host::new(), Host::new(), Host::new());
    let mut one = a.port(1, "red");
    let [to_b, to_c] = [25, 26].map(|to| link(&a, 24, to, 21007, "red", 7));
    link(&b, 25, 24, 21007, "red", 7);
    link(&c, 26, 24, 21007, "red", 7);
    wait_up(&a, &to_b);
    wait_up(&a, &to_c);
    // The same address at both hosts: the later claim counts.
    let mut at_b = b.port(9, "red");
    wait_heard(&a, &to_b, 1);
    let mut at_c = c.port(9, "red");
    wait_heard(&a, &to_c, 1);
    reaches(&mut one, &mut at_c, 60);
    drop(at_c);
    wait_heard(&a, &to_c, 0);
    reaches(&mut one, &mut at_b, 70);
    let mut at_c = c.attach(9, 0);
    wait_heard(&a, &to_c, 1);
    reaches(&mut one, &mut at_c, 80);
    drop((at_c, c));
    wait_state(&a, &to_c, LinkState::Down);
    reaches(&mut one, &mut at_b, 90);
}

#[test]
fn a_wrong_key_gets_nothing_through() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, _two) = (a.port(1, "red"), b.port(2, "red"));
    let to_b = link(&a, 21, 22, 21006, "red", 7);
    // B is configured for another peer.
    link(&b, 22, 23, 21006, "red", 7);
    let refused = || b.link_view("to-23-red").counters["socket_refused_peer_total"] > 0;
    wait(refused, || format!("{:?}", b.link_view("to-23-red")));
    assert_eq!(a.link_view(&to_b).state, LinkState::Down);
    send(&mut one, &frame([0xff; 6], mac(1), 60));
    assert_eq!(b.link_counter("to-23-red", "receive_packets_total"), 0);
}
