//! The backend half in the process itself: where the board lets its processes at the network, what
//! goes to other hosts takes no way through the daemon.
//!
//! The daemon opened the socket and said, for good, that nothing comes by it but what is for this
//! endpoint; it still knows who is where. All else is as with rings to the daemon, at whose other
//! end the process now is itself. So it goes on in calls alone, as the rest of an endpoint: what
//! comes while nobody calls waits in the socket, and is acknowledged then. So partners have
//! patience ([`GIVE_UP_NS`]); that one ended its daemon says.
//!
//! What is sent goes past the host's queueing discipline too, as frames of other ways past a kernel
//! do, which saves some 0.1 us of 2.9: tc(8) and tcpdump(8) see it at the receiver only.
//! `CAUSEWAY_QDISC=1` in a process's environment lets them see what it sends.
//!
//! # Budget
//! A short message goes to the engine at once, past its own rings ([`Bypass::send_untold`]): one
//! system call, some 1,500 instructions before it, and nobody is told when it is there. One that
//! comes: no call, one event, some 2,500 instructions. A long one that lies in one piece is read by
//! the kernel where it lies, in frames of 4 or 8 KiB, 64 of them in a system call; we copy only
//! what the host has no room for, and an end of less than 100 bytes. Who sleeps pays five calls
//! more, and a wake-up, which no daemon stands between.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use causeway_host::OwnMemory;
use causeway_host::net::receiver::PacketInlet;
use causeway_host::net::socket::PacketSocket;
use causeway_message::split::{NicId, PeerId, RegionId};
use causeway_mxoe::driver::limits::{FRAME_ROOM, FRAMES_BEFORE_DUE_MAX, WIDE_MTU, slots_for};
use causeway_mxoe::driver::{Action as Said, EndpointIo as Desk, Engine as Half};
use causeway_mxoe::{Config, Dropped};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::endpoint::{now, ticks};
use crate::limits::{
    FRAMES_OF_TURN, GIVE_UP_NS, LAST_PAUSE, LAST_TRIES, LOOK_TICKS, REQUESTS_OF_TURN, SLEEP_MAX,
};
use crate::strangers::Strangers;

/// What rings among the bells of partners, whose numbers are lower.
pub const BELL: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub struct Bypass {
    half: Half<(), Arc<PacketSocket>>,
    endpoint: u8,
    socket: Arc<PacketSocket>,
    #[expect(dead_code, reason = "held for its lock: daemons to come see by it that we are here")]
    lock: OwnedFd,
    inlet: PacketInlet,
    /// For frames that are not read in the ring.
    room: Vec<u8>,
    /// Rings when something is due, while somebody sleeps.
    timer: OwnedFd,
    /// Somebody sleeps until then.
    sleeps_until: Option<u64>,
    /// When all was looked at last, in ticks of the processor's counter.
    looked: u64,
    /// We slept, and it may be for this that we woke.
    slept: bool,
    strangers: Strangers,
    /// Our own rings are nonsense: nothing comes any more.
    pub broken: bool,
}

/// Rings once, by `bells`, when there is something. Only until that is over: who watches a socket
/// costs each frame of it something.
fn ring_once(bells: BorrowedFd<'_>, of: BorrowedFd<'_>) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
    let data = epoll::EventData::new_u64(BELL);
    match epoll::add(bells, of, data, flags) {
        Err(Errno::EXIST) => Ok(epoll::modify(bells, of, data, flags)?),
        added => Ok(added?),
    }
}

