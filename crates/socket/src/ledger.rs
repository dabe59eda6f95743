//! The ledger: a file with a port's open connections, which survives this process.
//!
//! A guest with a held frontend does not know, while causewayd is replaced, that its connections
//! are gone, and would wait forever if it only receives. Each connection is therefore recorded in a
//! small file from its start until its guest has received its end: one write each. The next
//! causewayd resets the recorded connections. The ledger holds addresses and no data.
//!
//! Only ports behind the holder have a ledger: their socket's name ends in `.inner`
//! ([`HELD_EXTENSION`]), and the file lies beside the socket.
//!
//! The service opens the ledger when the port is added, and records and erases connections, in the
//! thread of the shard, which the writes may block; `crate::resume` sends the resets of
//! [`Ledger::take_survivors`]. Writes are not synced, so entries survive the process and not a
//! crash of the host, whose guests are gone too. A failed write is not reported: an entry that is
//! left over costs a superfluous reset; a connection without an entry gets no reset after a
//! restart, so its guest learns of the end only when it sends or from the event of `crate::resume`.
//! If the file cannot be opened, the port cannot be added. Two entries per permitted connection fit
//! (32,768 of 16 bytes); a full ledger skips connections. The file must not be shared between two
//! daemons.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use causeway_model::port::HELD_EXTENSION;

use crate::limits::CONNECTIONS_PER_PORT_MAX;
use crate::table::ConnId;

/// Extension of the ledger of a held port.
const EXTENSION: &str = "open";
/// Length of an entry: peer CID, local port and peer port of 4 bytes each, mark and socket type of
/// 2 bytes each, little-endian.
const ENTRY_BYTES: usize = 16;
/// Twice the connections: as many may have ended while their guest receives no resets.
const ENTRIES_MAX: usize = 2 * CONNECTIONS_PER_PORT_MAX;
/// Mark of an entry in use, which precedes the socket type.
const OPEN_MARK: u16 = 0x6f70;

/// A connection as its guest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenConnection {
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
pub struct LedgerSlot(u32);

/// The ledger of a port.
#[derive(Debug)]
pub struct Ledger {
    /// Path of the file.
    path: PathBuf,
    file: File,
    /// Free entries below `fresh`.
    free: Vec<u32>,
    /// First entry that was never used.
    fresh: u32,
    /// Entry of each recorded connection.
    slots: HashMap<ConnId, u32>,
    /// Connections that the last process left open.
    survivors: Vec<(u32, OpenConnection)>,
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

    /// Opens or creates the file, and reads the connections in it.
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
            slots: HashMap::new(),
            survivors: Vec::new(),
        };
        ledger.read(len)?;
        Ok(ledger)
    }

    /// Reads the connections that the last process left.
    fn read(&mut self, len: usize) -> io::Result<()> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, 0)?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        for (slot, entry) in (0_u32..).zip(entries) {
            if let Some(open) = parse(entry) {
                self.survivors.push((slot, open));
                self.free.extend(self.fresh..slot);
                self.fresh = slot.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Returns the connections that the last process left open. Each stays in the file until it is
    /// cleared.
    pub fn take_survivors(&mut self) -> Vec<(LedgerSlot, OpenConnection)> {
        let survivors = std::mem::take(&mut self.survivors);
        survivors.into_iter().map(|(slot, open)| (LedgerSlot(slot), open)).collect()
    }

    /// Clears the connections that the last process left: their guest is gone.
    pub fn clear_survivors(&mut self) {
        for (entry, _) in self.take_survivors() {
            self.clear(entry);
        }
    }

    /// Clears an entry: the guest has its reset, or is gone.
    pub fn clear(&mut self, LedgerSlot(slot): LedgerSlot) {
        // An entry that stays causes a superfluous reset, which guests ignore.
        let _ = self.file.write_all_at(&[0; ENTRY_BYTES], at(slot));
        self.free.push(slot);
    }

    /// Records a connection; a full ledger skips it.
    pub fn record(&mut self, id: ConnId, open: OpenConnection) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (self.fresh as usize) < ENTRIES_MAX => {
                let slot = self.fresh;
                self.fresh = self.fresh.saturating_add(1);
                slot
            }
            None => return,
        };
        let OpenConnection { peer_cid, local_port, peer_port, kind } = open;
        let words = [peer_cid, local_port, peer_port].map(u32::to_le_bytes).concat();
        let entry = [&words[..], &OPEN_MARK.to_le_bytes(), &kind.to_le_bytes()].concat();
        // A connection that is not recorded ends when either side next sends a packet.
        let _ = self.file.write_all_at(&entry, at(slot));
        self.slots.insert(id, slot);
    }

    /// Clears a connection that has ended with its guest's knowledge.
    pub fn erase(&mut self, id: ConnId) {
        if let Some(entry) = self.take_slot(id) {
            self.clear(entry);
        }
    }

    /// Returns the entry of a connection that has ended; the caller clears it once the guest has
    /// its reset.
    pub fn take_slot(&mut self, id: ConnId) -> Option<LedgerSlot> {
        self.slots.remove(&id).map(LedgerSlot)
    }

    /// Removes the file of a deleted port.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the position of an entry in the file.
