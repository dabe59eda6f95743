//! Routes and captures of a group apply to its adapters: to their frames, and the routes to RDMA.

use std::thread;

use causeway_vm::Result;
use causeway_vm::rdma::{Exchange, Listener, Pair, RdmaGuest, Steps};

use crate::common::LIMIT;

/// Frames of pings and answers that a capture waits for, and the least bytes of these.
const CAPTURED: &str = "6";
const FRAMES_BYTES_MIN: usize = 6 * 98;

/// Returns whether `from` reaches the address of `to` by frames.
fn pings(from: &RdmaGuest, to: &RdmaGuest) -> bool {
    let ran = from.guest().run(&["ping", "-c", "3", "-w", "4", &to.ip()], LIMIT).unwrap();
    ran.code == Some(0)
}

/// Returns whether `from` reaches the address of `to` at one of three attempts: a busy machine may answer
/// too late.
fn reaches(from: &RdmaGuest, to: &RdmaGuest) -> bool {
    (0..3).any(|_| pings(from, to))
}

/// Returns the Ethernet address of a guest's adapter.
fn mac(guest: &RdmaGuest) -> String {
    let text = guest.run(&["cat", "/sys/class/net/eth0/address"], LIMIT).unwrap();
    text.trim().to_owned()
}

/// Seconds after which `rping` gives up, and after which an `rping` that is denied does.
const PATIENCE: &str = "30";
const DENIED: &str = "8";

/// Runs `rping` from one guest to the other, for this number of seconds at most.
fn rping(at: &RdmaGuest, from: &RdmaGuest, seconds: &str) -> Result<(String, String)> {
    let ip = at.ip();
    let exchange = Exchange {
        server: &["timeout", seconds, "rping", "-s", "-a", &ip, "-C", "3"],
        client: &["timeout", seconds, "rping", "-c", "-a", &ip, "-C", "3"],
        listener: Listener::ConnectionManager,
        limit: LIMIT,
    };
    exchange.run(at, from)
}

/// Adds the step of routes and captures. Guests on another server are left out: the routes are those of
/// causewayd.
pub fn all(steps: &mut Steps) {
    if steps.rig.daemon.is_some() {
        steps.step("routes and captures of the group", |pair| {
            obey(pair);
            Ok(())
        });
    }
}

fn obey(pair: &Pair) {
    let (Some(daemon), [one, two]) = (&pair.daemon, &pair.guests) else { return };
    assert!(reaches(one, two));
    rping(two, one, PATIENCE).unwrap();

    // A capture sees the frames between the two adapters.
    let file = std::env::temp_dir().join(format!("rdma-rules-{}.pcapng", std::process::id()));
    let path = file.to_str().unwrap();
    let capture = ["capture", "hca1", "--protocol", "icmp", "--count", CAPTURED, "--write", path];
    let captured = thread::scope(|scope| {
        let capture = scope.spawn(|| daemon.cli(&[&capture[..], &["--seconds", "60"]].concat()));
        while !capture.is_finished() {
            assert!(reaches(one, two));
        }
        capture.join().unwrap()
    });
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    captured.unwrap();
    assert!(bytes.len() >= FRAMES_BYTES_MIN, "the capture has {} bytes", bytes.len());

    // A route back to the sender denies the pair, to frames and to RDMA.
    let (from, to) = (mac(one), mac(two));
    let route = ["route", "add", "--group", "blue", "--source", &from, "--destination", &to];
    daemon.cli(&[&route[..], &["--to", "interface:hca1"]].concat()).unwrap();
    assert!(!pings(one, two), "frames pass against the route");
    let trace = daemon.cli(&["trace", "frame", "--from", "hca1", "--to", &to]).unwrap();
    assert!(trace.contains("drop"), "{trace}");
    assert!(rping(two, one, DENIED).is_err(), "RDMA passes against the route");
    daemon.cli(&["route", "del", "1"]).unwrap();
    assert!(reaches(one, two));
    rping(two, one, PATIENCE).unwrap();
}
