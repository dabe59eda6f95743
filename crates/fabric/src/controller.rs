//! Controllers: the control-plane part of a service, one per service and process.
//!
//! A shard of a service holds the state of one group and forwards its traffic. The controller holds
//! the operator's objects beyond ports (links, routes, captures), answers the service's commands,
//! and reaches shards, ports, groups and other controllers through [`Control`].
//!
//! The registry (`crate::registry`) makes the controllers when the fabric starts, and calls them
//! under its lock, from the thread of a command or of the ticks: one call at a time. A call may
//! block for as long as a dispatcher needs to answer, and delays all other commands meanwhile. A
//! controller is never called on the data path. A controller learns of added ports of its own
//! service by [`Controller::port_added`], of deleted ports of any service by
//! [`Controller::port_deleted`], of deleted groups by [`Controller::group_deleted`], and of deleted
//! links by a request of the link service ([`LinkDeleted`](crate::carrier::LinkDeleted)). A
//! controller prevents a deletion by [`Controller::object_in`].

use std::fmt;

use causeway_model::{CommandError, PortSpec};
use causeway_model::{GroupView, Name, RequestDispatch, ServiceRequest};

use crate::registry::Control;
use crate::shard::ShardKey;

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
