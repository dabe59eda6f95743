//! Completion queues: entries, overrun, and the rule of completion events.
//!
//! The driver shares two words per queue (its *doorbell record*, which differs from that of a work
//! queue): its position, and the *arm word* with a sequence number, a position, and whether it
//! waits for solicited completions only. The queue reports an event if all of these hold:
//!
//! - the arm word differs from the word of the last event (the zero word of a new queue counts as
//!   armed: at most a single superfluous event in its life);
//! - a completion waits behind the arm word's position;
//! - the producer differs from its value at the last event: a driver that arms before it polls
//!   would otherwise receive a second event for the same completions;
//! - the arm word asks for any completion, or a solicited or failed completion came since;
//! - moderation permits the event.
//!
//! Moderation has a count and a period of at most 4,095 us, and is off while either is 0. It delays
//! an event until that many completions came since the last event, or the period since the last
//! event is over. So the first completion after a pause is reported at once, and no event is lost.
//!
//! The rule is evaluated after completions and on each pass of the dispatcher, until the event has
//! been reported or the driver has taken all completions: its later arm words then name a position
//! behind the last completion.
//!
//! A resize replaces the ring. The function writes an entry of the opcode *resize* as the last
//! entry of the old ring, and the next completion to the next position of the new ring; the driver
//! copies the entries that it has not taken, each to the position behind its old one. The driver's
//! position counts the entry of the resize, which is no completion: it makes no event. The old ring
//! must have room for that entry, and the new ring for the entries that the driver has not taken.
//!
//! A completion for a full ring is lost, and the queue is broken from then on (*overrun*): each
//! later completion is lost and counted, and the work queues that complete there fail. A queue that
//! ignores overruns overwrites instead. Entries in memory that is not granted break the queue, too;
//! a doorbell record that is not granted breaks it when it seems full, and until then there are no
//! events. Only the destruction of a broken queue, or a reset of the function, ends that state.
//! `queues` and `ethernet` add completions by `function`, which also evaluates the rule, with the
//! time of the caller; all run in the dispatcher's thread, and nothing blocks. Completions are not
//! compressed.

use causeway_memory::{Map, WordWatch};
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::completion_queue::{
    ArmWord, CompletionEntry, CompletionOpcode, CompletionQueueContext, ENTRY_LEN, Entry,
    ErrorEntry,
};
use causeway_wire::mlx5::event_queue::owner_bit;

use crate::page_list::PageList;

/// Positions have 24 bits.
const POSITION: u32 = 0xff_ffff;

/// Distance from which on a position counts as behind another.
const HALF: u32 = 0x80_0000;
/// Bit of the recorded arm word: there is one.
const HAS_ARM: u64 = 1 << 32;
/// Most resizes behind the last completion that are recorded. With more, and with more than
/// [`SKIPPED_MAX`], a restored queue may report a superfluous event.
const RESIZES_MAX: u32 = 31;
/// Most resizes since the driver's position changed that are recorded.
const SKIPPED_MAX: u32 = 255;

