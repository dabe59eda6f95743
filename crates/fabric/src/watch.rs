//! Watched descriptors: an epoll set per dispatcher and per shard, and the meaning of its events.
//!
//! Dispatchers and shards watch file descriptors by [`Poller::watch`], services through their
//! [`Context`](crate::Context); the dispatcher and the shard read the events by [`Poller::wait`]
//! and find the subject by its [`WatchToken`]. A [`Watch`] ends when it is dropped; an event that
//! was read before may still be delivered, so tokens of slots carry a serial number.
//!
//! Each watch uses a file descriptor of its own, a duplicate. Only [`Trigger::Readable`] is
//! level-triggered. An error or hang-up is reported as readable and writable, even by a muted
//! watch. A watch fails if the process has no descriptor left. Reads of the set may come from one
//! thread at a time. Queue numbers in tokens have 12 bits, slots 16.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

/// Subject of an event. `serial` distinguishes a live object from an earlier object in the same
/// slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchToken {
    /// An order for the dispatcher.
    Order,
    /// The epoll set of a shard in the shard table.
    Shard { slot: u16, serial: u32 },
    /// A connection to a port's socket.
    Listener { slot: u16, serial: u32 },
    /// A message or the end of a frontend's connection.
    Frontend { slot: u16, serial: u32 },
    /// A doorbell of a guest.
    Doorbell { slot: u16, queue: u16, serial: u32 },
    /// A watched file descriptor of a service, by the number that the service gave it.
    Service { value: u32 },
    /// A source of a service, by the number that the service gave it.
    Source { value: u32 },
}

impl WatchToken {
    /// Packs into 4 bits of kind, 12 of queue, 16 of slot, 32 of serial or value.
    fn pack(self) -> u64 {
        let word = |kind: u64, queue: u16, slot: u16, low: u32| {
            kind << 60 | u64::from(queue & 0xfff) << 48 | u64::from(slot) << 32 | u64::from(low)
        };
        match self {
            Self::Order => word(0, 0, 0, 0),
            Self::Listener { slot, serial } => word(1, 0, slot, serial),
            Self::Frontend { slot, serial } => word(2, 0, slot, serial),
            Self::Doorbell { slot, queue, serial } => word(3, queue, slot, serial),
            Self::Service { value } => word(4, 0, 0, value),
            Self::Shard { slot, serial } => word(5, 0, slot, serial),
            Self::Source { value } => word(6, 0, 0, value),
        }
    }

    /// Reverts [`Self::pack`]. An unknown kind is an order, which is harmless: the dispatcher finds
    /// none.
    fn unpack(word: u64) -> Self {
        let queue = ((word >> 48) & 0xfff) as u16;
        let slot = (word >> 32) as u16;
        let serial = word as u32;
        match word >> 60 {
            1 => Self::Listener { slot, serial },
            2 => Self::Frontend { slot, serial },
            3 => Self::Doorbell { slot, queue, serial },
            4 => Self::Service { value: serial },
            5 => Self::Shard { slot, serial },
            6 => Self::Source { value: serial },
            _ => Self::Order,
        }
    }
}

/// Trigger of a watch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trigger {
    /// While there is data to read.
    Readable,
    /// Once for each ring of a doorbell; the counter need not be read.
    Doorbell,
    /// Once whenever more data arrives or the peer hangs up.
    NewData,
    /// Once whenever reading or writing becomes possible, or the peer hangs up.
    AnyEdge,
}

impl Trigger {
    /// Returns the epoll flags of the trigger.
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Readable => epoll::EventFlags::IN,
            Self::Doorbell => epoll::EventFlags::IN | epoll::EventFlags::ET,
            Self::NewData => {
                epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
            }
            Self::AnyEdge => {
                epoll::EventFlags::IN
                    | epoll::EventFlags::OUT
                    | epoll::EventFlags::RDHUP
                    | epoll::EventFlags::ET
            }
        }
    }
}

/// An event of a watched descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchEvent {
    /// Subject of the event.
    pub token: WatchToken,
    /// Reading is possible, or the descriptor failed or hung up.
    pub readable: bool,
    /// Writing is possible, or the descriptor failed or hung up.
    pub writable: bool,
}

/// A set of watched descriptors.
#[derive(Debug, Clone)]
pub(crate) struct Poller(Arc<OwnedFd>);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)))
    }

    /// Watches a duplicate of `fd` until the watch is dropped. The duplicate is needed because an
    /// eventfd stays alive in its other holders, and only an open descriptor can be unwatched.
    pub(crate) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        token: WatchToken,
        when: Trigger,
    ) -> io::Result<Watch> {
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        let data = epoll::EventData::new_u64(token.pack());
        epoll::add(&*self.0, &fd, data, when.flags())?;
        Ok(Watch { poller: self.clone(), fd, token, when })
    }

    /// Replaces `out` by at most `room` events: waits without end if `timeout_ns` is `None`, else
    /// at most that many nanoseconds. A signal ends the wait without events.
    pub(crate) fn wait(
        &self,
        out: &mut Vec<WatchEvent>,
        room: usize,
        timeout_ns: Option<u64>,
    ) -> io::Result<()> {
        let timeout = timeout_ns.map(|ns| rustix::event::Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        });
        out.clear();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(room);
        match epoll::wait(&*self.0, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP | epoll::EventFlags::RDHUP;
        for event in events {
            let flags = event.flags;
            out.push(WatchEvent {
                token: WatchToken::unpack(event.data.u64()),
                readable: flags.intersects(epoll::EventFlags::IN | failed),
                writable: flags.intersects(epoll::EventFlags::OUT | failed),
            });
        }
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A watched descriptor; unwatched when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    poller: Poller,
    fd: OwnedFd,
    token: WatchToken,
    when: Trigger,
}

