//! Room for messages that came early or that the library does not take yet.

use std::collections::HashMap;

use causeway_wire::mx::PeerId;

use crate::context::{Env, count};
use crate::endpoint::Endpoint;
use crate::limits::{PARKED_BYTES_MAX, PARKED_BYTES_OF_HOST_MIN, PARKED_BYTES_OF_PARTNER_MAX};
use crate::nic::Dropped;
use crate::peer::{Incoming, Receiving};

/// Bytes of messages that wait for their turn or for the library.
#[derive(Debug, Default)]
pub(crate) struct ReorderQuota {
    total: usize,
    of_host: HashMap<u16, usize>,
}

impl ReorderQuota {
    /// Takes room for messages of a NIC: whether there was. However much others have taken,
    /// another one finds half of what is left.
    pub(crate) fn take(&mut self, host: u16, len: usize) -> bool {
        let total = self.total.saturating_add(len);
        let more = self.of_host.get(&host).copied().unwrap_or(0).saturating_add(len);
        let left = PARKED_BYTES_MAX.saturating_sub(total);
        if more > left && more > PARKED_BYTES_OF_HOST_MIN {
            return false;
        }
        self.total = total;
        self.of_host.insert(host, more);
        true
    }

    /// Gives room back.
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

impl Receiving {
    /// Takes out what came last of all that has bytes and is not next: how many they are.
    fn last_early(&mut self) -> Option<Vec<u8>> {
        let later = self.early.iter_mut().skip(1).rev();
        let bytes = |place: &mut Option<Incoming>| match place.take_if(|early| early.len() > 0)? {
            Incoming::Message { data, .. } => Some(data),
            Incoming::Offer(_) | Incoming::Notified => None,
        };
        let data = later.filter_map(bytes).next()?;
        self.bytes = self.bytes.saturating_sub(data.len());
        Some(data)
    }

    /// How many bytes wait that are not next.
    fn later_bytes(&self) -> usize {
        let next = self.early.front().and_then(Option::as_ref).map_or(0, Incoming::len);
        self.bytes.saturating_sub(next)
    }
}

impl Endpoint {
    /// Takes room for a message that is parked. What is next has it before all that is not, of any
    /// peer of its NIC: they are sent again.
    pub(crate) fn take_room(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        ahead: usize,
        len: usize,
    ) -> Result<(), Dropped> {
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        let (host, bytes) = (partner.host, partner.receive.bytes.saturating_add(len));
        let has = if ahead > 0 {
            bytes <= PARKED_BYTES_OF_PARTNER_MAX && self.parking.take(host, len)
        } else {
            self.parking.take(host, len) || self.make_room(env, peer, host, len)
        };
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        if !has {
            count(&mut partner.counters.no_room);
            return Err(Dropped::NoRoom);
        }
        partner.receive.bytes = partner.receive.bytes.saturating_add(len);
        Ok(())
    }

    /// Takes room for the next message of a peer from what is not next: its own, then that of
    /// whoever has most.
    fn make_room(&mut self, env: &mut Env<'_>, peer: PeerId, host: u16, len: usize) -> bool {
        let mut from = Some(peer);
        while let Some(one) = from {
            let data = self.peers.get_mut(one).and_then(|partner| partner.receive.last_early());
            let Some(data) = data else {
                let of_host = self.peers.all().filter(|(_, partner)| partner.host == host);
                let most = of_host.map(|(peer, partner)| (partner.receive.later_bytes(), peer.0));
                let most = most.max().filter(|(bytes, _)| *bytes > 0);
                from = most.map(|(_, peer)| PeerId(peer));
                continue;
            };
            self.parking.give(host, data.len());
            env.pool.give(data);
            if self.parking.take(host, len) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HOSTS_MAX;

    fn fill(parking: &mut ReorderQuota, host: u16) -> usize {
        (0..).take_while(|_| parking.take(host, 1024)).count() * 1024
    }

    #[test]
    fn hostile_boards_together_leave_room_for_others() {
        let mut parking = ReorderQuota::default();
        assert_eq!(fill(&mut parking, 1), PARKED_BYTES_MAX / 2);
        let second = fill(&mut parking, 2);
        assert!((PARKED_BYTES_MAX / 4..=PARKED_BYTES_MAX / 3).contains(&second), "{second}");
        for host in 3..HOSTS_MAX as u16 {
            assert!(fill(&mut parking, host) >= PARKED_BYTES_OF_HOST_MIN, "{host}");
        }
        let most = PARKED_BYTES_MAX + HOSTS_MAX * PARKED_BYTES_OF_HOST_MIN;
        assert!(parking.total <= most, "{}", parking.total);
        for host in 1..HOSTS_MAX as u16 {
            let has = parking.of_host[&host];
            parking.give(host, has);
        }
        assert!(parking.total == 0 && parking.of_host.is_empty());
    }
}
