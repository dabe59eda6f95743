//! The messages between an adapter and each of its peers, for the group's traffic matrix.
//!
//! The engine counts each message that its receiver got, in an entry of the requester's adapter: an
//! array access by the slot of the peer's adapter, without a look-up. A read is traffic of the
//! peer. The owner of the subnet takes the sums from time to time
//! ([`crate::Adapter::take_traffic`]), and must do so before it removes an adapter: a new adapter
//! in the slot of another begins from zero. An adapter has at most as many entries as the subnet
//! has slots (4,096), of 56 bytes. All of it runs in the dispatcher's thread that serves the
//! subnet.

use crate::adapter_id::AdapterId;

/// Messages and bytes of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficSum {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of their payload.
    pub bytes: u64,
}

impl TrafficSum {
    /// Adds a message.
    #[inline]
    fn add(&mut self, bytes: u64) {
        self.messages = self.messages.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
    }
}

/// The traffic between an adapter and a peer since it was taken last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerTraffic {
    /// Ethernet address of the peer.
    pub mac: [u8; 6],
    /// Messages to the peer.
    pub sent: TrafficSum,
    /// Messages that the adapter read from the peer.
    pub read: TrafficSum,
}

/// The traffic of an adapter by peer.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    /// By the slot of the peer.
    entries: Vec<Option<(AdapterId, PeerTraffic)>>,
}

impl PeerTable {
    /// Counts a message to a peer, or a read from the peer.
    #[inline]
    pub fn count(&mut self, (peer, mac): (AdapterId, [u8; 6]), is_read: bool, bytes: u64) {
        let entry = match self.entries.get_mut(peer.slot as usize) {
            Some(Some((id, entry))) if *id == peer => Some(entry),
            _ => self.begin(peer, mac),
        };
        if let Some(entry) = entry {
            let sum = if is_read { &mut entry.read } else { &mut entry.sent };
            sum.add(bytes);
        }
    }

    /// Begins the entry of a peer.
    #[cold]
    fn begin(&mut self, peer: AdapterId, mac: [u8; 6]) -> Option<&mut PeerTraffic> {
        let slot = peer.slot as usize;
        if self.entries.len() <= slot {
            self.entries.resize(slot.saturating_add(1), None);
        }
        let fresh = PeerTraffic { mac, sent: TrafficSum::default(), read: TrafficSum::default() };
        let entry = self.entries.get_mut(slot)?;
        Some(&mut entry.insert((peer, fresh)).1)
    }

    /// Takes the sums of all peers with traffic.
    pub fn take(&mut self) -> impl Iterator<Item = PeerTraffic> + '_ {
        self.entries.iter_mut().flatten().filter_map(|(_, entry)| {
            let (sent, read) = (std::mem::take(&mut entry.sent), std::mem::take(&mut entry.read));
            let has_traffic = sent.messages != 0 || read.messages != 0;
            has_traffic.then_some(PeerTraffic { mac: entry.mac, sent, read })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_traffic_of_a_new_adapter_begins_from_zero() {
        let mut table = PeerTable::default();
        let peer = |serial| (AdapterId { slot: 3, serial }, [2, 0, 0, 0, 0, serial as u8]);
        table.count(peer(1), false, 100);
        table.count(peer(1), true, 10);
        table.count(peer(1), true, 10);
        let taken: Vec<PeerTraffic> = table.take().collect();
        let sum = |messages, bytes| TrafficSum { messages, bytes };
        let expected = PeerTraffic { mac: peer(1).1, sent: sum(1, 100), read: sum(2, 20) };
        assert_eq!(taken, [expected]);
        assert_eq!(table.take().count(), 0, "the sums were taken");
        table.count(peer(1), false, 1);
        table.count(peer(2), false, 7);
        let taken: Vec<PeerTraffic> = table.take().collect();
        assert_eq!((taken.len(), taken[0].mac, taken[0].sent), (1, peer(2).1, sum(1, 7)));
    }
}
