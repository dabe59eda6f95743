//! Commands about routes.

use crate::{Ask, RouteSpec, RouteView};

/// Lists the routes, newest first.
#[derive(Debug)]
pub struct List;

impl Ask for List {
    type Answer = Vec<RouteView>;
}

/// Adds a route. The ports and links that it names must exist.
#[derive(Debug)]
pub struct Add(pub RouteSpec);

impl Ask for Add {
    type Answer = RouteView;
}

/// Deletes the route with this number.
#[derive(Debug)]
pub struct Delete(pub u64);

impl Ask for Delete {
    type Answer = ();
}
