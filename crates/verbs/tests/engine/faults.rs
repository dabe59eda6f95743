//! Errors of both sides and their effects.

use causeway_verbs::region::{RegionMemory, Rights};
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

/// The effects of a refused request.
#[derive(Debug, PartialEq)]
struct Effects {
    requester: Vec<Status>,
    responder: Vec<Status>,
    events: Vec<AsyncEvent>,
    states: (State, State),
}

/// Returns the effects of a request between connected queue pairs of guests 0 and 1.
fn effects(kind: Kind, prepare: impl FnOnce(&mut World, End, End)) -> Effects {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), kind);
    prepare(&mut world, left, right);
    world.run(left);
    Effects {
        requester: world.statuses(0),
        responder: world.statuses(1),
        events: world.events(1),
        states: (world.state(left), world.state(right)),
    }
}

const BOTH_FAIL: (State, State) = (State::Error, State::Error);

fn refused(right: u32, event: fn(u32) -> AsyncEvent, status: Status) -> Effects {
    let events = vec![event(right)];
    Effects { requester: vec![status], responder: vec![], events, states: BOTH_FAIL }
}

/// The first queue pair of a guest.
const FIRST: u32 = 2;

#[test]
fn verbs_write_needs_remote_right() {
    for rights in [Rights::REMOTE_READ, Rights::LOCAL_WRITE, Rights::REMOTE_ATOMIC] {
        let found = effects(Kind::Rc, |world, left, _| {
            let key = world.register(1, RegionMemory::Whole, 0, rights);
            let remote = RemoteAddress { address: BASE, key };
            world.post(left, Operation::Write(remote), vec![world.segment(0, 0, 8)]);
        });
        assert_eq!(found, refused(FIRST, AsyncEvent::AccessViolation, Status::RemoteAccess));
    }
}

#[test]
fn verbs_responder_that_never_sends_is_due_after_a_fault_of_its_peer() {
    let mut world = World::new(2);
    let left = world.create(0, Kind::Rc, World::attributes());
    let right = world.create(1, Kind::Rc, World::attributes());
    world.ready(left, Some(right));
    let peer = Some(Peer { mac: mac(0), queue_pair: left.1, gid: [0; 16] });
    for state in [State::Init, State::ReadyToReceive] {
        world.modify(right, state, &Change { peer, ..Change::default() });
    }
    world.post_receive(right, vec![world.segment(1, 0, 8)]);
    let remote = RemoteAddress { address: BASE, key: 0x999 };
    world.post(left, Operation::Write(remote), vec![world.segment(0, 0, 8)]);
    assert!(!world.adapter(1).has_failed());
    world.subnet.visit_touched(|_, _| {});
    world.run(left);
    let mut touched = Vec::new();
    world.subnet.visit_touched(|id, _| touched.push(id));
    assert!(touched.contains(&world.ids[1]) && world.adapter(1).has_failed());
    world.run_due(1);
    assert!(!world.adapter(1).has_failed());
    assert_eq!(world.statuses(1), [Status::Flushed]);
}

#[test]
fn verbs_read_needs_remote_right() {
    let found = effects(Kind::Rc, |world, left, _| {
        let rights = Rights::REMOTE_WRITE.union(Rights::LOCAL_READ);
        let key = world.register(1, RegionMemory::Whole, 0, rights);
        let remote = RemoteAddress { address: BASE, key };
        world.post(left, Operation::Read(remote), vec![world.segment(0, 0, 8)]);
    });
    assert_eq!(found, refused(FIRST, AsyncEvent::AccessViolation, Status::RemoteAccess));
}

#[test]
fn verbs_queue_pair_rights_limit_the_peer() {
    for (operation, right) in [(0, Rights::REMOTE_WRITE), (1, Rights::REMOTE_READ)] {
        let found = effects(Kind::Rc, |world, left, right_end| {
            let change = Change { rights: Some(ALL.difference(right)), ..Change::default() };
            world.modify(right_end, State::ReadyToSend, &change);
            let remote = world.remote(1, 0);
            let operation =
                if operation == 0 { Operation::Write(remote) } else { Operation::Read(remote) };
            world.post(left, operation, vec![world.segment(0, 0, 8)]);
        });
        assert_eq!(found, refused(FIRST, AsyncEvent::InvalidRequest, Status::RemoteInvalidRequest));
    }
}

