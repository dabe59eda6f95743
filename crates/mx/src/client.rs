//! A process that is attached.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_attach::local::{Ended, Local, Received};
use causeway_attach::{Attachment as _, Event};
use causeway_fabric::wakes::{self, Verdict, Wakes};
use causeway_fabric::{Context, PortId, ServiceWatch};
use causeway_host::ReceivedFd;
use causeway_model::Name;
use causeway_wire::local::{Ask, Tell};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lent::Lent;
use crate::limits::{BACKLOG_MAX, UNREAD_MAX, WORK_AHEAD_NS};

/// See above.
#[derive(Debug)]
pub struct Client {
    pub port: PortId,
    local: Local,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
    /// While it has not read all that it is told: to hear of room for that.
    room: Option<ServiceWatch>,
    /// Whether it has said which version it speaks.
    pub greeted: bool,
    /// The user whose it is.
    pub uid: Option<u32>,
    /// Itself, for others of its user; if it says that it is for that.
    pub process: Option<OwnedFd>,
    /// The memory that it lent.
    pub lent: Lent,
    /// What it asked for is paid by then.
    pub paid_ns: u64,
    /// Ways that closed while it left much unread: at most as many as it had.
    gone: VecDeque<Tell>,
    /// Why it is to be parted from.
    ended: Option<Ended>,
    /// What messages to the processes of its user cost.
    wakes: Arc<Mutex<Wakes>>,
    /// Nothing is sent to it before.
    paused_until: Option<Instant>,
}

impl Client {
    pub fn new(
        port: PortId,
        local: Local,
        watch: ServiceWatch,
        group: Name,
        (uid, process): (Option<u32>, Option<OwnedFd>),
        wakes: Arc<Mutex<Wakes>>,
    ) -> Self {
        let gone = VecDeque::new();
        let (room, lent) = (None, Lent::nothing(group, uid));
        Self {
            port,
            local,
            watch,
            room,
            greeted: false,
            uid,
            process,
            lent,
            paid_ns: 0,
            gone,
            ended: None,
            wakes,
            paused_until: None,
        }
    }

    /// Hears of room in its socket from now on, if something waits for that.
    pub fn watch_room(&mut self, cx: &Context<'_>, value: u32) {
        if self.local.backlog() == 0 {
            self.room = None;
        } else if self.room.is_none() {
            // Without a descriptor now: when it is looked at next.
            self.room = cx.watch(self.local.as_fd(), value).ok();
        }
    }

    /// Whether it reads what it is told: others may give it more to read.
    pub fn reads(&self) -> bool {
        self.gone.is_empty() && self.local.backlog() < BACKLOG_MAX
    }

    /// Whether it is listened to: who does not read what it is told asks for no more.
    pub fn is_heard(&self) -> bool {
        self.local.backlog() < UNREAD_MAX
    }

    /// Whether it is gone: that is seen without taking what it asked before.
    pub fn is_gone(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut socket = [PollFd::new(&self.local, PollFlags::empty())];
        let seen = poll(&mut socket, Some(&now));
        let [socket] = socket;
        seen == Ok(1) && socket.revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// How many descriptors it has not read.
    pub fn unread_descriptors(&self) -> usize {
        self.local.descriptors()
    }

    /// Whether it is to be told something that the host does not let pass now.
    pub fn is_stuck(&self) -> bool {
        self.local.is_stuck()
    }

    /// Tells it that a way is closed, when it reads again: others do that, and it is not to be
    /// parted from for it.
    pub fn tell_gone(&mut self, gone: Tell) {
        if self.reads() {
            self.tell(&gone, Vec::new());
        } else {
            self.gone.push_back(gone);
        }
    }

    /// Returns the next request of the process, if there is one, and the memory that comes with it.
    pub fn next(&mut self) -> Option<(Ask, Option<ReceivedFd>)> {
        let mut events = Vec::new();
        if let Err(error) = self.local.poll(&mut events) {
            self.end(error.into());
        }
        if events.contains(&Event::Closed) {
            self.end(Ended::Closed);
        }
        let Received { bytes, mut fds } = self.local.take_message()?;
        match Ask::parse(&bytes) {
            Ok(ask) => {
                let wanted = usize::from(matches!(ask, Ask::Region { .. }));
                if fds.len() == wanted {
                    return Some((ask, fds.pop()));
                }
                self.end(Ended::Descriptors);
            }
            Err(error) => self.end(Ended::Host(std::io::Error::other(error))),
        }
        None
    }

    /// Tells it something.
    pub fn tell(&mut self, tell: &Tell, fds: Vec<OwnedFd>) {
        if self.ended.is_some() {
            return;
        }
        match self.local.queue(tell.emit(), fds) {
            Ok(()) => self.send(),
            Err(ended) => self.end(ended),
        }
    }

    /// Returns whether nothing is sent to it now because waking it takes long.
    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// Sends what waits, unless that is to wait on.
    fn send(&mut self) {
        if self.is_paused() {
            return;
        }
        self.paused_until = None;
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        let (sent, verdict) = wakes.charge(|| self.local.flush());
        drop(wakes);
        if let Err(ended) = sent {
            self.end(ended);
        }
        match verdict {
            Verdict::Fine => {}
            Verdict::Pause(pause) => {
                self.paused_until = Instant::now().checked_add(Duration::from_nanos(pause));
            }
            Verdict::Excess => self.end(Ended::Wakes(wakes::EXCESS)),
        }
    }

    /// There is room in its socket again.
    pub fn flush(&mut self) {
        self.send();
        while self.local.backlog() < BACKLOG_MAX
            && let Some(gone) = self.gone.pop_front()
        {
            self.tell(&gone, Vec::new());
        }
    }

    /// When it may ask for work again, if not now.
    pub fn rests_until(&self, now: u64, paid_by_user: u64) -> Option<u64> {
        if self.is_paused() {
            // Each answer would wait as well.
            return Some(now);
        }
        let free = self.paid_ns.max(paid_by_user).saturating_sub(WORK_AHEAD_NS);
        (free > now).then_some(free)
    }

    /// It is to be parted from; the first reason counts.
    pub fn end(&mut self, ended: Ended) {
        self.ended.get_or_insert(ended);
    }

    /// Why it is to be parted from, if it is.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }
}
