//! The controller of the service: routes, captures and traffic matrices of all groups.
//!
//! The controller runs on the thread that sent the command (of the control socket, of a VNET
//! session, or `lifecycle`) and at ticks on a thread of the fabric, one call at a time, keeps the
//! configuration, and sends each change to the shard concerned as a request (`crate::request`). An
//! answer waits for the shard's dispatcher. The controller touches no frame and writes no
//! configuration file. Links are configured by the link service, which reports deleted links here.
//! Routes are deleted with the port or link that they name, unless they are prepared (`routes`),
//! and idle captures end at a tick, once a second while captures exist, or with the next capture
//! command. In a group without ports with frames and without links a route that is not prepared, a
//! capture of frames and the traffic matrix are refused: no shard exists that could answer.

mod captures;
mod routes;

use causeway_fabric::carrier::{FindLink, ForwardingChanged, LinkDeleted};
use causeway_fabric::traffic::{ReadDirectTraffic, add_direct};
use causeway_fabric::{Control, Controller, ShardKey};
use causeway_model::commands::{captures as capture, routes as route, traffic};
use causeway_model::{
    CommandError, Name, PortSpec, RequestDispatch, RouteEnd, ServiceRequest, TrafficView,
};

use crate::request::ReadTraffic;
use crate::service::NAME;
use captures::Captures;
use routes::Routes;

/// Answers the operator's commands for the service.
#[derive(Debug, Default)]
pub(crate) struct EthernetController {
    routes: Routes,
    captures: Captures,
}

/// Returns the error for a name without a link.
fn no_link(name: &Name) -> CommandError {
    CommandError::NotFound { what: "link", name: name.to_string() }
}

/// Returns the group of a port with frames, or of a link of another service.
fn group_of(control: &mut Control<'_>, end: &RouteEnd) -> Result<Name, CommandError> {
    match end {
        RouteEnd::Interface(name) => {
            let (port, _) = control.port(name)?;
            if !port.kind.kind().is_network {
                return Err(CommandError::Invalid(format!("port {name} carries no frames")));
            }
            Ok(port.group.clone())
        }
        RouteEnd::Edge(name) => {
            let found = control.consult(&FindLink(name.clone()))?;
            found.into_iter().flatten().next().ok_or_else(|| no_link(name))
        }
    }
}

/// Checks that an end of a route is in the route's group.
fn check_end(control: &mut Control<'_>, group: &Name, end: &RouteEnd) -> Result<(), CommandError> {
    let owner = group_of(control, end)?;
    if owner == *group {
        return Ok(());
    }
    let end = match end {
        RouteEnd::Interface(name) => format!("port {name}"),
        RouteEnd::Edge(name) => format!("link {name}"),
    };
    let text = format!("{end} is in group {owner}, not in {group}: no traffic crosses groups");
    Err(CommandError::Invalid(text))
}

/// Returns the traffic matrix of a group, with the traffic that other services exchange directly, or
/// an error if the group has neither ports with frames nor links.
fn traffic(control: &mut Control<'_>, group: &Name) -> Result<TrafficView, CommandError> {
    control.group(group)?;
    let shard = ShardKey::new(group, NAME);
    if !control.has_shard(&shard) {
        let text = format!("group {group} has no ports with frames and no links");
        return Err(CommandError::Invalid(text));
    }
    let mut view = control.ask(&shard, ReadTraffic(group.clone()))?;
    for direct in control.consult(&ReadDirectTraffic(group.clone()))? {
        add_direct(&mut view, direct);
    }
    Ok(view)
}

impl Controller for EthernetController {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        let Self { routes, captures } = self;
        RequestDispatch::new(request)
            .on(|route::List| routes.list(control))
            .on(|route::Prepare(spec)| routes.prepare(control, spec))
            .on(|route::Add(spec)| routes.add(control, spec))
            .on(|route::Delete(number)| routes.delete(control, number))
            .on(|route::Remove(spec)| routes.remove(control, &spec))
            .on(|traffic::Show(group)| traffic(control, &group))
            .on(|capture::Begin(spec)| captures.begin(control, spec))
            .on(|capture::Fetch(number)| captures.fetch(number))
            .on(|capture::Stop(number)| captures.stop(number))
            .on(|capture::End(number)| captures.end(number))
            .on(|LinkDeleted { name, group }| routes.forget(control, &group, &RouteEnd::Edge(name)))
            .on(|ForwardingChanged(group)| routes.follow_forwarding(control, &group))
    }

    fn shard_opened(
        &mut self,
        control: &mut Control<'_>,
        shard: &ShardKey,
    ) -> Result<(), CommandError> {
        self.routes.configure(control, shard)
    }

    fn port_deleted(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        self.routes.forget(control, &port.group, &RouteEnd::Interface(port.name.clone()))
    }

    fn group_deleted(&mut self, group: &Name) {
        self.routes.forget_group(group);
    }

    fn needs_tick(&self) -> bool {
        !self.captures.is_empty()
    }

    fn tick(&mut self) {
        self.captures.end_idle();
    }
}
