//! C programs with the library, attached to a daemon.

mod abi;
mod common;
mod killed;
mod past;
mod remote;
mod through_daemon;
mod tool;
mod wire;

use common::{Host, compile, nic};

#[test]
fn two_processes_exchange_messages_of_all_lengths() {
    let program = compile("pingpong.c");
    let host = Host::new();
    let a = host.start(&program, &["a"], &["1", &nic("b").to_string()]);
    let b = host.start(&program, &["b"], &["0", &nic("a").to_string()]);
    a.end();
    b.end();
}

#[test]
fn the_rules_of_matching_waiting_and_errors_are_kept() {
    let program = compile("rules.c");
    let host = Host::new();
    host.start(&program, &["a", "b"], &[]).end();
}

#[test]
fn process_death_is_noticed_by_its_peers() {
    let program = compile("partner.c");
    let host = Host::new();
    let mut dying = host.start(&program, &["b"], &["dies"]);
    let told = host.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    // The process prints a line after its sends. The other side never receives the messages.
    let mut line = String::new();
    let mut out = std::io::BufReader::new(dying.0.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    // A child of the process lives on, which must make no difference.
    let child = line.strip_prefix("met ").and_then(|pid| pid.trim().parse().ok());
    let child = child.and_then(rustix::process::Pid::from_raw).expect("it says who its child is");
    dying.0.kill().unwrap();
    told.end();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn wait_of_many_threads_for_one_endpoint_misses_nothing() {
    let program = compile("waiters.c");
    let host = Host::new();
    host.start(&program, &["a", "b"], &[]).end();
}

#[test]
fn requests_that_fail_are_put_to_the_error_handler_first() {
    let program = compile("statuses.c");
    let host = Host::new();
    host.start(&program, &["a", "b"], &[]).end();
    // Without a handler, failures end the process.
    let mut fatal = host.start(&program, &["a", "b"], &["fatal"]);
    assert_eq!(fatal.0.wait().unwrap().code(), Some(255));
}

#[test]
fn counters_are_reported_and_buffers_cached_unless_disabled() {
    let program = compile("counters.c");
    let host = Host::new();
    host.start(&program, &["a", "b"], &[]).end();
    host.start(&program, &["a", "b"], &["off"]).end();
}

#[test]
fn children_of_a_process_have_none_of_its_endpoints() {
    let program = compile("child.c");
    let host = Host::new();
    host.start(&program, &["a", "b"], &[]).end();
}
