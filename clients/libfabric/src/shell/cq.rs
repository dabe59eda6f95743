//! Completion queues: reads, blocking reads and errors, in the formats of libfabric. A read of an
//! empty queue lets the bound endpoints make progress; a small message that arrives then goes from
//! the peer's cache line to the reader's entry without being queued ([`poll_fast`]).
//!
//! # Limits
//! A read returns successes up to the first error entry; it returns `-FI_EAVAIL` while an error is
//! first, and only `fi_cq_readerr` removes the error. An empty queue gives `-FI_EAGAIN`, as do a
//! time-out and `fi_cq_readerr` without an error in front. Entries are in the order of completion,
//! which is not the order of the calls. Queues do not overflow: requests of peers and messages for
//! multi-receive buffers wait while a queue is full (`domain`). A blocking read and `fi_cq_signal`
//! need a wait object (`-FI_ENOSYS` without), and the argument `cond` has no effect; a signal ends
//! one blocking read, the current or the next, with `-FI_EAGAIN`; opening a queue with
//! `FI_WAIT_SET` or another unsupported kind, or with an unknown format, fails with `-FI_ENOSYS`.
//! The requested size of a queue has no effect. `FI_GETWAIT` without a wait object gives
//! `-FI_ENODATA`. Several threads may read: each entry goes to one of them. A queue that an
//! endpoint is bound to cannot be closed (`-FI_EBUSY`); closing drops unread entries.
//!
//! # Place
//! `domain` appends the completions of `rdm`, and sleeps for blocking reads, without its lock; the
//! application reads here, in its own threads, under the lock.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_message::library::FastMiss;

use super::domain_object::domain_of;
use super::object::{FidObject, close_object, give_object, to_status};
use super::wait_object::{get_wait, wait_fd_for};
use crate::abi::*;
use crate::domain::{CqState, DomainState, FastCompletion, WaitFd, WaitTarget, get, insert, wait};
use crate::errno::{Errno, describe_into};
use crate::rdm::OpCompletion;

/// A completion queue that an application opened.
pub type CqObject = FidObject<FidCq>;

static OPS: Ops = Ops { close, control, ..Ops::NONE };
/// The functions in the table of this class of objects; the others are not supported.
static CQ_OPS: OpsCq =
    OpsCq { read, readfrom, readerr, sread, sreadfrom, signal, strerror, ..OpsCq::NONE };

/// Opens a completion queue.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiCqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    if cq.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes attributes or NULL.
    let attr = unsafe { attr.as_ref() };
    // SAFETY: the caller passes a domain that was opened here.
    let shared = unsafe { domain_of(domain) };
    let open = || {
        let (format, wait_obj) = attr.map_or((0, 0), |attr| (attr.format, attr.wait_obj));
        if format > FI_CQ_FORMAT_TAGGED {
            return Err(Errno(FI_ENOSYS));
        }
        let format = if format == FI_CQ_FORMAT_UNSPEC { FI_CQ_FORMAT_CONTEXT } else { format };
        let wait_fd = wait_fd_for(wait_obj)?;
        let opened = CqState {
            entries: VecDeque::with_capacity(64),
            eps: Vec::new(),
            format,
            wait_fd,
            full: false,
        };
        let at = shared.state.with(|state| insert(&mut state.cqs, opened));
        shared.children.fetch_add(1, Ordering::Relaxed);
        let fid = Fid { fclass: FI_CLASS_CQ, context, ops: &OPS };
        let object =
            FidObject { fid: FidCq { fid, ops: &CQ_OPS }, shared: Arc::clone(&shared), at };
        // SAFETY: the caller passes a place for the queue.
        unsafe { give_object(object, cq) };
        Ok(())
    };
    to_status(open())
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a queue that was opened here.
    let object = unsafe { &*fid.cast::<CqObject>() };
    let free = object.shared.state.with(|state| {
        let busy = state.cqs.get(object.at).and_then(Option::as_ref);
        if busy.is_some_and(|cq| !cq.eps.is_empty()) {
            return false;
        }
        wait::end_app_sleep(state, WaitTarget::Cq(object.at));
        if let Some(slot) = state.cqs.get_mut(object.at) {
            *slot = None;
        }
        true
    });
    if !free {
        return -FI_EBUSY;
    }
    // SAFETY: the queue is closed once.
    unsafe { close_object::<FidCq>(fid) }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller passes a queue that was opened here.
    let object = unsafe { &*fid.cast::<CqObject>() };
    to_status(object.shared.state.with(|state| {
        let cq = get(&mut state.cqs, object.at)?;
        match command {
            // SAFETY: for this command the caller passes room for an `int`.
            FI_GETWAIT => unsafe { get_wait(cq.wait_fd.as_ref(), arg) },
            _ => Err(Errno(FI_ENOSYS)),
        }
    }))
}

