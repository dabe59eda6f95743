//! C programs of processes without channels: all messages pass through the rings of the daemon, as
//! those of processes in guests do.

use crate::common::{Host, compile, nic};

#[test]
fn messages_of_all_lengths_pass_through_the_daemon() {
    let program = compile("pingpong.c");
    let host = Host::new();
    let a = host.start_without_channels(&program, &["a"], &["1", &nic("b").to_string()]);
    let b = host.start_without_channels(&program, &["b"], &["0", &nic("a").to_string()]);
    a.end();
    b.end();
    assert!(host.counters("a")["messages_sent_total"] > 0, "{:?}", host.counters("a"));
}

#[test]
fn the_rules_of_matching_and_errors_hold_through_the_daemon() {
    let program = compile("rules.c");
    let host = Host::new();
    host.start_without_channels(&program, &["a", "b"], &[]).end();
}

#[test]
fn many_threads_wait_for_messages_through_the_daemon() {
    let program = compile("waiters.c");
    let host = Host::new();
    host.start_without_channels(&program, &["a", "b"], &[]).end();
}

#[test]
fn failed_requests_are_reported_through_the_daemon() {
    let program = compile("statuses.c");
    let host = Host::new();
    host.start_without_channels(&program, &["a", "b"], &[]).end();
}
