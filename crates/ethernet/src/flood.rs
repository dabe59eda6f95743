//! Frames for many that have come already, by the numbers of links that carry such.
//!
//! Numbers are drawn so that nobody guesses one that was not drawn yet: whoever could would keep
//! others from being heard. Those seen last are remembered, in places that a number itself says, so
//! that a flood of them costs a bounded look each and forgets only what it hits. A copy that comes
//! after its number was forgotten is bounded by its hops.

use std::hash::{BuildHasher, RandomState};

use crate::limits::{FLOOD_PLACES, FLOOD_WAYS};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Floods {
    /// Keyed anew in every process.
    key: RandomState,
    drawn: u64,
    /// No room until the first frame.
    seen: Box<[[u64; FLOOD_WAYS]]>,
}

impl Floods {
    /// A number for a frame that is sent to many, as good as no other has.
    pub fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        let number = self.key.hash_one(self.drawn);
        // It may come back to us.
        self.is_first(number);
        number
    }

    /// Whether a number was not seen yet; from now on it was.
    pub fn is_first(&mut self, number: u64) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![[0; FLOOD_WAYS]; FLOOD_PLACES].into();
        }
        let place = usize::try_from(number).unwrap_or(0) & (FLOOD_PLACES - 1);
        let Some(seen) = self.seen.get_mut(place) else { return true };
        if seen.contains(&number) {
            return false;
        }
        // The oldest of those that share the place gives way.
        seen.rotate_right(1);
        if let Some(newest) = seen.first_mut() {
            *newest = number;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_first_once() {
        let mut floods = Floods::default();
        let drawn: Vec<u64> = (0..1000).map(|_| floods.draw()).collect();
        assert!(drawn.iter().all(|number| !floods.is_first(*number)), "our own");
        assert!(floods.is_first(77) && !floods.is_first(77));
        let mut other = Floods::default();
        assert!(drawn.iter().all(|number| other.is_first(*number)));
        assert!(drawn.iter().all(|number| !other.is_first(*number)));
    }

    #[test]
    fn hostile_numbers_push_out_those_of_their_place_only() {
        let mut floods = Floods::default();
        assert!(floods.is_first(5) && floods.is_first(6));
        for n in 1..1_000_000 {
            floods.is_first(5 + n * FLOOD_PLACES as u64);
        }
        assert!(!floods.is_first(6) && floods.is_first(5));
        assert_eq!(floods.seen.len(), FLOOD_PLACES);
    }
}
