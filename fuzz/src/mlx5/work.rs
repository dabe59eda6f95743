//! Arbitrary work queue entries, receive entries, doorbell records, registrations and frames of two
//! drivers.
//!
//! The first byte selects whether the second driver is honest. Nothing outside an honest driver's
//! registered buffer and rings changes, frames fit their receive entries, a pass keeps to its
//! budget, and the messages of a neighbour arrive.

use std::sync::Arc;

use causeway_memory::Map;
use causeway_mlx5::ethernet::Next;
use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::memory_key::{MemoryKeyContext, UpdateControl, mask};
use causeway_wire::mlx5::queue_pair::{ReceiveQueueType, Service};
use causeway_wire::mlx5::work_request::{
    AtomicSegment, DataSegment, DatagramSegment, EthernetSegment, RemoteAddressSegment, SendOpcode,
    SendWriter,
};

use super::{Neighbour, STEPS_MAX, address, scribble};
use crate::Input;
use crate::driver::{BUFFER, Pair, VIRTUAL, World, data};
use crate::interface::{Interface, Options};

/// Frames that a step forwards at most.
const FRAMES: usize = 4;
/// Length of the memory on both sides of a registered buffer, in bytes.
const EDGE: u64 = 4096;
/// Content of that memory.
const EDGE_BYTE: u8 = 0xc5;

/// A driver: an interface, and queue pairs of three kinds.
struct Driver {
    interface: Interface,
    /// Reliable connection, datagrams, registration.
    pairs: [Pair; 3],
    /// The buffer lies between two edges.
    edges: [u64; 2],
    keys: Vec<u32>,
}

impl Driver {
    fn new(world: &mut World, last: u8) -> Self {
        let mut interface = Interface::up(world, last, Options::default());
        let guest = &mut interface.guest;
        let cq = guest.create_cq(world, 6);
        let services =
            [Service::ReliableConnection, Service::UnreliableDatagram, Service::Registration];
        let pairs = services.map(|service| {
            let mut context = guest.qp_context(service, cq.number);
            if service == Service::Registration {
                context.receive_queue_type = ReceiveQueueType::None.raw();
            }
            guest.create_pair(world, context)
        });
        let start = guest.allocate(BUFFER + 2 * EDGE);
        let edges = [start, start + EDGE + BUFFER];
        edges.iter().for_each(|edge| guest.write(*edge, &[EDGE_BYTE; EDGE as usize]));
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
        let keys = vec![
            guest.register(world, VIRTUAL, start + EDGE, BUFFER),
            guest.create_key(world, &free, &[]).unwrap(),
        ];
        Self { interface, pairs, edges, keys }
    }

    fn assert_edges(&self) {
        for edge in self.edges {
            let bytes = self.interface.guest.read(edge, EDGE as usize);
            assert!(bytes.iter().all(|byte| *byte == EDGE_BYTE), "memory without a key changed");
        }
    }
}

struct Play {
    world: World,
    drivers: [Driver; 2],
    neighbour: Neighbour,
    /// Only the first driver acts.
    is_second_honest: bool,
}

impl Play {
    fn new(is_second_honest: bool) -> Self {
        let mut world = World::new();
        let drivers = [1, 2].map(|last| Driver::new(&mut world, last));
        let macs = drivers.each_ref().map(|driver| driver.interface.guest.mac);
        let numbers = drivers.each_ref().map(|driver| driver.pairs.map(|pair| pair.number));
        for (own, driver) in drivers.iter().enumerate() {
            let other = 1 - own;
            for (pair, number) in driver.pairs.iter().zip(numbers[other]) {
                driver.interface.guest.connect(&mut world, pair, macs[other], number);
            }
        }
        let neighbour = Neighbour::new(&mut world, 3);
        let mut play = Self { world, drivers, neighbour, is_second_honest };
        let Driver { interface, pairs, keys, .. } = &mut play.drivers[1];
        for pair in &mut pairs[..2] {
            for entry in 0..8 {
                let place = data(keys[0], VIRTUAL + entry * 512, 512);
                interface.guest.post_receive(pair, &[place]);
            }
        }
        play
    }

    fn actor(&self, input: &mut Input<'_>) -> usize {
        if self.is_second_honest { 0 } else { input.below(2) }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let own = self.actor(input);
        match input.below(16) {
            0..=4 => self.post(own, input),
            5 => self.post_receive(own, input),
            6 => self.set_counters(own, input),
            7 => self.frame(own, input),
            8 => self.forward(input),
            9 => self.change_state(own, input),
            10 => self.change_memory(own, input),
            11 => scribble(input, &self.drivers[own].interface.guest),
            12 => self.change_posted(own, input),
            _ => self.poll(input),
        }
    }

