//! Completions: the results of operations that the application gets in queues and counters.
//!
//! An operation keeps a [`ReportTemplate`] from its start; its end adds length, source and failure.
//! This module only defines the values: `domain::route` routes them to queues and counters, and
//! `shell::cq` writes them in libfabric's formats. Order and loss are not decided here
//! (`domain::route` loses none); [`Rdm::completions`](super::Rdm::completions) is unbounded and
//! emptied after each call, under the lock of the domain, in the thread that made the call or
//! progress.

use causeway_message::status::Status;

use crate::abi::FI_ADDR_NOTAVAIL;

/// The part of a completion that is known when an operation starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReportTemplate {
    /// The application's context.
    pub context: usize,
    /// `FI_SEND`, `FI_TAGGED` and the like; `FI_INJECT` if the call takes no context: the call
    /// itself completed the operation, and the queue gets no entry, also after a failure.
    pub flags: u64,
    /// Whether the queue gets an entry only on an error.
    pub quiet: bool,
    /// The tag, or the tag to match.
    pub tag: u64,
    /// Address of the buffer; 0 for operations other than receives.
    pub buf: usize,
    /// Number of bytes, or the length of the receive buffer.
    pub len: usize,
}

/// The failure of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpFailure {
    /// An error number of libfabric, above 0.
    pub err: i32,
    /// The status of the engine ([`Status`]), which the application gets as `prov_errno`.
    pub status: u32,
    /// Bytes of the message that did not fit the buffer.
    pub olen: usize,
}

/// The completion of an operation.
#[derive(Debug, Clone, Copy)]
pub struct OpCompletion {
    /// The operation.
    pub report: ReportTemplate,
    /// Bytes that were transferred.
    pub len: usize,
    /// Immediate data of the sender, with `FI_REMOTE_CQ_DATA` in the flags.
    pub data: u64,
    /// The sender's index in the address vector, or `FI_ADDR_NOTAVAIL` if it is not in the vector
    /// or the operation has no sender.
    pub from: u64,
    /// The failure, if any.
    pub failure: Option<OpFailure>,
    /// Whether counters count the completion. False for an entry that only releases a multi-receive
    /// buffer.
    pub counts: bool,
}

impl OpCompletion {
    /// Returns the completion of a successful operation.
    #[inline]
    pub fn success(report: ReportTemplate) -> Self {
        Self {
            report,
            len: report.len,
            data: 0,
            from: FI_ADDR_NOTAVAIL,
            failure: None,
            counts: true,
        }
    }

    /// Returns the completion of a failed operation.
    pub fn failed(report: ReportTemplate, err: i32, status: Status) -> Self {
        let failure = Some(OpFailure { err, status: status as u32, olen: 0 });
        Self { report, len: 0, data: 0, from: FI_ADDR_NOTAVAIL, failure, counts: true }
    }
}
