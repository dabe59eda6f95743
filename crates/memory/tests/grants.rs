//! Tables of grants: rights, errors, epochs, and a model of bytes.

mod common;

use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_host::ReceivedFd;
use causeway_memory::{
    Cursor, Grant, GrantError, Grants, Map, Mapping, MappingError, Rights, Span, copy,
};
use common::unsealed;
use proptest::prelude::*;

const PAGE: u64 = 4096;

fn grant(guest: u64, len: u64, offset: u64, rights: Rights) -> Grant {
    Grant { guest, len, offset, rights }
}

fn mapping(len: u64) -> Arc<Mapping> {
    Arc::new(Mapping::new(unsealed(len).as_fd(), 0, len).unwrap())
}

#[test]
fn grants_permit_only_what_their_rights_name() {
    let memory = mapping(4 * PAGE);
    let mut grants = Grants::new();
    for (at, rights) in [Rights::READ, Rights::WRITE, Rights::READ_WRITE].into_iter().enumerate() {
        let at = at as u64 * PAGE;
        grants.grant_in(grant(at, PAGE, at, rights), &memory).unwrap();
    }
    let map = grants.epoch();
    let mut bytes = [0; 4];
    for (addr, reads, writes) in [(0, true, false), (PAGE, false, true), (2 * PAGE, true, true)] {
        assert_eq!(map.read(addr, &mut bytes).is_ok(), reads);
        assert_eq!(map.write(addr, &bytes).is_ok(), writes);
        assert_eq!(map.write_changed(addr, &[0; 8]).is_ok(), writes);
        assert_eq!(map.write_framed(addr, &[0; 12], &[0; 4]), writes);
        assert_eq!(map.load_pair(addr).is_ok(), reads);
        assert_eq!(map.read_array(addr, &mut bytes), reads);
        assert_eq!(map.fetch(addr, 8, false), reads);
        assert_eq!(map.fetch(addr, 8, true), writes);
        assert_eq!(map.contains(addr, 8, Rights::READ_WRITE), reads && writes);
        assert_eq!(map.view(addr, 8).is_ok(), reads && writes);
    }
    assert!(map.write(2 * PAGE - 2, &bytes).is_ok(), "both grants permit writing");
    assert!(map.read(PAGE - 2, &mut bytes).is_err(), "the second grant permits no reading");
    let at = |addr| [Span { addr, len: 64 }];
    let (from, to) = (at(2 * PAGE), at(PAGE));
    let copied = |from: &[Span], to: &[Span]| {
        let (mut from, mut to) = (Cursor::new(from), Cursor::new(to));
        copy::copy((&map, &mut from), (&map, &mut to), 64).is_ok()
    };
    assert!(copied(&from, &to) && !copied(&to, &from));
    assert!(!copied(&from, &at(0)));
}

#[test]
fn hostile_grants_are_refused_and_change_nothing() {
    let memory = mapping(4 * PAGE);
    let mut grants = Grants::new();
    let all = Rights::READ_WRITE;
    grants.grant_in(grant(8 * PAGE, PAGE, 0, all), &memory).unwrap();
    let mut refuse = |guest, len, offset, rights| {
        let refused = grants.grant_in(grant(guest, len, offset, rights), &memory).unwrap_err();
        assert_eq!((grants.len(), grants.epoch().bytes()), (1, PAGE));
        assert!(!refused.is_shortage());
        refused
    };
    use GrantError::{Mapping, NoRights, Overlap, Range};
    assert!(matches!(refuse(0, 0, 0, all), Range { .. }));
    assert!(matches!(refuse(u64::MAX, 1, 0, all), Range { .. }));
    assert!(matches!(refuse(0, PAGE, 0, Rights::empty()), NoRights(0)));
    assert!(
        matches!(refuse(9 * PAGE - 1, 1, 0, all), Overlap { present, .. } if present == 8 * PAGE)
    );
    assert!(matches!(refuse(7 * PAGE, PAGE + 1, 0, all), Overlap { .. }));
    assert!(matches!(refuse(7 * PAGE, 3 * PAGE, 0, all), Overlap { .. }));
    for (len, offset) in [(PAGE, 3 * PAGE + 1), (5 * PAGE, 0), (1, u64::MAX), (1, 4 * PAGE)] {
        let refused = refuse(0, len, offset, all);
        assert!(matches!(refused, Mapping(MappingError::Short { .. })), "{refused}");
    }
    assert!(matches!(grants.revoke(8 * PAGE, 0), Err(Range { .. })));
    assert!(matches!(grants.revoke(8 * PAGE, u64::MAX), Err(Range { .. })));
    assert!(matches!(grants.revoke(0, 8 * PAGE), Err(GrantError::Missing { .. })));
    for (guest, len) in [(8 * PAGE, 1), (8 * PAGE + 1, PAGE), (0, 8 * PAGE + 1)] {
        assert!(matches!(grants.revoke(guest, len), Err(GrantError::Partial { .. })));
    }
    assert_eq!(grants.revoke(0, 1 << 40).unwrap(), 1);
    assert!(grants.is_empty() && grants.epoch().is_empty());
}

