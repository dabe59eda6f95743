//! The ledger: a file with a port's open connections, which survives this process.
//!
//! A guest whose frontend is held while causewayd is replaced does not know that its connections
//! are gone, and would wait forever if it only receives. Each connection is therefore recorded in a
//! small file from its start until its guest has received its end: one write each. The next
//! causewayd resets the recorded connections. The ledger holds addresses and no data.
//!
//! Only ports behind the holder have a ledger: their socket's name ends in [`HELD_EXTENSION`], and
//! the file lies beside the socket.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::limits::CONNECTIONS_PER_PORT_MAX;
use crate::table::ConnId;

/// Extension of a held port's socket.
pub const HELD_EXTENSION: &str = "inner";
/// Extension of its ledger.
const EXTENSION: &str = "open";
const ENTRY_BYTES: usize = 16;
/// Twice the connections: as many may have ended while their guest receives no resets.
const ENTRIES_MAX: usize = 2 * CONNECTIONS_PER_PORT_MAX;
/// Mark of an entry in use, which precedes the socket type.
const OPEN: u16 = 0x6f70;

/// A connection as its guest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// CID of the peer.
    pub peer_cid: u32,
    /// Port number of the guest.
    pub local_port: u32,
    /// Port number of the peer.
    pub peer_port: u32,
    /// Socket type, as in a packet.
    pub kind: u16,
}

/// Position of a connection in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(u32);

/// The ledger of a port.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    free: Vec<u32>,
    /// First entry that was never used.
    fresh: u32,
    places: HashMap<ConnId, u32>,
    /// Connections that the last process left open.
    left: Vec<(u32, Open)>,
}

/// Returns the path of the ledger of the port at `socket`; `None` if the holder does not hold the
/// port.
fn path_of(socket: &Path) -> Option<PathBuf> {
    let held = socket.extension().is_some_and(|extension| extension == HELD_EXTENSION);
    held.then(|| socket.with_extension(EXTENSION))
}

impl Ledger {
    /// Opens the ledger of the port at `socket`, if the port is held.
    ///
    /// # Errors
    /// The host refuses the file.
    pub fn of(socket: &Path) -> io::Result<Option<Self>> {
        path_of(socket).map(Self::open).transpose()
    }

    fn open(path: PathBuf) -> io::Result<Self> {
        let len = ENTRIES_MAX.saturating_mul(ENTRY_BYTES);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        file.set_len(len as u64)?;
        let mut ledger = Self {
            path,
            file,
            free: Vec::new(),
            fresh: 0,
            places: HashMap::new(),
            left: Vec::new(),
        };
        ledger.read(len)?;
        Ok(ledger)
    }

