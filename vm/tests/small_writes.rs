//! Many small writes and messages between two guests: receivers that read, and a receiver whose
//! machine is paused, keep their connections.

mod common;

use causeway_guest_tool::report::{FloodReport, SinkReport};
use causeway_guest_tool::transport::{CID_ANY, Target};
use causeway_vm::daemon::Member;
use causeway_vm::monitor::Monitor;
use causeway_vm::{Daemon, Guest, Machine, RunDir};
use common::hosts::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Time limit of an exchange on a shared machine with emulated guests.
const LIMIT: Duration = Duration::from_secs(150);
const PAUSE: Duration = Duration::from_secs(3);
const PORT: u32 = 7100;
const RECEIVED: &str = "receive_bytes_total";

struct Rig {
    sender: Guest,
    receiver: Guest,
    to: Member,
    daemon: Daemon,
    /// Monitor socket of the receiver's machine.
    monitor: PathBuf,
    _dir: RunDir,
}

impl Rig {
    fn new() -> Self {
        let members = [Member::new("sender", "blue", 1), Member::new("receiver", "blue", 2)];
        let daemon = Daemon::start(&members).unwrap();
        let dir = RunDir::new().unwrap();
        let specs = members.iter().map(|member| {
            let mut spec = daemon.guest(member);
            spec.monitor = Some(dir.join(&format!("{}.qmp", member.name)));
            spec
        });
        let guests = Guest::boot_all(&Machine::qemu().unwrap(), specs.collect())
            .unwrap_or_else(|e| panic!("{e}\n--- log of causewayd ---\n{}", daemon.log()));
        let [sender, receiver] = guests.try_into().unwrap();
        let monitor = dir.join("receiver.qmp");
        let [_, to] = members;
        Self { sender, receiver, to, daemon, monitor, _dir: dir }
    }

    /// Sends `count` writes of `bytes` to a receiver that pauses after each read, and checks that
    /// all of it was read.
    fn exchange(
        &self,
        messages: bool,
        port: u32,
        bytes: u64,
        count: u64,
        pause: Duration,
    ) -> FloodReport {
        let target = |cid| match messages {
            true => Target::SeqPacket(cid, port),
            false => Target::Vsock(cid, port),
        };
        let [at, to] = [target(CID_ANY), target(self.to.cid)].map(|target| target.to_string());
        let pause = pause.as_micros().to_string();
        let (length, number) = (bytes.to_string(), count.to_string());
        let sink = ["causeway-guest", "sink", &at, &pause];
        let flood = ["causeway-guest", "flood", &to, &length, &number];
        let (sink_report, flood_report) = thread::scope(|scope| {
            let sink_report = scope.spawn(|| self.receiver.run_json::<SinkReport>(&sink, LIMIT));
            let flood_report = self.sender.run_json::<FloodReport>(&flood, LIMIT);
            (sink_report.join().unwrap(), flood_report)
        });
        let logs = || format!("{:#}\n{}", show_port(&self.daemon), self.daemon.log());
        let flood_report =
            flood_report.unwrap_or_else(|e| panic!("{e}\n{sink_report:?}\n{}", logs()));
        let sink_report =
            sink_report.unwrap_or_else(|e| panic!("{e}\n{flood_report:?}\n{}", logs()));
        assert_eq!(sink_report.bytes, bytes * count, "{flood_report:?} {}", logs());
        assert!(!messages || sink_report.reads == count, "{sink_report:?} {flood_report:?}");
        println!("{to}: {count} of {bytes} B, pause {pause} us: {} ms", flood_report.elapsed_ms);
        flood_report
    }

    /// Returns the number of connections that the daemon reset because of the receiver.
    fn resets(&self) -> u64 {
        self.counter("reset_stalled_total")
    }

    /// Returns a counter of the receiver's port.
    fn counter(&self, name: &str) -> u64 {
        let view = show_port(&self.daemon);
        view["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name}: {view}"))
    }
}

fn show_port(daemon: &Daemon) -> serde_json::Value {
    let text = daemon.cli(&["port", "show", "receiver-vsock", "-o", "json"]).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Runs four streams of small writes, during which `stop` stops the receiver's machine for
/// [`PAUSE`].
fn streams(rig: &Rig, mut stop: impl FnMut(bool)) {
    let before = rig.counter(RECEIVED);
    thread::scope(|scope| {
        let streams: Vec<_> = (PORT..PORT + 4)
            .map(|port| scope.spawn(move || rig.exchange(false, port, 64, 40_000, Duration::ZERO)))
            .collect();
        // All streams have started: a connect would time out in the guest.
        let all = || rig.counter("connections") == 4 && rig.counter(RECEIVED) > before + 64_000;
        wait(all, || format!("{:#}", show_port(&rig.daemon)));
        stop(true);
        thread::sleep(PAUSE);
        stop(false);
        for stream in streams {
            let flood_report = stream.join().unwrap();
            let paused = u128::from(flood_report.elapsed_ms) >= PAUSE.as_millis();
            assert!(paused, "the exchange ended before the pause: {flood_report:?}");
        }
    });
    assert_eq!(rig.resets(), 0, "{}", rig.daemon.log());
}

#[test]
fn vsock_receivers_of_messages_that_read_are_not_reset() {
    let rig = Rig::new();
    rig.exchange(true, PORT, 1, 20_000, Duration::ZERO);
    rig.exchange(true, PORT + 1, 4, 20_000, Duration::ZERO);
    rig.exchange(true, PORT + 2, 1, 2000, Duration::from_millis(2));
    rig.exchange(false, PORT + 3, 64, 2000, Duration::from_millis(2));
    rig.exchange(true, PORT + 4, 40_000, 500, Duration::ZERO);
    assert_eq!(rig.resets(), 0, "{}", rig.daemon.log());
}

#[test]
fn vsock_streams_to_a_paused_machine_go_on() {
    let rig = Rig::new();
    let mut monitor = Monitor::connect(&rig.monitor).unwrap();
    streams(&rig, |stop| drop(monitor.ask(if stop { "stop" } else { "cont" }, json!({})).unwrap()));
    // Stops the process itself: its vhost-user frontend does not answer either.
    let id = Pid::from_raw(i32::try_from(rig.receiver.id()).unwrap()).unwrap();
    streams(&rig, |stop| kill_process(id, if stop { Signal::STOP } else { Signal::CONT }).unwrap());
}
