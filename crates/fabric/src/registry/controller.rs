//! Controllers: the control-plane part of a service, one per service and process.
//!
//! A shard of a service holds the state of one group and forwards its traffic. The controller holds
//! the operator's objects beyond ports (links, routes, captures), answers the service's commands,
//! and reaches shards, ports, groups and other controllers through [`Control`], which the registry
//! hands to it for the length of a call.
//!
//! The registry (`crate::registry`) makes the controllers when the fabric starts, and calls them
//! under its lock, from the thread of a command or of the ticks: one call at a time. A call may
//! block for as long as a dispatcher needs to answer, and delays all other commands meanwhile. A
//! controller is never called on the data path. A controller learns of added ports of its own
//! service by [`Controller::port_added`], of deleted ports of any service by
//! [`Controller::port_deleted`], of deleted groups by [`Controller::group_deleted`], and of deleted
//! links by a request of the link service ([`LinkDeleted`](crate::carrier::LinkDeleted)). A
//! controller prevents a deletion by [`Controller::object_in`].
//!
//! Requests to shards run in the dispatcher's thread and block the caller until the dispatcher
//! answers, without a time limit. A controller reaches all others in a command. It reaches none
//! when another controller asks it ([`Control::consult`]) or when a port was deleted, and those
//! that are not being called when it configures a new shard. A controller cannot add or delete
//! ports and groups.

use std::fmt;

use causeway_model::{
    CommandError, Forwarding, GroupSpec, GroupView, Name, PortSpec, RequestDispatch,
    ServiceRequest, SitePolicy, TypedRequest,
};

use super::core::{Core, HOST};
use super::reply::{inconsistent, no_service};
use crate::capability::Capability;
use crate::carrier::ForwardingChanged;
use crate::shard::ShardKey;
use crate::shard::ports::{no_group, no_port};

/// The control-plane part of a service. The default of each method does nothing.
pub trait Controller: Send + fmt::Debug {
    /// Answers a command of the operator or a request of another controller, or returns a request
    /// of an unknown type unanswered.
    fn ask(&mut self, _control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
    }

    /// Configures a new shard of the service, before its first port is added.
    ///
    /// # Errors
    /// A refusal closes the shard again.
    fn shard_opened(
        &mut self,
        _control: &mut Control<'_>,
        _shard: &ShardKey,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Configures a new port of the service, after its shard has added it.
    ///
    /// # Errors
    /// A refusal deletes the port again, as by a command.
    fn port_added(
        &mut self,
        _control: &mut Control<'_>,
        _port: &PortSpec,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Removes objects that name a deleted port, of any service.
    ///
    /// # Errors
    /// For example, a shard does not answer. The error is logged: the command succeeds, because the
    /// port is deleted.
    fn port_deleted(
        &mut self,
        _control: &mut Control<'_>,
        _port: &PortSpec,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Returns an object in `group` that prevents the deletion of the group.
    fn object_in(&self, _group: &Name) -> Option<ServiceObject> {
        None
    }

    /// Forgets a deleted group, which has no ports and shards: a later group may have its name.
    fn group_deleted(&mut self, _group: &Name) {}

    /// Adds objects of the service to the view of a group.
    fn extend_group(&self, _view: &mut GroupView) {}

    /// Returns whether [`Self::tick`] is to be called every [`CONTROL_TICK`] (1 s) from now on.
    ///
    /// [`CONTROL_TICK`]: crate::limits::CONTROL_TICK
    fn needs_tick(&self) -> bool {
        false
    }

    /// Removes expired objects.
    fn tick(&mut self) {}
}

/// An object of a service, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceObject {
    /// Kind, in the singular, for example `link`.
    pub kind: &'static str,
    /// Name.
    pub name: Name,
}

/// The controller of a service without commands.
#[derive(Debug, Default)]
pub struct NoCommands;

impl Controller for NoCommands {}

/// The controller of a service.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) service: &'static str,
    pub(super) controller: Box<dyn Controller>,
}

/// The parts of the fabric that a controller reaches while it is called: shards, ports, groups, and
/// the other controllers.
///
/// A controller that another controller asks reaches no further controller. A controller that
/// configures a new shard reaches those that are not being called, so that it can open a shard of
/// another service. No controller is entered twice.
#[derive(Debug)]
pub struct Control<'a> {
    core: &'a mut Core,
    /// The reachable controllers, in the order of services: all but those that are being called.
    others: Vec<&'a mut [Entry]>,
}

