//! The address table of one group: MAC addresses to ports and peers.
//!
//! Every port has its configured address permanently. Other addresses are learnt from frames: at
//! most [`LEARNT_PER_PORT_MAX`] (1,024) a port and [`LEARNT_PER_GROUP_MAX`] (4,096) a group; each
//! ages [`LEARNT_AGE_NS`] (300 s) after its last frame. Addresses behind peers have quotas of their
//! own ([`LEARNT_PER_PEER_MAX`] (16,384), [`LEARNT_FAR_MAX`] (65,536)). An aged address is not
//! found, but counts in its quota until a sweep: at a full quota, at most once in
//! [`SWEEP_INTERVAL_NS`] (1 s). If the quota stays full, a new address is not learnt
//! ([`Learnt::Full`]) and frames to it are flooded; no entry is displaced before it has aged.
//! Frames move a learnt address to another port or peer at once if the quota there has room, but
//! neither a configured nor an advertised address. An advertised address does not age until its
//! peer withdraws it, or until the links to the peer are down: then it counts as learnt
//! ([`AddressTable::demote`]).
//!
//! `forward` (ports), `station` and `link_rx` (peers) learn the source of a frame, and drop the
//! frame at [`Learnt::Forged`]; `link_rx` accepts it while the guest with the address does not run.
//! These callers check that the port or station has `learn` set and that the address is unicast:
//! the table checks neither. `forward` looks destinations up, `port` and `station` enter configured
//! addresses, `link_rx` and `service` follow peers that come and go. A module that changes links,
//! routes or running guests calls [`AddressTable::invalidate`].
//!
//! The table neither floods nor forwards. Guests choose the keys, so the hash is keyed. Times are
//! nanoseconds of one monotonic clock, which the caller chooses. One dispatcher owns the table; it
//! has no lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::Hash;

use causeway_fabric::keyed::{Keyed, keyed};
use causeway_wire::ethernet::number;

use crate::limits::{
    LEARNT_AGE_NS, LEARNT_FAR_MAX, LEARNT_PER_GROUP_MAX, LEARNT_PER_PEER_MAX, LEARNT_PER_PORT_MAX,
    SWEEP_INTERVAL_NS,
};

/// An Ethernet address.
type MacAddress = [u8; 6];

/// The address belongs to another port of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another port of the group has the address")]
pub struct AddressInUse;

/// The result of learning a source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learnt {
    /// The address is at this port already, or its peer advertised it: the entry stays where it is.
    Known,
    /// The address is new, or has moved from another learning port or from a peer.
    New,
    /// The address is configured at another port: the frame is forged.
    Forged,
    /// A quota is exhausted, and the table is unchanged. The frame may pass; frames to the address
    /// are flooded, or go to the port at which it was learnt before.
    Full,
}

#[derive(Debug, Clone, Copy)]
struct AddressEntry<P> {
    /// The port or peer that has the address.
    port: P,
    /// Time of the last frame; `None` for a configured address, which does not age.
    seen: Option<u64>,
    /// The peer advertised the address and will withdraw it. Frames by other paths, which may be
    /// late, do not move the entry, and the entry does not age.
    advertised: bool,
}

impl<P> AddressEntry<P> {
    /// Returns whether a learnt entry has aged; an advertised or configured entry never does.
    fn is_aged(&self, now_ns: u64) -> bool {
        let old = |seen| now_ns.saturating_sub(seen) >= LEARNT_AGE_NS;
        !self.advertised && self.seen.is_some_and(old)
    }
}

/// Addresses learnt at one port or peer.
#[derive(Debug, Clone, Copy, Default)]
struct LearntCount {
    /// Number of learnt addresses.
    addresses: usize,
    /// Whether the addresses are behind a peer, not at a local port.
    far: bool,
}

/// The addresses of one group; `P` identifies a port or a peer.
#[derive(Debug)]
pub struct AddressTable<P> {
    /// By [`number`].
    entries: Keyed<u64, AddressEntry<P>>,
    /// Learnt addresses of each port or peer that has any.
    learnt: HashMap<P, LearntCount>,
    /// Addresses learnt at all ports.
    near_total: usize,
    /// Addresses learnt behind all peers.
    far_total: usize,
    /// Time of the last sweep.
    swept: Option<u64>,
    /// Incremented with every change of a look-up's result.
    version: u64,
}