impl Bypass {
    /// Of an endpoint of a board, with its key and session (`secrets`), by a socket and a lock that
    /// the daemon gave. Also the memory of the rings.
    ///
    /// # Errors
    /// The host has no room.
    pub fn new(
        (board, endpoint): (NicId, u8),
        secrets: (u32, u32),
        (socket, lock): (OwnedFd, OwnedFd),
    ) -> io::Result<(Self, OwnedFd)> {
        let socket = Arc::new(PacketSocket::given(socket)?);
        if std::env::var_os("CAUSEWAY_QDISC").is_none_or(|value| value != "1") {
            // A host without that sends all the same.
            let _ = socket.skip_queues();
        }
        let mut inlet = PacketInlet::default();
        // Where the host gives no ring, each frame takes a system call.
        let _ = inlet.open(&socket, slots_for(socket.mtu()));
        // Names are the daemon's to tell; and partners who are at the network themselves, too, say
        // nothing while they do not call.
        let config = Config {
            give_up_ns: GIVE_UP_NS,
            silent: true,
            wide: socket.mtu() >= WIDE_MTU,
            ..Config::new(board, "")
        };
        let mut half = Half::new(config, Some(Arc::clone(&socket)));
        let (desk, file) = Desk::new(())?;
        half.open(endpoint, secrets, desk)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let bypass = Self {
            half,
            endpoint,
            socket,
            lock,
            inlet,
            room: vec![0; FRAME_ROOM],
            timer,
            sleeps_until: None,
            looked: 0,
            slept: false,
            strangers: Strangers::default(),
            broken: false,
        };
        Ok((bypass, file))
    }

    /// Something was written into the rings: it leaves.
    #[inline]
    pub fn send(&mut self) {
        let now = now();
        self.half.serve(now, self.endpoint, REQUESTS_OF_TURN, true);
        self.settle(now);
    }

    /// Sends a message past the rings, where that is the straight way: nobody is told of it unless
    /// it fails. False: nothing was done, and it goes by the rings.
    #[inline]
    pub fn send_untold(&mut self, to: (PeerId, u64), data: (&[u8], &[u8])) -> bool {
        let now = now();
        let sent = self.half.send_untold(now, self.endpoint, to, data);
        if sent {
            self.settle(now);
        }
        sent
    }

    /// Whether what was said to be sent is not known to be there.
    pub fn is_sending(&self) -> bool {
        self.half.board.untold(self.endpoint) > 0
    }

    /// Looks whether there is anything to do, and does it. Says whether there was.
    #[inline]
    pub fn turn(&mut self) -> bool {
        self.comes() && self.look()
    }

    /// Whether there may be anything to do, as a glance shows. What it does not show is looked at now
    /// and then.
    #[inline]
    pub fn comes(&self) -> bool {
        self.inlet.comes()
            || self.half.asks(self.endpoint)
            || !self.strangers.is_empty()
            || ticks().wrapping_sub(self.looked) >= LOOK_TICKS
    }

    /// Looks at all that there is to do. Says whether there was anything.
    fn look(&mut self) -> bool {
        self.looked = ticks();
        let now = now();
        let mut frames = self.take_frames(now, FRAMES_OF_TURN);
        let requests = if self.half.asks(self.endpoint) {
            self.half.serve(now, self.endpoint, REQUESTS_OF_TURN, true).1
        } else {
            0
        };
        let due = self.half.is_due(now);
        if due {
            // What is waited for may be here: who did not look is not to take it for lost.
            frames |= self.take_frames(now, FRAMES_BEFORE_DUE_MAX);
            self.half.tick(now);
        }
        let left = self.half.outlet.frames.sent;
        self.settle(now);
        requests > 0 || frames || due || self.half.outlet.frames.sent != left
    }

    fn settle(&mut self, now: u64) {
        let broken = &mut self.broken;
        self.half.outlet.settle(now, |_, (), said| *broken |= matches!(said, Said::Broken(_)));
        if let Some(until) = self.sleeps_until {
            self.hurry(until);
        }
    }

    /// Another thread sleeps until then, and something may be due earlier by now.
    #[cold]
    fn hurry(&mut self, until: u64) {
        let at = self.deadline();
        if at < until && self.wake_at(at).is_ok() {
            self.sleeps_until = Some(at);
        }
    }

    /// When something is due.
    fn deadline(&self) -> u64 {
        self.half.deadline().min(self.inlet.deadline())
    }

