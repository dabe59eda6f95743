//! Every frame that the backend took was delivered or counted as dropped.
//!
//! The tape passes events to the checker, in the thread of the world; at [`Event::Balance`] the
//! checker compares, for each stage of virtio-net guests, the frames that guests sent with the port
//! counters at the end (delivered, dropped). A broadcast counts once for each other port. Stages in
//! which ports were deleted have no balance, because their counters are gone; nor has a stage with
//! segmented frames in which a guest left received frames in its ring. A difference is the
//! violation.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Violation, broken};
use crate::event::{Event, Place, To};

/// The checker.
#[derive(Debug, Default)]
pub struct Tallies {
    /// For each sender: the frames made available to the backend; `taken` counts those that it
    /// took.
    sent: BTreeMap<Place, Vec<To>>,
    len: BTreeMap<(Place, u16), u32>,
    /// For each frame at each receiver: segments and bytes received.
    got: BTreeMap<(Place, Place, u16), (u64, u32)>,
    tally: BTreeMap<Place, (u64, u64)>,
    /// Stages in which frames may be segmented.
    cuts: BTreeSet<u8>,
}

impl Tallies {
    fn owed(&self, stage: u8, ports: u8) -> u64 {
        let all = self.sent.iter().filter(|(at, _)| at.stage == stage).flat_map(|(_, to)| to);
        all.map(|to| if *to == To::All { u64::from(ports).saturating_sub(1) } else { 1 }).sum()
    }

    /// Converts the port's count of frames and segments to a number of frames.
    ///
    /// Returns `None` if the guest left frames in its ring, because some of them may be segments.
    fn delivered(&self, at: Place, given: u64) -> Result<Option<u64>, Violation> {
        let (mut pieces, mut whole) = (0_u64, 0_u64);
        for ((_, from, serial), (count, bytes)) in
            self.got.range((at, FIRST, 0)..).take_while(|((to, ..), _)| *to == at)
        {
            pieces += count;
            whole += u64::from(self.len.get(&(*from, *serial)) == Some(bytes));
        }
        let unseen = given.checked_sub(pieces);
        let unseen = unseen.ok_or_else(|| {
            broken("tally", format!("{at:?} received {pieces} frames, the counter is {given}"))
        })?;
        Ok((unseen == 0 || !self.cuts.contains(&at.stage)).then_some(whole + unseen))
    }
}

const FIRST: Place = Place { stage: 0, guest: 0 };

impl Check for Tallies {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::FrameSent { from, to, serial, len, large } => {
                if large {
                    self.cuts.insert(from.stage);
                }
                self.sent.entry(from).or_default().push(to);
                self.len.insert((from, serial), len);
            }
            Event::FramesTaken { at, count } => {
                let sent = self.sent.entry(at).or_default();
                if sent.len() < count as usize {
                    let what = format!("{at:?} sent {} frames, {count} were taken", sent.len());
                    return Err(broken("tally", what));
                }
                sent.truncate(count as usize);
            }
            Event::FrameGot { at, from, serial, len, .. } => {
                let (pieces, bytes) = self.got.entry((at, from, serial)).or_default();
                *pieces += 1;
                *bytes = bytes.saturating_add(len);
            }
            Event::Tally { at, given, dropped } => {
                self.tally.insert(at, (given, dropped));
            }
            Event::Balance { stage, ports } => {
                let (mut delivered, mut dropped) = (0, 0);
                for (at, tally) in self.tally.iter().filter(|(at, _)| at.stage == stage) {
                    let Some(count) = self.delivered(*at, tally.0)? else { return Ok(()) };
                    delivered += count;
                    dropped += tally.1;
                }
                let owed = self.owed(stage, ports);
                if owed != delivered + dropped {
                    return Err(broken(
                        "tally",
                        format!("{owed} frames taken, {delivered} delivered, {dropped} dropped"),
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
