//! The route table: VNET's rules, which are applied before the address table.
//!
//! A route matches a frame by source and destination address and by its ingress. Of the matching
//! routes, all of the highest priority apply, so routes can copy frames. A frame without a matching
//! route is forwarded by the address table, or dropped ([`Forwarding`]). `forward` and `link_rx`
//! look up each frame; the shard changes routes at the controller's request.
//!
//! The module only resolves: it moves no frame, checks no source address, and does not know whether
//! a target is up. A target that does not exist, and the ingress itself, are left out; if no target
//! is left, the set is empty and the caller drops the frame. A [`SetId`] is valid until the routes
//! change or [`RouteTable::tidy`] runs. The cache has [`ROUTE_CACHE_MAX`] (8,192) pairs and
//! [`ROUTE_SETS_MAX`] (1,024) sets, exceeded by a batch at most. The controller bounds the number
//! of routes, and refuses a route that exists; two routes to one target send it a frame once. All
//! of it runs in the dispatcher's thread of the group; only a [`RoutePolicy`] leaves the thread.
//!
//! # Budget
//! A frame of a cached pair costs one hash look-up, for any number of routes. A frame of another
//! pair costs a scan of the routes that name its source, those that name its destination, and those
//! that name neither; the result is cached, also when no route matches. The cache is cleared
//! between batches when it is full, and whenever a route, a port or a link comes or goes.

mod priority;
mod station_policy;

use std::collections::HashMap;

use causeway_fabric::keyed::{Keyed, keyed};
use causeway_model::RouteView;
use causeway_model::{Forwarding, Mac};
use causeway_model::{RouteEnd, RouteSpec};

pub use priority::{AddressMatch, NEVER, priority};
pub use station_policy::RoutePolicy;

use crate::limits::{ROUTE_CACHE_MAX, ROUTE_SETS_MAX};

/// Switch index: identifies a port or a link bundle of the group's switch.
pub type SwitchIndex = u32;

/// The conditions and the target of a route, prepared for matching.
#[derive(Debug, Clone, Copy)]
struct RouteMatch {
    /// The route's number, which the operator sees.
    index: u64,
    /// Required source address.
    source: AddressMatch,
    /// Required destination address.
    destination: AddressMatch,
    /// As [`priority()`].
    priority: i8,
    /// Switch index of the target; `None` if the target does not exist.
    to: Option<SwitchIndex>,
    /// Required ingress.
    from: IngressMatch,
}

impl RouteMatch {
    /// Returns whether the route applies to frames of an address pair.
    fn fits(&self, pair: &AddressPair) -> bool {
        let came = match self.from {
            IngressMatch::Anywhere => true,
            IngressMatch::Here(place) => place == pair.from,
            IngressMatch::Nowhere => false,
        };
        came && self.source.fits(pair.source) && self.destination.fits(pair.destination)
    }
}

/// One route.
#[derive(Debug, Clone)]
struct RouteEntry {
    spec: RouteSpec,
    route: RouteMatch,
    /// Frames to which the route applied.
    hits: u64,
}

impl RouteEntry {
    fn new(index: u64, spec: RouteSpec) -> Self {
        let route = RouteMatch {
            index,
            source: AddressMatch::from(&spec.source),
            destination: AddressMatch::from(&spec.destination),
            priority: priority(&spec.source, &spec.destination),
            to: None,
            from: IngressMatch::Anywhere,
        };
        Self { spec, route, hits: 0 }
    }

    /// Resolves the ends of the route to switch indices.
    fn resolve(&mut self, place: impl Fn(&RouteEnd) -> Option<SwitchIndex>) {
        self.route.to = place(&self.spec.to);
        self.route.from = match &self.spec.from {
            None => IngressMatch::Anywhere,
            Some(end) => place(end).map_or(IngressMatch::Nowhere, IngressMatch::Here),
        };
    }

