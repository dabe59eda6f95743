//! A small driver: builds commands and work queue entries in a guest's memory, and reads results.

use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_memory::{Map, Mapping, Region, create};
use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5::{Function, FunctionConfig, Registers, adapter_config, poll, run_commands};
use causeway_verbs::{AdapterId, Budget, Subnet};
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::completion_queue::{CompletionQueueContext, Entry};
use causeway_wire::mlx5::event_queue::{Event, EventQueueContext};
use causeway_wire::mlx5::memory_key::MemoryKeyContext;
use causeway_wire::mlx5::queue_pair::{
    AddressPath, QueuePairContext, ReceiveQueueType, Service, optional,
};
use causeway_wire::mlx5::work_request::{ControlSegment, DataSegment, SendOpcode, SendWriter};

pub const BASE: u64 = 0x1_0000_0000;
pub const MEMORY: u64 = 16 << 20;
const COMMANDS: u64 = BASE;
const MAILBOXES: u64 = BASE + 0x10_0000;
const HEAP: u64 = BASE + 0x40_0000;
pub const PAGE: u64 = 4096;

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
    heap: u64,
    pub domain: u32,
    pub uar: u32,
    pub command_events: EventRing,
    pub async_events: EventRing,
    pub events: EventRing,
}

#[derive(Clone, Copy, Default)]
pub struct EventRing {
    pub number: u32,
    ring: u64,
    log: u8,
    taken: u32,
}

#[derive(Clone, Copy)]
pub struct Completions {
    pub number: u32,
    ring: u64,
    log: u8,
    stride: u64,
    pub record: u64,
    pub taken: u32,
}

#[derive(Clone, Copy)]
pub struct Pair {
    pub number: u32,
    pub context: QueuePairContext,
    pub ring: u64,
    pub record: u64,
    pub sent: u16,
    pub received: u16,
}

