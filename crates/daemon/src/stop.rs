//! A stop that a client of the control socket asks for.

use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the thread that waits for a stop, and remembers how to stop.
#[derive(Debug)]
pub struct StopRequest {
    asked: AtomicBool,
    release: AtomicBool,
    wake: fn(),
}

impl Default for StopRequest {
    /// Returns a request that wakes no thread.
    fn default() -> Self {
        Self::new(|| {})
    }
}

impl StopRequest {
    /// Returns a request that calls `wake` once a client asks for a stop.
    pub fn new(wake: fn()) -> Self {
        Self { asked: AtomicBool::new(false), release: AtomicBool::new(false), wake }
    }

    /// Asks for a stop. With `release`, the guests of held ports are disconnected too.
    pub fn ask(&self, release: bool) {
        self.release.store(release, Ordering::Release);
        self.asked.store(true, Ordering::Release);
        (self.wake)();
    }

    /// Returns whether a client has asked for a stop.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Returns whether the guests of held ports are to be disconnected.
    pub fn releases(&self) -> bool {
        self.release.load(Ordering::Acquire)
    }
}

/// Sends SIGTERM to this process: the stop is the same as one from outside.
pub fn terminate() {
    let own = rustix::process::getpid();
    if let Err(error) = rustix::process::kill_process(own, rustix::process::Signal::TERM) {
        log::error!(error:% = error; "cannot stop this process; stop it with kill(1)");
    }
}
