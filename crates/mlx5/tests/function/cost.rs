//! Drivers that try to use more time or memory of the daemon than they pay for.

use causeway_mlx5::limits::{
    COMMAND_BYTES_PER_CALL, COMMAND_SHORT_INPUT_MAX, LOOKS_PER_MESSAGE, PASS_QUEUES_MAX,
    QUEUE_PAGES_MAX,
};
use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5::{disconnect, poll, run_commands};
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_queue::{ReceivePoolContext, WorkQueue};
use causeway_wire::mlx5::work_request::{DatagramSegment, SendOpcode};

use crate::driver::{Guest, Link, VIRTUAL, World, data, failure};

/// Creates a shared receive queue of 16,384 pages, whose list lies in a chain of mailboxes that
/// loops.
fn create_pool(world: &mut World, guest: &mut Guest) -> Result<u32, Status> {
    let queue = WorkQueue {
        queue_type: 0,
        domain: guest.domain,
        log_stride: 11,
        log_size: 15,
        ..Default::default()
    };
    let context = ReceivePoolContext { queue, ..Default::default() };
    let mut input = vec![0; 2048];
    input[..16].copy_from_slice(&InputHeader::new(Opcode::CreateReceivePool, 0).to_bytes());
    input[0x20..][..ReceivePoolContext::LEN].copy_from_slice(&context.to_bytes());
    let entry = guest.place_command(0, &input, 16);
    let first = u64::from_be_bytes(guest.read(entry + 8, 8).try_into().unwrap());
    guest.write(first + 1024 + 560, &(first + 1024).to_be_bytes());
    guest.write(entry + 4, &(0x110 + 16384 * 8_u32).to_be_bytes());
    guest.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
    let cost = run_commands(&mut world.subnet, guest.adapter, 1);
    assert_eq!((cost.commands, cost.bytes), (1, 0x110 + 16384 * 8 + 16));
    let output = guest.read(entry + 0x20, 16);
    match Status::from_raw(output[0]).unwrap() {
        Status::Ok => Ok(u32::from_be_bytes(output[8..12].try_into().unwrap())),
        status => Err(status),
    }
}

#[test]
fn mlx5_page_lists_of_queues_share_a_limit() {
    let mut world = World::new();
    let mut guest = world.start(1);
    // The event queues of the driver have pages too.
    let mut last = 0;
    for _ in 0..QUEUE_PAGES_MAX / 16384 - 1 {
        last = create_pool(&mut world, &mut guest).unwrap();
    }
    assert_eq!(create_pool(&mut world, &mut guest), Err(Status::ExceededLimit));
    guest.simple(&mut world, Opcode::DestroyReceivePool, last).unwrap();
    create_pool(&mut world, &mut guest).unwrap();
    assert_eq!(create_pool(&mut world, &mut guest), Err(Status::ExceededLimit));
    guest.simple(&mut world, Opcode::EnableHca, 0).unwrap();
    create_pool(&mut world, &mut guest).unwrap();
}

#[test]
fn mlx5_commands_end_after_their_bytes() {
    let mut world = World::new();
    let guest = world.start(1);
    let mut input = vec![0; COMMAND_SHORT_INPUT_MAX];
    input[..16].copy_from_slice(&InputHeader::new(Opcode::Nop, 0).to_bytes());
    for index in 0..16 {
        guest.place_command(index, &input, 16);
    }
    guest.registers.write(REGION_BAR, 0x18, &0xffff_u32.to_be_bytes());
    let cost = run_commands(&mut world.subnet, guest.adapter, 32);
    assert_eq!(cost.bytes, u64::from(cost.commands) * (8192 + 16));
    assert_eq!(u64::from(cost.commands), COMMAND_BYTES_PER_CALL / 8192);
    assert_eq!(run_commands(&mut world.subnet, guest.adapter, 32).commands, 16 - cost.commands);
}

#[test]
fn mlx5_long_inputs_are_for_commands_with_page_lists() {
    let mut world = World::new();
    let guest = world.start(1);
    let mut input = vec![0; COMMAND_SHORT_INPUT_MAX + 8];
    input[..16].copy_from_slice(&InputHeader::new(Opcode::Nop, 0).to_bytes());
    assert_eq!(guest.command(&mut world, &input, 16).1, 7);
    input.truncate(COMMAND_SHORT_INPUT_MAX);
    assert_eq!(guest.command(&mut world, &input, 16).1, 0);
}

