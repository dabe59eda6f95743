//! The state of a domain: all of its objects behind a single lock, and the routing of completions
//! to queues and counters.
//!
//! The lock costs nothing in applications with a single thread ([`causeway_endpoint::lock`]);
//! applications with several threads open a domain for each if they need concurrency.
//!
//! # Limits
//! A completion for a bound queue is never dropped; without a bound queue it is only counted. At
//! [`COMPLETIONS_MAX`] (65,536) entries a queue is *full*: until at most half as many are left,
//! control requests of peers (reads, writes, atomic operations, and those about messages and
//! connections) and messages for multi-receive buffers without a posted receive wait at their
//! senders. Completions of single receives and of the application's other operations are still
//! queued, so a queue can have more entries. A successful operation without a queue entry (`quiet`)
//! is counted only; if it fails, it gets an entry, and a failed injected operation a warning
//! instead; counters count both as errors. Peeks and releases of multi-receive buffers get an entry
//! and are not counted. An index of a closed object is reused, so an index is valid only while its
//! object is open.
//!
//! # Place
//! Each call of the C interface runs [`DomainState::with_ep`] or [`DomainState::progress`], which
//! call `rdm` and then route its completions; readers in `cq` and `cntr` take the results.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use causeway_endpoint::lock::Guarded;
use causeway_message::library::FastMiss;

use super::progress_thread::ProgressThread;
use super::wait_fd::WaitFd;
use crate::abi::{FI_EINVAL, FI_PEEK, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_WRITE};
use crate::errno::Errno;
use crate::limits::{COMPLETIONS_MAX, MISSES_FAR};
use crate::rdm::{AddressVector, ConnectHelper, DomainEnv, OpCompletion, Rdm, RegionTable};

/// The kinds of operations that counters count, by their index in [`EpState::counters`].
pub use crate::rdm::stats::{KINDS, READ, RECEIVED, REMOTE_READ, REMOTE_WRITTEN, SENT, WRITTEN};

/// The binding of an endpoint to a queue.
#[derive(Debug, Clone, Copy)]
pub struct CqBinding {
    /// Index of the queue.
    pub cq: usize,
    /// Whether only flagged operations are reported to the queue.
    pub selective: bool,
}

/// An endpoint.
#[derive(Debug)]
pub struct EpState {
    /// The endpoint without the C interface.
    pub rdm: Rdm,
    /// Index of the bound address vector.
    pub vector: Option<usize>,
    /// Queue of transmit operations: sends, reads, writes and atomic operations.
    pub tx: Option<CqBinding>,
    /// Queue of receives and of peers' operations.
    pub rx: Option<CqBinding>,
    /// Index of the bound counter for each kind of operations.
    pub counters: [Option<usize>; KINDS],
    /// Whether the application enabled the endpoint (`FI_ENABLE`); operations fail before.
    pub enabled: bool,
}

/// A completion queue.
#[derive(Debug)]
pub struct CqState {
    /// Unread completions, oldest first.
    pub entries: VecDeque<OpCompletion>,
    /// The endpoints that are bound to it.
    pub eps: Vec<usize>,
    /// The format of entries (`FI_CQ_FORMAT_CONTEXT` and others).
    pub format: u32,
    /// The wait object, if the application requested one.
    pub wait_fd: Option<WaitFd>,
    /// Whether peers' operations wait because the queue was full.
    pub full: bool,
}

/// A counter.
#[derive(Debug)]
pub struct CntrState {
    /// Successful operations, plus the application's additions.
    pub value: u64,
    /// Failed operations, plus the application's additions.
    pub errors: u64,
    /// The endpoints that are bound to it.
    pub eps: Vec<usize>,
    /// The wait object, if the application requested one.
    pub wait_fd: Option<WaitFd>,
}

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
    pub auto: Option<ProgressThread>,
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

/// Stores a value at a free index, and returns the index.
pub fn insert<T>(all: &mut Vec<Option<T>>, value: T) -> usize {
    match all.iter().position(Option::is_none) {
        Some(at) => {
            if let Some(slot) = all.get_mut(at) {
                *slot = Some(value);
            }
            at
        }
        None => {
            all.push(Some(value));
            all.len().saturating_sub(1)
        }
    }
}

