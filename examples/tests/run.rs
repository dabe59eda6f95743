//! Runs each example against a causewayd of its own: Unix sockets in a temporary folder, no
//! privilege.
//!
//! The programs are child processes; a wait of a test ends after 60 s ([`LIMIT`]), but a program
//! that is run to its end has no limit. Without a C compiler the examples in C are skipped, and
//! without libfabric's headers that of libfabric.

#[path = "run/host.rs"]
mod host;

use host::{Host, LIMIT};

/// causewayd itself, in a process of this program: the tests start it, `cargo test` does not.
#[test]
#[ignore = "a process that the other tests start"]
fn causewayd() {
    let Some(file) = std::env::var_os(host::CONFIG) else { return };
    let arguments = ["causewayd".into(), "--config".into(), file];
    let arguments = <causeway_daemon::args::Args as clap::Parser>::parse_from(arguments);
    causeway_daemon::run::run(&arguments, causeway_daemon::services::SERVICES).unwrap();
}

#[test]
fn ethernet_ping_answers_frames() {
    let host = Host::start(
        "[[port]]\nname = \"a\"\ngroup = \"blue\"\nkind = \"net\"\nmac = \"52:54:00:00:00:0a\"\n\
         [[port]]\nname = \"b\"\ngroup = \"blue\"\nkind = \"net\"\nmac = \"52:54:00:00:00:0b\"\n",
    );
    let program = env!("CARGO_BIN_EXE_ethernet-ping");
    let mut answers = host.spawn(program, &["b"], &[]);
    answers.expect_line("answering");
    let out = host.run(program, &["a", "52:54:00:00:00:0b", "200"], &[]);
    assert!(out.starts_with("200 frames answered"), "{out}");
}

#[test]
fn vsock_server_echoes_a_stream() {
    let host = Host::start(
        "[[port]]\nname = \"a\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = 3\n\
         [[port]]\nname = \"b\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = 4\n",
    );
    let mut server = host.spawn(env!("CARGO_BIN_EXE_vsock-server"), &["b", "7"], &[]);
    server.expect_line("listening at CID 4, port 7");
    let out = host.run(env!("CARGO_BIN_EXE_vsock-client"), &["a", "4", "7", "3000000"], &[]);
    assert!(out.starts_with("3000000 bytes there and back"), "{out}");
    server.expect_line("accepted CID 3");
    server.expect_line("3000000 bytes sent back");
    server.ends_well();
}

const NICS: &str = "[[port]]\nname = \"mx0\"\ngroup = \"blue\"\nkind = \"mx\"\n\
                    [[port]]\nname = \"mx1\"\ngroup = \"blue\"\nkind = \"mx\"\n";

/// Returns the environment of a process on a NIC.
fn at_nic(host: &Host, nic: &str) -> (&'static str, String) {
    ("CAUSEWAY_MX", host.socket(nic))
}

#[test]
fn mx_messages_are_answered() {
    let host = Host::start(NICS);
    let Some(program) = host.compile_mx("mx_pingpong.c") else { return };
    let mut answers = host.spawn(&program, &[], &[at_nic(&host, "mx1")]);
    answers.expect_line("answering");
    for (count, len) in [("200", "64"), ("3", "1048576")] {
        if count == "3" {
            answers = host.spawn(&program, &[], &[at_nic(&host, "mx1")]);
            answers.expect_line("answering");
        }
        let out = host.run(&program, &["mx1", count, len], &[at_nic(&host, "mx0")]);
        assert!(out.starts_with(&format!("{count} messages of {len} bytes answered")), "{out}");
        answers.ends_well();
    }
}

#[test]
fn libfabric_messages_are_answered() {
    let host = Host::start(NICS);
    let Some(program) = host.compile_fi("fi_pingpong.c") else { return };
    let provider = ("FI_PROVIDER_PATH", host.provider());
    let mut answers = host.spawn(&program, &["47"], &[at_nic(&host, "mx1"), provider.clone()]);
    answers.expect_line("answering");
    let out = host.run(&program, &["47", "mx1", "200"], &[at_nic(&host, "mx0"), provider]);
    assert!(out.starts_with("200 messages of 64 bytes answered"), "{out}");
    answers.ends_well();
}

#[test]
fn examples_name_the_missing_socket() {
    let host = Host::start("");
    let failed = host.output(env!("CARGO_BIN_EXE_vsock-client"), &["none", "4", "7"], &[]);
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && text.contains("none.sock"), "{text}");
    assert!(LIMIT.as_secs() > 0);
}
