//! Hosts in a loop of transit links: flooded frames arrive once.

use crate::hosts::{Host, bare, frame, is_silent, mac, receive, send, unicast, wait, wait_up};
use causeway_model::{LinkKind, LinkSpec, UdpSpec};

/// Creates a link of a kind.
type Kind = fn(UdpSpec) -> LinkKind;

/// A loop of `count` hosts, each with links to its neighbours.
fn ring(count: u8, kind: Kind, port: u16) -> Vec<Host> {
    let hosts: Vec<Host> = (0..count).map(|_| Host::new()).collect();
    let at = |n: u8| format!("127.0.0.{}:{port}", 100 + n);
    for (n, host) in (0..).zip(&hosts) {
        for other in [(n + 1) % count, (n + count - 1) % count] {
            let udp = (&*at(n), &*at(other), 3);
            let link = bare(&format!("to-{other}"), "red", kind, udp);
            host.link(LinkSpec { transit: true, ..link }).unwrap();
        }
    }
    hosts
}

fn drops(host: &Host, count: u8, n: u8, why: &str) -> u64 {
    let counter = format!("drop_{why}_total");
    let links = [(n + 1) % count, (n + count - 1) % count].map(|other| format!("to-{other}"));
    links.iter().map(|link| host.link_counter(link, &counter)).sum()
}

#[test]
fn each_broadcast_is_seen_once_in_a_ring_of_daemons() {
    const SENT: u64 = 30;
    for (count, port) in [(3, 21301), (4, 21302), (5, 21303)] {
        let hosts = ring(count, LinkKind::CausewayPlain, port);
        for (n, host) in (0..count).zip(&hosts) {
            wait_up(host, &format!("to-{}", (n + 1) % count));
            wait_up(host, &format!("to-{}", (n + count - 1) % count));
        }
        let mut ports: Vec<_> = (0..).zip(&hosts).map(|(n, host)| host.port(n, "red")).collect();
        for round in 0..SENT {
            let sender = (round % u64::from(count)) as u8;
            let all = frame([0xff; 6], mac(sender), 60 + round as usize * 50);
            send(&mut ports[usize::from(sender)], &all);
            for (n, port) in (0..count).zip(&mut ports).filter(|(n, _)| *n != sender) {
                assert_eq!(receive(port).1, all, "round {round}, port {n} of {count}");
            }
        }
        // Dropped copies: as many as there are links beyond those of a tree, in both directions.
        let met = |why: &str| -> u64 {
            (0..count).zip(&hosts).map(|(n, host)| drops(host, count, n, why)).sum()
        };
        wait(|| met("duplicate") >= 2 * SENT, || format!("{} of {count}", met("duplicate")));
        assert_eq!(met("too_many_hops"), 0);
        for (n, port) in (0..count).zip(&mut ports) {
            assert!(is_silent(port), "port {n} of {count} got more");
        }
        // A unicast frame takes a single path.
        let there = unicast(0, count / 2, 100);
        send(&mut ports[0], &there);
        assert_eq!(receive(&mut ports[usize::from(count / 2)]).1, there);
    }
}

#[test]
fn without_numbers_a_broadcast_that_comes_from_either_side_is_taken_once() {
    let hosts = ring(4, LinkKind::Vnet, 21304);
    let mut ports: Vec<_> = (0..).zip(&hosts).map(|(n, host)| host.port(n, "red")).collect();
    let met = || (0..4).zip(&hosts).map(|(n, host)| drops(host, 4, n, "duplicate")).sum::<u64>();
    // Until every group knows its links: two copies meet then.
    let mut tries = 0;
    wait(
        || {
            let (before, all) = (met(), frame([0xff; 6], mac(0), 300 + tries));
            tries += 1;
            send(&mut ports[0], &all);
            std::thread::sleep(std::time::Duration::from_millis(50));
            met() >= before + 2
        },
        || "the circle does not close".to_owned(),
    );
    for port in &mut ports {
        while port.receive(0, &mut Vec::new()).unwrap().is_some() {}
    }
    let before = met();
    for round in 0..30 {
        // Repetitions of the same frame, and other frames.
        let all = frame([0xff; 6], mac(0), 60 + round % 3);
        send(&mut ports[0], &all);
        for port in &mut ports[1..] {
            assert_eq!(receive(port).1, all, "round {round}");
        }
    }
    // Two copies meet in each round.
    wait(|| met() - before >= 60, || format!("{}", met() - before));
    assert!(ports.iter_mut().all(is_silent), "somebody got more");
}

/// A loop of three hosts, one edge of which carries flood sequence numbers, and a fourth host
/// beside it. The sender's address belongs to no known port: at one of the three, and at the
/// fourth.
#[test]
fn flood_loop_of_mixed_links_ends_for_unknown_senders() {
    let hosts: Vec<Host> = (0..4).map(|_| Host::new()).collect();
    let at = |n: usize, port: u16| format!("127.0.0.{}:{port}", 100 + n);
    let edges: [(usize, usize, Kind, u16); 4] = [
        (0, 1, LinkKind::CausewayPlain, 21305),
        (1, 2, LinkKind::Vxlan, 21306),
        (2, 0, LinkKind::Vnet, 21307),
        (3, 0, LinkKind::Vnet, 21308),
    ];
    for (one, other, kind, port) in edges {
        for (here, there) in [(one, other), (other, one)] {
            let (local, remote) = (at(here, port), at(there, port));
            let link = bare(&format!("to-{there}"), "red", kind, (&local, &remote, 3));
            hosts[here].link(LinkSpec { transit: true, ..link }).unwrap();
        }
    }
    wait_up(&hosts[0], "to-1");
    wait_up(&hosts[1], "to-0");
    let mut ports: Vec<_> =
        (0..).zip(&hosts).map(|(n, host)| host.learning_port(n, "red")).collect();
    let left = || -> u64 {
        let counters = edges.iter().flat_map(|&(one, other, ..)| [(one, other), (other, one)]);
        let of = |(n, to): (usize, usize)| {
            hosts[n].link_counter(&format!("to-{to}"), "transmit_packets_total")
        };
        counters.map(of).sum()
    };
    for (round, sender) in [0, 3, 0, 3, 2, 1].into_iter().enumerate() {
        for n in 0..5 {
            let all = frame([0xff; 6], mac(0x70 + sender as u8), 100 + 10 * round + n);
            send(&mut ports[sender], &all);
            for port in (0..4).filter(|port| *port != sender) {
                assert_eq!(receive(&mut ports[port]).1, all, "{sender} to {port}, round {round}");
            }
        }
        assert!(ports.iter_mut().all(is_silent), "somebody got more of {sender}");
        let before = left();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(left(), before, "what {sender} sent goes round and round");
    }
}
