//! `causeway config`: prints the running state as a configuration file, and its differences from a
//! file.
//!
//! `export` prints the daemon's TOML. `diff` sends a file (at most [`FILE_BYTES_MAX`] bytes (4
//! MiB), `-` is stdin, by default the file that the daemon names) to `POST /v1/config/diff` and
//! prints a line for each difference. Its exit status is that of diff(1): 0 without differences, 1
//! with differences, 2 and more for trouble, also if the output cannot be written. Neither verb
//! changes anything.
//!
//! The file is read by the tool, with the rights of its user. `commands::run` is the caller.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::apply::line;
use super::{CommandContext, print, read_file};
use crate::args::{ConfigVerb, Format};
use crate::error::{Error, Result};
use crate::limits::FILE_BYTES_MAX;

/// Runs `causeway config` and prints the result.
pub fn run(cx: &CommandContext, verb: ConfigVerb) -> Result<()> {
    match verb {
        ConfigVerb::Export => {
            let value = cx.client.get("/v1/config")?;
            cx.show(&value, |value| Ok(value["toml"].as_str().unwrap_or_default().to_owned()))
        }
        // Status 1 is a difference, as that of diff(1).
        ConfigVerb::Diff { file } => diff(cx, file).map_err(|error| match error {
            Error::Differs => error,
            error if error.is_closed_pipe() => error,
            error if error.status() == 1 => Error::Usage(error.to_string()),
            error => error,
        }),
    }
}

/// Prints the differences from a file.
fn diff(cx: &CommandContext, file: Option<PathBuf>) -> Result<()> {
    let file = match file {
        Some(file) => file,
        None => {
            let value = cx.client.get("/v1/info")?;
            let missing = || Error::Usage("the daemon names no file: give one with -f FILE".into());
            value["config"].as_str().map(PathBuf::from).ok_or_else(missing)?
        }
    };
    let text = read_file(&file, FILE_BYTES_MAX)?;
    let body = json!({ "text": text, "file": file.display().to_string() });
    let value = cx.client.post("/v1/config/diff", &body)?;
    let nothing = Vec::new();
    let changes = value["changes"].as_array().unwrap_or(&nothing);
    match cx.format {
        Format::Json => print(&format!("{value:#}\n"))?,
        Format::Table => print(&text_of(changes))?,
    }
    if changes.is_empty() { Ok(()) } else { Err(Error::Differs) }
}

/// Returns a line for each difference.
fn text_of(changes: &[Value]) -> String {
    let of = |change: &Value| {
        let kept = if change["kept"] == true { "   (kept)" } else { "" };
        format!("{}{kept}\n", line(change))
    };
    changes.iter().map(of).collect()
}
