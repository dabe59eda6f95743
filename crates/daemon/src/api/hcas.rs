//! `GET /v1/hcas` and `GET /v1/hcas/PORT`: host channel adapters of guests.
//!
//! The replies are samples of the `hca` service: objects with their limits, and counters. The list
//! has no queue pairs; the view of an adapter has up to `HCA_QUEUE_PAIRS_SHOWN_MAX` (256). A name
//! of no port of kind `hca` is 404. Adapters are added and deleted in `/v1/ports`. Without the
//! `hca` service the reply is 422.
//!
//! `super::answer` dispatches here on the thread of a connection; `causeway hca` prints the reply.

use causeway_model::commands::hca::{List, Show};

use super::{ApiCall, no_path, parse_name};
use crate::http::HttpReply;

/// Answers `/v1/hcas`; `rest` holds the path segments after it.
pub(super) fn hcas(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.ask(List, 200),
        ([port], "GET") => call.ask(Show(parse_name(port)?), 200),
        ([] | [_], _) => Err(HttpReply::method_not_allowed("GET")),
        _ => Err(no_path(call.request)),
    }
}
