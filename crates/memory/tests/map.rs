//! Translation and scatter-gather copies against a flat model.

mod common;

use causeway_memory::{Cursor, Map, MapError, Rights, Span, copy};
use common::{map_of, region, unsealed};
use proptest::prelude::*;

const PAGE: u64 = 4096;

/// Guest addresses 0x1000..0x3000 and 0x3000..0x4000 (adjacent, other file), 0x8000..0x9000.
fn three_regions() -> Map {
    let a = unsealed(4 * PAGE);
    let b = unsealed(PAGE);
    Map::new(vec![
        region(&a, PAGE, PAGE, 2 * PAGE),
        region(&b, 0, 3 * PAGE, PAGE),
        region(&a, 3 * PAGE, 8 * PAGE, PAGE),
    ])
    .unwrap()
}

#[test]
fn accesses_cross_adjacent_regions_and_stop_at_holes() {
    let map = three_regions();
    map.write(3 * PAGE - 3, b"across").unwrap();
    let mut bytes = [0; 6];
    map.read(3 * PAGE - 3, &mut bytes).unwrap();
    assert_eq!(&bytes, b"across");
    assert!(map.contains(PAGE, 3 * PAGE, Rights::READ_WRITE));
    for (addr, len) in [(0, 1), (PAGE, 3 * PAGE + 1), (9 * PAGE, 1), (u64::MAX, 2), (PAGE - 1, 2)] {
        assert!(!map.contains(addr, len, Rights::READ), "{addr:#x}+{len}");
        assert!(map.read(addr, &mut vec![0; len as usize]).is_err());
        assert!(map.write(addr, &vec![0; len as usize]).is_err());
    }
    assert!(map.view(3 * PAGE - 8, 16).is_err(), "a window lies in one region");
    assert_eq!(map.user_to_guest(0x7000_0000_0000 + 8 * PAGE + 5), Some(8 * PAGE + 5));
    assert_eq!(map.user_to_guest(0x7000_0000_0000 + 9 * PAGE), None);
}

#[test]
fn map_loads_whole_words_across_regions() {
    let map = three_regions();
    // The last word crosses from one region to the next.
    for at in [PAGE, PAGE + 5, 3 * PAGE - 16, 3 * PAGE - 7] {
        map.write(at, &(1..=16).collect::<Vec<u8>>()).unwrap();
        let pair = [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09];
        assert_eq!(map.load_pair(at), Ok(pair), "{at:#x}");
    }
    for at in [4 * PAGE - 15, 9 * PAGE - 8, u64::MAX - 7] {
        assert!(map.load_pair(at).is_err(), "{at:#x}");
    }
    let view = map.view(PAGE, 40).unwrap();
    view.store_word(19, 0x1122_3344_5566_7788).unwrap();
    assert_eq!(view.load_pair(19).unwrap()[0], 0x1122_3344_5566_7788);
    for at in [33, 40, usize::MAX] {
        assert!(view.store_word(at, 1).is_err());
        assert!(view.load_pair(at.saturating_sub(8)).is_err());
    }
}

#[test]
fn map_write_changed_writes_differences() {
    let map = three_regions();
    for at in [PAGE, 3 * PAGE - 5] {
        for len in [0, 3, 7, 8, 10, 12, 13, 16] {
            for changed in 0..len {
                let mut bytes = vec![7; len];
                map.write(at, &bytes).unwrap();
                map.write_changed(at, &bytes).unwrap();
                bytes[changed] = 9;
                map.write_changed(at, &bytes).unwrap();
                let mut there = vec![0; len];
                map.read(at, &mut there).unwrap();
                assert_eq!(there, bytes, "byte {changed} of {len} at {at:#x}");
            }
        }
    }
    assert!(map.write_changed(4 * PAGE - 4, &[0; 12]).is_err());
}

