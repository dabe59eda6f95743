//! Responders that are not ready or do not answer.

use causeway_verbs::region::RegionMemory;
use causeway_verbs::transport::Refusal;
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

#[test]
fn verbs_send_waits_for_a_receive_and_continues_at_once() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    world.post(left, Operation::Nop, vec![]);
    assert_eq!(world.run(left), Progress::Waiting { until_ns: None });
    assert!(world.completions(0).is_empty());
    world.post_receive(right, vec![world.segment(1, 0, 8)]);
    assert_eq!(world.run(left), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success; 2]);
    assert_eq!(world.adapter(0).counters().not_ready, 1);
}

#[test]
fn verbs_request_beyond_the_limit_of_waiting_requests_fails_at_once() {
    let mut world = World::with_waiting(2, 2);
    let pairs: Vec<_> = (0..4).map(|_| world.connect((0, 1), Kind::Rc)).collect();
    let send = |world: &mut World, number: usize| {
        let segment = world.segment(0, 0, 8);
        world.post(pairs[number].0, Operation::Send, vec![segment]);
        world.run(pairs[number].0)
    };
    for number in 0..2 {
        assert_eq!(send(&mut world, number), Progress::Waiting { until_ns: None });
    }
    assert_eq!(world.adapter(0).waiting_requests(), (2, 2));
    send(&mut world, 2);
    assert_eq!(world.statuses(0), [Status::ReceiverNotReadyExceeded]);
    assert_eq!(
        (world.state(pairs[2].0), world.adapter(0).counters().not_waited),
        (State::Error, 1)
    );
    // The end of each kind of wait leaves room.
    let segment = world.segment(1, 0, 8);
    world.post_receive(pairs[0].1, vec![segment]);
    world.run(pairs[0].0);
    assert_eq!(world.statuses(0), [Status::Success]);
    assert_eq!(world.adapter(0).waiting_requests(), (1, 2));
    world.subnet.destroy_queue_pair(world.ids[0], pairs[1].0.1).unwrap();
    assert_eq!(world.adapter(0).waiting_requests(), (0, 2));
    assert_eq!(send(&mut world, 3), Progress::Waiting { until_ns: None });
    drop(world.subnet.clear(world.ids[0]));
    assert_eq!(world.adapter(0).waiting_requests(), (0, 2));
}

#[test]
fn verbs_retry_of_a_waiting_request_takes_a_message() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    let mut budget = Budget::new(3, 1 << 20);
    for messages in [2, 1, 0] {
        assert_eq!(world.run_with(left, &mut budget), Progress::Waiting { until_ns: None });
        assert_eq!(budget.messages(), messages);
    }
    world.post_receive(right, vec![world.segment(1, 0, 8)]);
    assert_eq!(world.run_with(left, &mut budget), Progress::Yielded);
    assert!(world.completions(0).is_empty());
    assert_eq!(world.run(left), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_retry_without_a_receive_does_not_look_up_the_payload() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let key = world.register(0, RegionMemory::Whole, 0, ALL);
    world.post(left, Operation::Send, vec![Segment { key, address: BASE, len: 8 }]);
    assert_eq!(world.run(left), Progress::Waiting { until_ns: None });
    world.adapter(0).regions_mut().destroy(key >> 8).unwrap();
    assert_eq!(world.run(left), Progress::Waiting { until_ns: None });
    world.post_receive(right, vec![world.segment(1, 0, 8)]);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::LocalProtection]);
    world.run_due(1);
    assert_eq!(world.statuses(1), [Status::Flushed]);
}

#[test]
fn verbs_receiver_not_ready_retries_take_the_responders_time() {
    let mut world = World::new(2);
    let attributes = Attributes { rnr_retry: 3, min_rnr_timer: 12, ..World::attributes() };
    let (left, right) = world.connect_with((0, 1), Kind::Rc, attributes);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    let end = world.now + 3 * 640_000;
    assert_eq!(world.run(left), Progress::Waiting { until_ns: Some(end) });
    assert_eq!(world.subnet.deadline(world.ids[0]), Some(end));
    world.now = end - 1;
    assert_eq!(world.subnet.next_due(world.ids[0], world.now), None);
    assert_eq!(world.run(left), Progress::Waiting { until_ns: Some(end) });
    world.now = end;
    world.run_due(0);
    assert_eq!(world.statuses(0), [Status::ReceiverNotReadyExceeded]);
    assert_eq!((world.state(left), world.state(right)), (State::Error, State::ReadyToSend));
    assert_eq!(world.subnet.deadline(world.ids[0]), None);
}

