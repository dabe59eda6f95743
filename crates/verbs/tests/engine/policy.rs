//! The rules of a group for traffic between its adapters.

use causeway_verbs::limits::{MULTICAST_QPN, STEP_BYTES_MAX};
use causeway_verbs::policy::{Denial, Policy};
use causeway_verbs::transport::Refusal;
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

/// Denies traffic to an address that would reach an adapter, from another adapter.
#[derive(Debug)]
struct Deny {
    source: [u8; 6],
    destination: [u8; 6],
    receiver: [u8; 6],
}

impl Policy for Deny {
    fn check(&self, source: [u8; 6], to: [u8; 6], receiver: [u8; 6]) -> Result<(), Denial> {
        let is_denied = (source, to, receiver) == (self.source, self.destination, self.receiver);
        if is_denied { Err(Denial::Route(7)) } else { Ok(()) }
    }
}

/// Denies traffic from one guest to another.
fn deny(world: &mut World, from: usize, to: usize) {
    let rule = Deny { source: mac(from), destination: mac(to), receiver: mac(to) };
    world.subnet.set_policy(Some(Box::new(rule)));
}

fn refusal(world: &mut World, end: End) -> Option<Refusal> {
    world.adapter(end.0).queue_pair(end.1).unwrap().refusal()
}

fn write(world: &mut World, from: End, to: usize) -> Progress {
    let operation = Operation::Write(world.remote(to, 0));
    world.post(from, operation, vec![world.segment(from.0, 0, 8)]);
    world.run(from)
}

/// Lets all retries of a queue pair's request expire.
fn expire(world: &mut World, guest: usize) {
    world.now = world.subnet.deadline(world.ids[guest]).unwrap();
    world.run_due(guest);
}

#[test]
fn verbs_policy_cuts_and_restores_a_connection() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    assert_eq!(write(&mut world, left, 1), Progress::Idle);
    deny(&mut world, 0, 1);
    assert!(matches!(write(&mut world, left, 1), Progress::Waiting { .. }));
    assert_eq!(refusal(&mut world, left), Some(Refusal::Denied(Denial::Route(7))));
    // A rule that is removed in time fails no request.
    world.subnet.set_policy(None);
    assert_eq!(world.run(left), Progress::Idle);
    assert_eq!(refusal(&mut world, left), None);
    assert_eq!(world.statuses(0), [Status::Success; 2]);
    deny(&mut world, 0, 1);
    write(&mut world, left, 1);
    expire(&mut world, 0);
    assert_eq!(world.statuses(0), [Status::RetryExceeded]);
}

#[test]
fn verbs_policy_applies_to_responses_of_reliable_connections() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let (unreliable, _) = world.connect((0, 1), Kind::Uc);
    deny(&mut world, 1, 0);
    for end in [left, right] {
        assert!(matches!(write(&mut world, end, 1 - end.0), Progress::Waiting { .. }));
    }
    assert_eq!(refusal(&mut world, left), Some(Refusal::ResponseDenied(Denial::Route(7))));
    assert_eq!(refusal(&mut world, right), Some(Refusal::Denied(Denial::Route(7))));
    world.write(0, 0, b"unrelied");
    assert_eq!(write(&mut world, unreliable, 1), Progress::Idle);
    assert_eq!(world.read(1, 0, 8), b"unrelied", "the message needs no response");
}

#[test]
fn verbs_policy_cuts_a_message_in_progress() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let len = 2 * STEP_BYTES_MAX as u32;
    world.post(left, Operation::Send, vec![world.segment(0, 0, len)]);
    world.post_receive(right, vec![world.segment(1, 0, len)]);
    let mut budget = Budget::new(1, STEP_BYTES_MAX);
    assert_eq!(world.run_with(left, &mut budget), Progress::Yielded);
    deny(&mut world, 0, 1);
    assert!(matches!(world.run(left), Progress::Waiting { .. }));
    expire(&mut world, 0);
    assert_eq!(world.statuses(0), [Status::RetryExceeded]);
    world.run_due(1);
    assert_eq!(world.statuses(1), [Status::Flushed], "the rest of the message never comes");
}

#[test]
fn verbs_policy_drops_denied_datagrams() {
    let mut world = World::new(3);
    let ends: Vec<End> = (0..3)
        .map(|guest| {
            let end = world.create(guest, Kind::Ud, World::attributes());
            world.ready(end, None);
            world.post_receive(end, vec![world.segment(guest, 0, 200)]);
            end
        })
        .collect();
    let gid = [0xff; 16];
    for end in &ends[1..] {
        world.subnet.attach_multicast(world.ids[end.0], end.1, gid).unwrap();
    }
    let send = |world: &mut World, mac, queue_pair, gid| {
        let queue_key = QUEUE_KEY;
        let to = AddressVector { mac, queue_pair, queue_key, gid, ..AddressVector::default() };
        let segments = vec![world.segment(0, 0, 10)];
        let (operation, destination) = (Operation::Send, Some(to));
        world.post_work(
            ends[0],
            SendWork { operation, segments, destination, ..SendWork::default() },
        );
        world.run(ends[0]);
    };
    deny(&mut world, 0, 1);
    send(&mut world, mac(1), ends[1].1, [0; 16]);
    assert_eq!(world.adapter(0).counters().unroutable, 1);
    assert_eq!(refusal(&mut world, ends[0]), Some(Refusal::Denied(Denial::Route(7))));
    // The address in the work request does not select the rule of a multicast group.
    let destination = [0x33, 0x33, 0xff, 0xff, 0xff, 0xff];
    let rule = Deny { source: mac(0), destination, receiver: mac(1) };
    world.subnet.set_policy(Some(Box::new(rule)));
    send(&mut world, mac(2), MULTICAST_QPN, gid);
    assert_eq!(world.adapter(0).counters().unroutable, 2);
    assert!(world.statuses(1).is_empty());
    assert_eq!(world.statuses(2), [Status::Success]);
}
