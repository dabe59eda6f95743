//! A fabric in memory: it keeps ports, groups and rules, and carries nothing.

use std::collections::BTreeMap;
use std::sync::Mutex;

use causeway_daemon::fabric::Fabric;
use causeway_fabric::Name;
use causeway_fabric::control::{
    Answer, Command, CommandError, GroupView, PortState, PortView, RuleView, TraceQuery, TraceView,
};
use causeway_fabric::orders::{Forwarding, GroupSpec};
use causeway_fabric::spec::{PortSpec, RuleSpec};

#[derive(Debug, Default)]
pub struct Model {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: Vec<Name>,
    ports: BTreeMap<Name, PortSpec>,
    rules: Vec<RuleSpec>,
}

impl Fabric for Model {
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        let mut state = self.state.lock().unwrap();
        state.call(command)
    }
}

fn missing(what: &'static str, name: impl ToString) -> CommandError {
    CommandError::NotFound { what, name: name.to_string() }
}

impl State {
    fn call(&mut self, command: Command) -> Result<Answer, CommandError> {
        match command {
            Command::PortList => Ok(Answer::Ports(self.ports.values().map(view).collect())),
            Command::PortShow(name) => match self.ports.get(&name) {
                Some(spec) => Ok(Answer::Port(Box::new(view(spec)))),
                None => Err(missing("port", name)),
            },
            Command::PortAdd(spec) => {
                if !self.groups.contains(&spec.group) {
                    return Err(missing("group", &spec.group));
                }
                if self.ports.contains_key(&spec.name) {
                    return Err(CommandError::Conflict(format!("port {} exists", spec.name)));
                }
                self.ports.insert(spec.name.clone(), spec.clone());
                Ok(Answer::Port(Box::new(view(&spec))))
            }
            Command::PortDel(name) => {
                self.ports.remove(&name).map(|_| Answer::Done).ok_or(missing("port", name))
            }
            Command::GroupList => Ok(Answer::Groups(self.groups())),
            Command::GroupAdd(GroupSpec { name, .. }) => {
                if self.groups.contains(&name) {
                    return Err(CommandError::Conflict(format!("group {name} exists")));
                }
                self.groups.push(name);
                Ok(Answer::Done)
            }
            Command::GroupDel(name) => {
                if self.ports.values().any(|p| p.group == name) {
                    return Err(CommandError::Conflict(format!("group {name} has ports")));
                }
                let at = self.groups.iter().position(|g| *g == name);
                self.groups.remove(at.ok_or(missing("group", name))?);
                Ok(Answer::Done)
            }
            Command::RuleList => Ok(Answer::Rules(self.rules())),
            Command::RuleAdd { index, rule } => {
                let at = index.unwrap_or(self.rules.len());
                if at > self.rules.len() {
                    return Err(CommandError::Invalid(format!("index {at} is beyond the end")));
                }
                self.rules.insert(at, rule);
                Ok(Answer::Rules(self.rules()))
            }
            Command::RuleDel { index } if index < self.rules.len() => {
                self.rules.remove(index);
                Ok(Answer::Done)
            }
            Command::RuleDel { index } => Err(missing("rule", index)),
            Command::DispatcherList | Command::ShardMove { .. } => {
                Ok(Answer::Dispatchers(Vec::new()))
            }
            Command::Trace(query) => Ok(Answer::Trace(trace(&query))),
            Command::LinkList => Ok(Answer::Links(Vec::new())),
            Command::RouteList => Ok(Answer::Routes(Vec::new())),
            other => Err(CommandError::Invalid(format!("not modelled: {other:?}"))),
        }
    }

    fn groups(&self) -> Vec<GroupView> {
        let of = |g: &Name| {
            self.ports.values().filter(|p| p.group == *g).map(|p| p.name.clone()).collect()
        };
        self.groups
            .iter()
            .map(|g| GroupView {
                name: g.clone(),
                forwarding: Forwarding::default(),
                ports: of(g),
                links: Vec::new(),
            })
            .collect()
    }

    fn rules(&self) -> Vec<RuleView> {
        let rules = self.rules.iter().cloned().enumerate();
        rules.map(|(index, rule)| RuleView { index, rule, hits_total: 0 }).collect()
    }
}

fn view(spec: &PortSpec) -> PortView {
    let counters = [("transmit_packets_total", 3), ("receive_packets_total", 4)];
    PortView {
        spec: spec.clone(),
        state: PortState::Listening,
        dispatcher: 0,
        fault: None,
        faults_total: 0,
        connects_total: 0,
        features: "0x0".into(),
        memory_bytes: 0,
        queues: Vec::new(),
        counters: counters.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
    }
}

fn trace(query: &TraceQuery) -> TraceView {
    TraceView { verdict: "drop".into(), to: Vec::new(), steps: vec![format!("{query:?}")] }
}
