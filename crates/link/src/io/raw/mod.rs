//! Links of the kind `raw`: the local network behind an interface of this host.
//!
//! Frames cross as they are, with checksums and segments unfinished where the host finishes them.
//! Taken is what is for everyone, for groups, or for one of our addresses: those of running ports,
//! which the group tells, and those whose frames left by this link. What comes *from* an address of
//! a running port is our own and went in a circle: it is dropped. The host's own traffic by the
//! interface is neither heard nor reached.
//!
//! # Budget
//! One copy of a frame out, and one system call for up to
//! `RAW_FRAMES_MAX`. In: one copy from the host's ring to where it
//! is handed on ([`causeway_host::net::rx_ring`]), and no system call; one for each frame that is
//! longer than a slot of the ring.
//!
//! | module | idea |
//! |---|---|
//! | `link` | what comes, and interfaces that go and come back |
//! | `batch` | frames that came, where they lie |
//! | `carrier` | what leaves |

mod batch;
mod carrier;
mod link;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_host::net::socket::PacketSocket;

pub use carrier::RawCarrier;
pub use link::RawLink;

/// What the shards share.
#[derive(Debug, Default)]
struct Shared {
    /// None while the interface is down or gone.
    socket: Option<Arc<PacketSocket>>,
    /// Addresses whose frames left...
    left: HashSet<u64>,
    /// ... and those of the time before.
    before: HashSet<u64>,
    /// How many such times there were.
    times: u64,
}

impl Shared {
    /// A new time begins: who has not sent anything in a whole one is forgotten.
    fn turn(&mut self) {
        self.before = std::mem::take(&mut self.left);
        self.times = self.times.wrapping_add(1);
    }

    /// Nothing is left of what was.
    fn close(&mut self) {
        *self = Self { times: self.times.wrapping_add(1), ..Self::default() };
    }

    fn has(&self, address: u64) -> bool {
        self.left.contains(&address) || self.before.contains(&address)
    }
}

type Outlet = Arc<Mutex<Shared>>;

fn shared(outlet: &Outlet) -> MutexGuard<'_, Shared> {
    outlet.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Shared;

    #[test]
    fn an_address_is_forgotten_when_it_was_silent_for_a_whole_time() {
        let mut shared = Shared::default();
        shared.left.insert(7);
        shared.turn();
        assert!(shared.has(7) && shared.left.is_empty(), "and there is room again");
        shared.turn();
        assert!(!shared.has(7));
    }
}
