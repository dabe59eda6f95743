//! Shared parts of the guest tests: the machine, and a daemon with guests.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod bystanders;
pub mod hosts;
pub mod station;

use causeway_guest_tool::limits::{MESSAGE_PORT, STREAM_PORT};
use causeway_guest_tool::transport::Target;
use causeway_vm::daemon::Member;
use causeway_vm::rdma::{self, Programs, Suite};
use causeway_vm::{Daemon, Guest, Machine};
use std::time::Duration;

/// Time limit of a command in a guest that shares two cores with others.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Time for one measured exchange: these tests check content, not speed.
pub const BRIEF: Duration = Duration::from_millis(500);

/// Returns whether the parts of RDMA guests are there. Outside CI, prints why not; in CI, panics.
pub fn has_rdma_parts(suite: Suite, programs: Programs) -> bool {
    let Err(why) = rdma::fetch(suite, programs) else { return true };
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("skipped: {why}");
    false
}

/// A daemon and its running guests. Guests drop first.
pub struct Testbed {
    pub guests: Vec<Guest>,
    pub members: Vec<Member>,
    pub daemon: Daemon,
}

impl Testbed {
    /// Boots a QEMU guest for each member; all may restart.
    pub fn new(members: Vec<Member>) -> Self {
        Self::on(&Machine::qemu().unwrap(), members)
    }

    /// As [`Self::new`], on another machine.
    pub fn on(machine: &Machine, members: Vec<Member>) -> Self {
        let daemon = Daemon::start(&members).unwrap();
        let spec = |m: &Member| {
            let mut spec = daemon.guest(m);
            spec.may_restart = true;
            spec
        };
        let specs = members.iter().map(spec).collect();
        let guests = Guest::boot_all(machine, specs)
            .unwrap_or_else(|e| panic!("{e}\n--- log of causewayd ---\n{}", daemon.log()));
        Self { guests, members, daemon }
    }

    /// Returns the TCP service of guest `i`.
    pub fn tcp(&self, i: usize) -> Target {
        format!("tcp:{}:{STREAM_PORT}", self.members[i].ip()).parse().unwrap()
    }

    /// Returns the AF_VSOCK stream service of guest `i`.
    pub fn vsock(&self, i: usize) -> Target {
        Target::Vsock(self.members[i].cid, STREAM_PORT)
    }

    /// Returns the AF_VSOCK message service of guest `i`.
    pub fn messages(&self, i: usize) -> Target {
        Target::SeqPacket(self.members[i].cid, MESSAGE_PORT)
    }

    /// Returns the AF_VSOCK stream service of guest `i`, from the host.
    pub fn hybrid(&self, i: usize) -> Target {
        Target::Hybrid(self.daemon.host_socket(&self.members[i]), STREAM_PORT)
    }

    /// Panics with the daemon's log when `result` is an error.
    pub fn expect<T>(&self, what: &str, result: causeway_vm::Result<T>) -> T {
        result.unwrap_or_else(|e| panic!("{what}: {e}\n--- causewayd ---\n{}", self.daemon.log()))
    }
}
