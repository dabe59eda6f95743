//! Plans the changes of objects that services registered as sections, such as `[[forward]]`.
//!
//! Objects of a section are compared by their identity ([`SectionDefinition::id`]) and their tables.
//! A changed object is deleted and added again, and so is an object of a path or policy with a group,
//! port or object that is replaced ([`SectionOrder`]). `plan()` calls [`note`] once per plan; both
//! lists have only objects of sections that can be listed and deleted.
//!
//! The function asks no service and cannot fail. Two objects of one identity in a list are planned
//! as one. Order has no meaning: a moved object is no change. The function runs in the thread of the
//! connection.

use std::collections::{HashMap, HashSet};

use causeway_model::{
    Name, ReferenceTarget, SectionDefinition, SectionOrder, TableContext, TableReference,
    TableValues,
};
use serde_json::json;

use super::{ChangePlan, ChangeType, PlanStep, PlannedChange, StepCommand};
use crate::config::ConfigObject;

/// An object of a section, in both forms of its table.
#[derive(Debug, Clone)]
pub struct SectionObject {
    /// The section.
    pub section: &'static SectionDefinition,
    /// The operator's form, by which objects are compared.
    pub table: TableValues,
    /// The complete values, which the service takes.
    pub complete: TableValues,
}

impl PartialEq for SectionObject {
    fn eq(&self, other: &Self) -> bool {
        (self.section, &self.table) == (other.section, &other.table)
    }
}

impl Eq for SectionObject {}

impl SectionObject {
    /// Returns the object of complete values.
    pub fn new(section: &'static SectionDefinition, complete: TableValues) -> Self {
        Self { section, table: section.table(&complete), complete }
    }

    /// Completes an object of a configuration. Blocks for as long as the resolver does.
    ///
    /// # Errors
    /// The object cannot be completed, for example because a host has no address: a sentence for
    /// the operator.
    pub fn of_config(object: &ConfigObject, cx: TableContext<'_>) -> Result<Self, String> {
        let complete = object.section.complete(&object.values(), cx)?;
        Ok(Self::new(object.section, complete))
    }

    /// Returns the name or the description of the object.
    pub fn id(&self) -> String {
        self.section.id(&self.table)
    }
}

/// The objects that are deleted, some of which are added again.
#[derive(Debug, Default)]
pub(super) struct DeletedObjects {
    /// Names of groups.
    pub groups: HashSet<Name>,
    /// Names of ports.
    pub ports: HashSet<Name>,
    /// Sections and names of objects.
    pub objects: HashSet<(&'static str, String)>,
}

impl DeletedObjects {
    /// Returns whether a reference names one of the objects.
    fn has(&self, reference: &TableReference) -> bool {
        let TableReference { target, name, .. } = reference;
        let among = |names: &HashSet<Name>| names.iter().any(|gone| gone.as_str() == name);
        match *target {
            ReferenceTarget::Group => among(&self.groups),
            ReferenceTarget::NetworkPort => among(&self.ports),
            ReferenceTarget::Object(section) => self.objects.contains(&(section, name.clone())),
        }
    }

    /// Returns whether an unchanged object must be replaced, because it names one of the objects.
    fn takes_along(&self, object: &SectionObject) -> bool {
        let SectionDefinition { order, relations, .. } = object.section;
        *order != SectionOrder::Last
            && (relations.references)(&object.table).iter().any(|reference| self.has(reference))
    }
}

/// Plans the changes from the running objects to the wanted ones. `has_group` returns whether a
/// group exists from the first step to the last.
pub(super) fn note(
    plan: &mut ChangePlan,
    (before, after): (&[SectionObject], &[SectionObject]),
    mut deleted: DeletedObjects,
    has_group: &dyn Fn(&str) -> bool,
) {
    let mut sections: Vec<&'static SectionDefinition> = Vec::new();
    for object in before.iter().chain(after) {
        if !sections.contains(&object.section) {
            sections.push(object.section);
        }
    }
    // Paths precede the policies that name them.
    sections.sort_by_key(|section| section.order);
    for section in sections {
        let (old, new) = (of_section(before, section), of_section(after, section));
        let wanted: HashMap<&str, &SectionObject> =
            new.iter().map(|(id, object)| (id.as_str(), *object)).collect();
        let running: HashSet<&str> = old.iter().map(|(id, _)| id.as_str()).collect();
        let mut gone = Vec::new();
        for (id, object) in old.iter().map(|(id, object)| (id, *object)) {
            let now = wanted.get(id.as_str()).copied();
            let is_same = now == Some(object);
            if is_same && !deleted.takes_along(object) {
                continue;
            }
            gone.push((section.name, id.clone()));
            // An equal object keeps the values that the service completed.
            let now = if is_same { Some(object) } else { now };
            note_one(plan, id, (Some(object), now), has_group);
        }
        deleted.objects.extend(gone);
        for (id, object) in new.iter().filter(|(id, _)| !running.contains(id.as_str())) {
            note_one(plan, id, (None, Some(object)), has_group);
        }
    }
}

/// Returns the objects of a section with their identities.
fn of_section<'a>(
    all: &'a [SectionObject],
    section: &SectionDefinition,
) -> Vec<(String, &'a SectionObject)> {
    let of = all.iter().filter(|object| object.section == section);
    of.map(|object| (object.id(), object)).collect()
}

/// Plans the change of one object.
fn note_one(
    plan: &mut ChangePlan,
    id: &str,
    (old, new): (Option<&SectionObject>, Option<&SectionObject>),
    has_group: &dyn Fn(&str) -> bool,
) {
    let Some(any) = new.or(old) else { return };
    let (what, name, change) = (any.section.name, id.to_owned(), plan.changes.len());
    let action = match (old, new) {
        (None, _) => ChangeType::Add,
        (_, None) => ChangeType::Delete,
        _ => ChangeType::Replace,
    };
    let value = |object: &SectionObject| json!(object.complete);
    let (before, after) = (old.map(value), new.map(value));
    plan.changes.push(PlannedChange { action, what, name, before, after });
    let delete = || old.cloned().map(|old| StepCommand::ObjectDel(Box::new(old)));
    let add = || new.cloned().map(|new| StepCommand::ObjectAdd(Box::new(new)));
    let acts: Vec<StepCommand> = match (any.section.order, new) {
        (SectionOrder::Policy, Some(policy)) => {
            let is_there = any.section.group(&policy.table).is_none_or(has_group);
            let early = || StepCommand::ObjectPrepare(Box::new(policy.clone()));
            let late = || StepCommand::ObjectPrepareIn(Box::new(policy.clone()));
            // A group that is replaced takes its prepared policies along.
            let early = (old.is_some() || is_there).then(early);
            let late = (!is_there).then(late);
            early.into_iter().chain(late).chain(add()).collect()
        }
        _ => delete().into_iter().chain(add()).collect(),
    };
    plan.steps.extend(acts.into_iter().map(|act| PlanStep { change, act }));
}
