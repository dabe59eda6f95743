//! Rules and forwarding of the site, from a group's record to every host.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_attach::native::{SocketError, Sockets};
use causeway_testing::folder::Folder;
use causeway_wire::vsock::Type;
use serde_json::{Value, json};

use crate::hosts::{EtcdServer, Host, PATIENCE, cid, cross, mac, udp_port, wait};
use crate::sockets;

/// Port number that the site's rules reject.
const SHUT: u32 = 22;

/// Connects, and asserts that the connect is refused.
fn assert_refused(from: &mut Sockets, to: u64) {
    let refused = from.connect(Type::Stream, to, SHUT, PATIENCE);
    assert!(matches!(refused, Err(SocketError::Reset)), "{refused:?}");
}

/// Returns the rules of the site in a list of rules.
fn of_site(rules: &Value) -> Vec<Value> {
    let all = rules.as_array().unwrap().iter();
    all.filter(|rule| rule["origin"] == "cluster").cloned().collect()
}

/// Waits until hosts have a number of rules of the site.
fn await_rules(hosts: &[&Host], count: usize) {
    for host in hosts {
        host.await_view("/v1/rules", |rules| of_site(rules).len() == count);
    }
}

/// Writes the record of group `blue` past the verbs.
fn put(etcd: &EtcdServer, record: &Value) {
    let (key, value) = ("/causeway/v1/lab/group/blue", record.to_string());
    let body = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) });
    etcd.post("/v3/kv/put", &body.to_string(), None);
}

#[test]
fn cluster_rules_of_the_site_come_before_those_of_each_host() {
    let mut etcd = EtcdServer::start();
    etcd.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let [mut a, b] = [1, 2].map(|number| Host::start(number, &etcd, port));
    let (mut on_a, mut on_b) = (a.attach_sockets(cid(1)), b.attach_sockets(cid(2)));
    for (host, other) in [(&a, 2), (&b, 1)] {
        let owner = format!("h{other}");
        host.await_view("/v1/cluster/addresses", |all| {
            sockets::owner(all, cid(other)) == Some(&owner)
        });
    }
    sockets::cross(&mut on_a, &mut on_b, SHUT);

    let folder = Folder::new("rules");
    let file = folder.join("blue.toml");
    let text = format!("[[rule]]\naction = \"reject\"\nto = \"blue/*:{SHUT}\"\n");
    std::fs::write(&file, text).unwrap();
    let set = ["group", "set", "blue", "--rules", file.to_str().unwrap()];
    etcd.verb(&set);
    await_rules(&[&a, &b], 1);
    assert_refused(&mut on_a, on_b.cid());
    let rules = a.get("/v1/rules");
    assert_eq!((&rules[0]["group"], &rules[0]["hits_total"]), (&json!("blue"), &json!(1)));
    // No rule of a host weakens the site, or is taken for that of the site.
    a.post("/v1/rules", r#"{"action":"accept","index":0}"#);
    assert_refused(&mut on_a, on_b.cid());
    sockets::cross(&mut on_a, &mut on_b, SHUT + 1);
    let (status, text) = a.change("DELETE", "/v1/rules/blue:0", "");
    assert!(status == 409 && text.contains("causeway cluster group set blue"), "{status} {text}");
    assert_eq!(a.change("DELETE", "/v1/rules/blue:1", "").0, 404);

    // A record that is refused changes nothing; one with values of a later release is followed.
    let foreign = json!([{ "action": "accept", "to": "red/*:22" }]);
    put(&etcd, &json!({ "v": 1, "vni": 7, "rules": foreign }));
    b.await_view("/v1/cluster", |view| {
        view["status"]["counters"]["refused_malformed_total"] == 1
            && view["status"]["alarm"].as_str().unwrap().contains("group blue")
    });
    assert_eq!(of_site(&b.get("/v1/rules"))[0]["to"], "blue/*:22");
    let two = json!([{ "action": "reject", "to": "blue/*:22" }, { "action": "accept" }]);
    put(&etcd, &json!({ "v": 1, "vni": 7, "rules": two, "later": { "x": 1 } }));
    await_rules(&[&a, &b], 2);
    b.await_view("/v1/cluster", |view| view["status"]["alarm"] == "");

    // Without etcd a restarted daemon has the rules before its process reports, once both wrote them.
    for file in [a.file("state.toml.site"), a.state().join("snapshot.json")] {
        let has_both = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("accept"));
        wait(&format!("{} has both rules", file.display()), || has_both().then_some(()));
    }
    etcd.kill();
    a.kill_directory();
    a.kill_daemon();
    a.start_daemon();
    await_rules(&[&a], 2);
    let mut on_a = a.attach_sockets(cid(1));
    assert_refused(&mut on_a, u64::from(cid(2)));
    a.start_directory();
    a.await_state("frozen");
    await_rules(&[&a], 2);

    etcd.restart();
    etcd.verb(&["group", "set", "blue", "--no-rules"]);
    assert!(etcd.verb(&["export"]).contains("later"), "a value that is not known stays");
    await_rules(&[&a, &b], 0);
    sockets::cross(&mut on_a, &mut on_b, SHUT);
}

