//! `/v1/routes`: lists, adds and deletes rules that send frames to a port or a link.
//!
//! `GET` lists the routes of all groups, newest first; `POST` adds a route (201); `DELETE
//! /v1/routes/INDEX` deletes the route with that number. Numbers start at 1 and are not reused, so
//! that a number never names another route later. A route cannot be changed in place.
//!
//! The `ethernet` service owns the routes, limits them to [`causeway_model::limits::ROUTES_MAX`]
//! (16,384) and refuses duplicates (409 both); the module checks only the syntax. `super::answer`
//! dispatches here on the thread of a connection.

use causeway_model::RouteSpec;
use causeway_model::commands::routes::{Add, Delete, List};

use super::{ApiCall, invalid, joined, no_path};
use crate::http::HttpReply;

/// Answers `/v1/routes`; `rest` holds the path segments after it.
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