#[test]
fn grants_of_one_file_share_one_mapping_that_outlives_them_in_old_epochs() {
    let name = format!("grants-{}", std::process::id());
    let file = rustix::fs::memfd_create(&*name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 64 * PAGE).unwrap();
    let handed = || ReceivedFd::new(file.try_clone().unwrap());
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(&name)).count()
    };
    let mut grants = Grants::new();
    for page in 0..32 {
        let one = grant(page * 2 * PAGE, PAGE, page * PAGE, Rights::READ_WRITE);
        grants.grant(one, handed()).unwrap();
    }
    assert_eq!(mapped(), 1);
    let beyond = grant(1 << 30, PAGE, 64 * PAGE, Rights::READ);
    assert!(matches!(grants.grant(beyond, handed()), Err(GrantError::Mapping(_))));
    // The file grows: the range behind the first mapping needs another one.
    rustix::fs::ftruncate(&file, 65 * PAGE).unwrap();
    grants.grant(beyond, handed()).unwrap();
    assert_eq!(mapped(), 2);
    let old = grants.epoch();
    assert_eq!(grants.revoke(0, 1 << 20).unwrap(), 32);
    assert_eq!(grants.revoke(1 << 30, PAGE).unwrap(), 1);
    assert_eq!(mapped(), 2, "the old epoch uses them");
    old.write(2 * PAGE, b"kept").unwrap();
    let mut bytes = [0; 4];
    old.read(2 * PAGE, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    assert!(grants.epoch().read(2 * PAGE, &mut bytes).is_err());
    drop(old);
    assert_eq!(mapped(), 0);
}

#[test]
fn hostile_files_of_grants_are_bounded_and_may_shrink() {
    let mut grants = Grants::new();
    let add = |grants: &mut Grants, at: u64| {
        let one = grant(at * PAGE, PAGE, 0, Rights::READ_WRITE);
        grants.grant(one, ReceivedFd::new(unsealed(PAGE)))
    };
    for at in 0..64 {
        add(&mut grants, at).unwrap();
    }
    assert!(matches!(add(&mut grants, 64), Err(GrantError::Files)));
    grants.revoke(5 * PAGE, PAGE).unwrap();
    add(&mut grants, 64).unwrap();
    let odd = ReceivedFd::new(std::fs::File::open("/dev/null").unwrap().into());
    let refused = grants.grant(grant(1 << 40, PAGE, 0, Rights::READ), odd);
    assert!(matches!(refused, Err(GrantError::Mapping(MappingError::NotMemory))));
    let file = unsealed(PAGE);
    grants.clear();
    grants
        .grant(grant(0, PAGE, 0, Rights::READ), ReceivedFd::new(file.try_clone().unwrap()))
        .unwrap();
    let map = grants.epoch();
    rustix::fs::ftruncate(&file, 0).unwrap();
    assert!(!map.is_poisoned());
    map.read(0, &mut [0; 8]).unwrap();
    assert!(map.is_poisoned());
}

