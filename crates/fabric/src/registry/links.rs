//! Links and routes: between the service that carries frames and the one that reaches peers.

use std::collections::HashMap;

use super::{HOST, Registry, Reply, lost};
use crate::carrier::LinkId;
use crate::dispatcher::Key;
use crate::orders::{FRAMES, LINKS, MESSAGES, OnFailure, Order, Outcome};
use crate::shard::ports::no_port;
use causeway_model::GroupSpec;
use causeway_model::limits::{LINKS_MAX, ROUTES_MAX};
use causeway_model::{Answer, CommandError, LinkView, PeerView, RouteView};
use causeway_model::{LinkSpec, Name, RouteEnd, RouteSpec};

pub(super) fn no_link(name: &Name) -> CommandError {
    CommandError::NotFound { what: "link", name: name.to_string() }
}

pub(super) fn unexpected(outcome: &Outcome) -> CommandError {
    CommandError::Host(format!("a service answered {outcome:?} to another order"))
}

impl Registry {
    /// Has the service of a shard carry out an order.
    pub(super) fn order(&self, key: &Key, order: Order) -> Result<Outcome, CommandError> {
        self.with(key, move |shard| shard.order(order))?
    }

    pub(super) fn frames_key(group: &Name) -> Key {
        Key { group: group.clone(), service: FRAMES }
    }

    /// All links are one shard's, whatever their groups.
    fn links_key() -> Result<Key, CommandError> {
        Ok(Key { group: HOST.parse().map_err(|_| lost())?, service: LINKS })
    }

    /// Makes the shard if it is not there.
    fn ensure_service(&mut self, key: &Key) -> Result<(), CommandError> {
        let made = self.services.iter().find(|(_, service)| service.name() == key.service);
        let make = made.map(|(make, _)| *make).ok_or_else(|| {
            CommandError::Invalid(format!("this daemon has no service {:?}", key.service))
        })?;
        self.ensure(key, make)
    }

    /// Whether a shard is kept for links.
    pub(super) fn has_links(&self, key: &Key) -> bool {
        match key.service {
            LINKS => !self.links.is_empty(),
            FRAMES => self.links.values().any(|(spec, _)| spec.group == key.group),
            _ => false,
        }
    }

    pub(super) fn link_add(&mut self, spec: LinkSpec, on_failure: OnFailure) -> Reply {
        spec.check().map_err(|e| CommandError::Invalid(e.to_string()))?;
        self.has_group(&spec.group)?;
        if self.links.contains_key(&spec.name) {
            return Err(CommandError::Conflict(format!("link {} exists already", spec.name)));
        }
        if self.links.len() >= LINKS_MAX {
            return Err(CommandError::Full(format!("there are {LINKS_MAX} links already")));
        }
        let (frames, links) = (Self::frames_key(&spec.group), Self::links_key()?);
        self.ensure_service(&frames)?;
        let opened = self.ensure_service(&links).and_then(|()| self.open_link(&spec, on_failure));
        match opened {
            Ok(id) => {
                let name = spec.name.clone();
                log::info!(link = name.as_str(), kind = spec.kind.name(); "link added");
                self.links.insert(name.clone(), (spec, id));
                self.link_view(&name)
            }
            Err(error) => {
                self.close_if_empty(&frames);
                self.close_if_empty(&links);
                Err(error)
            }
        }
    }

    /// Opens a link and has its group use it.
    fn open_link(&self, spec: &LinkSpec, on_failure: OnFailure) -> Result<LinkId, CommandError> {
        let (frames, links) = (Self::frames_key(&spec.group), Self::links_key()?);
        let inbox = match self.order(&frames, Order::Inbox)? {
            Outcome::Inbox(inbox) => inbox,
            other => return Err(unexpected(&other)),
        };
        let open = Order::LinkOpen(Box::new(spec.clone()), inbox, on_failure);
        let membership = match self.order(&links, open)? {
            Outcome::Opened(membership) => membership,
            other => return Err(unexpected(&other)),
        };
        let id = membership.id;
        let joined = self.order(&frames, Order::Join(membership));
        let started = joined.and_then(|_| self.order(&links, Order::LinkStart(id)));
        if let Err(error) = started {
            let _ = self.order(&frames, Order::Leave(id));
            let _ = self.order(&links, Order::LinkClose(id));
            return Err(error);
        }
        Ok(id)
    }

