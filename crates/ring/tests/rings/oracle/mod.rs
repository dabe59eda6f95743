//! The second memory, and the oracle that serves it: rust-vmm's `virtio-queue`.

use causeway_memory::{Map, Span};
use causeway_ring::QueueSetup;
use virtio_queue::{DescriptorChain, QueueT};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use super::common::{FIRST, GUEST, SECOND, memory};

/// The oracle.
pub type Oracle = virtio_queue::Queue;

/// Two memories with the same content.
pub struct Both {
    /// The memory that [`causeway_ring::Queue`] serves.
    pub ours: Map,
    /// The memory that the oracle serves.
    pub theirs: GuestMemoryMmap,
}

impl Both {
    pub fn new() -> Self {
        let first = (GuestAddress(GUEST), FIRST as usize);
        let second = (GuestAddress(GUEST + FIRST), SECOND as usize);
        let theirs = GuestMemoryMmap::from_ranges(&[first, second]).unwrap();
        Self { ours: memory(), theirs }
    }

    /// Returns the oracle's queue with this setup.
    pub fn oracle(&self, setup: QueueSetup) -> Oracle {
        let mut queue = Oracle::new(setup.size).unwrap();
        queue.try_set_desc_table_address(GuestAddress(setup.desc)).unwrap();
        queue.try_set_avail_ring_address(GuestAddress(setup.avail)).unwrap();
        queue.try_set_used_ring_address(GuestAddress(setup.used)).unwrap();
        queue.set_event_idx(setup.event_index);
        queue.set_next_avail(setup.next);
        let used = self.theirs.read_obj::<u16>(GuestAddress(setup.used + 2)).unwrap();
        queue.set_next_used(u16::from_le(used));
        queue.set_ready(true);
        assert!(queue.is_valid(&self.theirs));
        queue
    }

    /// Writes to both memories, as the driver.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        self.ours.write(addr, bytes).unwrap();
        self.write_theirs(addr, bytes);
    }

    /// Writes to the oracle's memory, as a model in place of the oracle.
    pub fn write_theirs(&self, addr: u64, bytes: &[u8]) {
        self.theirs.write_slice(bytes, GuestAddress(addr)).unwrap();
    }

    /// Reads from our memory, as the driver.
    pub fn read<const N: usize>(&self, addr: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.ours.read(addr, &mut bytes).unwrap();
        bytes
    }

    /// Returns the same bytes of both memories.
    pub fn compare(&self, addr: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
        self.ours.read(addr, &mut ours).unwrap();
        self.theirs.read_slice(&mut theirs, GuestAddress(addr)).unwrap();
        (ours, theirs)
    }
}

/// A descriptor of the oracle.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub addr: u64,
    pub len: u32,
    pub writable: bool,
}

/// Returns the oracle's descriptors, and whether the chain is complete. The oracle ends a broken
/// chain early, without an error.
pub fn parts(chain: DescriptorChain<&GuestMemoryMmap>) -> (Vec<Part>, bool) {
    let mut whole = false;
    let parts = chain
        .map(|one| {
            whole = !one.has_next();
            Part { addr: one.addr().raw_value(), len: one.len(), writable: one.is_write_only() }
        })
        .collect();
    (parts, whole)
}

/// Returns readable and writable spans.
pub fn split(parts: &[Part]) -> (Vec<Span>, Vec<Span>) {
    let half = |writable| {
        let half = parts.iter().filter(|p| p.writable == writable);
        half.map(|p| Span { addr: p.addr, len: p.len }).collect()
    };
    (half(false), half(true))
}

/// Returns readable and writable spans of a valid chain.
pub fn halves(chain: DescriptorChain<&GuestMemoryMmap>) -> (Vec<Span>, Vec<Span>) {
    let (parts, whole) = parts(chain);
    assert!(whole, "the oracle refuses a lawful chain");
    split(&parts)
}
