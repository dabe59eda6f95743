//! How a queue or a counter is waited for: one descriptor that is readable when there may be
//! something.
//!
//! It watches what the endpoints hear by while somebody sleeps, and a descriptor of its own, which
//! other threads write to when they did what is waited for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::state::Ep;
use crate::rdm::Errno;

/// See above.
#[derive(Debug)]
pub struct Sleep {
    /// What is polled.
    all: OwnedFd,
    /// Written to by other threads.
    own: OwnedFd,
    /// Rings when something is due.
    clock: OwnedFd,
    /// Threads of ours that sleep on it.
    sleepers: AtomicU32,
    /// Somebody wanted who waits to come back.
    signalled: AtomicBool,
    /// The application does, or may.
    exposed: AtomicBool,
    /// The clock is set.
    clocked: AtomicBool,
}

const FLAGS: epoll::EventFlags = epoll::EventFlags::IN;

impl Sleep {
    /// # Errors
    /// The process has too many descriptors.
    pub fn new() -> Result<Self, Errno> {
        let failed = |error: rustix::io::Errno| Errno(error.raw_os_error());
        let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let clock = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        for fd in [&own, &clock] {
            epoll::add(&all, fd, epoll::EventData::new_u64(0), FLAGS).map_err(failed)?;
        }
        Ok(Self {
            all,
            own,
            clock,
            sleepers: AtomicU32::new(0),
            signalled: AtomicBool::new(false),
            exposed: AtomicBool::new(false),
            clocked: AtomicBool::new(false),
        })
    }

    /// An endpoint fills what is waited for. Twice is once.
    ///
    /// # Errors
    /// The process has too many watches.
    pub fn watch(&self, ep: &Ep) -> Result<(), Errno> {
        let way = &ep.rdm.endpoint.way;
        let daemon = epoll::EventData::new_u64(1);
        for fd in [way.bells(), way.conversation.as_fd()] {
            match epoll::add(&self.all, fd, daemon, FLAGS) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(Errno(error.raw_os_error())),
            }
        }
        Ok(())
    }

    /// It does so no more.
    pub fn forget(&self, ep: &Ep) {
        let way = &ep.rdm.endpoint.way;
        let _ = epoll::delete(&self.all, way.bells());
        let _ = epoll::delete(&self.all, way.conversation.as_fd());
    }

    /// What the application polls.
    pub fn fd(&self) -> RawFd {
        self.all.as_raw_fd()
    }

    /// Wakes who sleeps, if anybody does.
    #[inline]
    pub fn stir(&self) {
        if self.is_slept_on() {
            self.ring();
        }
    }

    /// Wakes who sleeps.
    #[cold]
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.own, &1_u64.to_ne_bytes());
    }

    /// Whether anybody sleeps on it, or may.
    #[inline]
    pub fn is_slept_on(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0 || self.is_exposed()
    }

    /// A thread of ours is about to sleep.
    pub fn begin(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// It does not any more.
    pub fn end(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.hush();
    }

    /// Whether the application was told that it may sleep.
    #[inline]
    pub fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }

    /// It was, or came back.
    pub fn expose(&self, exposed: bool) {
        self.exposed.store(exposed, Ordering::Relaxed);
        if !exposed {
            if self.clocked.swap(false, Ordering::Relaxed) {
                self.wake_in(None);
            }
            self.hush();
        }
    }

    /// Whoever polls is woken then; none: not by the clock.
    pub fn wake_in(&self, time: Option<Duration>) {
        self.clocked.store(time.is_some(), Ordering::Relaxed);
        // 0 is never.
        let time = time.map_or(Duration::ZERO, |time| time.max(Duration::from_nanos(1)));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(time).unwrap_or(never);
        let once = Itimerspec { it_interval: never, it_value };
        let _ = timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &once);
    }

    /// Who waits, or is about to, is to come back.
    pub fn signal(&self) {
        self.signalled.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Whether that was said since it was asked last.
    pub fn was_signalled(&self) -> bool {
        self.signalled.swap(false, Ordering::Relaxed)
    }

    /// What was rung is known, unless it is for others.
    fn hush(&self) {
        if !self.is_slept_on() {
            let _ = rustix::io::read(&self.own, &mut [0_u8; 8]);
        }
    }

    /// The daemon of an endpoint is gone: its socket would be readable for ever.
    pub fn forget_daemon(&self, ep: &Ep) {
        let _ = epoll::delete(&self.all, ep.rdm.endpoint.way.conversation.as_fd());
    }

    /// A share of what is polled: the queue may be closed meanwhile.
    pub fn share(&self) -> Option<OwnedFd> {
        self.all.try_clone().ok()
    }
}

/// Sleeps until the descriptor is readable, at most so long.
pub fn doze(fd: BorrowedFd<'_>, time: Duration) {
    let time = Timespec::try_from(time).ok();
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], time.as_ref());
}
