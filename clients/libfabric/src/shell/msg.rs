//! Messages without tags.

use std::ffi::c_void;

use libc::iovec;

use super::endpoint::{of_fid, piece, pieces};
use super::tagged::{Received, Sent, receive, transmit, transmit_quietly};
use crate::abi::*;
use crate::rdm::Errno;

/// What endpoints have.
pub static MSG_OPS: OpsMsg = OpsMsg {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..OpsMsg::NONE
};

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let received = Received { from, tag: None, context };
    receive(ep, place, received, ep.rx_flags())
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends so many pieces.
    let (ep, place) = unsafe { (of_fid(ep), pieces(iov, count)) };
    let received = Received { from, tag: None, context };
    match place {
        Ok(place) => receive(ep, place, received, ep.rx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller gives an endpoint that we opened, and a message.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: and lends so many pieces.
    let place = unsafe { pieces(msg.msg_iov, msg.iov_count) };
    let received = Received { from: msg.addr, tag: None, context: msg.context };
    match place {
        Ok(place) => receive(ep, place, received, flags),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: None, data: None, context };
    transmit(ep, place, sent, ep.tx_flags())
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends so many pieces.
    let (ep, place) = unsafe { (of_fid(ep), pieces(iov, count)) };
    let sent = Sent { to, tag: None, data: None, context };
    match place {
        Ok(place) => transmit(ep, place, sent, ep.tx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller gives an endpoint that we opened, and a message.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: and lends so many pieces.
    let place = unsafe { pieces(msg.msg_iov, msg.iov_count) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    let sent = Sent { to: msg.addr, tag: None, data, context: msg.context };
    match place {
        Ok(place) => transmit(ep, place, sent, flags),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: None, data: None, context: std::ptr::null_mut() };
    transmit_quietly(ep, place, sent)
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: None, data: Some(data), context };
    transmit(ep, place, sent, ep.tx_flags())
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: None, data: Some(data), context: std::ptr::null_mut() };
    transmit_quietly(ep, place, sent)
}