#[test]
fn map_publishes_entries_within_and_across_regions() {
    let map = three_regions();
    let entry: [u8; 64] = std::array::from_fn(|byte| byte as u8 + 1);
    for at in [PAGE, 2 * PAGE + 7, 3 * PAGE - 1, 3 * PAGE - 63, 4 * PAGE - 64] {
        map.write_published(at, &entry).unwrap();
        let mut found = [0; 64];
        map.read(at, &mut found).unwrap();
        assert_eq!(found, entry, "{at:#x}");
        map.write(at, &[0; 64]).unwrap();
    }
    for at in [4 * PAGE - 63, 4 * PAGE, 0, u64::MAX - 10] {
        assert!(map.write_published(at, &entry).is_err(), "{at:#x}");
    }
}

#[test]
fn copy_of_a_range_equals_the_copy_of_a_span() {
    let (from, to) = (three_regions(), three_regions());
    let bytes: Vec<u8> = (0..100).collect();
    for (source, destination) in [(PAGE, PAGE + 9), (3 * PAGE - 50, PAGE), (PAGE, 3 * PAGE - 1)] {
        from.write(source, &bytes).unwrap();
        copy::copy_range((&from, source), (&to, destination), 100).unwrap();
        let mut found = vec![0; 100];
        to.read(destination, &mut found).unwrap();
        assert_eq!(found, bytes);
    }
    let source = copy::copy_range((&from, 4 * PAGE - 99), (&to, PAGE), 100).unwrap_err();
    assert!(matches!(source, copy::CopyError::Source(_)));
    let destination = copy::copy_range((&from, PAGE), (&to, 9 * PAGE - 99), 100).unwrap_err();
    assert!(matches!(destination, copy::CopyError::Destination(_)));
}

#[test]
fn hostile_region_tables_are_refused() {
    let file = unsealed(2 * PAGE);
    let overlap = vec![region(&file, 0, 0, 2 * PAGE), region(&file, 0, PAGE, PAGE)];
    assert!(matches!(Map::new(overlap), Err(MapError::Overlap(..))));
    let mut same_user = vec![region(&file, 0, 0, PAGE), region(&file, 0, 8 * PAGE, PAGE)];
    same_user[1].user = same_user[0].user + 1;
    assert!(matches!(Map::new(same_user), Err(MapError::Overlap(..))));
    let mut wraps = vec![region(&file, 0, 0, PAGE)];
    wraps[0].guest = u64::MAX - 5;
    assert!(matches!(Map::new(wraps), Err(MapError::Range(_))));
    let many = (0..65).map(|i| region(&file, 0, i * PAGE, PAGE)).collect();
    assert!(matches!(Map::new(many), Err(MapError::Many(65))));
}

fn spans_of(cuts: &[u16], start: u64) -> Vec<Span> {
    let mut addr = start;
    let mut spans = Vec::new();
    for &cut in cuts {
        spans.push(Span { addr, len: u32::from(cut) });
        addr += u64::from(cut) + 3;
    }
    spans
}

proptest! {
    #[test]
    fn copy_equals_gather_then_scatter(
        out in prop::collection::vec(0_u16..900, 1..12),
        into in prop::collection::vec(0_u16..900, 1..12),
        skip in 0_u64..500,
        seed in any::<u32>(),
    ) {
        let (a, b) = (map_of(0x10_000, 64 << 10), map_of(0x20_000, 64 << 10));
        let fill: Vec<u8> = (0..64_u32 << 10).map(|i| (i.wrapping_mul(seed | 1) >> 13) as u8).collect();
        a.write(0x10_000, &fill).unwrap();
        let (from, to) = (spans_of(&out, 0x10_005), spans_of(&into, 0x20_009));
        let mut source = Cursor::at(&from, skip);
        let mut target = Cursor::new(&to);
        let len = source.remaining().min(target.remaining());

        let mut expected = vec![0; len as usize];
        let mut again = source;
        again.read(&a, &mut expected).unwrap();
        let mut target_again = target;
        copy::copy((&a, &mut source), (&b, &mut target), len).unwrap();
        let mut got = vec![0; len as usize];
        target_again.read(&b, &mut got).unwrap();
        prop_assert_eq!(got, expected);
        prop_assert_eq!(source.remaining(), again.remaining());
        prop_assert_eq!(target.remaining(), target_again.remaining());
        let beyond = copy::copy((&a, &mut source), (&b, &mut target), 1 << 20);
        prop_assert!(beyond.is_err(), "past the end is an error, not a wild copy");
    }
}
