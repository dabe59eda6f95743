//! Answers of the holder while no causewayd runs.
//!
//! [`super::relay`] calls these methods in its thread, between the end of a connection to causewayd
//! and the next; [`super::replay`] calls `VfioRelay::answer_frontend` for queries alone. No process
//! uses the guest's memory once the process of causewayd has ended ([`crate::process`]). From then
//! on the holder accepts every change of the set-up by itself, and the next causewayd receives the
//! result:
//!
//! | command | answer |
//! |---|---|
//! | reads of registers, queries | the last reply to the same command ([`super::answers`]) |
//! | DMA_MAP, DMA_UNMAP, SET_IRQS | recorded ([`super::record`]), or refused with the errno of causewayd |
//! | REGION_WRITE | success; delivered to the next causewayd after the replay, in order |
//! | REGION_WRITE to a doorbell page | success; only the last is delivered, because a doorbell names no queue |
//! | RESET | success; earlier writes are forgotten |
//! | a second VERSION, REGION_WRITE of another length than its count | EINVAL |
//! | RESUME, unknown commands | EOPNOTSUPP |
//!
//! While the process still runs, reads and queries alone are answered, and all other commands wait.
//! A query without a remembered reply, a write beyond [`DEFERRED_MAX`] (64) or
//! [`DEFERRED_BYTES_MAX`] (64 KiB), and each command before the version exchange wait for the next
//! causewayd, and so do all commands behind them. After [`WAIT_MAX`] (4 s) a query that waits is
//! refused with EIO, before QEMU declares the device dead at 5 s; before the version exchange, and
//! while a causewayd is connected to the holder, it waits without a time limit. A frontend is
//! answered at most [`ANSWERS_PER_TURN`] (64) times in a turn of 1 ms.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use causeway_attach::vfio_user::message::{RegionAccess, command};
use causeway_attach::vfio_user::stream::ReadOutcome;
use rustix::io::Errno;

use super::answers::{Answer, is_query};
use super::command::Command;
use super::registers::is_doorbell;
use super::relay::{VfioRelay, end_of};
use crate::limits::{ANSWERS_PER_TURN, DEFERRED_BYTES_MAX, DEFERRED_MAX, WAIT_MAX};
use crate::relay::RelayEnd;

/// The holder's answer to a command.
enum Outcome {
    /// A reply.
    Reply(Answer),
    /// A refusal.
    Refused(Errno),
    /// A reply; the command is kept for the next causewayd.
    Deferred(Vec<u8>),
    /// A reply; writes before the command are forgotten.
    Reset,
    /// The command waits for the next causewayd.
    Waits,
}

impl VfioRelay {
    /// Answers the commands that were in flight when causewayd ended, and those that waited for it.
    /// Register writes without a reply stay queued for the next causewayd.
    pub(super) fn settle(&mut self) -> Result<(), RelayEnd> {
        // Commands that the ended causewayd did not answer were sent before those that wait.
        let in_flight = std::mem::take(&mut self.in_flight);
        let waiting = std::mem::take(&mut self.queue);
        for command in in_flight.into_iter().chain(waiting) {
            // The frontend waits for no reply to a posted write, nor to a write that was answered.
            if command.is_write() && !command.wants_reply {
                self.queue.push_back(command);
            } else {
                self.answer(command)?;
            }
        }
        Ok(())
    }

    /// Answers the frontend's next commands; only queries if `only_queries`. Returns whether more
    /// commands may be there.
    pub(super) fn answer_frontend(&mut self, only_queries: bool) -> Result<bool, RelayEnd> {
        for _ in 0..ANSWERS_PER_TURN {
            if self.is_blocked() {
                return Ok(false);
            }
            match self.frontend.receive() {
                Ok(ReadOutcome::Message(message)) => match self.admit(message)? {
                    Some(command) if only_queries && !is_query(command.message.header.command) => {
                        self.wait_for_daemon(command);
                    }
                    Some(command) => self.answer(command)?,
                    None => {}
                },
                Ok(ReadOutcome::Nothing) => return Ok(false),
                Ok(ReadOutcome::Closed) => return Err(RelayEnd::FrontendLeft),
                Err(reason) => return Err(end_of(reason)),
            }
        }
        Ok(true)
    }

