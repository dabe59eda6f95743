//! Connected queue pairs: sends, writes, reads, atomic operations, and their completions.

use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::completion_queue::{CompletionOpcode, Syndrome};
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_request::{AtomicSegment, RemoteAddressSegment, SendOpcode};

use crate::driver::{Link, VIRTUAL, World, data, failure, success};

fn remote(address: u64, key: u32) -> RemoteAddressSegment {
    RemoteAddressSegment { address, key }
}

#[test]
fn mlx5_rc_send_fills_the_receive_buffer_and_both_completions() {
    let mut link = Link::new(Service::ReliableConnection);
    link.a.write(link.buffer_a + 100, b"hello");
    let (key, address) = (link.key_b, VIRTUAL + 8192);
    link.b.post_receive(&mut link.qp_b, &[data(key, address, 3), data(key, address + 64, 100)]);
    let segment = data(link.key_a, VIRTUAL + 100, 5);
    let send = (SendOpcode::SendImmediate, 0xabcd);
    link.a.post(&mut link.qp_a, send, |entry| entry.data(&segment));
    link.run();
    let sent = success(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(sent.opcode, CompletionOpcode::Request.raw());
    assert_eq!((sent.queue, sent.counter, sent.request_opcode), (link.qp_a.number, 0, 0x0b));
    assert_eq!((sent.user_index, sent.bytes), (0x1234, 5));
    let received = success(link.b.poll_cq(&mut link.cq_b));
    assert_eq!(received.opcode, CompletionOpcode::ReceiveSendImmediate.raw());
    assert_eq!((received.bytes, received.immediate), (5, 0xabcd));
    assert_eq!((received.queue, received.counter), (link.qp_b.number, 0));
    assert_eq!(received.source_queue_pair, link.qp_a.number);
    assert!(received.is_solicited);
    assert_eq!(link.b.read(link.buffer_b + 8192, 3), b"hel");
    assert_eq!(link.b.read(link.buffer_b + 8192 + 64, 2), b"lo");
    assert!(link.a.poll_cq(&mut link.cq_a).is_none());
    assert!(link.b.poll_cq(&mut link.cq_b).is_none());
}

#[test]
fn mlx5_rc_write_and_read_move_bytes_at_exact_addresses() {
    let mut link = Link::new(Service::ReliableConnection);
    let bytes: Vec<u8> = (0..40_000).map(|n| (n % 251) as u8).collect();
    link.a.write(link.buffer_a + 1000, &bytes);
    let segment = data(link.key_a, VIRTUAL + 1000, 40_000);
    let to = remote(VIRTUAL + 77, link.key_b);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&segment));
    link.run();
    assert_eq!(success(link.a.poll_cq(&mut link.cq_a)).request_opcode, 0x08);
    assert_eq!(link.b.read(link.buffer_b + 77, 40_000), bytes);
    assert!(link.b.poll_cq(&mut link.cq_b).is_none());
    let segment = data(link.key_b, VIRTUAL + 50_000, 256);
    let from = remote(VIRTUAL + 1000, link.key_a);
    link.b.post(&mut link.qp_b, (SendOpcode::Read, 0), |e| e.remote(&from).data(&segment));
    link.run();
    let read = success(link.b.poll_cq(&mut link.cq_b));
    assert_eq!((read.request_opcode, read.bytes), (0x10, 256));
    assert_eq!(link.b.read(link.buffer_b + 50_000, 256), bytes[..256]);
}

#[test]
fn mlx5_rc_atomic_operations_use_host_order_and_return_the_old_value() {
    let mut link = Link::new(Service::ReliableConnection);
    link.b.write(link.buffer_b, &40_u64.to_ne_bytes());
    let (result, at) = (data(link.key_a, VIRTUAL + 64, 8), remote(VIRTUAL, link.key_b));
    let add = AtomicSegment { swap_or_add: 2, compare: 0 };
    link.a.post(&mut link.qp_a, (SendOpcode::FetchAdd, 0), |e| {
        e.remote(&at).atomic(&add).data(&result)
    });
    let swap = AtomicSegment { swap_or_add: 7, compare: 42 };
    link.a.post(&mut link.qp_a, (SendOpcode::CompareSwap, 0), |e| {
        e.remote(&at).atomic(&swap).data(&data(result.key, result.address + 8, 8))
    });
    link.run();
    assert_eq!(link.b.read(link.buffer_b, 8), 7_u64.to_ne_bytes());
    assert_eq!(link.a.read(link.buffer_a + 64, 8), 40_u64.to_ne_bytes());
    assert_eq!(link.a.read(link.buffer_a + 72, 8), 42_u64.to_ne_bytes());
    assert_eq!(success(link.a.poll_cq(&mut link.cq_a)).counter, 0);
    assert_eq!(success(link.a.poll_cq(&mut link.cq_a)).counter, 1);
}

