//! Carrying out what the operator asks.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use crate::control::{
    Answer, Command, CommandError, GroupView, PortState, PortView, QueueView, TraceQuery,
};
use crate::dispatch::Dispatcher;
use crate::limits::{GROUPS_MAX, PORTS_MAX};
use crate::listen::Listener;
use crate::loglimit::LogLimit;
use crate::port::{Port, PortId, QueueWork};
use crate::spec::{Name, PortSpec};
use crate::watch::{Token, When};

fn no_port(name: &Name) -> CommandError {
    CommandError::NotFound { what: "port", name: name.to_string() }
}

fn no_group(name: &Name) -> CommandError {
    CommandError::NotFound { what: "group", name: name.to_string() }
}

impl Dispatcher {
    /// Carries out one command.
    pub(crate) fn execute(&mut self, command: Command) -> Result<Answer, CommandError> {
        match command {
            Command::PortList => {
                let mut views: Vec<_> = self.ports.iter().map(|p| self.view(p)).collect();
                views.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
                Ok(Answer::Ports(views))
            }
            Command::PortShow(name) => {
                let port = self.ports.by_name(&name).ok_or_else(|| no_port(&name))?;
                Ok(Answer::Port(Box::new(self.view(port))))
            }
            Command::PortAdd(spec) => self.port_add(spec),
            Command::PortDel(name) => {
                let id = self.ports.by_name(&name).ok_or_else(|| no_port(&name))?.id;
                self.port_delete(id);
                log::info!(port = name.as_str(); "port deleted");
                Ok(Answer::Done)
            }
            Command::GroupList => Ok(Answer::Groups(self.group_views())),
            Command::GroupAdd(name) => self.group_add(name),
            Command::GroupDel(name) => self.group_delete(&name),
            Command::RuleList => Ok(Answer::Rules(self.rules.view())),
            Command::RuleAdd { index, rule } => {
                for group in [&rule.from.group, &rule.to.group].into_iter().flatten() {
                    self.ports.group(group).ok_or_else(|| no_group(group))?;
                }
                self.rules.add(index, rule)?;
                Ok(Answer::Rules(self.rules.view()))
            }
            Command::RuleDel { index } => {
                self.rules.delete(index)?;
                Ok(Answer::Done)
            }
            Command::Trace(query) => self.trace(&query),
        }
    }

    fn trace(&self, query: &TraceQuery) -> Result<Answer, CommandError> {
        let mut answers =
            self.services.iter().filter_map(|s| s.trace(&self.ports, &self.rules, query));
        match answers.next() {
            Some(answer) => answer.map(Answer::Trace),
            None => Err(CommandError::Invalid("no service knows this kind of query".into())),
        }
    }

    fn group_views(&self) -> Vec<GroupView> {
        let view = |(id, name): (_, &Name)| {
            let mut ports: Vec<Name> =
                self.ports.iter().filter(|p| p.group == id).map(|p| p.spec.name.clone()).collect();
            ports.sort();
            GroupView { name: name.clone(), ports }
        };
        self.ports.groups().map(view).collect()
    }

    fn group_add(&mut self, name: Name) -> Result<Answer, CommandError> {
        if name.as_str() == "host" {
            let text = "group \"host\": this name stands for the host in rules; choose another";
            return Err(CommandError::Invalid(text.into()));
        }
        if self.ports.group(&name).is_some() {
            return Err(CommandError::Conflict(format!("group {name} exists already")));
        }
        if self.ports.groups().count() >= GROUPS_MAX {
            return Err(CommandError::Conflict(format!("there are {GROUPS_MAX} groups already")));
        }
        self.ports.add_group(name);
        Ok(Answer::Done)
    }

    fn group_delete(&mut self, name: &Name) -> Result<Answer, CommandError> {
        let id = self.ports.group(name).ok_or_else(|| no_group(name))?;
        if let Some(port) = self.ports.iter().find(|p| p.group == id) {
            let text =
                format!("group {name} still has port {}; delete its ports first", port.spec.name);
            return Err(CommandError::Conflict(text));
        }
        self.ports.delete_group(id);
        Ok(Answer::Done)
    }

