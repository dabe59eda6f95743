//! Multicast groups: the datagram queue pairs that are attached to a GID.
//!
//! A group exists while a queue pair is attached to it. An adapter has at most
//! [`MULTICAST_MEMBERS_MAX`] (16) members in a group and at most [`MEMBERSHIPS_PER_ADAPTER_MAX`]
//! (1,024) memberships, so that no adapter takes the room of another; an attachment beyond either
//! limit is refused. The time of a change follows from the adapter's memberships and from the
//! members of the groups that it changes, not from other groups. A queue pair may be attached in
//! any state; a datagram skips members that do not receive. A destroyed queue pair leaves its
//! groups; a reset keeps it attached. [`crate::Subnet`] owns the table and uses it in the thread
//! that serves the subnet; the datagrams of the engine read it, member by member, so that a change
//! during a datagram may hide a member from it.

use std::collections::{BTreeMap, HashMap};

use crate::adapter_id::AdapterId;
use crate::limits::{MEMBERSHIPS_PER_ADAPTER_MAX, MULTICAST_MEMBERS_MAX};

/// Why a queue pair is not attached or detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MulticastError {
    /// The adapter or queue pair does not exist, or receives no datagrams.
    #[error("no datagram queue pair has this number")]
    NoQueuePair,
    /// The adapter has 16 queue pairs in the group, or 1,024 memberships in all groups.
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
    /// Groups of each member.
    gids: BTreeMap<Member, Vec<[u8; 16]>>,
}

impl Groups {
    /// Attaches a queue pair to a group; an attached queue pair stays attached.
    pub fn attach(&mut self, gid: [u8; 16], member: Member) -> Result<(), MulticastError> {
        if self.gids.get(&member).is_some_and(|gids| gids.contains(&gid)) {
            return Ok(());
        }
        let (mut own, mut of_group) = (0_usize, 0_usize);
        for (_, gids) in self.of_adapter(member.0) {
            own = own.saturating_add(gids.len());
            of_group = of_group.saturating_add(usize::from(gids.contains(&gid)));
        }
        if of_group >= MULTICAST_MEMBERS_MAX || own >= MEMBERSHIPS_PER_ADAPTER_MAX {
            return Err(MulticastError::Limit);
        }
        self.members.entry(gid).or_default().push(member);
        self.gids.entry(member).or_default().push(gid);
        Ok(())
    }

    /// Returns the members of an adapter with their groups.
    fn of_adapter(&self, adapter: AdapterId) -> impl Iterator<Item = (&Member, &Vec<[u8; 16]>)> {
        self.gids.range((adapter, 0)..=(adapter, u32::MAX))
    }

    /// Detaches a queue pair from a group.
    pub fn detach(&mut self, gid: [u8; 16], member: Member) -> Result<(), MulticastError> {
        let gids = self.gids.get_mut(&member).ok_or(MulticastError::NotAttached)?;
        let place = gids.iter().position(|own| *own == gid).ok_or(MulticastError::NotAttached)?;
        gids.swap_remove(place);
        if gids.is_empty() {
            self.gids.remove(&member);
        }
        self.leave(&gid, member);
        Ok(())
    }

    /// Removes a member from a group.
    fn leave(&mut self, gid: &[u8; 16], member: Member) {
        let Some(members) = self.members.get_mut(gid) else { return };
        members.retain(|other| *other != member);
        if members.is_empty() {
            self.members.remove(gid);
        }
    }

    /// Detaches a queue pair from all groups.
    pub fn detach_all(&mut self, member: Member) {
        for gid in self.gids.remove(&member).unwrap_or_default() {
            self.leave(&gid, member);
        }
    }

    /// Detaches all queue pairs of an adapter.
    pub fn forget(&mut self, adapter: AdapterId) {
        let members: Vec<Member> = self.of_adapter(adapter).map(|(member, _)| *member).collect();
        for member in members {
            self.detach_all(member);
        }
    }

    /// Returns the member of a group at an index.
    pub fn member(&self, gid: &[u8; 16], index: usize) -> Option<Member> {
        self.members.get(gid)?.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_groups_of_removed_members_take_no_memory() {
        let adapter = |slot| AdapterId { slot, serial: 7 };
        let mut groups = Groups::default();
        for (slot, number, gid) in [(0, 2, 1), (0, 2, 2), (0, 3, 1), (1, 2, 1), (1, 4, 3)] {
            groups.attach([gid; 16], (adapter(slot), number)).unwrap();
        }
        groups.detach_all((adapter(0), 2));
        assert_eq!((groups.members.len(), groups.gids.len()), (2, 3));
        groups.forget(adapter(1));
        assert_eq!((groups.members.len(), groups.gids.len()), (1, 1));
        groups.detach([1; 16], (adapter(0), 3)).unwrap();
        assert!(groups.members.is_empty() && groups.gids.is_empty());
    }
}
