//! Sleeping on queues and counters.
//!
//! A blocking call polls for [`SPIN`] (50 us), then sleeps until a wake-up, its time-out, or
//! [`SLEEP_MAX`] (1 s), and polls again.
//!
//! # Limits
//! A wake-up does not mean that an entry is there: every woken thread polls. Time-outs have a
//! resolution of 1 ms; a negative time-out waits without limit. The sleep itself is without the
//! lock, so other threads may take the entry that caused a wake-up. Without a wait object, a wait
//! for a counter polls instead of sleeping, and a blocking read of a queue is refused
//! (`shell::cq`); both poll if the descriptor cannot be duplicated. An application that sleeps on a
//! descriptor after `fi_trywait` has no [`SLEEP_MAX`]: a timer wakes it if the provider has a
//! deadline.
//!
//! # Place
//! `shell::cq` and `shell::cntr` call [`until`] for blocking calls, and [`begin_app_sleep`] for
//! `fi_trywait`. [`state`](super::state) requests the wake-ups; `wait_fd` is the descriptor.

use std::ffi::c_int;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use super::state::{DomainShared, DomainState, WaitTarget};
use super::wait_fd::{WaitFd, sleep_on};
use crate::limits::{MISSES_BEFORE_YIELD, MISSES_PER_YIELD, SLEEP_MAX, SPIN};

/// Lets the application sleep on the descriptor, until [`end_app_sleep`]. Returns `false` if an
/// entry or an event is there; the sleep has ended then.
pub fn begin_app_sleep(state: &mut DomainState, of: WaitTarget) -> bool {
    if let Some(wait_fd) = state.wait_set(of).wait_fd() {
        wait_fd.set_app_sleeping(true);
        state.asleep = state.asleep.saturating_add(1);
    }
    let idle = state.arm(of);
    if idle {
        // The timer alone wakes the application for a connect that takes too long.
        let time = state.longest_sleep(of);
        if let Some(wait_fd) = state.wait_set(of).wait_fd()
            && (time < SLEEP_MAX || state.has_deadline(of))
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
pub fn end_app_sleep(state: &mut DomainState, of: WaitTarget) {
    if let Some(wait_fd) = state.wait_set(of).wait_fd()
        && wait_fd.is_app_sleeping()
    {
        wait_fd.set_app_sleeping(false);
        state.asleep = state.asleep.saturating_sub(1);
    }
    state.disarm(of);
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
pub fn end_poll(state: &mut DomainState, of: WaitTarget) {
    if state.asleep > 0 && std::mem::take(&mut state.worked) {
        wake_others(state, of);
    }
}

/// Wakes the threads of endpoints whose work needs further polls.
#[cold]
fn wake_others(state: &DomainState, of: WaitTarget) {
    for at in state.wait_set(of).eps() {
        let ep = state.eps.get(*at).and_then(Option::as_ref);
        if ep.is_some_and(|ep| ep.rdm.endpoint.goes_on()) {
            state.wake(*at);
        }
    }
}

/// Requests wake-ups for a thread, and returns the descriptor to sleep on, with the longest sleep.
/// `None`: the thread must not sleep, because an event arrived meanwhile, or has no descriptor.
fn begin_sleep(state: &mut DomainState, of: WaitTarget) -> Option<(OwnedFd, Duration)> {
    state.wait_set(of).wait_fd().map(WaitFd::begin);
    state.asleep = state.asleep.saturating_add(1);
    let is_idle = state.arm(of);
    let fd = state.wait_set(of).wait_fd().and_then(WaitFd::try_clone);
    fd.filter(|_| is_idle).map(|fd| (fd, state.longest_sleep(of)))
}

/// Polls until `poll` returns a value or the time-out is over: awake for [`SPIN`] (50 us), then
/// asleep. `None` means the time-out.
pub fn until<T>(
    shared: &DomainShared,
    of: WaitTarget,
    timeout_ms: c_int,
    mut poll: impl FnMut(&mut DomainState) -> Option<T>,
) -> Option<T> {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut since = Instant::now();
    loop {
        let is_spinning = since.elapsed() < SPIN;
        let polled = shared.state.with(|state| {
            let found = poll(state);
            if found.is_some() || end.is_some_and(|end| Instant::now() >= end) {
                end_poll(state, of);
                return ControlFlow::Break(found);
            }
            // Under the lock of the poll: no other thread takes an event in between.
            ControlFlow::Continue((!is_spinning).then(|| begin_sleep(state, of)))
        });
        let asleep = match polled {
            ControlFlow::Break(found) => return found,
            ControlFlow::Continue(None) => {
                std::thread::yield_now();
                continue;
            }
            ControlFlow::Continue(Some(asleep)) => asleep,
        };
        if let Some((fd, time)) = asleep {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            sleep_on(fd.as_fd(), left.map_or(time, |left| time.min(left)));
        }
        shared.state.with(|state| {
            state.wait_set(of).wait_fd().map(WaitFd::end);
            state.asleep = state.asleep.saturating_sub(1);
            state.disarm(of);
        });
        since = Instant::now();
    }
}
