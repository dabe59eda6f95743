//! The operator's verbs about groups and the policies of the site about them. `main` calls them in the
//! main thread, [`crate::join`] and [`crate::init`] use some; the processes of all hosts learn of a
//! change from etcd.
//!
//! [`set`] changes the given values of a group's record and keeps the others, also those that this
//! release does not know, by a transaction on the revision that was read: of two changes at once
//! one is refused. A record that hosts would refuse is not written: too many rules, a rule of
//! another group, or a value longer than readers accept. The rules come from a file in the form of
//! the configuration's `[[rule]]`.

use std::io::Read as _;
use std::path::Path;

use causeway_cluster::limits::VALUE_BYTES_MAX;
use causeway_cluster::record::VERSION;
use causeway_cluster::{GroupRecord, RecordKey, Write};
use causeway_model::{Forwarding, Name, RULE_FIELDS, RuleSpec, schema};
use serde_json::{Map, Value, json};

use crate::client::{Etcd, WriteOutcome};
use crate::limits::RULES_FILE_BYTES_MAX;
use crate::records::{StoredRecord, VerbError, records};

/// The values that `group set` changes.
#[derive(Debug, Clone, Default)]
pub struct GroupChange {
    /// Number of the group on the wire; required for a new group.
    pub vni: Option<u32>,
    /// Forwarding; `Some(None)` leaves it to each host.
    pub forwarding: Option<Option<Forwarding>>,
    /// The rules, in their order.
    pub rules: Option<Vec<RuleSpec>>,
}

/// Shares a group. A group that exists with this number is left as it is. The check of the number
/// and the write are not atomic: of two groups that are added at once with one number, hosts refuse
/// the second.
///
/// # Errors
/// Another group has the number, the group exists with another one, its record cannot be read, or
/// etcd does not answer.
pub fn add(etcd: &mut Etcd, site: &Name, name: Name, vni: u32) -> Result<(), VerbError> {
    let all = records(etcd, site)?;
    if check_number(&all, &name, vni)? {
        return Ok(());
    }
    let key = RecordKey::Group(name.clone());
    if stored(&all, &key).is_some() {
        let text = format!(
            "group {name} has a record that this release cannot read: `causeway cluster group show \
             {name}` names the error, and `causeway cluster group set {name} --vni {vni}` corrects a \
             malformed record, with --no-forwarding and --no-rules where these are wrong"
        );
        return Err(VerbError::Conflict(text));
    }
    let value = Some(GroupRecord::new(vni).write());
    let write = Write { key, value, expected: 0 };
    match etcd.write(site, &write)? {
        WriteOutcome::Done(_) => Ok(()),
        WriteOutcome::Failed(_) => {
            Err(VerbError::Conflict(format!("group {name} was changed meanwhile: try again")))
        }
    }
}

/// Returns the record of a key.
fn stored<'a>(all: &'a [StoredRecord], key: &RecordKey) -> Option<&'a StoredRecord> {
    all.iter().find(|(other, ..)| other == key)
}

/// Returns whether a group is shared with a number; an error if another group has the number, or the
/// group is shared with another one.
fn check_number(all: &[StoredRecord], name: &Name, vni: u32) -> Result<bool, VerbError> {
    let mut is_shared = false;
    for (key, value, _) in all {
        let (RecordKey::Group(other), Ok(record)) = (key, GroupRecord::read(value)) else {
            continue;
        };
        if other == name && record.vni == vni {
            is_shared = true;
        } else if other == name {
            let text = format!(
                "group {name} has the number {}: delete it first, which closes its links",
                record.vni
            );
            return Err(VerbError::Conflict(text));
        } else if record.vni == vni {
            let text = format!("number {vni} is that of group {other}: choose another");
            return Err(VerbError::Conflict(text));
        }
    }
    Ok(is_shared)
}

/// Ends the sharing of a group.
///
/// # Errors
/// The group is not shared, or etcd does not answer.
pub fn delete(etcd: &mut Etcd, site: &Name, name: &Name) -> Result<(), VerbError> {
    let path = RecordKey::Group(name.clone()).path(site);
    if etcd.delete(&path)? { Ok(()) } else { Err(VerbError::NotFound(format!("group {name}"))) }
}

/// Returns the shared groups, as JSON.
///
/// # Errors
/// etcd does not answer.
pub fn list(etcd: &mut Etcd, site: &Name) -> Result<Value, VerbError> {
    let group = |(key, value, _): (RecordKey, Vec<u8>, u64)| match key {
        RecordKey::Group(name) => Some(view(&name, &GroupRecord::read(&value).ok()?)),
        _ => None,
    };
    Ok(records(etcd, site)?.into_iter().filter_map(group).collect())
}