    fn port_add(&mut self, spec: PortSpec) -> Result<Answer, CommandError> {
        spec.check().map_err(|e| CommandError::Invalid(e.to_string()))?;
        if self.ports.by_name(&spec.name).is_some() {
            return Err(CommandError::Conflict(format!("port {} exists already", spec.name)));
        }
        for other in self.ports.iter() {
            if let Some(path) = spec.paths().find(|path| other.spec.paths().any(|p| p == *path)) {
                let (path, other) = (path.display(), &other.spec.name);
                return Err(CommandError::Conflict(format!("{path}: port {other} listens there")));
            }
        }
        let group = self.ports.group(&spec.group).ok_or_else(|| no_group(&spec.group))?;
        let service = self.services.iter().position(|s| s.serves(&spec)).ok_or_else(|| {
            CommandError::Invalid(format!("port {}: no service for its kind", spec.name))
        })?;
        let queues = self.services.get(service).map_or(0, |s| s.model(&spec).queues);
        let many = || CommandError::Conflict(format!("there are {PORTS_MAX} ports already"));
        let id = self.ports.vacancy(PORTS_MAX).ok_or_else(many)?;
        let listener = Listener::bind(&spec.socket)?;
        let token = Token::Listener { slot: id.slot, serial: id.serial };
        let watch = self.poller.watch(listener.as_fd(), token, When::Readable);
        let watch = watch.map_err(|e| CommandError::Host(format!("port {}: {e}", spec.name)))?;
        self.ports.insert(Port {
            spec,
            group,
            id,
            service,
            state: PortState::Listening,
            fault: None,
            faults_total: 0,
            connects_total: 0,
            barred_until_ns: 0,
            log: LogLimit::default(),
            listener,
            _listener_watch: watch,
            server: None,
            server_watch: None,
            queues: std::iter::repeat_with(QueueWork::default).take(queues).collect(),
        });
        let added = self.with(service, |s, cx| s.added(cx, id));
        if let Some(Err(error)) = added {
            self.ports.remove(id);
            return Err(error);
        }
        let port = self.ports.get(id).ok_or_else(many)?;
        let socket = port.spec.socket.display();
        log::info!(port = port.spec.name.as_str(), socket:% = socket; "port added");
        Ok(Answer::Port(Box::new(self.view(port))))
    }

    fn port_delete(&mut self, id: PortId) {
        self.close_frontend(id, PortState::Listening, None);
        if let Some(service) = self.ports.get(id).map(|p| p.service) {
            self.with(service, |s, cx| s.removed(cx, id));
        }
        self.ports.remove(id);
    }

    /// Closes every port, for the end of the process.
    pub(crate) fn close_all(&mut self) {
        let ids: Vec<PortId> = self.ports.iter().map(|p| p.id).collect();
        for id in ids {
            self.port_delete(id);
        }
        self.settle();
    }

    fn view(&self, port: &Port) -> PortView {
        let device = port.device();
        let queue = |index: usize| {
            let ring = device.and_then(|d| d.queues.get(index)?.ring.as_ref());
            QueueView {
                index,
                size: ring.map_or(0, causeway_ring::Queue::size),
                format: ring.map_or("split", causeway_ring::Queue::format),
                running: ring.is_some(),
            }
        };
        let counters =
            self.services.get(port.service).map_or_else(BTreeMap::new, |s| s.counters(port.id));
        PortView {
            spec: port.spec.clone(),
            state: port.state,
            fault: port.fault.clone(),
            faults_total: port.faults_total,
            connects_total: port.connects_total,
            features: format!("{:#x}", port.features()),
            memory_bytes: port.map().map_or(0, causeway_memory::Map::bytes),
            queues: (0..port.queues.len()).map(queue).collect(),
            counters,
        }
    }
}
