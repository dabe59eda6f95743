//! The record of a function: a process that is killed between any two stores of a commit is followed
//! by one that continues with the same objects, and each completion and event arrives once.
//!
//! A kill is a panic in the step function of the record, which debug builds call between the stores.
//! The memory of the guests and the records are files, so that they keep what was stored.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;

use causeway_memory::{Mapping, View, create};
use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5::{
    Function, FunctionConfig, Record, RecordError, RestoreError, adapter_config, restore,
    run_commands,
};
use causeway_verbs::Subnet;
use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::completion_queue::{CompletionOpcode, Entry};
use causeway_wire::mlx5::event_queue::{Event, EventType};
use causeway_wire::mlx5::queue_pair::{ReceiveQueueType, Service};
use causeway_wire::mlx5::work_queue::{ReceivePoolContext, WorkQueue};
use causeway_wire::mlx5::work_request::{AtomicSegment, RemoteAddressSegment, SendOpcode};

use crate::driver::{BASE, Completions, EventRing, Guest, Pair, VIRTUAL, World, data};

thread_local! {
    /// Stores until the kill.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The message of a kill.
#[derive(Debug)]
struct Killed;

fn step() {
    LEFT.with(|left| match left.get() {
        Some(0) => {
            left.set(None);
            panic_any(Killed);
        }
        Some(count) => left.set(Some(count - 1)),
        None => {}
    });
}

/// Runs `act` and kills it at store number `at`. Returns whether it was killed.
fn killed(at: Option<u32>, act: impl FnOnce()) -> bool {
    LEFT.with(|left| left.set(at));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Killed>() {
            eprintln!("{info}");
        }
    }));
    let result = catch_unwind(AssertUnwindSafe(act));
    std::panic::set_hook(hook);
    LEFT.with(|left| left.set(None));
    match result {
        Ok(()) => false,
        Err(payload) if payload.is::<Killed>() => true,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Two guests with recorded functions.
struct Site {
    world: World,
    guests: [Guest; 2],
    files: [View; 2],
}

const MEGABYTE: u64 = 1 << 20;

fn config(world: &mut World, guest: &Guest) -> FunctionConfig {
    world.function(guest).config().clone()
}

fn file(config: &FunctionConfig) -> View {
    let len = Record::file_bytes(config);
    let file = create("record", len as u64).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len as u64).unwrap());
    View::new(mapping, 0, len).unwrap()
}

/// Starts the driver as [`World::start`] does, on a function with a record.
fn start(world: &mut World, last: u8) -> (Guest, View) {
    let mut guest = world.plug(last);
    let config = config(world, &guest);
    let view = file(&config);
    world.function(&guest).set_record(Record::create(view.clone(), &config).unwrap());
    for opcode in [Opcode::EnableHca, Opcode::InitHca] {
        guest.simple(world, opcode, 0).unwrap();
    }
    guest.uar = guest.simple(world, Opcode::AllocateUar, 0).unwrap();
    guest.domain = guest.simple(world, Opcode::AllocateProtectionDomain, 0).unwrap();
    guest.command_events = guest.create_events(world, 5, 0, 1 << 0xa);
    guest.async_events = guest.create_events(world, 5, 0, 0x1f_ffff & !(1 << 0xa) & !1);
    guest.events = guest.create_events(world, 6, 1, 0);
    world.function(&guest).record_mut().unwrap().set_step(Some(step));
    (guest, view)
}

impl Site {
    fn new() -> Self {
        let mut world = World::new();
        let (a, file_a) = start(&mut world, 1);
        let (b, file_b) = start(&mut world, 2);
        Self { world, guests: [a, b], files: [file_a, file_b] }
    }

    /// Continues in a new process.
    fn restart(&mut self) -> Result<(), RestoreError> {
        let configs = self.guests.each_ref().map(|guest| config(&mut self.world, guest));
        self.world.subnet = Subnet::new();
        for ((guest, view), config) in self.guests.iter_mut().zip(&self.files).zip(&configs) {
            let mut function = Function::new(config.clone());
            function.set_map(Arc::clone(&guest.map));
            guest.registers = function.registers();
            for (at, word) in [(0x10, (BASE >> 32) as u32), (0x14, BASE as u32)] {
                guest.registers.write(REGION_BAR, at, &word.to_be_bytes());
            }
            let subnet = &mut self.world.subnet;
            guest.adapter = subnet.add(&adapter_config(config), function).unwrap();
            restore(subnet, guest.adapter, view.clone())?;
            run_commands(subnet, guest.adapter, 32);
        }
        Ok(())
    }

