//! `/v1/routes`: rules that send frames to a port or a link.

use causeway_model::commands::routes::{Add, Delete, List};
use causeway_model::draft::RouteDraft;

use super::{Call, invalid, no_path};
use crate::http::Reply;

pub(super) fn routes(call: &Call<'_>, rest: &[&str]) -> Result<Reply, Reply> {
    match (rest, call.method()) {
        ([], "GET") => call.ask(List, 200),
        ([], "POST") => {
            let draft: RouteDraft = call.body()?;
            let spec = draft.into_spec().map_err(|e| invalid(e.to_string()))?;
            call.ask(Add(spec), 201)
        }
        ([index], "DELETE") => {
            let index = index
                .parse()
                .map_err(|_| invalid(format!("route {index:?}: expected its number, from 1")))?;
            call.tell(Delete(index))
        }
        ([], _) => Err(Reply::method_not_allowed("GET, POST")),
        ([_], _) => Err(Reply::method_not_allowed("DELETE")),
        _ => Err(no_path(call.request)),
    }
}
