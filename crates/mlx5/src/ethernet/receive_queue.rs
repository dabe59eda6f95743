//! Receive queues of Ethernet frames: a cyclic array of entries, each a list of buffers.
//!
//! An entry is read when a frame arrives, and taken when the frame lies in its buffers, so that a
//! frame that does not fit leaves the entry to the next frame. The queue reads the driver's counter
//! only while no posted entry is known. A counter too far ahead, or memory that is not granted,
//! breaks the queue: `super::receive` moves it to the error state, and it reads as empty until its
//! driver resets it. A reset forgets the posted entries. `super::receive` is the caller, in the
//! dispatcher's turn. A queue has at most 2^15 entries of up to 2,048 bytes; a frame that finds no
//! posted entry is the caller's to drop.

use causeway_memory::{Map, Span};
use causeway_verbs::QueueError;
use causeway_verbs::region::{RegionError, Regions, Rights};
use causeway_verbs::work::ReceiveWork;
use causeway_wire::mlx5::completion_queue::{
    CompletionEntry, CompletionOpcode, Entry, ErrorEntry, Syndrome,
};
use causeway_wire::mlx5::work_queue::{QueueState, ReceiveQueueContext};

use crate::limits::RECEIVE_ENTRY_BYTES_MAX;
use crate::page_list::PageList;
use crate::receive_entry;
use crate::work_queues::Positions;

/// A receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pages: PageList,
    /// Context as the driver gave it, with the present state.
    pub context: ReceiveQueueContext,
    /// Entries that were taken and posted.
    positions: Positions,
}

impl ReceiveQueue {
    /// Returns the queue of a context that the command checked: the stride is at most
    /// [`RECEIVE_ENTRY_BYTES_MAX`] (2,048 bytes).
    pub fn new(pages: PageList, context: ReceiveQueueContext) -> Self {
        Self { pages, context, positions: Positions::default() }
    }

    /// Returns the number of entries, a power of two.
    fn entries(&self) -> u32 {
        1_u32.checked_shl(u32::from(self.context.queue.log_size)).unwrap_or(0)
    }

    /// Returns whether the queue receives.
    pub fn is_ready(&self) -> bool {
        self.context.state == QueueState::Ready.raw()
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

    /// Changes the state. A reset empties the queue: its counter starts at zero.
    pub fn set_state(&mut self, state: QueueState) {
        self.context.state = state.raw();
        if state == QueueState::Reset {
            self.positions = Positions::default();
        }
    }

    /// Reads the next entry without taking it; `bytes` is room for its copy. Returns false if none
    /// is posted.
    ///
    /// # Errors
    /// [`QueueError`]; the queue cannot be read any further.
    #[inline]
    pub fn peek(
        &mut self,
        map: &Map,
        bytes: &mut Vec<u8>,
        work: &mut ReceiveWork,
    ) -> Result<bool, QueueError> {
        let counter = self.context.queue.doorbell_record;
        if !self.positions.refresh(map, counter, self.entries())? {
            return Ok(false);
        }
        let stride = self.context.queue.stride();
        let len = usize::try_from(stride).unwrap_or(usize::MAX).min(RECEIVE_ENTRY_BYTES_MAX);
        bytes.resize(len, 0);
        let index = u32::from(self.positions.taken) & self.entries().wrapping_sub(1);
        let at = u64::from(index).wrapping_mul(stride);
        if self.pages.read(map, at, bytes).is_err() {
            return self.positions.fail("the receive queue is not granted");
        }
        receive_entry::parse(bytes, work);
        work.token.index = self.positions.taken;
        Ok(true)
    }

    /// Takes the entry that [`Self::peek`] read.
    pub fn take(&mut self) {
        self.positions.taken = self.positions.taken.wrapping_add(1);
    }

    /// Returns the completion of a received frame, without its reports. `tag` is that of the flow
    /// entry: drivers mark the packet with it.
    pub fn success(&self, index: u16, tag: u32, bytes: usize) -> CompletionEntry {
        CompletionEntry {
            user_index: self.context.user_index,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            queue: tag,
            counter: index,
            opcode: CompletionOpcode::ReceiveSend.raw(),
            ..CompletionEntry::default()
        }
    }

    /// Returns the completion of an entry that failed.
    pub fn failure(&self, number: u32, index: u16) -> Entry {
        Entry::Error(ErrorEntry {
            user_index: self.context.user_index,
            syndrome: Syndrome::LocalProtection.raw(),
            queue: number,
            counter: index,
            opcode: CompletionOpcode::ResponderError.raw(),
            ..ErrorEntry::default()
        })
    }
}

/// Appends the buffers for the first `len` bytes of a frame to `spans`. Returns false if the entry
/// is too short.
///
/// # Errors
/// [`RegionError`] if the entry names memory without permission.
pub(crate) fn buffers(
    work: &ReceiveWork,
    (regions, domain): (&Regions, u32),
    len: usize,
    spans: &mut Vec<Span>,
) -> Result<bool, RegionError> {
    let mut left = len as u64;
    for segment in &work.segments {
        let now = u64::from(segment.len).min(left);
        if now == 0 {
            break;
        }
        let range = (segment.address, now);
        regions.resolve(segment.key, domain, range, Rights::LOCAL_WRITE, spans)?;
        left = left.saturating_sub(now);
    }
    Ok(left == 0)
}
