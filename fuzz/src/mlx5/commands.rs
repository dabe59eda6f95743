//! Arbitrary commands, page lists and mailbox chains of a driver.
//!
//! Inputs of commands that create objects begin as valid contexts, so that later commands find
//! objects; the input then changes fields, lengths, mailboxes, doorbells and grants. Each delivered
//! command is answered, no object table exceeds its limit, and the neighbour's messages arrive.

use std::sync::Arc;

use causeway_memory::Map;
use causeway_mlx5::limits::{
    COMMAND_BYTES_PER_CALL, COMMAND_ENTRIES, COMMAND_INPUT_MAX, COMMAND_OUTPUT_MAX, PASS_QUEUES_MAX,
};
use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5::{disconnect, poll, reset, run_commands};
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::event_queue::EventQueueContext;
use causeway_wire::mlx5::memory_key::MemoryKeyContext;
use causeway_wire::mlx5::queue_pair::{AddressPath, Service};
use causeway_wire::mlx5::steering::{ReceiveInterface, TableInput};
use causeway_wire::mlx5::work_queue::{
    ReceivePoolContext, ReceiveQueueContext, SendQueueContext, WorkQueue, XrcReceiveQueueContext,
};

use super::{Neighbour, STEPS_MAX, address, scribble};
use crate::Input;
use crate::driver::{BASE, Guest, World};

/// Object numbers that later commands name.
const NUMBERS_MAX: usize = 64;
/// The longest input of a command in mailboxes of its own; longer ones loop.
const INPUT_MAX: usize = 4096;
/// Guest addresses of the rings, records and pages that contexts name.
const HEAP: u64 = BASE + 0x80_0000;

struct Play {
    world: World,
    guest: Guest,
    neighbour: Neighbour,
    numbers: Vec<u32>,
}

impl Play {
    fn new() -> Self {
        let mut world = World::new();
        let guest = world.start(1);
        let neighbour = Neighbour::new(&mut world, 2);
        Self { world, guest, neighbour, numbers: Vec::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 => scribble(input, &self.guest),
            1 => {
                let map = if input.bool() { Map::default() } else { return self.grant() };
                self.world.function(&self.guest).set_map(Arc::new(map));
            }
            2 => self.registers(input),
            3 => self.restart(input),
            4 | 5 => {
                self.world.now += u64::from(input.u32());
                let mut budget = Budget::new(input.u8().into(), input.u32().into());
                let most = budget.messages();
                let now = self.world.now;
                let moved = poll(&mut self.world.subnet, self.guest.adapter, now, &mut budget);
                // A message that goes on uses bytes only.
                assert!(moved <= most + PASS_QUEUES_MAX as u32 && budget.messages() <= most);
            }
            _ => self.command(input),
        }
    }

    fn grant(&mut self) {
        let map = Arc::clone(&self.guest.map);
        self.world.function(&self.guest).set_map(map);
    }

    /// Accesses registers, and executes the rung commands.
    fn registers(&mut self, input: &mut Input<'_>) {
        let (region, offset) = (input.below(10) as u32, u64::from(input.u16()));
        let bytes = input.array::<8>();
        let len = input.below(9);
        self.guest.registers.write(region, offset, &bytes[..len]);
        let mut read = [0; 8];
        self.guest.registers.read(region, offset, &mut read[..len]);
        self.execute(u32::from(input.u8() % 40));
    }

    /// Resets the function as the VMM does, or replaces its frontend.
    fn restart(&mut self, input: &mut Input<'_>) {
        match input.below(4) {
            0 => {
                let adapter = self.guest.adapter;
                self.guest.registers = disconnect(&mut self.world.subnet, adapter).unwrap();
            }
            1 => self.guest.registers.reset(),
            _ => reset(&mut self.world.subnet, self.guest.adapter),
        }
        let high = (BASE >> 32) as u32;
        self.guest.registers.write(REGION_BAR, 0x10, &high.to_be_bytes());
        self.guest.registers.write(REGION_BAR, 0x14, &(BASE as u32).to_be_bytes());
    }

    fn execute(&mut self, max: u32) {
        let cost = run_commands(&mut self.world.subnet, self.guest.adapter, max);
        assert!(cost.commands <= max);
        let longest = (COMMAND_INPUT_MAX + COMMAND_OUTPUT_MAX) as u64;
        assert!(cost.bytes <= COMMAND_BYTES_PER_CALL + longest, "{cost:?}");
    }

