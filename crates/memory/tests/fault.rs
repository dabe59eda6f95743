//! A granted file that is short or shrinks costs its guest, never the process.

mod common;

use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_memory::{Cursor, Map, Mapping, MappingError, Span, View, copy, create, io};
use common::{map_of, region, unsealed};

const MIB: u64 = 1 << 20;

#[test]
fn hostile_file_shorter_than_announced_is_refused() {
    let file = unsealed(4096);
    let error = Mapping::new(file.as_fd(), 0, MIB).unwrap_err();
    assert!(matches!(error, MappingError::Short { size: 4096, needed: MIB }), "{error}");
    assert!(matches!(Mapping::new(file.as_fd(), 4096, 1), Err(MappingError::Short { .. })));
}

#[test]
fn hostile_ranges_that_are_empty_or_wrap_are_refused() {
    let file = unsealed(4096);
    for (offset, len) in [(0, 0), (u64::MAX, 2), (1, u64::MAX), (0, u64::MAX)] {
        let error = Mapping::new(file.as_fd(), offset, len).unwrap_err();
        assert!(matches!(error, MappingError::Range { .. }), "{offset} {len}: {error}");
    }
}

#[test]
fn hostile_file_that_shrinks_poisons_only_its_own_map() {
    let file = unsealed(MIB);
    let victim = map_of(0, MIB);
    let hostile = Map::new(vec![region(&file, 0, 0, MIB)]).unwrap();
    hostile.write(5000, b"there").unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();

    let mut bytes = [1_u8; 5];
    hostile.read(5000, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 5], "a lost page reads as zeros");
    assert!(hostile.poisoned());
    hostile.write(900_000, b"nowhere").unwrap();

    victim.write(77, b"alive").unwrap();
    victim.read(77, &mut bytes).unwrap();
    assert_eq!(&bytes, b"alive");
    assert!(!victim.poisoned());
}

#[test]
fn hostile_shrink_during_a_copy_between_guests() {
    let file = unsealed(MIB);
    let from = Map::new(vec![region(&file, 0, 0, MIB)]).unwrap();
    let to = map_of(0, MIB);
    rustix::fs::ftruncate(&file, 8192).unwrap();
    let spans = [Span { addr: 0, len: MIB as u32 }];
    copy::copy((&from, &mut Cursor::new(&spans)), (&to, &mut Cursor::new(&spans)), MIB).unwrap();
    assert!(from.poisoned());
    assert!(!to.poisoned());
}

#[test]
fn hostile_shrink_under_a_ring_window_and_a_system_call() {
    let file = unsealed(MIB);
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, MIB).unwrap());
    let view = View::new(Arc::clone(&mapping), 8192, 64).unwrap();
    let other = unsealed(MIB);
    let map = Map::new(vec![region(&other, 0, 0, MIB)]).unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    rustix::fs::ftruncate(&other, 0).unwrap();
    assert_eq!(view.load(0, std::sync::atomic::Ordering::Acquire).unwrap(), 0);
    assert!(view.poisoned());

    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let spans = [Span { addr: 0, len: 64 }];
    let sent = io::send(near.as_fd(), &map, &mut Cursor::new(&spans), 64);
    assert_eq!(sent, Err(rustix::io::Errno::FAULT));
    assert!(map.poisoned());
}

#[test]
fn a_sealed_file_cannot_shrink() {
    let file = create("sealed", MIB).unwrap();
    assert!(rustix::fs::ftruncate(&file, 0).is_err());
    assert!(rustix::fs::ftruncate(&file, 2 * MIB).is_err());
}

#[test]
fn mappings_are_given_back() {
    let before = std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:give").count();
    for _ in 0..100 {
        let file = create("give", MIB).unwrap();
        let map = Map::new(vec![region(&file, 4096, 0, 8192)]).unwrap();
        map.write(8000, b"x").unwrap();
    }
    let after = std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:give").count();
    assert_eq!(before, after);
}
