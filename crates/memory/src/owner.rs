//! Identity of the peer that granted memory, so that each peer is charged for its own mappings.
//!
//! The thread that serves a peer enters [`Owner::serve`]; mappings that it creates meanwhile belong
//! to that owner. A mapping keeps its owner: its pending unmap counts against that owner,
//! whichever thread drops it (`crate::addresses`). `host` charges received descriptors by the same
//! identity. The current owner is a value per thread: other threads, and work that is queued for
//! them, do not inherit it. Calls may nest. An owner holds no resources and needs no release; its
//! number is never used again.
//!
//! Other crates use an owner as `causeway_host::Account`, which wraps it. Callers are:
//!
//! - of [`Owner::unique`]: `fabric` and the holder for each port, `fabric` for each listening
//!   socket, `host` for each untrusted socket that a thread makes while it serves no peer;
//! - of [`Owner::of_user`]: `mx::service` for a process that attaches;
//! - of [`Owner::serve`]: `attach`, in the dispatcher's thread for the messages of a vhost-user
//!   frontend, and in the control thread of a vfio-user frontend until that thread ends; `host`, in
//!   any thread that receives from an untrusted socket, for the time of the call;
//! - of [`Owner::now`]: `crate::mapping` for each mapping, `host` for each received descriptor and
//!   each untrusted socket.
//!
//! Memory that an MX process lends is mapped by `mxoe::driver` outside of [`Owner::serve`]: it
//! belongs to the default owner. Only the descriptors of the process are charged to its user.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A peer of this process: the frontends of a port, the processes of a user on a port, or the peers
/// of a listening socket. The default is this process itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Owner {
    /// Unique in this process; 0 is the default's.
    number: u64,
    /// 0, or one more than the number of a user.
    user: u64,
}

/// The default owner: this process.
const THIS_PROCESS: Owner = Owner { number: 0, user: 0 };

/// The number of the next owner. At one owner per nanosecond the numbers last for centuries.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NOW: Cell<Owner> = const { Cell::new(THIS_PROCESS) };
}

/// Restores the thread's previous owner when dropped.
struct Previous(Owner);

impl Drop for Previous {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}

impl Owner {
    /// Returns an owner that no other peer of this process has.
    pub fn unique() -> Self {
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), user: 0 }
    }

    /// Returns the owner for a user's processes among the peers of this owner. A user that this
    /// owner has is replaced.
    #[must_use]
    pub const fn of_user(self, uid: u32) -> Self {
        Self { number: self.number, user: (uid as u64).wrapping_add(1) }
    }

    /// Returns the number that this owner shares with those of its users.
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Calls `run` on behalf of this owner: mappings that are made meanwhile belong to it.
    pub fn serve<R>(self, run: impl FnOnce() -> R) -> R {
        let _previous = Previous(NOW.replace(self));
        run()
    }

    /// Returns the owner on whose behalf this thread runs.
    pub fn now() -> Self {
        NOW.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_distinct_and_restored_after_each_call() {
        let (port, other) = (Owner::unique(), Owner::unique());
        let (user, same) = (port.of_user(0), other.of_user(0));
        let mut all = vec![port, other, user, same, Owner::default()];
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5, "each is another owner");
        let seen = port.serve(|| (Owner::now(), user.serve(Owner::now), Owner::now()));
        assert_eq!((seen, Owner::now()), ((port, user, port), Owner::default()));
    }
}
