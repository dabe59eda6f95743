//! How calls go on, and wait: they look for a moment, then sleep on the endpoint's doorbell.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_message::library::{Action, Asked, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::EndpointAddr;
use crate::code::Return;
use crate::endpoint::{Endpoint, Handler, now};
use crate::limits::{LOOK, LOOKS_AT_ONCE, LOOKS_OF_TEST, SLEEP_MAX};
use crate::table::{self, Locked};

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

/// Goes on with what came in; runs the handler if it is to be asked. Nothing is left, or enough
/// was done for one call.
#[inline]
pub fn progress(locked: Locked) -> Result<Locked, Return> {
    progress_within(locked, 1)
}

/// As [`progress`], and looks so often whether something comes.
#[inline]
fn progress_within(mut locked: Locked, looks: u32) -> Result<Locked, Return> {
    let mut left = looks;
    loop {
        match locked.endpoint()?.step() {
            Step::Ask(asked) => locked = ask(locked, asked)?,
            Step::Idle if left > 1 => left = left.saturating_sub(1),
            _ => return Ok(locked),
        }
    }
}

/// Asks the application's handler about a message.
#[cold]
fn ask(mut locked: Locked, asked: Asked) -> Result<Locked, Return> {
    let endpoint = locked.endpoint()?;
    let source = endpoint.address(asked.partner);
    let handler = endpoint.handler;
    let mut bytes = vec![0_u8; if asked.whole { asked.len as usize } else { 0 }];
    endpoint.library.asked_bytes(&endpoint.way, &mut bytes);
    endpoint.handling = Some(std::thread::current().id());
    let Some(handler) = handler else { return answer(locked, Action::Continue) };
    let (locked, action) = locked.unlocked(|| run(handler, source, asked, &mut bytes))?;
    answer(locked, action)
}

fn run(handler: Handler, source: EndpointAddr, asked: Asked, bytes: &mut [u8]) -> Action {
    let data = if asked.whole { bytes.as_mut_ptr().cast() } else { std::ptr::null_mut() };
    let context = std::ptr::without_provenance_mut::<c_void>(handler.context);
    match (handler.run)(context, source, asked.match_info, asked.len, data) {
        1 => Action::Finished,
        _ => Action::Continue,
    }
}

fn answer(mut locked: Locked, action: Action) -> Result<Locked, Return> {
    let endpoint = locked.endpoint()?;
    endpoint.handling = None;
    endpoint.library.answer(&mut endpoint.way, action);
    if endpoint.sleepers > 0 {
        endpoint.ring();
    }
    Ok(locked)
}

/// Looks for something until it is there or patience ends.
#[inline]
pub fn until<T>(
    handle: *mut c_void,
    patience: Patience,
    mut look: impl FnMut(&mut Endpoint) -> Result<Option<T>, Return>,
) -> Result<Option<T>, Return> {
    let mut locked = table::lock(handle)?;
    if let Some(found) = look(locked.endpoint()?)? {
        return Ok(Some(found));
    }
    // Most of a call is taking the lock: look some more while it is held.
    locked = progress_within(locked, LOOKS_OF_TEST)?;
    if let Some(found) = look(locked.endpoint()?)? {
        return Ok(Some(found));
    }
    match patience {
        Patience::None => Ok(None),
        patience => wait(locked, patience, look),
    }
}

fn wait<T>(
    mut locked: Locked,
    patience: Patience,
    mut look: impl FnMut(&mut Endpoint) -> Result<Option<T>, Return>,
) -> Result<Option<T>, Return> {
    let wakeups = locked.endpoint()?.wakeups;
    let mut since = Instant::now();
    loop {
        for _ in 0..LOOKS_AT_ONCE {
            locked = progress_within(locked, LOOKS_OF_TEST)?;
            if let Some(found) = look(locked.endpoint()?)? {
                return Ok(Some(found));
            }
        }
        let endpoint = locked.endpoint()?;
        if endpoint.wakeups != wakeups {
            if endpoint.sleepers > 0 {
                // We took from the doorbell what was for them too.
                endpoint.ring();
            }
            return Ok(None);
        }
        let now = Instant::now();
        if let Patience::Until(end) = patience
            && now >= end
        {
            return Ok(None);
        }
        if now.saturating_duration_since(since) < LOOK {
            (locked, ()) = locked.unlocked(std::hint::spin_loop)?;
            continue;
        }
        locked = sleep(locked, patience)?;
        since = Instant::now();
    }
}

/// Sleeps until the doorbell rings, if there is nothing to do.
#[cold]
fn sleep(mut locked: Locked, patience: Patience) -> Result<Locked, Return> {
    let endpoint = locked.endpoint()?;
    endpoint.look();
    let mut time = SLEEP_MAX;
    if let Patience::Until(end) = patience {
        time = time.min(end.saturating_duration_since(Instant::now()));
    }
    if let Some(deadline) = endpoint.library.deadline() {
        time = time.min(Duration::from_nanos(deadline.saturating_sub(now())));
    }
    let idle = endpoint.disabled > 0 || endpoint.handling.is_some() || endpoint.way.arm();
    if !idle {
        rest(endpoint);
        return Ok(locked);
    }
    endpoint.sleepers = endpoint.sleepers.saturating_add(1);
    let bell = Arc::clone(&endpoint.bell);
    let socket = (!endpoint.way.parted)
        .then(|| std::os::fd::AsFd::as_fd(&endpoint.way.conversation).try_clone_to_owned().ok());
    let (mut locked, ()) = locked.unlocked(|| {
        let mut all = vec![PollFd::new(&*bell, PollFlags::IN)];
        if let Some(Some(socket)) = &socket {
            all.push(PollFd::new(socket, PollFlags::IN));
        }
        let time = Timespec::try_from(time).ok();
        let _ = poll(&mut all, time.as_ref());
    })?;
    let endpoint = locked.endpoint()?;
    endpoint.sleepers = endpoint.sleepers.saturating_sub(1);
    let mut count = [0_u8; 8];
    let _ = rustix::io::read(&*endpoint.bell, &mut count);
    rest(endpoint);
    endpoint.look();
    Ok(locked)
}

/// Nobody needs to ring for us, unless others sleep.
fn rest(endpoint: &mut Endpoint) {
    if endpoint.sleepers == 0 {
        endpoint.way.channels.disarm();
    }
}
