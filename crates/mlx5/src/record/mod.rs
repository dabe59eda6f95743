//! The record of a function: a file from which the next causewayd continues the function after this
//! one was killed.
//!
//! | content | written | restored |
//! |---|---|---|
//! | journal: inputs of the commands that made and changed the objects, memory regions, contexts of queue pairs | by each command, and by work requests that change regions ([`journal`]) | the commands are executed again, with the same numbers ([`restore`]) |
//! | words: positions and states of queues | with each completion, event, and end of a work request ([`store`]) | set after the commands |
//! | redo entry: words and the guest's entry of a commit | before the commit takes effect ([`redo`]) | applied again |
//! | command in progress | before its answer | answered, or executed again |
//!
//! Each commit takes effect as a whole or not at all, so that no completion is lost or written
//! twice. The journal entries of a destroyed object are removed one by one, the first with the
//! commit. Payload is not recorded: a work request that had not ended is executed again
//! (`verbs::engine::resume` has the exceptions). A function without a record pays a branch for each
//! completion.
//!
//! # Limits
//! The journal has [`crate::limits::RECORD_HEAP_BYTES`] (64 MiB). If it is full, the host has no
//! memory for the file ([`space`]), or the file loses a page, the function goes on without a record
//! ([`Record::is_complete`] is false) until its objects are cleared: the next causewayd then cannot
//! continue it. The file is made invalid and its memory released. Not recorded are counters, the
//! pace of events (`crate::event_pacing`: events that wait are lost), and moderation timers.
//!
//! The file is written by causewayd alone, and its shape is checked when it is read: a file that is
//! damaged, or of another version or other limits, is a [`RecordError`], and the function starts
//! empty. A record whose restoration ended a process is not restored again ([`quarantine`]).
//!
//! `causeway-hca` makes a record for each held port ([`crate::Function::set_record`]), in the
//! dispatcher's thread like the function.

mod error;
mod heap;
pub(crate) mod journal;
mod layout;
pub(crate) mod progress;
mod quarantine;
pub(crate) mod redo;
mod region;
pub(crate) mod restore;
mod space;
mod store;

use std::collections::BTreeMap;

use causeway_memory::View;

use crate::function_config::FunctionConfig;
use crate::limits::RECORD_STEP_BYTES;
use heap::{Extent, Heap};
use layout::{COMMAND, Layout, SLOT_BYTES};
use redo::{Changes, GuestEntry};

pub use error::{RecordError, RestoreError, Restored};
pub use space::{RecordMemory, RecordSpace};

/// Length of the header of a journal entry, in bytes.
const ENTRY_HEADER: usize = 40;

/// The key of a journal entry: an object and a part of its state. A new entry of a key replaces the
/// old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Opcode of the command that makes such objects.
    pub object: u16,
    /// Number of the object.
    pub number: u32,
    /// Part; 0 for the creation.
    pub part: u64,
}

/// The record of a function: its journal, words and commits.
#[derive(Debug)]
pub struct Record {
    /// Mapping of the file.
    view: View,
    /// Memory behind the view.
    space: RecordSpace,
    /// Places in the file.
    layout: Layout,
    /// Free memory of the journal.
    heap: Heap,
    /// Extents of the journal's entries.
    entries: BTreeMap<Key, Extent>,
    /// Number of the next journal entry.
    sequence: u64,
    /// Words of the next commit.
    staged: Changes,
    /// Extents that the next commit makes free.
    freed: Vec<Extent>,
    /// The next process can continue the function.
    is_complete: bool,
    /// How often the record was given up.
    losses: u64,
    /// Number of the command in progress, in the command queue.
    command: u32,
    #[cfg(debug_assertions)]
    step: Option<fn()>,
}

impl Record {
    /// Returns the length of the file for a function, in bytes.
    pub fn file_bytes(config: &FunctionConfig) -> usize {
        Layout::new(config).len
    }

