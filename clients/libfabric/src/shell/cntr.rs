//! Counters: reads, writes and waits. Reads let the bound endpoints make progress; the
//! application's writes do not.
//!
//! A counter counts the operations of the bound endpoints for which it was bound, successes and
//! failures apart, and the values that the application adds.
//!
//! # Limits
//! Both values wrap at 64 bits. Only completion events are counted (`FI_CNTR_EVENTS_COMP`; other
//! kinds give `-FI_ENOSYS`). A wait sleeps on the wait object, or polls without one
//! (`FI_WAIT_NONE`; an unsupported kind gives `-FI_ENOSYS` at the opening). It ends with 0 when the
//! value reaches the threshold, with `-FI_EAVAIL` if the number of failures changes, and with
//! `-FI_ETIMEDOUT` after its time-out. Every read and write of the application wakes the waiters,
//! which check again. A counter that an endpoint is bound to cannot be closed (`-FI_EBUSY`); no
//! thread may wait at the close. Any number of endpoints may share a counter of their domain.
//!
//! # Place
//! `domain` adds completions, and sleeps for `fi_cntr_wait`, without its lock. The functions run in
//! the calling thread of the application.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::domain_object::domain_of;
use super::object::{FidObject, close_object, give_object, to_status};
use super::wait_object::{get_wait, wait_fd_for};
use crate::abi::*;
use crate::domain::{CntrState, DomainState, WaitFd, WaitTarget, get, insert, wait};
use crate::errno::Errno;

/// A counter that an application opened.
pub type CntrObject = FidObject<FidCntr>;

static OPS: Ops = Ops { close, control, ..Ops::NONE };
/// The functions in the table of this class of objects; the others are not supported.
static CNTR_OPS: OpsCntr =
    OpsCntr { read, readerr, add, set, wait: wait_for, adderr, seterr, ..OpsCntr::NONE };

/// Opens a counter.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiCntrAttr,
    cntr: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    if cntr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes attributes or NULL.
    let attr = unsafe { attr.as_ref() };
    // SAFETY: the caller passes a domain that was opened here.
    let shared = unsafe { domain_of(domain) };
    let open = || {
        let (events, wait_obj) = attr.map_or((0, FI_WAIT_UNSPEC), |a| (a.events, a.wait_obj));
        if events != FI_CNTR_EVENTS_COMP {
            return Err(Errno(FI_ENOSYS));
        }
        let wait_fd = wait_fd_for(wait_obj)?;
        let opened = CntrState { value: 0, errors: 0, eps: Vec::new(), wait_fd };
        let at = shared.state.with(|state| insert(&mut state.cntrs, opened));
        shared.children.fetch_add(1, Ordering::Relaxed);
        let fid = Fid { fclass: FI_CLASS_CNTR, context, ops: &OPS };
        let fid = FidCntr { fid, ops: &CNTR_OPS };
        // SAFETY: the caller passes a place for the counter.
        unsafe { give_object(FidObject { fid, shared: Arc::clone(&shared), at }, cntr) };
        Ok(())
    };
    to_status(open())
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a counter that was opened here.
    let object = unsafe { &*fid.cast::<CntrObject>() };
    let free = object.shared.state.with(|state| {
        let busy = state.cntrs.get(object.at).and_then(Option::as_ref);
        if busy.is_some_and(|cntr| !cntr.eps.is_empty()) {
            return false;
        }
        wait::end_app_sleep(state, WaitTarget::Cntr(object.at));
        if let Some(slot) = state.cntrs.get_mut(object.at) {
            *slot = None;
        }
        true
    });
    if !free {
        return -FI_EBUSY;
    }
    // SAFETY: the counter is closed once.
    unsafe { close_object::<FidCntr>(fid) }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller passes a counter that was opened here.
    let object = unsafe { &*fid.cast::<CntrObject>() };
    to_status(object.shared.state.with(|state| {
        let cntr = get(&mut state.cntrs, object.at)?;
        match command {
            // SAFETY: for this command the caller passes room for an `int`.
            FI_GETWAIT => unsafe { get_wait(cntr.wait_fd.as_ref(), arg) },
            _ => Err(Errno(FI_ENOSYS)),
        }
    }))
}

/// Returns 0 if the application may sleep on the counter's descriptor, or `-FI_EAGAIN` if an event
/// arrived. Only the application knows whether the value suffices.
///
/// # Safety
/// `fid` is an open counter that was opened here.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { &*fid.cast::<CntrObject>() };
    object.shared.state.with(|state| {
        progress(state, object.at);
        if wait::begin_app_sleep(state, WaitTarget::Cntr(object.at)) { 0 } else { -FI_EAGAIN }
    })
}

/// Lets all endpoints of the counter make progress, and ends a sleep of the application on its
/// descriptor.
#[inline]
fn progress(state: &mut DomainState, at: usize) {
    if let Some(Some(cntr)) = state.cntrs.get(at)
        && let Some(wait_fd) = &cntr.wait_fd
        && wait_fd.is_app_sleeping()
    {
        wait::end_app_sleep(state, WaitTarget::Cntr(at));
    }
    state.progress_all(|state| state.cntrs.get(at)?.as_ref().map(|cntr| &cntr.eps));
}

/// Runs `run` with a counter, after progress if `makes_progress`.
///
/// # Safety
/// The counter was opened here and is open.
#[inline]
unsafe fn with<R>(
    cntr: *mut FidCntr,
    makes_progress: bool,
    run: impl FnOnce(&mut CntrState) -> R,
) -> Result<R, Errno> {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { &*cntr.cast::<CntrObject>() };
    let (done, misses) = object.shared.state.with(|state| {
        if makes_progress {
            progress(state, object.at);
            wait::end_poll(state, WaitTarget::Cntr(object.at));
        }
        let done = get(&mut state.cntrs, object.at).map(|cntr| {
            let done = run(cntr);
            cntr.wait_fd.as_ref().map(WaitFd::wake);
            done
        });
        (done, state.misses)
    });
    if makes_progress {
        wait::yield_after_misses(misses);
    }
    done
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    // SAFETY: the caller passes a counter that was opened here.
    unsafe { with(cntr, true, |cntr| cntr.value) }.unwrap_or(0)
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    // SAFETY: the caller passes a counter that was opened here.
    unsafe { with(cntr, true, |cntr| cntr.errors) }.unwrap_or(0)
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller passes a counter that was opened here.
    to_status(unsafe { with(cntr, false, |cntr| cntr.value = cntr.value.wrapping_add(value)) })
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller passes a counter that was opened here.
    to_status(unsafe { with(cntr, false, |cntr| cntr.value = value) })
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller passes a counter that was opened here.
    to_status(unsafe { with(cntr, false, |cntr| cntr.errors = cntr.errors.wrapping_add(value)) })
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller passes a counter that was opened here.
    to_status(unsafe { with(cntr, false, |cntr| cntr.errors = value) })
}

unsafe extern "C" fn wait_for(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: the caller passes a counter that was opened here.
    let object = unsafe { &*cntr.cast::<CntrObject>() };
    let at = object.at;
    let Ok(errors) = object.shared.state.with(|state| get(&mut state.cntrs, at).map(|c| c.errors))
    else {
        return -FI_EINVAL;
    };
    let found = wait::until(&object.shared, WaitTarget::Cntr(at), timeout, |state| {
        progress(state, at);
        let cntr = get(&mut state.cntrs, at).ok()?;
        if cntr.value >= threshold {
            return Some(0);
        }
        (cntr.errors != errors).then_some(-FI_EAVAIL)
    });
    found.unwrap_or(-FI_ETIMEDOUT)
}
