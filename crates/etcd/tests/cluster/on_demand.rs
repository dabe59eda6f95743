//! Links of a cluster are dormant without traffic.

use serde_json::Value;

use crate::hosts::{EtcdServer, Host, cross, mac, stream, udp_port};

/// Returns a value of the link from one host to another.
fn link(host: &Host, to: u8, key: &str) -> Value {
    let links = host.get("/v1/links");
    let name = format!("cluster-h{to}-7");
    let mut all = links.as_array().into_iter().flatten();
    all.find(|link| link["name"] == name.as_str()).map_or(Value::Null, |link| link[key].clone())
}

/// Waits until the link from one host to another has this state.
fn await_link(host: &Host, to: u8, state: &str) {
    host.await_view("/v1/links", |_| link(host, to, "state") == state);
}

#[test]
fn cluster_links_are_dormant_until_guests_talk() {
    let etcd = EtcdServer::start();
    etcd.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let (a, b, c) =
        (Host::start(1, &etcd, port), Host::start(2, &etcd, port), Host::start(3, &etcd, port));
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    a.await_view("/v1/cluster/addresses", |all| all[0]["host"] == "h2");
    b.await_view("/v1/cluster/addresses", |all| all[0]["host"] == "h1");
    for (host, to) in [(&a, 2), (&b, 1), (&a, 3), (&c, 1)] {
        await_link(host, to, "dormant");
        assert_eq!(link(host, to, "ups_total"), 0, "no session before the first frame");
    }
    let (to_b, to_a) = ((mac(1, 0), mac(2, 0)), (mac(2, 0), mac(1, 0)));
    cross(&mut on_a, to_b, &mut on_b);
    await_link(&a, 2, "up");
    await_link(&b, 1, "up");
    // After the idle time both ends are dormant, and no frame is lost when they wake.
    for _ in 0..2 {
        await_link(&a, 2, "dormant");
        await_link(&b, 1, "dormant");
        stream(&mut on_b, to_a, &mut on_a, 10);
        stream(&mut on_a, to_b, &mut on_b, 10);
    }
    assert_eq!(link(&a, 2, "counters")["drop_unanswered_total"], 0);
    assert_eq!((link(&a, 3, "ups_total"), link(&c, 1, "ups_total")), (0.into(), 0.into()));
}
