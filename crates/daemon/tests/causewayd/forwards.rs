//! `[[forward]]` in the daemon: the configuration, the state file, `apply`, reports and metrics.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::Dir;
use crate::common::daemon_process::DaemonProcess;
use crate::common::{send, send_noted};

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");

/// A daemon in a directory of its own.
struct Host {
    dir: Dir,
    daemon: Option<DaemonProcess>,
}

impl Host {
    fn start(forwards: &str) -> Self {
        let mut host = Self { dir: Dir::new(), daemon: None };
        std::fs::write(host.file(), host.text(forwards)).unwrap();
        host.restart();
        host
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.file("causeway.toml")
    }

    /// Returns a configuration with a port and `forwards`.
    fn text(&self, forwards: &str) -> String {
        let [control, host] = ["control.sock", "vm1.vsock"].map(|name| self.dir.file(name));
        format!(
            "[daemon]\ncontrol = {control:?}\nhold = \"none\"\n[[group]]\nname = \"blue\"\n\
             [[port]]\nname = \"vm1\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = 3\n\
             host_socket = {host:?}\n{forwards}"
        )
    }

    fn restart(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.stop();
        }
        self.daemon = Some(DaemonProcess::start(CAUSEWAYD, &self.file()).ready(&self.dir));
    }

    fn socket(&self) -> std::path::PathBuf {
        self.dir.file("control.sock")
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send(&self.socket(), method, path, &body)
    }

    fn list(&self) -> Vec<(String, String)> {
        let (_, list) = self.send("GET", "/v1/forwards", &Value::Null);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = list.as_array().unwrap().iter();
        all.map(|forward| (text(&forward["name"]), text(&forward["to"]))).collect()
    }

    /// Sends a forwarder's report; returns the reply.
    fn report(&self, instance: u64, forwards: Value) -> (u16, Value) {
        let body = json!({ "pid": 7, "instance": instance, "forwards": forwards });
        self.send("POST", "/v1/forwarder", &body)
    }
}

fn table(name: &str, port: u16, to: &str) -> String {
    format!("[[forward]]\nname = \"{name}\"\nfrom = \"tcp:127.0.0.1:{port}\"\nto = \"{to}\"\n")
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, to)| ((*name).to_owned(), (*to).to_owned())).collect()
}

#[test]
fn forwards_of_the_file_and_added_ones_come_back_after_a_restart() {
    let mut host = Host::start(&table("a", 2222, "vsock:vm1:22"));
    let added = json!({ "name": "b", "from": "vsock:vm1:5000", "to": "unix:/run/b.sock" });
    assert_eq!(host.send("POST", "/v1/forwards", &added).0, 201);
    let tried = json!({ "name": "c", "from": "tcp:[::1]:1", "to": "unix:/run/c.sock" });
    assert_eq!(host.send("POST", "/v1/forwards?ephemeral=true", &tried).0, 201);
    let (_, notes) = send_noted(&host.socket(), "DELETE", "/v1/forwards/a", "");
    assert!(notes[0].starts_with("forward a returns at the next start"), "{notes:?}");
    assert_eq!(host.list(), pairs(&[("b", "unix:/run/b.sock"), ("c", "unix:/run/c.sock")]));
    host.restart();
    assert_eq!(host.list(), pairs(&[("a", "vsock:vm1:22"), ("b", "unix:/run/b.sock")]));
    let export = host.send("GET", "/v1/config", &Value::Null).1;
    let export = export["toml"].as_str().unwrap();
    assert!(export.contains("[[forward]]\nname = \"b\"\nfrom = \"vsock:vm1:5000\"\n"), "{export}");
    let body = json!({ "text": std::fs::read_to_string(host.file()).unwrap() });
    let (_, diff) = host.send("POST", "/v1/config/diff", &body);
    let changes = diff["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{diff}");
    let change = &changes[0];
    assert_eq!(
        (&change["what"], &change["name"], &change["kept"]),
        (&"forward".into(), &"b".into(), &true.into())
    );
}

