//! Assignment of threads to cores.
//!
//! Most rows pin their client threads to [`CLIENT`] and their dispatcher, or the peer's switch, to
//! [`SERVER`]; rows between hosts have a dispatcher on each of the two, or both on [`CLIENT`]. The
//! floor is measured between the same two cores, in the row's thread, which stays on [`CLIENT`]:
//! threads and processes that it starts inherit that core unless they are pinned otherwise. The QEMU
//! guests of `rows::guests` get both cores; of the two hosts of `peers::underlay` and
//! `peers::overlay` each has a core.
//!
//! A pin that fails is printed, and the row goes on. A pin holds until the thread pins itself again
//! or ends. Called by the rig, the floor, the rows and peers in their own threads, and by the
//! process of the bare guest. The program needs two cores: with one, each pin of [`SERVER`] is
//! refused.

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_setaffinity};

/// The core of the sender and receiver.
pub const CLIENT: usize = 0;
/// The core of the dispatcher, of the peer's switch, or of the other end.
pub const SERVER: usize = 1;

/// Returns the number of cores that the process might use when it started: the value of the first
/// call, which `main` makes before any thread is pinned.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Pins this thread to `core`; reports an error and continues where that fails.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("- cannot keep a thread on core {core}: {error}");
    }
}
