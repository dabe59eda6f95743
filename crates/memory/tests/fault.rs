//! A granted file that is short or shrinks costs its guest, never the process.

mod common;

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;

use causeway_host::net::guest_io;
use causeway_memory::{Cursor, Map, Mapping, MappingError, Span, View, copy, create};
use common::{map_of, region, unsealed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
    assert!(hostile.is_poisoned());
    hostile.write(900_000, b"nowhere").unwrap();

    victim.write(77, b"alive").unwrap();
    victim.read(77, &mut bytes).unwrap();
    assert_eq!(&bytes, b"alive");
    assert!(!victim.is_poisoned());
}

/// Set in the process in which the kernel refuses private memory.
const REFUSED: &str = "CAUSEWAY_TEST_PRIVATE_MEMORY_REFUSED";

/// `vm.overcommit_memory=2` with its limit reached refuses private memory, and so does a limit of
/// the process on its data: the test runs itself in a process of its own, and sets that.
#[test]
fn hostile_shrink_where_the_kernel_refuses_private_memory() {
    if std::env::var_os(REFUSED).is_none() {
        let name = "hostile_shrink_where_the_kernel_refuses_private_memory";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.args(["--exact", name]).env(REFUSED, "1").status().unwrap();
        return assert!(status.success(), "{status}");
    }
    let file = unsealed(64 * MIB);
    let map = Map::new(vec![region(&file, 0, 0, 64 * MIB)]).unwrap();
    map.write(5000, b"there").unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    let before = getrlimit(Resource::Data);
    // Linux takes a limit of zero for none.
    setrlimit(Resource::Data, Rlimit { current: Some(4096), ..before }).unwrap();
    // A thread needs private memory for its stack.
    let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(|| ());
    let mut bytes = [1_u8; 5];
    let read = map.read(5000, &mut bytes);
    let written = map.write(9000, b"nowhere");
    setrlimit(Resource::Data, before).unwrap();
    assert!(thread.is_err(), "the limit does not work here");
    assert_eq!((read, written, bytes), (Ok(()), Ok(()), [0; 5]));
    assert!(map.is_poisoned());
}

#[test]
fn hostile_shrinks_do_not_share_their_substitute() {
    let lost = || {
        let file = unsealed(MIB);
        let map = Map::new(vec![region(&file, 0, 0, MIB)]).unwrap();
        rustix::fs::ftruncate(&file, 0).unwrap();
        map
    };
    let (one, other) = (lost(), lost());
    let mut bytes = [1_u8; 6];
    one.write(5000, b"secret").unwrap();
    other.read(5000, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 6]);
    drop(one);
    lost().read(5000, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 6]);
}

#[test]
fn hostile_shrink_during_a_copy_between_guests() {
    let file = unsealed(MIB);
    let from = Map::new(vec![region(&file, 0, 0, MIB)]).unwrap();
    let to = map_of(0, MIB);
    rustix::fs::ftruncate(&file, 8192).unwrap();
    let spans = [Span { addr: 0, len: MIB as u32 }];
    copy::copy((&from, &mut Cursor::new(&spans)), (&to, &mut Cursor::new(&spans)), MIB).unwrap();
    assert!(from.is_poisoned());
    assert!(!to.is_poisoned());
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
    assert!(view.is_poisoned());

    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let spans = [Span { addr: 0, len: 64 }];
    let sent = guest_io::send(near.as_fd(), &map, &mut Cursor::new(&spans), 64);
    assert_eq!(sent, Err(rustix::io::Errno::FAULT));
    assert!(map.is_poisoned());
}

#[test]
fn a_sealed_file_cannot_shrink() {
    let file = create("sealed", MIB).unwrap();
    assert!(rustix::fs::ftruncate(&file, 0).is_err());
    assert!(rustix::fs::ftruncate(&file, 2 * MIB).is_err());
}

#[test]
fn mappings_are_unmapped_on_drop() {
    let before = std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:give").count();
    for _ in 0..100 {
        let file = create("give", MIB).unwrap();
        let map = Map::new(vec![region(&file, 4096, 0, 8192)]).unwrap();
        map.write(8000, b"x").unwrap();
    }
    let after = std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:give").count();
    assert_eq!(before, after);
}
