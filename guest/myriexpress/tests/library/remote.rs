//! Processes of two hosts: two daemons, each with a board on one of two interfaces that are each
//! other's far end, in a network namespace of the test's own.

use std::process::Command;

use crate::common::{Host, compile, nic};

const INSIDE: &str = "CAUSEWAY_TEST_NAMESPACE";

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split_whitespace()).status();
    assert!(done.is_ok_and(|status| status.success()), "ip {words}");
}

/// Runs `act` in a process of its own, in a namespace with the interfaces `near` and `far`.
fn with_wire(test: &str, act: impl FnOnce()) {
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
    assert!(process.status().unwrap().success(), "see above");
}

fn all_lengths() {
    let program = compile("pingpong.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let a = one.start(&program, &["a"], &["1", &nic("b").to_string()]);
    let b = two.start(&program, &["b"], &["0", &nic("a").to_string()]);
    a.end();
    b.end();
    let counted = one.counters("a");
    assert!(counted["messages_sent_total"] >= 48 && counted["bytes_pulled_total"] > 15_000_000);
    assert_eq!(counted["endpoints"], 0, "{counted:?}");
}

#[test]
fn two_processes_of_two_hosts_exchange_messages_of_all_lengths() {
    with_wire("remote::two_processes_of_two_hosts_exchange_messages_of_all_lengths", all_lengths);
}
