//! Atomic operations.

use std::ffi::{c_int, c_void};

use super::endpoint::{Endpoint, of_fid};
use super::state::Ep;
use crate::abi::*;
use crate::limits::{PIECES_MAX, REMOTE_PIECES_MAX};
use crate::rdm::{Atomic, AtomicKind, Errno, Place, Remote, Report, Span, atomic_valid};

/// What endpoints have.
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

/// What an operation is about.
#[derive(Debug, Clone, Copy)]
struct Asked {
    remote: Remote,
    datatype: u32,
    operation: u32,
    context: *mut c_void,
    flags: u64,
    /// Nobody is told when it went well.
    quiet: bool,
}

/// Begins one. Memory is given by the number of its operands.
fn begin(
    ep: &Endpoint,
    kind: AtomicKind,
    asked: Asked,
    operands: Result<Many, Errno>,
    compare: Result<Option<Many>, Errno>,
    result: Result<Option<Many>, Errno>,
) -> isize {
    let Asked { remote, datatype, operation, context, flags, quiet } = asked;
    let make = || {
        let (most, size) = atomic_valid(kind, datatype, operation).ok_or(Errno(FI_EOPNOTSUPP))?;
        let operands = operands?;
        let count = match result.as_ref() {
            // A read has no operands.
            Ok(Some(result)) if operation == FI_ATOMIC_READ => result.count(),
            _ => operands.count(),
        };
        let fits = |many: &Result<Option<Many>, Errno>| match many {
            Ok(Some(many)) => many.count() == count,
            _ => true,
        };
        if count == 0 || count > most || !fits(&compare) || !fits(&result) {
            return Err(Errno(FI_EINVAL));
        }
        // SAFETY: it is the size of the operation's type.
        let place = |many: Many| unsafe { many.place(size) };
        let bytes = |many: Many| place(many).map(|place| place.to_vec());
        let result = result?.map(place).transpose()?;
        let compare = compare?.map(bytes).transpose()?;
        let reads = operation == FI_ATOMIC_READ;
        let operands = if reads { Vec::new() } else { bytes(operands)? };
        let (datatype, operation) = (datatype as u8, operation as u8);
        let len = count.saturating_mul(size);
        Ok(Atomic { datatype, operation, operands, compare, result, len })
    };
    let atomic = match make() {
        Ok(atomic) => atomic,
        Err(Errno(err)) => return failed_size(err),
    };
    ep.begin(|ep: &mut Ep, env| {
        let what = match kind {
            AtomicKind::Write => FI_ATOMIC | FI_WRITE,
            _ => FI_ATOMIC | FI_READ,
        };
        let report = ep.tx_report(flags, what, context, &Place::NOWHERE);
        let inject = if quiet { FI_INJECT } else { 0 };
        let (quiet, flags) = (report.quiet || quiet, report.flags | inject);
        let report = Report { quiet, flags, len: atomic.len, ..report };
        ep.rdm.atomic(env, remote, report, atomic)
    })
}

/// Memory by the number of its operands, which the application lends to one operation.
#[derive(Debug)]
struct Many(Vec<(*mut u8, usize)>);

impl Many {
    /// Returns the memory of `count` operands.
    ///
    /// # Safety
    /// As of [`Span::new`], for as many bytes as so many operands of the operation's type have.
    unsafe fn one(buf: *const c_void, count: usize) -> Self {
        Self(vec![(buf.cast_mut().cast(), count)])
    }

    /// Returns the memory of several pieces.
    ///
    /// # Safety
    /// So many are there, and for each as of [`Self::one`].
    unsafe fn of(ioc: *const FiIoc, pieces: usize) -> Result<Self, Errno> {
        if pieces > PIECES_MAX || (ioc.is_null() && pieces > 0) {
            return Err(Errno(FI_EINVAL));
        }
        let all = (0..pieces).map(|at| {
            // SAFETY: as the caller says.
            let FiIoc { addr, count } = unsafe { ioc.wrapping_add(at).read() };
            (addr.cast(), count)
        });
        Ok(Self(all.collect()))
    }

