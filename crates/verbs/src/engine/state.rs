//! The progress of a queue pair's work between calls of the engine: the send work request in
//! progress, the receive work request that it fills, and the reason why it waits.
//!
//! A queue pair owns the values ([`crate::queue_pair`]), and the modules of [`crate::engine`] change
//! them; others see only what the functions return. The values refer to no queue pair or adapter but
//! by number, so a value of an object that no longer exists is stale, not dangerous. The module
//! executes nothing.

use causeway_memory::Span;

use crate::adapter_id::AdapterId;
use crate::engine::segments::Place;
use crate::limits::SPAN_BYTES;
use crate::queues::XrcQueue;
use crate::transport::{Refusal, Route};
use crate::work::{ReceiveWork, SendWork};

/// The execution of send work requests of a queue pair.
#[derive(Debug, Default)]
pub struct Requester {
    pub(super) work: SendWork,
    /// `work` is in progress.
    pub(super) is_busy: bool,
    pub(super) transfer: Transfer,
    pub(super) wait: Option<Wait>,
    /// Adapter of the peer, as found last.
    pub(super) route: Option<Route>,
    /// Reason why the last request found no responder.
    pub(super) refusal: Option<Refusal>,
    /// Messages to receive work requests that ended, modulo 2^16.
    pub(super) messages: u16,
    pub(super) first: FirstRequest,
    /// The queue pair comes from a record of an earlier process.
    pub(super) is_restored: bool,
    /// Requests that found no responder; wraps.
    pub(super) refusals: u64,
    /// Adapters that received the datagram in progress, while a capture runs.
    pub(super) receivers: Vec<AdapterId>,
}

impl Requester {
    /// Returns whether a work request is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Returns the number of inline bytes that are not copied yet.
    #[inline]
    pub(super) fn inline_left(&self) -> u64 {
        (self.work.inline.len() as u64).saturating_sub(self.transfer.done)
    }

    /// Returns the reason why the last request found no responder.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Returns the number of requests that found no responder.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Returns why the work request in progress waits.
    pub(crate) fn wait_reason(&self) -> Option<WaitReason> {
        self.wait.map(|wait| wait.reason())
    }

    /// Notes that the work request in progress found no responder. A request that waits already
    /// counts once.
    pub(super) fn note_refusal(&mut self, refusal: Refusal) {
        self.refusal = Some(refusal);
        if self.wait.is_none() {
            self.refusals = self.refusals.wrapping_add(1);
        }
    }
}

/// The place of a message in progress.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Transfer {
    /// The message passed the checks before the first step.
    pub(super) is_admitted: bool,
    /// The responder has taken a receive work request for the message.
    pub(super) has_receive: bool,
    /// Payload length.
    pub(super) total: u64,
    /// Copied bytes.
    pub(super) done: u64,
    /// Position in the requester's segments.
    pub(super) at: Place,
    /// Index of the next multicast member.
    pub(super) member: usize,
}

/// The receive work request that a message in progress fills.
#[derive(Debug, Default)]
pub struct Responder {
    pub(super) work: ReceiveWork,
    /// `work` is in progress.
    pub(super) is_taken: bool,
    /// Position in the segments.
    pub(super) at: Place,
    /// Receive queue that the last request named, of a queue pair of kind
    /// [`Kind::XrcTarget`](crate::Kind::XrcTarget).
    pub(super) xrc: XrcQueue,
    /// `work` was taken before a restart: the next message fills it.
    pub(super) is_held: bool,
    /// Number of the peer's last message.
    pub(super) message: u16,
}

/// Lists that a call fills and empties; kept so that their memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Source of a copy.
    pub(super) from: Vec<Span>,
    /// Destination of a copy.
    pub(super) to: Vec<Span>,
    /// Decoded page list entries.
    pub(super) pages: Vec<u64>,
}

impl Scratch {
    /// Returns the bytes of the budget that the ranges of a copy take beside its payload. A range
    /// on either side is part of the message.
    pub(super) fn cost(&self) -> u64 {
        let further = |spans: &Vec<Span>| spans.len().saturating_sub(1) as u64;
        further(&self.from).saturating_add(further(&self.to)).saturating_mul(SPAN_BYTES)
    }
}

/// The reason why a reliable request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// The responder does not answer.
    Unanswered,
    /// The responder has no receive work request.
    NotReady,
    /// The responder's adapter is not restored yet, after a restart of the daemon.
    Restart,
}

impl WaitReason {
    /// Returns whether a wait counts to the adapter's limit.
    pub(super) const fn is_limited(self) -> bool {
        !matches!(self, Self::Restart)
    }
}

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(super) reason: WaitReason,
    /// Time at which the request fails.
    pub(super) fail_ns: Option<u64>,
}

impl Wait {
    /// Returns the reason.
    pub(super) fn reason(&self) -> WaitReason {
        self.reason
    }
}

/// The rule for the first work request after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FirstRequest {
    /// The queue pair did not come from a record, or the first work request has ended.
    #[default]
    Ordinary,
    /// The responder may have received the message.
    MayBeReceived,
    /// The datagram was sent.
    IsSent,
}
