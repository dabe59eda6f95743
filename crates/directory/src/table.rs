//! The directory: claims by address, unreachable places, epochs.
//!
//! It decides the owner of each address. The rules of a single address are in [`crate::claims`].
//! `link::io::addresses` keeps one directory per group, applies reports of tunnels and addresses of
//! own ports, and passes each [`Change`] to the group's shard, where `ethernet` updates its table.
//! Verified claims are assignments ([`crate::assignment`]), which come before the claims of places.
//!
//! While the directory has [`DIRECTORY_MAX`] (65,536) addresses, claims of peers on further ones
//! are dropped, and requested again when room appears ([`Directory::needs_repeat`]); own ports find
//! room beyond that limit. A place has one claim on an address, the best of those that it reported
//! ([`crate::claims`]). Claims do not age: they stay until they are withdrawn, replaced, or their
//! place is removed. An unreachable place keeps its claims. The directory performs no I/O, reads no
//! clock, has no lock (it belongs to the shard of links), and is not saved over a restart.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::Assignments;
use crate::claims::{ClaimOwner, Claims};
use crate::limits::{DIRECTORY_MAX, EPOCH_AHEAD_NS, EPOCH_FOLLOWED_NS};
use crate::{Key, Place, Report};

/// The owner of an address changed, or confirmed itself with a newer epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<K> {
    /// The address.
    pub key: K,
    /// The owner before.
    pub from: Option<Place>,
    /// The owner now.
    pub to: Option<Place>,
}

/// The owners of all known addresses.
///
/// If several places claim an address, the directory follows the claim with the newest epoch;
/// exceptions are claims of unreachable places, and epochs more than 1 day ahead
/// ([`EPOCH_AHEAD_NS`]). The epoch is the time of day at which the address appeared at the place,
/// and larger than the epochs of other places that were known there. The directory keeps the other
/// claims, and follows the next best one when the owner withdraws its claim, is removed, or becomes
/// unreachable. Epochs given here are newer than all known epochs up to half a day ahead of the
/// local clock (`EPOCH_FOLLOWED_NS`). Clocks that differ by less therefore delay a move and do not
/// hide it.
///
/// A claim that found no room is needed again when room appears ([`Self::needs_repeat`]). Own ports
/// always find room.
#[derive(Debug)]
pub struct Directory<K> {
    claims: BTreeMap<K, Claims>,
    /// Addresses that verified claims give to a host.
    assigned: Assignments<K>,
    /// Places with claims that are followed only if no reachable place claims the address.
    unreachable: BTreeSet<Place>,
    /// Newest epoch that was received or given.
    newest: u64,
    /// A claim found no room.
    has_dropped: bool,
    /// A claim was withdrawn after that.
    has_freed: bool,
}

impl<K> Default for Directory<K> {
    fn default() -> Self {
        Self {
            claims: BTreeMap::new(),
            assigned: Assignments::default(),
            unreachable: BTreeSet::new(),
            newest: 0,
            has_dropped: false,
            has_freed: false,
        }
    }
}

impl<K: Key> Directory<K> {
    /// Claims an address for an own port at the time of day `wall`, in ns. Returns the epoch to
    /// advertise: the existing epoch if an own port has the address already, else one that is newer
    /// than the epoch of any other place that does not lie far in the future. Own ports find room
    /// regardless of peers' claims. No [`Change`] is returned: the caller has the port.
    pub fn claim_local(&mut self, key: K, wall: u64) -> u64 {
        let known = self.claims.get(&key);
        if let Some(epoch) = known.and_then(|claims| claims.epoch_of(Place::Here)) {
            return epoch;
        }
        let newest = known.map_or(0, Claims::newest).max(self.newest);
        let epoch = wall.max(newest.saturating_add(1));
        self.put(key, epoch, Place::Here, false);
        self.newest = epoch;
        epoch
    }

    /// Returns the addresses of own ports with their epochs.
    pub fn local(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        let all = self.claims.iter();
        all.filter_map(|(key, claims)| Some((*key, claims.epoch_of(Place::Here)?)))
    }

