//! The table of known NICs, by MAC and by number.
//!
//! Numbers are the peer indices of the wire format. A NIC is identified by its MAC alone; an index
//! in a received packet is only a hint for the lookup.
//!
//! The table has at most [`KNOWN_NICS_MAX`] (1,024) NICs; a further NIC is not added, and its
//! frames are dropped. A number is reused after the NIC was removed, so the caller ends the NIC's
//! peers first ([`Nic::nic_remove`](crate::Nic::nic_remove)). The table finds no NICs and has no
//! names: [`discovery`](crate::discovery) does. Used for each received and each sent frame. A
//! second addition of a MAC returns its number and changes nothing; the mark of a local NIC
//! ([`local`](crate::local)) stays until the removal. An unknown number or MAC is `None` or has no
//! effect. Part of [`Nic`](crate::Nic): one thread at a time, without a lock.

use std::cell::Cell;
use std::collections::HashMap;

use causeway_wire::mxoe::PEER_UNKNOWN;

use crate::limits::KNOWN_NICS_MAX;

/// A known NIC.
#[derive(Debug, Clone, Copy)]
struct KnownNic {
    mac: [u8; 6],
    /// The number of this NIC in its table, or [`PEER_UNKNOWN`].
    reverse: u16,
    /// The NIC belongs to the same daemon: see [`crate::local`].
    is_local: bool,
}

/// The table. Numbers are small and are reused.
#[derive(Debug, Default)]
pub(crate) struct NicTable {
    /// Known NICs, by number.
    list: Vec<Option<KnownNic>>,
    /// With the keyed hash of `std`: NICs on the network choose their MACs.
    by_mac: HashMap<[u8; 6], u16>,
    /// Result of the latest lookup: consecutive messages often come from the same NIC.
    last: Cell<u16>,
}

impl NicTable {
    /// Adds a NIC. Returns its number, or `None` if the table is full.
    pub(crate) fn add(&mut self, mac: [u8; 6]) -> Option<u16> {
        if let Some(known) = self.by_mac.get(&mac) {
            return Some(*known);
        }
        let host = Some(KnownNic { mac, reverse: PEER_UNKNOWN, is_local: false });
        let at = match self.list.iter().position(Option::is_none) {
            Some(at) => at,
            None if self.list.len() < KNOWN_NICS_MAX => {
                self.list.push(None);
                self.list.len().saturating_sub(1)
            }
            None => return None,
        };
        let number = u16::try_from(at).ok()?;
        *self.list.get_mut(at)? = host;
        self.by_mac.insert(mac, number);
        Some(number)
    }

    /// Removes a NIC. Returns the number that it had.
    pub(crate) fn remove(&mut self, mac: [u8; 6]) -> Option<u16> {
        let number = self.by_mac.remove(&mac)?;
        if let Some(place) = self.list.get_mut(usize::from(number)) {
            *place = None;
        }
        Some(number)
    }

    /// Records that a NIC belongs to the same daemon.
    pub(crate) fn set_local(&mut self, number: u16) {
        if let Some(Some(host)) = self.list.get_mut(usize::from(number)) {
            host.is_local = true;
        }
    }

    /// Returns whether a NIC belongs to the same daemon.
    #[inline]
    pub(crate) fn is_local(&self, number: u16) -> bool {
        matches!(self.list.get(usize::from(number)), Some(Some(host)) if host.is_local)
    }

    /// Returns the number of a NIC.
    pub(crate) fn number(&self, mac: [u8; 6]) -> Option<u16> {
        let last = self.last.get();
        if matches!(self.list.get(usize::from(last)), Some(Some(host)) if host.mac == mac) {
            return Some(last);
        }
        let found = self.by_mac.get(&mac).copied()?;
        self.last.set(found);
        Some(found)
    }

    /// Returns the number of the NIC with this MAC, which supplied `hint`.
    pub(crate) fn find(&self, mac: [u8; 6], hint: u16) -> Option<u16> {
        match self.list.get(usize::from(hint)) {
            Some(Some(host)) if host.mac == mac => Some(hint),
            // A wrong or outdated hint does no harm.
            _ => self.number(mac),
        }
    }

    /// Returns the MAC of a NIC, and the number of this NIC in its table.
    pub(crate) fn get(&self, number: u16) -> Option<([u8; 6], u16)> {
        let host = (*self.list.get(usize::from(number))?)?;
        Some((host.mac, host.reverse))
    }

    /// Records the number of this NIC in the table of NIC `number`.
    pub(crate) fn learn(&mut self, number: u16, reverse: u16) {
        if let Some(Some(host)) = self.list.get_mut(usize::from(number)) {
            host.reverse = reverse;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nic_table_identifies_by_mac_despite_the_hint() {
        let mut hosts = NicTable::default();
        let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        assert_eq!((hosts.add(a), hosts.add(b), hosts.add(a)), (Some(0), Some(1), Some(0)));
        assert_eq!(hosts.find(b, 1), Some(1));
        assert_eq!(hosts.find(b, 0), Some(1), "the hint belongs to another NIC");
        assert_eq!(hosts.find([9; 6], 0), None);
        hosts.learn(1, 77);
        assert_eq!(hosts.get(1), Some((b, 77)));
        assert_eq!(hosts.remove(a), Some(0));
        assert_eq!((hosts.number(a), hosts.get(0)), (None, None));
        assert_eq!(hosts.add([3; 6]), Some(0));
        for n in 2..KNOWN_NICS_MAX as u32 {
            let [a, b, c, d] = n.to_be_bytes();
            assert!(hosts.add([4, 0, a, b, c, d]).is_some());
        }
        assert_eq!(hosts.add([5; 6]), None);
    }
}