    /// Makes an empty record in a file, and releases the memory of an earlier record.
    ///
    /// # Errors
    /// [`RecordError::Short`], and [`RecordError::NoMemory`]; the file is not a record then.
    pub fn create(
        space: impl Into<RecordSpace>,
        config: &FunctionConfig,
    ) -> Result<Self, RecordError> {
        let (layout, mut space) = (Layout::new(config), space.into());
        let view = space.view().clone();
        let short = RecordError::Short(layout.len);
        if view.len() < layout.len {
            return Err(short);
        }
        space.release_all();
        let (first, heap) = (0..RECORD_STEP_BYTES, layout.heap..layout.heap.saturating_add(8));
        let is_reserved = space.reserve(first).and_then(|()| space.reserve(heap)).is_some();
        if !is_reserved || view.is_poisoned() {
            return Err(RecordError::NoMemory);
        }
        // The header comes last: a file without it is not read.
        view.store_word(0, 0).map_err(|_| short)?;
        redo::clear(&view).ok_or(short)?;
        view.store_word(COMMAND, 0).map_err(|_| short)?;
        quarantine::clear(&view);
        let heap = Heap::clear(&view, layout.heap, layout.len).ok_or(short)?;
        for (index, word) in layout.header().iter().enumerate().rev() {
            view.store_word(index.saturating_mul(8), *word).map_err(|_| short)?;
        }
        Ok(Self::new(space, layout, heap))
    }

    /// Returns a record without entries.
    fn new(space: RecordSpace, layout: Layout, heap: Heap) -> Self {
        Self {
            view: space.view().clone(),
            space,
            layout,
            heap,
            entries: BTreeMap::new(),
            sequence: 0,
            staged: Changes::default(),
            freed: Vec::new(),
            is_complete: true,
            losses: 0,
            command: 0,
            #[cfg(debug_assertions)]
            step: None,
        }
    }

    /// Returns whether the next process can continue the function.
    pub fn is_complete(&self) -> bool {
        self.is_complete && !self.view.is_poisoned()
    }

    /// Returns how often the record was given up since it was made.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Sets a function that is called between any two stores of a commit, for tests. Release builds
    /// have none.
    #[cfg(debug_assertions)]
    pub fn set_step(&mut self, step: Option<fn()>) {
        self.step = step;
    }

    #[cfg(debug_assertions)]
    fn stepper(&self) -> impl FnMut() + use<> {
        let step = self.step;
        move || step.into_iter().for_each(|step| step())
    }

    #[cfg(not(debug_assertions))]
    fn stepper(&self) -> impl FnMut() + use<> {
        || ()
    }

    /// Forgets all objects, by a single store, and releases their memory.
    pub(crate) fn clear(&mut self) {
        (self.staged, self.freed) = (Changes::default(), Vec::new());
        self.entries.clear();
        self.is_complete = true;
        if self.try_clear().is_none() {
            self.give_up();
        }
    }

    fn try_clear(&mut self) -> Option<()> {
        redo::clear(&self.view)?;
        let (start, end) = self.heap.range();
        // A record that was given up has released this step.
        self.space.reserve(start..start.saturating_add(8))?;
        self.heap = Heap::clear(&self.view, start, end)?;
        self.space.release(RECORD_STEP_BYTES..start);
        self.space.release(start.saturating_add(RECORD_STEP_BYTES)..end);
        quarantine::clear(&self.view);
        self.view.store_word(0, layout::MAGIC).ok()?;
        (!self.view.is_poisoned()).then_some(())
    }

    /// Ends the record: the function cannot be continued. A file without its magic number is
    /// refused.
    #[cold]
    fn give_up(&mut self) {
        if self.is_complete {
            self.is_complete = false;
            self.losses = self.losses.saturating_add(1);
            self.space.invalidate();
            self.space.release(RECORD_STEP_BYTES..self.layout.len);
        }
    }

    /// Allocates the memory of the words of a new object that begin at `at`.
    fn reserve_words(&mut self, at: usize) {
        let end = at.saturating_add(SLOT_BYTES);
        if self.is_complete && self.space.reserve(at..end).is_none() {
            self.give_up();
        }
    }

