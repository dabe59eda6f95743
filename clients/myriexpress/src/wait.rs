//! Progress and waiting: calls poll for a moment, then sleep on the doorbell of the endpoint.
//!
//! Of the threads that wait for an endpoint, the leader sleeps on its descriptors and makes
//! progress for all; the followers sleep on a futex. Handlers of the application run without the
//! lock; one thread at a time runs the handler of unexpected messages of an endpoint, and one
//! reports failures. While the former runs, no message is delivered.
//!
//! A waiting call polls for [`POLL_TIME`] (50 us), sleeps at most [`SLEEP_MAX`] (60 s) at a time,
//! and repeats that until its result or its limit. A call that does not wait polls at most
//! [`POLLS_OF_TEST`] (6) times. Between calls there is no progress: a process that computes takes
//! no message, and its peers wait for the end of long and synchronous messages. Order among waiting
//! threads is not defined. If another thread closes the endpoint meanwhile, the call fails with
//! `MX_BAD_ENDPOINT`; `mx_wakeup` ends the call without a result, unless one exists already.
//!
//! Called by the functions of `call`; events are handled in [`MxEndpoint::advance`].

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::EndpointAddr;
use crate::code::Return;
use crate::endpoint::{MxEndpoint, UnexpectedHandler};
use crate::errors::raise_status;
use crate::limits::{POLL_ROUNDS, POLL_TIME, POLLS_OF_TEST, SLEEP_MAX};
use crate::table::{self, LockedEndpoint};
use causeway_endpoint::now;
use causeway_message::library::{HandlerAction, HandlerMessage};

/// Maximum wait of a call.
#[derive(Debug, Clone, Copy)]
pub enum WaitLimit {
    /// The call does not wait.
    None,
    /// The call waits without a limit.
    Endless,
    /// The call waits until this time.
    Until(Instant),
}

impl WaitLimit {
    /// Converts a timeout in milliseconds; 0 means no limit.
    pub fn of(timeout_ms: u32) -> Self {
        let time = Duration::from_millis(timeout_ms.into());
        match Instant::now().checked_add(time) {
            Some(end) if timeout_ms != 0 => Self::Until(end),
            _ => Self::Endless,
        }
    }
}

/// Makes progress until nothing is left, or the work of one call is done. Runs pending handlers.
#[inline]
pub fn progress(locked: LockedEndpoint) -> Result<LockedEndpoint, Return> {
    progress_within(locked, 1)
}

/// As [`progress`], but polls `polls` times.
#[inline]
fn progress_within(mut locked: LockedEndpoint, polls: u32) -> Result<LockedEndpoint, Return> {
    if locked.endpoint().advance(polls) { Ok(locked) } else { run_handlers(locked) }
}

/// Runs the handlers that [`MxEndpoint::advance`] found pending.
#[cold]
fn run_handlers(mut locked: LockedEndpoint) -> Result<LockedEndpoint, Return> {
    while let Some(asked) = locked.endpoint().asked.take() {
        locked = run_handler(locked, asked)?;
        locked.endpoint().advance(1);
    }
    report_failures(locked)
}

/// Reports failed requests to the error handler, which returns their codes.
#[inline]
pub fn report_failures(mut locked: LockedEndpoint) -> Result<LockedEndpoint, Return> {
    if locked.endpoint().core.library.has_failed() { raise_all(locked) } else { Ok(locked) }
}

#[cold]
fn raise_all(mut locked: LockedEndpoint) -> Result<LockedEndpoint, Return> {
    // One thread at a time reports. Calls from the handler or from other threads leave it to that
    // thread.
    if std::mem::replace(&mut locked.endpoint().raising, true) {
        return Ok(locked);
    }
    loop {
        let endpoint = locked.endpoint();
        let handler = endpoint.errors;
        let code;
        if let Some((id, status)) = endpoint.core.library.next_failed() {
            (locked, code) = locked.unlocked(|| raise_status(handler, status))?;
            let endpoint = locked.endpoint();
            endpoint.core.library.set_failure_code(id, code);
            endpoint.wake();
        } else if let Some(status) = endpoint.core.library.take_lost() {
            // The send had been reported as successful, so the handler is the only recipient.
            (locked, _) = locked.unlocked(|| raise_status(handler, status))?;
        } else {
            endpoint.raising = false;
            return Ok(locked);
        }
    }
}

/// Runs the application's handler for a message.
#[cold]
fn run_handler(
    mut locked: LockedEndpoint,
    asked: HandlerMessage,
) -> Result<LockedEndpoint, Return> {
    let endpoint = locked.endpoint();
    let source = endpoint.address(asked.partner);
    let handler = endpoint.handler;
    let mut bytes = vec![0_u8; if asked.whole { asked.len as usize } else { 0 }];
    endpoint.core.library.asked_bytes(&endpoint.core.paths, &mut bytes);
    endpoint.handling = Some(std::thread::current().id());
    let Some(handler) = handler else { return Ok(answer(locked, HandlerAction::Continue)) };
    let (locked, action) = locked.unlocked(|| run(handler, source, asked, &mut bytes))?;
    Ok(answer(locked, action))
}

fn run(
    handler: UnexpectedHandler,
    source: EndpointAddr,
    asked: HandlerMessage,
    bytes: &mut [u8],
) -> HandlerAction {
    let data = if asked.whole { bytes.as_mut_ptr().cast() } else { std::ptr::null_mut() };
    let context = std::ptr::without_provenance_mut::<c_void>(handler.context);
    match (handler.run)(context, source, asked.match_info, asked.len, data) {
        1 => HandlerAction::Finished,
        _ => HandlerAction::Continue,
    }
}

