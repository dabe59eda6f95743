//! AF_VSOCK between hosts of a site: CIDs are claimed, and a connect finds the host by the claim.

use causeway_attach::native::Sockets;
use causeway_wire::vsock::Type;
use serde_json::Value;

use crate::hosts::{EtcdServer, Host, PATIENCE, SHARED_CID, cid, udp_port, wait};

/// Connects to a CID until a guest with it answers, and moves bytes in both directions.
pub fn cross(from: &mut Sockets, to: &mut Sockets, number: u32) {
    let cid = to.cid();
    to.listen(Type::Stream, number);
    let mut text = [0; 5];
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let id = to.accept(PATIENCE).unwrap();
            let mut text = [0; 5];
            to.receive(id, &mut text, PATIENCE).unwrap();
            to.send(id, &text, PATIENCE).unwrap();
        });
        // The session between the hosts may have to begin first.
        let connect = || from.connect(Type::Stream, cid, number, PATIENCE).ok();
        let id = wait(&format!("CID {cid} is reached"), connect);
        from.send(id, b"hello", PATIENCE).unwrap();
        from.receive(id, &mut text, PATIENCE).unwrap();
        server.join().unwrap();
    });
    assert_eq!(&text, b"hello");
}

/// Returns the host that has a CID, by the addresses of the cluster.
pub fn owner(addresses: &Value, cid: u32) -> Option<&str> {
    let (mut all, cid) = (addresses.as_array()?.iter(), cid.to_string());
    let found = all.find(|at| at["kind"] == "cid" && at["address"] == cid.as_str())?;
    found["host"].as_str()
}

#[test]
fn cluster_vsock_connect_finds_the_host_by_its_claim() {
    let etcd = EtcdServer::start();
    etcd.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let [a, b, c] = [1, 2, 3].map(|number| Host::start(number, &etcd, port));
    let [mut on_a, mut on_b, mut on_c] = [&a, &b, &c].map(|h| h.attach_sockets(cid(h.number)));
    for (host, other) in [(&a, &b), (&b, &a), (&c, &a)] {
        let name = format!("h{}", other.number);
        host.await_view("/v1/cluster/addresses", |all| {
            owner(all, cid(other.number)) == Some(name.as_str())
        });
    }
    cross(&mut on_a, &mut on_b, 5);
    cross(&mut on_b, &mut on_a, 5);

    // Two hosts have a guest with one CID: the newer is followed, with an alarm at the older.
    let mut older = a.attach_sockets(SHARED_CID);
    c.await_view("/v1/cluster/addresses", |all| owner(all, SHARED_CID) == Some("h1"));
    cross(&mut on_c, &mut older, 6);
    let mut newer = b.attach_sockets(SHARED_CID);
    for host in [&a, &c] {
        host.await_view("/v1/cluster/addresses", |all| owner(all, SHARED_CID) == Some("h2"));
    }
    cross(&mut on_c, &mut newer, 6);
    let status = a.await_view("/v1/cluster", |view| {
        view["status"]["alarm"].as_str().is_some_and(|alarm| alarm.contains("cid 200"))
    });
    assert_eq!(status["status"]["counters"]["claims_lost_total"], 1);
    // A running port of the own host is preferred.
    cross(&mut on_a, &mut older, 7);
    cross(&mut on_b, &mut newer, 7);

    // The newer guest leaves: the older one is reached again.
    drop(newer);
    c.await_view("/v1/cluster/addresses", |all| owner(all, SHARED_CID) == Some("h1"));
    cross(&mut on_c, &mut older, 8);
    a.await_view("/v1/cluster", |view| view["status"]["alarm"] == "");
}
