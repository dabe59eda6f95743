//! RDMA between adapters (ports of kind `hca`), with the native driver of the ConnectX function
//! over the real vfio-user socket. The drivers are in one thread, the dispatcher on the other core,
//! so both directions of a row share one pair of cores and the floor is one cache line between
//! them.
//!
//! Rows of latency, bandwidth, rates, frames and the first message after a pause fail if the data
//! path sent a register message; one row counts them. Registrations send them by design, and the
//! row of idle adapters does not count them.

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
