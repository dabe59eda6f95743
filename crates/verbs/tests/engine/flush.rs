use causeway_verbs::limits::RETIRED_MAX;
use causeway_verbs::region::{RegionMemory, Rights};
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

#[test]
fn verbs_error_state_flushes_both_queues_in_order() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let sends: Vec<u16> = (0..3).map(|_| world.post(right, Operation::Send, vec![])).collect();
    let receives: Vec<u16> = (0..3).map(|_| world.post_receive(right, vec![])).collect();
    world.modify(right, State::Error, &Change::default());
    world.run_due(1);
    let entries = world.completions(1);
    assert!(entries.iter().all(|entry| (entry.0, entry.1) == (Status::Flushed, 0)));
    let order: Vec<u16> = entries.iter().map(|entry| entry.2).collect();
    assert_eq!(order, [sends, receives].concat());
    // Work that is posted later is flushed too.
    world.post_receive(right, vec![]);
    assert_eq!(world.run(right), Progress::Idle);
    assert_eq!(world.statuses(1), [Status::Flushed]);
    assert_eq!(world.adapter(1).counters().flushed, 7);
    assert_eq!(world.state(left), State::ReadyToSend);
}

#[test]
fn verbs_flush_resumes_over_small_budgets() {
    let mut world = World::new(1);
    let (left, _) = world.connect((0, 0), Kind::Rc);
    for _ in 0..10 {
        world.post(left, Operation::Nop, vec![]);
    }
    for _ in 0..10 {
        world.post_receive(left, vec![]);
    }
    world.modify(left, State::Error, &Change::default());
    let mut calls = 1;
    while world.run_with(left, &mut Budget::new(3, 1)) == Progress::Yielded {
        calls += 1;
        assert!(calls < 20);
    }
    assert_eq!((calls, world.completions(0).len()), (7, 20));
}

#[test]
fn verbs_waiting_request_is_flushed() {
    let mut world = World::new(2);
    let attributes = Attributes { rnr_retry: 1, ..World::attributes() };
    let (left, _) = world.connect_with((0, 1), Kind::Rc, attributes);
    let index = world.post(left, Operation::Send, vec![]);
    world.run(left);
    world.modify(left, State::Error, &Change::default());
    world.run_due(0);
    assert_eq!(world.completions(0), [(Status::Flushed, 0, index)]);
    assert_eq!(world.subnet.deadline(world.ids[0]), None);
}

/// Returns a world where a send of 500,000 bytes has begun.
fn begun() -> (World, End, End, u16) {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let first = world.post_receive(right, vec![world.segment(1, 0, 500_000)]);
    world.post_receive(right, vec![world.segment(1, 0, 500_000)]);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 500_000)]);
    assert_eq!(world.run_with(left, &mut Budget::new(9, 1000)), Progress::Yielded);
    (world, left, right, first)
}

#[test]
fn verbs_cut_message_flushes_its_receive_first() {
    let (mut world, left, right, first) = begun();
    world.modify(left, State::Error, &Change::default());
    world.run_due(0);
    assert_eq!(world.statuses(0), [Status::Flushed]);
    world.run_due(1);
    let entries = world.completions(1);
    assert_eq!(entries[0], (Status::Flushed, 0, first));
    assert_eq!(entries.len(), 2);
    assert_eq!(world.state(right), State::Error);
}

#[test]
fn verbs_destroyed_requester_ends_its_message() {
    for remove_adapter in [false, true] {
        let (mut world, left, right, first) = begun();
        if remove_adapter {
            assert!(world.subnet.remove(world.ids[0]).is_some());
        } else {
            world.subnet.destroy_queue_pair(world.ids[0], left.1).unwrap();
        }
        world.run_due(1);
        assert_eq!(world.completions(1)[0], (Status::Flushed, 0, first));
        assert_eq!(world.state(right), State::Error);
    }
}

#[test]
fn verbs_reset_ends_messages_in_bounded_steps() {
    const PAIRS: usize = 20;
    let mut world = World::new(2);
    let mut ends = Vec::new();
    for _ in 0..PAIRS {
        let (left, right) = world.connect((0, 1), Kind::Rc);
        world.post_receive(right, vec![world.segment(1, 0, 500_000)]);
        world.post(left, Operation::Send, vec![world.segment(0, 0, 500_000)]);
        assert_eq!(world.run_with(left, &mut Budget::new(9, 1000)), Progress::Yielded);
        ends.push((left, right));
    }
    let id = world.ids[0];
    assert!(world.subnet.clear(id).is_none(), "messages are left");
    assert!(world.adapter(0).has_unfinished());
    assert_eq!(world.adapter(0).queue_pairs().count() + world.adapter(0).regions().len(), 0);
    // The numbers of before name nothing, also while messages are left.
    assert_eq!(world.run(ends[0].0), Progress::Stopped);
    let mut ended = 0;
    while world.subnet.cut_retired(id, 3).is_none() {
        world.run_due(1);
        let entries = world.completions(1);
        assert!(entries.len() <= 3 && entries.iter().all(|entry| entry.0 == Status::Flushed));
        ended += entries.len();
        assert!(!entries.is_empty() && world.adapter(0).has_unfinished());
    }
    world.run_due(1);
    assert_eq!(ended + world.completions(1).len(), PAIRS);
    assert!(!world.adapter(0).has_unfinished());
    assert!(ends.iter().all(|(_, right)| world.state(*right) == State::Error));
    assert!(world.subnet.clear(id).is_some(), "no message is left");
}

