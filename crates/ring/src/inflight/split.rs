//! The in-flight record of a split queue, written at each pop, push and publication.
//!
//! [`crate::split`] calls it, in the dispatcher's thread. A pop marks the head with a counter,
//! which gives the order; a push links the head into the current batch; a publication stores the
//! used index and clears the marks of the batch. The format is that of the vhost-user protocol. A
//! successor recovers from the record: heads whose used index was published are cleared, also if
//! the clearing was interrupted, and the other marked heads are returned for processing again,
//! oldest first. Every value that it reads is checked. The record has no copies of descriptors: a
//! split ring keeps them. It has 16 bytes, and 16 for each entry of the queue; a record that is
//! shorter, of another queue size or inconsistent is [`RingError::Inflight`].

use causeway_memory::View;

use super::lost;
use crate::error::RingError;

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
// Offsets in the header: features u64, version u16, desc_num u16, last_batch_head u16, used_idx
// u16.
const VERSION: usize = 8;
const DESC_NUM: usize = 10;
const LAST_BATCH_HEAD: usize = 12;
const USED_IDX: usize = 14;
// Offsets in an entry: inflight u8, padding [u8; 5], next u16, counter u64.
const NEXT: usize = 6;
const COUNTER: usize = 8;

/// The part of the record that belongs to one split queue.
#[derive(Debug)]
pub struct SplitInflight {
    /// The record's memory.
    view: View,
    /// Number of entries of the queue.
    size: u16,
    /// Counter of the last pop.
    counter: u64,
    /// Whether the record is new.
    fresh: bool,
    /// Heads pushed since the last publication.
    batch: Vec<u16>,
}

impl SplitInflight {
    /// Implements [`super::Inflight::bytes`].
    pub(super) fn bytes(size: u16) -> usize {
        usize::from(size)
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(HEADER_BYTES)
            .next_multiple_of(64)
    }

    /// Implements [`super::Inflight::new`].
    pub(super) fn new(view: View, size: u16) -> Result<Self, RingError> {
        if view.len() < Self::bytes(size) {
            return Err(RingError::Inflight);
        }
        let version = u16::from_le_bytes(view.read(VERSION).map_err(lost)?);
        let count = u16::from_le_bytes(view.read(DESC_NUM).map_err(lost)?);
        let fresh = version == 0;
        if !fresh && (version != 1 || count != size) {
            return Err(RingError::Inflight);
        }
        Ok(Self { view, size, counter: 0, fresh, batch: Vec::new() })
    }

    /// Returns the offset of a field in the entry of `head`.
    fn entry(&self, head: u16, field: usize) -> usize {
        usize::from(head).wrapping_mul(ENTRY_BYTES).wrapping_add(HEADER_BYTES).wrapping_add(field)
    }

    /// Initialises a new record. The queue may have run without a record, so its used index is
    /// stored; the version is written last, so that a record with a version is complete.
    fn begin(&mut self, used_index: u16) -> Result<(), RingError> {
        self.view.write(DESC_NUM, &self.size.to_le_bytes()).map_err(lost)?;
        self.view.write(USED_IDX, &used_index.to_le_bytes()).map_err(lost)?;
        self.view.write(VERSION, &1_u16.to_le_bytes()).map_err(lost)
    }

    /// Completes the batch that an earlier process was publishing, and returns the heads that are
    /// still in flight, oldest first, or `None` if the record is new.
    pub(crate) fn recover(&mut self, used_index: u16) -> Result<Option<Vec<u16>>, RingError> {
        if std::mem::take(&mut self.fresh) {
            self.begin(used_index)?;
            return Ok(None);
        }
        let recorded = u16::from_le_bytes(self.view.read(USED_IDX).map_err(lost)?);
        let batch = used_index.wrapping_sub(recorded);
        if batch > self.size {
            return Err(RingError::Inflight);
        }
        let mut head = u16::from_le_bytes(self.view.read(LAST_BATCH_HEAD).map_err(lost)?);
        for _ in 0..batch {
            if head >= self.size {
                return Err(RingError::Inflight);
            }
            self.view.write(self.entry(head, 0), &[0]).map_err(lost)?;
            head = u16::from_le_bytes(self.view.read(self.entry(head, NEXT)).map_err(lost)?);
        }
        self.view.write(USED_IDX, &used_index.to_le_bytes()).map_err(lost)?;
        let mut open: Vec<(u64, u16)> = Vec::new();
        for head in 0..self.size {
            let [mark] = self.view.read::<1>(self.entry(head, 0)).map_err(lost)?;
            if mark != 0 {
                let at = self.entry(head, COUNTER);
                open.push((u64::from_le_bytes(self.view.read(at).map_err(lost)?), head));
            }
        }
        open.sort_unstable();
        self.counter = open.last().map_or(0, |&(counter, _)| counter.wrapping_add(1));
        Ok(Some(open.into_iter().map(|(_, head)| head).collect()))
    }

    /// Records that chain `head` was popped.
    pub(crate) fn take(&mut self, head: u16) -> Result<(), RingError> {
        self.view.write(self.entry(head, COUNTER), &self.counter.to_le_bytes()).map_err(lost)?;
        self.counter = self.counter.wrapping_add(1);
        self.view.write(self.entry(head, 0), &[1]).map_err(lost)
    }

    /// Records that chain `head` is pushed to the used ring, but not published.
    pub(crate) fn push(&mut self, head: u16) -> Result<(), RingError> {
        let last: [u8; 2] = self.view.read(LAST_BATCH_HEAD).map_err(lost)?;
        self.view.write(self.entry(head, NEXT), &last).map_err(lost)?;
        self.view.write(LAST_BATCH_HEAD, &head.to_le_bytes()).map_err(lost)?;
        self.batch.push(head);
        Ok(())
    }

    /// Commits the batch after publication of the used index `index`.
    pub(crate) fn published(&mut self, index: u16) -> Result<(), RingError> {
        while let Some(head) = self.batch.pop() {
            self.view.write(self.entry(head, 0), &[0]).map_err(lost)?;
        }
        self.view.write(USED_IDX, &index.to_le_bytes()).map_err(lost)
    }
}
