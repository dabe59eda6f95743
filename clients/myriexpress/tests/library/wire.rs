//! A network namespace with a pair of veth interfaces.

use std::process::Command;

const INSIDE: &str = "CAUSEWAY_TEST_NAMESPACE";

/// Runs an `ip` command, which must succeed.
pub fn ip(words: &str) {
    let done = Command::new("ip").args(words.split_whitespace()).status();
    assert!(done.is_ok_and(|status| status.success()), "ip {words}");
}

/// Runs `act` in a separate process, in a namespace with the interfaces `near` and `far`.
pub fn with_wire(test: &str, act: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        ip("link add near type veth peer name far");
        for interface in ["near", "far"] {
            ip(&format!("link set {interface} mtu 9000 up"));
        }
        return act();
    }
    if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: a network namespace takes root and `unshare`");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let mut process = Command::new("unshare");
    process.arg("--net").arg(this).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(process.status().unwrap().success(), "the output of the process has the reason");
}
