//! The memory behind the file of a record: allocated before it is used, and released afterwards.
//!
//! A store to a page of a sparse file that the host cannot provide ends in SIGBUS, and leaves the
//! file with the state of before. So the record writes to a page of its file only after
//! [`RecordSpace::reserve`] has allocated it, in this process or in that of the record that is
//! restored, in steps of [`RECORD_STEP_BYTES`] (16 KiB). A refusal is an answer: the record is
//! given up, and the function goes on without it.
//!
//! The host's part is a [`RecordMemory`] (`hca::record_memory` for files), because this crate makes
//! no system calls. A [`View`] alone is the space of a file that has all its memory. `super`,
//! `super::heap` and `super::restore` call the module in the dispatcher's thread: for each journal
//! entry that takes new memory, each new object, and each clearing and restoration; a range that is
//! allocated already costs no call of the host.

use std::ops::Range;

use causeway_memory::View;

use crate::limits::RECORD_STEP_BYTES;

/// Steps whose bits lie in a word.
const STEPS_PER_WORD: usize = 64;

/// Allocates and releases the memory of a file.
pub trait RecordMemory: std::fmt::Debug + Send {
    /// Allocates the memory of a range, and keeps what it holds. Returns false if the host has none
    /// left; the range must not be touched then.
    fn allocate(&mut self, range: Range<u64>) -> bool;

    /// Releases the memory of an allocated range, which holds zeros afterwards.
    fn release(&mut self, range: Range<u64>);

    /// Releases all memory of the file, also that of an earlier process.
    fn release_all(&mut self);

    /// Sets the first 8 bytes of the file to zero by a system call, which reaches the file also if
    /// its mapping was lost.
    fn invalidate(&mut self);
}

/// The mapping of a file, and the memory behind it.
#[derive(Debug)]
pub struct RecordSpace {
    view: View,
    memory: Option<Box<dyn RecordMemory>>,
    /// A bit for each step, set if it is allocated.
    steps: Vec<u64>,
}

impl From<View> for RecordSpace {
    fn from(view: View) -> Self {
        Self { view, memory: None, steps: Vec::new() }
    }
}

impl RecordSpace {
    /// Returns the space of a mapped file; nothing counts as allocated.
    pub fn new(view: View, memory: Box<dyn RecordMemory>) -> Self {
        let steps = view.len().div_ceil(RECORD_STEP_BYTES);
        let words = steps.div_ceil(STEPS_PER_WORD);
        Self { view, memory: Some(memory), steps: vec![0; words] }
    }

    /// Returns the mapping.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Allocates the memory of a range of bytes. Returns `None` if the host has none left, or the
    /// range lies outside of the file; never for the space of a [`View`] alone.
    pub(super) fn reserve(&mut self, bytes: Range<usize>) -> Option<()> {
        let Some(memory) = &mut self.memory else { return Some(()) };
        if bytes.end > self.view.len() {
            return None;
        }
        let steps = bytes.start / RECORD_STEP_BYTES..bytes.end.div_ceil(RECORD_STEP_BYTES);
        while let Some(run) = next_run(&self.steps, steps.clone(), false) {
            if !memory.allocate(bytes_of(&run)) {
                return None;
            }
            set(&mut self.steps, run, true);
        }
        Some(())
    }

    /// Releases the memory of the steps that lie in a range of bytes as a whole.
    pub(super) fn release(&mut self, bytes: Range<usize>) {
        let Some(memory) = &mut self.memory else { return };
        let steps = bytes.start.div_ceil(RECORD_STEP_BYTES)..bytes.end / RECORD_STEP_BYTES;
        while let Some(run) = next_run(&self.steps, steps.clone(), true) {
            memory.release(bytes_of(&run));
            set(&mut self.steps, run, false);
        }
    }

    /// Releases all memory of the file.
    pub(super) fn release_all(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.release_all();
            self.steps.fill(0);
        }
    }

    /// Makes the file one without a record, whether or not the mapping still belongs to it.
    pub(super) fn invalidate(&mut self) {
        let _ = self.view.store_word(0, 0);
        if let Some(memory) = &mut self.memory {
            memory.invalidate();
        }
    }
}