#[test]
fn mlx5_entries_wrap_at_the_end_of_the_ring() {
    let mut link = Link::new(Service::ReliableConnection);
    let text = [0x5a_u8; 200];
    // Entries of four blocks in a ring of 16, behind an entry of a single block: the fourth wraps.
    link.a.post(&mut link.qp_a, (SendOpcode::Nop, 0), |entry| entry);
    for round in 0..20_u64 {
        let to = remote(VIRTUAL + round * 256, link.key_b);
        link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).inline(&text));
        link.run();
        assert_eq!(link.b.read(link.buffer_b + round * 256, 200), text);
    }
    assert_eq!(success(link.a.poll_cq(&mut link.cq_a)).request_opcode, 0);
    for round in 0..20_u16 {
        assert_eq!(success(link.a.poll_cq(&mut link.cq_a)).counter, 1 + round * 4);
    }
}

#[test]
fn mlx5_entry_has_inline_payload_before_other_payload_only() {
    let mut link = Link::new(Service::ReliableConnection);
    link.a.write(link.buffer_a, b"pointer");
    let (to, segment) = (remote(VIRTUAL, link.key_b), data(link.key_a, VIRTUAL, 7));
    let write = (SendOpcode::Write, 0);
    link.a.post(&mut link.qp_a, write, |e| e.remote(&to).inline(b"inline ").data(&segment));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(link.buffer_b, 14), b"inline pointer");
    link.a.post(&mut link.qp_a, write, |e| e.remote(&to).data(&segment).inline(b" inline"));
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
}

#[test]
fn mlx5_rc_waits_for_a_receive_entry() {
    let mut link = Link::new(Service::ReliableConnection);
    let segment = data(link.key_a, VIRTUAL, 8);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&segment));
    link.run();
    assert!(link.a.poll_cq(&mut link.cq_a).is_none());
    link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 8)]);
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    success(link.b.poll_cq(&mut link.cq_b));
}

#[test]
fn mlx5_stale_key_fails_the_request_and_flushes_the_rest() {
    let mut link = Link::new(Service::ReliableConnection);
    let number = link.key_b >> 8;
    link.b.simple(&mut link.world, Opcode::DestroyMemoryKey, number).unwrap();
    let again = link.b.register(&mut link.world, VIRTUAL, link.buffer_b, 4096);
    let to = remote(VIRTUAL, again ^ 1);
    let segment = data(link.key_a, VIRTUAL, 8);
    for _ in 0..3 {
        link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&segment));
    }
    link.run();
    let first = failure(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(first.syndrome, Syndrome::RemoteAccess.raw());
    assert_eq!((first.request_opcode, first.queue), (8, link.qp_a.number));
    for counter in 1..3 {
        let flushed = failure(link.a.poll_cq(&mut link.cq_a));
        assert_eq!((flushed.syndrome, flushed.counter), (Syndrome::Flushed.raw(), counter));
    }
    assert!(link.a.poll_cq(&mut link.cq_a).is_none());
}

#[test]
fn mlx5_error_state_flushes_both_queues_and_later_posts() {
    let mut link = Link::new(Service::ReliableConnection);
    for _ in 0..2 {
        link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 8)]);
    }
    let number = link.qp_b.number;
    link.b.simple(&mut link.world, Opcode::ToError, number).unwrap();
    link.run();
    for _ in 0..2 {
        let entry = failure(link.b.poll_cq(&mut link.cq_b));
        assert_eq!(entry.opcode, CompletionOpcode::ResponderError.raw());
        assert_eq!(entry.syndrome, Syndrome::Flushed.raw());
    }
    let segment = data(link.key_b, VIRTUAL, 8);
    link.b.post(&mut link.qp_b, (SendOpcode::Send, 0), |e| e.data(&segment));
    link.b.post_receive(&mut link.qp_b, &[segment]);
    link.run();
    let mut opcodes: Vec<u8> =
        (0..2).map(|_| failure(link.b.poll_cq(&mut link.cq_b)).opcode).collect();
    opcodes.sort_unstable();
    assert_eq!(opcodes, [13, 14]);
    assert!(link.b.poll_cq(&mut link.cq_b).is_none());
}

