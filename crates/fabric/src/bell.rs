//! Doorbells of sources: a message to a source wakes the shard that serves it.
//!
//! A mailbox owns the doorbell and rings it when its reader sleeps. The dispatcher of the shard
//! marks the source active. A doorbell carries no data and never blocks.
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
pub(crate) struct Home {
    /// Number of the dispatcher in the process, from 1; 0: none.
    pub dispatcher: u16,
    pub slot: u16,
    pub serial: u32,
}

impl Home {
    /// Location of a shard that no dispatcher owns: it is woken by descriptors alone.
    pub(crate) const NONE: Self = Self { dispatcher: 0, slot: 0, serial: 0 };

    fn pack(self) -> u64 {
        u64::from(self.dispatcher) << 48 | u64::from(self.slot) << 32 | u64::from(self.serial)
    }

    fn unpack(word: u64) -> Self {
        let (dispatcher, slot, serial) = ((word >> 48) as u16, (word >> 32) as u16, word as u32);
        Self { dispatcher, slot, serial }
    }
}

/// A ring from the dispatcher's own thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rung {
    pub slot: u16,
    pub serial: u32,
    /// Value of the source.
    pub value: u32,
}

thread_local! {
    /// Number of this thread's dispatcher.
    static HERE: Cell<u16> = const { Cell::new(0) };
    /// Rings of this thread that are not handled yet.
    static RUNG: RefCell<Vec<Rung>> = const { RefCell::new(Vec::new()) };
}

/// Assigns a number to the calling thread's dispatcher; 0 when the numbers are used up.
pub(crate) fn enter() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = u16::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
    HERE.set(number);
    number
}

/// Removes a ring of this thread.
#[inline]
pub(crate) fn next_rung() -> Option<Rung> {
    RUNG.with_borrow_mut(Vec::pop)
}

/// The doorbell of one source.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    value: u32,
    /// Only the threads of the old and the new dispatcher store here. A thread that reads its own
    /// number therefore reads the present location.
    home: AtomicU64,
}

impl Bell {
    pub(crate) fn new(value: u32) -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, value, home: AtomicU64::new(Home::NONE.pack()) })
    }

    /// Records that the shard moved.
    pub(crate) fn moved(&self, home: Home) {
        self.home.store(home.pack(), Ordering::Relaxed);
    }

    /// Wakes the source.
    pub(crate) fn ring(&self) {
        let home = Home::unpack(self.home.load(Ordering::Relaxed));
        if home != Home::NONE && home.dispatcher == HERE.get() {
            let rung = Rung { slot: home.slot, serial: home.serial, value: self.value };
            RUNG.with_borrow_mut(|all| all.push(rung));
        } else {
            // Writing fails only when the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Bell {
    /// Reports one edge for each ring; the counter need not be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The doorbells of one shard.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    all: Vec<Weak<Bell>>,
    home: Home,
}

impl Bells {
    /// Adds a doorbell that wakes a source of the shard.
    pub(crate) fn add(&mut self, bell: &Arc<Bell>) {
        bell.moved(self.home);
        self.all.retain(|bell| bell.strong_count() > 0);
        self.all.push(Arc::downgrade(bell));
    }

    /// Records that the shard moved.
    pub(crate) fn moved(&mut self, home: Home) {
        self.home = home;
        for bell in self.all.iter().filter_map(Weak::upgrade) {
            bell.moved(home);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(bell: &Bell) -> bool {
        rustix::io::read(&bell.fd, &mut [0; 8]).is_ok()
    }

    #[test]
    fn a_ring_stays_in_its_thread_or_goes_by_the_descriptor() {
        let bell = Bell::new(7).unwrap();
        bell.ring();
        assert!(is_readable(&bell), "no dispatcher has it");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let here = Home { dispatcher: enter(), slot: 3, serial: 9 };
                bell.moved(here);
                bell.ring();
                assert!(!is_readable(&bell));
                let rung = next_rung().unwrap();
                assert_eq!((rung.slot, rung.serial, rung.value), (3, 9, 7));
                assert!(next_rung().is_none());
            });
        });
        bell.ring();
        assert!(is_readable(&bell), "another thread's");
    }

    #[test]
    fn homes_survive_packing() {
        for home in [Home::NONE, Home { dispatcher: u16::MAX, slot: 1, serial: u32::MAX }] {
            assert_eq!(Home::unpack(home.pack()), home);
        }
    }
}
