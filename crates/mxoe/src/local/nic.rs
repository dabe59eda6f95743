//! The local NICs of a [`Nic`], and access to its endpoints for [`perform`](super::perform()).
//!
//! A local NIC has a place in the table of known NICs (1,024, shared with those of the network);
//! without a place [`Nic::nic_add_local`] returns false, and the two NICs do not reach each other.
//! Frames of the network with the address of a local NIC are dropped as of an unknown NIC, and
//! counted (`unknown_boards`). [`Nic::nic_remove`] removes a local NIC and ends its peers; work
//! that was queued for it before then finds no peer and has no effect. The owner adds each pair of
//! NICs in both directions: this module does not.
//!
//! `mx::network` of `causeway-mx` adds, removes and asks for work, in the turn of the group's
//! shard; the other methods are called by [`perform`](super::perform()), `deliver` and `route`.

use causeway_wire::mx::{NicId, PeerId, Status, Token};

use super::endpoint::Delivery;
use super::queue::{LocalEnds, LocalWork, Step};
use crate::context::EngineContext;
use crate::endpoint::{NicEndpoint, mac_of};
use crate::receive_order::PacketContent;
use crate::{Nic, Outside};

impl Nic {
    /// Adds a NIC of the same daemon, which may be this NIC itself. Peers at a NIC that was known
    /// on the network end with [`Status::EndpointUnreachable`]. Returns whether the table has room.
    pub fn nic_add_local(&mut self, now: u64, nic: NicId, out: &mut dyn Outside) -> bool {
        if self.is_local(nic) {
            return true;
        }
        self.nic_remove(now, nic, out);
        let added = self.nic_add(nic);
        added.into_iter().for_each(|number| self.hosts.set_local(number));
        added.is_some()
    }

    /// Returns the address of this NIC.
    #[inline]
    pub(crate) fn id(&self) -> NicId {
        NicId::of(self.own)
    }

    /// Returns whether a NIC belongs to the same daemon.
    pub fn is_local(&self, nic: NicId) -> bool {
        let number = mac_of(nic).and_then(|mac| self.hosts.number(mac));
        number.is_some_and(|number| self.hosts.is_local(number))
    }

    /// Returns whether work for NICs of the same daemon waits.
    #[inline]
    pub fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Returns the next work for a NIC of the same daemon. The caller must pass it to
    /// [`perform`](super::perform()), or drop it if the NIC has been removed.
    pub fn next_local(&mut self) -> Option<LocalWork> {
        self.local.pop().map(LocalWork)
    }

    /// Queues a step.
    pub(super) fn push_local(&mut self, step: Step) {
        self.local.push(step);
    }

    /// Calls `act` with an open endpoint; returns `None` if the endpoint is not open. Offers that
    /// waited for the removal of others are delivered afterwards.
    pub(super) fn with<R>(
        &mut self,
        (now, out): (u64, &mut dyn Outside),
        endpoint: u8,
        act: impl FnOnce(&mut NicEndpoint, &mut EngineContext<'_>) -> R,
    ) -> Option<R> {
        let (endpoint, mut ctx) = self.at(now, out, endpoint)?;
        let result = act(endpoint, &mut ctx);
        endpoint.deliver_offers(&mut ctx);
        Some(result)
    }

    /// Calls `act` with the endpoint that a step names and the number of its peer there. Returns
    /// `None` if the endpoint or the peer has another session.
    pub(super) fn with_peer<R>(
        &mut self,
        at: (u64, &mut dyn Outside),
        ends: &LocalEnds,
        act: impl FnOnce(&mut NicEndpoint, &mut EngineContext<'_>, PeerId) -> R,
    ) -> Option<R> {
        let host = self.local_number(ends.from.0.nic)?;
        let found = self.with(at, ends.to.0.endpoint, |endpoint, ctx| {
            let peer = endpoint.local_peer(host, ends)?;
            Some(act(endpoint, ctx, peer))
        });
        found.flatten()
    }

    /// Returns the number of a local NIC in the table.
    fn local_number(&self, nic: NicId) -> Option<u16> {
        let number = mac_of(nic).and_then(|mac| self.hosts.number(mac))?;
        self.hosts.is_local(number).then_some(number)
    }

    /// Returns the route of an eager message that may be delivered at once: to a local peer for
    /// which no earlier message waits.
    #[inline]
    pub(crate) fn local_route(&self, endpoint: u8, peer: PeerId) -> Option<LocalEnds> {
        let endpoint = self.endpoints.get(usize::from(endpoint))?.as_ref()?;
        endpoint.local_route(&self.hosts, NicId::of(self.own), peer)
    }

    /// Delivers a message of a local peer to an endpoint.
    pub(crate) fn local_deliver(
        &mut self,
        now: u64,
        ends: &LocalEnds,
        content: &PacketContent<'_>,
        out: &mut dyn Outside,
    ) -> Delivery {
        let Some(host) = self.local_number(ends.from.0.nic) else {
            return Delivery::Refused(Status::EndpointUnreachable);
        };
        let Some((endpoint, mut ctx)) = self.at(now, out, ends.to.0.endpoint) else {
            return Delivery::Refused(Status::EndpointClosed);
        };
        endpoint.local_accept(&mut ctx, host, ends, content)
    }

    /// Records that an eager message was delivered that was never queued.
    pub(crate) fn local_sent(
        &mut self,
        now: u64,
        (endpoint, peer): (u8, PeerId),
        token: Token,
        len: usize,
        out: &mut dyn Outside,
    ) {
        if let Some((endpoint, mut ctx)) = self.at(now, out, endpoint) {
            endpoint.local_sent(&mut ctx, peer, token, len);
        }
    }
}