    pub(super) fn link_reload(&self) -> Reply {
        if self.links.is_empty() {
            return Ok(Answer::Done);
        }
        self.order(&Self::links_key()?, Order::LinkReload).map(|_| Answer::Done)
    }

    pub(super) fn link_delete(&mut self, name: &Name) -> Reply {
        let (spec, id) = self.links.get(name).cloned().ok_or_else(|| no_link(name))?;
        let (frames, links) = (Self::frames_key(&spec.group), Self::links_key()?);
        self.order(&frames, Order::Leave(id))?;
        self.order(&links, Order::LinkClose(id))?;
        self.links.remove(name);
        self.forget_routes(&spec.group, &RouteEnd::Edge(name.clone()))?;
        self.close_if_empty(&frames);
        self.close_if_empty(&links);
        log::info!(link = name.as_str(); "link deleted");
        Ok(Answer::Done)
    }

    /// What boards know of other hosts'.
    pub(super) fn peer_views(&self) -> Result<Vec<PeerView>, CommandError> {
        let mut all = Vec::new();
        for key in self.shards.keys().filter(|key| key.service == MESSAGES) {
            match self.order(key, Order::PeerViews)? {
                Outcome::Peers(mut views) => all.append(&mut views),
                other => return Err(unexpected(&other)),
            }
        }
        all.sort_by(|a, b| (&a.port, a.mac).cmp(&(&b.port, b.mac)));
        Ok(all)
    }

    pub(super) fn link_views(&self) -> Result<Vec<LinkView>, CommandError> {
        if self.links.is_empty() {
            return Ok(Vec::new());
        }
        let all: Vec<&Name> = self.links.values().map(|(spec, _)| &spec.group).collect();
        self.views_of(None, all)
    }

