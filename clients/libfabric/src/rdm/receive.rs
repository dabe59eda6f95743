//! Receives, and what becomes of an operation when its request ends.

use causeway_message::library::{Completion, Partner, Source};
use causeway_message::status::Status;

use super::done::{Done, Fault, Report};
use super::operation::Task;
use super::parcel::{HEAD_BYTES, Parcel, Place};
use super::send::{DATA, HELD, NOTICE};
use super::tally::count;
use super::{BODY, Env, Errno, NAME_MASK, PLAIN, Rdm, SPACES, TAG_MASK, TAGGED};
use crate::abi::{
    FI_ADDR_UNSPEC, FI_EAGAIN, FI_ECANCELED, FI_ECONNRESET, FI_EINVAL, FI_EIO, FI_ENOENT,
    FI_ETRUNC, FI_REMOTE_CQ_DATA, FI_TAGGED,
};
use crate::errno::of_status;

/// What a receive takes.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// From whom, by the number in the book; `FI_ADDR_UNSPEC` for anybody.
    pub from: u64,
    /// Bits of the tag that may be anything.
    pub ignore: u64,
    /// What is told; `FI_TAGGED` in its flags says that messages with tags are wanted.
    pub report: Report,
}

impl Wanted {
    /// As the engine matches.
    pub(super) fn matching(&self) -> (u64, u64) {
        if self.report.flags & FI_TAGGED == 0 {
            return (PLAIN, u64::MAX);
        }
        let mask = SPACES | !self.ignore & TAG_MASK;
        ((TAGGED | self.report.tag & TAG_MASK) & mask, mask)
    }
}

impl Rdm {
    /// Receives one message.
    ///
    /// # Errors
    /// Nobody has the number; there are too many operations.
    #[inline]
    pub fn receive(&mut self, env: Env<'_>, wanted: Wanted, place: Place) -> Result<(), Errno> {
        let from = self.source(env, wanted.from)?;
        if !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        // One piece is the common case, and nothing to be freed.
        // SAFETY: the operation's is used when the request that has the other has ended.
        let again = unsafe { place.alias() };
        let operation = self.begin(Task::Receive(wanted.report, again, from))?;
        self.post_receive(operation, from, wanted.matching(), place)
    }

    /// Whom alone a receive is from. Who is not known yet is connected to: if it is not there, what
    /// waits for it must not wait for ever.
    #[inline]
    pub(super) fn source(&mut self, env: Env<'_>, from: u64) -> Result<Option<Source>, Errno> {
        if from == FI_ADDR_UNSPEC {
            return Ok(None);
        }
        let source = env.book.get(from).ok_or(Errno(FI_EINVAL))?;
        if self.reach(env.book, from)?.is_none() && self.broken.contains(&source) {
            return Err(Errno(FI_ECONNRESET));
        }
        Ok(Some(source))
    }

    /// Posts a receive of a message with a head.
    #[inline]
    pub(super) fn post_receive(
        &mut self,
        operation: u32,
        from: Option<Source>,
        matching: (u64, u64),
        place: Place,
    ) -> Result<(), Errno> {
        let head = self.operations.cleared_head(operation).ok_or(Errno(FI_EAGAIN))?;
        // SAFETY: heads are there as long as the engine, and the operation's own is the request's.
        let parcel = unsafe { Parcel::headed(head, place) };
        self.post_bare(operation, from, matching, parcel)
    }

    /// The same of one without. If it cannot be done, there was no operation.
    #[inline]
    pub(super) fn post_bare(
        &mut self,
        operation: u32,
        from: Option<Source>,
        matching: (u64, u64),
        parcel: Parcel,
    ) -> Result<(), Errno> {
        self.post_again(operation, from, matching, parcel).inspect_err(|_| {
            self.operations.end(operation);
        })
    }

    /// Posts a receive for an operation that goes on if that cannot be done.
    #[inline]
    pub(super) fn post_again(
        &mut self,
        operation: u32,
        from: Option<Source>,
        matching: (u64, u64),
        parcel: Parcel,
    ) -> Result<(), Errno> {
        let endpoint = &mut self.endpoint;
        let (library, way) = (&mut endpoint.library, &mut endpoint.way);
        let before = library.unexpected();
        let made = library.irecv_from(way, from, matching, u64::from(operation), parcel);
        if library.unexpected() < before && matching.0 & BODY != BODY {
            count(&mut self.tally.early);
        }
        self.stirred |= endpoint.way.stir();
        let request = made.map_err(|_| Errno(FI_EAGAIN))?;
        self.operations.set_request(operation, request);
        Ok(())
    }

