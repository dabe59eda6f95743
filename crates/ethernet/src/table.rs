//! Who is where in one group: addresses to ports.
//!
//! Every port has its configured address for good. A port that learns may have
//! others behind it; those are remembered as they send, within a quota, and
//! forgotten when they fall silent. Guests choose the keys, so the hash is keyed.
//! Times are in nanoseconds of any one monotonic clock.

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
type Address = [u8; 6];

/// The address belongs to another port of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address is another port's in the same group")]
pub struct Taken;

/// What became of a frame's source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learnt {
    /// It is known to be there.
    Known,
    /// It is new, or has moved from another learning port.
    New,
    /// It is another port's configured address: the frame is a forgery.
    Forged,
    /// There is no room; the frame may pass, its answers will be flooded.
    Full,
}

#[derive(Debug, Clone, Copy)]
struct Place<P> {
    port: P,
    /// When it was last seen; `None`: configured, and never forgotten.
    seen: Option<u64>,
    /// Its peer said so itself, and says when it is no more: frames from elsewhere, which may be
    /// late, do not change it, and it is not forgotten for its silence.
    told: bool,
}

impl<P> Place<P> {
    fn aged(&self, now_ns: u64) -> bool {
        let old = |seen| now_ns.saturating_sub(seen) >= LEARNT_AGE_NS;
        !self.told && self.seen.is_some_and(old)
    }
}

/// How many addresses were learnt at one place.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    addresses: usize,
    /// Whether it is a peer.
    far: bool,
}

/// The addresses of one group; `P` names a port, or a peer.
#[derive(Debug)]
pub struct Table<P> {
    /// By the addresses' numbers.
    places: Keyed<u64, Place<P>>,
    /// Addresses learnt at each port or peer that has any, and at all ports, and all peers.
    learnt: HashMap<P, Count>,
    near_total: usize,
    far_total: usize,
    swept: Option<u64>,
    /// Counts the changes of who is where.
    version: u64,
}

impl<P: Copy + Eq + Hash> Default for Table<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Copy + Eq + Hash> Table<P> {
    /// An empty table.
    pub fn new() -> Self {
        let (places, learnt) = (keyed(), HashMap::new());
        Self { places, learnt, near_total: 0, far_total: 0, swept: None, version: 0 }
    }

    /// Enters the configured address of a port. An address learnt elsewhere is forgotten.
    ///
    /// # Errors
    /// [`Taken`] when another port has it configured.
    pub fn add(&mut self, address: Address, port: P) -> Result<(), Taken> {
        match self.places.get(&number(address)) {
            Some(place) if place.seen.is_none() && place.port != port => return Err(Taken),
            Some(place) if place.seen.is_some() => {
                let port = place.port;
                self.forget(port);
            }
            _ => {}
        }
        self.places.insert(number(address), Place { port, seen: None, told: false });
        self.changed();
        Ok(())
    }

    /// Removes a port with all its addresses.
    pub fn remove(&mut self, port: P) {
        self.changed();
        self.places.retain(|_, place| place.port != port);
        self.discount(port);
    }

    /// Forgets what was learnt at a port: its guest is another now.
    pub fn unlearn(&mut self, port: P) {
        self.changed();
        self.places.retain(|_, place| place.port != port || place.seen.is_none());
        self.discount(port);
    }

    /// Another number whenever an address is added, moved or removed: what was looked up before
    /// may no longer hold.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Something else changed that look-ups depend on.
    pub fn touch(&mut self) {
        self.changed();
    }

    /// Forgets that an address was learnt at `port`.
    pub fn unlearn_at(&mut self, address: Address, port: P) {
        let there = |place: &Place<P>| place.port == port && place.seen.is_some();
        if self.places.get(&number(address)).is_some_and(there) {
            self.places.remove(&number(address));
            self.changed();
            self.forget(port);
        }
    }

