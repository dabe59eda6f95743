//! Commands about queues and steering objects: checks, and objects in use.

use causeway_mlx5::ethernet::Received;
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::steering::{MatchHeaders, TableReference, table_entries};
use causeway_wire::mlx5::work_queue::{ReceiveQueueContext, SendQueueContext, WorkQueue};
use proptest::prelude::*;

use crate::driver::World;
use crate::interface::*;

fn simple(world: &mut World, one: &Interface, opcode: Opcode, number: u32) -> Result<u32, Status> {
    one.guest.simple(world, opcode, number)
}

#[test]
fn ethernet_objects_in_use_are_not_destroyed() {
    let mut world = World::new();
    let one = Interface::up(&mut world, 1, Options::default());
    let cq = one.send_cq.number;
    let destroy = Opcode::DestroyCompletionQueue;
    assert_eq!(simple(&mut world, &one, destroy, cq), Err(Status::BadResourceState));
    let table = Opcode::DestroyReceiveQueueTable;
    assert_eq!(simple(&mut world, &one, table, one.table), Err(Status::BadResourceState));
    let root = TableReference { table: one.root, ..Default::default() };
    let header = InputHeader::new(Opcode::DestroyFlowTable, 0);
    let error = command(&mut world, &one.guest, header, 0x40, &[(0, &root.to_bytes())]);
    assert_eq!(error, Err(Status::BadResourceState));
    simple(&mut world, &one, Opcode::DestroySendQueue, one.send).unwrap();
    simple(&mut world, &one, destroy, cq).unwrap();
    simple(&mut world, &one, Opcode::DestroyTir, one.hashed).unwrap();
    simple(&mut world, &one, table, one.table).unwrap();
    let again = simple(&mut world, &one, Opcode::DestroySendQueue, one.send);
    assert_eq!(again, Err(Status::BadResource));
    assert!(!world.function(&one.guest).is_active());
}

#[test]
fn ethernet_destroyed_interface_receives_nothing() {
    let mut world = World::new();
    let (mut one, two) = pair(&mut world, Options::default());
    simple(&mut world, &two, Opcode::DestroyTir, two.hashed).unwrap();
    assert_eq!(one.send_frame(&mut world, &two, &tcp(1, 1)), Received::Down);
    let frames = Received::Delivered { frames: 1 };
    assert_eq!(one.send_frame(&mut world, &two, &udp(1)), frames);
    let queue = two.receive[0].number;
    simple(&mut world, &two, Opcode::DestroyReceiveQueue, queue).unwrap();
    assert_eq!(one.send_frame(&mut world, &two, &udp(1)), Received::Down);
}

#[test]
fn ethernet_rule_with_a_lower_index_decides() {
    let mut world = World::new();
    let (mut one, two) = pair(&mut world, Options { queues: 2, ..Options::default() });
    // The table has room for rules behind the general one only; they never decide.
    let mask = MatchHeaders { udp_destination: 0xffff, ..Default::default() };
    let value = MatchHeaders { udp_destination: 2000, ..Default::default() };
    two.add_rule(&mut world, 2, (mask, value), two.hashed, 5);
    let frames = Received::Delivered { frames: 1 };
    assert_eq!(one.send_frame(&mut world, &two, &udp(1)), frames);
    let mut two = two;
    assert_eq!(two.receive(0).unwrap().0.queue, 0x77);
}

