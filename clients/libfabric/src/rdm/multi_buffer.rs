//! A multi-receive buffer: its memory, the unused rest, and the messages that are on their way into
//! it.
//!
//! A message is placed after the previous one, at a multiple of [`MULTI_RECEIVE_GRAIN`] (16) bytes;
//! a buffer is full if less than its minimum is left. The buffer posts and completes nothing:
//! [`multi`](super::multi) does, for all buffers of an endpoint. An operation has the buffer
//! ([`operation`](super::operation)), so all calls run under the lock of the domain.

use causeway_message::library::EndpointIdentity;
use causeway_message::status::Status;

use super::completion::ReportTemplate;
use super::span::AppSpan;
use crate::limits::MULTI_RECEIVE_GRAIN;

/// A multi-receive buffer.
#[derive(Debug)]
pub struct MultiBuffer {
    /// The template of the completions of its messages.
    pub report: ReportTemplate,
    /// The whole buffer.
    memory: AppSpan,
    /// Number of used bytes from its start.
    used: usize,
    /// The buffer is full if less than this is left, in bytes.
    min: usize,
    /// The only sender, if there is one.
    from: Option<EndpointIdentity>,
    /// The sender's index in the address vector, or `FI_ADDR_UNSPEC` for any sender.
    number: u64,
    /// Value and mask for the engine's matching.
    matching: (u64, u64),
    /// Long messages on their way into the buffer.
    bodies: usize,
    /// Whether the engine has a receive for the rest.
    pub is_posted: bool,
    /// Whether no receive is posted because there is no room for completions or long messages.
    pub is_paused: bool,
    /// Whether no receive is posted because an earlier buffer takes the same messages.
    pub is_queued: bool,
    /// The error number and status for which the buffer takes no further message; `None` if it only
    /// becomes full.
    ended: Option<(i32, Status)>,
}

impl MultiBuffer {
    /// Returns an empty buffer for the messages of `from` alone, or of any sender: `number` is the
    /// sender's index in the address vector, or `FI_ADDR_UNSPEC`. `matching`: value and mask. It is
    /// full if less than `min` bytes are left.
    pub fn new(
        report: ReportTemplate,
        memory: AppSpan,
        min: usize,
        (from, number): (Option<EndpointIdentity>, u64),
        matching: (u64, u64),
    ) -> Self {
        Self {
            report,
            memory,
            used: 0,
            min,
            from,
            number,
            matching,
            bodies: 0,
            is_posted: true,
            is_paused: false,
            is_queued: false,
            ended: None,
        }
    }

    /// Returns the unused memory.
    ///
    /// # Safety
    /// As for [`AppSpan::alias`], for the memory that is unused at this time.
    pub unsafe fn rest(&self) -> AppSpan {
        // SAFETY: guaranteed by the caller.
        unsafe { self.memory.alias() }.skip(self.used)
    }

    /// Marks the next `len` bytes as used, rounded up.
    pub fn take(&mut self, len: usize) {
        let used = self.used.saturating_add(len).checked_next_multiple_of(MULTI_RECEIVE_GRAIN);
        self.used = used.unwrap_or(usize::MAX).min(self.memory.len());
    }

    /// Ends the buffer with an error unless it ended before.
    pub fn end(&mut self, err: i32, status: Status) {
        self.ended.get_or_insert((err, status));
    }

    /// Returns the only sender, while a receive is posted.
    pub fn source(&self) -> Option<EndpointIdentity> {
        self.from.filter(|_| self.is_posted)
    }

    /// Returns whether the buffer is for messages of that endpoint alone.
    pub fn is_from(&self, source: EndpointIdentity) -> bool {
        self.from == Some(source)
    }

    /// Returns the messages that the buffer accepts: the only sender, if there is one, and value and
    /// mask for the engine's matching.
    pub fn accepted(&self) -> (Option<EndpointIdentity>, (u64, u64)) {
        (self.from, self.matching)
    }

    /// Returns the only sender's index in the address vector, or `FI_ADDR_UNSPEC` for any sender.
    pub fn sender(&self) -> u64 {
        self.number
    }

    /// Counts a long message that is on its way into the buffer.
    pub fn begin_body(&mut self) {
        self.bodies = self.bodies.saturating_add(1);
    }

    /// Ends the count of [`Self::begin_body`].
    pub fn end_body(&mut self) {
        self.bodies = self.bodies.saturating_sub(1);
    }

    /// Returns the number of long messages that are on their way into the buffer.
    pub fn bodies(&self) -> usize {
        self.bodies
    }

    /// Returns the error for which the buffer takes no further message, if there is one.
    pub fn error(&self) -> Option<(i32, Status)> {
        self.ended
    }

    /// Returns whether less than the minimum is left.
    pub fn is_full(&self) -> bool {
        self.memory.len().saturating_sub(self.used) < self.min.max(1)
    }
}
