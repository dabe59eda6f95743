//! Flood sequence numbers: copies of flooded frames, detected by the number that tunnels carry.
//!
//! A number identifies one flooded frame. The first daemon that floods the frame to links draws it
//! (`assign_flood_number` in `crate::forward`); `crate::link_rx` checks it at each later daemon. A
//! daemon draws another for a frame that arrived by a link without numbers. The table stores a
//! fingerprint of number and content, so a peer that reuses the number of another frame cannot
//! suppress that frame. A fingerprint is recorded only for an accepted frame. Numbers drawn here
//! need no table: a keyed hash proves them.
//!
//! Each ingress has its own window of the last [`FLOODS_PER_PLACE`] (1,024) recorded frames, so a
//! flood by one ingress displaces no entry of another. A copy that arrives after its fingerprint
//! was displaced passes, and is bounded by its hop count only. The module forwards and drops
//! nothing, gives no order to frames, and does not see frames of links that carry no numbers
//! (`crate::duplicates` does). All of it runs in the dispatcher's thread of the group.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::limits::{FLOOD_BYTES, FLOODS_PER_PLACE};
use crate::route::SwitchIndex;

/// The flood numbers of one group.
#[derive(Debug, Default)]
pub(crate) struct FloodSequences {
    /// Random for each process, so that peers cannot forge a number drawn here.
    key: RandomState,
    /// Count of drawn numbers; wraps.
    drawn: u32,
    /// First copies, by fingerprint.
    seen: HashMap<u64, FirstCopy>,
    /// Recorded fingerprints of each ingress, oldest first.
    windows: HashMap<SwitchIndex, VecDeque<u64>>,
}

/// The first copy of a flooded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FirstCopy {
    /// Switch index of the ingress of the first copy.
    place: SwitchIndex,
    /// Whether a copy has left by every link.
    everywhere: bool,
}

/// The state of a flooded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyState {
    /// No copy has been accepted.
    New,
    /// The first copy arrived by a link that is not for transit, so only transit links got it. This
    /// copy may go to the other links, except the link at this switch index.
    Partial(SwitchIndex),
    /// A copy has left by every link.
    Everywhere,
}

impl FloodSequences {
    /// Draws a number for a flooded frame.
    pub fn draw_number(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        self.number(self.drawn)
    }

    /// Returns the flood number of the `drawn`-th draw: the count in the upper half, its keyed hash
    /// in the lower half.
    fn number(&self, drawn: u32) -> u64 {
        let proof = self.key.hash_one(drawn) >> 32;
        u64::from(drawn) << 32 | proof
    }

    /// Returns whether the number was drawn here: its frame has gone around a loop.
    fn is_own(&self, number: u64) -> bool {
        u32::try_from(number >> 32).is_ok_and(|drawn| self.number(drawn) == number)
    }

    /// Returns the fingerprint of a frame whose pending offload is `offload`.
    fn print(&self, number: u64, offload: &[u8], frame: &[u8]) -> u64 {
        let first = frame.get(..FLOOD_BYTES).unwrap_or(frame);
        self.key.hash_one((number, offload, frame.len(), first))
    }

    /// Returns the fingerprint of a frame and its state. `transit` is set if this copy arrived by a
    /// transit link.
    pub fn check(
        &self,
        number: u64,
        offload: &[u8],
        frame: &[u8],
        transit: bool,
    ) -> (u64, CopyState) {
        if self.is_own(number) {
            return (0, CopyState::Everywhere);
        }
        let print = self.print(number, offload, frame);
        (print, self.state_of(print, transit))
    }

    /// Returns the state of the frame with fingerprint `print`.
    fn state_of(&self, print: u64, transit: bool) -> CopyState {
        match self.seen.get(&print) {
            None => CopyState::New,
            Some(FirstCopy { place, everywhere: false }) if transit => CopyState::Partial(*place),
            Some(_) => CopyState::Everywhere,
        }
    }

    /// Records an accepted frame.
    pub fn record(&mut self, print: u64, place: SwitchIndex, transit: bool) {
        self.seen.insert(print, FirstCopy { place, everywhere: transit });
        let window = self.windows.entry(place).or_default();
        window.push_back(print);
        if window.len() > FLOODS_PER_PLACE
            && let Some(oldest) = window.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }

    /// Marks a frame as sent by every link.
    pub fn mark_everywhere(&mut self, print: u64) {
        if let Some(first) = self.seen.get_mut(&print) {
            first.everywhere = true;
        }
    }

    /// Forgets the frames of an ingress that was removed.
    pub fn forget(&mut self, place: SwitchIndex) {
        for print in self.windows.remove(&place).into_iter().flatten() {
            self.seen.remove(&print);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_numbers_drawn_here_are_recognised() {
        let mut flood_sequences = FloodSequences::default();
        let drawn: Vec<u64> = (0..100_000).map(|_| flood_sequences.draw_number()).collect();
        assert!(drawn.iter().all(|number| flood_sequences.is_own(*number)));
        assert!(drawn.iter().all(|number| !flood_sequences.is_own(number ^ 1)));
        let other = FloodSequences::default();
        assert!(drawn.iter().all(|number| !other.is_own(*number)));
    }

    #[test]
    fn flood_fingerprint_covers_the_whole_frame() {
        let flood_sequences = FloodSequences::default();
        let print = flood_sequences.print(7, &[0], b"frame");
        assert_eq!(print, flood_sequences.print(7, &[0], b"frame"));
        for other in [
            flood_sequences.print(8, &[0], b"frame"),
            flood_sequences.print(7, &[1], b"frame"),
            flood_sequences.print(7, &[0], b"frane"),
            flood_sequences.print(7, &[0], b"frame\0"),
            FloodSequences::default().print(7, &[0], b"frame"),
        ] {
            assert_ne!(other, print);
        }
    }

    #[test]
    fn flood_copy_by_transit_reaches_the_remaining_links() {
        let mut flood_sequences = FloodSequences::default();
        flood_sequences.record(1, 5, false);
        flood_sequences.record(2, 5, true);
        assert_eq!(
            flood_sequences.state_of(1, false),
            CopyState::Everywhere,
            "no other link is left"
        );
        assert_eq!(flood_sequences.state_of(1, true), CopyState::Partial(5));
        assert_eq!(flood_sequences.state_of(2, true), CopyState::Everywhere);
        flood_sequences.mark_everywhere(1);
        assert_eq!(flood_sequences.state_of(1, true), CopyState::Everywhere);
        flood_sequences.forget(5);
        assert_eq!(
            (flood_sequences.state_of(1, true), flood_sequences.seen.len()),
            (CopyState::New, 0)
        );
    }

    #[test]
    fn hostile_flood_displaces_only_its_own_ingress() {
        let mut flood_sequences = FloodSequences::default();
        flood_sequences.record(u64::MAX, 1, true);
        for print in 0..1_000_000 {
            flood_sequences.record(print, 2, true);
        }
        assert_eq!(flood_sequences.state_of(u64::MAX, true), CopyState::Everywhere);
        assert_eq!(flood_sequences.state_of(0, true), CopyState::New);
        assert_eq!(flood_sequences.seen.len(), FLOODS_PER_PLACE + 1);
    }
}
