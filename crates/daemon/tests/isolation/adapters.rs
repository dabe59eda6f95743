//! Attackers with RDMA adapters.

use std::os::fd::AsFd as _;

use causeway_attach::native::VfioUserClient;
use causeway_attach::vfio_user::message::{DMA_READABLE, DMA_WRITABLE, DmaMap};
use causeway_mlx5_driver::{
    Bar as _, CompletionRing, Driver, DriverMemory, Post, QueuePair, VfioBar, page_list,
};
use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::completion_queue::{CompletionEntry, Entry, ErrorEntry};
use causeway_wire::mlx5::memory_key::{MemoryKeyContext, UpdateControl, mask};
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::registers::COMMAND_DOORBELL;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};

use crate::attacker::Attacker;
use crate::daemon::{Daemon, RED, adapter_mac};

/// Memory of each adapter's driver, in bytes.
const MEMORY: u64 = 32 << 20;
/// Address of the registered buffer for work requests.
const START: u64 = 0x10_0000;
/// Length of the registered buffer, and of each WRITE of the flood, in bytes.
const BUFFER: u32 = 64 << 10;
/// Queue pairs of the flood.
const PAIRS: usize = 100;
/// WRITEs in flight on each of these queue pairs.
const IN_FLIGHT: usize = 15;
/// Binary logarithm of the length of the flood's completion queue.
const LOG_COMPLETIONS: u8 = 11;
/// Commands that one step rings for.
const COMMANDS: u64 = 31;
/// Length of each command, in bytes: the most without a page list.
const COMMAND_BYTES: usize = 8192;
/// Queue pairs that one step breaks.
const BROKEN: usize = 8;
/// Registrations by work requests in flight, with 2 blocks of the ring's 16 or more each.
const UPDATES: usize = 4;
/// Pages of each region that one step creates and destroys.
const REGION_PAGES: u64 = 1024;
/// Ranges that one step grants and revokes.
const GRANTS: u64 = 64;
const PAGE: u64 = 4096;

/// A driver and its connection to the daemon.
pub struct Adapter {
    pub bar: VfioBar,
    pub driver: Driver,
}

