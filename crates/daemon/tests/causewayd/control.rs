//! The control socket: every path, every refusal, and hostile clients.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, model::Model, raw, read_reply, send, serve};
use causeway_daemon::limits::{
    CONNECTION_GRACE, CONNECTIONS_MAX, REQUEST_BYTES_MAX, REQUEST_TIME_MAX,
};
use serde_json::json;

fn start() -> ControlSocket {
    serve(Arc::new(Model::default()))
}

#[test]
fn control_adds_and_deletes_ports_groups_and_rules() {
    let control = start();
    let ask = |method, path: &str, body: serde_json::Value| {
        send(&control.socket, method, path, &body.to_string())
    };
    assert_eq!(ask("GET", "/v1/ports", json!(null)), (200, json!([])));
    assert_eq!(ask("POST", "/v1/groups", json!({"name": "blue"})).0, 204);
    let (status, port) =
        ask("POST", "/v1/ports", json!({"name": "a", "group": "blue", "kind": "net"}));
    assert_eq!(status, 201);
    assert_eq!((&port["state"], &port["mtu"]), (&json!("listening"), &json!(1500)));
    assert_eq!(ask("GET", "/v1/ports/a", json!(null)), (200, port));
    let groups = json!({
        "name": "blue", "forwarding": "learn", "weight": 1, "kind": "bridge", "ports": ["a"],
        "links": [],
    });
    assert_eq!(ask("GET", "/v1/groups/blue", json!(null)), (200, groups));
    assert_eq!(ask("DELETE", "/v1/groups/blue", json!(null)).0, 409);

    assert_eq!(ask("POST", "/v1/rules", json!({"action": "reject", "to": "*/*:22"})).0, 201);
    let (status, _) = ask("POST", "/v1/rules", json!({"action": "accept", "index": 0}));
    assert_eq!(status, 201);
    let (_, rules) = ask("GET", "/v1/rules", json!(null));
    assert_eq!((&rules[0]["action"], &rules[1]["to"]), (&json!("accept"), &json!("*/*:22")));
    assert_eq!(ask("DELETE", "/v1/rules/1", json!(null)).0, 204);
    assert_eq!(ask("DELETE", "/v1/rules/1", json!(null)).0, 404);

    assert_eq!(ask("DELETE", "/v1/ports/a", json!(null)).0, 204);
    assert_eq!(ask("DELETE", "/v1/ports/a", json!(null)).0, 404);
    assert_eq!(ask("DELETE", "/v1/groups/blue", json!(null)).0, 204);
}