    /// Applies a report of a source at the time of day `wall`, in ns, and returns the changes.
    pub fn apply(&mut self, report: Report<K>, wall: u64) -> Vec<Change<K>> {
        match report {
            Report::Reachable { place, up } => self.set_reachable(place, up),
            Report::Claimed { place, key, epoch } => {
                self.claim(place, key, epoch, wall).into_iter().collect()
            }
            Report::Withdrawn { place, key } => self.withdraw(place, key).into_iter().collect(),
        }
    }

    /// Adds a claim of a peer. Returns a change if the directory follows the claim now. A claim
    /// that is not followed is kept, see [`Self::withdraw`].
    fn claim(&mut self, place: Place, key: K, epoch: u64, wall: u64) -> Option<Change<K>> {
        let before = self.owner(key);
        self.assigned.note(key, place, true);
        if !self.claims.contains_key(&key) && self.claims.len() >= DIRECTORY_MAX {
            self.has_dropped = true;
            return None;
        }
        let known = self.epoch_of(key, place);
        self.put(key, epoch, place, epoch > wall.saturating_add(EPOCH_AHEAD_NS));
        self.follow_epoch(epoch, wall);
        let now = self.owner(key);
        let is_renewed = self.epoch_of(key, place) > known;
        let follows = now.is_some_and(|(_, at)| at == place) && (now != before || is_renewed);
        // A newer claim from the same place is a change too: an older state may have been followed
        // in the meantime.
        follows.then_some(Change { key, from: before.map(|(_, at)| at), to: Some(place) })
    }

    /// Notes the epoch of another place, so that epochs given here are newer.
    fn follow_epoch(&mut self, epoch: u64, wall: u64) {
        if epoch <= wall.saturating_add(EPOCH_FOLLOWED_NS) {
            self.newest = self.newest.max(epoch);
        }
    }

    /// Assigns an address to a host by a claim that the caller has verified, at the time of day
    /// `wall`, in ns: claims of other places are kept, and not followed. `others` are further places
    /// of the host, followed while `place` is unreachable if they claim the address. The caller
    /// bounds the number of assignments.
    pub fn assign(
        &mut self,
        key: K,
        (place, others): (Place, &[Place]),
        epoch: u64,
        wall: u64,
    ) -> Option<Change<K>> {
        let before = self.owner(key);
        self.assigned.put(key, epoch, place, others);
        self.follow_epoch(epoch, wall);
        let now = self.owner(key);
        let [from, to] = [before, now].map(|owner| owner.map(|(_, at)| at));
        (now != before).then_some(Change { key, from, to })
    }

    /// Ends the assignment of an address to a place, unless its epoch is newer than `epoch`. The
    /// claims on the address count again, that of the place included.
    pub fn unassign(&mut self, key: K, place: Place, epoch: u64) -> Option<Change<K>> {
        let before = self.find(key);
        self.assigned.end(key, place, epoch);
        self.change(key, before)
    }

    /// Returns whether an address is assigned, and to other places only.
    pub fn is_assigned_elsewhere(&self, key: K, place: Place) -> bool {
        self.assigned.is_at(key, place) == Some(false)
    }

    /// Returns whether a place may use an address: the address is assigned to the place, or it is
    /// not assigned and no other place is its owner.
    pub fn may_use(&self, key: K, place: Place) -> bool {
        let is_free = || self.find(key).is_none_or(|owner| owner == place);
        self.assigned.is_at(key, place).unwrap_or_else(is_free)
    }

    /// Adds a claim; `ahead`: its epoch lies far in the future.
    fn put(&mut self, key: K, epoch: u64, place: Place, ahead: bool) {
        let unreachable = |place| self.unreachable.contains(&place);
        let claims = self.claims.entry(key).or_default();
        self.has_dropped |= claims.put(epoch, place, ahead, unreachable);
    }

    /// Returns true once after a claim found no room and room appeared: sources must repeat their
    /// claims ([`Source::repeat`](crate::Source::repeat)).
    pub fn needs_repeat(&mut self) -> bool {
        let needs = self.has_dropped && self.has_freed;
        if needs {
            (self.has_dropped, self.has_freed) = (false, false);
        }
        needs
    }

