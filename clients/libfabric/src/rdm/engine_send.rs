//! A message in the form that the engine takes, before the engine has it.
//!
//! [`send`](super::send) makes such messages; they wait for a connect ([`connect`](super::connect)),
//! for the receiver's request ([`deferred`](super::deferred)), or for the peer's count of received
//! messages ([`resend`](super::resend)). Only [`send`](super::send) passes them to the engine. The
//! module keeps no list, and does not know the operation behind its index.

use super::buffer::MessageBuffer;

/// The engine's context of a send without an operation.
pub const UNNAMED: u64 = u64::MAX;

/// A message in the form that the engine takes.
#[derive(Debug)]
pub struct EngineSend {
    /// Index of the operation, also the engine's context of the request.
    operation: u32,
    /// The 64 bits that the receiver matches.
    info: u64,
    /// Head, if any, and bytes.
    buffer: MessageBuffer,
    /// Whether the send completes on delivery.
    delivered: bool,
}

impl EngineSend {
    /// Returns an internal message, which completes on transmission.
    #[inline]
    pub fn of(operation: u32, info: u64, buffer: MessageBuffer) -> Self {
        Self { operation, info, buffer, delivered: false }
    }

    /// Returns a message that completes on delivery if `delivered`, else on transmission.
    #[inline]
    pub fn new(operation: u32, info: u64, buffer: MessageBuffer, delivered: bool) -> Self {
        Self { operation, info, buffer, delivered }
    }

    /// Returns the operation that the message belongs to.
    pub fn operation(&self) -> u32 {
        self.operation
    }

    /// Returns whether the send completes on delivery.
    #[inline]
    pub fn is_delivered(&self) -> bool {
        self.delivered
    }

    /// Returns the operation, the 64 bits that the receiver matches, and head and bytes.
    #[inline]
    pub fn into_parts(self) -> (u32, u64, MessageBuffer) {
        (self.operation, self.info, self.buffer)
    }

    /// Returns whether the message has a copy of its bytes, and may thus be reported as sent.
    pub fn is_copy(&self) -> bool {
        self.buffer.is_copy()
    }

    /// Copies the bytes, so that the application may reuse the memory.
    pub fn copy_payload(&mut self) {
        self.buffer.copy_payload();
    }
}
