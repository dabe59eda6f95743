//! Hosts joined by the local network: two interfaces of a veth pair, in a network namespace of
//! their own. Without the right to create a namespace the tests pass without a check.

use std::process::Command as Process;

use crate::hosts::{
    Host, exchange, frame, is_silent, mac, name, receive, segment, send, send_with, spec, unicast,
    wait, wait_counter,
};
use causeway_model::commands::{links, routes};
use causeway_model::{Command, LinkState};
use causeway_model::{Forwarding, GroupKind, GroupSpec};
use causeway_model::{LinkKind, LinkSpec, MacMatch, RawSpec, RouteEnd, RouteSpec};

const INSIDE: &str = "CAUSEWAY_TEST_NAMESPACE";

fn ip(words: &str) {
    let done = Process::new("ip").args(words.split_whitespace()).status();
    assert!(done.is_ok_and(|status| status.success()), "ip {words}");
}

/// Runs `act` in a process of its own, in a namespace with the interfaces `near` and `far`.
fn with_wire(test: &str, act: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        ip("link add near type veth peer name far");
        ip("link set near up");
        ip("link set far up");
        return act();
    }
    if !Process::new("unshare").args(["--net", "true"]).status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: a network namespace takes root and `unshare`");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let test = format!("raw::{test}");
    let mut process = Process::new("unshare");
    process.arg("--net").arg(this).args(["--exact", &test, "--nocapture"]).env(INSIDE, "1");
    assert!(process.status().unwrap().success(), "see above");
}

fn raw(link: &str, group: &str, interface: &str) -> LinkSpec {
    spec(link, group, LinkKind::Raw(RawSpec { interface: interface.to_owned() }))
}

fn crosses() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    a.link(raw("lan", "red", "near")).unwrap();
    b.link(raw("lan", "red", "far")).unwrap();
    assert_eq!(a.link_view("lan").state, LinkState::Open);
    assert_eq!(a.link_view("lan").mtu, 1500);
    exchange(&mut one, &mut two, &[60, 100, 1000, 1514]);
    let all = frame([0xff; 6], mac(1), 60);
    send(&mut one, &all);
    assert_eq!(receive(&mut two).1, all);
    // A tag stays in place, although hosts keep tags outside the frame.
    let mut tagged = unicast(1, 2, 100);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    send(&mut one, &tagged);
    assert_eq!(receive(&mut two).1, tagged);
    assert!(is_silent(&mut one), "nothing comes back");
    // Counted after the host has the frame: the frame may be faster.
    wait_counter(&a, "lan", "transmit_packets_total", 6);
    let view = a.link_view("lan");
    assert_eq!(view.counters["transmit_packets_total"], 6, "{view:?}");
    assert_eq!(view.counters["receive_packets_total"], 4, "{view:?}");
    assert_eq!(view.counters["socket_drop_unreadable_total"], 0, "{view:?}");
}

#[test]
fn frames_cross_the_local_network() {
    with_wire("frames_cross_the_local_network", crosses);
}

fn only_ours() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    a.link(raw("lan", "red", "near")).unwrap();
    b.link(raw("lan", "red", "far")).unwrap();
    // To another station.
    send(&mut two, &unicast(2, 9, 60));
    wait_counter(&a, "lan", "socket_drop_not_ours_total", 1);
    // From our own address: a frame in a loop, or a forged frame.
    let mut double = b.port(1, "blue");
    b.link(raw("other", "blue", "far")).unwrap();
    send(&mut double, &frame([0xff; 6], mac(1), 60));
    wait_counter(&a, "lan", "socket_drop_own_source_total", 1);
    assert!(is_silent(&mut one));
    assert_eq!(a.link_counter("lan", "receive_packets_total"), 0);
    // The address of a stopped guest is no longer ours; that of a started guest is.
    let to_three = unicast(2, 3, 70);
    send(&mut two, &to_three);
    wait_counter(&a, "lan", "socket_drop_not_ours_total", 2);
    let mut three = a.port(3, "red");
    let mut tries = 0;
    while is_silent(&mut three) {
        send(&mut two, &to_three);
        std::thread::sleep(std::time::Duration::from_millis(5));
        tries += 1;
        assert!(tries < 1000, "{:?}", a.link_view("lan"));
    }
    // The port's MTU exceeds the interface's.
    let mut big = a.port_with(4, "red", 0, 9000);
    send(&mut big, &unicast(4, 2, 9014));
    wait_counter(&a, "lan", "drop_too_big_total", 1);
}

