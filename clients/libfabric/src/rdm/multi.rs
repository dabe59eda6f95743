//! Buffers for many messages (`FI_MULTI_RECV`): each message goes behind the one before.
//!
//! The engine has one receive at a time of such a buffer, for what is left of it. A buffer takes
//! messages until it is full; those given after it for the same messages are posted then.

use std::collections::VecDeque;

use causeway_message::library::{Completion, Source};
use causeway_message::status::Status;

use super::done::{Done, Report};
use super::operation::Task;
use super::parcel::{Parcel, Place};
use super::receive::{Told, Wanted, matters, noticed};
use super::send::NOTICE;
use super::span::Span;
use super::{Env, Errno, Rdm};
use crate::abi::{FI_EAGAIN, FI_EINVAL, FI_ENOMEM, FI_MULTI_RECV, FI_RECV};
use crate::errno::of_status;
use crate::limits::{MULTI_RECEIVE_GRAIN, PARTS_MAX};

/// All such buffers, by their operations.
#[derive(Debug, Default)]
pub(super) struct Multis {
    /// Those that take messages.
    first: Vec<u32>,
    /// Those that wait until one of these is full, in their order.
    behind: VecDeque<u32>,
}

/// See above.
#[derive(Debug)]
pub struct Multi {
    pub report: Report,
    /// The memory, and how much of it is used.
    memory: Span,
    used: usize,
    /// Less room than this is none.
    min: usize,
    from: Option<Source>,
    /// The same by the number in the book.
    number: u64,
    matching: (u64, u64),
    /// Long messages on their way into it.
    parts: usize,
    /// The engine has a receive for the rest.
    pub posted: bool,
    /// It has none because there is no room for what would come.
    pub parked: bool,
    /// It has none because a buffer that was given before takes the same messages.
    pub behind: bool,
    /// Why nothing more comes into it, if not because it is full.
    ended: Option<(i32, Status)>,
}

impl Multi {
    /// Returns the memory that is left.
    ///
    /// # Safety
    /// As of [`Span::alias`], for what is left when this is called.
    unsafe fn rest(&self) -> Span {
        // SAFETY: as the caller says.
        unsafe { self.memory.alias() }.skip(self.used)
    }

    /// So many bytes more are used.
    fn take(&mut self, len: usize) {
        let used = self.used.saturating_add(len).checked_next_multiple_of(MULTI_RECEIVE_GRAIN);
        self.used = used.unwrap_or(usize::MAX).min(self.memory.len());
    }

    /// Nothing more is to come into it.
    pub fn end(&mut self, err: i32, status: Status) {
        self.ended.get_or_insert((err, status));
    }

    /// Whom alone it is from, while it waits.
    pub fn source(&self) -> Option<Source> {
        self.from.filter(|_| self.posted)
    }

    /// Whether it is for messages of that endpoint alone.
    pub fn is_from(&self, source: Source) -> bool {
        self.from == Some(source)
    }

    /// Whether it takes the messages that another takes.
    fn is_alike(&self, other: &Self) -> bool {
        (self.from, self.matching) == (other.from, other.matching)
    }

    fn is_full(&self) -> bool {
        self.memory.len().saturating_sub(self.used) < self.min.max(1)
    }
}

impl Rdm {
    /// Receives messages into one piece of memory until that is full.
    ///
    /// # Errors
    /// More pieces; nobody has the number; too many operations.
    pub fn receive_many(
        &mut self,
        env: Env<'_>,
        wanted: Wanted,
        place: Place,
    ) -> Result<(), Errno> {
        let Place::One(memory) = place else { return Err(Errno(FI_EINVAL)) };
        let from = self.source(env, wanted.from)?;
        let multi = Multi {
            report: wanted.report,
            memory,
            used: 0,
            min: self.multi_receive_min,
            from,
            number: wanted.from,
            matching: wanted.matching(),
            parts: 0,
            posted: true,
            parked: false,
            behind: false,
            ended: None,
        };
        if multi.is_full() {
            return Err(Errno(FI_EINVAL));
        }
        if !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        if self.leads(&multi).is_some() {
            let multi = Multi { posted: false, behind: true, ..multi };
            let operation = self.begin(Task::Multi(Box::new(multi)))?;
            self.multis.behind.push_back(operation);
            return Ok(());
        }
        // SAFETY: the buffer is reached through the request alone until that has ended.
        let rest = Place::One(unsafe { multi.rest() });
        let operation = self.begin(Task::Multi(Box::new(multi)))?;
        self.post_receive(operation, from, wanted.matching(), rest)?;
        self.multis.first.push(operation);
        Ok(())
    }

    /// The buffer that takes the messages that this one would take.
    fn leads(&mut self, multi: &Multi) -> Option<u32> {
        let Self { multis, operations, .. } = self;
        let alike = |at: &u32| match operations.task(*at) {
            Some(Task::Multi(first)) => first.is_alike(multi),
            _ => false,
        };
        multis.first.iter().copied().find(alike)
    }

