//! Endpoint names, and connection management, which this provider does not implement: layouts and
//! the table of functions, as in `fi_cm(3)`.
//!
//! `shell::endpoint` fills the table of an endpoint with `fi_getname`; the other functions return
//! `-FI_ENOSYS`, in the application's thread, and have no effect. Endpoints of the provider are
//! connectionless.

use std::ffi::{c_int, c_void};

use super::FiAddr;
use super::endpoint::{FidEp, FidPep};
use super::fabric::Fid;
use super::ops::tables;

/// `struct fid_mc`: a multicast group.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidMc {
    pub fid: Fid,
    pub fi_addr: FiAddr,
}

tables! {
    /// `struct fi_ops_cm`.
    OpsCm {
        setname(fid: *mut Fid, addr: *mut c_void, len: usize) -> c_int;
        getname(fid: *mut Fid, addr: *mut c_void, len: *mut usize) -> c_int;
        getpeer(ep: *mut FidEp, addr: *mut c_void, len: *mut usize) -> c_int;
        connect(
            ep: *mut FidEp, addr: *const c_void, param: *const c_void, paramlen: usize,
        ) -> c_int;
        listen(pep: *mut FidPep) -> c_int;
        accept(ep: *mut FidEp, param: *const c_void, paramlen: usize) -> c_int;
        reject(
            pep: *mut FidPep, handle: *mut Fid, param: *const c_void, paramlen: usize,
        ) -> c_int;
        shutdown(ep: *mut FidEp, flags: u64) -> c_int;
        join(
            ep: *mut FidEp, addr: *const c_void, flags: u64, mc: *mut *mut FidMc,
            context: *mut c_void,
        ) -> c_int;
    }
}