#[test]
fn mlx5_looks_at_idle_queues_use_the_budget() {
    let mut link = Link::new(Service::ReliableConnection);
    // 64 further queue pairs without work.
    for _ in 0..64 {
        let context = link.a.qp_context(Service::ReliableConnection, link.cq_a.number);
        let pair = link.a.create_pair(&mut link.world, context);
        link.a.connect(&mut link.world, &pair, link.b.mac, link.qp_b.number);
    }
    const { assert!(PASS_QUEUES_MAX >= 65) };
    let mut budget = Budget::new(1000, 1 << 20);
    assert_eq!(poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget), 0);
    assert_eq!(budget.messages(), 1000 - 65 / LOOKS_PER_MESSAGE as u32);
}

#[test]
fn mlx5_looks_at_completion_queues_use_the_budget() {
    let mut link = Link::new(Service::ReliableConnection);
    // The driver takes no completion, so each queue is evaluated on each pass.
    let count = 4 * LOOKS_PER_MESSAGE;
    for _ in 0..count {
        let cq = link.a.create_cq(&mut link.world, 4);
        // The queue has reported its only superfluous event.
        let context = link.a.qp_context(Service::ReliableConnection, cq.number);
        let mut pair = link.a.create_pair(&mut link.world, context);
        link.a.connect(&mut link.world, &pair, link.b.mac, link.qp_b.number);
        for _ in 0..2 {
            link.a.post(&mut pair, (SendOpcode::Nop, 0), |entry| entry);
            poll(&mut link.world.subnet, link.a.adapter, 0, &mut Budget::new(9, 1 << 20));
        }
        link.a.simple(&mut link.world, Opcode::ToError, pair.number).unwrap();
        link.a.simple(&mut link.world, Opcode::DestroyQueuePair, pair.number).unwrap();
    }
    let mut budget = Budget::new(1000, 1 << 20);
    assert_eq!(poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget), 0);
    assert_eq!(budget.messages(), 1000 - 4);
    // A message is left for the queue pairs.
    link.a.post(&mut link.qp_a, (SendOpcode::Nop, 0), |entry| entry);
    let mut budget = Budget::new(1, 1 << 20);
    assert_eq!(poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget), 1);
}

#[test]
fn mlx5_retries_of_a_waiting_queue_pair_use_the_budget() {
    let mut link = Link::new(Service::ReliableConnection);
    let segment = data(link.key_a, VIRTUAL, 64);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&segment));
    for _ in 0..3 {
        let mut budget = Budget::new(100, 1 << 20);
        // The peer has no receive work request.
        assert_eq!(poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget), 0);
        assert_eq!(budget.messages(), 99);
    }
}

#[test]
fn mlx5_frontend_that_is_gone_leaves_no_command_behind() {
    let mut world = World::new();
    let guest = world.start(1);
    let entry = guest.place_command(0, &InputHeader::new(Opcode::Nop, 0).to_bytes(), 16);
    guest.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
    let (reads, writes) = world.function(&guest).register_accesses();
    let registers = disconnect(&mut world.subnet, guest.adapter).unwrap();
    // A late write of the old frontend reaches the old registers.
    guest.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
    assert_eq!(run_commands(&mut world.subnet, guest.adapter, 8).commands, 0);
    assert_eq!(guest.read(entry + 0x3f, 1), [1]);
    assert_eq!(registers.command_queue(), 0);
    // The next driver works with the new registers.
    let queue = guest.registers.command_queue();
    registers.write(REGION_BAR, 0x10, &((queue >> 32) as u32).to_be_bytes());
    registers.write(REGION_BAR, 0x14, &(queue as u32).to_be_bytes());
    registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
    assert_eq!(run_commands(&mut world.subnet, guest.adapter, 8).commands, 1);
    assert_eq!(guest.read(entry + 0x3f, 1), [0]);
    // Counters never fall.
    assert_eq!(world.function(&guest).register_accesses(), (reads, writes + 3));
}

#[test]
fn mlx5_recovered_queue_pair_costs_no_call_of_the_engine() {
    let mut link = Link::new(Service::UnreliableDatagram);
    link.a.post_receive(&mut link.qp_a, &[data(link.key_a, VIRTUAL, 100)]);
    let to = DatagramSegment {
        queue_key: 0x1111,
        is_extended: true,
        queue_pair: link.qp_b.number,
        mac: link.b.mac,
        ..Default::default()
    };
    let wrong = data(link.key_a ^ 1, VIRTUAL, 8);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.datagram(&to).data(&wrong));
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
    let recover = Opcode::SendQueueErrorToReadyToSend;
    for recovers in [false, true] {
        if recovers {
            let change = (0, QueuePairContext::default());
            link.a.modify(&mut link.world, recover, &link.qp_a, change).unwrap();
        }
        let mut budget = Budget::new(100, 1 << 20);
        assert_eq!(poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget), 0);
        assert_eq!(budget.messages(), 100, "{recovers}");
    }
}