#[test]
fn verbs_no_retry_without_a_receive_fails_at_once() {
    let mut world = World::new(2);
    let attributes = Attributes { rnr_retry: 0, ..World::attributes() };
    let (left, _) = world.connect_with((0, 1), Kind::Rc, attributes);
    world.post(left, Operation::WriteImmediate(world.remote(1, 0), 1), vec![]);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::ReceiverNotReadyExceeded]);
}

#[test]
fn verbs_deadline_ends_when_the_receive_comes() {
    let mut world = World::new(2);
    let attributes = Attributes { rnr_retry: 1, ..World::attributes() };
    let (left, right) = world.connect_with((0, 1), Kind::Rc, attributes);
    world.post(left, Operation::Send, vec![]);
    world.run(left);
    assert!(world.subnet.deadline(world.ids[0]).is_some());
    world.post_receive(right, vec![]);
    world.run(left);
    assert_eq!(world.subnet.deadline(world.ids[0]), None);
}

#[test]
fn verbs_foreign_address_exceeds_the_retries() {
    let mut world = World::new(2);
    let left = world.create(0, Kind::Rc, World::attributes());
    world.ready(left, Some((77, 3)));
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    let end = world.now + (4096 << 14) * 8;
    assert_eq!(world.run(left), Progress::Waiting { until_ns: Some(end) });
    let refusal = world.adapter(0).queue_pair(left.1).unwrap().refusal();
    assert_eq!(refusal, Some(Refusal::NotOnThisHost));
    world.now = end;
    world.run_due(0);
    assert_eq!(world.statuses(0), [Status::RetryExceeded]);
}

#[test]
fn verbs_responder_must_receive_and_name_the_requester() {
    let mut world = World::new(3);
    let left = world.create(0, Kind::Rc, World::attributes());
    let right = world.create(1, Kind::Rc, World::attributes());
    world.ready(left, Some(right));
    let write = Operation::Write(world.remote(1, 0));
    world.post(left, write.clone(), vec![world.segment(0, 0, 8)]);
    assert!(matches!(world.run(left), Progress::Waiting { .. }));
    // A queue pair that is connected with another is not reached either.
    world.ready(right, Some((2, left.1)));
    assert!(matches!(world.run(left), Progress::Waiting { .. }));
    let refusal = world.adapter(0).queue_pair(left.1).unwrap().refusal();
    assert_eq!(refusal, Some(Refusal::NotConnected));
    world.modify(right, State::Reset, &Change::default());
    world.ready(right, Some(left));
    assert_eq!(world.run(left), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_unreliable_message_without_a_responder_is_lost() {
    let mut world = World::new(1);
    let left = world.create(0, Kind::Uc, World::attributes());
    world.ready(left, Some((5, 5)));
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    assert_eq!(world.run(left), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_removed_adapter_does_not_answer() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.post_receive(right, vec![world.segment(1, 0, 500_000)]);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 500_000)]);
    assert_eq!(world.run_with(left, &mut Budget::new(9, 1000)), Progress::Yielded);
    assert!(world.subnet.remove(world.ids[1]).is_some());
    assert!(world.subnet.remove(world.ids[1]).is_none());
    assert!(matches!(world.run(left), Progress::Waiting { until_ns: Some(_) }));
    world.now += 1 << 40;
    world.run_due(0);
    assert_eq!(world.statuses(0), [Status::RetryExceeded]);
}

#[test]
fn verbs_responder_that_resets_during_a_message_does_not_answer() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.post_receive(right, vec![world.segment(1, 0, 500_000)]);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 500_000)]);
    assert_eq!(world.run_with(left, &mut Budget::new(9, 1000)), Progress::Yielded);
    world.modify(right, State::Reset, &Change::default());
    world.ready(right, Some(left));
    world.post_receive(right, vec![world.segment(1, 0, 500_000)]);
    assert!(matches!(world.run(left), Progress::Waiting { .. }));
    assert_eq!(world.lists(1).posted(ReceiveQueue::Own(right.1)), 1);
    assert!(world.statuses(1).is_empty());
}
