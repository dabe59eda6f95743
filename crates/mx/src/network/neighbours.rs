//! Neighbours: NICs of the same group in the same daemon. Their packets stay in memory.
//!
//! `mx::exchange` moves the packets. A NIC that is also found on the network is a neighbour
//! nevertheless, and packets from the network with its address are dropped.

use causeway_mxoe::local::LocalFrame;
use causeway_wire::mx::NicId;

use super::{NicNetwork, reason};

impl NicNetwork {
    /// Adds a neighbour.
    pub fn add_neighbour(&mut self, now: u64, nic: NicId) {
        self.engine.nic.nic_add_local(now, nic, &mut self.engine.tx_path);
    }

    /// Removes a neighbour: its peers end. A NIC that discovery found on the network is reached
    /// there from now on.
    pub fn remove_neighbour(&mut self, now: u64, nic: NicId) {
        self.engine.nic.nic_remove(now, nic, &mut self.engine.tx_path);
        if self.discovery.peer(nic).is_some() {
            self.engine.nic.nic_add(nic);
        }
        self.commit(now);
    }

    /// Returns whether the NIC reaches other hosts.
    pub fn is_external(&self) -> bool {
        self.carrier.is_external()
    }

    /// Returns whether the daemon serves rings of an endpoint.
    pub fn has_rings(&self, endpoint: u8) -> bool {
        self.engine.tx_path.endpoints.contains_key(&endpoint)
    }

    /// Returns the number by which the NIC is served when packets for neighbours are left.
    pub fn source(&self) -> u32 {
        self.carrier.source()
    }

    /// Returns whether packets for neighbours wait.
    pub fn has_local(&self) -> bool {
        self.engine.nic.has_local()
    }

    /// Returns the next packet for a neighbour.
    pub fn next_local(&mut self) -> Option<LocalFrame> {
        self.engine.nic.next_local()
    }

    /// Processes a packet of a neighbour; counts it if the engine drops it.
    pub fn receive_local(&mut self, now: u64, frame: &LocalFrame) {
        if let Err(dropped) = self.engine.nic.receive_local(now, frame, &mut self.engine.tx_path) {
            self.count(reason(&dropped));
        }
    }

    /// Ends a batch of packets of neighbours.
    pub fn end_local(&mut self, now: u64) {
        self.retry();
        self.commit(now);
    }
}
