//! Users of etcd with few rights.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::hosts::{EtcdServer, Host, udp_port};

/// Returns the body that grants a right for all keys with a prefix that ends with `/`.
fn grant(right: &str, prefix: &str) -> String {
    let end = format!("{}0", prefix.strip_suffix('/').unwrap());
    let (key, end) = (STANDARD.encode(prefix), STANDARD.encode(end));
    format!(r#"{{"name":"h1","perm":{{"permType":"{right}","key":"{key}","range_end":"{end}"}}}}"#)
}

#[test]
fn cluster_host_without_a_right_keeps_its_session() {
    let server = EtcdServer::start();
    server.verb(&["group", "add", "blue", "--vni", "7"]);
    let (root, none) = (r#"{"name":"root","password":"root"}"#, None);
    server.post("/v3/auth/user/add", root, none);
    server.post("/v3/auth/role/add", r#"{"name":"root"}"#, none);
    server.post("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#, none);
    server.post("/v3/auth/user/add", r#"{"name":"h1","password":"h1"}"#, none);
    server.post("/v3/auth/role/add", r#"{"name":"h1"}"#, none);
    server.post("/v3/auth/user/grant", r#"{"user":"h1","role":"h1"}"#, none);
    server.post("/v3/auth/role/grant", &grant("READ", "/causeway/v1/lab/"), none);
    server.post("/v3/auth/role/grant", &grant("READWRITE", "/causeway/v1/lab/host/"), none);
    server.post("/v3/auth/enable", "{}", none);

    // The host may not write claims.
    let host = Host::start_as(1, &server, udp_port(), Some("h1"));
    let _guest = host.attach(0);
    let counter = |view: &Value, name: &str| view["status"]["counters"][name].as_u64();
    let view = host.await_view("/v1/cluster", |view| {
        counter(view, "writes_refused_total").is_some_and(|count| count >= 3)
    });
    assert_eq!(view["state"], "follows");
    assert_eq!(counter(&view, "resyncs_total"), Some(1));
    assert!(view["status"]["alarm"].as_str().is_some_and(|alarm| alarm.contains("refuses")));

    // With the right, the claim follows after a pause.
    let token = server.post("/v3/auth/authenticate", root, none)["token"].clone();
    let claims = grant("READWRITE", "/causeway/v1/lab/mac/");
    server.post("/v3/auth/role/grant", &claims, token.as_str());
    let view = host.await_view("/v1/cluster", |view| view["status"]["alarm"] == "");
    assert!(counter(&view, "writes_refused_total").is_some_and(|count| count < 12));
}
