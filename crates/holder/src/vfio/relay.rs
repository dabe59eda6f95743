//! The relay of one vfio-user frontend: its connection, the commands in flight, and the loop of its
//! thread.
//!
//! [`crate::port`] starts the relay in a thread of its own, which may block: a send waits at most 2
//! s for room. Commands pass to causewayd as they arrive, up to [`IN_FLIGHT_MAX`] (64) commands,
//! [`IN_FLIGHT_BYTES`] (64 KiB) and [`IN_FLIGHT_FDS`] (64 descriptors) without a reply; beyond that
//! the frontend is not read. Replies are matched by number and pass in the order of causewayd. A
//! command is recorded when causewayd has accepted it, before the frontend receives the reply.
//! causewayd replies to the holder also for commands that expect no reply, so that no command is
//! lost with a causewayd.
//!
//! When causewayd ends, the holder answers by itself ([`super::away`]), until the next causewayd
//! has the set-up ([`super::replay`]) and the commands that were kept. A flood of commands, also of
//! refused ones, uses half a processor in the long run, and floods of many frontends two processors
//! together ([`causeway_attach::allowance`]).
//!
//! The frontend is disconnected if it violates the protocol or reads no replies for 2 s, if a
//! running causewayd closes the connection (after 250 ms, [`crate::route`]) or refuses the recorded
//! set-up, if the process of a causewayd that left the holder still runs after 4 s, if 10
//! connections to one causewayd end before the replay is complete, or if one command was in flight
//! at the end of 3 causewayds, or 12 during replays of other frontends ([`crate::deaths`]). An
//! invalid reply ends the connection to causewayd, and with it the frontend's if causewayd runs on.
//! The frontend's RESUME command, which is the holder's own, is refused with EOPNOTSUPP; commands
//! with descriptors of other kinds than eventfds, pidfds, sockets and memory files are refused with
//! EINVAL.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_attach::FaultKind;
use causeway_attach::allowance::Allowance;
use causeway_attach::vfio_user::fault::Reason;
use causeway_attach::vfio_user::message::{Header, command};
use causeway_attach::vfio_user::stream::{MessageStream, RawMessage, ReadOutcome};
use causeway_host::fd::receive::UntrustedSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::answers::{Answer, Answers};
use super::command::{Command, DaemonSocket};
use super::record::Record;
use super::replay_error::ReplayError;
use crate::deaths::Replays;
use crate::limits::{
    AWAY_TURN, IN_FLIGHT_BYTES, IN_FLIGHT_FDS, IN_FLIGHT_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};
use crate::relay::RelayEnd;
use crate::route::{DaemonRoute, RouteWatch, SharedRoute, Verdict};

/// A vfio-user frontend's connection and its recorded state.
#[derive(Debug)]
pub struct VfioRelay {
    /// The frontend's connection.
    pub(super) frontend: MessageStream,
    /// The connection to causewayd; `None` while it is away.
    daemon: Option<DaemonSocket>,
    /// The causewayd to forward to.
    watch: RouteWatch,
    /// Set-up of the frontend, for the next causewayd.
    pub(super) record: Record,
    /// Replies to queries, for the time without causewayd.
    pub(super) answers: Answers,
    /// Commands that causewayd has not answered, oldest first.
    pub(super) in_flight: VecDeque<Command>,
    /// Commands for the next causewayd.
    pub(super) queue: VecDeque<Command>,
    /// Time of the end of the last connection to causewayd.
    lost: Instant,
    /// Time until the next look for a causewayd.
    pause: Duration,
}

impl VfioRelay {
    /// Returns a relay between the frontend on `frontend` and the causewayd on `route`. `replays`
    /// are those of the holder.
    pub fn new(frontend: UntrustedSocket, route: SharedRoute, replays: Arc<Replays>) -> Self {
        Self {
            frontend: MessageStream::new(frontend),
            daemon: None,
            watch: RouteWatch::new(route, replays),
            record: Record::default(),
            answers: Answers::default(),
            in_flight: VecDeque::new(),
            queue: VecDeque::new(),
            lost: Instant::now(),
            pause: RETRY_PAUSE_MIN,
        }
    }

    /// Relays until the frontend leaves or its connection must end.
    pub fn run(mut self) -> RelayEnd {
        let mut allowance = Allowance::of_thread();
        loop {
            let turn = if self.daemon.is_some() { self.relay() } else { self.bridge() };
            let mut pause = || allowance.charge(0).map_or(Ok(()), |pause| self.sleep(pause, false));
            if let Err(end) = turn.and_then(|()| pause()) {
                return end;
            }
        }
    }

