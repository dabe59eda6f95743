//! Metrics of a daemon: names, help texts, both formats, the TCP address, and floods of scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use causeway_daemon::limits::METRICS_CONNECTIONS_MAX;
use causeway_daemon::metrics::families::metric_of;
use causeway_daemon::services::{Registered, SERVICES};
use causeway_model::CountedObject;

use crate::common::daemon_process::{DaemonProcess, config};
use crate::common::{Dir, raw, send};

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");

/// Returns a port of each kind, and a link.
fn objects() -> String {
    let local = free_address();
    format!("{PORTS}local = \"{local}\"\n")
}

const PORTS: &str = r#"
[[port]]
name = "n"
group = "blue"
kind = "net"
[[port]]
name = "v"
group = "blue"
kind = "vsock"
cid = 3
[[port]]
name = "h"
group = "blue"
kind = "hca"
[[port]]
name = "m"
group = "blue"
kind = "mx"
[[link]]
name = "l"
group = "blue"
kind = "causeway-plain"
remote = "127.0.0.1:9"
"#;

/// Returns the metrics at the control socket.
fn scrape(dir: &Dir, accept: &str) -> String {
    let text = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
    let (status, body) = raw(&dir.file("control.sock"), text.as_bytes());
    assert_eq!(status, 200, "{body}");
    body
}

/// Returns a free TCP port of the loopback interface.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Returns the names of samples with the text of their families.
fn samples(text: &str) -> BTreeMap<&str, usize> {
    let mut names = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap();
        *names.entry(&line[..end]).or_insert(0) += 1;
    }
    names
}

#[test]
fn metrics_have_every_counter_with_help() {
    let dir = Dir::new();
    let file = config(&dir, "none", &objects());
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let text = scrape(&dir, "application/openmetrics-text; version=1.0.0");
    assert!(text.ends_with("# EOF\n"));
    let (_, stats) = send(&dir.file("control.sock"), "GET", "/v1/stats", "");
    let names = samples(&text);
    let (port, link) = (CountedObject::Port, CountedObject::Link);
    for (list, of, label) in [("ports", port, "port"), ("links", link, "link")] {
        for object in stats[list].as_array().unwrap() {
            let (name, kind) = (object["name"].as_str().unwrap(), object["kind"].as_str().unwrap());
            let own = format!("{{group=\"blue\",{label}=\"{name}\",kind=\"{kind}\"");
            for counter in object["counters"].as_object().unwrap().keys() {
                let metric = metric_of(of, counter);
                let (family, reason) = metric.split_once('{').unwrap_or((&metric, "} "));
                let start = format!("{family}{own}");
                let is_sample = |line: &str| line.starts_with(&start) && line.contains(reason);
                assert!(text.lines().any(is_sample), "{counter} of {name} ({kind}) has no metric");
            }
        }
    }
    let undescribed: Vec<_> = text.lines().filter(|l| l.contains("does not describe")).collect();
    assert!(undescribed.is_empty(), "{undescribed:#?}");
    for name in [
        "causeway_dispatcher_turn_seconds_bucket",
        "causeway_dispatcher_stalls_total",
        "causeway_shard_busy_seconds_total",
        "causeway_adapter_registered_bytes",
        "causeway_holder_running",
        "causeway_link_state",
        "causeway_control_refusals_total",
        "causeway_port_drops_total",
    ] {
        assert!(names.contains_key(name), "{name} is missing");
    }
    daemon.stop();
}

#[test]
fn metrics_of_services_have_distinct_names() {
    let mut seen = BTreeSet::new();
    for (kind, object, name, help) in Registered::of(SERVICES).helps.all() {
        assert!(
            !help.is_empty() && help.ends_with(['.', '?']) || object == CountedObject::Link,
            "{kind}: {name}: {help:?}"
        );
        assert!(!help.contains("crate::"), "{kind}: {name}: {help} names code");
        let is_name =
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit());
        assert!(is_name, "{name}");
        assert!(
            seen.insert((kind, object == CountedObject::Port, name))
                || kind == "mx"
                || kind == "link",
            "{kind} describes {name} twice"
        );
    }
}

#[test]
fn metrics_are_accepted_by_promtool() {
    let promtool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".into());
    if Command::new(&promtool).arg("--version").output().is_err() {
        eprintln!("skipped: promtool (package prometheus) is not installed");
        return;
    }
    let dir = Dir::new();
    let file = config(&dir, "none", &objects());
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let text = scrape(&dir, "*/*");
    let check = Command::new(&promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut check = check.unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let found = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr).into_owned()
        + &String::from_utf8_lossy(&found.stdout);
    assert!(found.status.success() && said.trim().is_empty(), "{said}");
    daemon.stop();
}

