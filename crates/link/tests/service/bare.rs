//! Two hosts, joined by `vnet` and `vxlan` links.

use crate::hosts::{
    Host, bare, exchange, frame, is_silent, mac, name, receive, send, unicast, wait,
};
use causeway_model::LinkKind;
use causeway_model::LinkState;
use causeway_model::commands::links;

/// Joins group `red` of two hosts.
fn join(a: &Host, b: &Host, kind: fn(causeway_model::UdpSpec) -> LinkKind, port: u16) {
    let at = |host: u8| format!("127.0.0.{host}:{port}");
    a.link(bare("to-b", "red", kind, (&at(2), &at(3), 7))).unwrap();
    b.link(bare("to-a", "red", kind, (&at(3), &at(2), 7))).unwrap();
}

fn crosses(kind: fn(causeway_model::UdpSpec) -> LinkKind, port: u16) {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    join(&a, &b, kind, port);
    let view = a.link_view("to-b");
    assert_eq!(view.state, LinkState::Open);
    // The loopback interface carries the longest packets.
    assert_eq!((view.path_mtu, view.mtu), (Some(u16::MAX), view.spec.kind.mtu(u16::MAX)));
    // To an unknown address, then to a known address.
    let first = unicast(1, 2, 60);
    send(&mut one, &first);
    assert_eq!(receive(&mut two).1, first);
    exchange(&mut one, &mut two, &[60, 100, 1000, 1514]);
    let all = frame([0xff; 6], mac(1), 60);
    send(&mut one, &all);
    assert_eq!(receive(&mut two).1, all);
    assert!(is_silent(&mut one), "a broadcast does not come back");
    for (host, link, counter, count) in [
        (&a, "to-b", "transmit_packets_total", 6),
        (&b, "to-a", "receive_packets_total", 6),
        (&b, "to-a", "transmit_packets_total", 4),
    ] {
        // Counted after the send call: the frame may be faster.
        let counted = || host.link_counter(link, counter) == count;
        wait(counted, || format!("{:?}", host.link_view(link)));
    }
    a.ask(links::Delete(name("to-b")));
    send(&mut one, &unicast(1, 2, 60));
    let dropped = || a.view("p1").counters["drop_unknown_destination_total"];
    wait(|| dropped() == 1, || format!("{:?}", a.view("p1").counters));
}

#[test]
fn frames_cross_by_vnet() {
    crosses(LinkKind::Vnet, 19000);
}

#[test]
fn frames_cross_by_vxlan() {
    crosses(LinkKind::Vxlan, 14789);
}

#[test]
fn frames_of_clones_cross_with_the_addresses_of_their_ports() {
    const GUEST: [u8; 6] = [0x52, 0x54, 0, 0x77, 0, 1];
    // A clone on each host.
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.clone_port(1, "red", GUEST), b.clone_port(2, "red", GUEST));
    join(&a, &b, LinkKind::Vxlan, 23110);
    for len in [60, 300, 1514] {
        send(&mut one, &frame([0xff; 6], GUEST, len));
        let got = receive(&mut two).1;
        assert!(got == frame([0xff; 6], mac(1), len), "{len} bytes to all");
        send(&mut two, &frame(mac(1), GUEST, len));
        let got = receive(&mut one).1;
        assert!(got == frame(GUEST, mac(2), len), "{len} bytes back");
        send(&mut one, &frame(mac(2), GUEST, len));
        let got = receive(&mut two).1;
        assert!(got == frame(GUEST, mac(1), len), "{len} bytes there");
    }
}

#[test]
fn flows_of_vxlan_have_source_ports_of_their_own() {
    let a = Host::new();
    let mut one = a.port(1, "red");
    let far = std::net::UdpSocket::bind("127.0.0.5:21110").unwrap();
    far.set_read_timeout(Some(crate::hosts::PATIENCE)).unwrap();
    let ends = ("127.0.0.4:21110", "127.0.0.5:21110", 7);
    a.link(bare("to-b", "red", LinkKind::Vxlan, ends)).unwrap();
    let mut ports = std::collections::BTreeMap::new();
    for round in 0..3 {
        for flow in 0..32 {
            let (_, mut packet) = crate::hosts::segment(50 + round * 20);
            packet[35] = flow;
            send(&mut one, &packet);
            let mut room = [0; 2000];
            let (len, from) = far.recv_from(&mut room).unwrap();
            assert_eq!(room[8..len], packet, "round {round} of flow {flow}");
            // Always the same.
            assert_eq!(*ports.entry(flow).or_insert(from.port()), from.port());
        }
    }
    let used: std::collections::BTreeSet<u16> = ports.into_values().collect();
    assert!((2..=4).contains(&used.len()), "{used:?}");
    // Counted after the send call: the frame may be faster.
    let counted = || a.link_counter("to-b", "transmit_packets_total") == 96;
    wait(counted, || format!("{:?}", a.link_view("to-b")));
}

#[test]
fn hostile_datagrams_to_a_vxlan_port_are_counted_by_reason_and_go_nowhere() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    join(&a, &b, LinkKind::Vxlan, 21115);
    exchange(&mut one, &mut two, &[60]);
    let header = |flags: u8, vni: u8| [flags, 0, 0, 0, 0, 0, vni, 0];
    let inner = unicast(1, 2, 60);
    let whole = |vni| [&header(8, vni)[..], &inner].concat();
    let known = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    let stranger = std::net::UdpSocket::bind("127.0.0.9:0").unwrap();
    for (from, datagram, counter) in [
        (&known, header(8, 7)[..7].to_vec(), "socket_drop_truncated_total"),
        (&known, [&header(0, 7)[..], &inner].concat(), "socket_drop_truncated_total"),
        (&known, whole(8), "socket_drop_wrong_vni_total"),
        (&stranger, whole(7), "socket_drop_unknown_peer_total"),
        (&known, [&header(8, 7)[..], &inner[..13]].concat(), "drop_runt_total"),
    ] {
        let before = b.link_counter("to-a", counter);
        from.send_to(&datagram, "127.0.0.3:21115").unwrap();
        let counted = || b.link_counter("to-a", counter) == before + 1;
        wait(counted, || format!("{counter}: {:?}", b.link_view("to-a")));
    }
    assert!(is_silent(&mut two));
    exchange(&mut one, &mut two, &[60]);
}