impl Adapter {
    /// Starts the driver of a port.
    pub fn start(daemon: &Daemon, port: &str) -> Self {
        let mut last = None;
        for _ in 0..1000 {
            // While the previous frontend detaches, a port accepts no other.
            match VfioBar::start(&daemon.socket(port), MEMORY) {
                Ok((bar, driver)) => return Self { bar, driver },
                Err(error) => last = Some(error),
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("{port}: {last:?}");
    }

    /// Creates a completion queue.
    pub fn completions(&mut self, log: u8) -> CompletionRing {
        self.driver.create_cq(&mut self.bar, log).unwrap()
    }

    /// Creates a queue pair.
    pub fn pair(&mut self, completions: &CompletionRing) -> QueuePair {
        let service = Service::ReliableConnection;
        let context = self.driver.qp_context(service, completions.number).unwrap();
        self.driver.create_pair(&mut self.bar, context).unwrap()
    }

    /// Connects a queue pair.
    pub fn connect(&mut self, pair: &QueuePair, mac: [u8; 6], number: u32) {
        self.driver.connect(&mut self.bar, pair, mac, number).unwrap();
    }

    /// Allocates and registers the buffer. Returns its address and key.
    pub fn buffer(&mut self) -> (u64, u32) {
        let at = self.driver.allocate(BUFFER.into()).unwrap();
        (at, self.driver.register(&mut self.bar, START, at, BUFFER.into()).unwrap())
    }
}

/// Returns a segment of the registered buffer.
pub fn local(key: u32, len: u32) -> DataSegment {
    DataSegment { raw_len: len, key, address: START }
}

/// Returns the registered buffer of a peer.
pub fn remote(key: u32) -> RemoteAddressSegment {
    RemoteAddressSegment { address: START, key }
}

/// Large WRITEs on many queue pairs.
struct WriteFlood {
    from: Adapter,
    _to: Adapter,
    pairs: Vec<(QueuePair, usize)>,
    completions: CompletionRing,
    keys: [u32; 2],
    arrived: u64,
}

impl WriteFlood {
    fn receive(&mut self) {
        while let Some(entry) = self.from.driver.poll_cq(&mut self.completions).unwrap() {
            let number = match entry {
                Entry::Success(CompletionEntry { queue, .. }) => queue,
                Entry::Error(ErrorEntry { queue, .. }) => panic!("queue pair {queue} failed"),
            };
            let pair = self.pairs.iter_mut().find(|(pair, _)| pair.number == number);
            pair.expect("a queue pair of the flood").1 -= 1;
            self.arrived += 1;
        }
    }
}

impl Attacker for WriteFlood {
    fn step(&mut self) {
        self.receive();
        let (to, from) = (remote(self.keys[1]), local(self.keys[0], BUFFER));
        for (pair, in_flight) in &mut self.pairs {
            while *in_flight < IN_FLIGHT {
                let post = Post::new(SendOpcode::Write);
                self.from.driver.stage(pair, post, |e| e.remote(&to).data(&from)).unwrap();
                *in_flight += 1;
            }
            self.from.driver.publish_sends(pair).unwrap();
        }
    }

    fn drain(&mut self) -> bool {
        self.receive();
        self.pairs.iter().all(|(_, in_flight)| *in_flight == 0)
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }
}

/// WRITEs of 64 KiB on 100 queue pairs.
pub fn write_flood(daemon: &Daemon) -> Box<dyn Attacker> {
    let mut from = Adapter::start(daemon, "red-hca-0");
    let mut to = Adapter::start(daemon, "red-hca-1");
    let completions = from.completions(LOG_COMPLETIONS);
    let others = to.completions(LOG_COMPLETIONS);
    let pairs = (0..PAIRS).map(|_| {
        let (pair, peer) = (from.pair(&completions), to.pair(&others));
        from.connect(&pair, adapter_mac(RED, 1), peer.number);
        to.connect(&peer, adapter_mac(RED, 0), pair.number);
        (pair, 0)
    });
    let pairs = pairs.collect();
    let keys = [from.buffer().1, to.buffer().1];
    Box::new(WriteFlood { from, _to: to, pairs, completions, keys, arrived: 0 })
}

/// Commands of the greatest length, all entries of the queue at a time.
struct CommandFlood {
    adapter: Adapter,
    entries: Vec<u64>,
    done: u64,
}

impl CommandFlood {
    fn is_idle(&self) -> bool {
        let owned = |at: &u64| self.adapter.driver.memory().read_array::<64>(*at).unwrap()[63] & 1;
        self.entries.iter().all(|at| owned(at) == 0)
    }
}

impl Attacker for CommandFlood {
    fn step(&mut self) {
        if !self.is_idle() {
            return;
        }
        self.done += self.entries.len() as u64;
        let mut input = vec![0; COMMAND_BYTES];
        input[..16].copy_from_slice(&InputHeader::new(Opcode::Nop, 0).to_bytes());
        let driver = &self.adapter.driver;
        self.entries =
            (0..COMMANDS).map(|n| driver.place_command(n, &input, 16).unwrap()).collect();
        let all = (1_u32 << COMMANDS) - 1;
        self.adapter.bar.write(COMMAND_DOORBELL, &all.to_be_bytes()).unwrap();
    }

    fn drain(&mut self) -> bool {
        self.is_idle()
    }

    fn arrived(&self) -> u64 {
        self.done
    }
}

/// Long commands without end.
pub fn command_flood(daemon: &Daemon) -> Box<dyn Attacker> {
    let adapter = Adapter::start(daemon, "red-hca-0");
    Box::new(CommandFlood { adapter, entries: Vec::new(), done: 0 })
}

/// Counters that jump, completion queues that overflow, and queue pairs that start again.
struct Overruns {
    adapter: Adapter,
    pairs: Vec<QueuePair>,
    broken: u64,
}

impl Attacker for Overruns {
    fn step(&mut self) {
        let Adapter { bar, driver } = &mut self.adapter;
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            // The queue pair failed in the last step.
            driver.simple(bar, Opcode::ToReset, pair.number).unwrap();
            (pair.sent, pair.received) = (0, 0);
            driver.memory().publish(pair.record + 4, 0).unwrap();
            driver.connect(bar, pair, adapter_mac(RED, 0), pair.number).unwrap();
            for _ in 0..8 {
                driver.post(pair, Post::new(SendOpcode::Nop), |entry| entry).unwrap();
            }
            if index % 2 == 0 {
                driver.memory().publish(pair.record + 4, 0xffff).unwrap();
            }
            self.broken += 1;
        }
    }

    fn drain(&mut self) -> bool {
        true
    }

    fn arrived(&self) -> u64 {
        self.broken
    }
}

/// Floods of doorbell records and completions beyond their queue.
pub fn overruns(daemon: &Daemon) -> Box<dyn Attacker> {
    let mut adapter = Adapter::start(daemon, "red-hca-0");
    let completions = adapter.completions(1);
    let pairs = (0..BROKEN).map(|_| adapter.pair(&completions)).collect();
    Box::new(Overruns { adapter, pairs, broken: 0 })
}

/// Registrations by commands and by work requests.
struct Registrations {
    adapter: Adapter,
    pair: QueuePair,
    completions: CompletionRing,
    key: u32,
    pages: Vec<u64>,
    in_flight: usize,
    made: u64,
}

impl Registrations {
    fn receive(&mut self) {
        while self.adapter.driver.poll_cq(&mut self.completions).unwrap().is_some() {
            self.in_flight -= 1;
            self.made += 1;
        }
    }

