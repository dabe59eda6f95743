//! A TAP port of a causewayd that runs in its sandbox, in a network namespace of the test: API, a kill
//! and the restart after it.

use std::process::Command;

use serde_json::json;

use crate::common::daemon_process::{self, DaemonProcess, await_state};
use crate::common::{Dir, send};

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");
/// Set in the process that runs inside the namespace.
const INSIDE: &str = "CAUSEWAY_TEST_NAMESPACE";
const TEST: &str = "tap::tap_interface_and_its_addresses_outlive_a_killed_daemon";

fn ip(words: &str) -> String {
    let done = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "ip {words}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn tap_interface_and_its_addresses_outlive_a_killed_daemon() {
    if std::env::var_os(INSIDE).is_some() {
        return outlives();
    }
    let may = Command::new("unshare").args(["--net", "true"]).status();
    if !may.is_ok_and(|s| s.success()) || !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: the test takes root, `unshare` and /dev/net/tun");
        return;
    }
    let mut process = Command::new("unshare");
    process.arg("--net").arg(std::env::current_exe().unwrap());
    let status = process.args(["--exact", TEST, "--nocapture"]).env(INSIDE, "1").status();
    assert!(status.unwrap().success(), "see above");
}

fn outlives() {
    let dir = Dir::new();
    let port = "[[port]]\nname = \"ct0\"\ngroup = \"blue\"\nkind = \"tap\"\nmtu = 1400\n";
    let file = daemon_process::config(&dir, "needed", port);
    let socket = dir.file("control.sock");
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    await_state(&dir, "ct0", "running");
    ip("addr add 10.9.0.1/24 dev ct0");
    let before = ip("-o -4 addr show dev ct0");
    // A port that is added while the daemon runs, and is in the state file.
    let body =
        json!({"name": "ct1", "group": "blue", "kind": "tap", "interface": "box", "learn": true});
    let (status, shown) = send(&socket, "POST", "/v1/ports", &body.to_string());
    assert_eq!((status, &shown["state"]), (201, &json!("running")), "{shown}");
    assert_eq!((&shown["interface"], &shown["socket"]), (&json!("box"), &json!(null)), "{shown}");
    let with_socket = json!({"name": "ct2", "group": "blue", "kind": "tap", "socket": "/run/x"});
    let (status, refused) = send(&socket, "POST", "/v1/ports", &with_socket.to_string());
    assert!(status == 422 && refused.to_string().contains("has no socket"), "{refused}");
    let (_, exported) = send(&socket, "GET", "/v1/config", "");
    assert!(exported.to_string().contains("kind = \\\"tap\\\""), "{exported}");
    daemon.kill();
    assert_eq!(ip("-o -4 addr show dev ct0"), before, "the interface and its address stay");
    let _daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    await_state(&dir, "ct0", "running");
    await_state(&dir, "ct1", "running");
    assert_eq!(ip("-o -4 addr show dev ct0"), before);
    assert!(ip("link show ct0").contains("LOWER_UP"), "causewayd has the interface again");
    assert_eq!(send(&socket, "DELETE", "/v1/ports/ct1", "").0, 204);
    assert!(!ip("link show box").contains("LOWER_UP"));
}