    fn poll(&mut self, input: &mut Input<'_>) {
        self.world.now += u64::from(input.u16()) << 12;
        for driver in &self.drivers {
            let mut budget = Budget::new(1 + u32::from(input.u8()), 1 + u64::from(input.u16()) * 8);
            let (most, now) = (budget.messages(), self.world.now);
            let adapter = driver.interface.guest.adapter;
            let moved = poll(&mut self.world.subnet, adapter, now, &mut budget);
            // A message that goes on uses bytes only.
            let most_moved = most + driver.pairs.len() as u32;
            assert!(moved <= most_moved && budget.messages() <= most, "{moved}: {budget:?}");
        }
    }

    fn key(&self, own: usize, input: &mut Input<'_>) -> u32 {
        let other = 1 - own;
        match input.below(8) {
            0..=2 => self.drivers[own].keys[0],
            3 => self.drivers[own].keys[1] | u32::from(input.u8()),
            4 => self.drivers[own].interface.key,
            5 => self.drivers[other].keys[input.below(2)],
            6 => self.neighbour.key,
            _ => input.u32(),
        }
    }

    /// Draws an address and a length, often at the ends of the buffer.
    fn range(input: &mut Input<'_>) -> (u64, u32) {
        let len = match input.below(4) {
            0 => input.u32(),
            1 => u32::from(input.u16()),
            _ => u32::from(input.u8()),
        };
        let at = match input.below(4) {
            0 => address(input),
            1 => (VIRTUAL + BUFFER).wrapping_sub(u64::from(input.u8())),
            2 => VIRTUAL.wrapping_sub(u64::from(input.u8() & 3)),
            _ => VIRTUAL + u64::from(input.u16()),
        };
        (at, len)
    }

    fn segment(&self, own: usize, input: &mut Input<'_>) -> DataSegment {
        let key = self.key(own, input);
        let (at, len) = Self::range(input);
        data(key, at, len)
    }

    /// Posts an entry with the segments of its operation.
    fn post(&mut self, own: usize, input: &mut Input<'_>) {
        let kind = input.below(3);
        let opcode = SendOpcode::ALL[input.below(SendOpcode::ALL.len())];
        let (immediate, key) = (self.key(own, input), self.key(own, input));
        let to = RemoteAddressSegment { address: Self::range(input).0, key };
        let operands = AtomicSegment { swap_or_add: input.u16().into(), ..Default::default() };
        let segments: Vec<DataSegment> =
            (0..input.below(4)).map(|_| self.segment(own, input)).collect();
        let (control, context) = update(input);
        let list: Vec<u8> =
            (0..input.below(6)).flat_map(|_| address(input).to_be_bytes()).collect();
        let datagram = self.datagram(own, input);
        let is_inline = input.u8() & 7 == 0;
        let Driver { interface, pairs, .. } = &mut self.drivers[own];
        interface.guest.post(&mut pairs[kind], (opcode, immediate), |mut entry| {
            if kind == 1 {
                entry = entry.datagram(&datagram);
            }
            if opcode == SendOpcode::Update {
                entry = entry.update(&control, &context);
                return if control.is_inline { entry.list(&list) } else { add(entry, &segments) };
            }
            if opcode.has_remote_address() {
                entry = entry.remote(&to);
            }
            if opcode.is_atomic() {
                entry = entry.atomic(&operands);
            }
            if is_inline { entry.inline(&list) } else { add(entry, &segments) }
        });
    }

    fn datagram(&self, own: usize, input: &mut Input<'_>) -> DatagramSegment {
        let other = &self.drivers[1 - own];
        let draw = input.u8();
        DatagramSegment {
            queue_key: if draw & 1 == 0 { 0x1111 } else { input.u32() },
            is_extended: draw & 2 == 0,
            queue_pair: if draw & 4 == 0 { other.pairs[1].number } else { input.u32() & 0xff_ffff },
            mac: if draw & 8 == 0 { other.interface.guest.mac } else { input.array() },
            ..Default::default()
        }
    }