/// Returns whether a step is allocated.
fn is_set(steps: &[u64], step: usize) -> bool {
    let word = steps.get(step / STEPS_PER_WORD).copied().unwrap_or(0);
    word & bit(step) != 0
}

fn set(steps: &mut [u64], run: Range<usize>, is_allocated: bool) {
    for step in run {
        let Some(word) = steps.get_mut(step / STEPS_PER_WORD) else { return };
        *word = if is_allocated { *word | bit(step) } else { *word & !bit(step) };
    }
}

fn bit(step: usize) -> u64 {
    1_u64.wrapping_shl(step as u32)
}

/// Returns the first steps in a range that are allocated, or not, without a gap.
fn next_run(steps: &[u64], within: Range<usize>, is_allocated: bool) -> Option<Range<usize>> {
    let end = within.end;
    let start = within.into_iter().find(|&step| is_set(steps, step) == is_allocated)?;
    let end = (start..end).find(|&step| is_set(steps, step) != is_allocated).unwrap_or(end);
    Some(start..end)
}

/// Returns the bytes of steps.
fn bytes_of(steps: &Range<usize>) -> Range<u64> {
    let at = |step: usize| (step as u64).saturating_mul(RECORD_STEP_BYTES as u64);
    at(steps.start)..at(steps.end)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::{Arc, Mutex};

    use causeway_memory::{Mapping, create};

    use super::*;

    const STEP: u64 = RECORD_STEP_BYTES as u64;

    /// A call: whether it allocates (`a`), is refused (`-`) or releases (`r`), and the range.
    type Call = (char, Range<u64>);

    /// Notes the calls; refuses ranges behind `most` bytes.
    #[derive(Debug, Clone)]
    struct Notes {
        most: u64,
        calls: Arc<Mutex<Vec<Call>>>,
    }

    impl RecordMemory for Notes {
        fn allocate(&mut self, range: Range<u64>) -> bool {
            let is_allowed = range.end <= self.most;
            self.calls.lock().unwrap().push((if is_allowed { 'a' } else { '-' }, range));
            is_allowed
        }

        fn release(&mut self, range: Range<u64>) {
            self.calls.lock().unwrap().push(('r', range));
        }

        fn release_all(&mut self) {}

        fn invalidate(&mut self) {}
    }

    #[test]
    fn record_space_allocates_each_step_once_until_it_is_released() {
        let file = create("record", 8 * STEP).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 8 * STEP).unwrap());
        let view = View::new(mapping, 0, 8 * STEP as usize).unwrap();
        let notes = Notes { most: 6 * STEP, calls: Arc::default() };
        let mut space = RecordSpace::new(view, Box::new(notes.clone()));
        let calls = || std::mem::take(&mut *notes.calls.lock().unwrap());
        let step = RECORD_STEP_BYTES;
        assert_eq!(space.reserve(step + 8..step + 16), Some(()));
        assert_eq!(space.reserve(3 * step - 8..3 * step + 1), Some(()));
        assert_eq!(calls(), [('a', STEP..2 * STEP), ('a', 2 * STEP..4 * STEP)]);
        assert_eq!(space.reserve(0..5 * step), Some(()));
        assert_eq!(calls(), [('a', 0..STEP), ('a', 4 * STEP..5 * STEP)], "the gaps");
        assert_eq!(space.reserve(5 * step..7 * step), None);
        assert_eq!(space.reserve(7 * step..9 * step), None, "behind the end of the file");
        assert_eq!(calls(), [('-', 5 * STEP..7 * STEP)]);
        space.release(step - 1..3 * step + 1);
        assert_eq!(calls(), [('r', STEP..3 * STEP)], "whole steps");
        assert_eq!(space.reserve(0..4 * step), Some(()));
        assert_eq!(calls(), [('a', STEP..3 * STEP)]);
    }
}
