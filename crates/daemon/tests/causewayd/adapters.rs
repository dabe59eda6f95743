//! RDMA adapters over the daemon's sockets: two drivers in this process, one dispatcher.

use std::time::{Duration, Instant};

use crate::common::Dir;
use crate::common::daemon_process::{DaemonProcess, config};
use causeway_mlx5_driver::{
    CompletionRing, Driver, EthernetInterface, EthernetOptions, Post, QueuePair, VfioBar,
};
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const MEMORY: u64 = 16 << 20;
/// Address of registered memory for work requests.
const START: u64 = 0x10_0000;
const BUFFER: u64 = 64 << 10;
/// Messages that are completed between two arms.
const BATCH: u32 = 32;
const BATCHES: u32 = 100;
/// Interrupt vector of completions.
const COMPLETIONS: usize = 1;

/// Two connected queue pairs of two adapters.
struct Link {
    bars: [VfioBar; 2],
    drivers: [Driver; 2],
    pairs: [QueuePair; 2],
    completions: [CompletionRing; 2],
    keys: [u32; 2],
    _daemon: DaemonProcess,
    _dir: Dir,
}

fn mac(n: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 1, n as u8]
}

impl Link {
    fn new() -> Self {
        let dir = Dir::new();
        let port = |n| {
            format!(
                "[[port]]\nname = \"hca-{n}\"\ngroup = \"blue\"\nkind = \"hca\"\n\
                 mac = \"52:54:00:00:01:0{n}\"\n"
            )
        };
        let file = config(&dir, "none", &format!("{}{}", port(0), port(1)));
        let daemon = DaemonProcess::start(env!("CARGO_BIN_EXE_causewayd"), &file).ready(&dir);
        let attach = |n| VfioBar::start(&dir.file(&format!("hca-{n}.sock")), MEMORY).unwrap();
        let [mut a, mut b] = [attach(0), attach(1)];
        let create = |(bar, driver): &mut (VfioBar, Driver)| {
            let completions = driver.create_cq(bar, 6).unwrap();
            let context = driver.qp_context(Service::ReliableConnection, completions.number);
            let context = QueuePairContext { log_send_size: 6, ..context.unwrap() };
            let pair = driver.create_pair(bar, context).unwrap();
            let buffer = driver.allocate(BUFFER).unwrap();
            (completions, pair, driver.register(bar, START, buffer, BUFFER).unwrap())
        };
        let [one, two] = [create(&mut a), create(&mut b)];
        a.1.connect(&mut a.0, &one.1, mac(1), two.1.number).unwrap();
        b.1.connect(&mut b.0, &two.1, mac(0), one.1.number).unwrap();
        Self {
            pairs: [one.1, two.1],
            completions: [one.0, two.0],
            keys: [one.2, two.2],
            bars: [a.0, b.0],
            drivers: [a.1, b.1],
            _daemon: daemon,
            _dir: dir,
        }
    }

    /// Writes `count` messages from the first to the second adapter, and takes their completions.
    fn write(&mut self, count: u32) {
        let to = RemoteAddressSegment { address: START, key: self.keys[1] };
        let from = DataSegment { raw_len: 64, key: self.keys[0], address: START };
        let (driver, pair) = (&self.drivers[0], &mut self.pairs[0]);
        for _ in 0..count {
            let post = Post::new(SendOpcode::Write);
            driver.post(pair, post, |entry| entry.remote(&to).data(&from)).unwrap();
        }
        let start = Instant::now();
        for n in 0..count {
            let entry = loop {
                if let Some(entry) = driver.poll_cq(&mut self.completions[0]).unwrap() {
                    break entry;
                }
                assert!(start.elapsed() < PATIENCE, "message {n} is lost");
                std::thread::yield_now();
            };
            assert!(matches!(entry, Entry::Success(_)), "{entry:?}");
        }
    }

    /// Returns the number of interrupts of an adapter since the last call.
    fn interrupts(&self, adapter: usize) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(self.bars[adapter].vector(COMPLETIONS).unwrap(), &mut count[..]) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the number of register messages of both drivers.
    fn accesses(&self) -> u64 {
        self.bars.iter().map(VfioBar::register_accesses).sum()
    }
}

/// M1: posts, polls and arms are not trapped; a command is trapped once.
#[test]
fn adapter_data_path_sends_no_message_and_a_command_one() {
    let mut link = Link::new();
    let before = link.accesses();
    for sequence in 0..10 {
        link.drivers[0].arm(&link.completions[0], sequence, false).unwrap();
        link.write(BATCH);
    }
    assert_eq!(link.accesses(), before);
    let (bar, driver) = (&mut link.bars[0], &link.drivers[0]);
    for _ in 0..5 {
        driver.simple(bar, Opcode::AllocateProtectionDomain, 0).unwrap();
    }
    assert_eq!(link.accesses(), before + 5);
}

/// M9: a queue that is armed again after each batch interrupts once for each batch at most.
#[test]
fn adapter_raises_fewer_interrupts_than_completions() {
    let mut link = Link::new();
    let mut interrupts = 0;
    for sequence in 0..BATCHES {
        link.drivers[0].arm(&link.completions[0], sequence, false).unwrap();
        link.write(BATCH);
        interrupts += link.interrupts(0);
    }
    println!("{interrupts} interrupts, {} completions", BATCHES * BATCH);
    assert!(interrupts > 0, "no interrupt at all");
    assert!(interrupts <= u64::from(BATCHES) + 1, "{interrupts}");
    assert_eq!(link.interrupts(1), 0, "the responder has no completion");
}

/// A frame with another source than the address of its adapter is dropped; frames around it arrive.
#[test]
fn adapter_frame_with_a_forged_source_does_not_leave() {
    let mut link = Link::new();
    let [a, b] = &mut link.drivers;
    let [bar_a, bar_b] = &mut link.bars;
    let options = EthernetOptions::default();
    let mut from = EthernetInterface::up(a, bar_a, options).unwrap();
    let mut to = EthernetInterface::up(b, bar_b, options).unwrap();
    let payload = a.allocate(4096).unwrap();
    let sources = [mac(0), mac(1), [2, 0, 0, 0, 0, 9], mac(0)];
    for (number, source) in (0..).zip(sources) {
        let head = [&mac(1)[..], &source, &[0x88, 0xb5, 0, number, 0, 0]].concat();
        let template = from.template(&head.try_into().unwrap(), 46).unwrap();
        from.stage(a, &template, payload, true).unwrap();
    }
    from.publish(a).unwrap();
    let (start, mut numbers, mut bytes) = (Instant::now(), Vec::new(), Vec::new());
    while numbers.last() != Some(&3) {
        assert!(start.elapsed() < PATIENCE, "frames are lost: {numbers:?}");
        match to.receive(b, &mut bytes).unwrap() {
            Some(_) => numbers.push(bytes[15]),
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(numbers, [0, 3]);
}
