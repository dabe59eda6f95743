//! Messages with tags.

use std::ffi::c_void;

use libc::iovec;

use super::endpoint::{Endpoint, injectable, of_fid, piece, pieces};
use crate::abi::*;
use crate::rdm::{Errno, Message, Place, Report, TAG_MASK, Wanted};

/// What endpoints have.
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

const SENDS: u64 = FI_TAGGED | FI_SEND;
const RECEIVES: u64 = FI_TAGGED | FI_RECV;
/// When a message is over only when it was received.
const DELIVERED: u64 = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

/// Who sends what.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub to: FiAddr,
    /// With one, if messages have any.
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub context: *mut c_void,
}

/// Sends.
#[inline]
pub fn transmit(ep: &Endpoint, place: Place, sent: Sent, flags: u64) -> isize {
    let Sent { to, tag, data, context } = sent;
    let inject = flags & FI_INJECT != 0;
    if tag.is_some_and(|tag| tag & !TAG_MASK != 0) {
        return failed_size(FI_EINVAL);
    }
    if inject && injectable(place.len()).is_err() {
        return failed_size(FI_EMSGSIZE);
    }
    ep.begin(|ep, env| {
        let what = if tag.is_some() { SENDS } else { FI_MSG | FI_SEND };
        let report = ep.tx_report(flags, what, context, &place);
        let report = Report { tag: tag.unwrap_or(0), ..report };
        let delivered = flags & DELIVERED != 0;
        ep.rdm.send(env, Message { to, report, place, data, inject, delivered })
    })
}

/// Sends what is the application's again at once, and is not told of.
#[inline]
pub fn transmit_quietly(ep: &Endpoint, place: Place, sent: Sent) -> isize {
    if sent.tag.is_some_and(|tag| tag & !TAG_MASK != 0) {
        return failed_size(FI_EINVAL);
    }
    if injectable(place.len()).is_err() {
        return failed_size(FI_EMSGSIZE);
    }
    ep.begin(|ep, env| {
        let Sent { to, tag, data, context } = sent;
        if let Place::One(piece) = &place
            && ep.rdm.send_quietly(env, to, (tag, data), piece)
        {
            return Ok(());
        }
        let flags = FI_INJECT | if tag.is_some() { SENDS } else { FI_MSG | FI_SEND };
        let (tag, len, context) = (tag.unwrap_or(0), place.len(), context.addr());
        let report = Report { context, flags, quiet: true, tag, buf: 0, len };
        ep.rdm.send(env, Message { to, report, place, data, inject: true, delivered: false })
    })
}

/// Who receives what.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    pub from: FiAddr,
    pub tag: Option<(u64, u64)>,
    pub context: *mut c_void,
}

/// Receives, or looks.
#[inline]
pub fn receive(ep: &Endpoint, place: Place, received: Received, flags: u64) -> isize {
    let Received { from, tag, context } = received;
    let from = ep.from(from);
    ep.begin(|ep, env| {
        let what = if tag.is_some() { RECEIVES } else { FI_MSG | FI_RECV };
        let report = ep.rx_report(flags, what, context, &place);
        let (tag, ignore) = tag.unwrap_or((0, 0));
        let report = Report { tag: tag & TAG_MASK, ..report };
        let wanted = Wanted { from, ignore, report };
        if flags & (FI_PEEK | FI_CLAIM | FI_DISCARD | FI_MULTI_RECV) == 0 {
            return ep.rdm.receive(env, wanted, place);
        }
        let (claim, discard) = (flags & FI_CLAIM != 0, flags & FI_DISCARD != 0);
        if flags & FI_PEEK != 0 {
            let flags = report.flags | FI_PEEK;
            let wanted = Wanted { report: Report { flags, quiet: false, ..report }, ..wanted };
            return ep.rdm.peek(env, wanted, (claim, discard));
        }
        match (claim, discard) {
            (_, true) => ep.rdm.discard_claimed(env, report),
            (true, false) => ep.rdm.receive_claimed(env, report, place),
            (false, false) => ep.rdm.receive_many(env, wanted, place),
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
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let received = Received { from, tag: Some((tag, ignore)), context };
    receive(ep, place, received, ep.rx_flags())
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
    // SAFETY: the caller gives an endpoint that we opened, and lends so many pieces.
    let (ep, place) = unsafe { (of_fid(ep), pieces(iov, count)) };
    let received = Received { from, tag: Some((tag, ignore)), context };
    match place {
        Ok(place) => receive(ep, place, received, ep.rx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller gives an endpoint that we opened, and a message.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: and lends so many pieces.
    let place = unsafe { pieces(msg.msg_iov, msg.iov_count) };
    let tag = Some((msg.tag, msg.ignore));
    let received = Received { from: msg.addr, tag, context: msg.context };
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: Some(tag), data: None, context };
    transmit(ep, place, sent, ep.tx_flags())
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
    // SAFETY: the caller gives an endpoint that we opened, and lends so many pieces.
    let (ep, place) = unsafe { (of_fid(ep), pieces(iov, count)) };
    let sent = Sent { to, tag: Some(tag), data: None, context };
    match place {
        Ok(place) => transmit(ep, place, sent, ep.tx_flags()),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller gives an endpoint that we opened, and a message.
    let (ep, msg) = unsafe { (of_fid(ep), &*msg) };
    // SAFETY: and lends so many pieces.
    let place = unsafe { pieces(msg.msg_iov, msg.iov_count) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    let sent = Sent { to: msg.addr, tag: Some(msg.tag), data, context: msg.context };
    match place {
        Ok(place) => transmit(ep, place, sent, flags),
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
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: Some(tag), data: None, context: std::ptr::null_mut() };
    transmit_quietly(ep, place, sent)
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
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: Some(tag), data: Some(data), context };
    transmit(ep, place, sent, ep.tx_flags())
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
    tag: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let sent = Sent { to, tag: Some(tag), data: Some(data), context: std::ptr::null_mut() };
    transmit_quietly(ep, place, sent)
}
