//! Event queues: layouts and the table of functions, as in `fi_eq(3)`.
//!
//! The application's threads call the functions through the table, which `shell::eq` fills;
//! `shell::eq` also writes the entries into the application's buffers and bounds the queue. The
//! module has no behaviour. Events of connections have numbers only: the provider has no
//! connections.

use std::ffi::{c_char, c_int, c_void};

use super::fid::Fid;
use super::ops::tables;
use super::wait::FidWait;

/// `struct fi_eq_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiEqAttr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: u32,
    pub signaling_vector: c_int,
    pub wait_set: *mut FidWait,
}

/// `struct fi_eq_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiEqEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_eq_err_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiEqErrEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fid_eq`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidEq {
    pub fid: Fid,
    pub ops: *const OpsEq,
}

tables! {
    /// `struct fi_ops_eq`.
    OpsEq {
        read(
            eq: *mut FidEq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64,
        ) -> isize;
        readerr(eq: *mut FidEq, entry: *mut FiEqErrEntry, flags: u64) -> isize;
        write(
            eq: *mut FidEq, event: u32, buf: *const c_void, len: usize, flags: u64,
        ) -> isize;
        sread(
            eq: *mut FidEq, event: *mut u32, buf: *mut c_void, len: usize, timeout: c_int,
            flags: u64,
        ) -> isize;
        strerror(
            eq: *mut FidEq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
            len: usize,
        ) -> *const c_char;
    }
}

// Events.
pub const FI_NOTIFY: u32 = 0;
pub const FI_CONNREQ: u32 = 1;
pub const FI_CONNECTED: u32 = 2;
pub const FI_SHUTDOWN: u32 = 3;
pub const FI_MR_COMPLETE: u32 = 4;
pub const FI_AV_COMPLETE: u32 = 5;
pub const FI_JOIN_COMPLETE: u32 = 6;
