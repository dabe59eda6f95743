//! Frames arrive in the order of their sender, as they were, once, and only where they should.

use std::collections::BTreeMap;

use super::{Check, Violation, broken};
use crate::bytes;
use crate::event::{Event, Place, To};

/// What the bytes of a frame are made of.
pub fn key(from: Place, serial: u16) -> u64 {
    let parts = [from.stage, from.guest, 0xff, 0];
    crate::rng::mix(u64::from(u32::from_le_bytes(parts)) << 16 | u64::from(serial))
}

/// See the module.
#[derive(Debug, Default)]
pub struct Frames {
    sent: BTreeMap<(Place, u16), (To, u32)>,
    /// For each sender and receiver: the last frame, and where its next piece would begin.
    last: BTreeMap<(Place, Place), (u16, u32)>,
}

impl Check for Frames {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let fail = |what: String| Err(broken("frames", what));
        match *event {
            Event::FrameSent { from, to, serial, len, .. } => {
                self.sent.insert((from, serial), (to, len));
                Ok(())
            }
            Event::FrameGot { at, from, serial, offset, len, sum, sound } => {
                let name = format!("{event:?}");
                if at.stage != from.stage {
                    return fail(format!("a frame crossed groups: {name}"));
                }
                let Some(&(to, whole)) = self.sent.get(&(from, serial)) else {
                    return fail(format!("a frame that nobody sent: {name}"));
                };
                if at == from || !(to == To::All || to == To::One(at.guest)) {
                    return fail(format!("a frame for {to:?} came to another: {name}"));
                }
                if offset.saturating_add(len) > whole || (len == 0 && whole > 0) {
                    return fail(format!("a piece of a frame of {whole} bytes: {name}"));
                }
                let right = bytes::take(key(from, serial), u64::from(offset), len as usize);
                if bytes::sum(&right) != sum {
                    return fail(format!("other bytes than were sent: {name}"));
                }
                if !sound {
                    return fail(format!("headers that were not negotiated: {name}"));
                }
                let next = (serial, offset.saturating_add(len));
                match self.last.insert((from, at), next) {
                    Some((before, _)) if serial < before => {
                        fail(format!("after frame {before} of the same sender: {name}"))
                    }
                    Some((before, end)) if serial == before && offset != end => {
                        fail(format!("the frame went to {end}, twice or with a gap: {name}"))
                    }
                    Some((before, end)) if serial == before && end >= whole => {
                        fail(format!("twice: {name}"))
                    }
                    before if offset > 0 && before.is_none_or(|(last, _)| last != serial) => {
                        fail(format!("the frame's beginning is missing: {name}"))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
