//! A connection that is over for one end is over for both, and never without a reason.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Violation, broken};
use crate::event::{Event, Link, Place, Way};

#[derive(Debug, Default)]
struct Ends {
    /// The lives in which the ends came to be, caller first.
    lives: [Option<u64>; 2],
    closed: bool,
    over: [bool; 2],
    shut: [bool; 2],
    still: [Option<bool>; 2],
}

/// See the module.
#[derive(Debug, Default)]
pub struct Endings {
    links: BTreeMap<Link, Ends>,
    lives: BTreeMap<Place, u64>,
    running: BTreeSet<Place>,
    excused: BTreeSet<u8>,
}

fn side(way: &Way) -> usize {
    usize::from(!way.forth)
}

impl Endings {
    fn ends(&mut self, way: &Way) -> &mut Ends {
        self.links.entry(way.link).or_default()
    }

    /// Whether the guest of an end has not left since.
    fn lives_on(&self, ends: &Ends, way: &Way) -> bool {
        let place = way.sender();
        let born = ends.lives[side(way)];
        self.running.contains(&place) && born.is_some() && born == self.lives.get(&place).copied()
    }

    fn over(&mut self, way: Way) -> Result<(), Violation> {
        let ends = self.links.entry(way.link).or_default();
        ends.over[side(&way)] = true;
        let ends = &self.links[&way.link];
        let other = way.back();
        let reason = ends.closed
            || ends.shut == [true; 2]
            || ends.over[side(&other)]
            || !self.lives_on(ends, &other)
            || self.excused.contains(&way.link.stage);
        if reason { Ok(()) } else { Err(broken("endings", format!("no reason for {way:?}"))) }
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
            Event::Opened { way } => {
                let life = self.lives.get(&way.sender()).copied();
                self.ends(&way).lives[side(&way)] = life;
            }
            Event::Closed(way) => {
                let ends = self.ends(&way);
                ends.closed = true;
                ends.over[side(&way)] = true;
            }
            Event::Shut(way) => self.ends(&way).shut[side(&way)] = true,
            Event::Over(way) => return self.over(way),
            Event::Excuse { stage } => {
                self.excused.insert(stage);
            }
            Event::Still { way, asking } => {
                self.ends(&way).still[side(&way)] = Some(asking);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Violation> {
        for (link, ends) in &self.links {
            let fail = |what: &str| Err(broken("endings", format!("{what}: {link:?}")));
            for forth in [true, false] {
                let way = Way { link: *link, forth };
                let (own, other) = (side(&way), side(&way.back()));
                match ends.still[own] {
                    Some(true) => return fail("a connect has no answer"),
                    Some(false) if ends.still[other].is_none() => {
                        return fail("one end is open, the other one is not");
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
