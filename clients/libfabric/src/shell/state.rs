//! All that a domain has, behind one lock.
//!
//! Applications with one thread take it for nothing ([`causeway_endpoint::lock`]), and those with
//! many have domains of their own if they care.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use causeway_endpoint::lock::Guarded;
use causeway_message::library::Missed;

use super::auto::Auto;
use super::sleep::Sleep;
use crate::abi::{FI_EINVAL, FI_PEEK, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_WRITE};
use crate::limits::{COMPLETIONS_MAX, VAIN_FAR};
use crate::rdm::{Book, Done, Env, Errno, Helps, Rdm, Regions};

/// What counters may count, by their place in [`Ep::counters`].
pub use crate::rdm::tally::{KINDS, READ, RECEIVED, REMOTE_READ, REMOTE_WRITTEN, SENT, WRITTEN};

/// A queue that an endpoint is bound to.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    pub cq: usize,
    /// Only what is flagged goes there.
    pub selective: bool,
}

/// An endpoint.
#[derive(Debug)]
pub struct Ep {
    pub rdm: Rdm,
    pub book: Option<usize>,
    pub tx: Option<Bound>,
    pub rx: Option<Bound>,
    pub counters: [Option<usize>; KINDS],
    pub enabled: bool,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    pub entries: VecDeque<Done>,
    /// Who fills it.
    pub eps: Vec<usize>,
    pub format: u32,
    pub sleep: Option<Sleep>,
    /// Others were held back because of it.
    pub full: bool,
}

/// A counter.
#[derive(Debug)]
pub struct Cntr {
    pub value: u64,
    pub errors: u64,
    pub eps: Vec<usize>,
    pub sleep: Option<Sleep>,
}

/// See above. What was closed leaves its place to what is opened next.
#[derive(Debug, Default)]
pub struct State {
    pub eps: Vec<Option<Ep>>,
    pub cqs: Vec<Option<Cq>>,
    pub cntrs: Vec<Option<Cntr>>,
    pub books: Vec<Option<Book>>,
    pub regions: Regions,
    /// Of an endpoint without one.
    nobody: Book,
    /// How often in a row was looked and nothing found.
    pub vain: u32,
    /// How often the application did something.
    pub calls: u64,
    /// Threads of the application that sleep, or may.
    pub asleep: usize,
    /// Something was done since those were last told that there is more to do.
    pub worked: bool,
    /// Who goes on when the application does nothing.
    pub auto: Option<Auto>,
}

/// What went straight to who reads a queue.
#[derive(Debug, Clone, Copy)]
pub struct Straight {
    pub done: Done,
    /// How the queue tells it.
    pub format: u32,
    /// There may be more of the kind.
    pub more: bool,
}

/// A domain, as all that was opened from it shares it.
#[derive(Debug)]
pub struct Shared {
    pub state: Guarded<State>,
    /// Goes on with connects, where no other thread goes on with all.
    pub helper: OnceLock<Arc<dyn Helps>>,
    /// Its board, by number.
    pub board: u32,
    /// What was opened from it and is not closed.
    pub children: AtomicUsize,
    /// Memory is named by its address, with keys of ours.
    pub basic: bool,
    pub api_version: u32,
}

/// Puts something into a free place.
pub fn place<T>(all: &mut Vec<Option<T>>, value: T) -> usize {
    match all.iter().position(Option::is_none) {
        Some(at) => {
            if let Some(place) = all.get_mut(at) {
                *place = Some(value);
            }
            at
        }
        None => {
            all.push(Some(value));
            all.len().saturating_sub(1)
        }
    }
}

/// What is in a place.
pub fn of<T>(all: &mut [Option<T>], at: usize) -> Result<&mut T, Errno> {
    all.get_mut(at).and_then(Option::as_mut).ok_or(Errno(FI_EINVAL))
}

