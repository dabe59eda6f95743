//! Attacks of an RDMA adapter: by its frontend, its commands and its work; and an adapter's victim.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use causeway_mlx5_driver::limits::PAGE;
use causeway_mlx5_driver::{Bar as _, CompletionRing, Driver, Post, QueuePair, VfioBar};
use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::registers::COMMAND_DOORBELL;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};

use crate::{Daemon, wait};

const MEMORY: u64 = 16 << 20;
/// Address of registered memory for work requests.
const START: u64 = 0x10_0000;
const BUFFER: u64 = 64 << 10;
/// Drivers that come and go.
const DRIVERS: usize = 20;
/// Connections with bytes that are no messages.
const FRONTENDS: usize = 40;
/// Rounds of commands, of 31 each.
const COMMAND_ROUNDS: u32 = 60;
/// Rounds of work.
const WORK_ROUNDS: u32 = 40;
/// Queue pairs that name a victim as their peer.
const FORGERIES: u32 = 24;

/// Returns the MAC address of the adapter with this number: two victims, then the attacker.
pub fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 1, n]
}

/// A driver and its connection to the daemon.
struct Adapter {
    bar: VfioBar,
    driver: Driver,
}

impl Adapter {
    /// Starts the driver of a port, as soon as the previous frontend has left.
    fn start(daemon: &Daemon, port: &str) -> Self {
        let path = daemon.socket(port);
        let mut found = None;
        let started = || {
            found = VfioBar::start(&path, MEMORY).ok();
            found.is_some()
        };
        wait(started, || format!("{port} accepts no driver"));
        let (bar, driver) = found.unwrap();
        Self { bar, driver }
    }

    fn pair(&mut self, log: u8) -> (QueuePair, CompletionRing) {
        let Self { bar, driver } = self;
        let completions = driver.create_cq(bar, log).unwrap();
        let context = driver.qp_context(Service::ReliableConnection, completions.number).unwrap();
        (driver.create_pair(bar, context).unwrap(), completions)
    }

    /// Allocates and registers a buffer. Returns its address and key.
    fn buffer(&mut self) -> (u64, u32) {
        let at = self.driver.allocate(BUFFER).unwrap();
        (at, self.driver.register(&mut self.bar, START, at, BUFFER).unwrap())
    }
}

/// Returns a turn of two victims: a message with content that the first writes to the second.
pub fn writes(daemon: &Daemon) -> impl FnMut(u64) + Send + use<> {
    let mut a = Adapter::start(daemon, "one-hca");
    let mut b = Adapter::start(daemon, "two-hca");
    let (mut from, mut completions) = a.pair(4);
    let (to, _) = b.pair(4);
    a.driver.connect(&mut a.bar, &from, mac(1), to.number).unwrap();
    b.driver.connect(&mut b.bar, &to, mac(0), from.number).unwrap();
    let ((source, own), (target, other)) = (a.buffer(), b.buffer());
    move |round| {
        // The connections belong to the turn, although it sends nothing over them.
        let (a, b) = (&mut a, &mut b);
        let len = 1 + (round as usize * 997) % (BUFFER as usize);
        let sent: Vec<u8> = (0..len).map(|n| (n as u64 * 7 + round) as u8).collect();
        a.driver.memory().write(source, &sent).unwrap();
        let remote = RemoteAddressSegment { address: START, key: other };
        let local = DataSegment { raw_len: len as u32, key: own, address: START };
        let post = Post::new(SendOpcode::Write);
        a.driver.post(&mut from, post, |e| e.remote(&remote).data(&local)).unwrap();
        let mut entry = None;
        let completed = || {
            entry = a.driver.poll_cq(&mut completions).unwrap();
            entry.is_some()
        };
        wait(completed, || format!("WRITE {round} is lost"));
        assert!(matches!(entry, Some(Entry::Success(_))), "{entry:?}");
        let mut got = vec![0; len];
        b.driver.memory().read(target, &mut got).unwrap();
        assert_eq!(got, sent, "WRITE {round}");
    }
}

/// Returns numbers that look random and are the same in each run.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Drivers that start, create objects, post work and leave.
pub fn come_and_go(daemon: &Daemon) {
    for _ in 0..DRIVERS {
        let mut bad = Adapter::start(daemon, "bad-hca");
        let (mut pair, _) = bad.pair(4);
        bad.driver.connect(&mut bad.bar, &pair, mac(1), pair.number).unwrap();
        let (_, key) = bad.buffer();
        let remote = RemoteAddressSegment { address: START, key };
        let local = DataSegment { raw_len: 1 << 16, key, address: START };
        let post = Post::new(SendOpcode::Write);
        bad.driver.post(&mut pair, post, |e| e.remote(&remote).data(&local)).unwrap();
    }
}

