//! The copy of a site's directory in one host, and the rules by which records of etcd change it.
//!
//! Records of hosts and claims are accepted with a valid signature only; groups and evictions have
//! none. An event may arrive late, twice or never: an event of a key that is not newer than the
//! known revision of the key, or than the last list, is ignored. [`Replica::apply`] takes events of
//! a watch, [`Replica::list`] the whole content at one revision.
//!
//! | event | effect |
//! |---|---|
//! | record of a host | accepted with its own signature and an epoch that is not older, nor more than a day ahead |
//! | record of a host with another signing key than before | refused, and alarmed, until an eviction |
//! | record of a host with the key of tunnels of another host | refused, and alarmed; the own record is accepted, and alarmed |
//! | lease of a host lapses | the host is *unseen*; its claims and links stay |
//! | claim | accepted with the signature of the host's key, and an epoch newer than the accepted claim; of equal epochs, that of the host with the larger name |
//! | claim of a host without a record | waits for the record |
//! | signed withdrawal | the address has no owner |
//! | deletion of a claim, or a refused record in its place | the claim stays, *missing*, until its host claims anew; collected after 1 h, except own claims |
//! | deletion of a withdrawal | the address is forgotten |
//! | record of a group with rules of another group, or too many | refused: the accepted record stays, with its rules and its forwarding |
//! | deletion of a group | the group is no longer shared, and has no rules and no forwarding of the site |
//! | deletion of an eviction | the caller must list anew: refused records may be accepted |
//! | eviction of a host | its record and claims are forgotten, and refused |
//! | more than 20 % of the records gone in one step, and at least 5; all groups; everything | removals are held, and alarmed |
//!
//! While removals are held, deleted groups and evictions stay in force, and no claim is collected.
//! A deletion of an eviction in that time takes effect with the next list after it. A refused
//! record is counted and replaces no accepted record. The type performs no I/O and reads no clock:
//! `wall` is the time of day in ns since 1970. Runs in the caller's thread.

use std::collections::{BTreeMap, BTreeSet};

use causeway_model::{ClusterAddress, Name};

use crate::key::{RecordKey, is_of_operators};
use crate::limits::{
    BRAKE_PERCENT, BRAKE_RECORDS_MIN, CLAIMS_MAX, EPOCH_AHEAD_NS, GROUPS_MAX, HOST_CLAIMS_MAX,
    HOSTS_MAX, MISSING_KEPT_NS, WAITING_MAX,
};
use crate::record::{ClaimRecord, EvictionRecord, GroupRecord, HostRecord};
use crate::refusal::{HostConflict, RecordRefusal};
use crate::sign::VerifyingKey;

mod views;

/// A change of a key in etcd, or a key of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEvent {
    /// The key.
    pub key: Vec<u8>,
    /// The value; `None` if the key was deleted.
    pub value: Option<Vec<u8>>,
    /// The revision of the change.
    pub revision: u64,
}

/// A host of the site.
#[derive(Debug, Clone)]
struct Host {
    record: HostRecord,
    seen: bool,
}

/// An accepted claim.
#[derive(Debug, Clone)]
struct Claim {
    record: ClaimRecord,
    /// When etcd lost the record.
    missing_since: Option<u64>,
}

/// The content of a key in etcd, since the last list.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// Revision of the last change.
    revision: u64,
    /// Whether the key exists.
    exists: bool,
    /// Whether the value is the accepted record.
    accepted: bool,
}

