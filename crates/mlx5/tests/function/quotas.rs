//! Quotas of a function: each can be exhausted by its driver, and none is shared with another guest.

use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::completion_queue::Syndrome;
use causeway_wire::mlx5::memory_key::MemoryKeyContext;
use causeway_wire::mlx5::queue_pair::{ReceiveQueueType, Service};
use causeway_wire::mlx5::steering::{
    ACTION_FORWARD, CRITERIA_OUTER, Destination, DestinationType, EntryInput, GroupInput,
    ReceiveInterface, TableInput,
};
use causeway_wire::mlx5::work_queue::{
    ReceivePoolContext, ReceiveQueueContext, SendQueueContext, WorkQueue,
};
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};

use crate::driver::{BASE, BUFFER, Guest, Link, VIRTUAL, World, data, failure, success};

/// More creations than any table has room for.
const CREATIONS_MAX: u32 = 1 << 18;
/// Binary logarithm of the length of the flow table that takes all entries.
const LOG_FLOWS: u8 = 20;

/// Objects that the creations of others name.
struct Objects {
    cq: u32,
    receive_queue: u32,
    interface: u32,
    table: u32,
    group: u32,
    /// Flow table in which groups are created.
    groups: u32,
    datagrams: u32,
}

/// Executes a command with values at offsets. Returns the number in its output.
fn command(
    world: &mut World,
    guest: &Guest,
    opcode: Opcode,
    number: u32,
    values: &[(usize, &[u8])],
) -> Result<u32, Status> {
    let end = values.iter().map(|(at, bytes)| at + bytes.len()).max().unwrap_or(0);
    let mut input = vec![0; end.max(0x110)];
    for (at, bytes) in values {
        input[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    input[..16].copy_from_slice(&InputHeader::new(opcode, number).to_bytes());
    let output = guest.try_command(world, &input, 16)?;
    Ok(u32::from_be_bytes(output[8..12].try_into().unwrap()))
}

fn flow_table(world: &mut World, guest: &Guest, log_size: u8) -> Result<u32, Status> {
    let table = TableInput { log_size, ..Default::default() };
    command(world, guest, Opcode::CreateFlowTable, 0, &[(0, &table.to_bytes())])
}

fn flow_group(
    world: &mut World,
    guest: &Guest,
    table: u32,
    range: (u32, u32),
) -> Result<u32, Status> {
    let criteria = CRITERIA_OUTER;
    let group = GroupInput { table, first: range.0, last: range.1, criteria, ..Default::default() };
    let end = (0x3ff, &[0][..]);
    command(world, guest, Opcode::CreateFlowGroup, 0, &[(0, &group.to_bytes()), end])
}

fn receive_queue(world: &mut World, guest: &Guest, completion_queue: u32) -> Result<u32, Status> {
    let context =
        ReceiveQueueContext { completion_queue, queue: queue(1, 5), ..Default::default() };
    let opcode = Opcode::CreateReceiveQueue;
    guest.create(world, opcode, (0x20, &context.to_bytes()), (0x110, &[BASE]))
}

fn interface(world: &mut World, guest: &Guest, receive_queue: u32) -> Result<u32, Status> {
    let context = ReceiveInterface { receive_queue, ..Default::default() };
    let values: [(usize, &[u8]); 2] = [(0x20, &context.to_bytes()), (0x48, &[1; 40])];
    command(world, guest, Opcode::CreateTir, 0, &values)
}

fn queue(queue_type: u8, log_stride: u8) -> WorkQueue {
    WorkQueue { queue_type, log_stride, log_size: 2, ..Default::default() }
}

impl Objects {
    fn create(world: &mut World, guest: &mut Guest, cq: u32) -> Self {
        let receive_queue = receive_queue(world, guest, cq).unwrap();
        let interface = interface(world, guest, receive_queue).unwrap();
        let table = flow_table(world, guest, LOG_FLOWS).unwrap();
        let group = flow_group(world, guest, table, (0, (1 << LOG_FLOWS) - 1)).unwrap();
        let groups = flow_table(world, guest, 10).unwrap();
        let context = guest.qp_context(Service::UnreliableDatagram, cq);
        let datagrams = guest.create_pair(world, context).number;
        Self { cq, receive_queue, interface, table, group, groups, datagrams }
    }
}

/// Creates the `n`th object of a kind.
type Create = fn(&mut World, &mut Guest, &Objects, u32) -> Result<u32, Status>;

/// One creation for each table of a function.
const KINDS: [(&str, Create); 20] = [
    ("protection domain", |w, g, _, _| g.simple(w, Opcode::AllocateProtectionDomain, 0)),
    ("transport domain", |w, g, _, _| g.simple(w, Opcode::AllocateTransportDomain, 0)),
    ("XRC domain", |w, g, _, _| g.simple(w, Opcode::AllocateXrcDomain, 0)),
    ("counter set", |w, g, _, _| g.simple(w, Opcode::AllocateQueueCounter, 0)),
    ("flow counter", |w, g, _, _| g.simple(w, Opcode::AllocateFlowCounter, 0)),
    ("doorbell page", |w, g, _, _| g.simple(w, Opcode::AllocateUar, 0)),
    ("send interface", |w, g, _, _| command(w, g, Opcode::CreateTis, 0, &[])),
    ("receive interface", |w, g, objects, _| interface(w, g, objects.receive_queue)),
    ("receive queue table", |w, g, objects, _| {
        let list = objects.receive_queue.to_be_bytes();
        let values: [(usize, &[u8]); 3] = [(0x37, &[1]), (0x3b, &[1]), (0x110, &list)];
        command(w, g, Opcode::CreateReceiveQueueTable, 0, &values)
    }),
    ("send queue", |w, g, objects, _| {
        let completion_queue = objects.cq;
        let context =
            SendQueueContext { completion_queue, queue: queue(1, 6), ..Default::default() };
        g.create(w, Opcode::CreateSendQueue, (0x20, &context.to_bytes()), (0x110, &[BASE]))
    }),
    ("receive queue", |w, g, objects, _| receive_queue(w, g, objects.cq)),
    ("receive pool", |w, g, _, _| {
        let context = ReceivePoolContext { queue: queue(0, 5), ..Default::default() };
        g.create(w, Opcode::CreateReceivePool, (0x20, &context.to_bytes()), (0x110, &[BASE]))
    }),
    ("queue pair", |w, g, objects, _| {
        let mut context = g.qp_context(Service::ReliableConnection, objects.cq);
        context.receive_queue_type = ReceiveQueueType::None.raw();
        g.create(w, Opcode::CreateQueuePair, (0x18, &context.to_bytes()), (0x110, &[BASE]))
    }),
    ("memory key", |w, g, _, _| {
        let context = MemoryKeyContext { is_unlimited: true, ..Default::default() };
        g.create_key(w, &context, &[])
    }),
    ("completion queue", |w, g, _, _| {
        let (context, _) = g.cq_context(0);
        let opcode = Opcode::CreateCompletionQueue;
        g.create(w, opcode, (0x10, &context.to_bytes()), (0x110, &[BASE]))
    }),
    ("event queue", |w, g, _, _| {
        g.create(w, Opcode::CreateEventQueue, (0x10, &[0; 0x50]), (0x110, &[BASE]))
    }),
    ("flow group", |w, g, objects, n| flow_group(w, g, objects.groups, (n, n))),
    ("flow table", |w, g, _, _| flow_table(w, g, 0)),
    ("flow entry", |w, g, objects, n| {
        let entry = EntryInput {
            table: objects.table,
            index: n,
            group: objects.group,
            action: ACTION_FORWARD,
            destinations: 1,
            ..Default::default()
        };
        let destination_type = DestinationType::ReceiveInterface.raw();
        let to = Destination { destination_type, number: objects.interface }.to_bytes();
        command(w, g, Opcode::SetFlowTableEntry, 0, &[(0, &entry.to_bytes()), (0x340, &to)])
    }),
    ("multicast membership", |w, g, objects, n| {
        let gid = [&[0xff; 12][..], &n.to_be_bytes()].concat();
        command(w, g, Opcode::AttachToMulticastGroup, objects.datagrams, &[(0x10, &gid)])
    }),
];

#[test]
fn mlx5_full_tables_of_a_function_leave_others_their_room() {
    let mut link = Link::new(Service::ReliableConnection);
    let a = Objects::create(&mut link.world, &mut link.a, link.cq_a.number);
    let b = Objects::create(&mut link.world, &mut link.b, link.cq_b.number);
    let mut counts = Vec::new();
    for (kind, create) in KINDS {
        let full = (0..CREATIONS_MAX).find_map(|n| {
            let refused = create(&mut link.world, &mut link.a, &a, n).err()?;
            Some((n, refused))
        });
        let (count, status) = full.unwrap_or_else(|| panic!("{kind}: no limit"));
        assert_eq!(status, Status::ExceededLimit, "{kind} {count}");
        assert!(count > 0, "{kind}: no room");
        counts.push((kind, count));
    }
    println!("{counts:?}");
    for (kind, create) in KINDS {
        let made = create(&mut link.world, &mut link.b, &b, 0);
        assert!(made.is_ok(), "{kind}: {made:?}");
    }
    let to = RemoteAddressSegment { address: VIRTUAL, key: link.key_a };
    let from = data(link.key_b, VIRTUAL, 8);
    link.b.post(&mut link.qp_b, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    link.run();
    success(link.b.poll_cq(&mut link.cq_b));
    let since = std::time::Instant::now();
    causeway_mlx5::reset(&mut link.world.subnet, link.a.adapter);
    println!("reset in {:?}", since.elapsed());
    let adapter = link.world.subnet.adapter(link.a.adapter).unwrap();
    assert_eq!(adapter.queue_pairs().count() + adapter.regions().len(), 0);
    assert_eq!(adapter.queues().completion_queues(), 0);
}

#[test]
fn mlx5_reset_ends_messages_at_their_peers_in_later_passes() {
    let mut link = Link::new(Service::ReliableConnection);
    let len = BUFFER as u32;
    let to = data(link.key_b, VIRTUAL, len);
    link.b.post_receive(&mut link.qp_b, &[to, to]);
    let from = data(link.key_a, VIRTUAL, len);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&from).data(&from));
    let (id, now) = (link.a.adapter, link.world.now);
    poll(&mut link.world.subnet, id, now, &mut Budget::new(9, 1000));
    causeway_mlx5::reset(&mut link.world.subnet, id);
    assert!(link.b.poll_cq(&mut link.cq_b).is_none());
    assert!(link.world.function(&link.a).is_active(), "the function is polled until then");
    link.run();
    let entry = failure(link.b.poll_cq(&mut link.cq_b));
    assert_eq!(entry.syndrome, Syndrome::Flushed.raw());
    assert!(!link.world.function(&link.a).is_active());
}
