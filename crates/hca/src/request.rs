//! Requests of the controller to a shard of adapters.
//!
//! [`crate::control`] sends them, [`OpenUplink`] before [`StartUplink`]; [`crate::service`] answers
//! in the dispatcher's thread, while the thread of the operator's command waits. They are values
//! without behaviour. [`OpenUplink`] fails if the host has no descriptor left, and a second one
//! replaces the uplink; [`StartUplink`] without an uplink has no effect.

use causeway_fabric::carrier::{LinkId, Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_model::{Name, TypedRequest};

/// Opens the uplink to the service that forwards the group's frames.
#[derive(Debug)]
pub(crate) struct OpenUplink {
    /// Identifier of the uplink.
    pub id: LinkId,
    /// Its name in counters and traces.
    pub name: Name,
    /// Inbox of the forwarding service.
    pub to: Sender<Message>,
}

impl TypedRequest for OpenUplink {
    type Answer = Membership;
}

/// Reports the uplink as up, after the forwarding service joined it.
#[derive(Debug)]
pub(crate) struct StartUplink;

impl TypedRequest for StartUplink {
    type Answer = ();
}

/// Asks for the number of ports.
#[derive(Debug)]
pub(crate) struct CountPorts;

impl TypedRequest for CountPorts {
    type Answer = usize;
}
