//! The running objects with their origins: which of them the configuration file lists, which are
//! kept in the state file, and which end with the process.
//!
//! [`RunningObjects`] follows the commands that [`super::Kept`] executes; it asks no service. Three
//! sets describe the next start: *listed* objects of the configuration file, *kept* objects, and
//! *retained* objects, which are in the state file and do not run now: the host refused them at the
//! start, an operator deleted them until the next start only, or they are policies that name a
//! deleted object which returns at the next start.
//!
//! A listed object that is deleted returns at the next start, and one that was replaced returns as
//! the file has it: neither is kept. The limits of the fabric and of the services bound the running
//! objects; nothing here does.
//!
//! The caller applies a change after the fabric has made it, in the order of the fabric: nothing is
//! checked here. An addition replaces an object with the same identity, and ends its retention
//! unless the addition is ephemeral; a deletion of an unknown object has no effect. [`super::Kept`]
//! calls all functions under its mutex.

use std::collections::{BTreeMap, HashMap};

use causeway_model::{
    RULE_INDEX, ReferenceTarget, RuleSpec, SectionDefinition, SectionOrder, TableReference,
};
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
    /// An object was added, which the service deletes by this number.
    AddNumbered(u64, ObjectTable),
    /// A rule was inserted before this position, or appended.
    AddRule(Option<usize>, RuleSpec),
    /// An object was deleted, with the policies that name it.
    Delete(ObjectKey),
    /// The object of a section with this number was deleted.
    DeleteNumber(&'static str, u64),
    /// The rule at this position was deleted.
    DeleteRule(usize),
}

/// The values of an object as JSON: a group may have thousands of objects, and a table takes several
/// times the memory of its text. Equal values have equal texts, because keys are sorted.
type ValuesText = Box<str>;

/// A running object.
#[derive(Debug, Clone)]
struct RunningObject {
    values: ValuesText,
    /// Position in the order of additions.
    order: u64,
    is_ephemeral: bool,
}

/// The origin of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleOrigin {
    /// A rule of the configuration file that runs.
    File,
    /// A rule of the configuration file that was deleted: it holds the place where it returns.
    Deleted,
    Kept,
    Ephemeral,
}

impl RuleOrigin {
    fn is_running(self) -> bool {
        self != Self::Deleted
    }
}

