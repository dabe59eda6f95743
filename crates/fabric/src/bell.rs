//! Bells: how a message wakes the source that reads it.
//!
//! # Budget
//! A shard that rings one of its own thread costs a few stores: its dispatcher finds the bell
//! rung before it sleeps. To other threads a ring is one system call, and their wake-up.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::event::{EventfdFlags, eventfd};

/// Where a shard is served: by which dispatcher, in which seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Home {
    /// Of the dispatchers of the process; none is 0.
    pub dispatcher: u16,
    pub slot: u16,
    pub serial: u32,
}

impl Home {
    /// Of shards that no dispatcher has: they hear by their descriptors alone.
    pub(crate) const NONE: Self = Self { dispatcher: 0, slot: 0, serial: 0 };

    fn pack(self) -> u64 {
        u64::from(self.dispatcher) << 48 | u64::from(self.slot) << 32 | u64::from(self.serial)
    }

    fn unpack(word: u64) -> Self {
        let (dispatcher, slot, serial) = ((word >> 48) as u16, (word >> 32) as u16, word as u32);
        Self { dispatcher, slot, serial }
    }
}

/// A bell that was rung by its own thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rung {
    pub slot: u16,
    pub serial: u32,
    /// Of the source.
    pub value: u32,
}

thread_local! {
    /// The dispatcher of this thread.
    static HERE: Cell<u16> = const { Cell::new(0) };
    /// What was rung here and is not yet heard.
    static RUNG: RefCell<Vec<Rung>> = const { RefCell::new(Vec::new()) };
}

/// A number for a dispatcher, which this thread is from now on; 0 if there are none left.
pub(crate) fn enter() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = u16::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
    HERE.set(number);
    number
}

/// One of the bells that were rung here.
#[inline]
pub(crate) fn next_rung() -> Option<Rung> {
    RUNG.with_borrow_mut(Vec::pop)
}

/// One source's bell.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    value: u32,
    /// Changed by the thread of the dispatcher that it names before or after, and so always true
    /// for a thread that finds itself there.
    home: AtomicU64,
}

impl Bell {
    pub(crate) fn new(value: u32) -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, value, home: AtomicU64::new(Home::NONE.pack()) })
    }

    /// Its shard has moved.
    pub(crate) fn moved(&self, home: Home) {
        self.home.store(home.pack(), Ordering::Relaxed);
    }

    /// Has the source served.
    pub(crate) fn ring(&self) {
        let home = Home::unpack(self.home.load(Ordering::Relaxed));
        if home != Home::NONE && home.dispatcher == HERE.get() {
            let rung = Rung { slot: home.slot, serial: home.serial, value: self.value };
            RUNG.with_borrow_mut(|all| all.push(rung));
        } else {
            // It can only fail when it is full, and then it is readable all the same.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Bell {
    /// Rung once for each time; its counter need never be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The bells of one shard.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    all: Vec<Weak<Bell>>,
    home: Home,
}

impl Bells {
    /// One that wakes a source of the shard.
    pub(crate) fn add(&mut self, bell: &Arc<Bell>) {
        bell.moved(self.home);
        self.all.retain(|bell| bell.strong_count() > 0);
        self.all.push(Arc::downgrade(bell));
    }

    /// The shard has moved.
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
