//! A guest's memory with a copy beside it, so that every byte that changed is known.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_memory::{Map, Mapping, Region};

/// Guest address of the first granted byte.
pub const GUEST: u64 = 0x10_0000;
/// Bytes before and behind the grant, on the same pages; nobody may write there.
const MARGIN: usize = 64;
const CANARY: u8 = 0xc5;

/// Memory of which the middle is granted.
#[derive(Debug)]
pub struct Ground {
    file: OwnedFd,
    /// The grant.
    pub map: Map,
    /// All of the file, from address 0.
    all: Map,
    /// What the guest itself wrote.
    copy: Vec<u8>,
}

fn map_of(file: &OwnedFd, offset: usize, len: usize, guest: u64) -> Map {
    let mapping = Mapping::new(file.as_fd(), offset as u64, len as u64).expect("the file has it");
    let region = Region { guest, user: guest, mapping: Arc::new(mapping) };
    Map::new(vec![region]).expect("one region is a map")
}

impl Ground {
    /// A file of `bytes`, of which all but the margins are granted.
    pub fn new(bytes: usize) -> Self {
        let file = causeway_memory::create("fuzz", bytes as u64).expect("memory is there");
        let map = map_of(&file, MARGIN, bytes - 2 * MARGIN, GUEST);
        let all = map_of(&file, 0, bytes, 0);
        let mut ground = Self { file, map, all, copy: vec![0; bytes] };
        ground.clear();
        ground
    }

    /// Granted bytes.
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.copy.len() - 2 * MARGIN
    }

    /// The file, to be granted again by a message; the grant begins at this offset.
    pub fn file(&self) -> (&OwnedFd, u64) {
        (&self.file, MARGIN as u64)
    }

    /// Zeros in the grant, canaries around it.
    pub fn clear(&mut self) {
        self.copy.fill(0);
        let end = self.copy.len() - MARGIN;
        self.copy[..MARGIN].fill(CANARY);
        self.copy[end..].fill(CANARY);
        self.all.write(0, &self.copy).expect("all of the file");
    }

    /// The guest writes at an offset of its grant; what does not fit is left out.
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

    /// Whether all of `len` bytes at guest address `addr` are granted; reckoned apart from the
    /// map.
    pub fn grants(&self, addr: u64, len: u64) -> bool {
        let end = u128::from(addr) + u128::from(len);
        addr >= GUEST && end <= u128::from(GUEST) + self.len() as u128
    }

    /// That nothing but the guest wrote, except within `ours`: offsets in the grant and lengths.
    ///
    /// # Panics
    /// Something else was written.
    pub fn assert_untouched(&self, ours: &[(usize, usize)]) {
        let mut now = vec![0; self.copy.len()];
        self.all.read(0, &mut now).expect("all of the file");
        let mut expected = self.copy.clone();
        for &(offset, len) in ours {
            let span = MARGIN + offset..MARGIN + (offset + len).min(self.len());
            expected[span.clone()].copy_from_slice(&now[span]);
        }
        // All at once first: the fuzzer's eyes on every single byte would cost more than the story.
        if now == expected {
            return;
        }
        if let Some(at) = (0..now.len()).find(|&at| now[at] != expected[at]) {
            let at = at as i64 - MARGIN as i64;
            panic!("byte {at} of the grant of {} was written by the device", self.len());
        }
    }
}

/// Calls `play` with a fresh ground of `bytes`; the same one is used again and again.
pub fn with<const BYTES: usize>(play: impl FnOnce(&mut Ground)) {
    thread_local! {
        static KEPT: RefCell<Vec<Ground>> = const { RefCell::new(Vec::new()) };
    }
    let kept = KEPT.with_borrow_mut(|all| {
        let at = all.iter().position(|ground| ground.copy.len() == BYTES)?;
        Some(all.swap_remove(at))
    });
    let mut ground = kept.unwrap_or_else(|| Ground::new(BYTES));
    ground.clear();
    play(&mut ground);
    KEPT.with_borrow_mut(|all| all.push(ground));
}