/// Returns 0 if the queue is empty and the application may sleep on its descriptor, else
/// `-FI_EAGAIN`.
///
/// # Safety
/// `fid` is an open queue that was opened here.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { &*fid.cast::<CqObject>() };
    object.shared.state.with(|state| {
        progress(state, object.at);
        let has = state.cqs.get(object.at).and_then(Option::as_ref);
        let empty = has.is_none_or(|cq| cq.entries.is_empty());
        if empty && wait::begin_app_sleep(state, WaitTarget::Cq(object.at)) {
            0
        } else {
            -FI_EAGAIN
        }
    })
}

/// Lets all endpoints of the queue make progress.
#[inline]
fn progress(state: &mut DomainState, at: usize) {
    if let Some(Some(cq)) = state.cqs.get(at)
        && let Some(wait_fd) = &cq.wait_fd
        && wait_fd.is_app_sleeping()
    {
        wait::end_app_sleep(state, WaitTarget::Cq(at));
    }
    state.progress_all(|state| state.cqs.get(at)?.as_ref().map(|cq| &cq.eps));
}

/// Writes an entry; returns the address of the next.
///
/// # Safety
/// `to` has room for the entry.
#[inline]
unsafe fn write_entry<T>(to: *mut c_void, entry: T) -> *mut c_void {
    let to = to.cast::<T>();
    // SAFETY: guaranteed by the caller.
    unsafe { to.write_unaligned(entry) };
    to.wrapping_add(1).cast()
}

/// Writes a completion in a format; returns the address of the next.
///
/// # Safety
/// `to` has room for an entry.
#[inline]
unsafe fn write(done: &OpCompletion, format: u32, to: *mut c_void) -> *mut c_void {
    let report = &done.report;
    let op_context = std::ptr::without_provenance_mut::<c_void>(report.context);
    let buf = std::ptr::without_provenance_mut::<c_void>(report.buf);
    let (flags, len, data, tag) = (report.flags, done.len, done.data, report.tag);
    macro_rules! put {
        ($entry:expr) => {{
            // SAFETY: guaranteed by the caller.
            unsafe { write_entry(to, $entry) }
        }};
    }
    match format {
        FI_CQ_FORMAT_CONTEXT => put!(FiCqEntry { op_context }),
        FI_CQ_FORMAT_MSG => put!(FiCqMsgEntry { op_context, flags, len }),
        FI_CQ_FORMAT_DATA => put!(FiCqDataEntry { op_context, flags, len, buf, data }),
        _ => put!(FiCqTaggedEntry { op_context, flags, len, buf, data, tag }),
    }
}

