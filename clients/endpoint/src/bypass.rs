//! NIC side in the process (direct mode): where the NIC permits it, messages to other hosts do not
//! pass the daemon.
//!
//! The daemon opened the packet socket and attached, for good, a filter that passes frames for this
//! endpoint only. It still owns the directory. The rings are the same as to the daemon; the process
//! serves both ends. It works only within calls, as the rest of an endpoint: frames that arrive
//! between calls wait in the socket and are acknowledged later. A silent peer therefore counts as
//! lost only after [`GIVE_UP_NS`] (a day); the daemon reports an ended peer earlier.
//!
//! A turn handles at most [`REQUESTS_PER_TURN`] (256) requests and [`FRAMES_PER_TURN`] (64) frames.
//! A frame with a VLAN tag is dropped, as is a frame of an unknown NIC, about which the daemon is
//! asked. Invalid rings set [`Bypass::broken`]: from then on no event is delivered, and `Paths`
//! ends the rings, so that all requests to other hosts fail for the rest of the endpoint's life.
//! Closing retries the last frames [`LAST_SEND_TRIES`] (10) times, 1 ms apart; frames that find no
//! room until then are lost. While the interface is down no frame arrives, and after its removal
//! none for the rest of the endpoint's life.
//!
//! [`Paths`](crate::paths::Paths) owns the NIC side and calls it after each send, offer and pull in
//! the rings, and in polls of the rings. [`Engine`] has the protocol; this module has its socket,
//! timer and clock.
//!
//! Frames also bypass the host's queueing discipline, as with other kernel bypasses, which saves
//! 0.1 us of 2.9: tc(8) and tcpdump(8) see them at the receiver only. `CAUSEWAY_QDISC=1` in the
//! environment sends them through it.
//!
//! # Budget
//! A short message goes to the engine without the rings ([`Bypass::send_unreported`]): one system
//! call, about 1,500 instructions before it, and no completion event. A short message that arrives:
//! no system call, one event, about 2,500 instructions. The kernel reads a long contiguous message
//! from the application's memory, in frames of 4 or 8 KiB, 64 per system call; frames are copied
//! only while the host has no room, and for a rest below 100 bytes. A sleeping thread costs five
//! more system calls and a wake-up, without a daemon in between.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use causeway_host::AppMemory;
use causeway_host::net::receiver::PacketReceiver;
use causeway_host::net::socket::PacketSocket;
use causeway_message::split::{NicId, PeerId, RegionId};
use causeway_mxoe::driver::limits::{FRAME_ROOM, FRAMES_BEFORE_DUE_MAX, WIDE_MTU, slots_for};
use causeway_mxoe::driver::{EndpointAction, EndpointIo, Engine};
use causeway_mxoe::{DropReason, NicConfig};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::clock::{now, ticks};
use crate::limits::{
    FRAMES_PER_TURN, FULL_POLL_TICKS, GIVE_UP_NS, LAST_SEND_PAUSE, LAST_SEND_TRIES,
    REQUESTS_PER_TURN, SLEEP_MAX,
};
use crate::unknown_nics::UnknownNics;

/// Event number of this NIC side among the doorbells of peers, whose numbers are lower.
pub const DIRECT_EVENT: u64 = u64::MAX;

/// A NIC side for one endpoint.
#[derive(Debug)]
pub struct Bypass {
    /// MXoE engine with this endpoint only.
    engine: Engine<(), Arc<PacketSocket>>,
    /// Number of the endpoint.
    endpoint: u8,
    /// Packet socket from the daemon, with its filter.
    socket: Arc<PacketSocket>,
    #[expect(
        dead_code,
        reason = "held for its lock: a later daemon sees by it that this endpoint is open"
    )]
    lock: OwnedFd,
    /// Receive ring of the socket, or the socket itself if the host has no room for a ring.
    inlet: PacketReceiver,
    /// Buffer for frames that are not read in the ring.
    frame_buffer: Vec<u8>,
    /// Fires when a timer of the engine is due while a thread sleeps.
    timer: OwnedFd,
    /// Time until which another thread sleeps, in ns of the monotonic clock.
    sleep_until: Option<u64>,
    /// Time of the last full poll, in TSC ticks.
    polled_at: u64,
    /// A thread slept, and may have been woken by the socket.
    has_slept: bool,
    /// Senders to ask the daemon about.
    unknown_nics: UnknownNics,
    /// The rings are invalid: no more events come.
    pub broken: bool,
}

/// Watches `of` in `doorbells` for one event. A permanent watch would cost time for each frame.
fn watch_once(doorbells: BorrowedFd<'_>, of: BorrowedFd<'_>) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
    let data = epoll::EventData::new_u64(DIRECT_EVENT);
    match epoll::add(doorbells, of, data, flags) {
        Err(Errno::EXIST) => Ok(epoll::modify(doorbells, of, data, flags)?),
        added => Ok(added?),
    }
}

