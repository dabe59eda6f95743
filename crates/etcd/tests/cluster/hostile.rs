//! Hostile records, and a wipe of etcd.

use std::time::Duration;

use causeway_cluster::{ClaimRecord, SigningKey};
use causeway_etcd::client::Etcd;
use causeway_etcd::stream::Security;
use causeway_model::{AddressKind, ClusterAddress};
use serde_json::Value;

use crate::hosts::{EtcdServer, Host, cross, mac, stream, udp_port, wait};

const PREFIX: &str = "/causeway/v1/lab/";

/// Returns the number of refused claims that a host counted.
fn refused(host: &Host) -> u64 {
    let view = host.get("/v1/cluster");
    view["status"]["counters"]["claims_refused_total"].as_u64().unwrap_or(0)
}

fn has_alarm(view: &Value) -> bool {
    view["status"]["alarm"].as_str().is_some_and(|alarm| !alarm.is_empty())
}

/// Waits until etcd has a number of claims.
fn await_claims(etcd: &mut Etcd, count: usize) {
    wait("every host claims anew", || {
        let items = etcd.list(PREFIX).unwrap().items;
        let is_claim = |key: &[u8]| String::from_utf8_lossy(key).contains("/mac/");
        (items.iter().filter(|item| is_claim(&item.key)).count() == count).then_some(())
    });
}

/// Confirms removals on a host that holds none, and waits until the host has dropped the file.
fn confirm_without_hold(server: &EtcdServer, host: &Host) {
    let state = host.state();
    server.verb(&["release", "--state", &state.display().to_string()]);
    wait("the confirmation is removed", || (!state.join("release").exists()).then_some(()));
}

#[test]
fn cluster_refuses_hostile_records_and_survives_a_wipe() {
    let server = EtcdServer::start();
    server.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let (a, b) = (Host::start(1, &server, port), Host::start(2, &server, port));
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let (to_b, to_a) = ((mac(1, 0), mac(2, 0)), (mac(2, 0), mac(1, 0)));
    cross(&mut on_a, to_b, &mut on_b);
    cross(&mut on_b, to_a, &mut on_a);
    let owner = |all: &Value| all[0]["host"] == "h1";
    b.await_view("/v1/cluster/addresses", owner);

    // Garbage, a huge value, and a forged claim with a newer epoch at the key of A's address.
    let mut etcd = Etcd::new(vec![server.url().parse().unwrap()], Security::default(), None);
    let key = format!("{PREFIX}mac/blue/52:54:00:00:01:00");
    let mut genuine = None;
    for item in etcd.list(PREFIX).unwrap().items {
        if item.key == key.as_bytes() {
            genuine = item.value;
        }
    }
    let genuine = genuine.expect("the address is claimed");
    let at = ClusterAddress {
        kind: AddressKind::Mac,
        group: "blue".parse().unwrap(),
        address: "52:54:00:00:01:00".into(),
    };
    let (site, h2) = ("lab".parse().unwrap(), "h2".parse().unwrap());
    let stranger = SigningKey::new([9; 32]).unwrap();
    let epoch = u64::MAX / 2;
    let forged = ClaimRecord::new((&site, &at), (&h2, &stranger), epoch, false).write();
    for hostile in [b"[".repeat(3), vec![b'x'; 500_000], forged] {
        let before = refused(&b);
        etcd.put(&key, &hostile, None).unwrap();
        wait("the record is refused", || (refused(&b) > before).then_some(()));
        assert!(owner(&b.get("/v1/cluster/addresses")));
        // A writes its claim again.
        wait("the claim is repaired", || {
            let items = etcd.list(PREFIX).unwrap().items;
            let mut found = items.iter().filter(|item| item.key == key.as_bytes());
            found.any(|item| item.value.as_ref() == Some(&genuine)).then_some(())
        });
    }
    etcd.put(&format!("{PREFIX}mac/../x"), b"x", None).unwrap();

    // A confirmation while nothing is held does not count for later.
    confirm_without_hold(&server, &a);

    // A wipe: removals are held, traffic goes on, and every host claims anew.
    let _others: Vec<_> = (1..4).flat_map(|guest| [a.attach(guest), b.attach(guest)]).collect();
    for host in [&a, &b] {
        host.await_view("/v1/cluster/addresses", |all| {
            all.as_array().is_some_and(|a| a.len() == 4)
        });
    }
    server.wipe(PREFIX);
    a.await_view("/v1/cluster", has_alarm);
    stream(&mut on_a, to_b, &mut on_b, 200);
    await_claims(&mut etcd, 8);
    // The group is missing: the hold stands, with the links.
    std::thread::sleep(Duration::from_secs(3));
    assert!(has_alarm(&a.get("/v1/cluster")) && has_alarm(&b.get("/v1/cluster")));
    assert_eq!(a.get("/v1/links").as_array().map(Vec::len), Some(1));
    stream(&mut on_b, to_a, &mut on_a, 200);
    assert!(has_alarm(&a.get("/v1/cluster")));
    server.verb(&["group", "add", "blue", "--vni", "7"]);
    a.await_view("/v1/cluster", |view| !has_alarm(view) && view["hosts_seen"] == 1);
    stream(&mut on_a, to_b, &mut on_b, 20);
}
