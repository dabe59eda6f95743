//! Resumption after the end of the daemon: channels go on, and the endpoint registers with the next
//! daemon at the same socket or adapter, by its number, key and session (the random number by which
//! two endpoints with the same address differ).
//!
//! Attempts follow each other after the pauses in [`RESUME_PAUSE`] (10 to 200 ms), each waits at
//! most [`ANSWER_MAX`] (10 s), and they never end while the endpoint is open; a refusal, another
//! protocol version, another NIC at the place and any other message end an attempt. Connects wait
//! for the next daemon until [`RESUME_WAIT`] (5 s) after the end of the old daemon; then they fail,
//! and later connects fail at once until a daemon answers. The next daemon may not know a peer yet:
//! for [`RESUME_PEERS`] (60 s) after its answer such a refused connect is repeated after 10 ms.
//!
//! # Limits
//! Requests in the old rings fail, and peers of other hosts are reported as lost; the caller must
//! connect to them again. Messages that the old daemon held are lost unless an upper layer
//! (`resend` of the libfabric provider) sends them again. Attempts run only within calls of the
//! process, and block them only for commands of an adapter. In direct mode the rings stay as they
//! are. Old rings are replaced only after all of their requests have ended.
//!
//! # Place
//! `Paths::part` starts it after any error of the conversation; [`Paths::hear`] (in the rare checks
//! and after sleeps) and [`Paths::hear_one`] continue it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use causeway_message::library::Rings;
use causeway_message::split::{Address, PeerId};
use causeway_message::status::Status;
use causeway_wire::local::{ClientMessage, DaemonMessage, VERSION};

use super::Paths;
use super::connects::ConnectParameters;
use super::open::{RingMemory, rings};
use crate::connection::Attached;
use crate::limits::{ANSWER_MAX, RESUME_PAUSE, RESUME_PAUSE_MAX, RESUME_PEERS, RESUME_WAIT};
use crate::nic::Conversation;

/// State of the resumption.
#[derive(Debug)]
pub(super) struct Resume {
    /// Key and session; `None` disables resumption.
    secrets: Option<(u32, u32)>,
    /// Time at which the daemon went, or the next daemon answered.
    since: Instant,
    /// Time of the next attempt, or at which the current attempt fails.
    next: Instant,
    /// Pause after the next failed attempt.
    pause: Duration,
    /// A conversation that has not completed its registration.
    conversation: Option<Conversation>,
    /// Connects were failed since the daemon went: the next daemon is late.
    failed: bool,
    /// The new rings, which replace the old rings after all requests of these have ended.
    rings: Option<RingMemory>,
    /// Number of resumptions.
    pub count: u32,
    /// Connects to endpoints that the daemon does not know yet, with the time of the next attempt.
    retries: VecDeque<(Instant, u64)>,
}

impl Resume {
    /// Returns the state while the daemon is there.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            secrets: None,
            since: now,
            next: now,
            pause: RESUME_PAUSE,
            conversation: None,
            failed: false,
            rings: None,
            count: 0,
            retries: VecDeque::new(),
        }
    }

    /// Schedules another attempt.
    fn later(&mut self) {
        self.conversation = None;
        self.next = Instant::now().checked_add(self.pause).unwrap_or(self.next);
        self.pause = self.pause.saturating_mul(2).min(RESUME_PAUSE_MAX);
    }
}

impl Paths {
    /// Enables resumption, with the endpoint's key and session.
    pub fn set_secrets(&mut self, secrets: (u32, u32)) {
        self.resume.secrets = Some(secrets);
    }

    /// Returns whether the next daemon is awaited.
    pub fn awaits_daemon(&self) -> bool {
        self.has_no_daemon && self.resume.secrets.is_some() && !self.resume.failed
    }

    /// Returns the number of resumptions.
    #[inline]
    pub fn resumed(&self) -> u32 {
        self.resume.count
    }

    /// Handles the end of the daemon. Requests to the next daemon wait for it for [`RESUME_WAIT`]
    /// (5 s).
    pub(super) fn part(&mut self) {
        let now = Instant::now();
        if !self.has_no_daemon {
            let resume = &mut self.resume;
            (resume.since, resume.next, resume.pause) = (now, now, RESUME_PAUSE);
            (resume.conversation, resume.failed, resume.rings) = (None, false, None);
        }
        self.has_no_daemon = true;
        // Direct mode goes on without the daemon.
        if self.bypass.is_none()
            && let Some(rings) = &mut self.rings
        {
            rings.end();
        }
        // The next daemon does not know the numbers of these paths.
        self.local_peers.forget_paths();
        if self.resume.secrets.is_none() {
            self.fail_connects();
        }
    }

    /// Fails all connects: the next daemon is late, or there will be none.
    fn fail_connects(&mut self) {
        self.resume.failed = true;
        self.connects.fail_all();
    }

