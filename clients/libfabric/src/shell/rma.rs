//! Reads and writes of others' memory.

use std::ffi::c_void;

use libc::iovec;

use super::endpoint::{Endpoint, injectable, of_fid, piece, pieces};
use crate::abi::*;
use crate::limits::REMOTE_PIECES_MAX;
use crate::rdm::{Errno, Place, Remote, Report};

/// What endpoints have.
pub static RMA_OPS: OpsRma = OpsRma {
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
    ..OpsRma::NONE
};

/// As functions return it.
fn number(done: Result<(), Errno>) -> isize {
    done.map_or_else(|Errno(err)| failed_size(err), |()| 0)
}

fn get(ep: &Endpoint, place: Place, remote: Remote, context: *mut c_void, flags: u64) -> isize {
    ep.begin(|ep, env| {
        let report = ep.tx_report(flags, FI_RMA | FI_READ, context, &place);
        ep.rdm.read(env, remote, report, place)
    })
}

/// What is written, beside the bytes.
#[derive(Debug, Clone, Copy)]
struct Written {
    remote: Remote,
    data: Option<u64>,
    context: *mut c_void,
}

fn put(ep: &Endpoint, place: Place, written: Written, flags: u64, injected: bool) -> isize {
    if (injected || flags & FI_INJECT != 0) && injectable(place.len()).is_err() {
        return failed_size(FI_EMSGSIZE);
    }
    ep.begin(|ep, env| {
        let Written { remote, data, context } = written;
        let report = ep.tx_report(flags, FI_RMA | FI_WRITE, context, &place);
        let inject = if injected { FI_INJECT } else { 0 };
        let (quiet, flags) = (report.quiet || injected, report.flags | inject);
        let report = Report { quiet, flags, ..report };
        // What is short goes with the question, so that the memory is free at once.
        ep.rdm.write(env, remote, report, place, data)
    })
}

/// The one piece of others' memory that an operation is about.
///
/// # Safety
/// So many are there.
unsafe fn remote(
    to: FiAddr,
    iov: *const FiRmaIov,
    count: usize,
    len: usize,
) -> Result<Remote, Errno> {
    if count != REMOTE_PIECES_MAX || iov.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: as the caller says.
    let FiRmaIov { addr, len: theirs, key } = unsafe { iov.read() };
    if theirs != len {
        return Err(Errno(FI_EINVAL));
    }
    Ok(Remote { to, key, address: addr })
}

unsafe extern "C" fn read(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: FiAddr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let remote = Remote { to: from, key, address: addr };
    get(ep, place, remote, context, ep.tx_flags())
}

unsafe extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends so many pieces.
    let (ep, place) = unsafe { (of_fid(ep), pieces(iov, count)) };
    let remote = Remote { to: from, key, address: addr };
    match place {
        Ok(place) => get(ep, place, remote, context, ep.tx_flags()),
        Err(errno) => number(Err(errno)),
    }
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller gives an endpoint that we opened, a message, and so many pieces.
    let (ep, msg, parts) = unsafe { (of_fid(ep), &*msg, parts(&*msg)) };
    match parts {
        Ok((place, remote)) => get(ep, place, remote, msg.context, flags),
        Err(errno) => number(Err(errno)),
    }
}

/// Both sides of what a message is about.
///
/// # Safety
/// So many pieces are there as it says.
unsafe fn parts(msg: &FiMsgRma) -> Result<(Place, Remote), Errno> {
    // SAFETY: as the caller says.
    unsafe {
        let place = pieces(msg.msg_iov, msg.iov_count)?;
        let remote = remote(msg.addr, msg.rma_iov, msg.rma_iov_count, place.len())?;
        Ok((place, remote))
    }
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: FiAddr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let written = Written { remote: Remote { to, key, address: addr }, data: None, context };
    put(ep, place, written, ep.tx_flags(), false)
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends so many pieces.
    let (ep, place) = unsafe { (of_fid(ep), pieces(iov, count)) };
    let written = Written { remote: Remote { to, key, address: addr }, data: None, context };
    match place {
        Ok(place) => put(ep, place, written, ep.tx_flags(), false),
        Err(errno) => number(Err(errno)),
    }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller gives an endpoint that we opened, a message, and so many pieces.
    let (ep, msg, parts) = unsafe { (of_fid(ep), &*msg, parts(&*msg)) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    match parts {
        Ok((place, remote)) => {
            put(ep, place, Written { remote, data, context: msg.context }, flags, false)
        }
        Err(errno) => number(Err(errno)),
    }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: FiAddr,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let remote = Remote { to, key, address: addr };
    let written = Written { remote, data: None, context: std::ptr::null_mut() };
    put(ep, place, written, 0, true)
}

unsafe extern "C" fn writedata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: FiAddr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let remote = Remote { to, key, address: addr };
    let written = Written { remote, data: Some(data), context };
    put(ep, place, written, ep.tx_flags(), false)
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and lends the memory to the operation.
    let (ep, place) = unsafe { (of_fid(ep), piece(buf, len)) };
    let remote = Remote { to, key, address: addr };
    let written = Written { remote, data: Some(data), context: std::ptr::null_mut() };
    put(ep, place, written, 0, true)
}
