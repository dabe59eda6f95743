//! All connections, found by what a packet says.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_fabric::keyed::{Keyed, keyed};

use crate::conn::{Conn, Which};
use crate::limits::{CONNECTIONS_MAX, ENDED_MAX};

/// Names a connection while it lives; the serial tells it from others that had its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    index: u32,
    serial: u32,
}

/// What a guest's packet says of its connection. Guests choose these values, so the map over
/// them hashes with a secret key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The guest's port.
    pub seat: PortId,
    /// The other side's CID.
    pub peer_cid: u32,
    /// The guest's own port number.
    pub local_port: u32,
    /// The other side's port number.
    pub peer_port: u32,
}

#[derive(Debug)]
struct Place {
    serial: u32,
    conn: Option<Conn>,
    /// Where its sides stand in their ports' lists, by [`Which`].
    positions: [u32; 2],
}

/// The connections of each port, by its slot, so that the work for one guest grows with the connections of that
/// guest only.
#[derive(Debug, Default)]
struct ByPort(Vec<Vec<(ConnId, Which)>>);

impl ByPort {
    fn of(&self, slot: usize) -> &[(ConnId, Which)] {
        self.0.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Adds a side of a connection and returns its position.
    fn push(&mut self, slot: usize, id: ConnId, which: Which) -> u32 {
        if self.0.len() <= slot {
            self.0.resize_with(slot.saturating_add(1), Vec::new);
        }
        let Some(list) = self.0.get_mut(slot) else { return 0 };
        list.push((id, which));
        u32::try_from(list.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Removes the entry at a position; returns the entry that takes the position.
    fn remove(&mut self, slot: usize, position: u32) -> Option<(ConnId, Which)> {
        let list = self.0.get_mut(slot)?;
        let position = usize::try_from(position).ok().filter(|at| *at < list.len())?;
        list.swap_remove(position);
        list.get(position).copied()
    }
}

/// The connections of one daemon.
#[derive(Debug)]
pub struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
    keys: Keyed<Key, (ConnId, Which)>,
    by_port: ByPort,
    /// The last find: packets come in runs.
    last: Option<(Key, ConnId, Which)>,
    /// Ends of connections that have ended, each as its first guest knows them; in the order of
    /// their ends, the last [`ENDED_MAX`].
    ended: VecDeque<Key>,
    /// How often each is in `ended`.
    counts: Keyed<Key, u32>,
}

/// The keys of a connection's guests.
fn keys_of(conn: &Conn) -> impl Iterator<Item = (Key, Which)> {
    [Which::Caller, Which::Callee].into_iter().filter_map(move |which| {
        let (own, peer) = (conn.side(which), conn.side(which.other()));
        let seat = own.guest()?;
        let key = Key { seat, peer_cid: peer.cid, local_port: own.port, peer_port: peer.port };
        Some((key, which))
    })
}

impl Default for Table {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            keys: keyed(),
            by_port: ByPort::default(),
            last: None,
            ended: VecDeque::new(),
            counts: keyed(),
        }
    }
}

impl Table {
    /// Connections in all.
    pub fn len(&self) -> usize {
        self.places.len().saturating_sub(self.free.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a connection; `None` if there are too many, or one of the same ends exists.
    pub fn insert(&mut self, mut conn: Conn) -> Option<ConnId> {
        if self.len() >= CONNECTIONS_MAX || keys_of(&conn).any(|(k, _)| self.keys.contains_key(&k))
        {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                self.places.push(Place { serial: 0, conn: None, positions: [0; 2] });
                index
            }
        };
        let place = self.places.get_mut(index as usize)?;
        place.serial = place.serial.wrapping_add(1);
        let id = ConnId { index, serial: place.serial };
        for (key, which) in keys_of(&conn) {
            self.keys.insert(key, (id, which));
            if let Some(position) = place.positions.get_mut(which as usize) {
                *position = self.by_port.push(key.seat.slot(), id, which);
            }
        }
        let first = keys_of(&conn).next();
        conn.reused = first.is_some_and(|(key, _)| self.counts.contains_key(&key));
        place.conn = Some(conn);
        Some(id)
    }

    /// The connection that a guest's packet belongs to, and the guest's side of it.
    #[inline]
    pub fn find(&mut self, key: Key) -> Option<(ConnId, Which)> {
        if let Some((last, id, which)) = self.last
            && last == key
        {
            return Some((id, which));
        }
        let (id, which) = *self.keys.get(&key)?;
        self.last = Some((key, id, which));
        Some((id, which))
    }

    /// The connection, if it still lives.
    #[inline]
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        let place = self.places.get(id.index as usize)?;
        place.conn.as_ref().filter(|_| place.serial == id.serial)
    }

