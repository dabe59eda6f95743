//! The user to whom the resources of a process are charged.
//!
//! `mx::service` and `mx::sessions` determine it when a process attaches. They, `mx::quotas`,
//! `mx::requests` and `mx::connects` count by it. The type has no quota itself. Processes with a
//! user that the kernel does not know are one user for quotas, and not of the same user for direct
//! reads ([`User::is_same_of_host`]). A plain value without a lock.

use causeway_fabric::PortId;

/// The user of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// A user of this host; `None` if the kernel does not know the user.
    Host(Option<u32>),
    /// All processes of the guest whose NIC is this port: the guest's own users are not trusted.
    Guest(PortId),
}

impl User {
    /// Returns whether two processes certainly belong to one user of this host.
    pub fn is_same_of_host(self, other: Self) -> bool {
        matches!(self, Self::Host(Some(_))) && self == other
    }
}
