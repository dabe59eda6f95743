//! Send queues of Ethernet frames: the ring of entries, and the list of queues that are polled.
//!
//! An entry has 1 to 16 blocks of 64 bytes and may continue at the ring's begin. The queue reads
//! the driver's counter only while no posted block is known. An entry with length 0, or longer than
//! the posted blocks, a counter too far ahead, and memory that is not granted break the queue:
//! `super::transmit` moves it to the error state, and it reads as empty until its driver resets it.
//! A reset forgets the posted entries. `super::transmit` is the caller, in the dispatcher's turn;
//! the queues are served in turn, [`BURST`] (16) entries each. A queue has at most 2^15 blocks.

use causeway_memory::{Map, WordWatch};
use causeway_verbs::QueueError;
use causeway_wire::mlx5::completion_queue::{
    CompletionEntry, CompletionOpcode, Entry, ErrorEntry, Syndrome,
};
use causeway_wire::mlx5::work_queue::{QueueState, SEND_BLOCK, SendQueueContext};

use super::limits::BURST;
use crate::completion_queue::read_word;
use crate::page_list::PageList;
use crate::send_entry;
use crate::work_queues::{Positions, SEND_ENTRY_BYTES_MAX};

/// Offset of the counter of sent blocks in a doorbell record.
const COUNTER: u64 = 4;

/// A copy of a block.
pub(crate) type Block = [u8; SEND_BLOCK];
/// A copy of an entry.
pub(crate) type EntryBytes = [u8; SEND_ENTRY_BYTES_MAX];

/// A send queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pages: PageList,
    /// Context as the driver gave it, with the present state.
    pub context: SendQueueContext,
    /// Blocks that were taken and posted.
    positions: Positions,
}

/// The place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Count of the first block.
    pub index: u16,
    /// Length of the entry, in blocks: at least 1.
    pub blocks: u16,
}

impl SendQueue {
    /// Returns the queue of a context that the command checked.
    pub fn new(pages: PageList, context: SendQueueContext) -> Self {
        Self { pages, context, positions: Positions::default() }
    }

    /// Returns the number of blocks, a power of two.
    fn blocks(&self) -> u32 {
        1_u32.checked_shl(u32::from(self.context.queue.log_size)).unwrap_or(0)
    }

    /// Returns the state.
    pub fn state(&self) -> Option<QueueState> {
        QueueState::from_raw(self.context.state)
    }

    /// Returns the positions, for queries.
    pub fn positions(&self) -> Positions {
        self.positions
    }

    /// Sets a recorded position and state.
    pub fn resume(&mut self, taken: u16, state: QueueState) {
        self.context.state = state.raw();
        self.positions = Positions::at(taken);
    }

    /// Changes the state. A reset empties the queue: its counters start at zero.
    pub fn set_state(&mut self, state: QueueState) {
        self.context.state = state.raw();
        if state == QueueState::Reset {
            self.positions = Positions::default();
        }
    }

    /// Returns whether the driver has posted an entry.
    ///
    /// # Errors
    /// As for [`Self::first`].
    #[inline]
    pub fn has_next(&mut self, map: &Map) -> Result<bool, QueueError> {
        let counter = self.context.queue.doorbell_record.wrapping_add(COUNTER);
        self.positions.refresh(map, counter, self.blocks())
    }

    /// Returns whether the driver has posted an entry, and leaves the queue as it is. A counter
    /// that is not granted counts as an entry: [`Self::has_next`] then breaks the queue.
    pub fn is_posted(&self, map: &Map) -> bool {
        if self.positions.is_broken() || self.positions.waiting() > 0 {
            return !self.positions.is_broken();
        }
        let counter = self.context.queue.doorbell_record.wrapping_add(COUNTER);
        read_word(map, counter).is_none_or(|posted| posted as u16 != self.positions.taken)
    }

    /// Adds the word that changes when the driver posts an entry. Returns `None` if an entry waits,
    /// or the doorbell record is not granted.
    pub fn watch(&self, watch: &mut WordWatch) -> Option<()> {
        if self.positions.is_broken() {
            return Some(());
        }
        let counter = self.context.queue.doorbell_record.wrapping_add(COUNTER);
        let posted = watch.add(counter).ok().map(u32::from_be)? as u16;
        let is_empty = self.positions.waiting() == 0 && posted == self.positions.taken;
        is_empty.then_some(())
    }

    /// Copies the first block of the next entry to `into`. [`Self::has_next`] must have returned
    /// true. The caller takes the entry by [`Self::advance`].
    ///
    /// # Errors
    /// [`QueueError`]; the queue cannot be read any further.
    #[inline]
    pub fn first(&mut self, map: &Map, into: &mut Block) -> Result<Head, QueueError> {
        let index = self.positions.taken;
        if self.read(map, index, into).is_none() {
            return self.positions.fail("the send queue is not granted");
        }
        let Some(blocks) = send_entry::blocks(into) else {
            return self.positions.fail("the length of a send entry is zero");
        };
        if blocks > self.positions.waiting() || u32::from(blocks) > self.blocks() {
            return self.positions.fail("a send entry is longer than the posted blocks");
        }
        Ok(Head { index, blocks })
    }

