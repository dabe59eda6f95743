use causeway_memory::Span;
use causeway_verbs::limits::LIST_PADDING_ENTRIES;
use causeway_verbs::region::*;
use causeway_verbs::work::{PageEntries, PageUpdate, RegionUpdate};
use proptest::prelude::*;

fn pages(base: u64, len: u64, shift: u8, pages: Vec<u64>) -> Region {
    let memory = RegionMemory::Pages { shift, capacity: pages.len() as u32, pages };
    Region { domain: 1, base, len, rights: Rights::all(), is_free: false, variable: 3, memory }
}

fn span(addr: u64, len: u32) -> Span {
    Span { addr, len }
}

#[test]
fn region_resolves_pages_from_an_offset_and_merges_neighbours() {
    let mut regions = Regions::new(RegionLimits::default());
    let list = vec![0x10_0000, 0x20_0000, 0x20_1000, 0x5000];
    let number = regions.create(pages(0x7_0123, 0x3000, 12, list)).unwrap();
    let mut out = Vec::new();
    let key = key_of(number, 3);
    regions.resolve(key, 1, (0x7_0123, 0x3000), Rights::REMOTE_READ, &mut out).unwrap();
    let expected = [span(0x10_0123, 0xedd), span(0x20_0000, 0x2000), span(0x5000, 0x123)];
    assert_eq!(out, expected);
}

#[test]
fn region_checks_in_order() {
    let mut regions = Regions::new(RegionLimits::default());
    let region = Region { rights: Rights::REMOTE_READ, ..pages(0x1000, 0x800, 12, vec![0]) };
    let key = key_of(regions.create(region.clone()).unwrap(), 3);
    let free = key_of(regions.create(Region { is_free: true, ..region }).unwrap(), 3);
    let read = Rights::REMOTE_READ;
    let check =
        |key, domain, range, needed| regions.resolve(key, domain, range, needed, &mut Vec::new());
    assert_eq!(check(key, 1, (0x1000, 0x800), read), Ok(()));
    assert_eq!(check(key ^ 1, 1, (0x1000, 1), read), Err(RegionError::NoKey));
    assert_eq!(check(free, 1, (0x1000, 1), read), Err(RegionError::State));
    assert_eq!(check(key, 2, (0x1000, 1), read), Err(RegionError::Domain));
    assert_eq!(check(key, 1, (0x1000, 1), Rights::REMOTE_WRITE), Err(RegionError::Rights));
    for range in [(0xfff, 1), (0x1000, 0x801), (0x1800, 1), (u64::MAX, 1), (0x1400, u64::MAX)] {
        assert_eq!(check(key, 1, range, read), Err(RegionError::Outside), "{range:?}");
    }
}

#[test]
fn region_of_all_memory_uses_guest_addresses() {
    let mut regions = Regions::new(RegionLimits::default());
    let memory = RegionMemory::Whole;
    let region = Region { memory, len: 0, ..pages(0, 0, 12, vec![]) };
    let key = key_of(regions.create(region).unwrap(), 3);
    let mut out = Vec::new();
    regions.resolve(key, 1, (0x5123, 1 << 32), Rights::LOCAL_READ, &mut out).unwrap();
    assert_eq!(out, [span(0x5123, 1 << 31), span(0x5123 + (1 << 31), 1 << 31)]);
    let wraps = regions.resolve(key, 1, (u64::MAX, 2), Rights::LOCAL_READ, &mut out);
    assert_eq!(wraps, Err(RegionError::Outside));
    assert_eq!(regions.bytes(), 0);
    assert!(regions.invalidate(key, 1, Rights::empty()).is_err());
}

#[test]
fn region_of_guest_addresses_with_a_length_reaches_its_range_only() {
    let mut regions = Regions::new(RegionLimits::default());
    let memory = RegionMemory::Whole;
    let region = Region { memory, ..pages(0x5000, 0x100, 12, vec![]) };
    let number = regions.create(region.clone()).unwrap();
    let check = |range| regions.check(key_of(number, 3), 1, range, Rights::REMOTE_WRITE);
    assert_eq!(check((0x5000, 0x100)), Ok(()));
    assert_eq!(check((0x50ff, 2)), Err(RegionError::Outside));
    assert_eq!(check((0x4fff, 1)), Err(RegionError::Outside));
    assert_eq!(regions.bytes(), 0x100);
    let wraps = Region { base: u64::MAX, ..region };
    assert!(matches!(regions.create(wraps), Err(RegionError::Malformed(_))));
}