    fn count(&self) -> usize {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns the place of the operands.
    ///
    /// # Safety
    /// `size` is that of the operation's type.
    unsafe fn place(self, size: usize) -> Result<Place, Errno> {
        let too_much = Errno(FI_EMSGSIZE);
        let pieces = self.0.into_iter().map(|(start, count)| {
            let len = count.checked_mul(size).ok_or(too_much)?;
            // SAFETY: `one` or `of` was told that so many are lent.
            Ok(unsafe { Span::new(start, len) })
        });
        Place::of(pieces.collect::<Result<_, Errno>>()?).ok_or(too_much)
    }
}

fn remote(to: FiAddr, key: u64, address: u64) -> Remote {
    Remote { to, key, address }
}

/// What a message is about.
///
/// # Safety
/// It is a message, with so many pieces as it says.
unsafe fn asked(msg: *const FiMsgAtomic, flags: u64) -> Result<(Asked, Many), Errno> {
    // SAFETY: as the caller says.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno(FI_EINVAL))?;
    if msg.rma_iov_count != REMOTE_PIECES_MAX || msg.rma_iov.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: as the caller says.
    let (FiRmaIoc { addr, key, .. }, operands) =
        unsafe { (msg.rma_iov.read(), Many::of(msg.msg_iov, msg.iov_count)?) };
    let (datatype, operation, context) = (msg.datatype, msg.op, msg.context);
    let remote = remote(msg.addr, key, addr);
    Ok((Asked { remote, datatype, operation, context, flags, quiet: false }, operands))
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
    // SAFETY: the caller gives an endpoint that we opened, and lends so many operands.
    let (ep, operands) = unsafe { (of_fid(ep), Many::one(buf, count)) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let asked = Asked { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Write, asked, Ok(operands), Ok(None), Ok(None))
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
    // SAFETY: the caller gives an endpoint that we opened, and so many pieces.
    let (ep, operands) = unsafe { (of_fid(ep), Many::of(iov, count)) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let asked = Asked { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Write, asked, operands, Ok(None), Ok(None))
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgAtomic, flags: u64) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, and a message.
    match unsafe { asked(msg, flags) } {
        Ok((asked, operands)) => {
            // SAFETY: as above.
            let ep = unsafe { of_fid(ep) };
            begin(ep, AtomicKind::Write, asked, Ok(operands), Ok(None), Ok(None))
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
    // SAFETY: the caller gives an endpoint that we opened, and lends so many operands.
    let (ep, operands) = unsafe { (of_fid(ep), Many::one(buf, count)) };
    let (remote, context) = (remote(to, key, addr), std::ptr::null_mut());
    let asked = Asked { remote, datatype, operation: op, context, flags: 0, quiet: true };
    begin(ep, AtomicKind::Write, asked, Ok(operands), Ok(None), Ok(None))
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
    // SAFETY: the caller gives an endpoint that we opened, and lends so many operands and results.
    let (ep, operands, result) =
        unsafe { (of_fid(ep), Many::one(buf, count), Many::one(result, count)) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let asked = Asked { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Fetch, asked, Ok(operands), Ok(None), Ok(Some(result)))
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
    // SAFETY: the caller gives an endpoint that we opened, and so many pieces.
    let (ep, operands, result) =
        unsafe { (of_fid(ep), Many::of(iov, count), Many::of(resultv, result_count)) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let asked = Asked { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Fetch, asked, operands, Ok(None), result.map(Some))
}

unsafe extern "C" fn readwritemsg(
    ep: *mut FidEp,
    msg: *const FiMsgAtomic,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint that we opened, a message, and so many pieces.
    let (ep, asked, result) =
        unsafe { (of_fid(ep), asked(msg, flags), Many::of(resultv, result_count)) };
    match asked {
        Ok((asked, operands)) => {
            begin(ep, AtomicKind::Fetch, asked, Ok(operands), Ok(None), result.map(Some))
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
    // SAFETY: the caller gives an endpoint that we opened, and lends so many of each.
    let (ep, [operands, compare, result]) =
        unsafe { (of_fid(ep), [buf, compare, result.cast_const()].map(|at| Many::one(at, count))) };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let asked = Asked { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Compare, asked, Ok(operands), Ok(Some(compare)), Ok(Some(result)))
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
    // SAFETY: the caller gives an endpoint that we opened, and so many pieces.
    let (ep, operands, compare, result) = unsafe {
        let (compare, result) =
            (Many::of(comparev, compare_count), Many::of(resultv, result_count));
        (of_fid(ep), Many::of(iov, count), compare, result)
    };
    let (remote, flags) = (remote(to, key, addr), ep.tx_flags());
    let asked = Asked { remote, datatype, operation: op, context, flags, quiet: false };
    begin(ep, AtomicKind::Compare, asked, operands, compare.map(Some), result.map(Some))
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
    // SAFETY: the caller gives an endpoint that we opened, a message, and so many pieces.
    let (ep, asked, compare, result) = unsafe {
        let (compare, result) =
            (Many::of(comparev, compare_count), Many::of(resultv, result_count));
        (of_fid(ep), asked(msg, flags), compare, result)
    };
    match asked {
        Ok((asked, operands)) => {
            let (compare, result) = (compare.map(Some), result.map(Some));
            begin(ep, AtomicKind::Compare, asked, Ok(operands), compare, result)
        }
        Err(Errno(err)) => failed_size(err),
    }
}

/// Writes how many of a type one call may be about.
///
/// # Safety
/// `count` is NULL, or there is a place for the number.
unsafe fn valid(kind: AtomicKind, datatype: u32, operation: u32, count: *mut usize) -> c_int {
    match atomic_valid(kind, datatype, operation) {
        Some((most, _)) => {
            if !count.is_null() {
                // SAFETY: as the caller says.
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
    // SAFETY: the caller has a place there for the number, or gives NULL.
    unsafe { valid(AtomicKind::Write, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(
    _ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller has a place there for the number, or gives NULL.
    unsafe { valid(AtomicKind::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(
    _ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller has a place there for the number, or gives NULL.
    unsafe { valid(AtomicKind::Compare, datatype, op, count) }
}

/// What a domain says of an operation.
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
                // SAFETY: the caller has a place there for it.
                unsafe { attr.write(FiAtomicAttr { count, size }) };
            }
            0
        }
        None => -FI_EOPNOTSUPP,
    }
}
