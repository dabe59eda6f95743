//! Hostile drivers: random commands, loops, indices out of range, and memory that is not granted.

use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5::{poll, run_commands};
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::event_queue::EventQueueContext;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_request::SendOpcode;
use proptest::prelude::*;

use crate::driver::{BASE, Guest, Link, MEMORY, PAGE, VIRTUAL, World, data, failure};

#[test]
fn mlx5_mailboxes_in_a_loop_end_with_the_length() {
    let mut world = World::new();
    let guest = world.start(1);
    let mut input = vec![0; 8192];
    input[..16].copy_from_slice(&InputHeader::new(Opcode::Nop, 0).to_bytes());
    let entry = guest.place_command(0, &input, 16);
    let first = u64::from_be_bytes(guest.read(entry + 8, 8).try_into().unwrap());
    guest.write(first + 560, &first.to_be_bytes());
    guest.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
    assert_eq!(run_commands(&mut world.subnet, guest.adapter, 1).commands, 1);
    assert_eq!(guest.read(entry + 0x3f, 1), [0]);
}

#[test]
fn mlx5_lengths_beyond_the_limits_fail_the_delivery() {
    let mut world = World::new();
    let guest = world.start(1);
    let nop = InputHeader::new(Opcode::Nop, 0).to_bytes();
    for (at, value, delivery) in [(4, u32::MAX, 7), (4, 7, 7), (0x38, u32::MAX, 8), (0x38, 0, 8)] {
        let entry = guest.place_command(0, &nop, 16);
        guest.write(entry + at, &value.to_be_bytes());
        guest.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
        run_commands(&mut world.subnet, guest.adapter, 1);
        assert_eq!(guest.read(entry + 0x3f, 1), [delivery << 1]);
    }
    let entry = guest.place_command(0, &nop, 16);
    guest.write(entry, &[6]);
    guest.registers.write(REGION_BAR, 0x18, &1_u32.to_be_bytes());
    run_commands(&mut world.subnet, guest.adapter, 1);
    assert_eq!(guest.read(entry + 0x3f, 1), [0x20]);
}

#[test]
fn mlx5_commands_beyond_the_budget_stay_rung() {
    let mut world = World::new();
    let guest = world.start(1);
    for index in 0..4 {
        guest.place_command(index, &InputHeader::new(Opcode::Nop, 0).to_bytes(), 16);
    }
    guest.registers.write(REGION_BAR, 0x18, &0xffff_ffff_u32.to_be_bytes());
    assert_eq!(run_commands(&mut world.subnet, guest.adapter, 3).commands, 3);
    assert_eq!(run_commands(&mut world.subnet, guest.adapter, 3).commands, 1);
    assert_eq!(run_commands(&mut world.subnet, guest.adapter, 3).commands, 0);
}

#[test]
fn mlx5_short_page_lists_and_bad_sizes_are_refused() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let cq = guest.create_cq(&mut world, 4);
    let (context, _) = guest.cq_context(8);
    let opcode = Opcode::CreateCompletionQueue;
    let create = |world: &mut World, guest: &Guest, context: &[u8], pages: &[u64]| {
        guest.create(world, opcode, (0x10, context), (0x110, pages))
    };
    let refused = create(&mut world, &guest, &context.to_bytes(), &[BASE]);
    assert_eq!(refused, Err(Status::BadParameter));
    for change in 0..5 {
        let mut context = context;
        context.log_size = 4;
        let expected = match change {
            0 => {
                context.log_size = 31;
                Status::BadParameter
            }
            1 => {
                context.doorbell_record += 4;
                Status::BadParameter
            }
            2 => {
                context.event_queue = 77;
                Status::BadResource
            }
            3 => {
                context.entry_size = 5;
                Status::BadParameter
            }
            _ => {
                context.log_page_size = 31;
                Status::BadParameter
            }
        };
        let refused = create(&mut world, &guest, &context.to_bytes(), &[BASE; 64]);
        assert_eq!(refused, Err(expected), "{change}");
    }
    let qp = guest.qp_context(Service::ReliableConnection, cq.number);
    let wrong: [QueuePairContext; 6] = [
        QueuePairContext { log_send_size: 15, ..qp },
        QueuePairContext { domain: 99, ..qp },
        QueuePairContext { send_completion_queue: 0x77, ..qp },
        QueuePairContext { service: 7, ..qp },
        QueuePairContext { doorbell_record: qp.doorbell_record + 1, ..qp },
        QueuePairContext { receive_queue_type: 1, shared_receive_queue: 5, ..qp },
    ];
    for context in wrong {
        let bytes = context.to_bytes();
        let opcode = Opcode::CreateQueuePair;
        let result = guest.create(&mut world, opcode, (0x18, &bytes), (0x110, &[BASE]));
        assert!(result.is_err(), "{context:?}");
    }
    let context = EventQueueContext { log_size: 4, vector: 8, ..Default::default() }.to_bytes();
    let opcode = Opcode::CreateEventQueue;
    let result = guest.create(&mut world, opcode, (0x10, &context), (0x110, &[BASE]));
    assert_eq!(result, Err(Status::BadParameter));
}