    fn post_receive(&mut self, own: usize, input: &mut Input<'_>) {
        let kind = input.below(2);
        let segments: Vec<DataSegment> =
            (0..input.below(5)).map(|_| self.segment(own, input)).collect();
        let Driver { interface, pairs, .. } = &mut self.drivers[own];
        interface.guest.post_receive(&mut pairs[kind], &segments);
    }

    /// Sets words of doorbell records, which the rings do not justify.
    fn set_counters(&mut self, own: usize, input: &mut Input<'_>) {
        let Driver { interface, pairs, .. } = &self.drivers[own];
        let records = [
            pairs[0].record,
            pairs[1].record,
            pairs[2].record,
            interface.record,
            interface.send_cq.record,
            interface.receive[0].record,
            interface.receive[0].cq.record,
        ];
        let record = records[input.below(records.len())];
        let small = u32::from(input.u8() % 24);
        let word = if input.u8() & 3 == 0 { input.u32() } else { small };
        interface.guest.write(record + 4 * u64::from(input.u8() & 1), &word.to_be_bytes());
    }

    /// Overwrites bytes of the block that was posted last.
    fn change_posted(&mut self, own: usize, input: &mut Input<'_>) {
        let Driver { interface, pairs, .. } = &self.drivers[own];
        let pair = &pairs[input.below(3)];
        let blocks = pair.context.send_blocks().max(1) as u16;
        let index = pair.sent.wrapping_sub(1 + u16::from(input.u8() & 3)) % blocks;
        let at = pair.ring + pair.context.send_offset() + u64::from(index) * 64;
        interface.guest.write(at + u64::from(input.u8() % 57), &input.array::<8>());
    }

    /// Posts an Ethernet entry, well-formed or any.
    fn frame(&mut self, own: usize, input: &mut Input<'_>) {
        let to = self.drivers[1 - own].interface.guest.mac;
        let segments: Vec<DataSegment> =
            (0..input.below(4)).map(|_| self.segment(own, input)).collect();
        let interface = &mut self.drivers[own].interface;
        if input.u8() & 7 == 0 {
            return interface.post_raw(&input.array::<64>());
        }
        let opcode = if input.bool() { SendOpcode::Segmentation } else { SendOpcode::Send };
        let from = if input.u8() & 7 == 0 { input.array() } else { interface.guest.mac };
        let mut head = [to, from].concat();
        head.extend([[8, 0], [0x86, 0xdd], [0x81, 0], input.array()][input.below(4)]);
        let mut ip = [0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2].to_vec();
        ip.extend([0; 20]);
        ip[32] = 0x50;
        head.extend(ip);
        for _ in 0..input.below(6) {
            let at = 12 + input.below(head.len() - 12);
            head[at] = input.u8();
        }
        head.truncate(input.below(64));
        let ethernet = EthernetSegment {
            checksums: input.u8(),
            segment_size: u16::from(input.u8()),
            ..Default::default()
        };
        interface.post_send(opcode, |entry| add(entry.ethernet(ethernet, &head), &segments));
    }

    fn forward(&mut self, input: &mut Input<'_>) {
        let own = input.below(2);
        for _ in 0..FRAMES {
            let (from, to) = (&self.drivers[own].interface, &self.drivers[1 - own].interface);
            if from.forward(&mut self.world, to).0 == Next::Empty {
                break;
            }
        }
        if self.is_second_honest && own == 0 {
            // Asserts that the frame fits its entry.
            while self.drivers[1].interface.receive(0).is_some() {}
        }
    }

    /// Executes a command about a queue pair or key in use.
    fn change_state(&mut self, own: usize, input: &mut Input<'_>) {
        let driver = &self.drivers[own];
        let pair = driver.pairs[input.below(3)];
        let opcodes = [
            Opcode::ToError,
            Opcode::ToReset,
            Opcode::DestroyQueuePair,
            Opcode::QueryQueuePair,
            Opcode::DestroyMemoryKey,
            Opcode::SendQueueErrorToReadyToSend,
        ];
        let opcode = opcodes[input.below(opcodes.len())];
        let number = match opcode {
            Opcode::DestroyMemoryKey => driver.keys[input.below(2)] >> 8,
            _ => pair.number,
        };
        let mut bytes = vec![0; 0x110];
        bytes[..16].copy_from_slice(&InputHeader::new(opcode, number).to_bytes());
        // The result does not matter: the object may be gone.
        let _ = driver.interface.guest.command(&mut self.world, &bytes, 0x110);
    }

