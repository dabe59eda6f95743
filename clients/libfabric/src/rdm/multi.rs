//! The multi-receive buffers of an endpoint (`FI_MULTI_RECV`): their receives and completions. Each
//! message is placed after the previous message ([`multi_buffer`](super::multi_buffer)).
//!
//! The engine has a single receive of such a buffer at a time, for the unused rest. A buffer takes
//! messages until less than its minimum (`FI_OPT_MIN_MULTI_RECV`) is left; buffers that were posted
//! later for the same messages are queued and follow.
//!
//! # Limits
//! A buffer must be contiguous and not smaller than its minimum (`FI_EINVAL`); other errors are
//! those of [`Rdm::receive`]. Queued buffers are bounded only by the limit of operations. A message
//! that is longer than the rest is cut and completes with `FI_ETRUNC`; it is not moved to the next
//! buffer. A buffer gets no further receive, so that the senders wait, while the completion queue
//! is full or [`MULTI_BODIES_MAX`] (1,024) long messages are on their way into it; a receive that
//! is posted already may still take a message. Its memory belongs to the provider until a
//! completion with `FI_MULTI_RECV`, which is reported even if completions are selective, or an
//! error of the buffer, such as its cancellation; long messages on their way then end first.
//!
//! # Place
//! `shell::tagged` posts buffers, also for messages without a tag ([`Rdm::receive_many`]);
//! [`Rdm::complete`] passes each message; [`Rdm::progress`] resumes paused buffers. All run under
//! the lock of the domain.

use std::collections::VecDeque;

use causeway_message::library::Completion;
use causeway_message::status::Status;

use super::buffer::{MessageBuffer, Payload};
use super::completion::{OpCompletion, ReportTemplate};
use super::message_meta::{MessageMeta, is_received};
use super::multi_buffer::MultiBuffer;
use super::operation::Task;
use super::receive::ReceiveSpec;
use super::wire::{NOTICE, parse_notice};
use super::{DomainEnv, Rdm};
use crate::abi::{FI_EAGAIN, FI_EINVAL, FI_ENOMEM, FI_MULTI_RECV, FI_RECV};
use crate::errno::{Errno, of_status};
use crate::limits::{MULTI_BODIES_MAX, MULTI_RECEIVE_MIN};

/// All multi-receive buffers, by their operations.
#[derive(Debug)]
pub(super) struct MultiBuffers {
    /// Least room in a buffer that is posted, in bytes.
    min: usize,
    /// Buffers that take messages.
    active: Vec<u32>,
    /// Buffers that wait until an active buffer for the same messages is full, in order of their
    /// posting.
    queued: VecDeque<u32>,
    /// Buffers for which no receive is posted until there is room.
    paused: Vec<u32>,
}

impl MultiBuffers {
    /// Returns no buffers.
    pub(super) const fn new() -> Self {
        Self {
            min: MULTI_RECEIVE_MIN,
            active: Vec::new(),
            queued: VecDeque::new(),
            paused: Vec::new(),
        }
    }

    /// Returns the least room in a buffer, in bytes.
    pub(super) const fn min(&self) -> usize {
        self.min
    }

    /// Sets the least room in buffers that are posted from now on.
    pub(super) fn set_min(&mut self, min: usize) {
        self.min = min;
    }

    /// Returns whether a buffer waits for room.
    #[inline]
    pub(super) fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }
}

impl Rdm {
    /// Posts a multi-receive buffer.
    ///
    /// # Errors
    /// The buffer is not contiguous, or smaller than its minimum; the address is not in the vector;
    /// the only sender is broken; too many operations.
    pub fn receive_many(
        &mut self,
        env: DomainEnv<'_>,
        wanted: ReceiveSpec,
        payload: Payload,
    ) -> Result<(), Errno> {
        let Payload::One(memory) = payload else { return Err(Errno(FI_EINVAL)) };
        let from = self.source(env, wanted.from)?;
        let (min, from_number) = (self.multi_buffers.min, (from, wanted.from));
        let multi = MultiBuffer::new(wanted.report, memory, min, from_number, wanted.matching());
        if multi.is_full() {
            return Err(Errno(FI_EINVAL));
        }
        if !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        if self.active_like(&multi).is_some() {
            let mut multi = multi;
            (multi.is_posted, multi.is_queued) = (false, true);
            let operation = self.begin(Task::Multi(Box::new(multi)))?;
            self.multi_buffers.queued.push_back(operation);
            return Ok(());
        }
        // SAFETY: only the request accesses the buffer until it has ended.
        let rest = Payload::One(unsafe { multi.rest() });
        let operation = self.begin(Task::Multi(Box::new(multi)))?;
        self.post_receive(operation, from, wanted.matching(), rest)?;
        self.multi_buffers.active.push(operation);
        Ok(())
    }

    /// Returns the active buffer that accepts the same messages.
    fn active_like(&mut self, multi: &MultiBuffer) -> Option<u32> {
        let Self { multi_buffers, operations, .. } = self;
        let alike = |at: &u32| match operations.task(*at) {
            Some(Task::Multi(first)) => first.accepted() == multi.accepted(),
            _ => false,
        };
        multi_buffers.active.iter().copied().find(alike)
    }

    /// Activates the next buffer for the same messages after a buffer ended.
    fn activate_next(&mut self, at: u32) {
        let Self { multi_buffers, operations, .. } = self;
        let Some(index) = multi_buffers.active.iter().position(|first| *first == at) else {
            return;
        };
        multi_buffers.active.swap_remove(index);
        let Some(Task::Multi(over)) = operations.task(at) else { return };
        let accepted = over.accepted();
        let next = multi_buffers.queued.iter().position(|next| match operations.task(*next) {
            Some(Task::Multi(next)) => next.accepted() == accepted,
            _ => false,
        });
        let Some(next) = next.and_then(|next| multi_buffers.queued.remove(next)) else { return };
        if let Some(Task::Multi(multi)) = operations.task(next) {
            (multi.is_queued, multi.is_paused) = (false, true);
        }
        multi_buffers.active.push(next);
        multi_buffers.paused.push(next);
        self.has_new_room = true;
    }