    fn command(&mut self, input: &mut Input<'_>) {
        let opcode = Opcode::ALL[input.below(Opcode::ALL.len())];
        let number = self.number(input);
        let mut bytes = self.template(opcode, input);
        let (modifier, argument) = match opcode {
            // A resize with all fields, or a change of the moderation.
            Opcode::ModifyCompletionQueue => (u16::from(input.u8() & 1), 0x1f),
            _ => (0, 0),
        };
        let header = InputHeader { modifier, argument, ..InputHeader::new(opcode, number) };
        bytes[..16].copy_from_slice(&header.to_bytes());
        for _ in 0..input.below(6) {
            self.mutate(&mut bytes, input);
        }
        let len = input.one_of(&[16, 16, 64, 272, 1024, 4112, 12, 8]);
        let index = input.u8() % 32;
        let entry = self.guest.place_command(index.into(), &bytes, len);
        let is_whole = self.spoil(entry, input);
        self.guest.registers.write(REGION_BAR, 0x18, &(1_u32 << index).to_be_bytes());
        self.execute(COMMAND_ENTRIES);
        let answer = self.guest.read(entry, 64);
        let is_granted = !self.world.function(&self.guest).shared_map().is_empty();
        if is_whole && is_granted && self.guest.registers.command_queue() == BASE {
            assert_eq!(answer[0x3f] & 1, 0, "{opcode} was not answered");
        }
        if answer[0x3f] == 0 && answer[0x20] == 0 && self.numbers.len() < NUMBERS_MAX {
            let number = answer[0x28..0x2c].try_into().unwrap();
            self.numbers.push(u32::from_be_bytes(number));
        }
        self.check_limits();
    }

    fn number(&self, input: &mut Input<'_>) -> u32 {
        match input.u8() {
            0xff => input.u32(),
            draw if self.numbers.is_empty() => u32::from(draw & 7),
            draw => self.numbers[usize::from(draw) % self.numbers.len()],
        }
    }

    /// Changes a byte, a word, an object number or an address.
    fn mutate(&self, bytes: &mut [u8], input: &mut Input<'_>) {
        let at = usize::from(input.u16()) % (bytes.len() - 8);
        match input.below(6) {
            0 => bytes[at] = input.u8(),
            1 => bytes[at..at + 4].copy_from_slice(&input.array::<4>()),
            2 => bytes[at..at + 4].fill(0xff),
            3 => bytes[at..at + 4].copy_from_slice(&self.number(input).to_be_bytes()),
            4 => bytes[at..at + 8].copy_from_slice(&address(input).to_be_bytes()),
            _ => bytes[at..at + 8].fill(0xff),
        }
    }

    /// Changes the entry of the command queue or a mailbox. Returns whether the function still owns
    /// the entry.
    fn spoil(&self, entry: u64, input: &mut Input<'_>) -> bool {
        let mailbox = u64::from_be_bytes(self.guest.read(entry + 8, 8).try_into().unwrap());
        match input.u8() {
            0 => {
                let at = input.u8() % 64;
                self.guest.write(entry + u64::from(at), &[input.u8()]);
                return false;
            }
            // The chain loops, and the length is any.
            1 => {
                self.guest.write(mailbox + 560, &mailbox.to_be_bytes());
                self.guest.write(entry + 5, &input.array::<3>());
            }
            2 => self.guest.write(mailbox + 560, &address(input).to_be_bytes()),
            3 => self.guest.write(entry + 0x30, &address(input).to_be_bytes()),
            // The output goes to the command queue itself.
            4 => {
                self.guest.write(entry + 0x30, &(BASE + u64::from(input.u8()) * 8).to_be_bytes());
                return false;
            }
            _ => {}
        }
        true
    }

    /// No table has more objects than the port permits.
    fn check_limits(&mut self) {
        let adapter = self.world.subnet.adapter(self.guest.adapter).unwrap();
        let config = adapter.queues().config();
        assert!(adapter.queue_pairs().count() <= config.queue_pairs_max);
        assert!(adapter.queues().completion_queues() <= config.completion_queues_max);
        assert!(adapter.regions().len() <= config.regions_max);
        assert!(adapter.regions().bytes() <= config.registered_bytes_max);
    }

