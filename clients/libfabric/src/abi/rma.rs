//! Reads and writes of remote memory: layouts and the table of functions, as in `fi_rma(3)`.
//!
//! The application's threads call the functions through the table of an endpoint, which
//! `shell::rma` fills. The module has no behaviour: `shell` checks the numbers of segments and the
//! length of injected writes, `rdm::initiator` other lengths, and the peer that owns the memory
//! keys and bounds.

use std::ffi::c_void;

use libc::iovec;

use super::FiAddr;
use super::endpoint::FidEp;
use super::ops::tables;

/// `struct fi_rma_iov`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiRmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// `struct fi_msg_rma`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiMsgRma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub rma_iov: *const FiRmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

tables! {
    /// `struct fi_ops_rma`.
    OpsRma {
        read(
            ep: *mut FidEp, buf: *mut c_void, len: usize, desc: *mut c_void, from: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        readv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, from: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        readmsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize;
        write(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, to: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        writev(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, to: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        writemsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize;
        inject(
            ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr, addr: u64, key: u64,
        ) -> isize;
        writedata(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            to: FiAddr, addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        injectdata(
            ep: *mut FidEp, buf: *const c_void, len: usize, data: u64, to: FiAddr, addr: u64,
            key: u64,
        ) -> isize;
    }
}
