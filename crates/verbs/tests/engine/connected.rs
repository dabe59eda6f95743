use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

#[test]
fn verbs_write_copies_and_completes_at_the_requester_only() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let bytes = world.fill(0, 1);
    let index = world.post(
        left,
        Operation::Write(world.remote(1, 500)),
        vec![world.segment(0, 10, 100), world.segment(0, 300, 50)],
    );
    assert_eq!(world.run(left), Progress::Idle);
    assert_eq!(world.completions(0), [(Status::Success, 150, index)]);
    assert!(world.completions(1).is_empty());
    assert_eq!(world.read(1, 500, 150), [&bytes[10..110], &bytes[300..350]].concat());
    assert_eq!(world.read(1, 650, 10), [0; 10]);
    assert_eq!(world.state(right), State::ReadyToSend);
    let counters = world.adapter(0).counters();
    assert_eq!((counters.requests, counters.request_bytes), (1, 150));
}

#[test]
fn verbs_unsignaled_success_makes_no_completion_and_an_error_does() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    for key in [world.keys[1], 0x1234] {
        let remote = RemoteAddress { address: BASE, key };
        let segments = vec![world.segment(0, 0, 8)];
        let operation = Operation::Write(remote);
        world.post_work(left, SendWork { operation, segments, ..SendWork::default() });
    }
    world.run(left);
    assert_eq!(world.statuses(0), [Status::RemoteAccess]);
}

#[test]
fn verbs_signals_all_makes_a_completion_for_each_request() {
    let mut world = World::new(2);
    let attributes = Attributes { signals_all: true, ..World::attributes() };
    let (left, _) = world.connect_with((0, 1), Kind::Rc, attributes);
    world.post_work(left, SendWork::default());
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_read_fills_the_requesters_segments() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    let bytes = world.fill(1, 9);
    world.post(
        left,
        Operation::Read(world.remote(1, 777)),
        vec![world.segment(0, 5, 3), world.segment(0, 100, 4000)],
    );
    world.run(left);
    assert_eq!(world.completions(0)[0].1, 4003);
    assert_eq!(world.read(0, 5, 3), bytes[777..780]);
    assert_eq!(world.read(0, 100, 4000), bytes[780..4780]);
}

#[test]
fn verbs_send_fills_receive_segments_in_order() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let bytes = world.fill(0, 3);
    let segments = vec![world.segment(1, 0, 0), world.segment(1, 10, 7), world.segment(1, 50, 90)];
    let receive = world.post_receive(right, segments);
    let operation = Operation::SendImmediate(0xdead);
    let segments = vec![world.segment(0, 40, 20)];
    let work = SendWork { operation, segments, is_solicited: true, ..SendWork::default() };
    world.post_work(left, work);
    world.run(left);
    assert_eq!(world.read(1, 10, 7), bytes[40..47]);
    assert_eq!(world.read(1, 50, 13), bytes[47..60]);
    let (queue, entry) = world.lists(1).completions[0];
    let data = ReceivedData::Immediate(0xdead);
    let kind = CompletionKind::Receive { data, source: left.1, network: None, shared: None };
    assert_eq!((queue, entry.kind, entry.bytes, entry.token.index), (2, kind, 20, receive));
    assert!(entry.is_solicited && entry.status == Status::Success && entry.queue_pair == right.1);
}

#[test]
fn verbs_write_immediate_consumes_a_receive_and_not_its_memory() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let bytes = world.fill(0, 3);
    world.post_receive(right, vec![]);
    let operation = Operation::WriteImmediate(world.remote(1, 64), 42);
    world.post(left, operation, vec![world.segment(0, 0, 1000)]);
    world.run(left);
    assert_eq!(world.read(1, 64, 1000), bytes[..1000]);
    let (_, entry) = world.lists(1).completions[0];
    let CompletionKind::Receive { data, .. } = entry.kind else { panic!("{entry:?}") };
    assert_eq!((data, entry.bytes), (ReceivedData::WriteImmediate(42), 1000));
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_inline_payload_is_sent() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.post_receive(right, vec![world.segment(1, 0, 3), world.segment(1, 100, 30)]);
    for operation in [Operation::Send, Operation::Write(world.remote(1, 4096))] {
        let inline = b"inline payload".to_vec();
        let is_inline = true;
        world.post_work(left, SendWork { operation, inline, is_inline, ..SendWork::default() });
    }
    world.run(left);
    assert_eq!(world.read(1, 0, 3), b"inl");
    assert_eq!(world.read(1, 100, 11), b"ine payload");
    assert_eq!(world.read(1, 4096, 14), b"inline payload");
    assert_eq!(world.completions(1)[0].1, 14);
}