    /// Returns an input of which a later change is small: valid, if the opcode has a context.
    fn template(&self, opcode: Opcode, input: &mut Input<'_>) -> Vec<u8> {
        use Opcode as O;
        let (at, context) = match opcode {
            O::CreateEventQueue => (0x10, event_queue(input)),
            O::CreateCompletionQueue | O::ModifyCompletionQueue => {
                (0x10, self.completion_queue(input))
            }
            O::CreateMemoryKey => (0x10, self.memory_key(input)),
            O::CreateQueuePair => (0x18, self.queue_pair(input)),
            O::ResetToInit | O::InitToReadyToReceive | O::ReadyToReceiveToReadyToSend => {
                (0x18, self.change(input))
            }
            O::CreateReceivePool | O::ModifyReceivePool => {
                let queue = self.ring(input, 0);
                (0x20, ReceivePoolContext { queue, ..Default::default() }.to_bytes().to_vec())
            }
            O::CreateXrcSharedReceiveQueue => (0x10, self.shared_queue(input)),
            O::CreateSendQueue | O::ModifySendQueue => (0x20, self.send_queue(input)),
            O::CreateReceiveQueue | O::ModifyReceiveQueue => (0x20, self.receive_queue(input)),
            O::CreateTir | O::ModifyTir => (0x20, self.receive_interface(input)),
            O::CreateFlowTable => {
                let table = TableInput { log_size: input.u8() % 8, ..Default::default() };
                (0, table.to_bytes().to_vec())
            }
            _ => (0x20, input.bytes(32).to_vec()),
        };
        let pages = if at == 0 { 0 } else { usize::from(input.u8() % 20) };
        let mut bytes = vec![0; (at + context.len()).max(0x110 + pages * 8).min(INPUT_MAX)];
        bytes[at..at + context.len()].copy_from_slice(&context);
        for page in 0..pages {
            let place = HEAP + (page as u64) * 4096;
            bytes[0x110 + page * 8..][..8].copy_from_slice(&place.to_be_bytes());
        }
        bytes
    }

    fn completion_queue(&self, input: &mut Input<'_>) -> Vec<u8> {
        let context = causeway_wire::mlx5::completion_queue::CompletionQueueContext {
            log_size: input.u8() % 10,
            event_queue: self.guest.events.number,
            uar_page: self.guest.uar,
            doorbell_record: HEAP + u64::from(input.u8()) * 8,
            ..Default::default()
        };
        context.to_bytes().to_vec()
    }

    fn memory_key(&self, input: &mut Input<'_>) -> Vec<u8> {
        let draw = input.u8();
        let context = MemoryKeyContext {
            access_mode: draw & 1,
            is_unlimited: draw & 1 == 0,
            is_free: draw & 2 != 0,
            has_update: true,
            remote_write: true,
            remote_read: true,
            local_write: true,
            local_read: true,
            queue_pair: 0xff_ffff,
            variable: draw,
            domain: self.guest.domain,
            start: input.u32().into(),
            len: u64::from(input.u16()) * u64::from(draw & 1),
            list_size: u32::from(input.u8()),
            log_page_size: 12 + (draw >> 6),
            ..Default::default()
        };
        let mut bytes = context.to_bytes().to_vec();
        bytes.resize(0x54, 0);
        bytes[0x53] = input.u8() % 10;
        bytes
    }

    fn queue_pair(&self, input: &mut Input<'_>) -> Vec<u8> {
        let draw = input.u8();
        let service = [
            Service::ReliableConnection,
            Service::UnreliableConnection,
            Service::UnreliableDatagram,
            Service::GeneralServices,
            Service::Registration,
            Service::ExtendedReliableConnection,
        ][input.below(6)];
        let context = causeway_wire::mlx5::queue_pair::QueuePairContext {
            service: service.raw(),
            domain: self.guest.domain,
            log_receive_size: draw & 3,
            log_receive_stride: draw >> 2 & 1,
            log_send_size: draw >> 3 & 3,
            uar_page: self.guest.uar,
            send_completion_queue: self.number(input),
            receive_completion_queue: self.number(input),
            doorbell_record: HEAP + u64::from(draw) * 8,
            receive_queue_type: draw >> 5 & 3,
            shared_receive_queue: self.number(input),
            has_fast_registration: true,
            xrc_domain: self.number(input),
            has_no_send_queue: draw >> 7 != 0,
            ..Default::default()
        };
        context.to_bytes().to_vec()
    }

