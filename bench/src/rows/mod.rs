//! All rows, in display order.
//!
//! Each module with rows has a function `plans` that returns them; `attacks` and `tenants` serve
//! `contain` and `isolation`. The module `report` calls [`all`] once, in the main thread of the
//! benchmark; it selects rows by name, and measures them. A row's JSON file is named after the
//! letters and digits of its name, in lower case, so these must be unique: a test checks that. Rows are grouped by the kind of guest
//! ([`crate::row::Guest`]): processes of the host, virtio-user, the bare KVM guest, QEMU. Creating
//! the plans measures nothing and cannot fail.

mod attacks;
mod bare;
mod contain;
mod copies;
mod driver;
pub mod ethernet;
mod guests;
mod idle;
mod isolation;
mod links;
mod messages;
mod mpi;
mod mx_daemon;
mod rdma;
mod scale;
pub mod sockets;
mod switch;
mod tenants;

use crate::row::Plan;

/// Returns every row, grouped by the kind of guest.
pub fn all() -> Vec<Plan> {
    let mut plans = sockets::plans();
    plans.extend(ethernet::plans());
    plans.extend(idle::plans());
    plans.extend(copies::plans());
    plans.extend(scale::plans());
    plans.extend(links::plans());
    plans.extend(messages::plans());
    plans.extend(mx_daemon::plans());
    plans.extend(mpi::plans());
    plans.extend(rdma::plans());
    plans.extend(contain::plans());
    plans.extend(isolation::plans());
    plans.extend(driver::plans());
    plans.extend(switch::plans());
    plans.extend(bare::plans());
    plans.extend(guests::plans());
    plans
}