/// Shares a group, or changes the values of a shared one.
///
/// # Errors
/// The group is not shared and no number is given, the number is another or that of another group,
/// hosts would refuse the record, the record was changed meanwhile, or etcd does not answer.
pub fn set(
    etcd: &mut Etcd,
    site: &Name,
    name: Name,
    change: &GroupChange,
) -> Result<(), VerbError> {
    let all = records(etcd, site)?;
    let key = RecordKey::Group(name.clone());
    let known = stored(&all, &key);
    let revision = known.map_or(0, |(_, _, revision)| *revision);
    let known = known.and_then(|(_, value, _)| serde_json::from_slice::<Value>(value).ok());
    let mut record = match (known, change.vni) {
        (Some(Value::Object(known)), None) => known,
        (None, None) => {
            let text = format!("group {name} (give --vni N to share it)");
            return Err(VerbError::NotFound(text));
        }
        (Some(_), None) => {
            let text =
                format!("the record of group {name} is malformed: give --vni N to replace it");
            return Err(VerbError::Conflict(text));
        }
        (known, Some(vni)) => {
            check_number(&all, &name, vni)?;
            let known = known.as_ref().and_then(Value::as_object);
            let mut record = known.cloned().unwrap_or_default();
            record.insert("vni".into(), vni.into());
            record.entry("v").or_insert(VERSION.into());
            record
        }
    };
    change_values(&mut record, change);
    let value = check(&name, Value::Object(record))?;
    let write = Write { key, value: Some(value), expected: revision };
    match etcd.write(site, &write)? {
        WriteOutcome::Done(_) => Ok(()),
        WriteOutcome::Failed(_) => {
            Err(VerbError::Conflict(format!("group {name} was changed meanwhile: try again")))
        }
    }
}

/// Changes the values of a record. Values that are absent are removed, so that the record is that of
/// a group without them.
fn change_values(record: &mut Map<String, Value>, change: &GroupChange) {
    let mut set = |key: &str, value: Option<Value>| {
        match value {
            Some(value) => record.insert(key.into(), value),
            None => record.remove(key),
        };
    };
    if let Some(forwarding) = change.forwarding {
        set("forwarding", forwarding.map(|forwarding| json!(forwarding)));
    }
    if let Some(rules) = &change.rules {
        set("rules", (!rules.is_empty()).then(|| json!(rules)));
    }
}

/// Returns the bytes of a group's record.
///
/// # Errors
/// Hosts would refuse the record.
pub fn check(name: &Name, record: Value) -> Result<Vec<u8>, VerbError> {
    let wrong = |text: String| VerbError::Conflict(format!("group {name}: {text}"));
    let value = record.to_string().into_bytes();
    if value.len() > VALUE_BYTES_MAX {
        let text = format!(
            "the record has {} bytes: expected at most {VALUE_BYTES_MAX}; give fewer rules, or \
             rules for ranges of ports",
            value.len()
        );
        return Err(wrong(text));
    }
    let record = GroupRecord::read(&value).map_err(|error| wrong(error.to_string()))?;
    record.policy(name).check().map_err(|error| wrong(error.to_string()))?;
    Ok(value)
}

/// Returns the record of a group, as JSON.
///
/// # Errors
/// The group is not shared, its record is malformed, or etcd does not answer.
pub fn show(etcd: &mut Etcd, site: &Name, name: &Name) -> Result<Value, VerbError> {
    let key = RecordKey::Group(name.clone());
    let all = records(etcd, site)?;
    let (_, value, _) =
        stored(&all, &key).ok_or_else(|| VerbError::NotFound(format!("group {name}")))?;
    let wrong = |error: &dyn std::fmt::Display| {
        VerbError::Conflict(format!("the record of group {name}: {error}"))
    };
    let record = GroupRecord::read(value).map_err(|error| wrong(&error))?;
    record.policy(name).check().map_err(|error| wrong(&error))?;
    Ok(view(name, &record))
}

/// Returns the view of a group.
pub fn view(name: &Name, record: &GroupRecord) -> Value {
    let GroupRecord { vni, forwarding, rules, .. } = record;
    json!({ "name": name, "vni": vni, "forwarding": forwarding, "rules": rules })
}

/// Reads rules from a file of `[[rule]]` tables, `-` for the standard input.
///
/// # Errors
/// The file cannot be read, has more than [`RULES_FILE_BYTES_MAX`] (64 KiB), or has anything but
/// valid rules.
pub fn read_rules(file: &Path) -> Result<Vec<RuleSpec>, VerbError> {
    let wrong = |text: String| VerbError::File(file.display().to_string(), text);
    let from: Box<dyn std::io::Read> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(file).map_err(|error| wrong(error.to_string()))?)
    };
    let mut text = String::new();
    let most = RULES_FILE_BYTES_MAX;
    let read = from.take(most.saturating_add(1)).read_to_string(&mut text);
    read.map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > most {
        return Err(wrong(format!("expected at most {most} bytes")));
    }
    parse_rules(&text).map_err(wrong)
}

