//! Frontends that come again and again: so many a second, the others wait.

mod common;

use std::os::unix::net::UnixStream;

use causeway_ethernet::Ethernet;
use causeway_fabric::limits::{CONNECTS_PER_SECOND, SHUT_NS};
use causeway_fabric::spec::{PortKind, PortSpec};
use causeway_fabric::{Pacing, Shard};
use common::net;

#[test]
fn hostile_reconnects_are_taken_at_a_bounded_rate() {
    let name = format!("hostile-reconnects-{}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let group = "red".parse().unwrap();
    let service = Box::new(Ethernet::new());
    let mut shard = Shard::new(group, service, Pacing::default()).unwrap();
    let kind = PortKind::Net(net(1));
    let (name, group) = ("p1".parse().unwrap(), "red".parse().unwrap());
    let spec = PortSpec { name, group, socket: socket.clone(), kind };
    shard.port_add(spec, true).unwrap();
    let taken = |shard: &Shard| shard.port_view(&"p1".parse().unwrap()).unwrap().connects_total;
    let storm = |shard: &mut Shard, now: u64| {
        for _ in 0..100 {
            let gone = UnixStream::connect(&socket).unwrap();
            drop(gone);
            shard.step(now, 8).unwrap();
            shard.step(now, 8).unwrap();
        }
    };
    let begin = 1_000_000_000;
    storm(&mut shard, begin);
    assert_eq!(taken(&shard), CONNECTS_PER_SECOND);
    assert_eq!(shard.deadline_ns(), Some(begin + SHUT_NS), "nothing is looked at before");
    // Those who wait are taken when their time has come, and nobody was turned away.
    let mut now = begin;
    for _ in 0..10 {
        now += SHUT_NS;
        for _ in 0..100 {
            shard.step(now, 8).unwrap();
        }
    }
    assert_eq!(taken(&shard), 2 * CONNECTS_PER_SECOND);
    for _ in 0..20 {
        now += SHUT_NS;
        for _ in 0..100 {
            shard.step(now, 8).unwrap();
        }
    }
    assert_eq!(taken(&shard), 100);
    assert_eq!(shard.deadline_ns(), None);
}
