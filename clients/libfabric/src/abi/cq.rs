//! Completion queues and counters: layouts of entries, formats and tables of functions, as in
//! `fi_cq(3)` and `fi_cntr(3)`.
//!
//! The application's threads call the functions through the tables, which `shell::cq` and
//! `shell::cntr` fill. `shell::cq` writes the entries into the application's buffers: the fields of
//! the queue's format, and of an error entry those for which the caller's version of the interface
//! has room. The module has no behaviour: `shell::cq` keeps the entries, and `domain` holds back work
//! while a queue is full.

use std::ffi::{c_char, c_int, c_void};

use super::av::FiAddr;
use super::fid::Fid;
use super::ops::tables;
use super::wait::FidWait;

/// `struct fi_cq_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: u32,
    pub wait_obj: u32,
    pub signaling_vector: c_int,
    pub wait_cond: u32,
    pub wait_set: *mut FidWait,
}

/// `struct fi_cq_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCqEntry {
    pub op_context: *mut c_void,
}

/// `struct fi_cq_msg_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCqMsgEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

/// `struct fi_cq_data_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCqDataEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

/// `struct fi_cq_tagged_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCqTaggedEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// `struct fi_cq_err_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCqErrEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    /// Since 1.5; earlier callers have no room for error data.
    pub err_data_size: usize,
    /// Since 1.20; earlier callers have no room for it.
    pub src_addr: FiAddr,
}

/// `struct fid_cq`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const OpsCq,
}

/// `struct fi_cntr_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCntrAttr {
    pub events: u32,
    pub wait_obj: u32,
    pub wait_set: *mut FidWait,
    pub flags: u64,
}

/// `struct fid_cntr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidCntr {
    pub fid: Fid,
    pub ops: *const OpsCntr,
}

tables! {
    /// `struct fi_ops_cq`.
    OpsCq {
        read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize;
        readfrom(
            cq: *mut FidCq, buf: *mut c_void, count: usize, from: *mut FiAddr,
        ) -> isize;
        readerr(cq: *mut FidCq, entry: *mut FiCqErrEntry, flags: u64) -> isize;
        sread(
            cq: *mut FidCq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int,
        ) -> isize;
        sreadfrom(
            cq: *mut FidCq, buf: *mut c_void, count: usize, from: *mut FiAddr,
            cond: *const c_void, timeout: c_int,
        ) -> isize;
        signal(cq: *mut FidCq) -> c_int;
        strerror(
            cq: *mut FidCq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
            len: usize,
        ) -> *const c_char;
    }

    /// `struct fi_ops_cntr`.
    OpsCntr {
        read(cntr: *mut FidCntr) -> u64;
        readerr(cntr: *mut FidCntr) -> u64;
        add(cntr: *mut FidCntr, value: u64) -> c_int;
        set(cntr: *mut FidCntr, value: u64) -> c_int;
        wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int;
        adderr(cntr: *mut FidCntr, value: u64) -> c_int;
        seterr(cntr: *mut FidCntr, value: u64) -> c_int;
    }
}

// Formats of completions.
pub const FI_CQ_FORMAT_UNSPEC: u32 = 0;
pub const FI_CQ_FORMAT_CONTEXT: u32 = 1;
pub const FI_CQ_FORMAT_MSG: u32 = 2;
pub const FI_CQ_FORMAT_DATA: u32 = 3;
pub const FI_CQ_FORMAT_TAGGED: u32 = 4;

// Wait conditions.
pub const FI_CQ_COND_NONE: u32 = 0;
pub const FI_CQ_COND_THRESHOLD: u32 = 1;

/// A counter of completions.
pub const FI_CNTR_EVENTS_COMP: u32 = 0;
/// A counter of bytes, since 2.0.
pub const FI_CNTR_EVENTS_BYTES: u32 = 1;
