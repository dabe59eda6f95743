//! Programs that run while their daemon is killed, started again, or stopped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use causeway_model::MxUdp;
use rustix::process::{Pid, Signal, kill_process};

use super::common::{Folder, Host, command, compile, provider};

/// The directory of a process that acts as a daemon.
const DAEMON: &str = "CAUSEWAY_TEST_FI_DAEMON";

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The NIC of a daemon that reaches another host, and the addresses of both.
const CARRIED: &str = "CAUSEWAY_TEST_FI_CARRIED";

/// Starts a daemon in a process of its own. `carried` is as [`CARRIED`], or empty.
fn daemon(dir: &Path, test: &str, carried: &str) -> Running {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--nocapture"]).env(DAEMON, dir).env(CARRIED, carried);
    let process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut process = Running(process);
    let out = BufReader::new(process.0.stdout.as_mut().unwrap());
    assert!(out.lines().any(|line| line.unwrap() == "daemon is ready"));
    process
}

/// Acts as the daemon until it is killed or its standard input is closed.
fn be_daemon(dir: &Path) {
    let carried = std::env::var(CARRIED).unwrap_or_default();
    let words: Vec<&str> = carried.split(' ').collect();
    let _host = match words[..] {
        [board, listen, peer] => {
            let peers = vec![peer.parse().unwrap()];
            Host::carried(dir, board, &MxUdp { listen: listen.parse().unwrap(), peers })
        }
        _ => Host::at(dir, &["a"]),
    };
    println!("daemon is ready");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// Runs `pairs.c`, and controls the daemon as the program requests.
fn assert_program(argument: &str, test: &str) {
    if let Some(dir) = std::env::var_os(DAEMON) {
        return be_daemon(dir.as_ref());
    }
    let dir = Folder::new();
    let boards = dir.0.join("a").display().to_string();
    let done = run_controlled("pairs.c", argument, &boards, || daemon(&dir.0, test, ""));
    assert_eq!(done.as_deref().unwrap_or("ok"), "ok");
}

/// Runs a program with a daemon, and controls the daemon as the program requests. Returns the last
/// line of its output, or its exit status; `None` if it cannot be compiled.
fn run_controlled(
    name: &str,
    argument: &str,
    boards: &str,
    daemon: impl Fn() -> Running,
) -> Option<String> {
    let (program, provider) = (compile(name)?, provider());
    let mut running = Some(daemon());
    let path = program.0.join("program");
    let mut process = command(path.to_str().unwrap(), &provider, None, boards);
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
            "start" => running = Some(daemon()),
            "stop" => signal(Signal::STOP),
            "continue" => signal(Signal::CONT),
            _ => continue,
        }
        writeln!(tell).unwrap();
    }
    let status = process.0.wait().unwrap();
    Some(if status.success() { last } else { format!("{last} ({status})") })
}

#[test]
fn provider_sends_again_when_a_daemon_between_hosts_was_killed() {
    let test = "restart::provider_sends_again_when_a_daemon_between_hosts_was_killed";
    if let Some(dir) = std::env::var_os(DAEMON) {
        return be_daemon(dir.as_ref());
    }
    let dir = Folder::new();
    // An address of this process alone: no other program takes a port while its daemon is away.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let sockets = [(); 2].map(|()| UdpSocket::bind(format!("127.{high}.{low}.1:0")).unwrap());
    let [one, two] = sockets.map(|socket| socket.local_addr().unwrap());
    let boards = ["a", "b"].map(|board| dir.0.join(board).display().to_string()).join(":");
    let _other = daemon(&dir.0, test, &format!("b {two} {one}"));
    let first = || daemon(&dir.0, test, &format!("a {one} {two}"));
    let done = run_controlled("hosts.c", "", &boards, first);
    assert_eq!(done.as_deref().unwrap_or("ok"), "ok");
}

#[test]
fn provider_goes_on_by_the_next_daemon() {
    assert_program("restart", "restart::provider_goes_on_by_the_next_daemon");
}

#[test]
fn provider_finishes_a_slow_connect_without_more_calls() {
    assert_program("slow", "restart::provider_finishes_a_slow_connect_without_more_calls");
}
