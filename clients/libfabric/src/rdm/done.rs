//! What the application is told when an operation is over.

use causeway_message::status::Status;

use crate::abi::FI_ADDR_NOTAVAIL;

/// What an operation is reported with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// The application's word for it.
    pub context: usize,
    /// `FI_SEND`, `FI_TAGGED` and such; `FI_INJECT` if the call that began it takes no context:
    /// the application was told that it is over, and the queue gets nothing of it.
    pub flags: u64,
    /// Only errors go into the queue.
    pub quiet: bool,
    /// Its tag, or what was to be matched.
    pub tag: u64,
    /// Where its memory begins.
    pub buf: usize,
    /// How many bytes it was, or could have been.
    pub len: usize,
}

/// How an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// One of libfabric's numbers, above 0.
    pub err: i32,
    /// MX's status.
    pub status: u32,
    /// Bytes that found no room.
    pub olen: usize,
}

/// An operation that is over.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// Whose.
    pub report: Report,
    /// Bytes that were transferred.
    pub len: usize,
    /// Immediate data of the sender, with `FI_REMOTE_CQ_DATA` in the flags.
    pub data: u64,
    /// Who sent it, where that is known.
    pub from: u64,
    /// How it failed, if it did.
    pub fault: Option<Fault>,
    /// Whether counters count it: it is more than something to be told.
    pub counts: bool,
}

impl Done {
    /// It went well.
    #[inline]
    pub fn well(report: Report) -> Self {
        Self { report, len: report.len, data: 0, from: FI_ADDR_NOTAVAIL, fault: None, counts: true }
    }

    /// It failed.
    pub fn failed(report: Report, err: i32, status: Status) -> Self {
        let fault = Some(Fault { err, status: status as u32, olen: 0 });
        Self { report, len: 0, data: 0, from: FI_ADDR_NOTAVAIL, fault, counts: true }
    }
}
