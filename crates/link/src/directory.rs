//! Which Ethernet address is behind whom, by what the peers say of themselves.
//!
//! Every daemon tells its peers which addresses are at its own ports. A [`Told`] is such a list:
//! what we tell a peer, or what it told us. Heartbeats carry the list's digest; who finds another
//! digest asks for everything. Where several claim an address, the [`Directory`] follows the one
//! with the newest epoch: the time of day at which the address was seen there first, and larger
//! than of any place before. The claims that lose are kept, and the next best is followed when the
//! winner takes its own back, goes, or no longer answers. Epochs that we give are newer than all
//! that we heard. So clocks which differ delay a move, but do not hide it. A claim that found no room
//! is heard again when there is some ([`Directory::wants`]); our own ports always find room.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use crate::claims::{Claims, Said};
use crate::limits::{ADDRESSES_MAX, DIRECTORY_MAX, EPOCH_AHEAD_NS, EPOCH_FOLLOWED_NS};

/// A virtual network and an Ethernet address in it.
pub type Key = (u32, [u8; 6]);

/// Addresses that one side told the other.
#[derive(Debug, Default)]
pub struct Told {
    entries: BTreeMap<Key, Line>,
    digest: u64,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    epoch: u64,
    /// The newest epoch that was said since the last question for everything.
    said: Option<u64>,
}

/// What an entry adds to the digest, so that a sum over all does not depend on their order.
fn sum_of(key: &Key, epoch: u64) -> u64 {
    let (vni, [a, b, c, d, e, f]) = *key;
    let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    let mut mixed = mac.wrapping_add(u64::from(vni) << 48);
    for word in [epoch, epoch.rotate_left(32), mac] {
        // Steele and Vigna's finalizer for 64 bits.
        mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_add(word);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    mixed
}

/// The list is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a peer may have {ADDRESSES_MAX} addresses")]
pub struct Full;

impl Told {
    /// Notes an address. Says whether that is news.
    ///
    /// # Errors
    /// [`Full`].
    pub fn insert(&mut self, key: Key, epoch: u64) -> Result<bool, Full> {
        let room = self.entries.len() < ADDRESSES_MAX;
        let line = Line { epoch, said: Some(epoch) };
        let before = match self.entries.entry(key) {
            Slot::Occupied(mut held) => {
                let held = held.get_mut();
                held.said = held.said.max(Some(epoch));
                if held.epoch >= epoch {
                    return Ok(false);
                }
                std::mem::replace(held, line).epoch
            }
            Slot::Vacant(free) if room => {
                free.insert(line);
                self.digest = self.digest.wrapping_add(sum_of(&key, epoch));
                return Ok(true);
            }
            Slot::Vacant(_) => return Err(Full),
        };
        let change = sum_of(&key, epoch).wrapping_sub(sum_of(&key, before));
        self.digest = self.digest.wrapping_add(change);
        Ok(true)
    }

    /// Forgets an address that was noted with at most this epoch. Gives the epoch it had.
    pub fn remove(&mut self, key: Key, epoch: u64) -> Option<u64> {
        let held = self.entries.get(&key).filter(|line| line.epoch <= epoch)?.epoch;
        self.entries.remove(&key);
        self.digest = self.digest.wrapping_sub(sum_of(&key, held));
        Some(held)
    }

    /// The epoch of an address.
    pub fn get(&self, key: Key) -> Option<u64> {
        self.entries.get(&key).map(|line| line.epoch)
    }

    /// All addresses with their epochs, ordered by virtual network.
    pub fn iter(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        self.entries.iter().map(|(key, line)| (*key, line.epoch))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sum over all: equal lists have equal ones.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Everything was asked for: what is not said again is no longer so.
    pub fn doubt(&mut self) {
        self.entries.values_mut().for_each(|line| line.said = None);
    }

    /// Forgets what was not said again since [`Told::doubt`], and gives it with its epoch; what was
    /// said with an older epoch only is given with both, and is believed from now on: who says so
    /// began anew, with a clock that is behind.
    pub fn forget_doubted(&mut self) -> Vec<(Key, u64, Option<u64>)> {
        let differs = |(key, line): (&Key, &Line)| {
            (line.said != Some(line.epoch)).then_some((*key, line.epoch, line.said))
        };
        let doubted: Vec<_> = self.entries.iter().filter_map(differs).collect();
        for (key, epoch, said) in &doubted {
            self.remove(*key, *epoch);
            // There is the room that it had.
            let _ = said.map(|said| self.insert(*key, said));
        }
        doubted
    }
}

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At one of our own ports.
    Here,
    /// Behind the peer of the link of this number.
    Link(u32),
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The address is there now, since that epoch; it was at that place before, if anywhere. Also
    /// of a newer claim from where it is: what was believed meanwhile may be older.
    Moved(Option<Place>),
    /// It was there already.
    Same,
    /// It is elsewhere, since later. The claim is kept: see [`Directory::gone`].
    Stale,
    /// There is no room for it.
    Refused,
}

/// An address is no longer where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub key: Key,
    /// Where it was.
    pub from: Place,
    /// Where it is now: where the next best claim says, if there is one.
    pub to: Option<Place>,
}

