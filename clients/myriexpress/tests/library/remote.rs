//! Processes of two hosts: two daemons with a NIC each on a pair of veth interfaces, in a network
//! namespace.

use std::io::BufRead as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_host::net::socket::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{Host, Program, Running, compile, nic};
use crate::wire::{ip, with_wire};

fn all_lengths() {
    let program = compile("pingpong.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    both(&program, (&one, &two));
    let counted = one.counters_at_rest("a");
    assert!(counted["messages_sent_total"] >= 48 && counted["bytes_pulled_total"] > 15_000_000);
}

#[test]
fn two_processes_of_two_hosts_exchange_messages_of_all_lengths() {
    with_wire("remote::two_processes_of_two_hosts_exchange_messages_of_all_lengths", all_lengths);
}

/// Waits for the line that a process prints after its peer has sent.
pub fn met(process: &mut Running) {
    let mut line = String::new();
    let mut out = std::io::BufReader::new(process.0.stdout.as_mut().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("met "), "{line}");
}

fn process_dies() {
    let program = compile("partner.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let mut dying = two.start(&program, &["b"], &["dies"]);
    let told = one.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    met(&mut dying);
    dying.0.kill().unwrap();
    told.end();
}

#[test]
fn a_process_of_another_host_that_dies_is_noticed() {
    with_wire("remote::a_process_of_another_host_that_dies_is_noticed", process_dies);
}

fn daemon_dies() {
    let program = compile("partner.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let mut dying = two.start(&program, &["b"], &["dies"]);
    let told = one.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    met(&mut dying);
    // The remote daemon is replaced by another without its state.
    drop(two);
    let _three = Host::on("far", "b");
    told.end();
}

#[test]
fn restart_of_a_remote_daemon_is_noticed() {
    with_wire("remote::restart_of_a_remote_daemon_is_noticed", daemon_dies);
}

fn own_daemon_dies() {
    let program = compile("partner.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    let mut partner = two.start(&program, &["b"], &["dies"]);
    let told = one.start(&program, &["a"], &["waits", &nic("b").to_string()]);
    met(&mut partner);
    drop(one);
    told.end();
}

#[test]
fn remote_peers_are_gone_with_the_own_daemon() {
    with_wire("remote::remote_peers_are_gone_with_the_own_daemon", own_daemon_dies);
}

fn names() {
    let program = compile("names.c");
    let (one, _two) = (Host::on("near", "a"), Host::on("far", "b"));
    one.start(&program, &["a"], &["b:0", &nic("b").to_string()]).end();
}

#[test]
fn names_of_remote_nics_are_found() {
    with_wire("remote::names_of_remote_nics_are_found", names);
}

fn datagrams() {
    ip("link set lo mtu 1500 up");
    let program = compile("pingpong.c");
    both(&program, (&Host::with_udp("a", 9101, 9102), &Host::with_udp("b", 9102, 9101)));
}

#[test]
fn messages_of_all_lengths_cross_in_datagrams() {
    with_wire("remote::messages_of_all_lengths_cross_in_datagrams", datagrams);
}

/// Prints the counters of NICs if the test fails: they show where messages wait.
struct CountersOfFailure<'a>(Vec<(&'a Host, &'a str)>);

impl Drop for CountersOfFailure<'_> {
    fn drop(&mut self) {
        for (host, nic) in self.0.iter().filter(|_| std::thread::panicking()) {
            eprintln!("{nic}: {:?}", host.counters(nic));
        }
    }
}

/// Runs a program on both hosts at the same time.
pub fn both(program: &Program, (one, two): (&Host, &Host)) {
    let _counters = CountersOfFailure(vec![(one, "a"), (two, "b")]);
    let a = one.start(program, &["a"], &["1", &nic("b").to_string()]);
    let b = two.start(program, &["b"], &["0", &nic("a").to_string()]);
    a.end();
    b.end();
}

fn windows() {
    ip("link set lo mtu 1500 up");
    let program = compile("window.c");
    both(&program, (&Host::on("near", "a"), &Host::on("far", "b")));
    both(&program, (&Host::with_udp("a", 9101, 9102), &Host::with_udp("b", 9102, 9101)));
}

#[test]
fn many_long_messages_of_growing_lengths_are_under_way_at_once() {
    with_wire("remote::many_long_messages_of_growing_lengths_are_under_way_at_once", windows);
}

/// Forwards frames between two interfaces, with losses, duplicates and swaps, until `stop` is set.
fn storm(stop: &AtomicBool) -> u64 {
    let sockets = ["left", "right"].map(|name| PacketSocket::open(name).unwrap());
    let mut held: [Option<Vec<u8>>; 2] = [None, None];
    let (mut random, mut lost, mut room) = (1_u64, 0, vec![0; 16_384]);
    while !stop.load(Ordering::Relaxed) {
        let mut all = sockets.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
        let time = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let idle = poll(&mut all, Some(&time)).unwrap() == 0;
        for (at, socket) in sockets.iter().enumerate() {
            let far = &sockets[1 - at];
            while let Ok(packet) = socket.receive(&mut room) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let frame = &room[..packet.len];
                let _ = match random >> 57 {
                    0..=2 => {
                        lost += 1;
                        continue;
                    }
                    3 => rustix::io::write(far, frame).and_then(|_| rustix::io::write(far, frame)),
                    4 | 5 if held[at].is_none() => {
                        held[at] = Some(frame.to_vec());
                        continue;
                    }
                    _ => rustix::io::write(far, frame),
                };
                if let Some(late) = held[at].take() {
                    let _ = rustix::io::write(far, &late);
                }
            }
            if idle && let Some(late) = held[at].take() {
                let _ = rustix::io::write(far, &late);
            }
        }
    }
    lost
}

/// Stops the forwarding, even if the test fails.
struct Calm<'a>(&'a AtomicBool);

impl Drop for Calm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exchanges messages of all lengths over a faulty link. The interfaces are `start` and `end`.
pub fn in_storm(hosts: impl FnOnce() -> (Host, Host)) {
    let lost = in_storm_with(hosts, |one, two| both(&compile("pingpong.c"), (one, two)));
    assert!(lost > 100, "{lost} frames were lost");
}

/// Runs `act` over a faulty link. Returns the number of lost frames.
pub fn in_storm_with(hosts: impl FnOnce() -> (Host, Host), act: impl FnOnce(&Host, &Host)) -> u64 {
    ip("link add left type veth peer name start");
    ip("link add right type veth peer name end");
    for interface in ["left", "start", "right", "end"] {
        ip(&format!("link set {interface} mtu 9000 up"));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| storm(&stop));
        let calm = Calm(&stop);
        let (one, two) = hosts();
        act(&one, &two);
        drop(calm);
        storm.join().unwrap()
    })
}