#[test]
fn region_page_lists_are_limited_by_the_registered_bytes() {
    let limits = RegionLimits { regions: 2, bytes: 1 << 20, entries: 1 << 24 };
    let mut regions = Regions::new(limits);
    let most = 2 * 256 + 2 * LIST_PADDING_ENTRIES;
    let list = |count: u64| pages(0, 0x1000, 12, vec![0; count as usize]);
    let refused = Err(RegionError::Limit("page list entries"));
    assert_eq!(regions.create(list(most + 1)), refused);
    assert!(regions.create(list(most)).is_ok());
    assert_eq!(regions.create(list(1)), refused);
}

#[test]
fn region_limits_are_given_back() {
    let limits = RegionLimits { regions: 2, bytes: 0x3000, entries: 3 };
    let mut regions = Regions::new(limits);
    let one = pages(0, 0x1000, 12, vec![0]);
    let first = regions.create(one.clone()).unwrap();
    let long = Region { len: 0x2001, ..one.clone() };
    assert_eq!(regions.create(long), Err(RegionError::Limit("registered bytes")));
    let listed = pages(0, 0x1000, 12, vec![0; 3]);
    assert_eq!(regions.create(listed), Err(RegionError::Limit("page list entries")));
    let second = regions.create(one.clone()).unwrap();
    assert_eq!(regions.create(one.clone()), Err(RegionError::Limit("regions")));
    regions.destroy(first).unwrap();
    assert_eq!(regions.destroy(first), Err(RegionError::NoKey));
    assert_eq!(regions.bytes(), 0x1000);
    let third = regions.create(one).unwrap();
    assert_ne!(third, first);
    regions.destroy(second).unwrap();
    drop(regions.retire());
    assert_eq!((regions.len(), regions.bytes()), (0, 0));
}

#[test]
fn region_malformed_values_are_refused() {
    let mut regions = Regions::new(RegionLimits::default());
    let wrong = [
        pages(u64::MAX - 5, 7, 12, vec![0]),
        pages(0, 1, 11, vec![0]),
        pages(0, 1, 41, vec![0]),
        Region {
            memory: RegionMemory::Pages { shift: 12, pages: vec![0; 2], capacity: 1 },
            ..pages(0, 1, 12, vec![])
        },
    ];
    for region in wrong {
        assert!(matches!(regions.create(region), Err(RegionError::Malformed(_))));
    }
    assert!(regions.is_empty());
}

#[test]
fn region_short_page_list_reaches_its_pages_only() {
    let mut regions = Regions::new(RegionLimits::default());
    let key = key_of(regions.create(pages(0, 0x9000, 12, vec![0x4000])).unwrap(), 3);
    let mut out = Vec::new();
    assert!(regions.resolve(key, 1, (0, 0x1000), Rights::empty(), &mut out).is_ok());
    let beyond = regions.resolve(key, 1, (0, 0x1001), Rights::empty(), &mut out);
    assert_eq!(beyond, Err(RegionError::Outside));
    let huge = key_of(regions.create(pages(0, 1 << 39, 40, vec![u64::MAX - 9])).unwrap(), 3);
    let wraps = regions.resolve(huge, 1, (0, 100), Rights::empty(), &mut out);
    assert!(wraps.is_ok(), "the copy refuses memory that is not granted");
    let wraps = regions.resolve(huge, 1, (20, 100), Rights::empty(), &mut out);
    assert_eq!(wraps, Err(RegionError::Outside));
}