/// Returns a map of a new memory file.
pub fn memory() -> Arc<Map> {
    let file = create("guest", MEMORY).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, MEMORY).unwrap());
    Arc::new(Map::new(vec![Region { guest: BASE, user: 0, mapping }]).unwrap())
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
        let mut function = Function::new(config.clone());
        let (registers, map) = (function.registers(), memory());
        function.set_map(Arc::clone(&map));
        let adapter = self.subnet.add(&adapter_config(&config), function).unwrap();
        let queue = (COMMANDS >> 32) as u32;
        registers.write(REGION_BAR, 0x10, &queue.to_be_bytes());
        registers.write(REGION_BAR, 0x14, &(COMMANDS as u32).to_be_bytes());
        let (domain, uar, heap) = (0, 0, HEAP);
        let (command_events, async_events, events) = Default::default();
        Guest {
            adapter,
            registers,
            map,
            mac,
            heap,
            domain,
            uar,
            command_events,
            async_events,
            events,
        }
    }

    /// Adds a function and starts its driver as Linux does.
    pub fn start(&mut self, last: u8) -> Guest {
        let mut guest = self.plug(last);
        for opcode in [Opcode::EnableHca, Opcode::QueryPages, Opcode::InitHca] {
            guest.simple(self, opcode, 0).unwrap();
        }
        guest.uar = guest.simple(self, Opcode::AllocateUar, 0).unwrap();
        guest.domain = guest.simple(self, Opcode::AllocateProtectionDomain, 0).unwrap();
        guest.command_events = guest.create_events(self, 5, 0, 1 << 0xa);
        guest.async_events = guest.create_events(self, 5, 0, 0x1f_ffff & !(1 << 0xa) & !1);
        guest.events = guest.create_events(self, 6, 1, 0);
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
    /// Takes page-aligned memory.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let at = self.heap;
        self.heap += bytes.next_multiple_of(PAGE);
        assert!(self.heap <= BASE + MEMORY);
        at
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.map.read(at, &mut bytes).unwrap();
        bytes
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.map.write(at, bytes).unwrap();
    }

    /// Writes the input of a command to entry `index`, in a chain of mailboxes.
    pub fn place_command(&self, index: u64, input: &[u8], output_len: usize) -> u64 {
        let entry = COMMANDS + index * 64;
        let boxes = MAILBOXES + index * 0x4_0000 / 4;
        let (head, rest) = input.split_at(16);
        let chain = |first: u64, count: usize| {
            for number in 0..count {
                let next = first + 1024 * (number as u64 + 1);
                let next = if number + 1 == count { 0 } else { next };
                self.write(first + 1024 * number as u64 + 560, &next.to_be_bytes());
            }
        };
        chain(boxes, rest.len().div_ceil(512));
        for (number, data) in rest.chunks(512).enumerate() {
            self.write(boxes + 1024 * number as u64, data);
        }
        let out = boxes + 0x8000;
        chain(out, output_len.saturating_sub(16).div_ceil(512));
        let mut bytes = [0; 64];
        bytes[0] = 7;
        bytes[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        bytes[8..16].copy_from_slice(&boxes.to_be_bytes());
        bytes[16..32].copy_from_slice(head);
        bytes[0x30..0x38].copy_from_slice(&out.to_be_bytes());
        bytes[0x38..0x3c].copy_from_slice(&(output_len as u32).to_be_bytes());
        bytes[0x3f] = 1;
        self.write(entry, &bytes);
        entry
    }

    /// Executes a command. Returns its output and the delivery status.
    pub fn command(&self, world: &mut World, input: &[u8], output_len: usize) -> (Vec<u8>, u8) {
        let entry = self.place_command(0, input, output_len);
        self.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
        assert_eq!(run_commands(&mut world.subnet, self.adapter, 32).commands, 1);
        let bytes = self.read(entry, 64);
        assert_eq!(bytes[0x3f] & 1, 0, "the driver owns the entry");
        let mut output = bytes[0x20..0x30].to_vec();
        let mut at = u64::from_be_bytes(bytes[0x30..0x38].try_into().unwrap());
        while output.len() < output_len {
            let left = (output_len - output.len()).min(512);
            output.extend(self.read(at, left));
            at += 1024;
        }
        (output, bytes[0x3f] >> 1)
    }

    /// Executes a command that must be delivered.
    pub fn try_command(
        &self,
        world: &mut World,
        input: &[u8],
        output_len: usize,
    ) -> Result<Vec<u8>, Status> {
        let (output, delivery) = self.command(world, input, output_len);
        assert_eq!(delivery, 0);
        match Status::from_raw(output[0]).unwrap() {
            Status::Ok => Ok(output),
            status => Err(status),
        }
    }

    /// Executes a command of 16 bytes. Returns the number in its output.
    pub fn simple(&self, world: &mut World, opcode: Opcode, number: u32) -> Result<u32, Status> {
        let input = InputHeader::new(opcode, number).to_bytes();
        let output = self.try_command(world, &input, 16)?;
        Ok(u32::from_be_bytes(output[8..12].try_into().unwrap()))
    }

    /// Executes a command with a context and a page list. Returns the number in its output.
    pub fn create(
        &self,
        world: &mut World,
        opcode: Opcode,
        (at, context): (usize, &[u8]),
        (list_at, pages): (usize, &[u64]),
    ) -> Result<u32, Status> {
        let mut input = vec![0; list_at + pages.len() * 8];
        input[..16].copy_from_slice(&InputHeader::new(opcode, 0).to_bytes());
        input[at..at + context.len()].copy_from_slice(context);
        for (index, page) in pages.iter().enumerate() {
            input[list_at + index * 8..][..8].copy_from_slice(&page.to_be_bytes());
        }
        let output = self.try_command(world, &input, 16)?;
        Ok(u32::from_be_bytes(output[8..12].try_into().unwrap()))
    }

    pub fn create_events(
        &mut self,
        world: &mut World,
        log: u8,
        vector: u16,
        mask: u64,
    ) -> EventRing {
        let ring = self.allocate(64 << log);
        for index in 0..1_u64 << log {
            self.write(ring + index * 64 + 0x3f, &[1]);
        }
        let context = EventQueueContext { log_size: log, vector, ..Default::default() };
        let mut bytes = context.to_bytes().to_vec();
        bytes.resize(0x50, 0);
        bytes[0x48..0x50].copy_from_slice(&mask.to_be_bytes());
        let pages: Vec<u64> =
            (0..(64_u64 << log).div_ceil(PAGE)).map(|n| ring + n * PAGE).collect();
        let opcode = Opcode::CreateEventQueue;
        let number = self.create(world, opcode, (0x10, &bytes), (0x110, &pages)).unwrap();
        EventRing { number, ring, log, taken: 0 }
    }

    /// Takes all events of a queue.
    pub fn take_events(&self, ring: &mut EventRing) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let index = u64::from(ring.taken & ((1 << ring.log) - 1));
            let bytes = self.read(ring.ring + index * 64, 64);
            let (event, owner) = Event::parse(&bytes).unwrap();
            if owner != ((ring.taken >> ring.log) & 1 != 0) {
                return events;
            }
            ring.taken += 1;
            events.push(event.unwrap());
        }
    }

    pub fn cq_context(&mut self, log: u8) -> (CompletionQueueContext, Vec<u64>) {
        let ring = self.allocate(64 << log);
        for index in 0..1_u64 << log {
            self.write(ring + index * 64 + 0x3f, &[0xf1]);
        }
        let record = self.allocate(8);
        let pages = (0..(64_u64 << log).div_ceil(PAGE)).map(|n| ring + n * PAGE).collect();
        let context = CompletionQueueContext {
            log_size: log,
            event_queue: self.events.number,
            uar_page: self.uar,
            doorbell_record: record,
            ..Default::default()
        };
        (context, pages)
    }

    pub fn create_cq(&mut self, world: &mut World, log: u8) -> Completions {
        let (context, pages) = self.cq_context(log);
        let bytes = context.to_bytes();
        let opcode = Opcode::CreateCompletionQueue;
        let number = self.create(world, opcode, (0x10, &bytes), (0x110, &pages)).unwrap();
        let record = context.doorbell_record;
        Completions { number, ring: pages[0], log, stride: 64, record, taken: 0 }
    }

    /// Changes a completion queue: `mask` selects fields of the context.
    pub fn modify_cq(
        &self,
        world: &mut World,
        (number, modifier, mask): (u32, u16, u32),
        (context, pages): (CompletionQueueContext, &[u64]),
    ) -> Result<(), Status> {
        let header = InputHeader {
            modifier,
            argument: mask,
            ..InputHeader::new(Opcode::ModifyCompletionQueue, number)
        };
        let mut input = vec![0; 0x110 + pages.len() * 8];
        input[..16].copy_from_slice(&header.to_bytes());
        input[0x10..0x50].copy_from_slice(&context.to_bytes());
        for (index, page) in pages.iter().enumerate() {
            input[0x110 + index * 8..][..8].copy_from_slice(&page.to_be_bytes());
        }
        self.try_command(world, &input, 16).map(drop)
    }

    /// Gives a completion queue a ring of another size, and copies the completions that were not
    /// taken behind their old positions, up to the entry of the resize.
    pub fn resize_cq(
        &mut self,
        world: &mut World,
        cq: &mut Completions,
        log: u8,
    ) -> Result<(), Status> {
        let (context, pages) = self.cq_context(log);
        self.modify_cq(world, (cq.number, 1, 7), (context, &pages))?;
        let new = Completions { ring: pages[0], log, ..*cq };
        for position in cq.taken.. {
            let at = |cq: &Completions, position: u32| {
                cq.ring + u64::from(position & ((1 << cq.log) - 1)) * cq.stride
            };
            let mut entry = self.read(at(cq, position), 64);
            assert_eq!(entry[0x3f] & 1, (position >> cq.log) as u8 & 1, "the driver's entry");
            if entry[0x3f] >> 4 == 5 {
                break;
            }
            entry[0x3f] = entry[0x3f] & !1 | ((position + 1) >> log) as u8 & 1;
            self.write(at(&new, position + 1), &entry);
        }
        *cq = Completions { taken: cq.taken + 1, ..new };
        Ok(())
    }

    /// Takes the next completion, and advances the position in the doorbell record.
    pub fn poll_cq(&self, cq: &mut Completions) -> Option<Entry> {
        let index = u64::from(cq.taken & ((1 << cq.log) - 1));
        let entry = Entry::parse(&self.read(cq.ring + index * cq.stride, 64)).unwrap();
        let opcode = self.read(cq.ring + index * cq.stride + 0x3f, 1)[0] >> 4;
        if opcode == 15 || entry.owner() != ((cq.taken >> cq.log) & 1 != 0) {
            return None;
        }
        cq.taken += 1;
        self.write(cq.record, &(cq.taken & 0xff_ffff).to_be_bytes());
        Some(entry)
    }

    /// Writes an arm word.
    pub fn arm(&self, cq: &Completions, sequence: u32, solicited: bool) {
        let word = sequence << 28 | u32::from(solicited) << 24 | cq.taken & 0xff_ffff;
        self.write(cq.record + 4, &word.to_be_bytes());
    }

    pub fn qp_context(&mut self, service: Service, cq: u32) -> QueuePairContext {
        QueuePairContext {
            service: service.raw(),
            domain: self.domain,
            log_receive_size: 4,
            log_receive_stride: 2,
            log_send_size: 4,
            uar_page: self.uar,
            user_index: 0x1234,
            send_completion_queue: cq,
            receive_completion_queue: cq,
            doorbell_record: self.allocate(8),
            receive_queue_type: ReceiveQueueType::Own.raw(),
            has_fast_registration: true,
            ..Default::default()
        }
    }

    pub fn create_pair(&mut self, world: &mut World, context: QueuePairContext) -> Pair {
        let bytes = context.buffer_len().max(1);
        let ring = self.allocate(bytes);
        let pages: Vec<u64> = (0..bytes.div_ceil(PAGE)).map(|n| ring + n * PAGE).collect();
        let opcode = Opcode::CreateQueuePair;
        let number =
            self.create(world, opcode, (0x18, &context.to_bytes()), (0x110, &pages)).unwrap();
        let record = context.doorbell_record;
        Pair { number, context, ring, record, sent: 0, received: 0 }
    }

    /// Executes a command that changes the state of a queue pair.
    pub fn modify(
        &self,
        world: &mut World,
        opcode: Opcode,
        pair: &Pair,
        (mask, context): (u32, QueuePairContext),
    ) -> Result<(), Status> {
        let mut input = vec![0; 0x110];
        input[..16].copy_from_slice(&InputHeader::new(opcode, pair.number).to_bytes());
        input[0x10..0x14].copy_from_slice(&mask.to_be_bytes());
        input[0x18..0x100].copy_from_slice(&context.to_bytes());
        self.try_command(world, &input, 16).map(drop)
    }

    /// Moves a queue pair to "ready to send" with a peer.
    pub fn connect(&self, world: &mut World, pair: &Pair, mac: [u8; 6], number: u32) {
        let rights = QueuePairContext {
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
            queue_key: 0x1111,
            ..Default::default()
        };
        self.modify(world, Opcode::ResetToInit, pair, (0, rights)).unwrap();
        let path = AddressPath { destination_mac: mac, ..Default::default() };
        let peer = QueuePairContext {
            mtu: 3,
            remote_number: number,
            primary_path: path,
            min_rnr_timer: 1,
            ..Default::default()
        };
        self.modify(world, Opcode::InitToReadyToReceive, pair, (0, peer)).unwrap();
        let path = AddressPath { ack_timeout: 14, ..Default::default() };
        let send = QueuePairContext {
            retry_count: 7,
            rnr_retry: 7,
            primary_path: path,
            ..Default::default()
        };
        let opcode = Opcode::ReadyToReceiveToReadyToSend;
        self.modify(world, opcode, pair, (optional::RNR_TIMEOUT, send)).unwrap();
    }

    /// Registers `len` bytes at `at`, known to work requests as `start`. Returns the key.
    pub fn register(&self, world: &mut World, start: u64, at: u64, len: u64) -> u32 {
        let context = MemoryKeyContext {
            access_mode: 1,
            has_update: true,
            remote_atomic: true,
            remote_write: true,
            remote_read: true,
            local_write: true,
            local_read: true,
            queue_pair: 0xff_ffff,
            variable: 7,
            domain: self.domain,
            start,
            len,
            list_size: 8,
            log_page_size: 12,
            ..Default::default()
        };
        let first = at & !(PAGE - 1);
        let pages: Vec<u64> =
            (0..(at - first + len).div_ceil(PAGE)).map(|n| first + n * PAGE).collect();
        self.create_key(world, &context, &pages).unwrap()
    }

    pub fn create_key(
        &self,
        world: &mut World,
        context: &MemoryKeyContext,
        pages: &[u64],
    ) -> Result<u32, Status> {
        let mut bytes = context.to_bytes().to_vec();
        bytes.resize(0x54, 0);
        let units = pages.len().div_ceil(2) as u32;
        bytes[0x50..0x54].copy_from_slice(&units.to_be_bytes());
        let opcode = Opcode::CreateMemoryKey;
        let number = self.create(world, opcode, (0x10, &bytes), (0x110, pages))?;
        Ok(number << 8 | u32::from(context.variable))
    }

    /// Posts a send entry that `build` completes. Rings no doorbell page.
    pub fn post(
        &self,
        pair: &mut Pair,
        (opcode, immediate): (SendOpcode, u32),
        build: impl for<'a> FnOnce(SendWriter<'a>) -> SendWriter<'a>,
    ) {
        let control = ControlSegment {
            index: pair.sent,
            opcode: opcode.raw(),
            queue: pair.number,
            completion: 2,
            immediate,
            is_solicited: true,
            ..Default::default()
        };
        let mut entry = [0; 1024];
        let blocks = build(SendWriter::new(&mut entry, control)).finish().unwrap();
        let size = pair.context.send_blocks() as u16;
        let start = pair.ring + pair.context.send_offset();
        for (number, block) in entry.chunks(64).take(usize::from(blocks)).enumerate() {
            let index = (pair.sent + number as u16) % size;
            self.write(start + u64::from(index) * 64, block);
        }
        pair.sent = pair.sent.wrapping_add(blocks);
        self.write(pair.record + 4, &u32::from(pair.sent).to_be_bytes());
    }

    /// Posts a receive entry.
    pub fn post_receive(&self, pair: &mut Pair, segments: &[DataSegment]) {
        let stride = u64::from(pair.context.receive_stride());
        let size = pair.context.receive_entries() as u16;
        let at = pair.ring + u64::from(pair.received % size) * stride;
        let end = [DataSegment::end()];
        for (index, segment) in segments.iter().chain(&end).enumerate() {
            if (index as u64) < stride / 16 {
                self.write(at + index as u64 * 16, &segment.to_bytes());
            }
        }
        pair.received = pair.received.wrapping_add(1);
        self.write(pair.record, &u32::from(pair.received).to_be_bytes());
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
