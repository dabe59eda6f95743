//! The running objects with their origins: which of them the configuration file lists, which are
//! kept in the state file, and which end with the process.
//!
//! [`RunningObjects`] follows the commands that [`super::Kept`] executes; it asks no service. Three
//! sets describe the next start: *listed* objects of the configuration file, *kept* objects, and
//! *retained* objects, which are in the state file and do not run now: the host refused them at the
//! start, or an operator deleted them until the next start only.
//!
//! A listed object that is deleted returns at the next start, and one that was replaced returns as
//! the file has it: neither is kept. The number of objects is bounded by the limits of the services.

use std::collections::{BTreeMap, HashMap};

use causeway_model::{RULE_INDEX, RuleSpec};
use serde_json::{Map, Value};

use super::table::{ObjectKey, ObjectTable, ObjectTables};

/// The reason for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file, or its file of VNET commands.
    File,
    /// The state file.
    State,
    /// A command of an operator, to be kept.
    Operator,
    /// A command of an operator that lasts until the next start.
    Ephemeral,
}

/// A change that the fabric has made.
#[derive(Debug, Clone)]
pub enum Change {
    /// An object was added.
    Add(ObjectTable),
    /// A route was added under this number.
    AddRoute(u64, ObjectTable),
    /// A rule was inserted before this position, or appended.
    AddRule(Option<usize>, RuleSpec),
    /// An object was deleted, with the routes that name it.
    Delete(ObjectKey),
    /// The route with this number was deleted.
    DeleteRoute(u64),
    /// The rule at this position was deleted.
    DeleteRule(usize),
}

/// A running object.
#[derive(Debug, Clone)]
struct RunningObject {
    values: Map<String, Value>,
    /// Position in the order of additions.
    order: u64,
    is_ephemeral: bool,
}

/// The origin of a running rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleOrigin {
    /// The rule at this position of the configuration file.
    File(usize),
    Kept,
    Ephemeral,
}

/// The running objects, and those of the next start.
#[derive(Debug, Default)]
pub struct RunningObjects {
    running: BTreeMap<ObjectKey, RunningObject>,
    rules: Vec<(RuleSpec, RuleOrigin)>,
    /// Objects of the configuration file.
    listed: BTreeMap<ObjectKey, Map<String, Value>>,
    listed_rules: Vec<RuleSpec>,
    retained: Vec<ObjectTable>,
    route_numbers: HashMap<u64, ObjectKey>,
    last_order: u64,
}

/// The relation of a running object to the configuration file and the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The file has it with these values, or has no such object and none runs.
    Same,
    /// The file has it and it was deleted.
    Deleted,
    /// The file has it with other values.
    Differs,
    /// The file does not have it; the state file keeps it.
    Kept,
    /// The file does not have it; it ends with the process.
    Ephemeral,
    /// Only the state file has it.
    Retained,
}

impl RunningObjects {
    /// Follows a change.
    pub fn apply(&mut self, change: Change, origin: Origin) {
        match change {
            Change::Add(table) => self.add(table, origin),
            Change::AddRoute(number, table) => {
                self.route_numbers.insert(number, table.key.clone());
                self.add(table, origin);
            }
            Change::AddRule(at, rule) => self.add_rule(at, rule, origin),
            Change::Delete(key) => self.delete(&key, origin),
            Change::DeleteRoute(number) => {
                if let Some(key) = self.route_numbers.remove(&number) {
                    self.delete(&key, origin);
                }
            }
            Change::DeleteRule(at) if at < self.rules.len() => {
                let (rule, of) = self.rules.remove(at);
                if (of, origin) == (RuleOrigin::Kept, Origin::Ephemeral) {
                    self.retain(rule_table(at, &rule));
                }
            }
            Change::DeleteRule(_) => {}
        }
    }

    fn add(&mut self, table: ObjectTable, origin: Origin) {
        let ObjectTable { key, values } = table;
        self.last_order = self.last_order.saturating_add(1);
        let (order, is_ephemeral) = (self.last_order, origin == Origin::Ephemeral);
        if origin == Origin::File {
            self.listed.insert(key.clone(), values.clone());
        }
        if !is_ephemeral {
            self.retained.retain(|retained| retained.key != key);
        }
        self.running.insert(key, RunningObject { values, order, is_ephemeral });
    }

