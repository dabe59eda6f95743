//! Hints and answers, without the core.

use std::ptr::null_mut;

use super::hints::{AddressHint, Hints, read};
use super::info_list::InfoList;
use super::offer::{
    COMPLETION_ORDER, ORDER, PROTOCOL, ProviderOffer, UnsupportedField, matches_hints, offer,
};
use crate::abi::*;
use crate::address::{BYTES, of_nic};
use crate::limits::{INJECT_MAX, MESSAGE_MAX, OPERATIONS_MAX, ORDERED_MAX, SEGMENTS_MAX};
use crate::nics::LocalNic;

fn hints(change: impl FnOnce(&mut Hints)) -> Hints {
    let mut hints = Hints { version: version(1, 17), ..Hints::default() };
    change(&mut hints);
    hints
}

fn offered(change: impl FnOnce(&mut Hints)) -> ProviderOffer {
    offer(&hints(change)).unwrap()
}

#[test]
fn info_without_hints_has_all_capabilities() {
    let all = offered(|_| {});
    let wanted = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_DIRECTED_RECV | FI_MULTI_RECV;
    let ways = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    assert_eq!(all.caps, wanted | ways | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM);
    assert_eq!(all.tx_caps & (FI_RECV | FI_REMOTE_WRITE | FI_MULTI_RECV), 0);
    assert_eq!(all.rx_caps & (FI_SEND | FI_WRITE), 0);
    assert_eq!(all.tx_caps & !all.caps, 0);
    assert_eq!(all.rx_caps & !all.caps, 0);
    assert_eq!((all.mr_mode, all.threading, all.av_type), (0, FI_THREAD_SAFE, FI_AV_UNSPEC));
    assert_eq!((all.control_progress, all.data_progress), (FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL));
}

#[test]
fn info_adds_only_free_and_implied_capabilities() {
    let free = FI_LOCAL_COMM | FI_REMOTE_COMM;
    for (caps, expected) in [
        (FI_TAGGED, FI_TAGGED | FI_SEND | FI_RECV),
        (FI_TAGGED | FI_RECV, FI_TAGGED | FI_RECV),
        (FI_MSG | FI_DIRECTED_RECV, FI_MSG | FI_DIRECTED_RECV | FI_SEND | FI_RECV),
        (FI_RMA | FI_WRITE, FI_RMA | FI_WRITE),
        (FI_ATOMIC, FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE),
        (FI_MSG | FI_SOURCE | FI_SEND, FI_MSG | FI_SOURCE | FI_SEND),
    ] {
        assert_eq!(offered(|hints| hints.caps = caps).caps, expected | free, "{caps:#x}");
    }
    let tagged = offered(|hints| hints.caps = FI_TAGGED);
    assert_eq!((tagged.tx_caps, tagged.rx_caps), (FI_TAGGED | FI_SEND, FI_TAGGED | FI_RECV));
}

#[test]
fn info_returns_supported_hints_unchanged() {
    let offer = offered(|hints| {
        hints.domain.threading = FI_THREAD_DOMAIN;
        hints.domain.control_progress = FI_PROGRESS_CONTROL_UNIFIED;
        hints.domain.data_progress = FI_PROGRESS_AUTO;
        hints.domain.av_type = FI_AV_MAP;
        hints.domain.resource_mgmt = FI_RM_DISABLED;
        hints.tx.op_flags = FI_DELIVERY_COMPLETE;
        hints.rx.op_flags = FI_COMPLETION;
        hints.tx.msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAW;
        hints.ep.kind = FI_EP_RDM;
        hints.ep.protocol = PROTOCOL;
        hints.ep.max_msg_size = MESSAGE_MAX;
        hints.ep.mem_tag_format = u64::MAX >> 3;
        hints.destination = AddressHint::Is([7; BYTES]);
    });
    assert_eq!((offer.threading, offer.av_type), (FI_THREAD_DOMAIN, FI_AV_MAP));
    assert_eq!(offer.control_progress, FI_PROGRESS_CONTROL_UNIFIED);
    assert_eq!(offer.data_progress, FI_PROGRESS_AUTO);
    assert_eq!((offer.tx_flags, offer.rx_flags), (FI_DELIVERY_COMPLETE, FI_COMPLETION));
    assert_eq!(offer.destination, Some([7; BYTES]));
}

