//! Completion queues.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_message::library::Missed;

use super::object::{Object, answer, closed, give, usable};
use super::sleep::Sleep;
use super::state::{Cq, Shared, State, Straight, of, place};
use super::wait::{self, Sleeper};
use crate::abi::*;
use crate::errno::describe_into;
use crate::rdm::{Done, Errno};

/// A queue as the application has it.
pub type Queue = Object<FidCq>;

static OPS: Ops = Ops { close, control, ..Ops::NONE };
static CQ_OPS: OpsCq =
    OpsCq { read, readfrom, readerr, sread, sreadfrom, signal, strerror, ..OpsCq::NONE };

/// A queue by its place.
#[derive(Debug, Clone, Copy)]
struct At(usize);

impl Sleeper for At {
    fn eps<'a>(&self, state: &'a State) -> Option<&'a Vec<usize>> {
        state.cqs.get(self.0)?.as_ref().map(|cq| &cq.eps)
    }

    fn sleep<'a>(&self, state: &'a State) -> Option<&'a Sleep> {
        state.cqs.get(self.0)?.as_ref()?.sleep.as_ref()
    }
}

/// What is waited for by, as an application asks for it.
pub fn sleep_for(wait_obj: u32) -> Result<Option<Sleep>, Errno> {
    match wait_obj {
        FI_WAIT_NONE => Ok(None),
        FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => Sleep::new().map(Some),
        _ => Err(Errno(FI_ENOSYS)),
    }
}

/// Opens one.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiCqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    if cq.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller has attributes there, or NULL for none.
    let attr = unsafe { attr.as_ref() };
    // SAFETY: the caller has a domain of ours.
    let shared = unsafe { usable(domain) };
    let open = || {
        let (format, wait_obj) = attr.map_or((0, 0), |attr| (attr.format, attr.wait_obj));
        if format > FI_CQ_FORMAT_TAGGED {
            return Err(Errno(FI_ENOSYS));
        }
        let format = if format == FI_CQ_FORMAT_UNSPEC { FI_CQ_FORMAT_CONTEXT } else { format };
        let sleep = sleep_for(wait_obj)?;
        let opened = Cq {
            entries: VecDeque::with_capacity(64),
            eps: Vec::new(),
            format,
            sleep,
            full: false,
        };
        let at = shared.state.with(|state| place(&mut state.cqs, opened));
        shared.children.fetch_add(1, Ordering::Relaxed);
        let fid = Fid { fclass: FI_CLASS_CQ, context, ops: &OPS };
        let object = Object { fid: FidCq { fid, ops: &CQ_OPS }, shared: Arc::clone(&shared), at };
        // SAFETY: the caller has a place there for it.
        unsafe { give(object, cq) };
        Ok(())
    };
    answer(open())
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a queue that we opened.
    let object = unsafe { &*fid.cast::<Queue>() };
    let free = object.shared.state.with(|state| {
        let busy = state.cqs.get(object.at).and_then(Option::as_ref);
        if busy.is_some_and(|cq| !cq.eps.is_empty()) {
            return false;
        }
        wait::unexpose(state, &At(object.at));
        if let Some(place) = state.cqs.get_mut(object.at) {
            *place = None;
        }
        true
    });
    if !free {
        return -FI_EBUSY;
    }
    // SAFETY: it is closed once.
    unsafe { closed::<FidCq>(fid) }
}

/// Writes the descriptor that an application is given to poll.
///
/// # Safety
/// `arg` is NULL, or there is a place for an `int`.
pub unsafe fn get_wait(sleep: Option<&Sleep>, arg: *mut c_void) -> Result<(), Errno> {
    let sleep = sleep.ok_or(Errno(FI_ENODATA))?;
    if arg.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: as the caller says.
    unsafe { arg.cast::<c_int>().write(sleep.fd()) };
    Ok(())
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller gives a queue that we opened.
    let object = unsafe { &*fid.cast::<Queue>() };
    answer(object.shared.state.with(|state| {
        let cq = of(&mut state.cqs, object.at)?;
        match command {
            // SAFETY: for this command the caller has an `int` there.
            FI_GETWAIT => unsafe { get_wait(cq.sleep.as_ref(), arg) },
            _ => Err(Errno(FI_ENOSYS)),
        }
    }))
}

/// Whether nothing is to be read of it.
///
/// # Safety
/// It is a queue of ours that is open.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    // SAFETY: as the caller says.
    let object = unsafe { &*fid.cast::<Queue>() };
    object.shared.state.with(|state| {
        go_on(state, object.at);
        let has = state.cqs.get(object.at).and_then(Option::as_ref);
        let empty = has.is_none_or(|cq| cq.entries.is_empty());
        if empty && wait::expose(state, &At(object.at)) { 0 } else { -FI_EAGAIN }
    })
}

