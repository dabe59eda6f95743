//! The capabilities of the provider, and the comparison of hints with them. The bounds come from
//! [`crate::limits`]; nothing here depends on the state of a NIC. [`matches_hints`] may block: a
//! source node that is not the name of the NIC may go to the resolver of the C library.
//!
//! [`offer`] either accepts all hints or names the first field that is not supported; a hint of 0
//! requests nothing. Fields that `hints` does not read, such as modes and traffic classes, and
//! `total_buffered_recv` are ignored. The offer has the requested capabilities, the directions that
//! they imply, and local and remote communication; every capability if none is requested. The
//! default of threads is `FI_THREAD_SAFE`, that of data progress manual. Not supported: address
//! formats other than the provider's, authorisation keys, shared contexts, scalable endpoints, and
//! completion order.
//!
//! `info` calls [`offer`] for `fi_getinfo` and for the `fi_info` of an opened domain. `info`, its
//! `node` and `shell::domain` call [`matches_hints`] for each NIC. An endpoint's `fi_info` is not
//! compared again: `shell::endpoint` checks its type only.

use super::hints::{AddressHint, DomainHints, EpHints, Hints, RxHints, TxHints};
use super::node;
use crate::abi::*;
use crate::address::{self, Address};
use crate::limits::{
    DATA_BYTES, ENDPOINTS_MAX, INJECT_MAX, KEY_BYTES, MESSAGE_MAX, OBJECTS_MAX, OPERATIONS_MAX,
    ORDERED_MAX, REMOTE_SEGMENTS_MAX, SEGMENTS_MAX, TAG_BITS,
};
use crate::nics::LocalNic;
use crate::rdm::service;

/// The name of the fabric. All endpoints that can reach each other are in one fabric.
pub const FABRIC: &str = "causeway";
/// The protocol between endpoints.
pub const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x4d58;
/// The version of that protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// Primary capabilities: present if requested, or if none is requested.
const PRIMARY: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_DIRECTED_RECV;
/// Modifiers of the direction of messages. If a request has none of a group, all of the group are
/// meant.
const SENDS: u64 = FI_SEND | FI_RECV;
/// Modifiers of the direction of reads, writes and atomic operations.
const READS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Capabilities without cost, which are always present.
const FREE: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Secondary capabilities, present on request.
const SECONDARY: u64 = FI_MULTI_RECV | FI_SOURCE;
/// All capabilities.
const CAPS: u64 = PRIMARY | SENDS | READS | FREE | SECONDARY;
/// Capabilities of a domain.
const DOMAIN_CAPS: u64 = FREE;
/// Capabilities of the transmit side.
const TX_CAPS: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
/// Capabilities of the receive side.
const RX_CAPS: u64 = PRIMARY | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | SECONDARY;

/// Supported default flags of transmit operations.
const TX_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;
/// Supported default flags of receives.
const RX_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Orders in which an endpoint performs the operations of a peer: all of them use the same path and
/// are performed as they arrive.
pub const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_RAR
    | FI_ORDER_RAW
    | FI_ORDER_WAR
    | FI_ORDER_WAW
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;
/// Order of completions: a short operation does not wait for a long one.
pub const COMPLETION_ORDER: u64 = FI_ORDER_NONE;

/// Tag bits of the application, in the interface's encoding: alternating fields of 1 bit.
pub const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa >> (u64::BITS - TAG_BITS);

/// The parts of the answer that depend on the hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderOffer {
    /// Capabilities of the endpoint.
    pub caps: u64,
    /// Capabilities of the transmit side.
    pub tx_caps: u64,
    /// Capabilities of the receive side.
    pub rx_caps: u64,
    /// Default flags of transmit operations.
    pub tx_flags: u64,
    /// Default flags of receives.
    pub rx_flags: u64,
    /// Mode of memory registration: 0, `FI_MR_BASIC` or `FI_MR_SCALABLE`.
    pub mr_mode: i32,
    /// The threading model, which selects the lock of the domain.
    pub threading: u32,
    /// Progress of control operations, which always complete in their call.
    pub control_progress: u32,
    /// Progress of messages: manual, or automatic by a thread.
    pub data_progress: u32,
    /// The kind of address vectors, as requested.
    pub av_type: u32,
    /// The service that the endpoint will be opened for, or 0; part of its address.
    pub service: u32,
    /// The destination that the hints name, or that a look-up found.
    pub destination: Option<Address>,
}

/// A requested field of the interface that the provider does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedField(pub &'static str);

