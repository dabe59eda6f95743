//! Messages with tags (`fi_tagged(3)`): the functions of the C interface, and the common part of
//! messages with and without tags ([`transmit`], [`transmit_injected`], [`receive`]).
//!
//! # Limits
//! A tag has [`TAG_BITS`](crate::limits::TAG_BITS) (61) bits; a send with other bits fails with
//! `-FI_EINVAL`, and a receive ignores them. An injected message has at most
//! [`INJECT_MAX`](crate::limits::INJECT_MAX) (4,096) bytes (`-FI_EMSGSIZE`). Memory descriptors are
//! ignored. A send that requests delivery, match or commit completes when the receiver has matched
//! the message; all three are the same here. `-FI_EAGAIN` means that nothing was started. All other
//! errors are those of `Endpoint::begin` and of `send`, `receive`, `peek` and `multi` in `rdm`. The
//! flags of a call select between a receive, a peek, a claim, a discard and a multi-receive buffer,
//! with and without a tag.
//!
//! # Place
//! The application calls the functions in [`TAGGED_OPS`]; `msg` uses the common part;
//! [`Endpoint::begin`] runs `Rdm::send`, `receive` and `peek`, in the calling thread under the
//! domain's lock.

use std::ffi::c_void;

use libc::iovec;

use super::arguments::{buffer, injectable, segments};
use super::endpoint_object::{Endpoint, of_fid};
use crate::abi::*;
use crate::errno::Errno;
use crate::rdm::{Message, Payload, ReceiveSpec, ReportTemplate, TAG_MASK};

/// The functions in an endpoint's table.
pub static TAGGED_OPS: OpsTagged = OpsTagged {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..OpsTagged::NONE
};

/// The flags of the completion of a send with a tag.
const SENDS: u64 = FI_TAGGED | FI_SEND;
/// The flags of the completion of a receive with a tag.
const RECEIVES: u64 = FI_TAGGED | FI_RECV;
/// Flags with which a send completes on delivery.
const DELIVERED: u64 = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

/// The parameters of a send, besides its buffer.
#[derive(Debug, Clone, Copy)]
pub struct SendArgs {
    /// The destination's index in the address vector.
    pub to: FiAddr,
    /// The tag, if the message has one.
    pub tag: Option<u64>,
    /// Immediate data.
    pub data: Option<u64>,
    /// The application's context.
    pub context: *mut c_void,
}

/// Starts a send.
#[inline]
pub fn transmit(ep: &Endpoint, payload: Payload, sent: SendArgs, flags: u64) -> isize {
    let SendArgs { to, tag, data, context } = sent;
    let inject = flags & FI_INJECT != 0;
    if tag.is_some_and(|tag| tag & !TAG_MASK != 0) {
        return failed_size(FI_EINVAL);
    }
    if inject && injectable(payload.len()).is_err() {
        return failed_size(FI_EMSGSIZE);
    }
    ep.begin(|ep, env| {
        let what = if tag.is_some() { SENDS } else { FI_MSG | FI_SEND };
        let report = ep.tx_report(flags, what, context, &payload);
        let report = ReportTemplate { tag: tag.unwrap_or(0), ..report };
        let delivered = flags & DELIVERED != 0;
        ep.rdm.send(env, Message { to, report, payload, data, inject, delivered })
    })
}

/// Starts an injected send: the application may reuse the buffer at once, and a success is not
/// reported.
#[inline]
pub fn transmit_injected(ep: &Endpoint, payload: Payload, sent: SendArgs) -> isize {
    if sent.tag.is_some_and(|tag| tag & !TAG_MASK != 0) {
        return failed_size(FI_EINVAL);
    }
    if injectable(payload.len()).is_err() {
        return failed_size(FI_EMSGSIZE);
    }
    ep.begin(|ep, env| {
        let SendArgs { to, tag, data, context } = sent;
        if let Payload::One(buffer) = &payload
            && ep.rdm.send_injected(env, to, (tag, data), buffer)
        {
            return Ok(());
        }
        let flags = FI_INJECT | if tag.is_some() { SENDS } else { FI_MSG | FI_SEND };
        let (tag, len, context) = (tag.unwrap_or(0), payload.len(), context.addr());
        let report = ReportTemplate { context, flags, quiet: true, tag, buf: 0, len };
        ep.rdm.send(env, Message { to, report, payload, data, inject: true, delivered: false })
    })
}

