//! The registry: executes the operator's commands across all dispatchers.
//!
//! [`crate::Handle`] calls the registry under its lock, so one thread at a time: in the thread of a
//! command, of the balancer or of the ticks. The registry reaches shards by orders to their
//! dispatchers, and blocks until they answer. Nothing here is called on the data path.
//!
//! The registry keeps the groups, the ports, the rules, and the dispatcher of each shard, all in
//! memory: files are the daemon's. Objects of services (links, for example) belong to the services'
//! controllers ([`controller`]), which reach the fabric by [`Control`]. A port is recorded
//! only after its shard has added it. Limits: [`PORTS_MAX`] (1,024) ports, a further one is
//! refused; `core` and `crate::rules` check the others.

pub mod controller;
mod core;
mod policy;
mod reply;
mod rules;
mod service_parts;
mod site;

use std::sync::Arc;
use std::time::Instant;

use crate::dispatch_mode::PollConfig;
use crate::dispatcher::Worker;
use crate::registration::ServiceRegistration;
use crate::shard::ShardKey;
use crate::shard::ports::{no_port, too_many_ports};
use causeway_model::limits::PORTS_MAX;
use causeway_model::{Answer, Command, CommandError, GroupView, RequestDispatch, ServiceRequest};
use causeway_model::{Name, PortSpec};

use self::controller::{Control, Controller, Entry};
use self::core::Core;
use self::reply::{Reply, inconsistent};
use self::service_parts::ServiceParts;

/// The control plane of the fabric.
#[derive(Debug)]
pub(crate) struct Registry {
    core: Core,
    /// In the order of the services.
    controllers: Vec<Entry>,
    /// A thread calls [`Self::tick`].
    is_ticking: bool,
}

impl Registry {
    /// Makes the registry, and the controller of each service.
    pub(crate) fn new(
        services: &[ServiceRegistration],
        poll_config: PollConfig,
        workers: Vec<Arc<Worker>>,
        start: Instant,
    ) -> Self {
        let entry = |service: &ServiceRegistration| Entry {
            service: service.name,
            controller: (service.controller)(),
        };
        let parts = |service: &ServiceRegistration| ServiceParts {
            name: service.name,
            make: service.make,
            kinds: service.kinds,
            capabilities: service.capabilities,
            traces: service.traces,
        };
        let parts = services.iter().map(parts).collect();
        Self {
            core: Core::new(parts, poll_config, workers, start),
            controllers: services.iter().map(entry).collect(),
            is_ticking: false,
        }
    }

    /// Executes a command.
    pub(crate) fn execute(&mut self, command: Command) -> Reply {
        let core = &mut self.core;
        match command {
            Command::PortList => core.port_views().map(Answer::Ports),
            Command::PortShow(name) => {
                core.port_view(&name).map(|view| Answer::Port(Box::new(view)))
            }
            Command::PortAdd(spec) => self.port_add(spec),
            Command::PortDel(name) => self.port_delete(&name),
            Command::GroupList => Ok(Answer::Groups(self.group_views())),
            Command::GroupAdd(spec) => core.group_add(spec),
            Command::GroupDel(name) => self.group_delete(&name),
            Command::RuleList => core.rule_views().map(Answer::Rules),
            Command::RuleAdd { index, rule } => core.rule_add(index, rule),
            Command::RuleDel { index } => core.rule_delete(index),
            Command::Trace(query) => core.trace(query),
            Command::DispatcherList => core.dispatcher_views().map(Answer::Dispatchers),
            Command::ShardMove { group, service, dispatcher } => {
                core.shard_move(&group, service.as_deref(), dispatcher)
            }
            Command::Service(request) => self.ask(request),
        }
    }

    /// Passes a request to the controllers in order, until one answers it.
    fn ask(&mut self, request: ServiceRequest) -> Reply {
        let mut dispatch = RequestDispatch::new(request);
        for index in 0..self.controllers.len() {
            let request = match dispatch {
                RequestDispatch::Open(request) => request,
                RequestDispatch::Answered(_) => break,
            };
            let ask =
                |own: &mut dyn Controller, control: &mut Control<'_>| own.ask(control, request);
            let asked = Control::with(&mut self.core, &mut self.controllers, index, ask);
            dispatch = asked.ok_or_else(inconsistent)?;
        }
        dispatch.finish().map(Answer::Service)
    }