#[test]
fn region_update_changes_all_or_nothing() {
    let limits = RegionLimits { regions: 9, bytes: 0x10_0000, entries: 100 };
    let mut regions = Regions::new(limits);
    let memory = RegionMemory::Pages { shift: 12, pages: vec![], capacity: 4 };
    let free = Region { is_free: true, memory, ..pages(0, 0, 12, vec![]) };
    let number = regions.create(free).unwrap();
    let entries = PageEntries::Inline(vec![]);
    let good = RegionUpdate {
        key: key_of(number, 99),
        variable: Some(8),
        base: Some(0x7000),
        len: Some(0x2000),
        rights: Some((Rights::REMOTE_READ, Rights::all().difference(Rights::REMOTE_INVALIDATE))),
        is_free: Some(false),
        required_free: Some(true),
        pages: Some(PageUpdate { first: 0, count: 2, entries }),
        ..RegionUpdate::default()
    };
    let before = regions.region(number).cloned();
    let wrong = [
        RegionUpdate { key: key_of(number ^ 1, 0), ..good.clone() },
        RegionUpdate { required_free: Some(false), ..good.clone() },
        RegionUpdate { base: Some(u64::MAX), ..good.clone() },
        RegionUpdate { page_shift: Some(64), ..good.clone() },
        RegionUpdate { len: Some(0x10_0001), ..good.clone() },
        RegionUpdate { domain: Some(2), ..good.clone() },
        RegionUpdate {
            pages: Some(PageUpdate { first: 5, count: 2, entries: PageEntries::Inline(vec![]) }),
            ..good.clone()
        },
    ];
    for update in wrong {
        assert!(regions.update(&update, &[0x5000, 0x9000], Some(1)).is_err(), "{update:?}");
        assert_eq!(regions.region(number).cloned(), before);
        assert_eq!(regions.bytes(), 0);
    }
    assert_eq!(regions.update(&good, &[0x5000, 0x9000], Some(2)), Err(RegionError::Domain));
    regions.update(&good, &[0x5000, 0x9000], Some(1)).unwrap();
    let mut out = Vec::new();
    let key = key_of(number, 8);
    regions.resolve(key, 1, (0x7800, 0x1000), Rights::REMOTE_READ, &mut out).unwrap();
    assert_eq!(out, [span(0x5800, 0x800), span(0x9000, 0x800)]);
    // Rights outside the mask stay.
    assert!(regions.check(key, 1, (0x7000, 1), Rights::REMOTE_INVALIDATE).is_ok());
    assert!(regions.check(key, 1, (0x7000, 1), Rights::REMOTE_WRITE).is_err());
    regions.invalidate(key, 1, Rights::empty()).unwrap();
    assert_eq!(regions.check(key, 1, (0x7000, 1), Rights::empty()), Err(RegionError::State));
    assert_eq!(regions.invalidate(key, 1, Rights::empty()), Err(RegionError::State));
}

#[test]
fn region_update_appends_or_replaces_entries_without_a_gap() {
    let mut regions = Regions::new(RegionLimits::default());
    let memory = RegionMemory::Pages { shift: 12, pages: vec![], capacity: 1 << 24 };
    let number = regions.create(Region { memory, ..pages(0, 0xa000, 12, vec![]) }).unwrap();
    let mut update = |first, list: &[u64]| {
        let entries = PageEntries::Inline(vec![]);
        let pages = Some(PageUpdate { first, count: list.len() as u32, entries });
        let update = RegionUpdate { key: key_of(number, 3), pages, ..RegionUpdate::default() };
        regions.update(&update, list, None)
    };
    assert_eq!(update((1 << 24) - 1, &[0x5000]), Err(RegionError::Outside));
    assert_eq!(update(1, &[0x5000]), Err(RegionError::Outside));
    assert_eq!(update(0, &[0x5000, 0x6000]), Ok(()));
    assert_eq!(update(2, &[0x8000]), Ok(()));
    assert_eq!(update(4, &[0x9000]), Err(RegionError::Outside));
    assert_eq!(update(1, &[0xa000]), Ok(()));
    let RegionMemory::Pages { pages, .. } = &regions.region(number).unwrap().memory else {
        panic!("no page list")
    };
    assert_eq!(pages, &[0x5000, 0xa000, 0x8000]);
}

proptest! {
    #[test]
    fn region_spans_equal_a_walk_of_bytes(
        shift in 12_u8..15,
        base in any::<u16>(),
        list in prop::collection::vec(0_u64..4, 1..6),
        (start, len) in (any::<u16>(), any::<u16>()),
        most in 1_usize..8,
    ) {
        let size = 1_u64 << shift;
        let base = u64::from(base);
        let list: Vec<u64> = list.iter().map(|page| page << shift).collect();
        let bytes = ((list.len() as u64) << shift) - base % size;
        let mut regions = Regions::new(RegionLimits::default());
        let number = regions.create(pages(base, bytes, shift, list.clone())).unwrap();
        let address = base + u64::from(start);
        let mut out = Vec::new();
        let range = (address, u64::from(len));
        let found = regions.resolve_some(key_of(number, 3), 1, range, Rights::empty(), (most, &mut out));
        if u64::from(start) + u64::from(len) > bytes {
            prop_assert_eq!(found, Err(RegionError::Outside));
        } else {
            let found = found.unwrap();
            prop_assert!(out.len() <= most && (found == range.1 || out.len() == most));
            let walked = out.iter().flat_map(|span| span.addr..span.addr + u64::from(span.len));
            let place = |at: u64| {
                let offset = at - base + base % size;
                list[(offset / size) as usize] + offset % size
            };
            let expected: Vec<u64> = (address..address + found).map(place).collect();
            prop_assert!(walked.eq(expected));
        }
    }
}