    /// Takes a receive back; its completion says so.
    ///
    /// # Errors
    /// There is none with that context, or it has a message already.
    pub fn cancel(&mut self, context: usize) -> Result<(), Errno> {
        let found = self.operations.find(|task| match task {
            Task::Receive(report, ..) => report.context == context,
            Task::Multi(multi) => {
                let waits = multi.posted || multi.parked || multi.behind;
                multi.report.context == context && waits
            }
            _ => false,
        });
        let operation = found.ok_or(Errno(FI_ENOENT))?;
        if self.withdraw_multi(operation) {
            self.fail_receive(operation, FI_ECANCELED, Status::Cancelled);
            return Ok(());
        }
        if !self.takes_back(operation) {
            return Err(Errno(FI_ENOENT));
        }
        self.fail_receive(operation, FI_ECANCELED, Status::Cancelled);
        Ok(())
    }

    /// A request of the engine ended.
    #[inline]
    pub(super) fn ended(&mut self, env: Env<'_>, ended: &Completion) {
        let Ok(at) = u32::try_from(ended.context) else { return };
        match self.operations.task(at) {
            Some(Task::Send(_)) => {
                self.later.ended(at);
                if let Some(Task::Send(report)) = self.operations.end(at) {
                    self.sent(report, ended);
                }
            }
            Some(Task::Receive(..)) => self.received(env, at, ended),
            Some(Task::Multi(_)) => self.multi_received(env, at, ended),
            Some(Task::Quiet) => drop(self.operations.end(at)),
            _ => self.ended_rarely(env, at, ended),
        }
    }

    #[cold]
    fn ended_rarely(&mut self, env: Env<'_>, at: u32, ended: &Completion) {
        let (words, name) = (self.operations.words(at), self.operations.name(at));
        match self.operations.end(at) {
            Some(Task::Connect(to)) => self.connected(env, to, ended),
            Some(Task::Ask(call)) if !matters(ended.status) && !self.is_kept(ended) => {
                self.fail_call(call, of_status(ended.status), ended.status);
            }
            Some(Task::Body(told, len)) => self.done.push(told.long(len, ended)),
            Some(Task::Part(multi, told, len)) => self.parted(env, multi, told.long(len, ended)),
            Some(Task::Call(report, to, body)) => {
                self.replied(name, (report, to, body), words, ended);
            }
            Some(Task::Served(served)) => self.served(env, &served, ended),
            Some(Task::Reply(peer, _)) => {
                self.served_one(peer);
                self.reply_lost(ended);
            }
            _ => {}
        }
    }

    /// A receive has a message, or failed.
    #[inline]
    fn received(&mut self, env: Env<'_>, at: u32, ended: &Completion) {
        if let Some(done) = self.received_whole(env, at, ended) {
            self.done.push(done);
        } else {
            self.received_otherwise(env, at, ended);
        }
    }

    /// Ends the operation of a request, if that is a receive whose end is told in a queue, and it
    /// has a message that came with its head.
    #[inline(always)]
    pub(super) fn received_straight(&mut self, env: Env<'_>, ended: &Completion) -> Option<Done> {
        let at = u32::try_from(ended.context).ok()?;
        match self.operations.task(at) {
            Some(Task::Receive(report, ..)) if !report.quiet => self.received_whole(env, at, ended),
            _ => None,
        }
    }

    /// Ends a receive, if it has a message that came with its head.
    #[inline(always)]
    fn received_whole(&mut self, env: Env<'_>, at: u32, ended: &Completion) -> Option<Done> {
        let (data, word) = self.operations.words(at);
        let whole = matters(ended.status) && word & NOTICE == 0;
        let from = self.from(env.book, ended.partner.filter(|_| whole)?);
        let Some(Task::Receive(report, place, _)) = self.operations.task(at) else { return None };
        let told = Told::new(*report, ended.match_info, (from, data, word), place.len());
        self.operations.end(at);
        Some(told.short(ended))
    }

    /// A receive has a notice of what is to come, or failed.
    #[cold]
    fn received_otherwise(&mut self, env: Env<'_>, at: u32, ended: &Completion) {
        let (data, word) = self.operations.words(at);
        let Some(Task::Receive(report, place, _)) = self.operations.end(at) else { return };
        let Some(partner) = ended.partner.filter(|_| matters(ended.status)) else {
            self.done.push(Done::failed(report, of_status(ended.status), ended.status));
            return;
        };
        let from = self.from(env.book, partner);
        let told = Told::new(report, ended.match_info, (from, data, word), place.len());
        self.long(partner, told, word, place);
    }