/// Decision of [`CompletionQueue::evaluate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// No event now; the rule must be evaluated again.
    Waiting,
    /// Moderation delays an event, at most until this time in nanoseconds.
    Delayed(u64),
    /// An event must be reported.
    Event,
    /// No event is due until the next completion.
    Idle,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    /// Memory of the ring.
    pages: PageList,
    /// Context as the driver gave it, with the changes of later commands.
    context: CompletionQueueContext,
    /// Length of an entry, in bytes.
    stride: u64,
    /// Number of entries written.
    producer: u32,
    /// Producer behind the last completion. Only the entry of a resize can follow.
    end: u32,
    /// The driver's position, as last read.
    consumer: u32,
    /// Resizes since that position changed: the driver has skipped their entries, and writes that
    /// when it takes the next completion.
    skipped: u32,
    /// Arm word of the last event.
    last_arm: Option<u32>,
    /// A completion was added after the last event.
    has_new: bool,
    /// A solicited or failed completion came after the last event.
    is_solicited: bool,
    /// The queue is broken: completions are lost.
    is_overrun: bool,
    /// Time of the last event.
    event_ns: Option<u64>,
    /// Completions since the last event.
    count: u32,
    /// Time until which moderation delays an event, in the function's list of these times.
    pub delayed_ns: Option<u64>,
    /// The queue is in the list of queues to evaluate on each pass.
    pub is_listed: bool,
    /// Number of work queues and receive queues of XRC domains that complete here.
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
            end: 0,
            consumer: 0,
            skipped: 0,
            last_arm: None,
            has_new: false,
            is_solicited: false,
            is_overrun: false,
            event_ns: None,
            count: 0,
            delayed_ns: None,
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

    /// Sets the period of moderation, in microseconds, and the count; `None` leaves a value as it
    /// is.
    pub fn set_moderation(&mut self, period: Option<u16>, max_count: Option<u16>) {
        let context = &mut self.context;
        context.period = period.unwrap_or(context.period);
        context.max_count = max_count.unwrap_or(context.max_count);
    }

    /// Returns the distance between entries, in bytes.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Replaces the ring as a resize before a restart did.
    pub fn resume_ring(&mut self, pages: PageList, context: CompletionQueueContext) {
        (self.pages, self.context) = (pages, context);
    }

    /// Replaces the ring; see the module. `context` has the new size and the place of the ring in
    /// `pages`.
    ///
    /// # Errors
    /// [`Status::BadOutstandingSize`] if either ring has no room; [`Status::BadResourceState`] if
    /// the queue is broken, or its memory is not granted. The ring is not replaced.
    pub fn resize(
        &mut self,
        map: &Map,
        pages: PageList,
        context: CompletionQueueContext,
    ) -> Result<(), Status> {
        let words = read_words(map, self.context.doorbell_record);
        let [consumer, _] = words.filter(|_| !self.is_overrun).ok_or(Status::BadResourceState)?;
        self.set_consumer(consumer);
        if self.used() >= self.entries() || self.used() > entries(context.log_size) {
            return Err(Status::BadOutstandingSize);
        }
        let last = CompletionEntry {
            opcode: CompletionOpcode::Resize.raw(),
            ..CompletionEntry::default()
        };
        let (at, bytes) = self.next_place(Entry::Success(last));
        if !self.place(map, at, &bytes) {
            return Err(Status::BadResourceState);
        }
        self.pages = pages;
        self.context = context;
        self.skipped = self.skipped.saturating_add(1);
        Ok(())
    }

    /// Returns the number of entries.
    fn entries(&self) -> u32 {
        entries(self.context.log_size)
    }

    /// Returns the number of entries written, modulo 2^24.
    pub fn producer(&self) -> u32 {
        self.producer & POSITION
    }

    /// Takes the place of an entry. Returns its offset in the ring and its bytes, with the owner
    /// bit of its position, for [`Self::place`]; `None` if the queue has no room: the queue is then
    /// unusable.
    #[inline]
    pub fn take_place(&mut self, map: &Map, entry: Entry) -> Option<(u64, [u8; ENTRY_LEN])> {
        if self.is_overrun || !self.has_room(map) {
            self.is_overrun = true;
            return None;
        }
        self.is_solicited |= match entry {
            Entry::Success(entry) => entry.is_solicited,
            Entry::Error(_) => true,
        };
        let place = self.next_place(entry);
        self.end = self.producer;
        self.has_new = true;
        self.count = self.count.saturating_add(1);
        Some(place)
    }

    /// Advances the producer. Returns the offset and bytes of the next entry.
    #[inline]
    fn next_place(&mut self, entry: Entry) -> (u64, [u8; ENTRY_LEN]) {
        let index = u64::from(self.producer & self.entries().wrapping_sub(1));
        let owner = owner_bit(self.producer, self.context.log_size);
        let entry = match entry {
            Entry::Success(entry) => Entry::Success(CompletionEntry { owner, ..entry }),
            Entry::Error(entry) => Entry::Error(ErrorEntry { owner, ..entry }),
        };
        // The last 64 bytes of a longer entry are the completion.
        let last = self.stride.saturating_sub(ENTRY_LEN as u64);
        let at = index.wrapping_mul(self.stride).wrapping_add(last);
        self.producer = self.producer.wrapping_add(1);
        (at, entry.to_bytes())
    }

    /// Writes an entry at an offset of the ring. Returns false if the queue's memory is not
    /// granted: the queue is then unusable.
    #[inline]
    pub fn place(&mut self, map: &Map, at: u64, bytes: &[u8; ENTRY_LEN]) -> bool {
        let is_written = self.pages.publish(map, at, bytes).is_ok();
        self.is_overrun |= !is_written;
        is_written
    }

    /// Returns the recorded words: positions and flags, and the last arm word.
    #[inline]
    pub fn words(&self) -> [u64; 2] {
        let flags = [self.has_new, self.is_solicited, self.is_overrun];
        let flags = flags.iter().rev().fold(0, |sum, flag| sum << 1 | u64::from(*flag));
        let positions = u64::from(self.producer()) | u64::from(self.consumer & POSITION) << 24;
        // Queues that were resized more often without a completion may report a superfluous event.
        let behind = self.producer.wrapping_sub(self.end).min(RESIZES_MAX);
        let skipped = self.skipped.min(SKIPPED_MAX);
        let resizes = u64::from(behind) | u64::from(skipped) << 5;
        let arm = self.last_arm.map_or(0, |arm| HAS_ARM | u64::from(arm));
        [positions | flags << 48 | resizes << 51, arm]
    }

    /// Sets the values of recorded words. Returns whether the driver may not know of completions.
    pub fn resume(&mut self, [first, arm]: [u64; 2]) -> bool {
        let flag = |bit: u32| first >> bit & 1 != 0;
        self.producer = first as u32 & POSITION;
        self.consumer = (first >> 24) as u32 & POSITION;
        (self.has_new, self.is_solicited, self.is_overrun) = (flag(48), flag(49), flag(50));
        self.end = self.producer.wrapping_sub((first >> 51) as u32 & RESIZES_MAX);
        self.skipped = (first >> 56) as u32 & SKIPPED_MAX;
        self.last_arm = (arm & HAS_ARM != 0).then_some(arm as u32);
        self.has_new
    }

    /// Returns whether an entry has room; reads the driver's position only if the ring seems full.
    fn has_room(&mut self, map: &Map) -> bool {
        if self.context.ignores_overrun || self.used() < self.entries() {
            return true;
        }
        match read_words(map, self.context.doorbell_record) {
            Some([consumer, _]) => self.set_consumer(consumer),
            None => return false,
        }
        self.used() < self.entries()
    }

    /// Takes the driver's position from its doorbell record.
    fn set_consumer(&mut self, word: u32) {
        let consumer = word & POSITION;
        if consumer != self.consumer {
            (self.consumer, self.skipped) = (consumer, 0);
        }
    }

    /// Returns the number of entries that the driver has not taken.
    fn used(&self) -> u32 {
        let position = self.consumer.wrapping_add(self.skipped);
        self.producer.wrapping_sub(position) & POSITION
    }

    /// Returns whether completions wait behind a position.
    fn has_behind(&self, position: u32) -> bool {
        (1..HALF).contains(&(self.end.wrapping_sub(position) & POSITION))
    }

    /// Returns the time until which moderation delays an event, in nanoseconds.
    fn moderation_ends(&self, now_ns: u64) -> Option<u64> {
        let count = u32::from(self.context.max_count);
        if self.context.period == 0 || self.count >= count {
            return None;
        }
        let period_ns = u64::from(self.context.period).saturating_mul(1000);
        self.event_ns.map(|event| event.saturating_add(period_ns)).filter(|ends| *ends > now_ns)
    }

    /// Adds the words of which one changes before [`Self::evaluate`] has another result than
    /// [`Signal::Waiting`], unless a completion comes. Returns `None` if the result differs
    /// already, or the doorbell record is not granted.
    pub fn watch(&self, watch: &mut WordWatch) -> Option<()> {
        let record = self.context.doorbell_record;
        let consumer = u32::from_be(watch.add(record).ok()?);
        let arm = u32::from_be(watch.add(record.checked_add(4)?).ok()?);
        let word = ArmWord::parse(&arm.to_be_bytes()).ok()?;
        let waits = self.has_new && !self.asks(arm, &word) && self.has_behind(consumer & POSITION);
        waits.then_some(())
    }

    /// Returns whether an arm word asks for an event of the present completions.
    fn asks(&self, arm: u32, word: &ArmWord) -> bool {
        let is_new = self.last_arm != Some(arm);
        let includes = !word.is_solicited_only || self.is_solicited;
        is_new && self.has_behind(word.consumer) && includes
    }

    /// Evaluates the rule of events; see the module.
    pub fn evaluate(&mut self, map: &Map, now_ns: u64) -> Signal {
        if !self.has_new {
            return Signal::Idle;
        }
        let Some([consumer, arm]) = read_words(map, self.context.doorbell_record) else {
            return Signal::Idle;
        };
        let Ok(word) = ArmWord::parse(&arm.to_be_bytes()) else { return Signal::Idle };
        if self.asks(arm, &word) {
            if let Some(ends) = self.moderation_ends(now_ns) {
                return Signal::Delayed(ends);
            }
            self.last_arm = Some(arm);
            (self.has_new, self.is_solicited) = (false, false);
            (self.event_ns, self.count) = (Some(now_ns), 0);
            return Signal::Event;
        }
        self.set_consumer(consumer);
        if self.has_behind(self.consumer) { Signal::Waiting } else { Signal::Idle }
    }
}

/// Returns the number of entries of a ring.
fn entries(log_size: u8) -> u32 {
    1_u32.checked_shl(u32::from(log_size)).unwrap_or(0)
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