    /// Passes replies and commands, and waits for the next.
    fn relay(&mut self) -> Result<(), RelayEnd> {
        if !self.deliver_replies()? || !self.forward_commands()? {
            return self.lose();
        }
        let interest = if self.accepts_commands() { PollFlags::IN } else { PollFlags::RDHUP };
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let mut both = [PollFd::new(daemon, PollFlags::IN), PollFd::new(&self.frontend, interest)];
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [_, frontend] = both;
        if interest == PollFlags::RDHUP && !frontend.revents().is_empty() {
            return Err(RelayEnd::FrontendLeft);
        }
        Ok(())
    }

    /// Passes the replies that are there. Returns whether causewayd is still connected.
    fn deliver_replies(&mut self) -> Result<bool, RelayEnd> {
        for _ in 0..IN_FLIGHT_MAX {
            let Some(daemon) = &mut self.daemon else { return Ok(false) };
            match daemon.receive() {
                Ok(ReadOutcome::Message(reply)) => {
                    if !self.deliver(reply)? {
                        return Ok(false);
                    }
                }
                Ok(ReadOutcome::Nothing) => break,
                Ok(ReadOutcome::Closed) | Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Records a command that causewayd has answered, and passes the reply. Returns whether the
    /// reply is valid.
    fn deliver(&mut self, reply: RawMessage) -> Result<bool, RelayEnd> {
        let RawMessage { header, payload, fds, .. } = reply;
        let is_answered = |command: &Command| {
            (command.number, command.message.header.command) == (header.id, header.command)
        };
        let place = self.in_flight.iter().position(is_answered);
        let command = place.filter(|_| header.is_reply()).and_then(|at| self.in_flight.remove(at));
        let Some(command) = command else {
            log::warn!(command = header.command; "invalid reply of causewayd: its connection is closed");
            return Ok(false);
        };
        let answer = Answer { payload, file: fds.into_iter().next().map(Arc::new) };
        let (asked, wants_reply) = (command.message.header, command.wants_reply);
        if header.errno().is_none() {
            self.answers.note(&command.message, &answer);
            self.record.note(command.message);
        }
        if wants_reply {
            self.send(Header { id: asked.id, ..header }, &answer)?;
        }
        Ok(true)
    }

    /// Forwards the frontend's commands that are there. Returns whether causewayd is still
    /// connected.
    fn forward_commands(&mut self) -> Result<bool, RelayEnd> {
        for _ in 0..IN_FLIGHT_MAX {
            if !self.accepts_commands() {
                break;
            }
            match self.frontend.receive() {
                Ok(ReadOutcome::Message(message)) => {
                    if let Some(command) = self.admit(message)?
                        && !self.forward(command)
                    {
                        return Ok(false);
                    }
                }
                Ok(ReadOutcome::Nothing) => break,
                Ok(ReadOutcome::Closed) => return Err(RelayEnd::FrontendLeft),
                Err(reason) => return Err(end_of(reason)),
            }
        }
        Ok(true)
    }

    /// Returns whether another command may be in flight.
    fn accepts_commands(&self) -> bool {
        let sum = |of: fn(&Command) -> usize| {
            self.in_flight.iter().map(of).fold(0, usize::saturating_add)
        };
        self.in_flight.len() < IN_FLIGHT_MAX
            && sum(Command::bytes) < IN_FLIGHT_BYTES
            && sum(|command| command.message.fds.len()) < IN_FLIGHT_FDS
    }

    /// Checks a message of the frontend. Returns `None` if the holder has refused it.
    pub(super) fn admit(&mut self, message: RawMessage) -> Result<Option<Command>, RelayEnd> {
        let header = message.header;
        if !header.is_command() {
            let reason = Reason::Flags { command: header.command, flags: header.flags };
            return Err(RelayEnd::VfioFrontend(reason));
        }
        let errno = match header.command {
            command::RESUME => Errno::OPNOTSUPP,
            _ if message.is_odd => Errno::INVAL,
            _ => return Ok(Some(Command::new(message))),
        };
        self.refuse(&Command::new(message), errno)?;
        Ok(None)
    }

    /// Sends a command to causewayd. Returns whether causewayd is there; the command is in flight
    /// in any case.
    fn forward(&mut self, mut command: Command) -> bool {
        command.is_sent = false;
        let Some(daemon) = &mut self.daemon else {
            self.in_flight.push_back(command);
            return false;
        };
        let in_flight = &self.in_flight;
        let is_free = |number| in_flight.iter().all(|command| command.number != number);
        command.number = daemon.next_number(is_free);
        command.is_blocking = false;
        let RawMessage { header, payload, fds, .. } = &command.message;
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        command.is_sent = daemon.send(command.number, header.command, payload, &fds).is_ok();
        let is_sent = command.is_sent;
        self.in_flight.push_back(command);
        is_sent
    }

    /// Handles the end of the connection to causewayd: counts it for each command in flight.
    ///
    /// # Errors
    /// A command has reached a limit of [`crate::deaths`].
    fn lose(&mut self) -> Result<(), RelayEnd> {
        (self.daemon, self.lost, self.pause) = (None, Instant::now(), RETRY_PAUSE_MIN);
        let is_shared = self.watch.is_shared_death();
        for command in self.in_flight.iter_mut().filter(|command| command.is_sent) {
            command.deaths.count(is_shared);
        }
        match self.in_flight.iter().find(|command| command.deaths.are_too_many()) {
            Some(command) => Err(RelayEnd::RepeatedCrash(format!(
                "vfio-user command {}",
                command.message.header.command
            ))),
            None => Ok(()),
        }
    }

    /// Connects to the next causewayd, or answers the frontend while none runs.
    fn bridge(&mut self) -> Result<(), RelayEnd> {
        let is_memory_free = self.watch.is_memory_free();
        match self.watch.verdict(self.lost) {
            Verdict::Connect(route) => {
                // After a replay that failed, the same causewayd may use the memory.
                if is_memory_free {
                    self.settle()?;
                }
                return self.connect(&route);
            }
            Verdict::Closed => return Err(RelayEnd::DaemonClosed),
            Verdict::Wait => {}
        }
        let is_away = self.watch.is_away();
        if is_away {
            if is_memory_free {
                self.settle()?;
            }
            self.expire()?;
            if self.answer_frontend(!is_memory_free)? {
                std::thread::sleep(AWAY_TURN);
                return Ok(());
            }
        }
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(RETRY_PAUSE_MAX);
        self.sleep(pause, is_away && !self.is_blocked())
    }

    /// Sleeps until the frontend leaves, or sends a command if `reads`.
    fn sleep(&self, pause: Duration, reads: bool) -> Result<(), RelayEnd> {
        let interest = if reads { PollFlags::IN } else { PollFlags::RDHUP };
        let mut frontend = [PollFd::new(&self.frontend, interest)];
        let pause = Timespec::try_from(pause).map_err(|_| Errno::INVAL)?;
        match poll(&mut frontend, Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) if reads => Ok(()),
            Ok(_) => Err(RelayEnd::FrontendLeft),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Connects to causewayd, replays the set-up, and sends the commands that were kept.
    fn connect(&mut self, route: &DaemonRoute) -> Result<(), RelayEnd> {
        // The replay reads the record while it answers the frontend; queries do not need it.
        let mut record = std::mem::take(&mut self.record);
        let outcome = match DaemonSocket::connect(&route.inner) {
            Some(mut daemon) => self.replay(&mut record, &mut daemon).map(|()| daemon),
            None => Err(ReplayError::Gone),
        };
        self.record = record;
        match outcome {
            Ok(daemon) => {
                self.watch.connected();
                self.daemon = Some(daemon);
                let mut is_there = true;
                for command in std::mem::take(&mut self.queue) {
                    is_there &= self.forward(command);
                }
                if is_there { Ok(()) } else { self.lose() }
            }
            Err(ReplayError::Gone) => {
                self.watch.failed();
                self.sleep(RETRY_PAUSE_MAX, false)
            }
            Err(ReplayError::End(end)) => Err(end),
        }
    }

    /// Answers a command of the frontend, if the frontend expects a reply.
    pub(super) fn reply(&self, command: &Command, answer: &Answer) -> Result<(), RelayEnd> {
        if !command.wants_reply {
            return Ok(());
        }
        self.send(command.message.header.reply(answer.payload.len()), answer)
    }

    /// Refuses a command of the frontend; without a log line, and without effect if the frontend
    /// expects no reply.
    pub(super) fn refuse(&self, command: &Command, errno: Errno) -> Result<(), RelayEnd> {
        if !command.wants_reply {
            return Ok(());
        }
        let answer = Answer { payload: Vec::new(), file: None };
        self.send(command.message.header.refusal(errno.raw_os_error()), &answer)
    }

    /// Sends a reply to the frontend.
    fn send(&self, header: Header, answer: &Answer) -> Result<(), RelayEnd> {
        let fds: Vec<BorrowedFd<'_>> = answer.file.iter().map(|file| file.as_fd()).collect();
        let bytes = [header.emit().as_slice(), &answer.payload].concat();
        self.frontend.send(&bytes, &fds, None).map_err(end_of)
    }
}

/// Returns why the relay ends after a fault of the frontend's connection.
pub(super) fn end_of(reason: Reason) -> RelayEnd {
    match reason.kind() {
        FaultKind::Connection => RelayEnd::FrontendLeft,
        _ => RelayEnd::VfioFrontend(reason),
    }
}
