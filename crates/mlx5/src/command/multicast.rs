//! Commands about multicast groups of datagram queue pairs.
//!
//! The engine keeps the groups (`verbs::multicast`). An adapter has at most 16 queue pairs in a
//! group, and 1,024 memberships in all groups together; an attachment beyond either is answered
//! with *limit exceeded*. A queue pair that does not exist, has no datagrams or, for a detachment,
//! is not attached is *bad resource*; a second attachment succeeds without effect. Any 16 bytes are
//! the GID of a group: neither the handlers nor the engine check that it is a multicast GID. A
//! queue pair that is destroyed leaves its groups; a reset of the queue pair keeps it attached. The
//! capabilities state no number of members (0). Groups of Ethernet frames are not meant: those are
//! the lists of `command::vport`.
//!
//! [`super::dispatch`] calls the handlers in the dispatcher's turn, between two datagrams or
//! between two deliveries of a datagram, which may then miss a member; after a restart of causewayd
//! it calls them again for the recorded attachments (`crate::record::restore`).

use causeway_verbs::multicast::MulticastError;
use causeway_verbs::{AdapterId, Subnet};
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::queue_pair::MULTICAST_GID;

use super::{Input, Outcome, Output};
use crate::function::Function;

/// Executes ATTACH_TO_MCG: adds a queue pair to a group.
pub(crate) fn attach(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let gid = input.array(MULTICAST_GID)?;
    subnet.attach_multicast(adapter, input.number()?, gid).map_err(status)
}

/// Executes DETACH_FROM_MCG: removes a queue pair from a group.
pub(crate) fn detach(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let gid = input.array(MULTICAST_GID)?;
    subnet.detach_multicast(adapter, input.number()?, gid).map_err(status)
}

/// Returns the status of an error of the engine.
fn status(error: MulticastError) -> Status {
    match error {
        MulticastError::NoQueuePair | MulticastError::NotAttached => Status::BadResource,
        _ => Status::ExceededLimit,
    }
}
