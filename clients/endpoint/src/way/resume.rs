//! What becomes of a way when the daemon goes: its channels go on, and the daemon that comes after
//! it at the same socket is told of the endpoint again.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use causeway_message::library::Rings;
use causeway_message::split::{Address, PeerId};
use causeway_message::status::Status;
use causeway_wire::local::{Ask, Tell, VERSION};

use super::Way;
use super::connects::Wish;
use super::open::rings;
use crate::board::Conversation;
use crate::limits::{ANSWER_MAX, RESUME_PAUSE, RESUME_PEERS, RESUME_WAIT};

/// How an endpoint goes on without its daemon.
#[derive(Debug)]
pub(super) struct Resume {
    /// Its key and session. None: it does not go on.
    secrets: Option<(u32, u32)>,
    /// Since when there is no daemon, or the next one.
    since: Instant,
    /// When the next one is looked for, and the pause after that.
    next: Instant,
    pause: Duration,
    /// A conversation that did not come to the end of its begin.
    begun: Option<Conversation>,
    /// Connects were failed since the daemon went: it is not expected back.
    failed: bool,
    /// What came with the endpoint: the memory of its rings and the daemon's doorbell. The rings
    /// are used when all that was asked by the old ones has ended.
    rings: Option<(OwnedFd, Option<OwnedFd>)>,
    /// How often it went on.
    pub count: u32,
    /// Connects to endpoints that the daemon does not know yet, and when they are asked for again.
    again: VecDeque<(Instant, u64)>,
}

impl Resume {
    /// While the daemon is there. `secrets`: as of `Way::resumes`.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            secrets: None,
            since: now,
            next: now,
            pause: RESUME_PAUSE.0,
            begun: None,
            failed: false,
            rings: None,
            count: 0,
            again: VecDeque::new(),
        }
    }

    /// Nothing came of it: it is tried again later.
    fn later(&mut self) {
        self.begun = None;
        self.next = Instant::now().checked_add(self.pause).unwrap_or(self.next);
        self.pause = self.pause.saturating_mul(2).min(RESUME_PAUSE.1);
    }
}

impl Way {
    /// With its key and session an endpoint goes on by the next daemon.
    pub fn set_secrets(&mut self, secrets: (u32, u32)) {
        self.resume.secrets = Some(secrets);
    }

    /// Whether there is no daemon, and the next is waited for.
    pub fn awaits_daemon(&self) -> bool {
        self.parted && self.resume.secrets.is_some() && !self.resume.failed
    }

    /// How often it went on by another daemon.
    #[inline]
    pub fn resumed(&self) -> u32 {
        self.resume.count
    }

    /// The daemon is gone. What is asked of the next one waits for it for a while.
    pub(super) fn part(&mut self) {
        let now = Instant::now();
        if !self.parted {
            let resume = &mut self.resume;
            (resume.since, resume.next, resume.pause) = (now, now, RESUME_PAUSE.0);
            (resume.begun, resume.failed, resume.rings) = (None, false, None);
        }
        self.parted = true;
        // What goes past the daemon goes on.
        if self.bypass.is_none()
            && let Some(rings) = &mut self.rings
        {
            rings.end();
        }
        // Their ways are not known to another daemon.
        self.partners.forget_paths();
        if self.resume.secrets.is_none() {
            self.fail_connects();
        }
    }

    fn fail_connects(&mut self) {
        self.resume.failed = true;
        self.connects.fail_all();
    }

