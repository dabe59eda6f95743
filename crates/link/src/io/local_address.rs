//! The local address to which a peer sends, so that replies leave from it.
//!
//! Peers of the kinds `vnet`, `vxlan` and `causeway-plain` identify us by our address and drop
//! datagrams from another. On a host with several addresses the route would choose the source
//! address. The host reports destination addresses only if it had several when the socket was
//! opened, and the socket is bound to the wildcard address; otherwise nothing is recorded. The
//! socket of `causeway` links does not request the report, so that the host always chooses for
//! them; `tcp`, `tls` and `raw` links do not use the module.
//!
//! The shard of links records the destination address of received datagrams; for `causeway-plain`,
//! only of datagrams from the peer's configured address and port. A `vnet` or `vxlan` link has a
//! recorder of its own; the links of one tunnel share a recorder. For the control datagrams of
//! `causeway-plain`, the shard also reads [`LocalAddressRecorder::last`]. The carriers in the
//! groups' threads read the address before each batch, by a version number, and take a lock only
//! after a change.
//!
//! Before the first datagram of the peer the host chooses. A carrier forgets the address when the
//! host refuses it ([`is_of_address`]), because it is no longer this host's: the host then chooses
//! until the peer sends to another address. A datagram that is refused for another reason, as for a
//! full send buffer, changes nothing. The module binds nothing.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

/// Returns whether the error of a send may come from the source address: Linux answers EINVAL for an
/// address that is not this host's.
pub fn is_of_address(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::ADDRNOTAVAIL))
}

/// Shared by a receiving side and the sending sides of its links.
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

    /// Forgets the address after the host refused it, until another address is recorded. Other
    /// sending sides keep it.
    pub const fn forget(&mut self) {
        self.from = None;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn source_address_is_forgotten_only_if_the_host_refuses_it() {
        let mut recorder = LocalAddressRecorder::default();
        let mut reader = recorder.reader();
        let (one, two) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 2).into());
        assert_eq!(reader.address(), None);
        recorder.record(Some(one));
        assert_eq!(reader.address(), Some(one));
        for errno in [Errno::AGAIN, Errno::NOBUFS, Errno::MSGSIZE, Errno::NETUNREACH] {
            assert!(!is_of_address(&errno.into()), "{errno}");
        }
        assert!(is_of_address(&Errno::INVAL.into()) && is_of_address(&Errno::ADDRNOTAVAIL.into()));
        reader.forget();
        recorder.record(Some(one));
        assert_eq!(reader.address(), None, "the same address would be refused again");
        recorder.record(Some(two));
        assert_eq!(reader.address(), Some(two));
    }
}
