//! Peers to which a message was lost that was reported as sent: a later message would take its
//! place.
//!
//! A peer, with its session, stays broken for the rest of the endpoint's life; the list has no
//! other limit. `super::connect` adds a peer, refuses further messages to it, and notifies it once,
//! over a new connect if need be; a peer outside the address vector, or that cannot be reached, is
//! not notified. A second insertion has no effect. The module sends nothing. All calls run under
//! the lock of the domain.

use std::collections::HashSet;

use causeway_message::library::EndpointIdentity;

/// Broken peers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct BrokenPeers {
    all: HashSet<EndpointIdentity>,
    /// Peers that were not notified yet.
    unnotified: Vec<EndpointIdentity>,
}

impl BrokenPeers {
    /// Returns whether a peer is broken.
    pub(super) fn contains(&self, peer: EndpointIdentity) -> bool {
        self.all.contains(&peer)
    }

    /// Adds a peer. Returns `false` if it is broken already.
    pub(super) fn insert(&mut self, peer: EndpointIdentity) -> bool {
        let is_new = self.all.insert(peer);
        if is_new {
            self.unnotified.push(peer);
        }
        is_new
    }

    /// Returns whether a peer is to be notified.
    pub(super) fn has_unnotified(&self) -> bool {
        !self.unnotified.is_empty()
    }

    /// Removes the peers that are to be notified.
    pub(super) fn take_unnotified(&mut self) -> Vec<EndpointIdentity> {
        std::mem::take(&mut self.unnotified)
    }
}
