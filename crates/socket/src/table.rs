//! The connections of a shard, found by the addresses of a packet.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_fabric::keyed::{Keyed, keyed};

use crate::conn::{Conn, Which};
use crate::limits::{CONNECTIONS_MAX, ENDED_MAX};

/// Identifies a connection; the serial distinguishes it from earlier connections in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    index: u32,
    serial: u32,
}

/// Addresses of a connection as a guest's packets carry them. Guests choose these values, so the
/// map hashes them with a secret key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Port of the guest.
    pub seat: PortId,
    /// CID of the peer.
    pub peer_cid: u32,
    /// Port number of the guest.
    pub local_port: u32,
    /// Port number of the peer.
    pub peer_port: u32,
}

#[derive(Debug)]
struct Place {
    serial: u32,
    conn: Option<Conn>,
    /// Positions of its sides in their ports' lists, by [`Role`].
    positions: [u32; 2],
}

/// The connections of each port, by its slot, so that the work for a guest grows with the
/// connections of that guest only.
#[derive(Debug, Default)]
struct ByPort(Vec<Vec<(ConnId, Which)>>);

impl ByPort {
    fn of(&self, slot: usize) -> &[(ConnId, Which)] {
        self.0.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Adds a side of a connection, and returns its position.
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

/// The connections of a shard.
#[derive(Debug)]
pub struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
    keys: Keyed<Key, (ConnId, Which)>,
    by_port: ByPort,
    /// Last result: packets arrive in runs.
    last: Option<(Key, ConnId, Which)>,
    /// Addresses of the last [`ENDED_MAX`] ended connections, in order, as the first guest of each
    /// knows them.
    ended: VecDeque<Key>,
    /// Number of occurrences in `ended`.
    counts: Keyed<Key, u32>,
}

/// Returns the keys of a connection's guests.
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
    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.places.len().saturating_sub(self.free.len())
    }

    /// Returns whether the table has no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a connection; `None` if the table is full, or a connection with the same addresses
    /// exists.
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

    /// Returns the connection of a guest's packet, and the guest's side.
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

    /// Returns the connection if it exists.
    #[inline]
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        let place = self.places.get(id.index as usize)?;
        place.conn.as_ref().filter(|_| place.serial == id.serial)
    }

    /// Returns the connection if it exists.
    #[inline]
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let place = self.places.get_mut(id.index as usize)?;
        place.conn.as_mut().filter(|_| place.serial == id.serial)
    }

    /// Removes a connection and returns it.
    pub fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let place = self.places.get_mut(id.index as usize)?;
        let conn = place.conn.take_if(|_| place.serial == id.serial)?;
        let positions = place.positions;
        for (key, which) in keys_of(&conn) {
            self.leave_port(key.seat, positions.get(which as usize).copied());
            // A side that was unkeyed may have reused its addresses.
            if self.keys.get(&key).is_some_and(|(owner, _)| *owner == id) {
                self.keys.remove(&key);
            }
        }
        self.last = None;
        self.free.push(id.index);
        self.remember(&conn);
        Some(conn)
    }

    /// Remembers the addresses of an ended connection.
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

    /// Removes the key of side `which`, which has ended the connection and may reuse its port
    /// number.
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

    /// Returns the connections of a port with the port's side, in time that grows with their number
    /// only.
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

    /// Returns distinct identifiers.
    pub fn ids(count: usize) -> Vec<ConnId> {
        (0_u32..).take(count).map(|index| ConnId { index, serial: 1 }).collect()
    }

    #[test]
    fn table_lists_the_connections_of_each_port_alone() {
        let mut lists = ByPort::default();
        // The state that the table keeps: slot of the port and position.
        let mut all: Vec<(ConnId, usize, u32)> = Vec::new();
        for (number, id) in ids(3000).into_iter().enumerate() {
            let slot = number % 3 * 7;
            all.push((id, slot, lists.push(slot, id, Which::Caller)));
            // Removes from the middle, so that entries move.
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
