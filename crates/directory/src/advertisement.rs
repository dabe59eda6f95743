//! The addresses that one daemon advertised to another, with a digest for synchronisation.
//!
//! Each tunnel (`link::tunnel`) has one list per direction: its own addresses, and the peer's
//! claims. A list has at most [`ADDRESSES_MAX`] (4,096) addresses over all virtual networks; a
//! further address is not added ([`Full`]): the tunnel advertises an own one again when there is
//! room, and drops and counts a peer's. The digest is a sum over the entries: equal lists have
//! equal digests, different lists almost always have different digests. It protects against loss,
//! not against a hostile peer. A withdrawal needs no room; it has no effect on an address that is
//! not listed, or that is listed with a newer epoch.
//!
//! The module encodes no messages, sends none and keeps no time: the tunnel repeats advertisements
//! and requests lists. It does not decide ownership; [`Directory`](crate::Directory) does. An epoch
//! is that of the claim, a time of day. A list belongs to the thread of its tunnel.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use crate::Key;
use crate::limits::ADDRESSES_MAX;

/// A list of advertised addresses with their epochs, in one direction between two daemons.
///
/// Every daemon advertises the addresses of its own ports. Heartbeats carry the digest of the list;
/// a receiver with another digest requests the whole list ([`Self::begin_confirmation`]).
#[derive(Debug)]
pub struct Advertisement<K> {
    entries: BTreeMap<K, Entry>,
    /// Sum over the entries, modulo 2^64.
    digest: u64,
}

/// State of an advertised address.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Newest advertised epoch.
    epoch: u64,
    /// Newest epoch that was advertised since the last [`Advertisement::begin_confirmation`].
    confirmed: Option<u64>,
}

/// An entry that was not confirmed as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unconfirmed<K> {
    /// The address.
    pub key: K,
    /// Its epoch before.
    pub epoch: u64,
    /// The older epoch that was confirmed instead, if any: the peer restarted with a slower clock.
    pub confirmed: Option<u64>,
}

/// Returns the contribution of an entry to the digest. The digest is a sum, so that it does not
/// depend on the order of the entries.
fn sum_of<K: Key>(key: &K, epoch: u64) -> u64 {
    let [mut mixed, word] = key.digest_words();
    for word in [epoch, epoch.rotate_left(32), word] {
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
#[error("a peer may advertise {ADDRESSES_MAX} addresses")]
pub struct Full;

impl<K> Default for Advertisement<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), digest: 0 }
    }
}

impl<K: Key> Advertisement<K> {
    /// Adds an address, or raises its epoch. Returns whether the list changed; an epoch that is not
    /// newer changes nothing, but confirms the address.
    ///
    /// # Errors
    /// [`Full`]: the list has [`ADDRESSES_MAX`] other addresses.
    pub fn insert(&mut self, key: K, epoch: u64) -> Result<bool, Full> {
        let has_room = self.entries.len() < ADDRESSES_MAX;
        let entry = Entry { epoch, confirmed: Some(epoch) };
        let before = match self.entries.entry(key) {
            Slot::Occupied(mut held) => {
                let held = held.get_mut();
                held.confirmed = held.confirmed.max(Some(epoch));
                if held.epoch >= epoch {
                    return Ok(false);
                }
                std::mem::replace(held, entry).epoch
            }
            Slot::Vacant(free) if has_room => {
                free.insert(entry);
                self.digest = self.digest.wrapping_add(sum_of(&key, epoch));
                return Ok(true);
            }
            Slot::Vacant(_) => return Err(Full),
        };
        let change = sum_of(&key, epoch).wrapping_sub(sum_of(&key, before));
        self.digest = self.digest.wrapping_add(change);
        Ok(true)
    }

    /// Removes an address unless its epoch is larger than `epoch`. Returns the epoch that it had.
    pub fn remove(&mut self, key: K, epoch: u64) -> Option<u64> {
        let held = self.entries.get(&key).filter(|entry| entry.epoch <= epoch)?.epoch;
        self.entries.remove(&key);
        self.digest = self.digest.wrapping_sub(sum_of(&key, held));
        Some(held)
    }

