//! The routes of all groups, as the operator configured them.
//!
//! The module, on the threads of the control socket, validates and numbers routes and sends them to
//! the shards, which apply them ([`crate::route`]). The target of a route, and its ingress if it
//! names one, must exist and be in its group. At most [`ROUTES_MAX`] (16,384) routes exist in all
//! groups together. A route that exceeds the bound or equals another is refused, and so is a route
//! in a group without shard (without net ports and links). A route is deleted with its port or
//! link. A shard that opens receives the forwarding mode of its group, and the routes that are left
//! ([`Routes::configure`]). The module does not forward, and counts no hits: shards do, and
//! [`Routes::list`] asks them. Routes are not stored: a daemon that starts has those of its
//! configuration file only.

use causeway_fabric::{Control, ShardKey};
use causeway_model::limits::ROUTES_MAX;
use causeway_model::{CommandError, GroupSpec, Name, RouteEnd, RouteSpec, RouteView};

use super::check_end;
use crate::request::{AddRoute, DeleteRoute, ListRoutes, SetRoutes};
use crate::service::NAME;

/// The routes of all groups.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// By number, ascending.
    all: Vec<(u64, RouteSpec)>,
    /// Number of the latest route; numbers are not reused.
    last: u64,
}

/// Returns whether a route has `end` as its target or required ingress.
fn names(route: &RouteSpec, end: &RouteEnd) -> bool {
    route.to == *end || route.from.as_ref() == Some(end)
}

impl Routes {
    /// Validates and numbers a route, and adds it to the shard.
    pub(super) fn add(
        &mut self,
        control: &mut Control<'_>,
        spec: RouteSpec,
    ) -> Result<RouteView, CommandError> {
        control.group(&spec.group)?;
        for end in std::iter::once(&spec.to).chain(&spec.from) {
            check_end(control, &spec.group, end)?;
        }
        if let Some((number, _)) = self.all.iter().find(|(_, route)| *route == spec) {
            return Err(CommandError::Conflict(format!("route {number} is the same")));
        }
        if self.all.len() >= ROUTES_MAX {
            return Err(CommandError::Full(format!(
                "there are {ROUTES_MAX} routes already: delete one"
            )));
        }
        let number = self.last.saturating_add(1);
        let shard = ShardKey::new(&spec.group, NAME);
        let view = control.ask(&shard, AddRoute(number, spec.clone()))?;
        self.all.push((number, spec));
        self.last = number;
        Ok(view)
    }

    /// Deletes a route here and in its shard. An unknown number is [`CommandError::NotFound`].
    pub(super) fn delete(
        &mut self,
        control: &Control<'_>,
        number: u64,
    ) -> Result<(), CommandError> {
        let found = self.all.iter().position(|(n, _)| *n == number);
        let Some(place) = found.filter(|place| *place < self.all.len()) else {
            return Err(CommandError::NotFound { what: "route", name: number.to_string() });
        };
        let (number, spec) = self.all.remove(place);
        control.ask(&ShardKey::new(&spec.group, NAME), DeleteRoute(number))
    }

    /// Returns the routes of all groups with their hits, newest first. Routes of a group without
    /// shard are left out.
    pub(super) fn list(&self, control: &Control<'_>) -> Result<Vec<RouteView>, CommandError> {
        let mut views = Vec::new();
        for group in control.groups() {
            let shard = ShardKey::new(&group.name, NAME);
            let has = self.all.iter().any(|(_, route)| route.group == group.name);
            if has && control.has_shard(&shard) {
                views.extend(control.ask(&shard, ListRoutes)?);
            }
        }
        views.sort_by_key(|view| std::cmp::Reverse(view.index));
        Ok(views)
    }

    /// Deletes the routes of a group that name a removed end.
    pub(super) fn forget(
        &mut self,
        control: &Control<'_>,
        group: &Name,
        gone: &RouteEnd,
    ) -> Result<(), CommandError> {
        let before = self.all.len();
        self.all.retain(|(_, route)| route.group != *group || !names(route, gone));
        let shard = ShardKey::new(group, NAME);
        if self.all.len() == before || !control.has_shard(&shard) {
            return Ok(());
        }
        self.set(control, &shard)
    }

    /// Sends a new shard its routes and the group's forwarding mode. Sends nothing if the group has
    /// no routes and the default kind and forwarding: the shard then switches by its address table
    /// alone, as it does from the start.
    pub(super) fn configure(
        &self,
        control: &Control<'_>,
        shard: &ShardKey,
    ) -> Result<(), CommandError> {
        let usual = GroupSpec::from(shard.group.clone());
        let is_strict = control.group(&shard.group).is_ok_and(|spec| *spec != usual);
        let has_routes = self.all.iter().any(|(_, route)| route.group == shard.group);
        if is_strict || has_routes { self.set(control, shard) } else { Ok(()) }
    }

    /// Sends the routes of a group to its shard.
    fn set(&self, control: &Control<'_>, shard: &ShardKey) -> Result<(), CommandError> {
        let of = self.all.iter().filter(|(_, route)| route.group == shard.group);
        let routes = of.cloned().collect();
        let spec = control.group(&shard.group);
        let (forwarding, kind) = spec.map(|spec| (spec.forwarding, spec.kind)).unwrap_or_default();
        control.ask(shard, SetRoutes { routes, forwarding, kind })
    }
}
