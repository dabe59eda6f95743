//! Data copied aside for a receiver without room. Free of I/O.
//!
//! Pieces that follow each other share a pack, so that a small one costs little more than its
//! bytes.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_memory::{Cursor, Map, OutOfGrant};

use crate::limits::{PACK_BYTES, STAGED_PACK_BYTES, STAGED_PIECE_BYTES};

/// Pieces of one sender for one receiver, in order.
#[derive(Debug)]
pub struct Pack {
    /// The sender, for its quota.
    pub from: PortId,
    bytes: Vec<u8>,
    /// Bytes that are done with.
    at: usize,
    /// Where pieces end in `bytes`, and the SEQPACKET flags of each.
    ends: VecDeque<(usize, u32)>,
    cost: usize,
}

/// Upper bound on what `len` more bytes take of their sender's quota.
pub fn staged_cost(len: usize) -> usize {
    len.saturating_add(STAGED_PACK_BYTES).saturating_add(STAGED_PIECE_BYTES)
}

impl Pack {
    /// An empty pack.
    pub fn new(from: PortId) -> Self {
        let (bytes, ends) = (Vec::new(), VecDeque::new());
        Self { from, bytes, at: 0, ends, cost: STAGED_PACK_BYTES }
    }

    /// Whether `len` bytes of `from` go into this pack.
    pub fn takes(&self, from: PortId, len: usize) -> bool {
        self.from == from && self.bytes.len().saturating_add(len) <= PACK_BYTES
    }

    /// Appends `len` bytes at `cursor`, whose piece has the SEQPACKET flags `flags`. Bytes behind
    /// a piece without flags continue it.
    ///
    /// # Errors
    /// The bytes are not granted; the pack is as before.
    pub fn append(
        &mut self,
        map: &Map,
        mut cursor: Cursor<'_>,
        len: usize,
        flags: u32,
    ) -> Result<(), OutOfGrant> {
        let before = self.bytes.len();
        let end = before.saturating_add(len);
        self.bytes.resize(end, 0);
        if let Err(gap) = cursor.read(map, self.bytes.get_mut(before..).unwrap_or_default()) {
            self.bytes.truncate(before);
            return Err(gap);
        }
        self.seal(len, flags);
        Ok(())
    }

    /// Appends `bytes`, as [`Self::append`].
    pub fn append_bytes(&mut self, bytes: &[u8], flags: u32) {
        self.bytes.extend_from_slice(bytes);
        self.seal(bytes.len(), flags);
    }

    fn seal(&mut self, len: usize, flags: u32) {
        let end = self.bytes.len();
        match self.ends.back_mut().filter(|(_, flags)| *flags == 0) {
            Some(last) => *last = (end, flags),
            None => {
                self.ends.push_back((end, flags));
                self.cost = self.cost.saturating_add(STAGED_PIECE_BYTES);
            }
        }
        self.cost = self.cost.saturating_add(len);
    }

    /// What is left of the first piece, and its flags; none when all is done with.
    pub fn first(&self) -> Option<(&[u8], u32)> {
        let (end, flags) = *self.ends.front()?;
        Some((self.bytes.get(self.at..end).unwrap_or_default(), flags))
    }

    /// `len` bytes of the first piece are done with.
    pub fn advance(&mut self, len: usize) {
        self.at = self.at.saturating_add(len);
    }

    /// The first piece is done with. Returns whether it was the last one.
    pub fn drop_first(&mut self) -> bool {
        if let Some((end, _)) = self.ends.pop_front() {
            self.at = end;
        }
        self.ends.is_empty()
    }

    /// Bytes that are not done with.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// What it takes of its sender's quota, in bytes, until it is dropped.
    pub fn cost(&self) -> usize {
        self.cost
    }
}
