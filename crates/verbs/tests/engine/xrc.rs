//! Extended reliable connections.

use causeway_verbs::region::{Region, RegionMemory, key_of};
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

const XRC_DOMAIN: u32 = 40;
/// Protection domain of the shared receive queues; that of the queue pairs differs.
const QUEUE_DOMAIN: u32 = DOMAIN;
const TARGET_DOMAIN: u32 = DOMAIN + 1;

/// Returns an initiator on guest 0 and a target on guest 1, which has the shared receive queues 7
/// and 8 of the XRC domain, and 9 of another XRC domain.
fn connect(world: &mut World) -> (End, End) {
    let queue = |number, xrc_domain| XrcQueue {
        number,
        xrc_domain,
        domain: QUEUE_DOMAIN,
        completion_queue: number + 100,
    };
    world.lists(1).xrc_queues =
        vec![queue(7, XRC_DOMAIN), queue(8, XRC_DOMAIN), queue(9, XRC_DOMAIN + 1)];
    let own = Attributes { receive: Receive::None, ..World::attributes() };
    let initiator = world.create(0, Kind::XrcInitiator, own);
    let receive = Receive::XrcDomain(XRC_DOMAIN);
    let attributes = Attributes { domain: TARGET_DOMAIN, receive, ..World::attributes() };
    let target = world.create(1, Kind::XrcTarget, attributes);
    world.ready(initiator, Some(target));
    world.ready(target, Some(initiator));
    (initiator, target)
}

/// Posts a request to a shared receive queue of guest 1.
fn post(world: &mut World, end: End, xrc_queue: u32, operation: Operation, len: u32) -> u16 {
    let segments = vec![world.segment(0, 0, len)];
    let work =
        SendWork { operation, segments, xrc_queue, is_signaled: true, ..SendWork::default() };
    world.post_work(end, work)
}

#[test]
fn verbs_xrc_send_receives_from_the_queue_that_the_request_names() {
    let mut world = World::new(2);
    let (initiator, target) = connect(&mut world);
    let bytes = world.fill(0, 3);
    for (queue, offset) in [(8, 1000), (7, 3000)] {
        let segments = vec![world.segment(1, offset, 100)];
        let receive = world.post_shared(1, ReceiveQueue::Shared(queue), segments);
        let sent = post(&mut world, initiator, queue, Operation::Send, 60);
        assert_eq!(world.run(initiator), Progress::Idle);
        assert_eq!(world.completions(0), [(Status::Success, 60, sent)]);
        let (to, entry) = world.lists(1).completions.pop().unwrap();
        assert_eq!((to, entry.queue_pair, entry.token.index), (queue + 100, target.1, receive));
        let CompletionKind::Receive { source, shared, .. } = entry.kind else { panic!() };
        assert_eq!((source, shared), (initiator.1, Some(queue)));
        assert_eq!(world.read(1, offset, 60), bytes[..60]);
    }
}

#[test]
fn verbs_xrc_requests_use_the_protection_domain_of_the_queue() {
    let mut world = World::new(2);
    let (initiator, _) = connect(&mut world);
    let bytes = world.fill(0, 4);
    // The key is in the domain of the queues, which is not the target's.
    let remote = world.remote(1, 500);
    post(&mut world, initiator, 7, Operation::Write(remote), 100);
    post(&mut world, initiator, 7, Operation::Read(remote), 100);
    let remote = world.remote(1, 504);
    post(&mut world, initiator, 7, Operation::FetchAdd { remote, add: 1 }, 8);
    world.run(initiator);
    assert_eq!(world.statuses(0), [Status::Success; 3]);
    assert_eq!(world.read(1, 512, 88), bytes[12..100]);
    let region = Region {
        domain: TARGET_DOMAIN,
        base: 0,
        len: 0,
        rights: ALL,
        is_free: false,
        variable: 7,
        memory: RegionMemory::Whole,
    };
    let number = world.adapter(1).regions_mut().create(region).unwrap();
    let key = key_of(number, 7);
    let remote = RemoteAddress { address: BASE, key };
    post(&mut world, initiator, 7, Operation::Write(remote), 100);
    world.run(initiator);
    assert_eq!(world.statuses(0), [Status::RemoteAccess]);
}

