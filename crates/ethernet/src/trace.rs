//! Explains where a frame would go, step by step, without sending it.

use causeway_fabric::control::{CommandError, TraceView};
use causeway_fabric::{Mac, Name, Ports};

use crate::counters::DropReason;
use crate::forward::Route;
use crate::port::NetPort;
use crate::service::Ethernet;

impl Ethernet {
    /// Explains a frame that port `from` would send.
    pub(crate) fn trace_frame(
        &self,
        ports: &Ports,
        from: &Name,
        source: Option<Mac>,
        destination: Mac,
    ) -> Result<TraceView, CommandError> {
        let absent = || CommandError::NotFound { what: "port", name: from.to_string() };
        let port = ports.by_name(from).ok_or_else(absent)?;
        let place = self.directory.place(port.id());
        let net = place.and_then(|place| Some((place, self.directory.get(place)?)));
        let Some((place, net)) = net else {
            return Err(CommandError::Invalid(format!("port {from} is not a net port")));
        };
        let source = source.unwrap_or(net.spec.mac);
        let mut steps =
            vec![format!("port {from} of group {} sends from {source}", port.spec.group)];
        if let Err(why) = self.trace_source(net, source, &mut steps) {
            steps.push(format!("dropped: {}", why.name()));
            return Ok(TraceView { verdict: "drop".into(), to: Vec::new(), steps });
        }
        // A trace has no clock of its own: what has aged is judged as of the last frame.
        let (verdict, targets) = self.trace_route(place, destination, &mut steps);
        let to = self.trace_receivers(&targets, &mut steps);
        Ok(TraceView { verdict: verdict.into(), to, steps })
    }

    fn trace_source(
        &self,
        net: &NetPort,
        source: Mac,
        steps: &mut Vec<String>,
    ) -> Result<(), DropReason> {
        if source == net.spec.mac {
            steps.push("the source is the port's own address".into());
            return Ok(());
        }
        if !net.spec.learn {
            steps.push(format!("the port may send from {} only: it does not learn", net.spec.mac));
            return Err(DropReason::SpoofedSource);
        }
        let owner = self.directory.owner(source);
        if let Some(owner) = owner {
            steps.push(format!("the source is the address of port {}", owner.name));
            return Err(DropReason::SpoofedSource);
        }
        if source.is_group() || source.0 == [0; 6] {
            steps.push("the source is not a unicast address".into());
            return Err(DropReason::SpoofedSource);
        }
        steps.push("the port learns the source".into());
        Ok(())
    }

    fn trace_route(
        &self,
        place: u32,
        destination: Mac,
        steps: &mut Vec<String>,
    ) -> (&'static str, Vec<u32>) {
        let others = |all: &[u32]| all.iter().copied().filter(|&p| p != place).collect();
        match self.directory.route(place, destination.0, self.now_ns) {
            Route::To(to) => {
                steps.push(format!("{destination} is at one port"));
                ("forward", vec![to])
            }
            Route::Set(_) => ("forward", Vec::new()),
            Route::All => {
                steps.push(format!("{destination} is for every port of the group"));
                ("flood", others(&self.directory.members))
            }
            Route::Learners => {
                steps.push(format!("{destination} is unknown: to every port that learns"));
                ("flood", others(&self.directory.learners))
            }
            Route::Drop(why) => {
                let text = match why {
                    DropReason::SamePort => "is at the port that sends",
                    _ => "is unknown, and no other port of the group learns",
                };
                steps.push(format!("{destination} {text}"));
                steps.push(format!("dropped: {}", why.name()));
                ("drop", Vec::new())
            }
        }
    }

    /// The names of the receivers, and what would keep each from receiving.
    fn trace_receivers(&self, targets: &[u32], steps: &mut Vec<String>) -> Vec<String> {
        let mut names = Vec::new();
        for port in targets.iter().filter_map(|&p| self.directory.get(p)) {
            let state = if port.receive.is_empty() {
                "its guest does not run the device: dropped there"
            } else {
                "its guest runs the device"
            };
            steps.push(format!("to port {}: {state}", port.name));
            names.push(port.name.to_string());
        }
        names.sort();
        names
    }
}