impl Watch {
    /// Moves the watch to `poller`, which reports it as `token`. Needs no new descriptor. A watch
    /// that is there already gets the token, for which the kernel needs no memory.
    ///
    /// # Errors
    /// The kernel refuses; the watch stays where it was.
    pub(crate) fn move_to(&mut self, poller: &Poller, token: WatchToken) -> io::Result<()> {
        let (data, flags) = (epoll::EventData::new_u64(token.pack()), self.when.flags());
        if Arc::ptr_eq(&self.poller.0, &poller.0) {
            epoll::modify(&*poller.0, &self.fd, data, flags)?;
        } else {
            epoll::add(&*poller.0, &self.fd, data, flags)?;
            let _ = epoll::delete(&*self.poller.0, &self.fd);
        }
        (self.poller, self.token) = (poller.clone(), token);
        Ok(())
    }

    /// Disables all events but errors.
    pub(crate) fn mute(&self) -> io::Result<()> {
        self.set_events(epoll::EventFlags::ET)
    }

    /// Enables events again, and reports a descriptor that is ready already.
    pub(crate) fn unmute(&self) -> io::Result<()> {
        self.set_events(self.when.flags())
    }

    /// Replaces the events that the watch reports.
    fn set_events(&self, flags: epoll::EventFlags) -> io::Result<()> {
        let data = epoll::EventData::new_u64(self.token.pack());
        Ok(epoll::modify(&*self.poller.0, &self.fd, data, flags)?)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = epoll::delete(&*self.poller.0, &self.fd);
    }
}

/// A watched file descriptor of a service; unwatched when dropped.
#[derive(Debug)]
pub struct ServiceWatch(Watch);

impl ServiceWatch {
    /// Wraps a watch of a service's descriptor.
    pub(crate) const fn new(watch: Watch) -> Self {
        Self(watch)
    }

    /// Disables events other than errors while the service polls the descriptor, so that its writer
    /// pays no wake-up. Returns false if the host fails; the events then stay enabled.
    pub fn mute(&self) -> bool {
        self.0.mute().is_ok()
    }

    /// Enables events again, and reports a descriptor that is ready already. Returns false if the
    /// host fails.
    pub fn unmute(&self) -> bool {
        self.0.unmute().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_muted_descriptor_reports_nothing_until_unmuted() {
        let (poller, mut events) = (Poller::new().unwrap(), Vec::new());
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let eventfd = rustix::event::eventfd(0, flags).unwrap();
        let watch = poller
            .watch(eventfd.as_fd(), WatchToken::Source { value: 4 }, Trigger::Doorbell)
            .unwrap();
        let ring = || rustix::io::write(&eventfd, &1_u64.to_ne_bytes()).unwrap();
        let mut tokens = || {
            poller.wait(&mut events, 4, Some(0)).unwrap();
            events.iter().map(|event| event.token).collect::<Vec<_>>()
        };
        watch.mute().unwrap();
        ring();
        assert_eq!(tokens(), []);
        watch.unmute().unwrap();
        assert_eq!(tokens(), [WatchToken::Source { value: 4 }]);
        assert_eq!(tokens(), [], "once");
        ring();
        assert_eq!(tokens(), [WatchToken::Source { value: 4 }]);
    }

    #[test]
    fn watch_that_cannot_move_stays_and_gets_a_new_token() {
        let pollers = [(); 2].map(|()| Poller::new().unwrap());
        let eventfd = rustix::event::eventfd(1, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let inner = Poller::new().unwrap();
        let _ready = inner.watch(eventfd.as_fd(), WatchToken::Order, Trigger::Readable).unwrap();
        let token = |value| WatchToken::Source { value };
        let mut watch = pollers[0].watch(inner.as_fd(), token(1), Trigger::Readable).unwrap();
        let seen = |poller: &Poller| {
            let mut events = Vec::new();
            poller.wait(&mut events, 4, Some(0)).unwrap();
            events.iter().map(|event| event.token).collect::<Vec<_>>()
        };
        // An epoll set cannot watch itself.
        watch.move_to(&inner, token(2)).unwrap_err();
        assert_eq!(seen(&pollers[0]), [token(1)]);
        watch.move_to(&pollers[0], token(3)).unwrap();
        assert_eq!(seen(&pollers[0]), [token(3)]);
        watch.move_to(&pollers[1], token(4)).unwrap();
        assert_eq!((seen(&pollers[0]), seen(&pollers[1])), (vec![], vec![token(4)]));
        drop(watch);
        assert_eq!(seen(&pollers[1]), []);
    }

    #[test]
    fn watch_tokens_survive_packing() {
        for token in [
            WatchToken::Order,
            WatchToken::Listener { slot: 1023, serial: u32::MAX },
            WatchToken::Frontend { slot: 7, serial: 0 },
            WatchToken::Doorbell { slot: 65535, queue: 4095, serial: 3 },
            WatchToken::Service { value: u32::MAX },
            WatchToken::Source { value: 5 },
            WatchToken::Shard { slot: 9, serial: 7 },
        ] {
            assert_eq!(WatchToken::unpack(token.pack()), token);
        }
    }
}
