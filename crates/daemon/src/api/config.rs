//! `GET /v1/config` and `POST /v1/config/diff`: the running state as a configuration, and its
//! differences from a configuration file.
//!
//! `GET` answers with the paths of the configuration file and the state file, and with the running
//! state as TOML (`toml`), which causewayd accepts as a configuration file. `POST` reads a
//! configuration from the request, as `/v1/apply` does, and lists each object that differs: an
//! `add` runs and is not in the file, a `delete` is in the file and does not run, a `replace` has
//! other values. `kept` of an `add` or `delete` is whether the state file has the object, so that
//! the next start adds it; a `delete` with it does not run now because the host refused it, or
//! until the next start only. A `replace` never has it. Objects of sections that their service does
//! not list are not compared, and stand in `toml` as in the daemon's configuration file.
//!
//! The lists of the running state are read one after the other; nothing is changed. Rules are
//! compared by their longest common subsequence. `super::answer` dispatches here, in the thread of
//! the connection; without a state file wrapper ([`crate::kept`]) the paths are unknown (404).

use std::collections::HashMap;
use std::path::PathBuf;

use causeway_model::CommandError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ApiCall;
use super::apply::{keep_mtus, parse};
use super::replies::refused;
use crate::http::HttpReply;
use crate::kept::Kept;
use crate::kept::objects::Standing;
use crate::kept::table::{ObjectKey, ObjectTable, ObjectTables, of_running};
use crate::plan::{ChangeType, read_running, rule_changes};

/// The body of `POST /v1/config/diff`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiffBody {
    /// The text of the configuration file.
    text: String,
    /// File name for messages.
    #[serde(default = "file")]
    file: PathBuf,
}

fn file() -> PathBuf {
    "configuration".into()
}

/// Answers `/v1/config`; `rest` holds the path segments after it.
pub(super) fn config(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    let Some(kept) = &call.about.kept else { return Err(call.no_path()) };
    match (rest, call.method()) {
        ([], "GET") => {
            let toml = kept.export().map_err(refused)?;
            let state_file = kept.state_file().map(|path| path.display().to_string());
            let file = kept.config_file().display().to_string();
            let value = json!({ "file": file, "state_file": state_file, "toml": toml });
            Ok(HttpReply::json(200, &value))
        }
        (["diff"], "POST") => diff(call, kept),
        ([], _) => Err(HttpReply::method_not_allowed("GET")),
        (["diff"], _) => Err(HttpReply::method_not_allowed("POST")),
        _ => Err(call.no_path()),
    }
}

/// Compares the running state with a file.
fn diff(call: &ApiCall<'_>, kept: &Kept) -> Result<HttpReply, HttpReply> {
    let DiffBody { text, file } = call.body()?;
    let mut config = parse(call.about, &file, &text)?;
    let running = read_running(call.fabric, &[]).map_err(refused)?;
    keep_mtus(&mut config.ports, &running.ports, &config.derived_mtus);
    config.objects.retain(|object| object.section.list.is_some());
    let wanted = ObjectTables::of_config(&config, &call.about.key_file);
    let found = of_running(call.fabric, call.about.sections).map_err(refused)?;
    let mut changes = objects(&wanted, &found, kept);
    changes.extend(rules(&wanted, &found, kept)?);
    Ok(HttpReply::json(200, &json!({ "file": file, "changes": changes })))
}

/// Returns the differences of objects with an identity.
fn objects(file: &ObjectTables, running: &ObjectTables, kept: &Kept) -> Vec<Value> {
    let by_key = |tables: &ObjectTables| -> HashMap<ObjectKey, Map<String, Value>> {
        let pairs = tables.objects.iter().map(|table| (table.key.clone(), table.values.clone()));
        pairs.collect()
    };
    let (listed, found) = (by_key(file), by_key(running));
    let mut changes = Vec::new();
    for ObjectTable { key, values } in &running.objects {
        let is_kept = kept.standing(key) == Standing::Kept;
        match listed.get(key) {
            None => changes.push(change("add", key, None, Some(values), is_kept)),
            Some(old) if old != values => {
                changes.push(change("replace", key, Some(old), Some(values), false));
            }
            Some(_) => {}
        }
    }
    for ObjectTable { key, values } in &file.objects {
        if !found.contains_key(key) {
            changes.push(change("delete", key, Some(values), None, false));
        }
    }
    // Objects of the state file that do not run now.
    for ObjectTable { key, values } in kept.retained() {
        if !listed.contains_key(&key) && !found.contains_key(&key) {
            changes.push(change("delete", &key, Some(&values), None, true));
        }
    }
    changes
}

/// Returns the differences of rules.
fn rules(
    file: &ObjectTables,
    running: &ObjectTables,
    kept: &Kept,
) -> Result<Vec<Value>, HttpReply> {
    let unexpected = || refused(CommandError::Host("a rule cannot be printed".into()));
    let mut changes = Vec::new();
    for (at, change) in rule_changes(&file.rules, &running.rules) {
        let mut value = json!(change);
        let is_kept = change.action == ChangeType::Add && kept.keeps_rule(at);
        let map = value.as_object_mut().ok_or_else(unexpected)?;
        map.insert("kept".into(), is_kept.into());
        changes.push(value);
    }
    Ok(changes)
}

/// Returns a difference as JSON, as `/v1/apply` prints changes.
fn change(
    action: &str,
    key: &ObjectKey,
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
    is_kept: bool,
) -> Value {
    let mut value = json!({
        "action": action, "what": key.section, "name": key.id, "kept": is_kept,
    });
    if let Some(map) = value.as_object_mut() {
        map.extend(before.map(|before| ("before".to_owned(), json!(before))));
        map.extend(after.map(|after| ("after".to_owned(), json!(after))));
    }
    value
}
