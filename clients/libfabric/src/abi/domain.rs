//! Domains: layouts and the table of functions, as in `fi_domain(3)`.
//!
//! A domain opens endpoints, queues, counters and address vectors: the application's threads call
//! the functions through the table, which `shell::domain` fills. The module has no behaviour;
//! functions that the provider does not have return `-FI_ENOSYS` ([`super::ops`]).

use std::ffi::{c_int, c_void};

use super::atomic::FiAtomicAttr;
use super::av::{FiAvAttr, FidAv};
use super::collective::FiCollectiveAttr;
use super::cq::{FiCntrAttr, FiCqAttr, FidCntr, FidCq};
use super::endpoint::{FidEp, FidStx};
use super::fabric::Fid;
use super::info::{FiInfo, FiRxAttr, FiTxAttr};
use super::mr::OpsMr;
use super::ops::tables;
use super::wait::{FiPollAttr, FidPoll};

/// `struct fid_domain`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const OpsDomain,
    pub mr: *const OpsMr,
}

tables! {
    /// `struct fi_ops_domain`.
    OpsDomain {
        av_open(
            domain: *mut FidDomain, attr: *mut FiAvAttr, av: *mut *mut FidAv,
            context: *mut c_void,
        ) -> c_int;
        cq_open(
            domain: *mut FidDomain, attr: *mut FiCqAttr, cq: *mut *mut FidCq,
            context: *mut c_void,
        ) -> c_int;
        endpoint(
            domain: *mut FidDomain, info: *mut FiInfo, ep: *mut *mut FidEp,
            context: *mut c_void,
        ) -> c_int;
        scalable_ep(
            domain: *mut FidDomain, info: *mut FiInfo, ep: *mut *mut FidEp,
            context: *mut c_void,
        ) -> c_int;
        cntr_open(
            domain: *mut FidDomain, attr: *mut FiCntrAttr, cntr: *mut *mut FidCntr,
            context: *mut c_void,
        ) -> c_int;
        poll_open(
            domain: *mut FidDomain, attr: *mut FiPollAttr, set: *mut *mut FidPoll,
        ) -> c_int;
        stx_ctx(
            domain: *mut FidDomain, attr: *mut FiTxAttr, stx: *mut *mut FidStx,
            context: *mut c_void,
        ) -> c_int;
        srx_ctx(
            domain: *mut FidDomain, attr: *mut FiRxAttr, ep: *mut *mut FidEp,
            context: *mut c_void,
        ) -> c_int;
        query_atomic(
            domain: *mut FidDomain, datatype: u32, op: u32, attr: *mut FiAtomicAttr, flags: u64,
        ) -> c_int;
        query_collective(
            domain: *mut FidDomain, what: u32, attr: *mut FiCollectiveAttr, flags: u64,
        ) -> c_int;
        endpoint2(
            domain: *mut FidDomain, info: *mut FiInfo, ep: *mut *mut FidEp, flags: u64,
            context: *mut c_void,
        ) -> c_int;
    }
}
