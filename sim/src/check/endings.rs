//! The end of a connection: if one end is closed, so is the other, and never without a cause.
//!
//! The tape passes each event about vsock connections to the checker, in the thread of the world. A
//! cause is a close by either guest, both directions shut down, the end of the other guest's
//! device, an end of which the other guest knows, or a connection of the stage that the backend
//! ended for a documented reason and counted ([`Event::Excuse`]); the last excuses every later end
//! in the stage. At the end of the world both ends must be open or both closed, and no
//! connection request may be without an answer. The checker returns a violation and changes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Violation, broken};
use crate::event::{Direction, Event, Link, Place};

/// Both ends of a connection.
#[derive(Debug, Default)]
struct Ends {
    /// The life of each end's guest when the end was created, caller first.
    lives: [Option<u64>; 2],
    /// A guest closed the connection.
    closed: bool,
    /// The guest of each end knows that the connection is over.
    over: [bool; 2],
    /// Each end shut its direction down.
    shut: [bool; 2],
    /// Each end was open at the end of the world; whether it had no answer yet.
    still: [Option<bool>; 2],
}

/// The checker.
#[derive(Debug, Default)]
pub struct Endings {
    links: BTreeMap<Link, Ends>,
    lives: BTreeMap<Place, u64>,
    running: BTreeSet<Place>,
    excused: BTreeSet<u8>,
}

/// Returns the index of the end that sends in a direction: 0 for the caller.
fn side(direction: &Direction) -> usize {
    usize::from(!direction.forth)
}

impl Endings {
    fn ends(&mut self, direction: &Direction) -> &mut Ends {
        self.links.entry(direction.link).or_default()
    }

    /// Returns true if the guest of an end has not left since the end was created.
    fn lives_on(&self, ends: &Ends, direction: &Direction) -> bool {
        let place = direction.sender();
        let born = ends.lives[side(direction)];
        self.running.contains(&place) && born.is_some() && born == self.lives.get(&place).copied()
    }

    fn over(&mut self, direction: Direction) -> Result<(), Violation> {
        let ends = self.links.entry(direction.link).or_default();
        ends.over[side(&direction)] = true;
        let ends = &self.links[&direction.link];
        let other = direction.back();
        let reason = ends.closed
            || ends.shut == [true; 2]
            || ends.over[side(&other)]
            || !self.lives_on(ends, &other)
            || self.excused.contains(&direction.link.stage);
        if reason {
            Ok(())
        } else {
            Err(broken("endings", format!("connection ended without a cause: {direction:?}")))
        }
    }
}

impl Check for Endings {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Joined(place) => {
                *self.lives.entry(place).or_default() += 1;
                self.running.insert(place);
            }
            Event::Left(place) => {
                self.running.remove(&place);
            }
            Event::Opened { direction } => {
                let life = self.lives.get(&direction.sender()).copied();
                self.ends(&direction).lives[side(&direction)] = life;
            }
            Event::Closed(direction) => {
                let ends = self.ends(&direction);
                ends.closed = true;
                ends.over[side(&direction)] = true;
            }
            Event::Shut(direction) => self.ends(&direction).shut[side(&direction)] = true,
            Event::Over(direction) => return self.over(direction),
            Event::Excuse { stage } => {
                self.excused.insert(stage);
            }
            Event::Still { direction, asking } => {
                self.ends(&direction).still[side(&direction)] = Some(asking);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Violation> {
        for (link, ends) in &self.links {
            let fail = |what: &str| Err(broken("endings", format!("{what}: {link:?}")));
            for forth in [true, false] {
                let direction = Direction { link: *link, forth };
                let (own, other) = (side(&direction), side(&direction.back()));
                match ends.still[own] {
                    Some(true) => return fail("connection request has no answer"),
                    Some(false) if ends.still[other].is_none() => {
                        return fail("one end is open and the other is closed");
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
