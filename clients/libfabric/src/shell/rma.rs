//! Reads and writes of remote memory (`fi_rma(3)`): the functions of the C interface, which convert
//! their arguments for [`Rdm`](crate::rdm::Rdm).
//!
//! # Limits
//! An operation has up to [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX) (8) local segments and one
//! remote segment of the same length (`-FI_EINVAL` otherwise), at most 4,294,967,231 bytes
//! (`-FI_EMSGSIZE`). An injected write has at most [`INJECT_MAX`](crate::limits::INJECT_MAX)
//! (4,096) bytes (`-FI_EMSGSIZE`); a success is not reported to the queue; a failure is logged as a
//! warning (`log`); a bound counter counts both. Keys and bounds are checked by the target, so a
//! wrong key is an error completion with `FI_EKEYREJECTED`, an address outside the region with
//! `FI_EINVAL`, and a region that is closed meanwhile `FI_EIO`. Calls before `FI_ENABLE` give
//! `-FI_EOPBADSTATE` (`endpoint_object`); other errors are those of `rdm::initiator`. Every write
//! completes when the target has performed it, whichever completion level is requested. Memory
//! descriptors are ignored.
//!
//! # Place
//! The application calls the functions in [`RMA_OPS`]; `rdm::initiator` performs the operations, in
//! the calling thread under the domain's lock. At the target, the thread that makes progress there
//! copies. `-FI_EAGAIN` (too many operations in progress) means that nothing was started.

use std::ffi::c_void;

use libc::iovec;

use super::arguments::{buffer, injectable, segments};
use super::endpoint_object::{Endpoint, of_fid};
use crate::abi::*;
use crate::errno::Errno;
use crate::limits::REMOTE_SEGMENTS_MAX;
use crate::rdm::{Payload, RemoteMemory, ReportTemplate};

/// The functions in an endpoint's table.
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

/// Returns the result of a function of type `ssize_t`.
fn number(done: Result<(), Errno>) -> isize {
    done.map_or_else(|Errno(err)| failed_size(err), |()| 0)
}

/// Starts a read.
fn start_read(
    ep: &Endpoint,
    payload: Payload,
    remote: RemoteMemory,
    context: *mut c_void,
    flags: u64,
) -> isize {
    ep.begin(|ep, env| {
        let report = ep.tx_report(flags, FI_RMA | FI_READ, context, &payload);
        ep.rdm.read(env, remote, report, payload)
    })
}

/// The parameters of a write, besides its buffer.
#[derive(Debug, Clone, Copy)]
struct WriteArgs {
    /// The memory to write.
    remote: RemoteMemory,
    /// Immediate data for the target.
    data: Option<u64>,
    /// The application's context.
    context: *mut c_void,
}

/// Starts a write. `injected`: a success is not reported.
fn start_write(
    ep: &Endpoint,
    payload: Payload,
    written: WriteArgs,
    flags: u64,
    injected: bool,
) -> isize {
    if (injected || flags & FI_INJECT != 0) && injectable(payload.len()).is_err() {
        return failed_size(FI_EMSGSIZE);
    }
    ep.begin(|ep, env| {
        let WriteArgs { remote, data, context } = written;
        let report = ep.tx_report(flags, FI_RMA | FI_WRITE, context, &payload);
        let inject = if injected { FI_INJECT } else { 0 };
        let (quiet, flags) = (report.quiet || injected, report.flags | inject);
        let report = ReportTemplate { quiet, flags, ..report };
        // A short write is sent with its request, so that the memory is free at once.
        ep.rdm.write(env, remote, report, payload, data)
    })
}

/// Returns the single remote segment of an operation.
///
/// # Errors
/// `FI_EINVAL` for another number of segments, or another length than the local one.
///
/// # Safety
/// `iov` is NULL or has `count` segments.
unsafe fn remote(
    to: FiAddr,
    iov: *const FiRmaIov,
    count: usize,
    len: usize,
) -> Result<RemoteMemory, Errno> {
    if count != REMOTE_SEGMENTS_MAX || iov.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: guaranteed by the caller.
    let FiRmaIov { addr, len: theirs, key } = unsafe { iov.read() };
    if theirs != len {
        return Err(Errno(FI_EINVAL));
    }
    Ok(RemoteMemory { to, key, address: addr })
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let remote = RemoteMemory { to: from, key, address: addr };
    start_read(ep, payload, remote, context, ep.tx_flags())
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the segments.
    let (ep, payload) = unsafe { (of_fid(ep), segments(iov, count)) };
    let remote = RemoteMemory { to: from, key, address: addr };
    match payload {
        Ok(payload) => start_read(ep, payload, remote, context, ep.tx_flags()),
        Err(errno) => number(Err(errno)),
    }
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller passes an open endpoint, a message structure and valid segments.
    let (ep, msg, buffers) = unsafe { (of_fid(ep), &*msg, buffers(&*msg)) };
    match buffers {
        Ok((payload, remote)) => start_read(ep, payload, remote, msg.context, flags),
        Err(errno) => number(Err(errno)),
    }
}

/// Returns the local and the remote buffer of a message structure.
///
/// # Safety
/// The structure has valid segments.
unsafe fn buffers(msg: &FiMsgRma) -> Result<(Payload, RemoteMemory), Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let payload = segments(msg.msg_iov, msg.iov_count)?;
        let remote = remote(msg.addr, msg.rma_iov, msg.rma_iov_count, payload.len())?;
        Ok((payload, remote))
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let written =
        WriteArgs { remote: RemoteMemory { to, key, address: addr }, data: None, context };
    start_write(ep, payload, written, ep.tx_flags(), false)
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the segments.
    let (ep, payload) = unsafe { (of_fid(ep), segments(iov, count)) };
    let written =
        WriteArgs { remote: RemoteMemory { to, key, address: addr }, data: None, context };
    match payload {
        Ok(payload) => start_write(ep, payload, written, ep.tx_flags(), false),
        Err(errno) => number(Err(errno)),
    }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    if msg.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller passes an open endpoint, a message structure and valid segments.
    let (ep, msg, buffers) = unsafe { (of_fid(ep), &*msg, buffers(&*msg)) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    match buffers {
        Ok((payload, remote)) => {
            start_write(ep, payload, WriteArgs { remote, data, context: msg.context }, flags, false)
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let remote = RemoteMemory { to, key, address: addr };
    let written = WriteArgs { remote, data: None, context: std::ptr::null_mut() };
    start_write(ep, payload, written, 0, true)
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let remote = RemoteMemory { to, key, address: addr };
    let written = WriteArgs { remote, data: Some(data), context };
    start_write(ep, payload, written, ep.tx_flags(), false)
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
    // SAFETY: the caller passes an endpoint that was opened here, and lends the memory.
    let (ep, payload) = unsafe { (of_fid(ep), buffer(buf, len)) };
    let remote = RemoteMemory { to, key, address: addr };
    let written = WriteArgs { remote, data: Some(data), context: std::ptr::null_mut() };
    start_write(ep, payload, written, 0, true)
}
