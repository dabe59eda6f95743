//! The program's commands, as the host's scripts run them.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Time limit of the first line of a command.
const LIMIT: Duration = Duration::from_secs(60);

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway-guest"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command that ends.
fn run(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// A command that listens on a Unix socket; ends with the test.
struct Listening(Child, PathBuf);

impl Listening {
    fn start(command: &str) -> Self {
        let name = format!("causeway-commands-{}-{command}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let child = program(&[command, &format!("unix:{}", path.display())]).spawn().unwrap();
        Self(child, path)
    }

    fn target(&self) -> String {
        format!("unix:{}", self.1.display())
    }

    /// Returns the first line of its output.
    fn line(&mut self) -> Value {
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let (first, line) = channel();
        thread::spawn(move || first.send(output.lines().next()));
        let line = line.recv_timeout(LIMIT).expect("no output").expect("no line").unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_file(&self.1);
    }
}

#[test]
fn command_serve_prints_its_object_when_it_listens() {
    let mut serve = Listening::start("serve");
    assert_eq!(serve.line(), json!({ "listening": [serve.target()] }));
    let report = run(&["half-close", &serve.target(), "5000"]);
    assert_eq!(serde_json::from_slice::<Value>(&report.stdout).unwrap(), json!({ "bytes": 5000 }));
}

#[test]
fn command_shell_prints_its_object_when_it_listens() {
    let mut shell = Listening::start("shell");
    assert_eq!(shell.line(), json!({ "listening": [shell.target()] }));
}

#[test]
fn command_shell_that_cannot_listen_prints_the_reason_alone() {
    let folder = format!("unix:{}", std::env::temp_dir().display());
    let ended = run(&["shell", &folder]);
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(1), &b""[..]));
    assert!(String::from_utf8(ended.stderr).unwrap().starts_with("listen on unix:"));
}

#[test]
fn command_hostile_takes_no_other_kind_than_net_and_vsock() {
    for arguments in [&["hostile", "rebind", "vsok"][..], &["hostile", "gpu", "none", "3"]] {
        let ended = run(arguments);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}");
        let why = String::from_utf8(ended.stderr).unwrap();
        assert!(why.contains("the kinds are net and vsock"), "{why}");
    }
}