    /// Takes what came, so much at most: whether there was anything.
    fn take_frames(&mut self, now: u64, most: usize) -> bool {
        for count in 0..most {
            self.inlet.let_go();
            if count > 0 && !self.inlet.comes() {
                break;
            }
            let asks = std::mem::take(&mut self.slept);
            let packet = match self.inlet.look(&self.socket, &mut self.room, now, asks) {
                Ok(packet) => packet,
                Err(error) => {
                    if error.kind() == io::ErrorKind::NotConnected {
                        // The host had no room for a new ring: each frame takes a system call.
                        self.inlet.close();
                    }
                    // While the interface is down, nothing comes.
                    return count > 0;
                }
            };
            let whole = self.inlet.held().unwrap_or(&self.room);
            // What has a tag is another network's.
            let frame = whole.get(..packet.len).filter(|_| packet.tag.is_none());
            let Some(frame) = frame else { continue };
            if self.half.arrive(now, frame) == Err(Dropped::UnknownBoard)
                && let Some([_, _, _, _, _, _, from @ ..]) = frame.first_chunk::<12>()
            {
                let board = NicId::of(*from);
                self.strangers.met(now, board);
            }
        }
        true
    }

    /// The next board of which the daemon is to be asked whether it knows it.
    #[inline]
    pub fn stranger(&mut self) -> Option<NicId> {
        self.strangers.next()
    }

    /// The daemon knows this board.
    pub fn know(&mut self, board: NicId) {
        let _ = self.half.board.host_add(board);
    }

    /// Takes memory for large messages.
    pub fn lend(&mut self, file: &OwnedFd, len: u64) -> Option<RegionId> {
        self.half.lend(self.endpoint, file.as_fd(), len).ok()
    }

    /// Memory of this process that is sent from where it lies, as one region.
    pub fn lend_own(&mut self) -> Option<(RegionId, OwnMemory)> {
        let own = OwnMemory::new().ok()?;
        self.half.lend_own(self.endpoint, own.clone()).map(|region| (region, own))
    }

    /// Lets memory go.
    pub fn give_back(&mut self, region: RegionId) {
        let now = now();
        self.half.give_back(now, self.endpoint, region);
        self.settle(now);
    }

    /// Before sleeping: asks to be woken when something comes, or is due. False: there is something
    /// to do.
    pub fn arm(&mut self, bells: BorrowedFd<'_>) -> bool {
        if self.look() || !self.strangers.is_empty() {
            return false;
        }
        self.slept = true;
        let at = self.deadline();
        self.sleeps_until = Some(at);
        let armed = self.wake_at(at).and_then(|()| ring_once(bells, self.timer.as_fd()));
        armed.and_then(|()| ring_once(bells, self.socket.as_fd())).is_ok()
    }

    /// After sleeping.
    pub fn disarm(&mut self, bells: BorrowedFd<'_>) {
        if self.sleeps_until.take().is_some() {
            for fd in [self.socket.as_fd(), self.timer.as_fd()] {
                let _ = epoll::delete(bells, fd);
            }
        }
    }

    fn wake_at(&self, at_ns: u64) -> io::Result<()> {
        // None at all would mean never.
        let time = Duration::from_nanos(at_ns.saturating_sub(now()).max(1)).min(SLEEP_MAX);
        let at = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Itimerspec { it_interval: once, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &at)?;
        Ok(())
    }

    /// The endpoint is closed: what was asked for is done, and what came acknowledged.
    pub fn close(&mut self) {
        let now = now();
        self.half.take_last(now, self.endpoint);
        self.half.close(now, self.endpoint);
        self.settle(now);
        // What the host has no room for now is not to be lost with us.
        for _ in 0..LAST_TRIES {
            if self.half.outlet.frames.again_ns.is_none() {
                break;
            }
            std::thread::sleep(LAST_PAUSE);
            self.half.outlet.frames.flush(crate::endpoint::now());
        }
    }
}
