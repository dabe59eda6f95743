//! `/v1/traffic`: the traffic matrix of a group.

use causeway_model::commands::traffic::Show;

use super::{Call, no_path, parse_name};
use crate::http::Reply;

pub(super) fn traffic(call: &Call<'_>, rest: &[&str]) -> Result<Reply, Reply> {
    match (rest, call.method()) {
        ([group], "GET") => call.ask(Show(parse_name(group)?), 200),
        ([_], _) => Err(Reply::method_not_allowed("GET")),
        _ => Err(no_path(call.request)),
    }
}
