//! The connections of a shard, found by the addresses of a packet.
//!
//! `crate::transmit` looks up each packet of a guest by its [`ConnKey`]; the same connection has a
//! key for each guest. The connection of a process is found by the token of its socket; it has a key
//! if the process has the CID of a port, which keeps its addresses unique, and none as CID 2.
//! Deliveries, stalls, expiries and lists keep a [`ConnId`], which is stable, and becomes stale
//! when its connection is removed; look-ups then return `None`.
//!
//! The table holds at most [`CONNECTIONS_MAX`] (262,144) connections, and no two with equal
//! addresses; otherwise [`ConnTable::insert`] returns `None`, and `crate::transmit` or
//! `crate::host` refuses the connect. The limit of a port is its caller's. The table belongs to the
//! thread of the shard. The addresses of the last [`ENDED_MAX`] (4,096) ended connections are
//! remembered, so that late packets are recognized ([`Conn::is_reused`](crate::conn::Conn)). The
//! table sends no resets and knows no time.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_fabric::keyed::{Keyed, keyed};

use crate::conn::{Conn, Role};
use crate::limits::{CONNECTIONS_MAX, ENDED_MAX};

/// Identifies a connection; the serial distinguishes it from earlier connections in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    /// Index of the slot in the table.
    index: u32,
    /// Number of the use of the slot.
    serial: u32,
}

/// Addresses of a connection as a guest's packets carry them. Guests choose these values, so the
/// map hashes them with a secret key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnKey {
    /// Port of the guest.
    pub port: PortId,
    /// CID of the peer.
    pub peer_cid: u32,
    /// Port number of the guest.
    pub local_port: u32,
    /// Port number of the peer.
    pub peer_port: u32,
}

/// A slot of the table.
#[derive(Debug)]
struct TableEntry {
    /// Number of the use of the slot, which makes earlier [`ConnId`]s stale.
    serial: u32,
    /// The connection; `None` in a free slot.
    conn: Option<Conn>,
    /// Positions of its sides in their ports' lists, by [`Role`].
    positions: [u32; 2],
}

/// The connections of each port, by its slot, so that the work for a guest grows with the
/// connections of that guest only.
#[derive(Debug, Default)]
struct ByPort(Vec<Vec<(ConnId, Role)>>);