    /// Runs posted work, and restarts if it was killed at store number `at`. Returns whether it was.
    fn run(&mut self, at: Option<u32>) -> bool {
        let is_killed = killed(at, || self.world.run());
        if is_killed {
            self.restart().unwrap();
            self.world.run();
        }
        is_killed
    }
}

/// A shared receive queue of 16 entries, in a list.
struct Shared {
    number: u32,
    ring: u64,
    record: u64,
    posted: u16,
}

impl Shared {
    fn new(world: &mut World, guest: &mut Guest) -> Self {
        let (ring, record) = (guest.allocate(4096), guest.allocate(8));
        for index in 0..16_u16 {
            guest.write(ring + u64::from(index) * 64 + 2, &((index + 5) % 16).to_be_bytes());
        }
        let queue = WorkQueue {
            domain: guest.domain,
            doorbell_record: record,
            log_stride: 6,
            log_size: 4,
            ..Default::default()
        };
        let context = ReceivePoolContext { queue, ..Default::default() }.to_bytes();
        let opcode = Opcode::CreateReceivePool;
        let number = guest.create(world, opcode, (0x20, &context), (0x110, &[ring])).unwrap();
        Self { number, ring, record, posted: 0 }
    }

    fn post(&mut self, guest: &Guest, key: u32, address: u64) {
        let index = u64::from(self.posted * 5 % 16);
        let at = self.ring + index * 64 + 16;
        guest.write(at, &data(key, address, 0x1_0000).to_bytes());
        guest.write(at + 16, &data(0x100, 0, 0).to_bytes());
        self.posted += 1;
        guest.write(self.record, &u32::from(self.posted).to_be_bytes());
    }
}

/// Completions, their events, other events, and memory of a guest.
type Results = (Vec<Entry>, Vec<Event>, Vec<Event>, Vec<u8>);

/// Connections between the guests: the first receives from own queues, the second from shared ones.
struct Rig {
    site: Site,
    queues: [Completions; 2],
    pairs: [[Pair; 2]; 2],
    shared: [Shared; 2],
    keys: [u32; 2],
    buffers: [u64; 2],
    /// State of the random numbers.
    seed: u64,
    /// Places for received messages that were used.
    places: [u64; 2],
}

impl Rig {
    fn new(seed: u64, service: Service) -> Self {
        let mut site = Site::new();
        let Site { world, guests, .. } = &mut site;
        let mut parts = guests.iter_mut().map(|guest| {
            let queue = guest.create_cq(world, 6);
            let shared = Shared::new(world, guest);
            let own = guest.qp_context(service, queue.number);
            let mut other = guest.qp_context(service, queue.number);
            other.receive_queue_type = ReceiveQueueType::Shared.raw();
            other.shared_receive_queue = shared.number;
            let pairs = [own, other].map(|context| guest.create_pair(world, context));
            let buffer = guest.allocate(2 * MEGABYTE);
            let key = guest.register(world, VIRTUAL, buffer, 2 * MEGABYTE);
            for page in 0..MEGABYTE / 4096 {
                guest.write(buffer + page * 4096, &[(page % 251) as u8 + 1; 4096]);
            }
            (queue, shared, pairs, key, buffer)
        });
        let (one, two) = (parts.next().unwrap(), parts.next().unwrap());
        drop(parts);
        let pairs = [one.2, two.2];
        for (own, other) in [(0, 1), (1, 0)] {
            for index in 0..2 {
                let mac = guests[other].mac;
                let number = pairs[other][index].number;
                guests[own].connect(world, &pairs[own][index], mac, number);
            }
        }
        Self {
            queues: [one.0, two.0],
            shared: [one.1, two.1],
            keys: [one.3, two.3],
            buffers: [one.4, two.4],
            pairs,
            site,
            seed,
            places: [MEGABYTE; 2],
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 20) % below
    }