#[test]
fn forwards_follow_an_applied_file() {
    let host = Host::start(&(table("a", 2222, "vsock:vm1:22") + &table("b", 2223, "vsock:vm1:80")));
    let file = table("b", 2223, "vsock:vm1:81") + &table("c", 2222, "vsock:vm1:22");
    let apply = |text: &str, dry_run: bool| {
        host.send("POST", "/v1/apply", &json!({ "text": text, "dry_run": dry_run }))
    };
    let text = host.text(&file);
    let (status, planned) = apply(&text, true);
    assert_eq!(status, 200, "{planned}");
    let shown = |value: &Value| -> Vec<(String, String)> {
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let all = value["changes"].as_array().unwrap().iter();
        all.map(|change| (word(&change["action"]), word(&change["name"]))).collect()
    };
    assert_eq!(shown(&planned), pairs(&[("delete", "a"), ("replace", "b"), ("add", "c")]));
    assert_eq!(host.list()[1].1, "vsock:vm1:80", "a dry run changes nothing");
    // The new forward has the source of the deleted one.
    std::fs::write(host.file(), &text).unwrap();
    let (status, applied) = apply(&text, false);
    assert_eq!(status, 200, "{applied}");
    assert_eq!(host.list(), pairs(&[("b", "vsock:vm1:81"), ("c", "vsock:vm1:22")]));
    assert_eq!(shown(&apply(&text, false).1), Vec::new());
    let state = std::fs::read_to_string(host.dir.file("state.toml")).unwrap_or_default();
    assert!(!state.contains("[[forward]]"), "the file has them: {state}");
}

#[test]
fn forwards_that_are_wrong_are_refused_with_their_place() {
    let host = Host::start(&table("a", 2222, "vsock:vm1:22"));
    for (body, status, says) in [
        (json!({ "name": "a", "from": "tcp:h:1", "to": "tcp:h:2" }), 409, "exists already"),
        (
            json!({ "name": "b", "from": "tcp:127.0.0.1:2222", "to": "tcp:h:2" }),
            409,
            "is the source of forward a already",
        ),
        (json!({ "name": "b", "from": "tcp:h:1" }), 422, "to: expected to = "),
        (json!({ "name": "b", "from": "udp:h:1", "to": "tcp:h:1" }), 422, "the kind is unknown"),
        (json!({ "name": "b", "from": "unix:x", "to": "tcp:h:1" }), 422, "an absolute path"),
        (json!({ "name": "b", "form": "tcp:h:1" }), 422, "did you mean \"from\"?"),
    ] {
        let (found, reply) = host.send("POST", "/v1/forwards", &body);
        let text = reply["error"]["message"].as_str().unwrap();
        assert!(found == status && text.contains(says), "{body}: {found} {text}");
    }
    assert_eq!(host.send("DELETE", "/v1/forwards/none", &Value::Null).0, 404);
    let wrong = host.dir.file("wrong.toml");
    std::fs::write(&wrong, host.text(&table("a", 2222, "vsock:vm1"))).unwrap();
    let error = check(&wrong);
    assert!(error.contains("wrong.toml:15:6") && error.contains("no guest, or no port"), "{error}");
}

