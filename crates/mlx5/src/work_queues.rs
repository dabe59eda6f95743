//! The rings of a queue pair: send queue and own receive queue, behind each other in a buffer.
//!
//! The driver posts by two counters of 16 bits in a *doorbell record*; the send counter counts
//! blocks of 64 bytes. The function reads a counter only while it knows of no waiting entry. A
//! counter that runs further ahead than the ring is long, memory that is not granted, and a
//! malformed entry break the queue: the call returns [`QueueError`], and the engine moves the queue
//! pair to the error state. A broken queue reads as empty from then on, so that a flush ends; a
//! broken send queue gets one error completion, and its other posted entries, and those of a broken
//! receive queue, get none. A reset of the queue pair mends it, and forgets the entries that were
//! posted or taken, without completions.
//!
//! Rings have at most 2^15 blocks or entries. Each entry is copied once to private memory before it
//! is parsed. `queues` calls this module for the engine, `poll` for the look at the counters, both
//! in the dispatcher's thread; shared receive queues are in `receive_pool`, Ethernet queues in
//! `ethernet`.

use causeway_memory::{Map, WordWatch};
use causeway_verbs::QueueError;
use causeway_verbs::work::{ReceiveWork, SendWork};
use causeway_wire::mlx5::queue_pair::{QueuePairContext, SEND_BLOCK};

use crate::completion_queue::read_word;
use crate::limits::{RECEIVE_ENTRY_BYTES_MAX, SEND_BLOCKS_MAX};
use crate::page_list::PageList;
use crate::receive_entry;
use crate::record::progress::PairProgress;
use crate::send_entry;

/// Private copy of an entry; one for each function, so that no call clears the memory.
#[derive(Debug)]
pub(crate) struct Scratch(pub Box<[u8; RECEIVE_ENTRY_BYTES_MAX]>);

impl Default for Scratch {
    fn default() -> Self {
        Self(Box::new([0; RECEIVE_ENTRY_BYTES_MAX]))
    }
}

/// Bytes of the longest send entry.
pub(crate) const SEND_ENTRY_BYTES_MAX: usize = SEND_BLOCK * SEND_BLOCKS_MAX;

// The longest send entry fits into the copy too.
const _: () = assert!(SEND_ENTRY_BYTES_MAX <= RECEIVE_ENTRY_BYTES_MAX);

/// Positions in a ring, modulo 2^16.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Positions {
    /// Entries or blocks that were taken.
    pub taken: u16,
    /// Entries or blocks that were posted, as last read.
    pub posted: u16,
    is_broken: bool,
}

impl Positions {
    /// Returns the positions of a queue of which `taken` entries were taken.
    pub fn at(taken: u16) -> Self {
        Self { taken, posted: taken, is_broken: false }
    }

    /// Reads the counter of posted entries unless some are known to wait. Returns false if there
    /// are none, or if the queue is broken.
    ///
    /// # Errors
    /// [`QueueError`] if the counter is not granted or more than `size` ahead; the queue is then
    /// broken.
    #[inline]
    pub fn refresh(&mut self, map: &Map, counter: u64, size: u32) -> Result<bool, QueueError> {
        if self.is_broken {
            return Ok(false);
        }
        if self.posted == self.taken {
            let Some(word) = read_word(map, counter) else {
                return self.fail("the doorbell record is not granted");
            };
            self.posted = word as u16;
            if self.posted == self.taken {
                return Ok(false);
            }
            if u32::from(self.waiting()) > size {
                return self.fail("more entries are posted than the queue holds");
            }
        }
        Ok(true)
    }

    /// Returns the number of entries that are known to wait.
    pub fn waiting(&self) -> u16 {
        self.posted.wrapping_sub(self.taken)
    }

    /// Returns whether the queue is broken.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Breaks the queue.
    pub fn fail<T>(&mut self, reason: &'static str) -> Result<T, QueueError> {
        self.is_broken = true;
        Err(QueueError(reason))
    }
}

