//! The values of a single call of the engine: the requester's queue pair, the result of an attempt,
//! and the result of the call.
//!
//! [`crate::Subnet::progress`] makes an [`Origin`] from the queue pair and passes it to the modules
//! of the engine; they return a [`Step`]. The values live no longer than the call.

use crate::adapter_id::AdapterId;
use crate::attributes::{Attributes, Kind, State};
use crate::engine::state::Requester;
use crate::queue_pair::QueuePair;
use crate::work::{Completion, CompletionKind, Status};

/// The state of a queue pair after a call of [`crate::Subnet::progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The send queue is empty or drained, or all work requests are flushed. Work requests that are
    /// posted later need another call.
    Idle,
    /// The budget is used up; work remains.
    Yielded,
    /// The responder is not ready. A call before the deadline tries again, which takes a message of
    /// the budget; a call at the deadline fails the request unless the responder is ready. Without
    /// a deadline, the request waits without end.
    Waiting {
        /// End of the waiting time.
        until_ns: Option<u64>,
    },
    /// The queue pair does not exist, or its state executes no send work requests.
    Stopped,
}

/// The requester's queue pair, in a call of [`crate::Subnet::progress`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) id: AdapterId,
    pub(super) number: u32,
    pub(super) mac: [u8; 6],
    pub(super) kind: Kind,
    /// The queue pair is in [`State::Drained`].
    pub(super) is_drained: bool,
    pub(super) attributes: Attributes,
}

impl Origin {
    /// Returns the values of a queue pair.
    pub(super) fn new(id: AdapterId, number: u32, mac: [u8; 6], pair: &QueuePair) -> Self {
        let (kind, attributes) = (pair.kind(), *pair.attributes());
        Self { id, number, mac, kind, is_drained: pair.state() == State::Drained, attributes }
    }
}

/// The result of an attempt to execute a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The work request succeeded.
    Done,
    /// The work request succeeded, and no responder received the message.
    Lost,
    /// The budget is used up.
    More,
    /// The responder is not ready.
    Blocked(Option<u64>),
    /// The work request failed.
    Failed(Status),
}

impl Requester {
    /// Returns the completion of the work request in progress.
    pub(super) fn completion(&self, origin: &Origin, status: Status) -> Completion {
        Completion {
            queue_pair: origin.number,
            kind: CompletionKind::Send,
            status,
            bytes: u32::try_from(self.transfer.total).unwrap_or(u32::MAX),
            token: self.work.token,
            is_solicited: false,
            message: self.messages,
        }
    }
}
