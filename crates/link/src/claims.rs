//! The claims on one address: who says that it is behind him, and who is believed.
//!
//! The newest claim wins, but not one of a peer that is silent while another speaks, nor one that is
//! from far in the future while another is not: that clock is wrong, or ours. Those that lose are
//! kept, because clocks differ: where a guest moved to a host whose clock is behind, and its claim is
//! there before the older place takes its own back, the claim that loses now is the one that is true
//! a moment later.

use std::cmp::Reverse;

use crate::directory::Place;
use crate::limits::CLAIMS_MAX;

/// Says of when a claim is, and where the address is by it.
pub(crate) type Said = (u64, Place);

/// One claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    epoch: u64,
    place: Place,
    /// It was from far in the future when it was heard.
    ahead: bool,
}

impl Claim {
    /// The best has the least.
    const fn rank(&self) -> (bool, Reverse<u64>) {
        (self.ahead, Reverse(self.epoch))
    }
}

/// The claims on one address, the best first.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<Claim>);

impl Claims {
    /// The claim that is believed.
    pub fn best(&self, silent: impl Fn(Place) -> bool) -> Option<Said> {
        let speaks = self.0.iter().find(|claim| !silent(claim.place));
        speaks.or(self.0.first()).map(|claim| (claim.epoch, claim.place))
    }

    /// The newest epoch of all that are not from far in the future.
    pub fn newest(&self) -> u64 {
        self.0.first().filter(|claim| !claim.ahead).map_or(0, |claim| claim.epoch)
    }

    /// The epoch of the claim of one place.
    pub fn of(&self, place: Place) -> Option<u64> {
        self.0.iter().find(|claim| claim.place == place).map(|claim| claim.epoch)
    }

    /// Notes a claim, in the place of an older one from there. Of too many, one of a silent place is
    /// forgotten, else the worst; never that of our own port. Says whether that was so.
    pub fn put(
        &mut self,
        epoch: u64,
        place: Place,
        ahead: bool,
        silent: impl Fn(Place) -> bool,
    ) -> bool {
        let claim = Claim { epoch, place, ahead };
        if self.0.iter().any(|old| old.place == place && old.rank() <= claim.rank()) {
            return false;
        }
        self.remove(place);
        let at = self.0.iter().position(|other| other.rank() > claim.rank());
        self.0.insert(at.unwrap_or(self.0.len()), claim);
        if self.0.len() <= CLAIMS_MAX {
            return false;
        }
        let mut from_worst = self.0.iter().enumerate().rev();
        let silent = from_worst.find(|(_, claim)| silent(claim.place));
        let worst = self.0.iter().rposition(|claim| claim.place != Place::Here);
        if let Some(least) = silent.map(|(at, _)| at).or(worst) {
            self.0.remove(least);
        }
        true
    }

    /// Forgets the claim of a place; says whether there was one.
    pub fn remove(&mut self, place: Place) -> bool {
        let before = self.0.len();
        self.0.retain(|claim| claim.place != place);
        self.0.len() != before
    }

    /// Whether there is none left.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Place = Place::Link(1);
    const B: Place = Place::Link(2);

    fn put(claims: &mut Claims, epoch: u64, place: Place) -> bool {
        claims.put(epoch, place, false, |_| false)
    }

    #[test]
    fn the_newest_is_believed_unless_its_peer_is_silent() {
        let mut claims = Claims::default();
        put(&mut claims, 5, A);
        put(&mut claims, 4, B);
        put(&mut claims, 3, Place::Here);
        assert_eq!(claims.best(|_| false), Some((5, A)));
        assert_eq!(claims.best(|place| place == A), Some((4, B)));
        assert_eq!(claims.best(|_| true), Some((5, A)), "silent all of them");
        put(&mut claims, 6, B);
        assert_eq!((claims.best(|_| false), claims.newest()), (Some((6, B)), 6));
        assert!(claims.remove(B) && !claims.remove(B) && claims.remove(A));
        assert_eq!(claims.best(|_| false), Some((3, Place::Here)));
        assert!(claims.remove(Place::Here) && claims.is_empty());
    }

    #[test]
    fn one_from_the_future_is_believed_where_there_is_no_other() {
        let mut claims = Claims::default();
        claims.put(900, A, true, |_| false);
        assert_eq!((claims.best(|_| false), claims.newest()), (Some((900, A)), 0));
        put(&mut claims, 4, B);
        assert_eq!((claims.best(|_| false), claims.newest()), (Some((4, B)), 4));
        assert_eq!(claims.best(|place| place == B), Some((900, A)), "B is silent");
        claims.remove(B);
        assert_eq!(claims.best(|_| false), Some((900, A)), "it was kept");
        put(&mut claims, 4, B);
        put(&mut claims, 900, A);
        assert_eq!(claims.best(|_| false), Some((900, A)), "the future has come");
    }

    #[test]
    fn hostile_claims_are_bounded_and_ours_stays() {
        let mut claims = Claims::default();
        put(&mut claims, 1, Place::Here);
        for peer in 0..100 {
            let more = put(&mut claims, 2 + u64::from(peer), Place::Link(peer));
            assert_eq!(more, claims.0.len() == CLAIMS_MAX && peer as usize >= CLAIMS_MAX - 1);
        }
        assert_eq!(claims.of(Place::Here), Some(1));
        assert_eq!(claims.of(Place::Link(99)), Some(101));
    }

    #[test]
    fn of_too_many_a_silent_one_gives_way_first() {
        let mut claims = Claims::default();
        for peer in 0..CLAIMS_MAX as u32 {
            put(&mut claims, 10 + u64::from(peer), Place::Link(peer));
        }
        let newest = Place::Link(CLAIMS_MAX as u32 - 1);
        assert!(claims.put(9, Place::Here, false, |place| place == newest));
        assert_eq!((claims.of(newest), claims.of(Place::Link(0))), (None, Some(10)));
    }
}
