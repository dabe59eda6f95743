//! Plans the changes from the running state to that of a configuration, in a valid order, and
//! executes them.
//!
//! `POST /v1/apply` reads the running state ([`read_running`]), compares it with the file
//! ([`plan()`]) and executes the steps ([`execute()`]). Planning has no side effect and cannot
//! fail; equal states have an empty plan. The steps run in the order of [`StepCommand`]: links and
//! ports are deleted before their groups and added after them; rules change in between.
//!
//! Routes deny traffic too: a new route, and a route that stays while its port or link is replaced,
//! is prepared before any port changes (a new route of a new or replaced group: before any port is
//! added), and a route is deleted after the ports and links. In between both sets apply together.
//! Together they permit nothing that both deny, because the routes of the highest priority decide.
//!
//! A changed object is deleted and added again: there is no change in place, and its frontend or
//! peer is disconnected in between. Ports, links and routes of a replaced group, and routes that
//! name a replaced port or link, are replaced too; rules and objects of services' sections are not.
//! Names are compared exactly: a renamed object is a deletion and an addition. The plan holds for
//! the state that was read; a concurrent change shows as a refused step. The execution ends at the
//! first refused step, and executed steps are not undone.
//!
//! Objects of services' sections change last, deletions first: they may name ports, and no other
//! object names them.
//!
//! `[daemon]`, `[dispatch]`, `[control]` and `[metrics]` are not planned. VNET commands have their
//! own planner, [`crate::vnet::plan`]. [`crate::api`] plans and executes, one plan at a time, in
//! the thread of a connection; `POST /v1/config/diff` uses [`read_running`] and [`rule_changes`],
//! [`crate::kept`] [`read_running`] and [`shown`], and [`crate::vnet`] [`shown`].

mod execute;
mod objects;
mod rules;
mod state;

use std::collections::{HashMap, HashSet};

use causeway_model::CommandError;
use causeway_model::GroupSpec;
use causeway_model::Name;
use causeway_model::{LinkSpec, PortSpec, RouteEnd, RouteSpec, RuleSpec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::ConfigObject;
pub use execute::{PlanResult, execute};
pub use rules::changes as rule_changes;
pub use state::read_running;

/// The objects that can change while the daemon runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FabricState {
    /// The groups.
    pub groups: Vec<GroupSpec>,
    /// The rules, in their order.
    pub rules: Vec<RuleSpec>,
    /// The ports.
    pub ports: Vec<PortSpec>,
    /// The links.
    pub links: Vec<LinkSpec>,
    /// The routes; their order has no meaning.
    pub routes: Vec<RouteSpec>,
    /// The objects of sections that can be listed and deleted.
    pub objects: Vec<ConfigObject>,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedChange {
    /// The type of the change.
    pub action: ChangeType,
    /// `group`, `rule`, `port`, `link`, `route`, or the section of a service.
    pub what: &'static str,
    /// Name of the object; rules and routes have a description instead.
    pub name: String,
    /// The object before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The object after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeType {
    /// The object is added.
    Add,
    /// The object is deleted.
    Delete,
    /// The object is deleted and added again.
    Replace,
}

/// A command to the fabric, and the change that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanStep {
    /// Index of the change.
    pub change: usize,
    /// The command.
    pub act: StepCommand,
}

/// A command of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepCommand {
    /// Put a route of a group that stays in force.
    RoutePrepare(RouteSpec),
    /// Delete a link.
    LinkDel(Name),
    /// Delete a port.
    PortDel(Name),
    /// Delete a group.
    GroupDel(Name),
    /// Add a group.
    GroupAdd(GroupSpec),
    /// Delete the rule at an index; rules after it are deleted before.
    RuleDel(usize),
    /// Insert a rule at an index; rules before it are inserted before.
    RuleAdd(usize, RuleSpec),
    /// Put a route of a new or replaced group in force.
    RoutePrepareIn(RouteSpec),
    /// Add a port.
    PortAdd(Box<PortSpec>),
    /// Add a link.
    LinkAdd(Box<LinkSpec>),
    /// Complete a prepared route.
    RouteAdd(RouteSpec),
    /// Delete the equal route.
    RouteDel(RouteSpec),
    /// Delete an object of a section that a service registered.
    ObjectDel(ConfigObject),
    /// Add an object of a section that a service registered.
    ObjectAdd(ConfigObject),
}

