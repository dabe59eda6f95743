//! `GET /v1/peers`: NICs of MX endpoints on other hosts, each as a NIC of this host knows it.
//!
//! The list is read-only: the `mx` service has it from the configuration (`static`) or from
//! discovery (`announced`). A peer that two NICs of this host know has two entries. Peers of links
//! are in `/v1/links`. Without the `mx` service the reply is 422.
//!
//! `super::answer` dispatches here on the thread of a connection; `causeway peer` prints the reply.

use causeway_model::commands::peers::List;

use super::{ApiCall, no_path};
use crate::http::HttpReply;

/// Answers `/v1/peers`; `rest` holds the path segments after it.
pub(super) fn peers(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.ask(List, 200),
        ([], _) => Err(HttpReply::method_not_allowed("GET")),
        _ => Err(no_path(call.request)),
    }
}
