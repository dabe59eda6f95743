//! The accepted records, as the daemon and the file of the snapshot get them.

use causeway_model::{ClusterAddress, ClusterGroup, ClusterHost, Name, RemoteAddress, SitePolicy};

use super::{Claim, Host, Replica};
use crate::key::RecordKey;
use crate::record::ClaimRecord;

impl Replica {
    /// Returns the other hosts that are not evicted, with the groups that the site shares.
    pub fn hosts(&self) -> Vec<ClusterHost> {
        let is_other = |(id, _): &(&Name, &Host)| **id != self.own.0;
        let group = |name: &Name| {
            let vni = self.groups.get(name)?.vni;
            Some(ClusterGroup { name: name.clone(), vni })
        };
        let view = |(id, host): (&Name, &Host)| ClusterHost {
            id: id.clone(),
            key: host.record.key.clone(),
            endpoints: host.record.endpoints.clone(),
            groups: host.record.groups.iter().filter_map(group).collect(),
            seen: host.seen,
            epoch: host.record.epoch,
        };
        self.hosts.iter().filter(is_other).map(view).collect()
    }

    /// Returns the addresses of other hosts in shared groups.
    pub fn addresses(&self) -> Vec<RemoteAddress> {
        let is_remote = |(at, claim): &(&ClusterAddress, &Claim)| {
            let ClaimRecord { host, gone, .. } = &claim.record;
            !gone && *host != self.own.0 && self.groups.contains_key(&at.group)
        };
        let view = |(at, claim): (&ClusterAddress, &Claim)| RemoteAddress {
            at: at.clone(),
            host: claim.record.host.clone(),
            epoch: claim.record.epoch,
        };
        self.claims.iter().filter(is_remote).map(view).collect()
    }

    /// Returns every accepted record, as key and value, for a file.
    pub fn records(&self) -> Vec<(String, Vec<u8>)> {
        let path = |key: RecordKey| key.path(&self.site);
        let hosts = self.hosts.iter();
        let hosts = hosts.map(|(id, h)| (path(RecordKey::Host(id.clone())), h.record.write()));
        let evicted = self.evicted.iter();
        let evicted = evicted.map(|(id, e)| (path(RecordKey::Evicted(id.clone())), e.write()));
        let groups = self.groups.iter();
        let groups = groups.map(|(name, g)| (path(RecordKey::Group(name.clone())), g.write()));
        let claims = self.claims.iter();
        let claims = claims.map(|(at, c)| (path(RecordKey::Claim(at.clone())), c.record.write()));
        hosts.chain(evicted).chain(groups).chain(claims).collect()
    }

    /// Returns the policies of the groups that have one, in order of the groups.
    pub fn policies(&self) -> Vec<SitePolicy> {
        let policies = self.groups.iter().map(|(name, record)| record.policy(name));
        policies.filter(|policy| !policy.is_empty()).collect()
    }
}
