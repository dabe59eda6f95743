//! Which of this host's addresses a peer calls, so that what it gets comes from there.
//!
//! A peer of a kind that knows us by our address takes nothing from another one. On a host with several
//! addresses the route decides from which one a datagram leaves, and that is the first of them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by who receives for a link and who sends.
#[derive(Debug, Default)]
pub struct Called {
    version: AtomicU32,
    at: Mutex<Option<IpAddr>>,
}

/// The receiving side, which knows what it noted last.
#[derive(Debug, Default)]
pub struct Listener {
    shared: Arc<Called>,
    last: Option<IpAddr>,
}

/// The sending side.
#[derive(Debug)]
pub struct Caller {
    shared: Arc<Called>,
    version: u32,
    from: Option<IpAddr>,
}

impl Listener {
    /// The peer called this address, where the host tells.
    #[inline]
    pub fn note(&mut self, at: Option<IpAddr>) {
        if at.is_some() && at != self.last {
            self.last = at;
            *self.shared.at.lock().unwrap_or_else(PoisonError::into_inner) = at;
            self.shared.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The address that was called last.
    pub const fn last(&self) -> Option<IpAddr> {
        self.last
    }

    /// A sending side.
    pub fn caller(&self) -> Caller {
        Caller { shared: self.shared.clone(), version: 0, from: None }
    }
}

impl Caller {
    /// From where to send; `None` leaves it to the host.
    #[inline]
    pub fn from(&mut self) -> Option<IpAddr> {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.from = *self.shared.at.lock().unwrap_or_else(PoisonError::into_inner);
        }
        self.from
    }

    /// The host refused to send from there: until the peer calls another address it decides itself.
    pub const fn forget(&mut self) {
        self.from = None;
    }
}