/// Writes a completion as [`write()`] does, and its source at index `index` of `from`, unless that
/// is NULL.
///
/// # Safety
/// `to` has room for an entry, and `from` for the source.
#[inline(always)]
unsafe fn write_from(
    done: &OpCompletion,
    format: u32,
    to: *mut c_void,
    from: *mut FiAddr,
    index: usize,
) -> *mut c_void {
    if !from.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { from.wrapping_add(index).write(done.from) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { write(done, format, to) }
}

/// Moves at most `count` entries to the caller; returns their number.
///
/// # Errors
/// `FI_EAVAIL` if the first entry is an error.
///
/// # Safety
/// `to` has room for `count` entries, and `from` is NULL or has room for as many sources.
#[inline]
unsafe fn take(
    cq: &mut CqState,
    mut to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, Errno> {
    let mut taken = 0_usize;
    while taken < count {
        match cq.entries.front() {
            None => break,
            Some(first) if first.failure.is_some() => {
                if taken == 0 {
                    return Err(Errno(FI_EAVAIL));
                }
                break;
            }
            Some(first) => {
                // SAFETY: guaranteed by the caller.
                to = unsafe { write_from(first, cq.format, to, from, taken) };
            }
        }
        cq.entries.pop_front();
        taken = taken.saturating_add(1);
    }
    Ok(taken)
}

/// Receives messages on the fast path, while the queue is empty.
///
/// # Errors
/// Those of [`DomainState::receive_fast`] for the first message.
///
/// # Safety
/// As for [`take`]; `count` is at least 1.
#[inline(always)]
unsafe fn poll_fast(
    state: &mut DomainState,
    at: usize,
    mut to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, FastMiss> {
    let mut taken = 0_usize;
    loop {
        let FastCompletion { done, format, more } = match state.receive_fast(at) {
            // The next poll handles all other cases.
            Err(_) if taken > 0 => return Ok(taken),
            took => took?,
        };
        // SAFETY: guaranteed by the caller.
        to = unsafe { write_from(&done, format, to, from, taken) };
        taken = taken.saturating_add(1);
        if !more || taken >= count {
            return Ok(taken);
        }
    }
}

/// Moves entries as [`take`] does, after progress if the queue is empty. Inlined into the polling
/// call: a small message stays in registers from the peer's cache line to the application's memory.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
unsafe fn poll(
    state: &mut DomainState,
    at: usize,
    to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, Errno> {
    let empty = get(&mut state.cqs, at)?.entries.is_empty();
    if empty && count > 0 {
        // SAFETY: guaranteed by the caller.
        match unsafe { poll_fast(state, at, to, count, from) } {
            Ok(taken) => return Ok(taken),
            Err(FastMiss::Nothing) => return Err(Errno(FI_EAGAIN)),
            Err(FastMiss::Unsure | FastMiss::Worked) => {}
        }
    }
    // A read of no entries only requests progress.
    if empty || count == 0 {
        progress(state, at);
    }
    let cq = get(&mut state.cqs, at)?;
    if cq.entries.is_empty() {
        return Err(Errno(FI_EAGAIN));
    }
    // SAFETY: guaranteed by the caller.
    let taken = unsafe { take(cq, to, count, from) };
    if cq.full {
        state.resume_held(at);
    }
    taken
}

/// Moves entries as [`poll`] does, for calls that may sleep: not inlined, to keep the fast path
/// short.
///
/// # Safety
/// As for [`take`].
#[inline(never)]
unsafe fn poll_before_sleep(
    state: &mut DomainState,
    at: usize,
    to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe { poll(state, at, to, count, from) }
}

/// Returns the result of a function of type `ssize_t`.
#[inline]
fn number(taken: Result<usize, Errno>) -> isize {
    match taken {
        Ok(taken) => taken.cast_signed(),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: as for `readfrom`.
    unsafe { readfrom(cq, buf, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> isize {
    // SAFETY: the caller passes a queue that was opened here.
    let object = unsafe { &*cq.cast::<CqObject>() };
    let (taken, misses) = object.shared.state.with(|state| {
        // SAFETY: the caller passes room for `count` entries and sources.
        let taken = unsafe { poll(state, object.at, buf, count, from) };
        wait::end_poll(state, WaitTarget::Cq(object.at));
        (taken, state.misses)
    });
    wait::yield_after_misses(misses);
    number(taken)
}

unsafe extern "C" fn sread(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: as for `sreadfrom`.
    unsafe { sreadfrom(cq, buf, count, std::ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    from: *mut FiAddr,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the caller passes a queue that was opened here.
    let object = unsafe { &*cq.cast::<CqObject>() };
    let sleeps = object
        .shared
        .state
        .with(|state| state.wait_set(WaitTarget::Cq(object.at)).wait_fd().is_some());
    if !sleeps {
        return failed_size(FI_ENOSYS);
    }
    let found = wait::until(&object.shared, WaitTarget::Cq(object.at), timeout, |state| {
        // SAFETY: the caller passes room for `count` entries and sources.
        match unsafe { poll_before_sleep(state, object.at, buf, count, from) } {
            Err(Errno(FI_EAGAIN)) if !signalled(state, object.at) => None,
            taken => Some(taken),
        }
    });
    number(found.unwrap_or(Err(Errno(FI_EAGAIN))))
}

/// Returns and clears whether [`signal`] was called.
fn signalled(state: &mut DomainState, at: usize) -> bool {
    let cq = state.cqs.get_mut(at).and_then(Option::as_mut);
    cq.and_then(|cq| cq.wait_fd.as_ref()).is_some_and(WaitFd::was_signalled)
}

unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    // SAFETY: the caller passes a queue that was opened here.
    let object = unsafe { &*cq.cast::<CqObject>() };
    object.shared.state.with(|state| match state.wait_set(WaitTarget::Cq(object.at)).wait_fd() {
        Some(wait_fd) => {
            wait_fd.signal();
            0
        }
        None => -FI_ENOSYS,
    })
}

/// The bytes of an error entry that every caller has room for.
const COMMON_BYTES: usize = std::mem::offset_of!(FiCqErrEntry, err_data_size);
/// The version of the interface since which callers have room for a source.
const SOURCES_SINCE: u32 = version(1, 20);
/// The version of the interface since which callers have room for error data.
const DATA_SINCE: u32 = version(1, 5);

unsafe extern "C" fn readerr(cq: *mut FidCq, entry: *mut FiCqErrEntry, _flags: u64) -> isize {
    if entry.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller passes a queue that was opened here.
    let object = unsafe { &*cq.cast::<CqObject>() };
    let failed = object.shared.state.with(|state| {
        let cq = get(&mut state.cqs, object.at).ok()?;
        let (first, failure) = (*cq.entries.front()?, cq.entries.front()?.failure?);
        cq.entries.pop_front();
        if cq.full {
            state.resume_held(object.at);
        }
        Some((first, failure))
    });
    let Some((done, failure)) = failed else { return failed_size(FI_EAGAIN) };
    let report = done.report;
    let full = FiCqErrEntry {
        op_context: std::ptr::without_provenance_mut(report.context),
        flags: report.flags,
        len: done.len,
        buf: std::ptr::without_provenance_mut(report.buf),
        data: done.data,
        tag: report.tag,
        olen: failure.olen,
        err: failure.err,
        prov_errno: failure.status.cast_signed(),
        err_data: std::ptr::null_mut(),
        err_data_size: 0,
        src_addr: done.from,
    };
    let len = match object.shared.api_version {
        SOURCES_SINCE.. => size_of::<FiCqErrEntry>(),
        DATA_SINCE.. => std::mem::offset_of!(FiCqErrEntry, src_addr),
        _ => COMMON_BYTES,
    };
    // SAFETY: a caller of that version has room for `len` bytes, and `full` is longer.
    unsafe { std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), entry.cast(), len) };
    1
}

unsafe extern "C" fn strerror(
    _cq: *mut FidCq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the caller passes room for `len` bytes, or NULL.
    unsafe { describe_into(prov_errno, buf, len) }
}
