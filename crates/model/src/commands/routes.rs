//! Commands about routes ([`crate::RouteSpec`]), answered by the Ethernet service.
//!
//! Routes are numbered from 1 by the daemon; a number is not reused while the daemon runs. A route
//! cannot be changed: it is deleted and added again. At most
//! [`ROUTES_MAX`](crate::limits::ROUTES_MAX) (16,384) routes. A further route, a route that equals
//! another, and a route whose group, port or link does not exist are refused, and so is the
//! deletion of a number without a route. Deleting a port or link deletes the routes that name it.
//! The control API, `causeway apply`, the VNET language and the start (configuration file and state
//! file) send the commands, and wait in their threads.
//!
//! A start and `causeway apply` put routes in force before the ports that the routes apply to:
//! [`Prepare`] adds a route whose port or link may be missing, and [`Add`] completes it later.

use crate::{RouteSpec, RouteView, TypedRequest};

/// Lists the routes, newest first.
#[derive(Debug)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<RouteView>;
}

/// Puts a route in force whose ports and links may be missing. While the target is missing, frames
/// that the route matches are dropped; a route from a missing ingress matches none. Until [`Add`]
/// of the same route, a deleted port or link does not delete the route. A route that exists already
/// becomes such a route; the group of another must exist. The route ends with its group.
#[derive(Debug)]
pub struct Prepare(pub RouteSpec);

impl TypedRequest for Prepare {
    type Answer = ();
}

/// Adds a route, or completes one that was prepared. The ports and links that it names must exist.
#[derive(Debug)]
pub struct Add(pub RouteSpec);

impl TypedRequest for Add {
    type Answer = RouteView;
}

/// Deletes the route with this number.
#[derive(Debug)]
pub struct Delete(pub u64);

impl TypedRequest for Delete {
    type Answer = ();
}

/// Deletes the route that equals this one.
#[derive(Debug)]
pub struct Remove(pub RouteSpec);

impl TypedRequest for Remove {
    type Answer = ();
}
