//! `/v1/peers`: NICs of other hosts.

use causeway_model::commands::peers::List;

use super::{ApiCall, no_path};
use crate::http::HttpReply;

pub(super) fn peers(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.ask(List, 200),
        ([], _) => Err(HttpReply::method_not_allowed("GET")),
        _ => Err(no_path(call.request)),
    }
}
