//! The claims on one address: who says that it is behind him, and who is believed.
//!
//! The newest claim wins, but not one of a peer that is silent while another speaks. Those that lose
//! are kept, because clocks differ: where a guest moved to a host whose clock is behind, and its
//! claim is there before the older place takes its own back, the claim that loses now is the one
//! that is true a moment later.

use crate::directory::Place;
use crate::limits::CLAIMS_MAX;

/// Says of when a claim is, and where the address is by it.
pub(crate) type Said = (u64, Place);

/// The claims on one address, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<Said>);

impl Claims {
    /// The claim that is believed.
    pub fn best(&self, silent: impl Fn(Place) -> bool) -> Option<Said> {
        let speaks = self.0.iter().find(|(_, place)| !silent(*place));
        speaks.or(self.0.first()).copied()
    }

    /// The newest epoch of all.
    pub fn newest(&self) -> u64 {
        self.0.first().map_or(0, |(epoch, _)| *epoch)
    }

    /// The claim of one place.
    pub fn of(&self, place: Place) -> Option<u64> {
        self.0.iter().find(|(_, at)| *at == place).map(|(epoch, _)| *epoch)
    }

    /// Notes a claim, in the place of an older one from there. Of too many the oldest is forgotten,
    /// but not that of our own port.
    pub fn put(&mut self, epoch: u64, place: Place) {
        self.remove(place);
        let at = self.0.iter().position(|(other, _)| *other < epoch).unwrap_or(self.0.len());
        self.0.insert(at, (epoch, place));
        if self.0.len() > CLAIMS_MAX
            && let Some(oldest) = self.0.iter().rposition(|(_, at)| *at != Place::Here)
        {
            self.0.remove(oldest);
        }
    }

    /// Forgets the claim of a place; says whether there was one.
    pub fn remove(&mut self, place: Place) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, at)| *at != place);
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

    const A: Place = Place::Tunnel(1);
    const B: Place = Place::Tunnel(2);

    #[test]
    fn the_newest_is_believed_unless_its_peer_is_silent() {
        let mut claims = Claims::default();
        claims.put(5, A);
        claims.put(4, B);
        claims.put(3, Place::Here);
        assert_eq!(claims.best(|_| false), Some((5, A)));
        assert_eq!(claims.best(|place| place == A), Some((4, B)));
        assert_eq!(claims.best(|_| true), Some((5, A)), "silent all of them");
        claims.put(6, B);
        assert_eq!((claims.best(|_| false), claims.newest()), (Some((6, B)), 6));
        assert!(claims.remove(B) && !claims.remove(B) && claims.remove(A));
        assert_eq!(claims.best(|_| false), Some((3, Place::Here)));
        assert!(claims.remove(Place::Here) && claims.is_empty());
    }

    #[test]
    fn hostile_claims_are_bounded_and_ours_stays() {
        let mut claims = Claims::default();
        claims.put(1, Place::Here);
        for peer in 0..100 {
            claims.put(2 + u64::from(peer), Place::Tunnel(peer));
            assert!(claims.0.len() <= CLAIMS_MAX);
        }
        assert_eq!(claims.of(Place::Here), Some(1));
        assert_eq!(claims.of(Place::Tunnel(99)), Some(101));
    }
}