#[test]
fn control_adds_and_deletes_links_and_routes() {
    let control = start();
    let ask = |method, path: &str, body: serde_json::Value| {
        send(&control.socket, method, path, &body.to_string())
    };
    let blue = json!({"name": "blue", "forwarding": "routes", "kind": "wire"});
    assert_eq!(ask("POST", "/v1/groups", blue).0, 204);
    let there = ask("GET", "/v1/groups/blue", json!(null)).1;
    assert_eq!((&there["forwarding"], &there["kind"]), (&json!("routes"), &json!("wire")));
    ask("POST", "/v1/ports", json!({"name": "a", "group": "blue", "kind": "net"}));
    let draft = json!({"name": "l", "group": "blue", "kind": "vnet", "remote": "far.example"});
    let (status, link) = ask("POST", "/v1/links", draft.clone());
    assert_eq!(status, 201, "{link}");
    assert_eq!(
        (&link["remote"], &link["local"]),
        (&json!("10.0.0.9:9000"), &json!("0.0.0.0:9000"))
    );
    assert_eq!((&link["state"], &link["metric"]), (&json!("up"), &json!(100)));
    assert_eq!(ask("GET", "/v1/links/l", json!(null)), (200, link.clone()));
    assert_eq!(ask("GET", "/v1/links", json!(null)), (200, json!([link])));
    assert_eq!(ask("POST", "/v1/links", draft).0, 409);
    assert_eq!(ask("DELETE", "/v1/groups/blue", json!(null)).0, 409);

    let to_link = json!({"group": "blue", "destination": "not-02:00:00:00:00:01",
                         "to": {"edge": "l"}, "from": {"interface": "a"}});
    let (status, route) = ask("POST", "/v1/routes", to_link.clone());
    assert_eq!((status, &route["index"], &route["source"]), (201, &json!(1), &json!("any")));
    assert_eq!(route["to"], json!({"type": "edge", "name": "l"}));
    assert_eq!(ask("POST", "/v1/routes", to_link).0, 409);
    let to_port = json!({"group": "blue", "to": {"type": "interface", "name": "a"}});
    assert_eq!(ask("POST", "/v1/routes", to_port).1["index"], 2);
    let (_, routes) = ask("GET", "/v1/routes", json!(null));
    assert_eq!((&routes[0]["index"], &routes[1]["index"]), (&json!(2), &json!(1)), "newest first");
    assert_eq!(ask("DELETE", "/v1/routes/2", json!(null)).0, 204);
    assert_eq!(ask("DELETE", "/v1/routes/2", json!(null)).0, 404);
    let (_, stats) = ask("GET", "/v1/stats", json!(null));
    assert_eq!(stats["links"][0]["counters"]["drop_forged_total"], 2);
    let (status, traffic) = ask("GET", "/v1/traffic/blue", json!(null));
    assert_eq!((status, &traffic["pairs"][0]["from"]), (200, &json!("vm1")));
    assert_eq!(ask("GET", "/v1/traffic/red", json!(null)).0, 404);

    assert_eq!(ask("DELETE", "/v1/links/l", json!(null)).0, 204);
    assert_eq!(ask("GET", "/v1/routes", json!(null)), (200, json!([])), "they named the link");
    assert_eq!(ask("DELETE", "/v1/links/l", json!(null)).0, 404);
}

