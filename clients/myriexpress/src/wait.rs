//! How calls go on, and wait: they look for a moment, then sleep on the endpoint's doorbell.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::EndpointAddr;
use crate::code::Return;
use crate::endpoint::{Endpoint, Handler};
use crate::errors::raise_status;
use crate::limits::{LOOK, LOOKS_AT_ONCE, LOOKS_OF_TEST, SLEEP_MAX};
use crate::table::{self, Locked};
use causeway_endpoint::now;
use causeway_message::library::{Action, Asked};

/// How long a call waits.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// Not at all.
    None,
    /// As long as it takes.
    Endless,
    /// At most so long.
    Until(Instant),
}

impl Patience {
    /// Milliseconds; 0 is for ever.
    pub fn of(timeout_ms: u32) -> Self {
        let time = Duration::from_millis(timeout_ms.into());
        match Instant::now().checked_add(time) {
            Some(end) if timeout_ms != 0 => Self::Until(end),
            _ => Self::Endless,
        }
    }
}

/// Goes on with what came in; runs the handlers that are to be asked. Nothing is left, or enough
/// was done for one call.
#[inline]
pub fn progress(locked: Locked) -> Result<Locked, Return> {
    progress_within(locked, 1)
}

/// As [`progress`], and looks so often whether something comes.
#[inline]
fn progress_within(mut locked: Locked, looks: u32) -> Result<Locked, Return> {
    if locked.endpoint().go_on(looks) { Ok(locked) } else { ask_all(locked) }
}

/// Runs the handlers that [`Endpoint::go_on`] found are to be asked.
#[cold]
fn ask_all(mut locked: Locked) -> Result<Locked, Return> {
    while let Some(asked) = locked.endpoint().asked.take() {
        locked = ask(locked, asked)?;
        locked.endpoint().go_on(1);
    }
    settle(locked)
}

/// Puts requests that failed to the error handler, which says what their status is.
#[inline]
pub fn settle(mut locked: Locked) -> Result<Locked, Return> {
    if locked.endpoint().core.library.has_failed() { raise_all(locked) } else { Ok(locked) }
}

#[cold]
fn raise_all(mut locked: Locked) -> Result<Locked, Return> {
    // One after the other: who calls from inside the handler, or beside it, leaves it to them.
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
            endpoint.core.library.tell_failed(id, code);
            endpoint.wake();
        } else if let Some(status) = endpoint.core.library.take_lost() {
            // Of a send that ended well before: there is nobody else to tell.
            (locked, _) = locked.unlocked(|| raise_status(handler, status))?;
        } else {
            endpoint.raising = false;
            return Ok(locked);
        }
    }
}

/// Asks the application's handler about a message.
#[cold]
fn ask(mut locked: Locked, asked: Asked) -> Result<Locked, Return> {
    let endpoint = locked.endpoint();
    let source = endpoint.address(asked.partner);
    let handler = endpoint.handler;
    let mut bytes = vec![0_u8; if asked.whole { asked.len as usize } else { 0 }];
    endpoint.core.library.asked_bytes(&endpoint.core.way, &mut bytes);
    endpoint.handling = Some(std::thread::current().id());
    let Some(handler) = handler else { return Ok(answer(locked, Action::Continue)) };
    let (locked, action) = locked.unlocked(|| run(handler, source, asked, &mut bytes))?;
    Ok(answer(locked, action))
}

fn run(handler: Handler, source: EndpointAddr, asked: Asked, bytes: &mut [u8]) -> Action {
    let data = if asked.whole { bytes.as_mut_ptr().cast() } else { std::ptr::null_mut() };
    let context = std::ptr::without_provenance_mut::<c_void>(handler.context);
    match (handler.run)(context, source, asked.match_info, asked.len, data) {
        1 => Action::Finished,
        _ => Action::Continue,
    }
}

fn answer(mut locked: Locked, action: Action) -> Locked {
    let endpoint = locked.endpoint();
    endpoint.handling = None;
    endpoint.core.library.answer(&mut endpoint.core.way, action);
    endpoint.wake();
    locked
}

