//! An attached process: its socket or session, its unread messages, and its accounts.
//!
//! A [`ClientProcess`] parses requests and queues answers. It decides nothing about endpoints or
//! channels (`mx::requests` does), and never blocks: a message that the socket does not take waits.
//!
//! *Unread* messages are those that the full socket buffer, or the session, did not take. A process
//! with [`UNREAD_MAX`](crate::limits::UNREAD_MAX) (16) unread messages must read before its
//! requests are read; with [`BACKLOG_MAX`] (256), other processes cannot connect to it; with 1,024,
//! it is disconnected. Reports of closed channels wait without a limit of their own, at most one
//! per channel. Waking processes is charged to their user ([`WakeAccount`]): after slow wake-ups
//! sending pauses, and beyond the account's limit the process is disconnected. A malformed request
//! or wrong descriptors disconnect it too. After [`ClientProcess::end`] no message is queued, and
//! unsent messages are discarded.
//!
//! Owned by `mx::service`, on the dispatcher's thread.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_attach::local::LocalError;
use causeway_fabric::guest_session::GuestSession;
use causeway_fabric::wakes::{self, Verdict, WakeAccount};
use causeway_fabric::{Context, PortId};
use causeway_model::Name;
use causeway_wire::local::{ClientMessage, DaemonMessage};

use crate::attachment::{ProcessAttachment, RequestMemory};
use crate::attention::Attention;
use crate::limits::{BACKLOG_MAX, WORK_AHEAD_NS};
use crate::quotas::ProcessQuota;
use crate::user::User;

/// An attached process.
#[derive(Debug)]
pub struct ClientProcess {
    /// Port of the NIC to which the process attached.
    pub port: PortId,
    /// The connection, with the unread messages.
    attachment: ProcessAttachment,
    /// The process sent its protocol version.
    pub greeted: bool,
    /// The process gets channels to other processes.
    pub has_channels: bool,
    /// User of the process.
    pub user: User,
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
    /// Raised for a pass of the service over its processes: to disconnect this one, or to watch its
    /// socket.
    attention: Attention,
}

impl ClientProcess {
    /// Returns an attached process that has sent no request yet.
    pub fn new(
        port: PortId,
        attachment: ProcessAttachment,
        group: Name,
        (user, process): (User, Option<OwnedFd>),
        wakes: Arc<Mutex<WakeAccount>>,
        attention: Attention,
    ) -> Self {
        let closed_reports = VecDeque::new();
        let quota = ProcessQuota::new(group, user);
        Self {
            port,
            attachment,
            greeted: false,
            has_channels: true,
            user,
            process,
            quota,
            paid_ns: 0,
            closed_reports,
            ended: None,
            wakes,
            paused_until: None,
            attention,
        }
    }

    /// Starts or stops watching the socket for room, as needed.
    pub fn watch_room(&mut self, cx: &Context<'_>, value: u32) {
        if !self.attachment.watch_room(cx, value) {
            self.attention.request();
        }
    }

    /// Returns the session, if the process runs in a guest.
    pub fn session(&self) -> Option<&GuestSession> {
        self.attachment.session()
    }

    /// Returns whether the process reads its messages, so that others may add more.
    pub fn is_reading(&self) -> bool {
        self.closed_reports.is_empty() && self.attachment.backlog() < BACKLOG_MAX
    }

    /// Returns whether requests are read: a process with too many unread messages must read first.
    pub fn may_request(&self) -> bool {
        self.attachment.has_room()
    }

    /// Returns whether the process closed its socket, without reading its pending requests.
    pub fn is_gone(&self) -> bool {
        self.attachment.is_gone()
    }

    /// Returns the number of messages that the process has not read.
    pub fn unread_messages(&self) -> usize {
        self.attachment.backlog().saturating_add(self.closed_reports.len())
    }

    /// Returns the number of descriptors that the process has not read.
    pub fn unread_descriptors(&self) -> usize {
        self.attachment.descriptors()
    }

    /// Returns whether a message waits because the kernel refuses its descriptors at present.
    pub fn is_at_descriptor_limit(&self) -> bool {
        self.attachment.is_at_descriptor_limit()
    }

    /// Reports a closed channel, now or when the process reads again. Other processes close
    /// channels, so that this must not disconnect a slow reader.
    pub fn report_gone(&mut self, gone: DaemonMessage) {
        if self.is_reading() {
            self.notify(&gone, Vec::new());
        } else {
            self.closed_reports.push_back(gone);
            // A session makes a notice when it has room; the socket is watched.
            self.attachment.has_room();
        }
    }

    /// Returns the next request of the process with the memory that it carries, or `None`. A
    /// malformed request, wrong descriptors or a closed socket end the process ([`Self::ended`]).
    pub fn next(&mut self) -> Option<(ClientMessage, RequestMemory)> {
        match self.attachment.next() {
            Ok(next) => next,
            Err(ended) => {
                self.end(ended);
                None
            }
        }
    }

    /// Queues a message to the process, and sends it if possible.
    pub fn notify(&mut self, message: &DaemonMessage, fds: Vec<OwnedFd>) {
        if self.ended.is_some() {
            return;
        }
        match self.attachment.queue(message, fds) {
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
        self.attention.request();
        if self.is_paused() {
            return;
        }
        self.paused_until = None;
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        let (sent, verdict) = wakes.charge(|| self.attachment.flush());
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
        while self.attachment.backlog() < BACKLOG_MAX
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
        self.attention.request();
    }

    /// Returns the reason for disconnecting the process, if it is to be disconnected.
    pub fn ended(&self) -> Option<&LocalError> {
        self.ended.as_ref()
    }
}
