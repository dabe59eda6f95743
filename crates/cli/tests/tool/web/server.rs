//! The server over sockets: what it serves, refuses and survives.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use causeway_web::limits::{WEB_CONNECTIONS_MAX, WEB_REQUEST_BYTES_MAX};
use serde_json::{Value, json};

use super::world::{
    Flow, Host, PATIENCE, Traffic, Web, causeway, connect, free_datagram_addresses,
};

/// Returns a host with a port in a group.
fn small() -> Host {
    let host = Host::start();
    host.run("group add blue");
    host.add_vm(1, "blue");
    host
}

fn find<'a>(state: &'a Value, list: &str, name: &str) -> &'a Value {
    let all = state["daemon"][list].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn web_state_has_traffic_links_connections_and_problems() {
    let (a, b) = (Host::start(), Host::start());
    a.run("group add empty");
    let [here, there, unused] = free_datagram_addresses();
    for (host, vms, local, remote) in [(&a, 1..=3, here, there), (&b, 9..=9, there, here)] {
        host.run("group add blue");
        vms.for_each(|number| host.add_vm(number, "blue"));
        let ends = format!("--local {local} --remote {remote} --vni 7");
        host.run(&format!("link add peer --group blue --kind causeway-plain {ends}"));
    }
    let ends = format!("--local {unused} --remote 127.0.0.2:9");
    a.run(&format!("link add gone --group blue --kind causeway-plain {ends}"));
    let _far = Traffic::start(vec![b.net(9)], vec![Flow { from: 9, to: 1, frames: 1, bytes: 500 }]);
    let _near = Traffic::start(
        vec![a.net(1), a.net(2)],
        vec![
            Flow { from: 1, to: 2, frames: 10, bytes: 1400 },
            Flow { from: 2, to: 1, frames: 1, bytes: 60 },
            Flow { from: 1, to: 9, frames: 1, bytes: 500 },
        ],
    );
    let _sockets = connect(a.vsock(1), a.vsock(2), 4, 3);
    drop(a.vsock(3));
    let web = Web::start(&a.control, "--interval 1");
    let talk = |state: &Value, kind: &str, to: Value| {
        let talks = state["daemon"]["talks"].as_array().cloned().unwrap_or_default();
        let from = |talk: &&Value| talk["kind"] == kind && talk["to"] == to || talk["from"] == to;
        talks.iter().find(from).cloned().unwrap_or(Value::Null)
    };
    let state = web.wait("rates and both directions of the link", |state| {
        let link = talk(state, "ethernet", json!({"type": "link", "name": "peer"}));
        state["daemon"]["seconds"].is_number()
            && link["forth"].as_f64() > Some(0.0)
            && link["back"].as_f64() > Some(0.0)
            && find(state, "links", "peer")["rates"]["sent_bytes"].as_f64() > Some(0.0)
    });
    let rates = |name: &str| find(&state, "ports", name)["rates"].clone();
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&rates("vm1-net")["sent_bytes"]) > 1000.0, "{state:#}");
    assert!(
        number(&rates("vm2-net")["received_bytes"])
            > 10.0 * number(&rates("vm2-net")["sent_bytes"])
    );
    let near = talk(&state, "ethernet", json!({"type": "port", "name": "vm2-net"}));
    assert!(number(&near["forth"]) > number(&near["back"]), "{near}");
    let sockets = talk(&state, "vsock", json!({"type": "port", "name": "vm2-vsock"}));
    assert_eq!((&sockets["connections"], &sockets["group"]), (&json!(3), &json!("blue")));
    assert_eq!(state["daemon"]["connections"], 3);
    let (up, down) = (find(&state, "links", "peer"), find(&state, "links", "gone"));
    assert_eq!((&up["state"], &up["peer"]), (&json!("up"), &json!("127.0.0.1")));
    assert_eq!((&down["state"], &down["peer"]), (&json!("down"), &json!("127.0.0.2")));
    let findings = state["daemon"]["findings"].to_string();
    assert!(findings.contains("link gone is down"), "{findings}");
    assert!(findings.contains("port vm3-vsock: its guest was cut off"), "{findings}");
    assert!(findings.contains("reboot the guest"), "{findings}");
}

