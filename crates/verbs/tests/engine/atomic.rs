use causeway_verbs::region::{RegionMemory, Rights};
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

#[test]
fn verbs_atomics_change_the_remote_word_and_return_the_old_value() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    world.write(1, 64, &10_u64.to_ne_bytes());
    let remote = world.remote(1, 64);
    let operations = [
        Operation::FetchAdd { remote, add: 5 },
        Operation::CompareSwap { remote, compare: 15, swap: u64::MAX },
        Operation::CompareSwap { remote, compare: 15, swap: 1 },
        Operation::FetchAdd { remote, add: 3 },
    ];
    for (n, operation) in (0..).zip(operations) {
        world.post(left, operation, vec![world.segment(0, n * 8, 8)]);
    }
    world.run(left);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let old: Vec<u64> = world.read(0, 0, 32).chunks(8).map(word).collect();
    assert_eq!(old, [10, 15, u64::MAX, u64::MAX]);
    assert_eq!(word(&world.read(1, 64, 8)), 2);
    assert!(world.completions(0).iter().all(|entry| (entry.0, entry.1) == (Status::Success, 8)));
}

#[test]
fn verbs_unaligned_atomic_is_an_invalid_request() {
    for (base, address, page) in [(0x7000, 0x7004, BASE), (0x7004, 0x7008, BASE + 4)] {
        let mut world = World::new(2);
        let (left, right) = world.connect((0, 1), Kind::Rc);
        let memory = RegionMemory::Pages { shift: 12, pages: vec![page], capacity: 1 };
        let key = world.register(1, memory, base, ALL);
        let remote = RemoteAddress { address, key };
        world.post(left, Operation::FetchAdd { remote, add: 1 }, vec![world.segment(0, 0, 8)]);
        world.run(left);
        assert_eq!(world.statuses(0), [Status::RemoteInvalidRequest]);
        assert_eq!(world.events(1), [AsyncEvent::InvalidRequest(right.1)]);
        assert_eq!(world.state(right), State::Error);
    }
}

#[test]
fn verbs_atomic_needs_rights_of_queue_pair_and_region() {
    let cases = [
        (ALL.difference(Rights::REMOTE_ATOMIC), ALL, Status::RemoteInvalidRequest),
        (ALL, ALL.difference(Rights::REMOTE_ATOMIC), Status::RemoteAccess),
    ];
    for (own, region, status) in cases {
        let mut world = World::new(2);
        let attributes = Attributes { rights: own, ..World::attributes() };
        let (left, _) = world.connect_with((0, 1), Kind::Rc, attributes);
        let key = world.register(1, RegionMemory::Whole, 0, region);
        let remote = RemoteAddress { address: BASE, key };
        world.post(left, Operation::FetchAdd { remote, add: 1 }, vec![world.segment(0, 0, 8)]);
        world.run(left);
        assert_eq!(world.statuses(0), [status]);
        assert_eq!(world.read(1, 0, 8), [0; 8]);
    }
}

#[test]
fn verbs_atomic_result_has_eight_bytes() {
    for len in [0, 4, 7, 9, 16] {
        let mut world = World::new(2);
        let (left, right) = world.connect((0, 1), Kind::Rc);
        let remote = world.remote(1, 0);
        world.post(left, Operation::FetchAdd { remote, add: 1 }, vec![world.segment(0, 0, len)]);
        world.run(left);
        assert_eq!(world.statuses(0), [Status::LocalLength]);
        assert_eq!((world.state(right), world.read(1, 0, 8)), (State::ReadyToSend, vec![0; 8]));
    }
}

#[test]
fn verbs_atomic_result_may_lie_in_two_segments() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    world.write(1, 0, &0x1122_3344_5566_7788_u64.to_ne_bytes());
    let remote = world.remote(1, 0);
    let segments = vec![world.segment(0, 0, 3), world.segment(0, 100, 5)];
    world.post(left, Operation::FetchAdd { remote, add: 1 }, segments);
    world.run(left);
    let old = [world.read(0, 0, 3), world.read(0, 100, 5)].concat();
    assert_eq!(old, 0x1122_3344_5566_7788_u64.to_ne_bytes());
}