/// The places of all addresses that are known.
#[derive(Debug, Default)]
pub struct Directory {
    claims: BTreeMap<Key, Claims>,
    /// Places that do not answer: believed only where no other claims an address.
    silent: BTreeSet<Place>,
    /// The newest epoch of all that were heard or given.
    newest: u64,
    /// A claim found no room.
    missed: bool,
    /// One has gone since.
    freed: bool,
}

impl Directory {
    /// An address is at one of our ports, at that time of day in ns. Gives the epoch of that, to
    /// be announced: a new one, newer than of any other place, unless it was here already. As many
    /// as there are ports find room, whatever peers say.
    pub fn appear(&mut self, vni: u32, mac: [u8; 6], wall: u64) -> u64 {
        let known = self.claims.get(&(vni, mac));
        if let Some(epoch) = known.and_then(|claims| claims.of(Place::Here)) {
            return epoch;
        }
        let newest = known.map_or(0, Claims::newest).max(self.newest);
        let epoch = wall.max(newest.saturating_add(1));
        self.put((vni, mac), epoch, Place::Here, false);
        self.newest = epoch;
        epoch
    }

    /// What is at our own ports, with its epochs.
    pub fn own(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let all = self.claims.iter();
        all.filter_map(|(key, claims)| Some((*key, claims.of(Place::Here)?)))
    }

    /// The peer of a link says that an address is behind it.
    pub fn heard(&mut self, link: u32, key: Key, epoch: u64, wall: u64) -> Claim {
        let there = Place::Link(link);
        let before = self.line(key);
        if before.is_none() && self.claims.len() >= DIRECTORY_MAX {
            self.missed = true;
            return Claim::Refused;
        }
        self.put(key, epoch, there, epoch > wall.saturating_add(EPOCH_AHEAD_NS));
        if epoch <= wall.saturating_add(EPOCH_FOLLOWED_NS) {
            self.newest = self.newest.max(epoch);
        }
        match (self.line(key), before) {
            (now, before) if now == before => match before {
                Some((_, place)) if place == there => Claim::Same,
                _ => Claim::Stale,
            },
            (Some((_, place)), before) if place == there => Claim::Moved(before.map(|(_, at)| at)),
            _ => Claim::Stale,
        }
    }

    fn put(&mut self, key: Key, epoch: u64, place: Place, ahead: bool) {
        let silent = |place| self.silent.contains(&place);
        let claims = self.claims.entry(key).or_default();
        self.missed |= claims.put(epoch, place, ahead, silent);
    }

    /// Whether peers are to say again what they said, because a claim found no room and there is
    /// some now. Asked for once.
    pub fn wants(&mut self) -> bool {
        let wants = self.missed && self.freed;
        if wants {
            (self.missed, self.freed) = (false, false);
        }
        wants
    }