/// Looks for something until it is there or patience ends. `ready` says, at little cost, whether it
/// may be there already; else the endpoint goes on first.
#[inline]
pub fn until<T>(
    handle: *mut c_void,
    patience: Patience,
    ready: impl FnOnce(&mut Endpoint) -> bool,
    mut look: impl FnMut(&mut Endpoint) -> Result<Option<T>, Return>,
) -> Result<Option<T>, Return> {
    let mut locked = table::lock(handle)?;
    if !ready(locked.endpoint()) {
        // Most of a call is taking the lock: look some more while it is held.
        locked = progress_within(locked, LOOKS_OF_TEST)?;
    }
    match (look(locked.endpoint())?, patience) {
        (None, Patience::None) => {
            if locked.endpoint().tests_in_vain() {
                drop(locked);
                std::thread::yield_now();
            }
            Ok(None)
        }
        (None, patience) => wait(locked, patience, look),
        (found, _) => Ok(found),
    }
}

fn wait<T>(
    mut locked: Locked,
    patience: Patience,
    mut look: impl FnMut(&mut Endpoint) -> Result<Option<T>, Return>,
) -> Result<Option<T>, Return> {
    let wakeups = locked.endpoint().wakeups;
    let mut since = Instant::now();
    let found = 'over: loop {
        for _ in 0..LOOKS_AT_ONCE {
            locked = progress_within(locked, LOOKS_OF_TEST)?;
            match look(locked.endpoint()) {
                Ok(None) => {}
                over => break 'over over,
            }
        }
        if locked.endpoint().wakeups != wakeups {
            break Ok(None);
        }
        let now = Instant::now();
        if let Patience::Until(end) = patience
            && now >= end
        {
            break Ok(None);
        }
        if now.saturating_duration_since(since) < LOOK {
            // Whoever is waited for may need this very processor, the daemon too.
            (locked, ()) = locked.unlocked(std::thread::yield_now)?;
            continue;
        }
        locked = sleep(locked, patience)?;
        since = Instant::now();
    };
    locked.endpoint().hand_over();
    found
}

/// Sleeps, if there is nothing to do. One thread at a time, the leader, sleeps on what partners
/// and the daemon ring, and goes on with what came for all; the others until they are called. Who
/// is woken and then leaves calls another to lead.
#[cold]
fn sleep(mut locked: Locked, patience: Patience) -> Result<Locked, Return> {
    let mut time = SLEEP_MAX;
    if let Patience::Until(end) = patience {
        time = time.min(end.saturating_duration_since(Instant::now()));
    }
    let endpoint = locked.endpoint();
    if endpoint.led {
        // It does not know yet what we wait for: room, or a moment.
        endpoint.core.ears.ring();
        follow(locked, time)
    } else {
        lead(locked, time)
    }
}

fn follow(mut locked: Locked, time: Duration) -> Result<Locked, Return> {
    let room = locked.room();
    let endpoint = locked.endpoint();
    endpoint.followers = endpoint.followers.saturating_add(1);
    let calls = room.calls();
    let (mut locked, ()) = locked.unlocked(|| room.sleep(calls, time))?;
    let endpoint = locked.endpoint();
    endpoint.followers = endpoint.followers.saturating_sub(1);
    Ok(locked)
}

fn lead(mut locked: Locked, time: Duration) -> Result<Locked, Return> {
    let endpoint = locked.endpoint();
    // What the daemon said wakes at once.
    if endpoint.core.look_at_clock() {
        // What it came to is not looked at yet.
        return Ok(locked);
    }
    let deadline = endpoint.core.library.deadline();
    let left = deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now())));
    let time = time.min(left.unwrap_or(time));
    // Without progress there is nothing to look at; who allows it again rings.
    let idle = endpoint.disabled > 0 || endpoint.handling.is_some() || endpoint.core.way.arm();
    if idle {
        endpoint.led = true;
        let (ears, awaited) = (Arc::clone(&endpoint.core.ears), endpoint.core.way.awaited());
        let rung;
        (locked, rung) = locked.unlocked(|| ears.listen(awaited, time))?;
        let endpoint = locked.endpoint();
        endpoint.led = false;
        endpoint.hush(rung);
        // What had no room in its socket is tried again, whether or not it said something.
        if rung.daemon || awaited == causeway_endpoint::ears::Awaited::Descriptors {
            endpoint.core.way.hear_one();
        }
        // The next daemon is looked for.
        if awaited == causeway_endpoint::ears::Awaited::Nothing {
            endpoint.core.hear();
        }
    }
    let endpoint = locked.endpoint();
    endpoint.core.way.disarm();
    endpoint.core.look_at_clock();
    Ok(locked)
}

#[cfg(test)]
mod tests;