impl Bypass {
    /// Returns the NIC side of an endpoint, with its key and session (`secrets`), over a socket and
    /// a lock from the daemon. Also returns the memory of the rings.
    ///
    /// # Errors
    /// The kernel's error if the host has no room.
    pub fn new(
        (nic, endpoint): (NicId, u8),
        secrets: (u32, u32),
        (socket, lock): (OwnedFd, OwnedFd),
    ) -> io::Result<(Self, OwnedFd)> {
        let socket = Arc::new(PacketSocket::given(socket)?);
        if std::env::var_os("CAUSEWAY_QDISC").is_none_or(|value| value != "1") {
            // Without this option the socket sends through the queueing discipline.
            let _ = socket.skip_queues();
        }
        let mut inlet = PacketReceiver::default();
        // Without a ring, each frame takes a system call.
        let _ = inlet.open(&socket, slots_for(socket.mtu()));
        // The daemon answers name requests. Peers in direct mode are silent while they do not
        // call.
        let config = NicConfig {
            give_up_ns: GIVE_UP_NS,
            silent: true,
            wide: socket.mtu() >= WIDE_MTU,
            ..NicConfig::new(nic, "")
        };
        let mut engine = Engine::new(config, Some(Arc::clone(&socket)));
        let (io, file) = EndpointIo::new(())?;
        engine.open(endpoint, secrets, io)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let bypass = Self {
            engine,
            endpoint,
            socket,
            lock,
            inlet,
            frame_buffer: vec![0; FRAME_ROOM],
            timer,
            sleep_until: None,
            polled_at: 0,
            has_slept: false,
            unknown_nics: UnknownNics::default(),
            broken: false,
        };
        Ok((bypass, file))
    }

    /// Handles the requests in the rings.
    #[inline]
    pub fn send(&mut self) {
        let now = now();
        self.engine.serve(now, self.endpoint, REQUESTS_PER_TURN, true);
        self.flush(now);
    }

    /// Sends a short message without the rings; only a failure is reported. `to` is the NIC side's
    /// number of the peer and the match information, `data` the message in two pieces. Returns
    /// false without effect if the message must go through the rings.
    #[inline]
    pub fn send_unreported(&mut self, to: (PeerId, u64), data: (&[u8], &[u8])) -> bool {
        let now = now();
        let sent = self.engine.send_unreported(now, self.endpoint, to, data);
        if sent {
            self.flush(now);
        }
        sent
    }

    /// Returns whether messages of [`Self::send_unreported`] are unacknowledged.
    pub fn is_sending(&self) -> bool {
        self.engine.nic.unreported(self.endpoint) > 0
    }

    /// Polls, if a cheap check finds work. Returns whether there was any.
    #[inline]
    pub fn poll_if_ready(&mut self) -> bool {
        self.may_have_work() && self.poll()
    }

    /// Returns whether there may be work, by a cheap check; the rest is polled from time to time.
    #[inline]
    pub fn may_have_work(&self) -> bool {
        self.inlet.comes()
            || self.engine.has_work(self.endpoint)
            || !self.unknown_nics.is_empty()
            || ticks().wrapping_sub(self.polled_at) >= FULL_POLL_TICKS
    }

    /// Polls everything. Returns whether there was any work.
    fn poll(&mut self) -> bool {
        self.polled_at = ticks();
        let now = now();
        let mut frames = self.take_frames(now, FRAMES_PER_TURN);
        let requests = if self.engine.has_work(self.endpoint) {
            self.engine.serve(now, self.endpoint, REQUESTS_PER_TURN, true).1
        } else {
            0
        };
        let due = self.engine.is_due(now);
        if due {
            // The awaited frame may be in the socket: read it before a retransmit timer fires.
            frames |= self.take_frames(now, FRAMES_BEFORE_DUE_MAX);
            self.engine.tick(now);
        }
        let left = self.engine.tx_path.frames.sent;
        self.flush(now);
        requests > 0 || frames || due || self.engine.tx_path.frames.sent != left
    }

    /// Sends the frames and events that the engine produced.
    fn flush(&mut self, now: u64) {
        let broken = &mut self.broken;
        self.engine
            .tx_path
            .commit(now, |_, (), action| *broken |= matches!(action, EndpointAction::Broken(_)));
        if let Some(until) = self.sleep_until {
            self.shorten_sleep(until);
        }
    }

    /// Shortens another thread's sleep if a timer is due earlier now.
    #[cold]
    fn shorten_sleep(&mut self, until: u64) {
        let at = self.deadline();
        if at < until && self.wake_at(at).is_ok() {
            self.sleep_until = Some(at);
        }
    }

