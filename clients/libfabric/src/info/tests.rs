//! What is asked for and what is offered, without the core.

use std::ptr::null_mut;

use super::asked::{Asked, Place, read};
use super::make::List;
use super::offer::{COMPLETION_ORDER, Lack, ORDER, Offer, PROTOCOL, is_wanted, offer};
use crate::abi::*;
use crate::address::{BYTES, of_board};
use crate::boards::Board;
use crate::limits::{INJECT_MAX, MESSAGE_MAX, OPERATIONS_MAX, ORDERED_MAX, PIECES_MAX};

fn asked(change: impl FnOnce(&mut Asked)) -> Asked {
    let mut asked = Asked { version: version(1, 17), ..Asked::default() };
    change(&mut asked);
    asked
}

fn offered(change: impl FnOnce(&mut Asked)) -> Offer {
    offer(&asked(change)).unwrap()
}

#[test]
fn who_asks_for_nothing_gets_all() {
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
fn what_was_not_asked_for_is_not_offered_unless_it_is_free() {
    let free = FI_LOCAL_COMM | FI_REMOTE_COMM;
    for (caps, expected) in [
        (FI_TAGGED, FI_TAGGED | FI_SEND | FI_RECV),
        (FI_TAGGED | FI_RECV, FI_TAGGED | FI_RECV),
        (FI_MSG | FI_DIRECTED_RECV, FI_MSG | FI_DIRECTED_RECV | FI_SEND | FI_RECV),
        (FI_RMA | FI_WRITE, FI_RMA | FI_WRITE),
        (FI_ATOMIC, FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE),
        (FI_MSG | FI_SOURCE | FI_SEND, FI_MSG | FI_SOURCE | FI_SEND),
    ] {
        assert_eq!(offered(|asked| asked.caps = caps).caps, expected | free, "{caps:#x}");
    }
    let tagged = offered(|asked| asked.caps = FI_TAGGED);
    assert_eq!((tagged.tx_caps, tagged.rx_caps), (FI_TAGGED | FI_SEND, FI_TAGGED | FI_RECV));
}

#[test]
fn what_there_is_as_it_is_asked_for_is_offered_so() {
    let offer = offered(|asked| {
        asked.domain.threading = FI_THREAD_DOMAIN;
        asked.domain.control_progress = FI_PROGRESS_CONTROL_UNIFIED;
        asked.domain.data_progress = FI_PROGRESS_AUTO;
        asked.domain.av_type = FI_AV_MAP;
        asked.domain.resource_mgmt = FI_RM_DISABLED;
        asked.tx.op_flags = FI_DELIVERY_COMPLETE;
        asked.rx.op_flags = FI_COMPLETION;
        asked.tx.msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAW;
        asked.ep.kind = FI_EP_RDM;
        asked.ep.protocol = PROTOCOL;
        asked.ep.max_msg_size = MESSAGE_MAX;
        asked.ep.mem_tag_format = u64::MAX >> 3;
        asked.destination = Place::Is([7; BYTES]);
    });
    assert_eq!((offer.threading, offer.av_type), (FI_THREAD_DOMAIN, FI_AV_MAP));
    assert_eq!(offer.control_progress, FI_PROGRESS_CONTROL_UNIFIED);
    assert_eq!(offer.data_progress, FI_PROGRESS_AUTO);
    assert_eq!((offer.tx_flags, offer.rx_flags), (FI_DELIVERY_COMPLETE, FI_COMPLETION));
    assert_eq!(offer.destination, Some([7; BYTES]));
}

/// A field, and a change to a request that has it ask for too much.
type TooMuch = (&'static str, fn(&mut Asked));

const TOO_MUCH: &[TooMuch] = &[
    ("caps", |asked| asked.caps = FI_MSG | FI_NAMED_RX_CTX),
    ("caps", |asked| asked.caps = FI_TRIGGER),
    ("caps", |asked| asked.caps = FI_TAGGED | FI_HMEM),
    ("caps", |asked| asked.caps = FI_MULTICAST),
    ("caps", |asked| asked.caps = FI_COLLECTIVE),
    ("caps", |asked| asked.caps = FI_MSG | FI_VARIABLE_MSG),
    ("addr_format", |asked| asked.addr_format = FI_SOCKADDR_IN),
    ("src_addr", |asked| asked.source = Place::Strange),
    ("dest_addr", |asked| asked.destination = Place::Strange),
    ("fabric_attr->name", |asked| asked.fabric_name = Some("other".to_owned())),
    ("ep_attr->type", |asked| asked.ep.kind = FI_EP_MSG),
    ("ep_attr->type", |asked| asked.ep.kind = FI_EP_DGRAM),
    ("ep_attr->protocol", |asked| asked.ep.protocol = 1),
    ("ep_attr->protocol_version", |asked| asked.ep.protocol_version = 2),
    ("ep_attr->max_msg_size", |asked| asked.ep.max_msg_size = MESSAGE_MAX + 1),
    ("ep_attr->msg_prefix_size", |asked| asked.ep.msg_prefix_size = 1),
    ("ep_attr->max_order_raw_size", |asked| asked.ep.max_order_raw_size = ORDERED_MAX + 1),
    ("ep_attr->max_order_war_size", |asked| asked.ep.max_order_war_size = ORDERED_MAX + 1),
    ("ep_attr->max_order_waw_size", |asked| asked.ep.max_order_waw_size = ORDERED_MAX + 1),
    ("ep_attr->mem_tag_format", |asked| asked.ep.mem_tag_format = 1 << 61),
    ("ep_attr->tx_ctx_cnt", |asked| asked.ep.tx_ctx_cnt = 2),
    ("ep_attr->rx_ctx_cnt", |asked| asked.ep.rx_ctx_cnt = FI_SHARED_CONTEXT),
    ("ep_attr->auth_key_size", |asked| asked.ep.auth_key_size = 8),
    ("tx_attr->caps", |asked| asked.tx.caps = FI_HMEM),
    ("tx_attr->caps", |asked| {
        asked.caps = FI_TAGGED;
        asked.tx.caps = FI_TAGGED | FI_RMA;
    }),
    ("tx_attr->op_flags", |asked| asked.tx.op_flags = FI_COMMIT_COMPLETE),
    ("tx_attr->msg_order", |asked| asked.tx.msg_order = FI_ORDER_SAS | FI_ORDER_RAS),
    ("tx_attr->comp_order", |asked| asked.tx.comp_order = FI_ORDER_STRICT),
    ("tx_attr->inject_size", |asked| asked.tx.inject_size = INJECT_MAX + 1),
    ("tx_attr->size", |asked| asked.tx.size = OPERATIONS_MAX + 1),
    ("tx_attr->iov_limit", |asked| asked.tx.iov_limit = PIECES_MAX + 1),
    ("tx_attr->rma_iov_limit", |asked| asked.tx.rma_iov_limit = PIECES_MAX + 1),
    ("rx_attr->caps", |asked| asked.rx.caps = FI_RMA_EVENT),
    ("rx_attr->op_flags", |asked| asked.rx.op_flags = FI_INJECT),
    ("rx_attr->msg_order", |asked| asked.rx.msg_order = FI_ORDER_STRICT),
    ("rx_attr->comp_order", |asked| asked.rx.comp_order = FI_ORDER_DATA),
    ("rx_attr->size", |asked| asked.rx.size = OPERATIONS_MAX + 1),
    ("rx_attr->iov_limit", |asked| asked.rx.iov_limit = PIECES_MAX + 1),
    ("domain_attr->threading", |asked| asked.domain.threading = 6),
    ("domain_attr->control_progress", |asked| asked.domain.control_progress = 4),
    ("domain_attr->data_progress", |asked| asked.domain.data_progress = 3),
    ("domain_attr->resource_mgmt", |asked| asked.domain.resource_mgmt = 3),
    ("domain_attr->av_type", |asked| asked.domain.av_type = 3),
    ("domain_attr->mr_mode", |asked| asked.domain.mr_mode = FI_MR_BASIC | FI_MR_LOCAL),
    ("domain_attr->mr_mode", |asked| asked.domain.mr_mode = FI_MR_SCALABLE | FI_MR_BASIC),
    ("domain_attr->mr_key_size", |asked| asked.domain.mr_key_size = 9),
    ("domain_attr->cq_data_size", |asked| asked.domain.cq_data_size = 9),
    ("domain_attr->cq_cnt", |asked| asked.domain.cq_cnt = usize::MAX),
    ("domain_attr->ep_cnt", |asked| asked.domain.ep_cnt = 256),
    ("domain_attr->tx_ctx_cnt", |asked| asked.domain.tx_ctx_cnt = 256),
    ("domain_attr->rx_ctx_cnt", |asked| asked.domain.rx_ctx_cnt = 256),
    ("domain_attr->max_ep_tx_ctx", |asked| asked.domain.max_ep_tx_ctx = 2),
    ("domain_attr->max_ep_rx_ctx", |asked| asked.domain.max_ep_rx_ctx = 2),
    ("domain_attr->max_ep_stx_ctx", |asked| asked.domain.max_ep_stx_ctx = 1),
    ("domain_attr->max_ep_srx_ctx", |asked| asked.domain.max_ep_srx_ctx = 1),
    ("domain_attr->cntr_cnt", |asked| asked.domain.cntr_cnt = usize::MAX),
    ("domain_attr->mr_iov_limit", |asked| asked.domain.mr_iov_limit = PIECES_MAX + 1),
    ("domain_attr->caps", |asked| asked.domain.caps = FI_SHARED_AV),
    ("domain_attr->auth_key_size", |asked| asked.domain.auth_key_size = 1),
    ("domain_attr->max_err_data", |asked| asked.domain.max_err_data = 1),
    ("domain_attr->mr_cnt", |asked| asked.domain.mr_cnt = usize::MAX),
];

#[test]
fn what_there_is_not_is_named() {
    for (number, (field, change)) in TOO_MUCH.iter().enumerate() {
        assert_eq!(offer(&asked(change)), Err(Lack(field)), "{number}");
    }
}

#[test]
fn memory_is_registered_as_it_is_asked_for() {
    let (old, new) = (version(1, 4), version(1, 5));
    let any = !(FI_MR_BASIC | FI_MR_SCALABLE);
    for (version, mode, expected) in [
        (old, FI_MR_UNSPEC, Ok(FI_MR_SCALABLE)),
        (old, FI_MR_SCALABLE, Ok(FI_MR_SCALABLE)),
        (old, FI_MR_BASIC, Ok(FI_MR_BASIC)),
        (old, FI_MR_LOCAL, Err(Lack("domain_attr->mr_mode"))),
        (new, FI_MR_UNSPEC, Ok(0)),
        (new, FI_MR_BASIC, Ok(FI_MR_BASIC)),
        (new, FI_MR_SCALABLE, Ok(FI_MR_SCALABLE)),
        (new, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_ENDPOINT, Ok(0)),
        (new, any, Ok(0)),
        (new, -1, Err(Lack("domain_attr->mr_mode"))),
    ] {
        let request = asked(|asked| {
            asked.version = version;
            asked.domain.mr_mode = mode;
        });
        assert_eq!(offer(&request).map(|offer| offer.mr_mode), expected, "{version:x} {mode:x}");
    }
}

#[test]
fn boards_are_those_that_were_named() {
    let boards = [("a:0", 0x0200_0000_0061), ("b:0", 0x0200_0000_0062)].map(|(name, nic)| Board {
        number: 0,
        nic,
        name: name.to_owned(),
    });
    let wanted = |asked: &Asked| boards.each_ref().map(|board| is_wanted(asked, board));
    let name = || Some("a:0".to_owned());
    assert_eq!(wanted(&asked(|_| {})), [true, true]);
    assert_eq!(wanted(&asked(|asked| asked.domain_name = name())), [true, false]);
    let node = asked(|asked| {
        asked.node = name();
        asked.is_source = true;
    });
    assert!(offer(&node).is_ok());
    assert_eq!(wanted(&node), [true, false]);
    let source = Place::Is(of_board(0x0200_0000_0062));
    assert_eq!(wanted(&asked(|asked| asked.source = source)), [false, true]);
    let both = asked(|asked| {
        asked.domain_name = name();
        asked.source = source;
    });
    assert_eq!(wanted(&both), [false, false]);
}

fn board() -> Board {
    Board { number: 0, nic: 0x0200_0000_0061, name: "a:0".to_owned() }
}

/// Frees a list as the core does: all parts, one by one.
fn free(mut info: *mut FiInfo) {
    while !info.is_null() {
        // SAFETY: the list was handed over, and its parts were allocated one by one.
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
fn what_is_handed_over_is_what_can_be_asked_for_again() {
    let first = offered(|asked| {
        asked.caps = FI_TAGGED | FI_SOURCE;
        asked.destination = Place::Is([9; BYTES]);
    });
    let mut list = List::new();
    list.push(&board(), &first, version(1, 17)).unwrap();
    list.push(&Board { number: 1, nic: 5, name: "z".to_owned() }, &first, version(1, 17)).unwrap();
    let info = list.take();
    // SAFETY: the list is there until it is freed.
    let again = unsafe { read(version(1, 17), std::ptr::null(), std::ptr::null(), 0, info) };
    assert_eq!(offer(&again).map(|again| Offer { ..again }), Ok(first));
    assert_eq!(again.domain_name.as_deref(), Some("a:0"));
    assert_eq!(again.fabric_name.as_deref(), Some("causeway"));
    assert_eq!(again.source, Place::Is(of_board(0x0200_0000_0061)));
    assert_eq!((again.tx.msg_order, again.rx.comp_order), (ORDER, COMPLETION_ORDER));
    assert!(is_wanted(&again, &board()));
    // SAFETY: as above.
    let (chosen, offer) = unsafe { super::chosen(info, version(1, 17)) }.unwrap();
    assert_eq!((&chosen, offer), (&again, first));
    // SAFETY: as above.
    unsafe {
        (*(*info).ep_attr).max_msg_size = MESSAGE_MAX + 1;
        assert_eq!(super::chosen(info, version(1, 17)), Err(FI_EINVAL));
        assert_eq!(super::chosen(std::ptr::null(), version(1, 17)), Err(FI_EINVAL));
        let second = (*info).next;
        assert_eq!(std::ffi::CStr::from_ptr((*(*second).domain_attr).name), c"z");
        assert!((*second).next.is_null());
        assert_eq!((*(*info).ep_attr).mem_tag_format, 0x1555_5555_5555_5555);
    }
    free(info);
}

#[test]
fn hints_without_parts_and_strange_addresses_are_read() {
    let none = std::ptr::null();
    // SAFETY: nothing is there, which is what NULL says.
    let nothing = unsafe { read(version(2, 5), none, none, 0, std::ptr::null()) };
    assert_eq!(nothing, Asked { version: version(2, 5), ..Asked::default() });
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
    // SAFETY: what is not NULL is there.
    let hinted = unsafe { read(version(1, 17), c"n".as_ptr(), c"s".as_ptr(), FI_SOURCE, &hints) };
    assert_eq!((hinted.source, hinted.destination), (Place::Strange, Place::Any));
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