    /// Posts a receive entry for a connection to `side`.
    fn post_receive(&mut self, side: usize, link: usize) {
        let address = VIRTUAL + self.places[side];
        self.places[side] += 0x1_0000;
        let (guest, key) = (&self.site.guests[side], self.keys[side]);
        match link {
            0 => guest.post_receive(&mut self.pairs[side][0], &[data(key, address, 0x1_0000)]),
            _ => self.shared[side].post(guest, key, address),
        }
    }

    /// Posts random work of `side`.
    fn post(&mut self, side: usize) {
        let [operation, link] = [self.random(6), self.random(2)];
        let [page, len] = [self.random(200), 1 + self.random(20_000)];
        let (link, other) = (link as usize, 1 - side);
        if matches!(operation, 0..3) {
            self.post_receive(other, link);
        }
        let to = RemoteAddressSegment {
            address: VIRTUAL + MEGABYTE + 0xc_0000 + page * 256,
            key: self.keys[other],
        };
        let source = RemoteAddressSegment { address: VIRTUAL + page * 4096, key: self.keys[other] };
        let from = data(self.keys[side], VIRTUAL + page * 4096, len as u32);
        let result = data(self.keys[side], VIRTUAL + MEGABYTE + 0xe_0000 + page * 256, len as u32);
        let is_signaled = self.random(3) > 0;
        let pair = &mut self.pairs[side][link];
        let (guest, first) = (&self.site.guests[side], pair.sent);
        match operation {
            0 => guest.post(pair, (SendOpcode::Send, 0), |e| e.data(&from)),
            1 => guest.post(pair, (SendOpcode::SendImmediate, 7), |e| e.data(&from)),
            2 => {
                guest.post(pair, (SendOpcode::WriteImmediate, 9), |e| e.remote(&to).data(&from));
            }
            3 => guest.post(pair, (SendOpcode::Read, 0), |e| e.remote(&source).data(&result)),
            _ => guest.post(pair, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from)),
        }
        if !is_signaled {
            let block = u64::from(first % pair.context.send_blocks() as u16);
            guest.write(pair.ring + pair.context.send_offset() + block * 64 + 11, &[0]);
        }
    }

    /// Returns all completions and events that the guests have not taken, and the memory.
    fn results(&mut self) -> Vec<Results> {
        let mut all = Vec::new();
        for side in 0..2 {
            let guest = &mut self.site.guests[side];
            let mut completions = Vec::new();
            while let Some(entry) = guest.poll_cq(&mut self.queues[side]) {
                completions.push(entry);
            }
            let (mut rings, map) = ([guest.events, guest.async_events], &*guest);
            let take = |ring: &mut EventRing| map.take_events(ring);
            let [events, asynchronous] = [take(&mut rings[0]), take(&mut rings[1])];
            (guest.events, guest.async_events) = (rings[0], rings[1]);
            let memory = guest.read(self.buffers[side] + MEGABYTE, MEGABYTE as usize);
            all.push((completions, events, asynchronous, memory));
        }
        all
    }
}

/// Runs two rounds of random work, killed in the first round at store number `at`. Returns whether
/// it was killed, and the results of both rounds.
fn scenario(seed: u64, at: Option<u32>) -> (bool, Vec<Results>) {
    let mut rig = Rig::new(seed, Service::ReliableConnection);
    let mut results = Vec::new();
    let mut is_killed = false;
    for round in 0..2_u32 {
        for side in 0..2 {
            rig.site.guests[side].arm(&rig.queues[side], round + 1, false);
        }
        for _ in 0..5 {
            rig.post(0);
            rig.post(1);
        }
        is_killed |= rig.site.run(at.filter(|_| round == 0));
        results.extend(rig.results());
    }
    (is_killed, results)
}

#[test]
fn record_continues_work_after_a_kill_at_any_store() {
    for seed in 1..8_u64 {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (_, expected) = scenario(seed, None);
        let mut at = 0;
        loop {
            let (is_killed, found) = scenario(seed, Some(at));
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let place = format!("seed {seed:#x}, store {at}, result {index}");
                assert_eq!(found.0, expected.0, "completions: {place}");
                assert_eq!((&found.1, &found.2), (&expected.1, &expected.2), "events: {place}");
                assert!(found.3 == expected.3, "memory: {place}");
            }
            if !is_killed {
                break;
            }
            at += 1;
        }
        assert!(at > 40, "{at} stores");
    }
}