    /// Looks for the next daemon, if it is time. Says whether anything came of it.
    #[cold]
    pub(super) fn look_for_daemon(&mut self) -> bool {
        let Some((key, session)) = self.resume.secrets else { return false };
        if !self.resume.failed && self.resume.since.elapsed() >= RESUME_WAIT {
            let any = !self.connects.is_empty();
            self.fail_connects();
            return any;
        }
        let resume = &mut self.resume;
        let Some(begun) = &mut resume.begun else {
            if Instant::now() < resume.next {
                return false;
            }
            let resumes = Ask::Resume { tag: 0, endpoint: self.own, key, session };
            let begun = self.conversation.again().and_then(|mut begun| {
                begun.ask(resumes)?;
                Ok(begun)
            });
            match begun {
                Ok(begun) => {
                    resume.begun = Some(begun);
                    resume.next = Instant::now().checked_add(ANSWER_MAX).unwrap_or(resume.next);
                }
                Err(_) => resume.later(),
            }
            return false;
        };
        match begun.hear() {
            Ok(Some((Tell::Welcome { version, nic, .. }, _)))
                if version == VERSION && nic == self.conversation.board.nic =>
            {
                self.look_for_daemon()
            }
            Ok(Some((Tell::Opened { code: 0, .. }, fds))) => {
                self.go_on(fds);
                true
            }
            Ok(None) if Instant::now() < resume.next => false,
            _ => {
                resume.later();
                false
            }
        }
    }

    /// The next daemon has the endpoint.
    fn go_on(&mut self, fds: Vec<OwnedFd>) {
        let Some(begun) = self.resume.begun.take() else { return };
        self.conversation = begun;
        self.parted = false;
        self.resume.count = self.resume.count.saturating_add(1);
        (self.resume.since, self.resume.again) = (Instant::now(), VecDeque::new());
        let mut fds = fds.into_iter();
        if self.bypass.is_none() {
            self.resume.rings = fds.next().map(|file| (file, fds.next()));
            // None comes with an endpoint that has one.
            self.lock = fds.next().or_else(|| self.lock.take());
        }
        self.renew_rings();
        self.connects.clear_remote();
        for (token, Wish { to, key, .. }) in self.connects.all() {
            if !self.ask_connect(token, to, key) {
                return self.part();
            }
        }
    }

    /// A connect was refused because the daemon knows no such endpoint: its process may not have gone
    /// on by this daemon yet. Returns whether the connect is asked for again.
    pub(super) fn asks_later(&mut self, token: u64, status: u8) -> bool {
        let resume = &mut self.resume;
        let closed = Status::of(status.into()) == Some(Status::EndpointClosed);
        let late = resume.count == 0 || resume.since.elapsed() >= RESUME_PEERS;
        if !closed || late || self.connects.wish(token).is_none() {
            return false;
        }
        let when = Instant::now().checked_add(RESUME_PAUSE.0).unwrap_or(resume.since);
        resume.again.push_back((when, token));
        true
    }

    /// Whether connects are to be asked for again.
    pub(super) fn has_later(&self) -> bool {
        !self.resume.again.is_empty()
    }

    /// Asks for connects again whose time it is.
    #[cold]
    pub(super) fn ask_again(&mut self) {
        let now = Instant::now();
        while let Some((when, token)) = self.resume.again.front().copied() {
            if when > now {
                return;
            }
            self.resume.again.pop_front();
            let Some(Wish { to, key, .. }) = self.connects.wish(token) else { continue };
            if !self.ask_connect(token, to, key) {
                return self.part();
            }
        }
    }

    fn ask_connect(&mut self, token: u64, to: Address, key: u32) -> bool {
        let Address { nic, endpoint: to } = to;
        let ask = Ask::Connect { endpoint: self.own, to, key, token, nic: nic.0 };
        self.conversation.ask(ask).is_ok()
    }

    /// Whether the rings of the next daemon are there, or are to come.
    pub(super) fn awaits_rings(&self) -> bool {
        self.resume.rings.is_some() || self.awaits_daemon()
    }

    /// The partner of this host at an address, if its channel is older than the daemon.
    pub(super) fn survivor(&self, to: Address) -> Option<PeerId> {
        let peer = self.partners.at(to).filter(|_| self.resume.count > 0)?;
        (self.partners.is_gone(peer) && self.channels.has(peer)).then_some(peer)
    }

    /// The rings of the next daemon are used once the old ones are done with.
    pub(super) fn renew_rings(&mut self) {
        if self.rings.as_ref().is_some_and(|rings| !Rings::is_over(rings)) {
            return;
        }
        if let Some((file, bell)) = self.resume.rings.take() {
            self.rings = rings(self.own, &file, bell);
        }
    }
}
