//! Requests of the controller to a shard of adapters.
//!
//! [`crate::control`] sends them: [`OpenUplink`] once for a group, then [`JoinGroup`] for each
//! port. [`crate::service`] answers in the dispatcher's thread, while the thread of the operator's
//! command waits. They are values without behaviour. A second [`OpenUplink`] replaces the uplink,
//! and [`OpenUplink`] never fails. [`JoinGroup`] is refused without an uplink, for a port that does
//! not exist, and if the host has no descriptor for the port's inbox; a second one replaces the
//! inbox.

use causeway_fabric::carrier::{LinkId, Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_model::{Name, TypedRequest};

/// Opens the uplink to the service that forwards the group's frames, of which this is the inbox.
#[derive(Debug)]
pub(crate) struct OpenUplink(pub Sender<Message>);

impl TypedRequest for OpenUplink {
    type Answer = ();
}

/// Asks for the membership of a port, which sends and receives frames by it from now on.
#[derive(Debug)]
pub(crate) struct JoinGroup {
    /// Name of the port.
    pub port: Name,
    /// Identifier of the port in the forwarding service.
    pub id: LinkId,
}

impl TypedRequest for JoinGroup {
    type Answer = Membership;
}