    fn changed(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// The port that has an address configured.
    pub fn configured(&self, number: u64) -> Option<P> {
        self.places.get(&number).filter(|place| place.seen.is_none()).map(|place| place.port)
    }

    /// Where frames to `address` go; aged addresses are unknown.
    #[inline]
    pub fn lookup(&self, address: Address, now_ns: u64) -> Option<P> {
        self.lookup_until(address, now_ns).map(|(port, _)| port)
    }

    /// The same, and until when that holds if nothing changes.
    #[inline]
    pub fn lookup_until(&self, address: Address, now_ns: u64) -> Option<(P, u64)> {
        let place = self.places.get(&number(address)).filter(|place| !place.aged(now_ns))?;
        let until = place.seen.map_or(u64::MAX, |seen| seen.saturating_add(LEARNT_AGE_NS));
        Some((place.port, until))
    }

    /// Notes that learning port `port` sent a frame from `address`, a unicast address.
    pub fn learn(&mut self, address: Address, port: P, now_ns: u64) -> Learnt {
        self.note(address, port, false, now_ns)
    }

    /// As [`Self::learn`], of an address behind a peer: within the quota of peers.
    pub fn learn_far(&mut self, address: Address, peer: P, now_ns: u64) -> Learnt {
        self.note(address, peer, true, now_ns)
    }

    fn note(&mut self, address: Address, port: P, far: bool, now_ns: u64) -> Learnt {
        if let Some(place) = self.places.get_mut(&number(address)) {
            if place.port == port {
                if place.seen.is_some() {
                    place.seen = Some(now_ns);
                }
                return Learnt::Known;
            }
            if place.seen.is_none() {
                return Learnt::Forged;
            }
            if place.told {
                return Learnt::Known;
            }
        }
        if !self.has_room(address, port, far, now_ns) {
            return Learnt::Full;
        }
        let place = Place { port, seen: Some(now_ns), told: false };
        self.changed();
        if let Some(before) = self.places.insert(number(address), place) {
            self.forget(before.port);
        }
        let total = if far { &mut self.far_total } else { &mut self.near_total };
        *total = total.saturating_add(1);
        let count = self.learnt.entry(port).or_insert(Count { addresses: 0, far });
        count.addresses = count.addresses.saturating_add(1);
        Learnt::New
    }

    /// As [`Self::learn_far`], but the peer behind `port` says so itself, which counts more.
    pub fn tell(&mut self, address: Address, port: P, now_ns: u64) {
        if let Some(place) = self.places.get_mut(&number(address)) {
            place.told = false;
        }
        self.learn_far(address, port, now_ns);
        let there = |place: &&mut Place<P>| place.port == port && place.seen.is_some();
        if let Some(place) = self.places.get_mut(&number(address)).filter(there) {
            place.told = true;
        }
    }

    /// What a peer said counts no more than frames do: it cannot take it back now.
    pub fn doubt(&mut self, port: P) {
        for place in self.places.values_mut().filter(|place| place.port == port) {
            place.told = false;
        }
    }

    /// How many addresses are learnt at `port`.
    pub fn learnt_at(&self, port: P) -> usize {
        self.learnt.get(&port).map_or(0, |count| count.addresses)
    }

    /// How many addresses there are, configured and learnt.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Forgets aged addresses. Looks at the whole table: for a timer, not for every frame.
    pub fn sweep(&mut self, now_ns: u64) {
        self.changed();
        let mut gone = Vec::new();
        self.places.retain(|_, place| {
            let aged = place.aged(now_ns);
            if aged {
                gone.push(place.port);
            }
            !aged
        });
        for port in gone {
            self.forget(port);
        }
        self.swept = Some(now_ns);
    }

    /// Whether one more address may be learnt at `port`, after a sweep if one is due.
    fn has_room(&mut self, address: Address, port: P, far: bool, now_ns: u64) -> bool {
        if self.room(address, port, far) {
            return true;
        }
        let due = self.swept.is_none_or(|swept| now_ns.saturating_sub(swept) >= SWEEP_INTERVAL_NS);
        if due {
            self.sweep(now_ns);
        }
        due && self.room(address, port, far)
    }

    fn room(&self, address: Address, port: P, far: bool) -> bool {
        let (total, all, each) = match far {
            false => (self.near_total, LEARNT_PER_GROUP_MAX, LEARNT_PER_PORT_MAX),
            true => (self.far_total, LEARNT_FAR_MAX, LEARNT_PER_PEER_MAX),
        };
        // One that moves gives its room back where it was, if that counts here.
        let at = self.places.get(&number(address)).and_then(|place| self.learnt.get(&place.port));
        let moves = at.is_some_and(|count| count.far == far);
        (moves || total < all) && self.learnt_at(port) < each
    }

    /// Counts all learnt addresses of `port` off.
    fn discount(&mut self, port: P) {
        let Count { addresses, far } = self.learnt.remove(&port).unwrap_or_default();
        let total = if far { &mut self.far_total } else { &mut self.near_total };
        *total = total.saturating_sub(addresses);
    }

    /// Counts one learnt address of `port` off.
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
