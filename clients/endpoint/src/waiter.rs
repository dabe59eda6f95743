//! Descriptors on which threads of a process sleep for an endpoint: the process's own doorbell (an
//! eventfd), the doorbells of all peers of this host (one epoll descriptor), and the socket of the
//! daemon, or the completion channel of an adapter.
//!
//! [`Waiter::listen`] sleeps until one is readable; [`Waiter::hush`] clears the doorbells that
//! rang.
//!
//! # Limits
//! A waiter clears doorbells and does not handle their causes: a woken thread polls the endpoint. A
//! sleep may end early without an event. Peers ring only between `Paths::arm` and `Paths::disarm`,
//! so the caller arms before it sleeps, and does not sleep if an event is ready. One call of
//! [`Waiter::hush`] reports at most 64 peers; the others stay ready for the next call. All methods
//! may run in several threads at a time: a ring wakes every sleeping thread until one of them
//! clears it.
//!
//! # Place
//! An [`Endpoint`](crate::Endpoint) owns the waiter, and sleeps in it while it waits for a request
//! or closes. Threads of `libmyriexpress.so` hold references and sleep without the endpoint's lock.
//! The libfabric provider does not sleep here otherwise: its wait objects watch the same doorbells
//! and the same socket in a set of their own (`shell::wait_fd`).

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::limits::{RESUME_PAUSE_MAX, STUCK_MAX};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

/// Doorbells of peers that one call clears.
const RINGS: usize = 64;

/// Descriptors that became readable during a sleep.
#[derive(Debug, Clone, Copy)]
pub struct WakeReasons {
    /// The own doorbell rang.
    doorbell: bool,
    /// A peer of this host rang.
    doorbells: bool,
    /// The daemon's socket is readable, or has room.
    pub daemon: bool,
}

impl WakeReasons {
    /// All descriptors may be readable.
    pub const ANY: Self = Self { doorbell: true, doorbells: true, daemon: true };
}

/// Condition for which an endpoint waits on the daemon's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The daemon is gone: its socket is not polled, and the sleep lasts at most
    /// [`RESUME_PAUSE_MAX`] (200 ms).
    Nothing,
    /// A message of the daemon; the socket is polled for input only.
    Words,
    /// A message, or room for queued commands.
    Room,
    /// A message, or the end of the host's limit of descriptors in flight. No event announces that
    /// end, so the sleep lasts at most [`STUCK_MAX`] (10 ms).
    Descriptors,
}

impl Awaited {
    /// Returns the poll events for the socket, and `time` or a shorter timeout.
    pub fn poll(self, time: Duration) -> (PollFlags, Duration) {
        match self {
            Self::Room => (PollFlags::IN | PollFlags::OUT, time),
            Self::Descriptors => (PollFlags::IN, time.min(STUCK_MAX)),
            // The endpoint polls for the next daemon.
            Self::Nothing => (PollFlags::IN, time.min(RESUME_PAUSE_MAX)),
            Self::Words => (PollFlags::IN, time),
        }
    }
}

/// A descriptor with an open file that can be exchanged while other threads use it.
#[derive(Debug)]
struct Descriptor(OwnedFd);

impl Descriptor {
    /// Makes the descriptor refer to the open file of `by`. A thread that polls the descriptor
    /// meanwhile keeps polling the old file until its sleep ends.
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

/// Waiter of an endpoint. A sleeping thread holds a reference, since the endpoint may be closed
/// meanwhile.
#[derive(Debug)]
pub struct Waiter {
    /// Eventfd that other threads of this process ring.
    doorbell: OwnedFd,
    /// Epoll descriptor over the doorbells of all peers, edge-triggered.
    doorbells: Descriptor,
    /// Socket of the daemon; exchanged when the endpoint resumes with another daemon.
    daemon: Descriptor,
}

impl Waiter {
    /// Returns a waiter for the doorbell of this process, those of peers, and the daemon.
    ///
    /// # Errors
    /// The kernel's error if the process has too many descriptors.
    pub fn new(doorbells: BorrowedFd<'_>, daemon: impl AsFd) -> std::io::Result<Self> {
        Ok(Self {
            doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            doorbells: Descriptor(doorbells.try_clone_to_owned()?),
            daemon: Descriptor(daemon.as_fd().try_clone_to_owned()?),
        })
    }