    /// A buffer takes no more messages: the next for the same ones does.
    fn pass_on(&mut self, at: u32) {
        let Self { multis, operations, parked, .. } = self;
        let Some(place) = multis.first.iter().position(|first| *first == at) else { return };
        multis.first.swap_remove(place);
        let Some(Task::Multi(over)) = operations.task(at) else { return };
        let (from, matching) = (over.from, over.matching);
        let next = multis.behind.iter().position(|next| match operations.task(*next) {
            Some(Task::Multi(next)) => (next.from, next.matching) == (from, matching),
            _ => false,
        });
        let Some(next) = next.and_then(|next| multis.behind.remove(next)) else { return };
        if let Some(Task::Multi(multi)) = operations.task(next) {
            (multi.behind, multi.parked) = (false, true);
        }
        multis.first.push(next);
        parked.push(next);
        self.stirred = true;
    }

    /// Takes a buffer back that waits for another, or for room. False: it does not.
    pub(super) fn withdraw_multi(&mut self, at: u32) -> bool {
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return false };
        let waits = std::mem::take(&mut multi.parked) | std::mem::take(&mut multi.behind);
        if waits {
            self.parked.retain(|parked| *parked != at);
            self.multis.behind.retain(|behind| *behind != at);
        }
        waits
    }

    /// The next message for such a buffer is there.
    pub(super) fn multi_received(&mut self, env: Env<'_>, at: u32, ended: &Completion) {
        let (data, word) = self.operations.words(at);
        let from = match ended.partner {
            Some(partner) => self.from(env.book, partner),
            None => super::book::NOBODY,
        };
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return };
        multi.posted = false;
        // SAFETY: the request that had what is left has ended.
        let rest = unsafe { multi.rest() };
        let room = rest.len();
        let report = Report { buf: rest.address(), len: room, ..multi.report };
        let Some(partner) = ended.partner.filter(|_| matters(ended.status)) else {
            multi.end(of_status(ended.status), ended.status);
            self.end_multi(at);
            return;
        };
        let told = Told::new(report, ended.match_info, (from, data, word), room);
        if word & NOTICE == 0 {
            let done = told.short(ended);
            multi.take(done.len);
            self.done.push(done);
        } else {
            let (name, len) = noticed(word);
            multi.take(len);
            multi.parts = multi.parts.saturating_add(1);
            let place = Place::One(rest.first(len));
            let told = Told { room: len.min(room), ..told };
            if let Err(done) = self.fetch(partner, name, Task::Part(at, told, len), place, &told) {
                self.parted(env, at, done);
                return;
            }
        }
        self.settle_multi(env, at);
    }

    /// A long message is there.
    pub(super) fn parted(&mut self, env: Env<'_>, at: u32, done: Done) {
        self.done.push(done);
        if let Some(Task::Multi(multi)) = self.operations.task(at) {
            multi.parts = multi.parts.saturating_sub(1);
        }
        self.settle_multi(env, at);
    }

    /// Posts the rest, or gives the buffer back when nothing more comes into it.
    fn settle_multi(&mut self, env: Env<'_>, at: u32) {
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return };
        if multi.posted {
            return;
        }
        if multi.ended.is_some() || multi.is_full() {
            self.end_multi(at);
            return;
        }
        if self.held || multi.parts >= PARTS_MAX {
            if !std::mem::replace(&mut multi.parked, true) {
                self.parked.push(at);
            }
            return;
        }
        // SAFETY: no request has what is left, and the next alone gets it.
        let rest = unsafe { multi.rest() };
        let (number, matching) = (multi.number, multi.matching);
        // Whom alone it is from may be gone by now: then that is not waited for.
        let from = match self.source(env, number) {
            Ok(from) => from,
            Err(Errno(err)) => {
                self.fail_receive(at, err, Status::EndpointUnreachable);
                return;
            }
        };
        if let Some(Task::Multi(multi)) = self.operations.task(at) {
            multi.posted = true;
        }
        let Some(head) = self.operations.cleared_head(at) else { return };
        // SAFETY: heads are there as long as the engine, and the operation's own is the request's.
        let parcel = unsafe { Parcel::headed(head, Place::One(rest)) };
        if self.post_again(at, from, matching, parcel).is_err() {
            self.fail_receive(at, FI_ENOMEM, Status::NoResources);
        }
    }

    /// Those that take no messages do so again, if there is room now.
    #[cold]
    pub(super) fn unpark(&mut self, env: Env<'_>) {
        for at in std::mem::take(&mut self.parked) {
            // It may be over, and another operation in its place.
            let Some(Task::Multi(multi)) = self.operations.task(at) else { continue };
            if std::mem::take(&mut multi.parked) {
                self.settle_multi(env, at);
            }
        }
    }

    /// Gives the buffer back, if nothing is on its way into it.
    pub(super) fn end_multi(&mut self, at: u32) {
        self.pass_on(at);
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return };
        if multi.parts > 0 {
            return;
        }
        let (report, ended) = (multi.report, multi.ended);
        self.operations.end(at);
        if let Some((err, status)) = ended {
            self.done.push(Done::failed(report, err, status));
            return;
        }
        // Its last message says that the buffer is the application's again, if anybody hears of it.
        match self.done.last_mut() {
            Some(last)
                if last.report.context == report.context
                    && last.report.flags & FI_RECV != 0
                    && last.fault.is_none()
                    && !last.report.quiet =>
            {
                last.report.flags |= FI_MULTI_RECV;
            }
            _ => {
                let flags = report.flags | FI_MULTI_RECV;
                let report = Report { flags, len: 0, quiet: false, ..report };
                self.done.push(Done { counts: false, ..Done::well(report) });
            }
        }
    }
}
