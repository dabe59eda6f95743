//! Continuation of a function from its record.
//!
//! The commands of the journal are executed again by their handlers, in the order in which they
//! were recorded, each with the number that the object had. Then the words set positions and
//! states, the redo entry's guest entry is written again, and the driver's command in progress is
//! answered. All command doorbells are rung, if the driver has set the command queue up, and all
//! event vectors are raised once, because neither the doorbell nor the interrupt that was pending
//! is recorded; both are harmless if nothing is pending.
//!
//! Free numbers begin their generations anew (`verbs::number`). A record that cannot be restored
//! leaves the function without objects ([`RestoreError`]); a damaged file is no panic. A recorded
//! command fails, and so does the restoration, if its driver destroyed an object that the command
//! names, such as the protection domain of a queue pair or the receive queue of an interface.
//! `causeway-hca` calls [`crate::restore`] once for a connection of a frontend, in the dispatcher's
//! thread, after the memory and the registers of the frontend are back, before the first command or
//! poll. The call takes the time of the recorded commands, and does not yield.

use causeway_memory::View;
use causeway_verbs::{AdapterId, Resume, State, Subnet};
use causeway_wire::mlx5::command::{Opcode as O, Status};
use causeway_wire::mlx5::event_queue::{Event, EventType};
use causeway_wire::mlx5::queue_pair::QueuePairContext;

use super::heap::{Extent, Heap};
use super::layout::{HEADER_WORDS, Layout, SLOT_BYTES, Words};
use super::progress::{EventSource, PairProgress, from_ethernet_word};
use super::redo::{self, Ring, StoredEntry};
use super::space::RecordSpace;
use super::{
    ENTRY_HEADER, Key, Record, RecordError, RestoreError, Restored, journal, quarantine, region,
};
use crate::command::{self, Input, Output, dispatch, modify_queue_pair, queue};
use crate::function::Function;
use crate::function_config::FunctionConfig;
use crate::limits::RECORD_STEP_BYTES;

/// A record that was read, and the commands and guest entry to repeat.
#[derive(Debug)]
struct Opened {
    record: Record,
    /// Entries of the journal, in their order.
    entries: Vec<(Key, Extent)>,
    guest_entry: Option<StoredEntry>,
}

impl Record {
    /// Reads a record, and applies its redo entry.
    fn open(mut space: RecordSpace, config: &FunctionConfig) -> Result<Opened, RestoreError> {
        let layout = Layout::new(config);
        let view = space.view().clone();
        if view.len() < layout.len {
            return Err(RecordError::Short(layout.len).into());
        }
        space.reserve(0..RECORD_STEP_BYTES).ok_or(RecordError::NoMemory)?;
        check_header(&view, &layout)?;
        quarantine::begin(&view)?;
        let damaged = RecordError::Damaged;
        let guest_entry = redo::repeat(&view).ok_or(damaged("the redo entry"))?;
        let walked = Heap::walk(&view, layout.heap, layout.len);
        let (heap, extents) = walked.ok_or(damaged("the extents of the journal"))?;
        space.reserve(layout.heap..heap.used_end()).ok_or(RecordError::NoMemory)?;
        let mut record = Self::new(space, layout, heap);
        let mut all = Vec::with_capacity(extents.len());
        for extent in extents {
            all.push(record.read_key(extent).ok_or(damaged("an entry of the journal"))?);
        }
        all.sort_unstable_by_key(|(sequence, ..)| *sequence);
        record.sequence = all.last().map_or(0, |(sequence, ..)| sequence.saturating_add(1));
        for (_, key, extent) in &all {
            // The process was killed between the new entry of a key and the end of the old.
            if let Some(old) = record.entries.insert(*key, *extent) {
                let (at, word) = old.free();
                record.view.store_word(at, word).map_err(|_| damaged("an extent"))?;
                record.heap.release(old);
            }
        }
        record.reserve_restored().ok_or(RecordError::NoMemory)?;
        if record.view.is_poisoned() {
            return Err(damaged("a page is missing").into());
        }
        let is_present = |key, extent| record.entries.get(key) == Some(extent);
        let entries = all.iter().filter(|(_, key, extent)| is_present(key, extent));
        let entries = entries.map(|(_, key, extent)| (*key, *extent)).collect();
        Ok(Opened { record, entries, guest_entry })
    }

