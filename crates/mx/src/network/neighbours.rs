//! Neighbours: NICs of the same group in the same daemon, and the NIC itself. Messages between them
//! stay in memory.
//!
//! `mx::exchange` takes the work that concerns neighbours and performs it with both networks, on
//! the dispatcher's thread: at most 64 steps and about 256 KiB in a turn, the rest in the next. An
//! eager message skips this queue if none waits before it and its receiver has room. A NIC that is
//! also found on the network is a neighbour nevertheless, and packets from the network with its
//! address are dropped. Work for a NIC that has been removed is dropped, and a packet that the
//! receiving engine drops is counted by reason, at the NIC that sent it.

use causeway_mxoe::driver::{Engine, Neighbours};
use causeway_mxoe::local::{LocalWork, perform};
use causeway_wire::mx::NicId;

use super::carrier::CarrierOutput;
use super::{EndpointOwner, NicNetwork, reason};

/// The engine of a NIC.
pub(super) type NicEngine = Engine<EndpointOwner, CarrierOutput>;

/// Finds the networks of the neighbours of a NIC.
pub trait FindNetwork {
    /// Returns the network of a neighbour, and notes that its turn must be ended.
    fn find(&mut self, nic: NicId) -> Option<&mut NicNetwork>;
}

/// The engines of the networks that `F` finds.
pub(super) struct Engines<'a, F>(pub(super) &'a mut F);

impl<F: FindNetwork> Neighbours<EndpointOwner, CarrierOutput> for Engines<'_, F> {
    fn engine(&mut self, nic: NicId) -> Option<&mut NicEngine> {
        self.0.find(nic).map(|network| &mut network.engine)
    }
}

impl NicNetwork {
    /// Adds a neighbour. Returns false if this NIC knows as many NICs as it can
    /// ([`KNOWN_NICS_MAX`](causeway_mxoe::limits::KNOWN_NICS_MAX)): the neighbour is not reached.
    pub fn add_neighbour(&mut self, now: u64, nic: NicId) -> bool {
        self.engine.nic.nic_add_local(now, nic, &mut self.engine.tx_path)
    }

    /// Removes a neighbour: its peers end. A NIC that discovery found on the network is reached
    /// there from now on.
    pub fn remove_neighbour(&mut self, now: u64, nic: NicId) {
        self.engine.nic.nic_remove(now, nic, &mut self.engine.tx_path);
        if self.discovery.peer(nic).is_some() {
            self.engine.nic.nic_add(nic);
        }
        self.end_local(now);
    }

    /// Returns whether the NIC reaches other hosts.
    pub fn is_external(&self) -> bool {
        self.carrier.is_external()
    }

    /// Returns whether the daemon serves rings of an endpoint.
    pub fn has_rings(&self, endpoint: u8) -> bool {
        self.engine.tx_path.endpoints.contains_key(&endpoint)
    }

    /// Returns whether an endpoint has a request, or waits for room.
    #[inline]
    pub fn has_work(&self, endpoint: u8) -> bool {
        self.engine.has_work(endpoint)
    }

    /// Returns the number by which the NIC is served when work for neighbours is left.
    pub fn source(&self) -> u32 {
        self.carrier.source()
    }

    /// Returns whether work for neighbours waits.
    #[inline]
    pub fn has_local(&self) -> bool {
        self.engine.nic.has_local()
    }

    /// Returns the next work for a neighbour.
    pub fn next_local(&mut self) -> Option<LocalWork> {
        self.engine.nic.next_local()
    }

    /// Performs a work that concerns `other`, or this NIC if it is `None`. Returns the number of
    /// copied bytes.
    pub fn perform(&mut self, now: u64, work: LocalWork, other: Option<&mut Self>) -> u64 {
        let side = other.map(|other| other.engine.side());
        perform(now, work, self.engine.side(), side).unwrap_or_else(|dropped| {
            self.count(reason(&dropped));
            0
        })
    }

    /// Ends a turn in which neighbours gave messages to this NIC.
    pub fn end_local(&mut self, now: u64) {
        self.retry();
        self.commit(now);
    }

    /// Takes the last requests of an endpoint before it closes.
    pub fn drain(&mut self, now: u64, endpoint: u8, neighbours: &mut impl FindNetwork) {
        self.engine.drain_among(now, endpoint, &mut Engines(neighbours));
    }
}
