//! Hosts that contend for addresses and names, hosts that return, and confirmed removals.

use serde_json::Value;

use crate::hosts::{EtcdServer, Host, SHARED, cross, mac, stream, udp_port, wait};

const PREFIX: &str = "/causeway/v1/lab/";

fn alarm(view: &Value) -> &str {
    view["status"]["alarm"].as_str().unwrap_or_default()
}

/// Returns the host of the shared address in a view.
fn owner(view: &Value) -> Option<&str> {
    let all = view.as_array()?;
    let shared = all.iter().find(|known| known["address"] == "52:54:00:00:ff:04")?;
    shared["host"].as_str()
}

#[test]
fn cluster_address_of_two_hosts_is_that_of_the_newer_claim() {
    let server = EtcdServer::start();
    server.verb(&["init", "--group", "blue=7"]);
    let port = udp_port();
    let [a, b, c] = [1, 2, 3].map(|number| Host::start(number, &server, port));
    let (mut on_a, mut on_c) = (a.attach(4), c.attach(0));
    c.await_view("/v1/cluster/addresses", |all| owner(all) == Some("h1"));
    cross(&mut on_c, (mac(3, 0), SHARED), &mut on_a);

    let mut on_b = b.attach(4);
    for host in [&a, &c] {
        host.await_view("/v1/cluster/addresses", |all| owner(all) == Some("h2"));
    }
    cross(&mut on_c, (mac(3, 0), SHARED), &mut on_b);
    a.await_view("/v1/cluster", |view| view["status"]["counters"]["claims_lost_total"] == 1);
    // A guest of the host that lost the claim still reaches its neighbour by it.
    let mut beside = a.attach(0);
    cross(&mut beside, (mac(1, 0), SHARED), &mut on_a);

    // The newer guest leaves: the other one has the address again.
    drop(on_b);
    c.await_view("/v1/cluster/addresses", |all| owner(all) == Some("h1"));
    cross(&mut on_c, (mac(3, 0), SHARED), &mut on_a);
    let counters = b.get("/v1/cluster")["status"]["counters"].clone();
    assert_eq!(counters["claims_lost_total"], 0);
}