    /// Receives the bytes of that name from somebody who told of them.
    pub(super) fn fetch(
        &mut self,
        partner: Partner,
        name: u64,
        task: Task,
        place: Place,
        told: &Told,
    ) -> Result<(), Done> {
        let failed = |err, status| Done::failed(told.report, err, status);
        let (held, name) = (name & HELD != 0, name & !HELD);
        let lost = self.is_body_lost(partner, name);
        let library = &self.endpoint.library;
        // What is held is sent by the connection that there is now.
        let again = library.source_of(partner).and_then(|source| library.reached(source));
        let partner = again.filter(|_| held).unwrap_or(partner);
        let matching = (BODY | name, u64::MAX);
        let source = library.source_of(partner);
        let comes = library.is_reached(partner)
            || !matches!(library.probe(source, matching, &mut []), Ok(None));
        let Some(source) = source.filter(|_| comes && !lost) else {
            return Err(failed(FI_ECONNRESET, Status::EndpointClosed));
        };
        let again = failed(FI_EAGAIN, Status::NoResources);
        if matches!(task, Task::Body(..) | Task::Part(..)) {
            count(&mut self.tally.long_received);
        }
        let operation = self.begin(task).map_err(|_| again)?;
        let posted = self.post_bare(operation, Some(source), matching, Parcel::bare(place));
        posted.map_err(|_| again)?;
        // Last: what was asked for comes, and has to find its receive.
        let name = u32::try_from(name).unwrap_or(u32::MAX);
        if held && self.ask_for(partner, name).is_err() && self.takes_back(operation) {
            self.operations.end(operation);
            return Err(again);
        }
        Ok(())
    }

    /// Takes the receive of an operation back, which goes on without; no, if something came for it.
    pub(super) fn takes_back(&mut self, operation: u32) -> bool {
        let Some(request) = self.operations.request(operation) else { return false };
        let endpoint = &mut self.endpoint;
        endpoint.library.cancel(&mut endpoint.way, request) == Ok(true)
    }
}

/// What a notice says: the name of the bytes, with [`HELD`] if they are to be asked for, and how
/// many they are.
pub fn noticed(word: u64) -> (u64, usize) {
    let name = (word >> 32) & u64::from(NAME_MASK);
    (name | word & HELD, (word & 0xffff_ffff) as usize)
}

/// Whether something was received, if not all of it.
pub fn matters(status: Status) -> bool {
    matches!(status, Status::Success | Status::Truncated)
}

/// What is known of a message, before it is all there.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    /// Its tag is the message's.
    pub report: Report,
    /// Who sent it, by the number in the book.
    pub from: u64,
    /// Immediate data.
    pub data: u64,
    /// How many bytes find room.
    pub room: usize,
}

impl Told {
    #[inline]
    pub fn new(
        report: Report,
        info: u64,
        (from, data, word): (u64, u64, u64),
        room: usize,
    ) -> Self {
        let immediate = if word & DATA != 0 { FI_REMOTE_CQ_DATA } else { 0 };
        let (flags, tag) = (report.flags | immediate, info & TAG_MASK);
        Self { report: Report { flags, tag, ..report }, from, data, room }
    }

    /// A message that came with its head.
    #[inline]
    pub fn short(self, ended: &Completion) -> Done {
        match (ended.msg_length as usize).checked_sub(HEAD_BYTES) {
            Some(len) => self.of_len(len),
            // Not one of ours.
            None => Done::failed(self.report, FI_EIO, ended.status),
        }
    }

    /// The bytes that follow a notice are there, or do not come.
    pub fn long(self, len: usize, ended: &Completion) -> Done {
        if matters(ended.status) {
            // More or less than was told is what came.
            self.of_len(len.min(ended.msg_length as usize))
        } else {
            Done::failed(self.report, of_status(ended.status), ended.status)
        }
    }

    #[inline]
    pub fn of_len(self, len: usize) -> Done {
        let Self { report, from, data, room } = self;
        let mut done = Done { from, data, ..Done::well(report) };
        done.len = len.min(room);
        if len > room {
            let (status, olen) = (Status::Truncated as u32, len.saturating_sub(room));
            done.fault = Some(Fault { err: FI_ETRUNC, status, olen });
        }
        done
    }
}