#[test]
fn verbs_inline_payload_precedes_that_of_memory() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let bytes = world.fill(0, 3);
    world.post_receive(right, vec![world.segment(1, 0, 10), world.segment(1, 100, 3000)]);
    for operation in [Operation::Send, Operation::Write(world.remote(1, 4096))] {
        let segments = vec![world.segment(0, 64, 1000), world.segment(0, 3000, 500)];
        let inline = b"header of 20 bytes..".to_vec();
        let (is_inline, is_signaled) = (true, true);
        let work = SendWork { operation, segments, inline, is_inline, ..SendWork::default() };
        world.post_work(left, SendWork { is_signaled, ..work });
    }
    world.run(left);
    let expected = [b"header of 20 bytes..", &bytes[64..1064], &bytes[3000..3500]].concat();
    assert_eq!(world.read(1, 0, 10), expected[..10]);
    assert_eq!(world.read(1, 100, 1510), expected[10..]);
    assert_eq!(world.read(1, 4096, 1520), expected);
    assert_eq!(world.completions(1)[0].1, 1520);
    assert_eq!(world.statuses(0), [Status::Success; 2]);
}

#[test]
fn verbs_memory_behind_inline_payload_is_checked_before_a_receive_is_taken() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.post_receive(right, vec![world.segment(1, 0, 3000)]);
    let mut segment = world.segment(0, 64, 1000);
    segment.key ^= 0xff;
    let (inline, is_inline, segments) = (b"header".to_vec(), true, vec![segment]);
    let operation = Operation::Send;
    let work = SendWork { operation, segments, inline, is_inline, ..SendWork::default() };
    world.post_work(left, work);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::LocalProtection]);
    assert!(world.lists(1).completions.is_empty());
}

#[test]
fn verbs_zero_length_needs_no_key() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let nowhere = RemoteAddress { address: u64::MAX, key: 0xffff_ffff };
    let empty = Segment { key: 0xffff_ffff, address: u64::MAX, len: 0 };
    world.post_receive(right, vec![]);
    for operation in [Operation::Write(nowhere), Operation::Read(nowhere), Operation::Send] {
        world.post(left, operation, vec![empty; 3]);
    }
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success; 3]);
    assert_eq!(world.completions(1).len(), 1);
}

#[test]
fn verbs_loopback_to_another_and_the_same_queue_pair() {
    let mut world = World::new(1);
    let (left, right) = world.connect((0, 0), Kind::Rc);
    let own = world.create(0, Kind::Rc, World::attributes());
    world.ready(own, Some(own));
    let bytes = world.fill(0, 7);
    for (from, to, offset) in [(left, right, 100_000), (own, own, 200_000)] {
        world.post_receive(to, vec![world.segment(0, offset, 512)]);
        world.post(from, Operation::Send, vec![world.segment(0, 0, 512)]);
        let write = Operation::Write(world.remote(0, offset + 4096));
        world.post(from, write, vec![world.segment(0, 512, 80_000)]);
        assert_eq!(world.run(from), Progress::Idle);
        assert_eq!(world.statuses(0), [Status::Success; 3]);
        assert_eq!(world.read(0, offset, 512), bytes[..512]);
        assert_eq!(world.read(0, offset + 4096, 80_000), bytes[512..80_512]);
    }
}

#[test]
fn verbs_refused_loopback_to_the_same_queue_pair_fails_once() {
    let mut world = World::new(1);
    let own = world.create(0, Kind::Rc, World::attributes());
    world.ready(own, Some(own));
    world.post_receive(own, vec![world.segment(0, 0, 4)]);
    world.post(own, Operation::Send, vec![world.segment(0, 0, 8)]);
    world.post(own, Operation::Nop, vec![]);
    world.run(own);
    world.run_due(0);
    let expected = [Status::LocalLength, Status::RemoteInvalidRequest, Status::Flushed];
    assert_eq!(world.statuses(0), expected);
    assert_eq!(world.state(own), State::Error);
}

#[test]
fn verbs_unreliable_connection_sends_and_loses_without_a_receive() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Uc);
    let bytes = world.fill(0, 7);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 10)]);
    world.run(left);
    world.post_receive(right, vec![world.segment(1, 0, 10)]);
    world.post(left, Operation::Send, vec![world.segment(0, 10, 10)]);
    world.post(left, Operation::Write(world.remote(1, 20)), vec![world.segment(0, 20, 10)]);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success; 3]);
    assert_eq!(world.statuses(1), [Status::Success]);
    assert_eq!(world.read(1, 0, 10), bytes[10..20]);
    assert_eq!(world.read(1, 20, 10), bytes[20..30]);
    for operation in [Operation::Read(world.remote(1, 0)), Operation::SendInvalidate(1)] {
        world.post_receive(right, vec![]);
        world.post(left, operation, vec![world.segment(0, 0, 10)]);
        world.run(left);
        assert_eq!(world.statuses(0), [Status::LocalQueuePairOperation]);
        assert_eq!(world.state(left), State::SendQueueError);
        world.modify(left, State::ReadyToSend, &Change::default());
    }
}

