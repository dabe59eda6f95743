//! The quota of pending messages: out of order, incomplete, or without room at the host side.
//!
//! An endpoint keeps [`PENDING_BYTES_MAX`] (8 MiB). A remote NIC may use half of the bytes that
//! other NICs leave free, and [`PENDING_BYTES_OF_NIC_MIN`] (32 KiB) in any case, even beyond the 8
//! MiB: with 1,024 NICs the maximum is 40 MiB. A peer has [`PENDING_BYTES_OF_PEER_MAX`] (1 MiB)
//! beyond its next message. The next message of a peer displaces later messages of the same peer,
//! then of the peer of the same NIC with most bytes; their senders retransmit, so that a full quota
//! does not stop delivery. A message that does not fit nevertheless is dropped, counted as
//! `no_room`, and retransmitted.
//!
//! The quota counts bytes of messages, not entries or fragments; offers and notifications cost
//! nothing, and [`EARLY_MAX`](crate::limits::EARLY_MAX) bounds their number. Called by
//! [`receive_order`](crate::receive_order) before it keeps a message.

use std::collections::HashMap;

use causeway_wire::mx::PeerId;

use crate::context::{EngineContext, count};
use crate::endpoint::NicEndpoint;
use crate::limits::{PENDING_BYTES_MAX, PENDING_BYTES_OF_NIC_MIN, PENDING_BYTES_OF_PEER_MAX};
use crate::nic::DropReason;
use crate::peer::{PendingMessage, ReceiveState};

/// Bytes of the pending messages of an endpoint, in total and by NIC.
#[derive(Debug, Default)]
pub(crate) struct ReorderQuota {
    /// Bytes of all NICs.
    total: usize,
    /// Bytes by NIC number.
    of_host: HashMap<u16, usize>,
}

impl ReorderQuota {
    /// Charges `len` bytes to a NIC. Returns whether they fit. A NIC may use half of the bytes that
    /// others have left, so that none can use up the quota.
    pub(crate) fn take(&mut self, host: u16, len: usize) -> bool {
        let total = self.total.saturating_add(len);
        let more = self.of_host.get(&host).copied().unwrap_or(0).saturating_add(len);
        let left = PENDING_BYTES_MAX.saturating_sub(total);
        if more > left && more > PENDING_BYTES_OF_NIC_MIN {
            return false;
        }
        self.total = total;
        self.of_host.insert(host, more);
        true
    }

    /// Releases bytes of a NIC.
    pub(crate) fn give(&mut self, host: u16, len: usize) {
        self.total = self.total.saturating_sub(len);
        if let Some(of_host) = self.of_host.get_mut(&host) {
            *of_host = of_host.saturating_sub(len);
            if *of_host == 0 {
                self.of_host.remove(&host);
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::KNOWN_NICS_MAX;

    fn fill(reorder_quota: &mut ReorderQuota, host: u16) -> usize {
        (0..).take_while(|_| reorder_quota.take(host, 1024)).count() * 1024
    }

    #[test]
    fn hostile_nics_together_leave_room_for_others() {
        let mut reorder_quota = ReorderQuota::default();
        assert_eq!(fill(&mut reorder_quota, 1), PENDING_BYTES_MAX / 2);
        let second = fill(&mut reorder_quota, 2);
        assert!((PENDING_BYTES_MAX / 4..=PENDING_BYTES_MAX / 3).contains(&second), "{second}");
        for host in 3..KNOWN_NICS_MAX as u16 {
            assert!(fill(&mut reorder_quota, host) >= PENDING_BYTES_OF_NIC_MIN, "{host}");
        }
        let most = PENDING_BYTES_MAX + KNOWN_NICS_MAX * PENDING_BYTES_OF_NIC_MIN;
        assert!(reorder_quota.total <= most, "{}", reorder_quota.total);
        for host in 1..KNOWN_NICS_MAX as u16 {
            let has = reorder_quota.of_host[&host];
            reorder_quota.give(host, has);
        }
        assert!(reorder_quota.total == 0 && reorder_quota.of_host.is_empty());
    }
}
