//! Registered memory: layouts, modes and the table of functions, as in `fi_mr(3)`.
//!
//! The application's threads register memory through the table of a domain, which `shell::mr`
//! fills. The module has no behaviour: `shell::mr` checks the number of segments, `rdm::regions`
//! the key and the limit of regions, and keys and access rights of requests. Raw and shared keys
//! have layouts only.

use std::ffi::{c_int, c_void};

use libc::iovec;

use super::fid::Fid;
use super::ops::tables;

/// `FI_KEY_NOTAVAIL`: a key that does not exist yet.
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;

/// `struct fid_mr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// `struct fi_mr_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiMrAttr {
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    /// Valid only with `FI_HMEM`, as the following.
    pub iface: u32,
    pub device: u64,
    /// Since 1.19.
    pub hmem_data: *mut c_void,
    /// Since 2.0.
    pub page_size: usize,
    /// Since 2.0.
    pub base_mr: *const FidMr,
    /// Since 2.0.
    pub sub_mr_cnt: usize,
}

tables! {
    /// `struct fi_ops_mr`.
    OpsMr {
        reg(
            fid: *mut Fid, buf: *const c_void, len: usize, access: u64, offset: u64, key: u64,
            flags: u64, mr: *mut *mut FidMr, context: *mut c_void,
        ) -> c_int;
        regv(
            fid: *mut Fid, iov: *const iovec, count: usize, access: u64, offset: u64, key: u64,
            flags: u64, mr: *mut *mut FidMr, context: *mut c_void,
        ) -> c_int;
        regattr(
            fid: *mut Fid, attr: *const FiMrAttr, flags: u64, mr: *mut *mut FidMr,
        ) -> c_int;
    }
}

/// `struct fi_mr_raw_attr`, the argument of `FI_GET_RAW_MR`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiMrRawAttr {
    pub flags: u64,
    pub base_addr: *mut u64,
    pub raw_key: *mut u8,
    pub key_size: *mut usize,
}

/// `struct fi_mr_map_raw`, the argument of `FI_MAP_RAW_MR`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiMrMapRaw {
    pub flags: u64,
    pub base_addr: u64,
    pub raw_key: *mut u8,
    pub key_size: usize,
    pub key: *mut u64,
}

// Modes of `mr_mode`: requirements that an application accepts.
pub const FI_MR_UNSPEC: i32 = 0;
pub const FI_MR_BASIC: i32 = 1;
pub const FI_MR_SCALABLE: i32 = 1 << 1;
pub const FI_MR_LOCAL: i32 = 1 << 2;
pub const FI_MR_RAW: i32 = 1 << 3;
pub const FI_MR_VIRT_ADDR: i32 = 1 << 4;
pub const FI_MR_ALLOCATED: i32 = 1 << 5;
pub const FI_MR_PROV_KEY: i32 = 1 << 6;
pub const FI_MR_MMU_NOTIFY: i32 = 1 << 7;
pub const FI_MR_RMA_EVENT: i32 = 1 << 8;
pub const FI_MR_ENDPOINT: i32 = 1 << 9;
pub const FI_MR_HMEM: i32 = 1 << 10;
pub const FI_MR_COLLECTIVE: i32 = 1 << 11;

/// Host memory.
pub const FI_HMEM_SYSTEM: u32 = 0;