    /// Returns the time of the next timer.
    fn deadline(&self) -> u64 {
        self.engine.deadline().min(self.inlet.deadline())
    }

    /// Handles at most `most` frames. Returns whether there were any.
    fn take_frames(&mut self, now: u64, most: usize) -> bool {
        for count in 0..most {
            self.inlet.let_go();
            if count > 0 && !self.inlet.comes() {
                break;
            }
            let after_sleep = std::mem::take(&mut self.has_slept);
            let packet =
                match self.inlet.look(&self.socket, &mut self.frame_buffer, now, after_sleep) {
                    Ok(packet) => packet,
                    Err(error) => {
                        if error.kind() == io::ErrorKind::NotConnected {
                            // No room for a new ring: each frame takes a system call.
                            self.inlet.close();
                        }
                        // The interface is down: no frames arrive.
                        return count > 0;
                    }
                };
            let whole = self.inlet.held().unwrap_or(&self.frame_buffer);
            // A tagged frame belongs to another network.
            let frame = whole.get(..packet.len).filter(|_| packet.tag.is_none());
            let Some(frame) = frame else { continue };
            if self.engine.receive(now, frame) == Err(DropReason::UnknownNic)
                && let Some([_, _, _, _, _, _, from @ ..]) = frame.first_chunk::<12>()
            {
                let nic = NicId::of(*from);
                self.unknown_nics.record(now, nic);
            }
        }
        true
    }

    /// Returns the next unknown NIC to ask the daemon about.
    #[inline]
    pub fn next_unknown_nic(&mut self) -> Option<NicId> {
        self.unknown_nics.next()
    }

    /// Records that the daemon knows this NIC.
    pub fn add_known_nic(&mut self, nic: NicId) {
        let _ = self.engine.nic.nic_add(nic);
    }

    /// Adds a staging slab of `len` bytes. Returns `None` if the engine refuses it or it cannot be
    /// mapped.
    pub fn add_staging(&mut self, file: &OwnedFd, len: u64) -> Option<RegionId> {
        self.engine.add_region(self.endpoint, file.as_fd(), len).ok()
    }

    /// Adds the process's own memory as a region, from which contiguous messages are sent.
    pub fn add_own_memory(&mut self) -> Option<(RegionId, AppMemory)> {
        let own = AppMemory::new().ok()?;
        self.engine.add_own_region(self.endpoint, own.clone()).map(|region| (region, own))
    }

    /// Removes a staging slab. The caller has no window of the slab in use.
    pub fn remove_staging(&mut self, region: RegionId) {
        let now = now();
        self.engine.remove_region(now, self.endpoint, region);
        self.flush(now);
    }

    /// Prepares to sleep: asks for a wake-up by frames and timers. Returns false if there is work.
    pub fn arm(&mut self, doorbells: BorrowedFd<'_>) -> bool {
        if self.poll() || !self.unknown_nics.is_empty() {
            return false;
        }
        self.has_slept = true;
        let at = self.deadline();
        self.sleep_until = Some(at);
        let armed = self.wake_at(at).and_then(|()| watch_once(doorbells, self.timer.as_fd()));
        armed.and_then(|()| watch_once(doorbells, self.socket.as_fd())).is_ok()
    }

    /// Ends the watches of [`Self::arm`].
    pub fn disarm(&mut self, doorbells: BorrowedFd<'_>) {
        if self.sleep_until.take().is_some() {
            for fd in [self.socket.as_fd(), self.timer.as_fd()] {
                let _ = epoll::delete(doorbells, fd);
            }
        }
    }

    /// Sets the timer for a time in ns of the monotonic clock, at most [`SLEEP_MAX`] (60 s) ahead.
    fn wake_at(&self, at_ns: u64) -> io::Result<()> {
        // A time of 0 would disarm the timer.
        let time = Duration::from_nanos(at_ns.saturating_sub(now()).max(1)).min(SLEEP_MAX);
        let at = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Itimerspec { it_interval: once, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &at)?;
        Ok(())
    }

    /// Closes the endpoint: handles outstanding requests, and acknowledges received messages.
    pub fn close(&mut self) {
        let now = now();
        self.engine.drain_requests(now, self.endpoint);
        self.engine.close(now, self.endpoint);
        self.flush(now);
        // Frames for which the host has no room now must leave before the process ends.
        for _ in 0..LAST_SEND_TRIES {
            if self.engine.tx_path.frames.again_ns.is_none() {
                break;
            }
            std::thread::sleep(LAST_SEND_PAUSE);
            self.engine.tx_path.frames.flush(crate::clock::now());
        }
    }
}