    /// Returns the route as the operator sees it.
    fn view(&self) -> RouteView {
        RouteView {
            index: self.route.index,
            spec: self.spec.clone(),
            priority: self.route.priority,
            hits_total: self.hits,
        }
    }
}

/// The ingress that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IngressMatch {
    /// Any ingress.
    Anywhere,
    /// The port or bundle at this switch index.
    Here(SwitchIndex),
    /// The required port or link does not exist.
    Nowhere,
}

/// The result for an address pair: the routes that apply, and their targets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct RouteSet {
    /// Indices in [`RouteTable::all`].
    routes: Vec<u32>,
    /// Switch indices of the targets, without the ingress.
    places: Vec<SwitchIndex>,
}

/// An address pair with the ingress of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AddressPair {
    /// Switch index of the ingress.
    from: SwitchIndex,
    source: u64,
    destination: u64,
}

/// Identifies a route set until the routes change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetId(u32);

/// The routes of a group.
#[derive(Debug)]
pub struct RouteTable {
    /// All routes, in the order of their numbers.
    all: Vec<RouteEntry>,
    /// Indices in `all`: by the single destination or source that a route names, and the other
    /// routes.
    by_source: Keyed<u64, Vec<u32>>,
    by_destination: Keyed<u64, Vec<u32>>,
    others: Vec<u32>,
    /// Treatment of frames without a matching route.
    forwarding: Forwarding,
    /// Result of each cached pair; `None`: no route matches.
    cache: Keyed<AddressPair, Option<SetId>>,
    /// The route sets that cached pairs refer to, by [`SetId`].
    sets: Vec<RouteSet>,
    /// The ids of `sets`.
    numbers: HashMap<RouteSet, SetId>,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            by_source: keyed(),
            by_destination: keyed(),
            others: Vec::new(),
            forwarding: Forwarding::default(),
            cache: keyed(),
            sets: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl RouteTable {
    /// Returns whether no frame needs a look-up.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.forwarding == Forwarding::Learn
    }

    /// Returns how frames without a matching route are handled.
    pub fn forwarding(&self) -> Forwarding {
        self.forwarding
    }

    /// Replaces all routes. A route whose number stays keeps its hit counter.
    pub fn replace(
        &mut self,
        routes: Vec<(u64, RouteSpec)>,
        forwarding: Forwarding,
        place: impl Fn(&RouteEnd) -> Option<SwitchIndex>,
    ) {
        let hits: HashMap<u64, u64> = self.all.iter().map(|r| (r.route.index, r.hits)).collect();
        let make = |(index, spec): (u64, RouteSpec)| {
            let hits = hits.get(&index).copied().unwrap_or(0);
            RouteEntry { hits, ..RouteEntry::new(index, spec) }
        };
        self.all = routes.into_iter().map(make).collect();
        self.forwarding = forwarding;
        self.index_all();
        self.resolve(place);
    }

    /// Removes a route. An unknown number has no effect.
    pub fn remove(&mut self, index: u64) {
        self.all.retain(|entry| entry.route.index != index);
        self.index_all();
        self.forget();
    }

    /// Builds the three indices again.
    fn index_all(&mut self) {
        self.by_source.clear();
        self.by_destination.clear();
        self.others.clear();
        for at in 0..self.all.len() {
            self.index(at);
        }
    }

    /// Appends a route; its number must be higher than those of all others.
    pub fn add(
        &mut self,
        index: u64,
        spec: RouteSpec,
        place: impl Fn(&RouteEnd) -> Option<SwitchIndex>,
    ) -> RouteView {
        let mut route = RouteEntry::new(index, spec);
        route.resolve(place);
        let view = route.view();
        self.all.push(route);
        self.index(self.all.len().saturating_sub(1));
        self.forget();
        view
    }

    /// Resolves the ends of all routes again after ports or links came or went.
    pub fn resolve(&mut self, place: impl Fn(&RouteEnd) -> Option<SwitchIndex>) {
        self.all.iter_mut().for_each(|route| route.resolve(&place));
        self.forget();
    }