    /// Cancels a buffer that is queued or paused. Returns `false` if it is neither.
    pub(super) fn withdraw_multi(&mut self, at: u32) -> bool {
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return false };
        let waits = std::mem::take(&mut multi.is_paused) | std::mem::take(&mut multi.is_queued);
        if waits {
            self.multi_buffers.paused.retain(|paused| *paused != at);
            self.multi_buffers.queued.retain(|queued| *queued != at);
        }
        waits
    }

    /// Processes the next message for a buffer.
    pub(super) fn process_multi_receive(
        &mut self,
        env: DomainEnv<'_>,
        at: u32,
        ended: &Completion,
    ) {
        let (data, word) = self.operations.words(at);
        let from = match ended.partner {
            Some(partner) => self.from(env.vector, partner),
            None => super::address_vector::NOT_IN_VECTOR,
        };
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return };
        multi.is_posted = false;
        // SAFETY: the request with the unused memory has ended.
        let rest = unsafe { multi.rest() };
        let room = rest.len();
        let report = ReportTemplate { buf: rest.address(), len: room, ..multi.report };
        let Some(partner) = ended.partner.filter(|_| is_received(ended.status)) else {
            multi.end(of_status(ended.status), ended.status);
            self.end_multi(at);
            return;
        };
        let meta = MessageMeta::new(report, ended.match_info, (from, data, word), room);
        if word & NOTICE == 0 {
            let done = meta.short(ended);
            multi.take(done.len);
            self.completions.push(done);
        } else {
            let (name, len) = parse_notice(word);
            multi.take(len);
            multi.begin_body();
            let payload = Payload::One(rest.first(len));
            let meta = MessageMeta { room: len.min(room), ..meta };
            if let Err(done) = self.fetch(partner, name, Task::Part(at, meta, len), payload, &meta)
            {
                self.complete_multi_body(env, at, done);
                return;
            }
        }
        self.repost_multi(env, at);
    }

    /// Completes a long message into a buffer.
    pub(super) fn complete_multi_body(&mut self, env: DomainEnv<'_>, at: u32, done: OpCompletion) {
        self.completions.push(done);
        if let Some(Task::Multi(multi)) = self.operations.task(at) {
            multi.end_body();
        }
        self.repost_multi(env, at);
    }

    /// Posts the receive for the rest, or completes the buffer if it takes no further message.
    fn repost_multi(&mut self, env: DomainEnv<'_>, at: u32) {
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return };
        if multi.is_posted {
            return;
        }
        if multi.error().is_some() || multi.is_full() {
            self.end_multi(at);
            return;
        }
        if self.is_cq_full || multi.bodies() >= MULTI_BODIES_MAX {
            if !std::mem::replace(&mut multi.is_paused, true) {
                self.multi_buffers.paused.push(at);
            }
            return;
        }
        // SAFETY: no request has the unused memory; only the next one gets it.
        let rest = unsafe { multi.rest() };
        let (number, (_, matching)) = (multi.sender(), multi.accepted());
        // The only sender may be gone by now; a receive would wait in vain.
        let from = match self.source(env, number) {
            Ok(from) => from,
            Err(Errno(err)) => {
                self.fail_receive(at, err, Status::EndpointUnreachable);
                return;
            }
        };
        if let Some(Task::Multi(multi)) = self.operations.task(at) {
            multi.is_posted = true;
        }
        let Some(head) = self.operations.cleared_head(at) else { return };
        // SAFETY: heads live as long as the engine, and an operation's head belongs to its request.
        let buffer = unsafe { MessageBuffer::headed(head, Payload::One(rest)) };
        if self.post_again(at, from, matching, buffer).is_err() {
            self.fail_receive(at, FI_ENOMEM, Status::NoResources);
        }
    }

    /// Posts the receives of paused buffers, if there is room now.
    #[cold]
    pub(super) fn resume_paused(&mut self, env: DomainEnv<'_>) {
        for at in std::mem::take(&mut self.multi_buffers.paused) {
            // The operation may have ended and another may have its slot.
            let Some(Task::Multi(multi)) = self.operations.task(at) else { continue };
            if std::mem::take(&mut multi.is_paused) {
                self.repost_multi(env, at);
            }
        }
    }

    /// Completes a buffer, unless long messages are on their way into it.
    pub(super) fn end_multi(&mut self, at: u32) {
        self.activate_next(at);
        let Some(Task::Multi(multi)) = self.operations.task(at) else { return };
        if multi.bodies() > 0 {
            return;
        }
        let (report, ended) = (multi.report, multi.error());
        self.operations.end(at);
        if let Some((err, status)) = ended {
            self.completions.push(OpCompletion::failed(report, err, status));
            return;
        }
        // The completion of its last message releases the buffer, if that is reported.
        match self.completions.last_mut() {
            Some(last)
                if last.report.context == report.context
                    && last.report.flags & FI_RECV != 0
                    && last.failure.is_none()
                    && !last.report.quiet =>
            {
                last.report.flags |= FI_MULTI_RECV;
            }
            _ => {
                let flags = report.flags | FI_MULTI_RECV;
                let report = ReportTemplate { flags, len: 0, quiet: false, ..report };
                self.completions
                    .push(OpCompletion { counts: false, ..OpCompletion::success(report) });
            }
        }
    }
}
