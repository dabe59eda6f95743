//! Charging pending messages to the quota: out of order, incomplete, or without room at the host
//! side.
//!
//! The bytes of a NIC are limited by [`reorder_quota`](crate::reorder_quota). A peer has
//! [`PENDING_BYTES_OF_PEER_MAX`] (1 MiB) beyond its next message. The next message of a peer
//! displaces later messages of the same peer, then of the peer of the same NIC with most bytes;
//! their senders retransmit, so that a full quota does not stop delivery. A message that does not
//! fit nevertheless is dropped, counted as `no_room`, and retransmitted.
//!
//! Offers and notifications cost nothing, and [`EARLY_MAX`](crate::limits::EARLY_MAX) bounds their
//! number. Called by [`receive_order`](crate::receive_order) before it keeps a message.

use causeway_wire::mx::PeerId;

use crate::context::{EngineContext, count};
use crate::drop_reason::DropReason;
use crate::endpoint::NicEndpoint;
use crate::limits::PENDING_BYTES_OF_PEER_MAX;
use crate::peer::{PendingMessage, ReceiveState};

impl ReceiveState {
    /// Removes and returns the data of the last pending message, if it is not the next one.
    fn take_last_early(&mut self) -> Option<Vec<u8>> {
        let later = self.early.iter_mut().skip(1).rev();
        let bytes =
            |place: &mut Option<PendingMessage>| match place.take_if(|early| early.len() > 0)? {
                PendingMessage::Message { data, .. } => Some(data),
                PendingMessage::Offer(_) | PendingMessage::Notified => None,
            };
        let data = later.filter_map(bytes).next()?;
        self.bytes = self.bytes.saturating_sub(data.len());
        Some(data)
    }

    /// Returns the bytes of the pending messages behind the next one.
    fn later_bytes(&self) -> usize {
        let next = self.early.front().and_then(Option::as_ref).map_or(0, PendingMessage::len);
        self.bytes.saturating_sub(next)
    }
}

impl NicEndpoint {
    /// Charges a pending message. The next message of a peer displaces later ones of any peer of
    /// the same NIC, which are retransmitted.
    ///
    /// # Errors
    /// [`DropReason::NoRoom`]: the quota is used up.
    pub(crate) fn charge_pending(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        ahead: usize,
        len: usize,
    ) -> Result<(), DropReason> {
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        let (host, bytes) = (remote.host, remote.receive.bytes.saturating_add(len));
        let has = if ahead > 0 {
            bytes <= PENDING_BYTES_OF_PEER_MAX && self.reorder_quota.take(host, len)
        } else {
            self.reorder_quota.take(host, len) || self.displace(ctx, peer, host, len)
        };
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        if !has {
            count(&mut remote.counters.no_room);
            return Err(DropReason::NoRoom);
        }
        remote.receive.bytes = remote.receive.bytes.saturating_add(len);
        Ok(())
    }

    /// Frees room for the next message of a peer: its own later messages first, then those of the
    /// peer with most.
    fn displace(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        host: u16,
        len: usize,
    ) -> bool {
        let mut from = Some(peer);
        while let Some(one) = from {
            let data = self.peers.get_mut(one).and_then(|remote| remote.receive.take_last_early());
            let Some(data) = data else {
                let of_host = self.peers.all().filter(|(_, remote)| remote.host == host);
                let most = of_host.map(|(peer, remote)| (remote.receive.later_bytes(), peer.0));
                let most = most.max().filter(|(bytes, _)| *bytes > 0);
                from = most.map(|(_, peer)| PeerId(peer));
                continue;
            };
            self.reorder_quota.give(host, data.len());
            ctx.pool.give(data);
            if self.reorder_quota.take(host, len) {
                return true;
            }
        }
        false
    }
}