/// Returns the value at an index.
///
/// # Errors
/// `FI_EINVAL` if there is none.
pub fn get<T>(all: &mut [Option<T>], at: usize) -> Result<&mut T, Errno> {
    all.get_mut(at).and_then(Option::as_mut).ok_or(Errno(FI_EINVAL))
}

impl DomainState {
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
        if let Some(auto) = &self.auto
            && auto.armed
        {
            ProgressThread::disarm(self);
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
    /// ([`Rdm::receive_fast`]).
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
            || self.auto.as_ref().is_some_and(|auto| auto.armed)
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

/// Routes completions to queues and counters.
#[inline]
fn route(ep: &mut EpState, cqs: &mut [Option<CqState>], cntrs: &mut [Option<CntrState>]) {
    let EpState { rdm, tx, rx, counters, .. } = ep;
    // By reference, so that each is copied once.
    for done in &rdm.completions {
        let (bound, kind) = route_of((*tx, *rx), done);
        if done.counts && done.report.flags & FI_PEEK == 0 {
            rdm.stats.count_completion(kind, done);
            if let Some(cntr) = counter(counters, cntrs, kind) {
                let failed = done.failure.is_some();
                count(cntr, u64::from(!failed), u64::from(failed));
            }
        }
        if done.report.quiet && (done.failure.is_none() || rdm.stats.lost_injected(done)) {
            continue;
        }
        if let Some(cq) = bound.and_then(|bound| cqs.get_mut(bound.cq)?.as_mut()) {
            cq.entries.push_back(*done);
            rdm.stats.queued();
            if cq.entries.len() >= COMPLETIONS_MAX {
                cq.full = true;
                // Completions of peers' operations go to this queue only.
                rdm.is_cq_full |= same(*rx, bound);
            }
            if let Some(wait_fd) = &cq.wait_fd {
                wait_fd.wake();
            }
        }
    }
    rdm.completions.clear();
}

/// Returns the count of empty polls from which counting starts after progress: [`MISSES_FAR`] (60)
/// if the last message came through the daemon, else 0.
#[inline]
fn initial_misses(ep: &EpState) -> u32 {
    if ep.rdm.endpoint.paths.is_through_daemon { MISSES_FAR } else { 0 }
}

/// Returns whether both are bindings to the same queue.
#[cold]
fn same(one: Option<CqBinding>, other: Option<CqBinding>) -> bool {
    one.map(|bound| bound.cq) == other.map(|bound| bound.cq)
}

/// Returns the counter of an endpoint for a kind.
#[inline]
fn counter<'a>(
    counters: &[Option<usize>; KINDS],
    cntrs: &'a mut [Option<CntrState>],
    kind: usize,
) -> Option<&'a mut CntrState> {
    let at = counters.get(kind).copied().flatten()?;
    cntrs.get_mut(at)?.as_mut()
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

/// Adds operations to a counter, and wakes its waiters.
fn count(cntr: &mut CntrState, well: u64, failed: u64) {
    cntr.value = cntr.value.wrapping_add(well);
    cntr.errors = cntr.errors.wrapping_add(failed);
    if let Some(wait_fd) = &cntr.wait_fd {
        wait_fd.wake();
    }
}

/// Returns the binding that a completion is reported to, and its kind.
#[inline]
fn route_of(
    (tx, rx): (Option<CqBinding>, Option<CqBinding>),
    done: &OpCompletion,
) -> (Option<CqBinding>, usize) {
    let flags = done.report.flags;
    if flags & FI_RECV != 0 {
        (rx, RECEIVED)
    } else if flags & FI_REMOTE_WRITE != 0 {
        (rx, REMOTE_WRITTEN)
    } else if flags & FI_REMOTE_READ != 0 {
        (rx, REMOTE_READ)
    } else if flags & FI_READ != 0 {
        (tx, READ)
    } else if flags & FI_WRITE != 0 {
        (tx, WRITTEN)
    } else {
        (tx, SENT)
    }
}