#[test]
fn mlx5_counter_that_jumps_breaks_the_queue_pair() {
    let mut link = Link::new(Service::ReliableConnection);
    link.a.write(link.qp_a.record + 4, &17_u32.to_be_bytes());
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
    assert!(link.a.poll_cq(&mut link.cq_a).is_none());
    // The responder's queue is broken too if its counter jumps.
    let mut link = Link::new(Service::ReliableConnection);
    link.b.write(link.qp_b.record, &1000_u32.to_be_bytes());
    let segment = data(link.key_a, VIRTUAL, 8);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&segment));
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
}

#[test]
fn mlx5_entry_longer_than_the_posted_blocks_breaks_the_queue_pair() {
    let mut link = Link::new(Service::ReliableConnection);
    let at = link.qp_a.ring + link.qp_a.context.send_offset();
    link.a.write(at, &[0, 0, 0, 8, 0, 0, 0, 63]);
    link.a.write(link.qp_a.record + 4, &1_u32.to_be_bytes());
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
}

#[test]
fn mlx5_queues_outside_of_memory_end_in_errors() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let cq = guest.create_cq(&mut world, 4);
    let context = guest.qp_context(Service::ReliableConnection, cq.number);
    let bytes = context.to_bytes();
    let pages = [BASE + MEMORY; 4];
    let opcode = Opcode::CreateQueuePair;
    let number = guest.create(&mut world, opcode, (0x18, &bytes), (0x110, &pages)).unwrap();
    let pair = crate::driver::Pair {
        number,
        context,
        ring: 0,
        record: context.doorbell_record,
        sent: 0,
        received: 0,
    };
    guest.connect(&mut world, &pair, guest.mac, number);
    guest.write(pair.record + 4, &1_u32.to_be_bytes());
    world.run();
    let mut cq = cq;
    failure(guest.poll_cq(&mut cq));
}

#[test]
fn mlx5_budget_leaves_work_for_the_next_pass() {
    let mut link = Link::new(Service::ReliableConnection);
    for _ in 0..8 {
        link.a.post(&mut link.qp_a, (SendOpcode::Nop, 0), |entry| entry);
    }
    let mut budget = Budget::new(5, 1 << 20);
    assert_eq!(poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget), 5);
    assert!(budget.is_spent());
    let mut budget = Budget::new(5, 1 << 20);
    assert_eq!(poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random inputs of known commands never panic, and each command is answered.
    #[test]
    fn mlx5_random_commands_are_answered(
        commands in prop::collection::vec(
            (0..Opcode::ALL.len(), prop::collection::vec(any::<u8>(), 16..700), 16_usize..600),
            1..40,
        )
    ) {
        let mut world = World::new();
        let guest = world.start(1);
        for (opcode, mut input, output_len) in commands {
            input[..2].copy_from_slice(&Opcode::ALL[opcode].raw().to_be_bytes());
            let (_, delivery) = guest.command(&mut world, &input, output_len);
            prop_assert_eq!(delivery, 0);
            world.run();
        }
    }

    /// Random objects and random bytes in their memory: work ends, nothing panics.
    #[test]
    fn mlx5_random_work_ends(
        bytes in prop::collection::vec(any::<u8>(), 1024),
        sends in prop::collection::vec((0_u8..0x30, 0_u8..20, any::<u32>()), 1..16),
        counters in any::<(u16, u16)>(),
        arm in any::<u32>(),
    ) {
        let mut link = Link::new(Service::ReliableConnection);
        let start = link.qp_a.ring + link.qp_a.context.send_offset();
        link.a.write(start, &bytes);
        for (index, (opcode, size, key)) in sends.iter().enumerate() {
            let at = start + index as u64 * 64;
            link.a.write(at + 3, &[*opcode, 0, 0, 0, *size]);
            link.a.write(at + 12, &key.to_be_bytes());
        }
        link.a.write(link.cq_a.record + 4, &arm.to_be_bytes());
        link.b.write(link.qp_b.ring, &bytes);
        link.b.write(link.qp_b.record, &u32::from(counters.0 % 20).to_be_bytes());
        link.a.write(link.qp_a.record + 4, &u32::from(counters.1 % 20).to_be_bytes());
        link.run();
        let number = link.qp_a.number;
        link.a.simple(&mut link.world, Opcode::ToError, number).unwrap();
        link.run();
        link.a.simple(&mut link.world, Opcode::DestroyQueuePair, number).unwrap();
        link.run();
    }
}

#[test]
fn mlx5_page_constant_matches_the_driver() {
    assert_eq!(PAGE, causeway_mlx5::limits::PAGE_BYTES);
}
