//! A message comes as it was sent, once and in order, or its sender hears that it failed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Violation, broken};
use crate::event::{Event, Letter, Place, Post};

#[derive(Debug, Default)]
struct Fate {
    len: u32,
    /// By which lives of its receiver.
    heard: BTreeSet<u8>,
    got: BTreeSet<u8>,
    ended: Option<bool>,
    /// In calm: it must arrive.
    calm: bool,
    /// Its receiver died since: it may have had it.
    excused: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Letters {
    fates: BTreeMap<Letter, Fate>,
    /// The last number that came to a life of a place, from a life of another.
    last: BTreeMap<(Place, u8, Place, u8), u32>,
    dead: BTreeSet<(Place, u8)>,
    calm: bool,
}

impl Letters {
    fn heard(&mut self, at: Place, life: u8, letter: Letter) -> Result<(), &'static str> {
        let fate = self.fates.get_mut(&letter).ok_or("it was never sent")?;
        if letter.to != at {
            return Err("it is for another");
        }
        fate.heard.insert(life);
        let last = self.last.insert((at, life, letter.from, letter.life), letter.number);
        if last.is_some_and(|last| last >= letter.number) {
            return Err("it came twice, or late");
        }
        Ok(())
    }

    fn got(&mut self, life: u8, letter: Letter, len: u32) -> Result<(), &'static str> {
        let fate = self.fates.get_mut(&letter).ok_or("it was never sent")?;
        if fate.len != len {
            return Err("it had another length");
        }
        if !fate.heard.contains(&life) {
            return Err("it came before it was heard of");
        }
        if !fate.got.insert(life) {
            return Err("it was had twice");
        }
        Ok(())
    }

    fn ended(&mut self, letter: Letter, well: bool) -> Result<(), &'static str> {
        let fate = self.fates.get_mut(&letter).ok_or("it was never sent")?;
        if fate.ended.replace(well).is_some() {
            return Err("it ended twice");
        }
        Ok(())
    }

    fn arrived(&self) -> Result<(), Violation> {
        let lost = |(_, fate): &(&Letter, &Fate)| {
            fate.calm && (fate.got.is_empty() || fate.ended != Some(true))
        };
        match self.fates.iter().find(lost) {
            Some((letter, fate)) => {
                Err(broken("letters", format!("all was well, and {letter:?} is lost: {fate:?}")))
            }
            None => Ok(()),
        }
    }
}

impl Check for Letters {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let Event::Post(post) = event else { return Ok(()) };
        let seen = match *post {
            Post::Sent { letter, len } => {
                let fate = Fate { len, calm: self.calm, ..Fate::default() };
                let twice = self.fates.insert(letter, fate).is_some();
                if twice { Err("it was sent twice") } else { Ok(()) }
            }
            Post::Heard { at, life, letter } => self.heard(at, life, letter),
            Post::Got { sound: false, .. } => Err("its bytes are others"),
            Post::Got { life, letter, len, .. } => self.got(life, letter, len),
            Post::Ended { letter, well } => self.ended(letter, well),
            Post::Died { at, life } => {
                self.dead.insert((at, life));
                let its = self.fates.iter_mut().filter(|(letter, _)| letter.to == at);
                its.for_each(|(_, fate)| fate.excused = true);
                Ok(())
            }
            Post::Calm => {
                self.calm = true;
                Ok(())
            }
            Post::Arrived => {
                self.calm = false;
                return self.arrived();
            }
        };
        seen.map_err(|what| broken("letters", format!("{what}: {post:?}")))
    }

    fn end(&mut self) -> Result<(), Violation> {
        let open = |(letter, fate): &(&Letter, &Fate)| {
            fate.ended.is_none() && !self.dead.contains(&(letter.from, letter.life))
        };
        if let Some((letter, _)) = self.fates.iter().find(open) {
            return Err(broken("letters", format!("{letter:?} never ended")));
        }
        let lost = |(_, fate): &(&Letter, &Fate)| {
            fate.ended == Some(true) && fate.got.is_empty() && !fate.excused
        };
        match self.fates.iter().find(lost) {
            Some((letter, _)) => {
                Err(broken("letters", format!("{letter:?} is said to be there, and is not")))
            }
            None => Ok(()),
        }
    }
}
