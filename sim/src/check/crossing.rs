//! Frames between hosts: each frame carries its true sender, is unchanged, arrives at most once in
//! each life of a guest, in its group and at its destination; in calm every frame to a running
//! guest arrives, in order. Resource use stays within its limits.
//!
//! The tape passes each event of a world of linked hosts ([`crate::lan`]) to the checker, in the
//! thread of the world. *Calm* lasts from [`Crossing::Calm`], which the world records when the
//! network has been healthy for long enough, to [`Crossing::Arrived`]; at other times frames may be
//! lost. The first event that breaks a rule is the violation. Frames of worlds without links are
//! those of [`super::frames`] and [`super::tally`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::frames::key;
use super::{Check, Violation, broken};
use crate::bytes;
use crate::event::{Crossing, Event, Place, To};

/// The segments of a frame that one life of a guest received, as start and end offsets.
type Pieces = BTreeMap<u32, u32>;

/// The checker.
#[derive(Debug, Default)]
pub struct Crossings {
    sent: BTreeMap<(Place, u16), (To, u32)>,
    /// The running guests.
    here: BTreeSet<Place>,
    /// The segments that each running guest received, by sender and frame number.
    got: BTreeMap<(Place, Place, u16), Pieces>,
    calm: bool,
    /// Frames sent in calm that have not arrived, by sender and receiver, each with the offset of
    /// its next segment.
    owed: BTreeMap<(Place, Place), VecDeque<(u16, u32)>>,
}

fn fail(what: String) -> Result<(), Violation> {
    Err(broken("crossing", what))
}

impl Crossings {
    fn went(&mut self, at: Place) {
        self.here.remove(&at);
        self.got.retain(|(to, ..), _| *to != at);
        self.owed.retain(|(_, to), _| *to != at);
    }

    fn sent(&mut self, from: Place, to: To, serial: u16, len: u32) {
        self.sent.insert((from, serial), (to, len));
        if !self.calm {
            return;
        }
        let meant = |at: &&Place| {
            at.stage == from.stage && **at != from && (to == To::All || to == To::One(at.guest))
        };
        for at in self.here.iter().filter(meant) {
            self.owed.entry((from, *at)).or_default().push_back((serial, 0));
        }
    }

    /// Checks a received segment: if its frame was sent in calm, all previous frames and segments
    /// must have arrived.
    fn due(&mut self, event: &Event, whole: u32) -> Result<(), Violation> {
        let Event::Crossing(Crossing::Got { at, from, serial, offset, len, .. }) = *event else {
            return Ok(());
        };
        let Some(owed) = self.owed.get_mut(&(from, at)) else { return Ok(()) };
        if !owed.iter().any(|(due, _)| *due == serial) {
            return Ok(());
        }
        let Some((first, far)) = owed.front_mut() else { return Ok(()) };
        if (*first, *far) != (serial, offset) {
            return fail(format!(
                "out of order in calm, expected frame {first} from offset {far}: {event:?}"
            ));
        }
        *far = far.saturating_add(len);
        if *far >= whole {
            owed.pop_front();
        }
        Ok(())
    }

    fn got(&mut self, event: &Event) -> Result<(), Violation> {
        let Event::Crossing(Crossing::Got { at, from, serial, offset, len, sum, sound }) = *event
        else {
            return Ok(());
        };
        if at.stage != from.stage {
            return fail(format!("frame from another group: {event:?}"));
        }
        let Some(&(to, whole)) = self.sent.get(&(from, serial)) else {
            return fail(format!("frame was never sent: {event:?}"));
        };
        if at == from {
            return fail(format!("frame returned to its sender: {event:?}"));
        }
        if !(to == To::All || to == To::One(at.guest)) {
            return fail(format!("frame for {to:?} arrived at another guest: {event:?}"));
        }
        let end = offset.saturating_add(len);
        if end > whole || (len == 0 && whole > 0) {
            return fail(format!("segment exceeds its frame of {whole} bytes: {event:?}"));
        }
        let right = bytes::take(key(from, serial), u64::from(offset), len as usize);
        if bytes::sum(&right) != sum {
            return fail(format!("payload differs from the sent payload: {event:?}"));
        }
        if !sound {
            return fail(format!("header uses features that were not negotiated: {event:?}"));
        }
        let pieces = self.got.entry((at, from, serial)).or_default();
        let overlaps = |(start, stop): (&u32, &u32)| *start < end.max(offset + 1) && offset < *stop;
        if pieces.iter().any(overlaps) || pieces.contains_key(&offset) {
            return fail(format!("segment arrived twice: {event:?}"));
        }
        pieces.insert(offset, end);
        self.due(event, whole)
    }
}

impl Check for Crossings {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let Event::Crossing(crossing) = event else { return Ok(()) };
        match *crossing {
            Crossing::Came { at, .. } => {
                self.went(at);
                self.here.insert(at);
            }
            Crossing::Went(at) => self.went(at),
            Crossing::Sent { from, to, serial, len } => self.sent(from, to, serial, len),
            Crossing::Got { .. } => return self.got(event),
            Crossing::Calm => self.calm = true,
            Crossing::Arrived => {
                self.calm = false;
                let late = std::mem::take(&mut self.owed);
                if let Some(((from, at), owed)) = late.iter().find(|(_, owed)| !owed.is_empty()) {
                    return fail(format!("sent in calm by {from:?}, never at {at:?}: {owed:?}"));
                }
            }
            Crossing::Holds { host, what, count, most } => {
                if count > most {
                    return fail(format!("host {host}: {count} {what} exceed the limit {most}"));
                }
            }
        }
        Ok(())
    }
}
