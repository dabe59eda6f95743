//! The wake-ups of a group of endpoints: requests from peers and the daemon before a thread sleeps,
//! and their withdrawal after.
//!
//! A wake-up is requested before a thread sleeps, so none is lost; the thread must not sleep if an
//! event arrived meanwhile. [`WaitSet::arm`] and [`WaitSet::disarm`] must be called in pairs, under
//! the lock of the domain. The module changes endpoints only; [`state`](super::state) chooses the
//! group and wakes other threads, [`wait`](super::wait) sleeps.

use std::time::Duration;

use causeway_endpoint::waiter::Awaited;

use super::objects::EpState;
use super::wait_fd::WaitFd;
use crate::limits::SLEEP_MAX;
use crate::rdm::PARTNER_CHECK;

/// The endpoints of a queue, a counter or a progress thread, by index, and its wait object.
#[derive(Debug, Clone, Copy)]
pub struct WaitSet<'a> {
    /// The endpoints.
    eps: &'a [usize],
    /// The wait object, if there is one.
    wait_fd: Option<&'a WaitFd>,
}

impl<'a> WaitSet<'a> {
    /// No endpoints, and no wait object.
    pub const EMPTY: Self = Self { eps: &[], wait_fd: None };

    /// Returns the set of these endpoints.
    #[inline]
    pub fn new(eps: &'a [usize], wait_fd: Option<&'a WaitFd>) -> Self {
        Self { eps, wait_fd }
    }

    /// Returns the endpoints.
    #[inline]
    pub fn eps(&self) -> &'a [usize] {
        self.eps
    }

    /// Returns the wait object.
    #[inline]
    pub fn wait_fd(&self) -> Option<&'a WaitFd> {
        self.wait_fd
    }

    /// Requests wake-ups of the endpoints, which are in `all`. Returns `false` if an event arrived.
    pub fn arm(&self, all: &mut [Option<EpState>]) -> bool {
        let mut idle = true;
        for at in self.eps {
            let Some(Some(ep)) = all.get_mut(*at) else { continue };
            // The next daemon has another socket.
            if ep.rdm.endpoint.paths.resumed() > 0
                && let Some(wait_fd) = self.wait_fd
            {
                let _ = wait_fd.watch(&ep.rdm);
            }
            idle &= ep.rdm.arm();
        }
        idle
    }

    /// Withdraws the request of [`Self::arm`] and processes the wake-ups.
    pub fn disarm(&self, all: &mut [Option<EpState>]) {
        for at in self.eps {
            let Some(Some(ep)) = all.get_mut(*at) else { continue };
            let endpoint = &mut ep.rdm.endpoint;
            endpoint.hear_all();
            endpoint.paths.disarm();
            if endpoint.paths.has_no_daemon
                && let Some(wait_fd) = self.wait_fd
            {
                wait_fd.unwatch_daemon(&ep.rdm);
            }
        }
    }

    /// Returns whether a time-out is pending.
    pub fn has_deadline(&self, all: &[Option<EpState>]) -> bool {
        let mut eps = self.eps.iter().filter_map(|at| all.get(*at)?.as_ref());
        eps.any(|ep| ep.rdm.endpoint.time_left().is_some() || ep.rdm.must_check_partners())
    }

    /// Returns the longest sleep without a wake-up.
    pub fn longest_sleep(&self, all: &[Option<EpState>]) -> Duration {
        let mut longest = SLEEP_MAX;
        for at in self.eps {
            let Some(Some(ep)) = all.get(*at) else { continue };
            if ep.rdm.must_check_partners() {
                longest = longest.min(PARTNER_CHECK);
            }
            let endpoint = &ep.rdm.endpoint;
            if let Some(left) = endpoint.time_left() {
                longest = longest.min(left);
            }
            match endpoint.paths.awaited() {
                Awaited::Words => {}
                Awaited::Nothing => {
                    longest = longest.min(causeway_endpoint::limits::RESUME_PAUSE_MAX);
                }
                _ => longest = longest.min(causeway_endpoint::limits::STUCK_MAX),
            }
        }
        longest
    }
}
