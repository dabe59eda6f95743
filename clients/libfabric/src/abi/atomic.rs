//! Atomic operations on remote memory: layouts, numbers and the table of functions, as in
//! `fi_atomic(3)`.
//!
//! The application's threads call the functions of [`OpsAtomic`] through the table of an endpoint;
//! `shell::atomic` fills the table, and `rdm::atomic` has the supported combinations. The module
//! has no behaviour: numbers from callers are checked in `shell`, and an unsupported combination is
//! `-FI_EOPNOTSUPP` there.

use std::ffi::{c_int, c_void};

use super::FiAddr;
use super::endpoint::FidEp;
use super::ops::tables;

/// `struct fi_ioc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiIoc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// `struct fi_rma_ioc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiRmaIoc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// `struct fi_atomic_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiAtomicAttr {
    pub count: usize,
    pub size: usize,
}

/// `struct fi_msg_atomic`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiMsgAtomic {
    pub msg_iov: *const FiIoc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub rma_iov: *const FiRmaIoc,
    pub rma_iov_count: usize,
    pub datatype: u32,
    pub op: u32,
    pub context: *mut c_void,
    pub data: u64,
}

tables! {
    /// `struct fi_ops_atomic`.
    OpsAtomic {
        write(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        writev(
            ep: *mut FidEp, iov: *const FiIoc, desc: *mut *mut c_void, count: usize, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        writemsg(ep: *mut FidEp, msg: *const FiMsgAtomic, flags: u64) -> isize;
        inject(
            ep: *mut FidEp, buf: *const c_void, count: usize, to: FiAddr, addr: u64, key: u64,
            datatype: u32, op: u32,
        ) -> isize;
        readwrite(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, to: FiAddr, addr: u64, key: u64,
            datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        readwritev(
            ep: *mut FidEp, iov: *const FiIoc, desc: *mut *mut c_void, count: usize,
            resultv: *mut FiIoc, result_desc: *mut *mut c_void, result_count: usize, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        readwritemsg(
            ep: *mut FidEp, msg: *const FiMsgAtomic, resultv: *mut FiIoc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize;
        compwrite(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, to: FiAddr, addr: u64, key: u64, datatype: u32, op: u32,
            context: *mut c_void,
        ) -> isize;
        compwritev(
            ep: *mut FidEp, iov: *const FiIoc, desc: *mut *mut c_void, count: usize,
            comparev: *const FiIoc, compare_desc: *mut *mut c_void, compare_count: usize,
            resultv: *mut FiIoc, result_desc: *mut *mut c_void, result_count: usize, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        compwritemsg(
            ep: *mut FidEp, msg: *const FiMsgAtomic, comparev: *const FiIoc,
            compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut FiIoc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize;
        writevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int;
        readwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int;
        compwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int;
    }
}

// Types.
pub const FI_INT8: u32 = 0;
pub const FI_UINT8: u32 = 1;
pub const FI_INT16: u32 = 2;
pub const FI_UINT16: u32 = 3;
pub const FI_INT32: u32 = 4;
pub const FI_UINT32: u32 = 5;
pub const FI_INT64: u32 = 6;
pub const FI_UINT64: u32 = 7;
pub const FI_FLOAT: u32 = 8;
pub const FI_DOUBLE: u32 = 9;
pub const FI_FLOAT_COMPLEX: u32 = 10;
pub const FI_DOUBLE_COMPLEX: u32 = 11;
pub const FI_LONG_DOUBLE: u32 = 12;
pub const FI_LONG_DOUBLE_COMPLEX: u32 = 13;
pub const FI_INT128: u32 = 14;
pub const FI_UINT128: u32 = 15;

// Operations.
pub const FI_MIN: u32 = 0;
pub const FI_MAX: u32 = 1;
pub const FI_SUM: u32 = 2;
pub const FI_PROD: u32 = 3;
pub const FI_LOR: u32 = 4;
pub const FI_LAND: u32 = 5;
pub const FI_BOR: u32 = 6;
pub const FI_BAND: u32 = 7;
pub const FI_LXOR: u32 = 8;
pub const FI_BXOR: u32 = 9;
pub const FI_ATOMIC_READ: u32 = 10;
pub const FI_ATOMIC_WRITE: u32 = 11;
pub const FI_CSWAP: u32 = 12;
pub const FI_CSWAP_NE: u32 = 13;
pub const FI_CSWAP_LE: u32 = 14;
pub const FI_CSWAP_LT: u32 = 15;
pub const FI_CSWAP_GE: u32 = 16;
pub const FI_CSWAP_GT: u32 = 17;
pub const FI_MSWAP: u32 = 18;
