//! Messages without tags (`fi_msg(3)`): the functions of the C interface. They convert arguments
//! only; limits and errors are those of [`tagged`](super::tagged), which has the common part.
//!
//! More than [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX) (8) segments give `-FI_EINVAL`. Memory
//! descriptors are ignored. `-FI_EAGAIN` means that a queue is full and nothing was started; an
//! injected message has at most `INJECT_MAX` (4,096) bytes (`-FI_EMSGSIZE`). A message without a
//! tag never matches a receive with a tag. The application calls the functions in [`MSG_OPS`]; they
//! run in its thread, under the domain's lock.

use std::ffi::c_void;

use libc::iovec;

use super::arguments::{buffer, segments};
use super::endpoint_object::of_fid;
use super::tagged::{ReceiveArgs, SendArgs, receive, transmit, transmit_injected};
use crate::abi::*;
use crate::errno::Errno;

/// The functions in an endpoint's table.
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let received = ReceiveArgs { from, tag: None, context };
    receive(ep, payload, received, ep.rx_flags())
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the segments.
    let (ep, payload) = unsafe { (of_fid(ep), segments(iov, count)) };
    let received = ReceiveArgs { from, tag: None, context };
    match payload {
        Ok(payload) => receive(ep, payload, received, ep.rx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller passes an endpoint that was opened here, and a message structure.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: the caller lends the segments.
    let payload = unsafe { segments(msg.msg_iov, msg.iov_count) };
    let received = ReceiveArgs { from: msg.addr, tag: None, context: msg.context };
    match payload {
        Ok(payload) => receive(ep, payload, received, flags),
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: None, data: None, context };
    transmit(ep, payload, sent, ep.tx_flags())
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the segments.
    let (ep, payload) = unsafe { (of_fid(ep), segments(iov, count)) };
    let sent = SendArgs { to, tag: None, data: None, context };
    match payload {
        Ok(payload) => transmit(ep, payload, sent, ep.tx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller passes an endpoint that was opened here, and a message structure.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: the caller lends the segments.
    let payload = unsafe { segments(msg.msg_iov, msg.iov_count) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    let sent = SendArgs { to: msg.addr, tag: None, data, context: msg.context };
    match payload {
        Ok(payload) => transmit(ep, payload, sent, flags),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: None, data: None, context: std::ptr::null_mut() };
    transmit_injected(ep, payload, sent)
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: None, data: Some(data), context };
    transmit(ep, payload, sent, ep.tx_flags())
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: None, data: Some(data), context: std::ptr::null_mut() };
    transmit_injected(ep, payload, sent)
}
