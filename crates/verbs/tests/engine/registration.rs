use causeway_verbs::region::{Region, RegionMemory, Rights, key_of};
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

/// Returns a world, the end of a connection that may register, and the number of a free region.
fn world(can_register: bool, capacity: u32) -> (World, End, u32) {
    let mut world = World::new(2);
    let attributes = Attributes { can_register, ..World::attributes() };
    let (left, _) = world.connect_with((0, 1), Kind::Rc, attributes);
    let memory = RegionMemory::Pages { shift: 12, pages: vec![], capacity };
    let region = Region {
        domain: DOMAIN,
        base: 0,
        len: 0,
        rights: Rights::empty(),
        is_free: true,
        variable: 0,
        memory,
    };
    let number = world.adapter(0).regions_mut().create(region).unwrap();
    (world, left, number)
}

fn update(number: u32, len: u64, entries: PageEntries, count: u32) -> Operation {
    Operation::Register(RegionUpdate {
        key: key_of(number, 0),
        variable: Some(1),
        base: Some(0x9000),
        len: Some(len),
        rights: Some((ALL, ALL)),
        is_free: Some(false),
        required_free: Some(true),
        pages: Some(PageUpdate { first: 0, count, entries }),
        ..RegionUpdate::default()
    })
}

#[test]
fn verbs_registration_then_write_then_invalidate() {
    let (mut world, left, number) = world(true, 2);
    let bytes = world.fill(0, 1);
    let entries = PageEntries::Inline(vec![BASE + 0x5000, BASE + 0x3000]);
    world.post(left, update(number, 0x2000, entries, 2), vec![]);
    let key = key_of(number, 1);
    let segment = Segment { key, address: 0x9ff0, len: 0x20 };
    world.post(left, Operation::Write(world.remote(1, 0)), vec![segment]);
    world.post(left, Operation::Invalidate(key), vec![]);
    world.post(left, Operation::Write(world.remote(1, 64)), vec![segment]);
    world.run(left);
    let good = Status::Success;
    assert_eq!(world.statuses(0), [good, good, good, Status::LocalProtection]);
    let expected = [&bytes[0x5ff0..0x6000], &bytes[0x3000..0x3010]].concat();
    assert_eq!(world.read(1, 0, 0x20), expected);
}

#[test]
fn verbs_registration_reads_a_page_list_from_memory() {
    let count = 1000_u32;
    let (mut world, left, number) = world(true, count);
    for n in 0..u64::from(count) {
        let page = BASE + 0x8_0000 + (n % 16) * 4096;
        world.write(0, n * 8, &(page | 3).to_be_bytes());
    }
    let segment = world.segment(0, 0, count * 8);
    world.post(left, update(number, 4096 * 1000, PageEntries::Memory(segment), count), vec![]);
    let mut budget = Budget::new(10, 100_000);
    world.run_with(left, &mut budget);
    assert_eq!((world.statuses(0), budget.bytes()), (vec![Status::Success], 92_000));
    let region = world.adapter(0).regions().region(number).unwrap();
    let RegionMemory::Pages { pages, .. } = &region.memory else { panic!("{region:?}") };
    assert!(pages.iter().zip(0..).all(|(page, n)| *page == BASE + 0x8_0000 + (n % 16) * 4096));
    assert_eq!(pages.len(), 1000);
}

#[test]
fn verbs_registration_charges_entries_of_the_work_request() {
    let (mut world, left, number) = world(true, 100);
    let entries = PageEntries::Inline(vec![BASE; 100]);
    world.post(left, update(number, 0x1000, entries, 100), vec![]);
    let mut budget = Budget::new(10, 1000);
    world.run_with(left, &mut budget);
    assert_eq!((world.statuses(0), budget.bytes()), (vec![Status::Success], 200));
}

#[test]
fn verbs_registration_needs_the_attribute() {
    for operation in [update(0, 1, PageEntries::Inline(vec![]), 0), Operation::Invalidate(0)] {
        let (mut world, left, _) = world(false, 2);
        world.post(left, operation, vec![]);
        world.run(left);
        assert_eq!(world.statuses(0), [Status::LocalQueuePairOperation]);
        assert_eq!(world.state(left), State::Error);
    }
}

#[test]
fn verbs_registration_errors_change_nothing() {
    let far = Segment { key: 0x1_0000, address: 0, len: 800 };
    let long = Segment { len: u32::MAX, ..far };
    let cases = [
        (PageEntries::Inline(vec![0; 1 << 18]), 1 << 18, Status::MemoryWindowBind),
        (PageEntries::Memory(far), 2, Status::LocalProtection),
        (PageEntries::Memory(far), u32::MAX, Status::LocalProtection),
        (PageEntries::Memory(long), u32::MAX, Status::LocalLength),
    ];
    for (entries, count, status) in cases {
        let (mut world, left, number) = world(true, 2);
        world.post(left, update(number, 0x1000, entries, count), vec![]);
        world.run(left);
        assert_eq!(world.statuses(0), [status]);
        assert!(world.adapter(0).regions().region(number).unwrap().is_free);
    }
}

#[test]
fn verbs_registration_queue_pair_reads_lists_of_any_domain() {
    let (mut world, _, number) = world(false, 1);
    let attributes = Attributes { domain: DOMAIN + 1, ..World::attributes() };
    let own = world.create(0, Kind::Registration, attributes);
    world.ready(own, None);
    world.write(0, 0, &(BASE + 0x1000).to_be_bytes());
    let segment = world.segment(0, 0, 8);
    world.post(own, update(number, 0x1000, PageEntries::Memory(segment), 1), vec![]);
    let unknown = Segment { key: 0x999, ..segment };
    world.post(own, update(number, 0x1000, PageEntries::Memory(unknown), 1), vec![]);
    world.run(own);
    assert_eq!(world.statuses(0), [Status::Success, Status::LocalProtection]);
}

#[test]
fn verbs_padded_page_list_is_cut_to_the_region() {
    let (mut world, left, number) = world(true, 4);
    world.write(0, 0, &(BASE + 0x1000).to_be_bytes());
    let segment = world.segment(0, 0, 64);
    world.post(left, update(number, 0x1000, PageEntries::Memory(segment), 8), vec![]);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Success]);
    let region = world.adapter(0).regions().region(number).unwrap();
    let pages = vec![BASE + 0x1000, 0, 0, 0];
    assert_eq!(region.memory, RegionMemory::Pages { shift: 12, pages, capacity: 4 });
}

#[test]
fn verbs_registration_queue_pair_changes_any_domain_and_sends_nothing() {
    let (mut world, _, number) = world(false, 2);
    let attributes = Attributes { domain: DOMAIN + 1, ..World::attributes() };
    let own = world.create(0, Kind::Registration, attributes);
    world.ready(own, None);
    world.post(own, update(number, 0x1000, PageEntries::Inline(vec![BASE]), 1), vec![]);
    world.post(own, Operation::Invalidate(key_of(number, 1)), vec![]);
    world.post(own, Operation::Send, vec![]);
    world.run(own);
    let good = Status::Success;
    assert_eq!(world.statuses(0), [good, good, Status::LocalQueuePairOperation]);
}
