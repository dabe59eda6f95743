//! Work requests that no driver posts.

use causeway_verbs::limits::*;
use causeway_verbs::region::RegionMemory;
use causeway_verbs::work::*;
use causeway_verbs::*;
use proptest::prelude::*;

use crate::testing::*;

#[test]
fn verbs_message_above_the_limit_is_refused() {
    for len in [u32::MAX, (MESSAGE_BYTES_MAX / 2) as u32 + 1] {
        let mut world = World::new(2);
        let (left, _) = world.connect((0, 1), Kind::Rc);
        let segments = vec![world.segment(0, 0, len), world.segment(0, 0, len)];
        world.post(left, Operation::Write(world.remote(1, 0)), segments);
        world.run(left);
        assert_eq!(world.statuses(0), [Status::LocalLength]);
    }
}

#[test]
fn verbs_many_segments_are_copied_in_order() {
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let bytes = world.fill(0, 1);
    let own: Vec<Segment> = (0..10_000).map(|n| world.segment(0, n * 7, 3)).collect();
    let theirs: Vec<Segment> = (0..10_000).map(|n| world.segment(1, n * 5, 4)).collect();
    world.post_receive(right, theirs);
    world.post(left, Operation::Send, own.clone());
    world.post(left, Operation::Write(world.remote(1, 100_000)), own);
    assert_eq!(world.run(left), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success; 2]);
    let sent: Vec<u8> = (0..10_000).flat_map(|n| bytes[n * 7..n * 7 + 3].to_vec()).collect();
    assert_eq!(world.read(1, 100_000, 30_000), sent);
    for (n, piece) in sent.chunks(4).enumerate() {
        assert_eq!(world.read(1, n as u64 * 5, 4), piece);
    }
}

#[test]
fn verbs_many_empty_segments_are_skipped() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    let mut segments = vec![Segment { key: 1, address: u64::MAX, len: 0 }; 10_000];
    segments.push(world.segment(0, 0, 8));
    world.post(left, Operation::Write(world.remote(1, 0)), segments);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success]);
}

#[test]
fn verbs_wrapping_addresses_are_refused() {
    let mut world = World::new(1);
    for (address, len) in [(u64::MAX, 1), (u64::MAX - 3, 8), (u64::MAX - 70_000, 80_000), (0, 8)] {
        let (left, _) = world.connect((0, 0), Kind::Rc);
        let key = world.keys[0];
        let write = Operation::Write(world.remote(0, 0));
        world.post(left, write, vec![Segment { key, address, len }]);
        world.run(left);
        let (left, _) = world.connect((0, 0), Kind::Rc);
        let remote = RemoteAddress { key, address };
        world.post(left, Operation::Write(remote), vec![world.segment(0, 0, len)]);
        world.run(left);
        assert_eq!(world.statuses(0), [Status::LocalProtection, Status::RemoteAccess]);
    }
}

#[test]
fn verbs_unknown_numbers_do_nothing() {
    let mut world = World::new(1);
    for number in [0, 1, 7, 0x00ff_ffff, u32::MAX] {
        assert_eq!(world.run((0, number)), Progress::Stopped);
    }
}

#[test]
fn verbs_scattered_segments_take_more_of_the_budget() {
    let scattered = |world: &World, guest: usize, count: u64| -> Vec<Segment> {
        (0..count).map(|n| world.segment(guest, n * 4096, 1)).collect()
    };
    let mut world = World::new(2);
    let (left, right) = world.connect((0, 1), Kind::Rc);
    let mut budget = Budget::new(10, 1 << 20);
    let segments = scattered(&world, 0, 57);
    world.post(left, Operation::Write(world.remote(1, 0)), segments);
    world.run_with(left, &mut budget);
    assert_eq!(budget.bytes(), (1 << 20) - 57 - 56 * SPAN_BYTES);

    let mut budget = Budget::new(10, 1 << 20);
    let inline = vec![1; 32];
    world.post_receive(right, scattered(&world, 1, 32));
    let work = SendWork { is_inline: true, inline, ..SendWork::default() };
    world.post_work(left, SendWork { operation: Operation::Send, ..work });
    world.run_with(left, &mut budget);
    assert_eq!(budget.bytes(), (1 << 20) - 32 - 31 * SPAN_BYTES);
    assert_eq!((world.statuses(0).len(), world.statuses(1)), (1, vec![Status::Success]));
}

#[test]
fn verbs_scattered_datagrams_take_more_of_the_budget() {
    let mut world = World::new(2);
    let ends: Vec<End> =
        (0..2).map(|guest| world.create(guest, Kind::Ud, World::attributes())).collect();
    ends.iter().for_each(|end| world.ready(*end, None));
    let segments = (0..20).map(|n| world.segment(0, n * 4096, 1)).collect();
    let (queue_pair, queue_key) = (ends[1].1, QUEUE_KEY);
    let destination =
        Some(AddressVector { mac: mac(1), queue_pair, queue_key, ..AddressVector::default() });
    let operation = Operation::Send;
    let work = SendWork { operation, segments, destination, ..SendWork::default() };
    world.post_receive(ends[1], vec![world.segment(1, 0, 40), world.segment(1, 4096, 40)]);
    world.post_work(ends[0], work.clone());
    let mut budget = Budget::new(10, 1 << 20);
    world.run_with(ends[0], &mut budget);
    assert_eq!(budget.bytes(), (1 << 20) - 20 - 20 * SPAN_BYTES);
    // A dropped datagram has no ranges of a receiver.
    world.post_work(ends[0], work);
    let mut budget = Budget::new(10, 1 << 20);
    world.run_with(ends[0], &mut budget);
    assert_eq!(budget.bytes(), (1 << 20) - 20 - 19 * SPAN_BYTES);
}