/// The directory of a site as one host knows it.
#[derive(Debug)]
pub struct Replica {
    site: Name,
    own: (Name, VerifyingKey),
    hosts: BTreeMap<Name, Host>,
    /// Hosts with a record that conflicts, at most [`HOSTS_MAX`].
    conflicts: BTreeMap<Name, HostConflict>,
    evicted: BTreeMap<Name, EvictionRecord>,
    /// Groups with a refused record in etcd, at most [`GROUPS_MAX`].
    refused_groups: BTreeMap<Name, RecordRefusal>,
    groups: BTreeMap<Name, GroupRecord>,
    claims: BTreeMap<ClusterAddress, Claim>,
    /// Number of claims of each host.
    claim_counts: BTreeMap<Name, usize>,
    /// Claims of hosts without a record.
    waiting: BTreeMap<ClusterAddress, (ClaimRecord, u64)>,
    stored: BTreeMap<RecordKey, Stored>,
    /// Deleted keys in `stored`, by the revision of the deletion.
    deleted: BTreeSet<(u64, RecordKey)>,
    /// Groups that were deleted while removals are held.
    held_groups: BTreeSet<Name>,
    /// Hosts with an eviction that was deleted while removals are held.
    held_evictions: BTreeSet<Name>,
    /// Records that disappeared in the held step, and records before it.
    brake: Option<(usize, usize)>,
    revision: u64,
    /// Revision of the last list: earlier events are part of it.
    floor: u64,
    generation: u64,
    counters: BTreeMap<&'static str, u64>,
    has_clone: bool,
    /// Refused records may be accepted now.
    must_list: bool,
}

impl Replica {
    /// Returns an empty replica for a host of a site, with the host's key of signatures.
    pub fn new(site: Name, host: Name, key: VerifyingKey) -> Self {
        let mut counters: BTreeMap<_, _> =
            RecordRefusal::ALL.iter().map(|refusal| (refusal.counter(), 0)).collect();
        for name in ["claims_refused_total", "claims_lost_total", "removals_held_total"] {
            counters.insert(name, 0);
        }
        Self {
            site,
            own: (host, key),
            hosts: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            evicted: BTreeMap::new(),
            refused_groups: BTreeMap::new(),
            groups: BTreeMap::new(),
            claims: BTreeMap::new(),
            claim_counts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stored: BTreeMap::new(),
            deleted: BTreeSet::new(),
            held_groups: BTreeSet::new(),
            held_evictions: BTreeSet::new(),
            brake: None,
            revision: 0,
            floor: 0,
            generation: 0,
            counters,
            has_clone: false,
            must_list: false,
        }
    }

    /// Applies events of a watch, in the order of their arrival; `revision` is that of etcd. Also
    /// applies the outcome of an own write, with the revision that is known.
    pub fn apply(&mut self, events: &[KeyEvent], revision: u64, wall: u64) {
        let floor = self.floor;
        let deletions = events.iter().filter(|event| event.value.is_none());
        let lost: BTreeSet<RecordKey> = deletions
            .filter_map(|event| RecordKey::parse(&self.site, &event.key).ok())
            .filter(|key| self.is_present(key))
            .collect();
        self.engage_brake(&lost, false);
        for event in events.iter().filter(|event| event.revision > floor) {
            self.event(event, wall);
        }
        self.revision = self.revision.max(revision);
        self.forget_deleted();
        self.release_if_restored();
    }

    /// Forgets deleted keys up to the revision of the watch, which delivers no earlier events of them.
    fn forget_deleted(&mut self) {
        let watched = self.revision;
        while self.deleted.first().is_some_and(|(revision, _)| *revision <= watched)
            && let Some((revision, key)) = self.deleted.pop_first()
        {
            if self.stored.get(&key).is_some_and(|s| !s.exists && s.revision == revision) {
                self.stored.remove(&key);
            }
        }
    }

    /// Replaces the knowledge of etcd by its content at one revision: a key that is not listed was
    /// deleted. The list is authoritative, also if its revision is older than known ones (etcd was
    /// restored from a backup).
    pub fn list(&mut self, items: &[KeyEvent], revision: u64, wall: u64) {
        let parse = |item: &KeyEvent| RecordKey::parse(&self.site, &item.key).ok();
        let listed: BTreeSet<RecordKey> = items.iter().filter_map(parse).collect();
        let lost: BTreeSet<RecordKey> =
            self.present().into_iter().filter(|key| !listed.contains(key)).collect();
        self.engage_brake(&lost, listed.is_empty());
        self.stored.clear();
        self.deleted.clear();
        self.conflicts.clear();
        self.refused_groups.clear();
        for key in lost {
            self.delete(&key, wall);
        }
        // Hosts first: claims are verified by their keys.
        let (hosts, others): (Vec<_>, Vec<_>) = items.iter().partition(|item| {
            let key = RecordKey::parse(&self.site, &item.key);
            matches!(key, Ok(RecordKey::Host(_) | RecordKey::Evicted(_)))
        });
        for item in hosts.into_iter().chain(others) {
            self.event(item, wall);
        }
        (self.revision, self.floor, self.must_list) = (revision, revision, false);
        self.release_if_restored();
    }

