//! The routes of all groups, as the operator configured them.
//!
//! The module, on the threads of `crate::control`, validates and numbers routes and sends them to
//! the shards, which apply them ([`crate::route`]). The target of a route, and its ingress if it
//! names one, must exist and be in its group. [`Routes::add`] accepts a new route while fewer than
//! [`ROUTES_MAX`] (16,384) exist in all groups together. A route that exceeds the bound or equals
//! another is refused, and so is a route in a group without shard (without ports with frames and
//! links). A route is deleted with its port or link. A shard that opens receives the forwarding
//! mode of its group, and the routes that are left ([`Routes::configure`]), before its first port.
//!
//! A *prepared* route ([`Routes::prepare`]) is in force before its ports and links exist, and stays
//! while they are replaced, so that no port is served without the routes of the operator. The shard
//! resolves the ends by name when ports and links come and go. [`Routes::add`] completes a prepared
//! route; a plan that failed leaves its routes prepared, and they go on to apply, until their group is
//! deleted. With those that a plan replaces, at most twice [`ROUTES_MAX`] routes exist.
//!
//! The module does not forward, and counts no hits: shards do, and [`Routes::list`] asks them. It
//! stores no routes on disk: a daemon that starts sends those of its configuration file, its file
//! of VNET commands and its state file.

use std::collections::{BTreeMap, HashMap};

use causeway_fabric::{Control, ShardKey};
use causeway_model::limits::ROUTES_MAX;
use causeway_model::{CommandError, GroupSpec, Name, RouteEnd, RouteSpec, RouteView};

use super::check_end;
use crate::request::{AddRoute, DeleteRoute, ListRoutes, SetRoutes, ShowRoute};
use crate::service::NAME;

/// A route of the operator.
#[derive(Debug)]
struct ConfiguredRoute {
    spec: RouteSpec,
    /// The ports and links of the route may be missing.
    is_prepared: bool,
}

impl ConfiguredRoute {
    /// Returns whether the route has `end` as its target or required ingress.
    fn names(&self, end: &RouteEnd) -> bool {
        self.spec.to == *end || self.spec.from.as_ref() == Some(end)
    }
}

/// The routes of all groups.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// By number.
    all: BTreeMap<u64, ConfiguredRoute>,
    /// The number of each route.
    numbers: HashMap<RouteSpec, u64>,
    /// Number of the latest route; numbers are not reused.
    last: u64,
}

/// Returns the shard that applies the routes of a group.
fn shard_of(group: &Name) -> ShardKey {
    ShardKey::new(group, NAME)
}

/// Returns the error for a route beyond a bound.
fn too_many() -> CommandError {
    CommandError::Full(format!("there are {ROUTES_MAX} routes already: delete one"))
}

impl Routes {
    /// Validates and numbers a route, and adds it to the shard; or completes a prepared route.
    pub(super) fn add(
        &mut self,
        control: &mut Control<'_>,
        spec: RouteSpec,
    ) -> Result<RouteView, CommandError> {
        control.group(&spec.group)?;
        for end in std::iter::once(&spec.to).chain(&spec.from) {
            check_end(control, &spec.group, end)?;
        }
        if let Some(number) = self.numbers.get(&spec).copied() {
            return self.complete(control, number, &spec);
        }
        if self.all.len() >= ROUTES_MAX {
            return Err(too_many());
        }
        let number = self.last.saturating_add(1);
        let view = control.ask(&shard_of(&spec.group), AddRoute(number, spec.clone()))?;
        self.insert(number, spec, false);
        Ok(view)
    }

    /// Ends the preparation of a route whose ports and links exist.
    fn complete(
        &mut self,
        control: &Control<'_>,
        number: u64,
        spec: &RouteSpec,
    ) -> Result<RouteView, CommandError> {
        let route = self.all.get_mut(&number).filter(|route| route.is_prepared);
        let Some(route) = route else {
            return Err(CommandError::Conflict(format!("route {number} is the same")));
        };
        let view = control.ask(&shard_of(&spec.group), ShowRoute(number))?;
        let missing = || CommandError::NotFound { what: "route", name: number.to_string() };
        let view = view.ok_or_else(missing)?;
        route.is_prepared = false;
        Ok(view)
    }

    /// Puts a route in force before its ports and links exist; an equal route becomes prepared.
    pub(super) fn prepare(
        &mut self,
        control: &Control<'_>,
        spec: RouteSpec,
    ) -> Result<(), CommandError> {
        if let Some(number) = self.numbers.get(&spec) {
            if let Some(route) = self.all.get_mut(number) {
                route.is_prepared = true;
            }
            return Ok(());
        }
        control.group(&spec.group)?;
        if self.all.len() >= ROUTES_MAX.saturating_mul(2) {
            return Err(too_many());
        }
        let number = self.last.saturating_add(1);
        let shard = shard_of(&spec.group);
        if control.has_shard(&shard) {
            control.ask(&shard, AddRoute(number, spec.clone()))?;
        }
        self.insert(number, spec, true);
        Ok(())
    }

