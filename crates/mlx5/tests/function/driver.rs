//! The driver of `causeway-mlx5-driver` against functions in this process, and a connected pair.
//!
//! A write of the command doorbell executes the command at once. Calls that must succeed panic if they
//! fail; a refused command returns its status.

use std::sync::Arc;

use causeway_memory::Map;
use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5::{Function, FunctionConfig, Registers, adapter_config, poll, run_commands};
use causeway_mlx5_driver::{Bar, Driver, DriverError, DriverMemory, Post};
use causeway_verbs::{AdapterId, Budget, Subnet};
use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::completion_queue::{CompletionQueueContext, Entry};
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::memory_key::MemoryKeyContext;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_request::{DataSegment, SendOpcode, SendWriter};

pub use causeway_mlx5_driver::limits::{BASE, PAGE};
pub use causeway_mlx5_driver::{CompletionRing as Completions, EventRing, QueuePair as Pair};

pub const MEMORY: u64 = 16 << 20;

/// Functions in a subnet.
pub struct World {
    pub subnet: Subnet<Function>,
    pub now: u64,
}

/// A function and the guest that drives it.
pub struct Guest {
    pub adapter: AdapterId,
    pub registers: Arc<Registers>,
    pub map: Arc<Map>,
    pub mac: [u8; 6],
    pub domain: u32,
    pub uar: u32,
    pub command_events: EventRing,
    pub async_events: EventRing,
    pub events: EventRing,
    pub driver: Driver,
}

/// The registers of a function in the subnet.
struct LocalBar<'a> {
    subnet: &'a mut Subnet<Function>,
    adapter: AdapterId,
    registers: Arc<Registers>,
}

impl Bar for LocalBar<'_> {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DriverError> {
        self.registers.read(REGION_BAR, offset, into);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DriverError> {
        if self.registers.write(REGION_BAR, offset, bytes).is_some() {
            assert_eq!(run_commands(self.subnet, self.adapter, 32).commands, 1);
        }
        Ok(())
    }
}

/// Returns the status of a refused command.
fn status<T>(result: Result<T, DriverError>) -> Result<T, Status> {
    match result {
        Ok(value) => Ok(value),
        Err(DriverError::Refused { status, .. }) => Err(status),
        Err(error) => panic!("{error}"),
    }
}

impl World {
    pub fn new() -> Self {
        Self { subnet: Subnet::new(), now: 0 }
    }

    /// Adds a function before the start of its driver.
    pub fn plug(&mut self, last: u8) -> Guest {
        let mac = [2, 0x43, 0x57, 0, 0, last];
        let config = FunctionConfig {
            mac,
            mtu: 9000,
            vectors: 8,
            queue_pairs_max: 256,
            completion_queues_max: 256,
            regions_max: 1024,
            registered_bytes_max: 1 << 30,
            uar_bytes: 1 << 20,
        };
        let memory = DriverMemory::new(MEMORY).unwrap();
        let mut function = Function::new(config.clone());
        let (registers, map) = (function.registers(), Arc::clone(memory.map()));
        function.set_map(Arc::clone(&map));
        let adapter = self.subnet.add(&adapter_config(&config), function).unwrap();
        let subnet = &mut self.subnet;
        let mut bar = LocalBar { subnet, adapter, registers: Arc::clone(&registers) };
        let driver = Driver::new(&mut bar, memory).unwrap();
        let (domain, uar) = (0, 0);
        let (command_events, async_events, events) = Default::default();
        Guest {
            adapter,
            registers,
            map,
            mac,
            domain,
            uar,
            command_events,
            async_events,
            events,
            driver,
        }
    }

    /// Adds a function and starts its driver as Linux does.
    pub fn start(&mut self, last: u8) -> Guest {
        let mut guest = self.plug(last);
        guest.start(self);
        guest
    }

    /// Polls all functions until no messages move.
    pub fn run(&mut self) {
        let ids: Vec<AdapterId> = self.subnet.adapters().map(|adapter| adapter.id()).collect();
        for _ in 0..200 {
            self.now += 1_000_000;
            let mut moved = 0;
            for id in &ids {
                let mut budget = Budget::new(1000, 1 << 30);
                moved += poll(&mut self.subnet, *id, self.now, &mut budget);
            }
            if moved == 0 {
                break;
            }
        }
        // Completions that the last function caused are evaluated on a further pass.
        for id in &ids {
            poll(&mut self.subnet, *id, self.now, &mut Budget::new(1000, 1 << 30));
        }
    }

