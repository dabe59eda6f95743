//! The tape: every event in its order, its hash, and the checkers that watch it.

use std::fmt::Write;

use crate::check::{Checkers, Violation};
use crate::event::Event;

/// See the module.
#[derive(Debug)]
pub struct Tape {
    hash: u64,
    print: bool,
    kept: Option<Vec<Event>>,
    checkers: Checkers,
    violation: Option<Violation>,
    text: String,
    count: u64,
}

impl Tape {
    /// An empty tape. `print`: every event is written to standard output; `keep`: it is kept.
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

    /// Puts an event on the tape.
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

    /// Notes what no checker sees.
    pub fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    /// The end: hash, number of events, what was kept, and the first broken promise.
    pub fn close(mut self) -> (u64, u64, Vec<Event>, Option<Violation>) {
        if self.violation.is_none() {
            self.violation = self.checkers.end().err();
        }
        (self.hash, self.count, self.kept.unwrap_or_default(), self.violation)
    }
}
