//! The arguments of atomic operations on remote memory: layouts and numbers, as in `fi_atomic(3)`.
//!
//! The application passes them to the functions of an endpoint ([`endpoint`](super::endpoint)).
//! `shell::atomic` checks the numbers, and `rdm::atomic` has the supported combinations; an
//! unsupported combination is `-FI_EOPNOTSUPP` there. Collective operations use the same types and
//! operations; the provider implements none. The module has no behaviour.

use std::ffi::c_void;

use super::av::FiAddr;

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
