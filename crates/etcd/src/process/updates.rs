//! What the daemon knows of the site, and the updates that change it.
//!
//! The main thread keeps the [`SiteState`] that it sent, and sends the difference to that of the
//! replica, in updates of few entries: the daemon applies each under a lock. The module is pure.

use std::collections::BTreeMap;

use causeway_cluster::Replica;
use causeway_model::{ClusterAddress, ClusterHost, ClusterUpdate, Name, RemoteAddress};

use crate::limits::{UPDATE_ENTRIES, UPDATE_HOSTS};

/// Hosts and addresses of the site.
#[derive(Debug, Default)]
pub(super) struct SiteState {
    hosts: BTreeMap<Name, ClusterHost>,
    addresses: BTreeMap<ClusterAddress, RemoteAddress>,
}

impl SiteState {
    /// Returns the state of a replica.
    pub fn of(replica: &Replica) -> Self {
        let (hosts, addresses) = (replica.hosts(), replica.addresses());
        Self {
            hosts: hosts.into_iter().map(|host| (host.id.clone(), host)).collect(),
            addresses: addresses.into_iter().map(|known| (known.at.clone(), known)).collect(),
        }
    }

    /// Returns the updates from the state that the daemon has to this one, at least one. `empty` is
    /// an update without entries. For the whole state, `from` is the default, and the daemon removes
    /// what the updates do not name.
    pub fn updates(
        &self,
        from: &Self,
        is_whole: bool,
        empty: &ClusterUpdate,
    ) -> Vec<ClusterUpdate> {
        let hosts = self.hosts.iter().filter(|(id, host)| from.hosts.get(*id) != Some(host));
        let hosts: Vec<ClusterHost> = hosts.map(|(_, host)| host.clone()).collect();
        let new = self.addresses.iter().filter(|(at, now)| from.addresses.get(*at) != Some(now));
        let new: Vec<RemoteAddress> = new.map(|(_, address)| address.clone()).collect();
        let gone_hosts = from.hosts.keys().filter(|id| !self.hosts.contains_key(*id));
        let gone_hosts: Vec<Name> = gone_hosts.cloned().collect();
        let gone = from.addresses.keys().filter(|at| !self.addresses.contains_key(*at));
        let gone: Vec<ClusterAddress> = gone.cloned().collect();
        let mut updates = Vec::new();
        for hosts in hosts.chunks(UPDATE_HOSTS) {
            updates.push(ClusterUpdate { hosts: hosts.to_vec(), ..empty.clone() });
        }
        for addresses in new.chunks(UPDATE_ENTRIES) {
            updates.push(ClusterUpdate { addresses: addresses.to_vec(), ..empty.clone() });
        }
        for removed in gone.chunks(UPDATE_ENTRIES) {
            updates.push(ClusterUpdate { removed_addresses: removed.to_vec(), ..empty.clone() });
        }
        for removed in gone_hosts.chunks(UPDATE_ENTRIES) {
            updates.push(ClusterUpdate { removed_hosts: removed.to_vec(), ..empty.clone() });
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
        SiteState { hosts: BTreeMap::new(), addresses: (0..addresses).map(address).collect() }
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
            status: ClusterStatus::default(),
        };
        let most = UPDATE_ENTRIES as u32;
        let whole = state(most + 1).updates(&SiteState::default(), true, &empty);
        let sizes: Vec<usize> = whole.iter().map(|update| update.addresses.len()).collect();
        assert_eq!(sizes, [UPDATE_ENTRIES, 1]);
        let ends: Vec<_> = whole.iter().map(|update| (update.begin, update.end)).collect();
        assert_eq!(ends, [(true, false), (false, true)]);
        let less = state(most).updates(&state(most + 1), false, &empty);
        assert_eq!((less.len(), less[0].removed_addresses.len()), (1, 1));
        let same = state(1).updates(&state(1), false, &empty);
        assert_eq!(same, std::slice::from_ref(&empty));
        let nothing = ClusterUpdate { begin: true, end: true, ..empty.clone() };
        assert_eq!(state(0).updates(&SiteState::default(), true, &empty), [nothing]);
    }
}
