//! Plans the changes of objects that services registered as sections, such as `[[forward]]`.
//!
//! Objects of a section are compared by their identity ([`ObjectTable`]) and their values. A
//! changed object is deleted and added again. `plan()` calls [`note`] once per plan; both lists
//! have only objects of sections that can be listed and deleted.
//!
//! The function asks no service and cannot fail. Two objects of one identity in a list are planned
//! both, and the service refuses the second addition. Order has no meaning: a moved object is no
//! change. The function runs in the thread of the connection.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{ChangePlan, ChangeType, PlanStep, PlannedChange, StepCommand};
use crate::config::ConfigObject;
use crate::kept::table::{ObjectKey, ObjectTable};

/// Returns the identity of an object.
fn key(object: &ConfigObject) -> ObjectKey {
    ObjectTable::section(object.section, object.values.clone()).key
}

/// Plans the changes from the running objects to the wanted ones.
pub(super) fn note(plan: &mut ChangePlan, before: &[ConfigObject], after: &[ConfigObject]) {
    let by_key = |all: &[ConfigObject]| -> HashMap<ObjectKey, ConfigObject> {
        all.iter().map(|object| (key(object), object.clone())).collect()
    };
    let (old, new) = (by_key(before), by_key(after));
    let mut change =
        |action, key: ObjectKey, old: Option<&ConfigObject>, new: Option<&ConfigObject>| {
            let value = |object: &ConfigObject| -> Value { json!(object.values) };
            let (at, what, name) = (plan.changes.len(), key.section, key.id);
            let (before, after) = (old.map(value), new.map(value));
            plan.changes.push(PlannedChange { action, what, name, before, after });
            let delete = old.cloned().map(StepCommand::ObjectDel);
            let add = new.cloned().map(StepCommand::ObjectAdd);
            let acts = delete.into_iter().chain(add);
            plan.steps.extend(acts.map(|act| PlanStep { change: at, act }));
        };
    for object in before.iter().filter(|object| !new.contains_key(&key(object))) {
        change(ChangeType::Delete, key(object), Some(object), None);
    }
    for object in after {
        match old.get(&key(object)) {
            None => change(ChangeType::Add, key(object), None, Some(object)),
            Some(known) if known.values != object.values => {
                change(ChangeType::Replace, key(object), Some(known), Some(object));
            }
            Some(_) => {}
        }
    }
}
