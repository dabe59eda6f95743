//! Commands about multicast groups of datagram queue pairs.
//!
//! The engine keeps the groups (`verbs::multicast`): 256 members of a group, 1,024 memberships of
//! an adapter. More is answered with *limit exceeded*, a queue pair that is missing, no datagram
//! queue pair or not attached with *bad resource*; a second attachment succeeds without effect.
//! Groups of Ethernet frames are not meant: those are the lists of `command::vport`.

use causeway_verbs::multicast::MulticastError;
use causeway_verbs::{AdapterId, Subnet};
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::queue_pair::MULTICAST_GID;

use super::{Input, Outcome, Output};
use crate::function::Function;

pub(crate) fn attach(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let gid = input.array(MULTICAST_GID)?;
    subnet.attach_multicast(adapter, input.number()?, gid).map_err(status)
}

pub(crate) fn detach(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let gid = input.array(MULTICAST_GID)?;
    subnet.detach_multicast(adapter, input.number()?, gid).map_err(status)
}

fn status(error: MulticastError) -> Status {
    match error {
        MulticastError::NoQueuePair | MulticastError::NotAttached => Status::BadResource,
        _ => Status::ExceededLimit,
    }
}
