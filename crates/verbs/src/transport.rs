//! The way from a queue pair to the adapter of its destination.
//!
//! A destination is named by the Ethernet address that the operator gave to an adapter; GIDs are
//! values of the guests and are not used here; that of a multicast group selects its members
//! without this module (`crate::multicast`). [`Local`] finds the adapters of the same subnet in
//! this process, and is the only implementation; it has no limit of its own ([`crate::Subnet`]
//! has). Destinations on other hosts are refused with a [`Refusal`], which the queue pair keeps for
//! the operator until its next message that finds a responder ([`crate::QueuePair::refusal`]). The
//! requester sees lost packets: a reliable request waits, without end if its queue pair's timeout
//! is 0, or else fails with [`crate::work::Status::RetryExceeded`]; an unreliable message or
//! datagram succeeds. The engine looks an adapter up for each datagram, and for a connection when
//! its peer is not known yet.

use std::collections::HashMap;

use crate::adapter::AdapterId;

/// Why a destination cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The queue pair names no destination.
    #[error("the queue pair has no peer")]
    NoPeer,
    /// No adapter of the group on this host has the Ethernet address. RDMA to other hosts is not
    /// supported.
    #[error("no adapter of the group on this host has the Ethernet address of the destination")]
    NotOnThisHost,
    /// The adapter has no queue pair of the number that accepts messages of the requester.
    #[error("the destination has no connected queue pair of this number that receives")]
    NotConnected,
}

/// Finds the adapters of destinations.
pub trait Transport {
    /// Returns the adapter of an Ethernet address.
    ///
    /// # Errors
    /// [`Refusal`].
    fn locate(&self, mac: [u8; 6]) -> Result<AdapterId, Refusal>;
}

/// The adapters of a subnet in this process, by Ethernet address.
#[derive(Debug, Default)]
pub struct Local {
    by_mac: HashMap<[u8; 6], AdapterId, foldhash::fast::RandomState>,
}

impl Local {
    /// Adds an adapter. Returns false if another adapter has the address.
    pub(crate) fn insert(&mut self, mac: [u8; 6], adapter: AdapterId) -> bool {
        let is_free = !self.by_mac.contains_key(&mac);
        if is_free {
            self.by_mac.insert(mac, adapter);
        }
        is_free
    }

    /// Removes an adapter.
    pub(crate) fn remove(&mut self, mac: [u8; 6]) {
        self.by_mac.remove(&mac);
    }
}

impl Transport for Local {
    fn locate(&self, mac: [u8; 6]) -> Result<AdapterId, Refusal> {
        self.by_mac.get(&mac).copied().ok_or(Refusal::NotOnThisHost)
    }
}
