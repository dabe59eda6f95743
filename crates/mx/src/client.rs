//! An attached process: its socket, its unread messages, and its accounts.
//!
//! A [`ClientProcess`] parses requests and queues answers. It decides nothing about endpoints or
//! channels (`mx::requests` does), and never blocks: a message that the socket does not take waits.
//!
//! *Unread* messages are those that the full socket buffer did not take. A process with
//! [`UNREAD_MAX`] (16) unread messages must read before its requests are read; with [`BACKLOG_MAX`]
//! (256), other processes cannot connect to it; with 1,024, it is disconnected. Reports of closed
//! channels wait without a limit of their own, at most one per channel. Waking processes is charged
//! to their user ([`WakeAccount`]): after slow wake-ups sending pauses, and beyond the account's
//! limit the process is disconnected. A malformed request or wrong descriptors disconnect it too.
//! After [`ClientProcess::end`] nothing more is sent, and unsent messages are discarded.
//!
//! Owned by `mx::service`, on the dispatcher's thread.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_attach::local::{LocalAttachment, LocalError, LocalMessage};
use causeway_attach::{Attachment as _, Event};
use causeway_fabric::wakes::{self, Verdict, WakeAccount};
use causeway_fabric::{Context, PortId, ServiceWatch};
use causeway_host::ReceivedFd;
use causeway_model::Name;
use causeway_wire::local::{ClientMessage, DaemonMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::{BACKLOG_MAX, UNREAD_MAX, WORK_AHEAD_NS};
use crate::quotas::ProcessQuota;

/// An attached process.
#[derive(Debug)]
pub struct ClientProcess {
    /// Port of the NIC to which the process attached.
    pub port: PortId,
    /// The socket, with the unread messages.
    local: LocalAttachment,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
    /// Watches the socket for room while messages are unsent.
    room: Option<ServiceWatch>,
    /// The process sent its protocol version.
    pub greeted: bool,
    /// The process gets channels to other processes.
    pub has_channels: bool,
    /// User of the process.
    pub uid: Option<u32>,
    /// Pidfd of the process for other processes of its user, if the process uses direct copies.
    pub process: Option<OwnedFd>,
    /// Quota of the process: regions and endpoints.
    pub quota: ProcessQuota,
    /// Time until which the requests of the process are paid for.
    pub paid_ns: u64,
    /// Reports of closed channels that wait for room: at most as many as the process had channels.
    closed_reports: VecDeque<DaemonMessage>,
    /// Reason for disconnecting the process.
    ended: Option<LocalError>,
    /// Account of the wake-ups of the user's processes.
    wakes: Arc<Mutex<WakeAccount>>,
    /// Nothing is sent before this time.
    paused_until: Option<Instant>,
}

impl ClientProcess {
    /// Returns an attached process that has sent no request yet.
    pub fn new(
        port: PortId,
        local: LocalAttachment,
        watch: ServiceWatch,
        group: Name,
        (uid, process): (Option<u32>, Option<OwnedFd>),
        wakes: Arc<Mutex<WakeAccount>>,
    ) -> Self {
        let closed_reports = VecDeque::new();
        let (room, quota) = (None, ProcessQuota::new(group, uid));
        Self {
            port,
            local,
            watch,
            room,
            greeted: false,
            has_channels: true,
            uid,
            process,
            quota,
            paid_ns: 0,
            closed_reports,
            ended: None,
            wakes,
            paused_until: None,
        }
    }

    /// Starts or stops watching the socket for room, as needed.
    pub fn watch_room(&mut self, cx: &Context<'_>, value: u32) {
        if self.local.backlog() == 0 {
            self.room = None;
        } else if self.room.is_none() {
            // Without a free descriptor the next pass tries again.
            self.room = cx.watch(self.local.as_fd(), value).ok();
        }
    }

    /// Returns whether the process reads its messages, so that others may add more.
    pub fn is_reading(&self) -> bool {
        self.closed_reports.is_empty() && self.local.backlog() < BACKLOG_MAX
    }

    /// Returns whether requests are read: a process with too many unread messages must read first.
    pub fn may_request(&self) -> bool {
        self.local.backlog() < UNREAD_MAX
    }

    /// Returns whether the process closed its socket, without reading its pending requests.
    pub fn is_gone(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut socket = [PollFd::new(&self.local, PollFlags::empty())];
        let seen = poll(&mut socket, Some(&now));
        let [socket] = socket;
        seen == Ok(1) && socket.revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Returns the number of descriptors that the process has not read.
    pub fn unread_descriptors(&self) -> usize {
        self.local.descriptors()
    }

    /// Returns whether a message waits because the kernel refuses its descriptors at present.
    pub fn is_at_descriptor_limit(&self) -> bool {
        self.local.is_at_descriptor_limit()
    }

    /// Reports a closed channel, now or when the process reads again. Other processes close
    /// channels, so that this must not disconnect a slow reader.
    pub fn report_gone(&mut self, gone: DaemonMessage) {
        if self.is_reading() {
            self.notify(&gone, Vec::new());
        } else {
            self.closed_reports.push_back(gone);
        }
    }

    /// Returns the next request of the process with the memory that it carries, or `None`. A
    /// malformed request, wrong descriptors or a closed socket end the process ([`Self::ended`]).
    pub fn next(&mut self) -> Option<(ClientMessage, Option<ReceivedFd>)> {
        let mut events = Vec::new();
        if let Err(error) = self.local.poll(&mut events) {
            self.end(error.into());
        }
        if events.contains(&Event::Closed) {
            self.end(LocalError::Closed);
        }
        let LocalMessage { bytes, mut fds } = self.local.take_message()?;
        match ClientMessage::parse(&bytes) {
            Ok(ask) => {
                let wanted = usize::from(matches!(ask, ClientMessage::Region { .. }));
                if fds.len() == wanted {
                    return Some((ask, fds.pop()));
                }
                self.end(LocalError::Descriptors);
            }
            Err(error) => self.end(LocalError::Host(std::io::Error::other(error))),
        }
        None
    }

    /// Queues a message to the process, and sends it if possible.
    pub fn notify(&mut self, message: &DaemonMessage, fds: Vec<OwnedFd>) {
        if self.ended.is_some() {
            return;
        }
        match self.local.queue(message.emit(), fds) {
            Ok(()) => self.send(),
            Err(ended) => self.end(ended),
        }
    }

    /// Returns whether sending is paused because waking the process takes long.
    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// Sends the queued messages unless sending is paused.
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
            Verdict::Excess => self.end(LocalError::Wakes(wakes::EXCESS)),
        }
    }

    /// Sends the queued messages and reports, because the socket has room.
    pub fn flush(&mut self) {
        self.send();
        while self.local.backlog() < BACKLOG_MAX
            && let Some(gone) = self.closed_reports.pop_front()
        {
            self.notify(&gone, Vec::new());
        }
    }

    /// Returns the time at which the process may make another costly request, if not now.
    pub fn charged_until(&self, now: u64, paid_by_user: u64) -> Option<u64> {
        if self.is_paused() {
            // Each answer would have to wait as well.
            return Some(now);
        }
        let free = self.paid_ns.max(paid_by_user).saturating_sub(WORK_AHEAD_NS);
        (free > now).then_some(free)
    }

    /// Marks the process for disconnection. The first reason is kept.
    pub fn end(&mut self, ended: LocalError) {
        self.ended.get_or_insert(ended);
    }

    /// Returns the reason for disconnecting the process, if it is to be disconnected.
    pub fn ended(&self) -> Option<&LocalError> {
        self.ended.as_ref()
    }
}