    /// Returns a control that reaches all controllers.
    fn control(&mut self) -> Control<'_> {
        Control::new(&mut self.core, &mut self.controllers)
    }

    /// Returns the views of all groups, with the objects of services.
    fn group_views(&self) -> Vec<GroupView> {
        let views = self.core.groups.iter().map(|group| {
            let mut view = self.core.group_view(group);
            for entry in &self.controllers {
                entry.controller.extend_group(&mut view);
            }
            view
        });
        views.collect()
    }

    /// Deletes a group; refuses a group that has a port, or an object that a controller names
    /// ([`Controller::object_in`]). Rules and prepared routes of the group stay.
    fn group_delete(&mut self, name: &Name) -> Reply {
        self.core.has_group(name)?;
        let ports = &self.core.ports;
        if let Some((port, _)) = ports.iter().find(|(_, (spec, _))| spec.group == *name) {
            let text = format!("group {name} still has port {port}; delete its ports first");
            return Err(CommandError::Conflict(text));
        }
        if let Some(left) = self.controllers.iter().find_map(|e| e.controller.object_in(name)) {
            let kind = left.kind;
            let text =
                format!("group {name} still has {kind} {}; delete its {kind}s first", left.name);
            return Err(CommandError::Conflict(text));
        }
        self.core.groups.retain(|group| group.name != *name);
        self.controllers.iter_mut().for_each(|entry| entry.controller.group_deleted(name));
        Ok(Answer::Done)
    }

    /// Checks a port, opens the shard of its group and service if needed, and adds the port there.
    /// Refuses a name or path in use, a missing group, and a port beyond [`PORTS_MAX`] (1,024). If
    /// the shard refuses the port, a shard that was opened for it is closed again; if the
    /// controller of the service refuses the port, the port is deleted.
    fn port_add(&mut self, spec: PortSpec) -> Reply {
        spec.check().map_err(|e| CommandError::Invalid(e.to_string()))?;
        let ports = &self.core.ports;
        if ports.contains_key(&spec.name) {
            return Err(CommandError::Conflict(format!("port {} exists already", spec.name)));
        }
        for (other, (taken, _)) in ports {
            if let Some(path) = spec.paths().find(|path| taken.paths().any(|p| p == *path)) {
                let text = format!("{}: port {other} listens there", path.display());
                return Err(CommandError::Conflict(text));
            }
        }
        self.core.has_group(&spec.group)?;
        if ports.len() >= PORTS_MAX {
            return Err(too_many_ports());
        }
        let serves = |service: &&ServiceParts| service.kinds.contains(&spec.kind.kind());
        let service = self.core.services.iter().find(serves).ok_or_else(|| {
            CommandError::Invalid(format!("port {}: no service for its kind", spec.name))
        })?;
        let key = ShardKey::new(&spec.group, service.name);
        self.control().ensure(&key)?;
        let (core, wanted) = (&mut self.core, spec.clone());
        match core.with(&key, move |shard| shard.port_add(wanted, true)).and_then(|added| added) {
            Ok(view) => {
                let (view, service) = (core.with_dispatcher(&key, view), key.service);
                core.ports.insert(spec.name.clone(), (spec.clone(), key));
                self.configure_port(service, &spec)?;
                Ok(Answer::Port(Box::new(view)))
            }
            Err(error) => {
                core.close_if_unused(&key);
                Err(error)
            }
        }
    }

    /// Lets the controller of a service configure a new port. If it refuses, the port is deleted.
    fn configure_port(&mut self, service: &str, spec: &PortSpec) -> Result<(), CommandError> {
        let found = self.controllers.iter().position(|entry| entry.service == service);
        let Some(index) = found else { return Ok(()) };
        let configure =
            |own: &mut dyn Controller, control: &mut Control<'_>| own.port_added(control, spec);
        let configured = Control::with(&mut self.core, &mut self.controllers, index, configure);
        configured.unwrap_or_else(|| Err(inconsistent())).inspect_err(|_| {
            // The command reports the refusal.
            let _ = self.port_delete(&spec.name);
        })
    }

    /// Deletes a port, notifies all controllers, and closes the shard if it has no further use. An
    /// error of a controller is logged: the port is deleted.
    fn port_delete(&mut self, name: &Name) -> Reply {
        let core = &mut self.core;
        let (_, key) = core.ports.get(name).ok_or_else(|| no_port(name))?;
        let (key, wanted) = (key.clone(), name.clone());
        core.with(&key, move |shard| shard.port_delete(&wanted))??;
        let (spec, _) = core.ports.remove(name).ok_or_else(|| no_port(name))?;
        let notified = self.control().each(|controller, control| {
            if let Err(error) = controller.port_deleted(control, &spec) {
                log::warn!(
                    port = name.as_str(), error:% = error;
                    "a service keeps objects of the deleted port; restart causewayd if they disturb"
                );
            }
            Ok::<_, CommandError>(())
        });
        self.core.close_if_unused(&key);
        notified.map(|()| Answer::Done)
    }

    /// Returns whether a controller needs ticks and no thread calls them; the caller must then do
    /// so.
    pub(crate) fn begin_ticks(&mut self) -> bool {
        self.needs_tick() && !std::mem::replace(&mut self.is_ticking, true)
    }

    /// Calls each controller's tick, and returns whether another tick is needed.
    pub(crate) fn tick(&mut self) -> bool {
        for entry in &mut self.controllers {
            entry.controller.tick();
        }
        self.is_ticking = self.needs_tick();
        self.is_ticking
    }

    /// Records that no thread could be started for ticks.
    pub(crate) fn end_ticks(&mut self) {
        self.is_ticking = false;
    }

    /// Returns whether a controller needs ticks.
    fn needs_tick(&self) -> bool {
        self.controllers.iter().any(|entry| entry.controller.needs_tick())
    }

    /// Moves one shard if that relieves the busiest dispatcher.
    pub(crate) fn balance(&mut self) {
        self.core.balance();
    }
}
