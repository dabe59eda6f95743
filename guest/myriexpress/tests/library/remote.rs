//! Processes of two hosts: two daemons, each with a board on one of two interfaces that are each
//! other's far end, in a network namespace of the test's own.

use std::io::BufRead as _;
use std::process::Command;

use crate::common::{Host, Running, compile, nic};

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

/// What a process says when its partner has sent.
fn met(process: &mut Running) {
    let mut line = String::new();
    let mut out = std::io::BufReader::new(process.0.stdout.as_mut().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("met "), "{line}");
}

fn process_dies() {
    let program = compile("partner.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let mut dying = two.start(&program, &["b"], &["dies"]);
    let told = one.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    met(&mut dying);
    dying.0.kill().unwrap();
    told.end();
}

#[test]
fn a_process_of_another_host_that_dies_is_noticed() {
    with_wire("remote::a_process_of_another_host_that_dies_is_noticed", process_dies);
}

fn daemon_dies() {
    let program = compile("partner.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let mut dying = two.start(&program, &["b"], &["dies"]);
    let told = one.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    met(&mut dying);
    // The other host's daemon goes, and another one comes, which knows nothing.
    drop(two);
    let _three = Host::on("far", "b");
    told.end();
}

#[test]
fn a_daemon_of_another_host_that_begins_anew_is_noticed() {
    with_wire("remote::a_daemon_of_another_host_that_begins_anew_is_noticed", daemon_dies);
}

fn own_daemon_dies() {
    let program = compile("partner.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let mut partner = two.start(&program, &["b"], &["dies"]);
    let told = one.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    met(&mut partner);
    drop(one);
    told.end();
}

#[test]
fn partners_of_other_hosts_are_gone_with_the_own_daemon() {
    with_wire("remote::partners_of_other_hosts_are_gone_with_the_own_daemon", own_daemon_dies);
}

fn names() {
    let program = compile("names.c");
    let (one, _two) = (Host::on("near", "a"), Host::on("far", "b"));
    one.start(&program, &["a"], &["b:0", &nic("b").to_string()]).end();
}

#[test]
fn boards_of_other_hosts_are_found_by_name() {
    with_wire("remote::boards_of_other_hosts_are_found_by_name", names);
}
