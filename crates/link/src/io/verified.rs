//! Verified claims of other hosts of the cluster, on their way to the shards that follow them.
//!
//! The process `causeway-directory` verifies claims on addresses and reports them ([`super::cluster`]).
//! The link service knows the link to each host. Ethernet addresses go to the shard of links
//! ([`ApplyClaims`]), which decides them beside the reports of tunnels; CIDs go to the group's shard
//! of sockets ([`AssignCids`]), beside the announcements in its sessions. In both, a verified claim
//! comes first. A link that the operator configured to the same host, known by its key, is used while
//! the link of the cluster is down, from the next claim on. Names of NICs and GIDs have no follower: MX and RDMA do not cross links.
//!
//! Runs in threads of the control socket, under the lock of the registry. A claim on an address of
//! another form than its kind is ignored.

use std::collections::BTreeMap;

use causeway_fabric::carrier::{AssignCids, CARRIES_SOCKETS, LinkId};
use causeway_fabric::{Control, ShardKey};
use causeway_model::{ClusterAddress, CommandError, LinkKind, LinkSpec, Name};

use super::request::ApplyClaims;
use super::service::NAME;

/// The links of the daemon, by name.
type Links = BTreeMap<Name, (LinkSpec, LinkId)>;

/// Changes of the claims of one host in one group.
#[derive(Debug, Default)]
pub(super) struct HostClaims {
    claimed: Vec<(ClusterAddress, u64)>,
    withdrawn: Vec<(ClusterAddress, u64)>,
}

impl HostClaims {
    /// Adds a claim, or its end, with its epoch.
    pub fn add(&mut self, at: &ClusterAddress, epoch: u64, is_claimed: bool) {
        let list = if is_claimed { &mut self.claimed } else { &mut self.withdrawn };
        list.push((at.clone(), epoch));
    }

    /// Passes the claims to the shards that follow them. No effect for an unknown link.
    pub fn apply(
        &self,
        control: &Control<'_>,
        links: &Links,
        link: LinkId,
    ) -> Result<(), CommandError> {
        let is_empty = self.claimed.is_empty() && self.withdrawn.is_empty();
        let mut all = links.values();
        let Some((spec, _)) = all.find(|(_, id)| *id == link && !is_empty) else { return Ok(()) };
        let others = links.values().filter(|(other, id)| *id != link && is_of_peer(other, spec));
        let others: Vec<LinkId> = others.map(|(_, id)| *id).collect();
        let mac = |(at, epoch): &(ClusterAddress, u64)| Some((at.mac()?.0, *epoch));
        let claims = ApplyClaims {
            link,
            others: others.clone(),
            claimed: self.claimed.iter().filter_map(mac).collect(),
            withdrawn: self.withdrawn.iter().filter_map(mac).collect(),
        };
        if !(claims.claimed.is_empty() && claims.withdrawn.is_empty()) {
            control.ask(&control.host_shard(NAME)?, claims)?;
        }
        let cid = |(at, epoch): &(ClusterAddress, u64)| Some((at.cid()?, *epoch));
        let claimed: Vec<_> = self.claimed.iter().filter_map(cid).collect();
        let withdrawn: Vec<_> = self.withdrawn.iter().filter_map(cid).collect();
        let has_cids = !(claimed.is_empty() && withdrawn.is_empty());
        // A daemon without sockets has no such service.
        if let Some(service) = control.provider(CARRIES_SOCKETS).ok().filter(|_| has_cids) {
            let shard = ShardKey::new(&spec.group, service);
            control.ask(&shard, AssignCids { link, others, claimed, withdrawn })?;
        }
        Ok(())
    }
}

/// Returns whether a link leads to the peer of another link, in the same group.
fn is_of_peer(link: &LinkSpec, other: &LinkSpec) -> bool {
    let (LinkKind::Causeway(tunnel), LinkKind::Causeway(of)) = (&link.kind, &other.kind) else {
        return false;
    };
    link.group == other.group && tunnel.key == of.key
}
