//! `causeway apply`: changes the running state to that of a configuration file, and prints the
//! changes.
//!
//! The file (at most [`FILE_BYTES_MAX`] bytes (4 MiB), `-` is stdin) is read by the tool and sent
//! as text to `POST /v1/apply`; the daemon checks, plans and executes it. With `--dry-run` it only
//! plans. If the daemon stops at a refusal, the changes are printed with the marks of those not
//! made, and the exit status is 65; nothing is undone. A file with an error is refused before any
//! change, with exit status 1; a file that cannot be read, or is longer, with 2.
//!
//! The daemon keeps objects that its own file does not have in the state file, unless `--ephemeral`
//! is given. `commands::run` is the caller; `config diff` prints its lines by [`line()`].

use serde_json::{Map, Value, json};

use super::{CommandContext, print, read_file};
use crate::args::{ApplyArgs, Format};
use crate::client::changing;
use crate::error::{Error, Result};
use crate::limits::FILE_BYTES_MAX;

/// Runs `causeway apply` and prints the result.
pub fn run(cx: &CommandContext, args: &ApplyArgs) -> Result<()> {
    let text = read_file(&args.file, FILE_BYTES_MAX)?;
    let file = args.file.display().to_string();
    let body = json!({ "text": text, "file": file, "dry_run": args.dry_run });
    match cx.client.post(&changing("/v1/apply", args.ephemeral), &body) {
        Ok(value) => cx.show(&value, |value| Ok(diff(value))),
        Err(Error::Partial { message, value }) => {
            match cx.format {
                Format::Json => print(&format!("{value:#}\n"))?,
                Format::Table => print(&diff(&value))?,
            }
            Err(Error::Partial { message, value })
        }
        Err(error) => Err(error),
    }
}

/// Returns a line for each change, and a last line with their number.
fn diff(value: &Value) -> String {
    let nothing = Vec::new();
    let changes = value["changes"].as_array().unwrap_or(&nothing);
    let dry_run = value["dry_run"] == true;
    let stopped = !dry_run && changes.iter().any(|change| change["done"] != true);
    let mut out = String::new();
    for change in changes {
        let left = if stopped && change["done"] != true { "   (not made)" } else { "" };
        out.push_str(&format!("{}{left}\n", line(change)));
    }
    let n = changes.len();
    let count = match n {
        1 => "1 change".to_owned(),
        n => format!("{n} changes"),
    };
    match (n, dry_run, stopped) {
        (0, _, _) => out.push_str("nothing to change\n"),
        (_, true, _) => out.push_str(&format!("{count} to make\n")),
        (_, _, false) => out.push_str(&format!("{count} made\n")),
        (_, _, true) => {}
    }
    out
}

/// Returns a change as `+ port NAME: …`, with `-` for deletions and `~` for replacements.
pub(super) fn line(change: &Value) -> String {
    let sign = match change["action"].as_str() {
        Some("add") => '+',
        Some("delete") => '-',
        _ => '~',
    };
    let word = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
    let (what, name) = (word("what"), word("name"));
    let details = match (change["before"].as_object(), change["after"].as_object()) {
        (Some(before), Some(after)) => differences(before, after),
        // The names of rules and routes describe them completely.
        _ if what == "rule" || what == "route" => String::new(),
        (one, other) => one.or(other).map(fields).unwrap_or_default(),
    };
    format!("{sign} {what} {name}{details}")
}

/// Returns the fields of an added or deleted object.
fn fields(of: &Map<String, Value>) -> String {
    let shown = of.iter().filter(|(key, _)| *key != "name");
    let shown: Vec<String> = shown.map(|(key, value)| format!("{key} {}", plain(value))).collect();
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) }
}

/// Returns the fields that differ between both states of a replaced object.
fn differences(before: &Map<String, Value>, after: &Map<String, Value>) -> String {
    let none = Value::Null;
    let mut changes = Vec::new();
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    for key in after.keys().chain(gone) {
        let (old, new) = (before.get(key).unwrap_or(&none), after.get(key).unwrap_or(&none));
        if old != new {
            changes.push(format!("{key} {} -> {}", plain(old), plain(new)));
        }
    }
    match changes.is_empty() {
        true => ": because an object that it names is replaced".into(),
        false => format!(": {}", changes.join(", ")),
    }
}

/// Returns a JSON value without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".into(),
        other => other.to_string(),
    }
}
