//! Assignments: addresses that a verified claim gives to a host.
//!
//! A claim of a tunnel is as trustworthy as its peer. An *assignment* is a claim that the caller has
//! verified, for example by the signature of a host of the cluster. While an address is assigned,
//! no place outside of the assignment is followed, whatever epoch it claims: its claims are kept, and
//! are followed when the assignment ends. An own port with a newer epoch is followed before.
//!
//! The host that has the address may be behind several links: the first place is that of the
//! assignment, and the others are followed only if it is unreachable and they claim the address. The
//! host itself may give the address up before the caller learns it: a withdrawal of one of the
//! places *releases* the assignment, and a new claim of one of them restores it.
//!
//! `crate::table` asks for the owner; the module keeps no claims, reads no clock and verifies
//! nothing. The caller bounds the number of assignments. Runs in the thread of the caller.

use std::collections::BTreeMap;

use crate::Place;
use crate::claims::{ClaimOwner, Claims};

/// An address that a verified claim gives to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Assignment {
    /// Epoch of the claim.
    epoch: u64,
    place: Place,
    /// Further places of the same host.
    others: Vec<Place>,
    /// The host withdrew the address.
    is_released: bool,
}

impl Assignment {
    fn has(&self, place: Place) -> bool {
        self.place == place || self.others.contains(&place)
    }
}

/// The assignments of a directory.
#[derive(Debug)]
pub(crate) struct Assignments<K>(BTreeMap<K, Assignment>);

impl<K> Default for Assignments<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Copy + Ord> Assignments<K> {
    /// Assigns an address. A repeated assignment stays released.
    pub fn put(&mut self, key: K, epoch: u64, place: Place, others: &[Place]) {
        let known = self.0.get(&key).filter(|known| (known.epoch, known.place) == (epoch, place));
        let is_released = known.is_some_and(|known| known.is_released);
        let others = others.iter().copied().filter(|other| *other != place).collect();
        self.0.insert(key, Assignment { epoch, place, others, is_released });
    }

    /// Ends the assignment of an address to a place, unless its epoch is larger than `epoch`.
    pub fn end(&mut self, key: K, place: Place, epoch: u64) {
        if self.0.get(&key).is_some_and(|known| known.place == place && known.epoch <= epoch) {
            self.0.remove(&key);
        }
    }

    /// Notes that a place claims or withdraws an address.
    pub fn note(&mut self, key: K, place: Place, is_claimed: bool) {
        if let Some(known) = self.0.get_mut(&key).filter(|known| known.has(place)) {
            known.is_released = !is_claimed;
        }
    }

    /// Ends all assignments to a place that is removed.
    pub fn remove_place(&mut self, place: Place) {
        self.0.retain(|_, known| known.place != place);
        for known in self.0.values_mut() {
            known.others.retain(|other| *other != place);
        }
    }

    /// Returns the assignment of an address that is not released.
    fn get(&self, key: K) -> Option<&Assignment> {
        self.0.get(&key).filter(|known| !known.is_released)
    }

    /// Returns the owner by the assignment, with the claims on the address; `None` without an
    /// assignment.
    pub fn owner(
        &self,
        key: K,
        claims: Option<&Claims>,
        unreachable: impl Fn(Place) -> bool,
    ) -> Option<ClaimOwner> {
        let known = self.get(key)?;
        let epoch_of = |place| claims.and_then(|claims| claims.epoch_of(place));
        if let Some(here) = epoch_of(Place::Here).filter(|here| *here > known.epoch) {
            return Some((here, Place::Here));
        }
        let mut others = known.others.iter().filter(|_| unreachable(known.place));
        let other = others.find(|other| !unreachable(**other) && epoch_of(**other).is_some());
        Some((known.epoch, other.copied().unwrap_or(known.place)))
    }

    /// Returns whether an address is assigned to a place; `None` without an assignment.
    pub fn is_at(&self, key: K, place: Place) -> Option<bool> {
        self.get(key).map(|known| known.has(place))
    }

    /// Returns the addresses that are assigned to a place.
    pub fn of_place(&self, place: Place) -> impl Iterator<Item = K> + '_ {
        self.0.iter().filter(move |(_, known)| known.has(place)).map(|(key, _)| *key)
    }

    /// Returns all assigned addresses.
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.0.keys().copied()
    }
}
