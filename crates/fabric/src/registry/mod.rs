//! What the operator asks, carried out across all dispatchers.
//!
//! The registry knows which names, sockets and groups there are, and which dispatcher serves which
//! shard. It is asked by one thread at a time and is not on the data path.

mod captures;
mod links;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::balance::{Burden, relief};
use crate::carrier::LinkId;
use crate::dispatcher::{Key, Worker};
use crate::fabric::Maker;
use crate::load::Load;
use crate::orders::{FRAMES, OnFailure};
use crate::pace::Pacing;
use crate::roster::Roster;
use crate::rules::Rules;
use crate::service::Service;
use crate::shard::Shard;
use crate::shard::ports::{no_group, no_port, too_many_ports};
use causeway_model::limits::{GROUPS_MAX, PORTS_MAX, WEIGHT_MAX};
use causeway_model::{
    Answer, Command, CommandError, DispatcherView, GroupView, PortView, RuleView, ShardView,
    TraceQuery,
};
use causeway_model::{GroupSpec, weight_default};
use causeway_model::{LinkSpec, Name, PortSpec, RouteEnd, RouteSpec, RuleSpec};

type Reply = Result<Answer, CommandError>;

use captures::Captures;

/// Where a shard is.
#[derive(Debug)]
struct Place {
    dispatcher: usize,
    load: Arc<Load>,
    moves: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Registry {
    services: Vec<(Maker, Box<dyn Service>)>,
    pacing: Pacing,
    workers: Vec<Arc<Worker>>,
    start: Instant,
    groups: Vec<GroupSpec>,
    ports: BTreeMap<Name, (PortSpec, Key)>,
    links: BTreeMap<Name, (LinkSpec, LinkId)>,
    /// By their numbers, in rising order.
    routes: Vec<(u64, RouteSpec)>,
    /// The number of the last route that was added.
    last_route: u64,
    captures: Captures,
    shards: BTreeMap<Key, Place>,
    /// The rules, and what shards that are gone counted.
    rules: Rules,
}

/// What stands for the host where a group is named.
const HOST: &str = "host";

fn lost() -> CommandError {
    CommandError::Host("a group is not where it was put: restart the daemon".into())
}

impl Registry {
    pub(crate) fn new(
        services: &[Maker],
        pacing: Pacing,
        workers: Vec<Arc<Worker>>,
        start: Instant,
    ) -> Self {
        Self {
            services: services.iter().map(|make| (*make, make())).collect(),
            pacing,
            workers,
            start,
            groups: Vec::new(),
            ports: BTreeMap::new(),
            links: BTreeMap::new(),
            routes: Vec::new(),
            last_route: 0,
            captures: Captures::default(),
            shards: BTreeMap::new(),
            rules: Rules::default(),
        }
    }

    /// Carries out one command.
    pub(crate) fn execute(&mut self, command: Command) -> Reply {
        match command {
            Command::PortList => self.port_views().map(Answer::Ports),
            Command::PortShow(name) => {
                let (_, key) = self.ports.get(&name).ok_or_else(|| no_port(&name))?;
                let view = self.with(key, move |shard| shard.port_view(&name))??;
                Ok(Answer::Port(Box::new(self.placed(key, view))))
            }
            Command::PortAdd(spec) => self.port_add(spec),
            Command::PortDel(name) => self.port_delete(&name),
            Command::GroupList => Ok(Answer::Groups(self.group_views())),
            Command::GroupAdd(spec) => self.group_add(spec),
            Command::GroupDel(name) => self.group_delete(&name),
            Command::RuleList => self.rule_views().map(Answer::Rules),
            Command::RuleAdd { index, rule } => self.rule_add(index, rule),
            Command::RuleDel { index } => self.rule_delete(index),
            Command::LinkList => self.link_views().map(Answer::Links),
            Command::LinkShow(name) => self.link_view(&name),
            Command::LinkAdd(spec) => self.link_add(*spec, OnFailure::Refuse),
            Command::LinkKeep(spec) => self.link_add(*spec, OnFailure::Retry),
            Command::LinkReload => self.link_reload(),
            Command::LinkDel(name) => self.link_delete(&name),
            Command::RouteList => self.route_views().map(Answer::Routes),
            Command::RouteAdd(spec) => self.route_add(spec),
            Command::RouteDel(index) => self.route_delete(index),
            Command::Traffic(group) => self.traffic(&group),
            Command::CaptureBegin(spec) => self.capture_begin(spec),
            Command::CaptureFetch(number) => self.capture_fetch(number),
            Command::CaptureStop(number) => self.capture_stop(number),
            Command::CaptureEnd(number) => self.capture_end(number),
            Command::Trace(query) => self.trace(query),
            Command::PeerList => self.peer_views().map(Answer::Peers),
            Command::DispatcherList => self.dispatcher_views().map(Answer::Dispatchers),
            Command::ShardMove { group, service, dispatcher } => {
                self.shard_move(&group, service.as_deref(), dispatcher)
            }
        }
    }

