//! Staged data: copies for receivers without room. Free of I/O.
//!
//! *Staged* data was copied out of the descriptors of its sender. A *pack* is a buffer with
//! consecutive pieces of data from one sender to one receiver. `crate::transmit` appends a packet's
//! data as a piece, if the sender's descriptors may hold no more; `crate::host_messages` stages
//! messages of processes, and [`crate::conn`] data that waits when a queue stops. `crate::deliver`
//! takes pieces from the front, in the thread of the shard as the others. Pieces share a pack, so
//! that a small piece costs little more than its bytes.
//!
//! A pack takes at most [`PACK_BYTES`] (64 KiB) of data (a single larger piece excepted), and its
//! memory is freed as a whole, after its last piece. The pack counts its cost; the caller keeps the
//! quota of the sender ([`STAGED_BYTES_MAX`](crate::limits::STAGED_BYTES_MAX) (4 MiB)), charges the
//! guest's port for messages of a process, and stops the sender's ring, or leaves the message in
//! the process's socket, when the quota is used up.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_memory::{Cursor, Map, OutOfGrant};

use crate::limits::{PACK_BYTES, STAGED_PACK_BYTES, STAGED_PIECE_BYTES};

/// Pieces of one sender for one receiver, in order.
#[derive(Debug)]
pub struct Pack {
    /// Sender; its quota is charged.
    pub from: PortId,
    /// Bytes of all pieces, delivered and not.
    bytes: Vec<u8>,
    /// Delivered bytes.
    at: usize,
    /// Ends of pieces in `bytes`, and the SEQPACKET flags of each.
    ends: VecDeque<(usize, u32)>,
    /// Bytes of the sender's quota that the pack uses.
    cost: usize,
}

/// Returns an upper bound of the quota that `len` more bytes use.
pub fn staged_cost(len: usize) -> usize {
    len.saturating_add(STAGED_PACK_BYTES).saturating_add(STAGED_PIECE_BYTES)
}

impl Pack {
    /// Makes an empty pack.
    pub fn new(from: PortId) -> Self {
        let (bytes, ends) = (Vec::new(), VecDeque::new());
        Self { from, bytes, at: 0, ends, cost: STAGED_PACK_BYTES }
    }

    /// Returns whether `len` bytes of `from` fit this pack.
    pub fn takes(&self, from: PortId, len: usize) -> bool {
        self.from == from && self.bytes.len().saturating_add(len) <= PACK_BYTES
    }

    /// Appends `len` bytes at `cursor` as a piece with the SEQPACKET flags `flags`. If the last
    /// piece has no flags, the bytes continue that piece.
    ///
    /// # Errors
    /// The bytes are not granted; the pack is unchanged.
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

    /// Ends a piece of which the last `len` bytes were appended.
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

    /// Returns the undelivered bytes of the first piece, and its flags; `None` if all pieces are
    /// removed.
    pub fn first(&self) -> Option<(&[u8], u32)> {
        let (end, flags) = *self.ends.front()?;
        Some((self.bytes.get(self.at..end).unwrap_or_default(), flags))
    }

    /// Marks `len` bytes of the first piece as delivered.
    pub fn advance(&mut self, len: usize) {
        self.at = self.at.saturating_add(len);
    }

    /// Removes the first piece. Returns whether it was the last.
    pub fn drop_first(&mut self) -> bool {
        if let Some((end, _)) = self.ends.pop_front() {
            self.at = end;
        }
        self.ends.is_empty()
    }

    /// Returns the undelivered bytes.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Returns the share of its sender's quota, in bytes, until it is dropped.
    pub fn cost(&self) -> usize {
        self.cost
    }
}
