//! The counters of an endpoint, for the diagnosis of slow applications; [`report`](super::report)
//! writes them when the endpoint closes.
//!
//! The counters are plain numbers beside data that changes anyway, under the lock of the domain;
//! they count from the opening of the endpoint and wrap at 64 bits. They are not the counters that
//! an application opens (`fi_cntr`, `shell::cntr`), are not reset, and the application cannot read
//! them while the endpoint is open. The exception is `uncounted`, which is no statistic: sends
//! without a completion wait there until `domain::state` takes them
//! ([`EndpointStats::take_injected`], after each call and each progress) and adds them to the bound
//! `fi_cntr` of sends.
//!
//! The modules of `rdm` count internal events and sends without a completion. `domain::route` counts
//! each completion that it routes, and asks [`EndpointStats::lost_injected`] whether a failed
//! completion is that of an injected operation (a send, write or atomic operation): it gets a
//! warning and no queue entry. Successful operations of peers are completions of the `REMOTE`
//! kinds.

use std::time::Instant;

use super::completion::OpCompletion;
use crate::abi::{FI_ECANCELED, FI_ETRUNC, FI_INJECT};

/// Index of sent messages.
pub const SENT: usize = 0;
/// Index of received messages.
pub const RECEIVED: usize = 1;
/// Index of reads, and of atomic operations that fetch.
pub const READ: usize = 2;
/// Index of writes, and of atomic operations that do not fetch.
pub const WRITTEN: usize = 3;
/// Index of reads by peers.
pub const REMOTE_READ: usize = 4;
/// Index of writes by peers.
pub const REMOTE_WRITTEN: usize = 5;
/// The number of kinds.
pub const KINDS: usize = 6;

/// A number of operations, and the sum of their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct OpCount {
    /// Number of operations.
    count: u64,
    /// Sum of their lengths, in bytes.
    bytes: u64,
}

/// The statistics of an endpoint.
#[derive(Debug)]
pub struct EndpointStats {
    /// The time of the opening.
    since: Instant,
    /// Completed operations, by kind.
    kinds: [OpCount; KINDS],
    /// Completions that were written to a queue.
    completions: u64,
    /// Messages without a completion that are not in the bound `fi_cntr` of sends yet.
    uncounted: u64,
    /// Sent messages that were too long to be eager.
    pub long_sent: u64,
    /// Received messages that were too long to be eager.
    pub long_received: u64,
    /// Atomic operations, which are reads or writes as well.
    pub atomics: u64,
    /// Atomic operations of peers.
    pub remote_atomics: u64,
    /// Messages that arrived before the receive that took them.
    pub early: u64,
    /// Losses of messages that were reported as sent: 1 per report, which may cover several
    /// messages.
    pub lost: u64,
    /// Operations that the application cancelled.
    cancelled: u64,
    /// Messages that were longer than their receive buffer.
    truncated: u64,
    /// Operations that failed for any other reason.
    failed: u64,
}

impl EndpointStats {
    /// Returns statistics without any operation.
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
            kinds: [OpCount::default(); KINDS],
            completions: 0,
            uncounted: 0,
            long_sent: 0,
            long_received: 0,
            atomics: 0,
            remote_atomics: 0,
            early: 0,
            lost: 0,
            cancelled: 0,
            truncated: 0,
            failed: 0,
        }
    }

    /// Counts a completion. A failure counts as an operation only if it is a truncated message.
    #[inline]
    pub fn count_completion(&mut self, kind: usize, done: &OpCompletion) {
        if let Some(failure) = &done.failure {
            self.count_failure(failure.err);
            if failure.err != FI_ETRUNC {
                return;
            }
        }
        self.add(kind, done.len);
    }

    /// Counts an operation of `len` bytes.
    #[inline]
    fn add(&mut self, kind: usize, len: usize) {
        if let Some(sum) = self.kinds.get_mut(kind) {
            sum.count = sum.count.wrapping_add(1);
            sum.bytes = sum.bytes.wrapping_add(len as u64);
        }
    }

    /// Counts a message that is sent without a completion.
    #[inline]
    pub fn count_injected(&mut self, len: usize) {
        self.add(SENT, len);
        self.uncounted = self.uncounted.wrapping_add(1);
    }

    /// Returns the number of messages that [`Self::count_injected`] counted since the last call,
    /// for the counter of sends.
    #[inline]
    pub fn take_injected(&mut self) -> u64 {
        std::mem::take(&mut self.uncounted)
    }

    /// Counts a failed injected message and logs a warning; returns whether `done` is such a
    /// failure. The queue gets no entry for it, because the entry would have no context.
    #[cold]
    pub fn lost_injected(&mut self, done: &OpCompletion) -> bool {
        let Some(failure) = done.failure.filter(|_| done.report.flags & FI_INJECT != 0) else {
            return false;
        };
        self.count_loss(failure.status);
        true
    }

    /// Counts the loss of messages that were reported as sent, and logs a warning with the reason.
    #[cold]
    pub fn count_loss(&mut self, status: u32) {
        count(&mut self.lost);
        let why = i32::try_from(status).map(crate::errno::describe).unwrap_or_default();
        let why = why.to_string_lossy();
        let text = format!("a message that was reported as sent was lost: {why}");
        crate::log::warn(&text, true);
    }

    /// Counts a failure by its error number.
    #[cold]
    fn count_failure(&mut self, err: i32) {
        let counter = match err {
            FI_ECANCELED => &mut self.cancelled,
            FI_ETRUNC => &mut self.truncated,
            _ => &mut self.failed,
        };
        *counter = counter.wrapping_add(1);
    }

    /// Returns all counters by name, always in the same order.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let [sent, received, read, written, remote_read, remote_written] = self.kinds;
        vec![
            ("sent", sent.count),
            ("sent_bytes", sent.bytes),
            ("sent_long", self.long_sent),
            ("received", received.count),
            ("received_bytes", received.bytes),
            ("received_long", self.long_received),
            ("reads", read.count),
            ("read_bytes", read.bytes),
            ("writes", written.count),
            ("written_bytes", written.bytes),
            ("atomics", self.atomics),
            ("remote_reads", remote_read.count),
            ("remote_read_bytes", remote_read.bytes),
            ("remote_writes", remote_written.count),
            ("remote_written_bytes", remote_written.bytes),
            ("remote_atomics", self.remote_atomics),
            ("unexpected", self.early),
            ("cancelled", self.cancelled),
            ("truncated", self.truncated),
            ("failed", self.failed),
            ("lost", self.lost),
            ("completions", self.completions),
        ]
    }

    /// Returns the time of the opening.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Returns the number of messages that were sent and received.
    pub fn messages(&self) -> u64 {
        let [sent, received, ..] = self.kinds;
        sent.count.wrapping_add(received.count)
    }

    /// Counts a completion that was written to a queue or to its reader.
    #[inline]
    pub fn queued(&mut self) {
        self.completions = self.completions.wrapping_add(1);
    }
}

/// Increments a counter.
pub fn count(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}