    /// Begins a commit: its words take effect, and the caller writes `entry` to the guest's memory
    /// and calls [`Self::finish`]. Staged journal entries belong to the commit.
    #[inline]
    pub(crate) fn begin(&mut self, mut changes: Changes, entry: Option<&GuestEntry<'_>>) {
        if !self.is_complete {
            return;
        }
        if !self.staged.pairs().is_empty() {
            std::mem::take(&mut self.staged).pairs().iter().for_each(|pair| changes.push(*pair));
        }
        let mut step = self.stepper();
        step();
        let done = match (changes.pairs(), entry) {
            _ if changes.is_overfull() => None,
            ([], None) => Some(()),
            ([_], None) => redo::apply(&self.view, &changes, &mut step),
            _ => redo::write(&self.view, &changes, entry, &mut step)
                .and_then(|()| redo::apply(&self.view, &changes, &mut step)),
        };
        // The stores to a lost mapping did not reach the file, which has the state of before.
        if done.is_none() || self.view.is_poisoned() {
            self.give_up();
        }
    }

    /// Ends a commit with a guest entry or several words.
    #[inline]
    pub(crate) fn finish(&mut self) {
        let mut step = self.stepper();
        step();
        if redo::clear(&self.view).is_none() {
            self.give_up();
        }
        step();
        for extent in self.freed.drain(..) {
            self.heap.release(extent);
        }
    }

    /// Commits words without a guest entry.
    #[inline]
    pub(crate) fn commit(&mut self, changes: Changes) {
        let is_single = changes.pairs().len() == 1 && self.staged.pairs().is_empty();
        self.begin(changes, None);
        if !is_single {
            self.finish();
        }
    }

    /// Writes a journal entry, which becomes part of the next commit and replaces the entry of its
    /// key. Of the bytes, `parts` are written behind each other.
    pub(crate) fn stage(&mut self, key: Key, parts: &[&[u8]]) {
        if self.is_complete && self.try_stage(key, parts).is_none() {
            self.give_up();
        }
    }

    fn try_stage(&mut self, key: Key, parts: &[&[u8]]) -> Option<()> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let bytes = len.checked_add(ENTRY_HEADER)?;
        let extent = self.heap.allocate(&mut self.space, bytes)?;
        let object = u64::from(key.object) << 32 | u64::from(key.number);
        for (word, at) in [self.sequence, object, key.part, len as u64].into_iter().zip(1_usize..) {
            self.view.store_word(extent.at.checked_add(at.checked_mul(8)?)?, word).ok()?;
        }
        let mut at = extent.at.checked_add(ENTRY_HEADER)?;
        for part in parts {
            self.view.write(at, part).ok()?;
            at = at.checked_add(part.len())?;
        }
        self.sequence = self.sequence.checked_add(1)?;
        self.staged.push(extent.used());
        if let Some(old) = self.entries.insert(key, extent) {
            self.staged.push(old.free());
            self.freed.push(old);
        }
        Some(())
    }

    /// Removes the entries of an object with parts in a range. The first goes with the next commit,
    /// the others at once.
    pub(crate) fn remove(
        &mut self,
        object: u16,
        number: u32,
        parts: std::ops::RangeInclusive<u64>,
    ) {
        if !self.is_complete {
            return;
        }
        let key = |part| Key { object, number, part };
        let found = self.entries.range(key(*parts.start())..=key(*parts.end()));
        let found: Vec<(Key, Extent)> = found.map(|(key, extent)| (*key, *extent)).collect();
        for (index, (key, extent)) in found.iter().enumerate() {
            self.entries.remove(key);
            self.freed.push(*extent);
            let (at, word) = extent.free();
            if index == 0 {
                self.staged.push((at, word));
            } else if self.view.store_word(at, word).is_err() {
                return self.give_up();
            }
        }
    }
}
