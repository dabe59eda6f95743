//! `/v1/traffic`: the traffic matrix of a group.

use causeway_model::commands::traffic::Show;

use super::{ApiCall, no_path, parse_name};
use crate::http::HttpReply;

pub(super) fn traffic(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([group], "GET") => call.ask(Show(parse_name(group)?), 200),
        ([_], _) => Err(HttpReply::method_not_allowed("GET")),
        _ => Err(no_path(call.request)),
    }
}
