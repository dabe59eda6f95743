//! Frontends that reconnect or reconfigure repeatedly: the rate is bounded, and further requests
//! wait.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::{Rig, mac, net, plain, port_spec, receive, send, wait};
use causeway_attach::limits::MAPPING_COST;
use causeway_attach::native::Client;
use causeway_attach::vhost_user::message::RegionSpec;
use causeway_ethernet::Ethernet;
use causeway_fabric::limits::{CONNECTS_PER_SECOND, LISTENER_PAUSE_NS, MESSAGES_PER_SECOND};
use causeway_fabric::{PollConfig, Shard};
use causeway_model::{PortState, PortView};
use causeway_wire::virtio_net::Header;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Each change of the memory table flushes the TLBs of all processors, also those of other tenants.
/// A bounded number is accepted each second; the next waits, and traffic of the port continues.
#[test]
fn hostile_memory_tables_are_accepted_at_a_bounded_rate() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.port("one", net(1), 0), rig.port("two", net(2), 0));
    rig.wait_running(&["one", "two"]);
    let (since, mut changes) = (Instant::now(), 0);
    while since.elapsed() < Duration::from_secs(2) {
        one.frontend().grant_again().unwrap();
        changes += 1;
    }
    // The burst allowance, and a part of a turn more.
    let most = MESSAGES_PER_SECOND as f64 / MAPPING_COST as f64;
    let allowed = most * (1.0 + since.elapsed().as_secs_f64()) + 64.0;
    assert!((most as u64..allowed as u64).contains(&changes), "{changes} of {allowed}");
    assert_eq!(rig.view("one").faults_total, 0);
    let frame = plain(1, mac(2), b"still here");
    send(&mut one, &Header::default(), &frame);
    assert_eq!(receive(&mut two).1, frame);
}

#[test]
fn hostile_grants_that_exhaust_addresses_are_no_fault_of_a_later_frontend() {
    const HUGE: u64 = 4 << 40;
    let rig = Rig::new();
    let file = memfd_create("huge", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, HUGE).unwrap();
    let mut attached = Vec::new();
    let scarce = |view: &PortView| view.host_faults_total > 0;
    let view = loop {
        let name = format!("p{}", attached.len());
        rig.try_add(&name, "red", net(u8::try_from(attached.len()).unwrap())).unwrap();
        let mut client = Client::connect(&rig.path(&name)).unwrap();
        let region = RegionSpec { guest: 0, len: HUGE, user: 0, offset: 0 };
        let _ = client.grant(&region, file.as_fd());
        wait(
            || scarce(&rig.view(&name)) || rig.view(&name).memory_bytes == HUGE,
            || format!("{:?}", rig.view(&name)),
        );
        let view = rig.view(&name);
        if scarce(&view) {
            break view;
        }
        attached.push(client);
        assert!(attached.len() < 28, "half of all addresses are left");
    };
    assert_eq!((view.state, view.faults_total), (PortState::Listening, 0), "{view:?}");
    assert_eq!((view.fault, view.host_faults_total), (None, 1));
    assert!(view.host_fault.unwrap().contains("this host's address space is scarce"));
}

#[test]
fn hostile_reconnects_are_accepted_at_a_bounded_rate() {
    let name = format!("hostile-reconnects-{}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let group = "red".parse().unwrap();
    let service = Box::new(Ethernet::new());
    let mut shard = Shard::new(group, service, PollConfig::default()).unwrap();
    shard.port_add(port_spec("p1", "red", &socket, net(1)), true).unwrap();
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
    assert_eq!(shard.deadline_ns(), Some(begin + LISTENER_PAUSE_NS), "no earlier deadline");
    // Waiting frontends are accepted later; none is refused.
    let mut now = begin;
    for _ in 0..10 {
        now += LISTENER_PAUSE_NS;
        for _ in 0..100 {
            shard.step(now, 8).unwrap();
        }
    }
    assert_eq!(taken(&shard), 2 * CONNECTS_PER_SECOND);
    for _ in 0..20 {
        now += LISTENER_PAUSE_NS;
        for _ in 0..100 {
            shard.step(now, 8).unwrap();
        }
    }
    assert_eq!(taken(&shard), 100);
    assert_eq!(shard.deadline_ns(), None);
}