    pub fn function(&mut self, guest: &Guest) -> &mut Function {
        self.subnet.adapter_mut(guest.adapter).unwrap().queues_mut()
    }
}

impl Guest {
    /// Returns the registers of the function.
    fn bar<'a>(&self, world: &'a mut World) -> LocalBar<'a> {
        let registers = Arc::clone(&self.registers);
        LocalBar { subnet: &mut world.subnet, adapter: self.adapter, registers }
    }

    /// Starts the driver as Linux does.
    pub fn start(&mut self, world: &mut World) {
        let mut bar = self.bar(world);
        self.driver.start(&mut bar).unwrap();
        (self.uar, self.domain) = (self.driver.uar(), self.driver.domain());
        self.command_events = self.driver.command_events();
        self.async_events = self.driver.async_events();
        self.events = self.driver.events();
    }

    /// Takes page-aligned memory.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        self.driver.allocate(bytes).unwrap()
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.map.read(at, &mut bytes).unwrap();
        bytes
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.map.write(at, bytes).unwrap();
    }

    pub fn place_command(&self, index: u64, input: &[u8], output_len: usize) -> u64 {
        self.driver.place_command(index, input, output_len).unwrap()
    }

    /// Executes a command. Returns its output and the delivery status.
    pub fn command(&self, world: &mut World, input: &[u8], output_len: usize) -> (Vec<u8>, u8) {
        self.driver.command(&mut self.bar(world), input, output_len).unwrap()
    }

    /// Executes a command that must be delivered.
    pub fn try_command(
        &self,
        world: &mut World,
        input: &[u8],
        output_len: usize,
    ) -> Result<Vec<u8>, Status> {
        status(self.driver.execute(&mut self.bar(world), input, output_len))
    }

    /// Executes a command of 16 bytes. Returns the number in its output.
    pub fn simple(&self, world: &mut World, opcode: Opcode, number: u32) -> Result<u32, Status> {
        status(self.driver.simple(&mut self.bar(world), opcode, number))
    }

    /// Executes a command with a context and a page list. Returns the number in its output.
    pub fn create(
        &self,
        world: &mut World,
        opcode: Opcode,
        context: (usize, &[u8]),
        pages: (usize, &[u64]),
    ) -> Result<u32, Status> {
        status(self.driver.create(&mut self.bar(world), opcode, context, pages))
    }

    /// Takes all events of a queue.
    pub fn take_events(&self, ring: &mut EventRing) -> Vec<Event> {
        std::iter::from_fn(|| self.driver.take_event(ring).unwrap()).collect()
    }

    pub fn cq_context(&mut self, log: u8) -> (CompletionQueueContext, Vec<u64>) {
        self.driver.cq_context(log).unwrap()
    }

    pub fn create_cq(&mut self, world: &mut World, log: u8) -> Completions {
        let mut bar = self.bar(world);
        self.driver.create_cq(&mut bar, log).unwrap()
    }

    /// Changes a completion queue: `mask` selects fields of the context.
    pub fn modify_cq(
        &self,
        world: &mut World,
        change: (u32, u16, u32),
        (context, pages): (CompletionQueueContext, &[u64]),
    ) -> Result<(), Status> {
        status(self.driver.modify_cq(&mut self.bar(world), change, (&context, pages)))
    }

    /// Gives a completion queue a ring of another size.
    pub fn resize_cq(
        &mut self,
        world: &mut World,
        cq: &mut Completions,
        log: u8,
    ) -> Result<(), Status> {
        let mut bar = self.bar(world);
        status(self.driver.resize_cq(&mut bar, cq, log))
    }

    /// Takes the next completion, and advances the position in the doorbell record.
    pub fn poll_cq(&self, cq: &mut Completions) -> Option<Entry> {
        self.driver.poll_cq(cq).unwrap()
    }

    /// Writes an arm word.
    pub fn arm(&self, cq: &Completions, sequence: u32, solicited: bool) {
        self.driver.arm(cq, sequence, solicited).unwrap();
    }

    pub fn qp_context(&mut self, service: Service, cq: u32) -> QueuePairContext {
        self.driver.qp_context(service, cq).unwrap()
    }

    pub fn create_pair(&mut self, world: &mut World, context: QueuePairContext) -> Pair {
        let mut bar = self.bar(world);
        self.driver.create_pair(&mut bar, context).unwrap()
    }

    /// Executes a command that changes the state of a queue pair.
    pub fn modify(
        &self,
        world: &mut World,
        opcode: Opcode,
        pair: &Pair,
        change: (u32, QueuePairContext),
    ) -> Result<(), Status> {
        status(self.driver.modify(&mut self.bar(world), opcode, pair, change))
    }

    /// Moves a queue pair to "ready to send" with a peer.
    pub fn connect(&self, world: &mut World, pair: &Pair, mac: [u8; 6], number: u32) {
        self.driver.connect(&mut self.bar(world), pair, mac, number).unwrap();
    }

    /// Registers `len` bytes at `at`, known to work requests as `start`. Returns the key.
    pub fn register(&self, world: &mut World, start: u64, at: u64, len: u64) -> u32 {
        self.driver.register(&mut self.bar(world), start, at, len).unwrap()
    }

    pub fn create_key(
        &self,
        world: &mut World,
        context: &MemoryKeyContext,
        pages: &[u64],
    ) -> Result<u32, Status> {
        status(self.driver.create_key(&mut self.bar(world), context, pages))
    }

    /// Posts a send entry that `build` completes; the entry completes, and is solicited.
    pub fn post(
        &self,
        pair: &mut Pair,
        (opcode, immediate): (SendOpcode, u32),
        build: impl for<'a> FnOnce(SendWriter<'a>) -> SendWriter<'a>,
    ) {
        let post = Post { immediate, is_solicited: true, ..Post::new(opcode) };
        self.driver.post(pair, post, build).unwrap();
    }

    /// Posts a receive entry.
    pub fn post_receive(&self, pair: &mut Pair, segments: &[DataSegment]) {
        self.driver.post_receive(pair, segments).unwrap();
    }
}