    /// Revokes or grants the memory.
    fn change_memory(&mut self, own: usize, input: &mut Input<'_>) {
        let guest = &self.drivers[own].interface.guest;
        let map = if input.bool() { Arc::default() } else { Arc::clone(&guest.map) };
        let _: &Arc<Map> = &map;
        self.world.function(guest).set_map(map);
        self.poll(input);
        // Commands need memory.
        let guest = &self.drivers[own].interface.guest;
        let map = Arc::clone(&guest.map);
        self.world.function(guest).set_map(map);
    }
}

/// Appends segments.
fn add<'a>(entry: SendWriter<'a>, segments: &[DataSegment]) -> SendWriter<'a> {
    segments.iter().fold(entry, |entry, segment| entry.data(segment))
}

/// Draws a change of a memory key.
fn update(input: &mut Input<'_>) -> (UpdateControl, MemoryKeyContext) {
    let draw = input.u8();
    let masks = [mask::FAST_REGISTRATION, mask::USER_REGISTRATION, mask::REVOCATION];
    let control = UpdateControl {
        is_inline: draw & 1 == 0,
        requires_valid: draw & 2 != 0,
        requires_free: draw & 4 != 0,
        has_offset: draw & 8 != 0,
        list_size: u16::from(input.u8()),
        offset_low: u16::from(input.u8()),
        mask: if draw & 16 == 0 { masks[input.below(3)] } else { input.u64() },
        ..Default::default()
    };
    let context = MemoryKeyContext {
        is_free: draw & 32 != 0,
        remote_write: true,
        remote_read: true,
        local_write: true,
        local_read: true,
        queue_pair: 0xff_ffff,
        variable: input.u8(),
        start: VIRTUAL + u64::from(input.u16()),
        len: if draw & 64 == 0 { u64::from(input.u16()) } else { input.u64() },
        log_page_size: 12 + (draw >> 7),
        ..Default::default()
    };
    (control, context)
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut play = Play::new(input.bool());
    input.steps(STEPS_MAX, |input| play.step(input));
    play.neighbour.assert_well(&mut play.world);
    if play.is_second_honest {
        play.drivers[1].assert_edges();
    }
    for own in 0..2 {
        for pair in play.drivers[own].pairs {
            for opcode in [Opcode::ToError, Opcode::DestroyQueuePair] {
                // The result does not matter: the queue pair may be gone.
                let bytes = InputHeader::new(opcode, pair.number).to_bytes();
                let guest = &play.drivers[own].interface.guest;
                let _ = guest.command(&mut play.world, &bytes, 16);
                play.poll(&mut Input::new(&[]));
            }
        }
    }
    let guest = &play.drivers[0].interface.guest;
    let adapter = play.world.subnet.adapter(guest.adapter).unwrap();
    assert_eq!(adapter.queue_pairs().count(), 0);
}

/// Returns scenarios in which each operation is posted, polled and forwarded.
pub fn seeds() -> Vec<Vec<u8>> {
    let poll = [15, 200, 200, 0xff, 0xff, 200, 0xff, 0xff];
    let post = |opcode: u8, kind: u8| {
        // Keys: own, the peer's; an address in the buffer; one segment; no inline data.
        let mut bytes = vec![0, kind, opcode, 0, 5, 0, 3, 0, 0, 7, 0, 1, 0, 3, 64, 3, 0, 1];
        bytes.extend([0, 1, 0, 0, 2, 0, 0, 0, 16, 1, 9, 0, 0, 1]);
        bytes
    };
    let opcodes = 0..SendOpcode::ALL.len() as u8;
    let honest = |own: &[u8]| [&[1], own].concat();
    let mut seeds: Vec<Vec<u8>> = (0..3)
        .map(|kind| {
            let steps =
                opcodes.clone().flat_map(|opcode| [post(opcode, kind), poll.to_vec()].concat());
            honest(&steps.collect::<Vec<u8>>())
        })
        .collect();
    // A frame of 54 inline bytes and a segment, then its way to the receiver.
    let frame = [7, 1, 0, 3, 64, 3, 0, 1, 1, 0, 1, 0, 0, 60, 0xc0, 100, 8, 0];
    seeds.push(honest(&[&frame[..], &frame, &poll].concat()));
    let changes = [6, 0, 9, 1, 1, 9, 1, 0, 10, 1, 12, 0, 1, 3, 1, 2, 3, 4, 5, 6, 7, 8];
    seeds.push([&[0, 0][..], &post(2, 0), &[0], &changes, &[0], &poll].concat());
    seeds
}
