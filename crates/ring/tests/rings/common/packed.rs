//! A guest's side of a packed ring, written slot by slot.

use causeway_memory::Map;
use causeway_ring::{Chain, Queue, QueueSetup, RingError};

use super::{AVAIL, DATA, DESC, USED, descriptor, memory};

/// Descriptor flag AVAIL (virtio 1.3, 2.8).
pub const AVAIL_BIT: u16 = 1 << 7;
/// Descriptor flag USED.
pub const USED_BIT: u16 = 1 << 15;

/// A guest that writes its packed ring directly.
pub struct PackedGuest {
    pub map: Map,
    pub setup: QueueSetup,
}

impl PackedGuest {
    /// Returns a guest with an empty queue of `size` entries.
    pub fn new(size: u16) -> Self {
        let setup = QueueSetup {
            size,
            desc: DESC,
            avail: AVAIL,
            used: USED,
            event_index: false,
            indirect: true,
            next: 0x8000,
        };
        Self { map: memory(), setup }
    }

    /// Returns the device side.
    pub fn queue(&self) -> Queue {
        Queue::packed(self.setup, self.setup.next, &self.map).unwrap()
    }

    /// Writes the descriptor in `slot` as available in the first pass.
    pub fn offer(&self, slot: u16, addr: u64, len: u32, flags: u16, id: u16) {
        self.write(slot, addr, len, flags | AVAIL_BIT, id);
    }

    /// Writes the descriptor in `slot`.
    pub fn write(&self, slot: u16, addr: u64, len: u32, flags: u16, id: u16) {
        // Both formats have the same fields, but id and flags are swapped.
        let bytes = descriptor(addr, len, id, flags);
        self.map.write(DESC + 16 * u64::from(slot), &bytes).unwrap();
    }

    /// Returns length, id and flags in `slot`.
    pub fn slot(&self, slot: u16) -> (u32, u16, u16) {
        let mut bytes = [0; 8];
        self.map.read(DESC + 16 * u64::from(slot) + 8, &mut bytes).unwrap();
        let word = u64::from_le_bytes(bytes);
        (word as u32, (word >> 32) as u16, (word >> 48) as u16)
    }

    /// Returns the device's error for the ring as it is.
    pub fn refused(&self) -> RingError {
        let mut queue = self.queue();
        let mut chain = Chain::new();
        let error = queue.pop(&self.map, &mut chain).unwrap_err();
        assert_packed_latched(&mut queue, &self.map, error);
        error
    }

    /// Writes valid single buffers into all slots.
    pub fn fill(&self) {
        (0..self.setup.size).for_each(|slot| self.offer(slot, DATA, 64, 0, slot));
    }
}

/// Checks that every call returns the error that broke the queue, and that nothing more is written.
pub fn assert_packed_latched(queue: &mut Queue, map: &Map, error: RingError) {
    let shared = |map: &Map| {
        let mut bytes = vec![0; 0x4000];
        map.read(DESC, &mut bytes).unwrap();
        bytes
    };
    let before = shared(map);
    assert_eq!(queue.broken(), Some(error));
    assert_eq!(queue.pop(map, &mut Chain::new()), Err(error));
    assert_eq!(queue.available(), Err(error));
    assert_eq!(queue.push(0, 0), Err(error));
    assert_eq!(queue.publish(), Err(error));
    assert_eq!(queue.arm(), Err(error));
    assert_eq!(queue.broken(), Some(error));
    assert_eq!(shared(map), before, "a broken queue writes nothing");
}
