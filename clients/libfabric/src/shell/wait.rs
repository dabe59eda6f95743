//! Sleeping on queues and counters, from their side: what is done before and after.

use std::ffi::c_int;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use causeway_endpoint::ears::Awaited;

use super::sleep::{Sleep, doze};
use super::state::{Shared, State};
use super::{cntr, cq};
use crate::abi::{FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_EINVAL, FI_ENOSYS, Fid};
use crate::eq;
use crate::limits::{LOOK, SLEEP_MAX, VAIN_LOOKS};
use crate::rdm::LOOK_EVERY;

/// Whether nothing is to be read of it: 0, or `-FI_EAGAIN` if there is.
///
/// # Safety
/// It is NULL, or an object of ours that is open.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    if fid.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: as the caller says.
    match unsafe { (*fid).fclass } {
        // SAFETY: an object of this class is one of `eq`.
        FI_CLASS_EQ => unsafe { eq::may_sleep(fid) },
        // SAFETY: and so on.
        FI_CLASS_CQ => unsafe { cq::may_sleep(fid) },
        // SAFETY: and so on.
        FI_CLASS_CNTR => unsafe { cntr::may_sleep(fid) },
        _ => -FI_ENOSYS,
    }
}

/// What is slept on: a queue or a counter.
pub trait Sleeper {
    /// Its endpoints, if it is still there.
    fn eps<'a>(&self, state: &'a State) -> Option<&'a Vec<usize>>;
    /// What it is waited for by.
    fn sleep<'a>(&self, state: &'a State) -> Option<&'a Sleep>;
}

/// Asks all to ring before somebody sleeps. False: something came; do not sleep. Either way
/// [`disarm`] comes after.
pub fn arm(state: &mut State, of: &impl Sleeper) -> bool {
    let mut idle = true;
    for at in of.eps(state).cloned().unwrap_or_default() {
        // The socket of the next daemon is another.
        if let Some(Some(ep)) = state.eps.get(at)
            && ep.rdm.endpoint.way.resumed() > 0
            && let Some(sleep) = of.sleep(state)
        {
            let _ = sleep.watch(ep);
        }
        let Some(Some(ep)) = state.eps.get_mut(at) else { continue };
        ep.rdm.look_after_partners();
        idle &= ep.rdm.endpoint.way.arm();
    }
    idle
}

/// Takes back what [`arm`] asked, and hears what rang. Others who sleep look again.
#[cold]
pub fn disarm(state: &mut State, of: &impl Sleeper) {
    for at in of.eps(state).cloned().unwrap_or_default() {
        let Some(Some(ep)) = state.eps.get_mut(at) else { continue };
        let endpoint = &mut ep.rdm.endpoint;
        endpoint.hear_all();
        endpoint.way.disarm();
        if endpoint.way.parted
            && let Some(sleep) = of.sleep(state)
            && let Some(Some(ep)) = state.eps.get(at)
        {
            sleep.forget_daemon(ep);
        }
    }
    if state.asleep == 0 {
        return;
    }
    let cqs = state.cqs.iter().flatten().filter_map(|cq| cq.sleep.as_ref());
    let cntrs = state.cntrs.iter().flatten().filter_map(|cntr| cntr.sleep.as_ref());
    cqs.chain(cntrs).for_each(Sleep::stir);
}

/// The application wants to sleep on a descriptor. False: something is there, or came.
pub fn expose(state: &mut State, of: &impl Sleeper) -> bool {
    if let Some(sleep) = of.sleep(state) {
        sleep.expose(true);
        state.asleep = state.asleep.saturating_add(1);
    }
    let idle = arm(state, of);
    if idle {
        // Nothing else tells the application that a connect takes too long.
        let time = longest(state, of);
        if let Some(sleep) = of.sleep(state).filter(|_| time < SLEEP_MAX || timed(state, of)) {
            sleep.wake_in(Some(time));
        }
    } else {
        unexpose(state, of);
    }
    idle
}

