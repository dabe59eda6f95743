//! Verified claims of the cluster come before the announcements of peers.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use causeway_model::commands::cluster::{Local, Remote};
use causeway_model::{
    AddressKind, ClusterAddress, ClusterGroup, ClusterHost, ClusterTunnel, ClusterUpdate, Mac,
    RemoteAddress,
};
use causeway_wire::multiplex::{ADDRESSES, Address};
use causeway_wire::vsock::{Op, Type};

use crate::hostile_sockets::Peer;
use crate::hosts::{Host, PATIENCE, exchange, mac, name, wait_counter, wait_up};
use crate::sockets::{join, key, link, pattern, sockets, transfer, wait_reachable};

/// The link that the cluster makes.
const LINK: &str = "cluster-h2-7";

fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn at(kind: AddressKind, address: &str) -> ClusterAddress {
    ClusterAddress { kind, group: name("red"), address: address.into() }
}

/// Returns an update of the cluster without entries for host `own` of two.
pub fn update(host: &Host, own: u8, port: u16) -> ClusterUpdate {
    ClusterUpdate {
        site: name("lab"),
        host: name("h1"),
        instance: 1,
        tunnel: ClusterTunnel {
            local: SocketAddr::from(([127, 0, 0, own], port)),
            private_key: host.path("key"),
            idle: 0,
        },
        begin: false,
        end: false,
        hosts: Vec::new(),
        removed_hosts: Vec::new(),
        addresses: Vec::new(),
        removed_addresses: Vec::new(),
        policies: Vec::new(),
        removed_policies: Vec::new(),
        has_policies: true,
        status: Default::default(),
    }
}

/// Links host `a` as the cluster does to a host `h2`, which is `b`.
fn cluster(a: &Host, b: &Host, (own, other): (u8, u8), port: u16) {
    std::fs::write(a.path("key"), key(own).to_text().as_str()).unwrap();
    a.ask(Local { private_key: a.path("key") });
    let h2 = ClusterHost {
        id: name("h2"),
        key: key(other).public().to_string().parse().unwrap(),
        endpoints: vec![SocketAddr::from(([127, 0, 0, other], port))],
        groups: vec![ClusterGroup { name: name("red"), vni: 7 }],
        seen: true,
        epoch: 1,
    };
    a.ask(Remote(Box::new(ClusterUpdate { hosts: vec![h2], ..update(a, own, port) })));
    link(b, other, own, port);
    wait_up(a, LINK);
    wait_up(b, "peer");
}

/// Reports that `h2` has an address, as of now.
fn claim(host: &Host, address: ClusterAddress, (own, port): (u8, u16)) {
    let address = RemoteAddress { at: address, host: name("h2"), epoch: wall_ns() };
    let addresses = vec![address];
    host.ask(Remote(Box::new(ClusterUpdate { addresses, ..update(host, own, port) })));
}

#[test]
fn vsock_connect_follows_the_verified_claim_and_no_announcement_of_another_peer() {
    let (before, [left, right]) = (wall_ns(), [Host::with_sockets(), Host::with_sockets()]);
    let (mut a, mut b) = (sockets(&left, 3), sockets(&right, 4));
    cluster(&left, &right, (63, 64), 21621);
    // The cluster reads the CIDs of this host, with the times of their attachment.
    let local = left.ask(Local { private_key: left.path("key") });
    let own = local.addresses.iter().find(|local| local.at == at(AddressKind::Cid, "3")).unwrap();
    assert!((before..wall_ns()).contains(&own.since), "{own:?}");

    claim(&left, at(AddressKind::Cid, "4"), (63, 21621));
    let mut hostile = Peer::of(&left, 65, 66, 21622);
    let address = Address { is_here: true, cid: 4, epoch: wall_ns() };
    hostile.session.send(ADDRESSES, 0, [&address.emit(), &[]]);
    hostile.until(|_| left.link_counter("peer", "vsock_foreign_cids_total") == 1);
    wait_reachable(&left, "v3", 4);
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 5);
    transfer((&mut a, ca), (&mut b, cb), &pattern(1, 100_000), 7000);
    hostile.turn();
    assert!(hostile.heard.is_empty(), "{:?}", hostile.heard);
    // The peer cannot connect as that CID either.
    a.listen(Type::Stream, 6);
    let channel = hostile.request((4, 1000), (3, 6));
    assert_eq!(hostile.answer(channel, &mut a), Some(Op::Reset));

    // Without the claim the newest announcement counts.
    let removed_addresses = vec![at(AddressKind::Cid, "4")];
    let update = ClusterUpdate { removed_addresses, ..update(&left, 63, 21621) };
    left.ask(Remote(Box::new(update)));
    hostile.heard.clear();
    std::thread::scope(|scope| {
        let connect = scope.spawn(|| a.connect(Type::Stream, 4, 5, PATIENCE).is_err());
        let since = Instant::now();
        while !connect.is_finished() {
            assert!(since.elapsed() < PATIENCE);
            hostile.turn();
            for (channel, message) in std::mem::take(&mut hostile.heard) {
                if u16::from(message.op) == Op::Request.raw() {
                    hostile.send(channel, Op::Reset, &[]);
                }
            }
        }
        assert!(connect.join().unwrap());
    });
}

#[test]
fn address_with_a_verified_claim_is_not_taken_over_by_an_announcement() {
    let [left, right] = [Host::with_sockets(), Host::with_sockets()];
    let (mut near, mut far) = (left.port(1, "red"), right.port(2, "red"));
    cluster(&left, &right, (67, 68), 21623);
    let address = Mac(mac(2)).to_string();
    claim(&left, at(AddressKind::Mac, &address), (67, 21623));
    exchange(&mut near, &mut far, &[100]);
    let mut hostile = Peer::of(&left, 69, 70, 21624);
    hostile.advertise(mac(2), wall_ns());
    hostile.until(|_| left.link_counter("peer", "addresses_foreign_total") == 1);
    exchange(&mut near, &mut far, &[100, 1000]);
    wait_counter(&left, LINK, "transmit_packets_total", 3);
}