/// Sends a request to the TCP address and returns the reply.
fn fetch(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

/// Starts a daemon with metrics at a TCP address.
fn with_address(dir: &Dir, objects: &str) -> (DaemonProcess, SocketAddr) {
    let address = free_address();
    let file = config(dir, "none", &format!("{objects}\n[metrics]\nlisten = \"{address}\"\n"));
    (DaemonProcess::start(CAUSEWAYD, &file).ready(dir), address)
}

#[test]
fn metrics_address_serves_metrics_alone() {
    let dir = Dir::new();
    let (mut daemon, address) = with_address(&dir, &objects());
    let reply = fetch(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.contains("causeway_port_state{group=\"blue\",port=\"n\",kind=\"net\""), "{body}");
    let refused = fetch(address, "GET /v1/ports HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 404") && refused.contains("/metrics alone"), "{refused}");
    let refused = fetch(address, "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
    assert!(fetch(address, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    daemon.stop();
}

#[test]
fn metrics_survive_silent_and_slow_clients() {
    let dir = Dir::new();
    let (mut daemon, address) = with_address(&dir, &objects());
    // Some send nothing, the others request and do not read.
    let held: Vec<_> = (0..METRICS_CONNECTIONS_MAX * 2)
        .map(|number| {
            let mut stream = TcpStream::connect(address).unwrap();
            if number % 2 == 0 {
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            }
            thread::sleep(Duration::from_millis(20));
            stream
        })
        .collect();
    let since = Instant::now();
    while !fetch(address, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200") {
        assert!(since.elapsed() < Duration::from_secs(5), "silent clients keep all connections");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(send(&dir.file("control.sock"), "GET", "/v1/info", "").0, 200);
    drop(held);
    daemon.stop();
}

#[test]
fn metrics_flood_samples_once_in_a_second() {
    let dir = Dir::new();
    let (mut daemon, address) = with_address(&dir, &objects());
    let since = Instant::now();
    let flood = |_| {
        thread::spawn(move || {
            let mut sampled = BTreeSet::new();
            for _ in 0..50 {
                let reply = fetch(address, "GET /metrics HTTP/1.1\r\n\r\n");
                let uptime = |line: &&str| line.starts_with("causeway_uptime_seconds ");
                sampled.extend(reply.lines().find(uptime).map(str::to_owned));
            }
            sampled
        })
    };
    let floods: Vec<_> = (0..8).map(flood).collect();
    let samples: BTreeSet<_> = floods.into_iter().flat_map(|one| one.join().unwrap()).collect();
    let most = since.elapsed().as_secs() + 2;
    assert!((1..=most).contains(&(samples.len() as u64)), "{} of {most}", samples.len());
    daemon.stop();
}

#[test]
fn metrics_address_must_be_of_the_loopback_interface() {
    let dir = Dir::new();
    let file = config(&dir, "none", "[metrics]\nlisten = \"0.0.0.0:9464\"\n");
    let checked = Command::new(CAUSEWAYD).args(["--check-config", "--config"]).arg(&file).output();
    let checked = checked.unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("loopback"), "{said}");
}

/// Returns the words of a text that are names of metrics.
fn metric_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("causeway_")).collect()
}

#[test]
fn metrics_of_alerts_and_dashboard_exist() {
    let dir = Dir::new();
    let file = config(&dir, "none", &objects());
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let text = scrape(&dir, "*/*");
    let mut names: BTreeSet<&str> = samples(&text).into_keys().collect();
    names.extend(Registered::of(SERVICES).metrics.iter().flat_map(|metrics| metrics.sometimes));
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus");
    for name in ["causeway-alerts.yml", "causeway-dashboard.json"] {
        let file = std::fs::read_to_string(format!("{packaging}/{name}")).unwrap();
        let used = metric_names(&file);
        assert!(used.len() > 5, "{name}: {used:?}");
        let missing: Vec<_> = used.difference(&names).collect();
        assert!(missing.is_empty(), "{name} uses metrics that do not exist: {missing:?}");
    }
    daemon.stop();
}

#[test]
fn metrics_of_a_thousand_ports_are_bounded() {
    let dir = Dir::new();
    let ports: String = (0..1000)
        .map(|n| format!("[[port]]\nname = \"p{n}\"\ngroup = \"blue\"\nkind = \"net\"\n"))
        .collect();
    let file = config(&dir, "none", &ports);
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let text = scrape(&dir, "*/*");
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let (bytes, seconds) = (text.len(), value("causeway_metrics_collect_seconds "));
    eprintln!("1,000 ports: {bytes} bytes, sampled in {seconds} s");
    assert_eq!(samples(&text)["causeway_port_info"], 1000);
    assert!(bytes < 8 << 20 && seconds < 5.0, "{bytes} bytes, {seconds} s");
    daemon.stop();
}

/// Returns the tables of counters for docs/metrics.md.
fn counter_tables() -> String {
    let mut tables: BTreeMap<String, String> = BTreeMap::new();
    for (kind, object, name, help) in Registered::of(SERVICES).helps.all() {
        let title = match object {
            CountedObject::Port => format!("Ports of kind `{kind}`"),
            CountedObject::Link => "Links".to_owned(),
            CountedObject::Forward => "Forwards".to_owned(),
        };
        let rows = tables.entry(title).or_default();
        let metric = metric_of(object, name);
        let row = format!("| `{metric}` | {} |\n", help.replace('|', "\\|"));
        if !rows.contains(&row) {
            rows.push_str(&row);
        }
    }
    let table = |(title, rows): (String, String)| {
        format!("### {title}\n\n| metric | meaning |\n|---|---|\n{rows}\n")
    };
    tables.into_iter().map(table).collect()
}

#[test]
fn metrics_document_lists_every_counter() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (head, _) = text.split_once("### ").unwrap_or((&text, ""));
    let expected = format!("{head}{}\n", counter_tables().trim_end());
    if std::env::var_os("CAUSEWAY_UPDATE_DOCS").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text == expected, "docs/metrics.md is old: run this test with CAUSEWAY_UPDATE_DOCS=1");
}
