//! The registry without the controllers: groups, ports, rules, and the shards.
//!
//! [`super::Registry`] and [`super::Control`] call it, under the lock of the registry. It opens a
//! shard on the dispatcher with the lowest load, moves shards (by command, or once a second by the
//! thread of [`crate::balance`]), and closes a shard without ports and holds. Each call to a shard
//! or dispatcher waits for its answer: a dispatcher that hangs blocks this command and all others.
//! A *hold* is the claim of a controller's object, such as a link, on an open shard.
//!
//! A shard that moves keeps its connections, but is not served between its two dispatchers. If the
//! new dispatcher refuses the shard or has stopped, the shard returns to the old, for which the
//! host needs no memory; its ports are lost if the old has stopped too, and the error names this. A
//! lost shard stays listed: commands about its ports fail, and the list of ports omits them. At
//! most [`GROUPS_MAX`] (1,024) groups, and a further one is refused; a group cannot have the name
//! of [`HOST`]. A shard gets the rules and the weight of its group when it opens; `registry::rules`
//! and `registry::site` update the rules later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::policy::GroupPolicy;
use super::reply::{Reply, inconsistent, no_service};
use super::service_parts::ServiceParts;
use crate::balance::{DispatcherLoad, choose_move};
use crate::dispatch_mode::PollConfig;
use crate::dispatcher::Worker;
use crate::limits::PORTS_VIEWED_AT_ONCE;
use crate::load::Load;
use crate::rules::Rules;
use crate::service::Maker;
use crate::shard::ports::{no_group, no_port};
use crate::shard::{Shard, ShardKey};
use crate::shard_table::{DetachedShard, ShardTable};
use causeway_model::limits::{GROUPS_MAX, WEIGHT_MAX};
use causeway_model::{
    Answer, CommandError, DispatcherView, GroupSpec, Name, PortSpec, PortView, ShardView,
    weight_default,
};

/// The dispatcher and load of a shard.
#[derive(Debug)]
pub(super) struct ShardPlacement {
    /// Number of the dispatcher that serves the shard.
    dispatcher: usize,
    /// Load that the dispatcher publishes for the shard.
    load: Arc<Load>,
    /// Moves to another dispatcher.
    moves: u64,
    /// Number of controllers' objects that need the shard.
    holds: usize,
}

/// The objects of the fabric itself.
#[derive(Debug)]
pub(super) struct Core {
    /// Services, in the order of their registration.
    pub(super) services: Vec<ServiceParts>,
    poll_config: PollConfig,
    workers: Vec<Arc<Worker>>,
    start: Instant,
    /// Groups, in the order in which they were added.
    pub(super) groups: Vec<GroupSpec>,
    /// Ports by name, each with the shard that serves it.
    pub(super) ports: BTreeMap<Name, (PortSpec, ShardKey)>,
    /// Open shards.
    pub(super) shards: BTreeMap<ShardKey, ShardPlacement>,
    /// Rules of the operator, with the hit counts of closed shards.
    pub(super) rules: Rules,
    /// Policies of the site, by group; also of groups that do not exist here.
    pub(super) site: BTreeMap<Name, GroupPolicy>,
}

/// The name that stands for the host in place of a group.
pub(super) const HOST: &str = "host";

/// Gives a detached shard to a dispatcher.
///
/// # Errors
/// The dispatcher refuses the shard or has stopped. The shard returns with the error, unless the
/// dispatcher ended while it took the shard.
fn give(
    worker: &Worker,
    key: &ShardKey,
    detached: DetachedShard,
) -> Result<(), (Option<DetachedShard>, CommandError)> {
    let of = key.clone();
    let refused = |(detached, error): (_, std::io::Error)| {
        (Some(detached), CommandError::Host(error.to_string()))
    };
    worker.run_with(detached, move |table, detached| table.attach(of, detached))?.map_err(refused)
}

impl Core {
    pub(super) fn new(
        services: Vec<ServiceParts>,
        poll_config: PollConfig,
        workers: Vec<Arc<Worker>>,
        start: Instant,
    ) -> Self {
        Self {
            services,
            poll_config,
            workers,
            start,
            groups: Vec::new(),
            ports: BTreeMap::new(),
            shards: BTreeMap::new(),
            rules: Rules::default(),
            site: BTreeMap::new(),
        }
    }

    /// Returns the handle of dispatcher `number`.
    fn worker(&self, number: usize) -> Result<&Worker, CommandError> {
        self.workers.get(number).map(|w| &**w).ok_or_else(inconsistent)
    }