#[test]
fn verbs_spent_budget_does_nothing() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    world.post(left, Operation::Nop, vec![]);
    for mut budget in [Budget::new(0, 100), Budget::new(100, 0)] {
        assert_eq!(world.run_with(left, &mut budget), Progress::Yielded);
    }
    assert!(world.statuses(0).is_empty());
}

#[test]
fn verbs_scattered_pages_are_copied_in_steps() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    let bytes = world.fill(0, 1);
    // Every second page in reverse, so that no two are neighbours.
    let pages: Vec<u64> = (0..100).map(|n| BASE + (198 - n * 2) * 4096).collect();
    let memory = RegionMemory::Pages { shift: 12, pages: pages.clone(), capacity: 100 };
    let key = world.register(0, memory, 0x123, ALL);
    let segments = vec![Segment { key, address: 0x123, len: 400_000 }];
    world.post(left, Operation::Write(world.remote(1, 0)), segments);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success]);
    let page = |n: &u64| bytes[(n - BASE) as usize..][..4096].to_vec();
    let all: Vec<u8> = pages.iter().flat_map(page).collect();
    assert_eq!(world.read(1, 0, 400_000), all[0x123..0x123 + 400_000]);
}

fn any_segment(keys: [u32; 2]) -> impl Strategy<Value = Segment> {
    let key = prop_oneof![4 => Just(keys[0]), 1 => Just(keys[1]), 1 => any::<u32>()];
    let address = prop_oneof![6 => BASE..BASE + BYTES, 1 => any::<u64>()];
    let len = prop_oneof![5 => 0_u32..200, 1 => 0_u32..200_000, 1 => any::<u32>()];
    (key, address, len).prop_map(|(key, address, len)| Segment { key, address, len })
}

fn any_operation(keys: [u32; 2]) -> impl Strategy<Value = Operation> {
    let remote = any_segment(keys)
        .prop_map(|segment| RemoteAddress { address: segment.address, key: segment.key });
    let number = any::<u32>();
    let update = (any_segment(keys), any::<Option<u64>>(), any::<Option<u8>>(), 0_u32..1 << 20);
    let update = update.prop_map(|(segment, base, page_shift, count)| RegionUpdate {
        key: segment.key,
        base,
        page_shift,
        len: Some(u64::from(segment.len)),
        pages: Some(PageUpdate {
            first: segment.len,
            count,
            entries: PageEntries::Memory(segment),
        }),
        ..RegionUpdate::default()
    });
    (0..11, remote, number, any::<u64>(), update).prop_map(|(kind, remote, number, add, update)| {
        match kind {
            0 => Operation::Nop,
            1 => Operation::Send,
            2 => Operation::SendImmediate(number),
            3 => Operation::SendInvalidate(remote.key),
            4 => Operation::Write(remote),
            5 => Operation::WriteImmediate(remote, number),
            6 => Operation::Read(remote),
            7 => Operation::CompareSwap { remote, compare: 0, swap: add },
            8 => Operation::FetchAdd { remote, add },
            9 => Operation::Invalidate(remote.key),
            _ => Operation::Register(update),
        }
    })
}

type Random = (usize, bool, Operation, Vec<Segment>, u16);

fn any_step() -> impl Strategy<Value = Random> {
    // Keys of the two first regions of guests: number 2 with the variable byte 7.
    let keys = [0x207, 0x307];
    let segments = prop::collection::vec(any_segment(keys), 0..5);
    (0_usize..10, any::<bool>(), any_operation(keys), segments, any::<u16>())
}

proptest! {
    #[test]
    fn verbs_random_work_never_panics_and_every_request_completes_once(
        steps in prop::collection::vec(any_step(), 1..60)
    ) {
        let mut world = World::new(2);
        let attributes = Attributes { can_register: true, ..World::attributes() };
        let mut ends = Vec::new();
        for kind in [Kind::Rc, Kind::Uc, Kind::Rc] {
            let guests = if ends.len() == 4 { (0, 0) } else { (0, 1) };
            let (left, right) = world.connect_with(guests, kind, attributes);
            ends.extend([left, right]);
        }
        for (guest, kind) in [(0, Kind::Ud), (1, Kind::Ud), (0, Kind::Gsi), (1, Kind::Registration)] {
            let end = world.create(guest, kind, attributes);
            world.ready(end, None);
            ends.push(end);
        }
        let mut posted = 0;
        for (end, receive, operation, segments, bytes) in steps {
            let end = ends[end];
            posted += 1;
            if receive {
                world.post_receive(end, segments);
            } else {
                let queue_pair = if bytes % 7 == 0 { 1 } else { ends[usize::from(bytes) % 10].1 };
                let destination = Some(AddressVector {
                    mac: mac(usize::from(bytes & 1)),
                    queue_pair,
                    queue_key: QUEUE_KEY,
                    ..AddressVector::default()
                });
                let is_signaled = true;
                let work = SendWork { operation, segments, destination, is_signaled, ..SendWork::default() };
                world.post_work(end, work);
            }
            world.run_with(end, &mut Budget::new(3, u64::from(bytes)));
        }
        for end in ends {
            world.modify(end, State::Error, &Change::default());
        }
        world.now += 1 << 45;
        (0..2).for_each(|guest| world.run_due(guest));
        let completed = world.completions(0).len() + world.completions(1).len();
        prop_assert_eq!(completed, posted);
    }
}
