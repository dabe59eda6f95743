//! Collective operations, which this provider does not implement: the layout and the table of
//! functions, as in `fi_collective(3)`.
//!
//! The table exists because endpoints must have it. The application may call its functions in any
//! thread; each returns `-FI_ENOSYS` and has no effect. MPI libraries then use collectives of their
//! own over messages.

use std::ffi::c_void;

use super::FiAddr;
use super::atomic::{FiAtomicAttr, FiIoc};
use super::endpoint::FidEp;
use super::ops::tables;

/// `struct fi_collective_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiCollectiveAttr {
    pub op: u32,
    pub datatype: u32,
    pub datatype_attr: FiAtomicAttr,
    pub max_members: usize,
    pub mode: u64,
}

tables! {
    /// `struct fi_ops_collective`.
    OpsCollective {
        barrier(ep: *mut FidEp, group: FiAddr, context: *mut c_void) -> isize;
        broadcast(
            ep: *mut FidEp, buf: *mut c_void, count: usize, desc: *mut c_void, group: FiAddr,
            root: FiAddr, datatype: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        alltoall(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        allreduce(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32, op: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        allgather(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        reduce_scatter(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32, op: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        reduce(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, root: FiAddr,
            datatype: u32, op: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        scatter(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, root: FiAddr,
            datatype: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        gather(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, root: FiAddr,
            datatype: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        msg(
            ep: *mut FidEp, msg: *const c_void, resultv: *mut FiIoc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize;
        barrier2(ep: *mut FidEp, group: FiAddr, flags: u64, context: *mut c_void) -> isize;
    }
}
