//! `causeway route`: lists, adds and deletes routes.
//!
//! Routes are deleted by the number that `list` prints; the daemon gives numbers and does not reuse
//! them. `add --may-exist` succeeds if an equal route exists. The daemon refuses a route whose
//! group, port or link does not exist; `list --group` refuses a missing group as well. The priority
//! in the list is computed by the daemon and cannot be set. A route is not changed in place. `del`
//! of a number that no route has is an error of exit status 3, or a success with `--if-exists`.
//!
//! `commands::run` is the caller; the requests go to `/v1/routes`.

use causeway_model::Name;
use causeway_model::{ROUTE_FIELDS, RouteSpec};
use serde_json::{Value, json};

use super::{CommandContext, hint, is_conflict};
use crate::args::RouteVerb;
use crate::client::{changing, view};
use crate::error::Result;
use crate::table::{Align, TextTable};
use crate::view::{RouteView, cell, route_end};

/// Runs `causeway route` and prints the result.
pub fn run(cx: &CommandContext, verb: RouteVerb) -> Result<()> {
    match verb {
        RouteVerb::List { group } => list(cx, group.as_ref()),
        RouteVerb::Add { values, may_exist, ephemeral } => {
            add(cx, &values.read()?, may_exist, ephemeral)
        }
        RouteVerb::Del { index, options } => cx.delete("route", &index, &options),
    }
}

/// Prints a line for each route, or for each route of a group.
fn list(cx: &CommandContext, group: Option<&Name>) -> Result<()> {
    let mut value = cx.client.get("/v1/routes")?;
    if let (Some(group), Some(routes)) = (group, value.as_array_mut()) {
        let see = "see `causeway group list`";
        cx.client.get(&format!("/v1/groups/{group}")).map_err(|e| hint(e, "group", see))?;
        routes.retain(|route| route["group"] == group.as_str());
    }
    cx.show(&value, |value| {
        let routes: Vec<RouteView> = view(value)?;
        let left = ["GROUP", "SOURCE", "DESTINATION", "TO", "FROM"].map(|head| (head, Align::Left));
        let right = ["PRIORITY", "HITS"].map(|head| (head, Align::Right));
        let mut table = TextTable::new(&[&[("INDEX", Align::Right)], &left[..], &right].concat());
        for route in routes {
            let of = |key| cell(&route.spec, key);
            let end = |key| route_end(&route.spec, key);
            table.row(vec![
                route.index.to_string(),
                of("group"),
                of("source"),
                of("destination"),
                end("to").unwrap_or_else(|| "-".into()),
                end("from").unwrap_or_else(|| "any".into()),
                route.priority.to_string(),
                route.hits_total.to_string(),
            ]);
        }
        Ok(table.render())
    })
}

/// Adds a route and prints its number.
fn add(cx: &CommandContext, route: &RouteSpec, may_exist: bool, ephemeral: bool) -> Result<()> {
    match cx.client.post(&changing("/v1/routes", ephemeral), &json!(route)) {
        Ok(value) => cx.show(&value, |value| Ok(format!("route {} added\n", value["index"]))),
        Err(error) if may_exist && is_conflict(&error) => {
            // A conflict can have other causes: only an existing route satisfies `--may-exist`.
            if is_there(cx, &json!(route))? {
                return cx.done(false, "the route exists already");
            }
            Err(error)
        }
        Err(error) => {
            let error = hint(error, "group", "add it with `causeway group add`");
            let error = hint(error, "link", "see `causeway link list`");
            Err(hint(error, "port", "see `causeway port list`"))
        }
    }
}

/// Returns whether an equal route exists.
fn is_there(cx: &CommandContext, wanted: &Value) -> Result<bool> {
    let routes = cx.client.get("/v1/routes")?;
    let same =
        |route: &Value| ROUTE_FIELDS.iter().all(|field| route[field.key] == wanted[field.key]);
    Ok(routes.as_array().is_some_and(|routes| routes.iter().any(same)))
}