#[test]
fn hostile_frames_for_others_or_from_ourselves_are_not_taken() {
    with_wire("hostile_frames_for_others_or_from_ourselves_are_not_taken", only_ours);
}

/// LACP, and PAUSE to its own address and to another.
fn link_local() {
    let (a, b) = (Host::new(), Host::new());
    a.call(Command::GroupAdd(GroupSpec { kind: GroupKind::Wire, ..name("lab").into() }));
    b.call(Command::GroupAdd(GroupSpec { kind: GroupKind::Wire, ..name("lab").into() }));
    let of = |last: u8, ethertype: u16, from: u8| {
        let mut frame = frame([1, 0x80, 0xc2, 0, 0, last], mac(from), 60);
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame
    };
    // A bridge.
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    a.link(raw("lan", "red", "near")).unwrap();
    b.link(raw("lan", "red", "far")).unwrap();
    exchange(&mut one, &mut two, &[60]);
    for (last, ethertype) in [(0, 0x26), (1, 0x8808), (2, 0x8809)] {
        send(&mut one, &of(last, ethertype, 1));
    }
    let drops = || a.view("p1").counters["drop_link_local_total"];
    wait(|| drops() == 3, || format!("{:?}", a.view("p1").counters));
    let mut unicast_pause = unicast(1, 2, 60);
    unicast_pause[12..14].copy_from_slice(&0x8808_u16.to_be_bytes());
    send(&mut one, &unicast_pause);
    wait_counter(&a, "lan", "drop_mac_control_total", 1);
    assert!(is_silent(&mut two));
    assert_eq!(a.link_counter("lan", "transmit_packets_total"), 1, "the one of before");
    a.ask(links::Delete(name("lan")));
    b.ask(links::Delete(name("lan")));
    // A wire.
    let (mut three, mut four) = (a.port(3, "lab"), b.port(4, "lab"));
    a.link(raw("wire", "lab", "near")).unwrap();
    b.link(raw("wire", "lab", "far")).unwrap();
    send(&mut three, &of(1, 0x8808, 3));
    wait_counter(&a, "wire", "drop_mac_control_total", 1);
    let lacp = of(2, 0x8809, 3);
    send(&mut three, &lacp);
    assert_eq!(receive(&mut four).1, lacp, "and no PAUSE before it");
}

#[test]
fn hostile_guests_do_not_speak_the_physical_links_own_protocols() {
    with_wire("hostile_guests_do_not_speak_the_physical_links_own_protocols", link_local);
}