#[test]
fn ethernet_contexts_are_checked() {
    let mut world = World::new();
    let mut one = Interface::up(&mut world, 1, Options::default());
    let ring = one.guest.allocate(1 << 16);
    let queue = WorkQueue {
        queue_type: 1,
        doorbell_record: ring,
        log_stride: 6,
        log_size: 4,
        ..Default::default()
    };
    let cq = one.send_cq.number;
    let mut send = |queue: WorkQueue, completion_queue: u32, interface_count: u16| {
        let context = SendQueueContext {
            completion_queue,
            interface_count,
            interface: 0xabcd,
            queue,
            ..Default::default()
        };
        let bytes = context.to_bytes();
        let create = (Opcode::CreateSendQueue, (0x20, &bytes[..]));
        one.guest.create(&mut world, create.0, create.1, (0x110, &[ring]))
    };
    assert!(send(queue, cq, 0).is_ok());
    assert_eq!(send(queue, 0, 0), Err(Status::BadResource));
    assert_eq!(send(queue, cq, 1), Err(Status::BadResource));
    for wrong in [
        WorkQueue { queue_type: 0, ..queue },
        WorkQueue { queue_type: 9, ..queue },
        WorkQueue { log_stride: 5, ..queue },
        WorkQueue { log_size: 16, ..queue },
        WorkQueue { log_size: 7, ..queue },
        WorkQueue { doorbell_record: ring + 4, ..queue },
        WorkQueue { page_offset: 31, log_size: 6, ..queue },
    ] {
        assert_eq!(send(wrong, cq, 0), Err(Status::BadParameter), "{wrong:?}");
    }
    let mut receive = |memory_type: u8, log_stride: u8, log_size: u8| {
        let queue = WorkQueue { log_stride, log_size, ..queue };
        let context =
            ReceiveQueueContext { memory_type, completion_queue: cq, queue, ..Default::default() };
        let bytes = context.to_bytes();
        let create = (Opcode::CreateReceiveQueue, (0x20, &bytes[..]));
        one.guest.create(&mut world, create.0, create.1, (0x110, &[ring]))
    };
    // The empty queue of a closed interface has one entry of 16 bytes.
    assert!(receive(0, 4, 0).is_ok());
    assert_eq!(receive(1, 4, 0), Err(Status::BadParameter));
    assert_eq!(receive(0, 3, 0), Err(Status::BadParameter));
    assert_eq!(receive(0, 12, 0), Err(Status::BadParameter));
    assert_eq!(receive(0, 11, 2), Err(Status::BadParameter));
}

#[test]
fn ethernet_queue_table_is_queried_as_it_was_set() {
    let mut world = World::new();
    let one = Interface::up(&mut world, 1, Options { queues: 2, ..Options::default() });
    let input = InputHeader::new(Opcode::QueryReceiveQueueTable, one.table).to_bytes();
    let output = one.guest.try_command(&mut world, &input, 0x110 + 512).unwrap();
    let list: Vec<u32> = table_entries(&output[0x20..]).collect();
    assert_eq!(list.len(), 128);
    assert_eq!(list[..2], [one.receive[0].number, one.receive[1].number]);
    let header = InputHeader::new(Opcode::ModifyReceiveQueueTable, one.table);
    let number = one.receive[1].number.to_be_bytes();
    let mut set = |len: u16, bytes: usize, entry: &[u8]| {
        let values: [(usize, &[u8]); 2] = [(0x3a, &len.to_be_bytes()), (0x110, entry)];
        command(&mut world, &one.guest, header, bytes, &values)
    };
    assert!(set(1, 0x114, &number).is_ok());
    assert_eq!(set(0, 0x114, &number), Err(Status::BadParameter));
    assert_eq!(set(2, 0x114, &number), Err(Status::BadInputLength));
    assert_eq!(set(1, 0x114, &[0, 0, 0, 1]), Err(Status::BadResource));
    assert_eq!(set(129, 0x900, &number), Err(Status::BadResource));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..Default::default() })]

    #[test]
    fn ethernet_random_commands_never_harm(
        opcode in 0x900_u16..0x93d,
        input in prop::collection::vec(any::<u8>(), 16..1000),
        sparse in any::<bool>(),
        small in 0_u32..8,
    ) {
        let mut world = World::new();
        let one = Interface::up(&mut world, 1, Options::default());
        let mut input = input;
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        if sparse {
            for byte in input.iter_mut().skip(12).step_by(2) {
                *byte = 0;
            }
            input[8..12].copy_from_slice(&small.to_be_bytes());
        }
        for len in [16, 64, 1024] {
            one.guest.command(&mut world, &input, len);
        }
    }
}