    /// Calls `call` with a shard, in the thread that serves it.
    pub(super) fn with<R: Send + 'static>(
        &self,
        key: &ShardKey,
        call: impl FnOnce(&mut Shard) -> R + Send + 'static,
    ) -> Result<R, CommandError> {
        let place = self.shards.get(key).ok_or_else(inconsistent)?;
        let key = key.clone();
        self.worker(place.dispatcher)?.run(move |r| r.with(&key, call))?.ok_or_else(inconsistent)
    }

    /// Runs `ask` in every dispatcher.
    pub(super) fn all<R: Send + 'static>(
        &self,
        ask: impl Fn(&mut ShardTable) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, CommandError> {
        self.workers.iter().map(|w| w.run(ask.clone())).collect()
    }

    /// Returns the time on the fabric's clock, in nanoseconds.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the views of all ports, in order of their names.
    ///
    /// A dispatcher makes [`PORTS_VIEWED_AT_ONCE`] (4) views between two turns, so that a list of
    /// many ports delays traffic by no more than a slice does.
    pub(super) fn port_views(&self) -> Result<Vec<PortView>, CommandError> {
        let mut by_shard: BTreeMap<&ShardKey, Vec<&Name>> = BTreeMap::new();
        for (name, (_, key)) in &self.ports {
            by_shard.entry(key).or_default().push(name);
        }
        let mut views = Vec::with_capacity(self.ports.len());
        for (key, names) in by_shard {
            let Some(place) = self.shards.get(key) else { continue };
            let worker = self.worker(place.dispatcher)?;
            for piece in names.chunks(PORTS_VIEWED_AT_ONCE) {
                let (of, piece) = (key.clone(), piece.iter().copied().cloned().collect::<Vec<_>>());
                let view = move |shard: &mut Shard| -> Vec<PortView> {
                    piece.iter().filter_map(|name| shard.port_view(name).ok()).collect()
                };
                // A shard that was lost in a move has no views.
                let found = worker.run(move |table| table.with(&of, view))?.unwrap_or_default();
                views.extend(found.into_iter().map(|view| self.with_dispatcher(key, view)));
            }
        }
        views.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(views)
    }

    /// Adds the number of the port's dispatcher to its view.
    pub(super) fn with_dispatcher(&self, key: &ShardKey, view: PortView) -> PortView {
        let dispatcher = self.shards.get(key).map_or(0, |place| place.dispatcher);
        PortView { dispatcher, ..view }
    }

    /// Returns the group of this name.
    pub(super) fn group(&self, name: &Name) -> Option<&GroupSpec> {
        self.groups.iter().find(|group| group.name == *name)
    }

    /// Checks that a group exists.
    pub(super) fn has_group(&self, name: &Name) -> Result<(), CommandError> {
        self.group(name).map(drop).ok_or_else(|| no_group(name))
    }

    /// Checks and adds a group; opens no shard.
    pub(super) fn group_add(&mut self, spec: GroupSpec) -> Reply {
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

    /// Returns the names of a group's ports.
    pub(super) fn ports_of(&self, group: &Name) -> Vec<Name> {
        let of = self.ports.iter().filter(|(_, (spec, _))| spec.group == *group);
        of.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the view of a port.
    pub(super) fn port_view(&self, name: &Name) -> Result<PortView, CommandError> {
        let (_, key) = self.ports.get(name).ok_or_else(|| no_port(name))?;
        let wanted = name.clone();
        let view = self.with(key, move |shard| shard.port_view(&wanted))??;
        Ok(self.with_dispatcher(key, view))
    }

    /// Opens a shard on the dispatcher with the lowest load.
    ///
    /// # Errors
    /// The service does not exist, or the host refuses.
    pub(super) fn open(&mut self, key: &ShardKey) -> Result<(), CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("group {}: {e}", key.group));
        let service = self.services.iter().find(|service| service.name == key.service);
        let make = service.ok_or_else(|| no_service(format_args!("{:?}", key.service)))?.make;
        let shard = self.empty_shard(&key.group, make)?;
        let now = self.now_ns();
        let load_of = |number: &usize| {
            let busy = self.workers.get(*number).map_or(0, |w| w.gauges.load.percent(now));
            (busy, self.shards.values().filter(|p| p.dispatcher == *number).count())
        };
        let dispatcher = (0..self.workers.len()).min_by_key(load_of).ok_or_else(inconsistent)?;
        let load = Arc::new(Load::default());
        let (of, taken, its_load) = (key.clone(), Box::new(shard), load.clone());
        let worker = self.worker(dispatcher)?;
        worker.run(move |r| r.add(of, taken, its_load))?.map_err(host)?;
        self.shards.insert(key.clone(), ShardPlacement { dispatcher, load, moves: 0, holds: 0 });
        Ok(())
    }

    /// Records that one more object needs an open shard.
    pub(super) fn hold(&mut self, key: &ShardKey) {
        if let Some(place) = self.shards.get_mut(key) {
            place.holds = place.holds.saturating_add(1);
        }
    }

    /// Records that one object fewer needs a shard.
    pub(super) fn release(&mut self, key: &ShardKey) {
        if let Some(place) = self.shards.get_mut(key) {
            place.holds = place.holds.saturating_sub(1);
        }
    }

    /// Closes a shard without ports that no object needs; the hit counts of its rules are kept.
    pub(super) fn close_if_unused(&mut self, key: &ShardKey) {
        let has_ports = self.ports.values().any(|(_, of)| of == key);
        if has_ports || self.shards.get(key).is_none_or(|place| place.holds > 0) {
            return;
        }
        let Some(place) = self.shards.remove(key) else { return };
        let of = key.clone();
        let released = self.worker(place.dispatcher).and_then(|w| w.run(move |r| r.detach(&of)));
        if let Ok(Some(mut detached)) = released {
            let counted = detached.shard.rules_mut();
            self.rules.count(counted);
            if let Some(policy) = self.site.get_mut(&key.group) {
                counted.count_site(&mut policy.rules);
            }
        }
    }

    /// Returns a shard with the rules and without ports.
    pub(super) fn empty_shard(&self, group: &Name, make: Maker) -> Result<Shard, CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("group {group}: {e}"));
        let mut shard = Shard::new(group.clone(), make(), self.poll_config).map_err(host)?;
        let spec = self.groups.iter().find(|spec| spec.name == *group);
        shard.set_weight(spec.map_or_else(weight_default, |spec| spec.weight));
        for view in self.rules.view() {
            shard.rules_mut().add(None, view.rule)?;
        }
        shard.rules_mut().set_site(self.site_rules(group));
        Ok(shard)
    }

    /// Returns the views of all dispatchers, in order of their numbers.
    pub(super) fn dispatcher_views(&self) -> Result<Vec<DispatcherView>, CommandError> {
        // An answer shows that every dispatcher is alive.
        self.all(|_| ())?;
        let now = self.now_ns();
        let view = |(number, worker): (usize, &Arc<Worker>)| {
            let gauges = &worker.gauges;
            let mine = self.shards.iter().filter(|(_, place)| place.dispatcher == number);
            let shards = mine.map(|(key, place)| ShardView {
                group: key.group.clone(),
                service: key.service.into(),
                ports: self.ports.values().filter(|(_, of)| of == key).count(),
                busy_percent: place.load.percent(now),
                busy_seconds_total: place.load.busy_seconds(),
                moves_total: place.moves,
            });
            DispatcherView {
                number,
                cpu: worker.cpu,
                spin_us: gauges.spin_ns.load(Ordering::Relaxed) / 1000,
                scarce: gauges.scarce.load(Ordering::Relaxed),
                busy_percent: gauges.load.percent(now),
                stalls_total: gauges.stalls.load(Ordering::Relaxed),
                stalled_seconds_total: gauges.stalled_ns.load(Ordering::Relaxed) as f64 / 1e9,
                turns: gauges.turn_times.view(),
                shards: shards.collect(),
            }
        };
        Ok(self.workers.iter().enumerate().map(view).collect())
    }

    /// Moves the shards of a group, of one service or all, to dispatcher `to`, one after the other:
    /// a failure leaves those moved before. A group or service without shards is no error.
    pub(super) fn shard_move(&mut self, group: &Name, service: Option<&str>, to: usize) -> Reply {
        // A shard of the host is in no group of the operator.
        if !self.shards.keys().any(|key| key.group == *group) {
            self.has_group(group)?;
        }
        let known = |wanted: &str| self.services.iter().any(|s| s.name == wanted);
        if let Some(wanted) = service.filter(|wanted| !known(wanted)) {
            return Err(CommandError::NotFound { what: "service", name: wanted.to_owned() });
        }
        if to >= self.workers.len() {
            let last = self.workers.len().saturating_sub(1);
            return Err(CommandError::Invalid(format!("dispatcher {to}: expected 0 to {last}")));
        }
        let wanted =
            |key: &&ShardKey| key.group == *group && service.is_none_or(|s| s == key.service);
        let keys: Vec<ShardKey> = self.shards.keys().filter(wanted).cloned().collect();
        for key in keys {
            self.relocate(&key, to)?;
        }
        self.dispatcher_views().map(Answer::Dispatchers)
    }

    /// Moves a shard, with its state, to dispatcher `to`; no effect if that serves it already.
    fn relocate(&mut self, key: &ShardKey, to: usize) -> Result<(), CommandError> {
        let place = self.shards.get(key).ok_or_else(inconsistent)?;
        if place.dispatcher == to {
            return Ok(());
        }
        let (from, target) = (self.worker(place.dispatcher)?, self.worker(to)?);
        let of = key.clone();
        let detached = from.run(move |r| r.detach(&of))?.ok_or_else(inconsistent)?;
        if let Err((detached, error)) = give(target, key, detached) {
            let is_kept = detached.is_some_and(|detached| give(from, key, detached).is_ok());
            let lost = if is_kept { "" } else { "; its ports are lost: restart the daemon" };
            return Err(CommandError::Host(format!("group {}: {error}{lost}", key.group)));
        }
        if let Some(place) = self.shards.get_mut(key) {
            place.dispatcher = to;
            place.moves = place.moves.saturating_add(1);
        }
        let (group, service) = (key.group.as_str(), key.service);
        log::info!(group, service, dispatcher = to; "shard moved");
        Ok(())
    }

    /// Moves one shard if that relieves the busiest dispatcher.
    pub(super) fn balance(&mut self) {
        let now = self.now_ns();
        let load_of = |(number, worker): (usize, &Arc<Worker>)| DispatcherLoad {
            busy: worker.gauges.load.percent(now).into(),
            shards: self
                .shards
                .iter()
                .filter(|(_, place)| place.dispatcher == number)
                .map(|(key, place)| (key.clone(), place.load.percent(now).into()))
                .collect(),
        };
        let loads: Vec<DispatcherLoad<ShardKey>> =
            self.workers.iter().enumerate().map(load_of).collect();
        if let Some((key, to)) = choose_move(&loads)
            && let Err(error) = self.relocate(&key, to)
        {
            let (group, service) = (key.group.as_str(), key.service);
            log::error!(group, service, error:% = error; "cannot move a shard off a busy dispatcher: the dispatcher stays busy");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::dispatcher::Dispatcher;
    use crate::port::PortId;
    use crate::service::{Context, Service};

    /// A service without traffic.
    #[derive(Debug)]
    struct Idle;

    impl Service for Idle {
        fn model(&self, _: &PortSpec) -> causeway_attach::Model {
            causeway_attach::Model::new(0, 0, Vec::new())
        }

        fn added(&mut self, _: &mut Context<'_>, _: PortId) -> Result<(), CommandError> {
            Ok(())
        }

        fn removed(&mut self, _: &mut Context<'_>, _: PortId) {}

        fn counters(&self, _: PortId) -> BTreeMap<String, u64> {
            BTreeMap::new()
        }
    }

    #[test]
    fn registry_shard_returns_from_a_dispatcher_that_ends_or_has_ended() {
        let start = Instant::now();
        let (mut serving, first) = Dispatcher::new(start, 0, None).unwrap();
        let (ending, second) = Dispatcher::new(start, 0, None).unwrap();
        let idle = ServiceParts {
            name: "idle",
            make: || Box::new(Idle),
            kinds: &[],
            capabilities: &[],
            traces: &[],
        };
        let workers = vec![first.clone(), second];
        let mut core = Core::new(vec![idle], PollConfig::default(), workers, start);
        let serving = thread::spawn(move || serving.run());
        let group: Name = "red".parse().unwrap();
        core.group_add(group.clone().into()).unwrap();
        let key = ShardKey { group: group.clone(), service: "idle" };
        core.open(&key).unwrap();
        // The first order waits when the dispatcher ends; the second finds no dispatcher.
        let end = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(ending);
        });
        for _ in 0..2 {
            let refused = core.shard_move(&group, None, 1).unwrap_err().to_string();
            assert!(refused.contains("has stopped") && !refused.contains("lost"), "{refused}");
            assert_eq!((core.shards[&key].dispatcher, core.shards[&key].moves), (0, 0));
            core.with(&key, |shard| shard.port_views()).unwrap();
        }
        end.join().unwrap();
        first.stop();
        serving.join().unwrap().unwrap();
        let lost = core.shard_move(&group, None, 1).unwrap_err().to_string();
        assert!(lost.contains("has stopped"), "{lost}");
    }
}