    /// Withdraws the claim of a place on an address, and releases an assignment to the place: the
    /// host itself gave the address up. Returns the change if the place was the owner.
    pub fn withdraw(&mut self, place: Place, key: K) -> Option<Change<K>> {
        let before = self.find(key);
        self.assigned.note(key, place, false);
        self.remove_claim(place, key);
        self.change(key, before)
    }

    /// Removes the claim of a place on an address.
    fn remove_claim(&mut self, place: Place, key: K) {
        let Slot::Occupied(mut held) = self.claims.entry(key) else { return };
        // Room that appeared before a claim was missed needs no repetition.
        let has_claim = held.get().epoch_of(place).is_some();
        self.has_freed = self.has_dropped && (self.has_freed || has_claim);
        held.get_mut().remove(place);
        if held.get().is_empty() {
            held.remove();
        }
    }

    /// Forgets all claims that a place reported, for example because it must report them anew.
    /// Assignments stay.
    pub fn forget_claims(&mut self, place: Place) -> Vec<Change<K>> {
        let all = self.claimed_by(place);
        self.change_all(all, |directory, all| {
            all.iter().for_each(|key| directory.remove_claim(place, *key));
        })
    }

    /// Removes a place, for example a link that is deleted, with all its claims and assignments.
    pub fn remove_place(&mut self, place: Place) -> Vec<Change<K>> {
        let all = self.addresses_of(place);
        self.change_all(all, |directory, all| {
            all.iter().for_each(|key| directory.remove_claim(place, *key));
            directory.assigned.remove_place(place);
            directory.unreachable.remove(&place);
        })
    }

    /// Marks a place as reachable or unreachable and returns the changes.
    fn set_reachable(&mut self, place: Place, up: bool) -> Vec<Change<K>> {
        let all = self.addresses_of(place);
        self.change_all(all, |directory, _| {
            if up {
                directory.unreachable.remove(&place);
            } else {
                directory.unreachable.insert(place);
            }
        })
    }

    /// Returns the changes of addresses by an action.
    fn change_all(&mut self, all: Vec<K>, act: impl FnOnce(&mut Self, &[K])) -> Vec<Change<K>> {
        let before: Vec<_> = all.iter().map(|key| self.find(*key)).collect();
        act(self, &all);
        let changes = all.into_iter().zip(before);
        changes.filter_map(|(key, before)| self.change(key, before)).collect()
    }

    /// Returns the epoch of the claim of one place on an address, if there is one.
    pub fn epoch_of(&self, key: K, place: Place) -> Option<u64> {
        self.claims.get(&key)?.epoch_of(place)
    }

    /// Returns the place of an address.
    pub fn find(&self, key: K) -> Option<Place> {
        self.owner(key).map(|(_, place)| place)
    }

