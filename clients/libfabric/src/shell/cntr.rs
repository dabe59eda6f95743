//! Counters.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cq::{get_wait, sleep_for};
use super::object::{Object, answer, closed, give, usable};
use super::sleep::Sleep;
use super::state::{Cntr, Shared, State, of, place};
use super::wait::{self, Sleeper};
use crate::abi::*;
use crate::rdm::Errno;

/// A counter as the application has it.
pub type Counter = Object<FidCntr>;

static OPS: Ops = Ops { close, control, ..Ops::NONE };
static CNTR_OPS: OpsCntr =
    OpsCntr { read, readerr, add, set, wait: wait_for, adderr, seterr, ..OpsCntr::NONE };

/// A counter by its place.
#[derive(Debug, Clone, Copy)]
struct At(usize);

impl Sleeper for At {
    fn eps<'a>(&self, state: &'a State) -> Option<&'a Vec<usize>> {
        state.cntrs.get(self.0)?.as_ref().map(|cntr| &cntr.eps)
    }

    fn sleep<'a>(&self, state: &'a State) -> Option<&'a Sleep> {
        state.cntrs.get(self.0)?.as_ref()?.sleep.as_ref()
    }
}

/// Opens one.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiCntrAttr,
    cntr: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    if cntr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller has attributes there, or NULL for none.
    let attr = unsafe { attr.as_ref() };
    // SAFETY: the caller has a domain of ours.
    let shared = unsafe { usable(domain) };
    let open = || {
        let (events, wait_obj) = attr.map_or((0, FI_WAIT_UNSPEC), |a| (a.events, a.wait_obj));
        if events != FI_CNTR_EVENTS_COMP {
            return Err(Errno(FI_ENOSYS));
        }
        let sleep = sleep_for(wait_obj)?;
        let opened = Cntr { value: 0, errors: 0, eps: Vec::new(), sleep };
        let at = shared.state.with(|state| place(&mut state.cntrs, opened));
        shared.children.fetch_add(1, Ordering::Relaxed);
        let fid = Fid { fclass: FI_CLASS_CNTR, context, ops: &OPS };
        let fid = FidCntr { fid, ops: &CNTR_OPS };
        // SAFETY: the caller has a place there for it.
        unsafe { give(Object { fid, shared: Arc::clone(&shared), at }, cntr) };
        Ok(())
    };
    answer(open())
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a counter that we opened.
    let object = unsafe { &*fid.cast::<Counter>() };
    let free = object.shared.state.with(|state| {
        let busy = state.cntrs.get(object.at).and_then(Option::as_ref);
        if busy.is_some_and(|cntr| !cntr.eps.is_empty()) {
            return false;
        }
        wait::unexpose(state, &At(object.at));
        if let Some(place) = state.cntrs.get_mut(object.at) {
            *place = None;
        }
        true
    });
    if !free {
        return -FI_EBUSY;
    }
    // SAFETY: it is closed once.
    unsafe { closed::<FidCntr>(fid) }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller gives a counter that we opened.
    let object = unsafe { &*fid.cast::<Counter>() };
    answer(object.shared.state.with(|state| {
        let cntr = of(&mut state.cntrs, object.at)?;
        match command {
            // SAFETY: for this command the caller has an `int` there.
            FI_GETWAIT => unsafe { get_wait(cntr.sleep.as_ref(), arg) },
            _ => Err(Errno(FI_ENOSYS)),
        }
    }))
}

/// Whether nothing is to be read of it: that is known by who counts.
///
/// # Safety
/// It is a counter of ours that is open.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    // SAFETY: as the caller says.
    let object = unsafe { &*fid.cast::<Counter>() };
    object.shared.state.with(|state| {
        go_on(state, object.at);
        if wait::expose(state, &At(object.at)) { 0 } else { -FI_EAGAIN }
    })
}

#[inline]
fn go_on(state: &mut State, at: usize) {
    if let Some(Some(cntr)) = state.cntrs.get(at)
        && let Some(sleep) = &cntr.sleep
        && sleep.is_exposed()
    {
        wait::unexpose(state, &At(at));
    }
    state.progress_all(|state| state.cntrs.get(at)?.as_ref().map(|cntr| &cntr.eps));
}

/// Does something with a counter.
///
/// # Safety
/// It is a counter of ours that is open.
#[inline]
unsafe fn with<R>(
    cntr: *mut FidCntr,
    goes_on: bool,
    run: impl FnOnce(&mut Cntr) -> R,
) -> Result<R, Errno> {
    // SAFETY: as the caller says.
    let object = unsafe { &*cntr.cast::<Counter>() };
    let (done, vain) = object.shared.state.with(|state| {
        if goes_on {
            go_on(state, object.at);
            wait::leave(state, &At(object.at));
        }
        let done = of(&mut state.cntrs, object.at).map(|cntr| {
            let done = run(cntr);
            cntr.sleep.as_ref().map(Sleep::stir);
            done
        });
        (done, state.vain)
    });
    if goes_on {
        wait::give_way(vain);
    }
    done
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    // SAFETY: the caller gives a counter that we opened.
    unsafe { with(cntr, true, |cntr| cntr.value) }.unwrap_or(0)
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    // SAFETY: the caller gives a counter that we opened.
    unsafe { with(cntr, true, |cntr| cntr.errors) }.unwrap_or(0)
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter that we opened.
    answer(unsafe { with(cntr, false, |cntr| cntr.value = cntr.value.wrapping_add(value)) })
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter that we opened.
    answer(unsafe { with(cntr, false, |cntr| cntr.value = value) })
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter that we opened.
    answer(unsafe { with(cntr, false, |cntr| cntr.errors = cntr.errors.wrapping_add(value)) })
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller gives a counter that we opened.
    answer(unsafe { with(cntr, false, |cntr| cntr.errors = value) })
}

unsafe extern "C" fn wait_for(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: the caller gives a counter that we opened.
    let object = unsafe { &*cntr.cast::<Counter>() };
    let at = object.at;
    let Ok(errors) = object.shared.state.with(|state| of(&mut state.cntrs, at).map(|c| c.errors))
    else {
        return -FI_EINVAL;
    };
    let found = wait::until(&object.shared, &At(at), timeout, |state| {
        go_on(state, at);
        let cntr = of(&mut state.cntrs, at).ok()?;
        if cntr.value >= threshold {
            return Some(0);
        }
        (cntr.errors != errors).then_some(-FI_EAVAIL)
    });
    found.unwrap_or(-FI_ETIMEDOUT)
}

/// The domain of a counter and its place there, for who binds it.
///
/// # Safety
/// It is a counter of ours that is open.
pub unsafe fn bound<'a>(fid: *mut Fid) -> (&'a Arc<Shared>, usize) {
    // SAFETY: as the caller says.
    let object = unsafe { &*fid.cast::<Counter>() };
    (&object.shared, object.at)
}
