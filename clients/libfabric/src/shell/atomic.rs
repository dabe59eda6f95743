//! Atomic operations (`fi_atomic(3)`): the functions of the C interface, which convert their
//! arguments for [`Rdm::atomic`](crate::rdm::Rdm::atomic), and the queries of supported
//! combinations.
//!
//! # Limits
//! Unsupported types and operations give `-FI_EOPNOTSUPP`; `rdm::atomic` lists the supported ones.
//! Operands, compare values and results must have equally many elements, at least one, and at most
//! as many as the query reports: 4,096 bytes of operands, compare values included. Each has at most
//! [`SEGMENTS_MAX`] (8) local segments, and an operation has exactly one remote segment. Otherwise
//! the call gives `-FI_EINVAL`. A read (`FI_ATOMIC_READ`) uses no operands: its results give the
//! number of elements. Calls before `FI_ENABLE` give `-FI_EOPBADSTATE` (`endpoint_object`). Other
//! errors are those of `rdm::initiator`, such as `-FI_EAGAIN` with 256 calls to the target, or
//! 4,096 of the endpoint, in progress. A call that fails starts nothing.
//!
//! Operands and compare values are copied at the call, so the application may reuse them at once;
//! the result buffer is lent until the completion. The flag `FI_INJECT` therefore has no effect.
//! An operation of `fi_inject_atomic` has no entry in the queue; its failure is logged as a warning
//! (`log`), and a bound counter counts it.
//!
//! # Place
//! An endpoint's table has [`ATOMIC_OPS`] (`shell::endpoint`), a domain's table [`query`]
//! (`shell::domain`). The application calls both in its threads; `rdm::initiator` sends the
//! request, in the calling thread under the domain's lock. The thread that makes progress at the
//! target executes the operation.

use std::ffi::{c_int, c_void};

use super::endpoint_object::{Endpoint, of_fid};
use crate::abi::*;
use crate::domain::EpState;
use crate::errno::Errno;
use crate::limits::{REMOTE_SEGMENTS_MAX, SEGMENTS_MAX};
use crate::rdm::{
    AppSpan, AtomicKind, AtomicRequest, Payload, RemoteMemory, ReportTemplate, atomic_valid,
};

/// The functions in an endpoint's table.
pub static ATOMIC_OPS: OpsAtomic = OpsAtomic {
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
    ..OpsAtomic::NONE
};

/// The parameters of an operation, besides its buffers.
#[derive(Debug, Clone, Copy)]
struct AtomicArgs {
    /// The memory to change.
    remote: RemoteMemory,
    /// libfabric's number of the data type.
    datatype: u32,
    /// libfabric's number of the operation.
    operation: u32,
    /// The application's context.
    context: *mut c_void,
    /// The flags of the call, or the endpoint's default flags of transmit operations.
    flags: u64,
    /// Whether a success is not reported.
    quiet: bool,
}

/// Starts an operation. Buffers are given by the number of their elements.
fn begin(
    ep: &Endpoint,
    kind: AtomicKind,
    args: AtomicArgs,
    operands: Result<OperandList, Errno>,
    compare: Result<Option<OperandList>, Errno>,
    result: Result<Option<OperandList>, Errno>,
) -> isize {
    let AtomicArgs { remote, datatype, operation, context, flags, quiet } = args;
    let make = || {
        let (most, size) = atomic_valid(kind, datatype, operation).ok_or(Errno(FI_EOPNOTSUPP))?;
        let operands = operands?;
        let count = match result.as_ref() {
            // A read has no operands.
            Ok(Some(result)) if operation == FI_ATOMIC_READ => result.count(),
            _ => operands.count(),
        };
        let fits = |many: &Result<Option<OperandList>, Errno>| match many {
            Ok(Some(many)) => many.count() == count,
            _ => true,
        };
        if count == 0 || count > most || !fits(&compare) || !fits(&result) {
            return Err(Errno(FI_EINVAL));
        }
        // SAFETY: `size` is that of the operation's data type.
        let payload = |many: OperandList| unsafe { many.payload(size) };
        let bytes = |many: OperandList| payload(many).map(|payload| payload.to_vec());
        let result = result?.map(payload).transpose()?;
        let compare = compare?.map(bytes).transpose()?;
        let reads = operation == FI_ATOMIC_READ;
        let operands = if reads { Vec::new() } else { bytes(operands)? };
        let (datatype, operation) = (datatype as u8, operation as u8);
        let len = count.saturating_mul(size);
        Ok(AtomicRequest { datatype, operation, operands, compare, result, len })
    };
    let atomic = match make() {
        Ok(atomic) => atomic,
        Err(Errno(err)) => return failed_size(err),
    };
    ep.begin(|ep: &mut EpState, env| {
        let what = match kind {
            AtomicKind::Write => FI_ATOMIC | FI_WRITE,
            _ => FI_ATOMIC | FI_READ,
        };
        let report = ep.tx_report(flags, what, context, &Payload::EMPTY);
        let inject = if quiet { FI_INJECT } else { 0 };
        let (quiet, flags) = (report.quiet || quiet, report.flags | inject);
        let report = ReportTemplate { quiet, flags, len: atomic.len, ..report };
        ep.rdm.atomic(env, remote, report, atomic)
    })
}

