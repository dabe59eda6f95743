//! Links of a cluster: dormant until the first frame.

use std::net::SocketAddr;

use crate::hosts::{
    Host, frame, is_silent, mac, name, receive, send, unicast, wait, wait_counter, wait_state,
};
use crate::sockets::{join, pattern, sockets, transfer, wait_reachable};
use causeway_model::commands::cluster::{Local, Remote};
use causeway_model::commands::links;
use causeway_model::keys::PrivateKey;
use causeway_model::{
    AddressKind, ClusterAddress, ClusterGroup, ClusterHost, ClusterStatus, ClusterTunnel,
    ClusterUpdate, LinkState, Mac, RemoteAddress,
};
use causeway_wire::vsock::Type;

/// The link to host `n`.
fn link_to(n: u16) -> String {
    format!("cluster-h{n}-7")
}

fn key(n: u16) -> PrivateKey {
    let mut bytes = [7; 32];
    bytes[1..3].copy_from_slice(&n.to_be_bytes());
    PrivateKey::new(bytes)
}

fn at(n: u16, port: u16) -> SocketAddr {
    let [high, low] = n.to_be_bytes();
    ([127, 0, high, low], port).into()
}

/// Reports hosts, each with the address of a guest if it has one, to host `own`, as
/// `causeway-directory` does.
fn report(host: &Host, own: u16, port: u16, idle: u32, others: &[(u16, Option<u8>)]) {
    let file = host.path("key");
    std::fs::write(&file, key(own).to_text().as_str()).unwrap();
    host.ask(Local { private_key: file.clone() });
    let other = |(n, _): &(u16, Option<u8>)| ClusterHost {
        id: name(&format!("h{n}")),
        key: key(*n).public().to_string().parse().unwrap(),
        endpoints: vec![at(*n, port)],
        groups: vec![ClusterGroup { name: name("red"), vni: 7 }],
        seen: true,
        epoch: 1,
    };
    let guest = |(n, guest): &(u16, Option<u8>)| {
        let address = Mac(mac((*guest)?)).to_string();
        let at = ClusterAddress { kind: AddressKind::Mac, group: name("red"), address };
        Some(RemoteAddress { at, host: name(&format!("h{n}")), epoch: 1 })
    };
    // Few hosts in each update, as the process sends them.
    let parts = others.chunks(100);
    let last = parts.len() - 1;
    for (part, some) in parts.enumerate() {
        let update = ClusterUpdate {
            site: name("lab"),
            host: name(&format!("h{own}")),
            instance: 1,
            tunnel: ClusterTunnel { local: at(own, port), private_key: file.clone(), idle },
            begin: part == 0,
            end: part == last,
            hosts: some.iter().map(other).collect(),
            removed_hosts: Vec::new(),
            addresses: some.iter().filter_map(guest).collect(),
            removed_addresses: Vec::new(),
            policies: Vec::new(),
            removed_policies: Vec::new(),
            has_policies: true,
            status: ClusterStatus::default(),
        };
        host.ask(Remote(Box::new(update)));
    }
}

fn arp_request(from: u8) -> Vec<u8> {
    let mut request = [&[0xff; 6][..], &mac(from), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    request.extend([&mac(from)[..], &[10, 0, 0, from], &[0; 6], &[10, 0, 0, 99]].concat());
    request.resize(60, 0);
    request
}

#[test]
fn dormant_links_of_a_cluster_wake_for_guests_that_talk() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    // Host 73 has no guest, and host 74 does not run.
    report(&a, 71, 21701, 120, &[(72, Some(2)), (73, None), (74, Some(4))]);
    report(&b, 72, 21701, 120, &[(71, Some(1))]);
    for (host, other) in [(&a, 72), (&a, 73), (&a, 74), (&b, 71)] {
        let view = host.link_view(&link_to(other));
        assert_eq!((view.state, view.ups_total), (LinkState::Dormant, 0), "{view:?}");
    }

    // A broadcast wakes no link. The group may not know all links yet when the first is sent.
    let withheld = |other| a.link_counter(&link_to(other), "floods_withheld_total");
    let mut broadcast = || {
        send(&mut one, &frame([0xff; 6], mac(1), 60));
        [72, 73, 74].map(withheld).iter().all(|count| *count > 0)
    };
    wait(&mut broadcast, || format!("{:?}", [72, 73, 74].map(withheld)));
    send(&mut one, &unicast(1, 2, 1_514));
    send(&mut one, &unicast(1, 2, 60));
    assert_eq!(receive(&mut two).1, unicast(1, 2, 1_514));
    assert_eq!(receive(&mut two).1, unicast(1, 2, 60));
    send(&mut two, &unicast(2, 1, 60));
    assert_eq!(receive(&mut one).1, unicast(2, 1, 60));
    wait_state(&a, &link_to(72), LinkState::Up);
    wait_state(&b, &link_to(71), LinkState::Up);
    // A link that is awake carries broadcasts.
    send(&mut one, &frame([0xff; 6], mac(1), 80));
    assert_eq!(receive(&mut two).1, frame([0xff; 6], mac(1), 80));
    assert_eq!(a.link_view(&link_to(73)).state, LinkState::Dormant);
    assert_eq!(a.link_counter(&link_to(74), "handshakes_total"), 0);
    assert_eq!(a.link_view(&link_to(74)).reason, a.link_view(&link_to(73)).reason);

    // Address resolution wakes the links to hosts with guests.
    let before = withheld(73);
    send(&mut one, &arp_request(1));
    assert_eq!(receive(&mut two).1, arp_request(1));
    wait_counter(&a, &link_to(73), "floods_withheld_total", before + 1);
    wait_state(&a, &link_to(74), LinkState::Down);
    wait_counter(&a, &link_to(74), "drop_unanswered_total", 1);
    assert_eq!(a.link_view(&link_to(73)).state, LinkState::Dormant);
    assert!(is_silent(&mut two));
}

