//! A stop of the daemon that a client of the control socket requests.
//!
//! [`StopRequest`] records the request and whether frontends of held ports are released, and wakes
//! the thread of [`crate::lifecycle`]: with [`terminate`], the request arrives there as SIGTERM.
//! The call returns before the stop takes place, so that the reply can be sent within
//! [`crate::limits::STOP_REPLY_GRACE`] (200 ms). A stop cannot be withdrawn; a second request
//! replaces `release` and sends a second SIGTERM, which ends the process at once with status 1: for
//! a stop that hangs.
//!
//! `POST /v1/shutdown` ([`crate::api`]) calls [`StopRequest::ask`] on the thread of a connection.
//! Any thread may use it; the fields are atomics.

use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the thread that waits for signals, and records whether held ports are released.
#[derive(Debug)]
pub struct StopRequest {
    /// Whether a client has requested a stop.
    asked: AtomicBool,
    /// Whether the latest request releases the frontends of held ports.
    release: AtomicBool,
    /// Called after each request.
    wake: fn(),
}

impl Default for StopRequest {
    /// Returns a request that wakes no thread.
    fn default() -> Self {
        Self::new(|| {})
    }
}

impl StopRequest {
    /// Returns a request that calls `wake` when a client requests a stop.
    pub fn new(wake: fn()) -> Self {
        Self { asked: AtomicBool::new(false), release: AtomicBool::new(false), wake }
    }

    /// Requests a stop. With `release`, the guests of held ports are disconnected too.
    pub fn ask(&self, release: bool) {
        self.release.store(release, Ordering::Release);
        self.asked.store(true, Ordering::Release);
        (self.wake)();
    }

    /// Returns whether a client has requested a stop.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Returns whether the guests of held ports are to be disconnected.
    pub fn releases(&self) -> bool {
        self.release.load(Ordering::Acquire)
    }
}

/// Sends SIGTERM to this process, so that the stop takes the same path as a SIGTERM from outside.
pub fn terminate() {
    let own = rustix::process::getpid();
    if let Err(error) = rustix::process::kill_process(own, rustix::process::Signal::TERM) {
        log::error!(error:% = error; "cannot stop this process; stop it with kill(1)");
    }
}