    /// Collects claims that are missing in etcd for longer than [`MISSING_KEPT_NS`] (1 h): the key
    /// does not exist, or has a refused record. The own claims stay, and all claims while removals
    /// are held. Returns whether the caller must list anew: a refused record may be accepted now,
    /// also after the end of an eviction.
    pub fn collect(&mut self, wall: u64) -> bool {
        let must_list = std::mem::take(&mut self.must_list);
        if self.brake.is_some() {
            return must_list;
        }
        let own = &self.own.0;
        let before = self.claims.len();
        self.claims.retain(|_, claim| {
            let since = claim.missing_since.filter(|_| claim.record.host != *own);
            since.is_none_or(|since| wall.saturating_sub(since) < MISSING_KEPT_NS)
        });
        let has_collected = self.claims.len() != before;
        if has_collected {
            self.count_claims();
            self.bump();
        }
        has_collected || must_list
    }

    /// Ends the hold, and removes the held groups: an operator confirmed them, or the records are
    /// back. Without a hold nothing happens.
    pub fn release(&mut self) {
        if self.brake.take().is_some() {
            for group in std::mem::take(&mut self.held_groups) {
                self.groups.remove(&group);
            }
            for host in std::mem::take(&mut self.held_evictions) {
                self.end_eviction(&host);
            }
            self.bump();
        }
    }

    /// Forgets the state of leases and the revisions: the content comes from a file, and etcd may
    /// have changed since.
    pub fn forget_revisions(&mut self) {
        self.stored.clear();
        self.deleted.clear();
        (self.revision, self.floor) = (0, 0);
        self.hosts.values_mut().for_each(|host| host.seen = false);
        self.bump();
    }

    /// Returns the keys of records that exist in etcd, as far as is known.
    fn present(&self) -> Vec<RecordKey> {
        let hosts = self.hosts.iter().filter(|(_, host)| host.seen);
        let claims = self.claims.iter().filter(|(_, claim)| claim.missing_since.is_none());
        let groups = self.groups.keys().filter(|group| !self.held_groups.contains(*group));
        let evicted = self.evicted.keys().filter(|host| !self.held_evictions.contains(*host));
        hosts
            .map(|(id, _)| RecordKey::Host(id.clone()))
            .chain(evicted.cloned().map(RecordKey::Evicted))
            .chain(groups.cloned().map(RecordKey::Group))
            .chain(claims.map(|(at, _)| RecordKey::Claim(at.clone())))
            .collect()
    }

    fn is_present(&self, key: &RecordKey) -> bool {
        match key {
            RecordKey::Host(id) => self.hosts.get(id).is_some_and(|host| host.seen),
            RecordKey::Evicted(id) => {
                self.evicted.contains_key(id) && !self.held_evictions.contains(id)
            }
            RecordKey::Group(name) => {
                self.groups.contains_key(name) && !self.held_groups.contains(name)
            }
            RecordKey::Claim(at) => {
                let claim = self.claims.get(at);
                claim.is_some_and(|claim| claim.missing_since.is_none() && !claim.record.gone)
            }
        }
    }

    /// Holds removals if more records disappear in one step than the limits permit, if every group
    /// disappears, or if nothing is left: in a small site a wipe has fewer records than the limit.
    fn engage_brake(&mut self, lost: &BTreeSet<RecordKey>, is_empty: bool) {
        if lost.is_empty() {
            return;
        }
        let is_group = |key: &&RecordKey| matches!(key, RecordKey::Group(_));
        let lost_groups = lost.iter().filter(is_group).count();
        let groups = self.groups.len().saturating_sub(self.held_groups.len());
        let is_wipe = is_empty || lost_groups > 0 && lost_groups == groups;
        let (lost, all) = (lost.len(), self.present().len());
        let is_large = lost >= BRAKE_RECORDS_MIN
            && lost.saturating_mul(100) > all.saturating_mul(BRAKE_PERCENT);
        if is_wipe || is_large {
            self.brake = Some((lost, all));
            self.count("removals_held_total");
            self.bump();
        }
    }

