//! Messages between the NICs of a group, in memory.
//!
//! An eager message goes into the ring of its receiver in the turn that takes it from the ring of
//! its sender ([`MxService::serve_rings`]). Everything else is *work* that an engine queues
//! (`mxoe::local`): messages that found no room, pulls, and the ends of peers. Each turn of a NIC
//! ends with [`MxService::exchange`], which performs the work of this NIC and of the NICs that got
//! work from it, until none is left, or [`LOCAL_STEPS_PER_TURN_MAX`] (64) steps were performed, or
//! [`LOCAL_BYTES_PER_TURN`] (256 KiB) were copied. The rest waits for the next turn of the NIC,
//! behind the turns of the other sources of the group. The time is charged to the turn.
//!
//! Called by `mx::service` on the dispatcher's thread.

use std::collections::{BTreeMap, VecDeque};

use causeway_fabric::dense_map::DenseMap;
use causeway_fabric::{Context, PortId, SourceProgress};
use causeway_mxoe::limits::KNOWN_NICS_MAX;
use causeway_wire::mx::NicId;

use crate::limits::{
    LOCAL_BYTES_PER_TURN, LOCAL_BYTES_PER_US, LOCAL_STEP_NS, LOCAL_STEPS_PER_TURN_MAX,
};
use crate::network::{FindNetwork, NicNetwork};
use crate::nic::LocalNic;
use crate::service::MxService;

/// The NICs of the group, without the NIC in turn.
struct Others<'a> {
    nics: &'a mut DenseMap<PortId, LocalNic>,
    ports: &'a BTreeMap<NicId, PortId>,
    /// The NICs that were found.
    touched: &'a mut Vec<PortId>,
}

impl FindNetwork for Others<'_> {
    fn find(&mut self, nic: NicId) -> Option<&mut NicNetwork> {
        let port = *self.ports.get(&nic)?;
        let network = self.nics.get_mut(&port)?.network.as_mut()?;
        if self.touched.last() != Some(&port) && !self.touched.contains(&port) {
            self.touched.push(port);
        }
        Some(network)
    }
}

impl MxService {
    /// Calls `act` with the network of a NIC and with the other NICs of the group.
    fn among<R>(
        &mut self,
        port: PortId,
        act: impl FnOnce(&mut NicNetwork, &mut Others<'_>) -> R,
    ) -> Option<R> {
        let mut network = self.nics.get_mut(&port)?.network.take()?;
        let Self { nics, ports, touched, .. } = self;
        let result = act(&mut network, &mut Others { nics, ports, touched });
        self.nics.get_mut(&port)?.network.put(network);
        Some(result)
    }

    /// Serves the rings of an endpoint.
    pub(crate) fn serve_rings(
        &mut self,
        now: u64,
        (port, endpoint): (PortId, u8),
        budget: usize,
        polled: bool,
    ) -> Option<SourceProgress> {
        self.among(port, |network, others| {
            network.serve_endpoint(now, endpoint, budget, polled, others)
        })
    }

    /// Takes the last requests of an endpoint before it closes.
    pub(crate) fn drain(&mut self, now: u64, port: PortId, endpoint: u8) {
        self.among(port, |network, others| network.drain(now, endpoint, others));
    }

    /// Performs the work of the NIC of `port`, and the work that follows from it. Returns the other
    /// NICs that messages reached.
    pub(crate) fn exchange(&mut self, cx: &mut Context<'_>, port: PortId) -> Vec<PortId> {
        if !self.has_local(port) && !self.touched.iter().any(|other| self.has_local(*other)) {
            return self.end_touched(cx, false);
        }
        let mut steps = LOCAL_STEPS_PER_TURN_MAX;
        let mut bytes = LOCAL_BYTES_PER_TURN;
        let mut turns = VecDeque::from([port]);
        turns.extend(self.touched.iter().filter(|other| **other != port));
        while let Some(from) = turns.pop_front() {
            let done = self.among(from, |network, others| {
                while steps > 0
                    && bytes > 0
                    && let Some(work) = network.next_local()
                {
                    let nic = work.to();
                    let own = others.ports.get(&nic) == Some(&from);
                    let other = if own { None } else { others.find(nic) };
                    if own || other.is_some() {
                        let copied = network.perform(cx.now_ns, work, other);
                        bytes = bytes.saturating_sub(copied);
                    }
                    steps = steps.saturating_sub(1);
                }
                network.end_local(cx.now_ns);
                network.has_local().then(|| network.source())
            });
            if let Some(Some(source)) = done {
                cx.wake_source(source);
            }
            if steps == 0 || bytes == 0 {
                break;
            }
            let busy = |port: &&PortId| self.has_local(**port) && !turns.contains(*port);
            let more = self.touched.iter().filter(busy);
            turns.extend(more.copied().collect::<Vec<_>>());
        }
        let took =
            (LOCAL_STEPS_PER_TURN_MAX.saturating_sub(steps) as u64).saturating_mul(LOCAL_STEP_NS);
        let copied = LOCAL_BYTES_PER_TURN.saturating_sub(bytes).saturating_mul(1000);
        cx.charge(took.saturating_add(copied.checked_div(LOCAL_BYTES_PER_US).unwrap_or(0)));
        self.end_touched(cx, true)
    }

    /// Ends the turn of the NICs that messages reached, and returns them. `had_local`: work for
    /// neighbours was performed.
    fn end_touched(&mut self, cx: &mut Context<'_>, had_local: bool) -> Vec<PortId> {
        let touched = std::mem::take(&mut self.touched);
        for port in &touched {
            let Some(network) = self.network(*port) else { continue };
            if !had_local {
                // Messages went from ring to ring, and nothing else follows.
                network.commit(cx.now_ns);
                continue;
            }
            network.end_local(cx.now_ns);
            if network.has_local() {
                cx.wake_source(network.source());
            }
        }
        touched
    }

    /// Returns whether work of a NIC for its neighbours waits.
    fn has_local(&self, port: PortId) -> bool {
        let network = self.nics.get(&port).and_then(|nic| nic.network.as_ref());
        network.is_some_and(|network| network.has_local())
    }

    /// Makes the NIC of `port` and the other NICs of the group neighbours. The operator sees at a port
    /// that its NIC does not reach another.
    pub(crate) fn add_neighbours(&mut self, cx: &mut Context<'_>, port: PortId) {
        let Some(nic) = self.nics.get(&port).map(|local_nic| local_nic.nic) else { return };
        let others: Vec<_> = self.ports.iter().map(|(nic, port)| (*nic, *port)).collect();
        for (its, other) in others {
            for (at, neighbour, to) in [(port, its, other), (other, nic, port)] {
                let network = self.network(at);
                if network.is_none_or(|network| network.add_neighbour(cx.now_ns, neighbour)) {
                    continue;
                }
                let name = self.nics.get(&to).map_or("another port", |nic| nic.port_name.as_str());
                cx.remark(
                    at,
                    format_args!(
                        "the NIC knows {KNOWN_NICS_MAX} NICs, which is the maximum, and does not \
                         reach the NIC of {name}"
                    ),
                );
            }
        }
        self.ports.insert(nic, port);
    }

    /// Removes a NIC from the neighbours of the other NICs.
    pub(crate) fn remove_neighbour(&mut self, now: u64, nic: NicId) {
        self.ports.remove(&nic);
        for local_nic in self.nics.values_mut() {
            if let Some(network) = local_nic.network.as_mut() {
                network.remove_neighbour(now, nic);
            }
        }
    }
}
