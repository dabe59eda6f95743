//! Which core a thread runs on.

use rustix::thread::{CpuSet, sched_setaffinity};

/// The core of whoever sends and receives.
pub const CLIENT: usize = 0;
/// The core of the dispatcher, or of the other side.
pub const SERVER: usize = 1;

/// Keeps this thread on `core`; says so and goes on where that cannot be.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("- cannot keep a thread on core {core}: {error}");
    }
}