#[test]
fn mlx5_reset_forgets_posted_work() {
    let mut link = Link::new(Service::ReliableConnection);
    link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 8)]);
    let number = link.qp_b.number;
    link.b.simple(&mut link.world, Opcode::ToReset, number).unwrap();
    link.b.write(link.qp_b.record, &[0; 8]);
    (link.qp_b.sent, link.qp_b.received) = (0, 0);
    link.run();
    assert!(link.b.poll_cq(&mut link.cq_b).is_none());
    link.b.connect(&mut link.world, &link.qp_b, link.a.mac, link.qp_a.number);
    link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 8)]);
    let segment = data(link.key_a, VIRTUAL, 8);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&segment));
    link.run();
    success(link.b.poll_cq(&mut link.cq_b));
}

#[test]
fn mlx5_query_returns_the_state_and_attributes() {
    let mut link = Link::new(Service::ReliableConnection);
    let input = InputHeader::new(Opcode::QueryQueuePair, link.qp_a.number).to_bytes();
    let output = link.a.try_command(&mut link.world, &input, 0x110).unwrap();
    let context = QueuePairContext::parse(&output[0x18..]).unwrap();
    assert_eq!((context.state, context.queue_key), (3, 0x1111));
    assert_eq!(context.remote_number, link.qp_b.number);
    assert_eq!(context.primary_path.destination_mac, link.b.mac);
    assert_eq!((context.retry_count, context.primary_path.ack_timeout), (7, 14));
    assert!(context.remote_read && context.remote_write && context.remote_atomic);
}

#[test]
fn mlx5_wrong_transition_is_refused() {
    let mut link = Link::new(Service::ReliableConnection);
    let context = QueuePairContext::default();
    let opcode = Opcode::ReadyToReceiveToReadyToSend;
    let result = link.a.modify(&mut link.world, opcode, &link.qp_a, (0, context));
    assert_eq!(result, Err(Status::BadQueuePairState));
    let result = link.a.modify(&mut link.world, Opcode::ResetToInit, &link.qp_a, (0, context));
    assert_eq!(result, Err(Status::BadQueuePairState));
}

#[test]
fn mlx5_objects_in_use_are_not_destroyed() {
    let mut link = Link::new(Service::ReliableConnection);
    let world = &mut link.world;
    let cq = link.cq_a.number;
    let busy = link.a.simple(world, Opcode::DestroyCompletionQueue, cq);
    assert_eq!(busy, Err(Status::BadResourceState));
    let events = link.a.events.number;
    let busy = link.a.simple(world, Opcode::DestroyEventQueue, events);
    assert_eq!(busy, Err(Status::BadResourceState));
    link.a.simple(world, Opcode::DestroyQueuePair, link.qp_a.number).unwrap();
    link.a.simple(world, Opcode::DestroyCompletionQueue, cq).unwrap();
    link.a.simple(world, Opcode::DestroyEventQueue, events).unwrap();
    let gone = link.a.simple(world, Opcode::DestroyQueuePair, link.qp_a.number);
    assert_eq!(gone, Err(Status::BadResource));
}

#[test]
fn mlx5_queue_pairs_of_the_same_function_exchange_messages() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let mut cq = guest.create_cq(&mut world, 5);
    let context = guest.qp_context(Service::ReliableConnection, cq.number);
    let mut first = guest.create_pair(&mut world, context);
    let context = guest.qp_context(Service::ReliableConnection, cq.number);
    let mut second = guest.create_pair(&mut world, context);
    guest.connect(&mut world, &first, guest.mac, second.number);
    guest.connect(&mut world, &second, guest.mac, first.number);
    let buffer = guest.allocate(8192);
    let key = guest.register(&mut world, VIRTUAL, buffer, 8192);
    guest.write(buffer, b"loop");
    guest.post_receive(&mut second, &[data(key, VIRTUAL + 4096, 64)]);
    let segment = data(key, VIRTUAL, 4);
    guest.post(&mut first, (SendOpcode::Send, 0), |e| e.data(&segment));
    world.run();
    let queues: Vec<u32> = (0..2).map(|_| success(guest.poll_cq(&mut cq)).queue).collect();
    assert!(queues.contains(&first.number) && queues.contains(&second.number));
    assert_eq!(guest.read(buffer + 4096, 4), b"loop");
}
