//! The record of a function: a process that is killed between any two stores of a commit is followed
//! by one that continues with the same objects, and each completion and event arrives once.
//!
//! A kill is a panic in the step function of the record, which debug builds call between the stores.
//! The memory of the guests and the records are files, so that they keep every store.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Once};

use causeway_memory::{Mapping, View, create};
use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5::{
    Function, FunctionConfig, Record, RecordError, RestoreError, adapter_config, restore,
    run_commands,
};
use causeway_verbs::{AdapterId, Subnet};
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::memory_key::{MemoryKeyContext, UpdateControl, mask};
use causeway_wire::mlx5::queue_pair::{QueuePairContext, ReceiveQueueType, Service};
use causeway_wire::mlx5::work_queue::{ReceivePoolContext, WorkQueue};
use causeway_wire::mlx5::work_request::{
    AtomicSegment, DatagramSegment, RemoteAddressSegment, SendOpcode,
};

use crate::driver::{BASE, Completions, EventRing, Guest, Pair, VIRTUAL, World, data};

thread_local! {
    /// Stores until the kill.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The message of a kill.
#[derive(Debug)]
pub struct Killed;

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
pub fn killed(at: Option<u32>, act: impl FnOnce()) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Killed>() {
                report(info);
            }
        }));
    });
    LEFT.with(|left| left.set(at));
    let result = catch_unwind(AssertUnwindSafe(act));
    LEFT.with(|left| left.set(None));
    match result {
        Ok(()) => false,
        Err(payload) if payload.is::<Killed>() => true,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Two guests with recorded functions.
pub struct Site {
    pub world: World,
    pub guests: [Guest; 2],
    pub files: [View; 2],
    /// Whether the first function works for a time before the second is restored, longer than the
    /// retries of its queue pairs.
    is_second_late: bool,
}

const MEGABYTE: u64 = 1 << 20;

pub fn config(world: &mut World, guest: &Guest) -> FunctionConfig {
    world.function(guest).config().clone()
}

pub fn file(config: &FunctionConfig) -> View {
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
    guest.start(world);
    world.function(&guest).record_mut().unwrap().set_step(Some(step));
    (guest, view)
}

impl Site {
    pub fn new() -> Self {
        let mut world = World::new();
        let (a, file_a) = start(&mut world, 1);
        let (b, file_b) = start(&mut world, 2);
        Self { world, guests: [a, b], files: [file_a, file_b], is_second_late: true }
    }

    /// Continues in a new process, which serves both functions.
    pub fn restart(&mut self) -> Result<(), RestoreError> {
        let configs = self.guests.each_ref().map(|guest| config(&mut self.world, guest));
        self.world.subnet = Subnet::new();
        let mut result = Ok(());
        for (index, config) in configs.iter().enumerate() {
            let adapter = self.plug_again(index, config);
            let subnet = &mut self.world.subnet;
            result = result.and(restore(subnet, adapter, self.files[index].clone()).map(drop));
            run_commands(subnet, adapter, 32);
            let function = subnet.adapter_mut(adapter).unwrap().queues_mut();
            if let Some(record) = function.record_mut() {
                record.confirm();
                record.set_step(Some(step));
            }
            let until_ns = self.world.now + 60_000_000_000;
            self.world.subnet.adapter_mut(adapter).unwrap().await_peers(until_ns);
            if index == 0 && self.is_second_late {
                self.world.run();
                self.world.now += 5_000_000_000;
                self.world.run();
            }
        }
        result
    }

    /// Gives a guest a new function, with its memory and registers of before.
    pub fn plug_again(&mut self, index: usize, config: &FunctionConfig) -> AdapterId {
        let guest = &mut self.guests[index];
        let mut function = Function::new(config.clone());
        function.set_map(Arc::clone(&guest.map));
        guest.registers = function.registers();
        for (at, word) in [(0x10, (BASE >> 32) as u32), (0x14, BASE as u32)] {
            guest.registers.write(REGION_BAR, at, &word.to_be_bytes());
        }
        guest.adapter = self.world.subnet.add(&adapter_config(config), function).unwrap();
        guest.adapter
    }

    /// Runs posted work, and restarts after each kill: the first at store number `kills[0]`, the next
    /// as many stores after the restart. Returns the number of kills.
    fn run(&mut self, kills: &[u32]) -> usize {
        for (count, at) in kills.iter().enumerate() {
            if !killed(Some(*at), || self.world.run()) {
                return count;
            }
            self.restart().unwrap();
        }
        self.world.run();
        kills.len()
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
            for (pair, peer) in pairs[own].iter().zip(&pairs[other]) {
                let mac = guests[other].mac;
                guests[own].connect(world, pair, mac, peer.number);
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

/// Runs two rounds of random work, killed in the first round at the stores `kills` ([`Site::run`]).
/// Returns the number of kills, and the results of both rounds.
fn scenario(seed: u64, kills: &[u32]) -> (usize, Vec<Results>) {
    let mut rig = Rig::new(seed, Service::ReliableConnection);
    let mut results = Vec::new();
    let mut count = 0;
    for round in 0..2_u32 {
        for side in 0..2 {
            rig.site.guests[side].arm(&rig.queues[side], round + 1, false);
        }
        for _ in 0..5 {
            rig.post(0);
            rig.post(1);
        }
        count += rig.site.run(if round == 0 { kills } else { &[] });
        results.extend(rig.results());
    }
    (count, results)
}

/// Compares the results of a scenario with kills and those without.
fn compare(found: &[Results], expected: &[Results], place: &str) {
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.0, expected.0, "completions: {place}, result {index}");
        let events = [(&found.1, &expected.1), (&found.2, &expected.2)];
        assert!(events.iter().all(|(found, expected)| found == expected), "events: {place}");
        assert!(found.3 == expected.3, "memory: {place}, result {index}");
    }
}

#[test]
fn record_continues_work_after_a_kill_at_any_store() {
    for seed in 1..4_u64 {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (_, expected) = scenario(seed, &[]);
        let mut at = 0;
        loop {
            let (count, found) = scenario(seed, &[at]);
            compare(&found, &expected, &format!("seed {seed:#x}, store {at}"));
            if count == 0 {
                break;
            }
            at += 1;
        }
        assert!(at > 40, "{at} stores");
    }
}

/// Each process is killed a few stores after it continued the work of the one before.
#[test]
fn record_continues_work_after_kills_in_a_row() {
    let mut total = 0;
    for seed in 1..40_u64 {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (_, expected) = scenario(seed, &[]);
        let kills: Vec<u32> = (0..6).map(|n| (seed >> (n * 9 + 3)) as u32 % 24).collect();
        let (count, found) = scenario(seed, &kills);
        compare(&found, &expected, &format!("seed {seed:#x}, stores {kills:?}"));
        total += count;
    }
    assert!(total > 100, "{total} kills");
}

/// Runs `act` in a site that a kill at any store interrupts, and `check` after the restart. `act` must
/// be the same in each site.
fn at_any_store(
    make: impl Fn() -> Rig,
    act: impl Fn(&mut Rig),
    check: impl Fn(&mut Rig, bool),
) -> u32 {
    for at in 0.. {
        let mut rig = make();
        act(&mut rig);
        let is_killed = rig.site.run(&[at]) > 0;
        check(&mut rig, is_killed);
        if !is_killed {
            return at;
        }
    }
    unreachable!()
}

#[test]
fn record_executes_no_atomic_operation_twice() {
    let make = || Rig::new(1, Service::ReliableConnection);
    let add = |rig: &mut Rig| {
        let remote = RemoteAddressSegment { address: VIRTUAL + MEGABYTE, key: rig.keys[1] };
        let result = data(rig.keys[0], VIRTUAL + MEGABYTE, 8);
        for _ in 0..2 {
            let atomic = AtomicSegment { swap_or_add: 1, compare: 0 };
            let pair = &mut rig.pairs[0][0];
            rig.site.guests[0].post(pair, (SendOpcode::FetchAdd, 0), |e| {
                e.remote(&remote).atomic(&atomic).data(&result)
            });
        }
    };
    let stores = at_any_store(make, add, |rig, _| {
        let results = rig.results();
        let value = u64::from_ne_bytes(results[1].3[..8].try_into().unwrap());
        let done = results[0].0.iter().filter(|entry| matches!(entry, Entry::Success(_))).count();
        assert_eq!(results[0].0.len(), 2, "each request has a completion");
        // An operation without a completion has an unknown result.
        let lost = value - done as u64;
        assert!(
            value <= 2 && lost <= 1 && done <= value as usize,
            "{done} successes, {value} additions"
        );
    });
    assert!(stores > 8, "{stores}");
}

#[test]
fn record_sends_no_datagram_twice() {
    let make = || {
        let mut rig = Rig::new(1, Service::ReliableConnection);
        // Datagrams to an adapter that is not restored yet are lost.
        rig.site.is_second_late = false;
        let Rig { site: Site { world, guests, .. }, queues, pairs, .. } = &mut rig;
        for side in 0..2 {
            let context = guests[side].qp_context(Service::UnreliableDatagram, queues[side].number);
            pairs[side][0] = guests[side].create_pair(world, context);
            guests[side].connect(world, &pairs[side][0], [0; 6], 0);
        }
        rig
    };
    let send = |rig: &mut Rig| {
        for _ in 0..2 {
            rig.post_receive(1, 0);
            rig.post_receive(1, 0);
            let from = data(rig.keys[0], VIRTUAL, 100);
            let to = DatagramSegment {
                queue_key: 0x1111,
                is_extended: true,
                queue_pair: rig.pairs[1][0].number,
                mac: rig.site.guests[1].mac,
                ..Default::default()
            };
            let pair = &mut rig.pairs[0][0];
            rig.site.guests[0].post(pair, (SendOpcode::Send, 0), |e| e.datagram(&to).data(&from));
        }
    };
    let stores = at_any_store(make, send, |rig, is_killed| {
        let results = rig.results();
        assert_eq!(results[0].0.len(), 2, "each request has a completion");
        assert!(results[0].0.iter().all(|entry| matches!(entry, Entry::Success(_))));
        let received = results[1].0.len();
        assert!(received == 2 || is_killed && received == 1, "{received} datagrams");
    });
    assert!(stores > 8, "{stores}");
}

#[test]
fn record_reports_a_failure_once_and_keeps_the_error_state() {
    let make = || Rig::new(1, Service::ReliableConnection);
    let fail = |rig: &mut Rig| {
        let remote = RemoteAddressSegment { address: VIRTUAL, key: rig.keys[1] ^ 1 };
        let from = data(rig.keys[0], VIRTUAL, 100);
        for _ in 0..3 {
            rig.post_receive(0, 0);
            let pair = &mut rig.pairs[0][0];
            let guest = &rig.site.guests[0];
            guest.post(pair, (SendOpcode::Write, 0), |e| e.remote(&remote).data(&from));
        }
    };
    at_any_store(make, fail, |rig, is_killed| {
        // A responder that failed before the kill no longer answers.
        rig.site.world.now += 10_000_000_000;
        rig.site.world.run();
        let results = rig.results();
        let entries = &results[0].0;
        assert_eq!(entries.len(), 6, "each request has a completion: {entries:?}");
        assert!(entries.iter().all(|entry| matches!(entry, Entry::Error(_))));
        let events = results[1].2.len();
        assert!(events == 1 || is_killed && events <= 1, "{events} events of the responder");
    });
}

#[test]
fn record_keeps_keys_that_work_requests_changed() {
    let make = || Rig::new(1, Service::ReliableConnection);
    let key = Cell::new(0);
    let register = |rig: &mut Rig| {
        let guest = &rig.site.guests[0];
        let free = MemoryKeyContext {
            is_free: true,
            has_update: true,
            access_mode: 1,
            queue_pair: 0xff_ffff,
            domain: guest.domain,
            list_size: 8,
            log_page_size: 12,
            ..Default::default()
        };
        key.set(guest.create_key(&mut rig.site.world, &free, &[]).unwrap());
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
            start: 0x5000_0000,
            len: 4096,
            log_page_size: 12,
            ..Default::default()
        };
        let list = (rig.buffers[0] + 4096).to_be_bytes();
        let pair = &mut rig.pairs[0][0];
        guest.post(pair, (SendOpcode::Update, key.get()), |e| {
            e.update(&control, &context).list(&list)
        });
        // The kernel requires a free key, so a second execution would fail.
        let to = RemoteAddressSegment { address: VIRTUAL + MEGABYTE, key: rig.keys[1] };
        let from = data(key.get(), 0x5000_0000, 100);
        guest.post(pair, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    };
    at_any_store(make, register, |rig, _| {
        rig.site.restart().unwrap();
        let to = RemoteAddressSegment { address: VIRTUAL + MEGABYTE + 100, key: rig.keys[1] };
        let from = data(key.get(), 0x5000_0000, 100);
        let pair = &mut rig.pairs[0][0];
        rig.site.guests[0].post(pair, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
        rig.site.world.run();
        let results = rig.results();
        assert!(results[0].0.iter().all(|entry| matches!(entry, Entry::Success(_))));
        assert_eq!((results[0].0.len(), &results[1].3[..200]), (3, &[2; 200][..]));
    });
}

/// A command queue that a kill interrupts.
struct Commands {
    site: Site,
    /// Stores until the kill.
    left: Option<u32>,
    is_killed: bool,
}

impl Commands {
    /// Executes a command, with a restart if it was killed. Returns the number in its output.
    fn run(&mut self, input: &[u8]) -> u32 {
        let Site { world, guests: [guest, _], .. } = &mut self.site;
        let entry = guest.place_command(0, input, 16);
        guest.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
        let (subnet, adapter) = (&mut world.subnet, guest.adapter);
        let mut done = 0;
        LEFT.with(|left| left.set(self.left));
        let is_killed = killed(self.left, || {
            done = run_commands(subnet, adapter, 32).commands;
            self.left = LEFT.with(Cell::get);
        });
        if is_killed {
            (self.left, self.is_killed) = (None, true);
            self.site.restart().unwrap();
        }
        let bytes = self.site.guests[0].read(entry, 64);
        assert_eq!((bytes[0x3f], bytes[0x20]), (0, Status::Ok.raw()), "{:x?}", &input[..16]);
        u32::from_be_bytes(bytes[0x28..0x2c].try_into().unwrap())
    }

    fn simple(&mut self, opcode: Opcode, number: u32) -> u32 {
        self.run(&InputHeader::new(opcode, number).to_bytes())
    }

    fn create(&mut self, opcode: Opcode, (at, context): (usize, &[u8]), pages: &[u64]) -> u32 {
        let mut input = vec![0; 0x110];
        input[..16].copy_from_slice(&InputHeader::new(opcode, 0).to_bytes());
        input[at..at + context.len()].copy_from_slice(context);
        input.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
        self.run(&input)
    }

    /// Returns the numbers of completion queues, queue pairs and regions.
    fn counts(&mut self) -> [usize; 3] {
        let Site { world, guests, .. } = &mut self.site;
        let adapter = world.subnet.adapter(guests[0].adapter).unwrap();
        let queues = adapter.queues().completion_queues();
        [queues, adapter.queue_pairs().count(), adapter.regions().len()]
    }
}

#[test]
fn record_answers_each_command_once_after_a_kill_at_any_store() {
    for at in 0.. {
        let mut commands = Commands { site: Site::new(), left: Some(at), is_killed: false };
        let domain = commands.simple(Opcode::AllocateProtectionDomain, 0);
        let (cq, pages) = commands.site.guests[0].cq_context(4);
        let queue = commands.create(Opcode::CreateCompletionQueue, (0x10, &cq.to_bytes()), &pages);
        let mut context = commands.site.guests[0].qp_context(Service::ReliableConnection, queue);
        context.domain = domain;
        let ring = commands.site.guests[0].allocate(context.buffer_len());
        let bytes = context.to_bytes();
        let pair = commands.create(Opcode::CreateQueuePair, (0x18, &bytes), &[ring]);
        let rights = QueuePairContext { remote_write: true, queue_key: 5, ..context };
        let mut modify = InputHeader::new(Opcode::ResetToInit, pair).to_bytes().to_vec();
        modify.resize(0x18, 0);
        modify.extend(rights.to_bytes());
        commands.run(&modify);
        let key = MemoryKeyContext { access_mode: 1, is_free: true, ..Default::default() };
        let key = commands.create(Opcode::CreateMemoryKey, (0x10, &key.to_bytes()), &[]);
        assert_eq!(commands.counts(), [1, 1, 1], "store {at}");
        let Site { world, guests, .. } = &commands.site;
        let adapter = world.subnet.adapter(guests[0].adapter).unwrap();
        let own = adapter.queue_pair(pair).unwrap();
        assert_eq!((own.state(), own.attributes().queue_key), (causeway_verbs::State::Init, 5));
        commands.simple(Opcode::DestroyMemoryKey, key);
        commands.simple(Opcode::DestroyQueuePair, pair);
        commands.simple(Opcode::DestroyCompletionQueue, queue);
        commands.simple(Opcode::DeallocateProtectionDomain, domain);
        assert_eq!(commands.counts(), [0, 0, 0], "store {at}");
        let guest = &mut commands.site.guests[0];
        let mut events = guest.command_events;
        // The commands after the creation of the queue of events, and those of the test.
        assert_eq!(guest.take_events(&mut events).len(), 11, "store {at}");
        if !commands.is_killed {
            assert!(at > 60, "{at}");
            return;
        }
    }
}

#[test]
fn record_that_is_damaged_or_of_another_function_is_refused() {
    let mut rig = Rig::new(1, Service::ReliableConnection);
    let view = rig.site.files[0].clone();
    let whole: Vec<u8> = view.read::<4096>(0).unwrap().to_vec();
    // The version, the tables' sizes, and the redo entry.
    for (at, word) in [(8, 7), (16, 3), (256, 1 << 63), (256, 0x7264 << 48 | 99)] {
        view.store_word(at, word).unwrap();
        let found = rig.site.restart();
        assert!(matches!(found, Err(RestoreError::Record(_))), "{found:?}");
        let adapter = rig.site.world.subnet.adapter(rig.site.guests[0].adapter).unwrap();
        assert_eq!(adapter.queues().completion_queues(), 0);
        view.write(0, &whole).unwrap();
    }
    assert_eq!(rig.site.restart(), Ok(()));
    // Random damage of the journal and the words is refused, or restores some function.
    let heap = view.len() - (64 << 20);
    let mut refused = 0;
    for round in 0..60_u64 {
        let random = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (start, span) = if round % 2 == 0 { (heap, 16 << 10) } else { (0, heap) };
        let at = start + (((random >> 11) as usize % span) & !7);
        let mut rig = Rig::new(round + 1, Service::ReliableConnection);
        rig.site.files[0].store_word(at, random).unwrap();
        refused += u32::from(rig.site.restart().is_err());
        rig.post(1);
        rig.site.world.run();
    }
    assert!(refused > 0);
    let short = View::new(
        {
            let file = create("record", 4096).unwrap();
            Arc::new(Mapping::new(file.as_fd(), 0, 4096).unwrap())
        },
        0,
        4096,
    );
    let config = config(&mut rig.site.world, &rig.site.guests[0]);
    let found = Record::create(short.unwrap(), &config).map(drop);
    assert!(matches!(found, Err(RecordError::Short(_))), "{found:?}");
}

/// Returns the results of the driver's queries about objects.
fn queries(site: &mut Site, objects: &[(Opcode, u32)]) -> Vec<Result<Vec<u8>, Status>> {
    let Site { world, guests: [guest, _], .. } = site;
    let query = |(opcode, number): &(Opcode, u32)| {
        let input = InputHeader::new(*opcode, *number).to_bytes();
        guest.try_command(world, &input, 0x200)
    };
    objects.iter().map(query).collect()
}

/// The opcodes that make, query and destroy an object, and its number.
type MadeObject = ([Opcode; 3], u32);

/// Makes an object of one of six kinds.
fn make_object(rig: &mut Rig, kind: u64) -> MadeObject {
    let Site { world, guests: [guest, _], .. } = &mut rig.site;
    match kind {
        0 => {
            let number = guest.create_cq(world, 3).number;
            use Opcode::{CreateCompletionQueue, DestroyCompletionQueue, QueryCompletionQueue};
            ([CreateCompletionQueue, QueryCompletionQueue, DestroyCompletionQueue], number)
        }
        1 => {
            let number = Shared::new(world, guest).number;
            use Opcode::{CreateReceivePool, DestroyReceivePool, QueryReceivePool};
            ([CreateReceivePool, QueryReceivePool, DestroyReceivePool], number)
        }
        2 => {
            let number = guest.register(world, VIRTUAL, rig.buffers[0], 40_000) >> 8;
            use Opcode::{CreateMemoryKey, DestroyMemoryKey, QueryMemoryKey};
            ([CreateMemoryKey, QueryMemoryKey, DestroyMemoryKey], number)
        }
        3 | 4 => {
            let context = guest.qp_context(Service::ReliableConnection, rig.queues[0].number);
            let pair = guest.create_pair(world, context);
            if kind == 4 {
                guest.connect(world, &pair, guest.mac, pair.number);
            }
            use Opcode::{CreateQueuePair, DestroyQueuePair, QueryQueuePair};
            ([CreateQueuePair, QueryQueuePair, DestroyQueuePair], pair.number)
        }
        _ => {
            use Opcode::{AllocateProtectionDomain, DeallocateProtectionDomain, Nop};
            let number = guest.simple(world, AllocateProtectionDomain, 0).unwrap();
            ([AllocateProtectionDomain, Nop, DeallocateProtectionDomain], number)
        }
    }
}

#[test]
fn record_restores_objects_to_equal_queries() {
    let mut rig = Rig::new(3, Service::ReliableConnection);
    // The first event queue has events of the queries.
    let mut queried: Vec<(Opcode, u32)> = (2..4).map(|n| (Opcode::QueryEventQueue, n)).collect();
    queried.push((Opcode::QueryCompletionQueue, rig.queues[0].number));
    queried.push((Opcode::QueryReceivePool, rig.shared[0].number));
    queried.push((Opcode::QueryMemoryKey, rig.keys[0] >> 8));
    queried.extend(rig.pairs[0].iter().map(|pair| (Opcode::QueryQueuePair, pair.number)));
    let mut made: Vec<MadeObject> = Vec::new();
    for _ in 0..120 {
        let kind = rig.random(6);
        if rig.random(3) == 0 && !made.is_empty() {
            let index = rig.random(made.len() as u64) as usize;
            let ([_, query, destroy], number) = made.swap_remove(index);
            let Site { world, guests: [guest, _], .. } = &mut rig.site;
            guest.simple(world, destroy, number).unwrap();
            queried.push((query, number));
            continue;
        }
        made.push(make_object(&mut rig, kind));
    }
    queried.extend(made.iter().map(|([_, query, _], number)| (*query, *number)));
    let expected = queries(&mut rig.site, &queried);
    assert!(expected.iter().filter(|result| result.is_ok()).count() > 20);
    for _ in 0..3 {
        rig.site.restart().unwrap();
        let found = queries(&mut rig.site, &queried);
        for ((found, expected), query) in found.iter().zip(&expected).zip(&queried) {
            assert!(found == expected, "{query:?}");
        }
    }
    // All objects can be destroyed, and the journal has room for them again.
    for ([_, _, destroy], number) in made {
        let Site { world, guests: [guest, _], .. } = &mut rig.site;
        guest.simple(world, destroy, number).unwrap();
    }
    rig.site.restart().unwrap();
}
