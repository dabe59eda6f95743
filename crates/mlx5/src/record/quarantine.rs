//! The word about restorations: a record that ends its process is not restored again.
//!
//! A panic while a record is restored would repeat in each next process. So the word is set before
//! the restoration and changed after it:
//!
//! | word | state of the file | next restoration |
//! |---|---|---|
//! | 0 | the function was served since the last restoration | allowed |
//! | count | restored that often; the function was not served since | allowed below [`RESTORES_MAX`] (3) |
//! | count, with a mark | the process ended during the restoration | refused |
//!
//! The count covers the first call of the function after a restoration, which executes the work
//! that a damaged state would break. It is above 1 because the record of another function may have
//! ended the process. `super::restore` calls [`begin`] and [`end`], `causeway-hca` calls
//! [`Record::confirm`], which clears the word, after the first call, all in the dispatcher's
//! thread; a new record has no count. A refused record is replaced by an empty one, and the
//! function reports an internal error to its driver (`hca::resume`).

use causeway_memory::View;

use super::layout::RESTORATIONS;
use super::{Record, RestoreError};
use crate::limits::RESTORES_MAX;

/// Mark of a restoration in progress.
const IN_PROGRESS: u64 = 1 << 32;

/// Notes that a restoration begins.
///
/// # Errors
/// [`RestoreError::Interrupted`] if the record must not be restored.
pub(super) fn begin(view: &View) -> Result<(), RestoreError> {
    let word = view.load_word(RESTORATIONS).unwrap_or_default();
    let times = word as u32;
    if word & IN_PROGRESS != 0 || times >= RESTORES_MAX {
        return Err(RestoreError::Interrupted { times });
    }
    store(view, IN_PROGRESS | u64::from(times.saturating_add(1)));
    Ok(())
}

/// Notes that the restoration is complete.
pub(super) fn end(view: &View) {
    let word = view.load_word(RESTORATIONS).unwrap_or_default();
    store(view, word & !IN_PROGRESS);
}

/// Forgets earlier restorations.
pub(super) fn clear(view: &View) {
    store(view, 0);
}

/// Stores the word. The space of the file has it, and a lost mapping is found by others.
fn store(view: &View, word: u64) {
    let _ = view.store_word(RESTORATIONS, word);
}

impl Record {
    /// Notes that the restored function was served: the next process may restore the record again.
    pub fn confirm(&mut self) {
        clear(&self.view);
    }
}