fn by_route() {
    let (a, b) = (Host::new(), Host::new());
    a.call(Command::GroupAdd(GroupSpec {
        forwarding: Forwarding::Routes,
        ..name("strict").into()
    }));
    let (mut one, mut two) = (a.port(1, "strict"), b.port(2, "red"));
    a.link(raw("lan", "strict", "near")).unwrap();
    b.link(raw("lan", "red", "far")).unwrap();
    let (there, back) = (unicast(1, 2, 100), unicast(2, 1, 200));
    // Without a route no frame leaves, and no received frame is forwarded.
    send(&mut one, &there);
    wait(
        || a.view("p1").counters["drop_no_route_total"] == 1,
        || format!("{:?}", a.view("p1").counters),
    );
    send(&mut two, &back);
    wait_counter(&a, "lan", "drop_no_route_total", 1);
    let route = |to, from| {
        let any = MacMatch::Any;
        let spec = RouteSpec { group: name("strict"), source: any, destination: any, to, from };
        a.ask(routes::Add(spec)).index
    };
    let (lan, port) = (RouteEnd::Edge(name("lan")), RouteEnd::Interface(name("p1")));
    let out = route(lan.clone(), Some(port.clone()));
    route(port, Some(lan));
    send(&mut one, &there);
    assert_eq!(receive(&mut two).1, there);
    send(&mut two, &back);
    assert_eq!(receive(&mut one).1, back);
    // From the local network, only frames for a port of ours are accepted.
    send(&mut two, &unicast(2, 9, 60));
    wait_counter(&a, "lan", "socket_drop_not_ours_total", 1);
    a.ask(routes::Delete(out));
    send(&mut one, &there);
    assert!(is_silent(&mut two) && is_silent(&mut one));
}

#[test]
fn the_local_network_is_where_a_route_leads() {
    with_wire("the_local_network_is_where_a_route_leads", by_route);
}

fn segments() {
    use causeway_wire::virtio::mask;
    use causeway_wire::virtio_net::*;
    let all = mask(VIRTIO_NET_F_CSUM)
        | mask(VIRTIO_NET_F_HOST_TSO4)
        | mask(VIRTIO_NET_F_GUEST_CSUM)
        | mask(VIRTIO_NET_F_GUEST_TSO4)
        | mask(VIRTIO_NET_F_MRG_RXBUF);
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port_with(1, "red", all, 1500), b.port_with(2, "red", all, 1500));
    a.link(raw("lan", "red", "near")).unwrap();
    b.link(raw("lan", "red", "far")).unwrap();
    let (header, packet) = segment(40_000);
    send_with(&mut one, &header, &packet);
    let (got, bytes) = receive(&mut two);
    assert_eq!(bytes, packet, "uncut");
    assert_eq!((got.gso_type, got.gso_size), (GSO_TCPV4, 1460));
    // The host passes long frames and short frames on different paths: they keep their order, also
    // around the end of the ring.
    for round in 0..1500_usize {
        let short = [60, 1000, 1514].map(|len| unicast(1, 2, len - round % 7));
        let long = round % 50 == 0;
        for (place, frame) in short.iter().enumerate() {
            send(&mut one, frame);
            if long && place == 1 {
                send_with(&mut one, &header, &packet);
            }
        }
        for (place, frame) in short.iter().enumerate() {
            assert_eq!(receive(&mut two).1, *frame, "round {round}");
            if long && place == 1 {
                assert_eq!(receive(&mut two).1, packet, "round {round}");
            }
        }
    }
    let view = b.link_view("lan");
    assert_eq!(view.counters["drop_too_big_total"], 0, "{view:?}");
}

#[test]
fn a_segment_crosses_the_local_network_as_one() {
    with_wire("a_segment_crosses_the_local_network_as_one", segments);
}

fn anew() {
    use causeway_host::net::rx_ring::{PacketRing, Slots};
    use causeway_host::net::socket::PacketSocket;
    let (near, far) = (PacketSocket::open("near").unwrap(), PacketSocket::open("far").unwrap());
    let mut ring = PacketRing::new(&near, Slots::SHORT).unwrap();
    let mut room = vec![0; 4096];
    let mut hear = |ring: &mut PacketRing, len: u8| {
        let frame = [&[0; 10][..], &frame([0xff; 6], mac(1), usize::from(len))].concat();
        rustix::net::send(&far, &frame, rustix::net::SendFlags::empty()).unwrap();
        let mut got = None;
        wait(
            || {
                got = ring.receive(&near, &mut room).ok();
                got.is_some()
            },
            || "a frame".to_owned(),
        );
        assert_eq!(got.unwrap().len, frame.len());
        assert_eq!(room[..frame.len()][10..], frame[10..]);
    };
    for len in 60..70 {
        hear(&mut ring, len);
    }
    ring.renew(&near).unwrap();
    for len in 70..80 {
        hear(&mut ring, len);
    }
    assert_eq!(ring.lost(&near).unwrap(), 0);
}