fn at(slot: u32) -> u64 {
    u64::from(slot).saturating_mul(ENTRY_BYTES as u64)
}

/// Parses an entry; `None` if it is free.
fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<OpenConnection> {
    let (words, _) = bytes.as_chunks::<4>();
    let [peer_cid, local_port, peer_port, [m0, m1, k0, k1]] = *words else { return None };
    let open = OpenConnection {
        peer_cid: u32::from_le_bytes(peer_cid),
        local_port: u32::from_le_bytes(local_port),
        peer_port: u32::from_le_bytes(peer_port),
        kind: u16::from_le_bytes([k0, k1]),
    };
    (u16::from_le_bytes([m0, m1]) == OPEN_MARK).then_some(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::ids;

    fn open(port: u32) -> OpenConnection {
        OpenConnection { peer_cid: 9, local_port: port, peer_port: 7, kind: 1 }
    }

    #[test]
    fn ledger_is_found_by_the_next_process() {
        let dir = std::env::temp_dir().join(format!("causeway-ledger-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("p.inner");
        let ids = ids(5);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.take_survivors(), []);
        for (id, port) in ids.iter().zip(1..) {
            ledger.record(*id, open(port));
        }
        ledger.erase(ids[1]);
        ledger.erase(ids[4]);
        // The guest has not received this reset yet.
        let unsent = ledger.take_slot(ids[2]);
        assert!(unsent.is_some());
        assert_eq!(ledger.take_slot(ids[2]), None);
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        let survivors = ledger.take_survivors();
        assert_eq!(
            survivors.iter().map(|(_, open)| open.local_port).collect::<Vec<_>>(),
            [1, 3, 4]
        );
        // Survivors keep their entries until they are cleared.
        ledger.record(ids[1], open(11));
        ledger.record(ids[4], open(12));
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.take_survivors().len(), 5);
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        let (one, _) = ledger.take_survivors()[0];
        ledger.clear(one);
        drop(ledger);
        let mut ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.survivors.len(), 4);
        ledger.clear_survivors();
        drop(ledger);
        let ledger = Ledger::of(&socket).unwrap().unwrap();
        assert_eq!(ledger.survivors.len(), 0);
        ledger.remove();
        assert!(!dir.join("p.open").exists());
        assert!(Ledger::of(&dir.join("p.sock")).unwrap().is_none(), "the holder does not hold it");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn ledger_has_room_for_twice_the_connections_of_a_port() {
        let dir = std::env::temp_dir().join(format!("causeway-ledgers-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut ledger = Ledger::of(&dir.join("p.inner")).unwrap().unwrap();
        let ids = ids(ENTRIES_MAX + 1);
        ids.iter().for_each(|id| ledger.record(*id, open(1)));
        ids.iter().for_each(|id| ledger.erase(*id));
        ids.iter().for_each(|id| ledger.record(*id, open(2)));
        drop(ledger);
        let ledger = Ledger::of(&dir.join("p.inner")).unwrap().unwrap();
        assert_eq!(ledger.survivors.len(), ENTRIES_MAX);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
