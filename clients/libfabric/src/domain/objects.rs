//! The state of the objects of a domain: endpoints, completion queues and counters.
//!
//! Each object has an index in its list ([`insert`], [`get`]). An index of a closed object is
//! reused, so an index is valid only while its object is open. An endpoint knows its queues and
//! counters by index, and these know the endpoints; [`state`](super::state) has the lists, and its
//! callers (`shell`) keep both sides equal. The module moves no completion and takes no lock.

use std::collections::VecDeque;
use std::ffi::c_void;

use super::wait_fd::WaitFd;
use crate::abi::{FI_COMPLETION, FI_EINVAL};
use crate::errno::Errno;
use crate::rdm::stats::KINDS;
use crate::rdm::{OpCompletion, Payload, Rdm, ReportTemplate};

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

impl EpState {
    /// Returns the completion of a transmit operation. `what` is its flags, such as `FI_SEND`; the
    /// completion is quiet if `flags` lacks `FI_COMPLETION` and the binding is selective or absent.
    #[inline]
    pub fn tx_report(
        &self,
        flags: u64,
        what: u64,
        context: *mut c_void,
        payload: &Payload,
    ) -> ReportTemplate {
        let quiet = self.tx.is_none_or(|tx| tx.selective) && flags & FI_COMPLETION == 0;
        ReportTemplate {
            context: context.addr(),
            flags: what,
            quiet,
            tag: 0,
            buf: 0,
            len: payload.len(),
        }
    }

    /// Returns the completion of a receive operation, as [`Self::tx_report`] does.
    #[inline]
    pub fn rx_report(
        &self,
        flags: u64,
        what: u64,
        context: *mut c_void,
        payload: &Payload,
    ) -> ReportTemplate {
        let quiet = self.rx.is_none_or(|rx| rx.selective) && flags & FI_COMPLETION == 0;
        ReportTemplate {
            context: context.addr(),
            flags: what,
            quiet,
            tag: 0,
            buf: payload.start(),
            len: payload.len(),
        }
    }
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