    /// Allocates the words of all objects of the journal, which an earlier process has allocated.
    fn reserve_restored(&mut self) -> Option<()> {
        for key in self.entries.keys().filter(|key| key.part == 0) {
            if let Some(words) = O::from_raw(key.object).and_then(journal::words_of) {
                let at = self.layout.words(words, key.number);
                self.space.reserve(at..at.saturating_add(SLOT_BYTES))?;
            }
        }
        Some(())
    }

    /// Reads the header of an entry. Returns its place in the order and its key.
    fn read_key(&self, extent: Extent) -> Option<(u64, Key, Extent)> {
        let word =
            |index: usize| self.view.load_word(extent.at.checked_add(index.checked_mul(8)?)?).ok();
        let object = word(2)?;
        let key = Key {
            object: u16::try_from(object >> 32).ok()?,
            number: object as u32,
            part: word(3)?,
        };
        let len = usize::try_from(word(4)?).ok()?;
        len.checked_add(ENTRY_HEADER).filter(|&bytes| bytes <= extent.bytes())?;
        Some((word(1)?, key, extent))
    }

    /// Returns the bytes of an entry.
    fn read_entry(&self, extent: Extent) -> Option<Vec<u8>> {
        let len = usize::try_from(self.view.load_word(extent.at.checked_add(32)?).ok()?).ok()?;
        len.checked_add(ENTRY_HEADER).filter(|&bytes| bytes <= extent.bytes())?;
        let mut bytes = vec![0; len];
        self.view.read_into(extent.at.checked_add(ENTRY_HEADER)?, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the words of an object.
    fn read_words(&self, of: Words, number: u32) -> [u64; 4] {
        let at = self.words(of, number);
        let word = |index: usize| {
            self.view.load_word(at.wrapping_add(index.wrapping_mul(8))).unwrap_or_default()
        };
        [word(0), word(1), word(2), word(3)]
    }
}

/// Checks the header of a file.
fn check_header(view: &View, layout: &Layout) -> Result<(), RecordError> {
    let mut header = [0; HEADER_WORDS];
    for (index, word) in header.iter_mut().enumerate() {
        *word = view.load_word(index.saturating_mul(8)).unwrap_or_default();
    }
    if header == layout.header() { Ok(()) } else { Err(RecordError::Mismatch) }
}

/// Restores a function without objects from the record in a file, and keeps the record. The map and
/// the registers of the function are those of before. The caller confirms the restoration
/// ([`Record::confirm`]) once the function was served.
///
/// # Errors
/// [`RestoreError`]; the function has no objects and no record.
pub fn restore(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    space: impl Into<RecordSpace>,
) -> Result<Restored, RestoreError> {
    let function = command::function(subnet, adapter).map_err(|_| RestoreError::NoAdapter)?;
    function.record = None;
    let opened = Record::open(space.into(), &function.config)?;
    let count = opened.entries.len();
    match execute(subnet, adapter, opened) {
        Ok(queue_pairs) => Ok(Restored { entries: count, queue_pairs }),
        Err(error) => {
            crate::reset(subnet, adapter);
            if let Ok(function) = command::function(subnet, adapter) {
                function.is_restoring = false;
            }
            Err(error)
        }
    }
}

/// Executes the journal and sets the words. Returns the number of queue pairs.
fn execute(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    opened: Opened,
) -> Result<usize, RestoreError> {
    let Opened { record, entries, guest_entry } = opened;
    command::function(subnet, adapter).map_err(|_| RestoreError::NoAdapter)?.is_restoring = true;
    for (key, extent) in entries {
        let bytes = record.read_entry(extent);
        let bytes = bytes.ok_or(RecordError::Damaged("an entry of the journal"))?;
        replay(subnet, adapter, key, &bytes)?;
    }
    let queue_pairs = resume_queue_pairs(subnet, adapter, &record)?;
    resume_queues(subnet, adapter, &record);
    let function = command::function(subnet, adapter).map_err(|_| RestoreError::NoAdapter)?;
    if let Some(entry) = guest_entry {
        function.place_again(&entry);
    }
    let in_progress = record.command_in_progress();
    function.is_restoring = false;
    let mut record = record;
    record.finish();
    quarantine::end(&record.view);
    function.record = Some(Box::new(record));
    function.end_command(in_progress);
    function.notify_all();
    Ok(queue_pairs)
}

/// Executes an entry of the journal.
fn replay(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    key: Key,
    bytes: &[u8],
) -> Result<(), RestoreError> {
    let Key { object, number, part } = key;
    let taken = RestoreError::Number { opcode: object, number };
    let failed = |status| RestoreError::Command { opcode: object, status };
    let damaged = RecordError::Damaged;
    if object == O::CreateMemoryKey.raw() {
        let region = region::decode(bytes).ok_or(damaged("a memory region"))?;
        let own = subnet.adapter_mut(adapter).ok_or(RestoreError::NoAdapter)?;
        let made = if own.regions_mut().prepare(number) {
            own.regions_mut().create(region).map_err(|_| failed(Status::ExceededLimit))?
        } else {
            return Err(taken);
        };
        return if made == number { Ok(()) } else { Err(taken) };
    }
    if object == O::CreateQueuePair.raw() && part == journal::CONTEXT_PART {
        let context = QueuePairContext::parse(bytes).map_err(|_| damaged("a context"))?;
        let function = command::function(subnet, adapter).map_err(failed)?;
        let queues = function.objects.queue_pairs.get_mut(number);
        queues.ok_or(damaged("a context without its queue pair"))?.context = context;
        return Ok(());
    }
    let input = Input(bytes);
    let is_creation = journal::is_creation(input);
    if is_creation && !prepare(subnet, adapter, input, number) {
        return Err(taken);
    }
    let mut output = [0; 16];
    dispatch::run(subnet, adapter, input, &mut Output(&mut output)).map_err(failed)?;
    let made = Input(&output).number().unwrap_or(0);
    if is_creation && made != number { Err(taken) } else { Ok(()) }
}

/// Reserves the number of the object that a command makes.
fn prepare(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    number: u32,
) -> bool {
    let opcode = input.u16(0).ok().and_then(O::from_raw);
    if opcode == Some(O::CreateQueuePair) {
        return subnet.prepare_queue_pair(adapter, number);
    }
    let Ok(function) = command::function(subnet, adapter) else { return false };
    let objects = &mut function.objects;
    match opcode {
        Some(O::CreateEventQueue) => objects.event_queues.prepare(number),
        Some(O::CreateCompletionQueue) => objects.completion_queues.prepare(number),
        Some(O::CreateReceivePool | O::CreateXrcSharedReceiveQueue) => {
            objects.receive_pools.prepare(number)
        }
        Some(O::AllocateQueueCounter) => objects.counter_sets.prepare(number),
        Some(O::AllocateProtectionDomain) => objects.domains.prepare(number),
        Some(O::AllocateTransportDomain) => objects.transport_domains.prepare(number),
        Some(O::AllocateXrcDomain) => objects.xrc_domains.prepare(number),
        Some(O::AllocateUar) => objects.uar_pages.prepare(number),
        Some(opcode) => objects.ethernet.prepare(opcode, number),
        None => false,
    }
}

/// Sets the states and positions of all queue pairs. Returns their number.
fn resume_queue_pairs(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    record: &Record,
) -> Result<usize, RestoreError> {
    let own = subnet.adapter(adapter).ok_or(RestoreError::NoAdapter)?;
    let numbers: Vec<u32> = own.queue_pairs().map(|(number, _)| number).collect();
    for number in &numbers {
        let [send, receive, reported, shared] = record.read_words(Words::QueuePair, *number);
        let mut progress = PairProgress::from_words([send, receive]);
        let own = subnet.adapter_mut(adapter).ok_or(RestoreError::NoAdapter)?;
        let Some(pair) = own.queue_pair(*number) else { continue };
        let kind = pair.kind();
        let has_begun = std::mem::take(&mut progress.has_begun);
        if has_begun && !kind.is_datagram() {
            // The result of an atomic operation in progress is unknown.
            progress.set_state(State::Error);
        }
        let function = own.queues_mut();
        let map = function.shared_map();
        let objects = &mut function.objects;
        let Some(queues) = objects.queue_pairs.get_mut(*number) else { continue };
        queues.resume(progress, reported);
        let shared = shared as u32;
        let pool = objects.receive_pools.get(shared);
        let held = progress.held.zip(pool).and_then(|(index, pool)| pool.entry(&map, index));
        let held = held.map(|work| (shared, work));
        let change = modify_queue_pair::recorded_change(&queues.context, kind, progress.state());
        let state = progress.state();
        let resume = Resume {
            state,
            change,
            sent: progress.sent,
            received: progress.message,
            is_sent: has_begun && kind.is_datagram(),
            held,
        };
        if state == State::ReadyToSend {
            function.activate(*number);
        }
        subnet.resume(adapter, *number, resume)?;
    }
    Ok(numbers.len())
}

/// Sets the positions of all other queues.
fn resume_queues(subnet: &mut Subnet<Function>, adapter: AdapterId, record: &Record) {
    let Some(own) = subnet.adapter_mut(adapter) else { return };
    let objects = &mut own.queues_mut().objects;
    for (number, queue) in objects.completion_queues.iter_mut() {
        let [first, arm, ..] = record.read_words(Words::CompletionQueue, number);
        if queue.resume([first, arm]) {
            queue.is_listed = true;
            objects.listed.push_back(number);
        }
    }
    for number in 1..=crate::limits::EVENT_QUEUES_MAX as u8 {
        if let Some(queue) = objects.event_queues.get_mut(number) {
            let [producer, ..] = record.read_words(Words::EventQueue, u32::from(number));
            queue.resume(producer as u32);
        }
    }
    let word = |of, number| {
        let [word, ..] = record.read_words(of, number);
        from_ethernet_word(word)
    };
    objects.ethernet.resume_queues(
        |number| word(Words::SendQueue, number),
        |number| word(Words::ReceiveQueue, number),
    );
    let mut limits = Vec::new();
    for (number, pool) in objects.receive_pools.iter_mut() {
        let [word, ..] = record.read_words(Words::ReceivePool, number);
        pool.resume(word);
        limits.push((number, pool.armed));
    }
    for (number, limit) in limits.into_iter().filter(|(_, limit)| *limit > 0) {
        own.arm_shared_limit(number, u32::from(limit));
    }
}

impl Function {
    /// Writes the guest entry of the last commit again.
    fn place_again(&mut self, entry: &StoredEntry) {
        let objects = &mut self.objects;
        match entry.ring {
            Ring::Completion => {
                if let Some(queue) = objects.completion_queues.get_mut(entry.number) {
                    queue.place(&self.map, entry.at, &entry.bytes);
                }
            }
            Ring::Event => {
                if let Some(queue) = objects.event_queues.get_mut(entry.number as u8) {
                    queue.place(&self.map, entry.at, &entry.bytes);
                }
            }
        }
    }

    /// Answers the command in progress, and reports its end. A command that was not executed is
    /// executed when its doorbell is rung.
    fn end_command(&mut self, in_progress: Option<journal::CommandInProgress>) {
        let Some(found) = in_progress else { return };
        let address = self.registers.command_queue();
        let is_answered = match &found.output {
            Some(output) => {
                queue::answer(&self.map, address, found.index, output);
                true
            }
            None => !queue::is_waiting(&self.map, address, found.index),
        };
        if is_answered && self.reports_commands() {
            let entries = 1_u32.checked_shl(found.index).unwrap_or(0);
            let event = Event::Command { entries };
            self.report_event(EventType::Command, event, EventSource::Command);
        } else if let Some(record) = &mut self.record {
            record.end_command();
        }
    }

    /// Rings all command doorbells and raises all vectors of event queues.
    fn notify_all(&mut self) {
        if self.registers.command_queue() != 0 {
            self.registers.ring_all();
        }
        self.raise_all();
        self.request_poll();
    }
}
