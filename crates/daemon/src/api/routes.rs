//! `/v1/routes`: rules that send frames to a port or a link.

use causeway_model::RouteSpec;
use causeway_model::commands::routes::{Add, Delete, List};

use super::{ApiCall, invalid, joined, no_path};
use crate::http::HttpReply;

pub(super) fn routes(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.ask(List, 200),
        ([], "POST") => {
            let spec = RouteSpec::read(&call.body()?);
            call.ask(Add(spec.map_err(|problems| invalid(joined("route", &problems)))?), 201)
        }
        ([index], "DELETE") => {
            let index = index
                .parse()
                .map_err(|_| invalid(format!("route {index:?}: expected its number, from 1")))?;
            call.execute(Delete(index))
        }
        ([], _) => Err(HttpReply::method_not_allowed("GET, POST")),
        ([_], _) => Err(HttpReply::method_not_allowed("DELETE")),
        _ => Err(no_path(call.request)),
    }
}