    /// Returns the epoch of an address.
    pub fn get(&self, key: K) -> Option<u64> {
        self.entries.get(&key).map(|entry| entry.epoch)
    }

    /// Returns all addresses with their epochs, in the order of the addresses.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        self.entries.iter().map(|(key, entry)| (*key, entry.epoch))
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the digest. Equal lists have equal digests.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Marks every entry as unconfirmed, because the whole list was requested. A further call
    /// begins again.
    pub fn begin_confirmation(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.confirmed = None);
    }

    /// Removes the entries that were not advertised again since [`Self::begin_confirmation`]. An
    /// entry that was advertised with an older epoch only stays with that epoch. Returns both kinds
    /// of entries; nothing without [`Self::begin_confirmation`] before.
    pub fn end_confirmation(&mut self) -> Vec<Unconfirmed<K>> {
        let differs = |(key, entry): (&K, &Entry)| {
            let Entry { epoch, confirmed } = *entry;
            (confirmed != Some(epoch)).then_some(Unconfirmed { key: *key, epoch, confirmed })
        };
        let differing: Vec<_> = self.entries.iter().filter_map(differs).collect();
        for Unconfirmed { key, epoch, confirmed } in &differing {
            self.remove(*key, *epoch);
            // The removal made room.
            let _ = confirmed.map(|epoch| self.insert(*key, epoch));
        }
        differing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const DIGEST: u64 = 0x2b43_e9f2_a604_3689;

    #[test]
    fn advertisement_is_bounded() {
        let mut list = Advertisement::default();
        for i in 0..ADDRESSES_MAX as u64 + 9 {
            let [.., a, b, c, d] = i.to_be_bytes();
            let full = list.insert((1, [2, 2, a, b, c, d]), 5);
            assert_eq!(full.is_err(), i >= ADDRESSES_MAX as u64);
        }
    }

    #[test]
    fn advertisement_digest_is_stable_between_versions() {
        let mut list = Advertisement::default();
        list.insert((7, MAC), 1_000).unwrap();
        assert_eq!(list.digest(), DIGEST, "peers of other versions compare it");
    }

    #[test]
    fn advertisement_drops_unconfirmed_addresses() {
        let mut list = Advertisement::default();
        list.insert((1, MAC), 5).unwrap();
        list.insert((2, MAC), 5).unwrap();
        list.begin_confirmation();
        assert_eq!(list.insert((2, MAC), 5), Ok(false));
        assert_eq!(
            list.end_confirmation(),
            [Unconfirmed { key: (1, MAC), epoch: 5, confirmed: None }]
        );
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn advertisement_takes_an_older_epoch_after_a_confirmation() {
        let (mut list, mut peer) = (Advertisement::default(), Advertisement::default());
        list.insert((1, MAC), 5).unwrap();
        peer.insert((1, MAC), 3).unwrap();
        assert_eq!(list.insert((1, MAC), 3), Ok(false), "late, as far as is known");
        list.begin_confirmation();
        list.insert((1, MAC), 3).unwrap();
        assert_eq!(
            list.end_confirmation(),
            [Unconfirmed { key: (1, MAC), epoch: 5, confirmed: Some(3) }]
        );
        assert_eq!((list.get((1, MAC)), list.digest()), (Some(3), peer.digest()));
        assert_eq!(list.end_confirmation(), []);
    }

    proptest! {
        /// Equal lists have equal digests, for any history.
        #[test]
        fn advertisement_digests_differ_between_lists(
            steps in prop::collection::vec((0_u32..2, 0_u8..4, 0_u64..6, any::<bool>()), 0..60)
        ) {
            let mut list = Advertisement::default();
            for (vni, mac, epoch, remove) in steps {
                let key = (vni, [2, 0, 0, 0, 0, mac]);
                if remove { list.remove(key, epoch); } else { list.insert(key, epoch).unwrap(); }
            }
            let mut fresh = Advertisement::default();
            for (key, epoch) in list.iter().collect::<Vec<_>>().into_iter().rev() {
                fresh.insert(key, epoch).unwrap();
            }
            prop_assert_eq!(list.digest(), fresh.digest());
            fresh.insert((9, MAC), 1).unwrap();
            prop_assert_ne!(list.digest(), fresh.digest());
        }
    }
}
