//! `POST /v1/apply`: changes the running state to that of a configuration, or reports the changes
//! (`dry_run`).
//!
//! The request carries the file's text, of at most 4 MiB as a file on disk. [`Config::parse`]
//! checks the text, [`read_running`] reads the fabric, [`plan()`] compares both, and [`execute`]
//! makes the changes, one command after the other. Groups, rules, ports and the objects of
//! services' sections change (`delete` of [`causeway_model::SectionDefinition`]); `[daemon]`,
//! `[dispatch]`, `[control]`, `[metrics]` and sections without that request are checked and otherwise
//! ignored.
//! The daemon's own file is not written; it is compared with the request after a complete
//! execution, because objects of that file are not kept in the state file
//! ([`crate::kept::Kept::adopt`]).
//!
//! Names of peers are resolved on the thread of the connection, which blocks meanwhile, also with
//! `dry_run`. A file that is too long or invalid, or that names a peer without an address, changes
//! nothing (422). A changed port or link is deleted and added again, which disconnects its
//! frontend or peer. Execution stops at the first refusal, whose status the reply has, and earlier
//! changes remain: the reply lists each change with `done`. A running port for which the file gives
//! no MTU keeps its MTU, and an object with an unchanged host name keeps its address. Requests are
//! serialised with each other ([`TURN`]), not with other changes of the API: such a change shows as
//! a refused command.
//!
//! `super::answer` dispatches here on the thread of a connection; `causeway apply` is the client.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use causeway_model::{CommandError, Name, PortSpec, TableContext};
use serde::Deserialize;
use serde_json::{Value, json};

use super::replies::{invalid, kind_of, refused};
use super::{ApiCall, ApiContext};
use crate::config::{Config, ConfigContext};
use crate::http::HttpReply;
use crate::plan::{
    ChangePlan, ChangeType, FabricState, PlanResult, PlannedChange, SectionObject, execute, plan,
    read_running,
};

/// Serialises requests: two plans at a time would each be based on a state that the other changes.
static TURN: Mutex<()> = Mutex::new(());

/// The body of the request.
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

/// Answers `/v1/apply`.
pub(super) fn apply(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    call.only(rest, "POST")?;
    let ApiCall { fabric, about, .. } = *call;
    let ApplyBody { text, file, dry_run } = call.body()?;
    let config = parse(about, &file, &text)?;
    let mut wanted = wanted_state(config.clone(), about).map_err(invalid)?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = read_running(fabric, about.sections).map_err(refused)?;
    running.objects.retain(|object| object.section.can_change());
    keep_mtus(&mut wanted.ports, &running.ports, &config.derived_mtus);
    let plan = plan(&running, &wanted);
    if dry_run {
        let done = vec![false; plan.changes.len()];
        return Ok(HttpReply::json(200, &changes_json(&plan, &done, dry_run)));
    }
    let PlanResult { done, failed } = execute(fabric, &plan);
    for (change, _) in plan.changes.iter().zip(&done).filter(|(_, done)| **done) {
        let PlannedChange { action, what, name, .. } = change;
        log::info!(action:? = action, what, name = name.as_str(); "applied");
    }
    let value = changes_json(&plan, &done, dry_run);
    if let (None, Some(kept)) = (&failed, &about.kept) {
        // The running ports have the MTUs that the file leaves to the daemon.
        kept.adopt(&Config { ports: wanted.ports, ..config }, &text);
    }
    match failed {
        None => Ok(HttpReply::json(200, &value)),
        Some((at, error)) => Err(incomplete(&plan, &done, at, &error, value)),
    }
}

/// Reads the text of a configuration file.
pub(super) fn parse(about: &ApiContext, file: &Path, text: &str) -> Result<Config, HttpReply> {
    let run_dir = Some(about.run_dir.clone());
    let ApiContext { kinds, sections, .. } = *about;
    let around = ConfigContext { run_dir, state_dir: None, kinds, sections, underlay: None };
    Config::parse(file, text, &around).map_err(|error| invalid(error.to_string()))
}

/// Keeps the MTU of the running ports named by `ours`, whose file gives none: a changed set of
/// links would change their MTU, and replacing a port would disconnect its frontend.
pub(super) fn keep_mtus(wanted: &mut [PortSpec], running: &[PortSpec], ours: &BTreeSet<Name>) {
    for port in wanted.iter_mut().filter(|port| ours.contains(&port.name)) {
        let same = running.iter().find(|other| other.name == port.name);
        if let Some(now) = same {
            port.kind.keep("mtu", &now.kind);
        }
    }
}

/// Returns the part of the configuration that can change while the daemon runs.
fn wanted_state(config: Config, about: &ApiContext) -> Result<FabricState, String> {
    let cx = TableContext { key_file: &config.daemon.key_file, resolve: about.resolve };
    let objects = config.objects.iter().filter(|object| object.section.can_change());
    let objects = objects.map(|object| SectionObject::of_config(object, cx));
    Ok(FabricState {
        objects: objects.collect::<Result<_, _>>()?,
        groups: config.groups,
        rules: config.rules,
        ports: config.ports,
    })
}

/// Returns the changes as JSON, each with whether it is `done`.
fn changes_json(plan: &ChangePlan, done: &[bool], dry_run: bool) -> Value {
    let change = |(change, done): (&PlannedChange, &bool)| {
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
fn incomplete(
    plan: &ChangePlan,
    done: &[bool],
    at: usize,
    error: &CommandError,
    mut value: Value,
) -> HttpReply {
    let failed = plan.changes.get(at);
    let what = failed.map(|c| format!("{} {} {}", action_name(c.action), c.what, c.name));
    let count = done.iter().filter(|done| **done).count();
    let mut text = what.unwrap_or_default();
    let _ = write!(
        text,
        ": {error}; {count} of {} changes were made, the others were not: correct it and apply \
         again",
        done.len()
    );
    let (status, kind) = kind_of(error);
    if let Some(map) = value.as_object_mut() {
        map.insert("error".into(), json!({ "kind": kind, "message": text }));
    }
    HttpReply::json(status, &value)
}

/// Returns the word for a type of change in the reply.
fn action_name(action: ChangeType) -> &'static str {
    match action {
        ChangeType::Add => "add",
        ChangeType::Delete => "delete",
        ChangeType::Replace => "replace",
    }
}
