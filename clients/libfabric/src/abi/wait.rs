//! Wait objects of queues and counters, wait sets and poll sets: numbers and layouts, as in
//! `fi_poll(3)`.
//!
//! `domain::wait_fd` implements the wait objects of completion queues and counters, and `shell::eq`
//! those of event queues. `shell::cq`, `shell::cntr` and `shell::eq` refuse other kinds at the
//! opening (`-FI_ENOSYS`). Wait sets and poll sets are not offered: their opening is refused with
//! `-FI_ENOSYS`. The module has no behaviour.

use std::ffi::{c_int, c_void};

use super::fid::Fid;
use super::ops::tables;

// Wait objects.
pub const FI_WAIT_NONE: u32 = 0;
pub const FI_WAIT_UNSPEC: u32 = 1;
pub const FI_WAIT_SET: u32 = 2;
pub const FI_WAIT_FD: u32 = 3;
pub const FI_WAIT_MUTEX_COND: u32 = 4;
pub const FI_WAIT_YIELD: u32 = 5;
pub const FI_WAIT_POLLFD: u32 = 6;

/// `struct fi_wait_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiWaitAttr {
    pub wait_obj: u32,
    pub flags: u64,
}

/// `struct fi_wait_pollfd`, which `FI_GETWAIT` fills for `FI_WAIT_POLLFD`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiWaitPollfd {
    pub change_index: u64,
    pub nfds: usize,
    pub fd: *mut libc::pollfd,
}

/// `struct fid_wait`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidWait {
    pub fid: Fid,
    pub ops: *const OpsWait,
}

/// `struct fi_poll_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiPollAttr {
    pub flags: u64,
}

/// `struct fid_poll`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidPoll {
    pub fid: Fid,
    pub ops: *const OpsPoll,
}

tables! {
    /// `struct fi_ops_wait`.
    OpsWait {
        wait(set: *mut FidWait, timeout: c_int) -> c_int;
    }

    /// `struct fi_ops_poll`.
    OpsPoll {
        poll(set: *mut FidPoll, contexts: *mut *mut c_void, count: c_int) -> c_int;
        poll_add(set: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int;
        poll_del(set: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int;
    }
}