fn parse_rules(text: &str) -> Result<Vec<RuleSpec>, String> {
    let tables: Map<String, Value> = toml::from_str(text).map_err(|error| error.to_string())?;
    if let Some(other) = tables.keys().find(|key| *key != "rule") {
        return Err(format!("{other}: expected [[rule]] tables only"));
    }
    let empty = Vec::new();
    let rules = match tables.get("rule") {
        None => &empty,
        Some(Value::Array(rules)) => rules,
        Some(_) => return Err("rule: expected [[rule]] tables".into()),
    };
    let rule = |(index, rule): (usize, &Value)| {
        let table = rule.as_object().ok_or_else(|| format!("rule {index}: expected a table"))?;
        schema::read(RULE_FIELDS, table)
            .map_err(|problems| schema::joined(&format!("rule {index}"), &problems))
    };
    rules.iter().enumerate().map(rule).collect()
}

impl crate::args::GroupSet {
    /// Returns the change that the options ask for.
    ///
    /// # Errors
    /// The file of the rules cannot be used.
    pub fn change(&self) -> Result<GroupChange, VerbError> {
        let rules = match &self.rules {
            Some(file) => Some(read_rules(file)?),
            None if self.no_rules => Some(Vec::new()),
            None => None,
        };
        let forwarding = match self.forwarding {
            None if self.no_forwarding => Some(None),
            given => given.map(Some),
        };
        Ok(GroupChange { vni: self.vni, forwarding, rules })
    }
}

#[cfg(test)]
mod tests {
    use causeway_model::limits::SITE_RULES_MAX;

    use super::*;

    #[test]
    fn group_rules_are_read_as_those_of_a_configuration() {
        let text =
            "[[rule]]\naction = \"reject\"\nto = \"blue/*:22\"\n[[rule]]\naction = \"accept\"\n";
        let rules = parse_rules(text).unwrap();
        assert_eq!((rules.len(), rules[0].to.to_string().as_str()), (2, "blue/*:22"));
        assert_eq!(parse_rules(""), Ok(Vec::new()));
        for (text, error) in [
            ("[[rule]]\nto = \"blue/*:22\"\n", "rule 0"),
            ("[[rule]]\naction = \"accept\"\nuser = 7\n", "rule 0"),
            ("[[group]]\nname = \"blue\"\n", "[[rule]] tables only"),
            ("rule = 7\n", "[[rule]] tables"),
            ("rule = [7]\n", "rule 0"),
            ("[[rule\n", "rule"),
        ] {
            let refused = parse_rules(text).unwrap_err();
            assert!(refused.contains(error), "{text}: {refused}");
        }
    }

    #[test]
    fn group_record_that_hosts_would_refuse_is_not_written() {
        let name: Name = "blue".parse().unwrap();
        let record = |to: &str, count: usize| {
            let rule = json!({ "action": "reject", "to": to });
            json!({ "v": 1, "vni": 7, "rules": vec![rule; count] })
        };
        assert!(check(&name, record("blue/*:22", 3)).is_ok());
        for (record, error) in [
            (record("red/*:22", 1), "rule 0"),
            (record("*", SITE_RULES_MAX + 1), "65 rules"),
            (record("blue/4294967294:4000000000-4294967295", 64), "bytes"),
            (json!({ "v": 1, "vni": 7, "forwarding": "hub" }), "hub"),
        ] {
            let refused = check(&name, record).unwrap_err().to_string();
            assert!(refused.contains(error), "{refused}");
        }
    }

    #[test]
    fn group_change_keeps_values_that_are_not_given_or_not_known() {
        let record = json!({ "v": 1, "vni": 7, "forwarding": "routes", "later": [1] });
        let mut record = record.as_object().unwrap().clone();
        let rules = vec![RuleSpec {
            action: causeway_model::RuleAction::Reject,
            from: "*".parse().unwrap(),
            to: "blue/*:22".parse().unwrap(),
        }];
        change_values(&mut record, &GroupChange { rules: Some(rules), ..GroupChange::default() });
        assert_eq!((&record["forwarding"], &record["later"]), (&json!("routes"), &json!([1])));
        assert_eq!(record["rules"][0]["to"], "blue/*:22");
        let none = GroupChange { vni: None, forwarding: Some(None), rules: Some(Vec::new()) };
        change_values(&mut record, &none);
        assert_eq!(Value::Object(record), json!({ "v": 1, "vni": 7, "later": [1] }));
    }
}
