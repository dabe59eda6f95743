//! Frames arrive in the order of their sender, unchanged, once, and only at their destination.
//!
//! The tape passes each event about frames of virtio-net guests in one stage to the checker, in the
//! thread of the world. Loss is not checked here: [`super::tally`] compares the numbers. The
//! segments of a frame that the sender allowed to be cut must follow each other without a gap. The
//! first event that breaks a rule is the violation. Frame numbers rise for each sender and do not
//! wrap in a world. Gaps are permitted: a lost frame breaks no rule here.

use std::collections::BTreeMap;

use super::{Check, Violation, broken};
use crate::bytes;
use crate::event::{Event, Place, To};

/// Returns the key from which the payload of a frame is derived.
pub fn key(from: Place, serial: u16) -> u64 {
    let parts = [from.stage, from.guest, 0xff, 0];
    crate::rng::mix(u64::from(u32::from_le_bytes(parts)) << 16 | u64::from(serial))
}

/// The checker.
#[derive(Debug, Default)]
pub struct Frames {
    sent: BTreeMap<(Place, u16), (To, u32)>,
    /// For each sender and receiver: the last frame, and the offset of its next segment.
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
                    return fail(format!("frame from another group: {name}"));
                }
                let Some(&(to, whole)) = self.sent.get(&(from, serial)) else {
                    return fail(format!("frame was never sent: {name}"));
                };
                if at == from || !(to == To::All || to == To::One(at.guest)) {
                    return fail(format!("frame for {to:?} arrived at another guest: {name}"));
                }
                if offset.saturating_add(len) > whole || (len == 0 && whole > 0) {
                    return fail(format!("segment exceeds its frame of {whole} bytes: {name}"));
                }
                let right = bytes::take(key(from, serial), u64::from(offset), len as usize);
                if bytes::sum(&right) != sum {
                    return fail(format!("payload differs from the sent payload: {name}"));
                }
                if !sound {
                    return fail(format!("header uses features that were not negotiated: {name}"));
                }
                let next = (serial, offset.saturating_add(len));
                match self.last.insert((from, at), next) {
                    Some((before, _)) if serial < before => fail(format!(
                        "frame arrived after frame {before} of the same sender: {name}"
                    )),
                    Some((before, end)) if serial == before && offset != end => {
                        fail(format!("segment does not start at the expected offset {end}: {name}"))
                    }
                    Some((before, end)) if serial == before && end >= whole => {
                        fail(format!("frame arrived twice: {name}"))
                    }
                    before if offset > 0 && before.is_none_or(|(last, _)| last != serial) => {
                        fail(format!("first segment of the frame is missing: {name}"))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
