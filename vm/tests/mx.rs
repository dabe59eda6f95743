//! Messages in stock guests with a host channel adapter: a process reaches the daemon through its
//! adapter by libibverbs, with no driver and no module of its own.

mod common;

use causeway_vm::build;
use causeway_vm::rdma::{Group, Programs, Suite};
use common::{LIMIT, has_rdma_parts};

/// Path of a program in the guests.
const CHECK: &str = "/usr/bin/adapter-check";

#[test]
fn mx_library_drives_the_adapter_of_a_stock_guest() {
    for suite in [Suite::Trixie, Suite::Bookworm] {
        if !has_rdma_parts(suite, Programs::Verbs) {
            continue;
        }
        let group = Group::boot(suite, Programs::Verbs, 1).unwrap_or_else(|e| panic!("{e}"));
        let [guest] = group.guests.as_slice() else { panic!("one guest") };
        let program = build::stripped(&build::adapter_check().unwrap()).unwrap();
        guest.install(CHECK, &program).unwrap();
        let printed = guest
            .run(&[CHECK], LIMIT)
            .unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", group.daemon.log()));
        println!("{suite:?}: {printed}");
        assert!(printed.contains("passed"), "{printed}");
        guest.check_kernel().unwrap();
    }
}
