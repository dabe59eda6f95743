//! Messages without tags: the layout of a message and the table of functions, as in `fi_msg(3)`.
//!
//! The application's threads send and receive through the table of an endpoint, which `shell::msg`
//! fills. The module has no behaviour: `shell` checks the numbers of buffers and the length of
//! injected messages, `rdm` other lengths and limits, and a full queue is `-FI_EAGAIN`.

use std::ffi::c_void;

use libc::iovec;

use super::FiAddr;
use super::endpoint::FidEp;
use super::ops::tables;

/// `struct fi_msg`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiMsg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub context: *mut c_void,
    pub data: u64,
}

tables! {
    /// `struct fi_ops_msg`.
    OpsMsg {
        recv(
            ep: *mut FidEp, buf: *mut c_void, len: usize, desc: *mut c_void, from: FiAddr,
            context: *mut c_void,
        ) -> isize;
        recvv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, from: FiAddr,
            context: *mut c_void,
        ) -> isize;
        recvmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize;
        send(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, to: FiAddr,
            context: *mut c_void,
        ) -> isize;
        sendv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, to: FiAddr,
            context: *mut c_void,
        ) -> isize;
        sendmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize;
        inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr) -> isize;
        senddata(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            to: FiAddr, context: *mut c_void,
        ) -> isize;
        injectdata(
            ep: *mut FidEp, buf: *const c_void, len: usize, data: u64, to: FiAddr,
        ) -> isize;
    }
}
