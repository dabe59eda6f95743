//! Flood sequence numbers: copies of flooded frames, detected by the number that tunnels carry.
//!
//! A number identifies one flooded frame. The table stores a fingerprint of number and content, so
//! a peer that reuses the number of another frame cannot suppress that frame. A fingerprint is
//! recorded only for an accepted frame. Each ingress has its own window of the last recorded
//! frames, so a flood by one ingress displaces no entry of another. A copy that arrives after its
//! fingerprint was displaced is bounded by its hop count. Numbers drawn here need no table: a keyed
//! hash proves them. The module forwards nothing; `link_rx` acts on its answer.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::limits::{FLOOD_BYTES, FLOODS_PER_PLACE};
use crate::route::Place;

/// The flood numbers of one group.
#[derive(Debug, Default)]
pub(crate) struct Floods {
    /// Random for each process, so that peers cannot forge a number drawn here.
    key: RandomState,
    drawn: u32,
    seen: HashMap<u64, First>,
    /// Recorded fingerprints of each ingress, oldest first.
    windows: HashMap<Place, VecDeque<u64>>,
}

/// The first copy of a flooded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct First {
    place: Place,
    /// Whether a copy has left by every link.
    everywhere: bool,
}

/// The state of a flooded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No copy has been accepted.
    Never,
    /// The first copy arrived by a link that is not for transit, so only transit links got it. This
    /// copy may go to the other links, except the one at this switch index.
    Nearby(Place),
    /// A copy has left by every link.
    Everywhere,
}

impl Floods {
    /// Draws a number for a flooded frame.
    pub fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        self.number(self.drawn)
    }

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
    pub fn look(&self, number: u64, offload: &[u8], frame: &[u8], transit: bool) -> (u64, Seen) {
        if self.is_own(number) {
            return (0, Seen::Everywhere);
        }
        let print = self.print(number, offload, frame);
        (print, self.known(print, transit))
    }

    fn known(&self, print: u64, transit: bool) -> Seen {
        match self.seen.get(&print) {
            None => Seen::Never,
            Some(First { place, everywhere: false }) if transit => Seen::Nearby(*place),
            Some(_) => Seen::Everywhere,
        }
    }

    /// Records an accepted frame.
    pub fn note(&mut self, print: u64, place: Place, transit: bool) {
        self.seen.insert(print, First { place, everywhere: transit });
        let window = self.windows.entry(place).or_default();
        window.push_back(print);
        if window.len() > FLOODS_PER_PLACE
            && let Some(oldest) = window.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }

    /// Marks a frame as sent by every link.
    pub fn widen(&mut self, print: u64) {
        if let Some(first) = self.seen.get_mut(&print) {
            first.everywhere = true;
        }
    }

    /// Forgets the frames of an ingress that was removed.
    pub fn forget(&mut self, place: Place) {
        for print in self.windows.remove(&place).into_iter().flatten() {
            self.seen.remove(&print);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_numbers_are_known_for_ever_and_no_others() {
        let mut floods = Floods::default();
        let drawn: Vec<u64> = (0..100_000).map(|_| floods.draw()).collect();
        assert!(drawn.iter().all(|number| floods.is_own(*number)));
        assert!(drawn.iter().all(|number| !floods.is_own(number ^ 1)));
        let other = Floods::default();
        assert!(drawn.iter().all(|number| !other.is_own(*number)));
    }

    #[test]
    fn a_frame_is_known_by_all_of_it() {
        let floods = Floods::default();
        let print = floods.print(7, &[0], b"frame");
        assert_eq!(print, floods.print(7, &[0], b"frame"));
        for other in [
            floods.print(8, &[0], b"frame"),
            floods.print(7, &[1], b"frame"),
            floods.print(7, &[0], b"frane"),
            floods.print(7, &[0], b"frame\0"),
            Floods::default().print(7, &[0], b"frame"),
        ] {
            assert_ne!(other, print);
        }
    }

    #[test]
    fn a_copy_by_transit_goes_where_the_first_could_not() {
        let mut floods = Floods::default();
        floods.note(1, 5, false);
        floods.note(2, 5, true);
        assert_eq!(floods.known(1, false), Seen::Everywhere, "it would go nowhere else");
        assert_eq!(floods.known(1, true), Seen::Nearby(5));
        assert_eq!(floods.known(2, true), Seen::Everywhere);
        floods.widen(1);
        assert_eq!(floods.known(1, true), Seen::Everywhere);
        floods.forget(5);
        assert_eq!((floods.known(1, true), floods.seen.len()), (Seen::Never, 0));
    }

    #[test]
    fn a_hostile_flood_pushes_out_its_own_only() {
        let mut floods = Floods::default();
        floods.note(u64::MAX, 1, true);
        for print in 0..1_000_000 {
            floods.note(print, 2, true);
        }
        assert_eq!(floods.known(u64::MAX, true), Seen::Everywhere);
        assert_eq!(floods.known(0, true), Seen::Never);
        assert_eq!(floods.seen.len(), FLOODS_PER_PLACE + 1);
    }
}
