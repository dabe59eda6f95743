//! The wait object of a queue or a counter: a descriptor that becomes readable when there may be an
//! event.
//!
//! The descriptor is an epoll set of the endpoints' wake-up descriptors (doorbells of peers, socket
//! of the daemon), which are armed while threads sleep, of an eventfd for wake-ups by other
//! threads, and of a timer.
//!
//! # Limits
//! A wait object does not know the events: a woken thread polls, and may find nothing. The
//! descriptor stays readable until the thread's next call clears it. Without an armed endpoint
//! (`wait_set`) peers do not ring. Each object costs three descriptors; without them its opening
//! fails with the kernel's error, and a binding reports an error if an endpoint cannot be watched.
//! If the socket of the next daemon cannot be watched, its messages are found after the longest
//! sleep (`wait`). The flags are atomic, but changes happen under the domain's lock.
//!
//! # Place
//! Each queue, each counter and the progress thread has its own (`objects`, `auto_progress`); `wait`
//! decides when threads sleep on it. The application gets the descriptor by `FI_GETWAIT`
//! (`shell::wait_object`). The module knows no queue and takes no lock.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::errno::Errno;
use crate::rdm::Rdm;

/// A wait object.
#[derive(Debug)]
pub struct WaitFd {
    /// The epoll set, which is polled.
    all: OwnedFd,
    /// The eventfd that other threads write to.
    own: OwnedFd,
    /// The timer.
    clock: OwnedFd,
    /// Threads that sleep on it in a call of the provider.
    sleepers: AtomicU32,
    /// Whether `fi_cq_signal` was called.
    signalled: AtomicBool,
    /// Whether the application polls it, or may.
    app_sleeping: AtomicBool,
    /// Whether the timer is set.
    clocked: AtomicBool,
}

/// The events of all watched descriptors; level-triggered.
const FLAGS: epoll::EventFlags = epoll::EventFlags::IN;

impl WaitFd {
    /// Creates a wait object.
    ///
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
            app_sleeping: AtomicBool::new(false),
            clocked: AtomicBool::new(false),
        })
    }

    /// Watches the wake-up descriptors of an endpoint. A repeated call has no effect.
    ///
    /// # Errors
    /// The process has too many watches.
    pub fn watch(&self, rdm: &Rdm) -> Result<(), Errno> {
        let way = &rdm.endpoint.paths;
        let daemon = epoll::EventData::new_u64(1);
        for fd in [way.doorbells(), way.conversation.as_fd()] {
            match epoll::add(&self.all, fd, daemon, FLAGS) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(Errno(error.raw_os_error())),
            }
        }
        Ok(())
    }

    /// Stops watching an endpoint.
    pub fn unwatch(&self, rdm: &Rdm) {
        let way = &rdm.endpoint.paths;
        let _ = epoll::delete(&self.all, way.doorbells());
        let _ = epoll::delete(&self.all, way.conversation.as_fd());
    }

    /// Returns the descriptor for the application.
    pub fn fd(&self) -> RawFd {
        self.all.as_raw_fd()
    }

    /// Wakes the sleeping threads, if there are any.
    #[inline]
    pub fn wake(&self) {
        if self.has_sleepers() {
            self.signal_fd();
        }
    }

    /// Wakes the sleeping threads.
    #[cold]
    pub fn signal_fd(&self) {
        let _ = rustix::io::write(&self.own, &1_u64.to_ne_bytes());
    }

    /// Returns whether a thread sleeps on it, or may.
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0 || self.is_app_sleeping()
    }

    /// Registers a thread that is about to sleep.
    pub fn begin(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// Unregisters a thread that slept, and clears the eventfd if no other thread sleeps.
    pub fn end(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.clear();
    }

    /// Returns whether the application was allowed to sleep on the descriptor.
    #[inline]
    pub fn is_app_sleeping(&self) -> bool {
        self.app_sleeping.load(Ordering::Relaxed)
    }

    /// Sets whether the application may sleep on the descriptor.
    pub fn set_app_sleeping(&self, app_sleeping: bool) {
        self.app_sleeping.store(app_sleeping, Ordering::Relaxed);
        if !app_sleeping {
            if self.clocked.swap(false, Ordering::Relaxed) {
                self.wake_in(None);
            }
            self.clear();
        }
    }

    /// Sets the time after which pollers are woken; `None` stops the timer.
    pub fn wake_in(&self, time: Option<Duration>) {
        self.clocked.store(time.is_some(), Ordering::Relaxed);
        // A value of 0 would disarm the timer.
        let time = time.map_or(Duration::ZERO, |time| time.max(Duration::from_nanos(1)));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(time).unwrap_or(never);
        let once = Itimerspec { it_interval: never, it_value };
        let _ = timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &once);
    }

    /// Makes the current or next waiting call return (`fi_cq_signal`).
    pub fn signal(&self) {
        self.signalled.store(true, Ordering::Relaxed);
        self.signal_fd();
    }

    /// Returns and clears whether a waiting call must return.
    pub fn was_signalled(&self) -> bool {
        self.signalled.swap(false, Ordering::Relaxed)
    }

    /// Clears the eventfd, unless the wake-up is for others.
    fn clear(&self) {
        if !self.has_sleepers() {
            let _ = rustix::io::read(&self.own, &mut [0_u8; 8]);
        }
    }

    /// Stops watching the daemon's socket of an endpoint, which stays readable after the daemon
    /// closed it.
    pub fn unwatch_daemon(&self, rdm: &Rdm) {
        let _ = epoll::delete(&self.all, rdm.endpoint.paths.conversation.as_fd());
    }

    /// Returns a duplicate of the descriptor, because the queue may be closed while a thread polls.
    pub fn try_clone(&self) -> Option<OwnedFd> {
        self.all.try_clone().ok()
    }
}

/// Sleeps until the descriptor is readable, for at most `time`.
pub fn sleep_on(fd: BorrowedFd<'_>, time: Duration) {
    let time = Timespec::try_from(time).ok();
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], time.as_ref());
}
