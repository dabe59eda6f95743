//! The control-plane part of a service: one for each service in the process, not in each shard.
//!
//! A shard of a service holds the state of one group and forwards its traffic. The controller holds
//! what the operator configured beyond ports, answers the service's commands, and reaches shards,
//! ports, groups and other controllers through [`Control`]. The registry calls it under its lock,
//! from any thread; it is not on the data path.

use std::fmt;

use causeway_model::{CommandError, PortSpec};
use causeway_model::{Dispatch, GroupView, Name, Request};

use crate::registry::Control;
use crate::shard::ShardKey;

/// The control-plane part of a service. Each method has a default that does nothing.
pub trait Controller: Send + fmt::Debug {
    /// Answers a command of the operator or a request of another controller.
    ///
    /// A request of a type that the service does not know is given back unanswered.
    fn ask(&mut self, _control: &mut Control<'_>, request: Request) -> Dispatch {
        Dispatch::new(request)
    }

    /// Configures a shard of the service that was opened now.
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

    /// Forgets objects that name a port, of any service, that was deleted.
    ///
    /// # Errors
    /// A shard does not answer; the port stays deleted.
    fn port_deleted(
        &mut self,
        _control: &mut Control<'_>,
        _port: &PortSpec,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Returns an object in `group` because of which the group cannot be deleted.
    fn object_in(&self, _group: &Name) -> Option<Object> {
        None
    }

    /// Adds objects of the service to the view of a group.
    fn extend_group(&self, _view: &mut GroupView) {}

    /// Returns whether [`Self::tick`] is to be called every [`CONTROL_TICK`] from now on.
    ///
    /// [`CONTROL_TICK`]: crate::limits::CONTROL_TICK
    fn needs_tick(&self) -> bool {
        false
    }

    /// Ends objects whose time has passed.
    fn tick(&mut self) {}
}

/// An object of a service, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The kind, in the singular, for example `link`.
    pub kind: &'static str,
    /// The name.
    pub name: Name,
}

/// The controller of a service without commands.
#[derive(Debug, Default)]
pub struct NoCommands;

impl Controller for NoCommands {}