#[test]
fn web_state_has_no_paths_keys_and_users() {
    let host = small();
    host.run("port add s --kind vsock --group blue --cid 77 --allowed-users root");
    let key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    // Without the key's file the link is refused or down; either leaves its configuration.
    let file = host.dir.join("secret.key");
    let generate = format!("key generate --out {}", file.display());
    host.run(&generate);
    let [local] = free_datagram_addresses();
    let ends = format!("--local {local} --remote 127.0.0.1:9");
    let private = format!("--private-key {}", file.display());
    host.run(&format!("link add l --group blue {ends} --key {key} {private}"));
    let web = Web::start(&host.control, "--interval 1");
    let state = web.wait("a sample", |state| find(state, "links", "l")["state"].is_string());
    let text = state.to_string();
    let dir = host.dir.display().to_string();
    for secret in [key, "secret.key", dir.as_str(), "allowed_users", ".sock", "private_key"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let ports = causeway(&host.control, "port list -j").output().unwrap();
    assert!(String::from_utf8_lossy(&ports.stdout).contains(&dir), "the daemon's views have them");
}

#[test]
fn web_serves_its_files_with_headers_that_forbid_others() {
    let host = small();
    let mut web = Web::start(&host.control, "");
    let page = web.get("/", "");
    assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html; charset=utf-8")));
    let files = page.body.split('"').filter(|part| part.starts_with('/') && part.contains('.'));
    assert!(files.clone().count() >= 4, "{}", page.body);
    for file in files.chain(["/layout.js", "/api/state"]) {
        let reply = web.get(file, "Origin: http://evil.example\r\n");
        assert_eq!(reply.status, 200, "{file}");
        let policy = reply.header("Content-Security-Policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("X-Content-Type-Options"), Some("nosniff"));
        assert_eq!(reply.header("Cross-Origin-Resource-Policy"), Some("same-origin"));
        assert!(!reply.head.contains("Access-Control"), "no other origin: {}", reply.head);
        assert!(!reply.body.contains("https://"), "{file} fetches nothing from elsewhere");
    }
    assert_eq!(web.get("/../etc/passwd", "").status, 404);
    assert_eq!(web.get("/v1/ports", "").status, 404, "the control API is not served");
    assert_eq!(web.stop(), Some(0));
}

#[test]
fn web_state_has_a_tag_and_is_not_sent_twice() {
    let host = small();
    let web = Web::start(&host.control, "--interval 60");
    // The second sample follows the first after 1 s; then there is none for a minute.
    web.wait("rates", |state| state["daemon"]["seconds"].is_number());
    let first = web.get("/api/state", "");
    let tag = first.header("ETag").unwrap();
    let again = web.get("/api/state", &format!("If-None-Match: \"x\", {tag}\r\n"));
    assert_eq!((again.status, again.body.as_str(), again.header("ETag")), (304, "", Some(tag)));
    assert_eq!(web.get("/api/state", "If-None-Match: \"other\"\r\n").status, 200);
}

#[test]
fn web_refuses_unknown_hosts_and_other_methods() {
    let host = small();
    let web = Web::start(&host.control, "--host-name node-a.example");
    let status = |head: &str| web.raw(format!("{head}\r\n\r\n").as_bytes()).status;
    for known in ["localhost", "127.0.0.1:9000", "[::1]:80", "node-a.example"] {
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: {known}")), 200, "{known}");
    }
    for strange in ["evil.example", "node-a.example.evil.example", ""] {
        for path in ["/", "/api/state", "/none"] {
            let reply =
                web.raw(format!("GET {path} HTTP/1.1\r\nHost: {strange}\r\n\r\n").as_bytes());
            assert_eq!(reply.status, 421, "{strange} {path}");
            assert!(reply.body.contains("--host-name"), "{}", reply.body);
        }
    }
    assert_eq!(status("GET / HTTP/1.1"), 421, "without a Host");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost"), 400, "with two");
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "X"] {
        for path in ["/", "/api/state", "/none"] {
            let reply =
                web.raw(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
            assert_eq!(
                (reply.status, reply.header("Allow")),
                (405, Some("GET")),
                "{method} {path}"
            );
        }
    }
}

#[test]
fn hostile_web_requests_are_refused() {
    let host = small();
    let web = Web::start(&host.control, "");
    for (bytes, status) in [
        ("GARBAGE\r\n\r\n".to_owned(), 400),
        ("\x16\x03\x01\x02\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 411),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2 * WEB_REQUEST_BYTES_MAX)), 431),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100)), 431),
        (format!("GET / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", usize::MAX), 413),
    ] {
        let head: String = bytes.chars().take(60).collect();
        assert_eq!(web.raw(bytes.as_bytes()).status, status, "{head}");
    }
    assert_eq!(web.get("/", "").status, 200, "the server goes on");
}

#[test]
fn hostile_web_clients_that_are_slow_delay_no_other() {
    let host = small();
    let web = Web::start(&host.control, "--interval 1");
    web.wait("a sample", |state| state["daemon"].is_object());
    let silent: Vec<_> = (0..2 * WEB_CONNECTIONS_MAX)
        .map(|number| {
            let mut stream = TcpStream::connect(web.address).unwrap();
            if number % 2 == 0 {
                let _ = stream.write_all(b"GET /api/state HTTP/1.1\r\nHost: loc");
            }
            stream
        })
        .collect();
    // A connection keeps its slot for 250 ms; a browser tries again as this client does.
    let since = Instant::now();
    let served = |path: &str| web.get(path, "").status == 200;
    while !(served("/") && served("/api/state")) {
        assert!(since.elapsed() < Duration::from_secs(4), "silent clients keep others out");
    }
    // A client that sends a byte now and then ends at the deadline.
    let mut slow = TcpStream::connect(web.address).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let begun = Instant::now();
    while slow.write_all(b"G").is_ok() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "the slow client is disconnected");
    let threads = std::fs::read_dir(format!("/proc/{}/task", web.pid())).unwrap().count();
    assert!(threads <= WEB_CONNECTIONS_MAX + 8, "{threads} threads");
    drop(silent);
    assert_eq!(web.get("/", "").status, 200);
}

#[test]
fn web_survives_the_daemon_and_finds_it_again() {
    let host = small();
    let web = Web::start(&host.control, "--interval 1 --timeout 1");
    web.wait("a sample", |state| state["daemon"].is_object());
    let aside = host.dir.join("aside");
    std::fs::rename(&host.control, &aside).unwrap();
    let gone = web.wait("the daemon is gone", |state| state["error"].is_string());
    assert!(gone["error"].as_str().unwrap().contains("systemctl start causewayd"), "{gone}");
    assert_eq!(find(&gone, "ports", "vm1-net")["name"], "vm1-net", "the last state is kept");
    assert!(gone["daemon"]["seconds"].is_null(), "without rates");
    // A daemon that accepts and does not answer.
    let silent = UnixListener::bind(&host.control).unwrap();
    let late = |state: &Value| state["error"].to_string().contains("did not answer within 1 s");
    web.wait("the daemon hangs", late);
    let since = Instant::now();
    assert_eq!(web.get("/", "").status, 200);
    assert!(since.elapsed() < Duration::from_secs(2), "the page does not wait for the daemon");
    drop(silent);
    std::fs::rename(&aside, &host.control).unwrap();
    let back = web.wait("the daemon is back", |state| state["error"].is_null());
    assert_eq!(back["daemon"]["pid"], gone["daemon"]["pid"]);
}

#[test]
fn web_starts_without_a_daemon() {
    let host = small();
    let none = host.dir.join("none.sock");
    let web = Web::start(&none, "--interval 1");
    let state = web.wait("an answer", |state| state["error"].is_string());
    assert!(state["daemon"].is_null(), "{state}");
}

#[test]
fn web_asks_the_daemon_only_for_browsers_and_once_for_all() {
    let host = Host::start();
    let listener = UnixListener::bind(host.dir.join("counted.sock")).unwrap();
    let target = host.control.clone();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = asked.clone();
    // Passes each request on, and counts those that begin a sample.
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut daemon = std::os::unix::net::UnixStream::connect(&target).unwrap();
            let mut bytes = [0; 4096];
            let count = client.read(&mut bytes).unwrap_or(0);
            if bytes.starts_with(b"GET /v1/info ") {
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            let _ = daemon.write_all(&bytes[..count]);
            let _ = std::io::copy(&mut daemon, &mut client);
        }
    });
    let web = Web::start(&host.dir.join("counted.sock"), "--interval 2");
    std::thread::sleep(Duration::from_millis(500));
    let samples = || asked.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(samples(), 0, "no browser has asked");
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        for _ in 0..20 {
            assert_eq!(web.get("/api/state", "").status, 200);
        }
    }
    assert!((2..=4).contains(&samples()), "{} samples", samples());
}

#[test]
fn web_refuses_an_address_that_other_hosts_reach() {
    let host = small();
    let run = |words: &str| {
        let output = causeway(&host.control, words).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = run("web --listen 0.0.0.0:0");
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("--allow-remote"), "{text}");
    let web = Web::start(&host.control, "");
    let (status, text) = run(&format!("web --listen {}", web.address));
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("cannot listen at"), "{text}");
}

#[test]
fn web_restricts_its_process() {
    let host = small();
    let web = Web::start(&host.control, "");
    web.wait("a sample", |state| state["daemon"].is_object());
    let status = std::fs::read_to_string(format!("/proc/{}/status", web.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    assert_eq!(field("NoNewPrivs:"), "1");
    let capabilities = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
    assert_eq!(capabilities & !(1 << 1), 0, "at most CAP_DAC_OVERRIDE: {capabilities:x}");
    assert_eq!(u64::from_str_radix(&field("CapPrm:"), 16).unwrap() & !(1 << 1), 0);
}
