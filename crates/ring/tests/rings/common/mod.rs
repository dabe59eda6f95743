//! A guest's side of a ring, written byte by byte, so that tests can violate the rules.

pub mod packed;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_memory::{Map, Mapping, Region, View};
use causeway_ring::driver::{Driver, Layout};
use causeway_ring::{Chain, PoppedBatch, Queue, QueueSetup, RingError};

/// Descriptor flag (virtio 1.3, 2.7.5): the chain continues.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device may write.
pub const WRITE: u16 = 2;
/// Descriptor flag: an indirect table.
pub const INDIRECT: u16 = 4;

/// Guest address of the first granted byte.
pub const GUEST: u64 = 0x10_0000;
/// Length of the first region in bytes; it contains the rings.
pub const FIRST: u64 = 1 << 20;
/// Length of the second region in bytes; it follows the first without a gap.
pub const SECOND: u64 = 1 << 16;
/// Guest address of the descriptor table, for queues of at most 256 entries.
pub const DESC: u64 = GUEST;
/// Guest address of the available ring.
pub const AVAIL: u64 = GUEST + 0x2000;
/// Guest address of the used ring.
pub const USED: u64 = GUEST + 0x3000;
/// Guest address of the indirect tables.
pub const TABLES: u64 = GUEST + 0x1_0000;
/// Guest address of the data.
pub const DATA: u64 = GUEST + 0x4_0000;

/// Returns a memory file that can shrink.
pub fn file(len: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("ring-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, len).unwrap();
    file
}

/// Returns a region of the whole of `file` at guest address `guest`.
pub fn region(file: &OwnedFd, guest: u64) -> Region {
    let len = u64::try_from(rustix::fs::fstat(file).unwrap().st_size).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len).unwrap());
    Region { guest, user: guest, mapping }
}

/// Returns the two adjacent regions of every test.
pub fn memory() -> Map {
    Map::new(vec![region(&file(FIRST), GUEST), region(&file(SECOND), GUEST + FIRST)]).unwrap()
}

/// Returns whether the two regions contain `len` bytes at `addr`, computed without the map.
pub fn granted(addr: u64, len: u64) -> bool {
    let end = u128::from(addr) + u128::from(len);
    addr >= GUEST && end <= u128::from(GUEST + FIRST + SECOND)
}

/// Returns the setup of a queue at the default addresses.
pub fn setup(size: u16, event_index: bool, next: u16) -> QueueSetup {
    QueueSetup { size, desc: DESC, avail: AVAIL, used: USED, event_index, indirect: true, next }
}

/// Pops a chain, every other time by a batch of one, which must have the same result.
pub fn pop(queue: &mut Queue, map: &Map, chain: &mut Chain) -> Result<bool, RingError> {
    if queue.popped().is_multiple_of(2) {
        match queue.pop_batch(map, std::iter::once(&mut *chain), 1)? {
            PoppedBatch { count: 1, needs_pop: false } => return Ok(true),
            PoppedBatch { count: 0, needs_pop: false } => return Ok(false),
            got => assert_eq!(got, PoppedBatch { count: 0, needs_pop: true }),
        }
    }
    queue.pop(map, chain)
}

/// Returns a descriptor's bytes.
pub fn descriptor(addr: u64, len: u32, flags: u16, next: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&addr.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// A guest that writes its ring directly.
pub struct Guest {
    /// The guest's memory.
    pub map: Map,
    /// The guest's queue.
    pub setup: QueueSetup,
    /// The published available index.
    pub offered: u16,
}

impl Guest {
    /// Returns a guest with an empty queue of `size` entries.
    pub fn new(size: u16) -> Self {
        Self { map: memory(), setup: setup(size, false, 0), offered: 0 }
    }

    /// Returns the device side.
    pub fn queue(&self) -> Queue {
        Queue::new(self.setup, &self.map).unwrap()
    }

    /// Writes descriptor `index`.
    pub fn describe(&self, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        self.entry(DESC, index, addr, len, flags, next);
    }

    /// Writes entry `index` of the table at `table`.
    pub fn entry(&self, table: u64, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        let at = table + 16 * u64::from(index);
        self.map.write(at, &descriptor(addr, len, flags, next)).unwrap();
    }

    /// Makes `head` available.
    pub fn offer(&mut self, head: u16) {
        let slot = u64::from(self.offered % self.setup.size);
        self.map.write(AVAIL + 4 + 2 * slot, &head.to_le_bytes()).unwrap();
        self.show(self.offered.wrapping_add(1));
    }

    /// Sets the available index.
    pub fn show(&mut self, index: u16) {
        self.offered = index;
        self.map.write(AVAIL + 2, &index.to_le_bytes()).unwrap();
    }

    /// Makes `head` available on a new queue, and returns the device's error.
    pub fn refused(&mut self, head: u16) -> RingError {
        let mut queue = self.queue();
        self.offer(head);
        let mut chain = causeway_ring::Chain::new();
        let error = queue.pop(&self.map, &mut chain).unwrap_err();
        assert_latched(&mut queue, &self.map, error);
        self.show(0);
        error
    }

    /// Returns the used index.
    pub fn used_index(&self) -> u16 {
        let mut bytes = [0; 2];
        self.map.read(USED + 2, &mut bytes).unwrap();
        u16::from_le_bytes(bytes)
    }
}

/// Checks that every call returns the error that broke the queue, and that nothing more is written.
pub fn assert_latched(queue: &mut Queue, map: &Map, error: RingError) {
    let used = |map: &Map| {
        let mut bytes = vec![0; 0x1000];
        map.read(USED, &mut bytes).unwrap();
        bytes
    };
    let before = used(map);
    assert_eq!(queue.broken(), Some(error));
    assert_eq!(queue.pop(map, &mut causeway_ring::Chain::new()), Err(error));
    assert_eq!(queue.available(), Err(error));
    assert_eq!(queue.push(0, 0), Err(error));
    assert_eq!(queue.publish(), Err(error));
    assert_eq!(queue.arm(), Err(error));
    assert_eq!(queue.broken(), Some(error));
    assert_eq!(used(map), before, "a broken queue writes nothing");
}

/// Returns a view of a new file of `len` bytes.
pub fn window(len: usize) -> View {
    let file = file(len as u64);
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len as u64).unwrap());
    View::new(mapping, 0, len).unwrap()
}

/// Returns both sides of a ring of either format, without indirect tables.
pub fn pair(map: &Map, layout: Layout, packed: bool, event_index: bool) -> (Driver, Queue) {
    let make = if packed { Driver::packed } else { Driver::new };
    let driver = make(layout, event_index, false, map).unwrap();
    let (desc, avail, used) = (layout.desc().0, layout.avail().0, layout.used().0);
    let (size, next) = (layout.size, driver.base());
    let setup = QueueSetup { size, desc, avail, used, event_index, indirect: false, next };
    let queue = if packed { Queue::packed(setup, next, map) } else { Queue::new(setup, map) };
    (driver, queue.unwrap())
}