    /// Ends the hold when the records are back: all groups, and most claims. Hosts claim anew by
    /// themselves, but only an operator shares groups again, and their loss deletes all links.
    fn release_if_restored(&mut self) {
        if self.brake.is_none() || !self.held_groups.is_empty() {
            return;
        }
        let missing = self.claims.values().filter(|claim| claim.missing_since.is_some()).count();
        let all = self.claims.len().saturating_add(self.groups.len());
        if missing.saturating_mul(100) <= all.saturating_mul(BRAKE_PERCENT) {
            self.release();
        }
    }

    fn event(&mut self, event: &KeyEvent, wall: u64) {
        let Ok(key) = RecordKey::parse(&self.site, &event.key) else {
            if is_of_operators(&self.site, &event.key) {
                return;
            }
            return self.count(RecordRefusal::Malformed.counter());
        };
        if self.stored.get(&key).is_some_and(|stored| stored.revision >= event.revision) {
            return;
        }
        let accepted = match &event.value {
            None => {
                self.delete(&key, wall);
                true
            }
            Some(value) => match self.put(&key, value, event.revision, wall) {
                Ok(is_accepted) => is_accepted,
                Err(refusal) => {
                    self.refuse(&key, refusal, wall);
                    false
                }
            },
        };
        let stored = Stored { revision: event.revision, exists: event.value.is_some(), accepted };
        if !stored.exists {
            self.deleted.insert((event.revision, key.clone()));
        }
        self.stored.insert(key, stored);
    }

    /// Takes a record. Returns false for a claim that waits for its host.
    fn put(
        &mut self,
        key: &RecordKey,
        value: &[u8],
        revision: u64,
        wall: u64,
    ) -> Result<bool, RecordRefusal> {
        match key {
            RecordKey::Host(id) => self.put_host(id, HostRecord::read(value)?, wall)?,
            RecordKey::Evicted(id) => {
                let record = EvictionRecord::read(value)?;
                if !self.evicted.contains_key(id) && self.evicted.len() >= HOSTS_MAX {
                    return Err(RecordRefusal::Full);
                }
                self.held_evictions.remove(id);
                self.evicted.insert(id.clone(), record);
                self.conflicts.remove(id);
                // A host that is admitted again may have a new key.
                self.hosts.remove(id);
                self.claims.retain(|_, claim| claim.record.host != *id);
                self.claim_counts.remove(id);
                self.bump();
            }
            RecordKey::Group(name) => self.put_group(name, GroupRecord::read(value)?)?,
            RecordKey::Claim(at) => {
                return self.put_claim(at, ClaimRecord::read(value)?, revision, wall);
            }
        }
        Ok(true)
    }

    fn put_host(&mut self, id: &Name, record: HostRecord, wall: u64) -> Result<(), RecordRefusal> {
        if self.evicted.contains_key(id) {
            return Err(RecordRefusal::Evicted);
        }
        if !record.verify(&self.site, id) {
            return Err(RecordRefusal::Signature);
        }
        let is_own = *id == self.own.0;
        if is_own {
            self.has_clone = record.signing_key != self.own.1;
            if self.has_clone {
                return Err(RecordRefusal::Conflict);
            }
        }
        let newest = wall.saturating_add(EPOCH_AHEAD_NS);
        if record.epoch > newest {
            return Err(RecordRefusal::Future);
        }
        match self.hosts.get(id).map(|known| &known.record) {
            // A record that was accepted while the clock was ahead is replaced by any other.
            Some(known) if known.epoch > record.epoch && known.epoch <= newest => {
                return Err(RecordRefusal::Older);
            }
            None if self.hosts.len() >= HOSTS_MAX && !is_own => return Err(RecordRefusal::Full),
            _ => {}
        }
        self.check_keys(id, &record)?;
        let is_same = |known: &Host| known.seen && known.record == record;
        if !self.hosts.get(id).is_some_and(is_same) {
            self.hosts.insert(id.clone(), Host { record, seen: true });
            self.bump();
        }
        let of_host = self.waiting.iter().filter(|(_, (claim, _))| claim.host == *id);
        let of_host: Vec<ClusterAddress> = of_host.map(|(at, _)| at.clone()).collect();
        for at in of_host {
            let Some((claim, revision)) = self.waiting.remove(&at) else { continue };
            let result = self.put_claim(&at, claim, revision, wall);
            let key = RecordKey::Claim(at);
            if let Err(refusal) = result {
                self.refuse(&key, refusal, wall);
            } else if let Some(stored) =
                self.stored.get_mut(&key).filter(|stored| stored.revision == revision)
            {
                stored.accepted = true;
            }
        }
        Ok(())
    }

