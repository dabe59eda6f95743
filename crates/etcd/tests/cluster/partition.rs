//! Failures of the path to etcd, and an etcd that hangs.

use causeway_etcd::client::Etcd;
use causeway_etcd::stream::Security;
use rustix::process::Signal;
use serde_json::Value;

use crate::hosts::{EtcdServer, Host, cross, mac, stream, udp_port, wait};
use crate::proxy::Proxy;

const PREFIX: &str = "/causeway/v1/lab/";

/// Returns the addresses of other hosts that a view has.
fn listed(view: &Value) -> Vec<&str> {
    let all = view.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|address| address["address"].as_str()).collect()
}

/// Returns two hosts, the first behind a proxy.
fn hosts(server: &EtcdServer, proxy: &Proxy) -> (Host, Host) {
    server.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let a = Host::start_at((1, "h1"), proxy.url(), port, None);
    (a, Host::start(2, server, port))
}

#[test]
fn cluster_partition_with_compaction_ends_with_a_list_and_the_difference() {
    let server = EtcdServer::start();
    let mut proxy = Proxy::start(server.port());
    let (a, b) = hosts(&server, &proxy);
    let (mut on_a, mut on_b, leaving) = (a.attach(0), b.attach(0), b.attach(1));
    let (to_b, to_a) = ((mac(1, 0), mac(2, 0)), (mac(2, 0), mac(1, 0)));
    cross(&mut on_a, to_b, &mut on_b);
    cross(&mut on_b, to_a, &mut on_a);
    a.await_view("/v1/cluster/addresses", |all| listed(all).len() == 2);

    proxy.cut();
    a.await_state("frozen");
    // Changes that the host does not see: a guest leaves and another one comes, and their
    // revisions are compacted.
    drop(leaving);
    let _coming = b.attach(2);
    let mut etcd = Etcd::new(vec![server.url().parse().unwrap()], Security::default(), None);
    let value = |etcd: &mut Etcd, guest: u8| {
        let key = format!("{PREFIX}mac/blue/52:54:00:00:02:{guest:02x}");
        etcd.get(&key).unwrap().and_then(|event| String::from_utf8(event.value?).ok())
    };
    wait("the guest is withdrawn, and the other one claimed", || {
        let is_gone = value(&mut etcd, 1).is_none_or(|text| text.contains("gone"));
        (is_gone && value(&mut etcd, 2).is_some()).then_some(())
    });
    let revision = etcd.list(PREFIX).unwrap().revision;
    let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
    server.post("/v3/kv/compaction", &body, None);
    stream(&mut on_a, to_b, &mut on_b, 200);
    stream(&mut on_b, to_a, &mut on_a, 200);
    assert_eq!(listed(&a.get("/v1/cluster/addresses")).len(), 2, "nothing is removed");

    proxy.heal();
    a.await_state("follows");
    a.await_view("/v1/cluster/addresses", |all| {
        listed(all) == ["52:54:00:00:02:00", "52:54:00:00:02:02"]
    });
    stream(&mut on_a, to_b, &mut on_b, 20);
}

#[test]
fn cluster_watch_over_a_lost_path_is_found_by_the_probe() {
    let server = EtcdServer::start();
    let proxy = Proxy::start(server.port());
    let (a, b) = hosts(&server, &proxy);
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let to_b = (mac(1, 0), mac(2, 0));
    cross(&mut on_a, to_b, &mut on_b);
    a.await_view("/v1/cluster/addresses", |all| listed(all).len() == 1);
    // The watch is open and delivers nothing; requests on new connections are answered.
    proxy.stall();
    let _coming = b.attach(1);
    stream(&mut on_a, to_b, &mut on_b, 200);
    a.await_view("/v1/cluster/addresses", |all| listed(all).len() == 2);
    let view = a.await_state("follows");
    assert_eq!(view["status"]["counters"]["resyncs_total"], 2);
}

#[test]
fn cluster_forwards_while_etcd_hangs_and_follows_it_afterwards() {
    let server = EtcdServer::start();
    server.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let (a, b) = (Host::start(1, &server, port), Host::start(2, &server, port));
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let (to_b, to_a) = ((mac(1, 0), mac(2, 0)), (mac(2, 0), mac(1, 0)));
    cross(&mut on_a, to_b, &mut on_b);
    cross(&mut on_b, to_a, &mut on_a);
    a.await_view("/v1/cluster/addresses", |all| listed(all).len() == 1);

    server.signal(Signal::STOP);
    let _coming = b.attach(1);
    stream(&mut on_a, to_b, &mut on_b, 200);
    a.await_state("frozen");
    b.await_state("frozen");
    stream(&mut on_b, to_a, &mut on_a, 200);
    assert_eq!(listed(&a.get("/v1/cluster/addresses")).len(), 1);

    server.signal(Signal::CONT);
    a.await_view("/v1/cluster/addresses", |all| listed(all).len() == 2);
    a.await_state("follows");
    b.await_state("follows");
    stream(&mut on_a, to_b, &mut on_b, 20);
}
