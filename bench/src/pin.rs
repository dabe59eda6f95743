//! Assignment of threads to cores.
//!
//! Every row pins its client threads to [`CLIENT`] and its dispatcher, or the peer's switch, to
//! [`SERVER`]; the floor is measured between the same two. Threads that a pinned thread starts
//! inherit the core. A pin that fails is printed, and the row goes on. A pin holds until the thread
//! pins itself again or ends. Called by the rows and peers in their own threads, and by the process
//! of the bare guest; the program needs two cores, and with one each pin of [`SERVER`] is refused.

use rustix::thread::{CpuSet, sched_setaffinity};

/// The core of the sender and receiver.
pub const CLIENT: usize = 0;
/// The core of the dispatcher, or of the other end.
pub const SERVER: usize = 1;

/// Pins this thread to `core`; reports an error and continues where that fails.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("- cannot keep a thread on core {core}: {error}");
    }
}
