//! `causeway forward list`, `add` and `del`: the daemon's forwards.
//!
//! `add` waits while the new forward is in the state *starting*, until the forwarder has reported
//! the forward, at most [`FORWARD_STATE_TIME`] (4 s), and prints its state; the forward exists
//! whatever the state. `--may-exist` succeeds if a forward of this name with the same values
//! exists. A forward cannot be changed in place. `del` of a missing forward is an error of exit
//! status 3, or a success with `--if-exists`. The requests go to `/v1/forwards`; [`super::run`] is
//! the caller.

use std::time::Instant;

use causeway_model::{FORWARD_FIELDS, ForwardSpec};
use serde_json::{Value, json};

use super::super::{CommandContext, is_conflict};
use crate::args::{ForwardAdd, ForwardVerb};
use crate::client::{changing, view};
use crate::error::Result;
use crate::limits::{FORWARD_STATE_TIME, FORWARDER_INTERVAL};
use crate::table::{Align, TextTable};
use crate::view::{ForwardView, cell};

/// Runs a verb and prints the result.
pub fn run(cx: &CommandContext, verb: ForwardVerb) -> Result<()> {
    match verb {
        ForwardVerb::List => {
            let value = cx.client.get("/v1/forwards")?;
            cx.show(&value, |value| Ok(table(&view::<Vec<ForwardView>>(value)?)))
        }
        ForwardVerb::Add(args) => add(cx, &args),
        ForwardVerb::Del { name, options } => cx.delete("forward", &name, &options),
    }
}

/// Returns the list as text: a line for each forward, then the reasons of their states.
fn table(forwards: &[ForwardView]) -> String {
    let left = ["NAME", "FROM", "TO", "STATE"].map(|head| (head, Align::Left));
    let right = ["OPEN", "TOTAL", "FAILED", "LOST"].map(|head| (head, Align::Right));
    let mut table = TextTable::new(&[&left[..], &right].concat());
    for forward in forwards {
        let of = |key| cell(&forward.spec, key);
        let count = |name| forward.counters.get(name).copied().unwrap_or(0).to_string();
        table.row(vec![
            of("name"),
            of("from"),
            of("to"),
            forward.state.clone(),
            count("open_connections"),
            count("connections_total"),
            count("target_failures_total"),
            count("lost_connections_total"),
        ]);
    }
    let mut text = table.render();
    let with_reason: Vec<_> =
        forwards.iter().filter(|forward| !forward.reason.is_empty()).collect();
    for forward in &with_reason {
        let same = with_reason.iter().all(|other| other.reason == forward.reason);
        if same {
            text.push_str(&format!("\n{}\n", forward.reason));
            break;
        }
        text.push_str(&format!("\n{}: {}", cell(&forward.spec, "name"), forward.reason));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Adds a forward, and prints its state.
fn add(cx: &CommandContext, args: &ForwardAdd) -> Result<()> {
    let spec: ForwardSpec = args.values.read()?;
    let name = spec.name.clone();
    let added = cx.client.post(&changing("/v1/forwards", args.ephemeral), &json!(spec));
    match added {
        Ok(_) => {}
        Err(error) if args.may_exist && is_conflict(&error) => {
            // A conflict can have other causes: only an equal forward satisfies `--may-exist`.
            let known = cx.client.get(&format!("/v1/forwards/{name}"));
            let wanted = json!(spec);
            let is_same =
                |known: &Value| FORWARD_FIELDS.iter().all(|f| known[f.key] == wanted[f.key]);
            return match known {
                Ok(known) if is_same(&known) => {
                    cx.done(false, &format!("forward {name} exists already"))
                }
                _ => Err(error),
            };
        }
        Err(error) => return Err(error),
    }
    let value = settled(cx, name.as_str())?;
    cx.show(&value, |value| {
        let forward: ForwardView = view(value)?;
        let from = cell(&forward.spec, "from");
        Ok(match forward.state.as_str() {
            "listening" => format!("forward {name} added; it listens at {from}\n"),
            "starting" => format!("forward {name} added; see `causeway forward list`\n"),
            _ => format!("forward {name} added, and does not work yet: {}\n", forward.reason),
        })
    })
}

/// Returns the view of a forward, once the forwarder has reported it.
fn settled(cx: &CommandContext, name: &str) -> Result<Value> {
    let since = Instant::now();
    loop {
        let value = cx.client.get(&format!("/v1/forwards/{name}"))?;
        if value["state"] != "starting" || since.elapsed() >= FORWARD_STATE_TIME {
            return Ok(value);
        }
        std::thread::sleep(FORWARDER_INTERVAL / 10);
    }
}
