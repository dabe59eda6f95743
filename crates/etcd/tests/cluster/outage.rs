//! Hosts find each other through etcd, and forward without it.

use crate::hosts::{EtcdServer, Host, cross, mac, stream, udp_port};

#[test]
fn cluster_links_hosts_by_themselves_and_forwards_without_etcd() {
    let mut etcd = EtcdServer::start();
    etcd.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let (mut a, b) = (Host::start(1, &etcd, port), Host::start(2, &etcd, port));
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let (to_b, to_a) = ((mac(1, 0), mac(2, 0)), (mac(2, 0), mac(1, 0)));
    cross(&mut on_a, to_b, &mut on_b);
    cross(&mut on_b, to_a, &mut on_a);

    // The link is encrypted, with the key of the host's record, and each side knows the address.
    let links = a.get("/v1/links");
    assert_eq!(
        (&links[0]["kind"], &links[0]["name"]),
        (&"causeway".into(), &"cluster-h2-7".into())
    );
    assert_eq!(links[0]["is_of_cluster"], true);
    let configuration = a.get("/v1/config").to_string();
    assert!(configuration.contains("vm1") && !configuration.contains("cluster-h2"));
    let known = a.await_view("/v1/cluster/addresses", |all| all[0]["host"] == "h2");
    assert_eq!(known[0]["address"], "52:54:00:00:02:00");
    b.await_view("/v1/cluster/addresses", |all| all[0]["address"] == "52:54:00:00:01:00");
    assert_eq!(a.await_state("follows")["hosts_seen"], 1);

    // etcd dies: traffic goes on, and nothing is removed.
    etcd.kill();
    stream(&mut on_a, to_b, &mut on_b, 200);
    a.await_state("frozen");
    stream(&mut on_b, to_a, &mut on_a, 200);
    assert_eq!(a.get("/v1/cluster")["addresses"], 1);

    // Both processes of a host restart during the outage: the snapshot restores its links.
    a.kill_directory();
    a.kill_daemon();
    drop(on_a);
    a.start_daemon();
    assert_eq!(a.get("/v1/cluster")["complete"], false);
    a.start_directory();
    a.await_view("/v1/cluster", |view| view["complete"] == true && view["addresses"] == 1);
    let mut on_a = a.attach(0);
    cross(&mut on_b, to_a, &mut on_a);
    cross(&mut on_a, to_b, &mut on_b);
    assert_eq!(a.get("/v1/cluster")["addresses"], 1);

    // etcd returns: changes are followed again.
    etcd.restart();
    a.await_state("follows");
    b.await_state("follows");
    let mut later = b.attach(1);
    a.await_view("/v1/cluster/addresses", |all| all[1]["address"] == "52:54:00:00:02:01");
    cross(&mut on_a, (mac(1, 0), mac(2, 1)), &mut later);

    // An evicted host loses its links on the other hosts.
    etcd.verb(&["evict", "h2"]);
    a.await_view("/v1/links", |links| links.as_array().is_some_and(Vec::is_empty));
    a.await_view("/v1/cluster/hosts", |hosts| hosts.as_array().is_some_and(Vec::is_empty));
}