    /// An address is no longer at `place`. Says what changes by that, if it was there.
    pub fn gone(&mut self, place: Place, key: Key) -> Option<Change> {
        let before = self.find(key.0, key.1);
        let Slot::Occupied(mut held) = self.claims.entry(key) else { return None };
        // What was freed before anything was missed is of no use.
        self.freed = self.missed && (self.freed || held.get_mut().of(place).is_some());
        held.get_mut().remove(place);
        if held.get().is_empty() {
            held.remove();
        }
        self.change(key, before)
    }

    /// Nothing is at `place` any more. Says what changes by that.
    pub fn lost(&mut self, place: Place) -> Vec<Change> {
        let all = self.claimed_by(place);
        let changes = all.into_iter().filter_map(|key| self.gone(place, key)).collect();
        self.silent.remove(&place);
        changes
    }

    /// A place answers, or no longer does. Says what changes by that.
    pub fn stands(&mut self, place: Place, up: bool) -> Vec<Change> {
        let all = self.claimed_by(place);
        let before: Vec<_> = all.iter().map(|(vni, mac)| self.find(*vni, *mac)).collect();
        if up {
            self.silent.remove(&place);
        } else {
            self.silent.insert(place);
        }
        let changes = all.into_iter().zip(before);
        changes.filter_map(|(key, before)| self.change(key, before)).collect()
    }

    /// Where an address is.
    pub fn find(&self, vni: u32, mac: [u8; 6]) -> Option<Place> {
        self.line((vni, mac)).map(|(_, place)| place)
    }