    /// Deletes an object. Objects that return with it, or alone, at the next start are retained.
    fn delete(&mut self, key: &ObjectKey, origin: Origin) {
        let Some(object) = self.running.remove(key) else { return };
        let returns = origin == Origin::Ephemeral || self.listed.contains_key(key);
        self.retain_object(key.clone(), object, returns);
        let table = |(key, object): (&ObjectKey, &RunningObject)| {
            (key.section == "route")
                .then(|| ObjectTable { key: key.clone(), values: object.values.clone() })
        };
        let routes: Vec<_> = self.running.iter().filter_map(table).collect();
        for route in routes.into_iter().filter(|route| route.is_route_of(key)) {
            if let Some(object) = self.running.remove(&route.key) {
                self.retain_object(route.key, object, returns);
            }
        }
        let running = &self.running;
        self.route_numbers.retain(|_, key| running.contains_key(key));
    }

    /// Retains a deleted object that is kept and returns at the next start.
    fn retain_object(&mut self, key: ObjectKey, object: RunningObject, returns: bool) {
        if returns && !object.is_ephemeral && !self.listed.contains_key(&key) {
            self.retain(ObjectTable { key, values: object.values });
        }
    }

    /// Retains an object that does not run now.
    pub fn retain(&mut self, table: ObjectTable) {
        self.retained.retain(|retained| retained.key != table.key);
        self.retained.push(table);
    }

    /// Drops a retained object. Returns whether there was one.
    pub fn drop_retained(&mut self, key: &ObjectKey) -> bool {
        let before = self.retained.len();
        self.retained.retain(|retained| retained.key != *key);
        self.retained.len() < before
    }

    fn add_rule(&mut self, at: Option<usize>, rule: RuleSpec, origin: Origin) {
        let at = at.unwrap_or(self.rules.len()).min(self.rules.len());
        let of = match origin {
            Origin::File => {
                self.listed_rules.push(rule.clone());
                RuleOrigin::File(self.listed_rules.len().saturating_sub(1))
            }
            Origin::Ephemeral => self.listed_at(at, &rule).unwrap_or(RuleOrigin::Ephemeral),
            Origin::State => RuleOrigin::Kept,
            Origin::Operator => self.listed_at(at, &rule).unwrap_or(RuleOrigin::Kept),
        };
        self.rules.insert(at, (rule, of));
    }

    /// Returns the deleted rule of the file that equals a rule added at this position.
    fn listed_at(&self, at: usize, rule: &RuleSpec) -> Option<RuleOrigin> {
        let of_file = |(_, of): &(RuleSpec, RuleOrigin)| match of {
            RuleOrigin::File(n) => Some(*n),
            _ => None,
        };
        let (before, after) = self.rules.split_at_checked(at)?;
        let first = before.iter().rev().find_map(of_file).map_or(0, |n| n.saturating_add(1));
        let end = after.iter().find_map(of_file).unwrap_or(self.listed_rules.len());
        let between = self.listed_rules.get(first..end)?;
        let found = between.iter().position(|listed| listed == rule)?;
        Some(RuleOrigin::File(first.saturating_add(found)))
    }

    /// Returns whether the file has an equal rule before position `at` of the running rules.
    pub fn has_rule_before(&self, at: usize, rule: &RuleSpec) -> bool {
        self.rules.iter().take(at).any(|(other, _)| other == rule)
    }

    /// Returns the number of rules.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Returns the key of the route with this number.
    pub fn route(&self, number: u64) -> Option<ObjectKey> {
        self.route_numbers.get(&number).cloned()
    }

    /// Returns the values that the file lists for an object.
    pub fn listed(&self, key: &ObjectKey) -> Option<&Map<String, Value>> {
        self.listed.get(key)
    }

