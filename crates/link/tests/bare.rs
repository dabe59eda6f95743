//! Two hosts, joined by links whose datagrams are frames.

mod hosts;

use causeway_fabric::control::{Command, LinkState};
use causeway_fabric::spec::LinkKind;
use hosts::{Host, bare, exchange, frame, is_silent, mac, name, receive, send, unicast, wait};

/// Joins group `red` of two hosts.
fn join(a: &Host, b: &Host, kind: fn(causeway_fabric::spec::UdpSpec) -> LinkKind, port: u16) {
    let at = |host: u8| format!("127.0.0.{host}:{port}");
    a.link(bare("to-b", "red", kind, (&at(2), &at(3), 7))).unwrap();
    b.link(bare("to-a", "red", kind, (&at(3), &at(2), 7))).unwrap();
}

fn crosses(kind: fn(causeway_fabric::spec::UdpSpec) -> LinkKind, port: u16) {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    join(&a, &b, kind, port);
    assert_eq!(a.link_view("to-b").state, LinkState::Open);
    // To an unknown address, then to a known one.
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
        // Counted once the kernel has it: the frame may be faster.
        let counted = || host.link_counter(link, counter) == count;
        wait(counted, || format!("{:?}", host.link_view(link)));
    }
    a.call(Command::LinkDel(name("to-b")));
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
