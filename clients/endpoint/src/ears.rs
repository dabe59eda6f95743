//! What an endpoint hears by while a thread sleeps: a doorbell that other threads of its process
//! ring, those that its partners ring, and what the daemon says.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
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

/// A descriptor of this process whose open file can be exchanged while other threads use it.
#[derive(Debug)]
struct Descriptor(OwnedFd);

impl Descriptor {
    /// Lets the descriptor name the open file of `by` from now on. A thread that polls the
    /// descriptor meanwhile keeps polling the file before.
    fn exchange(&self, by: BorrowedFd<'_>) -> std::io::Result<()> {
        let (from, to) = (by.as_raw_fd(), self.0.as_raw_fd());
        loop {
            // SAFETY: `self` owns the number `to`, which names an open file before and after the
            // call: no descriptor is closed that its owner may still use.
            if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } >= 0 {
                return Ok(());
            }
            // The kernel reports EBUSY while another thread opens a file under this number.
            match std::io::Error::last_os_error() {
                error if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EINTR)) => {}
                error => return Err(error),
            }
        }
    }
}

/// See above. A thread that sleeps has a share of it: the endpoint may be closed meanwhile.
#[derive(Debug)]
pub struct Ears {
    bell: OwnedFd,
    /// The epoll descriptor that watches the doorbells of all partners, by their edges.
    bells: Descriptor,
    /// The daemon's socket: exchanged when the endpoint resumes with another daemon.
    daemon: Descriptor,
}

impl Ears {
    /// Returns a waiter for the doorbell of this process, those of partners, and the daemon.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new(bells: BorrowedFd<'_>, daemon: impl AsFd) -> std::io::Result<Self> {
        Ok(Self {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            bells: Descriptor(bells.try_clone_to_owned()?),
            daemon: Descriptor(daemon.as_fd().try_clone_to_owned()?),
        })
    }

    /// Waits for another daemon from now on.
    ///
    /// # Errors
    /// Returns the kernel's error; the daemon before stays the one that is waited for.
    pub fn set_daemon(&self, daemon: impl AsFd) -> std::io::Result<()> {
        self.daemon.exchange(daemon.as_fd())
    }

    /// Sleeps until there is something, at most so long; says what rang, to be hushed.
    pub fn listen(&self, awaited: Awaited, time: Duration) -> Rung {
        let (of_daemon, time) = awaited.poll(time);
        let (rung, daemon) = (PollFlags::IN, PollFd::new(&self.daemon.0, of_daemon));
        let mut all = [PollFd::new(&self.bell, rung), PollFd::new(&self.bells.0, rung), daemon];
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
        if epoll::wait(&self.bells.0, room, Some(&now)).is_ok() {
            rung.iter().for_each(|event| rung_by(event.data.u64()));
        }
    }

    /// Parts a child process from the daemon and the partners of its parent. Shares of threads that
    /// the child does not have stay allocated, with descriptors that name the doorbell alone.
    pub fn abandon(&self) {
        // Where the kernel refuses, a partner hears of the parent's death when the child ends too.
        let _ = self.bells.exchange(self.bell.as_fd());
        let _ = self.daemon.exchange(self.bell.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::event::epoll;

    use super::{Awaited, Ears};

    fn ears() -> (Arc<Ears>, UnixStream) {
        let bells = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(Ears::new(bells.as_fd(), &ours).unwrap()), theirs)
    }

    /// A thread that sleeps has a share, which it uses and gives back after the call.
    #[test]
    fn waiter_abandon_closes_the_socket_and_leaves_other_shares_usable() {
        let (ears, mut daemon) = ears();
        let share = Arc::clone(&ears);
        ears.abandon();
        drop(ears);
        assert_eq!(daemon.read(&mut [0]).unwrap(), 0, "the daemon hears that nobody is there");
        share.ring();
        assert!(share.is_rung());
        assert_eq!(Arc::strong_count(&share), 1);
    }

    #[test]
    fn waiter_set_daemon_wakes_for_the_new_socket_and_closes_the_old() {
        let (ears, mut old) = ears();
        let (ours, mut new) = UnixStream::pair().unwrap();
        ears.set_daemon(&ours).unwrap();
        assert_eq!(old.read(&mut [0]).unwrap(), 0);
        let quiet = ears.listen(Awaited::Words, Duration::from_millis(1));
        assert!(!quiet.daemon);
        std::io::Write::write_all(&mut new, b"x").unwrap();
        assert!(ears.listen(Awaited::Words, Duration::from_secs(10)).daemon);
    }
}