/// The rings of a queue pair.
#[derive(Debug)]
pub(crate) struct WorkQueues {
    /// Memory of both rings.
    pages: PageList,
    /// Context as the driver gave it, with the changes of later commands.
    pub context: QueuePairContext,
    send: Positions,
    receive: Positions,
    /// Number of blocks of the send queue; 0 if there is none.
    send_blocks: u32,
    /// Offset of the send queue in the buffer, in bytes.
    send_offset: u64,
    /// Number of entries of the own receive queue; 0 if there is none.
    receive_entries: u32,
    /// Length of a receive entry, in bytes.
    receive_stride: u64,
    /// The recorded progress.
    pub progress: PairProgress,
    /// Events that were reported since the last reset; bit n is the event type n.
    pub reported: u64,
    /// Events of these that wait (`crate::paced_events`).
    pub delayed: u64,
    /// The queue pair is in the list of polled queue pairs.
    pub is_active: bool,
    /// The engine must be called on the next pass, with any value of the doorbell record; set by
    /// `Objects::set_pending`, which counts these queue pairs.
    pub is_pending: bool,
    /// The queue pair is in the error state: receive work requests that are posted are flushed too.
    pub is_failed: bool,
}

impl WorkQueues {
    /// Returns the rings of a context that the command checked.
    pub fn new(pages: PageList, context: QueuePairContext) -> Self {
        Self {
            pages,
            send: Positions::default(),
            receive: Positions::default(),
            send_blocks: context.send_blocks(),
            send_offset: context.send_offset(),
            receive_entries: context.receive_entries(),
            receive_stride: u64::from(context.receive_stride()),
            context,
            progress: PairProgress::default(),
            reported: 0,
            delayed: 0,
            is_active: false,
            is_pending: false,
            is_failed: false,
        }
    }

    /// Empties both rings: both counters start at zero. The caller clears the pending state
    /// (`Objects::set_pending`).
    pub fn reset(&mut self) {
        self.send = Positions::default();
        self.receive = Positions::default();
        self.progress = self.progress.reset();
        (self.reported, self.delayed) = (0, 0);
        self.is_failed = false;
    }

    /// Sets the recorded progress and events.
    pub fn resume(&mut self, progress: PairProgress, reported: u64) {
        self.send = Positions::at(progress.ended);
        self.receive = Positions::at(progress.received);
        (self.progress, self.reported) = (progress, reported);
    }

    /// Returns whether the engine has work for the queue pair.
    #[inline]
    pub fn is_due(&self, map: &Map) -> bool {
        self.is_pending
            || self.has_send(map)
            || (self.is_failed && self.waiting_receives(map) > 0 && !self.receive.is_broken)
    }

    /// Returns the positions of both rings: send, receive.
    pub fn positions(&self) -> [Positions; 2] {
        [self.send, self.receive]
    }

    /// Returns whether the driver has posted send work requests that were not taken.
    #[inline]
    fn has_send(&self, map: &Map) -> bool {
        if self.send_blocks == 0 || self.send.is_broken {
            return false;
        }
        self.send.waiting() != 0
            || read_word(map, self.send_counter()).is_none_or(|word| word as u16 != self.send.taken)
    }

    /// Adds the words of which one changes before the engine has work. Returns `None` if the engine
    /// has work, or a word is not granted.
    pub fn watch(&self, watch: &mut WordWatch) -> Option<()> {
        if self.is_pending {
            return None;
        }
        let mut is_empty = |record: u64, taken: u16| {
            let word = watch.add(record).ok().map(u32::from_be)?;
            (word as u16 == taken).then_some(())
        };
        if self.send_blocks > 0 && !self.send.is_broken {
            (self.send.waiting() == 0).then_some(())?;
            is_empty(self.send_counter(), self.send.taken)?;
        }
        if self.is_failed && self.receive_entries > 0 && !self.receive.is_broken {
            is_empty(self.context.doorbell_record, self.receive.taken)?;
        }
        Some(())
    }