    /// Copies the other blocks of the next entry behind `first`, to `into`. Returns all blocks.
    ///
    /// # Errors
    /// As for [`Self::first`].
    pub fn rest<'a>(
        &mut self,
        map: &Map,
        (head, first): (Head, &Block),
        into: &'a mut EntryBytes,
    ) -> Result<&'a [u8], QueueError> {
        let (pieces, _) = into.as_chunks_mut::<SEND_BLOCK>();
        let mut index = head.index;
        for (number, piece) in pieces.iter_mut().take(usize::from(head.blocks)).enumerate() {
            if number == 0 {
                *piece = *first;
            } else if self.read(map, index, piece).is_none() {
                return self.positions.fail("the send queue is not granted");
            }
            index = index.wrapping_add(1);
        }
        let len = usize::from(head.blocks).saturating_mul(SEND_BLOCK);
        Ok(into.get(..len).unwrap_or(&[]))
    }

    /// Takes the entry of a head.
    pub fn advance(&mut self, head: Head) {
        self.positions.taken = head.index.wrapping_add(head.blocks);
    }

    /// Copies the block with a count out.
    fn read(&self, map: &Map, count: u16, into: &mut Block) -> Option<()> {
        let index = u32::from(count) & self.blocks().wrapping_sub(1);
        let at = u64::from(index).wrapping_mul(SEND_BLOCK as u64);
        self.pages.read_array(map, at, into).ok()
    }

    /// Returns the completion of an entry.
    pub fn success(&self, number: u32, index: u16, opcode: u8) -> Entry {
        Entry::Success(CompletionEntry {
            user_index: self.context.user_index,
            request_opcode: opcode,
            queue: number,
            counter: index,
            opcode: CompletionOpcode::Request.raw(),
            ..CompletionEntry::default()
        })
    }

    /// Returns the completion of an entry that failed.
    pub fn failure(&self, number: u32, index: u16, opcode: u8, syndrome: Syndrome) -> Entry {
        Entry::Error(ErrorEntry {
            user_index: self.context.user_index,
            syndrome: syndrome.raw(),
            request_opcode: opcode,
            queue: number,
            counter: index,
            opcode: CompletionOpcode::RequestError.raw(),
            ..ErrorEntry::default()
        })
    }
}

/// The send queues that are polled, in turn.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    queues: Vec<u32>,
    cursor: usize,
    /// Entries of the present queue since its turn began.
    taken: u8,
}

impl Rotation {
    /// Returns the number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns the queues.
    pub fn queues(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.iter().copied()
    }

    /// Returns whether a queue is polled.
    pub fn contains(&self, queue: u32) -> bool {
        self.queues.contains(&queue)
    }

    /// Adds a queue, or removes it.
    pub fn set(&mut self, queue: u32, is_polled: bool) {
        match (self.queues.iter().position(|own| *own == queue), is_polled) {
            (None, true) => self.queues.push(queue),
            (Some(index), false) => drop(self.queues.swap_remove(index)),
            _ => {}
        }
    }

    /// Returns the queue that has its turn.
    pub fn present(&mut self) -> Option<u32> {
        if self.cursor >= self.queues.len() {
            self.cursor = 0;
        }
        self.queues.get(self.cursor).copied()
    }

    /// Ends the turn of the present queue.
    pub fn advance(&mut self) {
        self.cursor = self.cursor.wrapping_add(1);
        self.taken = 0;
    }

    /// Counts an entry of the present queue, and ends its turn after [`BURST`] (16) entries. Returns
    /// whether the turn ended.
    pub fn count(&mut self) -> bool {
        self.taken = self.taken.saturating_add(1);
        let has_ended = self.taken >= BURST;
        if has_ended {
            self.advance();
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_rotation_serves_queues_in_bursts() {
        let mut rotation = Rotation::default();
        assert_eq!(rotation.present(), None);
        for queue in [5, 6, 7, 6] {
            rotation.set(queue, true);
        }
        assert_eq!(rotation.len(), 3);
        let mut order = Vec::new();
        for _ in 0..3 * usize::from(BURST) + 1 {
            order.push(rotation.present().unwrap());
            rotation.count();
        }
        order.dedup();
        assert_eq!(order, [5, 6, 7, 5]);
        rotation.advance();
        assert_eq!(rotation.present(), Some(6));
        for queue in [5, 7] {
            rotation.set(queue, false);
        }
        assert_eq!(rotation.present(), Some(6));
        rotation.set(6, false);
        assert_eq!((rotation.present(), rotation.len()), (None, 0));
    }
}
