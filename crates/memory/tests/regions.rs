//! Registered memory: keys, rights, owners, bounds, and use after deregistration.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_memory::{Access, GuestSpans, RegionError, RegionKey, Regions, Registration};
use common::map_of;
use proptest::prelude::*;

fn region(base: u64, len: u64) -> Registration<u64> {
    let access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
    Registration { memory: base, base, len, access, owner: 7 }
}

#[test]
fn regions_are_reached_by_key_owner_access_and_bounds() {
    let mut regions = Regions::new(10);
    let key = regions.register(region(1000, 100)).unwrap();
    let find = |address, len, needed, owner| {
        regions.find(key, (address, len), needed, owner).map(|(_, offset)| offset)
    };
    assert_eq!(find(1000, 100, Access::REMOTE_READ, 7), Ok(0));
    assert_eq!(find(1040, 60, Access::REMOTE_WRITE, 7), Ok(40));
    assert_eq!(find(1100, 0, Access::empty(), 7), Ok(100));
    assert_eq!(find(1000, 1, Access::REMOTE_ATOMIC, 7), Err(RegionError::Access));
    assert_eq!(find(1000, 1, Access::LOCAL_WRITE, 7), Err(RegionError::Access));
    assert_eq!(find(1000, 1, Access::REMOTE_READ, 8), Err(RegionError::Owner));
    for (address, len) in [(999, 1), (1000, 101), (1100, 1), (1001, u64::MAX), (u64::MAX, 1)] {
        let outside = RegionError::Outside { address, len };
        assert_eq!(find(address, len, Access::REMOTE_READ, 7), Err(outside));
    }
    let other = RegionKey::new(key.index(), key.variable().wrapping_add(1));
    for wrong in [other, RegionKey::new(1, 0), RegionKey(u32::MAX)] {
        assert_eq!(regions.get(wrong).map(drop), Err(RegionError::NoKey));
    }
}

#[test]
fn regions_outlive_their_deregistration_while_they_are_used() {
    let mut regions = Regions::new(1);
    let key = regions.register(region(0, 9)).unwrap();
    let epoch = regions.epoch();
    let used = Arc::clone(regions.get(key).unwrap());
    assert_eq!(regions.register(region(0, 9)), Err(RegionError::Full));
    regions.deregister(key).unwrap();
    assert_ne!(regions.epoch(), epoch);
    assert_eq!(regions.deregister(key).map(drop), Err(RegionError::NoKey));
    assert_eq!(used.memory, 0);
    let again = regions.register(region(5, 9)).unwrap();
    assert_eq!(again.index(), key.index());
    assert_ne!(again, key, "a stale key names nothing");
    assert!(regions.get(key).is_err());
    assert_eq!(Arc::strong_count(&used), 1);
}

#[test]
fn hostile_registrations_are_refused_and_bounded() {
    let mut regions = Regions::new(300);
    assert_eq!(regions.register(region(u64::MAX, 1)), Err(RegionError::Wraps));
    let chosen = RegionKey::new(299, 5);
    regions.register_as(chosen, region(0, 1)).unwrap();
    let taken = RegionKey::new(299, 6);
    assert_eq!(regions.register_as(taken, region(0, 1)), Err(RegionError::Taken));
    assert_eq!(regions.register_as(RegionKey::new(300, 0), region(0, 1)), Err(RegionError::Full));
    let keys: Vec<_> = (0..299).map(|n| regions.register(region(n, 1)).unwrap()).collect();
    assert_eq!(regions.register(region(0, 1)), Err(RegionError::Full));
    assert_eq!(regions.len(), 300);
    for key in keys.into_iter().chain([chosen]) {
        regions.deregister(key).unwrap();
    }
    // A peer that chooses its keys leaves nothing behind.
    for n in 0..10_000 {
        let key = RegionKey::new(n % 300, n as u8);
        regions.register_as(key, region(0, 1)).unwrap();
        regions.deregister(key).unwrap();
    }
    assert!(regions.is_empty());
    assert_eq!(Regions::<u64>::new(usize::MAX).register(region(0, 0)), Ok(RegionKey(0)));
}

