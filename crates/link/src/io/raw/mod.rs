//! Links of the kind `raw`: the local network behind an interface of this host.
//!
//! Frames cross unchanged; checksums and segments stay unfinished where the host finishes them. The
//! link accepts frames to broadcast and group addresses and to our addresses: those of running
//! ports, which the group reports, and those learnt from frames that left by this link. A frame
//! *from* the address of a running port came back in a loop and is dropped. The host's own traffic
//! on the interface is neither received nor reached.
//!
//! # Budget
//! Send: one copy per frame, and one system call for up to `FRAMES_PER_CALL_MAX` frames. Receive:
//! one copy from the host's ring into the buffer in which frames are passed on
//! ([`causeway_host::net::rx_ring`]), and no system call; one call per frame longer than a slot of
//! the ring.
//!
//! | module | purpose |
//! |---|---|
//! | `link` | receiving, and interfaces that disappear and return |
//! | `batch` | received frames in one buffer |
//! | `carrier` | sending |

mod batch;
mod carrier;
mod link;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_host::net::socket::PacketSocket;

pub use carrier::RawCarrier;
pub use link::RawLink;

/// State shared by the shards that send and the shard of links.
#[derive(Debug, Default)]
struct Shared {
    /// `None` while the interface is down or gone.
    socket: Option<Arc<PacketSocket>>,
    /// Source addresses of frames that left in this ageing period.
    left: HashSet<u64>,
    /// Those of the period before.
    before: HashSet<u64>,
    /// Number of ageing periods so far.
    times: u64,
}

impl Shared {
    /// Begins an ageing period: addresses that sent nothing in a whole period are removed.
    fn turn(&mut self) {
        self.before = std::mem::take(&mut self.left);
        self.times = self.times.wrapping_add(1);
    }

    /// Removes the socket and all addresses.
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