#[test]
fn verbs_region_of_another_domain_is_refused() {
    let found = effects(Kind::Rc, |world, left, _| {
        let key = world.keys[1];
        let region = world.adapter(1).regions_mut().destroy(key >> 8).unwrap();
        let region = region::Region { domain: DOMAIN + 1, ..region };
        let key = region::key_of(world.adapter(1).regions_mut().create(region).unwrap(), 7);
        let remote = RemoteAddress { address: BASE, key };
        world.post(left, Operation::Write(remote), vec![world.segment(0, 0, 8)]);
    });
    assert_eq!(found, refused(FIRST, AsyncEvent::AccessViolation, Status::RemoteAccess));
}

#[test]
fn verbs_remote_range_outside_the_region_or_the_grants_is_refused() {
    for (address, len) in [(0x6fff, 1), (0x7fff, 2), (0x8000, 1), (u64::MAX, 2), (0x7000, 80_000)] {
        let found = effects(Kind::Rc, |world, left, _| {
            let memory = RegionMemory::Pages { shift: 12, pages: vec![BASE], capacity: 1 };
            let key = world.register(1, memory, 0x7000, ALL);
            let remote = RemoteAddress { address, key };
            world.post(left, Operation::Write(remote), vec![world.segment(0, 0, len)]);
        });
        assert_eq!(found, refused(FIRST, AsyncEvent::AccessViolation, Status::RemoteAccess));
    }
    for operation in [Operation::Write, Operation::Read] {
        let found = effects(Kind::Rc, |world, left, _| {
            let remote = world.remote(1, BYTES - 4);
            world.post(left, operation(remote), vec![world.segment(0, 0, 8)]);
        });
        assert_eq!(found, refused(FIRST, AsyncEvent::AccessViolation, Status::RemoteAccess));
    }
}

/// Makes an operation for a world.
type Make<'a> = &'a dyn Fn(&mut World) -> Operation;