    /// Reads the connections that the last process left.
    fn read(&mut self, len: usize) -> io::Result<()> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, 0)?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        for (place, entry) in (0_u32..).zip(entries) {
            if let Some(open) = parse(entry) {
                self.left.push((place, open));
                self.free.extend(self.fresh..place);
                self.fresh = place.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Returns the connections that the last process left open. Each stays in the file until it is
    /// cleared.
    pub fn take_left(&mut self) -> Vec<(Entry, Open)> {
        let left = std::mem::take(&mut self.left);
        left.into_iter().map(|(place, open)| (Entry(place), open)).collect()
    }

    /// Clears the connections that the last process left: their guest is gone.
    pub fn drop_left(&mut self) {
        for (entry, _) in self.take_left() {
            self.settle(entry);
        }
    }

    /// Clears an entry: the guest has its reset, or is gone.
    pub fn settle(&mut self, Entry(place): Entry) {
        // An entry that stays causes a superfluous reset, which guests ignore.
        let _ = self.file.write_all_at(&[0; ENTRY_BYTES], at(place));
        self.free.push(place);
    }

    /// Records a connection; a full ledger skips it.
    pub fn note(&mut self, id: ConnId, open: Open) {
        let place = match self.free.pop() {
            Some(place) => place,
            None if (self.fresh as usize) < ENTRIES_MAX => {
                let place = self.fresh;
                self.fresh = self.fresh.saturating_add(1);
                place
            }
            None => return,
        };
        let Open { peer_cid, local_port, peer_port, kind } = open;
        let words = [peer_cid, local_port, peer_port].map(u32::to_le_bytes).concat();
        let entry = [&words[..], &OPEN.to_le_bytes(), &kind.to_le_bytes()].concat();
        // A connection that is not recorded ends when either side next sends a packet.
        let _ = self.file.write_all_at(&entry, at(place));
        self.places.insert(id, place);
    }

    /// Clears a connection that has ended with its guest's knowledge.
    pub fn forget(&mut self, id: ConnId) {
        if let Some(entry) = self.ended(id) {
            self.settle(entry);
        }
    }

    /// Returns the entry of a connection that has ended; the caller clears it once the guest has
    /// its reset.
    pub fn ended(&mut self, id: ConnId) -> Option<Entry> {
        self.places.remove(&id).map(Entry)
    }

    /// Removes the file of a deleted port.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn at(place: u32) -> u64 {
    u64::from(place).saturating_mul(ENTRY_BYTES as u64)
}

fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Open> {
    let (words, _) = bytes.as_chunks::<4>();
    let [peer_cid, local_port, peer_port, [m0, m1, k0, k1]] = *words else { return None };
    let open = Open {
        peer_cid: u32::from_le_bytes(peer_cid),
        local_port: u32::from_le_bytes(local_port),
        peer_port: u32::from_le_bytes(peer_port),
        kind: u16::from_le_bytes([k0, k1]),
    };
    (u16::from_le_bytes([m0, m1]) == OPEN).then_some(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::ids;

    fn open(port: u32) -> Open {
        Open { peer_cid: 9, local_port: port, peer_port: 7, kind: 1 }
    }

    #[test]
    fn what_was_open_is_found_by_the_next_process() {
        let dir = std::env::temp_dir().join(format!("causeway-ledger-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("p.inner");
        let ids = ids(5);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.take_left(), []);
        for (id, port) in ids.iter().zip(1..) {
            ledger.note(*id, open(port));
        }
        ledger.forget(ids[1]);
        ledger.forget(ids[4]);
        // The guest has not received this reset yet.
        let untold = ledger.ended(ids[2]);
        assert!(untold.is_some());
        assert_eq!(ledger.ended(ids[2]), None);
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        let left = ledger.take_left();
        assert_eq!(left.iter().map(|(_, open)| open.local_port).collect::<Vec<_>>(), [1, 3, 4]);
        // Survivors keep their entries until they are cleared.
        ledger.note(ids[1], open(11));
        ledger.note(ids[4], open(12));
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.take_left().len(), 5);
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        let (one, _) = ledger.take_left()[0];
        ledger.settle(one);
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.left.len(), 4);
        ledger.drop_left();
        drop(ledger);
        let ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.left.len(), 0);
        ledger.remove();
        assert!(!dir.join("p.open").exists());
        assert!(Ledger::of(&dir.join("p.sock")).unwrap().is_none(), "nobody holds it");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn ledger_has_room_for_twice_the_connections_of_a_port() {
        let dir = std::env::temp_dir().join(format!("causeway-ledgers-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut ledger = Ledger::of(&dir.join("p.inner")).unwrap().unwrap();
        let ids = ids(ENTRIES_MAX + 1);
        ids.iter().for_each(|id| ledger.note(*id, open(1)));
        ids.iter().for_each(|id| ledger.forget(*id));
        ids.iter().for_each(|id| ledger.note(*id, open(2)));
        drop(ledger);
        let ledger = Ledger::of(&dir.join("p.inner")).unwrap().unwrap();
        assert_eq!(ledger.left.len(), ENTRIES_MAX);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
