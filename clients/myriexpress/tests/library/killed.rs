//! Many processes, one of which is killed, or whose daemon is killed.

use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Host, Program, Running, compile, folder, nic, start};

/// Variable with the folder of a process that acts as a daemon.
const DAEMON: &str = "CAUSEWAY_TEST_DAEMON";
const RANKS: usize = 8;

#[test]
fn eight_processes_send_all_of_them_messages_of_all_lengths_in_segments() {
    let (program, host) = (compile("all.c"), Host::new());
    let board = nic("a").to_string();
    let all: Vec<Running> = (0..RANKS)
        .map(|rank| host.start(&program, &["a"], &[&rank.to_string(), "8", &board]))
        .collect();
    all.into_iter().for_each(|process| drop(process.end()));
}

/// Waits for a line of output.
fn says(process: &mut Running, what: &str) {
    let mut line = String::new();
    let mut out = std::io::BufReader::new(process.0.stdout.as_mut().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), what);
}

/// Starts processes that exchange messages. They tolerate the loss of `victim`.
fn traffic(dir: &Path, program: &Program, ranks: usize, victim: usize) -> Vec<Running> {
    let (board, ranks_text, victim) = (nic("a").to_string(), ranks.to_string(), victim.to_string());
    let mut all: Vec<Running> = (0..ranks)
        .map(|rank| {
            let rank = rank.to_string();
            let words = [&rank, &ranks_text, &board, &victim].map(String::as_str);
            start(dir, program, &["a"], &words)
        })
        .collect();
    all.iter_mut().for_each(|process| says(process, "met"));
    all
}

#[test]
fn a_process_killed_in_mid_traffic_is_missed_by_all_and_the_others_go_on() {
    let (program, host) = (compile("traffic.c"), Host::new());
    for victim in [0, 2] {
        let mut all = traffic(host.dir(), &program, 4, victim);
        let mut dead = all.remove(victim);
        dead.0.kill().unwrap();
        for process in all {
            assert_eq!(process.end(), "lost 1\n");
        }
    }
}

/// Starts a daemon in a separate process, which can be killed.
fn daemon(dir: &Path, test: &str) -> Running {
    let this = std::env::current_exe().unwrap();
    let mut process = Command::new(this);
    process.args(["--exact", test, "--nocapture"]).env(DAEMON, dir).stdout(Stdio::piped());
    let mut process = Running(process.stdin(Stdio::piped()).spawn().unwrap());
    let out = std::io::BufReader::new(process.0.stdout.as_mut().unwrap());
    assert!(out.lines().any(|line| line.unwrap() == "daemon is ready"));
    process
}

/// Acts as a daemon until the process is killed, or its parent ends.
fn be_daemon(dir: &Path) {
    let host = Host::at(dir.to_owned());
    host.add("a", "red", None).unwrap();
    println!("daemon is ready");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

#[test]
fn a_daemon_killed_in_mid_traffic_harms_no_channel_and_the_next_one_takes_everybody() {
    if let Some(dir) = std::env::var_os(DAEMON) {
        return be_daemon(dir.as_ref());
    }
    let test =
        "killed::a_daemon_killed_in_mid_traffic_harms_no_channel_and_the_next_one_takes_everybody";
    let (program, dir) = (compile("traffic.c"), folder());
    let mut first = daemon(&dir, test);
    let all = traffic(&dir, &program, 3, RANKS);
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    // The processes are connected and need no daemon. It is absent when they are stopped.
    let pid = |process: &Running| rustix::process::Pid::from_child(&process.0);
    let next = daemon(&dir, test);
    for process in &all {
        rustix::process::kill_process(pid(process), rustix::process::Signal::USR1).unwrap();
    }
    for process in all {
        assert_eq!(process.end(), "lost 0\n");
    }
    // New processes connect over the next daemon.
    let others = traffic(&dir, &program, 2, RANKS);
    for process in &others {
        rustix::process::kill_process(pid(process), rustix::process::Signal::USR1).unwrap();
    }
    others.into_iter().for_each(|process| assert_eq!(process.end(), "lost 0\n"));
    drop(next);
    let _ = std::fs::remove_dir_all(&dir);
}