    fn send_counter(&self) -> u64 {
        self.context.doorbell_record.wrapping_add(4)
    }

    /// Takes the next send work request. Returns false if there is none.
    ///
    /// # Errors
    /// [`QueueError`]; the queue is then broken. `work.token` names the entry.
    #[inline]
    pub fn next_send(
        &mut self,
        map: &Map,
        work: &mut SendWork,
        scratch: &mut Scratch,
    ) -> Result<bool, QueueError> {
        let counter = self.send_counter();
        if self.send_blocks == 0 || !self.send.refresh(map, counter, self.send_blocks)? {
            return Ok(false);
        }
        work.clear();
        work.token.index = self.send.taken;
        let mut first = [0; SEND_BLOCK];
        if self.read_block(map, self.send.taken, &mut first).is_none() {
            return self.send.fail("the send queue is not granted");
        }
        let Some(blocks) = send_entry::blocks(&first) else {
            return self.send.fail("the length of a send entry is zero");
        };
        if blocks > self.send.waiting() || u32::from(blocks) > self.send_blocks {
            return self.send.fail("a send entry is longer than the posted blocks");
        }
        let entry = if blocks == 1 {
            first.as_slice()
        } else {
            let (pieces, _) = scratch.0.as_chunks_mut::<SEND_BLOCK>();
            let mut index = self.send.taken;
            for (number, piece) in (0..blocks).zip(pieces) {
                if number == 0 {
                    *piece = first;
                } else if self.read_block(map, index, piece).is_none() {
                    return self.send.fail("the send queue is not granted");
                }
                index = index.wrapping_add(1);
            }
            let len = usize::from(blocks).saturating_mul(SEND_BLOCK);
            scratch.0.get(..len).unwrap_or(&[])
        };
        match send_entry::parse(entry, self.context.service, work) {
            Ok(()) => self.send.taken = self.send.taken.wrapping_add(blocks),
            Err(QueueError(reason)) => return self.send.fail(reason),
        }
        Ok(true)
    }

    /// Copies the block with a count out. The ring has a power of two of blocks.
    fn read_block(&self, map: &Map, count: u16, into: &mut [u8; SEND_BLOCK]) -> Option<()> {
        let index = u32::from(count) & self.send_blocks.wrapping_sub(1);
        let at = u64::from(index).wrapping_mul(SEND_BLOCK as u64);
        self.pages.read_array(map, self.send_offset.checked_add(at)?, into).ok()
    }

    /// Takes the next entry of the queue pair's own receive queue. Returns false if there is none.
    ///
    /// # Errors
    /// [`QueueError`]; the queue is then broken.
    pub fn next_receive(
        &mut self,
        map: &Map,
        work: &mut ReceiveWork,
        scratch: &mut Scratch,
    ) -> Result<bool, QueueError> {
        let counter = self.context.doorbell_record;
        if self.receive_entries == 0 || !self.receive.refresh(map, counter, self.receive_entries)? {
            return Ok(false);
        }
        let stride = usize::try_from(self.receive_stride).unwrap_or(usize::MAX);
        let Some(entry) = scratch.0.get_mut(..stride) else {
            return self.receive.fail("the length of a receive entry");
        };
        let index = u32::from(self.receive.taken) & self.receive_entries.wrapping_sub(1);
        let at = u64::from(index).wrapping_mul(self.receive_stride);
        if self.pages.read(map, at, entry).is_err() {
            return self.receive.fail("the receive queue is not granted");
        }
        receive_entry::parse(entry, work);
        work.token.index = self.receive.taken;
        self.receive.taken = self.receive.taken.wrapping_add(1);
        Ok(true)
    }

    /// Returns the number of receive work requests that were posted and not taken.
    pub fn waiting_receives(&self, map: &Map) -> u32 {
        match read_word(map, self.context.doorbell_record) {
            Some(posted) if self.receive_entries > 0 => {
                u32::from((posted as u16).wrapping_sub(self.receive.taken))
            }
            _ => 0,
        }
    }
}
