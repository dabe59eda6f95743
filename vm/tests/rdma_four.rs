//! Four guests with host channel adapters in a group exchange data, each with each at once.

mod common;

use causeway_vm::rdma::programs::many;
use causeway_vm::rdma::{Group, Programs, Steps, Suite};
use common::has_rdma_parts;

#[test]
fn rdma_four_guests_exchange_data_all_to_all() {
    let suite = Suite::Trixie;
    if !has_rdma_parts(suite, Programs::Verbs) {
        return;
    }
    let group = Group::boot(suite, Programs::Verbs, 4).unwrap_or_else(|e| panic!("{e}"));
    let mut steps = Steps::new(group);
    many::all(&mut steps);
    let failed = steps.failed().join(", ");
    assert!(failed.is_empty(), "failed: {failed}\n--- causewayd ---\n{}", steps.rig.daemon.log());
}
