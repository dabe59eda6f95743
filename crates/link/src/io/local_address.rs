//! The local address to which a peer sends, so that replies leave from it.
//!
//! Peers of the kinds `vnet`, `vxlan` and `causeway-plain` identify us by our address and drop
//! datagrams from another. `causeway` links use the module too, for a peer that sends from its
//! configured address; `tcp`, `tls` and `raw` links do not. On a host with several addresses the
//! route would choose the source address.
//!
//! The shard of links records the destination address of received datagrams; the carriers in the
//! groups' threads read it before each batch, by a version number, and take a lock only after a
//! change. Before the first datagram of the peer, and after the host refused the address, the host
//! chooses. The module binds nothing and does not check that the address is still this host's.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by the receiving and the sending side of a link.
#[derive(Debug, Default)]
pub struct SharedLocalAddress {
    /// Grows with each change of the address.
    version: AtomicU32,
    /// The last recorded address.
    at: Mutex<Option<IpAddr>>,
}

/// The receiving side.
#[derive(Debug, Default)]
pub struct LocalAddressRecorder {
    shared: Arc<SharedLocalAddress>,
    /// The address that was recorded last.
    last: Option<IpAddr>,
}

/// The sending side.
#[derive(Debug)]
pub struct LocalAddressReader {
    shared: Arc<SharedLocalAddress>,
    /// Version at which `from` was read.
    version: u32,
    /// The address to send from; `None` lets the host choose.
    from: Option<IpAddr>,
}

impl LocalAddressRecorder {
    /// Records the destination address of a received datagram, if the host reports it.
    #[inline]
    pub fn record(&mut self, at: Option<IpAddr>) {
        if at.is_some() && at != self.last {
            self.last = at;
            *self.shared.at.lock().unwrap_or_else(PoisonError::into_inner) = at;
            self.shared.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the last recorded address.
    pub const fn last(&self) -> Option<IpAddr> {
        self.last
    }

    /// Returns a sending side.
    pub fn reader(&self) -> LocalAddressReader {
        LocalAddressReader { shared: self.shared.clone(), version: 0, from: None }
    }
}

impl LocalAddressReader {
    /// Returns the address to send from; `None` lets the host choose.
    #[inline]
    pub fn address(&mut self) -> Option<IpAddr> {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.from = *self.shared.at.lock().unwrap_or_else(PoisonError::into_inner);
        }
        self.from
    }

    /// Forgets the address after the host refused to send from it, until another is recorded.
    pub const fn forget(&mut self) {
        self.from = None;
    }
}
