//! Questions about memory: how they are written.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | kind |
//! | 1 | type of an atomic operation |
//! | 2 | operation |
//! | 3 | 1: there is immediate data |
//! | 4 to 8 | name of the reply |
//! | 8 to 16 | key |
//! | 16 to 24 | address within what the key is for |
//! | 24 to 32 | length, in bytes |
//! | 32 to 40 | immediate data |
//! | 40 on | bytes to write, or operands |
//!
//! All numbers are little-endian. A reply is a message of that name with a head: 0 or an error
//! number, and 0; then the bytes that were asked for.

/// Bytes before those to write.
const FIXED: usize = 40;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Write the bytes that go with it.
    Write = 1,
    /// Write the bytes that come as a message of its name.
    WriteLong = 2,
    /// Reply with bytes.
    Read = 3,
    /// Apply operands.
    Atomic = 4,
    /// Apply operands, and reply with what was there before.
    Fetch = 5,
    /// The same with two rows of operands: the second is compared with.
    Compare = 6,
    /// Send the long message of that name, which was told of; no memory is asked about.
    Want = 7,
    /// A message to whom this is sent was lost that its sender took for sent; no memory is asked about.
    Lost = 8,
    /// So many messages (the length) were received on connections before; no memory is asked about.
    Resume = 9,
    /// The long message of that name does not come, though it was told of; no memory is asked about.
    NoBody = 10,
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    pub kind: Kind,
    pub datatype: u8,
    pub operation: u8,
    pub name: u32,
    pub key: u64,
    pub address: u64,
    pub len: u64,
    pub data: Option<u64>,
}

impl Question {
    /// One of a kind, about nothing.
    pub fn blank(kind: Kind) -> Self {
        let (key, address, len) = (0, 0, 0);
        Self { kind, datatype: 0, operation: 0, name: 0, key, address, len, data: None }
    }

    /// As it crosses, with room for more bytes.
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

    /// Reads one, and what goes with it; none if it is none.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[kind, datatype, operation, data], rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (word, rest) = rest.split_first_chunk()?;
        let kind = match kind {
            1 => Kind::Write,
            2 => Kind::WriteLong,
            3 => Kind::Read,
            4 => Kind::Atomic,
            5 => Kind::Fetch,
            6 => Kind::Compare,
            7 => Kind::Want,
            8 => Kind::Lost,
            9 => Kind::Resume,
            10 => Kind::NoBody,
            _ => return None,
        };
        let data = match data {
            0 => None,
            1 => Some(u64::from_le_bytes(*word)),
            _ => return None,
        };
        let question = Self {
            kind,
            datatype,
            operation,
            name: u32::from_le_bytes(*name),
            key: u64::from_le_bytes(*key),
            address: u64::from_le_bytes(*address),
            len: u64::from_le_bytes(*len),
            data,
        };
        Some((question, rest))
    }
}