#[test]
fn control_answers_info_stats_and_trace() {
    let control = start();
    let ask = |method, path, body: &str| send(&control.socket, method, path, body);
    let (_, info) = ask("GET", "/v1/info", "");
    assert_eq!((&info["name"], &info["pid"]), (&json!("causewayd"), &json!(std::process::id())));
    ask("POST", "/v1/groups", r#"{"name":"g"}"#);
    ask("POST", "/v1/ports", r#"{"name":"v","group":"g","kind":"vsock","cid":3}"#);
    let (_, stats) = ask("GET", "/v1/stats?x=1", "");
    assert!(stats["uptime_seconds"].is_f64());
    assert_eq!(stats["ports"][0]["counters"]["transmit_packets_total"], 3);
    let query = r#"{"what":"connect","from":"v","cid":4,"port":22}"#;
    let (status, trace) = ask("POST", "/v1/trace", query);
    assert_eq!((status, &trace["verdict"]), (200, &json!("drop")));
}

#[test]
fn control_lists_and_shows_adapters() {
    let control = start();
    let ask = |method, path, body: &str| send(&control.socket, method, path, body);
    ask("POST", "/v1/groups", r#"{"name":"g"}"#);
    ask("POST", "/v1/ports", r#"{"name":"n","group":"g","kind":"net"}"#);
    assert_eq!(ask("GET", "/v1/hcas", ""), (200, json!([])), "no port is an adapter");
    assert_eq!(ask("GET", "/v1/hcas/n", "").0, 404);
    let draft = r#"{"name":"a","group":"g","kind":"hca","queue_pairs_max":64}"#;
    assert_eq!(ask("POST", "/v1/ports", draft).0, 201);
    let (status, list) = ask("GET", "/v1/hcas", "");
    assert_eq!(
        (status, &list[0]["port"], &list[0]["queue_pairs_max"]),
        (200, &json!("a"), &json!(64))
    );
    assert_eq!(
        (&list[0]["queue_pair_list"], &list[0]["queue_pairs_omitted"]),
        (&json!([]), &json!(2))
    );
    let (status, hca) = ask("GET", "/v1/hcas/a", "");
    assert_eq!((status, &hca["state"]), (200, &json!("active")));
    assert_eq!(hca["queue_pair_list"][0]["peer"], "vm2-rdma");
    assert_eq!(ask("DELETE", "/v1/hcas/a", "").0, 405);
    assert_eq!(ask("POST", "/v1/hcas", "{}").0, 405);
    assert_eq!(ask("GET", "/v1/hcas/a/b", "").0, 404);
}

#[test]
fn control_lists_and_shows_nics() {
    let control = start();
    let ask = |method, path, body: &str| send(&control.socket, method, path, body);
    ask("POST", "/v1/groups", r#"{"name":"g"}"#);
    ask("POST", "/v1/ports", r#"{"name":"n","group":"g","kind":"net"}"#);
    assert_eq!(ask("GET", "/v1/nics", ""), (200, json!([])), "no port is a NIC");
    assert_eq!(ask("GET", "/v1/nics/n", "").0, 404);
    let draft = r#"{"name":"m","group":"g","kind":"mx","adapter":"a"}"#;
    assert_eq!(ask("POST", "/v1/ports", draft).0, 201);
    let (status, list) = ask("GET", "/v1/nics", "");
    assert_eq!((status, &list[0]["port"], &list[0]["adapter"]), (200, &json!("m"), &json!("a")));
    assert_eq!((&list[0]["process_list"], &list[0]["sessions"]), (&json!([]), &json!(1)));
    let (status, nic) = ask("GET", "/v1/nics/m", "");
    let endpoint = &nic["process_list"][0]["endpoint_list"][0];
    assert_eq!((status, &endpoint["state"]), (200, &json!("parked")));
    assert_eq!(ask("DELETE", "/v1/nics/m", "").0, 405);
    assert_eq!(ask("GET", "/v1/nics/m/x", "").0, 404);
}

#[test]
fn control_refusals_are_json_with_their_status() {
    let control = start();
    for (method, path, body, status, kind) in [
        ("GET", "/", "", 404, "no_such_path"),
        ("GET", "/v1/portz", "", 404, "no_such_path"),
        ("GET", "/v1/ports/a/b", "", 404, "no_such_path"),
        ("GET", "/v1/ports/a", "", 404, "not_found"),
        ("GET", "/v1/groups/a", "", 404, "not_found"),
        ("GET", "/v1/ports/%00", "", 422, "invalid"),
        ("PUT", "/v1/ports", "", 405, "method_not_allowed"),
        ("POST", "/v1/info", "", 405, "method_not_allowed"),
        ("GET", "/v1/trace", "", 405, "method_not_allowed"),
        ("POST", "/v1/ports", "", 400, "bad_request"),
        ("POST", "/v1/ports", "{", 400, "bad_request"),
        ("POST", "/v1/ports", "[]", 422, "invalid"),
        ("POST", "/v1/groups", r#"{"name":"a","x":1}"#, 422, "invalid"),
        ("POST", "/v1/ports", r#"{"name":"a","group":"g","kind":"net"}"#, 404, "not_found"),
        ("POST", "/v1/ports", r#"{"name":"a","group":"g","kind":"vsock"}"#, 422, "invalid"),
        ("POST", "/v1/rules", r#"{"action":"reject","to":"x"}"#, 422, "invalid"),
        ("POST", "/v1/rules", r#"{"action":"reject","from":"a/3","to":"b/4"}"#, 422, "invalid"),
        ("POST", "/v1/rules", r#"{"action":"reject","index":9}"#, 422, "invalid"),
        ("DELETE", "/v1/rules/-1", "", 422, "invalid"),
        ("POST", "/v1/trace", r#"{"what":"smell"}"#, 422, "invalid"),
        ("GET", "/v1/links/a", "", 404, "not_found"),
        ("PUT", "/v1/links", "", 405, "method_not_allowed"),
        ("POST", "/v1/links/a", "", 405, "method_not_allowed"),
        ("POST", "/v1/links", r#"{"name":"l","group":"g"}"#, 422, "invalid"),
        (
            "POST",
            "/v1/links",
            r#"{"name":"l","group":"g","kind":"vnet","remote":"nobody"}"#,
            422,
            "invalid",
        ),
        (
            "POST",
            "/v1/links",
            r#"{"name":"l","group":"g","kind":"vnet","remote":"10.0.0.2"}"#,
            404,
            "not_found",
        ),
        ("POST", "/v1/routes", r#"{"group":"g","to":{}}"#, 422, "invalid"),
        ("POST", "/v1/routes", r#"{"group":"g","to":{"edge":"l"}}"#, 404, "not_found"),
        ("DELETE", "/v1/routes/-1", "", 422, "invalid"),
        ("DELETE", "/v1/routes/1", "", 404, "not_found"),
        ("GET", "/v1/routes/1", "", 405, "method_not_allowed"),
        ("POST", "/v1/traffic/g", "", 405, "method_not_allowed"),
        ("GET", "/v1/traffic", "", 404, "no_such_path"),
    ] {
        let (got, value) = send(&control.socket, method, path, body);
        assert_eq!((got, value["error"]["kind"].as_str()), (status, Some(kind)), "{path} {body}");
        assert!(!value["error"]["message"].as_str().unwrap().is_empty());
    }
}

/// Asserts that the server still answers.
fn still_serves(control: &ControlSocket) {
    assert_eq!(send(&control.socket, "GET", "/v1/info", "").0, 200);
}

#[test]
fn hostile_garbage_is_refused() {
    let control = start();
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"POST /v1/groups HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}",
        b"POST /v1/groups HTTP/1.1\r\nContent-Length: +2\r\n\r\n{}",
        b"POST /v1/groups HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    ] {
        let (status, body) = raw(&control.socket, bytes);
        assert_eq!(status, 400, "{}: {body}", String::from_utf8_lossy(bytes));
    }
    let chunked = b"POST /v1/groups HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n";
    assert_eq!(raw(&control.socket, chunked).0, 411);
    still_serves(&control);
}

#[test]
fn hostile_incomplete_requests_end_at_once() {
    let control = start();
    for bytes in [&b"GET /v1/in"[..], b"POST /v1/groups HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"] {
        let mut stream = UnixStream::connect(&control.socket).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read_reply(&mut stream).0, 400);
    }
    drop(UnixStream::connect(&control.socket).unwrap());
    still_serves(&control);
}

#[test]
fn hostile_slow_senders_are_disconnected() {
    let control = start();
    let begun = Instant::now();
    let mut stream = UnixStream::connect(&control.socket).unwrap();
    let mut feeder = stream.try_clone().unwrap();
    // A byte now and then must not restart the clock.
    let feed = std::thread::spawn(move || {
        while feeder.write_all(b"G").is_ok() && begun.elapsed() < 4 * REQUEST_TIME_MAX {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(read_reply(&mut stream).0, 408);
    drop(stream);
    feed.join().unwrap();
    assert!(begun.elapsed() >= REQUEST_TIME_MAX);
    still_serves(&control);
}

#[test]
fn hostile_sizes_are_refused() {
    let control = start();
    let head = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2 * REQUEST_BYTES_MAX));
    assert_eq!(raw(&control.socket, head.as_bytes()).0, 431);
    let headers = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
    assert_eq!(raw(&control.socket, headers.as_bytes()).0, 431);
    let body = "x".repeat(REQUEST_BYTES_MAX);
    assert_eq!(send(&control.socket, "POST", "/v1/ports", &body).0, 413);
    for length in ["18446744073709551615", "99999999999999999999999"] {
        let text = format!("POST /v1/ports HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        assert!(matches!(raw(&control.socket, text.as_bytes()).0, 400 | 413));
    }
    still_serves(&control);
}

#[test]
fn hostile_requests_are_counted_by_reason() {
    let control = start();
    let ask = |method, path, body: &str| send(&control.socket, method, path, body);
    let refused = || {
        let (_, stats) = ask("GET", "/v1/stats", "");
        assert_eq!(stats["doors"][0]["name"], "control socket");
        let counters = stats["doors"][0]["counters"].as_object().unwrap().clone();
        let counted = counters.iter().filter(|(_, n)| **n != json!(0));
        let short = |name: &str| name.replace("refused_", "").replace("_total", "");
        counted.map(|(name, n)| (short(name), n.as_u64().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(refused(), []);
    raw(&control.socket, b"\x16\x03\x01\x02\x00 \r\n\r\n");
    let mut half = UnixStream::connect(&control.socket).unwrap();
    half.write_all(b"GET /v1/info HT").unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_reply(&mut half).0, 400);
    raw(&control.socket, format!("GET /{}", "x".repeat(2 * REQUEST_BYTES_MAX)).as_bytes());
    ask("GET", "/v2", "");
    ask("PUT", "/v1/ports", "");
    ask("GET", "/v1/ports/nobody", "");
    ask("POST", "/v1/groups", r#"{"name":""}"#);
    ask("POST", "/v1/groups", r#"{"name":"g"}"#);
    ask("POST", "/v1/groups", r#"{"name":"g"}"#);
    let counted = [
        ("conflict", 1),
        ("garbage", 1),
        ("invalid", 1),
        ("not_found", 1),
        ("too_long", 1),
        ("unfinished", 1),
        ("unknown", 2),
    ];
    assert_eq!(refused(), counted.map(|(name, n)| (name.to_owned(), n)));
}

#[test]
fn hostile_deep_json_is_refused() {
    let control = start();
    for body in ["[".repeat(30_000), "{\"a\":".repeat(10_000), "[".repeat(127) + &"]".repeat(127)] {
        let (status, value) = send(&control.socket, "POST", "/v1/ports", &body);
        assert!(matches!(status, 400 | 422), "{status} {value}");
    }
    still_serves(&control);
}

#[test]
fn hostile_connection_floods_are_refused_and_slots_come_back() {
    let control = start();
    let crowd: Vec<_> =
        (0..CONNECTIONS_MAX).map(|_| UnixStream::connect(&control.socket).unwrap()).collect();
    // The flood keeps its slots at most for the grace time.
    let since = Instant::now();
    let (status, body) = raw(&control.socket, b"GET /v1/info HTTP/1.1\r\n\r\n");
    assert!(status == 503 || since.elapsed() >= CONNECTION_GRACE, "{status} {body}");
    drop(crowd);
    let until = Instant::now() + Duration::from_secs(20);
    while send(&control.socket, "GET", "/v1/info", "").0 != 200 {
        assert!(Instant::now() < until, "the places did not come back");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn hostile_slow_clients_block_no_other_client() {
    let control = start();
    let slow: Vec<_> = (0..CONNECTIONS_MAX + 6)
        .map(|_| {
            let mut stream = UnixStream::connect(&control.socket).unwrap();
            let _ = stream.write_all(b"GET /v1/info HT");
            stream
        })
        .collect();
    // Half of the time after which silent clients are disconnected is enough.
    let since = Instant::now();
    while raw(&control.socket, b"GET /v1/info HTTP/1.1\r\n\r\n").0 != 200 {
        assert!(since.elapsed() < REQUEST_TIME_MAX / 2, "slow clients keep others out");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(slow);
}

#[test]
fn control_answers_expect_100_continue() {
    let control = start();
    let head = "POST /v1/groups HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 12\r\n\r\n";
    let mut stream = UnixStream::connect(&control.socket).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut leave = [0; 25];
    std::io::Read::read_exact(&mut stream, &mut leave).unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(br#"{"name":"g"}"#).unwrap();
    assert_eq!(read_reply(&mut stream).0, 204);
}

#[test]
fn control_accepts_no_connection_after_the_stop() {
    let mut control = start();
    still_serves(&control);
    control.server.stop();
    assert!(UnixStream::connect(&control.socket).is_err());
}