impl<P: Copy + Eq + Hash> Default for AddressTable<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Copy + Eq + Hash> AddressTable<P> {
    /// Returns an empty table.
    pub fn new() -> Self {
        let (entries, learnt) = (keyed(), HashMap::new());
        Self { entries, learnt, near_total: 0, far_total: 0, swept: None, version: 0 }
    }

    /// Enters the configured address of a port. An entry learnt at another port or peer is
    /// replaced.
    ///
    /// # Errors
    /// Returns [`AddressInUse`] if another port has the address configured.
    pub fn add(&mut self, address: MacAddress, port: P) -> Result<(), AddressInUse> {
        match self.entries.get(&number(address)) {
            Some(entry) if entry.seen.is_none() && entry.port != port => return Err(AddressInUse),
            Some(entry) if entry.seen.is_some() => {
                let port = entry.port;
                self.forget(port);
            }
            _ => {}
        }
        self.entries.insert(number(address), AddressEntry { port, seen: None, advertised: false });
        self.bump_version();
        Ok(())
    }

    /// Removes a port with all its addresses.
    pub fn remove(&mut self, port: P) {
        self.bump_version();
        self.entries.retain(|_, entry| entry.port != port);
        self.discount(port);
    }

    /// Forgets the addresses learnt at a port, because its guest was replaced.
    pub fn unlearn(&mut self, port: P) {
        self.bump_version();
        self.entries.retain(|_, entry| entry.port != port || entry.seen.is_none());
        self.discount(port);
    }

    /// Returns a number that changes whenever the result of a look-up may change, except by age
    /// ([`Self::lookup_until`]) and by [`Self::demote`].
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Increments the version, because other state has changed on which a cached next hop depends.
    pub fn invalidate(&mut self) {
        self.bump_version();
    }

    /// Forgets an address learnt at `port`. No effect if the address is at another port or
    /// configured.
    pub fn unlearn_at(&mut self, address: MacAddress, port: P) {
        let there = |entry: &AddressEntry<P>| entry.port == port && entry.seen.is_some();
        if self.entries.get(&number(address)).is_some_and(there) {
            self.entries.remove(&number(address));
            self.bump_version();
            self.forget(port);
        }
    }

