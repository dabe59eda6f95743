//! The properties of a received message, and its completion.
//!
//! A receive that has a message keeps a [`MessageMeta`] until the bytes are complete: at once for an
//! eager message, after their own receive for a long one. A message longer than the buffer completes
//! with `FI_ETRUNC` and the number of missing bytes; a message without a head was not sent by this
//! provider and completes with `FI_EIO`. The module only computes values:
//! [`receive`](super::receive), [`multi`](super::multi), [`peek`](super::peek) and
//! [`target`](super::target) push the completions.

use causeway_message::library::Completion;
use causeway_message::status::Status;

use super::buffer::HEAD_BYTES;
use super::completion::{OpCompletion, OpFailure, ReportTemplate};
use super::wire::{DATA, TAG_MASK};
use crate::abi::{FI_EIO, FI_ETRUNC, FI_REMOTE_CQ_DATA};
use crate::errno::of_status;

/// Returns whether a message was received, at least in part.
#[inline]
pub fn is_received(status: Status) -> bool {
    matches!(status, Status::Success | Status::Truncated)
}

/// The properties of a message that may not be complete yet.
#[derive(Debug, Clone, Copy)]
pub struct MessageMeta {
    /// The completion, with the message's tag.
    pub report: ReportTemplate,
    /// The sender's index in the address vector.
    pub from: u64,
    /// Immediate data; 0 if there are none.
    pub data: u64,
    /// Length of the receive buffer, in bytes.
    pub room: usize,
}

impl MessageMeta {
    /// Combines the template of a receive with the properties of its message.
    #[inline]
    pub fn new(
        report: ReportTemplate,
        info: u64,
        (from, data, word): (u64, u64, u64),
        room: usize,
    ) -> Self {
        let immediate = if word & DATA != 0 { FI_REMOTE_CQ_DATA } else { 0 };
        let (flags, tag) = (report.flags | immediate, info & TAG_MASK);
        Self { report: ReportTemplate { flags, tag, ..report }, from, data, room }
    }

    /// Returns the completion of an eager message.
    #[inline]
    pub fn short(self, ended: &Completion) -> OpCompletion {
        match (ended.msg_length as usize).checked_sub(HEAD_BYTES) {
            Some(len) => self.of_len(len),
            // Not sent by this provider: no head.
            None => OpCompletion::failed(self.report, FI_EIO, ended.status),
        }
    }

    /// Returns the completion of a long message after its bytes arrived or failed.
    pub fn long(self, len: usize, ended: &Completion) -> OpCompletion {
        if is_received(ended.status) {
            // The received length counts, not that of the notice.
            self.of_len(len.min(ended.msg_length as usize))
        } else {
            OpCompletion::failed(self.report, of_status(ended.status), ended.status)
        }
    }

    /// Returns the completion of a message of `len` bytes, cut to the receive buffer.
    #[inline]
    pub fn of_len(self, len: usize) -> OpCompletion {
        let Self { report, from, data, room } = self;
        let mut done = OpCompletion { from, data, ..OpCompletion::success(report) };
        done.len = len.min(room);
        if len > room {
            let (status, olen) = (Status::Truncated as u32, len.saturating_sub(room));
            done.failure = Some(OpFailure { err: FI_ETRUNC, status, olen });
        }
        done
    }
}
