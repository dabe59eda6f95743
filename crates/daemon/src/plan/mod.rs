//! Plans the changes from the running state to that of a configuration, in a valid order, and
//! executes them.
//!
//! `POST /v1/apply` reads the running state ([`read_running`]), compares it with the file
//! ([`plan()`]) and executes the steps ([`execute()`]). Planning has no side effect and cannot
//! fail; equal states have an empty plan. The steps run in the order of [`StepCommand`]: ports and
//! objects of paths are deleted before their groups and added after them; rules change in between.
//!
//! Policies deny traffic too: a new policy, and a policy that stays while an object that it names is
//! replaced, is prepared before any port changes (a new policy of a new or replaced group: before any
//! port is added), and a policy is deleted after the ports and paths. In between both sets apply
//! together. Together they must permit nothing that both deny: of routes, those of the highest
//! priority decide. Sections state whether their objects are paths or policies
//! ([`causeway_model::SectionOrder`]).
//!
//! A changed object is deleted and added again: there is no change in place, and its frontend or
//! peer is disconnected in between. Ports, paths and policies of a replaced group, and policies that
//! name a replaced port or path, are replaced too; rules and other objects of sections are not.
//! Names are compared exactly: a renamed object is a deletion and an addition. The plan holds for
//! the state that was read; a concurrent change shows as a refused step. The execution ends at the
//! first refused step, and executed steps are not undone.
//!
//! Other objects of services' sections change last, deletions first: they may name ports, and no
//! other object names them.
//!
//! `[daemon]`, `[dispatch]`, `[control]` and `[metrics]` are not planned. VNET commands have their
//! own planner, [`crate::vnet::plan`]. [`crate::api`] plans and executes, one plan at a time, in
//! the thread of a connection; `POST /v1/config/diff` uses [`read_running`] and [`rule_changes`],
//! and [`crate::kept`] [`read_running`].

mod execute;
mod objects;
mod rules;
mod state;

use std::collections::{HashMap, HashSet};

use causeway_model::CommandError;
use causeway_model::GroupSpec;
use causeway_model::Name;
use causeway_model::{PortSpec, RuleSpec, SectionOrder};
use serde::Serialize;
use serde_json::{Value, json};

use objects::DeletedObjects;

pub use execute::{PlanResult, execute};
pub use objects::SectionObject;
pub use rules::changes as rule_changes;
pub use state::{list, read_running};

/// The objects that can change while the daemon runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FabricState {
    /// The groups.
    pub groups: Vec<GroupSpec>,
    /// The rules, in their order.
    pub rules: Vec<RuleSpec>,
    /// The ports.
    pub ports: Vec<PortSpec>,
    /// The objects of sections; their order has no meaning.
    pub objects: Vec<SectionObject>,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedChange {
    /// The type of the change.
    pub action: ChangeType,
    /// `group`, `rule`, `port`, or the section of a service.
    pub what: &'static str,
    /// Name of the object; rules and policies have a description instead.
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
    /// Put a policy of a group that stays in force.
    ObjectPrepare(Box<SectionObject>),
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
    /// Put a policy of a new or replaced group in force.
    ObjectPrepareIn(Box<SectionObject>),
    /// Add a port.
    PortAdd(Box<PortSpec>),
    /// Delete an object of a section that a service registered.
    ObjectDel(Box<SectionObject>),
    /// Add an object of a section that a service registered, or complete a prepared policy.
    ObjectAdd(Box<SectionObject>),
}

impl StepCommand {
    /// Returns the position in a valid order.
    fn rank(&self) -> u8 {
        match self {
            Self::ObjectPrepare(_) => 0,
            Self::ObjectDel(object) => match object.section.order {
                SectionOrder::Path => 1,
                SectionOrder::Policy => 11,
                SectionOrder::Last => 12,
            },
            Self::PortDel(_) => 2,
            Self::GroupDel(_) => 3,
            Self::GroupAdd(_) => 4,
            Self::RuleDel(_) => 5,
            Self::RuleAdd(..) => 6,
            Self::ObjectPrepareIn(_) => 7,
            Self::PortAdd(_) => 8,
            Self::ObjectAdd(object) => match object.section.order {
                SectionOrder::Path => 9,
                SectionOrder::Policy => 10,
                SectionOrder::Last => 13,
            },
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

/// Two lists of named objects. Ports that do not change themselves must be replaced if their group
/// is.
struct NamedObjects<'a, T> {
    /// `group` or `port`.
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
    let has_group = |name: &str| {
        let is_there = before.groups.iter().any(|group| group.name.as_str() == name);
        is_there && no_groups.iter().all(|gone| gone.as_str() != name)
    };
    let deleted =
        DeletedObjects { groups: no_groups.clone(), ports: no_ports, objects: HashSet::new() };
    objects::note(&mut plan, (&before.objects, &after.objects), deleted, &has_group);
    // The sort is stable: rules keep the order in which their indices are valid.
    plan.steps.sort_by_key(|step| step.act.rank());
    plan
}

/// Returns the error for an answer of an unexpected type.
fn unexpected() -> CommandError {
    CommandError::Host("the fabric returned an answer of an unexpected type".into())
}

#[cfg(test)]
mod tests;