#[test]
fn verbs_long_message_in_small_budgets_equals_a_single_call() {
    let mut results = Vec::new();
    for budget in [1 << 30, 70_000, 4_097, 999] {
        let mut world = World::new(2);
        let (left, right) = world.connect((0, 1), Kind::Rc);
        let bytes = world.fill(0, 7);
        world.post_receive(right, (0..50).map(|n| world.segment(1, n * 5000, 4999)).collect());
        let segments = (0..37).map(|n| world.segment(0, n * 6001, 6000)).collect();
        world.post(left, Operation::Send, segments);
        let remote = world.remote(1, 300_000);
        world.post(left, Operation::Write(remote), vec![world.segment(0, 0, 200_000)]);
        let mut calls = 0;
        while world.run_with(left, &mut Budget::new(10, budget)) == Progress::Yielded {
            calls += 1;
            assert!(calls < 500);
        }
        assert!(calls >= 422_000 / budget, "{calls} calls");
        assert_eq!(world.read(1, 300_000, 200_000), bytes[..200_000]);
        let memory = world.read(1, 0, BYTES as usize);
        results.push((memory, world.statuses(0), world.completions(1)));
    }
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn verbs_messages_of_a_budget_are_counted() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    for _ in 0..10 {
        world.post(left, Operation::Nop, vec![]);
    }
    let mut budget = Budget::new(4, 1000);
    assert_eq!(world.run_with(left, &mut budget), Progress::Yielded);
    assert_eq!(world.completions(0).len(), 4);
    assert!(budget.is_spent());
}

#[test]
fn verbs_send_with_invalidate_frees_the_responders_key() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let pages = vec![BASE];
    let memory = region::RegionMemory::Pages { shift: 12, pages, capacity: 1 };
    let key = world.register(1, memory, 0x7000, ALL);
    world.post_receive(right, vec![]);
    world.post(left, Operation::SendInvalidate(key), vec![]);
    let remote = RemoteAddress { address: 0x7000, key };
    world.post(left, Operation::Write(remote), vec![world.segment(0, 0, 8)]);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success, Status::RemoteAccess]);
    let CompletionKind::Receive { data, .. } = world.lists(1).completions[0].1.kind else {
        panic!("no receive completion")
    };
    assert_eq!(data, ReceivedData::Invalidated(key));
}

#[test]
fn verbs_shared_receive_queue_serves_several_and_reports_its_limit_once() {
    let mut world = World::new(3);
    let receive = Receive::Shared { number: 9, domain: DOMAIN };
    let shared = Attributes { receive, ..World::attributes() };
    let ends: Vec<(End, End)> =
        (1..3).map(|guest| world.connect_with((guest, 0), Kind::Rc, shared)).collect();
    let queue = ReceiveQueue::Shared(9);
    for n in 0..5 {
        world.post_shared(0, queue, vec![world.segment(0, n * 64, 64)]);
    }
    world.adapter(0).arm_shared_limit(9, 3);
    for n in 0..4 {
        let (from, to) = ends[n % 2];
        world.post(from, Operation::Send, vec![world.segment(from.0, 0, 64)]);
        world.run(from);
        let (_, entry) = *world.lists(0).completions.last().unwrap();
        let CompletionKind::Receive { shared, .. } = entry.kind else { panic!("{entry:?}") };
        assert_eq!((entry.queue_pair, shared), (to.1, Some(9)));
    }
    assert_eq!(world.events(0), [AsyncEvent::SharedReceiveLimit(9)]);
}

#[test]
fn verbs_first_message_before_ready_to_send_is_reported_once() {
    let mut world = World::new(2);
    let left = world.create(0, Kind::Rc, World::attributes());
    let right = world.create(1, Kind::Rc, World::attributes());
    world.ready(left, Some(right));
    let peer = Some(Peer { mac: mac(0), queue_pair: left.1, gid: [0; 16] });
    let change = Change { peer, ..Change::default() };
    let write = Operation::Write(world.remote(1, 0));
    let read = Operation::Read(world.remote(1, 0));
    let add = Operation::FetchAdd { remote: world.remote(1, 0), add: 1 };
    for operation in [write, read, Operation::Send, add] {
        world.modify(right, State::Reset, &change);
        world.modify(right, State::Init, &change);
        world.modify(right, State::ReadyToReceive, &change);
        for _ in 0..2 {
            world.post_receive(right, vec![world.segment(1, 0, 8)]);
            world.post(left, operation.clone(), vec![world.segment(0, 0, 8)]);
        }
        assert_eq!(world.run(left), Progress::Idle);
        assert_eq!(world.events(1), [AsyncEvent::CommunicationEstablished(right.1)]);
    }
}