/// The running objects, and those of the next start.
#[derive(Debug, Default)]
pub struct RunningObjects {
    running: BTreeMap<ObjectKey, RunningObject>,
    /// The running rules, and the deleted rules of the configuration file, in their order.
    rules: Vec<(RuleSpec, RuleOrigin)>,
    /// Objects of the configuration file.
    listed: BTreeMap<ObjectKey, ValuesText>,
    retained: Vec<ObjectTable>,
    /// The numbered objects of each section.
    numbers: HashMap<(&'static str, u64), ObjectKey>,
    last_order: u64,
    /// The sections that services registered.
    sections: &'static [SectionDefinition],
}

/// An object of the state file.
#[derive(Debug, Clone)]
pub struct KeptObject {
    /// The section.
    pub section: &'static str,
    values: ValuesText,
}

impl KeptObject {
    /// Returns the values by key.
    pub fn values(&self) -> Map<String, Value> {
        table(&self.values)
    }
}

/// Returns values as text.
fn text(values: &Map<String, Value>) -> ValuesText {
    serde_json::to_string(values).unwrap_or_default().into()
}

/// Returns the values of a text.
fn table(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
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

/// Returns whether a reference names the object with this key.
fn names(reference: &TableReference, key: &ObjectKey) -> bool {
    let is_of_type = match reference.target {
        ReferenceTarget::NetworkPort => key.section == "port",
        ReferenceTarget::Object(section) => key.section == section,
        // Policies end with their group, of which nothing returns alone.
        ReferenceTarget::Group => false,
    };
    is_of_type && reference.name == key.id
}

impl RunningObjects {
    /// Has no object; the objects that are added are of these sections, or of the fabric.
    pub fn new(sections: &'static [SectionDefinition]) -> Self {
        Self { sections, ..Self::default() }
    }

    /// Follows a change.
    pub fn apply(&mut self, change: Change, origin: Origin) {
        match change {
            Change::Add(table) => self.add(table, origin),
            Change::AddNumbered(number, table) => {
                self.numbers.insert((table.key.section, number), table.key.clone());
                self.add(table, origin);
            }
            Change::AddRule(at, rule) => self.add_rule(at, rule, origin),
            Change::Delete(key) => self.delete(&key, origin),
            Change::DeleteNumber(section, number) => {
                if let Some(key) = self.numbers.remove(&(section, number)) {
                    self.delete(&key, origin);
                }
            }
            Change::DeleteRule(at) => self.delete_rule(at, origin),
        }
    }

    fn add(&mut self, table: ObjectTable, origin: Origin) {
        let ObjectTable { key, values } = table;
        let values = text(&values);
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
        let policies = self.policies_of(key);
        for policy in &policies {
            if let Some(object) = self.running.remove(policy) {
                self.retain_object(policy.clone(), object, returns);
            }
        }
        if !policies.is_empty() {
            let running = &self.running;
            self.numbers.retain(|_, key| running.contains_key(key));
        }
    }

    /// Returns the policies that name an object.
    fn policies_of(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        // A search in the text, because few of thousands of policies name the object.
        let name = Value::from(key.id.as_str()).to_string();
        let mut found = Vec::new();
        let policies = self.sections.iter().filter(|one| one.order == SectionOrder::Policy);
        let policies: Vec<&SectionDefinition> = policies.collect();
        // No policy names a policy: a search for each of thousands would take seconds.
        if policies.iter().any(|section| section.name == key.section) {
            return found;
        }
        for section in policies {
            let is_of = |(other, object): &(&ObjectKey, &RunningObject)| {
                other.section == section.name
                    && object.values.contains(&name)
                    && (section.relations.references)(&table(&object.values))
                        .iter()
                        .any(|reference| names(reference, key))
            };
            found.extend(self.running.iter().filter(is_of).map(|(key, _)| key.clone()));
        }
        found
    }

    /// Retains a deleted object that is kept and returns at the next start.
    fn retain_object(&mut self, key: ObjectKey, object: RunningObject, returns: bool) {
        if returns && !object.is_ephemeral && !self.listed.contains_key(&key) {
            self.retain(ObjectTable { key, values: table(&object.values) });
        }
    }

    /// Retains an object that does not run now.
    pub fn retain(&mut self, table: ObjectTable) {
        self.retained.retain(|retained| retained.key != table.key);
        self.retained.push(table);
    }

    /// Returns the objects that only the state file has.
    pub fn retained(&self) -> &[ObjectTable] {
        &self.retained
    }

    /// Drops a retained object. Returns whether there was one.
    pub fn drop_retained(&mut self, key: &ObjectKey) -> bool {
        let before = self.retained.len();
        self.retained.retain(|retained| retained.key != *key);
        self.retained.len() < before
    }

    /// Returns the place of the rule at running position `at`; the end without such a rule.
    fn place(&self, at: usize) -> usize {
        let running = self.rules.iter().enumerate().filter(|(_, (_, of))| of.is_running());
        running.map(|(place, _)| place).nth(at).unwrap_or(self.rules.len())
    }

    fn add_rule(&mut self, at: Option<usize>, rule: RuleSpec, origin: Origin) {
        let place = at.map_or(self.rules.len(), |at| self.place(at));
        let of = match origin {
            Origin::File => RuleOrigin::File,
            Origin::State | Origin::Operator => RuleOrigin::Kept,
            Origin::Ephemeral => RuleOrigin::Ephemeral,
        };
        // A deleted rule of the file that is added again in its place is that of the file.
        let before = self.rules.get_mut(..place).unwrap_or_default().iter_mut().rev();
        let mut deleted = before.take_while(|(_, of)| *of == RuleOrigin::Deleted);
        match deleted.find(|(deleted, _)| *deleted == rule) {
            Some((_, of)) => *of = RuleOrigin::File,
            None => self.rules.insert(place, (rule, of)),
        }
    }

    fn delete_rule(&mut self, at: usize, origin: Origin) {
        let place = self.place(at);
        let Some((rule, of)) = self.rules.get_mut(place) else { return };
        if *of == RuleOrigin::File {
            *of = RuleOrigin::Deleted;
            return;
        }
        if (*of, origin) == (RuleOrigin::Kept, Origin::Ephemeral) {
            let table = rule_table(place, rule);
            self.retain(table);
        }
        self.rules.remove(place);
    }

    /// Returns whether an equal rule is before position `at` of the running rules.
    pub fn has_rule_before(&self, at: usize, rule: &RuleSpec) -> bool {
        self.running_rules().take(at).any(|(other, _)| other == rule)
    }

    fn running_rules(&self) -> impl Iterator<Item = &(RuleSpec, RuleOrigin)> {
        self.rules.iter().filter(|(_, of)| of.is_running())
    }

    /// Returns the number of running rules.
    pub fn rules(&self) -> usize {
        self.running_rules().count()
    }

    /// Returns the key of the object of a section with this number.
    pub fn numbered(&self, section: &'static str, number: u64) -> Option<ObjectKey> {
        self.numbers.get(&(section, number)).cloned()
    }

    /// Returns the values that the file lists for an object.
    pub fn listed(&self, key: &ObjectKey) -> Option<Map<String, Value>> {
        self.listed.get(key).map(|values| table(values))
    }

    /// Returns the objects of a section that run.
    pub fn running_of(&self, section: &str) -> Vec<ObjectTable> {
        let of = self.running.iter().filter(|(key, _)| key.section == section);
        of.map(|(key, object)| ObjectTable { key: key.clone(), values: table(&object.values) })
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
        self.running_rules().nth(at).is_some_and(|(_, of)| *of == RuleOrigin::Kept)
    }

    /// Returns the number of rules of the file that do not run.
    pub fn deleted_rules(&self) -> usize {
        self.rules.len().saturating_sub(self.rules())
    }

    /// Takes `file` for the contents of the configuration file: the running objects were changed
    /// to it. Objects of sections beside `own` stay as they were.
    pub fn adopt(&mut self, file: ObjectTables, own: &[&str]) {
        self.listed.retain(|key, _| !own.contains(&key.section));
        self.listed.extend(file.objects.into_iter().map(|table| (table.key, text(&table.values))));
        self.rules.retain(|(_, of)| of.is_running());
        for ((rule, of), listed) in self.rules.iter_mut().zip(&file.rules) {
            if rule == listed {
                *of = RuleOrigin::File;
            }
        }
    }

    /// Returns the objects of the state file, in the order in which they are to be added.
    pub fn kept(&self) -> Vec<KeptObject> {
        let is_kept = |(key, object): &(&ObjectKey, &RunningObject)| {
            !object.is_ephemeral && !self.listed.contains_key(key)
        };
        let mut objects: Vec<_> = self.running.iter().filter(is_kept).collect();
        objects.sort_by_key(|(key, object)| (key.section, object.order));
        let of_running = |(key, object): (&ObjectKey, &RunningObject)| KeptObject {
            section: key.section,
            values: object.values.clone(),
        };
        let mut all: Vec<_> = objects.into_iter().map(of_running).collect();
        let tables = self.kept_rules().into_iter().chain(self.retained.iter().cloned());
        all.extend(
            tables.map(|table| KeptObject {
                section: table.key.section,
                values: text(&table.values),
            }),
        );
        // Stable: the order within a section stays.
        all.sort_by_key(|object| self.rank(object.section));
        all
    }

    /// Returns the position of a section in the state file.
    fn rank(&self, section: &str) -> usize {
        let known = ["group", "rule", "port"].into_iter();
        let known = known.chain(self.sections.iter().map(|section| section.name));
        known.clone().position(|name| name == section).unwrap_or_else(|| known.count())
    }

    /// Returns the kept rules, each with its position among the rules of the file and the kept
    /// rules.
    fn kept_rules(&self) -> Vec<ObjectTable> {
        let lasting = self.rules.iter().filter(|(_, of)| *of != RuleOrigin::Ephemeral);
        let kept = lasting.enumerate().filter(|(_, (_, of))| *of == RuleOrigin::Kept);
        kept.map(|(at, (rule, _))| rule_table(at, rule)).collect()
    }
}

/// Returns the table of a kept rule.
fn rule_table(at: usize, rule: &RuleSpec) -> ObjectTable {
    let mut values = causeway_model::schema::values(rule);
    values.insert(RULE_INDEX.key.to_owned(), at.into());
    let id = Value::Object(values.clone()).to_string();
    ObjectTable { key: ObjectKey { section: "rule", id }, values }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(section: &'static str, id: &str, values: Value) -> ObjectTable {
        let values = values.as_object().unwrap().clone();
        ObjectTable { key: ObjectKey { section, id: id.to_owned() }, values }
    }

    fn rule(port: u32) -> RuleSpec {
        let values = json!({ "action": "reject", "to": format!("*/*:{port}") });
        serde_json::from_value(values).unwrap()
    }

    /// Returns the kept objects as `section name`, rules as `rule INDEX to`.
    fn kept(objects: &RunningObjects) -> Vec<String> {
        let shown = |object: KeptObject| {
            let values = object.values();
            let to = values.get("to").cloned().unwrap_or_default();
            match (values.get("index"), to.get("edge")) {
                (Some(index), _) => format!("rule {index} {}", to.as_str().unwrap()),
                (None, Some(edge)) => format!("route {}", edge.as_str().unwrap()),
                _ => format!("{} {}", object.section, values["name"].as_str().unwrap()),
            }
        };
        objects.kept().into_iter().map(shown).collect()
    }

    #[test]
    fn kept_objects_are_those_that_the_file_does_not_list() {
        let mut objects = RunningObjects::default();
        let of = |cid: u32| table("port", "a", json!({ "name": "a", "cid": cid }));
        let add = |objects: &mut RunningObjects, cid, origin| {
            objects.apply(Change::Add(of(cid)), origin);
        };
        add(&mut objects, 3, Origin::File);
        objects.apply(Change::Add(table("port", "b", json!({ "name": "b" }))), Origin::Operator);
        objects.apply(Change::Add(table("port", "c", json!({ "name": "c" }))), Origin::Ephemeral);
        assert_eq!(kept(&objects), ["port b"]);
        let key = of(3).key;
        objects.apply(Change::Delete(key.clone()), Origin::Operator);
        assert_eq!(objects.standing(&key), Standing::Deleted);
        add(&mut objects, 4, Origin::Operator);
        assert_eq!((objects.standing(&key), kept(&objects).len()), (Standing::Differs, 1));
        objects.apply(Change::Delete(key.clone()), Origin::Operator);
        add(&mut objects, 3, Origin::Operator);
        assert_eq!(objects.standing(&key), Standing::Same);
        // An ephemeral deletion ends with the process, any other is kept.
        let b = table("port", "b", json!({ "name": "b" })).key;
        objects.apply(Change::Delete(b.clone()), Origin::Ephemeral);
        assert_eq!((objects.standing(&b), kept(&objects).len()), (Standing::Retained, 1));
        assert!(objects.drop_retained(&b) && kept(&objects).is_empty());
    }

    #[test]
    fn kept_routes_outlast_an_object_of_the_file_and_end_with_one_that_is_deleted() {
        let sections = crate::services::Registered::of(crate::services::SERVICES).sections;
        let mut objects = RunningObjects::new(sections);
        let link = |name: &str| table("link", name, json!({ "name": name }));
        let route = |name: &str| table("route", name, json!({ "to": { "edge": name } }));
        objects.apply(Change::Add(link("listed")), Origin::File);
        objects.apply(Change::Add(link("own")), Origin::Operator);
        objects.apply(Change::AddNumbered(1, route("listed")), Origin::Operator);
        objects.apply(Change::AddNumbered(2, route("own")), Origin::Operator);
        objects.apply(Change::Delete(link("own").key), Origin::Operator);
        assert_eq!(kept(&objects), ["route listed"]);
        objects.apply(Change::Delete(link("listed").key), Origin::Operator);
        assert_eq!(objects.standing(&route("listed").key), Standing::Retained);
        assert_eq!(kept(&objects), ["route listed"], "its link returns, and so does it");
        objects.apply(Change::DeleteNumber("route", 7), Origin::Operator);
    }

    #[test]
    fn kept_rules_have_their_place_among_those_of_the_file() {
        let mut objects = RunningObjects::default();
        let add = |objects: &mut RunningObjects, at, port, origin| {
            objects.apply(Change::AddRule(at, rule(port)), origin);
        };
        add(&mut objects, None, 1, Origin::File);
        add(&mut objects, None, 2, Origin::File);
        add(&mut objects, Some(0), 10, Origin::Operator);
        add(&mut objects, Some(2), 11, Origin::Operator);
        add(&mut objects, None, 12, Origin::Operator);
        add(&mut objects, Some(0), 13, Origin::Ephemeral);
        let all = ["rule 0 */*:10", "rule 2 */*:11", "rule 4 */*:12"].map(str::to_owned);
        assert_eq!(kept(&objects), all);
        // The first rule of the file returns at the next start: the places stay.
        objects.apply(Change::DeleteRule(2), Origin::Operator);
        assert_eq!((kept(&objects), objects.deleted_rules()), (all.to_vec(), 1));
        // The same rule in the same place is that of the file.
        add(&mut objects, Some(2), 1, Origin::Operator);
        assert_eq!((kept(&objects), objects.deleted_rules()), (all.to_vec(), 0));
    }
}