/// A field, and a change to the hints that exceeds the capabilities in it.
type TooMuch = (&'static str, fn(&mut Hints));

const TOO_MUCH: &[TooMuch] = &[
    ("caps", |hints| hints.caps = FI_MSG | FI_NAMED_RX_CTX),
    ("caps", |hints| hints.caps = FI_TRIGGER),
    ("caps", |hints| hints.caps = FI_TAGGED | FI_HMEM),
    ("caps", |hints| hints.caps = FI_MULTICAST),
    ("caps", |hints| hints.caps = FI_COLLECTIVE),
    ("caps", |hints| hints.caps = FI_MSG | FI_VARIABLE_MSG),
    ("addr_format", |hints| hints.addr_format = FI_SOCKADDR_IN),
    ("src_addr", |hints| hints.source = AddressHint::Foreign),
    ("dest_addr", |hints| hints.destination = AddressHint::Foreign),
    ("fabric_attr->name", |hints| hints.fabric_name = Some("other".to_owned())),
    ("ep_attr->type", |hints| hints.ep.kind = FI_EP_MSG),
    ("ep_attr->type", |hints| hints.ep.kind = FI_EP_DGRAM),
    ("ep_attr->protocol", |hints| hints.ep.protocol = 1),
    ("ep_attr->protocol_version", |hints| hints.ep.protocol_version = 2),
    ("ep_attr->max_msg_size", |hints| hints.ep.max_msg_size = MESSAGE_MAX + 1),
    ("ep_attr->msg_prefix_size", |hints| hints.ep.msg_prefix_size = 1),
    ("ep_attr->max_order_raw_size", |hints| hints.ep.max_order_raw_size = ORDERED_MAX + 1),
    ("ep_attr->max_order_war_size", |hints| hints.ep.max_order_war_size = ORDERED_MAX + 1),
    ("ep_attr->max_order_waw_size", |hints| hints.ep.max_order_waw_size = ORDERED_MAX + 1),
    ("ep_attr->mem_tag_format", |hints| hints.ep.mem_tag_format = 1 << 61),
    ("ep_attr->tx_ctx_cnt", |hints| hints.ep.tx_ctx_cnt = 2),
    ("ep_attr->rx_ctx_cnt", |hints| hints.ep.rx_ctx_cnt = FI_SHARED_CONTEXT),
    ("ep_attr->auth_key_size", |hints| hints.ep.auth_key_size = 8),
    ("tx_attr->caps", |hints| hints.tx.caps = FI_HMEM),
    ("tx_attr->caps", |hints| {
        hints.caps = FI_TAGGED;
        hints.tx.caps = FI_TAGGED | FI_RMA;
    }),
    ("tx_attr->op_flags", |hints| hints.tx.op_flags = FI_COMMIT_COMPLETE),
    ("tx_attr->msg_order", |hints| hints.tx.msg_order = FI_ORDER_SAS | FI_ORDER_RAS),
    ("tx_attr->comp_order", |hints| hints.tx.comp_order = FI_ORDER_STRICT),
    ("tx_attr->inject_size", |hints| hints.tx.inject_size = INJECT_MAX + 1),
    ("tx_attr->size", |hints| hints.tx.size = OPERATIONS_MAX + 1),
    ("tx_attr->iov_limit", |hints| hints.tx.iov_limit = SEGMENTS_MAX + 1),
    ("tx_attr->rma_iov_limit", |hints| hints.tx.rma_iov_limit = SEGMENTS_MAX + 1),
    ("rx_attr->caps", |hints| hints.rx.caps = FI_RMA_EVENT),
    ("rx_attr->op_flags", |hints| hints.rx.op_flags = FI_INJECT),
    ("rx_attr->msg_order", |hints| hints.rx.msg_order = FI_ORDER_STRICT),
    ("rx_attr->comp_order", |hints| hints.rx.comp_order = FI_ORDER_DATA),
    ("rx_attr->size", |hints| hints.rx.size = OPERATIONS_MAX + 1),
    ("rx_attr->iov_limit", |hints| hints.rx.iov_limit = SEGMENTS_MAX + 1),
    ("domain_attr->threading", |hints| hints.domain.threading = 6),
    ("domain_attr->control_progress", |hints| hints.domain.control_progress = 4),
    ("domain_attr->data_progress", |hints| hints.domain.data_progress = 3),
    ("domain_attr->resource_mgmt", |hints| hints.domain.resource_mgmt = 3),
    ("domain_attr->av_type", |hints| hints.domain.av_type = 3),
    ("domain_attr->mr_mode", |hints| hints.domain.mr_mode = FI_MR_BASIC | FI_MR_LOCAL),
    ("domain_attr->mr_mode", |hints| hints.domain.mr_mode = FI_MR_SCALABLE | FI_MR_BASIC),
    ("domain_attr->mr_key_size", |hints| hints.domain.mr_key_size = 9),
    ("domain_attr->cq_data_size", |hints| hints.domain.cq_data_size = 9),
    ("domain_attr->cq_cnt", |hints| hints.domain.cq_cnt = usize::MAX),
    ("domain_attr->ep_cnt", |hints| hints.domain.ep_cnt = 256),
    ("domain_attr->tx_ctx_cnt", |hints| hints.domain.tx_ctx_cnt = 256),
    ("domain_attr->rx_ctx_cnt", |hints| hints.domain.rx_ctx_cnt = 256),
    ("domain_attr->max_ep_tx_ctx", |hints| hints.domain.max_ep_tx_ctx = 2),
    ("domain_attr->max_ep_rx_ctx", |hints| hints.domain.max_ep_rx_ctx = 2),
    ("domain_attr->max_ep_stx_ctx", |hints| hints.domain.max_ep_stx_ctx = 1),
    ("domain_attr->max_ep_srx_ctx", |hints| hints.domain.max_ep_srx_ctx = 1),
    ("domain_attr->cntr_cnt", |hints| hints.domain.cntr_cnt = usize::MAX),
    ("domain_attr->mr_iov_limit", |hints| hints.domain.mr_iov_limit = SEGMENTS_MAX + 1),
    ("domain_attr->caps", |hints| hints.domain.caps = FI_SHARED_AV),
    ("domain_attr->auth_key_size", |hints| hints.domain.auth_key_size = 1),
    ("domain_attr->max_err_data", |hints| hints.domain.max_err_data = 1),
    ("domain_attr->mr_cnt", |hints| hints.domain.mr_cnt = usize::MAX),
];

#[test]
fn info_names_the_unsupported_field() {
    for (number, (field, change)) in TOO_MUCH.iter().enumerate() {
        assert_eq!(offer(&hints(change)), Err(UnsupportedField(field)), "{number}");
    }
}

#[test]
fn info_selects_the_requested_mr_mode() {
    let (old, new) = (version(1, 4), version(1, 5));
    let any = !(FI_MR_BASIC | FI_MR_SCALABLE);
    for (version, mode, expected) in [
        (old, FI_MR_UNSPEC, Ok(FI_MR_SCALABLE)),
        (old, FI_MR_SCALABLE, Ok(FI_MR_SCALABLE)),
        (old, FI_MR_BASIC, Ok(FI_MR_BASIC)),
        (old, FI_MR_LOCAL, Err(UnsupportedField("domain_attr->mr_mode"))),
        (new, FI_MR_UNSPEC, Ok(0)),
        (new, FI_MR_BASIC, Ok(FI_MR_BASIC)),
        (new, FI_MR_SCALABLE, Ok(FI_MR_SCALABLE)),
        (new, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_ENDPOINT, Ok(0)),
        (new, any, Ok(0)),
        (new, -1, Err(UnsupportedField("domain_attr->mr_mode"))),
    ] {
        let request = hints(|hints| {
            hints.version = version;
            hints.domain.mr_mode = mode;
        });
        assert_eq!(offer(&request).map(|offer| offer.mr_mode), expected, "{version:x} {mode:x}");
    }
}

#[test]
fn info_selects_the_named_nics() {
    let nics = [("a:0", 0x0200_0000_0061), ("b:0", 0x0200_0000_0062)]
        .map(|(name, address)| LocalNic { index: 0, address, name: name.to_owned() });
    let wanted = |hints: &Hints| nics.each_ref().map(|nic| matches_hints(hints, nic));
    let name = || Some("a:0".to_owned());
    assert_eq!(wanted(&hints(|_| {})), [true, true]);
    assert_eq!(wanted(&hints(|hints| hints.domain_name = name())), [true, false]);
    let node = hints(|hints| {
        hints.node = name();
        hints.is_source = true;
    });
    assert!(offer(&node).is_ok());
    assert_eq!(wanted(&node), [true, false]);
    let source = AddressHint::Is(of_nic(0x0200_0000_0062));
    assert_eq!(wanted(&hints(|hints| hints.source = source)), [false, true]);
    let both = hints(|hints| {
        hints.domain_name = name();
        hints.source = source;
    });
    assert_eq!(wanted(&both), [false, false]);
}

fn nic() -> LocalNic {
    LocalNic { index: 0, address: 0x0200_0000_0061, name: "a:0".to_owned() }
}

/// Frees a list as the core does: each part by itself.
fn free(mut info: *mut FiInfo) {
    while !info.is_null() {
        // SAFETY: the list was taken, and its parts were allocated one by one.
        unsafe {
            let this = info.read();
            for part in [
                this.src_addr,
                this.dest_addr,
                this.tx_attr.cast(),
                this.rx_attr.cast(),
                this.ep_attr.cast(),
                (*this.domain_attr).name.cast(),
                this.domain_attr.cast(),
                (*this.fabric_attr).name.cast(),
                (*this.fabric_attr).prov_name.cast(),
                this.fabric_attr.cast(),
                info.cast(),
            ] {
                libc::free(part);
            }
            info = this.next;
        }
    }
}

#[test]
fn info_list_entries_are_valid_hints() {
    let first = offered(|hints| {
        hints.caps = FI_TAGGED | FI_SOURCE;
        hints.destination = AddressHint::Is([9; BYTES]);
    });
    let mut list = InfoList::new();
    list.push(&nic(), &first, version(1, 17)).unwrap();
    list.push(&LocalNic { index: 1, address: 5, name: "z".to_owned() }, &first, version(1, 17))
        .unwrap();
    let info = list.take();
    // SAFETY: the list lives until it is freed.
    let again = unsafe { read(version(1, 17), std::ptr::null(), std::ptr::null(), 0, info) };
    assert_eq!(offer(&again).map(|again| ProviderOffer { ..again }), Ok(first));
    assert_eq!(again.domain_name.as_deref(), Some("a:0"));
    assert_eq!(again.fabric_name.as_deref(), Some("causeway"));
    assert_eq!(again.source, AddressHint::Is(of_nic(0x0200_0000_0061)));
    assert_eq!((again.tx.msg_order, again.rx.comp_order), (ORDER, COMPLETION_ORDER));
    assert!(matches_hints(&again, &nic()));
    // SAFETY: as above.
    let (read_chosen, offer) = unsafe { super::read_chosen(info, version(1, 17)) }.unwrap();
    assert_eq!((&read_chosen, offer), (&again, first));
    // SAFETY: as above.
    unsafe {
        (*(*info).ep_attr).max_msg_size = MESSAGE_MAX + 1;
        assert_eq!(super::read_chosen(info, version(1, 17)), Err(FI_EINVAL));
        assert_eq!(super::read_chosen(std::ptr::null(), version(1, 17)), Err(FI_EINVAL));
        let second = (*info).next;
        assert_eq!(std::ffi::CStr::from_ptr((*(*second).domain_attr).name), c"z");
        assert!((*second).next.is_null());
        assert_eq!((*(*info).ep_attr).mem_tag_format, 0x1555_5555_5555_5555);
    }
    free(info);
}

#[test]
fn info_reads_hints_with_null_parts_and_foreign_addresses() {
    let none = std::ptr::null();
    // SAFETY: all pointers are NULL.
    let nothing = unsafe { read(version(2, 5), none, none, 0, std::ptr::null()) };
    assert_eq!(nothing, Hints { version: version(2, 5), ..Hints::default() });
    let mut short = [0_u8; 8];
    let hints = FiInfo {
        next: null_mut(),
        caps: FI_MSG,
        mode: u64::MAX,
        addr_format: 0,
        src_addrlen: short.len(),
        dest_addrlen: 0,
        src_addr: short.as_mut_ptr().cast(),
        dest_addr: null_mut(),
        handle: null_mut(),
        tx_attr: null_mut(),
        rx_attr: null_mut(),
        ep_attr: null_mut(),
        domain_attr: null_mut(),
        fabric_attr: null_mut(),
        nic: null_mut(),
    };
    // SAFETY: pointers that are not NULL are valid.
    let hinted = unsafe { read(version(1, 17), c"n".as_ptr(), c"s".as_ptr(), FI_SOURCE, &hints) };
    assert_eq!((hinted.source, hinted.destination), (AddressHint::Foreign, AddressHint::Any));
    assert_eq!((hinted.node.as_deref(), hinted.service.as_deref()), (Some("n"), Some("s")));
    assert!(hinted.is_source);
    let (info, flags) = (null_mut(), FI_SOURCE);
    // SAFETY: as above.
    unsafe {
        assert_eq!(super::getinfo(version(1, 17), none, none, 0, &hints, info), -FI_EINVAL);
        let mut info = null_mut();
        let code = super::getinfo(version(1, 17), none, none, flags, &hints, &mut info);
        assert_eq!((code, info.is_null()), (-FI_EINVAL, true));
    }
}
