//! All connections, found by what a packet says.

use causeway_fabric::PortId;
use causeway_fabric::keyed::{Keyed, keyed};

use crate::conn::{Conn, Which};
use crate::limits::CONNECTIONS_MAX;

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
}

/// The connections of one daemon.
#[derive(Debug)]
pub struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
    keys: Keyed<Key, (ConnId, Which)>,
    /// The last find: packets come in runs.
    last: Option<(Key, ConnId, Which)>,
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
        Self { places: Vec::new(), free: Vec::new(), keys: keyed(), last: None }
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
    pub fn insert(&mut self, conn: Conn) -> Option<ConnId> {
        if self.len() >= CONNECTIONS_MAX || keys_of(&conn).any(|(k, _)| self.keys.contains_key(&k))
        {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                self.places.push(Place { serial: 0, conn: None });
                index
            }
        };
        let place = self.places.get_mut(index as usize)?;
        place.serial = place.serial.wrapping_add(1);
        let id = ConnId { index, serial: place.serial };
        for (key, which) in keys_of(&conn) {
            self.keys.insert(key, (id, which));
        }
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
        for (key, _) in keys_of(&conn) {
            // A side that was unkeyed may have used its numbers again.
            if self.keys.get(&key).is_some_and(|(owner, _)| *owner == id) {
                self.keys.remove(&key);
            }
        }
        self.last = None;
        self.free.push(id.index);
        Some(conn)
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

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let index = u32::try_from(index).ok()?;
            Some((ConnId { index, serial: place.serial }, place.conn.as_ref()?))
        })
    }

    /// All connections.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Conn)> {
        self.places.iter_mut().enumerate().filter_map(|(index, place)| {
            let index = u32::try_from(index).ok()?;
            Some((ConnId { index, serial: place.serial }, place.conn.as_mut()?))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::ConnId;

    /// Names of connections, all different.
    pub fn ids(count: usize) -> Vec<ConnId> {
        (0_u32..).take(count).map(|index| ConnId { index, serial: 1 }).collect()
    }
}