    /// Returns the objects of a section that run.
    pub fn running_of(&self, section: &str) -> Vec<ObjectTable> {
        let of = self.running.iter().filter(|(key, _)| key.section == section);
        of.map(|(key, object)| ObjectTable { key: key.clone(), values: object.values.clone() })
            .collect()
    }

    /// Returns the standing of an object.
    pub fn standing(&self, key: &ObjectKey) -> Standing {
        let is_retained = || self.retained.iter().any(|retained| retained.key == *key);
        match (self.listed.get(key), self.running.get(key)) {
            (Some(_), None) => Standing::Deleted,
            (Some(listed), Some(running)) if *listed != running.values => Standing::Differs,
            (Some(_), Some(_)) => Standing::Same,
            (None, Some(running)) if running.is_ephemeral => Standing::Ephemeral,
            (None, Some(_)) => Standing::Kept,
            (None, None) if is_retained() => Standing::Retained,
            (None, None) => Standing::Same,
        }
    }

    /// Returns whether the running rule at this position is kept.
    pub fn keeps_rule(&self, at: usize) -> bool {
        self.rules.get(at).is_some_and(|(_, of)| *of == RuleOrigin::Kept)
    }

    /// Returns the number of rules of the file that do not run.
    pub fn deleted_rules(&self) -> usize {
        let of_file = |(_, of): &&(RuleSpec, RuleOrigin)| matches!(of, RuleOrigin::File(_));
        self.listed_rules.len().saturating_sub(self.rules.iter().filter(of_file).count())
    }

    /// Takes `file` for the contents of the configuration file: the running objects were changed
    /// to it. Objects of registered sections stay as they were.
    pub fn adopt(&mut self, file: ObjectTables, own: &[&str]) {
        self.listed.retain(|key, _| !own.contains(&key.section));
        self.listed.extend(file.objects.into_iter().map(|table| (table.key, table.values)));
        for (position, (rule, of)) in self.rules.iter_mut().enumerate() {
            if file.rules.get(position) == Some(rule) {
                *of = RuleOrigin::File(position);
            }
        }
        self.listed_rules = file.rules;
    }

    /// Returns the tables of the state file, in the order in which they are to be added.
    pub fn kept(&self) -> Vec<ObjectTable> {
        let is_kept = |(key, object): &(&ObjectKey, &RunningObject)| {
            !object.is_ephemeral && !self.listed.contains_key(key)
        };
        let mut objects: Vec<_> = self.running.iter().filter(is_kept).collect();
        objects.sort_by_key(|(key, object)| (rank(key.section), key.section, object.order));
        let table = |(key, object): (&ObjectKey, &RunningObject)| ObjectTable {
            key: key.clone(),
            values: object.values.clone(),
        };
        let mut all: Vec<_> = objects.into_iter().map(table).collect();
        all.extend(self.kept_rules());
        all.extend(self.retained.iter().cloned());
        // Stable: the order within a section stays.
        all.sort_by_key(|table| rank(table.key.section));
        all
    }

    /// Returns the kept rules, each with its position among the rules of the file and the kept rules.
    fn kept_rules(&self) -> Vec<ObjectTable> {
        let (mut kept, mut of_file) = (Vec::new(), 0_usize);
        for (rule, of) in &self.rules {
            match of {
                RuleOrigin::File(at) => of_file = at.saturating_add(1),
                RuleOrigin::Kept => {
                    kept.push(rule_table(of_file.saturating_add(kept.len()), rule));
                }
                RuleOrigin::Ephemeral => {}
            }
        }
        kept
    }
}

/// Returns the table of a kept rule.
fn rule_table(at: usize, rule: &RuleSpec) -> ObjectTable {
    let mut values = causeway_model::schema::values(rule);
    values.insert(RULE_INDEX.key.to_owned(), at.into());
    let id = Value::Object(values.clone()).to_string();
    ObjectTable { key: ObjectKey { section: "rule", id }, values }
}

/// Returns the position of a section in the state file.
fn rank(section: &str) -> usize {
    let known = ["group", "rule", "port", "link", "route"];
    known.iter().position(|name| *name == section).unwrap_or(known.len())
}
