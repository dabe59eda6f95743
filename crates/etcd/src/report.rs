//! Reports to the daemon: the hosts, addresses and policies of the site, and their differences.
//!
//! [`SiteState::of`] takes the state from the replica, and [`SiteState::updates`] returns the
//! updates that lead from the state that the daemon has to this one. An update has at most
//! [`UPDATE_HOSTS`] (4) hosts, [`UPDATE_POLICIES`] (8) policies or [`UPDATE_ENTRIES`] (128) other
//! entries, so that the daemon's limit of a request is kept. Policies come first: a new link then
//! carries no connect without the rules of the site. Pure; runs in the main thread.

use std::collections::BTreeMap;

use causeway_cluster::Replica;
use causeway_model::{ClusterAddress, ClusterHost, ClusterUpdate, Name, RemoteAddress, SitePolicy};

use crate::limits::{UPDATE_ENTRIES, UPDATE_HOSTS, UPDATE_POLICIES};

/// The state of the site, as the daemon gets it.
#[derive(Debug, Default)]
pub struct SiteState {
    hosts: BTreeMap<Name, ClusterHost>,
    addresses: BTreeMap<ClusterAddress, RemoteAddress>,
    policies: BTreeMap<Name, SitePolicy>,
}

/// Returns the new and changed values, and the keys of those that are gone.
fn difference<K: Ord + Clone, V: PartialEq + Clone>(
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> (Vec<V>, Vec<K>) {
    let new = now.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let gone = before.keys().filter(|key| !now.contains_key(*key));
    (new.map(|(_, value)| value.clone()).collect(), gone.cloned().collect())
}

impl SiteState {
    /// Returns the state of the site as the replica knows it.
    pub fn of(replica: &Replica) -> Self {
        let hosts = replica.hosts().into_iter().map(|host| (host.id.clone(), host));
        let addresses = replica.addresses().into_iter();
        let policies = replica.policies().into_iter();
        Self {
            hosts: hosts.collect(),
            addresses: addresses.map(|address| (address.at.clone(), address)).collect(),
            policies: policies.map(|policy| (policy.group.clone(), policy)).collect(),
        }
    }

    /// Returns the updates that lead from the state `before` to this one, at least one. `empty` is
    /// an update without entries; `is_whole` says that the daemon forgets everything else.
    pub fn updates(
        &self,
        before: &Self,
        empty: &ClusterUpdate,
        is_whole: bool,
    ) -> Vec<ClusterUpdate> {
        let (policies, no_policies) = difference(&before.policies, &self.policies);
        let (hosts, no_hosts) = difference(&before.hosts, &self.hosts);
        let (addresses, no_addresses) = difference(&before.addresses, &self.addresses);
        let mut updates = Vec::new();
        let mut add = |change: &dyn Fn(&mut ClusterUpdate)| {
            let mut update = empty.clone();
            change(&mut update);
            updates.push(update);
        };
        for policies in policies.chunks(UPDATE_POLICIES) {
            add(&|update| update.policies = policies.to_vec());
        }
        for removed in no_policies.chunks(UPDATE_ENTRIES) {
            add(&|update| update.removed_policies = removed.to_vec());
        }
        for hosts in hosts.chunks(UPDATE_HOSTS) {
            add(&|update| update.hosts = hosts.to_vec());
        }
        for addresses in addresses.chunks(UPDATE_ENTRIES) {
            add(&|update| update.addresses = addresses.to_vec());
        }
        for removed in no_addresses.chunks(UPDATE_ENTRIES) {
            add(&|update| update.removed_addresses = removed.to_vec());
        }
        for removed in no_hosts.chunks(UPDATE_ENTRIES) {
            add(&|update| update.removed_hosts = removed.to_vec());
        }
        if updates.is_empty() {
            updates.push(empty.clone());
        }
        if let Some(first) = updates.first_mut() {
            first.begin = is_whole;
        }
        if let Some(last) = updates.last_mut() {
            last.end = is_whole;
        }
        updates
    }
}

#[cfg(test)]
mod tests {
    use causeway_model::{AddressKind, ClusterStatus, ClusterTunnel};

    use super::*;

    /// Returns a state with this number of addresses.
    fn state(addresses: u32) -> SiteState {
        let address = |number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            let at = ClusterAddress {
                kind: AddressKind::Mac,
                group: "blue".parse().unwrap(),
                address: format!("52:54:00:00:{high:02x}:{low:02x}"),
            };
            (at.clone(), RemoteAddress { at, host: "h2".parse().unwrap(), epoch: 1 })
        };
        SiteState { addresses: (0..addresses).map(address).collect(), ..SiteState::default() }
    }

    #[test]
    fn updates_have_the_difference_in_bounded_parts() {
        let empty = ClusterUpdate {
            site: "lab".parse().unwrap(),
            host: "h1".parse().unwrap(),
            instance: 1,
            tunnel: ClusterTunnel {
                local: "127.0.0.1:1".parse().unwrap(),
                private_key: "/key".into(),
                idle: 0,
            },
            begin: false,
            end: false,
            hosts: Vec::new(),
            removed_hosts: Vec::new(),
            addresses: Vec::new(),
            removed_addresses: Vec::new(),
            policies: Vec::new(),
            removed_policies: Vec::new(),
            has_policies: true,
            status: ClusterStatus::default(),
        };
        let most = UPDATE_ENTRIES as u32;
        let whole = state(most + 1).updates(&SiteState::default(), &empty, true);
        let sizes: Vec<usize> = whole.iter().map(|update| update.addresses.len()).collect();
        assert_eq!(sizes, [UPDATE_ENTRIES, 1]);
        let ends: Vec<_> = whole.iter().map(|update| (update.begin, update.end)).collect();
        assert_eq!(ends, [(true, false), (false, true)]);
        let less = state(most).updates(&state(most + 1), &empty, false);
        assert_eq!((less.len(), less[0].removed_addresses.len()), (1, 1));
        let same = state(1).updates(&state(1), &empty, false);
        assert_eq!(same, std::slice::from_ref(&empty));
        let nothing = ClusterUpdate { begin: true, end: true, ..empty.clone() };
        assert_eq!(state(0).updates(&SiteState::default(), &empty, true), [nothing]);
    }
}
