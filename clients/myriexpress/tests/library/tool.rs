//! The tool `causeway-mx`: measurements, and reports of errors.

use std::process::Output;

use crate::common::{Host, compile, library, nic};

const TOOL: &str = env!("CARGO_BIN_EXE_causeway-mx");

fn library_file() -> String {
    library().join("libmyriexpress.so").display().to_string()
}

/// Runs the tool at NIC `a`, with a serving instance at NIC `b`.
fn measured(words: &[&str]) -> String {
    let (host, library) = (Host::new(), library_file());
    let always = ["--library", &library];
    let serves = host.start(TOOL, &["b"], &[&always[..], &["serve", "--once"]].concat());
    let asks = host.start(TOOL, &["a"], &[&always[..], words].concat());
    let said = asks.end();
    serves.end();
    said
}

#[test]
fn messages_of_all_lengths_are_measured_and_verified() {
    let sizes = "--sizes=0,1,8,129,4096,32K,33K,1M";
    let said = measured(&["pingpong", "b:0", sizes, "--count", "12", "--verify", "--json"]);
    assert_eq!(said.matches("\"messages_per_s\"").count(), 8, "{said}");
    let said = measured(&["stream", "b:0", sizes, "--count", "150", "--verify", "--both"]);
    assert_eq!(said.lines().count(), 2 + 8, "{said}");
    // With a MAC as the peer, blocking calls, and synchronous sends.
    let [_, _, mac @ ..] = nic("b").to_be_bytes();
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let words = ["stream", &mac, "--sizes=8,100K", "--count", "90", "--blocking", "--sync"];
    let said = measured(&[&words[..], &["--verify"]].concat());
    assert_eq!(said.lines().count(), 2 + 2, "{said}");
}

#[test]
fn service_of_measurements_survives_requests_that_are_too_long() {
    let (program, host, library) = (compile("oversized.c"), Host::new(), library_file());
    let always = ["--library", &library];
    let _serves = host.start(TOOL, &["b"], &[&always[..], &["serve"]].concat());
    let peer = nic("b").to_string();
    host.start(&program, &["a"], &[&peer]).end();
    let words = ["pingpong", "b:0", "--sizes=8", "--count", "5"];
    host.start(TOOL, &["a"], &[&always[..], &words].concat()).end();
}

#[test]
fn info_shows_the_nics() {
    let (host, library) = (Host::new(), library_file());
    let said = host.start(TOOL, &["a", "c"], &["--library", &library, "info"]).end();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[1].ends_with("02:00:00:00:00:61  a:0"), "{said}");
    assert!(lines[2].ends_with("02:00:00:00:00:63  c:0"), "{said}");
}

/// Returns the error output of a failed run.
fn fails(words: &[&str], boards: Option<&str>) -> String {
    let mut command = std::process::Command::new(TOOL);
    command.args(["--library", &library_file()]).args(words);
    command.env("CAUSEWAY_MX", boards.unwrap_or("/nowhere"));
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!(status.code(), Some(1));
    String::from_utf8(stderr).unwrap()
}

#[test]
fn tool_reports_errors_with_their_remedy() {
    let said = fails(&["pingpong", "nobody"], None);
    assert!(
        said.contains("\"nobody\" is not a known NIC") && said.contains("causeway peer list"),
        "{said}"
    );
    let said = fails(&["pingpong", "02:00:00:00:00:01"], None);
    assert!(said.contains("a port of causewayd of kind mx"), "{said}");
    let said = fails(&["info", "--library", "/nowhere.so"], None);
    assert!(said.contains("--library"), "{said}");
}
