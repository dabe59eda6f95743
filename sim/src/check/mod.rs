//! The checkers: independent models of what was promised, fed with events and nothing else.
//!
//! | module | promise |
//! |---|---|
//! | [`frames`] | frames: order, content, none twice, none to others |
//! | [`tally`] | frames: as many sent as delivered and dropped by a counter |
//! | [`streams`] | connections: order, content, whole or reset, nothing left behind |
//! | [`credit`] | never more on the way than the receiver has room for |
//! | [`endings`] | an end that is over for one is over for both, and has a reason |
//! | [`crossing`] | frames between hosts: as they were, once, in their group, and all of them in calm |
//! | [`letters`] | messages between boards: as they were sent, once and in order, or their sender hears that they failed |
//! | [`remains`] | nothing is left when all are gone |

pub mod credit;
pub mod crossing;
pub mod endings;
pub mod frames;
pub mod letters;
pub mod remains;
pub mod streams;
pub mod tally;

use crate::event::Event;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{checker}: {what}")]
pub struct Violation {
    /// Whose promise.
    pub checker: &'static str,
    /// How.
    pub what: String,
}

/// A violation found by `checker`.
pub fn broken(checker: &'static str, what: impl Into<String>) -> Violation {
    Violation { checker, what: what.into() }
}

/// One checker.
pub trait Check: std::fmt::Debug {
    /// Takes an event in.
    ///
    /// # Errors
    /// It breaks the promise.
    fn see(&mut self, event: &Event) -> Result<(), Violation>;

    /// There are no more events.
    ///
    /// # Errors
    /// Something is missing.
    fn end(&mut self) -> Result<(), Violation> {
        Ok(())
    }
}

/// All of them.
#[derive(Debug)]
pub struct Checkers(Vec<Box<dyn Check>>);

impl Default for Checkers {
    fn default() -> Self {
        Self(vec![
            Box::new(frames::Frames::default()),
            Box::new(tally::Tallies::default()),
            Box::new(streams::Streams::default()),
            Box::new(credit::Credits::default()),
            Box::new(endings::Endings::default()),
            Box::new(crossing::Crossings::default()),
            Box::new(letters::Letters::default()),
            Box::new(remains::Remains),
        ])
    }
}

impl Checkers {
    /// Shows an event to all.
    ///
    /// # Errors
    /// The first promise that it breaks.
    pub fn see(&mut self, event: &Event) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.see(event))
    }

    /// Asks all whether something is missing.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn end(&mut self) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.end())
    }

    /// Judges a whole tape.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn judge(events: &[Event]) -> Result<(), Violation> {
        let mut checkers = Self::default();
        events.iter().try_for_each(|event| checkers.see(event))?;
        checkers.end()
    }
}
