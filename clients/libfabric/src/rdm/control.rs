//! The format of control requests: reads, writes and atomic operations on memory, and requests
//! about messages and connections.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | kind |
//! | 1 | data type of an atomic operation |
//! | 2 | atomic operation |
//! | 3 | 1 if there is immediate data |
//! | 4 to 8 | name of the reply |
//! | 8 to 16 | key |
//! | 16 to 24 | address in the memory of the key |
//! | 24 to 32 | length, in bytes |
//! | 32 to 40 | immediate data |
//! | 40 on | bytes to write, or operands |
//!
//! All numbers are little-endian. A reply is a message with that operation name and a head: 0 or an
//! error number, and 0; then the requested bytes.
//!
//! A *name* is the number by which a peer refers to an operation of this endpoint
//! ([`operation`](super::operation)). This module checks the format only: an unknown kind, a
//! truncated request or a flag other than 0 and 1 yields `None`, and [`target`](super::target)
//! drops the request without a reply. Fields that a kind does not use are ignored.
//! [`target`](super::target) checks keys and ranges. The module sends and receives nothing.
//! [`initiator`](super::initiator), [`deferred`](super::deferred), [`connect`](super::connect) and
//! [`resend`](super::resend) make requests; [`target`](super::target) parses them when its process
//! makes progress. All peers must run the same format: there is no version field.

/// Bytes before the data.
const FIXED: usize = 40;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ControlKind {
    /// Write the bytes of the request.
    Write = 1,
    /// Write the bytes that are sent as a separate message with the operation name of the request.
    WriteLong = 2,
    /// Reply with bytes.
    Read = 3,
    /// Apply operands.
    Atomic = 4,
    /// Apply operands, and reply with the previous values.
    Fetch = 5,
    /// Compare with the second row of operands, apply the first, and reply with the previous
    /// values.
    Compare = 6,
    /// Requests the bytes of the deferred send of this operation name. Concerns no memory.
    Want = 7,
    /// Reports that a message to the receiver of this request was lost after it was reported as
    /// sent. Concerns no memory.
    Lost = 8,
    /// Reports the number of messages (the length) that were received on earlier connections.
    /// Concerns no memory.
    Resume = 9,
    /// Cancels the bytes of the send with this operation name, after its notice. Concerns no
    /// memory.
    NoBody = 10,
}

/// A control request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlRequest {
    /// The kind, which determines the fields that count; the others are 0.
    pub kind: ControlKind,
    /// libfabric's number of the data type.
    pub datatype: u8,
    /// libfabric's number of the atomic operation.
    pub operation: u8,
    /// The name of the sender's operation, which its reply or its bytes carry.
    pub name: u32,
    /// The key of the target's region.
    pub key: u64,
    /// The address in that region.
    pub address: u64,
    /// Length in bytes; for [`ControlKind::Resume`], a number of messages.
    pub len: u64,
    /// Immediate data.
    pub data: Option<u64>,
}

impl ControlRequest {
    /// Returns a request without parameters.
    pub fn blank(kind: ControlKind) -> Self {
        let (key, address, len) = (0, 0, 0);
        Self { kind, datatype: 0, operation: 0, name: 0, key, address, len, data: None }
    }

    /// Returns the encoding, with capacity for `more` bytes.
    pub fn emit(&self, more: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED.saturating_add(more));
        let data = u8::from(self.data.is_some());
        bytes.extend_from_slice(&[self.kind as u8, self.datatype, self.operation, data]);
        bytes.extend_from_slice(&self.name.to_le_bytes());
        for word in [self.key, self.address, self.len, self.data.unwrap_or(0)] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses a request; returns it and the data behind it, or `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[kind, datatype, operation, data], rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (word, rest) = rest.split_first_chunk()?;
        let kind = match kind {
            1 => ControlKind::Write,
            2 => ControlKind::WriteLong,
            3 => ControlKind::Read,
            4 => ControlKind::Atomic,
            5 => ControlKind::Fetch,
            6 => ControlKind::Compare,
            7 => ControlKind::Want,
            8 => ControlKind::Lost,
            9 => ControlKind::Resume,
            10 => ControlKind::NoBody,
            _ => return None,
        };
        let data = match data {
            0 => None,
            1 => Some(u64::from_le_bytes(*word)),
            _ => return None,
        };
        let control = Self {
            kind,
            datatype,
            operation,
            name: u32::from_le_bytes(*name),
            key: u64::from_le_bytes(*key),
            address: u64::from_le_bytes(*address),
            len: u64::from_le_bytes(*len),
            data,
        };
        Some((control, rest))
    }
}
