//! C programs over the library, against a daemon.

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
