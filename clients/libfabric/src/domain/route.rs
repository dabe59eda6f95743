//! The routing of completions to the queues and counters of an endpoint.
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
//! and are not counted.
//!
//! # Place
//! [`state`](super::state) routes the completions after each call of `rdm`, under the lock of the
//! domain; readers in `shell::cq` and `shell::cntr` take the results.

use super::objects::{CntrState, CqBinding, CqState, EpState};
use crate::abi::{FI_PEEK, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_WRITE};
use crate::limits::COMPLETIONS_MAX;
use crate::rdm::OpCompletion;
use crate::rdm::stats::{KINDS, READ, RECEIVED, REMOTE_READ, REMOTE_WRITTEN, SENT, WRITTEN};

/// Routes completions to queues and counters.
#[inline]
pub fn route(ep: &mut EpState, cqs: &mut [Option<CqState>], cntrs: &mut [Option<CntrState>]) {
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

/// Returns whether both are bindings to the same queue.
#[cold]
fn same(one: Option<CqBinding>, other: Option<CqBinding>) -> bool {
    one.map(|bound| bound.cq) == other.map(|bound| bound.cq)
}

/// Returns the counter of an endpoint for a kind.
#[inline]
pub fn counter<'a>(
    counters: &[Option<usize>; KINDS],
    cntrs: &'a mut [Option<CntrState>],
    kind: usize,
) -> Option<&'a mut CntrState> {
    let at = counters.get(kind).copied().flatten()?;
    cntrs.get_mut(at)?.as_mut()
}

/// Adds operations to a counter, and wakes its waiters.
#[inline]
pub fn count(cntr: &mut CntrState, well: u64, failed: u64) {
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