    /// Refuses a host's record with keys that conflict. The first signing key of a host holds until
    /// the host is evicted: a record is signed by its own key, so its author is not proven. Two
    /// hosts with one key of tunnels cannot both be reached: frames for the second go to the first,
    /// which is kept. The own record is accepted, with the alarm.
    fn check_keys(&mut self, id: &Name, record: &HostRecord) -> Result<(), RecordRefusal> {
        let mut others = self.hosts.iter().filter(|(other, _)| *other != id);
        let is_other = |known: &Host| known.record.signing_key != record.signing_key;
        let conflict = if self.hosts.get(id).is_some_and(is_other) {
            Some(HostConflict::SigningKey)
        } else {
            others
                .find(|(_, other)| other.record.key == record.key)
                .map(|(other, _)| HostConflict::TunnelKey(other.clone()))
        };
        let Some(conflict) = conflict else {
            self.conflicts.remove(id);
            return Ok(());
        };
        if self.conflicts.len() < HOSTS_MAX || self.conflicts.contains_key(id) {
            self.conflicts.insert(id.clone(), conflict);
        }
        if *id == self.own.0 { Ok(()) } else { Err(RecordRefusal::Conflict) }
    }

    fn put_group(&mut self, name: &Name, record: GroupRecord) -> Result<(), RecordRefusal> {
        record.policy(name).check()?;
        let mut others = self.groups.iter().filter(|(other, _)| *other != name);
        if others.any(|(_, other)| other.vni == record.vni) {
            return Err(RecordRefusal::Conflict);
        }
        if !self.groups.contains_key(name) && self.groups.len() >= GROUPS_MAX {
            return Err(RecordRefusal::Full);
        }
        self.held_groups.remove(name);
        self.refused_groups.remove(name);
        if self.groups.get(name) != Some(&record) {
            self.groups.insert(name.clone(), record);
            self.bump();
        }
        Ok(())
    }

    fn put_claim(
        &mut self,
        at: &ClusterAddress,
        record: ClaimRecord,
        revision: u64,
        wall: u64,
    ) -> Result<bool, RecordRefusal> {
        if self.evicted.contains_key(&record.host) {
            return Err(RecordRefusal::Evicted);
        }
        let key = if record.host == self.own.0 {
            self.own.1
        } else {
            match self.hosts.get(&record.host) {
                Some(host) => host.record.signing_key,
                None if self.waiting.len() >= WAITING_MAX => return Err(RecordRefusal::Full),
                None => {
                    if let Some(claim) = self.claims.get_mut(at) {
                        claim.missing_since.get_or_insert(wall);
                    }
                    self.waiting.insert(at.clone(), (record, revision));
                    return Ok(false);
                }
            }
        };
        if !record.verify(&self.site, at, &key) {
            return Err(RecordRefusal::Signature);
        }
        if record.epoch > wall.saturating_add(EPOCH_AHEAD_NS) {
            return Err(RecordRefusal::Future);
        }
        let count = self.claim_counts.get(&record.host).copied().unwrap_or(0);
        let is_own = record.host == self.own.0;
        let has_most = !is_own && count >= HOST_CLAIMS_MAX;
        let is_full = has_most || !is_own && self.claims.len() >= CLAIMS_MAX;
        match self.claims.get_mut(at) {
            Some(known) if !replaces(&record, &known.record) => return Err(RecordRefusal::Older),
            Some(known) if known.record == record => {
                known.missing_since = None;
            }
            Some(known) if known.record.host != record.host && has_most => {
                return Err(RecordRefusal::Full);
            }
            None if is_full => return Err(RecordRefusal::Full),
            _ => {
                let count = self.claim_counts.entry(record.host.clone()).or_default();
                *count = count.saturating_add(1);
                let claim = Claim { record, missing_since: None };
                if let Some(old) = self.claims.insert(at.clone(), claim) {
                    self.uncount_claim(&old.record.host);
                }
                self.bump();
            }
        }
        Ok(true)
    }