#[test]
fn cluster_nic_name_of_two_hosts_is_alarmed_until_one_nic_is_deleted() {
    const NIC: &str = r#"{"name":"mx0","group":"blue","kind":"mx","hostname":"node:0"}"#;
    let server = EtcdServer::start();
    server.verb(&["init", "--group", "blue=7"]);
    let port = udp_port();
    let [a, b, c] = [1, 2, 3].map(|number| Host::start(number, &server, port));
    let is_at = |all: &Value, host: &str| {
        let all = all.as_array().into_iter().flatten();
        let mut nics = all.filter(|known| known["kind"] == "nic");
        nics.any(|known| known["address"] == "node:0" && known["host"] == host)
    };
    a.post("/v1/ports", NIC);
    // Slashes separate in keys, so this name is not claimed, and disturbs no other.
    a.post("/v1/ports", r#"{"name":"mx1","group":"blue","kind":"mx","hostname":"node/1"}"#);
    c.await_view("/v1/cluster/addresses", |all| is_at(all, "h1"));
    b.post("/v1/ports", NIC);
    c.await_view("/v1/cluster/addresses", |all| is_at(all, "h2"));
    a.await_view("/v1/cluster", |view| alarm(view).contains("h2 claims the NIC name node:0"));
    assert_eq!(b.change("DELETE", "/v1/ports/mx0", "").0, 204);
    c.await_view("/v1/cluster/addresses", |all| is_at(all, "h1"));
    a.await_view("/v1/cluster", |view| alarm(view).is_empty());
    let known = c.get("/v1/cluster/addresses");
    let nics = known.as_array().into_iter().flatten().filter(|known| known["kind"] == "nic");
    assert_eq!(nics.count(), 1, "{known}");
}

#[test]
fn cluster_host_that_uses_the_name_of_another_is_alarmed_and_changes_nothing() {
    let server = EtcdServer::start();
    server.verb(&["init", "--group", "blue=7"]);
    let port = udp_port();
    let (a, b) = (Host::start(1, &server, port), Host::start(2, &server, port));
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let to_a = (mac(2, 0), mac(1, 0));
    cross(&mut on_b, to_a, &mut on_a);
    b.await_view("/v1/cluster/addresses", |all| all[0]["host"] == "h1");

    let mut clone = Host::start_at((3, "h1"), server.url(), port, None);
    a.await_view("/v1/cluster", |view| alarm(view).contains("uses the name h1"));
    b.await_view("/v1/cluster", |view| alarm(view).contains("another signing key"));
    stream(&mut on_b, to_a, &mut on_a, 100);
    assert_eq!(b.get("/v1/cluster/addresses")[0]["host"], "h1");

    // The clone ends: the host is seen again, with its own record.
    clone.end_directory();
    a.await_view("/v1/cluster", |view| alarm(view).is_empty());
    b.await_view("/v1/cluster", |view| alarm(view).is_empty() && view["hosts_seen"] == 1);
    stream(&mut on_b, to_a, &mut on_a, 20);
}

#[test]
fn cluster_host_with_a_copied_state_is_alarmed() {
    let server = EtcdServer::start();
    server.verb(&["init", "--group", "blue=7"]);
    let port = udp_port();
    let a = Host::start(1, &server, port);
    a.await_state("follows");
    wait("the host has a signing key", || a.state().join("signing.key").exists().then_some(()));
    let mut copy = Host::start_copy(3, &a, port);
    a.await_view("/v1/cluster", |view| alarm(view).contains("another process"));
    copy.end_directory();
    a.await_view("/v1/cluster", |view| alarm(view).is_empty());
}

#[test]
fn cluster_host_that_rejoins_is_seen_and_reached_again() {
    let server = EtcdServer::start();
    server.verb(&["init", "--group", "blue=7"]);
    let port = udp_port();
    let (a, mut b) = (Host::start(1, &server, port), Host::start(2, &server, port));
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let to_b = (mac(1, 0), mac(2, 0));
    cross(&mut on_a, to_b, &mut on_b);
    let epoch = |view: &Value| view[0]["epoch"].as_u64().unwrap_or(0);
    let before = epoch(&a.await_view("/v1/cluster/hosts", |hosts| hosts[0]["seen"] == true));

    // Its process ends: the host is unseen, and nothing of it is removed.
    b.end_directory();
    a.await_view("/v1/cluster", |view| view["hosts_seen"] == 0 && view["addresses"] == 1);
    stream(&mut on_a, to_b, &mut on_b, 50);
    b.start_directory();
    let hosts = a.await_view("/v1/cluster/hosts", |hosts| hosts[0]["seen"] == true);
    assert!(epoch(&hosts) > before);

    // The whole host dies without a word, and starts anew.
    b.kill_directory();
    b.kill_daemon();
    drop(on_b);
    b.start_daemon();
    b.start_directory();
    let mut on_b = b.attach(0);
    cross(&mut on_a, to_b, &mut on_b);

    // Installed anew, with another signing key: refused until it is evicted and readmitted.
    b.end_directory();
    std::fs::remove_dir_all(b.state()).unwrap();
    b.start_directory();
    a.await_view("/v1/cluster", |view| alarm(view).contains("another signing key"));
    server.verb(&["evict", "h2", "--reason", "installed anew"]);
    a.await_view("/v1/cluster", |view| view["hosts"] == 0);
    a.await_view("/v1/cluster", |view| view["status"]["evicted"][0] == "h2");
    server.verb(&["readmit", "h2"]);
    a.await_view("/v1/cluster", |view| view["hosts_seen"] == 1 && alarm(view).is_empty());
    cross(&mut on_a, to_b, &mut on_b);
}

#[test]
fn cluster_removals_are_held_until_each_is_confirmed() {
    let server = EtcdServer::start();
    server.verb(&["init", "--group", "blue=7"]);
    let port = udp_port();
    let (a, b) = (Host::start(1, &server, port), Host::start(2, &server, port));
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let to_b = (mac(1, 0), mac(2, 0));
    let release = || {
        let state = a.state().display().to_string();
        server.verb(&["release", "--state", &state]);
        wait("the confirmation is taken", || (!a.state().join("release").exists()).then_some(()));
    };
    let links = |count| move |links: &Value| links.as_array().is_some_and(|l| l.len() == count);
    for _ in 0..2 {
        cross(&mut on_a, to_b, &mut on_b);
        a.await_view("/v1/cluster", |view| view["addresses"] == 1 && alarm(view).is_empty());
        server.wipe(PREFIX);
        a.await_view("/v1/cluster", |view| alarm(view).contains("removals are held"));
        assert_eq!(a.get("/v1/links").as_array().map(Vec::len), Some(1));
        // Confirmed twice: the second has nothing to confirm, and does not count for later.
        release();
        a.await_view("/v1/cluster", |view| alarm(view).is_empty());
        a.await_view("/v1/links", links(0));
        release();
        server.verb(&["init", "--group", "blue=7"]);
        a.await_view("/v1/links", links(1));
        b.await_view("/v1/cluster", |view| alarm(view).is_empty());
    }
    let held = a.get("/v1/cluster")["status"]["counters"]["removals_held_total"].as_u64();
    assert!(held >= Some(2), "{held:?}");
}