#[test]
fn grants_of_single_pages_number_262_144() {
    const COUNT: u64 = 262_144;
    let memory = mapping(64 * PAGE);
    let page = |n: u64| grant(n * PAGE, PAGE, n % 64 * PAGE, Rights::READ_WRITE);
    let mut grants = Grants::new();
    // In an order that is neither ascending nor descending.
    for n in (0..COUNT).map(|n| n * 92_821 % COUNT) {
        grants.grant_in(page(n), &memory).unwrap();
    }
    let one_more = grants.grant_in(page(COUNT), &memory);
    assert!(matches!(one_more, Err(GrantError::Many)));
    let full = grants.epoch();
    assert_eq!(full.bytes(), COUNT * PAGE);
    assert!(full.contains(0, COUNT * PAGE, Rights::READ_WRITE));
    full.write(777 * PAGE - 2, b"pieces").unwrap();
    let mut bytes = [0; 6];
    full.read(777 * PAGE - 2, &mut bytes).unwrap();
    assert_eq!(&bytes, b"pieces");
    // Each change is seen by the next epoch and by no earlier one.
    let mut last = full;
    for n in (0..COUNT).step_by(4099) {
        assert_eq!(grants.revoke(n * PAGE, PAGE).unwrap(), 1);
        let epoch = grants.epoch();
        assert!(last.contains(n * PAGE, PAGE, Rights::READ));
        assert!(!epoch.contains(n * PAGE, 1, Rights::READ));
        last = epoch;
    }
    grants.revoke(0, COUNT * PAGE).unwrap();
    assert!(grants.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Grant(u64, u64, u64, bool),
    Revoke(u64, u64),
    Write(u64, u8, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u64..60, 1_u64..6, 0_u64..12, any::<bool>())
            .prop_map(|(at, len, offset, writes)| Step::Grant(at, len, offset, writes)),
        1 => (0_u64..60, 1_u64..20).prop_map(|(at, len)| Step::Revoke(at, len)),
        3 => (0_u64..1000, any::<u8>(), 1_usize..80)
            .prop_map(|(at, byte, len)| Step::Write(at, byte, len)),
    ];
    prop::collection::vec(step, 1..80)
}

/// Guest addresses as an array: the offset of each byte in the file, and whether it may be written.
type Model = Vec<Option<(usize, bool)>>;

fn read(map: &Map, model: &Model, file: &[u8]) {
    for (addr, cell) in model.iter().enumerate() {
        let mut byte = [0];
        let read = map.read(addr as u64, &mut byte).ok().map(|()| byte[0]);
        assert_eq!(read, cell.map(|(at, _)| file[at]), "{addr:#x}");
    }
}

proptest! {
    /// Grants of units of 16 bytes in a file of 16 units.
    #[test]
    fn grants_equal_a_model_of_bytes(steps in steps()) {
        const UNIT: usize = 16;
        let memory = mapping(16 * UNIT as u64);
        let mut file = vec![0_u8; 16 * UNIT];
        let mut model: Model = vec![None; 70 * UNIT];
        let mut grants = Grants::new();
        for step in steps {
            match step {
                Step::Grant(at, len, offset, writes) => {
                    let rights = if writes { Rights::READ_WRITE } else { Rights::READ };
                    let unit = UNIT as u64;
                    let one = grant(at * unit, len * unit, offset * unit, rights);
                    let cells = &mut model[at as usize * UNIT..(at + len) as usize * UNIT];
                    let free = cells.iter().all(Option::is_none) && offset + len <= 16;
                    prop_assert_eq!(grants.grant_in(one, &memory).is_ok(), free);
                    if free {
                        for (n, cell) in cells.iter_mut().enumerate() {
                            *cell = Some((offset as usize * UNIT + n, writes));
                        }
                    }
                }
                Step::Revoke(at, len) => {
                    let unit = UNIT as u64;
                    let end = ((at + len) as usize * UNIT).min(model.len());
                    match grants.revoke(at * unit, len * unit) {
                        Ok(_) => model[at as usize * UNIT..end].fill(None),
                        Err(GrantError::Missing { .. }) => {
                            let cells = &model[at as usize * UNIT..end];
                            prop_assert!(cells.iter().all(Option::is_none));
                        }
                        Err(error) => {
                            prop_assert!(matches!(error, GrantError::Partial { .. }), "{}", error);
                        }
                    }
                }
                Step::Write(addr, byte, len) => {
                    let cells = &model[addr as usize..addr as usize + len];
                    let whole = cells.iter().all(|cell| cell.is_some_and(|(_, writes)| writes));
                    let before = grants.epoch();
                    prop_assert_eq!(before.contains(addr, len as u64, Rights::WRITE), whole);
                    if whole {
                        before.write(addr, &vec![byte; len]).unwrap();
                        for (at, _) in cells.iter().flatten() {
                            file[*at] = byte;
                        }
                    }
                }
            }
        }
        read(&grants.epoch(), &model, &file);
    }
}
