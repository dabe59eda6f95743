//! Places in the file of a record.
//!
//! ```text
//!  0      header: magic, version, sizes of the tables
//!  256    redo entry
//!  1024   command in progress
//!  2048   restorations
//!  4096   words of objects: 32 bytes for each slot of a table
//!  heap   journal, from a step of the allocation on
//! ```
//!
//! The places follow from the limits of the function; the journal has 64 MiB
//! ([`RECORD_HEAP_BYTES`]). A file with another header belongs to another version or to other
//! limits, and is refused ([`super::RecordError::Mismatch`]). `super` and [`super::restore`] ask
//! for places, in the dispatcher's thread; the module touches no file.

use causeway_verbs::number::slots_of;

use crate::function_config::FunctionConfig;
use crate::limits::{
    ETHERNET_QUEUES_MAX, EVENT_QUEUES_MAX, RECORD_HEAP_BYTES, RECORD_STEP_BYTES, receive_pools_max,
};

/// Begin of every file.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"cw-hca-r");
/// Version of the format. A change of any stored value needs another version.
pub(super) const VERSION: u64 = 2;
/// Number of words of the header.
pub(super) const HEADER_WORDS: usize = 6;
/// Offset of the redo entry.
pub(super) const REDO: usize = 256;
/// Offset of the command in progress.
pub(super) const COMMAND: usize = 1024;
/// Offset of the word about restorations ([`super::quarantine`]).
pub(super) const RESTORATIONS: usize = 2048;
/// Offset of the words of objects.
const SLOTS: usize = 4096;
/// Bytes of the words of an object.
pub(super) const SLOT_BYTES: usize = 32;

/// The places of the words of objects, and of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Numbers of slots: queue pairs, completion queues, receive pools, Ethernet queues.
    slots: [usize; 4],
    /// First places: those of `slots` with receive queues behind send queues, and event queues.
    starts: [usize; 6],
    /// Offset of the journal.
    pub heap: usize,
    /// Length of the file.
    pub len: usize,
}

/// A table of objects with words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    QueuePair,
    CompletionQueue,
    ReceivePool,
    SendQueue,
    ReceiveQueue,
    EventQueue,
}

impl Layout {
    /// Returns the places for a function.
    pub fn new(config: &FunctionConfig) -> Self {
        let config = config.clamped();
        let pools = receive_pools_max(config.queue_pairs_max);
        let capacities =
            [config.queue_pairs_max, config.completion_queues_max, pools, ETHERNET_QUEUES_MAX];
        let slots = capacities.map(slots_of);
        let [pairs, completions, pools, ethernet] = slots;
        let events = EVENT_QUEUES_MAX.saturating_add(1);
        let mut starts = [0; 6];
        let mut at = SLOTS;
        for (start, count) in
            starts.iter_mut().zip([pairs, completions, pools, ethernet, ethernet, events])
        {
            *start = at;
            at = at.saturating_add(count.saturating_mul(SLOT_BYTES));
        }
        let heap = at.next_multiple_of(RECORD_STEP_BYTES);
        Self { slots, starts, heap, len: heap.saturating_add(RECORD_HEAP_BYTES) }
    }

    /// Returns the header of a file with these places.
    pub fn header(&self) -> [u64; HEADER_WORDS] {
        let [pairs, completions, pools, ethernet] = self.slots.map(|count| count as u64);
        [MAGIC, VERSION, pairs, completions, pools << 32 | ethernet, self.len as u64]
    }

    /// Returns the offset of the first word of an object.
    #[inline]
    pub fn words(&self, of: Words, number: u32) -> usize {
        let [pairs, completions, pools, ethernet] = self.slots;
        let [pair, completion, pool, send, receive, event] = self.starts;
        let (start, count) = match of {
            Words::QueuePair => (pair, pairs),
            Words::CompletionQueue => (completion, completions),
            Words::ReceivePool => (pool, pools),
            Words::SendQueue => (send, ethernet),
            Words::ReceiveQueue => (receive, ethernet),
            // Event queues have small numbers, and one more slot than numbers.
            Words::EventQueue => (event, EVENT_QUEUES_MAX.next_power_of_two()),
        };
        let slot = number as usize & count.wrapping_sub(1);
        start.wrapping_add(slot.wrapping_mul(SLOT_BYTES))
    }
}
