//! `/v1/peers`: NICs of other hosts.

use causeway_model::commands::peers::List;

use super::{Call, no_path};
use crate::http::Reply;

pub(super) fn peers(call: &Call<'_>, rest: &[&str]) -> Result<Reply, Reply> {
    match (rest, call.method()) {
        ([], "GET") => call.ask(List, 200),
        ([], _) => Err(Reply::method_not_allowed("GET")),
        _ => Err(no_path(call.request)),
    }
}
