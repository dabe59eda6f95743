//! Explains the decision for a frame, step by step, without sending it.
//!
//! The dispatcher calls [`Ethernet::trace_frame`] through `crate::service` for the operator's
//! `trace` command. The trace follows the order of `crate::forward`: source, link-local filter,
//! routes, address table.
//!
//! It sends nothing, learns nothing and changes no counter, and costs no frame anything. It uses
//! the state of this moment: it reads no MTU, offload or pending queue, and judges the age of
//! addresses by the time at which a queue or the links were served last. With routes it applies
//! them also to the address of hellos, which `crate::forward` drops. Frames that arrive by links
//! are not traced, those of stations (ports of other services) are.

use causeway_model::Forwarding;
use causeway_model::{CommandError, TraceView};
use causeway_model::{Mac, Name, NetSpec};
use causeway_wire::ethernet;

use crate::counters::DropReason;
use crate::forward::NextHop;
use crate::port::Switch;
use crate::route::SwitchIndex;
use crate::service::Ethernet;
use crate::uplink::is_link;

/// The port whose frame is traced.
#[derive(Debug, Clone, Copy)]
struct Sender {
    place: SwitchIndex,
    /// The configured address.
    mac: Mac,
    /// The address of the guest, if it has another.
    guest_mac: Option<Mac>,
    /// Whether the port may send from other addresses.
    learn: bool,
}

impl Switch {
    /// Returns a net port or station, by the name of the port.
    fn sender(&self, name: &Name) -> Option<Sender> {
        let port = self.iter().find(|port| port.name == *name);
        if let Some(port) = port {
            let NetSpec { mac, guest_mac, learn, .. } = port.spec;
            return Some(Sender { place: self.place(port.id)?, mac, guest_mac, learn });
        }
        let place = self.station_named(name)?;
        let station = self.uplinks.station(place)?;
        Some(Sender { place, mac: station.address, guest_mac: None, learn: station.learns })
    }
}

impl Ethernet {
    /// Explains a frame that port `from` would send.
    ///
    /// # Errors
    /// Returns an error if no port of the group with frames has the name.
    pub(crate) fn trace_frame(
        &self,
        from: &Name,
        source: Option<Mac>,
        destination: Mac,
    ) -> Result<TraceView, CommandError> {
        let absent = || CommandError::Invalid(format!("port {from} carries no frames"));
        let sender = self.switch.sender(from).ok_or_else(absent)?;
        let (place, source) = (sender.place, source.unwrap_or(sender.mac));
        let mut steps = vec![format!("port {from} sends from {source}")];
        if let Some(guest) = sender.guest_mac {
            let mac = sender.mac;
            steps.push(format!("its guest has the address {guest}, exchanged with {mac}"));
        }
        if let Err(why) = self.trace_source(sender, source, &mut steps) {
            steps.push(format!("dropped: {}", why.name()));
            return Ok(TraceView { verdict: "drop".into(), to: Vec::new(), steps });
        }
        if self.switch.is_link_local(ethernet::number(destination.0)) {
            let text = "is a link-local address: a group of kind bridge drops frames to it";
            steps.push(format!("{destination} {text}"));
            steps.push(format!("dropped: {}", DropReason::LinkLocal.name()));
            return Ok(TraceView { verdict: "drop".into(), to: Vec::new(), steps });
        }
        // The steps use the time of the last served queue to judge which addresses have aged.
        let routed = self.trace_routes(place, source, destination, &mut steps);
        let (verdict, targets) =
            routed.unwrap_or_else(|| self.trace_route(place, destination, &mut steps));
        let (to, reached) = self.trace_receivers(&targets, &mut steps);
        let verdict = if to.is_empty() || reached { verdict } else { "drop" };
        Ok(TraceView { verdict: verdict.into(), to, steps })
    }

    /// Explains the check of the source address. Returns the reason if the frame would be dropped.
    fn trace_source(
        &self,
        sender: Sender,
        source: Mac,
        steps: &mut Vec<String>,
    ) -> Result<(), DropReason> {
        if source == sender.mac {
            steps.push("the source is the port's own address".into());
            return Ok(());
        }
        if !sender.learn {
            steps.push(format!("the port may send from {} only: it does not learn", sender.mac));
            return Err(DropReason::SpoofedSource);
        }
        if let Some(owner) = self.switch.owner_name(source) {
            steps.push(format!("the source is the address of port {owner}"));
            return Err(DropReason::SpoofedSource);
        }
        if source.is_group() || source.0 == [0; 6] {
            steps.push("the source is not a unicast address".into());
            return Err(DropReason::SpoofedSource);
        }
        steps.push("the port learns the source".into());
        Ok(())
    }