/// A host with links to 1,000 others, each with a guest; its guest talks to three of them.
#[test]
fn dormant_links_to_a_thousand_hosts_wake_for_three() {
    // No guest has a CID: the sessions of sockets wake no link either.
    let hosts = [(); 4].map(|()| Host::with_sockets());
    let [a, others @ ..] = &hosts;
    let mut one = a.port(1, "red");
    let mut far: Vec<_> = (2..).zip(others).map(|(n, host)| host.port(n, "red")).collect();
    let guest = |n: u16| Some(if n < 3 { n as u8 + 2 } else { (n % 200) as u8 + 10 });
    let site: Vec<_> = (0..1_000).map(|n| (1_000 + n, guest(n))).collect();
    report(a, 999, 21703, 120, &site);
    for (n, host) in (1_000..).zip(others) {
        report(host, n, 21703, 120, &[(999, Some(1))]);
    }
    let dormant = |host: &Host| {
        let all = host.ask(links::List);
        all.iter().filter(|link| link.state == LinkState::Dormant).count()
    };
    assert_eq!(dormant(a), 1_000);
    for (n, port) in (0..).zip(&mut far) {
        let (to, link) = (n as u8 + 2, link_to(1_000 + n));
        // The first frame may be earlier than the address of its receiver.
        let mut arrives = || {
            send(&mut one, &unicast(1, to, 60));
            !is_silent(port)
        };
        wait(&mut arrives, || format!("{:?}", a.link_view(&link)));
        let back = unicast(to, 1, 80);
        send(port, &back);
        assert_eq!(receive(&mut one).1, back);
    }
    wait(|| dormant(a) == 997, || format!("{} links are dormant", dormant(a)));
    let all = a.ask(links::List);
    assert_eq!(all.iter().filter(|link| link.counters["handshakes_total"] > 0).count(), 3);
}

#[test]
fn dormant_links_carry_sockets_and_keep_idle_connections() {
    let (a, b) = (Host::with_sockets(), Host::with_sockets());
    let (mut near, mut far) = (sockets(&a, 3), sockets(&b, 4));
    report(&a, 75, 21702, 10, &[(76, None)]);
    report(&b, 76, 21702, 10, &[(75, None)]);
    wait_reachable(&a, "v3", 4);
    wait_reachable(&b, "v4", 3);
    let (ca, cb) = join(&mut near, &mut far, Type::Stream, 5_000);
    let mut exchange = |seed| {
        transfer((&mut near, ca), (&mut far, cb), &pattern(seed, 20_000), 4_000);
        transfer((&mut far, cb), (&mut near, ca), &pattern(seed, 20_000), 4_000);
    };
    exchange(1);
    // The session and the connection stay while the link is dormant, and wake it.
    for round in 2..4 {
        wait_state(&a, &link_to(76), LinkState::Dormant);
        wait_state(&b, &link_to(75), LinkState::Dormant);
        exchange(round);
        let sessions = a.link_counter(&link_to(76), "vsock_sessions_total");
        assert_eq!(sessions, 1, "{:?}", a.link_view(&link_to(76)));
        let ups = || a.link_view(&link_to(76)).ups_total >= round as u64;
        wait(ups, || format!("{:?}", a.link_view(&link_to(76))));
    }
}
