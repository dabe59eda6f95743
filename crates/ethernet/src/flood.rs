//! Frames for many that have come already, by the numbers of links that carry such.
//!
//! A number stands for one frame: what is remembered is a print of both, so that a peer who puts
//! the number of another's frame on one of his own keeps nobody from being heard, and it is noted
//! only of a frame that was accepted. Each way in remembers the last frames that came first by it:
//! a flood by one pushes out none of another's. A copy that comes after its print was forgotten is
//! bounded by its hops. Our own numbers need no memory: half of each is made of the other by a
//! secret.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::limits::{FLOOD_BYTES, FLOODS_PER_PLACE};
use crate::route::Place;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Floods {
    /// Keyed anew in every process.
    key: RandomState,
    drawn: u32,
    seen: HashMap<u64, First>,
    /// By which way they came, the oldest first.
    windows: HashMap<Place, VecDeque<u64>>,
}

/// Where the first copy of a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct First {
    place: Place,
    /// Whether a copy has left by every link that there is.
    everywhere: bool,
}

/// What is known of a frame for many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is new.
    Never,
    /// It came by a link that is not for transit, so that only links which are got a copy. This one
    /// may go to the others, but for the place where the first came from.
    Nearby(Place),
    /// It has been everywhere.
    Everywhere,
}

impl Floods {
    /// A number for a frame that is sent to many, as good as no other has.
    pub fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        self.number(self.drawn)
    }

    fn number(&self, drawn: u32) -> u64 {
        let proof = self.key.hash_one(drawn) >> 32;
        u64::from(drawn) << 32 | proof
    }

    /// Whether a number is one of ours, whose frame went in a circle.
    fn is_own(&self, number: u64) -> bool {
        u32::try_from(number >> 32).is_ok_and(|drawn| self.number(drawn) == number)
    }

    /// What a frame is known by; `offload` is what is left to do for it.
    fn print(&self, number: u64, offload: &[u8], frame: &[u8]) -> u64 {
        let first = frame.get(..FLOOD_BYTES).unwrap_or(frame);
        self.key.hash_one((number, offload, frame.len(), first))
    }

    /// What a frame is known by, and whether it has come before, now that it comes by a way that is
    /// for transit or not.
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

    /// A frame that has not come before is accepted.
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

    /// A copy went wherever the first did not.
    pub fn widen(&mut self, print: u64) {
        if let Some(first) = self.seen.get_mut(&print) {
            first.everywhere = true;
        }
    }

    /// A way in is no more.
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