fn check(file: &Path) -> String {
    let mut command = std::process::Command::new(CAUSEWAYD);
    let out = command.arg("--config").arg(file).arg("--check-config").output().unwrap();
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn forwards_show_what_a_single_forwarder_reports() {
    let host = Host::start(&(table("a", 2222, "vsock:vm1:22") + &table("b", 2223, "vsock:none:1")));
    let state = |name: &str| {
        let (_, view) = host.send("GET", &format!("/v1/forwards/{name}"), &Value::Null);
        (view["state"].as_str().unwrap().to_owned(), view)
    };
    assert_eq!(state("a").0, "no-forwarder");
    let (status, tasks) = host.report(1, json!([]));
    let socket = host.dir.file("vm1.vsock").display().to_string();
    let task = json!([{ "name": "a", "from": "tcp:127.0.0.1:2222", "to": format!("vsock:{socket}:22"),
        "connections_max": 256 }]);
    assert_eq!((status, tasks), (200, task), "a forward without its port is no task");
    assert_eq!(state("a").0, "starting");
    let (failed, view) = state("b");
    assert_eq!(
        (failed.as_str(), view["reason"].as_str().unwrap().contains("port none")),
        ("failed", true)
    );
    assert_eq!(host.report(2, json!([])).0, 409, "another forwarder");
    // Hostile values are bounded.
    let many: serde_json::Map<String, Value> =
        (0..1000).map(|n| (format!("counter_{n:04}"), n.into())).collect();
    let report = |state: &str, reason: String, counters: Value| {
        json!([{ "name": "a", "state": state, "reason": reason, "counters": counters },
            { "name": "gone", "state": "failed" }])
    };
    assert_eq!(host.report(1, report("target-down", "é".repeat(5000), Value::Object(many))).0, 200);
    let (down, view) = state("a");
    assert_eq!(down, "target-down");
    assert_eq!(view["reason"].as_str().unwrap().len(), 512);
    assert_eq!(view["counters"].as_object().unwrap().len(), 16);
    let counters = json!({ "connections_total": 3, "open_connections": 1 });
    assert_eq!(host.report(1, report("listening", String::new(), counters)).0, 200);
    let (_, text) = crate::common::raw(
        &host.socket(),
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    for line in [
        "causeway_forward_connections_total{forward=\"a\"} 3",
        "causeway_forward_open_connections{forward=\"a\"} 1",
        "causeway_forward_state{forward=\"a\",state=\"listening\"} 1",
        "causeway_forward_state{forward=\"b\",state=\"failed\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let ends = json!({ "pid": 7, "instance": 1, "forwards": [], "ends": true });
    assert_eq!(host.send("POST", "/v1/forwarder", &ends).0, 200);
    assert_eq!(state("a").0, "no-forwarder");
    assert_eq!(host.report(2, json!([])).0, 200, "the next forwarder");
}

#[test]
fn forward_that_only_the_state_file_has_can_be_deleted() {
    let host = Host::start("");
    let forward = json!({ "name": "f", "from": "tcp:127.0.0.1:8443", "to": "vsock:vm1:443" });
    assert_eq!(host.send("POST", "/v1/forwards", &forward).0, 201);
    // It returns at the next start.
    assert_eq!(host.send("DELETE", "/v1/forwards/f?ephemeral", &Value::Null).0, 204);
    let state = || std::fs::read_to_string(host.dir.file("state.toml")).unwrap();
    assert!(state().contains("name = \"f\""), "{}", state());
    assert_eq!(host.send("GET", "/v1/forwards/f", &Value::Null).0, 404);
    assert_eq!(host.send("DELETE", "/v1/forwards/g", &Value::Null).0, 404);
    assert!(state().contains("name = \"f\""), "{}", state());
    assert_eq!(host.send("DELETE", "/v1/forwards/f", &Value::Null).0, 204);
    assert!(!state().contains("name = \"f\""), "{}", state());
    assert_eq!(host.send("DELETE", "/v1/forwards/f", &Value::Null).0, 404);
}

#[test]
fn forwards_of_one_name_in_a_file_are_refused() {
    let host = Host { dir: Dir::new(), daemon: None };
    let (one, two) = (table("f", 8001, "vsock:vm1:80"), table("f", 8002, "vsock:vm1:81"));
    std::fs::write(host.file(), host.text(&(one + &two))).unwrap();
    let mut check = Command::new(CAUSEWAYD);
    check.arg("--check-config").arg("--config").arg(host.file());
    let output = check.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("forward f on line 17 is already defined on line 13"), "{text}");
}
