//! Guest memory with a reference copy, so that every unexpected write is detected. The test itself
//! plays the guest: its writes must go through [`GuestMemory::write`], or the comparison fails.
//! [`with`] keeps one mapping for each thread and size. A failed system call panics, as in every
//! target. Used by the targets of rings, of frontends and of the record of the holder.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_memory::{Map, Mapping, Region};

/// The guest address of the first granted byte.
pub const GUEST: u64 = 0x10_0000;
/// Bytes before and after the grant on the same pages, which must never be written.
const MARGIN: usize = 64;
const CANARY: u8 = 0xc5;

/// A memory file of which the middle is granted.
#[derive(Debug)]
pub struct GuestMemory {
    file: OwnedFd,
    /// The granted part.
    pub map: Map,
    /// The whole file, from address 0.
    all: Map,
    /// The expected content: the guest's own writes.
    copy: Vec<u8>,
}

fn map_of(file: &OwnedFd, offset: usize, len: usize, guest: u64) -> Map {
    let mapping =
        Mapping::new(file.as_fd(), offset as u64, len as u64).expect("a range of the file");
    let region = Region { guest, user: guest, mapping: Arc::new(mapping) };
    Map::new(vec![region]).expect("a map of one region")
}

impl GuestMemory {
    /// Creates a file of `bytes` bytes; all but the margins is granted.
    pub fn new(bytes: usize) -> Self {
        let file = causeway_memory::create("fuzz", bytes as u64).expect("memory");
        let map = map_of(&file, MARGIN, bytes - 2 * MARGIN, GUEST);
        let all = map_of(&file, 0, bytes, 0);
        let mut guest_memory = Self { file, map, all, copy: vec![0; bytes] };
        guest_memory.clear();
        guest_memory
    }

    /// Returns the number of granted bytes.
    #[allow(clippy::len_without_is_empty, reason = "the memory is never empty")]
    pub fn len(&self) -> usize {
        self.copy.len() - 2 * MARGIN
    }

    /// Returns the file and the offset of the grant, so that a message can grant the file again.
    pub fn file(&self) -> (&OwnedFd, u64) {
        (&self.file, MARGIN as u64)
    }

    /// Fills the grant with zeros and the margins with canaries.
    pub fn clear(&mut self) {
        self.copy.fill(0);
        let end = self.copy.len() - MARGIN;
        self.copy[..MARGIN].fill(CANARY);
        self.copy[end..].fill(CANARY);
        self.all.write(0, &self.copy).expect("all of the file");
    }

    /// Writes as the guest at an offset of the grant; bytes past the end are dropped.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let offset = offset.min(self.len());
        let bytes = &bytes[..bytes.len().min(self.len() - offset)];
        let at = MARGIN + offset;
        self.copy[at..at + bytes.len()].copy_from_slice(bytes);
        self.all.write(at as u64, bytes).expect("within the file");
    }

    /// Reads at an offset of the grant.
    pub fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.map.read(GUEST + offset as u64, &mut bytes).expect("within the grant");
        bytes
    }

    /// Returns true if all `len` bytes at guest address `addr` are granted. Computed independently
    /// of the map under test.
    pub fn grants(&self, addr: u64, len: u64) -> bool {
        let end = u128::from(addr) + u128::from(len);
        addr >= GUEST && end <= u128::from(GUEST) + self.len() as u128
    }

    /// Asserts that all bytes but `ours` (offsets in the grant, with lengths) are unchanged since
    /// the guest's last write.
    ///
    /// # Panics
    /// If another byte has changed.
    pub fn assert_untouched(&self, ours: &[(usize, usize)]) {
        let mut now = vec![0; self.copy.len()];
        self.all.read(0, &mut now).expect("all of the file");
        let mut expected = self.copy.clone();
        for &(offset, len) in ours {
            let span = MARGIN + offset..MARGIN + (offset + len).min(self.len());
            expected[span.clone()].copy_from_slice(&now[span]);
        }
        // Compare the whole memory first: the byte-wise comparison is slow under the fuzzer's
        // instrumentation.
        if now == expected {
            return;
        }
        if let Some(at) = (0..now.len()).find(|&at| now[at] != expected[at]) {
            let at = at as i64 - MARGIN as i64;
            panic!("byte {at} of the grant of {} was written by the device", self.len());
        }
    }
}

/// Calls `play` with a cleared memory of `BYTES` bytes; the mapping is reused between calls.
pub fn with<const BYTES: usize>(play: impl FnOnce(&mut GuestMemory)) {
    thread_local! {
        static KEPT: RefCell<Vec<GuestMemory>> = const { RefCell::new(Vec::new()) };
    }
    let kept = KEPT.with_borrow_mut(|all| {
        let at = all.iter().position(|guest_memory| guest_memory.copy.len() == BYTES)?;
        Some(all.swap_remove(at))
    });
    let mut guest_memory = kept.unwrap_or_else(|| GuestMemory::new(BYTES));
    guest_memory.clear();
    play(&mut guest_memory);
    KEPT.with_borrow_mut(|all| all.push(guest_memory));
}
