//! Registrations, the resizing of completion queues, and the refusal of memory windows, by a
//! program with two queue pairs of an adapter. A C compiler and libibverbs with its headers are
//! required on the host; otherwise the set-up fails with the reason, and each later step because
//! the program is missing. The matrix and a test call [`all`]; each part of the program is a step
//! with a time limit of 40 s. Both guests run a part at the same time, in two threads of the
//! harness; the part fails if it does in either guest. Counters are not compared: the traffic stays
//! within each adapter.

use crate::error::{Error, Result};
use crate::rdma::programs::compile;
use crate::rdma::steps::{LIMIT, Steps};
use crate::rdma::{Pair, RdmaGuest};
use std::thread;

/// The program.
const SOURCE: &str = include_str!("loopback.c");
/// Path of the program in the guests.
const PROGRAM: &str = "/usr/bin/loopback";

/// Runs all parts of the program.
pub fn all(steps: &mut Steps) {
    steps.step("loopback set-up", prepare);
    for (part, name) in [
        ("registrations", "registrations of replaced pages"),
        ("resize", "ibv_resize_cq under traffic"),
        ("windows", "memory windows are refused"),
    ] {
        steps.step(name, |pair| run(pair, part));
    }
}

fn prepare(pair: &mut Pair) -> Result<()> {
    let content = compile("cc", SOURCE, &["-libverbs", "-lpthread"])?;
    pair.guests.iter().try_for_each(|guest| guest.install(PROGRAM, &content))
}

fn run(pair: &mut Pair, part: &str) -> Result<()> {
    let in_guest = |guest: &RdmaGuest| {
        let printed = guest.run(&[PROGRAM, &guest.gid_index(), part], LIMIT)?;
        match printed.contains("passed") {
            true => Ok(()),
            false => Err(Error::Traffic { what: format!("loopback {part}: {printed}") }),
        }
    };
    let [first, second] = &pair.guests;
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| in_guest(second));
        (in_guest(first), other.join())
    });
    one?;
    other.unwrap_or_else(|_| Err(Error::Traffic { what: "a thread panicked".into() }))
}
