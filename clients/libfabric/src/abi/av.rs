//! Address vectors and their indices: layouts and the table of functions, as in `fi_av(3)`.
//!
//! The application's threads call the functions through the table, which `shell::av` fills. The
//! module has no behaviour: limits of a vector and checks of addresses are in
//! `rdm::address_vector`, and functions that the provider does not have return `-FI_ENOSYS`
//! ([`super::ops`]).

use std::ffi::{c_char, c_int, c_void};

use super::fid::Fid;
use super::ops::tables;

/// `fi_addr_t`: an index into an address vector.
pub type FiAddr = u64;

/// `FI_ADDR_UNSPEC`: any source.
pub const FI_ADDR_UNSPEC: FiAddr = u64::MAX;
/// `FI_ADDR_NOTAVAIL`: a source that is not in the address vector.
pub const FI_ADDR_NOTAVAIL: FiAddr = u64::MAX;

/// `struct fi_av_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiAvAttr {
    pub kind: u32,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// `struct fid_av`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const OpsAv,
}

tables! {
    /// `struct fi_ops_av`.
    OpsAv {
        insert(
            av: *mut FidAv, addr: *const c_void, count: usize, to: *mut FiAddr, flags: u64,
            context: *mut c_void,
        ) -> c_int;
        insertsvc(
            av: *mut FidAv, node: *const c_char, service: *const c_char, to: *mut FiAddr,
            flags: u64, context: *mut c_void,
        ) -> c_int;
        insertsym(
            av: *mut FidAv, node: *const c_char, nodes: usize, service: *const c_char,
            services: usize, to: *mut FiAddr, flags: u64, context: *mut c_void,
        ) -> c_int;
        remove(av: *mut FidAv, which: *mut FiAddr, count: usize, flags: u64) -> c_int;
        lookup(av: *mut FidAv, which: FiAddr, addr: *mut c_void, len: *mut usize) -> c_int;
        straddr(
            av: *mut FidAv, addr: *const c_void, buf: *mut c_char, len: *mut usize,
        ) -> *const c_char;
        av_set(
            av: *mut FidAv, attr: *mut c_void, set: *mut *mut c_void, context: *mut c_void,
        ) -> c_int;
    }
}

// Kinds.
pub const FI_AV_UNSPEC: u32 = 0;
pub const FI_AV_MAP: u32 = 1;
pub const FI_AV_TABLE: u32 = 2;