impl StepCommand {
    /// Returns the position in a valid order.
    fn rank(&self) -> u8 {
        match self {
            Self::RoutePrepare(_) => 0,
            Self::LinkDel(_) => 1,
            Self::PortDel(_) => 2,
            Self::GroupDel(_) => 3,
            Self::GroupAdd(_) => 4,
            Self::RuleDel(_) => 5,
            Self::RuleAdd(..) => 6,
            Self::RoutePrepareIn(_) => 7,
            Self::PortAdd(_) => 8,
            Self::LinkAdd(_) => 9,
            Self::RouteAdd(_) => 10,
            Self::RouteDel(_) => 11,
            Self::ObjectDel(_) => 12,
            Self::ObjectAdd(_) => 13,
        }
    }
}

/// The changes and steps from one state to another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChangePlan {
    /// The changes, for the operator.
    pub changes: Vec<PlannedChange>,
    /// The commands to the fabric, in order.
    pub steps: Vec<PlanStep>,
}

/// Returns the description of a route.
pub fn shown(route: &RouteSpec) -> String {
    let RouteSpec { group, source, destination, to, from } = route;
    let from = from.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
    format!("{group}: {source} > {destination}{from}, to {to}")
}

/// Two lists of named objects. Ports and links that do not change themselves must be replaced if
/// their group is.
struct NamedObjects<'a, T> {
    /// `group`, `port` or `link`.
    what: &'static str,
    name: fn(&T) -> &Name,
    /// The running objects.
    before: &'a [T],
    /// The wanted objects.
    after: &'a [T],
}

impl<T: PartialEq + Clone + Serialize> NamedObjects<'_, T> {
    /// Plans the changes; `must_replace` returns whether an unchanged object must be replaced.
    /// Returns the names of all objects that are deleted.
    fn note(
        &self,
        plan: &mut ChangePlan,
        must_replace: &dyn Fn(&T) -> bool,
        delete: &dyn Fn(&T) -> StepCommand,
        add: &dyn Fn(&T) -> StepCommand,
    ) -> HashSet<Name> {
        let after: HashMap<&Name, &T> = self.after.iter().map(|t| ((self.name)(t), t)).collect();
        let before: HashSet<&Name> = self.before.iter().map(self.name).collect();
        let mut gone = HashSet::new();
        for old in self.before {
            let name = (self.name)(old);
            let new = after.get(name).copied();
            if new == Some(old) && !must_replace(old) {
                continue;
            }
            gone.insert(name.clone());
            let action = if new.is_some() { ChangeType::Replace } else { ChangeType::Delete };
            let change = plan.changes.len();
            plan.changes.push(self.change(action, name, Some(old), new));
            plan.steps.push(PlanStep { change, act: delete(old) });
            plan.steps.extend(new.map(|new| PlanStep { change, act: add(new) }));
        }
        for new in self.after.iter().filter(|new| !before.contains((self.name)(new))) {
            let change = plan.changes.len();
            plan.changes.push(self.change(ChangeType::Add, (self.name)(new), None, Some(new)));
            plan.steps.push(PlanStep { change, act: add(new) });
        }
        gone
    }

    /// Returns the change of an object, for the operator.
    fn change(
        &self,
        action: ChangeType,
        name: &Name,
        old: Option<&T>,
        new: Option<&T>,
    ) -> PlannedChange {
        let (before, after) = (old.map(|old| json!(old)), new.map(|new| json!(new)));
        PlannedChange { action, what: self.what, name: name.to_string(), before, after }
    }
}