/// Buffers that the application lends to an operation: the start and the number of elements of each
/// segment.
#[derive(Debug)]
struct OperandList(Vec<(*mut u8, usize)>);

impl OperandList {
    /// Returns a contiguous buffer of `count` elements.
    ///
    /// # Safety
    /// As for [`AppSpan::new`], for the bytes of `count` elements of the operation's data type.
    unsafe fn one(buf: *const c_void, count: usize) -> Self {
        Self(vec![(buf.cast_mut().cast(), count)])
    }

    /// Returns a buffer of several segments.
    ///
    /// # Errors
    /// `FI_EINVAL` for too many segments.
    ///
    /// # Safety
    /// `ioc` has as many segments, and each is as for [`Self::one`].
    unsafe fn of(ioc: *const FiIoc, segments: usize) -> Result<Self, Errno> {
        if segments > SEGMENTS_MAX || (ioc.is_null() && segments > 0) {
            return Err(Errno(FI_EINVAL));
        }
        let all = (0..segments).map(|at| {
            // SAFETY: guaranteed by the caller.
            let FiIoc { addr, count } = unsafe { ioc.wrapping_add(at).read() };
            (addr.cast(), count)
        });
        Ok(Self(all.collect()))
    }

    /// Returns the number of elements in all segments.
    fn count(&self) -> usize {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns the payload of the elements.
    ///
    /// # Safety
    /// `size` is that of the operation's data type.
    unsafe fn payload(self, size: usize) -> Result<Payload, Errno> {
        let too_much = Errno(FI_EMSGSIZE);
        let segments = self.0.into_iter().map(|(start, count)| {
            let len = count.checked_mul(size).ok_or(too_much)?;
            // SAFETY: the callers of `one` and `of` guarantee this number of elements.
            Ok(unsafe { AppSpan::new(start, len) })
        });
        Payload::of(segments.collect::<Result<_, Errno>>()?).ok_or(too_much)
    }
}

/// Returns the memory of an operation.
fn remote(to: FiAddr, key: u64, address: u64) -> RemoteMemory {
    RemoteMemory { to, key, address }
}

/// Returns the parameters and the operands in a message structure.
///
/// # Safety
/// `msg` is NULL, or a valid structure with valid segments.
unsafe fn args(msg: *const FiMsgAtomic, flags: u64) -> Result<(AtomicArgs, OperandList), Errno> {
    // SAFETY: guaranteed by the caller.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno(FI_EINVAL))?;
    if msg.rma_iov_count != REMOTE_SEGMENTS_MAX || msg.rma_iov.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: guaranteed by the caller.
    let (FiRmaIoc { addr, key, .. }, operands) =
        unsafe { (msg.rma_iov.read(), OperandList::of(msg.msg_iov, msg.iov_count)?) };
    let (datatype, operation, context) = (msg.datatype, msg.op, msg.context);
    let remote = remote(msg.addr, key, addr);
    Ok((AtomicArgs { remote, datatype, operation, context, flags, quiet: false }, operands))
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    to: FiAddr,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends `count` operands.
    let (ep, operands) = unsafe { (of_fid(ep), OperandList::one(buf, count)) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let args = AtomicArgs { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Write, args, Ok(operands), Ok(None), Ok(None))
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and `count` segments.
    let (ep, operands) = unsafe { (of_fid(ep), OperandList::of(iov, count)) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let args = AtomicArgs { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Write, args, operands, Ok(None), Ok(None))
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgAtomic, flags: u64) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and a message structure.
    match unsafe { args(msg, flags) } {
        Ok((args, operands)) => {
            // SAFETY: as above.
            let ep = unsafe { of_fid(ep) };
            begin(ep, AtomicKind::Write, args, Ok(operands), Ok(None), Ok(None))
        }
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    to: FiAddr,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends `count` operands.
    let (ep, operands) = unsafe { (of_fid(ep), OperandList::one(buf, count)) };
    let (remote, context) = (remote(to, key, addr), std::ptr::null_mut());
    let args = AtomicArgs { remote, datatype, operation: op, context, flags: 0, quiet: true };
    begin(ep, AtomicKind::Write, args, Ok(operands), Ok(None), Ok(None))
}

unsafe extern "C" fn readwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    to: FiAddr,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends `count` operands and
    // results.
    let (ep, operands, result) =
        unsafe { (of_fid(ep), OperandList::one(buf, count), OperandList::one(result, count)) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let args = AtomicArgs { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Fetch, args, Ok(operands), Ok(None), Ok(Some(result)))
}

unsafe extern "C" fn readwritev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    to: FiAddr,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and valid segments.
    let (ep, operands, result) = unsafe {
        (of_fid(ep), OperandList::of(iov, count), OperandList::of(resultv, result_count))
    };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let args = AtomicArgs { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Fetch, args, operands, Ok(None), result.map(Some))
}

unsafe extern "C" fn readwritemsg(
    ep: *mut FidEp,
    msg: *const FiMsgAtomic,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, a message structure, and valid
    // segments.
    let (ep, args, result) =
        unsafe { (of_fid(ep), args(msg, flags), OperandList::of(resultv, result_count)) };
    match args {
        Ok((args, operands)) => {
            begin(ep, AtomicKind::Fetch, args, Ok(operands), Ok(None), result.map(Some))
        }
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn compwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    to: FiAddr,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and lends `count` elements of
    // each.
    let (ep, [operands, compare, result]) = unsafe {
        (of_fid(ep), [buf, compare, result.cast_const()].map(|at| OperandList::one(at, count)))
    };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let args = AtomicArgs { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Compare, args, Ok(operands), Ok(Some(compare)), Ok(Some(result)))
}

unsafe extern "C" fn compwritev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const FiIoc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    to: FiAddr,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, and valid segments.
    let (ep, operands, compare, result) = unsafe {
        let (compare, result) =
            (OperandList::of(comparev, compare_count), OperandList::of(resultv, result_count));
        (of_fid(ep), OperandList::of(iov, count), compare, result)
    };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let args = AtomicArgs { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Compare, args, operands, compare.map(Some), result.map(Some))
}

unsafe extern "C" fn compwritemsg(
    ep: *mut FidEp,
    msg: *const FiMsgAtomic,
    comparev: *const FiIoc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here, a message structure, and valid
    // segments.
    let (ep, args, compare, result) = unsafe {
        let (compare, result) =
            (OperandList::of(comparev, compare_count), OperandList::of(resultv, result_count));
        (of_fid(ep), args(msg, flags), compare, result)
    };
    match args {
        Ok((args, operands)) => {
            let (compare, result) = (compare.map(Some), result.map(Some));
            begin(ep, AtomicKind::Compare, args, Ok(operands), compare, result)
        }
        Err(Errno(err)) => failed_size(err),
    }
}

/// Writes the most elements of a call.
///
/// # Safety
/// `count` is NULL or has room for the number.
unsafe fn valid(kind: AtomicKind, datatype: u32, operation: u32, count: *mut usize) -> c_int {
    match atomic_valid(kind, datatype, operation) {
        Some((most, _)) => {
            if !count.is_null() {
                // SAFETY: guaranteed by the caller.
                unsafe { count.write(most) };
            }
            0
        }
        None => -FI_EOPNOTSUPP,
    }
}

unsafe extern "C" fn writevalid(
    _ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller passes room for the number, or NULL.
    unsafe { valid(AtomicKind::Write, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(
    _ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller passes room for the number, or NULL.
    unsafe { valid(AtomicKind::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(
    _ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller passes room for the number, or NULL.
    unsafe { valid(AtomicKind::Compare, datatype, op, count) }
}

/// Writes the most elements of a call and the size of an element in bytes (`fi_query_atomic`), or
/// nothing if `attr` is NULL. `flags` selects plain (neither flag), fetching (`FI_FETCH_ATOMIC`) or
/// comparing operations (`FI_COMPARE_ATOMIC`); both flags give `-FI_EINVAL`.
pub unsafe extern "C" fn query(
    _domain: *mut FidDomain,
    datatype: u32,
    op: u32,
    attr: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    let kind = match flags & (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) {
        0 => AtomicKind::Write,
        FI_FETCH_ATOMIC => AtomicKind::Fetch,
        FI_COMPARE_ATOMIC => AtomicKind::Compare,
        _ => return -FI_EINVAL,
    };
    match atomic_valid(kind, datatype, op) {
        Some((count, size)) => {
            if !attr.is_null() {
                // SAFETY: the caller passes room for the structure.
                unsafe { attr.write(FiAtomicAttr { count, size }) };
            }
            0
        }
        None => -FI_EOPNOTSUPP,
    }
}
