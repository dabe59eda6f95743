//! The tape: the ordered event log of a world, its hash, and the checkers that read it.
//!
//! Guests and worlds append events ([`Tape::put`]), in the thread of the world. Each event is
//! hashed as text and passed to all checkers ([`crate::check`]); the first violation is kept, and
//! later events are not checked. [`crate::world`], [`crate::lan`] and [`crate::boards`] read
//! [`Tape::is_broken`] and stop a world with a violation. Events are printed or retained only if
//! asked for; a tape that retains them has no limit. Appending returns no error.

use std::fmt::Write;

use crate::check::{Checkers, Violation};
use crate::event::Event;

/// The event log of one world.
#[derive(Debug)]
pub struct Tape {
    hash: u64,
    print: bool,
    /// The events, if they are retained.
    kept: Option<Vec<Event>>,
    checkers: Checkers,
    violation: Option<Violation>,
    text: String,
    count: u64,
}

impl Tape {
    /// Creates an empty tape. `print`: write every event to standard output; `keep`: retain the
    /// events for [`Tape::close`].
    pub fn new(print: bool, keep: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            print,
            kept: keep.then(Vec::new),
            checkers: Checkers::default(),
            violation: None,
            text: String::new(),
            count: 0,
        }
    }

    /// Appends an event, updates the hash and passes the event to the checkers.
    pub fn put(&mut self, event: Event) {
        self.text.clear();
        let _ = write!(self.text, "{event:?}");
        for byte in self.text.as_bytes() {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.print {
            println!("{:>6} {}", self.count, self.text);
        }
        self.count += 1;
        if self.violation.is_none() {
            self.violation = self.checkers.see(&event).err();
        }
        if let Some(kept) = &mut self.kept {
            kept.push(event);
        }
    }

    /// Records a violation that was found outside the checkers; the first violation is kept.
    pub fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Returns true if an invariant was violated.
    pub fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    /// Ends the tape and returns the hash, the number of events, the retained events and the first
    /// violation. Without one so far, the checkers judge the end of the events.
    pub fn close(mut self) -> (u64, u64, Vec<Event>, Option<Violation>) {
        if self.violation.is_none() {
            self.violation = self.checkers.end().err();
        }
        (self.hash, self.count, self.kept.unwrap_or_default(), self.violation)
    }
}
