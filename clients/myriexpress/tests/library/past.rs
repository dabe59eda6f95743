//! Direct mode: messages do not pass the daemons, which only announce NICs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Host, Running, compile, nic};
use crate::remote::{both, in_storm, in_storm_with, met};
use crate::wire::{ip, with_wire};

#[test]
fn direct_messages_of_all_lengths_arrive() {
    with_wire("past::direct_messages_of_all_lengths_arrive", || {
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        both(&compile("pingpong.c"), (&one, &two));
        both(&compile("window.c"), (&one, &two));
        for (host, board) in [(&one, "a"), (&two, "b")] {
            let counted = host.counters_at_rest(board);
            assert_eq!(counted["endpoints_bypassing_total"], 2);
            assert_eq!(counted["messages_sent_total"], 0, "{counted:?}");
            assert!(counted["frames_received_total"] < 100, "{counted:?}");
        }
    });
}

#[test]
fn direct_and_ordinary_endpoints_reach_each_other() {
    with_wire("past::direct_and_ordinary_endpoints_reach_each_other", || {
        let (one, two) = (Host::past("near", "a"), Host::on("far", "b"));
        both(&compile("pingpong.c"), (&one, &two));
        let (one, two) = (Host::on("near", "c"), Host::past("far", "d"));
        let program = compile("pingpong.c");
        let a = one.start(&program, &["c"], &["1", &nic("d").to_string()]);
        let b = two.start(&program, &["d"], &["0", &nic("c").to_string()]);
        a.end();
        b.end();
    });
}

#[test]
fn direct_messages_arrive_whole_over_a_faulty_link() {
    let test = "past::direct_messages_arrive_whole_over_a_faulty_link";
    with_wire(test, || in_storm(|| (Host::past("start", "a"), Host::past("end", "b"))));
}

/// Returns the number of frames received by an interface.
fn frames(interface: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let its = all.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
    // The first column contains bytes.
    its.and_then(|counts| counts.split_whitespace().nth(1)?.parse().ok()).expect(&all)
}

#[test]
fn long_messages_take_half_as_many_frames_where_both_interfaces_carry_such() {
    let test = "past::long_messages_take_half_as_many_frames_where_both_interfaces_carry_such";
    with_wire(test, || {
        let program = compile("window.c");
        for make in [Host::past as fn(&str, &str) -> Host, Host::on] {
            let [wide, narrow] = [9000, 4200].map(|mtu| {
                ip(&format!("link set far mtu {mtu}"));
                let before = frames("near") + frames("far");
                both(&program, (&make("near", "a"), &make("far", "b")));
                frames("near") + frames("far") - before
            });
            assert!(wide * 10 < narrow * 7, "{wide} and {narrow} frames");
        }
    });
}

/// Number of short messages of each sender.
const OF_EACH: u32 = 3200;
const SENDERS: u32 = 6;

#[test]
fn a_crowd_that_sends_is_held_up_and_not_made_to_send_again_and_a_long_message_gets_through() {
    let test = "past::a_crowd_that_sends_is_held_up_and_not_made_to_send_again_and_a_long_message_gets_through";
    with_wire(test, || {
        let program = compile("crowd.c");
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        let (peer, all) = (nic("b").to_string(), SENDERS * OF_EACH);
        let before = frames("far");
        let takes = two.start(&program, &["b"], &["takes", &all.to_string(), "7"]);
        let long = two.start(&program, &["b"], &["long", &peer, "9"]);
        let sends = |own: u32| {
            let (own, count) = (own.to_string(), OF_EACH.to_string());
            one.start(&program, &["a"], &["sends", &peer, &own, &count])
        };
        let others: Vec<_> = (2..2 + SENDERS).map(sends).collect();
        takes.end();
        long.end();
        others.into_iter().for_each(|process| drop(process.end()));
        let came = frames("far") - before;
        assert!(came < u64::from(all) * 3 / 2, "{came} frames for {all} messages");
    });
}

#[test]
fn close_waits_until_sent_messages_have_arrived() {
    with_wire("past::close_waits_until_sent_messages_have_arrived", || {
        let hosts = || (Host::past("start", "a"), Host::past("end", "b"));
        let lost = in_storm_with(hosts, |one, two| {
            let program = compile("crowd.c");
            let stays = two.start(&program, &["b"], &["stays", "1000"]);
            let leaves = one.start(&program, &["a"], &["leaves", &nic("b").to_string(), "1000"]);
            leaves.end();
            stays.end();
        });
        assert!(lost > 0, "no frame was lost");
    });
}

#[test]
fn hostile_senders_that_unmap_their_messages_fail_alone() {
    let test = "past::hostile_senders_that_unmap_their_messages_fail_alone";
    with_wire(test, || {
        let program = compile("unmaps.c");
        both(&program, (&Host::past("near", "a"), &Host::past("far", "b")));
        both(&program, (&Host::past("near", "a"), &Host::on("far", "b")));
    });
}

/// Returns the number of frames that passed the queueing discipline of an interface.
fn queued(interface: &str) -> u64 {
    let said = Command::new("tc").args(["-s", "qdisc", "show", "dev", interface]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let words: Vec<&str> = said.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "pkt").expect(&said);
    words[at - 1].parse().unwrap()
}

#[test]
fn direct_frames_skip_the_qdisc_unless_requested() {
    let test = "past::direct_frames_skip_the_qdisc_unless_requested";
    with_wire(test, || {
        let done = Command::new("tc")
            .args("qdisc add dev near root pfifo limit 1000".split_whitespace())
            .status();
        assert!(done.unwrap().success());
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        let program = compile("pingpong.c");
        let path = program.as_ref().to_str().unwrap().to_owned();
        for (set, passes) in [("CAUSEWAY_QDISC=0", false), ("CAUSEWAY_QDISC=1", true)] {
            let before = queued("near");
            let a = one.start("env", &["a"], &[set, &path, "1", &nic("b").to_string()]);
            let b = two.start(&program, &["b"], &["0", &nic("a").to_string()]);
            a.end();
            b.end();
            let frames = queued("near") - before;
            assert_eq!(frames > 200, passes, "{set}: {frames} frames");
        }
    });
}

