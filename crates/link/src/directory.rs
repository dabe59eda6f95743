//! Which Ethernet address is behind whom, by what the peers say of themselves.
//!
//! Every daemon tells its peers which addresses are at its own ports. A [`Told`] is such a list:
//! what we tell a peer, or what it told us. Heartbeats carry the list's digest; who finds another
//! digest asks for everything. Where several claim an address, the [`Directory`] follows the one
//! with the newest epoch: the time of day at which the address was seen there first, and larger
//! than of any place before.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use crate::limits::{ADDRESSES_MAX, DIRECTORY_MAX, EPOCH_AHEAD_NS};

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
    /// Whether it was said since the last question for everything.
    confirmed: bool,
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
        let line = Line { epoch, confirmed: true };
        let before = match self.entries.entry(key) {
            Slot::Occupied(mut held) => {
                let held = held.get_mut();
                held.confirmed = true;
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
        self.entries.values_mut().for_each(|line| line.confirmed = false);
    }

    /// Forgets what was not said again since [`Told::doubt`], and gives it.
    pub fn forget_doubted(&mut self) -> Vec<(Key, u64)> {
        let doubted: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, line)| !line.confirmed)
            .map(|(k, l)| (*k, l.epoch))
            .collect();
        for (key, epoch) in &doubted {
            self.remove(*key, *epoch);
        }
        doubted
    }
}

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At one of our own ports.
    Here,
    /// Behind the peer of this tunnel.
    Tunnel(u16),
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The address is there now; it was at that place before, if anywhere.
    Moved(Option<Place>),
    /// It was there already.
    Same,
    /// It is elsewhere, since later.
    Stale,
    /// Refused: an epoch that lies in the future, or no room.
    Refused,
}

/// The places of all addresses that are known.
#[derive(Debug, Default)]
pub struct Directory {
    places: BTreeMap<Key, (u64, Place)>,
}

impl Directory {
    /// An address appeared at one of our ports, at that time of day in ns. Gives its new epoch,
    /// to be announced; None when it was here already, or there is no room.
    pub fn appear(&mut self, vni: u32, mac: [u8; 6], wall: u64) -> Option<u64> {
        let known = self.places.get(&(vni, mac)).copied();
        if matches!(known, Some((_, Place::Here))) || (known.is_none() && self.is_full()) {
            return None;
        }
        let epoch = wall.max(known.map_or(0, |(epoch, _)| epoch.saturating_add(1)));
        self.places.insert((vni, mac), (epoch, Place::Here));
        Some(epoch)
    }

    /// A peer says that an address is behind it.
    pub fn heard(&mut self, tunnel: u16, key: Key, epoch: u64, wall: u64) -> Claim {
        if epoch > wall.saturating_add(EPOCH_AHEAD_NS) {
            return Claim::Refused;
        }
        let known = self.places.get(&key).copied();
        let there = Place::Tunnel(tunnel);
        match known {
            Some((at, place)) if place == there => {
                self.places.insert(key, (at.max(epoch), there));
                return Claim::Same;
            }
            Some((at, _)) if at >= epoch => return Claim::Stale,
            None if self.is_full() => return Claim::Refused,
            _ => {}
        }
        self.places.insert(key, (epoch, there));
        Claim::Moved(known.map(|(_, place)| place))
    }

    /// An address is no longer at `place`. Says its epoch, if it was there until now.
    pub fn gone(&mut self, place: Place, key: Key) -> Option<u64> {
        let (epoch, _) = self.places.get(&key).copied().filter(|(_, at)| *at == place)?;
        self.places.remove(&key);
        Some(epoch)
    }

    /// Nothing is at `place` any more.
    pub fn lost(&mut self, place: Place) {
        self.places.retain(|_, (_, at)| *at != place);
    }

    /// Where an address is.
    pub fn find(&self, vni: u32, mac: [u8; 6]) -> Option<Place> {
        self.places.get(&(vni, mac)).map(|(_, place)| *place)
    }

    /// The epoch of an address.
    pub fn epoch(&self, vni: u32, mac: [u8; 6]) -> Option<u64> {
        self.places.get(&(vni, mac)).map(|(epoch, _)| *epoch)
    }

    /// Everything: virtual network and address, epoch, place.
    pub fn iter(&self) -> impl Iterator<Item = (Key, u64, Place)> + '_ {
        self.places.iter().map(|(key, (epoch, place))| (*key, *epoch, *place))
    }

    fn is_full(&self) -> bool {
        self.places.len() >= DIRECTORY_MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const DAY: u64 = EPOCH_AHEAD_NS;

    #[test]
    fn the_newest_epoch_wins_and_a_return_is_newer_still() {
        let mut directory = Directory::default();
        let first = directory.appear(1, MAC, 100).unwrap();
        assert_eq!((first, directory.appear(1, MAC, 200)), (100, None));
        assert_eq!(directory.heard(3, (1, MAC), 100, 0), Claim::Stale);
        assert_eq!(directory.heard(3, (1, MAC), 101, 0), Claim::Moved(Some(Place::Here)));
        assert_eq!(directory.heard(3, (1, MAC), 101, 0), Claim::Same);
        assert_eq!(directory.heard(4, (1, MAC), 101, 0), Claim::Stale);
        // Our clock is behind, the address came back all the same.
        assert_eq!(directory.appear(1, MAC, 50), Some(102));
        assert_eq!(directory.find(1, MAC), Some(Place::Here));
        assert_eq!(directory.find(2, MAC), None, "another network");
        assert_eq!(directory.gone(Place::Tunnel(3), (1, MAC)), None);
        assert_eq!(directory.gone(Place::Here, (1, MAC)), Some(102));
    }

    #[test]
    fn hostile_epochs_and_numbers_are_bounded() {
        let mut directory = Directory::default();
        assert_eq!(directory.heard(1, (1, MAC), u64::MAX, 5), Claim::Refused);
        assert_eq!(directory.heard(1, (1, MAC), DAY + 5, 5), Claim::Moved(None));
        for i in 0..2 * DIRECTORY_MAX as u64 {
            let [.., a, b, c, d] = i.to_be_bytes();
            directory.heard(1, (1, [2, 2, a, b, c, d]), 5, 5);
        }
        assert_eq!(directory.iter().count(), DIRECTORY_MAX);
        directory.lost(Place::Tunnel(1));
        assert_eq!(directory.iter().count(), 0);
        let mut told = Told::default();
        for i in 0..ADDRESSES_MAX as u64 + 9 {
            let [.., a, b, c, d] = i.to_be_bytes();
            let full = told.insert((1, [2, 2, a, b, c, d]), 5);
            assert_eq!(full.is_err(), i >= ADDRESSES_MAX as u64);
        }
    }

    #[test]
    fn what_is_not_said_again_is_forgotten() {
        let mut told = Told::default();
        told.insert((1, MAC), 5).unwrap();
        told.insert((2, MAC), 5).unwrap();
        told.doubt();
        assert_eq!(told.insert((2, MAC), 5), Ok(false));
        assert_eq!(told.forget_doubted(), [((1, MAC), 5)]);
        assert_eq!(told.len(), 1);
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
