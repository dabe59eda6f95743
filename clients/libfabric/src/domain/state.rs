//! The state of a domain: all of its objects behind a single lock.
//!
//! The lock costs nothing in applications with a single thread ([`causeway_endpoint::lock`]);
//! applications with several threads open a domain for each if they need concurrency.
//!
//! Each call of the C interface runs [`DomainState::with_ep`] or [`DomainState::progress`], which
//! call `rdm` and then route its completions (`route`). Before a thread sleeps, and
//! after, [`DomainState::arm`] and [`DomainState::disarm`] request and withdraw the wake-ups of
//! endpoints. The state starts no thread and never sleeps.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_endpoint::lock::Guarded;
use causeway_message::library::FastMiss;

use super::auto_progress::AutoProgress;
use super::objects::{CntrState, CqState, EpState, get, insert};
use super::route::{count, counter, route};
use super::wait_fd::WaitFd;
use super::wait_set::WaitSet;
use crate::errno::Errno;
use crate::limits::{COMPLETIONS_MAX, MISSES_FAR};
use crate::rdm::stats::{RECEIVED, SENT};
use crate::rdm::{AddressVector, ConnectHelper, DomainEnv, OpCompletion, RegionTable};

/// The state of a domain. A closed object leaves its index to the next one.
#[derive(Debug, Default)]
pub struct DomainState {
    /// Endpoints by index.
    pub eps: Vec<Option<EpState>>,
    /// Completion queues by index.
    pub cqs: Vec<Option<CqState>>,
    /// Counters by index.
    pub cntrs: Vec<Option<CntrState>>,
    /// Address vectors by index.
    pub vectors: Vec<Option<AddressVector>>,
    /// Memory regions by key.
    pub regions: RegionTable,
    /// An empty vector, for an endpoint without an address vector.
    empty_vector: AddressVector,
    /// Empty polls in a row.
    pub misses: u32,
    /// Number of calls of the application that reached an endpoint.
    pub calls: u64,
    /// Threads of the application that sleep, or may.
    pub asleep: usize,
    /// Whether there was progress since sleeping threads were last woken.
    pub worked: bool,
    /// The thread for automatic progress.
    pub auto: Option<AutoProgress>,
}

/// A completion that goes to the reader of a queue without being queued.
#[derive(Debug, Clone, Copy)]
pub struct FastCompletion {
    /// The completion.
    pub done: OpCompletion,
    /// The format of the queue's entries.
    pub format: u32,
    /// Whether another such completion may be available.
    pub more: bool,
}

/// The part of a domain that all of its objects share.
#[derive(Debug)]
pub struct DomainShared {
    /// The state under the domain's lock.
    pub state: Guarded<DomainState>,
    /// The thread that continues connects, if the domain has no progress thread.
    pub helper: OnceLock<Arc<dyn ConnectHelper>>,
    /// The domain's NIC, by number.
    pub nic_index: u32,
    /// Objects that were opened from the domain and are not closed.
    pub children: AtomicUsize,
    /// Whether memory is addressed by virtual addresses, with keys of the provider (`FI_MR_BASIC`).
    pub basic: bool,
    /// The version of libfabric's interface that the application was built for.
    pub api_version: u32,
}

/// A group of endpoints that threads wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitTarget {
    /// The endpoints of a completion queue, by its index.
    Cq(usize),
    /// The endpoints of a counter, by its index.
    Cntr(usize),
    /// All endpoints, for the progress thread.
    All,
}

impl WaitTarget {
    /// Returns the endpoints and their wait object; no endpoint if the queue or counter is closed.
    fn set<'a>(
        self,
        cqs: &'a [Option<CqState>],
        cntrs: &'a [Option<CntrState>],
        auto: Option<&'a AutoProgress>,
    ) -> WaitSet<'a> {
        let set = match self {
            Self::Cq(at) => match cqs.get(at) {
                Some(Some(cq)) => Some(WaitSet::new(&cq.eps, cq.wait_fd.as_ref())),
                _ => None,
            },
            Self::Cntr(at) => match cntrs.get(at) {
                Some(Some(cntr)) => Some(WaitSet::new(&cntr.eps, cntr.wait_fd.as_ref())),
                _ => None,
            },
            Self::All => auto.map(AutoProgress::wait_set),
        };
        set.unwrap_or(WaitSet::EMPTY)
    }
}

impl DomainState {
    /// Adds an endpoint, and returns its index.
    pub fn add_ep(&mut self, ep: EpState) -> usize {
        if let Some(auto) = &self.auto {
            auto.wake_thread();
        }
        insert(&mut self.eps, ep)
    }

