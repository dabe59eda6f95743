//! Boards whose dispatcher the test turns by hand, so that it knows what was looked at when; in a
//! namespace of the test's own.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_fabric::{Handle, Pacing, Turned};
use causeway_host::net::socket::PacketSocket;
use causeway_model::Name;
use causeway_model::PortSpec;
use causeway_model::{Answer, Command};
use causeway_mxoe::driver::limits::slots_for;
use common::{PATIENCE, interface_board, nic, with_wire};

/// A daemon that stands still unless it is turned.
struct ByHand {
    turned: Turned,
    handle: Handle,
    dir: PathBuf,
}

impl ByHand {
    fn new(board: impl FnOnce(&Path) -> PortSpec) -> Self {
        let dir = std::env::temp_dir().join(format!("causeway-mx-turned-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let turned = Turned::new(&[causeway_mx::SERVICE], Pacing::default()).unwrap();
        let mut host = Self { handle: turned.handle(), turned, dir };
        let group: Name = "red".parse().unwrap();
        host.call(Command::GroupAdd(group.into()));
        let board = board(&host.dir);
        host.call(Command::PortAdd(board));
        host
    }

    /// What a command comes to; it is turned meanwhile.
    fn call(&mut self, command: Command) -> Answer {
        let handle = self.handle.clone();
        let helper = std::thread::spawn(move || handle.call(command).unwrap());
        while !helper.is_finished() {
            self.turned.turn().unwrap();
        }
        helper.join().unwrap()
    }

    fn counter(&mut self, counter: &str) -> u64 {
        match self.call(Command::PortShow("a".parse().unwrap())) {
            Answer::Port(view) => view.counters.get(counter).copied().unwrap_or(0),
            other => panic!("{other:?}"),
        }
    }

    /// Turns until a counter is so high, for so long at most.
    fn reaches(&mut self, counter: &str, value: u64, patience: Duration) {
        let since = Instant::now();
        while self.counter(counter) < value {
            let is = self.counter(counter);
            assert!(since.elapsed() < patience, "{counter} is {is}, not {value}");
        }
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.turned.turn();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A frame to board `a`, of another, that says nothing.
fn frame() -> Vec<u8> {
    let mac = |board: &str| nic(board).to_be_bytes()[2..].to_vec();
    [&mac("a")[..], &mac("b"), &[0x86, 0xdf, 0, 0, 99], &[0; 43]].concat()
}

fn unseen_loss() {
    // Slots of the ring.
    let slots = slots_for(9000).count() as u64;
    let mut host = ByHand::new(|dir| interface_board(dir, "a", "near"));
    let far = PacketSocket::open("far").unwrap();
    let send = || {
        let frame = [&[0; 10][..], &frame()].concat();
        rustix::net::send(&far, &frame, rustix::net::SendFlags::empty()).unwrap();
    };
    // Long after it was last asked it is asked with the first frame, and soon after that is not.
    host.reaches("interface_ups_total", 1, PATIENCE);
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(150) {
        host.turned.turn().unwrap();
    }
    send();
    host.reaches("frames_received_total", 1, PATIENCE);
    assert_eq!(host.counter("interface_lost_total"), 0);
    (0..slots + 200).for_each(|_| send());
    // So that the last look finds some: one that finds none asks.
    host.turned.turn().unwrap();
    (0..10).for_each(|_| send());
    host.reaches("frames_received_total", 1 + slots + 10, PATIENCE);
    // No frame comes any more, and no partner has a timer: it is found out all the same.
    host.reaches("interface_lost_total", 100, Duration::from_secs(5));
}

#[test]
fn frames_that_the_host_lost_are_noticed_though_none_comes_any_more() {
    with_wire("frames_that_the_host_lost_are_noticed_though_none_comes_any_more", unseen_loss);
}
