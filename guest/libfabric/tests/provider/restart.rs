//! Programs whose daemon is killed, started again, or stopped while they run.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::common::{Folder, Host, command, compile, provider};

/// Where a process that is to be a daemon has its board.
const DAEMON: &str = "CAUSEWAY_TEST_FI_DAEMON";

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon in a process of its own.
fn daemon(dir: &Path, test: &str) -> Running {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--nocapture"]).env(DAEMON, dir);
    let process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut process = Running(process);
    let out = BufReader::new(process.0.stdout.as_mut().unwrap());
    assert!(out.lines().any(|line| line.unwrap() == "daemon is ready"));
    process
}

/// Is the daemon until it is killed, or nobody holds its standard input.
fn be_daemon(dir: &Path) {
    let _host = Host::at(dir, &["a"]);
    println!("daemon is ready");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// Runs `pairs.c`, and does to the daemon what it asks for.
fn holds(argument: &str, test: &str) {
    if let Some(dir) = std::env::var_os(DAEMON) {
        return be_daemon(dir.as_ref());
    }
    let Some(program) = compile("pairs.c") else { return };
    let (provider, dir) = (provider(), Folder::new());
    let socket = dir.0.join("a").display().to_string();
    let mut running = Some(daemon(&dir.0, test));
    let path = program.0.join("program");
    let mut process = command(path.to_str().unwrap(), &provider, None, &socket);
    process.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Running(process.spawn().unwrap());
    let mut tell = process.0.stdin.take().unwrap();
    let out = BufReader::new(process.0.stdout.take().unwrap());
    let mut last = String::new();
    for line in out.lines() {
        last = line.unwrap();
        let signal = |signal| {
            let daemon = running.as_ref().map(|daemon| Pid::from_child(&daemon.0));
            kill_process(daemon.unwrap(), signal).unwrap();
        };
        match last.as_str() {
            "kill" => running = None,
            "start" => running = Some(daemon(&dir.0, test)),
            "stop" => signal(Signal::STOP),
            "continue" => signal(Signal::CONT),
            _ => continue,
        }
        writeln!(tell).unwrap();
    }
    assert!(process.0.wait().unwrap().success() && last == "ok", "{last}");
}

#[test]
fn provider_goes_on_by_the_next_daemon() {
    holds("restart", "restart::provider_goes_on_by_the_next_daemon");
}

#[test]
fn provider_finishes_a_slow_connect_without_more_calls() {
    holds("slow", "restart::provider_finishes_a_slow_connect_without_more_calls");
}
