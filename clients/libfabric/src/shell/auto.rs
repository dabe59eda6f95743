//! A thread that goes on with a domain while the application does nothing: for those who ask for
//! `FI_PROGRESS_AUTO`.
//!
//! It has nothing to do with a domain that is used all the time but to see that. When there was no
//! call for a moment it asks partners to ring, and sleeps until they do; with the next call of the
//! application they need not ring any more.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::sleep::{Sleep, doze};
use super::state::{Shared, State};
use super::wait::{self, Sleeper};
use crate::abi::FI_EAGAIN;
use crate::limits::QUIET;
use crate::rdm::Errno;

/// See above.
#[derive(Debug)]
pub struct Auto {
    sleep: Sleep,
    /// All endpoints of the domain.
    eps: Vec<usize>,
    /// Partners were asked to ring.
    pub armed: bool,
    /// The domain is closed.
    ends: bool,
    thread: Option<JoinHandle<()>>,
    /// A child process has no such thread.
    process: u32,
}

/// All endpoints of a domain.
struct All;

impl Sleeper for All {
    fn eps<'a>(&self, state: &'a State) -> Option<&'a Vec<usize>> {
        state.auto.as_ref().map(|auto| &auto.eps)
    }

    fn sleep<'a>(&self, state: &'a State) -> Option<&'a Sleep> {
        state.auto.as_ref().map(|auto| &auto.sleep)
    }
}

/// What is done next.
enum Next {
    End,
    /// Somebody does something: it is looked again in a moment.
    Rest,
    Again,
    Doze(Duration),
}

impl Auto {
    /// Begins with a domain.
    ///
    /// # Errors
    /// The process has too many descriptors or threads.
    pub fn begin(shared: &Arc<Shared>) -> Result<(), Errno> {
        let sleep = Sleep::new()?;
        let fd = sleep.share().ok_or(Errno(FI_EAGAIN))?;
        let process = std::process::id();
        let auto =
            Self { sleep, eps: Vec::new(), armed: false, ends: false, thread: None, process };
        shared.state.with(|state| state.auto = Some(auto));
        let of = Arc::clone(shared);
        let name = std::thread::Builder::new().name("causeway-fi".to_owned());
        let thread = quietly(|| name.spawn(move || run(&of, &fd)));
        let thread = thread.map_err(|error| Errno(error.raw_os_error().unwrap_or(FI_EAGAIN)))?;
        shared.state.with(|state| {
            if let Some(auto) = &mut state.auto {
                auto.thread = Some(thread);
            }
        });
        Ok(())
    }

    /// The domain is closed.
    pub fn end(shared: &Shared) {
        let thread = shared.state.with(|state| {
            let auto = state.auto.as_mut()?;
            auto.ends = true;
            auto.sleep.ring();
            auto.thread.take().filter(|_| auto.process == std::process::id())
        });
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        shared.state.with(|state| state.auto = None);
    }

    /// There is one endpoint more.
    pub fn came(state: &State) {
        if let Some(auto) = &state.auto {
            auto.sleep.ring();
        }
    }

    /// There is one less.
    pub fn went(state: &State, ep: &super::state::Ep) {
        if let Some(auto) = &state.auto {
            auto.sleep.forget(ep);
        }
    }

    /// The application does something: partners need not ring.
    #[cold]
    pub fn leave(state: &mut State) {
        wait::disarm(state, &All);
        if let Some(auto) = &mut state.auto {
            auto.armed = false;
            auto.sleep.ring();
        }
    }

    /// The thread does what there is to do.
    fn turn(state: &mut State, seen: &mut u64) -> Next {
        let calls = state.calls;
        let eps: Vec<usize> = (0..state.eps.len())
            .filter(|at| state.eps.get(*at).is_some_and(Option::is_some))
            .collect();
        let Some(auto) = state.auto.as_mut().filter(|auto| !auto.ends) else { return Next::End };
        if calls != *seen {
            *seen = calls;
            return Next::Rest;
        }
        auto.eps.clone_from(&eps);
        for at in eps {
            let _ = state.with_ep_unseen(at, |ep, env| {
                ep.rdm.progress(env);
                Ok(())
            });
            let watched = (state.auto.as_ref(), state.eps.get(at));
            if let (Some(auto), Some(Some(ep))) = watched
                && !ep.rdm.endpoint.way.parted
            {
                let _ = auto.sleep.watch(ep);
            }
        }
        let idle = wait::arm(state, &All);
        let time = wait::longest(state, &All);
        if !idle {
            wait::disarm(state, &All);
            return Next::Again;
        }
        if let Some(auto) = &mut state.auto {
            auto.armed = true;
            auto.sleep.begin();
        }
        Next::Doze(time)
    }

    /// It slept.
    fn woke(state: &mut State) {
        let Some(auto) = &mut state.auto else { return };
        auto.sleep.end();
        if std::mem::take(&mut auto.armed) {
            wait::disarm(state, &All);
        }
    }
}

fn run(shared: &Shared, fd: &OwnedFd) {
    let mut seen = 0;
    loop {
        match shared.state.with(|state| Auto::turn(state, &mut seen)) {
            Next::End => return,
            Next::Rest => std::thread::sleep(QUIET),
            Next::Again => std::thread::yield_now(),
            Next::Doze(time) => {
                doze(fd.as_fd(), time);
                shared.state.with(Auto::woke);
            }
        }
    }
}

/// Begins a thread that is sent no signals: handlers are the application's, and run in its threads.
pub fn quietly<R>(begin: impl FnOnce() -> R) -> R {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set that the second takes; that fills the other, which the
    // third takes.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let begun = begin();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        begun
    }
}