    fn worker(&self, number: usize) -> Result<&Worker, CommandError> {
        self.workers.get(number).map(|w| &**w).ok_or_else(lost)
    }

    /// Does something with a shard, in the thread that serves it.
    fn with<R: Send + 'static>(
        &self,
        key: &Key,
        call: impl FnOnce(&mut Shard) -> R + Send + 'static,
    ) -> Result<R, CommandError> {
        let place = self.shards.get(key).ok_or_else(lost)?;
        let key = key.clone();
        self.worker(place.dispatcher)?.run(move |r| r.with(&key, call))?.ok_or_else(lost)
    }

    /// Asks every dispatcher.
    fn all<R: Send + 'static>(
        &self,
        ask: impl Fn(&mut Roster) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, CommandError> {
        self.workers.iter().map(|w| w.run(ask.clone())).collect()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn port_views(&self) -> Result<Vec<PortView>, CommandError> {
        let list = |r: &mut Roster| r.shards().flat_map(|(_, s)| s.port_views()).collect();
        let lists: Vec<Vec<PortView>> = self.all(list)?;
        let mut views: Vec<PortView> = lists
            .into_iter()
            .enumerate()
            .flat_map(|(number, list)| list.into_iter().map(move |view| (number, view)))
            .map(|(dispatcher, view)| PortView { dispatcher, ..view })
            .collect();
        views.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(views)
    }

    /// Says which dispatcher serves the port.
    fn placed(&self, key: &Key, view: PortView) -> PortView {
        let dispatcher = self.shards.get(key).map_or(0, |place| place.dispatcher);
        PortView { dispatcher, ..view }
    }

    fn group_views(&self) -> Vec<GroupView> {
        let ports_of = |group: &Name| {
            let of = self.ports.iter().filter(|(_, (spec, _))| spec.group == *group);
            of.map(|(name, _)| name.clone()).collect()
        };
        let links_of = |group: &Name| {
            let of = self.links.iter().filter(|(_, (spec, _))| spec.group == *group);
            of.map(|(name, _)| name.clone()).collect()
        };
        let view = |group: &GroupSpec| GroupView {
            name: group.name.clone(),
            forwarding: group.forwarding,
            weight: group.weight,
            kind: group.kind,
            ports: ports_of(&group.name),
            links: links_of(&group.name),
        };
        self.groups.iter().map(view).collect()
    }

    fn group_add(&mut self, spec: GroupSpec) -> Reply {
        let name = &spec.name;
        if name.as_str() == HOST {
            let text = "group \"host\": this name stands for the host in rules; choose another";
            return Err(CommandError::Invalid(text.into()));
        }
        if self.has_group(name).is_ok() {
            return Err(CommandError::Conflict(format!("group {name} exists already")));
        }
        if !(1..=WEIGHT_MAX).contains(&spec.weight) {
            let text = format!("group {name}: weight {}: expected 1 to {WEIGHT_MAX}", spec.weight);
            return Err(CommandError::Invalid(text));
        }
        if self.groups.len() >= GROUPS_MAX {
            return Err(CommandError::Full(format!("there are {GROUPS_MAX} groups already")));
        }
        self.groups.push(spec);
        Ok(Answer::Done)
    }

    fn has_group(&self, name: &Name) -> Result<(), CommandError> {
        let known = self.groups.iter().any(|group| group.name == *name);
        if known { Ok(()) } else { Err(no_group(name)) }
    }

    fn group_delete(&mut self, name: &Name) -> Reply {
        self.has_group(name)?;
        if let Some((port, _)) = self.ports.iter().find(|(_, (spec, _))| spec.group == *name) {
            let text = format!("group {name} still has port {port}; delete its ports first");
            return Err(CommandError::Conflict(text));
        }
        if let Some((link, _)) = self.links.iter().find(|(_, (spec, _))| spec.group == *name) {
            let text = format!("group {name} still has link {link}; delete its links first");
            return Err(CommandError::Conflict(text));
        }
        self.groups.retain(|group| group.name != *name);
        Ok(Answer::Done)
    }

    fn port_add(&mut self, spec: PortSpec) -> Reply {
        spec.check().map_err(|e| CommandError::Invalid(e.to_string()))?;
        if self.ports.contains_key(&spec.name) {
            return Err(CommandError::Conflict(format!("port {} exists already", spec.name)));
        }
        for (other, (taken, _)) in &self.ports {
            if let Some(path) = spec.paths().find(|path| taken.paths().any(|p| p == *path)) {
                let text = format!("{}: port {other} listens there", path.display());
                return Err(CommandError::Conflict(text));
            }
        }
        self.has_group(&spec.group)?;
        if self.ports.len() >= PORTS_MAX {
            return Err(too_many_ports());
        }
        let server = self.services.iter().find(|(_, service)| service.serves(&spec));
        let (make, service) = server.map(|(make, s)| (*make, s.name())).ok_or_else(|| {
            CommandError::Invalid(format!("port {}: no service for its kind", spec.name))
        })?;
        let key = Key { group: spec.group.clone(), service };
        self.ensure(&key, make)?;
        let wanted = spec.clone();
        match self.with(&key, move |shard| shard.port_add(wanted, true)).and_then(|added| added) {
            Ok(view) => {
                let view = self.placed(&key, view);
                self.ports.insert(spec.name.clone(), (spec, key));
                Ok(Answer::Port(Box::new(view)))
            }
            Err(error) => {
                self.close_if_empty(&key);
                Err(error)
            }
        }
    }

    fn port_delete(&mut self, name: &Name) -> Reply {
        let (_, key) = self.ports.get(name).ok_or_else(|| no_port(name))?;
        let (key, wanted) = (key.clone(), name.clone());
        self.with(&key, move |shard| shard.port_delete(&wanted))??;
        self.ports.remove(name);
        self.forget_routes(&key.group, &RouteEnd::Interface(name.clone()))?;
        self.close_if_empty(&key);
        Ok(Answer::Done)
    }

    /// Makes a shard if it is not there.
    fn ensure(&mut self, key: &Key, make: Maker) -> Result<(), CommandError> {
        if self.shards.contains_key(key) {
            return Ok(());
        }
        self.open(key, make)?;
        if key.service == FRAMES && self.has_routes(&key.group) {
            self.tell_routes(&key.group)?;
        }
        Ok(())
    }

    /// Makes a shard, on the dispatcher that has least to do.
    fn open(&mut self, key: &Key, make: Maker) -> Result<(), CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("group {}: {e}", key.group));
        let shard = self.vacant(&key.group, make)?;
        let now = self.now_ns();
        let burden = |number: &usize| {
            let busy = self.workers.get(*number).map_or(0, |w| w.gauges.load.percent(now));
            (busy, self.shards.values().filter(|p| p.dispatcher == *number).count())
        };
        let dispatcher = (0..self.workers.len()).min_by_key(burden).ok_or_else(lost)?;
        let load = Arc::new(Load::default());
        let (of, taken, its_load) = (key.clone(), Box::new(shard), load.clone());
        let worker = self.worker(dispatcher)?;
        worker.run(move |r| r.adopt(of, taken, its_load))?.map_err(host)?;
        self.shards.insert(key.clone(), Place { dispatcher, load, moves: 0 });
        Ok(())
    }

    /// Lets go of a shard that has no ports and no links; what its rules counted is kept.
    fn close_if_empty(&mut self, key: &Key) {
        let has_ports = self.ports.values().any(|(_, of)| of == key);
        if has_ports || self.has_links(key) {
            return;
        }
        let Some(place) = self.shards.remove(key) else { return };
        let of = key.clone();
        let released = self.worker(place.dispatcher).and_then(|w| w.run(move |r| r.release(&of)));
        if let Ok(Some(mut parted)) = released {
            self.rules.count(parted.shard.rules_mut());
        }
    }

    fn rule_views(&self) -> Result<Vec<RuleView>, CommandError> {
        let hits = |r: &mut Roster| {
            r.shards().map(|(_, shard)| shard.rules_mut().hits()).collect::<Vec<_>>()
        };
        let mut views = self.rules.view();
        for counted in self.all(hits)?.into_iter().flatten() {
            for (view, hits) in views.iter_mut().zip(counted) {
                view.hits_total = view.hits_total.saturating_add(hits);
            }
        }
        Ok(views)
    }

    fn rule_add(&mut self, index: Option<usize>, rule: RuleSpec) -> Reply {
        for group in [&rule.from.group, &rule.to.group].into_iter().flatten() {
            self.has_group(group)?;
        }
        self.rules.add(index, rule.clone())?;
        self.all(move |r| {
            r.shards().for_each(|(_, shard)| {
                // As checked: all lists are the same.
                let _ = shard.rules_mut().add(index, rule.clone());
            });
        })?;
        self.rule_views().map(Answer::Rules)
    }

    fn rule_delete(&mut self, index: usize) -> Reply {
        self.rules.delete(index)?;
        self.all(move |r| {
            r.shards().for_each(|(_, shard)| {
                let _ = shard.rules_mut().delete(index);
            });
        })?;
        Ok(Answer::Done)
    }

    fn trace(&self, query: TraceQuery) -> Reply {
        let (from, group) = match &query {
            TraceQuery::Frame { from, .. } => (Some(from), None),
            TraceQuery::Connect { from, group, .. } => (from.as_ref(), group.as_ref()),
        };
        let spec =
            from.map(|name| self.ports.get(name).ok_or_else(|| no_port(name))).transpose()?;
        let of = spec.map(|(spec, _)| &spec.group).or(group);
        if let Some(group) = of {
            self.has_group(group)?;
        }
        let nobody: Name = "none".parse().map_err(|_| lost())?;
        for (make, service) in &self.services {
            let key = of.map(|group| Key { group: group.clone(), service: service.name() });
            let query = query.clone();
            let answer = match key.filter(|key| self.shards.contains_key(key)) {
                Some(key) => self.with(&key, move |shard| shard.trace(&query))?,
                // It has no ports there: ask one that has none.
                None => self.vacant(of.unwrap_or(&nobody), *make)?.trace(&query),
            };
            if let Some(answer) = answer {
                return answer.map(Answer::Trace);
            }
        }
        Err(CommandError::Invalid("no service knows this kind of query".into()))
    }

    /// A shard with the rules, and without ports.
    fn vacant(&self, group: &Name, make: Maker) -> Result<Shard, CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("group {group}: {e}"));
        let mut shard = Shard::new(group.clone(), make(), self.pacing).map_err(host)?;
        let spec = self.groups.iter().find(|spec| spec.name == *group);
        shard.set_weight(spec.map_or_else(weight_default, |spec| spec.weight));
        for view in self.rules.view() {
            shard.rules_mut().add(None, view.rule)?;
        }
        Ok(shard)
    }

    fn dispatcher_views(&self) -> Result<Vec<DispatcherView>, CommandError> {
        // Each is asked, so that an answer means that all of them live.
        self.all(|_| ())?;
        let now = self.now_ns();
        let view = |(number, worker): (usize, &Arc<Worker>)| {
            let gauges = &worker.gauges;
            let mine = self.shards.iter().filter(|(_, place)| place.dispatcher == number);
            let shards = mine.map(|(key, place)| ShardView {
                group: key.group.clone(),
                service: key.service,
                ports: self.ports.values().filter(|(_, of)| of == key).count(),
                busy_percent: place.load.percent(now),
                moves_total: place.moves,
            });
            DispatcherView {
                number,
                cpu: worker.cpu,
                spin_us: gauges.spin_ns.load(Ordering::Relaxed) / 1000,
                scarce: gauges.scarce.load(Ordering::Relaxed),
                busy_percent: gauges.load.percent(now),
                shards: shards.collect(),
            }
        };
        Ok(self.workers.iter().enumerate().map(view).collect())
    }

    fn shard_move(&mut self, group: &Name, service: Option<&str>, to: usize) -> Reply {
        // The links are no group's.
        if !self.shards.keys().any(|key| key.group == *group) {
            self.has_group(group)?;
        }
        let known = |wanted: &str| self.services.iter().any(|(_, s)| s.name() == wanted);
        if let Some(wanted) = service.filter(|wanted| !known(wanted)) {
            return Err(CommandError::NotFound { what: "service", name: wanted.to_owned() });
        }
        if to >= self.workers.len() {
            let last = self.workers.len().saturating_sub(1);
            return Err(CommandError::Invalid(format!("dispatcher {to}: expected 0 to {last}")));
        }
        let wanted = |key: &&Key| key.group == *group && service.is_none_or(|s| s == key.service);
        let keys: Vec<Key> = self.shards.keys().filter(wanted).cloned().collect();
        for key in keys {
            self.relocate(&key, to)?;
        }
        self.dispatcher_views().map(Answer::Dispatchers)
    }

    /// Moves a shard, as it is, to another dispatcher.
    fn relocate(&mut self, key: &Key, to: usize) -> Result<(), CommandError> {
        let place = self.shards.get(key).ok_or_else(lost)?;
        if place.dispatcher == to {
            return Ok(());
        }
        let (from, target) = (self.worker(place.dispatcher)?, self.worker(to)?);
        let of = key.clone();
        let parted = from.run(move |r| r.release(&of))?.ok_or_else(lost)?;
        let of = key.clone();
        if let Err((parted, error)) = target.run(move |r| r.adopt_again(of, parted))? {
            let of = key.clone();
            let kept = from.run(move |r| r.adopt_again(of, parted).map_err(|(_, e)| e))?;
            let lost = kept.err().map(|e| format!("; its ports are lost: {e}")).unwrap_or_default();
            return Err(CommandError::Host(format!("group {}: {error}{lost}", key.group)));
        }
        if let Some(place) = self.shards.get_mut(key) {
            place.dispatcher = to;
            place.moves = place.moves.saturating_add(1);
        }
        let (group, service) = (key.group.as_str(), key.service);
        log::info!(group, service, dispatcher = to; "moved");
        Ok(())
    }

    /// Moves one shard if that relieves the busiest dispatcher.
    pub(crate) fn balance(&mut self) {
        let now = self.now_ns();
        let burden = |(number, worker): (usize, &Arc<Worker>)| Burden {
            busy: worker.gauges.load.percent(now).into(),
            shards: self
                .shards
                .iter()
                .filter(|(_, place)| place.dispatcher == number)
                .map(|(key, place)| (key.clone(), place.load.percent(now).into()))
                .collect(),
        };
        let burdens: Vec<Burden<Key>> = self.workers.iter().enumerate().map(burden).collect();
        if let Some((key, to)) = relief(&burdens)
            && let Err(error) = self.relocate(&key, to)
        {
            log::error!(group = key.group.as_str(), service = key.service; "not moved: {error}");
        }
    }
}