#[test]
fn cluster_forwarding_of_the_site_is_followed_while_the_group_runs() {
    let etcd = EtcdServer::start();
    etcd.verb(&["group", "set", "blue", "--vni", "7", "--forwarding", "routes"]);
    let a = Host::start(1, &etcd, udp_port());
    let (mut vm0, mut vm1) = (a.attach(0), a.attach(1));
    let is_site = |word: Value| move |group: &Value| group["site_forwarding"] == word;
    a.await_view("/v1/groups/blue", is_site(json!("routes")));
    let frame = [&mac(1, 1)[..], &mac(1, 0), &[0x88, 0xb5], &[7; 46]].concat();
    assert!(vm0.send(&frame).unwrap());
    let dropped =
        a.await_view("/v1/ports/vm0", |port| port["counters"]["drop_no_route_total"] == 1);
    assert_eq!(dropped["counters"]["transmit_packets_total"], 1);

    etcd.verb(&["group", "set", "blue", "--no-forwarding"]);
    a.await_view("/v1/groups/blue", is_site(Value::Null));
    cross(&mut vm0, (mac(1, 0), mac(1, 1)), &mut vm1);

    // A host with another value than the default has an alarm; the site is in force.
    let red = r#"{"name":"red","forwarding":"routes"}"#;
    assert_eq!(a.change("POST", "/v1/groups", red).0, 204);
    etcd.verb(&["group", "set", "red", "--vni", "8", "--forwarding", "learn"]);
    let alarm = |view: &Value| view["status"]["alarm"].as_str().unwrap().contains("group red");
    a.await_view("/v1/cluster", alarm);
    a.await_view("/v1/groups/red", is_site(json!("learn")));
    // The verbs name the values, and refuse those that hosts would refuse.
    let shown: Value = serde_json::from_str(&etcd.verb(&["group", "show", "red"])).unwrap();
    assert_eq!(shown, json!({ "name": "red", "vni": 8, "forwarding": "learn", "rules": [] }));
    for args in [["--vni", "9"], ["--vni", "7"], ["--rules", "/dev/null/x"]] {
        let set = [&["group", "set", "red"][..], &args].concat();
        assert_eq!(etcd.try_verb(&set).status.code(), Some(1), "{args:?}");
    }
    put(&etcd, &json!({ "v": 1 }));
    let malformed = etcd.try_verb(&["group", "add", "blue", "--vni", "7"]);
    let said = String::from_utf8_lossy(&malformed.stderr);
    assert!(
        malformed.status.code() == Some(1) && said.contains("group set blue --vni 7"),
        "{said}"
    );
    etcd.verb(&["group", "set", "blue", "--vni", "7"]);
    let missing = etcd.try_verb(&["group", "set", "green", "--forwarding", "learn"]);
    assert_eq!(missing.status.code(), Some(3));
    etcd.verb(&["group", "set", "red", "--no-forwarding"]);
    a.await_view("/v1/cluster", |view| view["status"]["alarm"] == "");
}