    fn count_claims(&mut self) {
        self.claim_counts.clear();
        for claim in self.claims.values() {
            let count = self.claim_counts.entry(claim.record.host.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }

    fn uncount_claim(&mut self, host: &Name) {
        if let Some(count) = self.claim_counts.get_mut(host) {
            *count = count.saturating_sub(1);
        }
    }

    fn delete(&mut self, key: &RecordKey, wall: u64) {
        match key {
            RecordKey::Host(id) => {
                self.conflicts.remove(id);
                if let Some(host) = self.hosts.get_mut(id)
                    && std::mem::replace(&mut host.seen, false)
                {
                    self.bump();
                }
            }
            RecordKey::Evicted(id) => {
                if self.brake.is_none() {
                    self.end_eviction(id);
                } else if self.evicted.contains_key(id) {
                    self.held_evictions.insert(id.clone());
                }
            }
            RecordKey::Group(name) => {
                self.refused_groups.remove(name);
                if self.brake.is_some() {
                    if self.groups.contains_key(name) {
                        self.held_groups.insert(name.clone());
                    }
                } else if self.groups.remove(name).is_some() {
                    self.bump();
                }
            }
            RecordKey::Claim(at) => {
                self.waiting.remove(at);
                match self.claims.get_mut(at) {
                    Some(claim) if claim.record.gone => {
                        if let Some(old) = self.claims.remove(at) {
                            self.uncount_claim(&old.record.host);
                        }
                    }
                    Some(claim) => {
                        claim.missing_since.get_or_insert(wall);
                    }
                    None => {}
                }
            }
        }
    }

    fn end_eviction(&mut self, host: &Name) {
        if self.evicted.remove(host).is_some() {
            // The host's record and claims were refused.
            self.must_list = true;
            self.bump();
        }
    }

    fn refuse(&mut self, key: &RecordKey, refusal: RecordRefusal, wall: u64) {
        self.count(refusal.counter());
        if let RecordKey::Group(name) = key
            && self.refused_groups.len() < GROUPS_MAX
        {
            self.refused_groups.insert(name.clone(), refusal);
        }
        if let RecordKey::Claim(at) = key {
            self.count("claims_refused_total");
            if let Some(claim) = self.claims.get_mut(at) {
                claim.missing_since.get_or_insert(wall);
            }
        }
    }

    /// Counts an event.
    pub(crate) fn count(&mut self, counter: &'static str) {
        let counter = self.counters.entry(counter).or_default();
        *counter = counter.saturating_add(1);
    }

    fn bump(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Returns the name of this host.
    pub fn own(&self) -> &Name {
        &self.own.0
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &Name {
        &self.site
    }

    /// Returns the last revision of etcd that a list or a watch reported; 0 before the first.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns a number that changes with [`Self::hosts`], [`Self::addresses`] and
    /// [`Self::policies`], and with a hold.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the counters by name.
    pub const fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// Returns the reason of the first alarm; `None` without one. The order: another host with this
    /// host's name, the own eviction, a hold, a conflict of keys, a refused record of a group.
    pub fn alarm(&self) -> Option<String> {
        if self.has_clone {
            return Some(format!(
                "another host uses the name {} with another key: give one of them another name, \
                 or remove its key",
                self.own.0
            ));
        }
        if self.is_evicted() {
            return Some(format!(
                "host {} is evicted from the site: its claims are refused (`causeway-directory \
                 readmit {}` ends it)",
                self.own.0, self.own.0
            ));
        }
        if let Some((lost, all)) = self.brake {
            return Some(format!(
                "{lost} of {all} records disappeared from etcd in one step: removals are held \
                 until the records are back, or `causeway-directory release` confirms the removals"
            ));
        }
        if let Some((id, conflict)) = self.conflicts.first_key_value() {
            return Some(conflict.alarm(id));
        }
        let (group, refusal) = self.refused_groups.first_key_value()?;
        Some(refusal.group_alarm(group))
    }

    /// Returns whether removals are held.
    pub const fn is_held(&self) -> bool {
        self.brake.is_some()
    }

    /// Returns the epoch for a new record of this host: the time of day, and newer than the record
    /// that is known. A known epoch more than a day ahead does not count: other hosts refused it.
    pub fn next_epoch(&self, wall: u64) -> u64 {
        let known = self.own_record().map(|record| record.epoch);
        let known = known.filter(|epoch| *epoch < wall.saturating_add(EPOCH_AHEAD_NS));
        known.map_or(wall, |epoch| wall.max(epoch.saturating_add(1)))
    }

    /// Returns the accepted record of this host.
    pub fn own_record(&self) -> Option<&HostRecord> {
        self.hosts.get(&self.own.0).map(|host| &host.record)
    }

    /// Returns whether the record of this host is in etcd.
    pub fn is_own_seen(&self) -> bool {
        self.hosts.get(&self.own.0).is_some_and(|host| host.seen)
    }

    /// Returns whether this host is evicted.
    pub fn is_evicted(&self) -> bool {
        self.evicted.contains_key(&self.own.0)
    }

    /// Returns the evicted hosts, by name.
    pub fn evicted(&self) -> impl Iterator<Item = &Name> {
        self.evicted.keys()
    }

    /// Returns whether a group is shared in the site.
    pub fn has_group(&self, group: &Name) -> bool {
        self.groups.contains_key(group)
    }

    /// Returns the accepted claim on an address, withdrawn or not.
    pub fn claim(&self, at: &ClusterAddress) -> Option<&ClaimRecord> {
        self.claims.get(at).map(|claim| &claim.record)
    }

    /// Returns the addresses with an accepted claim of this host, withdrawn or not.
    pub fn own_claims(&self) -> impl Iterator<Item = &ClusterAddress> {
        let own = self.claims.iter().filter(|(_, claim)| claim.record.host == self.own.0);
        own.map(|(at, _)| at)
    }

    /// Returns the revision of a claim's key in etcd, 0 if the key does not exist, and whether the
    /// value there is the accepted claim.
    pub fn stored(&self, at: &ClusterAddress) -> (u64, bool) {
        let stored = self.stored.get(&RecordKey::Claim(at.clone()));
        let stored = stored.filter(|stored| stored.exists);
        stored.map_or((0, false), |stored| (stored.revision, stored.accepted))
    }
}

/// Returns whether a claim replaces the accepted claim: it is newer, or its host repeats or
/// withdraws it. Of two claims with one epoch, that of the host with the larger name wins.
fn replaces(new: &ClaimRecord, known: &ClaimRecord) -> bool {
    if new.host == known.host && new.epoch == known.epoch {
        return new.gone || !known.gone;
    }
    (new.epoch, &new.host) > (known.epoch, &known.host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::SigningKey;

    #[test]
    fn replica_forgets_deleted_keys_that_the_watch_has_delivered() {
        let key = SigningKey::new([7; 32]).unwrap().public();
        let mut replica = Replica::new("lab".parse().unwrap(), "h1".parse().unwrap(), key);
        for number in 0..1_000_u64 {
            let at = format!("/causeway/v1/lab/mac/blue/52:54:00:00:{:02x}:01", number % 256);
            let (put, gone) = (number * 2 + 1, number * 2 + 2);
            let event = |value, revision| KeyEvent { key: at.clone().into(), value, revision };
            replica.apply(&[event(Some(Vec::new()), put)], put, 0);
            assert_eq!(replica.stored.len(), 1);
            // The answer to an own write comes before the watch.
            replica.apply(&[event(None, gone)], put, 0);
            assert_eq!((replica.stored.len(), replica.deleted.len()), (1, 1));
            replica.apply(&[], gone, 0);
            assert_eq!((replica.stored.len(), replica.deleted.len()), (0, 0));
        }
    }
}