#[test]
fn a_ring_is_made_anew_on_the_same_socket() {
    with_wire("a_ring_is_made_anew_on_the_same_socket", anew);
}

fn no_room() {
    use causeway_host::net::rx_ring::{PacketRing, Slots};
    use causeway_host::net::socket::PacketSocket;
    ip("link set near mtu 9000");
    ip("link set far mtu 9000");
    let (near, far) = (PacketSocket::open("near").unwrap(), PacketSocket::open("far").unwrap());
    let mut ring = PacketRing::new(&near, Slots::SHORT).unwrap();
    // The smallest buffer that the host allows: one long frame.
    rustix::net::sockopt::set_socket_recv_buffer_size(&near, 0).unwrap();
    let mut room = vec![0; 66 << 10];
    for len in [9014, 9014, 9014, 60] {
        let frame = [&[0; 10][..], &frame([0xff; 6], mac(1), len)].concat();
        rustix::net::send(&far, &frame, rustix::net::SendFlags::empty()).unwrap();
    }
    let mut got = Vec::new();
    wait(
        || {
            match ring.receive(&near, &mut room) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                result => got.push(result.map(|packet| packet.len).map_err(|e| e.raw_os_error())),
            }
            got.len() == 4
        },
        || "frames".to_owned(),
    );
    let none = Err(Some(rustix::io::Errno::NOBUFS.raw_os_error()));
    assert_eq!(got, [Ok(9024), none, none, Ok(70)]);
}

#[test]
fn a_long_frame_without_room_is_no_frame_that_is_too_long() {
    with_wire("a_long_frame_without_room_is_no_frame_that_is_too_long", no_room);
}

fn goes_and_comes() {
    let (a, b) = (Host::new(), Host::new());
    let error = a.link(raw("lan", "red", "nowhere")).unwrap_err().to_string();
    assert!(error.contains("there is no interface nowhere"), "{error}");
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    a.link(raw("lan", "red", "near")).unwrap();
    b.link(raw("lan", "red", "far")).unwrap();
    let cross = |one: &mut _, two: &mut _| {
        send(one, &unicast(1, 2, 60));
        assert_eq!(receive(two).1, unicast(1, 2, 60));
    };
    cross(&mut one, &mut two);
    ip("link set near down");
    let down = || a.link_view("lan").reason.contains("interface near is down");
    wait(down, || format!("{:?}", a.link_view("lan")));
    assert_eq!(a.link_view("lan").state, LinkState::Down);
    ip("link set near up");
    let back = |host: &Host| {
        let back = || host.link_view("lan").state == LinkState::Open;
        wait(back, || format!("{:?}", host.link_view("lan")));
    };
    back(&a);
    cross(&mut one, &mut two);
    // Both ends disappear and return.
    ip("link del near");
    for (host, interface) in [(&a, "near"), (&b, "far")] {
        let words = format!("there is no interface {interface}");
        let gone = || host.link_view("lan").reason.contains(&words);
        wait(gone, || format!("{:?}", host.link_view("lan")));
    }
    ip("link add near type veth peer name far");
    ip("link set near up");
    ip("link set far up");
    back(&a);
    back(&b);
    cross(&mut one, &mut two);
    a.ask(links::Delete(name("lan")));
    send(&mut one, &unicast(1, 2, 60));
    let dropped = || a.view("p1").counters["drop_unknown_destination_total"] == 1;
    wait(dropped, || format!("{:?}", a.view("p1").counters));
}

#[test]
fn an_interface_goes_and_comes_back() {
    with_wire("an_interface_goes_and_comes_back", goes_and_comes);
}