#[test]
fn verbs_local_protection_fails_the_requester_only() {
    let write = |world: &mut World| Operation::Write(world.remote(1, 0));
    let read = |world: &mut World| Operation::Read(world.remote(1, 0));
    let send = |_: &mut World| Operation::Send;
    let cases: [(Make<'_>, Rights); 3] =
        [(&write, Rights::LOCAL_WRITE), (&read, Rights::LOCAL_READ), (&send, Rights::LOCAL_WRITE)];
    for (operation, rights) in cases {
        let found = effects(Kind::Rc, |world, left, right| {
            let key = world.register(0, RegionMemory::Whole, 0, rights);
            world.post_receive(right, vec![world.segment(1, 0, 100)]);
            let operation = operation(world);
            world.post(left, operation, vec![Segment { key, address: BASE, len: 8 }]);
        });
        let requester = vec![Status::LocalProtection];
        let states = (State::Error, State::ReadyToSend);
        assert_eq!(found, Effects { requester, responder: vec![], events: vec![], states });
    }
}

#[test]
fn verbs_receive_too_short_fails_both() {
    for len in [9, 100_000] {
        let found = effects(Kind::Rc, |world, left, right| {
            world.post_receive(right, vec![world.segment(1, 0, 8)]);
            world.post(left, Operation::Send, vec![world.segment(0, 0, len)]);
        });
        let requester = vec![Status::RemoteInvalidRequest];
        let responder = vec![Status::LocalLength];
        assert_eq!(found, Effects { requester, responder, events: vec![], states: BOTH_FAIL });
    }
}

#[test]
fn verbs_receive_memory_without_right_fails_both() {
    let found = effects(Kind::Rc, |world, left, right| {
        let key = world.register(1, RegionMemory::Whole, 0, Rights::REMOTE_WRITE);
        world.post_receive(right, vec![Segment { key, address: BASE, len: 64 }]);
        world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    });
    let requester = vec![Status::RemoteOperation];
    let responder = vec![Status::LocalProtection];
    assert_eq!(found, Effects { requester, responder, events: vec![], states: BOTH_FAIL });
}

#[test]
fn verbs_unreliable_responder_ignores_refused_requests() {
    let found = effects(Kind::Uc, |world, left, _| {
        let remote = RemoteAddress { address: BASE, key: 0x9999 };
        world.post(left, Operation::Write(remote), vec![world.segment(0, 0, 8)]);
        world.post(left, Operation::Nop, vec![]);
    });
    let requester = vec![Status::Success; 2];
    let states = (State::ReadyToSend, State::ReadyToSend);
    assert_eq!(found, Effects { requester, responder: vec![], events: vec![], states });
}

#[test]
fn verbs_unreliable_receive_too_short_fails_the_responder_only() {
    let found = effects(Kind::Uc, |world, left, right| {
        world.post_receive(right, vec![world.segment(1, 0, 7)]);
        world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    });
    let (requester, responder) = (vec![Status::Success], vec![Status::LocalLength]);
    let states = (State::ReadyToSend, State::Error);
    assert_eq!(found, Effects { requester, responder, events: vec![], states });
}

#[test]
fn verbs_invalidate_of_a_key_without_right_fails_both() {
    let found = effects(Kind::Rc, |world, left, right| {
        let memory = RegionMemory::Pages { shift: 12, pages: vec![BASE], capacity: 1 };
        let key = world.register(1, memory, 0x7000, ALL.difference(Rights::REMOTE_INVALIDATE));
        world.post_receive(right, vec![]);
        world.post(left, Operation::SendInvalidate(key), vec![]);
    });
    let (requester, responder) = (vec![Status::RemoteAccess], vec![Status::Flushed]);
    let events = vec![AsyncEvent::AccessViolation(FIRST)];
    assert_eq!(found, Effects { requester, responder, events, states: BOTH_FAIL });
}

#[test]
fn verbs_completion_queue_overrun_fails_the_queue_pair() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    world.lists(0).room = 2;
    for _ in 0..5 {
        world.post(left, Operation::Nop, vec![]);
    }
    world.run(left);
    assert_eq!(world.completions(0).len(), 2);
    assert_eq!(world.events(0), [AsyncEvent::CompletionQueueError(1)]);
    assert_eq!(world.state(left), State::Error);
}

#[test]
fn verbs_receive_overrun_fails_the_responder() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.lists(1).room = 0;
    world.post_receive(right, vec![world.segment(1, 0, 64)]);
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    world.run(left);
    assert_eq!(world.events(1), [AsyncEvent::CompletionQueueError(2)]);
    assert_eq!(world.state(right), State::Error);
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_malformed_send_queue_fails_the_queue_pair() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.lists(0).broken_sends.push(left.1);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::LocalQueuePairOperation]);
    assert_eq!(world.events(0), [AsyncEvent::QueuePairFatal(left.1)]);
    assert_eq!((world.state(left), world.state(right)), (State::Error, State::ReadyToSend));
}

#[test]
fn verbs_malformed_receive_queue_fails_both() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.lists(1).broken_receives.push(ReceiveQueue::Own(right.1));
    world.post(left, Operation::Send, vec![world.segment(0, 0, 8)]);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::RemoteOperation]);
    assert_eq!(world.events(1), [AsyncEvent::QueuePairFatal(right.1)]);
    assert_eq!((world.state(left), world.state(right)), BOTH_FAIL);
}

#[test]
fn verbs_key_that_is_invalidated_stops_a_long_message() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    world.post(left, Operation::Write(world.remote(1, 0)), vec![world.segment(0, 0, 500_000)]);
    assert_eq!(world.run_with(left, &mut Budget::new(9, 100_000)), Progress::Yielded);
    let number = world.keys[1] >> 8;
    world.adapter(1).regions_mut().destroy(number).unwrap();
    world.run(left);
    assert_eq!(world.statuses(0), [Status::RemoteAccess]);
    assert_eq!((world.state(left), world.state(right)), BOTH_FAIL);
}