#[test]
fn guest_spans_are_one_row_of_bytes() {
    let map = Arc::new(map_of(0x1000, 0x3000));
    // Three spans in another order than their addresses, one of them empty.
    let spans = [(0x2000, 5), (0x1800, 0), (0x1000, 7), (0x3ff0, 16)];
    let row = GuestSpans::new(Arc::clone(&map), spans).unwrap();
    assert_eq!(row.len(), 28);
    let bytes: Vec<u8> = (0..28).collect();
    row.write(0, &bytes).unwrap();
    for (offset, len) in [(0, 28), (3, 20), (5, 7), (4, 2), (12, 16), (28, 0)] {
        let mut got = vec![0; len];
        row.read(offset as u64, &mut got).unwrap();
        assert_eq!(got, bytes[offset..offset + len]);
    }
    let mut there = [0; 7];
    map.read(0x1000, &mut there).unwrap();
    assert_eq!(there, bytes[5..12]);
    assert!(row.read(27, &mut [0; 2]).is_err() && row.write(28, &[0]).is_err());
    assert!(row.view(5, 7).is_ok());
    for (offset, len) in [(5, 8), (4, 2), (28, 0), (u64::MAX, 1)] {
        assert!(row.view(offset, len).is_err());
    }
    for wrong in [[(u64::MAX, 1), (0, 0)], [(0, u64::MAX), (0, 1)]] {
        assert!(GuestSpans::new(Arc::clone(&map), wrong).is_none());
    }
    let hole = GuestSpans::new(map, [(0x8000, 4)]).unwrap();
    assert!(hole.read(0, &mut [0; 4]).is_err() && hole.view(0, 4).is_err());
}

#[derive(Debug, Clone)]
enum Step {
    Register,
    RegisterAs(u32, u8),
    Deregister(u32, u8),
    DeregisterOldest,
}

proptest! {
    #[test]
    fn regions_equal_a_map_of_keys(
        steps in prop::collection::vec(prop_oneof![
            3 => Just(Step::Register),
            2 => (0_u32..24, 0_u8..3).prop_map(|(index, variable)| Step::RegisterAs(index, variable)),
            2 => (0_u32..24, 0_u8..3).prop_map(|(index, variable)| Step::Deregister(index, variable)),
            2 => Just(Step::DeregisterOldest),
        ], 1..200),
    ) {
        const MAX: u32 = 20;
        let mut regions = Regions::new(MAX as usize);
        // By index: the variable byte and the number of the step.
        let mut model: BTreeMap<u32, (u8, u64)> = BTreeMap::new();
        for (number, step) in (0_u64..).zip(steps) {
            match step {
                Step::Register => match regions.register(region(number, 1)) {
                    Ok(key) => {
                        let before = model.insert(key.index(), (key.variable(), number));
                        prop_assert!(before.is_none() && key.index() < MAX);
                    }
                    Err(error) => {
                        prop_assert_eq!(error, RegionError::Full);
                        prop_assert_eq!(model.len(), MAX as usize);
                    }
                },
                Step::RegisterAs(index, variable) => {
                    let key = RegionKey::new(index, variable);
                    let free = index < MAX && !model.contains_key(&index);
                    let registered = regions.register_as(key, region(number, 1));
                    prop_assert_eq!(registered.is_ok(), free);
                    if free {
                        model.insert(index, (variable, number));
                    }
                }
                Step::Deregister(index, variable) => {
                    let key = RegionKey::new(index, variable);
                    let known = model.get(&index).is_some_and(|(byte, _)| *byte == variable);
                    prop_assert_eq!(regions.deregister(key).is_ok(), known);
                    if known {
                        model.remove(&index);
                    }
                }
                Step::DeregisterOldest => {
                    if let Some((index, (variable, number))) = model.pop_first() {
                        let region = regions.deregister(RegionKey::new(index, variable)).unwrap();
                        prop_assert_eq!(region.memory, number);
                    }
                }
            }
            prop_assert_eq!(regions.len(), model.len());
            for (&index, &(variable, number)) in &model {
                let region = regions.get(RegionKey::new(index, variable)).unwrap();
                prop_assert_eq!(region.memory, number);
            }
        }
    }
}