#[test]
fn messages_arrive_whole_where_frames_are_lost_doubled_and_swapped() {
    with_wire("remote::messages_arrive_whole_where_frames_are_lost_doubled_and_swapped", || {
        in_storm(|| (Host::on("start", "a"), Host::on("end", "b")));
    });
}

fn many() {
    let program = compile("pingpong.c");
    let (one, two) = (Host::on("near", "a"), Host::on("far", "b"));
    // Two more NICs of another tenant on the same interfaces, distinguished by their addresses.
    one.add("x", "blue", Some("near")).unwrap();
    two.add("y", "blue", Some("far")).unwrap();
    let _counters = CountersOfFailure(vec![(&one, "a"), (&two, "b"), (&one, "x"), (&two, "y")]);
    let pairs = [("a", "b"), ("x", "y")].map(|(first, second)| {
        let a = one.start(&program, &[first], &["1", &nic(second).to_string()]);
        let b = two.start(&program, &[second], &["0", &nic(first).to_string()]);
        [a, b]
    });
    pairs.into_iter().flatten().for_each(|process| drop(process.end()));
    for board in ["a", "x"] {
        assert!(one.counters(board)["messages_sent_total"] >= 48);
    }
}

#[test]
fn interface_is_shared_by_nics() {
    with_wire("remote::interface_is_shared_by_nics", many);
}

#[test]
fn nics_with_the_same_address_are_counted() {
    let test = "remote::nics_with_the_same_address_are_counted";
    with_wire(test, || {
        let hosts = [Host::on("near", "a"), Host::on("far", "a")];
        let since = Instant::now();
        let heard = |host: &Host| host.counters("a")["addresses_contested_total"] > 0;
        while !hosts.iter().all(heard) {
            assert!(since.elapsed() < Duration::from_secs(10), "no NIC notices the other");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(hosts[0].counters("a")["boards_known"], 0);
    });
}
