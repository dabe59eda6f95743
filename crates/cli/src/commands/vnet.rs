//! `causeway vnet`: executes a file of VNET commands for a group, and prints the changes.
//!
//! The file (at most [`FILE_BYTES_MAX`] bytes (4 MiB), `-` is stdin) is sent as text to `POST
//! /v1/vnet`. The daemon checks all lines first and executes none of a wrong file; a refusal during
//! the execution leaves the earlier changes in effect, and the verb then prints the error alone and
//! exits with the status of the refusal, not with 65. With `--dry-run` nothing is changed. The verb
//! does not connect to VNET servers over TCP.
//!
//! `commands::run` is the caller.

use serde_json::json;

use super::{CommandContext, hint, read_file};
use crate::args::VnetArgs;
use crate::client::changing;
use crate::error::Result;
use crate::limits::FILE_BYTES_MAX;

/// Runs `causeway vnet` and prints the result.
pub fn run(cx: &CommandContext, args: &VnetArgs) -> Result<()> {
    let text = read_file(&args.file, FILE_BYTES_MAX)?;
    let file = args.file.display().to_string();
    let body = json!({ "group": args.group, "text": text, "file": file, "dry_run": args.dry_run });
    let value = cx.client.post(&changing("/v1/vnet", args.ephemeral), &body);
    let value = value.map_err(|e| hint(e, "group", "see `causeway group list`"))?;
    cx.show(&value, |value| {
        let nothing = Vec::new();
        let changes = value["changes"].as_array().unwrap_or(&nothing);
        let lines = changes.iter().filter_map(|change| change.as_str());
        let mut out: String = lines.map(|line| format!("{line}\n")).collect();
        let (n, what) = (changes.len(), if args.dry_run { "to make" } else { "made" });
        out.push_str(&format!("{n} change{} {what}\n", if n == 1 { "" } else { "s" }));
        Ok(out)
    })
}
