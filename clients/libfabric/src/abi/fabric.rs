//! Fabrics, domains, and the description of both (`struct fi_info`): layouts and tables of
//! functions, as in `fi_fabric(3)`, `fi_domain(3)` and `fi_getinfo(3)`.
//!
//! A fabric opens domains and event queues, a domain all other objects. An `fi_info` names the
//! fabric and the domain that it describes, and both are opened by an `fi_info`, so they are
//! declared together; the attributes of endpoints are in [`attr`](super::attr).
//!
//! libfabric's core passes the hints of `fi_getinfo` to the provider in the application's thread:
//! `info::hints` reads them, and `info::info_list` allocates and fills the answers, which the core
//! frees. A caller of an older version has shorter structures ([`super`]). The application's threads
//! call the functions through the tables, which `shell::fabric` and `shell::domain` fill. The
//! module has no behaviour and checks no value; functions that the provider does not have return
//! `-FI_ENOSYS` ([`super::ops`]).

use std::ffi::{c_char, c_int, c_void};

use super::atomic::{FiAtomicAttr, FiCollectiveAttr};
use super::attr::{FiEpAttr, FiRxAttr, FiTxAttr};
use super::av::{FiAvAttr, FidAv};
use super::cq::{FiCntrAttr, FiCqAttr, FidCntr, FidCq};
use super::endpoint::{FidEp, FidPep, FidStx};
use super::eq::{FiEqAttr, FidEq};
use super::fid::Fid;
use super::mr::OpsMr;
use super::ops::tables;
use super::wait::{FiPollAttr, FiWaitAttr, FidPoll, FidWait};

/// `struct fid_fabric`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const OpsFabric,
    pub api_version: u32,
}

/// `struct fid_domain`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const OpsDomain,
    pub mr: *const OpsMr,
}

/// `struct fi_info`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiInfo {
    pub next: *mut FiInfo,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut FiTxAttr,
    pub rx_attr: *mut FiRxAttr,
    pub ep_attr: *mut FiEpAttr,
    pub domain_attr: *mut FiDomainAttr,
    pub fabric_attr: *mut FiFabricAttr,
    pub nic: *mut c_void,
}

/// `struct fi_domain_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiDomainAttr {
    pub domain: *mut FidDomain,
    pub name: *mut c_char,
    pub threading: u32,
    pub control_progress: u32,
    pub data_progress: u32,
    pub resource_mgmt: u32,
    pub av_type: u32,
    pub mr_mode: i32,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
    /// Since 1.20.
    pub max_ep_auth_key: usize,
    /// Since 2.0.
    pub max_group_id: u32,
    /// Since 2.5.
    pub max_cntr_value: u64,
    /// Since 2.5.
    pub max_err_cntr_value: u64,
    /// Since 2.7.
    pub max_xpu_ctx_cnt: usize,
}

/// `struct fi_fabric_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiFabricAttr {
    pub fabric: *mut FidFabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

tables! {
    /// `struct fi_ops_fabric`.
    OpsFabric {
        domain(
            fabric: *mut FidFabric, info: *mut FiInfo, domain: *mut *mut FidDomain,
            context: *mut c_void,
        ) -> c_int;
        passive_ep(
            fabric: *mut FidFabric, info: *mut FiInfo, pep: *mut *mut FidPep,
            context: *mut c_void,
        ) -> c_int;
        eq_open(
            fabric: *mut FidFabric, attr: *mut FiEqAttr, eq: *mut *mut FidEq,
            context: *mut c_void,
        ) -> c_int;
        wait_open(
            fabric: *mut FidFabric, attr: *mut FiWaitAttr, set: *mut *mut FidWait,
        ) -> c_int;
        trywait(fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int;
        domain2(
            fabric: *mut FidFabric, info: *mut FiInfo, domain: *mut *mut FidDomain, flags: u64,
            context: *mut c_void,
        ) -> c_int;
    }

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