    /// Everything that is believed: virtual network and address, epoch, place.
    pub fn iter(&self) -> impl Iterator<Item = (Key, u64, Place)> + '_ {
        let best = |claims: &Claims| claims.best(|place| self.silent.contains(&place));
        self.claims.iter().filter_map(move |(key, claims)| {
            best(claims).map(|(epoch, place)| (*key, epoch, place))
        })
    }

    /// The claim on an address that is believed.
    fn line(&self, key: Key) -> Option<Said> {
        self.claims.get(&key)?.best(|place| self.silent.contains(&place))
    }

    fn claimed_by(&self, place: Place) -> Vec<Key> {
        let all = self.claims.iter().filter(|(_, claims)| claims.of(place).is_some());
        all.map(|(key, _)| *key).collect()
    }

    fn change(&self, key: Key, before: Option<Place>) -> Option<Change> {
        let (from, to) = (before?, self.find(key.0, key.1));
        (to != Some(from)).then_some(Change { key, from, to })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::CLAIMS_MAX;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const DAY: u64 = EPOCH_AHEAD_NS;

    #[test]
    fn the_newest_epoch_wins_and_a_return_is_newer_still() {
        let mut directory = Directory::default();
        assert_eq!(directory.appear(1, MAC, 100), 100);
        assert_eq!(directory.appear(1, MAC, 200), 100, "it is here since then");
        assert_eq!(directory.heard(3, (1, MAC), 100, 0), Claim::Stale);
        assert_eq!(directory.heard(3, (1, MAC), 101, 0), Claim::Moved(Some(Place::Here)));
        assert_eq!(directory.heard(3, (1, MAC), 101, 0), Claim::Same);
        assert_eq!(directory.heard(4, (1, MAC), 101, 0), Claim::Stale);
        // Our clock is behind, the address came back all the same.
        assert_eq!(directory.gone(Place::Here, (1, MAC)), None, "it was not here any more");
        assert_eq!(directory.appear(1, MAC, 50), 102);
        assert_eq!(directory.find(1, MAC), Some(Place::Here));
        assert_eq!(directory.find(2, MAC), None, "another network");
        assert_eq!(directory.heard(3, (1, MAC), 101, 0), Claim::Stale);
        assert_eq!(directory.heard(3, (1, MAC), 103, 0), Claim::Moved(Some(Place::Here)));
    }

    #[test]
    fn a_claim_that_lost_is_followed_when_the_winner_goes() {
        let (key, a, b) = ((1, MAC), Place::Link(1), Place::Link(2));
        let mut directory = Directory::default();
        directory.appear(1, MAC, 10);
        // The clock of `a` is far ahead; the guest has moved from there to `b`.
        assert_eq!(directory.heard(1, key, 900, 0), Claim::Moved(Some(Place::Here)));
        assert_eq!(directory.heard(2, key, 100, 0), Claim::Stale);
        let change = |from, to| Change { key, from, to };
        assert_eq!(directory.gone(a, key), Some(change(a, Some(b))));
        assert_eq!(directory.gone(a, key), None, "said twice");
        assert_eq!(directory.gone(b, key), Some(change(b, Some(Place::Here))));
        assert_eq!(directory.gone(Place::Here, key), Some(change(Place::Here, None)));
        assert_eq!((directory.iter().count(), directory.gone(b, key)), (0, None));

        // The same where a link goes, or only falls silent.
        directory.heard(1, key, 900, 0);
        directory.heard(2, key, 100, 0);
        assert_eq!(directory.stands(a, false), [change(a, Some(b))]);
        assert_eq!(directory.heard(1, key, 901, 0), Claim::Stale, "of a silent one");
        assert_eq!(directory.stands(a, true), [change(b, Some(a))]);
        assert_eq!(directory.lost(a), [change(a, Some(b))]);
        assert_eq!(directory.lost(b), [change(b, None)]);
    }

    #[test]
    fn epochs_never_go_back_though_our_clock_is_behind() {
        let mut directory = Directory::default();
        directory.heard(1, (1, MAC), 900, 0);
        assert_eq!(directory.appear(1, MAC, 10), 901);
        directory.gone(Place::Here, (1, MAC));
        directory.gone(Place::Link(1), (1, MAC));
        assert_eq!(directory.appear(1, MAC, 20), 902, "though nothing is known of it");
        // A peer that is far ahead does not take us so far that others refuse us.
        directory.heard(1, (2, MAC), DAY, 0);
        assert_eq!(directory.appear(1, [2; 6], 30), 903);
    }

    #[test]
    fn a_newer_claim_from_the_same_place_is_news() {
        let mut directory = Directory::default();
        assert_eq!(directory.heard(1, (1, MAC), 5, 0), Claim::Moved(None));
        assert_eq!(directory.heard(1, (1, MAC), 6, 0), Claim::Moved(Some(Place::Link(1))));
        assert_eq!(directory.heard(1, (1, MAC), 6, 0), Claim::Same);
        assert_eq!(directory.heard(1, (1, MAC), 4, 0), Claim::Same, "said late");
    }

    #[test]
    fn hostile_epochs_and_numbers_are_bounded() {
        let mut directory = Directory::default();
        assert_eq!(directory.heard(1, (1, MAC), DAY + 5, 5), Claim::Moved(None));
        for i in 0..2 * DIRECTORY_MAX as u64 {
            let [.., a, b, c, d] = i.to_be_bytes();
            directory.heard(1, (1, [2, 2, a, b, c, d]), 5, 5);
        }
        assert_eq!(directory.iter().count(), DIRECTORY_MAX);
        assert_eq!(directory.appear(1, [4; 6], 9), 9, "a port of ours has room");
        directory.gone(Place::Here, (1, [4; 6]));
        directory.lost(Place::Link(1));
        assert_eq!(directory.iter().count(), 0);
        let mut told = Told::default();
        for i in 0..ADDRESSES_MAX as u64 + 9 {
            let [.., a, b, c, d] = i.to_be_bytes();
            let full = told.insert((1, [2, 2, a, b, c, d]), 5);
            assert_eq!(full.is_err(), i >= ADDRESSES_MAX as u64);
        }
    }

    #[test]
    fn a_claim_from_the_future_is_kept_and_followed_when_the_others_go() {
        let (key, a, b) = ((1, MAC), Place::Link(1), Place::Link(2));
        let mut directory = Directory::default();
        // The clock of `a` is days ahead. The guest has moved from `b` to there.
        assert_eq!(directory.heard(2, key, 100, 100), Claim::Moved(None));
        assert_eq!(directory.heard(1, key, 3 * DAY, 100), Claim::Stale);
        assert_eq!(directory.gone(b, key), Some(Change { key, from: b, to: Some(a) }));
        // And back: `b` is believed at once, though its epoch is smaller.
        assert_eq!(directory.heard(2, key, 200, 200), Claim::Moved(Some(a)));
        // Such epochs make none of ours that others would not believe.
        assert_eq!(directory.appear(1, MAC, 150), 201);
        assert_eq!(directory.find(1, MAC), Some(Place::Here));
    }

    #[test]
    fn a_claim_that_found_no_room_is_asked_for_when_there_is_some() {
        let mut directory = Directory::default();
        let key = |i: u32| (1, [2, 2, (i >> 24) as u8, (i >> 16) as u8, (i >> 8) as u8, i as u8]);
        for i in 0..DIRECTORY_MAX as u32 {
            directory.heard(1, key(i), 5, 5);
        }
        directory.gone(Place::Link(1), key(0));
        directory.heard(1, key(0), 5, 5);
        assert!(!directory.wants(), "nothing was missed");
        assert_eq!(directory.heard(2, (1, MAC), 5, 5), Claim::Refused);
        assert!(!directory.wants(), "there is no room");
        directory.gone(Place::Link(1), key(7));
        assert!(directory.wants() && !directory.wants(), "once");
        assert_eq!(directory.heard(2, (1, MAC), 5, 5), Claim::Moved(None));
        // The same for one of more places than may claim an address.
        for link in 3..=2 + CLAIMS_MAX as u32 {
            directory.heard(link, (1, MAC), 5 + u64::from(link), 5);
        }
        assert!(!directory.wants());
        directory.gone(Place::Link(9), (1, MAC));
        assert!(directory.wants());
    }

    #[test]
    fn links_of_many_numbers_are_told_apart() {
        let mut directory = Directory::default();
        directory.heard(7, (1, MAC), 5, 5);
        assert_eq!(directory.gone(Place::Link(7 + (1 << 16)), (1, MAC)), None);
        assert_eq!(directory.find(1, MAC), Some(Place::Link(7)));
    }

    #[test]
    fn what_is_not_said_again_is_forgotten() {
        let mut told = Told::default();
        told.insert((1, MAC), 5).unwrap();
        told.insert((2, MAC), 5).unwrap();
        told.doubt();
        assert_eq!(told.insert((2, MAC), 5), Ok(false));
        assert_eq!(told.forget_doubted(), [((1, MAC), 5, None)]);
        assert_eq!(told.len(), 1);
    }

    #[test]
    fn an_older_epoch_is_believed_once_everything_was_asked_for() {
        let (mut told, mut peer) = (Told::default(), Told::default());
        told.insert((1, MAC), 5).unwrap();
        peer.insert((1, MAC), 3).unwrap();
        assert_eq!(told.insert((1, MAC), 3), Ok(false), "late, for all that is known");
        told.doubt();
        told.insert((1, MAC), 3).unwrap();
        assert_eq!(told.forget_doubted(), [((1, MAC), 5, Some(3))]);
        assert_eq!((told.get((1, MAC)), told.digest()), (Some(3), peer.digest()));
        assert_eq!(told.forget_doubted(), []);
    }

    proptest! {
        /// Lists that say the same have the same digest, whatever their past.
        #[test]
        fn digests_tell_lists_apart(
            steps in prop::collection::vec((0_u32..2, 0_u8..4, 0_u64..6, any::<bool>()), 0..60)
        ) {
            let mut told = Told::default();
            for (vni, mac, epoch, remove) in steps {
                let key = (vni, [2, 0, 0, 0, 0, mac]);
                if remove { told.remove(key, epoch); } else { told.insert(key, epoch).unwrap(); }
            }
            let mut fresh = Told::default();
            for (key, epoch) in told.iter().collect::<Vec<_>>().into_iter().rev() {
                fresh.insert(key, epoch).unwrap();
            }
            prop_assert_eq!(told.digest(), fresh.digest());
            fresh.insert((9, MAC), 1).unwrap();
            prop_assert_ne!(told.digest(), fresh.digest());
        }
    }
}
