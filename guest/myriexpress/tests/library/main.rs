//! C programs over the library, against a daemon.

mod abi;
mod common;

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
fn a_process_that_dies_is_noticed_by_its_partners() {
    let program = compile("partner.c");
    let host = Host::new();
    let mut dying = host.start(&program, &["b"], &["dies"]);
    let told = host.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    // It says when it has sent; the other holds what it never takes.
    let mut line = String::new();
    let mut out = std::io::BufReader::new(dying.0.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "met\n");
    dying.0.kill().unwrap();
    told.end();
}
