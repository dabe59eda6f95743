//! Multicast groups: the datagram queue pairs that are attached to a GID.
//!
//! A group exists while a queue pair is attached to it. It has at most [`MULTICAST_MEMBERS_MAX`]
//! (256) members over all adapters, because a datagram is copied to each; an adapter has at most
//! [`MEMBERSHIPS_PER_ADAPTER_MAX`] (1,024) memberships. An attachment beyond either limit is
//! refused. A second attachment of the same queue pair succeeds without effect. A queue pair leaves
//! its groups when it or its adapter is destroyed or reset as a device.
//!
//! [`crate::Subnet`] owns the table; the datagrams of the engine read it. A datagram to a group
//! without members succeeds and reaches no receiver. A member receives its own datagrams too: the
//! option to block this loopback is not applied. Groups do not reach other hosts.

use std::collections::HashMap;

use crate::adapter::AdapterId;
use crate::limits::{MEMBERSHIPS_PER_ADAPTER_MAX, MULTICAST_MEMBERS_MAX};

/// Why a queue pair is not attached or detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MulticastError {
    /// The adapter or queue pair does not exist, or receives no datagrams.
    #[error("no datagram queue pair has this number")]
    NoQueuePair,
    /// The group or the adapter has too many members.
    #[error("the multicast group or the adapter has too many members")]
    Limit,
    /// The queue pair is not attached to the group.
    #[error("the queue pair is not attached to the group")]
    NotAttached,
}

/// A queue pair of an adapter.
pub(crate) type Member = (AdapterId, u32);

/// The multicast groups of a subnet.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: HashMap<[u8; 16], Vec<Member>, foldhash::fast::RandomState>,
    counts: HashMap<AdapterId, usize, foldhash::fast::RandomState>,
}

impl Groups {
    /// Attaches a queue pair to a group; an attached queue pair stays attached.
    pub fn attach(&mut self, gid: [u8; 16], member: Member) -> Result<(), MulticastError> {
        let present = self.members.get(&gid).map_or(&[][..], Vec::as_slice);
        if present.contains(&member) {
            return Ok(());
        }
        let count = self.counts.get(&member.0).copied().unwrap_or(0);
        if present.len() >= MULTICAST_MEMBERS_MAX || count >= MEMBERSHIPS_PER_ADAPTER_MAX {
            return Err(MulticastError::Limit);
        }
        self.members.entry(gid).or_default().push(member);
        self.counts.insert(member.0, count.saturating_add(1));
        Ok(())
    }

    /// Detaches a queue pair from a group.
    pub fn detach(&mut self, gid: [u8; 16], member: Member) -> Result<(), MulticastError> {
        let members = self.members.get_mut(&gid).ok_or(MulticastError::NotAttached)?;
        let place = members.iter().position(|other| *other == member);
        members.remove(place.ok_or(MulticastError::NotAttached)?);
        if members.is_empty() {
            self.members.remove(&gid);
        }
        self.uncount(member.0);
        Ok(())
    }

    /// Lowers the number of memberships of an adapter.
    fn uncount(&mut self, adapter: AdapterId) {
        if let Some(count) = self.counts.get_mut(&adapter) {
            *count = count.saturating_sub(1);
        }
        self.counts.retain(|_, count| *count > 0);
    }

    /// Detaches a queue pair from all groups.
    pub fn detach_all(&mut self, member: Member) {
        if !self.counts.contains_key(&member.0) {
            return;
        }
        let holds = |members: &Vec<Member>| members.contains(&member);
        let gids = self.members.iter().filter(|(_, members)| holds(members));
        let gids: Vec<[u8; 16]> = gids.map(|(gid, _)| *gid).collect();
        for gid in gids {
            // The queue pair is a member of each of these groups.
            let _ = self.detach(gid, member);
        }
    }

    /// Detaches all queue pairs of an adapter.
    pub fn forget(&mut self, adapter: AdapterId) {
        if self.counts.remove(&adapter).is_some() {
            for members in self.members.values_mut() {
                members.retain(|(other, _)| *other != adapter);
            }
            self.members.retain(|_, members| !members.is_empty());
        }
    }

    /// Returns the member of a group at an index.
    pub fn member(&self, gid: &[u8; 16], index: usize) -> Option<Member> {
        self.members.get(gid)?.get(index).copied()
    }
}
