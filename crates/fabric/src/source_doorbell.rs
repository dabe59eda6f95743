//! Doorbells of sources: a message to a source wakes the shard that serves it.
//!
//! A mailbox ([`crate::mailbox`]) owns the doorbell and rings it when its reader sleeps. The
//! dispatcher of the shard marks the source active, and the shard serves it in its next turn.
//!
//! A doorbell carries no data and never blocks; a ring for a shard that was closed has no effect.
//! Rings before the shard handles the first are merged. Any thread may ring. The location of a
//! shard is updated when the shard moves; a ring from a thread that reads an old location wakes the
//! shard by the file descriptor all the same.
//!
//! # Budget
//! A ring from the dispatcher's own thread costs a few stores: the dispatcher finds it before it
//! sleeps. A ring from another thread costs one system call and the wake-up.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::event::{EventfdFlags, eventfd};

/// Location of a shard: its dispatcher and its slot there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ShardLocation {
    /// Number of the dispatcher in the process, from 1; 0: no dispatcher.
    pub dispatcher: u16,
    /// Slot in the dispatcher's shard table.
    pub slot: u16,
    /// Serial number of the shard in its slot.
    pub serial: u32,
}

impl ShardLocation {
    /// Location of a shard that no dispatcher owns: it is woken by descriptors alone.
    pub(crate) const NONE: Self = Self { dispatcher: 0, slot: 0, serial: 0 };

    /// Packs into 16 bits of dispatcher, 16 of slot, 32 of serial.
    fn pack(self) -> u64 {
        u64::from(self.dispatcher) << 48 | u64::from(self.slot) << 32 | u64::from(self.serial)
    }

    /// Reverts [`Self::pack`].
    fn unpack(word: u64) -> Self {
        let (dispatcher, slot, serial) = ((word >> 48) as u16, (word >> 32) as u16, word as u32);
        Self { dispatcher, slot, serial }
    }
}

/// A ring from the dispatcher's own thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalRing {
    pub slot: u16,
    pub serial: u32,
    /// Value of the source.
    pub value: u32,
}

thread_local! {
    /// Number of this thread's dispatcher.
    static THIS_DISPATCHER: Cell<u16> = const { Cell::new(0) };
    /// Rings of this thread that are not handled yet.
    static LOCAL_RINGS: RefCell<Vec<LocalRing>> = const { RefCell::new(Vec::new()) };
}

/// Assigns a number to the calling thread's dispatcher; 0 when the numbers are used up.
pub(crate) fn register_dispatcher() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = u16::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
    THIS_DISPATCHER.set(number);
    number
}

/// Removes and returns a ring of this thread; the last first.
#[inline]
pub(crate) fn pop_local_ring() -> Option<LocalRing> {
    LOCAL_RINGS.with_borrow_mut(Vec::pop)
}

/// The doorbell of one source.
#[derive(Debug)]
pub(crate) struct SourceDoorbell {
    /// Eventfd for rings from other threads.
    fd: OwnedFd,
    /// Number of the source.
    value: u32,
    /// Packed location of the shard. Only the threads of the old and the new dispatcher store here.
    /// A thread that reads its own number therefore reads the present location.
    location: AtomicU64,
}

impl SourceDoorbell {
    pub(crate) fn new(value: u32) -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, value, location: AtomicU64::new(ShardLocation::NONE.pack()) })
    }

    /// Records that the shard moved.
    pub(crate) fn set_location(&self, location: ShardLocation) {
        self.location.store(location.pack(), Ordering::Relaxed);
    }

    /// Wakes the source.
    pub(crate) fn ring(&self) {
        let location = ShardLocation::unpack(self.location.load(Ordering::Relaxed));
        if location != ShardLocation::NONE && location.dispatcher == THIS_DISPATCHER.get() {
            let ring =
                LocalRing { slot: location.slot, serial: location.serial, value: self.value };
            LOCAL_RINGS.with_borrow_mut(|list| list.push(ring));
        } else {
            // Writing fails only when the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for SourceDoorbell {
    /// Reports one edge for each ring; the counter need not be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The doorbells of one shard.
#[derive(Debug, Default)]
pub(crate) struct SourceDoorbells {
    list: Vec<Weak<SourceDoorbell>>,
    location: ShardLocation,
}

impl SourceDoorbells {
    /// Adds a doorbell that wakes a source of the shard.
    pub(crate) fn add(&mut self, doorbell: &Arc<SourceDoorbell>) {
        doorbell.set_location(self.location);
        self.list.retain(|doorbell| doorbell.strong_count() > 0);
        self.list.push(Arc::downgrade(doorbell));
    }

    /// Records that the shard moved.
    pub(crate) fn set_location(&mut self, location: ShardLocation) {
        self.location = location;
        for doorbell in self.list.iter().filter_map(Weak::upgrade) {
            doorbell.set_location(location);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(doorbell: &SourceDoorbell) -> bool {
        rustix::io::read(&doorbell.fd, &mut [0; 8]).is_ok()
    }

    #[test]
    fn source_doorbell_rings_in_its_thread_or_by_the_descriptor() {
        let doorbell = SourceDoorbell::new(7).unwrap();
        doorbell.ring();
        assert!(is_readable(&doorbell), "no dispatcher has it");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let here = ShardLocation { dispatcher: register_dispatcher(), slot: 3, serial: 9 };
                doorbell.set_location(here);
                doorbell.ring();
                assert!(!is_readable(&doorbell));
                let ring = pop_local_ring().unwrap();
                assert_eq!((ring.slot, ring.serial, ring.value), (3, 9, 7));
                assert!(pop_local_ring().is_none());
            });
        });
        doorbell.ring();
        assert!(is_readable(&doorbell), "another thread's");
    }

    #[test]
    fn source_doorbell_locations_survive_packing() {
        for location in
            [ShardLocation::NONE, ShardLocation { dispatcher: u16::MAX, slot: 1, serial: u32::MAX }]
        {
            assert_eq!(ShardLocation::unpack(location.pack()), location);
        }
    }
}
