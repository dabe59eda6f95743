//! The bound of the work that a call of the engine does.
//!
//! `causeway-hca` makes a budget from the time that is left in its turn; `mlx5::poll` gives each
//! call of [`crate::Subnet::progress`] a part of it. The engine takes a message for each work
//! request that it begins, tries again after a wait, or flushes, and the bytes that it copies; a
//! delivery to a multicast member takes bytes in place of a message. Checks of the policy,
//! scattered memory and copies for captures take bytes too. A connected message is cut where the
//! bytes end and continues in a later call. Datagrams and page lists are copied whole, so that they
//! may exceed the rest of the bytes; the budget then is spent, never negative. A spent budget is no
//! error: the call returns, and the work waits for the next call. A budget is a value of the
//! dispatcher's thread that serves the subnet.

/// The work that a call may do: messages that it may begin and bytes that it may copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    messages: u32,
    bytes: u64,
    /// Payload bytes that were copied.
    payload: u64,
}

impl Budget {
    /// Returns a budget.
    pub const fn new(messages: u32, bytes: u64) -> Self {
        Self { messages, bytes, payload: 0 }
    }

    /// Returns whether nothing may be done any more.
    pub const fn is_spent(&self) -> bool {
        self.messages == 0 || self.bytes == 0
    }

    /// Returns the messages that may still begin.
    pub const fn messages(&self) -> u32 {
        self.messages
    }

    /// Returns the bytes that may still be copied.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the payload bytes that were copied since the budget was made. Bytes that stand for
    /// time, as those of address ranges, are not payload.
    pub const fn payload(&self) -> u64 {
        self.payload
    }

    /// Takes messages and bytes, as far as they are left, and adds copied payload: the result of a
    /// part of the budget that the caller gave to a queue pair.
    pub fn take(&mut self, messages: u32, bytes: u64, payload: u64) {
        self.messages = self.messages.saturating_sub(messages);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.payload = self.payload.saturating_add(payload);
    }

    /// Takes a message. Returns false if none is left.
    pub(crate) fn take_message(&mut self) -> bool {
        let has = self.messages > 0;
        self.messages = self.messages.saturating_sub(1);
        has
    }

    /// Gives a message back that did not begin.
    pub(crate) fn return_message(&mut self) {
        self.messages = self.messages.saturating_add(1);
    }

    /// Takes copied payload.
    pub(crate) fn take_payload(&mut self, bytes: u64) {
        self.take(0, bytes, bytes);
    }

    /// Takes bytes that are no payload.
    pub(crate) fn take_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
