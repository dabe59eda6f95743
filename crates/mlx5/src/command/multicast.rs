//! Commands about multicast groups of datagram queue pairs.

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
