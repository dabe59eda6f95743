//! Links of the kind `raw`: the local network behind an interface of this host.
//!
//! Frames cross unchanged; checksums and segments stay unfinished where the host finishes them. The
//! link accepts frames to broadcast and group addresses and to our addresses: those of running
//! ports, which the group reports, and those learnt from frames that left by this link (at most
//! `RAW_ADDRESSES_MAX` (4,096) in each period of `RAW_ADDRESS_NS` (300 s); an address that sent
//! nothing for one to two periods is forgotten). A frame *from* the address of a running port came
//! back in a loop and is dropped.
//!
//! The host's own traffic on the interface is neither received nor reached. The link does not
//! detect whether hosts are there, and sends no MAC control frames. While the interface is down or
//! gone, frames are refused, and the link tries to open it every `RAW_AGAIN_NS` (1 s).
//!
//! `ethernet` calls [`RawCarrier`] to send, in the thread of the group; the shard of links calls
//! [`RawLink`] to receive. Both share `InterfaceState` under a lock.
//!
//! # Budget
//! Send: one copy per frame, and one system call for up to `FRAMES_PER_CALL_MAX` (64) frames.
//! Receive: one copy from the host's ring into the buffer in which frames are passed on
//! ([`causeway_host::net::rx_ring`]), and no system call; one call per frame longer than a slot of
//! the ring, or per frame if the kernel gives no ring.
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
struct InterfaceState {
    /// `None` while the interface is down or gone.
    socket: Option<Arc<PacketSocket>>,
    /// Source addresses of frames that left in this ageing period.
    recent: HashSet<u64>,
    /// Those of the period before.
    previous: HashSet<u64>,
    /// Number of ageing periods so far.
    period: u64,
}

impl InterfaceState {
    /// Begins an ageing period: addresses that sent nothing in a whole period are removed.
    fn age(&mut self) {
        self.previous = std::mem::take(&mut self.recent);
        self.period = self.period.wrapping_add(1);
    }

    /// Removes the socket and all addresses.
    fn close(&mut self) {
        *self = Self { period: self.period.wrapping_add(1), ..Self::default() };
    }

    /// Returns whether a frame from the address left within the last two ageing periods.
    fn has(&self, address: u64) -> bool {
        self.recent.contains(&address) || self.previous.contains(&address)
    }
}

/// Interface state that the receive side and all carriers of a link share.
type SharedInterface = Arc<Mutex<InterfaceState>>;

fn lock(interface: &SharedInterface) -> MutexGuard<'_, InterfaceState> {
    interface.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::InterfaceState;

    #[test]
    fn raw_address_expires_after_a_silent_period() {
        let mut shared = InterfaceState::default();
        shared.recent.insert(7);
        shared.age();
        assert!(shared.has(7) && shared.recent.is_empty(), "and there is room again");
        shared.age();
        assert!(!shared.has(7));
    }
}