    /// Clears the cache if it is full, which invalidates every [`SetId`]. Called before a batch.
    #[inline]
    pub fn tidy(&mut self) {
        if self.cache.len() >= ROUTE_CACHE_MAX || self.sets.len() >= ROUTE_SETS_MAX {
            self.forget();
        }
    }

    /// Clears the cache, which invalidates every [`SetId`].
    fn forget(&mut self) {
        self.cache.clear();
        self.sets.clear();
        self.numbers.clear();
    }

    /// Adds a route to the index.
    fn index(&mut self, at: usize) {
        let entry = self.all.get(at).map(|entry| entry.route);
        let (Some(route), Ok(at)) = (entry, u32::try_from(at)) else { return };
        let list = match (route.source, route.destination) {
            _ if route.priority == NEVER => return,
            (_, AddressMatch::Only(mac)) => self.by_destination.entry(mac).or_default(),
            (AddressMatch::Only(mac), _) => self.by_source.entry(mac).or_default(),
            _ => &mut self.others,
        };
        list.push(at);
    }

    /// Returns the targets of a frame, or `None` if no route matches. Addresses are numbers
    /// ([`causeway_wire::ethernet::number`]).
    #[inline]
    pub fn look_up(&mut self, from: SwitchIndex, source: u64, destination: u64) -> Option<SetId> {
        let pair = AddressPair { from, source, destination };
        match self.cache.get(&pair) {
            Some(known) => *known,
            None => self.find(pair),
        }
    }

    /// Scans the routes for a pair, and caches the result.
    #[cold]
    fn find(&mut self, pair: AddressPair) -> Option<SetId> {
        let set = self.best(pair);
        let id = if set.routes.is_empty() { None } else { Some(self.number(set)) };
        self.cache.insert(pair, id);
        id
    }

    /// Returns the matching routes of the highest priority, and their targets.
    fn best(&self, pair: AddressPair) -> RouteSet {
        let lists = [
            self.by_destination.get(&pair.destination),
            self.by_source.get(&pair.source),
            Some(&self.others),
        ];
        let mut set = RouteSet::default();
        let mut best = NEVER;
        for &at in lists.into_iter().flatten().flatten() {
            let route = self.all.get(at as usize).map(|entry| &entry.route);
            let Some(route) = route.filter(|route| route.fits(&pair)) else { continue };
            if route.priority > best {
                best = route.priority;
                set = RouteSet::default();
            }
            if route.priority == best {
                set.routes.push(at);
                // Not back to the ingress, and once to each target.
                let to = route.to.filter(|to| *to != pair.from && !set.places.contains(to));
                set.places.extend(to);
            }
        }
        set
    }

    /// Returns the id of a route set, which is stored if it is new.
    fn number(&mut self, set: RouteSet) -> SetId {
        if let Some(id) = self.numbers.get(&set) {
            return *id;
        }
        let id = SetId(u32::try_from(self.sets.len()).unwrap_or(u32::MAX));
        self.sets.push(set.clone());
        self.numbers.insert(set, id);
        id
    }

    /// Returns the targets of a set; empty after the routes have changed.
    #[inline]
    pub fn places(&self, set: SetId) -> &[SwitchIndex] {
        self.sets.get(set.0 as usize).map_or(&[], |set| set.places.as_slice())
    }

    /// Adds `frames` to the hit counters of a set's routes.
    pub fn count(&mut self, set: SetId, frames: u64) {
        let Some(set) = self.sets.get(set.0 as usize) else { return };
        for &at in &set.routes {
            if let Some(route) = self.all.get_mut(at as usize) {
                route.hits = route.hits.wrapping_add(frames);
            }
        }
    }

    /// Returns the numbers of the routes that apply to a frame, and their targets, without
    /// counting.
    pub fn explain(
        &self,
        from: SwitchIndex,
        source: u64,
        destination: u64,
    ) -> (Vec<u64>, Vec<SwitchIndex>) {
        let set = self.best(AddressPair { from, source, destination });
        let index = |at: &u32| self.all.get(*at as usize).map(|entry| entry.route.index);
        (set.routes.iter().filter_map(index).collect(), set.places)
    }

