//! Packets between the NICs of a group, in memory.
//!
//! Each turn that may queue such packets ends with [`MxService::exchange`]. It passes them on until
//! none is left, or [`LOCAL_FRAMES_PER_TURN_MAX`] (256) were passed; the rest waits for the next turn
//! of its NIC. The time is charged to the turn of the group.

use std::collections::VecDeque;

use causeway_fabric::{Context, PortId};
use causeway_wire::mx::NicId;

use crate::limits::{FRAME_NS, LOCAL_FRAMES_PER_TURN_MAX};
use crate::service::MxService;

impl MxService {
    /// Passes packets to neighbours, beginning with those of the NIC of `port`. Returns the NICs
    /// that received any.
    pub(crate) fn exchange(&mut self, cx: &mut Context<'_>, port: PortId) -> Vec<PortId> {
        let (mut senders, mut receivers) = (VecDeque::from([port]), Vec::new());
        let mut left = LOCAL_FRAMES_PER_TURN_MAX;
        while let Some(from) = senders.pop_front() {
            while let Some(network) = self.network(from).filter(|network| network.has_local()) {
                if left == 0 {
                    cx.wake_source(network.source());
                    break;
                }
                left = left.saturating_sub(1);
                let Some(frame) = network.next_local() else { break };
                let Some(to) = self.port_of(frame.to) else { continue };
                let Some(network) = self.network(to) else { continue };
                network.receive_local(cx.now_ns, &frame);
                if !receivers.contains(&to) {
                    receivers.push(to);
                }
                if !senders.contains(&to) {
                    senders.push_back(to);
                }
            }
        }
        let passed = LOCAL_FRAMES_PER_TURN_MAX.saturating_sub(left) as u64;
        cx.charge(passed.saturating_mul(FRAME_NS));
        for to in &receivers {
            let now = cx.now_ns;
            self.network(*to).into_iter().for_each(|network| network.end_local(now));
        }
        receivers
    }

    /// Returns the port of a NIC of the group.
    fn port_of(&self, nic: NicId) -> Option<PortId> {
        self.nics.iter().find(|(_, local_nic)| local_nic.nic == nic).map(|(port, _)| *port)
    }

    /// Makes the NIC of `port` and the other NICs of the group neighbours.
    pub(crate) fn add_neighbours(&mut self, now: u64, port: PortId) {
        let Some(nic) = self.nics.get(&port).map(|local_nic| local_nic.nic) else { return };
        let others: Vec<(PortId, NicId)> = self
            .nics
            .iter()
            .filter(|(other, _)| **other != port)
            .map(|(o, n)| (*o, n.nic))
            .collect();
        for (other, its) in others {
            self.network(port).into_iter().for_each(|network| network.add_neighbour(now, its));
            self.network(other).into_iter().for_each(|network| network.add_neighbour(now, nic));
        }
    }

    /// Removes a NIC from the neighbours of the other NICs.
    pub(crate) fn remove_neighbour(&mut self, now: u64, nic: NicId) {
        for local_nic in self.nics.values_mut() {
            local_nic.network.iter_mut().for_each(|network| network.remove_neighbour(now, nic));
        }
    }
}