/// Returns a data segment.
pub fn data(key: u32, address: u64, len: u32) -> DataSegment {
    DataSegment { raw_len: len, key, address }
}

/// Returns the successful completion.
pub fn success(entry: Option<Entry>) -> causeway_wire::mlx5::completion_queue::CompletionEntry {
    match entry {
        Some(Entry::Success(entry)) => entry,
        other => panic!("no success: {other:?}"),
    }
}

/// Returns the failed completion.
pub fn failure(entry: Option<Entry>) -> causeway_wire::mlx5::completion_queue::ErrorEntry {
    match entry {
        Some(Entry::Error(entry)) => entry,
        other => panic!("no failure: {other:?}"),
    }
}

/// A connected pair of queue pairs on two functions, with a registered buffer of 64 KiB each.
pub struct Link {
    pub world: World,
    pub a: Guest,
    pub b: Guest,
    pub cq_a: Completions,
    pub cq_b: Completions,
    pub qp_a: Pair,
    pub qp_b: Pair,
    pub buffer_a: u64,
    pub buffer_b: u64,
    pub key_a: u32,
    pub key_b: u32,
}

/// Address of each buffer for work requests.
pub const VIRTUAL: u64 = 0x7fff_0000_0000;
pub const BUFFER: u64 = 64 << 10;

impl Link {
    pub fn new(service: Service) -> Self {
        let mut world = World::new();
        let (mut a, mut b) = (world.start(1), world.start(2));
        let (cq_a, cq_b) = (a.create_cq(&mut world, 5), b.create_cq(&mut world, 5));
        let context = a.qp_context(service, cq_a.number);
        let qp_a = a.create_pair(&mut world, context);
        let context = b.qp_context(service, cq_b.number);
        let qp_b = b.create_pair(&mut world, context);
        a.connect(&mut world, &qp_a, b.mac, qp_b.number);
        b.connect(&mut world, &qp_b, a.mac, qp_a.number);
        let (buffer_a, buffer_b) = (a.allocate(BUFFER), b.allocate(BUFFER));
        let key_a = a.register(&mut world, VIRTUAL, buffer_a, BUFFER);
        let key_b = b.register(&mut world, VIRTUAL, buffer_b, BUFFER);
        Self { world, a, b, cq_a, cq_b, qp_a, qp_b, buffer_a, buffer_b, key_a, key_b }
    }

    pub fn run(&mut self) {
        self.world.run();
    }
}