#[test]
fn verbs_xrc_long_message_keeps_its_queue_over_steps() {
    let mut world = World::new(2);
    let (initiator, _) = connect(&mut world);
    let bytes = world.fill(0, 5);
    let segments = vec![world.segment(1, 0, 300_000)];
    world.post_shared(1, ReceiveQueue::Shared(7), segments);
    post(&mut world, initiator, 7, Operation::Send, 300_000);
    while world.run_with(initiator, &mut Budget::new(1, 50_000)) == Progress::Yielded {}
    assert_eq!(world.statuses(0), [Status::Success]);
    assert_eq!(world.statuses(1), [Status::Success]);
    assert_eq!(world.read(1, 0, 300_000), bytes[..300_000]);
}

#[test]
fn verbs_xrc_queue_of_another_domain_is_an_invalid_request() {
    for queue in [9, 1234] {
        for operation in [Operation::Send, Operation::Write(RemoteAddress::default())] {
            let mut world = World::new(2);
            let (initiator, target) = connect(&mut world);
            let segments = vec![world.segment(1, 0, 100)];
            world.post_shared(1, ReceiveQueue::Shared(9), segments);
            post(&mut world, initiator, queue, operation, 8);
            world.run(initiator);
            assert_eq!(world.statuses(0), [Status::RemoteInvalidRequest]);
            assert!(world.statuses(1).is_empty());
            assert_eq!(world.events(1), [AsyncEvent::InvalidRequest(target.1)]);
            assert_eq!((world.state(initiator), world.state(target)), (State::Error, State::Error));
        }
    }
}

#[test]
fn verbs_xrc_queue_that_is_destroyed_ends_the_message() {
    let mut world = World::new(2);
    let (initiator, target) = connect(&mut world);
    let segments = vec![world.segment(1, 0, 300_000)];
    world.post_shared(1, ReceiveQueue::Shared(7), segments);
    post(&mut world, initiator, 7, Operation::Send, 300_000);
    world.run_with(initiator, &mut Budget::new(1, 50_000));
    world.lists(1).xrc_queues.clear();
    world.run(initiator);
    assert_eq!(world.statuses(0), [Status::RemoteInvalidRequest]);
    assert!(world.statuses(1).is_empty());
    assert_eq!(world.state(target), State::Error);
}

#[test]
fn verbs_xrc_request_without_a_receive_waits() {
    let mut world = World::new(2);
    let (initiator, _) = connect(&mut world);
    post(&mut world, initiator, 7, Operation::Send, 8);
    assert!(matches!(world.run(initiator), Progress::Waiting { .. }));
    let segments = vec![world.segment(1, 0, 8)];
    world.post_shared(1, ReceiveQueue::Shared(7), segments);
    assert_eq!(world.run(initiator), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_xrc_length_error_completes_to_the_queue() {
    let mut world = World::new(2);
    let (initiator, target) = connect(&mut world);
    let segments = vec![world.segment(1, 0, 8)];
    world.post_shared(1, ReceiveQueue::Shared(8), segments);
    post(&mut world, initiator, 8, Operation::Send, 9);
    world.run(initiator);
    assert_eq!(world.statuses(0), [Status::RemoteInvalidRequest]);
    let (to, entry) = world.lists(1).completions[0];
    assert_eq!((to, entry.status), (108, Status::LocalLength));
    assert_eq!(world.state(target), State::Error);
}

#[test]
fn verbs_xrc_initiator_reaches_targets_only() {
    let mut world = World::new(2);
    let (_, target) = connect(&mut world);
    let attributes = Attributes { timeout: 1, retry_count: 0, ..World::attributes() };
    for kind in [Kind::Rc, Kind::XrcInitiator] {
        let own = world.create(0, kind, attributes);
        let other = match kind {
            Kind::Rc => target,
            _ => world.create(1, Kind::Rc, attributes),
        };
        world.ready(own, Some(other));
        if kind == Kind::XrcInitiator {
            world.ready(other, Some(own));
        }
        post(&mut world, own, 7, Operation::Send, 8);
        world.run(own);
        world.now += 1_000_000_000;
        world.run(own);
        assert_eq!(world.statuses(0), [Status::RetryExceeded]);
    }
}
