//! `causeway trace`: explains the decision about a described frame or connect, or the connections
//! of two adapters' queue pairs, in numbered steps.
//!
//! The daemon decides with its current tables and sends nothing: no counter changes and no address
//! is learned. The verdict holds for the moment of the request; addresses behind links are those
//! that the daemon knows. The verb interprets nothing: verdict, receivers and reasons are the
//! daemon's text.
//!
//! `commands::run` is the caller, in the only thread of `causeway`; the request goes to
//! `/v1/trace`. A verdict of any kind is a success; a port or group that does not exist, and a
//! daemon that does not answer, are errors.

use causeway_model::commands::trace::{Connect, Frame, Verbs};
use causeway_model::{TraceQuery, TraceView};
use serde_json::json;

use super::{CommandContext, hint};
use crate::args::TraceVerb;
use crate::client::view;
use crate::error::Result;
use crate::table::pairs;

/// Runs `causeway trace` and prints the result.
pub fn run(cx: &CommandContext, verb: TraceVerb) -> Result<()> {
    let query = match verb {
        TraceVerb::Frame { from, to, source } => {
            TraceQuery::new(&Frame { from, source, destination: to })
        }
        TraceVerb::Verbs { from, to } => TraceQuery::new(&Verbs { from, to }),
        TraceVerb::Connect { from, group, cid, port, socket_type } => {
            TraceQuery::new(&Connect { from, group, cid, port, socket_type })
        }
    };
    let value = cx
        .client
        .post("/v1/trace", &json!(query))
        .map_err(|e| hint(e, "port", "see `causeway port list`"))
        .map_err(|e| hint(e, "group", "see `causeway group list`"))?;
    cx.show(&value, |value| {
        let trace: TraceView = view(value)?;
        let numbered = trace.steps.iter().enumerate().map(|(n, step)| format!("{}. {step}", n + 1));
        let steps = numbered.collect::<Vec<_>>().join("\n");
        Ok(pairs(&[("verdict", trace.verdict), ("to", trace.to.join("\n")), ("because", steps)]))
    })
}