    /// Views of one link, or of all, with what `groups` dropped of what came by them.
    fn views_of(
        &self,
        id: Option<LinkId>,
        groups: Vec<&Name>,
    ) -> Result<Vec<LinkView>, CommandError> {
        match self.order(&Self::links_key()?, Order::LinkViews(id))? {
            Outcome::Links(mut views) => {
                views.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
                self.add_drops(&mut views, id, groups)?;
                Ok(views)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Adds what groups dropped of what came by links, or by one, to their views.
    fn add_drops(
        &self,
        views: &mut [LinkView],
        id: Option<LinkId>,
        mut groups: Vec<&Name>,
    ) -> Result<(), CommandError> {
        // Each link that is added is shown: a walk through all of them, and the counters of all, would
        // make the time to add many quadratic.
        let id_of = |view: &LinkView| self.links.get(&view.spec.name).map(|(_, id)| *id);
        let shown = views.iter().enumerate();
        let places: HashMap<LinkId, usize> =
            shown.filter_map(|(at, view)| Some((id_of(view)?, at))).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let drops = match self.order(&Self::frames_key(group), Order::LinkDrops(id))? {
                Outcome::LinkDrops(drops) => drops,
                other => return Err(unexpected(&other)),
            };
            for (id, counts) in drops {
                let place = places.get(&id);
                let Some(view) = place.and_then(|at| views.get_mut(*at)) else { continue };
                for (counter, count) in counts {
                    let sum = view.counters.entry(counter).or_insert(0);
                    *sum = sum.saturating_add(count);
                }
            }
        }
        Ok(())
    }

    pub(super) fn link_view(&self, name: &Name) -> Reply {
        let (spec, id) = self.links.get(name).ok_or_else(|| no_link(name))?;
        let view = self.views_of(Some(*id), vec![&spec.group])?.pop();
        view.map(|view| Answer::Link(Box::new(view))).ok_or_else(|| no_link(name))
    }

    /// Whether an end of a route is in its group.
    pub(super) fn check_end(&self, group: &Name, end: &RouteEnd) -> Result<(), CommandError> {
        let (owner, what) = match end {
            RouteEnd::Interface(name) => {
                let (spec, key) = self.ports.get(name).ok_or_else(|| no_port(name))?;
                if key.service != FRAMES {
                    let text = format!("port {name} carries no frames");
                    return Err(CommandError::Invalid(text));
                }
                (&spec.group, format!("port {name}"))
            }
            RouteEnd::Edge(name) => {
                let (spec, _) = self.links.get(name).ok_or_else(|| no_link(name))?;
                (&spec.group, format!("link {name}"))
            }
        };
        if owner == group {
            return Ok(());
        }
        let text = format!("{what} is in group {owner}, not in {group}: no traffic crosses groups");
        Err(CommandError::Invalid(text))
    }

    pub(super) fn route_add(&mut self, spec: RouteSpec) -> Reply {
        self.has_group(&spec.group)?;
        self.check_end(&spec.group, &spec.to)?;
        if let Some(from) = &spec.from {
            self.check_end(&spec.group, from)?;
        }
        if let Some((index, _)) = self.routes.iter().find(|(_, route)| *route == spec) {
            return Err(CommandError::Conflict(format!("route {index} is the same")));
        }
        if self.routes.len() >= ROUTES_MAX {
            return Err(CommandError::Full(format!("there are {ROUTES_MAX} routes already")));
        }
        let index = self.last_route.saturating_add(1);
        let add = Order::RouteAdd(index, spec.clone());
        let view = match self.order(&Self::frames_key(&spec.group), add)? {
            Outcome::Routes(mut views) => views.pop().ok_or_else(lost)?,
            other => return Err(unexpected(&other)),
        };
        self.routes.push((index, spec));
        self.last_route = index;
        Ok(Answer::Route(Box::new(view)))
    }

    pub(super) fn route_delete(&mut self, index: u64) -> Reply {
        let found = self.routes.iter().position(|(i, _)| *i == index);
        let Some(place) = found.filter(|place| *place < self.routes.len()) else {
            return Err(CommandError::NotFound { what: "route", name: index.to_string() });
        };
        let (index, spec) = self.routes.remove(place);
        self.order(&Self::frames_key(&spec.group), Order::RouteDel(index))?;
        Ok(Answer::Done)
    }

    /// Deletes the routes that name what is gone.
    pub(super) fn forget_routes(
        &mut self,
        group: &Name,
        gone: &RouteEnd,
    ) -> Result<(), CommandError> {
        let before = self.routes.len();
        self.routes.retain(|(_, route)| {
            route.group != *group || (route.to != *gone && route.from.as_ref() != Some(gone))
        });
        if self.routes.len() == before { Ok(()) } else { self.tell_routes(group) }
    }

    /// Whether frames of the group go otherwise than in a switch.
    pub(super) fn has_routes(&self, group: &Name) -> bool {
        let usual = GroupSpec::from(group.clone());
        let strict = |spec: &GroupSpec| spec.name == *group && *spec != usual;
        self.routes.iter().any(|(_, r)| r.group == *group) || self.groups.iter().any(strict)
    }

    /// Has the shard of a group use the routes as they are.
    pub(super) fn tell_routes(&self, group: &Name) -> Result<(), CommandError> {
        let key = Self::frames_key(group);
        if !self.shards.contains_key(&key) {
            return Ok(());
        }
        let of = self.routes.iter().filter(|(_, route)| route.group == *group);
        let routes: Vec<(u64, RouteSpec)> = of.cloned().collect();
        let spec = self.groups.iter().find(|spec| spec.name == *group);
        let (forwarding, kind) = spec.map(|spec| (spec.forwarding, spec.kind)).unwrap_or_default();
        self.order(&key, Order::Routes(routes, forwarding, kind)).map(|_| ())
    }

    pub(super) fn route_views(&self) -> Result<Vec<RouteView>, CommandError> {
        let mut views = Vec::new();
        for group in &self.groups {
            let key = Self::frames_key(&group.name);
            let has = self.routes.iter().any(|(_, route)| route.group == group.name);
            if !has || !self.shards.contains_key(&key) {
                continue;
            }
            match self.order(&key, Order::RouteViews)? {
                Outcome::Routes(more) => views.extend(more),
                other => return Err(unexpected(&other)),
            }
        }
        views.sort_by_key(|view| std::cmp::Reverse(view.index));
        Ok(views)
    }

    pub(super) fn traffic(&self, group: &Name) -> Reply {
        self.has_group(group)?;
        let key = Self::frames_key(group);
        if !self.shards.contains_key(&key) {
            let text = format!("group {group} has no net ports and no links");
            return Err(CommandError::Invalid(text));
        }
        match self.order(&key, Order::Traffic(group.clone()))? {
            Outcome::Traffic(view) => Ok(Answer::Traffic(view)),
            other => Err(unexpected(&other)),
        }
    }
}
