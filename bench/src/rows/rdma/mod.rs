//! RDMA between adapters (ports of kind `hca`), with the native driver of the ConnectX function
//! over the real vfio-user socket. Both drivers are in one thread, the dispatcher on the other
//! core, so both directions of a row share one pair of cores and the floor is one cache line
//! between them.
//!
//! Every measurement fails if a post, a poll or an arm sent a register message.

mod adapters;
mod frames;
mod idle;
mod latency;
mod registration;
mod throughput;

use crate::row::Plan;

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = latency::plans();
    plans.extend(throughput::plans());
    plans.extend(registration::plans());
    plans.extend(frames::plans());
    plans.extend(idle::plans());
    plans
}
