//! The way from a queue pair to the adapter of its destination.
//!
//! A destination is named by the Ethernet address that the operator gave to an adapter; GIDs are
//! values of the guests and are not used here; that of a multicast group selects its members
//! without this module (`crate::multicast`). [`Local`] finds the adapters of the same subnet in
//! this process, and is the only implementation; it has no limit of its own ([`crate::Subnet`]
//! has). Destinations on other hosts, and those that the group's policy denies ([`crate::policy`]),
//! are refused with a [`Refusal`], which the queue pair keeps for the operator
//! ([`crate::QueuePair::refusal`]): until its next message that finds a responder, or, of
//! datagrams, until a reset. The requester sees lost packets: a reliable request waits, without end
//! if its queue pair's timeout is 0, or else fails with [`crate::work::Status::RetryExceeded`]; an
//! unreliable message or datagram succeeds. The engine looks an adapter up for each datagram, and
//! for a connection when its peer is not known yet (`Route`) or adapters or policy have changed, in
//! the dispatcher's thread that serves the subnet.

use std::collections::HashMap;

use crate::adapter_id::AdapterId;
use crate::attributes::Kind;
use crate::budget::Budget;
use crate::policy::{CheckedPolicy, Denial, Policy};

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
    /// The group's rules deny traffic to the destination.
    #[error("the group's rules deny traffic to the destination: {0}")]
    Denied(Denial),
    /// The group's rules deny the responses that a reliable connection needs.
    #[error("the group's rules deny responses of the destination: {0}")]
    ResponseDenied(Denial),
}

/// The adapter of a connection's peer, as found last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    /// Ethernet address of the peer.
    pub peer: [u8; 6],
    /// Generation of [`Local`] in which the route was found.
    generation: u64,
    /// The adapter with this address.
    pub adapter: AdapterId,
    /// Why the connection must not be used.
    pub refusal: Option<Refusal>,
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
    policy: CheckedPolicy,
    /// Number of changes of adapters and policy.
    generation: u64,
}

impl Local {
    /// Adds an adapter. Returns false if another adapter has the address.
    pub(crate) fn insert(&mut self, mac: [u8; 6], adapter: AdapterId) -> bool {
        let is_free = !self.by_mac.contains_key(&mac);
        if is_free {
            self.generation = self.generation.wrapping_add(1);
            self.by_mac.insert(mac, adapter);
        }
        is_free
    }

    /// Removes an adapter.
    pub(crate) fn remove(&mut self, mac: [u8; 6]) {
        self.generation = self.generation.wrapping_add(1);
        self.by_mac.remove(&mac);
    }

    /// Replaces the policy.
    pub(crate) fn set_policy(&mut self, policy: Option<Box<dyn Policy>>) {
        self.generation = self.generation.wrapping_add(1);
        self.policy.set(policy);
    }

    /// Returns whether a route to `peer` is the result that a look-up would have now.
    #[inline]
    pub(crate) fn is_current(&self, route: &Route, peer: [u8; 6]) -> bool {
        route.generation == self.generation && route.peer == peer
    }

    /// Returns the route of a connection of kind `kind` from adapter `source` to `peer`.
    ///
    /// # Errors
    /// [`Refusal::NotOnThisHost`]. A denied connection has a route with a refusal.
    pub(crate) fn connect(
        &mut self,
        source: [u8; 6],
        peer: [u8; 6],
        kind: Kind,
        budget: &mut Budget,
    ) -> Result<Route, Refusal> {
        let adapter = self.locate(peer)?;
        let mut refusal = self.admit(source, peer, peer, budget).err();
        if refusal.is_none() && kind.is_reliable() {
            let response = self.policy.check(peer, source, source, budget);
            refusal = response.err().map(Refusal::ResponseDenied);
        }
        Ok(Route { peer, generation: self.generation, adapter, refusal })
    }

    /// Checks that traffic from adapter `source` to the address `destination` may reach adapter
    /// `receiver`.
    ///
    /// # Errors
    /// [`Refusal::Denied`].
    #[inline]
    pub(crate) fn admit(
        &mut self,
        source: [u8; 6],
        destination: [u8; 6],
        receiver: [u8; 6],
        budget: &mut Budget,
    ) -> Result<(), Refusal> {
        self.policy.check(source, destination, receiver, budget).map_err(Refusal::Denied)
    }
}

impl Transport for Local {
    fn locate(&self, mac: [u8; 6]) -> Result<AdapterId, Refusal> {
        self.by_mac.get(&mac).copied().ok_or(Refusal::NotOnThisHost)
    }
}
