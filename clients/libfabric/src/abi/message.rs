//! The arguments of messages, reads and writes: layouts only, as in `fi_msg(3)`, `fi_tagged(3)` and
//! `fi_rma(3)`.
//!
//! The application passes them to the functions of an endpoint ([`endpoint`](super::endpoint)).
//! `shell::msg`, `shell::tagged` and `shell::rma` read them in the application's thread and check
//! the numbers of buffers. The module checks no value.

use std::ffi::c_void;

use libc::iovec;

use super::av::FiAddr;

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

/// `struct fi_msg_tagged`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiMsgTagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

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