    /// The connection, if it still lives.
    #[inline]
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let place = self.places.get_mut(id.index as usize)?;
        place.conn.as_mut().filter(|_| place.serial == id.serial)
    }

    /// Takes a connection out.
    pub fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let place = self.places.get_mut(id.index as usize)?;
        let conn = place.conn.take_if(|_| place.serial == id.serial)?;
        let positions = place.positions;
        for (key, which) in keys_of(&conn) {
            self.leave_port(key.seat, positions.get(which as usize).copied());
            // A side that was unkeyed may have used its numbers again.
            if self.keys.get(&key).is_some_and(|(owner, _)| *owner == id) {
                self.keys.remove(&key);
            }
        }
        self.last = None;
        self.free.push(id.index);
        self.remember(&conn);
        Some(conn)
    }

    /// Remembers the ends of a connection that has ended.
    fn remember(&mut self, conn: &Conn) {
        let Some((key, _)) = keys_of(conn).next() else { return };
        if self.ended.len() >= ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.ended.push_back(key);
        let count = self.counts.entry(key).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// Forgets how to find the connection from side `which`: that side is done with it, and may
    /// use its port number again.
    pub fn unkey(&mut self, id: ConnId, which: Which) {
        let Some(conn) = self.get(id) else { return };
        let key = keys_of(conn).find(|(_, w)| *w == which).map(|(key, _)| key);
        if let Some(key) = key {
            self.keys.remove(&key);
            self.last = None;
        }
    }

    /// Removes the entry at `position` from the list of a port.
    fn leave_port(&mut self, port: PortId, position: Option<u32>) {
        let Some(position) = position else { return };
        if let Some((moved, which)) = self.by_port.remove(port.slot(), position)
            && let Some(place) = self.places.get_mut(moved.index as usize)
            && let Some(place) = place.positions.get_mut(which as usize)
        {
            *place = position;
        }
    }

    /// The connections that a port is a side of, and which side: in time that grows with their
    /// number only.
    pub fn of_port(&self, port: PortId) -> impl Iterator<Item = (ConnId, Which)> {
        let of = self.by_port.of(port.slot()).iter().copied();
        of.filter(move |(id, which)| {
            self.get(*id).is_some_and(|conn| conn.side(*which).guest() == Some(port))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ByPort, ConnId};
    use crate::conn::Which;

    /// Names of connections, all different.
    pub fn ids(count: usize) -> Vec<ConnId> {
        (0_u32..).take(count).map(|index| ConnId { index, serial: 1 }).collect()
    }

    #[test]
    fn table_lists_the_connections_of_each_port_alone() {
        let mut lists = ByPort::default();
        // What is listed, as the table keeps it: the port's slot and the position.
        let mut all: Vec<(ConnId, usize, u32)> = Vec::new();
        for (number, id) in ids(3000).into_iter().enumerate() {
            let slot = number % 3 * 7;
            all.push((id, slot, lists.push(slot, id, Which::Caller)));
            // From the middle, so that entries move.
            if number % 4 != 0 {
                let (gone, slot, position) = all.swap_remove(all.len() / 2);
                assert_eq!(lists.of(slot)[position as usize].0, gone);
                if let Some((moved, _)) = lists.remove(slot, position) {
                    all.iter_mut().find(|(id, ..)| *id == moved).unwrap().2 = position;
                }
            }
        }
        for slot in [0, 7, 14] {
            let expected = all.iter().filter(|(_, of, _)| *of == slot).count();
            assert_eq!(lists.of(slot).len(), expected);
        }
        for (id, slot, position) in &all {
            assert_eq!(lists.of(*slot)[*position as usize], (*id, Which::Caller));
        }
        assert!(lists.of(1).is_empty() && lists.of(99).is_empty());
    }
}
