//! The claims on one address and their order.
//!
//! The claim with the newest epoch (the time of day at which the address appeared at the place, in
//! ns) is followed, with two exceptions: a claim of an unreachable place loses against any claim of
//! a reachable one; among claims of reachable places, a claim with an epoch more than
//! `EPOCH_AHEAD_NS` (1 day) in the future at its arrival loses against any other, because one of
//! the clocks is wrong. If all places are unreachable, the same order holds among them. Claims that
//! lose are kept. If a guest moved to a host with a slow clock, its new claim arrives before the
//! old place withdraws the old one, and the claim that loses now is the correct one a moment later.
//!
//! An address has at most [`CLAIMS_MAX`] (8) claims, one per place; a ninth claim drops the worst
//! claim of an unreachable place, else the worst claim of a peer (which may be the new one), and
//! the directory requests the claims again later. A claim of the same place replaces its claim if
//! it ranks better, and is ignored otherwise. A place is this host (all its own ports) or a link.
//!
//! The directory (`crate::table`) owns the lists, decides whether an epoch lies in the future, and
//! passes the reachability of places in: this module reads no clock, does not know which places are
//! reachable, and verifies no claim. It runs in the shard of links, when a tunnel reports a claim
//! or a withdrawal, when an own port appears or leaves, and when a link becomes reachable or
//! unreachable; never for a frame, which `ethernet` sends by a table that the changes update.

use std::cmp::Reverse;

use crate::Place;
use crate::limits::CLAIMS_MAX;

/// Epoch and place of the followed claim.
pub(crate) type ClaimOwner = (u64, Place);

/// One claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// Time of day at which the address appeared at the place, in ns.
    epoch: u64,
    place: Place,
    /// Whether the epoch was far in the future when the claim arrived.
    ahead: bool,
}

impl Claim {
    /// Returns the sort key: the best claim has the least.
    const fn rank(&self) -> (bool, Reverse<u64>) {
        (self.ahead, Reverse(self.epoch))
    }
}

/// The claims on one address, best first.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<Claim>);

impl Claims {
    /// Returns the claim to follow; `None` without claims.
    pub fn best(&self, unreachable: impl Fn(Place) -> bool) -> Option<ClaimOwner> {
        let reachable = self.0.iter().find(|claim| !unreachable(claim.place));
        reachable.or(self.0.first()).map(|claim| (claim.epoch, claim.place))
    }

    /// Returns the newest epoch that is not far in the future, or 0.
    pub fn newest(&self) -> u64 {
        self.0.first().filter(|claim| !claim.ahead).map_or(0, |claim| claim.epoch)
    }

    /// Returns the epoch of the claim of one place.
    pub fn epoch_of(&self, place: Place) -> Option<u64> {
        self.0.iter().find(|claim| claim.place == place).map(|claim| claim.epoch)
    }

    /// Adds a claim; one of the same place is replaced if the new one ranks better. If there are
    /// more than [`CLAIMS_MAX`] (8), drops the worst claim of an unreachable place, else the worst
    /// claim of a peer, and returns true. The claim of an own port is never dropped.
    pub fn put(
        &mut self,
        epoch: u64,
        place: Place,
        ahead: bool,
        unreachable: impl Fn(Place) -> bool,
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
        let lost = from_worst.find(|(_, claim)| unreachable(claim.place));
        let worst = self.0.iter().rposition(|claim| claim.place != Place::Here);
        if let Some(least) = lost.map(|(at, _)| at).or(worst) {
            self.0.remove(least);
        }
        true
    }

    /// Removes the claim of a place. Returns whether there was one.
    pub fn remove(&mut self, place: Place) -> bool {
        let before = self.0.len();
        self.0.retain(|claim| claim.place != place);
        self.0.len() != before
    }

    /// Returns whether there is no claim.
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
    fn claims_follow_the_newest_of_a_reachable_place() {
        let mut claims = Claims::default();
        put(&mut claims, 5, A);
        put(&mut claims, 4, B);
        put(&mut claims, 3, Place::Here);
        assert_eq!(claims.best(|_| false), Some((5, A)));
        assert_eq!(claims.best(|place| place == A), Some((4, B)));
        assert_eq!(claims.best(|_| true), Some((5, A)), "all are unreachable");
        put(&mut claims, 6, B);
        assert_eq!((claims.best(|_| false), claims.newest()), (Some((6, B)), 6));
        assert!(claims.remove(B) && !claims.remove(B) && claims.remove(A));
        assert_eq!(claims.best(|_| false), Some((3, Place::Here)));
        assert!(claims.remove(Place::Here) && claims.is_empty());
    }

    #[test]
    fn claims_from_the_future_are_followed_only_alone() {
        let mut claims = Claims::default();
        claims.put(900, A, true, |_| false);
        assert_eq!((claims.best(|_| false), claims.newest()), (Some((900, A)), 0));
        put(&mut claims, 4, B);
        assert_eq!((claims.best(|_| false), claims.newest()), (Some((4, B)), 4));
        assert_eq!(claims.best(|place| place == B), Some((900, A)), "B is unreachable");
        claims.remove(B);
        assert_eq!(claims.best(|_| false), Some((900, A)), "it was kept");
        put(&mut claims, 4, B);
        put(&mut claims, 900, A);
        assert_eq!(claims.best(|_| false), Some((900, A)), "the future has come");
    }

    #[test]
    fn claims_are_bounded_and_the_local_one_stays() {
        let mut claims = Claims::default();
        put(&mut claims, 1, Place::Here);
        for peer in 0..100 {
            let more = put(&mut claims, 2 + u64::from(peer), Place::Link(peer));
            assert_eq!(more, claims.0.len() == CLAIMS_MAX && peer as usize >= CLAIMS_MAX - 1);
        }
        assert_eq!(claims.epoch_of(Place::Here), Some(1));
        assert_eq!(claims.epoch_of(Place::Link(99)), Some(101));
    }

    #[test]
    fn claims_of_unreachable_places_are_dropped_first() {
        let mut claims = Claims::default();
        for peer in 0..CLAIMS_MAX as u32 {
            put(&mut claims, 10 + u64::from(peer), Place::Link(peer));
        }
        let newest = Place::Link(CLAIMS_MAX as u32 - 1);
        assert!(claims.put(9, Place::Here, false, |place| place == newest));
        assert_eq!((claims.epoch_of(newest), claims.epoch_of(Place::Link(0))), (None, Some(10)));
    }
}