    /// Records a route with a new number.
    fn insert(&mut self, number: u64, spec: RouteSpec, is_prepared: bool) {
        self.numbers.insert(spec.clone(), number);
        self.all.insert(number, ConfiguredRoute { spec, is_prepared });
        self.last = number;
    }

    /// Deletes a route here and in its shard. An unknown number is [`CommandError::NotFound`].
    pub(super) fn delete(
        &mut self,
        control: &Control<'_>,
        number: u64,
    ) -> Result<(), CommandError> {
        let Some(route) = self.all.remove(&number) else {
            return Err(CommandError::NotFound { what: "route", name: number.to_string() });
        };
        self.numbers.remove(&route.spec);
        let shard = shard_of(&route.spec.group);
        // The shard of a prepared route may have closed.
        if control.has_shard(&shard) { control.ask(&shard, DeleteRoute(number)) } else { Ok(()) }
    }

    /// Deletes the route that equals `spec`. Without one the error is [`CommandError::NotFound`].
    pub(super) fn remove(
        &mut self,
        control: &Control<'_>,
        spec: &RouteSpec,
    ) -> Result<(), CommandError> {
        let number = self.numbers.get(spec).copied();
        let missing = || CommandError::NotFound { what: "route", name: spec.to_string() };
        self.delete(control, number.ok_or_else(missing)?)
    }

    /// Returns the routes of all groups with their hits, newest first. Routes of a group without
    /// shard are left out.
    pub(super) fn list(&self, control: &Control<'_>) -> Result<Vec<RouteView>, CommandError> {
        let mut views = Vec::new();
        for group in control.groups() {
            let shard = shard_of(&group.name);
            if self.has_routes(&group.name) && control.has_shard(&shard) {
                views.extend(control.ask(&shard, ListRoutes)?);
            }
        }
        views.sort_by_key(|view| std::cmp::Reverse(view.index));
        Ok(views)
    }

    /// Deletes the routes of a group that name a removed end. Prepared routes stay.
    pub(super) fn forget(
        &mut self,
        control: &Control<'_>,
        group: &Name,
        gone: &RouteEnd,
    ) -> Result<(), CommandError> {
        let before = self.all.len();
        self.retain(|route| route.is_prepared || route.spec.group != *group || !route.names(gone));
        let shard = shard_of(group);
        if self.all.len() == before || !control.has_shard(&shard) {
            return Ok(());
        }
        self.set(control, &shard)
    }

    /// Deletes the routes of a deleted group; only prepared routes are left.
    pub(super) fn forget_group(&mut self, group: &Name) {
        self.retain(|route| route.spec.group != *group);
    }

    /// Deletes all routes here but those that `stays` selects.
    fn retain(&mut self, stays: impl Fn(&ConfiguredRoute) -> bool) {
        let Self { all, numbers, .. } = self;
        all.retain(|_, route| {
            let stays = stays(route);
            if !stays {
                numbers.remove(&route.spec);
            }
            stays
        });
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
        let is_strict = control.group(&shard.group).is_ok_and(|spec| *spec != usual)
            || control.forwarding(&shard.group).is_ok_and(|mode| mode != usual.forwarding);
        if is_strict || self.has_routes(&shard.group) { self.set(control, shard) } else { Ok(()) }
    }

    /// Sends the shard of a group, if it is open, the forwarding mode that is in force now.
    pub(super) fn follow_forwarding(
        &self,
        control: &Control<'_>,
        group: &Name,
    ) -> Result<(), CommandError> {
        let shard = shard_of(group);
        if control.has_shard(&shard) { self.set(control, &shard) } else { Ok(()) }
    }

    /// Returns whether a group has a route.
    fn has_routes(&self, group: &Name) -> bool {
        self.all.values().any(|route| route.spec.group == *group)
    }

    /// Sends the routes of a group to its shard.
    fn set(&self, control: &Control<'_>, shard: &ShardKey) -> Result<(), CommandError> {
        let of = self.all.iter().filter(|(_, route)| route.spec.group == shard.group);
        let routes = of.map(|(number, route)| (*number, route.spec.clone())).collect();
        let forwarding = control.forwarding(&shard.group).unwrap_or_default();
        let kind = control.group(&shard.group).map(|spec| spec.kind).unwrap_or_default();
        control.ask(shard, SetRoutes { routes, forwarding, kind })
    }
}
