//! Maps over fresh memory files, for this crate's tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_memory::{Map, Mapping, Region};

/// A file that can still shrink, as Cloud Hypervisor's.
pub fn unsealed(len: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, len).unwrap();
    file
}

/// A region of `len` bytes at guest address `guest`, backed by `file` from `offset`.
pub fn region(file: &OwnedFd, offset: u64, guest: u64, len: u64) -> Region {
    let mapping = Arc::new(Mapping::new(file.as_fd(), offset, len).unwrap());
    Region { guest, user: guest + 0x7000_0000_0000, mapping }
}

/// A map of one region of `len` bytes at guest address `guest`.
pub fn map_of(guest: u64, len: u64) -> Map {
    Map::new(vec![region(&unsealed(len), 0, guest, len)]).unwrap()
}