/// Plans the changes from `before` to `after`; the plan of equal states is empty.
pub fn plan(before: &FabricState, after: &FabricState) -> ChangePlan {
    let mut plan = ChangePlan::default();
    let after = &with_known_addresses(before, after);
    let groups = NamedObjects {
        what: "group",
        name: |g: &GroupSpec| &g.name,
        before: &before.groups,
        after: &after.groups,
    };
    let no_groups =
        groups.note(&mut plan, &|_| false, &|g| StepCommand::GroupDel(g.name.clone()), &|g| {
            StepCommand::GroupAdd(g.clone())
        });
    rules::note(&mut plan, &before.rules, &after.rules);
    let ports = NamedObjects {
        what: "port",
        name: |p: &PortSpec| &p.name,
        before: &before.ports,
        after: &after.ports,
    };
    let no_ports = ports.note(
        &mut plan,
        &|p| no_groups.contains(&p.group),
        &|p| StepCommand::PortDel(p.name.clone()),
        &|p| StepCommand::PortAdd(Box::new(p.clone())),
    );
    let links = NamedObjects {
        what: "link",
        name: |l: &LinkSpec| &l.name,
        before: &before.links,
        after: &after.links,
    };
    let no_links = links.note(
        &mut plan,
        &|l| no_groups.contains(&l.group),
        &|l| StepCommand::LinkDel(l.name.clone()),
        &|l| StepCommand::LinkAdd(Box::new(l.clone())),
    );
    let gone = |end: &RouteEnd| match end {
        RouteEnd::Interface(port) => no_ports.contains(port),
        RouteEnd::Edge(link) => no_links.contains(link),
    };
    let must_replace = |route: &RouteSpec| {
        no_groups.contains(&route.group) || gone(&route.to) || route.from.as_ref().is_some_and(gone)
    };
    let has_group =
        |name: &Name| !no_groups.contains(name) && before.groups.iter().any(|g| g.name == *name);
    note_routes(&mut plan, (before, after), &must_replace, &has_group);
    objects::note(&mut plan, &before.objects, &after.objects);
    // The sort is stable: rules keep the order in which their indices are valid.
    plan.steps.sort_by_key(|step| step.act.rank());
    plan
}

/// Returns `after`, in which links to an unchanged host name keep the address of the running link:
/// links re-resolve their names by themselves.
fn with_known_addresses(before: &FabricState, after: &FabricState) -> FabricState {
    let mut after = after.clone();
    let known: HashMap<&Name, &LinkSpec> = before.links.iter().map(|l| (&l.name, l)).collect();
    for link in after.links.iter_mut().filter(|link| link.remote_host.is_some()) {
        let Some(old) = known.get(&link.name) else { continue };
        let same = old.remote().map(|remote| link.with_remote(remote));
        if let Some(same) = same.filter(|same| same == *old) {
            *link = same;
        }
    }
    after
}

/// Plans the changes of routes, which have no names: equal routes stay, unless `must_replace`.
/// `has_group` returns whether a group exists from the first step to the last.
fn note_routes(
    plan: &mut ChangePlan,
    (before, after): (&FabricState, &FabricState),
    must_replace: &dyn Fn(&RouteSpec) -> bool,
    has_group: &dyn Fn(&Name) -> bool,
) {
    let (old, new): (HashSet<_>, HashSet<_>) =
        (before.routes.iter().collect(), after.routes.iter().collect());
    let mut note = |action, route: &RouteSpec, acts: Vec<StepCommand>| {
        let change = plan.changes.len();
        let value = || Some(json!(route));
        let (before, after) = match action {
            ChangeType::Add => (None, value()),
            ChangeType::Delete => (value(), None),
            ChangeType::Replace => (value(), value()),
        };
        plan.changes.push(PlannedChange {
            action,
            what: "route",
            name: shown(route),
            before,
            after,
        });
        plan.steps.extend(acts.into_iter().map(|act| PlanStep { change, act }));
    };
    for route in &before.routes {
        let prepare = StepCommand::RoutePrepare(route.clone());
        match (new.contains(route), must_replace(route)) {
            (true, false) => {}
            (true, true) => {
                // A group that is replaced takes its prepared routes along.
                let again =
                    (!has_group(&route.group)).then(|| StepCommand::RoutePrepareIn(route.clone()));
                let complete = StepCommand::RouteAdd(route.clone());
                let steps = [Some(prepare), again, Some(complete)];
                note(ChangeType::Replace, route, steps.into_iter().flatten().collect());
            }
            (false, _) => {
                note(ChangeType::Delete, route, vec![StepCommand::RouteDel(route.clone())]);
            }
        }
    }
    for route in after.routes.iter().filter(|route| !old.contains(route)) {
        let prepare = match has_group(&route.group) {
            true => StepCommand::RoutePrepare(route.clone()),
            false => StepCommand::RoutePrepareIn(route.clone()),
        };
        note(ChangeType::Add, route, vec![prepare, StepCommand::RouteAdd(route.clone())]);
    }
}

/// Returns the error for an answer of an unexpected type.
fn unexpected() -> CommandError {
    CommandError::Host("the fabric returned an answer of an unexpected type".into())
}

#[cfg(test)]
mod tests;
