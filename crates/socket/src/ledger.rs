//! The connections that a port has open, in a file that outlives this process.
//!
//! A guest whose frontend is held while causewayd is replaced does not know that
//! its connections are gone, and one that only waits would wait for ever. So each
//! is noted in a small file from when it begins until its guest has seen it end:
//! one write each. The next causewayd finds there whom to reset.
//!
//! Only ports behind the holder have one: their socket's name ends in
//! [`HELD_EXTENSION`], and the file lies beside it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::limits::CONNECTIONS_PER_PORT_MAX;
use crate::table::ConnId;

/// How the name of a held port's socket ends.
pub const HELD_EXTENSION: &str = "inner";
/// How the name of its ledger ends instead.
const EXTENSION: &str = "open";
const ENTRY_BYTES: usize = 16;
/// As many again may have ended while their guest takes no resets.
const ENTRIES_MAX: usize = 2 * CONNECTIONS_PER_PORT_MAX;
/// What an entry in use ends in, before the socket type.
const OPEN: u16 = 0x6f70;

/// A connection as its guest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// The other end's CID.
    pub peer_cid: u32,
    /// The guest's port number.
    pub local_port: u32,
    /// The other end's port number.
    pub peer_port: u32,
    /// Stream or seqpacket, as in a packet.
    pub kind: u16,
}

/// Where a connection is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(u32);

/// The ledger of one port.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    free: Vec<u32>,
    /// Entries that were never used begin here.
    fresh: u32,
    places: HashMap<ConnId, u32>,
    /// What the last process left open.
    left: Vec<(u32, Open)>,
}

/// Where the ledger of the port at `socket` is; none if nobody holds it.
fn path_of(socket: &Path) -> Option<PathBuf> {
    let held = socket.extension().is_some_and(|extension| extension == HELD_EXTENSION);
    held.then(|| socket.with_extension(EXTENSION))
}

impl Ledger {
    /// The ledger of the port at `socket`, if it is to have one.
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

    /// Finds what the last process left.
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

    /// What the last process left open. Each stays in the file until it is settled.
    pub fn take_left(&mut self) -> Vec<(Entry, Open)> {
        let left = std::mem::take(&mut self.left);
        left.into_iter().map(|(place, open)| (Entry(place), open)).collect()
    }

    /// Whoever had to know of what was left is gone.
    pub fn drop_left(&mut self) {
        for (entry, _) in self.take_left() {
            self.settle(entry);
        }
    }

    /// The guest has its reset, or is gone.
    pub fn settle(&mut self, Entry(place): Entry) {
        // An entry that stays costs a reset for nothing, which guests ignore.
        let _ = self.file.write_all_at(&[0; ENTRY_BYTES], at(place));
        self.free.push(place);
    }

    /// Notes a connection. One for which there is no room is not noted.
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
        // One that cannot be noted ends when either side next says something.
        let _ = self.file.write_all_at(&entry, at(place));
        self.places.insert(id, place);
    }

    /// The connection has ended, and its guest knows.
    pub fn forget(&mut self, id: ConnId) {
        if let Some(entry) = self.ended(id) {
            self.settle(entry);
        }
    }

    /// The connection has ended, and its guest has yet to be told: what to settle then.
    pub fn ended(&mut self, id: ConnId) -> Option<Entry> {
        self.places.remove(&id).map(Entry)
    }

    /// Removes the file: the port is no more.
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
        // Its guest has yet to know.
        let untold = ledger.ended(ids[2]);
        assert!(untold.is_some());
        assert_eq!(ledger.ended(ids[2]), None);
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        let left = ledger.take_left();
        assert_eq!(left.iter().map(|(_, open)| open.local_port).collect::<Vec<_>>(), [1, 3, 4]);
        // What is left keeps its place until it is settled.
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
    fn there_is_room_for_all_that_a_port_may_have_and_for_no_more() {
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