    /// Tries to reach the next daemon, if an attempt is due. Returns whether there was any work.
    #[cold]
    pub(super) fn look_for_daemon(&mut self) -> bool {
        let Some((key, session)) = self.resume.secrets else { return false };
        if !self.resume.failed && self.resume.since.elapsed() >= RESUME_WAIT {
            let any = !self.connects.is_empty();
            self.fail_connects();
            return any;
        }
        let resume = &mut self.resume;
        let Some(conversation) = &mut resume.conversation else {
            if Instant::now() < resume.next {
                return false;
            }
            let resumes = ClientMessage::Resume { tag: 0, endpoint: self.own, key, session };
            let conversation = self.conversation.reconnect().and_then(|mut conversation| {
                conversation.ask(resumes)?;
                Ok(conversation)
            });
            match conversation {
                Ok(conversation) => {
                    resume.conversation = Some(conversation);
                    resume.next = Instant::now().checked_add(ANSWER_MAX).unwrap_or(resume.next);
                }
                Err(_) => resume.later(),
            }
            return false;
        };
        match conversation.hear() {
            Ok(Some((DaemonMessage::Welcome { version, nic, .. }, _)))
                if version == VERSION && nic == self.conversation.board.nic =>
            {
                self.look_for_daemon()
            }
            Ok(Some((DaemonMessage::Opened { code: 0, .. }, attached))) => {
                self.take_over(attached);
                true
            }
            Ok(None) if Instant::now() < resume.next => false,
            _ => {
                resume.later();
                false
            }
        }
    }

    /// Takes over the conversation with the next daemon.
    fn take_over(&mut self, attached: Attached) {
        let Some(conversation) = self.resume.conversation.take() else { return };
        self.conversation = conversation;
        self.has_no_daemon = false;
        self.resume.count = self.resume.count.saturating_add(1);
        (self.resume.since, self.resume.retries) = (Instant::now(), VecDeque::new());
        self.accept_rings(attached);
        self.connects.clear_remote();
        for (token, ConnectParameters { to, key, .. }) in self.connects.all() {
            if !self.ask_connect(token, to, key) {
                return self.part();
            }
        }
    }

    /// Accepts rings: of the next daemon, or of a daemon that gives an endpoint its rings with the
    /// first connect through the daemon. The old rings are replaced when all of their requests have
    /// ended. In direct mode the rings are dropped.
    pub(super) fn accept_rings(&mut self, attached: Attached) {
        if self.bypass.is_none() {
            let (rings, lock) = RingMemory::of(attached).unzip();
            self.resume.rings = rings;
            // An endpoint that holds its lock gets no other.
            self.lock = lock.flatten().or_else(|| self.lock.take());
        }
        self.renew_rings();
    }

    /// Schedules another attempt of a connect that the daemon refused because it does not know the
    /// endpoint: that endpoint's process may not have resumed yet. Returns whether it did.
    pub(super) fn retry_connect(&mut self, token: u64, status: u8) -> bool {
        let resume = &mut self.resume;
        let closed = Status::of(status.into()) == Some(Status::EndpointClosed);
        let late = resume.count == 0 || resume.since.elapsed() >= RESUME_PEERS;
        if !closed || late || self.connects.parameters(token).is_none() {
            return false;
        }
        let when = Instant::now().checked_add(RESUME_PAUSE).unwrap_or(resume.since);
        resume.retries.push_back((when, token));
        true
    }

    /// Returns whether refused connects will be repeated.
    pub(super) fn has_retries(&self) -> bool {
        !self.resume.retries.is_empty()
    }

    /// Repeats refused connects that are due.
    #[cold]
    pub(super) fn retry_connects(&mut self) {
        let now = Instant::now();
        while let Some((when, token)) = self.resume.retries.front().copied() {
            if when > now {
                return;
            }
            self.resume.retries.pop_front();
            let Some(ConnectParameters { to, key, .. }) = self.connects.parameters(token) else {
                continue;
            };
            if !self.ask_connect(token, to, key) {
                return self.part();
            }
        }
    }

    /// Sends a connect to the daemon. Returns false if the conversation is closed.
    fn ask_connect(&mut self, token: u64, to: Address, key: u32) -> bool {
        let Address { nic, endpoint: to } = to;
        let ask = ClientMessage::Connect { endpoint: self.own, to, key, token, nic: nic.0 };
        self.conversation.ask(ask).is_ok()
    }

    /// Returns whether rings of the next daemon are there or will come.
    pub(super) fn awaits_rings(&self) -> bool {
        self.resume.rings.is_some() || self.awaits_daemon()
    }

    /// Returns the peer of this host at an address if its channel survived the daemon that created
    /// it.
    pub(super) fn survivor(&self, to: Address) -> Option<PeerId> {
        let peer = self.local_peers.at(to).filter(|_| self.resume.count > 0)?;
        (self.local_peers.is_gone(peer) && self.channels.has(peer)).then_some(peer)
    }

    /// Replaces the rings if all requests of the old ones have ended.
    pub(super) fn renew_rings(&mut self) {
        if self.rings.as_ref().is_some_and(|rings| !Rings::is_over(rings)) {
            return;
        }
        if let Some(memory) = self.resume.rings.take() {
            self.rings = rings(self.own, memory);
            self.granted = false;
        }
    }
}
