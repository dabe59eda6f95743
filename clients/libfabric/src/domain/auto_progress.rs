//! The record of a domain's progress thread: its endpoints, its sleep and its end.
//!
//! The thread ([`progress_thread`](super::progress_thread)) and the calls of the application share
//! the record under the lock of the domain: a call sees whether the thread requested wake-ups, and
//! ends its sleep. The module neither starts nor joins the thread.

use std::thread::JoinHandle;

use super::wait_fd::WaitFd;
use super::wait_set::WaitSet;
use crate::rdm::Rdm;

/// The record of a progress thread.
#[derive(Debug)]
pub struct AutoProgress {
    /// The wait object that the thread sleeps on.
    wait_fd: WaitFd,
    /// All endpoints of the domain.
    eps: Vec<usize>,
    /// Whether wake-ups are requested from peers.
    armed: bool,
    /// Whether the domain is being closed.
    ends: bool,
    /// The thread; `None` until it has started and while it is joined.
    thread: Option<JoinHandle<()>>,
    /// The number of the process that has the thread: a child process must not join it.
    process: u32,
}

impl AutoProgress {
    /// Returns the record of a thread of this process that starts now.
    pub fn new(wait_fd: WaitFd) -> Self {
        let process = std::process::id();
        Self { wait_fd, eps: Vec::new(), armed: false, ends: false, thread: None, process }
    }

    /// Records the thread after its start.
    pub fn set_thread(&mut self, thread: JoinHandle<()>) {
        self.thread = Some(thread);
    }

    /// Lets the thread end. Returns the thread, unless it is one of a parent process.
    pub fn end(&mut self) -> Option<JoinHandle<()>> {
        self.ends = true;
        self.wait_fd.signal_fd();
        self.thread.take().filter(|_| self.process == std::process::id())
    }

    /// Returns whether the thread must end.
    pub fn has_ended(&self) -> bool {
        self.ends
    }

    /// Ends the thread's sleep, because there is a new endpoint.
    pub fn wake_thread(&self) {
        self.wait_fd.signal_fd();
    }

    /// Sets the endpoints that the thread sleeps for.
    pub fn set_eps(&mut self, eps: &[usize]) {
        eps.clone_into(&mut self.eps);
    }

    /// Watches the wake-up descriptors of an endpoint. Without a free descriptor its messages are
    /// found after the longest sleep.
    pub fn watch(&self, rdm: &Rdm) {
        let _ = self.wait_fd.watch(rdm);
    }

    /// Stops watching an endpoint that is closed.
    pub fn unwatch(&self, rdm: &Rdm) {
        self.wait_fd.unwatch(rdm);
    }

    /// Returns the endpoints and the wait object.
    pub fn wait_set(&self) -> WaitSet<'_> {
        WaitSet::new(&self.eps, Some(&self.wait_fd))
    }

    /// Returns whether wake-ups are requested from peers.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Records that wake-ups are requested and the thread is about to sleep.
    pub fn begin_sleep(&mut self) {
        self.armed = true;
        self.wait_fd.begin();
    }

    /// Records that the thread slept. Returns whether wake-ups are still requested.
    pub fn end_sleep(&mut self) -> bool {
        self.wait_fd.end();
        std::mem::take(&mut self.armed)
    }

    /// Records that the wake-ups were withdrawn, and ends the thread's sleep.
    pub fn disarm(&mut self) {
        self.armed = false;
        self.wait_fd.signal_fd();
    }
}