impl State {
    /// Does something with an endpoint; tells what came of it at once.
    #[inline]
    pub fn with_ep<R>(
        &mut self,
        at: usize,
        run: impl FnOnce(&mut Ep, Env<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.calls = self.calls.wrapping_add(1);
        if let Some(auto) = &self.auto
            && auto.armed
        {
            Auto::leave(self);
        }
        self.with_ep_unseen(at, run)
    }

    /// The same, by somebody else than the application.
    #[inline]
    pub fn with_ep_unseen<R>(
        &mut self,
        at: usize,
        run: impl FnOnce(&mut Ep, Env<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let Self { eps, cqs, cntrs, books, regions, nobody, vain, .. } = self;
        let ep = of(eps, at)?;
        let book = book(ep, books, nobody);
        let done = run(ep, Env { book, regions });
        if !ep.rdm.done.is_empty() {
            *vain = begun(ep);
            route(ep, cqs, cntrs);
        }
        let quiet = ep.rdm.tally.take_quiet();
        if quiet > 0 {
            *vain = begun(ep);
            if let Some(cntr) = counter(&ep.counters, cntrs, SENT) {
                count(cntr, quiet, 0);
            }
        }
        done
    }

    /// An endpoint goes on.
    #[inline]
    pub fn progress(&mut self, at: usize) {
        let worked = self.with_ep(at, |ep, env| Ok(ep.rdm.progress(env).then(|| begun(ep))));
        if let Ok(Some(vain)) = worked {
            self.vain = vain;
            self.worked = true;
        }
    }

    /// Takes what comes for a queue that is empty, where that goes straight
    /// ([`Rdm::receive_straight`]).
    ///
    /// # Errors
    /// Nothing came, or all are to go on.
    #[inline(always)]
    pub fn receive_straight(&mut self, at: usize) -> Result<Straight, Missed> {
        let Self { eps, cqs, cntrs, books, regions, nobody, .. } = self;
        let Some(Some(cq)) = cqs.get(at) else { return Err(Missed::Unsure) };
        let [only] = *cq.eps.as_slice() else { return Err(Missed::Unsure) };
        let Some(Some(ep)) = eps.get_mut(only) else { return Err(Missed::Unsure) };
        let exposed = cq.sleep.as_ref().is_some_and(Sleep::is_exposed);
        if exposed
            || ep.rx.is_none_or(|rx| rx.cq != at)
            || self.auto.as_ref().is_some_and(|auto| auto.armed)
        {
            return Err(Missed::Unsure);
        }
        self.calls = self.calls.wrapping_add(1);
        let book = book(ep, books, nobody);
        match ep.rdm.receive_straight(Env { book, regions }) {
            Ok((done, more)) => {
                if let Some(cntr) = counter(&ep.counters, cntrs, RECEIVED) {
                    count(cntr, 1, 0);
                }
                (self.vain, self.worked) = (begun(ep), true);
                Ok(Straight { done, format: cq.format, more })
            }
            Err(missed) => {
                match missed {
                    Missed::Nothing => self.vain = self.vain.wrapping_add(1),
                    Missed::Worked => (self.vain, self.worked) = (begun(ep), true),
                    Missed::Unsure => {}
                }
                Err(missed)
            }
        }
    }

    /// Who sleeps and waits for an endpoint comes back: another thread began something that only
    /// they go on with.
    #[cold]
    pub fn rouse(&mut self, at: usize) {
        if self.eps.get(at).is_some_and(|ep| ep.as_ref().is_some_and(|ep| ep.rdm.is_busy())) {
            self.stir(at);
        }
    }

    /// Who sleeps and waits for an endpoint comes back.
    #[cold]
    pub fn stir(&self, at: usize) {
        let cqs = self.cqs.iter().flatten().map(|cq| (&cq.eps, &cq.sleep));
        let cntrs = self.cntrs.iter().flatten().map(|cntr| (&cntr.eps, &cntr.sleep));
        for (eps, sleep) in cqs.chain(cntrs) {
            if let Some(sleep) = sleep.as_ref().filter(|_| eps.contains(&at)) {
                sleep.stir();
            }
        }
    }

    /// Who was held back because a queue was full is not any more, once half of it is read.
    #[cold]
    pub fn relieve(&mut self, at: usize) {
        let Self { eps, cqs, .. } = self;
        let Some(Some(cq)) = cqs.get_mut(at) else { return };
        if cq.entries.len() > COMPLETIONS_MAX / 2 {
            return;
        }
        cq.full = false;
        for ep in eps.iter_mut().flatten() {
            if ep.rx.is_some_and(|rx| rx.cq == at) {
                ep.rdm.held = false;
            }
        }
    }

    /// All that fill a queue or a counter go on.
    #[inline]
    pub fn progress_all(&mut self, eps: impl Fn(&Self) -> Option<&Vec<usize>>) {
        self.vain = self.vain.wrapping_add(1);
        let mut next = 0_usize;
        while let Some(at) = eps(self).and_then(|eps| eps.get(next)).copied() {
            self.progress(at);
            next = next.saturating_add(1);
        }
    }
}

/// Tells queues and counters what is over.
#[inline]
fn route(ep: &mut Ep, cqs: &mut [Option<Cq>], cntrs: &mut [Option<Cntr>]) {
    let Ep { rdm, tx, rx, counters, .. } = ep;
    // Where they lie: each is copied once.
    for done in &rdm.done {
        let (bound, kind) = whose((*tx, *rx), done);
        if done.counts && done.report.flags & FI_PEEK == 0 {
            rdm.tally.over(kind, done);
            if let Some(cntr) = counter(counters, cntrs, kind) {
                let failed = done.fault.is_some();
                count(cntr, u64::from(!failed), u64::from(failed));
            }
        }
        if done.report.quiet && (done.fault.is_none() || rdm.tally.lost_injected(done)) {
            continue;
        }
        if let Some(cq) = bound.and_then(|bound| cqs.get_mut(bound.cq)?.as_mut()) {
            cq.entries.push_back(*done);
            rdm.tally.queued();
            if cq.entries.len() >= COMPLETIONS_MAX {
                cq.full = true;
                // What is told there is told nowhere else.
                rdm.held |= same(*rx, bound);
            }
            if let Some(sleep) = &cq.sleep {
                sleep.stir();
            }
        }
    }
    rdm.done.clear();
}

/// From how many looks in vain on it is counted, once something was done.
#[inline]
fn begun(ep: &Ep) -> u32 {
    if ep.rdm.endpoint.way.far { VAIN_FAR } else { 0 }
}

/// Whether both are bound to one queue.
#[cold]
fn same(one: Option<Bound>, other: Option<Bound>) -> bool {
    one.map(|bound| bound.cq) == other.map(|bound| bound.cq)
}

/// The counter of an endpoint for a kind.
#[inline]
fn counter<'a>(
    counters: &[Option<usize>; KINDS],
    cntrs: &'a mut [Option<Cntr>],
    kind: usize,
) -> Option<&'a mut Cntr> {
    let at = counters.get(kind).copied().flatten()?;
    cntrs.get_mut(at)?.as_mut()
}

/// The names that an endpoint knows.
#[inline]
fn book<'a>(ep: &Ep, books: &'a [Option<Book>], nobody: &'a Book) -> &'a Book {
    ep.book.and_then(|book| books.get(book)?.as_ref()).unwrap_or(nobody)
}

fn count(cntr: &mut Cntr, well: u64, failed: u64) {
    cntr.value = cntr.value.wrapping_add(well);
    cntr.errors = cntr.errors.wrapping_add(failed);
    if let Some(sleep) = &cntr.sleep {
        sleep.stir();
    }
}

/// Where an operation is told, and what it was.
#[inline]
fn whose((tx, rx): (Option<Bound>, Option<Bound>), done: &Done) -> (Option<Bound>, usize) {
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
