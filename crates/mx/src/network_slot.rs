//! The place of a NIC's network, with its next deadline.
//!
//! The dispatcher asks for the first deadline of all NICs after each turn, in which a few of them
//! worked. The deadline of a network is kept until the network is borrowed for a change.
//!
//! The slot is empty while `mx::exchange` has taken the network out, to work with it and with its
//! neighbours; then it returns `None`, and its deadline is `u64::MAX`. Owned by a `LocalNic`, on
//! the dispatcher's thread.

use std::cell::Cell;

use crate::network::NicNetwork;

/// The network of a NIC, if it has one at present.
#[derive(Debug, Default)]
pub struct NetworkSlot {
    network: Option<Box<NicNetwork>>,
    /// The deadline in ns, unless the network may have changed since.
    deadline_ns: Cell<Option<u64>>,
}

impl NetworkSlot {
    /// Returns the network.
    #[inline]
    pub fn as_ref(&self) -> Option<&NicNetwork> {
        self.network.as_deref()
    }

    /// Returns the network for a change.
    #[inline]
    pub fn as_mut(&mut self) -> Option<&mut NicNetwork> {
        self.deadline_ns.set(None);
        self.network.as_deref_mut()
    }

    /// Takes the network out.
    pub fn take(&mut self) -> Option<Box<NicNetwork>> {
        self.deadline_ns.set(None);
        self.network.take()
    }

    /// Puts a network in.
    pub fn put(&mut self, network: Box<NicNetwork>) {
        *self = Self { network: Some(network), deadline_ns: Cell::new(None) };
    }

    /// Returns the latest time of the next tick of the network in ns; `u64::MAX` means never.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        if let Some(at) = self.deadline_ns.get() {
            return at;
        }
        let at = self.as_ref().map_or(u64::MAX, NicNetwork::deadline);
        self.deadline_ns.set(Some(at));
        at
    }
}
