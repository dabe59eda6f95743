//! Two guests with host channel adapters in a group: the stock `mlx5` driver and unmodified RDMA
//! programs exchange data; routes and captures of their group apply to them.
//!
//! `CAUSEWAY_RDMA_SOCKETS=A,B` runs the same programs against another server, which listens on the
//! vfio-user sockets A and B. `CAUSEWAY_RDMA_SUITE` selects the guests' suite, and
//! `CAUSEWAY_RDMA_STEPS=A,B` the steps with A or B in their names. `CAUSEWAY_RDMA_COMMANDS=1` prints
//! the commands that the drivers sent.

mod common;
#[path = "rdma/rules.rs"]
mod rules;

use causeway_vm::rdma::programs::{
    device, ethernet, loopback, messages, mpi, sockets, storage, verbs,
};
use causeway_vm::rdma::{Pair, Programs, Steps, Suite};
use common::has_rdma_parts;
use std::time::Instant;

/// Boots two guests; `None`, with a message, where their parts cannot be fetched outside CI.
fn boot(programs: Programs) -> Option<Steps> {
    let suite = suite();
    if !has_rdma_parts(suite, programs) {
        return None;
    }
    let start = Instant::now();
    let pair = Pair::boot(suite, programs).unwrap_or_else(|e| panic!("{e}"));
    println!("two guests with an active port after {:.1} s", start.elapsed().as_secs_f32());
    Some(Steps::new(pair))
}

fn suite() -> Suite {
    match std::env::var("CAUSEWAY_RDMA_SUITE").as_deref() {
        Err(_) => Suite::Trixie,
        Ok(name) => Suite::named(name).unwrap_or_else(|| panic!("{name} is no suite")),
    }
}

/// Fails with the names of the failed steps, if any.
fn finish(steps: Steps) {
    let failed: Vec<String> = steps.failed().into_iter().map(String::from).collect();
    let log = steps.rig.end();
    assert!(failed.is_empty(), "failed: {}\n--- causewayd ---\n{log}", failed.join(", "));
}

#[test]
fn rdma_programs_of_two_stock_guests_exchange_data() {
    let Some(mut steps) = boot(Programs::Verbs) else { return };
    verbs::all(&mut steps);
    loopback::all(&mut steps);
    ethernet::all(&mut steps);
    sockets::streams(&mut steps);
    sockets::rsockets(&mut steps);
    storage::all(&mut steps);
    rules::all(&mut steps);
    device::rebind(&mut steps);
    device::leave_and_return(&mut steps);
    steps.kernel_messages();
    finish(steps);
}

#[test]
fn rdma_carries_ucx_and_mpi_between_two_stock_guests() {
    let Some(mut steps) = boot(Programs::Mpi) else { return };
    mpi::ucx(&mut steps);
    mpi::ranks(&mut steps);
    messages::libfabric(&mut steps);
    messages::ranks(&mut steps);
    steps.kernel_messages();
    finish(steps);
}