#[test]
fn verbs_resets_in_quick_succession_keep_a_bounded_number_of_objects() {
    let (mut world, _, right, first) = begun();
    let id = world.ids[0];
    let mut kept = usize::from(world.subnet.clear(id).is_none());
    for _ in 0..10 {
        let (left, other) = world.connect((0, 1), Kind::Rc);
        world.post_receive(other, vec![world.segment(1, 0, 500_000)]);
        world.keys[0] = world.register(0, RegionMemory::Whole, 0, Rights::LOCAL_READ);
        world.post(left, Operation::Send, vec![world.segment(0, 0, 500_000)]);
        assert_eq!(world.run_with(left, &mut Budget::new(9, 1000)), Progress::Yielded);
        kept += usize::from(world.subnet.clear(id).is_none());
    }
    assert_eq!(kept, 11);
    // The oldest was ended by a later reset.
    world.run_due(1);
    assert!(world.completions(1).contains(&(Status::Flushed, 0, first)));
    assert_eq!(world.state(right), State::Error);
    let left = std::iter::from_fn(|| world.subnet.cut_retired(id, usize::MAX)).count();
    assert!(left <= RETIRED_MAX, "{left} resets are kept");
}

#[test]
fn verbs_failed_responder_flushes_in_order_and_does_not_answer() {
    let (mut world, left, right, first) = begun();
    world.modify(right, State::Error, &Change::default());
    assert!(matches!(world.run(left), Progress::Waiting { .. }));
    world.run_due(1);
    let entries = world.completions(1);
    assert_eq!((entries.len(), entries[0]), (2, (Status::Flushed, 0, first)));
    world.now += 1 << 40;
    world.run_due(0);
    assert_eq!(world.statuses(0), [Status::RetryExceeded]);
}

#[test]
fn verbs_reset_forgets_work_in_progress() {
    let (mut world, left, right, _) = begun();
    world.modify(right, State::Reset, &Change::default());
    world.lists(1).receives.clear();
    world.modify(left, State::Reset, &Change::default());
    world.ready(left, Some(right));
    world.ready(right, Some(left));
    world.run(left);
    world.run_due(0);
    world.run_due(1);
    assert!(world.statuses(0).is_empty() && world.statuses(1).is_empty());
    world.post_receive(right, vec![world.segment(1, 0, 8)]);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    world.run(left);
    assert_eq!(
        (world.statuses(0), world.statuses(1)),
        (vec![Status::Success], vec![Status::Success])
    );
}

#[test]
fn verbs_shared_receive_queue_is_not_flushed_and_the_last_is_reported() {
    let mut world = World::new(2);
    let receive = Receive::Shared { number: 3, domain: DOMAIN };
    let attributes = Attributes { receive, ..World::attributes() };
    let (left, _) = world.connect_with((0, 1), Kind::Rc, attributes);
    world.post_shared(0, ReceiveQueue::Shared(3), vec![]);
    world.modify(left, State::Error, &Change::default());
    world.run_due(0);
    world.run(left);
    assert_eq!(world.events(0), [AsyncEvent::LastWorkRequest(left.1)]);
    assert!(world.statuses(0).is_empty());
    assert_eq!(world.lists(0).posted(ReceiveQueue::Shared(3)), 1);
}

#[test]
fn verbs_drained_queue_pair_finishes_the_message_in_progress() {
    let (mut world, left, right, _) = begun();
    world.post(left, Operation::Nop, vec![]);
    world.modify(left, State::Drained, &Change::default());
    assert!(world.events(0).is_empty());
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success]);
    assert_eq!(world.events(0), [AsyncEvent::SendQueueDrained(left.1)]);
    world.modify(left, State::ReadyToSend, &Change::default());
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success]);
    world.modify(right, State::Drained, &Change::default());
    assert_eq!(world.events(1), [AsyncEvent::SendQueueDrained(right.1)]);
}

#[test]
fn verbs_broken_queues_end_a_flush() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    world.lists(0).broken_sends.push(left.1);
    world.lists(0).broken_receives.push(ReceiveQueue::Own(left.1));
    world.modify(left, State::Error, &Change::default());
    assert_eq!(world.run(left), Progress::Idle);
    assert!(world.events(0).is_empty() && world.statuses(0).is_empty());
}