/// The parameters of a receive, besides its buffer.
#[derive(Debug, Clone, Copy)]
pub struct ReceiveArgs {
    /// The source's index in the address vector, or `FI_ADDR_UNSPEC`.
    pub from: FiAddr,
    /// The tag, and the bits that are not compared; `None` selects messages without a tag.
    pub tag: Option<(u64, u64)>,
    /// The application's context.
    pub context: *mut c_void,
}

/// Starts a receive, a peek, a claim or a multi-receive buffer, by the flags.
#[inline]
pub fn receive(ep: &Endpoint, payload: Payload, received: ReceiveArgs, flags: u64) -> isize {
    let ReceiveArgs { from, tag, context } = received;
    let from = ep.from(from);
    ep.begin(|ep, env| {
        let what = if tag.is_some() { RECEIVES } else { FI_MSG | FI_RECV };
        let report = ep.rx_report(flags, what, context, &payload);
        let (tag, ignore) = tag.unwrap_or((0, 0));
        let report = ReportTemplate { tag: tag & TAG_MASK, ..report };
        let wanted = ReceiveSpec { from, ignore, report };
        if flags & (FI_PEEK | FI_CLAIM | FI_DISCARD | FI_MULTI_RECV) == 0 {
            return ep.rdm.receive(env, wanted, payload);
        }
        let (claim, discard) = (flags & FI_CLAIM != 0, flags & FI_DISCARD != 0);
        if flags & FI_PEEK != 0 {
            let flags = report.flags | FI_PEEK;
            let wanted =
                ReceiveSpec { report: ReportTemplate { flags, quiet: false, ..report }, ..wanted };
            return ep.rdm.peek(env, wanted, (claim, discard));
        }
        match (claim, discard) {
            (_, true) => ep.rdm.discard_claimed(env, report),
            (true, false) => ep.rdm.receive_claimed(env, report, payload),
            (false, false) => ep.rdm.receive_many(env, wanted, payload),
        }
    })
}

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: FiAddr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let received = ReceiveArgs { from, tag: Some((tag, ignore)), context };
    receive(ep, payload, received, ep.rx_flags())
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the segments.
    let (ep, payload) = unsafe { (of_fid(ep), segments(iov, count)) };
    let received = ReceiveArgs { from, tag: Some((tag, ignore)), context };
    match payload {
        Ok(payload) => receive(ep, payload, received, ep.rx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller passes an endpoint that was opened here, and a message structure.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: the caller lends the segments.
    let payload = unsafe { segments(msg.msg_iov, msg.iov_count) };
    let tag = Some((msg.tag, msg.ignore));
    let received = ReceiveArgs { from: msg.addr, tag, context: msg.context };
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: Some(tag), data: None, context };
    transmit(ep, payload, sent, ep.tx_flags())
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the segments.
    let (ep, payload) = unsafe { (of_fid(ep), segments(iov, count)) };
    let sent = SendArgs { to, tag: Some(tag), data: None, context };
    match payload {
        Ok(payload) => transmit(ep, payload, sent, ep.tx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller passes an endpoint that was opened here, and a message structure.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: the caller lends the segments.
    let payload = unsafe { segments(msg.msg_iov, msg.iov_count) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    let sent = SendArgs { to: msg.addr, tag: Some(msg.tag), data, context: msg.context };
    match payload {
        Ok(payload) => transmit(ep, payload, sent, flags),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: FiAddr,
    tag: u64,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: Some(tag), data: None, context: std::ptr::null_mut() };
    transmit_injected(ep, payload, sent)
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: Some(tag), data: Some(data), context };
    transmit(ep, payload, sent, ep.tx_flags())
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
    tag: u64,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let sent = SendArgs { to, tag: Some(tag), data: Some(data), context: std::ptr::null_mut() };
    transmit_injected(ep, payload, sent)
}