/// All that fill it go on.
#[inline]
fn go_on(state: &mut State, at: usize) {
    if let Some(Some(cq)) = state.cqs.get(at)
        && let Some(sleep) = &cq.sleep
        && sleep.is_exposed()
    {
        wait::unexpose(state, &At(at));
    }
    state.progress_all(|state| state.cqs.get(at)?.as_ref().map(|cq| &cq.eps));
}

/// Writes something; gives where the next goes.
///
/// # Safety
/// There is room for it.
#[inline]
unsafe fn put<T>(to: *mut c_void, entry: T) -> *mut c_void {
    let to = to.cast::<T>();
    // SAFETY: as the caller says.
    unsafe { to.write_unaligned(entry) };
    to.wrapping_add(1).cast()
}

/// Writes one completion in a format; gives where the next goes.
///
/// # Safety
/// There is room for one.
#[inline]
unsafe fn write(done: &Done, format: u32, to: *mut c_void) -> *mut c_void {
    let report = &done.report;
    let op_context = std::ptr::without_provenance_mut::<c_void>(report.context);
    let buf = std::ptr::without_provenance_mut::<c_void>(report.buf);
    let (flags, len, data, tag) = (report.flags, done.len, done.data, report.tag);
    macro_rules! put {
        ($entry:expr) => {{
            // SAFETY: as the caller says.
            unsafe { put(to, $entry) }
        }};
    }
    match format {
        FI_CQ_FORMAT_CONTEXT => put!(FiCqEntry { op_context }),
        FI_CQ_FORMAT_MSG => put!(FiCqMsgEntry { op_context, flags, len }),
        FI_CQ_FORMAT_DATA => put!(FiCqDataEntry { op_context, flags, len, buf, data }),
        _ => put!(FiCqTaggedEntry { op_context, flags, len, buf, data, tag }),
    }
}

/// The same, and whom it is from, after so many, if that is wanted.
///
/// # Safety
/// There is room for one, and for as many sources if they are wanted.
#[inline(always)]
unsafe fn tell(
    done: &Done,
    format: u32,
    to: *mut c_void,
    from: *mut FiAddr,
    before: usize,
) -> *mut c_void {
    if !from.is_null() {
        // SAFETY: as the caller says.
        unsafe { from.wrapping_add(before).write(done.from) };
    }
    // SAFETY: as the caller says.
    unsafe { write(done, format, to) }
}

