//! The user to whom the resources of a process are charged.
//!
//! `mx::service` and `mx::sessions` determine it when a process attaches, and `mx::quotas` and
//! `mx::connects` count by it. The type has no quota itself. A user whom the kernel does not know
//! is one user for quotas, and never the same as another for direct reads
//! ([`User::is_same_of_host`]). A value is plain and belongs to the dispatcher's thread.

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
