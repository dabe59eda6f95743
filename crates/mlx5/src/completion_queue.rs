//! Completion queues: entries, overrun, and the rule of completion events.
//!
//! The driver shares two words per queue (its *doorbell record*, which differs from that of a work
//! queue): its position, and the *arm word* with a sequence number, a position, and whether it
//! waits for solicited completions only. The queue reports an event if all of these hold:
//!
//! - the arm word differs from the word of the last event (the zero word of a new queue counts as
//!   armed: at most a single superfluous event in its life);
//! - the producer differs from the arm word's position, so a completion waits;
//! - the producer differs from its value at the last event: a driver that arms before it polls
//!   would otherwise receive a second event for the same completions;
//! - the arm word asks for any completion, or a solicited or failed completion came since.
//!
//! The rule is evaluated after completions and on each pass of the dispatcher, until the event has
//! been reported or the driver has taken all completions: its later arm words then name a position
//! that equals the producer.
//!
//! A completion for a full ring is lost, and the queue is broken from then on (*overrun*): each
//! later completion is lost and counted, and the work queues that complete there fail. A queue that
//! ignores overruns overwrites instead. Entries in memory that is not granted break the queue, too;
//! a doorbell record that is not granted breaks it when it seems full, and until then there are no
//! events. Only destroying a broken queue ends that state. `queues` and `ethernet` add completions;
//! `function` evaluates the rule. Completions are neither moderated nor compressed, and queues are
//! not resized.

use causeway_memory::Map;
use causeway_wire::mlx5::completion_queue::{
    ArmWord, CompletionEntry, CompletionQueueContext, ENTRY_LEN, Entry, ErrorEntry,
};
use causeway_wire::mlx5::event_queue::owner_bit;

use crate::event_queue::write_entry;
use crate::page_list::PageList;

/// Positions have 24 bits.
const POSITION: u32 = 0xff_ffff;

/// Decision of [`CompletionQueue::evaluate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// No event now; the rule must be evaluated again.
    Waiting,
    /// An event must be reported.
    Event,
    /// No event is due until the next completion.
    Idle,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pages: PageList,
    context: CompletionQueueContext,
    /// Length of an entry, in bytes.
    stride: u64,
    producer: u32,
    /// The driver's position, as last read.
    consumer: u32,
    last_arm: Option<u32>,
    /// A completion was added after the last event.
    has_new: bool,
    is_solicited: bool,
    is_overrun: bool,
    /// The queue is in the list of queues to evaluate on each pass.
    pub is_listed: bool,
    /// Number of work queues that complete here.
    pub users: u32,
}

impl CompletionQueue {
    /// Returns the queue of a context that the command checked. `stride` is the length of an entry,
    /// in bytes.
    pub fn new(pages: PageList, context: CompletionQueueContext, stride: u64) -> Self {
        Self {
            pages,
            context,
            stride,
            producer: 0,
            consumer: 0,
            last_arm: None,
            has_new: false,
            is_solicited: false,
            is_overrun: false,
            is_listed: false,
            users: 0,
        }
    }

    /// Returns the number of the event queue that receives the events.
    pub fn event_queue(&self) -> u8 {
        self.context.event_queue as u8
    }

    /// Returns the context with the present positions.
    pub fn context(&self) -> CompletionQueueContext {
        CompletionQueueContext {
            consumer: self.consumer,
            producer: self.producer(),
            ..self.context
        }
    }

    /// Sets the moderation that the driver asked for, for the query command. Completions are not
    /// moderated.
    pub fn set_moderation(&mut self, period: u16, max_count: u16) {
        (self.context.period, self.context.max_count) = (period, max_count);
    }

    /// Returns the number of entries.
    fn entries(&self) -> u32 {
        1_u32.checked_shl(u32::from(self.context.log_size)).unwrap_or(0)
    }

    /// Returns the number of entries written, modulo 2^24.
    pub fn producer(&self) -> u32 {
        self.producer & POSITION
    }

    /// Adds an entry, with the owner bit of its position. Returns false if the queue has no room or
    /// its memory is not granted: the queue is then unusable.
    pub fn push(&mut self, map: &Map, entry: Entry) -> bool {
        if self.is_overrun || !self.has_room(map) {
            self.is_overrun = true;
            return false;
        }
        let index = u64::from(self.producer & self.entries().wrapping_sub(1));
        let owner = owner_bit(self.producer, self.context.log_size);
        let (entry, is_event) = match entry {
            Entry::Success(entry) => {
                let entry = CompletionEntry { owner, ..entry };
                (Entry::Success(entry), entry.is_solicited)
            }
            Entry::Error(entry) => (Entry::Error(ErrorEntry { owner, ..entry }), true),
        };
        // The last 64 bytes of a longer entry are the completion.
        let last = self.stride.saturating_sub(ENTRY_LEN as u64);
        let at = index.wrapping_mul(self.stride).wrapping_add(last);
        let is_written = write_entry(&self.pages, map, at, &entry.to_bytes());
        self.producer = self.producer.wrapping_add(1);
        self.has_new = true;
        self.is_solicited |= is_event;
        self.is_overrun = !is_written;
        is_written
    }

    fn has_room(&mut self, map: &Map) -> bool {
        if self.context.ignores_overrun || self.used() < self.entries() {
            return true;
        }
        match read_words(map, self.context.doorbell_record) {
            Some([consumer, _]) => self.consumer = consumer & POSITION,
            None => return false,
        }
        self.used() < self.entries()
    }

    fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & POSITION
    }

    /// Evaluates the rule of events; see the module.
    pub fn evaluate(&mut self, map: &Map) -> Signal {
        let producer = self.producer();
        if !self.has_new {
            return Signal::Idle;
        }
        let Some([consumer, arm]) = read_words(map, self.context.doorbell_record) else {
            return Signal::Idle;
        };
        let Ok(word) = ArmWord::parse(&arm.to_be_bytes()) else { return Signal::Idle };
        let is_new = self.last_arm != Some(arm);
        let asks = !word.is_solicited_only || self.is_solicited;
        if is_new && word.consumer != producer && asks {
            self.last_arm = Some(arm);
            self.has_new = false;
            self.is_solicited = false;
            return Signal::Event;
        }
        self.consumer = consumer & POSITION;
        if self.consumer == producer { Signal::Idle } else { Signal::Waiting }
    }
}

/// Loads the two words of a doorbell record, each as a whole and before any later load.
pub(crate) fn read_words(map: &Map, record: u64) -> Option<[u32; 2]> {
    let words = [read_word(map, record)?, read_word(map, record.checked_add(4)?)?];
    Some(words)
}

/// Loads a word of a doorbell record. Commands refuse records that are not aligned to 8 bytes, so
/// the load is a single access.
#[inline]
pub(crate) fn read_word(map: &Map, at: u64) -> Option<u32> {
    map.load_u32(at).ok().map(u32::from_be)
}
