//! The progress thread of a domain with `FI_PROGRESS_AUTO`: it makes progress while the application
//! makes no calls.
//!
//! While the application calls, the thread only observes that. After [`AUTO_PROGRESS_DELAY`] (2 ms)
//! without calls it makes progress, requests wake-ups from peers and sleeps until one arrives, at
//! most 1 s; the next call of the application that reaches an endpoint (an operation, or a read of
//! a queue or counter) withdraws the request.
//!
//! # Limits
//! A message may therefore wait up to twice [`AUTO_PROGRESS_DELAY`] after the application's last
//! call. The thread progresses all endpoints of its domain under the domain's lock and reports
//! completions in the usual queues; it calls no function of the application. A domain whose thread
//! cannot start is not opened. A domain with manual progress has no such thread; a child process
//! does not have its parent's.
//!
//! # Place
//! `shell::domain` starts and ends the thread. The thread shares its record with the calls of the
//! application ([`auto_progress`](super::auto_progress)): [`state`](super::state) arms the endpoints
//! for it, and disarms them on each call.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use causeway_endpoint::threads::spawn_unsignalled;

use super::auto_progress::AutoProgress;
use super::state::{DomainShared, DomainState, WaitTarget};
use super::wait_fd::{WaitFd, sleep_on};
use crate::abi::FI_EAGAIN;
use crate::errno::Errno;
use crate::limits::AUTO_PROGRESS_DELAY;

/// The next action of the thread.
enum ThreadStep {
    /// The domain is being closed.
    End,
    /// The application is active: check again after a pause.
    Pause,
    /// An event arrived while wake-ups were requested: poll again.
    Again,
    /// Sleep for at most this time.
    Sleep(Duration),
}

/// Starts the thread of a domain.
///
/// # Errors
/// The process has too many descriptors or threads.
pub fn begin(shared: &Arc<DomainShared>) -> Result<(), Errno> {
    let wait_fd = WaitFd::new()?;
    let fd = wait_fd.try_clone().ok_or(Errno(FI_EAGAIN))?;
    shared.state.with(|state| state.auto = Some(AutoProgress::new(wait_fd)));
    let of = Arc::clone(shared);
    let name = std::thread::Builder::new().name("causeway-fi".to_owned());
    let thread = spawn_unsignalled(|| name.spawn(move || run(&of, &fd)));
    let thread = thread.map_err(|error| Errno(error.raw_os_error().unwrap_or(FI_EAGAIN)))?;
    shared.state.with(|state| {
        if let Some(auto) = &mut state.auto {
            auto.set_thread(thread);
        }
    });
    Ok(())
}

/// Ends the thread when the domain is closed.
pub fn end(shared: &DomainShared) {
    let thread = shared.state.with(|state| state.auto.as_mut()?.end());
    if let Some(thread) = thread {
        let _ = thread.join();
    }
    shared.state.with(|state| state.auto = None);
}

/// The thread.
fn run(shared: &DomainShared, fd: &OwnedFd) {
    let mut seen = 0;
    loop {
        match shared.state.with(|state| step(state, &mut seen)) {
            ThreadStep::End => return,
            ThreadStep::Pause => std::thread::sleep(AUTO_PROGRESS_DELAY),
            ThreadStep::Again => std::thread::yield_now(),
            ThreadStep::Sleep(time) => {
                sleep_on(fd.as_fd(), time);
                shared.state.with(after_sleep);
            }
        }
    }
}

/// Makes progress, and returns the next action.
fn step(state: &mut DomainState, seen: &mut u64) -> ThreadStep {
    let calls = state.calls;
    let eps: Vec<usize> =
        (0..state.eps.len()).filter(|at| state.eps.get(*at).is_some_and(Option::is_some)).collect();
    let Some(auto) = state.auto.as_mut().filter(|auto| !auto.has_ended()) else {
        return ThreadStep::End;
    };
    if calls != *seen {
        *seen = calls;
        return ThreadStep::Pause;
    }
    auto.set_eps(&eps);
    for at in eps {
        let _ = state.with_ep_internal(at, |ep, env| {
            ep.rdm.progress(env);
            Ok(())
        });
        let watched = (state.auto.as_ref(), state.eps.get(at));
        if let (Some(auto), Some(Some(ep))) = watched
            && !ep.rdm.endpoint.paths.has_no_daemon
        {
            auto.watch(&ep.rdm);
        }
    }
    let idle = state.arm(WaitTarget::All);
    let time = state.longest_sleep(WaitTarget::All);
    if !idle {
        state.disarm(WaitTarget::All);
        return ThreadStep::Again;
    }
    if let Some(auto) = &mut state.auto {
        auto.begin_sleep();
    }
    ThreadStep::Sleep(time)
}

/// Withdraws the wake-ups after a sleep.
fn after_sleep(state: &mut DomainState) {
    if state.auto.as_mut().is_some_and(AutoProgress::end_sleep) {
        state.disarm(WaitTarget::All);
    }
}
