//! Sleeping on queues and counters: arming the wake-ups of their endpoints before a sleep, and
//! processing the wake-ups after.
//!
//! A wake-up is requested from peers and the daemon before a thread sleeps, so none is lost; the
//! thread must not sleep if an event arrived meanwhile. A blocking call polls for [`SPIN`] (50 us),
//! then sleeps until a wake-up, its time-out, or [`SLEEP_MAX`] (1 s), and polls again.
//!
//! # Limits
//! A wake-up does not mean that an entry is there: every woken thread polls. Time-outs have a
//! resolution of 1 ms; a negative time-out waits without limit. [`arm`] and [`disarm`] must be
//! called in pairs under the domain's lock; the sleep itself is without the lock, so other threads
//! may take the entry that caused a wake-up. Without a wait object, a wait for a counter polls
//! instead of sleeping, and a blocking read of a queue is refused (`cq`); both poll if the
//! descriptor cannot be duplicated. An application that sleeps on a descriptor after `fi_trywait`
//! has no [`SLEEP_MAX`]: a timer wakes it if the provider has a deadline.
//!
//! # Place
//! `cq` and `cntr` call [`until`] for blocking calls, `fabric` calls [`may_sleep`] for
//! `fi_trywait`, and `progress_thread` arms all endpoints of a domain. Below are `wait_fd` and the
//! endpoints' paths.

use std::ffi::c_int;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use causeway_endpoint::waiter::Awaited;

use super::state::{DomainShared, DomainState};
use super::wait_fd::{WaitFd, sleep_on};
use super::{cntr, cq};
use crate::abi::{FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_EINVAL, FI_ENOSYS, Fid};
use crate::eq;
use crate::limits::{MISSES_BEFORE_YIELD, MISSES_PER_YIELD, SLEEP_MAX, SPIN};
use crate::rdm::PARTNER_CHECK;

/// Returns 0 if the application may sleep on an object, `-FI_EAGAIN` if it has entries or an event
/// arrived, `-FI_EINVAL` for NULL, or `-FI_ENOSYS` for an object without waits.
///
/// # Safety
/// `fid` is NULL, or an open object that was opened here.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    if fid.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    match unsafe { (*fid).fclass } {
        // SAFETY: an object of this class belongs to `eq`.
        FI_CLASS_EQ => unsafe { eq::may_sleep(fid) },
        // SAFETY: an object of this class belongs to `cq`.
        FI_CLASS_CQ => unsafe { cq::may_sleep(fid) },
        // SAFETY: an object of this class belongs to `cntr`.
        FI_CLASS_CNTR => unsafe { cntr::may_sleep(fid) },
        _ => -FI_ENOSYS,
    }
}

/// A queue or a counter that threads sleep on.
pub trait WaitTarget {
    /// Returns its endpoints, if it is still open.
    fn eps<'a>(&self, state: &'a DomainState) -> Option<&'a Vec<usize>>;
    /// Returns its wait object.
    fn wait_fd<'a>(&self, state: &'a DomainState) -> Option<&'a WaitFd>;
}

/// Requests wake-ups for a thread that is about to sleep. Returns `false` if an event arrived, so
/// that the thread must not sleep. [`disarm`] must follow in either case.
pub fn arm(state: &mut DomainState, of: &impl WaitTarget) -> bool {
    let mut idle = true;
    for at in of.eps(state).cloned().unwrap_or_default() {
        // The next daemon has another socket.
        if let Some(Some(ep)) = state.eps.get(at)
            && ep.rdm.endpoint.paths.resumed() > 0
            && let Some(wait_fd) = of.wait_fd(state)
        {
            let _ = wait_fd.watch(ep);
        }
        let Some(Some(ep)) = state.eps.get_mut(at) else { continue };
        ep.rdm.check_partners();
        idle &= ep.rdm.endpoint.paths.arm();
    }
    idle
}

/// Withdraws the request of [`arm`] and processes the wake-ups. Other sleeping threads poll as
/// well.
#[cold]
pub fn disarm(state: &mut DomainState, of: &impl WaitTarget) {
    for at in of.eps(state).cloned().unwrap_or_default() {
        let Some(Some(ep)) = state.eps.get_mut(at) else { continue };
        let endpoint = &mut ep.rdm.endpoint;
        endpoint.hear_all();
        endpoint.paths.disarm();
        if endpoint.paths.has_no_daemon
            && let Some(wait_fd) = of.wait_fd(state)
            && let Some(Some(ep)) = state.eps.get(at)
        {
            wait_fd.unwatch_daemon(ep);
        }
    }
    if state.asleep == 0 {
        return;
    }
    let cqs = state.cqs.iter().flatten().filter_map(|cq| cq.wait_fd.as_ref());
    let cntrs = state.cntrs.iter().flatten().filter_map(|cntr| cntr.wait_fd.as_ref());
    cqs.chain(cntrs).for_each(WaitFd::wake);
}