#[test]
fn direct_process_death_is_noticed() {
    with_wire("past::direct_process_death_is_noticed", || {
        let program = compile("partner.c");
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        let mut dying = two.start(&program, &["b"], &["dies"]);
        let told = one.start(&program, &["a"], &["waits", &nic("b").to_string()]);
        met(&mut dying);
        dying.0.kill().unwrap();
        told.end();
    });
}

/// A process that exchanges messages on command.
struct Asking {
    process: Running,
    lines: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Asking {
    /// Connects a process of a host to that of another NIC.
    fn new(host: &Host, board: &str, peer: &str) -> Self {
        let program = compile("goes_on.c");
        let mut command = Command::new(&program);
        command.args(["asks", &nic(peer).to_string()]);
        command.env("CAUSEWAY_MX", host.dir().join(board));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (lines, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { process: Running(child), lines, said: BufReader::new(said) }
    }

    /// Exchanges messages in both directions.
    fn ask(&mut self, how: &str) {
        writeln!(self.lines, "{how}").unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line, "met\n", "{how}");
    }

    fn end(self) {
        let Self { mut process, lines, .. } = self;
        drop(lines);
        assert!(process.0.wait().unwrap().success());
    }
}

#[test]
fn direct_peers_continue_without_daemons_and_sleep_when_idle() {
    let test = "past::direct_peers_continue_without_daemons_and_sleep_when_idle";
    with_wire(test, || {
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        let program = compile("goes_on.c");
        let answers = two.start(&program, &["b"], &["answers"]);
        let mut asks = Asking::new(&one, "a", "b");
        asks.ask("now");
        asks.ask("idle");
        let two = two.stop();
        asks.ask("one of the daemons is gone");
        let one = one.stop();
        asks.ask("both are");
        // New daemons must know the endpoints of these processes.
        let (one, two) = (Host::past_at("near", "a", one), Host::past_at("far", "b", two));
        std::thread::sleep(Duration::from_millis(300));
        asks.ask("there are new ones");
        asks.ask("idle");
        let program = compile("goes_on.c");
        let third = two.start(&program, &["b"], &["answers"]).fails();
        assert!(third.contains("mx_open_endpoint"), "the endpoint is in use: {third}");
        asks.end();
        answers.end();
        let since = Instant::now();
        while ["a", "b"].iter().zip([&one, &two]).any(|(board, host)| outlived(host, board)) {
            assert!(since.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(20));
        }
        both(&compile("pingpong.c"), (&one, &two));
    });
}

/// Returns whether a daemon knows surviving processes.
fn outlived(host: &Host, board: &str) -> bool {
    host.counters(board)["endpoints_outlived"] > 0
}

#[test]
fn direct_peers_of_one_host_continue_without_its_daemon() {
    with_wire("past::direct_peers_of_one_host_continue_without_its_daemon", || {
        let host = Host::past("near", "a");
        host.add_past("near", "c");
        let program = compile("goes_on.c");
        let answers = host.start(&program, &["c"], &["answers"]);
        let mut asks = Asking::new(&host, "a", "c");
        asks.ask("now");
        let dir = host.stop();
        asks.ask("the daemon is gone");
        asks.end();
        answers.end();
        let _ = std::fs::remove_dir_all(dir);
    });
}

#[test]
fn direct_process_that_makes_no_calls_loses_no_peer() {
    with_wire("past::direct_process_that_makes_no_calls_loses_no_peer", || {
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        let program = compile("goes_on.c");
        let answers = two.start(&program, &["b"], &["answers"]);
        let mut asks = Asking::new(&one, "a", "b");
        asks.ask("now");
        for signal in ["-STOP", "-CONT"] {
            let id = answers.0.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
            if signal == "-STOP" {
                writeln!(asks.lines, "while the process makes no calls").unwrap();
                std::thread::sleep(Duration::from_secs(3));
            }
        }
        let mut line = String::new();
        asks.said.read_line(&mut line).unwrap();
        assert_eq!(line, "met\n");
        asks.end();
        answers.end();
    });
}

#[test]
fn an_interface_that_goes_down_and_up_is_used_again() {
    with_wire("past::an_interface_that_goes_down_and_up_is_used_again", || {
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        let program = compile("goes_on.c");
        let answers = two.start(&program, &["b"], &["answers"]);
        let mut asks = Asking::new(&one, "a", "b");
        asks.ask("now");
        ip("link set near down");
        std::thread::sleep(Duration::from_millis(300));
        ip("link set near up");
        let since = Instant::now();
        asks.ask("it is up again");
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        asks.end();
        answers.end();
    });
}

#[test]
fn direct_falls_back_to_the_daemon_while_the_interface_is_down() {
    with_wire("past::direct_falls_back_to_the_daemon_while_the_interface_is_down", || {
        ip("link set near down");
        let (one, two) = (Host::past("near", "a"), Host::past("far", "b"));
        let program = compile("pingpong.c");
        let a = one.start(&program, &["a"], &["1", &nic("b").to_string()]);
        std::thread::sleep(Duration::from_millis(300));
        ip("link set near up");
        let b = two.start(&program, &["b"], &["0", &nic("a").to_string()]);
        a.end();
        b.end();
        assert_eq!(one.counters("a")["endpoints_bypassing_total"], 0);
    });
}
