//! Requests of the controller (`crate::control`) to a shard.
//!
//! Each type names the type of its answer; [`crate::Ethernet`] answers them in `Service::ask`, in
//! the dispatcher's thread, between two turns and in order of arrival. They carry control-plane
//! work only, never frames. The shard does not validate routes and numbers again: the controller
//! has done so. The number of a route that does not exist has no effect. A capture is refused if
//! its port or link does not exist, or if the group has
//! [`CAPTURES_MAX`](crate::limits::CAPTURES_MAX) (16). A group without a shard has no receiver of
//! requests: the controller then refuses the command, or sends nothing (prepared routes, deletions
//! and lists of routes). It sends [`SetRoutes`] when the shard of a group opens that has routes, or
//! not the default kind and forwarding, when the site changes the group's forwarding, and after
//! routes were deleted with their port or link.

use causeway_fabric::capture::Recording;
use causeway_model::{CaptureSpec, Forwarding, GroupKind, Name, TypedRequest};
use causeway_model::{RouteSpec, RouteView, TrafficView};

/// Replaces all routes of the group, and sets its forwarding mode.
#[derive(Debug)]
pub(crate) struct SetRoutes {
    /// The routes with their numbers, in ascending order.
    pub routes: Vec<(u64, RouteSpec)>,
    /// Treatment of frames without a matching route.
    pub forwarding: Forwarding,
    /// Kind of the group: a bridge drops link-local frames.
    pub kind: GroupKind,
}

impl TypedRequest for SetRoutes {
    type Answer = ();
}

/// Adds the route with this number.
#[derive(Debug)]
pub(crate) struct AddRoute(pub u64, pub RouteSpec);

impl TypedRequest for AddRoute {
    type Answer = RouteView;
}

/// Deletes the route with this number.
#[derive(Debug)]
pub(crate) struct DeleteRoute(pub u64);

impl TypedRequest for DeleteRoute {
    type Answer = ();
}

/// Shows the route with this number; `None` if the group has no such route.
#[derive(Debug)]
pub(crate) struct ShowRoute(pub u64);

impl TypedRequest for ShowRoute {
    type Answer = Option<RouteView>;
}

/// Lists all routes of the group.
#[derive(Debug)]
pub(crate) struct ListRoutes;

impl TypedRequest for ListRoutes {
    type Answer = Vec<RouteView>;
}

/// Reads the traffic matrix of the group with this name.
#[derive(Debug)]
pub(crate) struct ReadTraffic(pub Name);

impl TypedRequest for ReadTraffic {
    type Answer = TrafficView;
}

/// Begins a capture.
#[derive(Debug)]
pub(crate) struct BeginCapture(pub CaptureSpec);

impl TypedRequest for BeginCapture {
    type Answer = Recording;
}