/// Lets the application sleep on the descriptor, until [`end_app_sleep`]. Returns `false` if an
/// entry or an event is there; the sleep has ended then.
pub fn begin_app_sleep(state: &mut DomainState, of: &impl WaitTarget) -> bool {
    if let Some(wait_fd) = of.wait_fd(state) {
        wait_fd.set_app_sleeping(true);
        state.asleep = state.asleep.saturating_add(1);
    }
    let idle = arm(state, of);
    if idle {
        // The timer alone wakes the application for a connect that takes too long.
        let time = longest_sleep(state, of);
        if let Some(wait_fd) =
            of.wait_fd(state).filter(|_| time < SLEEP_MAX || has_deadline(state, of))
        {
            wait_fd.wake_in(Some(time));
        }
    } else {
        end_app_sleep(state, of);
    }
    idle
}

/// Ends the application's sleep on the descriptor.
#[cold]
pub fn end_app_sleep(state: &mut DomainState, of: &impl WaitTarget) {
    if let Some(wait_fd) = of.wait_fd(state)
        && wait_fd.is_app_sleeping()
    {
        wait_fd.set_app_sleeping(false);
        state.asleep = state.asleep.saturating_sub(1);
    }
    disarm(state, of);
}

/// Returns whether a time-out is pending.
fn has_deadline(state: &DomainState, of: &impl WaitTarget) -> bool {
    let eps = of.eps(state).into_iter().flatten();
    let mut eps = eps.filter_map(|at| state.eps.get(*at)?.as_ref());
    eps.any(|ep| ep.rdm.endpoint.time_left().is_some() || ep.rdm.must_check_partners())
}

/// Returns the longest sleep without a wake-up.
pub fn longest_sleep(state: &DomainState, of: &impl WaitTarget) -> Duration {
    let mut longest = SLEEP_MAX;
    for at in of.eps(state).into_iter().flatten() {
        let Some(Some(ep)) = state.eps.get(*at) else { continue };
        if ep.rdm.must_check_partners() {
            longest = longest.min(PARTNER_CHECK);
        }
        let endpoint = &ep.rdm.endpoint;
        if let Some(left) = endpoint.time_left() {
            longest = longest.min(left);
        }
        match endpoint.paths.awaited() {
            Awaited::Words => {}
            Awaited::Nothing => longest = longest.min(causeway_endpoint::limits::RESUME_PAUSE_MAX),
            _ => longest = longest.min(causeway_endpoint::limits::STUCK_MAX),
        }
    }
    longest
}

/// Yields the processor after many empty polls in a row ([`MISSES_BEFORE_YIELD`]). Called without the
/// lock.
#[inline]
pub fn yield_after_misses(misses: u32) {
    if misses >= MISSES_BEFORE_YIELD && misses.is_multiple_of(MISSES_PER_YIELD) {
        std::thread::yield_now();
    }
}

/// Ends the polling of a thread, which found its entry or timed out. Sleeping threads requested
/// wake-ups for earlier work only, so they are woken for the work that is left.
#[inline]
pub fn end_poll(state: &mut DomainState, of: &impl WaitTarget) {
    if state.asleep > 0 && std::mem::take(&mut state.worked) {
        wake_others(state, of);
    }
}

/// Wakes the threads of endpoints whose work needs further polls.
#[cold]
fn wake_others(state: &DomainState, of: &impl WaitTarget) {
    for at in of.eps(state).into_iter().flatten() {
        let ep = state.eps.get(*at).and_then(Option::as_ref);
        if ep.is_some_and(|ep| ep.rdm.endpoint.goes_on()) {
            state.wake(*at);
        }
    }
}

/// Polls until `poll` returns a value or the time-out is over: awake for [`SPIN`] (50 us), then
/// asleep. `None` means the time-out.
pub fn until<T>(
    shared: &DomainShared,
    of: &impl WaitTarget,
    timeout_ms: c_int,
    mut poll: impl FnMut(&mut DomainState) -> Option<T>,
) -> Option<T> {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut since = Instant::now();
    loop {
        let (found, over) = shared.state.with(|state| {
            let found = poll(state);
            let over = found.is_none() && end.is_some_and(|end| Instant::now() >= end);
            if found.is_some() || over {
                end_poll(state, of);
            }
            (found, over)
        });
        if found.is_some() || over {
            return found;
        }
        let now = Instant::now();
        let left = end.map(|end| end.saturating_duration_since(now));
        if now.saturating_duration_since(since) < SPIN {
            std::thread::yield_now();
            continue;
        }
        let asleep = shared.state.with(|state| {
            of.wait_fd(state).map(WaitFd::begin);
            state.asleep = state.asleep.saturating_add(1);
            let idle = arm(state, of);
            let fd = of.wait_fd(state).and_then(WaitFd::try_clone);
            // An event that arrived while the wake-ups were requested prevents the sleep.
            let fd = if idle { fd } else { None };
            fd.map(|fd| (fd, longest_sleep(state, of)))
        });
        if let Some((fd, time)) = asleep {
            sleep_on(fd.as_fd(), left.map_or(time, |left| time.min(left)));
        }
        shared.state.with(|state| {
            of.wait_fd(state).map(WaitFd::end);
            state.asleep = state.asleep.saturating_sub(1);
            disarm(state, of);
        });
        since = Instant::now();
    }
}