impl ByPort {
    /// Returns the sides at the port in `slot`.
    fn of(&self, slot: usize) -> &[(ConnId, Role)] {
        self.0.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Adds a side of a connection, and returns its position.
    fn push(&mut self, slot: usize, id: ConnId, role: Role) -> u32 {
        if self.0.len() <= slot {
            self.0.resize_with(slot.saturating_add(1), Vec::new);
        }
        let Some(list) = self.0.get_mut(slot) else { return 0 };
        list.push((id, role));
        u32::try_from(list.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Removes the entry at a position; returns the entry that takes the position.
    fn remove(&mut self, slot: usize, position: u32) -> Option<(ConnId, Role)> {
        let list = self.0.get_mut(slot)?;
        let position = usize::try_from(position).ok().filter(|at| *at < list.len())?;
        list.swap_remove(position);
        list.get(position).copied()
    }
}

/// The connections of a shard.
#[derive(Debug)]
pub struct ConnTable {
    /// Slots, by the index of [`ConnId`].
    entries: Vec<TableEntry>,
    /// Free slots.
    free: Vec<u32>,
    /// Connection and side of each guest's addresses.
    keys: Keyed<ConnKey, (ConnId, Role)>,
    /// Connections by port.
    by_port: ByPort,
    /// Last result: packets arrive in runs.
    last: Option<(ConnKey, ConnId, Role)>,
    /// Addresses of the last [`ENDED_MAX`] ended connections, in order, as the first guest of each
    /// knows them.
    ended: VecDeque<ConnKey>,
    /// Number of occurrences in `ended`.
    counts: Keyed<ConnKey, u32>,
}

/// Returns the keys of a connection's sides at ports.
fn keys_of(conn: &Conn) -> impl Iterator<Item = (ConnKey, Role)> {
    [Role::Caller, Role::Callee].into_iter().filter_map(move |role| {
        let (own, peer) = (conn.side(role), conn.side(role.other()));
        let port = own.owner()?;
        let key = ConnKey { port, peer_cid: peer.cid, local_port: own.port, peer_port: peer.port };
        Some((key, role))
    })
}

impl Default for ConnTable {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            keys: keyed(),
            by_port: ByPort::default(),
            last: None,
            ended: VecDeque::new(),
            counts: keyed(),
        }
    }
}

impl ConnTable {
    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.entries.len().saturating_sub(self.free.len())
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
                let index = u32::try_from(self.entries.len()).ok()?;
                self.entries.push(TableEntry { serial: 0, conn: None, positions: [0; 2] });
                index
            }
        };
        let entry = self.entries.get_mut(index as usize)?;
        entry.serial = entry.serial.wrapping_add(1);
        let id = ConnId { index, serial: entry.serial };
        for (key, role) in keys_of(&conn) {
            self.keys.insert(key, (id, role));
            if let Some(position) = entry.positions.get_mut(role as usize) {
                *position = self.by_port.push(key.port.slot(), id, role);
            }
        }
        let first = keys_of(&conn).next();
        conn.is_reused = first.is_some_and(|(key, _)| self.counts.contains_key(&key));
        entry.conn = Some(conn);
        Some(id)
    }

    /// Returns the connection of a guest's packet, and the guest's side; `None` if no connection
    /// has the addresses.
    #[inline]
    pub fn find(&mut self, key: ConnKey) -> Option<(ConnId, Role)> {
        if let Some((last, id, role)) = self.last
            && last == key
        {
            return Some((id, role));
        }
        let (id, role) = *self.keys.get(&key)?;
        self.last = Some((key, id, role));
        Some((id, role))
    }

    /// Returns the connection if it exists.
    #[inline]
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        let entry = self.entries.get(id.index as usize)?;
        entry.conn.as_ref().filter(|_| entry.serial == id.serial)
    }

    /// Returns the connection if it exists.
    #[inline]
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let entry = self.entries.get_mut(id.index as usize)?;
        entry.conn.as_mut().filter(|_| entry.serial == id.serial)
    }

    /// Removes a connection and returns it.
    pub fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let entry = self.entries.get_mut(id.index as usize)?;
        let conn = entry.conn.take_if(|_| entry.serial == id.serial)?;
        let positions = entry.positions;
        for (key, role) in keys_of(&conn) {
            self.leave_port(key.port, positions.get(role as usize).copied());
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

    /// Removes the key of side `role`, which has ended the connection and may reuse its port
    /// number. The connection stays, and packets of that side no longer find it.
    pub fn unkey(&mut self, id: ConnId, role: Role) {
        let Some(conn) = self.get(id) else { return };
        let key = keys_of(conn).find(|(_, w)| *w == role).map(|(key, _)| key);
        if let Some(key) = key {
            self.keys.remove(&key);
            self.last = None;
        }
    }

    /// Removes the entry at `position` from the list of a port.
    fn leave_port(&mut self, port: PortId, position: Option<u32>) {
        let Some(position) = position else { return };
        if let Some((moved, role)) = self.by_port.remove(port.slot(), position)
            && let Some(entry) = self.entries.get_mut(moved.index as usize)
            && let Some(entry) = entry.positions.get_mut(role as usize)
        {
            *entry = position;
        }
    }

    /// Returns `slot` and the slots after it, each with its connection; `None` for a free slot.
    pub(crate) fn slots_after(&self, slot: u32) -> impl Iterator<Item = (u32, Option<&Conn>)> {
        let entries = self.entries.get(slot as usize..).unwrap_or_default();
        (slot..).zip(entries).map(|(slot, entry)| (slot, entry.conn.as_ref()))
    }

    /// Returns the connections of a port with the port's side, in time that grows with their number
    /// only.
    pub fn of_port(&self, port: PortId) -> impl Iterator<Item = (ConnId, Role)> {
        let of = self.by_port.of(port.slot()).iter().copied();
        of.filter(move |(id, role)| {
            self.get(*id).is_some_and(|conn| conn.side(*role).owner() == Some(port))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ByPort, ConnId};
    use crate::conn::Role;

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
            all.push((id, slot, lists.push(slot, id, Role::Caller)));
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
            assert_eq!(lists.of(*slot)[*position as usize], (*id, Role::Caller));
        }
        assert!(lists.of(1).is_empty() && lists.of(99).is_empty());
    }
}
