//! NICs on a dispatcher that the test runs step by step, in a namespace.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_fabric::{Handle, ManualFabric, PollConfig};
use causeway_host::net::socket::PacketSocket;
use causeway_model::Name;
use causeway_model::PortSpec;
use causeway_model::{Answer, Command};
use causeway_mxoe::driver::limits::slots_for;
use common::{PATIENCE, interface_board, nic, with_wire};

/// A daemon that runs only when the test lets it.
struct ByHand {
    turned: ManualFabric,
    handle: Handle,
    dir: PathBuf,
}

impl ByHand {
    fn new(board: impl FnOnce(&Path) -> PortSpec) -> Self {
        let dir = std::env::temp_dir().join(format!("causeway-mx-turned-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let turned = ManualFabric::new(&[causeway_mx::SERVICE], PollConfig::default()).unwrap();
        let mut host = Self { handle: turned.handle(), turned, dir };
        let group: Name = "red".parse().unwrap();
        host.call(Command::GroupAdd(group.into()));
        let board = board(&host.dir);
        host.call(Command::PortAdd(board));
        host
    }

    /// Returns the answer to a command, which the daemon processes meanwhile.
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

    /// Runs the daemon until a counter has reached a value, for at most `patience`.
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

/// Returns a frame to NIC `a` without effect.
fn frame() -> Vec<u8> {
    let mac = |board: &str| nic(board).to_be_bytes()[2..].to_vec();
    [&mac("a")[..], &mac("b"), &[0x86, 0xdf, 0, 0, 99], &[0; 43]].concat()
}

fn unseen_loss() {
    // Slots of the receive ring.
    let slots = slots_for(9000).count() as u64;
    let mut host = ByHand::new(|dir| interface_board(dir, "a", "near"));
    let far = PacketSocket::open("far").unwrap();
    let send = || {
        let frame = [&[0; 10][..], &frame()].concat();
        rustix::net::send(&far, &frame, rustix::net::SendFlags::empty()).unwrap();
    };
    // The kernel's drop counter is read with the first frame after a pause, and then not for some
    // time.
    host.reaches("interface_ups_total", 1, PATIENCE);
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(150) {
        host.turned.turn().unwrap();
    }
    send();
    host.reaches("frames_received_total", 1, PATIENCE);
    assert_eq!(host.counter("interface_lost_total"), 0);
    (0..slots + 200).for_each(|_| send());
    // The last pass finds frames: a pass without frames reads the drop counter.
    host.turned.turn().unwrap();
    (0..10).for_each(|_| send());
    host.reaches("frames_received_total", 1 + slots + 10, PATIENCE);
    // Without further frames and without timers of peers, the loss is noticed anyway.
    host.reaches("interface_lost_total", 100, Duration::from_secs(5));
}

#[test]
fn interface_losses_are_noticed_without_further_frames() {
    with_wire("interface_losses_are_noticed_without_further_frames", unseen_loss);
}