/// Bytes that are no messages of vfio-user.
pub fn noise(daemon: &Daemon) {
    let mut next = random(1);
    for n in 0..FRONTENDS {
        let Ok(mut socket) = UnixStream::connect(daemon.socket("bad-hca")) else { continue };
        let bytes: Vec<u8> = (0..n * 97).map(|_| next() as u8).collect();
        // The daemon may close the connection before all bytes are sent.
        let _ = socket.write_all(&bytes);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Commands of random bytes, and random doorbells.
pub fn random_commands(daemon: &Daemon) {
    let mut bad = Adapter::start(daemon, "bad-hca");
    let mut next = random(2);
    for _ in 0..COMMAND_ROUNDS {
        let mut entries = Vec::new();
        for index in 0..31 {
            let opcode = Opcode::ALL[next() as usize % Opcode::ALL.len()];
            let len = 16 + next() as usize % 1024;
            let mut input: Vec<u8> = (0..len).map(|_| next() as u8).collect();
            input[..16].copy_from_slice(&InputHeader::new(opcode, next() as u32 & 15).to_bytes());
            entries.push(bad.driver.place_command(index, &input, 16).unwrap());
        }
        bad.bar.write(COMMAND_DOORBELL, &(u32::MAX >> 1).to_be_bytes()).unwrap();
        let owned = |at: &u64| bad.driver.memory().read_array::<64>(*at).unwrap()[63] & 1 == 1;
        wait(|| !entries.iter().any(owned), || "commands are not answered".into());
    }
}

/// Random bytes in rings and doorbell records.
pub fn random_work(daemon: &Daemon) {
    let mut bad = Adapter::start(daemon, "bad-hca");
    let mut next = random(3);
    let (mut pair, completions) = bad.pair(2);
    let (_, key) = bad.buffer();
    for _ in 0..WORK_ROUNDS {
        let Adapter { bar, driver } = &mut bad;
        driver.simple(bar, Opcode::ToReset, pair.number).unwrap();
        (pair.sent, pair.received) = (0, 0);
        driver.memory().publish(pair.record + 4, 0).unwrap();
        driver.connect(bar, &pair, mac(1), pair.number).unwrap();
        let at = pair.ring + pair.context.send_offset();
        for word in 0..PAGE / 8 {
            let value = if next() & 3 == 0 { u64::from(key) } else { next() };
            driver.memory().write(at + word * 8, &value.to_be_bytes()).unwrap();
        }
        for block in 0..16 {
            let opcode = SendOpcode::ALL[next() as usize % SendOpcode::ALL.len()].raw();
            let control = [0, 0, block, opcode, 0, 0, 0, next() as u8 & 15];
            driver.memory().write(at + u64::from(block) * 64, &control).unwrap();
        }
        driver.memory().publish(completions.record, next() as u32).unwrap();
        driver.memory().publish(completions.record + 4, next() as u32).unwrap();
        driver.memory().publish(pair.record, next() as u32 & 31).unwrap();
        driver.memory().publish(pair.record + 4, next() as u32 & 31).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// WRITEs to a victim's queue pair and memory, by guessed numbers and keys.
pub fn forged_writes(daemon: &Daemon) {
    let mut bad = Adapter::start(daemon, "bad-hca");
    let (_, own) = bad.buffer();
    let mut queues: Vec<_> = (0..FORGERIES).map(|_| bad.pair(4)).collect();
    for ((pair, _), number) in queues.iter_mut().zip(1..) {
        bad.driver.connect(&mut bad.bar, pair, mac(1), number).unwrap();
        let remote = RemoteAddressSegment { address: START, key: number << 8 | 7 };
        let local = DataSegment { raw_len: 4096, key: own, address: START };
        let post = Post::new(SendOpcode::Write);
        bad.driver.post(pair, post, |e| e.remote(&remote).data(&local)).unwrap();
    }
    for (_, completions) in &mut queues {
        let mut entry = None;
        let failed = || {
            entry = bad.driver.poll_cq(completions).unwrap();
            entry.is_some()
        };
        wait(failed, || "a forged WRITE has no end".into());
        assert!(matches!(entry, Some(Entry::Error(_))), "a forged WRITE succeeds: {entry:?}");
    }
}
