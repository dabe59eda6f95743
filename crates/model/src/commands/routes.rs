//! Commands about routes ([`crate::RouteSpec`]), answered by the Ethernet service.
//!
//! Routes are numbered from 1 by the daemon; a number is never reused. A route cannot be changed:
//! it is deleted and added again. At most [`ROUTES_MAX`](crate::limits::ROUTES_MAX) (16,384)
//! routes. A further route, a route that equals another, and a route whose group, port or link does
//! not exist are refused, and so is the deletion of a number without a route. Deleting a port or
//! link deletes the routes that name it. The control API, `causeway apply`, the VNET language and
//! the start with the configuration file send the commands, and wait in their threads.

use crate::{RouteSpec, RouteView, TypedRequest};

/// Lists the routes, newest first.
#[derive(Debug)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<RouteView>;
}

/// Adds a route. The ports and links that it names must exist.
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
