//! The checkers: independent models of the invariants, with events as their only input.
//!
//! | module | invariant |
//! |---|---|
//! | [`frames`] | frames: order, content, no duplicates, no wrong receiver |
//! | [`tally`] | frames: the number sent equals the numbers delivered and counted as dropped |
//! | [`streams`] | connections: order, content, complete or reset, no data left behind |
//! | [`credit`] | bytes in flight never exceed the receiver's buffer |
//! | [`endings`] | if one end of a connection is closed, so is the other, and with a cause |
//! | [`crossing`] | frames between hosts: unchanged, once, in their group; complete in calm |
//! | [`messages`] | messages between NICs: unchanged, once, in order, or completed with an error |
//! | [`remains`] | no resource remains after all guests have left |
//!
//! [`crate::tape::Tape::put`] passes each event to all checkers ([`Checkers::see`]), in the thread
//! of the world; the first violation ends the checks, and the world stops soon after. Tests of the
//! checkers judge events of their own ([`Checkers::judge`]). A checker changes no guest and asks no
//! backend.

pub mod credit;
pub mod crossing;
pub mod endings;
pub mod frames;
pub mod messages;
pub mod remains;
pub mod streams;
pub mod tally;

use crate::event::Event;

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{checker}: {what}")]
pub struct Violation {
    /// The checker that found the violation.
    pub checker: &'static str,
    /// The description.
    pub what: String,
}

/// Creates a violation found by `checker`.
pub fn broken(checker: &'static str, what: impl Into<String>) -> Violation {
    Violation { checker, what: what.into() }
}

/// A checker.
pub trait Check: std::fmt::Debug {
    /// Reads an event.
    ///
    /// # Errors
    /// The event violates the invariant.
    fn see(&mut self, event: &Event) -> Result<(), Violation>;

    /// Ends the sequence of events.
    ///
    /// # Errors
    /// An event that the invariant requires is missing.
    fn end(&mut self) -> Result<(), Violation> {
        Ok(())
    }
}

/// All checkers.
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
            Box::new(messages::Messages::default()),
            Box::new(remains::Remains),
        ])
    }
}

impl Checkers {
    /// Passes an event to every checker.
    ///
    /// # Errors
    /// The first violation.
    pub fn see(&mut self, event: &Event) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.see(event))
    }

    /// Ends the sequence of events for every checker.
    ///
    /// # Errors
    /// The first violation.
    pub fn end(&mut self) -> Result<(), Violation> {
        self.0.iter_mut().try_for_each(|checker| checker.end())
    }

    /// Checks a complete sequence of events.
    ///
    /// # Errors
    /// The first violation.
    pub fn judge(events: &[Event]) -> Result<(), Violation> {
        let mut checkers = Self::default();
        events.iter().try_for_each(|event| checkers.see(event))?;
        checkers.end()
    }
}