/// Takes what is there: how many, or none; or the first is an error.
///
/// # Safety
/// There is room for so many, and for as many sources if they are wanted.
#[inline]
unsafe fn take(
    cq: &mut Cq,
    mut to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, Errno> {
    let mut taken = 0_usize;
    while taken < count {
        match cq.entries.front() {
            None => break,
            Some(first) if first.fault.is_some() => {
                if taken == 0 {
                    return Err(Errno(FI_EAVAIL));
                }
                break;
            }
            Some(first) => {
                // SAFETY: as the caller says.
                to = unsafe { tell(first, cq.format, to, from, taken) };
            }
        }
        cq.entries.pop_front();
        taken = taken.saturating_add(1);
    }
    Ok(taken)
}

/// As [`take`], of what comes and goes straight there; the queue has nothing.
///
/// # Safety
/// As of [`take`]; at least one is wanted.
#[inline(always)]
unsafe fn look_straight(
    state: &mut State,
    at: usize,
    mut to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, Missed> {
    let mut taken = 0_usize;
    loop {
        let Straight { done, format, more } = match state.receive_straight(at) {
            // All else is for the next look.
            Err(_) if taken > 0 => return Ok(taken),
            took => took?,
        };
        // SAFETY: as the caller says.
        to = unsafe { tell(&done, format, to, from, taken) };
        taken = taken.saturating_add(1);
        if !more || taken >= count {
            return Ok(taken);
        }
    }
}

/// As [`take`], after all went on if there is nothing yet. Inlined into the call that polls: a message
/// of a few bytes stays in registers from the partner's cache line to the application's memory.
///
/// # Safety
/// As of [`take`].
#[inline(always)]
unsafe fn look(
    state: &mut State,
    at: usize,
    to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, Errno> {
    let empty = of(&mut state.cqs, at)?.entries.is_empty();
    if empty && count > 0 {
        // SAFETY: as the caller says.
        match unsafe { look_straight(state, at, to, count, from) } {
            Ok(taken) => return Ok(taken),
            Err(Missed::Nothing) => return Err(Errno(FI_EAGAIN)),
            Err(Missed::Unsure | Missed::Worked) => {}
        }
    }
    // Who takes nothing wants no more than that.
    if empty || count == 0 {
        go_on(state, at);
    }
    let cq = of(&mut state.cqs, at)?;
    if cq.entries.is_empty() {
        return Err(Errno(FI_EAGAIN));
    }
    // SAFETY: as the caller says.
    let taken = unsafe { take(cq, to, count, from) };
    if cq.full {
        state.relieve(at);
    }
    taken
}

/// As [`look`], for calls that may sleep.
///
/// # Safety
/// As of [`take`].
#[inline(never)]
unsafe fn look_before_sleep(
    state: &mut State,
    at: usize,
    to: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> Result<usize, Errno> {
    // SAFETY: as the caller says.
    unsafe { look(state, at, to, count, from) }
}

#[inline]
fn number(taken: Result<usize, Errno>) -> isize {
    match taken {
        Ok(taken) => taken.cast_signed(),
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: as of `readfrom`.
    unsafe { readfrom(cq, buf, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    from: *mut FiAddr,
) -> isize {
    // SAFETY: the caller gives a queue that we opened.
    let object = unsafe { &*cq.cast::<Queue>() };
    let (taken, vain) = object.shared.state.with(|state| {
        // SAFETY: and has the room that it says.
        let taken = unsafe { look(state, object.at, buf, count, from) };
        wait::leave(state, &At(object.at));
        (taken, state.vain)
    });
    wait::give_way(vain);
    number(taken)
}

unsafe extern "C" fn sread(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: as of `sreadfrom`.
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
    // SAFETY: the caller gives a queue that we opened.
    let object = unsafe { &*cq.cast::<Queue>() };
    let sleeps = object.shared.state.with(|state| At(object.at).sleep(state).is_some());
    if !sleeps {
        return failed_size(FI_ENOSYS);
    }
    let found = wait::until(&object.shared, &At(object.at), timeout, |state| {
        // SAFETY: and has the room that it says.
        match unsafe { look_before_sleep(state, object.at, buf, count, from) } {
            Err(Errno(FI_EAGAIN)) if !signalled(state, object.at) => None,
            taken => Some(taken),
        }
    });
    number(found.unwrap_or(Err(Errno(FI_EAGAIN))))
}

/// Whether somebody called [`signal`] since it was asked last.
fn signalled(state: &mut State, at: usize) -> bool {
    let cq = state.cqs.get_mut(at).and_then(Option::as_mut);
    cq.and_then(|cq| cq.sleep.as_ref()).is_some_and(Sleep::was_signalled)
}

unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    // SAFETY: the caller gives a queue that we opened.
    let object = unsafe { &*cq.cast::<Queue>() };
    object.shared.state.with(|state| match At(object.at).sleep(state) {
        Some(sleep) => {
            sleep.signal();
            0
        }
        None => -FI_ENOSYS,
    })
}

/// Bytes of an error's entry that every caller has room for, and those with room for error data
/// and sources.
const FIRST: usize = std::mem::offset_of!(FiCqErrEntry, err_data_size);
const SOURCES_SINCE: u32 = version(1, 20);
const DATA_SINCE: u32 = version(1, 5);

unsafe extern "C" fn readerr(cq: *mut FidCq, entry: *mut FiCqErrEntry, _flags: u64) -> isize {
    if entry.is_null() {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller gives a queue that we opened.
    let object = unsafe { &*cq.cast::<Queue>() };
    let failed = object.shared.state.with(|state| {
        let cq = of(&mut state.cqs, object.at).ok()?;
        let (first, fault) = (*cq.entries.front()?, cq.entries.front()?.fault?);
        cq.entries.pop_front();
        if cq.full {
            state.relieve(object.at);
        }
        Some((first, fault))
    });
    let Some((done, fault)) = failed else { return failed_size(FI_EAGAIN) };
    let report = done.report;
    let full = FiCqErrEntry {
        op_context: std::ptr::without_provenance_mut(report.context),
        flags: report.flags,
        len: done.len,
        buf: std::ptr::without_provenance_mut(report.buf),
        data: done.data,
        tag: report.tag,
        olen: fault.olen,
        err: fault.err,
        prov_errno: fault.status.cast_signed(),
        err_data: std::ptr::null_mut(),
        err_data_size: 0,
        src_addr: done.from,
    };
    let len = match object.shared.api_version {
        SOURCES_SINCE.. => size_of::<FiCqErrEntry>(),
        DATA_SINCE.. => std::mem::offset_of!(FiCqErrEntry, src_addr),
        _ => FIRST,
    };
    // SAFETY: a caller of that version has room for so much, and what is copied is a whole entry.
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
    // SAFETY: the caller has that room, or gives NULL.
    unsafe { describe_into(prov_errno, buf, len) }
}

/// The domain of a queue and its place there, for who binds it.
///
/// # Safety
/// It is a queue of ours that is open.
pub unsafe fn bound<'a>(fid: *mut Fid) -> (&'a Arc<Shared>, usize) {
    // SAFETY: as the caller says.
    let object = unsafe { &*fid.cast::<Queue>() };
    (&object.shared, object.at)
}
