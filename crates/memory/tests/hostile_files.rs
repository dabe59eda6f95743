//! Memory files are distinguished from other descriptors without system calls that other file
//! systems can delay.

mod common;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use causeway_memory::{Mapping, MappingError, is_memory};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

#[track_caller]
fn refused(file: &impl AsFd) {
    assert!(!is_memory(file.as_fd()));
    let error = Mapping::new(file.as_fd(), 0, 1).unwrap_err();
    assert!(matches!(error, MappingError::NotMemory), "{error}");
}

#[test]
fn hostile_files_of_other_file_systems() {
    // Regular files, with and without bytes.
    refused(&File::open("/proc/self/status").unwrap());
    refused(&File::open("/sys/kernel/mm/transparent_hugepage/enabled").unwrap());
    refused(&File::open("/proc/self/exe").unwrap());
    refused(&File::open("/").unwrap());
    refused(&File::open("/dev/zero").unwrap());
}

#[test]
fn hostile_descriptors_that_are_no_files() {
    let flags = SocketFlags::CLOEXEC;
    let (socket, _other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    refused(&socket);
    refused(&eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let (pipe, _end) = std::io::pipe().unwrap();
    refused(&pipe);
    // Only a path to memory, which can be neither mapped nor queried.
    let memory = common::unsealed(4096);
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    refused(&open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap());
}

fn taken(file: &OwnedFd, len: u64) {
    ftruncate(file, len).unwrap();
    Mapping::new(file.as_fd(), 0, len).unwrap();
}

#[test]
fn memory_files_of_every_kind_are_taken() {
    taken(&memfd_create("plain", MemfdFlags::CLOEXEC).unwrap(), 4096);
    let seals = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    taken(&memfd_create("seals", seals).unwrap(), 4096);
    let sealed = causeway_memory::create("sealed", 4096).unwrap();
    Mapping::new(sealed.as_fd(), 0, 4096).unwrap();
    // Huge pages are reserved when they are touched; the kernel may have no file system for them.
    if let Ok(huge) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) {
        assert!(is_memory(huge.as_fd()));
    }
    let dir = std::path::Path::new("/dev/shm");
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    if let Ok(file) = open(dir, flags, Mode::RUSR | Mode::WUSR) {
        taken(&file, 4096);
    }
}