    /// Increments the version.
    fn bump_version(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Returns the port with a configured address.
    pub fn configured(&self, number: u64) -> Option<P> {
        self.entries.get(&number).filter(|entry| entry.seen.is_none()).map(|entry| entry.port)
    }

    /// Returns the port or peer of `address`, or `None` if it is unknown or aged.
    #[inline]
    pub fn lookup(&self, address: MacAddress, now_ns: u64) -> Option<P> {
        self.lookup_until(address, now_ns).map(|(port, _)| port)
    }

    /// As [`Self::lookup`], with the time until which the result holds.
    #[inline]
    pub fn lookup_until(&self, address: MacAddress, now_ns: u64) -> Option<(P, u64)> {
        let entry = self.entries.get(&number(address)).filter(|entry| !entry.is_aged(now_ns))?;
        let until = entry.seen.map_or(u64::MAX, |seen| seen.saturating_add(LEARNT_AGE_NS));
        Some((entry.port, until))
    }

    /// Learns `address`, a unicast address, at `port`; an address learnt there before is young
    /// again.
    pub fn learn(&mut self, address: MacAddress, port: P, now_ns: u64) -> Learnt {
        self.record(address, port, false, now_ns)
    }

    /// As [`Self::learn`], for an address behind a peer, within the quotas of peers.
    pub fn learn_far(&mut self, address: MacAddress, peer: P, now_ns: u64) -> Learnt {
        self.record(address, peer, true, now_ns)
    }

    /// Learns `address` at `port`, within the quotas of peers if `far` is set, else within those of
    /// ports.
    fn record(&mut self, address: MacAddress, port: P, far: bool, now_ns: u64) -> Learnt {
        if let Some(entry) = self.entries.get_mut(&number(address)) {
            if entry.port == port {
                if entry.seen.is_some() {
                    entry.seen = Some(now_ns);
                }
                return Learnt::Known;
            }
            if entry.seen.is_none() {
                return Learnt::Forged;
            }
            if entry.advertised {
                return Learnt::Known;
            }
        }
        if !self.has_room(address, port, far, now_ns) {
            return Learnt::Full;
        }
        let entry = AddressEntry { port, seen: Some(now_ns), advertised: false };
        self.bump_version();
        if let Some(before) = self.entries.insert(number(address), entry) {
            self.forget(before.port);
        }
        let total = if far { &mut self.far_total } else { &mut self.near_total };
        *total = total.saturating_add(1);
        let count = self.learnt.entry(port).or_insert(LearntCount { addresses: 0, far });
        count.addresses = count.addresses.saturating_add(1);
        Learnt::New
    }

    /// As [`Self::learn_far`], for an address that the peer behind `port` advertised. It overrides
    /// learnt entries and those that another peer advertised, but not the configured address of a
    /// port. Beyond a quota the address is not entered; an entry of another peer stays as a learnt
    /// one.
    pub fn advertise(&mut self, address: MacAddress, port: P, now_ns: u64) {
        if let Some(entry) = self.entries.get_mut(&number(address)) {
            entry.advertised = false;
        }
        self.learn_far(address, port, now_ns);
        let there = |entry: &&mut AddressEntry<P>| entry.port == port && entry.seen.is_some();
        if let Some(entry) = self.entries.get_mut(&number(address)).filter(there) {
            entry.advertised = true;
        }
    }

    /// Treats advertised addresses of `port` as learnt, because the peer can no longer withdraw
    /// them: they age from their last frame or advertisement. The caller changes the version
    /// ([`Self::invalidate`]).
    pub fn demote(&mut self, port: P) {
        for entry in self.entries.values_mut().filter(|entry| entry.port == port) {
            entry.advertised = false;
        }
    }

    /// Returns the number of addresses learnt at `port`.
    pub fn learnt_at(&self, port: P) -> usize {
        self.learnt.get(&port).map_or(0, |count| count.addresses)
    }

    /// Returns the number of addresses, configured and learnt.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets aged addresses. Scans the whole table, so it is called rarely: by the table itself,
    /// at a full quota.
    pub fn sweep(&mut self, now_ns: u64) {
        self.bump_version();
        let mut gone = Vec::new();
        self.entries.retain(|_, entry| {
            let aged = entry.is_aged(now_ns);
            if aged {
                gone.push(entry.port);
            }
            !aged
        });
        for port in gone {
            self.forget(port);
        }
        self.swept = Some(now_ns);
    }

    /// Returns whether another address may be learnt at `port`, after a sweep if it is due.
    fn has_room(&mut self, address: MacAddress, port: P, far: bool, now_ns: u64) -> bool {
        if self.is_below_quota(address, port, far) {
            return true;
        }
        let due = self.swept.is_none_or(|swept| now_ns.saturating_sub(swept) >= SWEEP_INTERVAL_NS);
        if due {
            self.sweep(now_ns);
        }
        due && self.is_below_quota(address, port, far)
    }

    /// Returns whether the quotas allow another address at `port`.
    fn is_below_quota(&self, address: MacAddress, port: P, far: bool) -> bool {
        let (total, all, each) = match far {
            false => (self.near_total, LEARNT_PER_GROUP_MAX, LEARNT_PER_PORT_MAX),
            true => (self.far_total, LEARNT_FAR_MAX, LEARNT_PER_PEER_MAX),
        };
        // An address that moves frees its entry, if it counts in the same quota.
        let at = self.entries.get(&number(address)).and_then(|entry| self.learnt.get(&entry.port));
        let moves = at.is_some_and(|count| count.far == far);
        (moves || total < all) && self.learnt_at(port) < each
    }

    /// Subtracts all learnt addresses of `port` from the totals.
    fn discount(&mut self, port: P) {
        let LearntCount { addresses, far } = self.learnt.remove(&port).unwrap_or_default();
        let total = if far { &mut self.far_total } else { &mut self.near_total };
        *total = total.saturating_sub(addresses);
    }

    /// Subtracts one learnt address of `port` from the totals.
    fn forget(&mut self, port: P) {
        if let Slot::Occupied(mut entry) = self.learnt.entry(port) {
            let count = entry.get_mut();
            count.addresses = count.addresses.saturating_sub(1);
            let total = if count.far { &mut self.far_total } else { &mut self.near_total };
            *total = total.saturating_sub(1);
            if count.addresses == 0 {
                entry.remove();
            }
        }
    }
}