    /// Returns whether the frontend's commands wait for causewayd.
    pub(super) fn is_blocked(&self) -> bool {
        self.queue.iter().any(|command| command.is_blocking)
    }

    /// Keeps a command for the next causewayd, and lets those behind it wait.
    fn wait_for_daemon(&mut self, mut command: Command) {
        command.is_blocking = true;
        self.queue.push_back(command);
    }

    /// Answers a command, or keeps it for the next causewayd.
    fn answer(&mut self, mut command: Command) -> Result<(), RelayEnd> {
        command.is_blocking = false;
        match self.outcome(&mut command) {
            Outcome::Reply(answer) => self.reply(&command, &answer),
            Outcome::Refused(errno) => self.refuse(&command, errno),
            Outcome::Deferred(payload) => {
                self.reply(&command, &Answer { payload, file: None })?;
                command.wants_reply = false;
                if command.is_doorbell() {
                    self.queue.retain(|kept| kept.wants_reply || !kept.is_doorbell());
                }
                self.queue.push_back(command);
                Ok(())
            }
            Outcome::Reset => {
                self.record.registers.clear();
                self.forget_writes()?;
                self.reply(&command, &Answer { payload: Vec::new(), file: None })
            }
            Outcome::Waits => {
                self.wait_for_daemon(command);
                Ok(())
            }
        }
    }

    /// Forgets the writes that are kept, and answers those that were not answered yet.
    fn forget_writes(&mut self) -> Result<(), RelayEnd> {
        for command in std::mem::take(&mut self.queue) {
            match RegionAccess::parse(&command.message.payload) {
                Some((access, _)) if command.is_write() => {
                    self.reply(&command, &Answer { payload: access.emit(), file: None })?;
                }
                _ => self.queue.push_back(command),
            }
        }
        Ok(())
    }

    /// Executes a command on the record.
    fn outcome(&mut self, command: &mut Command) -> Outcome {
        let is_agreed = self.record.version.is_some();
        let message = &mut command.message;
        let success = |payload| Outcome::Reply(Answer { payload, file: None });
        match message.header.command {
            code if is_query(code) => match self.answers.get(message) {
                Some(Answer { payload, file }) => Outcome::Reply(Answer {
                    payload: payload.clone(),
                    file: file.as_ref().map(Arc::clone),
                }),
                None => Outcome::Waits,
            },
            _ if !is_agreed => Outcome::Waits,
            code @ (command::DMA_MAP | command::DMA_UNMAP | command::DEVICE_SET_IRQS) => {
                let fds = std::mem::take(&mut message.fds);
                match self.record.accept(code, &message.payload, fds) {
                    Ok(payload) => success(payload),
                    Err(errno) => Outcome::Refused(errno),
                }
            }
            command::REGION_WRITE => match RegionAccess::parse(&message.payload) {
                Some((access, data)) if usize::try_from(access.count) == Ok(data.len()) => {
                    let is_kept = is_doorbell(&access) || self.has_room();
                    if is_kept { Outcome::Deferred(access.emit()) } else { Outcome::Waits }
                }
                _ => Outcome::Refused(Errno::INVAL),
            },
            command::DEVICE_RESET => Outcome::Reset,
            command::VERSION => Outcome::Refused(Errno::INVAL),
            _ => Outcome::Refused(Errno::OPNOTSUPP),
        }
    }

    /// Returns whether another write can be kept.
    fn has_room(&self) -> bool {
        let bytes = self.queue.iter().map(Command::bytes).fold(0, usize::saturating_add);
        self.queue.len() < DEFERRED_MAX && bytes < DEFERRED_BYTES_MAX
    }

    /// Refuses the queries that wait for too long.
    pub(super) fn expire(&mut self) -> Result<(), RelayEnd> {
        let now = Instant::now();
        let is_agreed = self.record.version.is_some();
        let is_late = |command: &Command| {
            let is_due = now.saturating_duration_since(command.since) >= WAIT_MAX;
            is_agreed && is_due && is_query(command.message.header.command)
        };
        if !self.queue.iter().any(is_late) {
            return Ok(());
        }
        let (late, kept): (VecDeque<Command>, VecDeque<Command>) =
            std::mem::take(&mut self.queue).into_iter().partition(is_late);
        self.queue = kept;
        late.iter().try_for_each(|command| self.refuse(command, Errno::IO))
    }
}