    /// Returns the routes as a policy for traffic between stations, which are given by address; `None`
    /// if no frame needs a look-up.
    pub fn policy(
        &self,
        stations: impl Iterator<Item = (Mac, SwitchIndex)>,
    ) -> Option<RoutePolicy> {
        if self.is_empty() {
            return None;
        }
        let routes = self.all.iter().map(|entry| entry.route).collect();
        Some(RoutePolicy::new(routes, self.forwarding, stations))
    }

    /// Returns the route of a number.
    pub fn view_of(&self, index: u64) -> Option<RouteView> {
        let at = self.all.binary_search_by_key(&index, |entry| entry.route.index).ok()?;
        self.all.get(at).map(RouteEntry::view)
    }

    /// Returns all routes with their hit counters.
    pub fn views(&self) -> Vec<RouteView> {
        self.all.iter().map(RouteEntry::view).collect()
    }
}

#[cfg(test)]
mod tests {
    use causeway_model::MacMatch;
    use causeway_wire::ethernet;
    use proptest::prelude::*;

    use super::*;

    fn mac(n: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, n])
    }

    fn number(n: u8) -> u64 {
        ethernet::number(mac(n).0)
    }

    fn end(n: u8) -> RouteEnd {
        RouteEnd::Edge(format!("l{n}").parse().unwrap())
    }

    /// Maps link `ln` to switch index `n`; `l9` does not exist.
    fn place(end: &RouteEnd) -> Option<SwitchIndex> {
        let (RouteEnd::Edge(name) | RouteEnd::Interface(name)) = end;
        let n: u32 = name.as_str()[1..].parse().unwrap();
        (n != 9).then_some(n)
    }

    fn route(source: MacMatch, destination: MacMatch, to: u8, from: Option<u8>) -> RouteSpec {
        let group = "g".parse().unwrap();
        RouteSpec { group, source, destination, to: end(to), from: from.map(end) }
    }

    fn routes(specs: Vec<RouteSpec>) -> RouteTable {
        let mut routes = RouteTable::default();
        let numbered = specs.into_iter().enumerate().map(|(i, s)| (i as u64 + 1, s)).collect();
        routes.replace(numbered, Forwarding::Learn, place);
        routes
    }

    fn go(
        routes: &mut RouteTable,
        from: u32,
        source: u8,
        destination: u8,
    ) -> Option<Vec<SwitchIndex>> {
        let set = routes.look_up(from, number(source), number(destination))?;
        routes.count(set, 1);
        Some(routes.places(set).to_vec())
    }

    #[test]
    fn routes_of_the_highest_priority_all_apply() {
        use MacMatch::{Any, Not, Only};
        let mut r = routes(vec![
            route(Any, Any, 1, None),
            route(Any, Only(mac(7)), 2, None),
            route(Only(mac(5)), Only(mac(7)), 3, None),
            route(Not(mac(6)), Only(mac(8)), 4, None),
            route(Any, Only(mac(8)), 5, None),
        ]);
        assert_eq!(go(&mut r, 0, 1, 2), Some(vec![1]));
        assert_eq!(
            go(&mut r, 0, 1, 7),
            Some(vec![2, 1]),
            "any/any and any/only have equal priority: 6"
        );
        assert_eq!(go(&mut r, 0, 5, 7), Some(vec![3]), "the more specific route: 8");
        assert_eq!(go(&mut r, 0, 1, 8), Some(vec![4]), "priority 7 before 6");
        assert_eq!(go(&mut r, 0, 6, 8), Some(vec![5, 1]));
        let hits: Vec<u64> = r.views().iter().map(|v| v.hits_total).collect();
        assert_eq!(hits, [3, 1, 1, 1, 1]);
    }

    #[test]
    fn routes_match_the_ingress_and_never_lead_back() {
        use MacMatch::{Any, None as NoAddress};
        let mut r = routes(vec![route(Any, Any, 1, Some(2)), route(Any, NoAddress, 3, None)]);
        assert_eq!(go(&mut r, 2, 1, 2), Some(vec![1]));
        assert_eq!(go(&mut r, 3, 1, 2), None, "another ingress");
        let mut r = routes(vec![route(Any, Any, 1, None), route(Any, Any, 9, Some(9))]);
        assert_eq!(
            go(&mut r, 1, 1, 2),
            Some(vec![]),
            "a route matches, and leads back to the ingress"
        );
    }

    #[test]
    fn routes_clear_the_cache_when_they_change() {
        use MacMatch::Any;
        let mut r = routes(vec![route(Any, Any, 1, None)]);
        assert_eq!(go(&mut r, 0, 1, 2), Some(vec![1]));
        r.replace(vec![(2, route(Any, Any, 2, None))], Forwarding::Learn, place);
        assert_eq!(go(&mut r, 0, 1, 2), Some(vec![2]));
        r.resolve(|_| None);
        assert_eq!(go(&mut r, 0, 1, 2), Some(vec![]));
        r.add(3, route(Any, Any, 3, None), place);
        assert_eq!(go(&mut r, 0, 1, 2), Some(vec![3]), "the other route has no target");
        r.remove(3);
        assert_eq!(go(&mut r, 0, 1, 2), Some(vec![]));
        r.replace(vec![], Forwarding::Routes, place);
        assert_eq!(go(&mut r, 0, 1, 2), None);
        assert!(!r.is_empty(), "frames without a route are dropped");
    }

    #[test]
    fn hostile_pairs_do_not_fill_memory() {
        let mut r = routes(vec![route(MacMatch::Any, MacMatch::Any, 1, None)]);
        for n in 0..3 * ROUTE_CACHE_MAX as u64 {
            r.tidy();
            r.look_up(0, n, n);
            assert!(r.cache.len() <= ROUTE_CACHE_MAX);
        }
    }

    fn matches() -> impl Strategy<Value = MacMatch> {
        prop_oneof![
            Just(MacMatch::Any),
            Just(MacMatch::None),
            (1..5_u8).prop_map(|n| MacMatch::Not(mac(n))),
            (1..5_u8).prop_map(|n| MacMatch::Only(mac(n))),
        ]
    }

    proptest! {
        /// Index and cache return the result of a linear search.
        #[test]
        fn routes_look_up_equals_a_linear_search(
            specs in proptest::collection::vec(
                (matches(), matches(), 1..6_u8, proptest::option::of(1..6_u8)), 0..20),
            frames in proptest::collection::vec((0..6_u32, 1..6_u8, 1..6_u8), 1..40),
        ) {
            let specs: Vec<RouteSpec> =
                specs.into_iter().map(|(s, d, to, from)| route(s, d, to, from)).collect();
            let mut r = routes(specs.clone());
            for (from, source, destination) in frames {
                let fits = |s: &&RouteSpec| {
                    s.from.as_ref().is_none_or(|end| place(end) == Some(from))
                        && AddressMatch::from(&s.source).fits(number(source))
                        && AddressMatch::from(&s.destination).fits(number(destination))
                };
                let best = specs.iter().filter(fits).map(|s| priority(&s.source, &s.destination));
                let best = best.filter(|p| *p != NEVER).max();
                let mut expected: Vec<u32> = specs.iter().filter(fits)
                    .filter(|s| Some(priority(&s.source, &s.destination)) == best)
                    .filter_map(|s| place(&s.to)).filter(|to| *to != from).collect();
                expected.sort_unstable();
                expected.dedup();
                let got = go(&mut r, from, source, destination).map(|mut places| {
                    places.sort_unstable();
                    places
                });
                prop_assert_eq!(got, best.map(|_| expected));
            }
        }
    }
}