    fn update(&mut self) {
        let control = UpdateControl {
            is_inline: true,
            list_size: 1,
            mask: mask::FAST_REGISTRATION,
            ..Default::default()
        };
        let context = MemoryKeyContext {
            local_write: true,
            local_read: true,
            queue_pair: 0xff_ffff,
            start: START,
            len: PAGE,
            log_page_size: 12,
            ..Default::default()
        };
        let post = Post { immediate: self.key, ..Post::new(SendOpcode::Update) };
        let list = self.pages[0].to_be_bytes();
        let driver = &self.adapter.driver;
        let update =
            driver.post(&mut self.pair, post, |e| e.update(&control, &context).list(&list));
        update.unwrap();
        self.in_flight += 1;
    }
}

impl Attacker for Registrations {
    fn step(&mut self) {
        self.receive();
        while self.in_flight < UPDATES {
            self.update();
        }
        let Adapter { bar, driver } = &mut self.adapter;
        let len = REGION_PAGES * PAGE;
        let key = driver.register(bar, START, self.pages[0], len).unwrap();
        driver.simple(bar, Opcode::DestroyMemoryKey, key >> 8).unwrap();
        self.made += 1;
    }

    fn drain(&mut self) -> bool {
        self.receive();
        self.in_flight == 0
    }

    fn arrived(&self) -> u64 {
        self.made
    }
}

/// Registrations without end.
pub fn registrations(daemon: &Daemon) -> Box<dyn Attacker> {
    let mut adapter = Adapter::start(daemon, "red-hca-0");
    let completions = adapter.completions(6);
    let context = adapter.driver.qp_context(Service::ReliableConnection, completions.number);
    let context = QueuePairContext { log_send_size: 6, ..context.unwrap() };
    let pair = adapter.driver.create_pair(&mut adapter.bar, context).unwrap();
    adapter.connect(&pair, adapter_mac(RED, 0), pair.number);
    let at = adapter.driver.allocate(REGION_PAGES * PAGE).unwrap();
    let pages = page_list(at, REGION_PAGES * PAGE);
    let free = MemoryKeyContext {
        is_free: true,
        has_update: true,
        access_mode: 1,
        queue_pair: 0xff_ffff,
        domain: adapter.driver.domain(),
        list_size: 8,
        log_page_size: 12,
        ..Default::default()
    };
    let key = adapter.driver.create_key(&mut adapter.bar, &free, &[]).unwrap();
    let (in_flight, made) = (0, 0);
    Box::new(Registrations { adapter, pair, completions, key, pages, in_flight, made })
}

/// Grants and revocations of memory.
struct Grants {
    client: VfioUserClient,
    memory: DriverMemory,
    made: u64,
}

impl Attacker for Grants {
    fn step(&mut self) {
        let grant = |n: u64| DmaMap {
            flags: DMA_READABLE | DMA_WRITABLE,
            offset: n * PAGE,
            address: 0x1_0000_0000 + n * PAGE,
            size: PAGE,
        };
        let grants: Vec<DmaMap> = (0..GRANTS).map(grant).collect();
        self.client.map_all(&grants, self.memory.file().as_fd()).unwrap();
        self.client.unmap_all().unwrap();
        self.made += GRANTS;
    }

    fn drain(&mut self) -> bool {
        true
    }

    fn arrived(&self) -> u64 {
        self.made
    }
}

/// DMA mappings without end.
pub fn grants(daemon: &Daemon) -> Box<dyn Attacker> {
    let mut client = None;
    let path = daemon.socket("red-hca-0");
    let connects = || {
        client = VfioUserClient::connect(&path).ok();
        client.is_some()
    };
    crate::attacker::wait(connects, "the port accepts no frontend");
    let memory = DriverMemory::new(MEMORY).unwrap();
    Box::new(Grants { client: client.unwrap(), memory, made: 0 })
}