    fn change(&self, input: &mut Input<'_>) -> Vec<u8> {
        let macs = [self.guest.mac, self.neighbour.guest.mac];
        let destination_mac = macs[input.below(2)];
        let path = AddressPath { destination_mac, ack_timeout: 4, ..Default::default() };
        let context = causeway_wire::mlx5::queue_pair::QueuePairContext {
            mtu: 3,
            remote_number: self.number(input),
            remote_write: true,
            primary_path: path,
            min_rnr_timer: 1,
            ..Default::default()
        };
        context.to_bytes().to_vec()
    }

    fn ring(&self, input: &mut Input<'_>, queue_type: u8) -> WorkQueue {
        let draw = input.u8();
        WorkQueue {
            queue_type,
            domain: self.guest.domain,
            doorbell_record: HEAP + u64::from(draw) * 8,
            log_stride: 5 + (draw & 1),
            log_size: draw >> 4,
            ..Default::default()
        }
    }

    fn shared_queue(&self, input: &mut Input<'_>) -> Vec<u8> {
        let context = XrcReceiveQueueContext {
            log_size: input.u8() % 6,
            log_stride: 1,
            xrc_domain: self.number(input),
            domain: self.guest.domain,
            completion_queue: self.number(input),
            doorbell_record: HEAP,
            ..Default::default()
        };
        context.to_bytes().to_vec()
    }

    fn send_queue(&self, input: &mut Input<'_>) -> Vec<u8> {
        let queue = WorkQueue { log_stride: 6, ..self.ring(input, 1) };
        let context = SendQueueContext {
            state: input.u8() & 3,
            completion_queue: self.number(input),
            interface_count: 1,
            interface: self.number(input),
            queue,
            ..Default::default()
        };
        context.to_bytes().to_vec()
    }

    fn receive_queue(&self, input: &mut Input<'_>) -> Vec<u8> {
        let queue = self.ring(input, 1);
        let context = ReceiveQueueContext {
            state: input.u8() & 3,
            completion_queue: self.number(input),
            queue,
            ..Default::default()
        };
        context.to_bytes().to_vec()
    }

    fn receive_interface(&self, input: &mut Input<'_>) -> Vec<u8> {
        let context = ReceiveInterface {
            dispatch: input.u8() & 1,
            receive_queue: self.number(input),
            table: self.number(input),
            ..Default::default()
        };
        context.to_bytes().to_vec()
    }
}

fn event_queue(input: &mut Input<'_>) -> Vec<u8> {
    let (log_size, vector) = (input.u8() % 8, u16::from(input.u8() & 7));
    let context = EventQueueContext { log_size, vector, ..Default::default() };
    let mut bytes = context.to_bytes().to_vec();
    bytes.resize(0x50, 0);
    bytes[0x48..].copy_from_slice(&input.array::<8>());
    bytes
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut play = Play::new();
    let mut input = Input::new(bytes);
    input.steps(STEPS_MAX, |input| play.step(input));
    play.neighbour.assert_well(&mut play.world);
    play.grant();
    reset(&mut play.world.subnet, play.guest.adapter);
    let adapter = play.world.subnet.adapter(play.guest.adapter).unwrap();
    assert_eq!((adapter.queue_pairs().count(), adapter.regions().len()), (0, 0));
    assert_eq!(adapter.queues().completion_queues(), 0);
}

/// Returns one scenario for each opcode, and one that creates, connects and destroys objects.
pub fn seeds() -> Vec<Vec<u8>> {
    let index = |opcode| Opcode::ALL.iter().position(|own| *own == opcode).unwrap() as u8;
    // A command with a context of 8 drawn bytes, 8 pages, no change, and an output of 16 bytes.
    let command = |opcode: u8| {
        let context = [opcode, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        [vec![8], context.to_vec(), vec![8, 0, 0, 0, 9]].concat()
    };
    let opcodes: Vec<u8> = (0..Opcode::ALL.len() as u8).collect();
    let mut seeds: Vec<Vec<u8>> =
        opcodes.chunks(16).map(|part| part.iter().flat_map(|o| command(*o)).collect()).collect();
    use Opcode as O;
    let story = [
        O::CreateEventQueue,
        O::CreateCompletionQueue,
        O::CreateQueuePair,
        O::ResetToInit,
        O::InitToReadyToReceive,
        O::ReadyToReceiveToReadyToSend,
        O::CreateMemoryKey,
        O::CreateReceivePool,
        O::ToError,
        O::DestroyQueuePair,
    ];
    seeds.push(story.into_iter().flat_map(|opcode| command(index(opcode))).collect());
    seeds
}