/// Returns the name of the first field with a failed check as an error.
fn all(checks: &[(bool, &'static str)]) -> Result<(), UnsupportedField> {
    match checks.iter().find(|(holds, _)| !holds) {
        Some((_, field)) => Err(UnsupportedField(field)),
        None => Ok(()),
    }
}

/// Returns whether `requested` has no bits outside `supported`.
const fn within(requested: u64, supported: u64) -> bool {
    requested & !supported == 0
}

/// Adds the capabilities that a request implies.
fn expand(caps: u64) -> u64 {
    if caps == 0 {
        return CAPS;
    }
    let mut caps = caps | FREE;
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & SENDS == 0 {
        caps |= SENDS;
    }
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & READS == 0 {
        caps |= READS;
    }
    caps
}

/// Compares hints with the capabilities.
///
/// # Errors
/// The first field that the provider does not support.
pub fn offer(hints: &Hints) -> Result<ProviderOffer, UnsupportedField> {
    all(&[
        (within(hints.caps, CAPS), "caps"),
        (hints.addr_format == FI_FORMAT_UNSPEC, "addr_format"),
        (hints.source != AddressHint::Foreign, "src_addr"),
        (hints.destination != AddressHint::Foreign, "dest_addr"),
        (hints.fabric_name.as_deref().is_none_or(|name| name == FABRIC), "fabric_attr->name"),
    ])?;
    let caps = expand(hints.caps);
    ep(&hints.ep)?;
    tx(&hints.tx, caps)?;
    rx(&hints.rx, caps)?;
    domain(&hints.domain)?;
    Ok(ProviderOffer {
        caps,
        tx_caps: if hints.tx.caps == 0 { caps & TX_CAPS } else { hints.tx.caps },
        rx_caps: if hints.rx.caps == 0 { caps & RX_CAPS } else { hints.rx.caps },
        tx_flags: hints.tx.op_flags,
        rx_flags: hints.rx.op_flags,
        mr_mode: mr_mode(hints)?,
        threading: or_default(hints.domain.threading, FI_THREAD_SAFE),
        control_progress: or_default(hints.domain.control_progress, FI_PROGRESS_AUTO),
        data_progress: or_default(hints.domain.data_progress, FI_PROGRESS_MANUAL),
        av_type: hints.domain.av_type,
        service: match &hints.service {
            Some(service) if hints.is_source => service::number(service),
            _ => hints.source.service(),
        },
        destination: match hints.destination {
            AddressHint::Is(address) => Some(address),
            _ => None,
        },
    })
}

/// Returns the request, or the default for a request of 0.
const fn or_default(requested: u32, default: u32) -> u32 {
    if requested == 0 { default } else { requested }
}

/// Checks the hints on an endpoint.
fn ep(hints: &EpHints) -> Result<(), UnsupportedField> {
    let tags = u64::MAX.checked_shr(hints.mem_tag_format.leading_zeros()).unwrap_or(0);
    all(&[
        (matches!(hints.kind, FI_EP_UNSPEC | FI_EP_RDM), "ep_attr->type"),
        (matches!(hints.protocol, FI_PROTO_UNSPEC | PROTOCOL), "ep_attr->protocol"),
        (hints.protocol_version <= PROTOCOL_VERSION, "ep_attr->protocol_version"),
        (hints.max_msg_size <= MESSAGE_MAX, "ep_attr->max_msg_size"),
        (hints.msg_prefix_size == 0, "ep_attr->msg_prefix_size"),
        (hints.max_order_raw_size <= ORDERED_MAX, "ep_attr->max_order_raw_size"),
        (hints.max_order_war_size <= ORDERED_MAX, "ep_attr->max_order_war_size"),
        (hints.max_order_waw_size <= ORDERED_MAX, "ep_attr->max_order_waw_size"),
        (within(tags, u64::MAX >> (u64::BITS - TAG_BITS)), "ep_attr->mem_tag_format"),
        (hints.tx_ctx_cnt <= 1, "ep_attr->tx_ctx_cnt"),
        (hints.rx_ctx_cnt <= 1, "ep_attr->rx_ctx_cnt"),
        (hints.auth_key_size == 0, "ep_attr->auth_key_size"),
    ])
}

/// Checks the hints on the transmit side.
fn tx(hints: &TxHints, caps: u64) -> Result<(), UnsupportedField> {
    all(&[
        (within(hints.caps, caps), "tx_attr->caps"),
        (within(hints.op_flags, TX_FLAGS), "tx_attr->op_flags"),
        (within(hints.msg_order, ORDER), "tx_attr->msg_order"),
        (within(hints.comp_order, COMPLETION_ORDER), "tx_attr->comp_order"),
        (hints.inject_size <= INJECT_MAX, "tx_attr->inject_size"),
        (hints.size <= OPERATIONS_MAX, "tx_attr->size"),
        (hints.iov_limit <= SEGMENTS_MAX, "tx_attr->iov_limit"),
        (hints.rma_iov_limit <= REMOTE_SEGMENTS_MAX, "tx_attr->rma_iov_limit"),
    ])
}

/// Checks the hints on the receive side.
fn rx(hints: &RxHints, caps: u64) -> Result<(), UnsupportedField> {
    all(&[
        (within(hints.caps, caps), "rx_attr->caps"),
        (within(hints.op_flags, RX_FLAGS), "rx_attr->op_flags"),
        (within(hints.msg_order, ORDER), "rx_attr->msg_order"),
        (within(hints.comp_order, COMPLETION_ORDER), "rx_attr->comp_order"),
        (hints.size <= OPERATIONS_MAX, "rx_attr->size"),
        (hints.iov_limit <= SEGMENTS_MAX, "rx_attr->iov_limit"),
    ])
}

/// Checks the hints on a domain.
fn domain(hints: &DomainHints) -> Result<(), UnsupportedField> {
    let control = FI_PROGRESS_UNSPEC..=FI_PROGRESS_CONTROL_UNIFIED;
    let data = FI_PROGRESS_UNSPEC..=FI_PROGRESS_MANUAL;
    all(&[
        (hints.threading <= FI_THREAD_ENDPOINT, "domain_attr->threading"),
        (control.contains(&hints.control_progress), "domain_attr->control_progress"),
        (data.contains(&hints.data_progress), "domain_attr->data_progress"),
        (hints.resource_mgmt <= FI_RM_ENABLED, "domain_attr->resource_mgmt"),
        (hints.av_type <= FI_AV_TABLE, "domain_attr->av_type"),
        (hints.mr_key_size <= KEY_BYTES, "domain_attr->mr_key_size"),
        (hints.cq_data_size <= DATA_BYTES, "domain_attr->cq_data_size"),
        (hints.cq_cnt <= OBJECTS_MAX, "domain_attr->cq_cnt"),
        (hints.ep_cnt <= ENDPOINTS_MAX, "domain_attr->ep_cnt"),
        (hints.tx_ctx_cnt <= ENDPOINTS_MAX, "domain_attr->tx_ctx_cnt"),
        (hints.rx_ctx_cnt <= ENDPOINTS_MAX, "domain_attr->rx_ctx_cnt"),
        (hints.max_ep_tx_ctx <= 1, "domain_attr->max_ep_tx_ctx"),
        (hints.max_ep_rx_ctx <= 1, "domain_attr->max_ep_rx_ctx"),
        (hints.max_ep_stx_ctx == 0, "domain_attr->max_ep_stx_ctx"),
        (hints.max_ep_srx_ctx == 0, "domain_attr->max_ep_srx_ctx"),
        (hints.cntr_cnt <= OBJECTS_MAX, "domain_attr->cntr_cnt"),
        (hints.mr_iov_limit <= SEGMENTS_MAX, "domain_attr->mr_iov_limit"),
        (within(hints.caps, DOMAIN_CAPS), "domain_attr->caps"),
        (hints.auth_key_size == 0, "domain_attr->auth_key_size"),
        (hints.max_err_data == 0, "domain_attr->max_err_data"),
        (hints.mr_cnt <= OBJECTS_MAX, "domain_attr->mr_cnt"),
    ])
}

/// Selects the mode of memory registration: keys of the application and offsets as addresses, or,
/// for `FI_MR_BASIC`, keys of the provider and virtual addresses. The provider requires none of the
/// later modes.
fn mr_mode(hints: &Hints) -> Result<i32, UnsupportedField> {
    let old = hints.domain.mr_mode & (FI_MR_BASIC | FI_MR_SCALABLE);
    match hints.domain.mr_mode {
        FI_MR_UNSPEC if hints.predates_mr_modes() => Ok(FI_MR_SCALABLE),
        FI_MR_BASIC => Ok(FI_MR_BASIC),
        FI_MR_SCALABLE => Ok(FI_MR_SCALABLE),
        _ if old == 0 && !hints.predates_mr_modes() => Ok(0),
        _ => Err(UnsupportedField("domain_attr->mr_mode")),
    }
}

/// Returns whether a NIC matches the hints.
pub fn matches_hints(hints: &Hints, nic: &LocalNic) -> bool {
    let source = hints.node.as_deref().filter(|_| hints.is_source);
    hints.domain_name.as_deref().is_none_or(|domain| domain == nic.name)
        && source.is_none_or(|node| node == nic.name || node::is_this_host(node))
        && match hints.source {
            AddressHint::Is(source) => address::nic(&source) == nic.address,
            _ => true,
        }
}