/// It came back.
#[cold]
pub fn unexpose(state: &mut State, of: &impl Sleeper) {
    if let Some(sleep) = of.sleep(state)
        && sleep.is_exposed()
    {
        sleep.expose(false);
        state.asleep = state.asleep.saturating_sub(1);
    }
    disarm(state, of);
}

/// Whether anything takes too long some time.
fn timed(state: &State, of: &impl Sleeper) -> bool {
    let eps = of.eps(state).into_iter().flatten();
    let mut eps = eps.filter_map(|at| state.eps.get(*at)?.as_ref());
    eps.any(|ep| ep.rdm.endpoint.time_left().is_some() || ep.rdm.looks_again())
}

/// How long may be slept, if nothing rings.
pub fn longest(state: &State, of: &impl Sleeper) -> Duration {
    let mut longest = SLEEP_MAX;
    for at in of.eps(state).into_iter().flatten() {
        let Some(Some(ep)) = state.eps.get(*at) else { continue };
        if ep.rdm.looks_again() {
            longest = longest.min(LOOK_EVERY);
        }
        let endpoint = &ep.rdm.endpoint;
        if let Some(left) = endpoint.time_left() {
            longest = longest.min(left);
        }
        match endpoint.way.awaited() {
            Awaited::Words => {}
            Awaited::Nothing => longest = longest.min(causeway_endpoint::limits::RESUME_PAUSE.1),
            _ => longest = longest.min(causeway_endpoint::limits::STUCK_MAX),
        }
    }
    longest
}

/// After a look, without the lock: whoever looked in vain for long gives the processor away.
#[inline]
pub fn give_way(vain: u32) {
    let (least, each) = VAIN_LOOKS;
    if vain >= least && vain.is_multiple_of(each) {
        std::thread::yield_now();
    }
}

/// A thread stops looking, since it found what it wanted or has no time left. Who sleeps asked to be
/// rung for what there was to do before, so it looks itself what there is now.
#[inline]
pub fn leave(state: &mut State, of: &impl Sleeper) {
    if state.asleep > 0 && std::mem::take(&mut state.worked) {
        pass_on(state, of);
    }
}

#[cold]
fn pass_on(state: &State, of: &impl Sleeper) {
    for at in of.eps(state).into_iter().flatten() {
        let ep = state.eps.get(*at).and_then(Option::as_ref);
        if ep.is_some_and(|ep| ep.rdm.endpoint.goes_on()) {
            state.stir(*at);
        }
    }
}

/// Looks for something until it is there or the time is over: a moment awake, then asleep.
pub fn until<T>(
    shared: &Shared,
    of: &impl Sleeper,
    timeout_ms: c_int,
    mut look: impl FnMut(&mut State) -> Option<T>,
) -> Option<T> {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut since = Instant::now();
    loop {
        let (found, over) = shared.state.with(|state| {
            let found = look(state);
            let over = found.is_none() && end.is_some_and(|end| Instant::now() >= end);
            if found.is_some() || over {
                leave(state, of);
            }
            (found, over)
        });
        if found.is_some() || over {
            return found;
        }
        let now = Instant::now();
        let left = end.map(|end| end.saturating_duration_since(now));
        if now.saturating_duration_since(since) < LOOK {
            std::thread::yield_now();
            continue;
        }
        let asleep = shared.state.with(|state| {
            of.sleep(state).map(Sleep::begin);
            state.asleep = state.asleep.saturating_add(1);
            let idle = arm(state, of);
            let share = of.sleep(state).and_then(Sleep::share);
            // What came while it was asked for.
            let share = if idle { share } else { None };
            share.map(|share| (share, longest(state, of)))
        });
        if let Some((fd, time)) = asleep {
            doze(fd.as_fd(), left.map_or(time, |left| time.min(left)));
        }
        shared.state.with(|state| {
            of.sleep(state).map(Sleep::end);
            state.asleep = state.asleep.saturating_sub(1);
            disarm(state, of);
        });
        since = Instant::now();
    }
}
