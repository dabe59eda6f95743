//! What an endpoint hears by while a thread sleeps: a doorbell that other threads of its process
//! ring, those that its partners ring, and what the daemon says.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::limits::{RESUME_PAUSE, STUCK_MAX};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

/// Doorbells of partners that are heard at a time.
const RINGS: usize = 64;

/// What rang while a thread slept.
#[derive(Debug, Clone, Copy)]
pub struct Rung {
    bell: bool,
    bells: bool,
    /// The daemon said something, or has room.
    pub daemon: bool,
}

impl Rung {
    /// Anything may have.
    pub const ANY: Self = Self { bell: true, bells: true, daemon: true };
}

/// What is waited for of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// It is gone.
    Nothing,
    /// What it says.
    Words,
    /// Also room for what it is to be asked.
    Room,
    /// Also that the host lets more descriptors pass, which nothing tells.
    Descriptors,
}

impl Awaited {
    /// What its socket is polled for, and for how long at most.
    pub fn poll(self, time: Duration) -> (PollFlags, Duration) {
        match self {
            Self::Room => (PollFlags::IN | PollFlags::OUT, time),
            Self::Descriptors => (PollFlags::IN, time.min(STUCK_MAX)),
            // The next daemon is looked for.
            Self::Nothing => (PollFlags::IN, time.min(RESUME_PAUSE.1)),
            Self::Words => (PollFlags::IN, time),
        }
    }
}

/// See above. Who sleeps has a share of it: the endpoint may be closed meanwhile.
#[derive(Debug)]
pub struct Ears {
    bell: OwnedFd,
    /// All doorbells that partners ring, watched by their edges.
    bells: OwnedFd,
    /// The daemon's socket: another once the endpoint went on by the next daemon.
    daemon: Mutex<Arc<OwnedFd>>,
}

impl Ears {
    /// To be rung by the other threads of the process, by partners and by the daemon.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new(bells: BorrowedFd<'_>, daemon: impl AsFd) -> std::io::Result<Self> {
        Ok(Self {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            bells: bells.try_clone_to_owned()?,
            daemon: Mutex::new(Arc::new(daemon.as_fd().try_clone_to_owned()?)),
        })
    }

    /// The endpoint goes on by another daemon.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn set_daemon(&self, daemon: impl AsFd) -> std::io::Result<()> {
        let daemon = Arc::new(daemon.as_fd().try_clone_to_owned()?);
        *self.daemon.lock().unwrap_or_else(PoisonError::into_inner) = daemon;
        Ok(())
    }

    /// Sleeps until there is something, at most so long; says what rang, to be hushed.
    pub fn listen(&self, awaited: Awaited, time: Duration) -> Rung {
        let (of_daemon, time) = awaited.poll(time);
        let socket = Arc::clone(&self.daemon.lock().unwrap_or_else(PoisonError::into_inner));
        let (rung, daemon) = (PollFlags::IN, PollFd::new(&socket, of_daemon));
        let mut all = [PollFd::new(&self.bell, rung), PollFd::new(&self.bells, rung), daemon];
        let gone = awaited == Awaited::Nothing;
        let heard = if gone { all.split_last_mut().map(|(_, rest)| rest) } else { None };
        let time = Timespec::try_from(time).ok();
        let _ = match heard {
            Some(heard) => poll(heard, time.as_ref()),
            None => poll(&mut all, time.as_ref()),
        };
        let [bell, bells, daemon] = all.map(|fd| !fd.revents().is_empty());
        Rung { bell, bells, daemon: daemon && !gone }
    }

    /// Whether the doorbell was rung.
    pub fn is_rung(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    /// Rings the doorbell.
    #[cold]
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// What it was rung for is known. Says whose bells were: `rung_by` hears them.
    pub fn hush(&self, rung: Rung, mut rung_by: impl FnMut(u64)) {
        let mut count = [0_u8; 8];
        if rung.bell {
            let _ = rustix::io::read(&self.bell, &mut count);
        }
        if !rung.bells {
            return;
        }
        let mut rung: Vec<epoll::Event> = Vec::with_capacity(RINGS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut rung);
        if epoll::wait(&self.bells, room, Some(&now)).is_ok() {
            rung.iter().for_each(|event| rung_by(event.data.u64()));
        }
    }

    /// In a child process: the threads that had shares are not there.
    pub fn abandon(self: Arc<Self>) {
        let shares = Arc::strong_count(&self);
        let raw = Arc::into_raw(self);
        for _ in 0..shares {
            // SAFETY: so many shares were made, and nobody else is there to give any of them back.
            unsafe { Arc::decrement_strong_count(raw) };
        }
    }
}