    /// Replaces the daemon's socket. No thread sleeps on the old socket without end: the end of the
    /// daemon makes the old socket readable, which wakes every thread that polls it, and a sleep
    /// that begins while no daemon is connected ([`Awaited::Nothing`]) does not poll it and lasts
    /// at most 200 ms. [`Endpoint::hear`](crate::Endpoint::hear) is the caller, under the lock of
    /// the endpoint.
    ///
    /// # Errors
    /// The kernel's error; the old socket stays in use.
    pub fn set_daemon(&self, daemon: impl AsFd) -> std::io::Result<()> {
        self.daemon.exchange(daemon.as_fd())
    }

    /// Sleeps until a descriptor is readable, at most `time`. Returns the readable descriptors, to
    /// be passed to [`Self::hush`]; none after the time, a signal, or an error of the kernel.
    pub fn listen(&self, awaited: Awaited, time: Duration) -> WakeReasons {
        let (of_daemon, time) = awaited.poll(time);
        let (rung, daemon) = (PollFlags::IN, PollFd::new(&self.daemon.0, of_daemon));
        let mut all =
            [PollFd::new(&self.doorbell, rung), PollFd::new(&self.doorbells.0, rung), daemon];
        let gone = awaited == Awaited::Nothing;
        let watched = if gone { all.split_last_mut().map(|(_, rest)| rest) } else { None };
        let time = Timespec::try_from(time).ok();
        let _ = match watched {
            Some(watched) => poll(watched, time.as_ref()),
            None => poll(&mut all, time.as_ref()),
        };
        let [doorbell, doorbells, daemon] = all.map(|fd| !fd.revents().is_empty());
        WakeReasons { doorbell, doorbells, daemon: daemon && !gone }
    }

    /// Returns whether the own doorbell was rung.
    pub fn is_rung(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.doorbell, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    /// Rings the own doorbell.
    #[cold]
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// Clears the doorbells in `rung`, and calls `rung_by` with the number of each peer that rang.
    pub fn hush(&self, rung: WakeReasons, mut rung_by: impl FnMut(u64)) {
        let mut count = [0_u8; 8];
        if rung.doorbell {
            let _ = rustix::io::read(&self.doorbell, &mut count);
        }
        if !rung.doorbells {
            return;
        }
        let mut rung: Vec<epoll::Event> = Vec::with_capacity(RINGS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut rung);
        if epoll::wait(&self.doorbells.0, room, Some(&now)).is_ok() {
            rung.iter().for_each(|event| rung_by(event.data.u64()));
        }
    }

    /// Disconnects a child process from the daemon and the peers of its parent. References of
    /// threads that the child does not have stay allocated; their descriptors refer to the own
    /// doorbell.
    pub fn abandon(&self) {
        // If the kernel refuses, peers detect the end of the parent only when the child has ended.
        let _ = self.doorbells.exchange(self.doorbell.as_fd());
        let _ = self.daemon.exchange(self.doorbell.as_fd());
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

    use super::{Awaited, Waiter};

    fn waiter() -> (Arc<Waiter>, UnixStream) {
        let doorbells = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(Waiter::new(doorbells.as_fd(), &ours).unwrap()), theirs)
    }

    /// A sleeping thread holds a reference beyond `abandon`.
    #[test]
    fn waiter_abandon_closes_the_socket_and_leaves_other_shares_usable() {
        let (waiter, mut daemon) = waiter();
        let share = Arc::clone(&waiter);
        waiter.abandon();
        drop(waiter);
        assert_eq!(daemon.read(&mut [0]).unwrap(), 0, "the daemon sees the close");
        share.ring();
        assert!(share.is_rung());
        assert_eq!(Arc::strong_count(&share), 1);
    }

    #[test]
    fn waiter_set_daemon_wakes_for_the_new_socket_and_closes_the_old() {
        let (waiter, mut old) = waiter();
        let (ours, mut new) = UnixStream::pair().unwrap();
        waiter.set_daemon(&ours).unwrap();
        assert_eq!(old.read(&mut [0]).unwrap(), 0);
        let quiet = waiter.listen(Awaited::Words, Duration::from_millis(1));
        assert!(!quiet.daemon);
        std::io::Write::write_all(&mut new, b"x").unwrap();
        assert!(waiter.listen(Awaited::Words, Duration::from_secs(10)).daemon);
    }
}