impl<'a> Control<'a> {
    /// Makes a control that reaches all of `entries`.
    pub(super) fn new(core: &'a mut Core, entries: &'a mut [Entry]) -> Self {
        Self { core, others: vec![entries] }
    }

    /// Calls `call` with the controller at `index`, which reaches all others.
    pub(super) fn with<R>(
        core: &mut Core,
        entries: &mut [Entry],
        index: usize,
        call: impl FnOnce(&mut dyn Controller, &mut Control<'_>) -> R,
    ) -> Option<R> {
        let (before, rest) = entries.split_at_mut_checked(index)?;
        let (own, behind) = rest.split_first_mut()?;
        Some(call(&mut *own.controller, &mut Control { core, others: vec![before, behind] }))
    }

    /// Calls `call` with each reachable controller.
    pub(super) fn each<E>(
        &mut self,
        mut call: impl FnMut(&mut dyn Controller, &mut Control<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for entry in self.others.iter_mut().flat_map(|part| part.iter_mut()) {
            let mut alone = Control { core: self.core, others: Vec::new() };
            call(&mut *entry.controller, &mut alone)?;
        }
        Ok(())
    }

    /// Returns the group of this name.
    ///
    /// # Errors
    /// No group has this name.
    pub fn group(&self, name: &Name) -> Result<&GroupSpec, CommandError> {
        self.core.group(name).ok_or_else(|| no_group(name))
    }

    /// Returns every group, in the order in which the groups were added.
    pub fn groups(&self) -> impl Iterator<Item = &GroupSpec> {
        self.core.groups.iter()
    }

    /// Returns the forwarding mode of a group that is in force: that of the site, or else that of
    /// the group.
    ///
    /// # Errors
    /// No group has this name.
    pub fn forwarding(&self, name: &Name) -> Result<Forwarding, CommandError> {
        let own = self.group(name)?.forwarding;
        Ok(self.core.site_forwarding(name).unwrap_or(own))
    }

    /// Returns the groups with a policy of the site, in order of their names, each with the site's
    /// forwarding mode; also groups that do not exist here.
    pub fn site_groups(&self) -> impl ExactSizeIterator<Item = (&Name, Option<Forwarding>)> {
        self.core.site.iter().map(|(group, policy)| (group, policy.forwarding))
    }

    /// Returns the policy of the site about a group, if there is one.
    pub fn site_policy(&self, group: &Name) -> Option<SitePolicy> {
        Some(self.core.site.get(group)?.to_policy(group))
    }

    /// Replaces the policy of the site about a group, which need not exist, and notifies the
    /// reachable controllers of a changed forwarding mode. An empty policy removes it.
    ///
    /// # Errors
    /// The policy is refused ([`SitePolicy::check`]), or a dispatcher has stopped: the policy is
    /// then in force, except in the shards of that dispatcher.
    pub fn set_site_policy(&mut self, policy: SitePolicy) -> Result<(), CommandError> {
        policy.check().map_err(|error| CommandError::Invalid(error.to_string()))?;
        let group = policy.group.clone();
        if self.core.set_site_policy(policy)? {
            self.consult(&ForwardingChanged(group))?;
        }
        Ok(())
    }

    /// Returns the port of this name, and the shard that serves it.
    ///
    /// # Errors
    /// No port has this name.
    pub fn port(&self, name: &Name) -> Result<(&PortSpec, &ShardKey), CommandError> {
        let (spec, key) = self.core.ports.get(name).ok_or_else(|| no_port(name))?;
        Ok((spec, key))
    }

    /// Returns every port, in order of their names.
    pub fn ports(&self) -> impl Iterator<Item = &PortSpec> {
        self.core.ports.values().map(|(spec, _)| spec)
    }

    /// Returns the name of the first service that has a capability.
    ///
    /// # Errors
    /// No service has it.
    pub fn provider(&self, capability: Capability) -> Result<&'static str, CommandError> {
        let found =
            self.core.services.iter().find(|service| service.capabilities.contains(&capability));
        found
            .map(|service| service.name)
            .ok_or_else(|| no_service(format_args!("that {capability}")))
    }

    /// Returns the key of a service's shard that belongs to no group of the operator.
    ///
    /// # Errors
    /// Never: the name is valid.
    pub fn host_shard(&self, service: &'static str) -> Result<ShardKey, CommandError> {
        Ok(ShardKey { group: HOST.parse().map_err(|_| inconsistent())?, service })
    }

    /// Returns whether the shard is open.
    pub fn has_shard(&self, key: &ShardKey) -> bool {
        self.core.shards.contains_key(key)
    }

    /// Returns every open shard of a service, in order of groups.
    pub fn shards(&self, service: &str) -> Vec<ShardKey> {
        let all = self.core.shards.keys();
        all.filter(|key| key.service == service).cloned().collect()
    }

    /// Sends a request to a shard, in the thread that serves it, and waits for the answer.
    ///
    /// # Errors
    /// The shard is not open, does not know the request or refuses it, or its dispatcher has
    /// stopped.
    pub fn ask<T: TypedRequest>(
        &self,
        key: &ShardKey,
        request: T,
    ) -> Result<T::Answer, CommandError> {
        self.core.with(key, move |shard| shard.ask(request))?
    }

    /// Opens a shard if it is closed, and keeps it open even without ports, until [`Self::release`]
    /// is called as many times.
    ///
    /// # Errors
    /// The service does not exist, or the host or the service's controller refuses.
    pub fn hold(&mut self, key: &ShardKey) -> Result<(), CommandError> {
        self.ensure(key)?;
        self.core.hold(key);
        Ok(())
    }

    /// Reverts one [`Self::hold`]. A shard without holds and ports is closed. No effect for a
    /// closed shard.
    pub fn release(&mut self, key: &ShardKey) {
        self.core.release(key);
        self.core.close_if_unused(key);
    }

    /// Asks every other controller, in order, and returns the answers of those that know the
    /// request.
    ///
    /// # Errors
    /// The first refusal; later controllers are not asked.
    pub fn consult<T: TypedRequest + Clone>(
        &mut self,
        request: &T,
    ) -> Result<Vec<T::Answer>, CommandError> {
        let mut answers = Vec::new();
        self.each(|controller, control| {
            match controller.ask(control, ServiceRequest::new(request.clone())) {
                RequestDispatch::Answered(answer) => answers.push(answer?.take::<T>()?),
                RequestDispatch::Open(_) => {}
            }
            Ok(())
        })?;
        Ok(answers)
    }

    /// Opens a shard if it is closed, and lets its service's controller configure it. The calling
    /// controller is not called back.
    pub(super) fn ensure(&mut self, key: &ShardKey) -> Result<(), CommandError> {
        if self.has_shard(key) {
            return Ok(());
        }
        self.core.open(key)?;
        let named = |entry: &Entry| entry.service == key.service;
        let mut parts: Vec<&mut [Entry]> = self.others.iter_mut().map(|part| &mut **part).collect();
        let place = (0..).zip(&parts).find_map(|(n, part)| Some((n, part.iter().position(named)?)));
        let Some((part, index)) = place else { return Ok(()) };
        // Each call takes its controller out of the reachable ones, so calls end.
        let Some((before, rest)) = parts.remove(part).split_at_mut_checked(index) else {
            return Ok(());
        };
        let Some((entry, behind)) = rest.split_first_mut() else { return Ok(()) };
        parts.extend([before, behind]);
        let mut control = Control { core: self.core, others: parts };
        let opened = entry.controller.shard_opened(&mut control, key);
        if opened.is_err() {
            self.core.close_if_unused(key);
        }
        opened
    }
}
