//! `POST /v1/apply`: changes the running state to that of a configuration.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use causeway_model::CommandError;
use causeway_model::Name;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{About, Call, invalid, kind_of, refused};
use crate::config::underlay::underlay;
use crate::config::{Config, Surroundings};
use crate::http::Reply;
use crate::plan::{Action, Change, Outcome, Plan, State, carry_out, plan, running};

/// Serialises requests: two plans at a time would each be based on a state that the other changes.
static TURN: Mutex<()> = Mutex::new(());

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyBody {
    /// The text of the configuration file.
    text: String,
    /// File name for messages.
    #[serde(default = "file")]
    file: PathBuf,
    /// Report the changes without making them.
    #[serde(default)]
    dry_run: bool,
}

fn file() -> PathBuf {
    "configuration".into()
}

pub(super) fn apply(call: &Call<'_>, rest: &[&str]) -> Result<Reply, Reply> {
    call.only(rest, "POST")?;
    let Call { fabric, about, .. } = *call;
    let ApplyBody { text, file, dry_run } = call.body()?;
    let run_dir = Some(about.run_dir.clone());
    let around = Surroundings { run_dir, kinds: about.kinds, underlay };
    let config = Config::parse(&file, &text, &around).map_err(|e| invalid(e.to_string()))?;
    let mtu_is_ours = config.mtu_is_ours.clone();
    let mut wanted = wanted(config, about).map_err(invalid)?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let running = running(fabric).map_err(refused)?;
    keep_mtus(&mut wanted, &running, &mtu_is_ours);
    let plan = plan(&running, &wanted);
    if dry_run {
        let done = vec![false; plan.changes.len()];
        return Ok(Reply::json(200, &told(&plan, &done, dry_run)));
    }
    let Outcome { done, failed } = carry_out(fabric, &plan);
    for (change, _) in plan.changes.iter().zip(&done).filter(|(_, done)| **done) {
        let Change { action, what, name, .. } = change;
        log::info!(action:? = action, what, name = name.as_str(); "applied");
    }
    let value = told(&plan, &done, dry_run);
    match failed {
        None => Ok(Reply::json(200, &value)),
        Some((at, error)) => Err(stopped(&plan, &done, at, &error, value)),
    }
}

/// Keeps the MTU of running ports if only the set of links would change it: replacing the port
/// would disconnect its frontend.
fn keep_mtus(wanted: &mut State, running: &State, ours: &BTreeSet<Name>) {
    for port in wanted.ports.iter_mut().filter(|port| ours.contains(&port.name)) {
        let same = running.ports.iter().find(|other| other.name == port.name);
        if let Some(now) = same {
            port.kind.keep("mtu", &now.kind);
        }
    }
}

/// Returns the part of the configuration that can change while the daemon runs.
fn wanted(config: Config, about: &About) -> Result<State, String> {
    let key_file = &config.daemon.key_file;
    let links = config.links.into_iter().map(|link| link.into_spec(key_file, about.resolve));
    let links: Result<Vec<_>, _> = links.collect();
    Ok(State {
        groups: config.groups,
        rules: config.rules,
        ports: config.ports,
        links: links.map_err(|error| error.to_string())?,
        routes: config.routes,
    })
}

fn told(plan: &Plan, done: &[bool], dry_run: bool) -> Value {
    let change = |(change, done): (&Change, &bool)| {
        let mut value = json!(change);
        if let Some(map) = value.as_object_mut() {
            map.insert("done".into(), (*done).into());
        }
        value
    };
    let changes: Vec<Value> = plan.changes.iter().zip(done).map(change).collect();
    json!({ "dry_run": dry_run, "changes": changes })
}

/// Returns the reply for a refused step, with the number of changes made before it.
fn stopped(plan: &Plan, done: &[bool], at: usize, error: &CommandError, mut value: Value) -> Reply {
    let failed = plan.changes.get(at);
    let what = failed.map(|c| format!("{} {} {}", word(c.action), c.what, c.name));
    let count = done.iter().filter(|done| **done).count();
    let mut text = what.unwrap_or_default();
    let _ = write!(
        text,
        ": {error}; {count} of {} changes were made, the others were not: correct it and apply again",
        done.len()
    );
    let (status, kind) = kind_of(error);
    if let Some(map) = value.as_object_mut() {
        map.insert("error".into(), json!({ "kind": kind, "message": text }));
    }
    Reply::json(status, &value)
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Add => "add",
        Action::Delete => "delete",
        Action::Replace => "replace",
    }
}
