//! `POST /v1/vnet`: executes a file of VNET commands for one group, or reports its changes
//! (`dry_run`).
//!
//! All lines are checked before the first is executed ([`crate::vnet::file`]); a wrong line, or
//! more than [`CONFIG_BYTES_MAX`] (4 MiB) of text, refuses the whole file (422); an unknown group
//! is 404. Execution stops at the first refusal, and the steps before it remain. The request needs
//! no VNET password: access to the control socket is enough. Peers' servers are not notified of
//! links.
//!
//! Concurrent requests are not serialised: a change between check and execution shows as a refused
//! step. `super::answer` dispatches here on the thread of a connection; `causeway vnet` is the
//! client.

use causeway_model::Name;
use serde::Deserialize;
use serde_json::json;

use super::ApiCall;
use super::replies::{invalid, kind_of, refused};
use crate::http::HttpReply;
use crate::limits::CONFIG_BYTES_MAX;
use crate::vnet::file::{FileError, check};
use crate::vnet::plan::VnetStep;

/// The body of the request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VnetBody {
    /// Group of the links and routes.
    group: Name,
    /// The commands, one a line.
    text: String,
    /// File name for messages.
    #[serde(default = "file")]
    file: String,
    /// Report the changes without making them.
    #[serde(default)]
    dry_run: bool,
}

fn file() -> String {
    "commands".into()
}

/// Answers `/v1/vnet`; `rest` holds the path segments after it.
pub(super) fn vnet(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    call.only(rest, "POST")?;
    let ApiCall { fabric, about, .. } = *call;
    let VnetBody { group, text, file, dry_run } = call.body()?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(invalid(format!("{file}: expected at most {CONFIG_BYTES_MAX} bytes")));
    }
    let refusal = |error: FileError| match error {
        FileError::Wrong(_) => invalid(error.to_string()),
        FileError::Fabric(error) => refused(error),
        FileError::Stopped { error: ref cause, .. } => {
            let (status, kind) = kind_of(cause);
            HttpReply::error(status, kind, error.to_string())
        }
    };
    let script = check(fabric, &group, about.resolve, &file, text.as_bytes()).map_err(refusal)?;
    let changes: Vec<String> = script.steps.iter().map(VnetStep::shown).collect();
    if !dry_run {
        script.execute(fabric).map_err(refusal)?;
    }
    Ok(HttpReply::json(200, &json!({ "dry_run": dry_run, "changes": changes })))
}