    /// Explains the decision of the routes. Returns the verdict and the switch indices of the
    /// receivers, or `None` if the address table decides.
    fn trace_routes(
        &self,
        place: u32,
        source: Mac,
        destination: Mac,
        steps: &mut Vec<String>,
    ) -> Option<(&'static str, Vec<u32>)> {
        let routes = &self.switch.routes;
        if routes.is_empty() {
            return None;
        }
        let number = |mac: Mac| ethernet::number(mac.0);
        let (fit, places) = routes.explain(place, number(source), number(destination));
        if fit.is_empty() {
            if routes.forwarding() == Forwarding::Learn {
                steps.push("no route matches: the address table decides".into());
                return None;
            }
            steps.push("no route matches, and the group forwards by routes only".into());
            steps.push(format!("dropped: {}", DropReason::NoRoute.name()));
            return Some(("drop", Vec::new()));
        }
        let list: Vec<String> = fit.iter().map(u64::to_string).collect();
        steps.push(format!("matching routes of the highest priority: {}", list.join(", ")));
        if places.is_empty() {
            steps.push("they lead to no existing port or link except the ingress".into());
            steps.push(format!("dropped: {}", DropReason::NoRoute.name()));
            return Some(("drop", places));
        }
        Some(("forward", places))
    }

    /// Explains the decision of the address table. Returns the verdict and the switch indices of
    /// the receivers.
    fn trace_route(
        &self,
        place: u32,
        destination: Mac,
        steps: &mut Vec<String>,
    ) -> (&'static str, Vec<u32>) {
        let up = self.switch.uplinks.up();
        let others = |all: &[u32]| all.iter().chain(up).copied().filter(|&p| p != place).collect();
        match self.switch.next_hop(place, destination.0, self.now_ns) {
            NextHop::To(to) => {
                let is_far = is_link(to) && !self.switch.uplinks.is_station(to);
                let at = if is_far { "behind a link" } else { "at one port" };
                steps.push(format!("{destination} is {at}"));
                ("forward", vec![to])
            }
            NextHop::Set(_) => ("forward", Vec::new()),
            NextHop::All => {
                steps.push(format!(
                    "{destination} is a group address: to every port of the group, and every link"
                ));
                ("flood", others(&self.switch.members))
            }
            NextHop::Learners => {
                steps.push(format!(
                    "{destination} is unknown: to every port that learns, and every link"
                ));
                ("flood", others(&self.switch.learners))
            }
            NextHop::Drop(why) => {
                let text = match why {
                    DropReason::SamePort => "is behind the sending port",
                    _ => "is unknown, and no other port of the group learns",
                };
                steps.push(format!("{destination} {text}"));
                steps.push(format!("dropped: {}", why.name()));
                ("drop", Vec::new())
            }
        }
    }

    /// Returns the names of the receivers and whether one of them can receive. Appends the state of
    /// each to `steps`.
    fn trace_receivers(&self, targets: &[u32], steps: &mut Vec<String>) -> (Vec<String>, bool) {
        let (mut names, mut reached) = (Vec::new(), false);
        for &link in targets.iter().filter(|&&place| is_link(place)) {
            let name = self.switch.name(link);
            let up = self.switch.uplinks.is_up(link);
            reached |= up;
            if self.switch.uplinks.is_station(link) {
                steps.push(format!("to port {name}, which another service serves"));
                names.push(name);
                continue;
            }
            let state = if up { "it is up" } else { "it is down: dropped" };
            steps.push(format!("to link {name}: {state}"));
            names.push(name);
        }
        for port in targets.iter().filter_map(|&p| self.switch.get(p)) {
            reached |= !port.receive.is_empty();
            let state = if port.receive.is_empty() {
                "its guest does not run the device: dropped there"
            } else {
                "its guest runs the device"
            };
            steps.push(format!("to port {}: {state}", port.name));
            names.push(port.name.to_string());
        }
        names.sort();
        (names, reached)
    }
}
