//! What we have, and whether it is what an application asks for.

use super::asked::{Asked, Domain, Ep, Place, Rx, Tx};
use super::node;
use crate::abi::*;
use crate::address::{self, Address};
use crate::boards::Board;
use crate::limits::{
    DATA_BYTES, ENDPOINTS_MAX, INJECT_MAX, KEY_BYTES, MESSAGE_MAX, OBJECTS_MAX, OPERATIONS_MAX,
    ORDERED_MAX, PIECES_MAX, REMOTE_PIECES_MAX, TAG_BITS,
};
use crate::rdm::service;

/// The name of the fabric: whoever reaches each other is of one.
pub const FABRIC: &str = "causeway";
/// Of endpoints, between which it is spoken.
pub const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x4d58;
/// Of that protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// What is only there if it is asked for, or else if nothing is.
const PRIMARY: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_DIRECTED_RECV;
/// Which ways data may go; asked for without any, all are meant.
const SENDS: u64 = FI_SEND | FI_RECV;
const READS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// What costs nothing, and is there always.
const FREE: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// What costs something.
const SECONDARY: u64 = FI_MULTI_RECV | FI_SOURCE;
/// All.
const CAPS: u64 = PRIMARY | SENDS | READS | FREE | SECONDARY;
/// Those of a domain.
const DOMAIN_CAPS: u64 = FREE;
const TX_CAPS: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
const RX_CAPS: u64 = PRIMARY | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | SECONDARY;

/// What operations may be told to do by themselves.
const TX_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;
const RX_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// In which order one endpoint does what another asks for: what is asked for by one goes one way,
/// and is done as it comes.
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
/// In which order operations complete: a short one does not wait for a long one.
pub const COMPLETION_ORDER: u64 = FI_ORDER_NONE;

/// Which bits of tags are the application's: fields that alternate, of one bit each.
pub const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa >> (u64::BITS - TAG_BITS);

/// What an application gets, as far as it depends on what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    pub caps: u64,
    pub tx_caps: u64,
    pub rx_caps: u64,
    pub tx_flags: u64,
    pub rx_flags: u64,
    pub mr_mode: i32,
    pub threading: u32,
    pub control_progress: u32,
    pub data_progress: u32,
    pub av_type: u32,
    /// Of the endpoint's own address: the service that it is opened for, or 0.
    pub service: u32,
    pub destination: Option<Address>,
}

/// What was asked for that we have not: the field of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack(pub &'static str);

