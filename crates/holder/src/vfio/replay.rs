//! Replays the recorded set-up of a vfio-user frontend to a new causewayd.
//!
//! [`super::relay`] calls it in its thread, when it has connected to a causewayd. The order is
//! version, RESUME (begin), DMA mappings, eventfds, register writes, RESUME (end). The RESUME
//! commands are the holder's own: the first tells causewayd whether an earlier causewayd has used
//! the frontend's memory; after the last, causewayd restores the device, or makes the device report
//! the loss to the driver. At most [`IN_FLIGHT_MAX`] (64) commands are unanswered. Meanwhile the
//! frontend's queries are answered from memory, at least every [`REPLAY_CHECK`] (10 ms), and its
//! other commands wait. A causewayd that hangs holds the replay without a time limit.
//!
//! A mapping that no causewayd has accepted before, and that causewayd refuses, is dropped and
//! logged. Any other refusal, and an invalid reply, ends the frontend's connection. If causewayd
//! closes the connection, the relay replays everything again, at most 10 times to one causewayd
//! ([`crate::route`]). The module changes no guest memory. A frontend without a version exchange
//! has no state: nothing is sent.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use causeway_attach::vfio_user::message::{
    ResumePhase, SET_ACTION_TRIGGER, SET_DATA_EVENTFD, SetIrqs, command,
};
use causeway_attach::vfio_user::stream::ReadOutcome;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::command::DaemonSocket;
use super::dma::{DmaEntry, DmaRecord};
use super::record::Record;
use super::relay::VfioRelay;
use super::replay_error::ReplayError;
use crate::limits::{IN_FLIGHT_MAX, REPLAY_CHECK};
use crate::relay::RelayEnd;

/// A command to causewayd: its code, payload and descriptor.
type Step<'a> = (u16, Vec<u8>, Option<BorrowedFd<'a>>);

impl VfioRelay {
    /// Sends all state of `record` at the beginning of connection `daemon`; nothing before the
    /// version exchange.
    pub(super) fn replay(
        &mut self,
        record: &mut Record,
        daemon: &mut DaemonSocket,
    ) -> Result<(), ReplayError> {
        let Some(version) = record.version.clone() else { return Ok(()) };
        // Another frontend of the port may have left state behind while no causewayd ran.
        let phase = if record.is_served { ResumePhase::Begin } else { ResumePhase::BeginNew };
        let begin = (command::RESUME, phase.emit(), None);
        let end = (command::RESUME, ResumePhase::End.emit(), None);
        self.send_checked(daemon, [(command::VERSION, version, None), begin].into_iter())?;
        self.replay_mappings(record, daemon)?;
        let set = |index, start| {
            let flags = SET_DATA_EVENTFD | SET_ACTION_TRIGGER;
            SetIrqs { flags, index, start, count: 1 }.emit()
        };
        let vectors = record.vectors.iter().map(|((index, vector), fd)| {
            (command::DEVICE_SET_IRQS, set(*index, *vector), Some(fd.as_fd()))
        });
        self.send_checked(daemon, vectors)?;
        let writes = record.registers.payloads().into_iter();
        self.send_checked(daemon, writes.map(|payload| (command::REGION_WRITE, payload, None)))?;
        self.send_checked(daemon, std::iter::once(end))?;
        record.is_served |= record.dma.entries().next().is_some();
        Ok(())
    }

    /// Sends the mappings, and drops unconfirmed mappings that causewayd refuses.
    fn replay_mappings(
        &mut self,
        record: &mut Record,
        daemon: &mut DaemonSocket,
    ) -> Result<(), ReplayError> {
        let dropped = self.send_mappings(&record.dma, daemon)?;
        if !dropped.is_empty() {
            log::warn!(mappings = dropped.len(); "causewayd refuses memory that a frontend granted while no causewayd ran: the device does not use it");
        }
        record.dma.settle(&dropped);
        Ok(())
    }

    /// Sends the mappings. Returns the addresses of the unconfirmed mappings that causewayd
    /// refuses.
    fn send_mappings(
        &mut self,
        dma: &DmaRecord,
        daemon: &mut DaemonSocket,
    ) -> Result<Vec<u64>, ReplayError> {
        let (mut dropped, mut mappings) = (Vec::new(), dma.entries().enumerate());
        self.send_all(daemon, dma.entries().map(mapping_step), |refused, command, errno| {
            match mappings.find(|(place, _)| *place == refused) {
                Some((_, entry)) if !entry.is_confirmed => dropped.push(entry.map.address),
                _ => return Err(RelayEnd::NotContinued { command, errno }.into()),
            }
            Ok(())
        })?;
        Ok(dropped)
    }

    /// Sends commands that causewayd must accept.
    fn send_checked<'a>(
        &mut self,
        daemon: &mut DaemonSocket,
        steps: impl Iterator<Item = Step<'a>>,
    ) -> Result<(), ReplayError> {
        self.send_all(daemon, steps, |_, command, errno| {
            Err(RelayEnd::NotContinued { command, errno }.into())
        })
    }

    /// Sends commands, and answers the frontend meanwhile. Calls `refused` with the place, the code
    /// and the errno of each refused command.
    fn send_all<'a>(
        &mut self,
        daemon: &mut DaemonSocket,
        mut steps: impl Iterator<Item = Step<'a>>,
        mut refused: impl FnMut(usize, u16, i32) -> Result<(), ReplayError>,
    ) -> Result<(), ReplayError> {
        let (mut sent, mut answered) = (VecDeque::new(), 0_usize);
        loop {
            while sent.len() < IN_FLIGHT_MAX {
                let Some((code, payload, fd)) = steps.next() else { break };
                let number = daemon.next_number(|_| true);
                let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
                daemon.send(number, code, &payload, &fds).map_err(|_| ReplayError::Gone)?;
                sent.push_back((number, code));
            }
            let Some(first) = sent.front() else { return Ok(()) };
            match daemon.receive() {
                Ok(ReadOutcome::Message(reply)) => {
                    let header = reply.header;
                    if !header.is_reply() || (header.id, header.command) != *first {
                        return Err(RelayEnd::InvalidReply(header.command).into());
                    }
                    if let Some(errno) = header.errno() {
                        refused(answered, header.command, errno)?;
                    }
                    answered = answered.saturating_add(1);
                    sent.pop_front();
                }
                Ok(ReadOutcome::Nothing) => self.attend(daemon)?,
                Ok(ReadOutcome::Closed) | Err(_) => return Err(ReplayError::Gone),
            }
        }
    }

    /// Waits for causewayd, and answers the frontend's queries.
    fn attend(&mut self, daemon: &DaemonSocket) -> Result<(), RelayEnd> {
        self.answer_frontend(true)?;
        let interest = if self.is_blocked() { PollFlags::RDHUP } else { PollFlags::IN };
        let mut both = [PollFd::new(daemon, PollFlags::IN), PollFd::new(&self.frontend, interest)];
        let time = Timespec::try_from(REPLAY_CHECK).map_err(|_| rustix::io::Errno::INVAL)?;
        let waited = poll(&mut both, Some(&time));
        let [_, frontend] = both;
        match waited {
            Ok(_) if self.is_blocked() && !frontend.revents().is_empty() => {
                Err(RelayEnd::FrontendLeft)
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Returns the command that repeats a mapping.
fn mapping_step(entry: &DmaEntry) -> Step<'_> {
    (command::DMA_MAP, entry.map.emit(), Some(entry.file.as_fd()))
}
