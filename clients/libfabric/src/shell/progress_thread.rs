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
//! `domain` starts and ends the thread; `state` disarms it on each call; `wait` arms the endpoints.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_endpoint::threads::spawn_unsignalled;

use super::state::{DomainShared, DomainState};
use super::wait::{self, WaitTarget};
use super::wait_fd::{WaitFd, sleep_on};
use crate::abi::FI_EAGAIN;
use crate::errno::Errno;
use crate::limits::AUTO_PROGRESS_DELAY;

/// The state of the progress thread.
#[derive(Debug)]
pub struct ProgressThread {
    /// The wait object that the thread sleeps on.
    wait_fd: WaitFd,
    /// All endpoints of the domain.
    eps: Vec<usize>,
    /// Whether wake-ups are requested from peers.
    pub armed: bool,
    /// Whether the domain is being closed.
    ends: bool,
    /// The thread; `None` until it has started and while it is joined.
    thread: Option<JoinHandle<()>>,
    /// The number of the process that has the thread: a child process must not join it.
    process: u32,
}

/// All endpoints of a domain.
struct AllEndpoints;

impl WaitTarget for AllEndpoints {
    fn eps<'a>(&self, state: &'a DomainState) -> Option<&'a Vec<usize>> {
        state.auto.as_ref().map(|auto| &auto.eps)
    }

    fn wait_fd<'a>(&self, state: &'a DomainState) -> Option<&'a WaitFd> {
        state.auto.as_ref().map(|auto| &auto.wait_fd)
    }
}

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

impl ProgressThread {
    /// Starts the thread of a domain.
    ///
    /// # Errors
    /// The process has too many descriptors or threads.
    pub fn begin(shared: &Arc<DomainShared>) -> Result<(), Errno> {
        let wait_fd = WaitFd::new()?;
        let fd = wait_fd.try_clone().ok_or(Errno(FI_EAGAIN))?;
        let process = std::process::id();
        let auto =
            Self { wait_fd, eps: Vec::new(), armed: false, ends: false, thread: None, process };
        shared.state.with(|state| state.auto = Some(auto));
        let of = Arc::clone(shared);
        let name = std::thread::Builder::new().name("causeway-fi".to_owned());
        let thread = spawn_unsignalled(|| name.spawn(move || run(&of, &fd)));
        let thread = thread.map_err(|error| Errno(error.raw_os_error().unwrap_or(FI_EAGAIN)))?;
        shared.state.with(|state| {
            if let Some(auto) = &mut state.auto {
                auto.thread = Some(thread);
            }
        });
        Ok(())
    }

    /// Ends the thread when the domain is closed.
    pub fn end(shared: &DomainShared) {
        let thread = shared.state.with(|state| {
            let auto = state.auto.as_mut()?;
            auto.ends = true;
            auto.wait_fd.signal_fd();
            auto.thread.take().filter(|_| auto.process == std::process::id())
        });
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        shared.state.with(|state| state.auto = None);
    }

    /// Notifies the thread of a new endpoint.
    pub fn endpoint_opened(state: &DomainState) {
        if let Some(auto) = &state.auto {
            auto.wait_fd.signal_fd();
        }
    }

    /// Notifies the thread of a closed endpoint.
    pub fn endpoint_closed(state: &DomainState, ep: &super::state::EpState) {
        if let Some(auto) = &state.auto {
            auto.wait_fd.unwatch(ep);
        }
    }

    /// Withdraws the wake-ups, because the application is active.
    #[cold]
    pub fn disarm(state: &mut DomainState) {
        wait::disarm(state, &AllEndpoints);
        if let Some(auto) = &mut state.auto {
            auto.armed = false;
            auto.wait_fd.signal_fd();
        }
    }

    /// Makes progress, and returns the next action.
    fn step(state: &mut DomainState, seen: &mut u64) -> ThreadStep {
        let calls = state.calls;
        let eps: Vec<usize> = (0..state.eps.len())
            .filter(|at| state.eps.get(*at).is_some_and(Option::is_some))
            .collect();
        let Some(auto) = state.auto.as_mut().filter(|auto| !auto.ends) else {
            return ThreadStep::End;
        };
        if calls != *seen {
            *seen = calls;
            return ThreadStep::Pause;
        }
        auto.eps.clone_from(&eps);
        for at in eps {
            let _ = state.with_ep_internal(at, |ep, env| {
                ep.rdm.progress(env);
                Ok(())
            });
            let watched = (state.auto.as_ref(), state.eps.get(at));
            if let (Some(auto), Some(Some(ep))) = watched
                && !ep.rdm.endpoint.paths.has_no_daemon
            {
                let _ = auto.wait_fd.watch(ep);
            }
        }
        let idle = wait::arm(state, &AllEndpoints);
        let time = wait::longest_sleep(state, &AllEndpoints);
        if !idle {
            wait::disarm(state, &AllEndpoints);
            return ThreadStep::Again;
        }
        if let Some(auto) = &mut state.auto {
            auto.armed = true;
            auto.wait_fd.begin();
        }
        ThreadStep::Sleep(time)
    }

    /// Withdraws the wake-ups after a sleep.
    fn after_sleep(state: &mut DomainState) {
        let Some(auto) = &mut state.auto else { return };
        auto.wait_fd.end();
        if std::mem::take(&mut auto.armed) {
            wait::disarm(state, &AllEndpoints);
        }
    }
}

/// The thread.
fn run(shared: &DomainShared, fd: &OwnedFd) {
    let mut seen = 0;
    loop {
        match shared.state.with(|state| ProgressThread::step(state, &mut seen)) {
            ThreadStep::End => return,
            ThreadStep::Pause => std::thread::sleep(AUTO_PROGRESS_DELAY),
            ThreadStep::Again => std::thread::yield_now(),
            ThreadStep::Sleep(time) => {
                sleep_on(fd.as_fd(), time);
                shared.state.with(ProgressThread::after_sleep);
            }
        }
    }
}