    /// Returns every address with the epoch and the place of its owner.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64, Place)> + '_ {
        let keys: BTreeSet<K> = self.claims.keys().copied().chain(self.assigned.keys()).collect();
        keys.into_iter()
            .filter_map(move |key| self.owner(key).map(|(epoch, place)| (key, epoch, place)))
    }

    /// Returns epoch and place of the claim that is followed.
    fn owner(&self, key: K) -> Option<ClaimOwner> {
        let claims = self.claims.get(&key);
        let unreachable = |place| self.unreachable.contains(&place);
        let assigned = self.assigned.owner(key, claims, unreachable);
        assigned.or_else(|| claims?.best(unreachable))
    }

    /// Returns the addresses that a place claims.
    fn claimed_by(&self, place: Place) -> Vec<K> {
        let all = self.claims.iter().filter(|(_, claims)| claims.epoch_of(place).is_some());
        all.map(|(key, _)| *key).collect()
    }

    /// Returns the addresses that a place claims or that are assigned to it.
    fn addresses_of(&self, place: Place) -> Vec<K> {
        let mut all = self.claimed_by(place);
        all.extend(self.assigned.of_place(place));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the change of an address whose owner was `before`; `None` if the owner is the same,
    /// or if there was no owner.
    fn change(&self, key: K, before: Option<Place>) -> Option<Change<K>> {
        let (from, to) = (Some(before?), self.find(key));
        (to != from).then_some(Change { key, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MacKey;
    use crate::limits::CLAIMS_MAX;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const DAY: u64 = EPOCH_AHEAD_NS;

    /// Applies the claim of a link. Returns where the address was if the claim is followed.
    fn claim(
        directory: &mut Directory<MacKey>,
        link: u32,
        key: MacKey,
        epoch: u64,
        wall: u64,
    ) -> Option<Option<Place>> {
        let place = Place::Link(link);
        let changes = directory.apply(Report::Claimed { place, key, epoch }, wall);
        let change = changes.first()?;
        assert_eq!((change.key, change.to), (key, Some(place)));
        Some(change.from)
    }

    #[test]
    fn directory_follows_the_newest_epoch_and_a_return_is_newer() {
        let mut directory = Directory::default();
        assert_eq!(directory.claim_local((1, MAC), 100), 100);
        assert_eq!(directory.claim_local((1, MAC), 200), 100, "it has been here since");
        assert_eq!(claim(&mut directory, 3, (1, MAC), 100, 0), None);
        assert_eq!(claim(&mut directory, 3, (1, MAC), 101, 0), Some(Some(Place::Here)));
        assert_eq!(claim(&mut directory, 3, (1, MAC), 101, 0), None);
        assert_eq!(claim(&mut directory, 4, (1, MAC), 101, 0), None);
        // The local clock is behind, and the address returns.
        assert_eq!(directory.withdraw(Place::Here, (1, MAC)), None, "it was elsewhere");
        assert_eq!(directory.claim_local((1, MAC), 50), 102);
        assert_eq!(directory.find((1, MAC)), Some(Place::Here));
        assert_eq!(directory.find((2, MAC)), None, "another network");
        assert_eq!(claim(&mut directory, 3, (1, MAC), 101, 0), None);
        assert_eq!(claim(&mut directory, 3, (1, MAC), 103, 0), Some(Some(Place::Here)));
    }

    #[test]
    fn directory_follows_the_next_best_claim_when_the_owner_goes() {
        let (key, a, b) = ((1, MAC), Place::Link(1), Place::Link(2));
        let mut directory = Directory::default();
        directory.claim_local((1, MAC), 10);
        // The clock of `a` is far ahead; the guest has moved from there to `b`.
        assert_eq!(claim(&mut directory, 1, key, 900, 0), Some(Some(Place::Here)));
        assert_eq!(claim(&mut directory, 2, key, 100, 0), None);
        let change = |from, to| Change { key, from: Some(from), to };
        assert_eq!(directory.withdraw(a, key), Some(change(a, Some(b))));
        assert_eq!(directory.withdraw(a, key), None, "withdrawn twice");
        assert_eq!(directory.withdraw(b, key), Some(change(b, Some(Place::Here))));
        assert_eq!(directory.withdraw(Place::Here, key), Some(change(Place::Here, None)));
        assert_eq!((directory.iter().count(), directory.withdraw(b, key)), (0, None));

        // The same if a link is removed or becomes unreachable.
        claim(&mut directory, 1, key, 900, 0);
        claim(&mut directory, 2, key, 100, 0);
        assert_eq!(directory.set_reachable(a, false), [change(a, Some(b))]);
        assert_eq!(claim(&mut directory, 1, key, 901, 0), None, "the place is unreachable");
        assert_eq!(directory.set_reachable(a, true), [change(b, Some(a))]);
        assert_eq!(directory.remove_place(a), [change(a, Some(b))]);
        assert_eq!(directory.remove_place(b), [change(b, None)]);
    }

    /// Assigns an address to a link. Returns the new place if it changed.
    fn assign(directory: &mut Directory<MacKey>, link: u32, epoch: u64) -> Option<Option<Place>> {
        let at = (Place::Link(link), &[Place::Link(link + 100)][..]);
        directory.assign((1, MAC), at, epoch, epoch).map(|change| change.to)
    }

    #[test]
    fn directory_prefers_an_assignment_to_newer_claims_of_other_places() {
        let (key, a, b) = ((1, MAC), Place::Link(1), Place::Link(2));
        let mut directory = Directory::default();
        claim(&mut directory, 2, key, 900, 900);
        assert!(directory.may_use(key, b) && !directory.may_use(key, a));
        assert_eq!(assign(&mut directory, 1, 500), Some(Some(a)));
        assert!(directory.may_use(key, a) && !directory.may_use(key, b));
        assert!(directory.is_assigned_elsewhere(key, b));
        assert_eq!(claim(&mut directory, 2, key, 950, 950), None);
        assert_eq!(
            directory.set_reachable(a, false),
            [],
            "the host is down, and keeps its address"
        );
        assert_eq!(directory.find(key), Some(a));
        directory.set_reachable(a, true);
        // A newer assignment is followed; the end of an older one has no effect on it.
        assert_eq!(assign(&mut directory, 3, 600), Some(Some(Place::Link(3))));
        assert_eq!(directory.unassign(key, a, 500), None);
        assert_eq!(directory.unassign(key, Place::Link(3), 599), None);
        let to_b = Change { key, from: Some(Place::Link(3)), to: Some(b) };
        assert_eq!(directory.unassign(key, Place::Link(3), 600), Some(to_b));
        // An own port with a newer epoch is preferred, as to any claim.
        let epoch = directory.claim_local(key, 20);
        assert_eq!(assign(&mut directory, 1, epoch - 1), None);
        assert_eq!(directory.find(key), Some(Place::Here));
        assert_eq!(assign(&mut directory, 1, epoch + 1), Some(Some(a)));
        assert!(directory.claim_local((1, [2; 6]), 20) > epoch + 1);
    }

    #[test]
    fn directory_host_releases_its_assignment_by_a_withdrawal() {
        let (key, a, b) = ((1, MAC), Place::Link(1), Place::Link(2));
        let mut directory = Directory::default();
        assign(&mut directory, 1, 500);
        claim(&mut directory, 1, key, 500, 500);
        // The guest moves, and the store of assignments is away.
        assert_eq!(claim(&mut directory, 2, key, 400, 500), None);
        assert_eq!(directory.withdraw(b, key), None);
        claim(&mut directory, 2, key, 400, 500);
        assert_eq!(directory.withdraw(a, key), Some(Change { key, from: Some(a), to: Some(b) }));
        assert_eq!(assign(&mut directory, 1, 500), None, "repeated");
        assert!(directory.may_use(key, b) && !directory.is_assigned_elsewhere(key, b));
        assert_eq!(claim(&mut directory, 1, key, 300, 500), Some(Some(b)), "the guest returns");
        // The claims of a place are forgotten, and its assignment stays.
        assert_eq!(directory.forget_claims(a), []);
        assert_eq!((directory.find(key), directory.epoch_of(key, a)), (Some(a), None));
        assert_eq!(directory.remove_place(a), [Change { key, from: Some(a), to: Some(b) }]);
        assert_eq!(directory.withdraw(b, key), Some(Change { key, from: Some(b), to: None }));
        assert_eq!(directory.iter().count(), 0);
    }

    #[test]
    fn directory_follows_another_link_to_the_assigned_host() {
        let (key, a, other) = ((1, MAC), Place::Link(1), Place::Link(101));
        let mut directory = Directory::default();
        assign(&mut directory, 1, 500);
        assert!(directory.may_use(key, other));
        assert_eq!(directory.set_reachable(a, false), [], "the other link has no claim");
        assert_eq!(claim(&mut directory, 101, key, 7, 500), Some(Some(a)));
        assert_eq!(directory.set_reachable(a, true).len(), 1);
        assert_eq!(directory.iter().collect::<Vec<_>>(), [(key, 500, a)]);
        directory.set_reachable(a, false);
        directory.remove_place(other);
        assert_eq!(directory.find(key), Some(a));
    }

    #[test]
    fn directory_epochs_grow_though_the_clock_is_behind() {
        let mut directory = Directory::default();
        claim(&mut directory, 1, (1, MAC), 900, 0);
        assert_eq!(directory.claim_local((1, MAC), 10), 901);
        directory.withdraw(Place::Here, (1, MAC));
        directory.withdraw(Place::Link(1), (1, MAC));
        assert_eq!(directory.claim_local((1, MAC), 20), 902, "newer than withdrawn claims");
        // A peer whose clock is far ahead does not advance local epochs so far that peers reject them.
        claim(&mut directory, 1, (2, MAC), DAY, 0);
        assert_eq!(directory.claim_local((1, [2; 6]), 30), 903);
    }

    #[test]
    fn directory_reports_a_newer_claim_of_the_same_place() {
        let mut directory = Directory::default();
        assert_eq!(claim(&mut directory, 1, (1, MAC), 5, 0), Some(None));
        assert_eq!(claim(&mut directory, 1, (1, MAC), 6, 0), Some(Some(Place::Link(1))));
        assert_eq!(claim(&mut directory, 1, (1, MAC), 6, 0), None);
        assert_eq!(claim(&mut directory, 1, (1, MAC), 4, 0), None, "late");
    }

    #[test]
    fn directory_bounds_hostile_epochs_and_numbers() {
        let mut directory = Directory::default();
        assert_eq!(claim(&mut directory, 1, (1, MAC), DAY + 5, 5), Some(None));
        for i in 0..2 * DIRECTORY_MAX as u64 {
            let [.., a, b, c, d] = i.to_be_bytes();
            claim(&mut directory, 1, (1, [2, 2, a, b, c, d]), 5, 5);
        }
        assert_eq!(directory.iter().count(), DIRECTORY_MAX);
        assert_eq!(directory.claim_local((1, [4; 6]), 9), 9, "an own port has room");
        directory.withdraw(Place::Here, (1, [4; 6]));
        directory.remove_place(Place::Link(1));
        assert_eq!(directory.iter().count(), 0);
    }

    #[test]
    fn directory_follows_a_claim_from_the_future_when_the_others_go() {
        let (key, a, b) = ((1, MAC), Place::Link(1), Place::Link(2));
        let mut directory = Directory::default();
        // The clock of `a` is days ahead. The guest has moved from `b` to there.
        assert_eq!(claim(&mut directory, 2, key, 100, 100), Some(None));
        assert_eq!(claim(&mut directory, 1, key, 3 * DAY, 100), None);
        assert_eq!(directory.withdraw(b, key), Some(Change { key, from: Some(b), to: Some(a) }));
        // And back: the claim of `b` is followed at once, though its epoch is smaller.
        assert_eq!(claim(&mut directory, 2, key, 200, 200), Some(Some(a)));
        // Such epochs do not advance local epochs.
        assert_eq!(directory.claim_local((1, MAC), 150), 201);
        assert_eq!(directory.find((1, MAC)), Some(Place::Here));
    }

    #[test]
    fn directory_needs_a_repeat_when_a_missed_claim_has_room() {
        let mut directory = Directory::default();
        let key = |i: u32| (1, [2, 2, (i >> 24) as u8, (i >> 16) as u8, (i >> 8) as u8, i as u8]);
        for i in 0..DIRECTORY_MAX as u32 {
            claim(&mut directory, 1, key(i), 5, 5);
        }
        directory.withdraw(Place::Link(1), key(0));
        claim(&mut directory, 1, key(0), 5, 5);
        assert!(!directory.needs_repeat(), "nothing was missed");
        assert_eq!(claim(&mut directory, 2, (1, MAC), 5, 5), None);
        assert!(!directory.needs_repeat(), "there is no room");
        directory.withdraw(Place::Link(1), key(7));
        assert!(directory.needs_repeat() && !directory.needs_repeat(), "once");
        assert_eq!(claim(&mut directory, 2, (1, MAC), 5, 5), Some(None));
        // The same if more than CLAIMS_MAX places claim the address.
        for link in 3..=2 + CLAIMS_MAX as u32 {
            claim(&mut directory, link, (1, MAC), 5 + u64::from(link), 5);
        }
        assert!(!directory.needs_repeat());
        directory.withdraw(Place::Link(9), (1, MAC));
        assert!(directory.needs_repeat());
    }

    #[test]
    fn directory_distinguishes_links_with_large_numbers() {
        let mut directory = Directory::default();
        claim(&mut directory, 7, (1, MAC), 5, 5);
        assert_eq!(directory.withdraw(Place::Link(7 + (1 << 16)), (1, MAC)), None);
        assert_eq!(directory.find((1, MAC)), Some(Place::Link(7)));
    }
}
