//! Requests of the controller to a shard.

use causeway_model::{Ask, CaptureSpec, Forwarding, GroupKind, Name};
use causeway_model::{RouteSpec, RouteView, TrafficView};

use crate::capture::Recording;

/// Replaces all routes of the group, and sets how it forwards.
#[derive(Debug)]
pub(crate) struct SetRoutes {
    /// The routes with their numbers, in rising order.
    pub routes: Vec<(u64, RouteSpec)>,
    pub forwarding: Forwarding,
    pub kind: GroupKind,
}

impl Ask for SetRoutes {
    type Answer = ();
}

/// Adds a route of this number.
#[derive(Debug)]
pub(crate) struct AddRoute(pub u64, pub RouteSpec);

impl Ask for AddRoute {
    type Answer = RouteView;
}

/// Deletes the route of this number.
#[derive(Debug)]
pub(crate) struct DeleteRoute(pub u64);

impl Ask for DeleteRoute {
    type Answer = ();
}

/// Shows all routes of the group.
#[derive(Debug)]
pub(crate) struct ListRoutes;

impl Ask for ListRoutes {
    type Answer = Vec<RouteView>;
}

/// Shows the traffic matrix of the group, which has this name.
#[derive(Debug)]
pub(crate) struct ReadTraffic(pub Name);

impl Ask for ReadTraffic {
    type Answer = TrafficView;
}

/// Begins to copy frames.
#[derive(Debug)]
pub(crate) struct BeginCapture(pub CaptureSpec);

impl Ask for BeginCapture {
    type Answer = Recording;
}