    /// Removes an endpoint from its queues, its counters and the domain, and returns it.
    pub fn remove_ep(&mut self, at: usize) -> Option<EpState> {
        let Self { eps, cqs, cntrs, auto, .. } = self;
        let ep = eps.get_mut(at).and_then(Option::take);
        let cqs = cqs.iter_mut().flatten().map(|cq| (&mut cq.eps, &cq.wait_fd));
        let cntrs = cntrs.iter_mut().flatten().map(|cntr| (&mut cntr.eps, &cntr.wait_fd));
        for (bound, wait_fd) in cqs.chain(cntrs).filter(|(bound, _)| bound.contains(&at)) {
            bound.retain(|&other| other != at);
            if let (Some(wait_fd), Some(ep)) = (wait_fd, &ep) {
                wait_fd.unwatch(&ep.rdm);
            }
        }
        if let (Some(auto), Some(ep)) = (auto, &ep) {
            auto.unwatch(&ep.rdm);
        }
        ep
    }

    /// Runs `run` with an endpoint for a call of the application, and routes the completions.
    ///
    /// # Errors
    /// The error of `run`, or `FI_EINVAL` for a closed endpoint.
    #[inline]
    pub fn with_ep<R>(
        &mut self,
        at: usize,
        run: impl FnOnce(&mut EpState, DomainEnv<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.calls = self.calls.wrapping_add(1);
        if self.auto.as_ref().is_some_and(AutoProgress::is_armed) {
            self.disarm_auto();
        }
        self.with_ep_internal(at, run)
    }

    /// Runs `run` as [`Self::with_ep`] does, for a thread of the provider: it does not count as
    /// activity of the application.
    ///
    /// # Errors
    /// Those of [`Self::with_ep`].
    #[inline]
    pub fn with_ep_internal<R>(
        &mut self,
        at: usize,
        run: impl FnOnce(&mut EpState, DomainEnv<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let Self { eps, cqs, cntrs, vectors, regions, empty_vector, misses, .. } = self;
        let ep = get(eps, at)?;
        let vector = vector(ep, vectors, empty_vector);
        let done = run(ep, DomainEnv { vector, regions });
        if !ep.rdm.completions.is_empty() {
            *misses = initial_misses(ep);
            route(ep, cqs, cntrs);
        }
        let quiet = ep.rdm.stats.take_injected();
        if quiet > 0 {
            *misses = initial_misses(ep);
            if let Some(cntr) = counter(&ep.counters, cntrs, SENT) {
                count(cntr, quiet, 0);
            }
        }
        if ep.rdm.take_slept() && self.asleep > 0 {
            self.wake(at);
        }
        done
    }

    /// Lets an endpoint make progress.
    #[inline]
    pub fn progress(&mut self, at: usize) {
        let worked =
            self.with_ep(at, |ep, env| Ok(ep.rdm.progress(env).then(|| initial_misses(ep))));
        if let Ok(Some(misses)) = worked {
            self.misses = misses;
            self.worked = true;
        }
    }

    /// Receives a message for an empty queue without queueing its completion
    /// ([`Rdm::receive_fast`](crate::rdm::Rdm::receive_fast)).
    ///
    /// # Errors
    /// [`FastMiss::Nothing`] if no message arrived; otherwise all endpoints of the queue must make
    /// progress.
    #[inline(always)]
    pub fn receive_fast(&mut self, at: usize) -> Result<FastCompletion, FastMiss> {
        let Self { eps, cqs, cntrs, vectors, regions, empty_vector, .. } = self;
        let Some(Some(cq)) = cqs.get(at) else { return Err(FastMiss::Unsure) };
        let [only] = *cq.eps.as_slice() else { return Err(FastMiss::Unsure) };
        let Some(Some(ep)) = eps.get_mut(only) else { return Err(FastMiss::Unsure) };
        let app_sleeping = cq.wait_fd.as_ref().is_some_and(WaitFd::is_app_sleeping);
        if app_sleeping
            || ep.rx.is_none_or(|rx| rx.cq != at)
            || self.auto.as_ref().is_some_and(AutoProgress::is_armed)
        {
            return Err(FastMiss::Unsure);
        }
        self.calls = self.calls.wrapping_add(1);
        let vector = vector(ep, vectors, empty_vector);
        match ep.rdm.receive_fast(DomainEnv { vector, regions }) {
            Ok((done, more)) => {
                if let Some(cntr) = counter(&ep.counters, cntrs, RECEIVED) {
                    count(cntr, 1, 0);
                }
                (self.misses, self.worked) = (initial_misses(ep), true);
                Ok(FastCompletion { done, format: cq.format, more })
            }
            Err(missed) => {
                match missed {
                    FastMiss::Nothing => self.misses = self.misses.wrapping_add(1),
                    FastMiss::Worked => (self.misses, self.worked) = (initial_misses(ep), true),
                    FastMiss::Unsure => {}
                }
                Err(missed)
            }
        }
    }

    /// Returns the endpoints of a target and their wait object.
    #[inline]
    pub fn wait_set(&self, of: WaitTarget) -> WaitSet<'_> {
        of.set(&self.cqs, &self.cntrs, self.auto.as_ref())
    }

    /// Requests wake-ups for a thread that is about to sleep. Returns `false` if an event arrived,
    /// so that the thread must not sleep. [`Self::disarm`] must follow in either case, under the
    /// lock as well.
    pub fn arm(&mut self, of: WaitTarget) -> bool {
        let Self { eps, cqs, cntrs, auto, .. } = self;
        of.set(cqs, cntrs, auto.as_ref()).arm(eps)
    }

    /// Withdraws the request of [`Self::arm`] and processes the wake-ups. Other sleeping threads
    /// poll as well.
    #[cold]
    pub fn disarm(&mut self, of: WaitTarget) {
        let Self { eps, cqs, cntrs, auto, asleep, .. } = self;
        of.set(cqs, cntrs, auto.as_ref()).disarm(eps);
        if *asleep == 0 {
            return;
        }
        let cqs = cqs.iter().flatten().filter_map(|cq| cq.wait_fd.as_ref());
        let cntrs = cntrs.iter().flatten().filter_map(|cntr| cntr.wait_fd.as_ref());
        cqs.chain(cntrs).for_each(WaitFd::wake);
    }

    /// Withdraws the wake-ups of the progress thread, because the application is active.
    #[cold]
    fn disarm_auto(&mut self) {
        self.disarm(WaitTarget::All);
        if let Some(auto) = &mut self.auto {
            auto.disarm();
        }
    }

    /// Returns the longest sleep of a target without a wake-up.
    pub fn longest_sleep(&self, of: WaitTarget) -> Duration {
        self.wait_set(of).longest_sleep(&self.eps)
    }

    /// Returns whether a time-out of a target's endpoints is pending.
    pub fn has_deadline(&self, of: WaitTarget) -> bool {
        self.wait_set(of).has_deadline(&self.eps)
    }

    /// Wakes the threads that wait for an endpoint with pending work: another thread started an
    /// operation that only the sleeping threads continue.
    #[cold]
    pub fn wake_if_busy(&mut self, at: usize) {
        if self.eps.get(at).is_some_and(|ep| ep.as_ref().is_some_and(|ep| ep.rdm.is_busy())) {
            self.wake(at);
        }
    }

    /// Wakes the threads that wait for an endpoint.
    #[cold]
    pub fn wake(&self, at: usize) {
        let cqs = self.cqs.iter().flatten().map(|cq| (&cq.eps, &cq.wait_fd));
        let cntrs = self.cntrs.iter().flatten().map(|cntr| (&cntr.eps, &cntr.wait_fd));
        for (eps, wait_fd) in cqs.chain(cntrs) {
            if let Some(wait_fd) = wait_fd.as_ref().filter(|_| eps.contains(&at)) {
                wait_fd.wake();
            }
        }
    }

    /// Lets peers' operations continue once a queue that was full has at most half of
    /// [`COMPLETIONS_MAX`] (65,536) entries.
    #[cold]
    pub fn resume_held(&mut self, at: usize) {
        let Self { eps, cqs, .. } = self;
        let Some(Some(cq)) = cqs.get_mut(at) else { return };
        if cq.entries.len() > COMPLETIONS_MAX / 2 {
            return;
        }
        cq.full = false;
        for ep in eps.iter_mut().flatten() {
            if ep.rx.is_some_and(|rx| rx.cq == at) {
                ep.rdm.is_cq_full = false;
            }
        }
    }

    /// Lets all endpoints of a queue or a counter make progress.
    #[inline]
    pub fn progress_all(&mut self, eps: impl Fn(&Self) -> Option<&Vec<usize>>) {
        self.misses = self.misses.wrapping_add(1);
        let mut next = 0_usize;
        while let Some(at) = eps(self).and_then(|eps| eps.get(next)).copied() {
            self.progress(at);
            next = next.saturating_add(1);
        }
    }
}

/// Returns the count of empty polls from which counting starts after progress: [`MISSES_FAR`] (60)
/// if the last message came through the daemon, else 0.
#[inline]
fn initial_misses(ep: &EpState) -> u32 {
    if ep.rdm.endpoint.paths.is_through_daemon { MISSES_FAR } else { 0 }
}

/// Returns the address vector of an endpoint.
#[inline]
fn vector<'a>(
    ep: &EpState,
    vectors: &'a [Option<AddressVector>],
    empty_vector: &'a AddressVector,
) -> &'a AddressVector {
    ep.vector.and_then(|vector| vectors.get(vector)?.as_ref()).unwrap_or(empty_vector)
}
