//! Endpoints and their options: layouts and the table of functions, as in `fi_endpoint(3)`.
//!
//! The application's threads call the functions through the table, which `shell::endpoint` fills.
//! The module has no behaviour: the numbers of options and their values are checked there. Passive
//! endpoints and shared contexts have layouts only; the provider opens none.

use std::ffi::{c_int, c_void};

use super::atomic::OpsAtomic;
use super::cm::OpsCm;
use super::collective::OpsCollective;
use super::fabric::Fid;
use super::info::{FiRxAttr, FiTxAttr};
use super::msg::OpsMsg;
use super::ops::tables;
use super::rma::OpsRma;
use super::tagged::OpsTagged;

/// `struct fid_ep`. No table may be NULL, because applications call through all of them.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const OpsEp,
    pub cm: *const OpsCm,
    pub msg: *const OpsMsg,
    pub rma: *const OpsRma,
    pub tagged: *const OpsTagged,
    pub atomic: *const OpsAtomic,
    pub collective: *const OpsCollective,
}

/// `struct fid_pep`: a passive endpoint.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidPep {
    pub fid: Fid,
    pub ops: *const OpsEp,
    pub cm: *const OpsCm,
}

/// `struct fid_stx`: a shared transmit context.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidStx {
    pub fid: Fid,
    pub ops: *const OpsEp,
}

tables! {
    /// `struct fi_ops_ep`.
    OpsEp {
        cancel(fid: *mut Fid, context: *mut c_void) -> isize;
        getopt(
            fid: *mut Fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize,
        ) -> c_int;
        setopt(
            fid: *mut Fid, level: c_int, name: c_int, value: *const c_void, len: usize,
        ) -> c_int;
        tx_ctx(
            ep: *mut FidEp, index: c_int, attr: *mut FiTxAttr, tx: *mut *mut FidEp,
            context: *mut c_void,
        ) -> c_int;
        rx_ctx(
            ep: *mut FidEp, index: c_int, attr: *mut FiRxAttr, rx: *mut *mut FidEp,
            context: *mut c_void,
        ) -> c_int;
        rx_size_left(ep: *mut FidEp) -> isize;
        tx_size_left(ep: *mut FidEp) -> isize;
    }
}

/// The level of all options.
pub const FI_OPT_ENDPOINT: c_int = 0;

// Options: of type `size_t` unless noted.
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub const FI_OPT_CM_DATA_SIZE: c_int = 1;
pub const FI_OPT_BUFFERED_MIN: c_int = 2;
pub const FI_OPT_BUFFERED_LIMIT: c_int = 3;
pub const FI_OPT_SEND_BUF_SIZE: c_int = 4;
pub const FI_OPT_RECV_BUF_SIZE: c_int = 5;
pub const FI_OPT_TX_SIZE: c_int = 6;
pub const FI_OPT_RX_SIZE: c_int = 7;
/// An `int`.
pub const FI_OPT_FI_HMEM_P2P: c_int = 8;
pub const FI_OPT_XPU_TRIGGER: c_int = 9;
/// A `bool`, since 1.18.
pub const FI_OPT_CUDA_API_PERMITTED: c_int = 10;
/// A `bool`, since 1.19.
pub const FI_OPT_SHARED_MEMORY_PERMITTED: c_int = 11;
/// Since 1.19, as the following.
pub const FI_OPT_MAX_MSG_SIZE: c_int = 12;
pub const FI_OPT_MAX_TAGGED_SIZE: c_int = 13;
pub const FI_OPT_MAX_RMA_SIZE: c_int = 14;
pub const FI_OPT_MAX_ATOMIC_SIZE: c_int = 15;
pub const FI_OPT_INJECT_MSG_SIZE: c_int = 16;
pub const FI_OPT_INJECT_TAGGED_SIZE: c_int = 17;
pub const FI_OPT_INJECT_RMA_SIZE: c_int = 18;
pub const FI_OPT_INJECT_ATOMIC_SIZE: c_int = 19;