fn answer(mut locked: LockedEndpoint, action: HandlerAction) -> LockedEndpoint {
    let endpoint = locked.endpoint();
    endpoint.handling = None;
    endpoint.core.library.answer(&mut endpoint.core.paths, action);
    endpoint.wake();
    locked
}

/// Calls `poll` until it returns a result or the limit is reached; returns `None` at the limit, and
/// after `mx_wakeup`. `ready` is a cheap check whether a result may exist already; otherwise the
/// endpoint makes progress first.
#[inline]
pub fn until<T>(
    handle: *mut c_void,
    limit: WaitLimit,
    ready: impl FnOnce(&mut MxEndpoint) -> bool,
    mut poll: impl FnMut(&mut MxEndpoint) -> Result<Option<T>, Return>,
) -> Result<Option<T>, Return> {
    let mut locked = table::lock(handle)?;
    if !ready(locked.endpoint()) {
        // Locking is most of the cost of a call, so poll some more while the lock is held.
        locked = progress_within(locked, POLLS_OF_TEST)?;
    }
    match (poll(locked.endpoint())?, limit) {
        (None, WaitLimit::None) => {
            if locked.endpoint().should_yield() {
                drop(locked);
                std::thread::yield_now();
            }
            Ok(None)
        }
        (None, limit) => wait(locked, limit, poll),
        (found, _) => Ok(found),
    }
}

fn wait<T>(
    mut locked: LockedEndpoint,
    limit: WaitLimit,
    mut poll: impl FnMut(&mut MxEndpoint) -> Result<Option<T>, Return>,
) -> Result<Option<T>, Return> {
    let wakeups = locked.endpoint().wakeups;
    let mut since = Instant::now();
    let found = 'over: loop {
        for _ in 0..POLL_ROUNDS {
            locked = progress_within(locked, POLLS_OF_TEST)?;
            match poll(locked.endpoint()) {
                Ok(None) => {}
                over => break 'over over,
            }
        }
        if locked.endpoint().wakeups != wakeups {
            break Ok(None);
        }
        let now = Instant::now();
        if let WaitLimit::Until(end) = limit
            && now >= end
        {
            break Ok(None);
        }
        if now.saturating_duration_since(since) < POLL_TIME {
            // The peer or the daemon may need this processor.
            (locked, ()) = locked.unlocked(std::thread::yield_now)?;
            continue;
        }
        locked = sleep(locked, limit)?;
        since = Instant::now();
    };
    locked.endpoint().end_wait();
    found
}

/// Sleeps if there is nothing to do, as the leader or as a follower. A thread that wakes and leaves
/// calls another thread to lead.
#[cold]
fn sleep(mut locked: LockedEndpoint, limit: WaitLimit) -> Result<LockedEndpoint, Return> {
    let mut time = SLEEP_MAX;
    if let WaitLimit::Until(end) = limit {
        time = time.min(end.saturating_duration_since(Instant::now()));
    }
    let endpoint = locked.endpoint();
    if endpoint.has_leader {
        // The leader does not know yet of the room or deadline that this thread waits for.
        endpoint.core.waiter.ring();
        follow(locked, time)
    } else {
        lead(locked, time)
    }
}

/// Sleeps at most for `time` as a follower, until the leader or an event calls.
fn follow(mut locked: LockedEndpoint, time: Duration) -> Result<LockedEndpoint, Return> {
    let room = locked.room();
    let endpoint = locked.endpoint();
    endpoint.followers = endpoint.followers.saturating_add(1);
    let calls = room.calls();
    let (mut locked, ()) = locked.unlocked(|| room.sleep(calls, time))?;
    let endpoint = locked.endpoint();
    endpoint.followers = endpoint.followers.saturating_sub(1);
    Ok(locked)
}

/// Sleeps at most for `time` as the leader, on the descriptors of the endpoint.
fn lead(mut locked: LockedEndpoint, time: Duration) -> Result<LockedEndpoint, Return> {
    let endpoint = locked.endpoint();
    // A message of the daemon wakes at once.
    if endpoint.core.look_at_clock() {
        // The result has not been examined yet.
        return Ok(locked);
    }
    let deadline = endpoint.core.library.deadline();
    let left = deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now())));
    let time = time.min(left.unwrap_or(time));
    // Without progress there is nothing to poll. Enabling progress rings the doorbell.
    let idle = endpoint.disabled > 0 || endpoint.handling.is_some() || endpoint.core.arm();
    if idle {
        endpoint.has_leader = true;
        let (waiter, awaited) = (Arc::clone(&endpoint.core.waiter), endpoint.core.paths.awaited());
        let rung;
        (locked, rung) = locked.unlocked(|| waiter.listen(awaited, time))?;
        let endpoint = locked.endpoint();
        endpoint.has_leader = false;
        endpoint.clear(rung);
        // Unsent requests to the daemon are retried even if the daemon sent nothing.
        if rung.daemon || awaited == causeway_endpoint::waiter::Awaited::Descriptors {
            endpoint.core.paths.hear_one();
        }
        // The daemon is gone: look for the next one.
        if awaited == causeway_endpoint::waiter::Awaited::Nothing {
            endpoint.core.hear();
        }
    }
    let endpoint = locked.endpoint();
    endpoint.core.paths.disarm();
    endpoint.core.look_at_clock();
    Ok(locked)
}

#[cfg(test)]
mod tests;
