//! A message arrives unchanged, once and in order, or its sender gets a completion with an error.
//!
//! The tape passes each event of a world of NICs ([`crate::boards`]) to the checker, in the thread
//! of the world. A message of which the sender has a good completion must have arrived, unless a
//! process at its receiving endpoint died after the send. A message that was sent in calm must
//! arrive and complete well. A *life* is one process at an endpoint: messages to an earlier life
//! may fail. The first event that breaks a rule is the violation, and at the end a message without
//! a completion of a sender that lives.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Violation, broken};
use crate::event::{Event, MessageEvent, MessageId, Place};

/// What happened to a message.
#[derive(Debug, Default)]
struct Fate {
    /// Length, in bytes.
    len: u32,
    /// The lives of the receiver that were notified of the message.
    heard: BTreeSet<u8>,
    /// The lives of the receiver that have the message.
    got: BTreeSet<u8>,
    /// The sender's completion: whether the message was delivered.
    ended: Option<bool>,
    /// The message was sent in calm and must arrive.
    calm: bool,
    /// The receiver died after the message was sent, and may have received it.
    excused: bool,
}

/// The checker.
#[derive(Debug, Default)]
pub struct Messages {
    fates: BTreeMap<MessageId, Fate>,
    /// The last number received, by receiver, its life, sender and its life.
    last: BTreeMap<(Place, u8, Place, u8), u32>,
    dead: BTreeSet<(Place, u8)>,
    calm: bool,
}

impl Messages {
    fn heard(&mut self, at: Place, life: u8, id: MessageId) -> Result<(), &'static str> {
        let fate = self.fates.get_mut(&id).ok_or("message was never sent")?;
        if id.to != at {
            return Err("message for another endpoint");
        }
        fate.heard.insert(life);
        let last = self.last.insert((at, life, id.from, id.life), id.number);
        if last.is_some_and(|last| last >= id.number) {
            return Err("notification is a duplicate or out of order");
        }
        Ok(())
    }

    fn got(&mut self, life: u8, id: MessageId, len: u32) -> Result<(), &'static str> {
        let fate = self.fates.get_mut(&id).ok_or("message was never sent")?;
        if fate.len != len {
            return Err("length differs from the sent length");
        }
        if !fate.heard.contains(&life) {
            return Err("message arrived before its notification");
        }
        if !fate.got.insert(life) {
            return Err("message was received twice");
        }
        Ok(())
    }

    fn ended(&mut self, id: MessageId, well: bool) -> Result<(), &'static str> {
        let fate = self.fates.get_mut(&id).ok_or("message was never sent")?;
        if fate.ended.replace(well).is_some() {
            return Err("message completed twice");
        }
        Ok(())
    }

    fn arrived(&self) -> Result<(), Violation> {
        let lost = |(_, fate): &(&MessageId, &Fate)| {
            fate.calm && (fate.got.is_empty() || fate.ended != Some(true))
        };
        match self.fates.iter().find(lost) {
            Some((id, fate)) => {
                Err(broken("messages", format!("message sent in calm was lost: {id:?} {fate:?}")))
            }
            None => Ok(()),
        }
    }
}

impl Check for Messages {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let Event::Message(message) = event else { return Ok(()) };
        let seen = match *message {
            MessageEvent::Sent { id, len } => {
                let fate = Fate { len, calm: self.calm, ..Fate::default() };
                let twice = self.fates.insert(id, fate).is_some();
                if twice { Err("message was sent twice") } else { Ok(()) }
            }
            MessageEvent::Heard { at, life, id } => self.heard(at, life, id),
            MessageEvent::Got { sound: false, .. } => Err("payload differs from the sent payload"),
            MessageEvent::Got { life, id, len, .. } => self.got(life, id, len),
            MessageEvent::Ended { id, well } => self.ended(id, well),
            MessageEvent::Died { at, life } => {
                self.dead.insert((at, life));
                let its = self.fates.iter_mut().filter(|(id, _)| id.to == at);
                its.for_each(|(_, fate)| fate.excused = true);
                Ok(())
            }
            MessageEvent::Calm => {
                self.calm = true;
                Ok(())
            }
            MessageEvent::Arrived => {
                self.calm = false;
                return self.arrived();
            }
        };
        seen.map_err(|what| broken("messages", format!("{what}: {message:?}")))
    }

    fn end(&mut self) -> Result<(), Violation> {
        let open = |(id, fate): &(&MessageId, &Fate)| {
            fate.ended.is_none() && !self.dead.contains(&(id.from, id.life))
        };
        if let Some((id, _)) = self.fates.iter().find(open) {
            return Err(broken("messages", format!("message never completed: {id:?}")));
        }
        let lost = |(_, fate): &(&MessageId, &Fate)| {
            fate.ended == Some(true) && fate.got.is_empty() && !fate.excused
        };
        match self.fates.iter().find(lost) {
            Some((id, _)) => {
                Err(broken("messages", format!("completed message was not received: {id:?}")))
            }
            None => Ok(()),
        }
    }
}