/// All that is asked is fulfilled, or the first that is not is named.
fn all(checks: &[(bool, &'static str)]) -> Result<(), Lack> {
    match checks.iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(Lack(what)),
        None => Ok(()),
    }
}

/// Whether nothing is asked for but this.
const fn within(asked: u64, ours: u64) -> bool {
    asked & !ours == 0
}

/// What they mean who ask for these capabilities.
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

/// What an application is offered, or what we lack.
pub fn offer(asked: &Asked) -> Result<Offer, Lack> {
    all(&[
        (within(asked.caps, CAPS), "caps"),
        (asked.addr_format == FI_FORMAT_UNSPEC, "addr_format"),
        (asked.source != Place::Strange, "src_addr"),
        (asked.destination != Place::Strange, "dest_addr"),
        (asked.fabric_name.as_deref().is_none_or(|name| name == FABRIC), "fabric_attr->name"),
    ])?;
    let caps = expand(asked.caps);
    ep(&asked.ep)?;
    tx(&asked.tx, caps)?;
    rx(&asked.rx, caps)?;
    domain(&asked.domain)?;
    Ok(Offer {
        caps,
        tx_caps: if asked.tx.caps == 0 { caps & TX_CAPS } else { asked.tx.caps },
        rx_caps: if asked.rx.caps == 0 { caps & RX_CAPS } else { asked.rx.caps },
        tx_flags: asked.tx.op_flags,
        rx_flags: asked.rx.op_flags,
        mr_mode: mr_mode(asked)?,
        threading: or(asked.domain.threading, FI_THREAD_SAFE),
        control_progress: or(asked.domain.control_progress, FI_PROGRESS_AUTO),
        data_progress: or(asked.domain.data_progress, FI_PROGRESS_MANUAL),
        av_type: asked.domain.av_type,
        service: match &asked.service {
            Some(service) if asked.is_source => service::number(service),
            _ => asked.source.service(),
        },
        destination: match asked.destination {
            Place::Is(address) => Some(address),
            _ => None,
        },
    })
}

const fn or(asked: u32, otherwise: u32) -> u32 {
    if asked == 0 { otherwise } else { asked }
}

fn ep(asked: &Ep) -> Result<(), Lack> {
    let tags = u64::MAX.checked_shr(asked.mem_tag_format.leading_zeros()).unwrap_or(0);
    all(&[
        (matches!(asked.kind, FI_EP_UNSPEC | FI_EP_RDM), "ep_attr->type"),
        (matches!(asked.protocol, FI_PROTO_UNSPEC | PROTOCOL), "ep_attr->protocol"),
        (asked.protocol_version <= PROTOCOL_VERSION, "ep_attr->protocol_version"),
        (asked.max_msg_size <= MESSAGE_MAX, "ep_attr->max_msg_size"),
        (asked.msg_prefix_size == 0, "ep_attr->msg_prefix_size"),
        (asked.max_order_raw_size <= ORDERED_MAX, "ep_attr->max_order_raw_size"),
        (asked.max_order_war_size <= ORDERED_MAX, "ep_attr->max_order_war_size"),
        (asked.max_order_waw_size <= ORDERED_MAX, "ep_attr->max_order_waw_size"),
        (within(tags, u64::MAX >> (u64::BITS - TAG_BITS)), "ep_attr->mem_tag_format"),
        (asked.tx_ctx_cnt <= 1, "ep_attr->tx_ctx_cnt"),
        (asked.rx_ctx_cnt <= 1, "ep_attr->rx_ctx_cnt"),
        (asked.auth_key_size == 0, "ep_attr->auth_key_size"),
    ])
}

fn tx(asked: &Tx, caps: u64) -> Result<(), Lack> {
    all(&[
        (within(asked.caps, caps), "tx_attr->caps"),
        (within(asked.op_flags, TX_FLAGS), "tx_attr->op_flags"),
        (within(asked.msg_order, ORDER), "tx_attr->msg_order"),
        (within(asked.comp_order, COMPLETION_ORDER), "tx_attr->comp_order"),
        (asked.inject_size <= INJECT_MAX, "tx_attr->inject_size"),
        (asked.size <= OPERATIONS_MAX, "tx_attr->size"),
        (asked.iov_limit <= PIECES_MAX, "tx_attr->iov_limit"),
        (asked.rma_iov_limit <= REMOTE_PIECES_MAX, "tx_attr->rma_iov_limit"),
    ])
}

fn rx(asked: &Rx, caps: u64) -> Result<(), Lack> {
    all(&[
        (within(asked.caps, caps), "rx_attr->caps"),
        (within(asked.op_flags, RX_FLAGS), "rx_attr->op_flags"),
        (within(asked.msg_order, ORDER), "rx_attr->msg_order"),
        (within(asked.comp_order, COMPLETION_ORDER), "rx_attr->comp_order"),
        (asked.size <= OPERATIONS_MAX, "rx_attr->size"),
        (asked.iov_limit <= PIECES_MAX, "rx_attr->iov_limit"),
    ])
}

fn domain(asked: &Domain) -> Result<(), Lack> {
    let control = FI_PROGRESS_UNSPEC..=FI_PROGRESS_CONTROL_UNIFIED;
    let data = FI_PROGRESS_UNSPEC..=FI_PROGRESS_MANUAL;
    all(&[
        (asked.threading <= FI_THREAD_ENDPOINT, "domain_attr->threading"),
        (control.contains(&asked.control_progress), "domain_attr->control_progress"),
        (data.contains(&asked.data_progress), "domain_attr->data_progress"),
        (asked.resource_mgmt <= FI_RM_ENABLED, "domain_attr->resource_mgmt"),
        (asked.av_type <= FI_AV_TABLE, "domain_attr->av_type"),
        (asked.mr_key_size <= KEY_BYTES, "domain_attr->mr_key_size"),
        (asked.cq_data_size <= DATA_BYTES, "domain_attr->cq_data_size"),
        (asked.cq_cnt <= OBJECTS_MAX, "domain_attr->cq_cnt"),
        (asked.ep_cnt <= ENDPOINTS_MAX, "domain_attr->ep_cnt"),
        (asked.tx_ctx_cnt <= ENDPOINTS_MAX, "domain_attr->tx_ctx_cnt"),
        (asked.rx_ctx_cnt <= ENDPOINTS_MAX, "domain_attr->rx_ctx_cnt"),
        (asked.max_ep_tx_ctx <= 1, "domain_attr->max_ep_tx_ctx"),
        (asked.max_ep_rx_ctx <= 1, "domain_attr->max_ep_rx_ctx"),
        (asked.max_ep_stx_ctx == 0, "domain_attr->max_ep_stx_ctx"),
        (asked.max_ep_srx_ctx == 0, "domain_attr->max_ep_srx_ctx"),
        (asked.cntr_cnt <= OBJECTS_MAX, "domain_attr->cntr_cnt"),
        (asked.mr_iov_limit <= PIECES_MAX, "domain_attr->mr_iov_limit"),
        (within(asked.caps, DOMAIN_CAPS), "domain_attr->caps"),
        (asked.auth_key_size == 0, "domain_attr->auth_key_size"),
        (asked.max_err_data == 0, "domain_attr->max_err_data"),
        (asked.mr_cnt <= OBJECTS_MAX, "domain_attr->mr_cnt"),
    ])
}

/// How memory is registered: with keys of the application's and offsets from its begin, or, for
/// those who ask for `FI_MR_BASIC`, with keys of ours and addresses. Of all the modes that came
/// later we need none.
fn mr_mode(asked: &Asked) -> Result<i32, Lack> {
    let old = asked.domain.mr_mode & (FI_MR_BASIC | FI_MR_SCALABLE);
    match asked.domain.mr_mode {
        FI_MR_UNSPEC if asked.is_before_modes() => Ok(FI_MR_SCALABLE),
        FI_MR_BASIC => Ok(FI_MR_BASIC),
        FI_MR_SCALABLE => Ok(FI_MR_SCALABLE),
        _ if old == 0 && !asked.is_before_modes() => Ok(0),
        _ => Err(Lack("domain_attr->mr_mode")),
    }
}

/// Whether a board is one of those that are asked for.
pub fn is_wanted(asked: &Asked, board: &Board) -> bool {
    let source = asked.node.as_deref().filter(|_| asked.is_source);
    asked.domain_name.as_deref().is_none_or(|domain| domain == board.name)
        && source.is_none_or(|node| node == board.name || node::is_this_host(node))
        && match asked.source {
            Place::Is(source) => address::board(&source) == board.nic,
            _ => true,
        }
}
