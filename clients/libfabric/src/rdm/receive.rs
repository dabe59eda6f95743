//! Receives, and the completion of operations when their requests end.
//!
//! A receive is posted to the engine with room for a head. An eager message completes it at once; a
//! notice (the head of a long message, without its bytes) lets it continue as the receive of the
//! bytes ([`Rdm::fetch`]). A message longer than the buffer fills the buffer and completes with
//! `FI_ETRUNC` and the number of missing bytes. A message without a head was not sent by this
//! provider and completes with `FI_EIO`.
//!
//! # Limits
//! [`Rdm::receive`] fails with `FI_EAGAIN` without a free operation, `FI_EINVAL` if the sender is
//! not in the address vector, and `FI_ECONNRESET` if the peer is broken
//! ([`connect`](super::connect)). A later failure is an error completion. A receive has no time
//! limit; one from a single sender fails when that sender is gone. [`Rdm::cancel`] cancels one
//! receive or multi-receive buffer with the context, not always the oldest; a receive that has its
//! message, a send or any other operation cannot be cancelled (`FI_ENOENT`). The order of matching
//! is the engine's.
//!
//! # Place
//! `shell::tagged` posts receives, and `shell::endpoint` cancels them. [`Rdm::progress`] calls
//! [`Rdm::complete`] for each request that ended, of any kind; results are pushed to
//! [`Rdm::completions`]. All run under the lock of the domain.

use causeway_message::library::{Completion, EndpointIdentity, Partner};
use causeway_message::status::Status;

use super::buffer::{MessageBuffer, Payload};
use super::completion::{OpCompletion, ReportTemplate};
use super::message_meta::{MessageMeta, is_received};
use super::operation::Task;
use super::stats::count;
use super::wire::{BODY, DEFERRED, NOTICE, PLAIN, SPACES, TAG_MASK, TAGGED, parse_notice};
use super::{DomainEnv, Rdm};
use crate::abi::{
    FI_ADDR_UNSPEC, FI_EAGAIN, FI_ECANCELED, FI_ECONNRESET, FI_EINVAL, FI_ENOENT, FI_TAGGED,
};
use crate::errno::{Errno, of_status};

/// The messages that a receive accepts.
#[derive(Debug, Clone, Copy)]
pub struct ReceiveSpec {
    /// The sender's index in the address vector, or `FI_ADDR_UNSPEC` for any sender.
    pub from: u64,
    /// Bits of the tag that are not compared.
    pub ignore: u64,
    /// The completion; `FI_TAGGED` in its flags selects messages with a tag.
    pub report: ReportTemplate,
}

impl ReceiveSpec {
    /// Returns the value and the mask for the engine's matching: a bit is compared where the mask
    /// has 1.
    pub(super) fn matching(&self) -> (u64, u64) {
        if self.report.flags & FI_TAGGED == 0 {
            return (PLAIN, u64::MAX);
        }
        let mask = SPACES | !self.ignore & TAG_MASK;
        ((TAGGED | self.report.tag & TAG_MASK) & mask, mask)
    }
}

impl Rdm {
    /// Posts a receive of a message.
    ///
    /// # Errors
    /// The address is not in the vector; the only sender is broken; there are too many operations.
    #[inline]
    pub fn receive(
        &mut self,
        env: DomainEnv<'_>,
        wanted: ReceiveSpec,
        payload: Payload,
    ) -> Result<(), Errno> {
        let from = self.source(env, wanted.from)?;
        if !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        // A contiguous buffer is the common case, which allocates nothing.
        // SAFETY: the operation uses its payload only after the request with the other has ended.
        let again = unsafe { payload.alias() };
        let operation = self.begin(Task::Receive(wanted.report, again, from))?;
        self.post_receive(operation, from, wanted.matching(), payload)
    }

    /// Returns the only sender of a receive, if it has one. A sender without a connection is
    /// connected to, so that the receive fails if the sender does not exist.
    #[inline]
    pub(super) fn source(
        &mut self,
        env: DomainEnv<'_>,
        from: u64,
    ) -> Result<Option<EndpointIdentity>, Errno> {
        if from == FI_ADDR_UNSPEC {
            return Ok(None);
        }
        let source = env.vector.get(from).ok_or(Errno(FI_EINVAL))?;
        if self.reach(env.vector, from)?.is_none() && self.broken.contains(source) {
            return Err(Errno(FI_ECONNRESET));
        }
        Ok(Some(source))
    }

    /// Posts a receive of a message with a head. On an error the operation is removed. `matching`:
    /// value and mask.
    #[inline]
    pub(super) fn post_receive(
        &mut self,
        operation: u32,
        from: Option<EndpointIdentity>,
        matching: (u64, u64),
        payload: Payload,
    ) -> Result<(), Errno> {
        let head = self.operations.cleared_head(operation).ok_or(Errno(FI_EAGAIN))?;
        // SAFETY: heads live as long as the engine, and an operation's head belongs to its request.
        let buffer = unsafe { MessageBuffer::headed(head, payload) };
        self.post_bare(operation, from, matching, buffer)
    }

    /// Posts a receive of a message without a head. On an error the operation is removed.
    #[inline]
    pub(super) fn post_bare(
        &mut self,
        operation: u32,
        from: Option<EndpointIdentity>,
        matching: (u64, u64),
        buffer: MessageBuffer,
    ) -> Result<(), Errno> {
        self.post_again(operation, from, matching, buffer).inspect_err(|_| {
            self.operations.end(operation);
        })
    }

    /// Posts a receive for an operation that may have had one before. On an error the operation
    /// stays.
    #[inline]
    pub(super) fn post_again(
        &mut self,
        operation: u32,
        from: Option<EndpointIdentity>,
        matching: (u64, u64),
        buffer: MessageBuffer,
    ) -> Result<(), Errno> {
        let endpoint = &mut self.endpoint;
        let (library, way) = (&mut endpoint.library, &mut endpoint.paths);
        let before = library.unexpected();
        let made = library.irecv_from(way, from, matching, u64::from(operation), buffer);
        if library.unexpected() < before && matching.0 & BODY != BODY {
            count(&mut self.stats.early);
        }
        self.has_new_room |= endpoint.paths.nudge();
        let request = made.map_err(|_| Errno(FI_EAGAIN))?;
        self.operations.set_request(operation, request);
        Ok(())
    }

    /// Cancels a receive, which then completes with `FI_ECANCELED`.
    ///
    /// # Errors
    /// No receive has this context, or it has a message already.
    pub fn cancel(&mut self, context: usize) -> Result<(), Errno> {
        let found = self.operations.find(|task| match task {
            Task::Receive(report, ..) => report.context == context,
            Task::Multi(multi) => {
                let waits = multi.is_posted || multi.is_paused || multi.is_queued;
                multi.report.context == context && waits
            }
            _ => false,
        });
        let operation = found.ok_or(Errno(FI_ENOENT))?;
        if self.withdraw_multi(operation) {
            self.fail_receive(operation, FI_ECANCELED, Status::Cancelled);
            return Ok(());
        }
        if !self.cancel_request(operation) {
            return Err(Errno(FI_ENOENT));
        }
        self.fail_receive(operation, FI_ECANCELED, Status::Cancelled);
        Ok(())
    }

    /// Completes the operation of a request that ended.
    #[inline]
    pub(super) fn complete(&mut self, env: DomainEnv<'_>, ended: &Completion) {
        let Ok(at) = u32::try_from(ended.context) else { return };
        match self.operations.task(at) {
            Some(Task::Send(_)) => {
                self.deferred.forget(at);
                if let Some(Task::Send(report)) = self.operations.end(at) {
                    self.complete_send(report, ended);
                }
            }
            Some(Task::Receive(..)) => self.complete_receive(env, at, ended),
            Some(Task::Multi(_)) => self.process_multi_receive(env, at, ended),
            Some(Task::Internal) => drop(self.operations.end(at)),
            _ => self.complete_other(env, at, ended),
        }
    }

    /// Completes an operation of any kind but a send, a receive or an internal message.
    #[cold]
    fn complete_other(&mut self, env: DomainEnv<'_>, at: u32, ended: &Completion) {
        let (words, name) = (self.operations.words(at), self.operations.name(at));
        match self.operations.end(at) {
            Some(Task::Connect(to)) => self.complete_connect(env, to, ended),
            Some(Task::Request(call)) if !is_received(ended.status) && !self.will_resend(ended) => {
                self.fail_call(call, of_status(ended.status), ended.status);
            }
            Some(Task::Body(meta, len)) => self.completions.push(meta.long(len, ended)),
            Some(Task::Part(multi, meta, len)) => {
                self.complete_multi_body(env, multi, meta.long(len, ended))
            }
            Some(Task::Call(report, to, body)) => {
                self.complete_call(name, (report, to, body), words, ended);
            }
            Some(Task::TargetWrite(served)) => self.complete_long_write(env, &served, ended),
            Some(Task::Reply(peer, _)) => {
                self.served.end(peer);
                self.reply_lost(ended);
            }
            _ => {}
        }
    }

    /// Completes a receive that has a message, or failed.
    #[inline]
    fn complete_receive(&mut self, env: DomainEnv<'_>, at: u32, ended: &Completion) {
        if let Some(done) = self.complete_eager_receive(env, at, ended) {
            self.completions.push(done);
        } else {
            self.continue_with_notice(env, at, ended);
        }
    }

    /// Completes a receive that is reported to a queue and has an eager message. Returns `None` for
    /// any other operation.
    #[inline(always)]
    pub(super) fn complete_receive_fast(
        &mut self,
        env: DomainEnv<'_>,
        ended: &Completion,
    ) -> Option<OpCompletion> {
        let at = u32::try_from(ended.context).ok()?;
        match self.operations.task(at) {
            Some(Task::Receive(report, ..)) if !report.quiet => {
                self.complete_eager_receive(env, at, ended)
            }
            _ => None,
        }
    }

    /// Completes a receive that has an eager message.
    #[inline(always)]
    fn complete_eager_receive(
        &mut self,
        env: DomainEnv<'_>,
        at: u32,
        ended: &Completion,
    ) -> Option<OpCompletion> {
        let (data, word) = self.operations.words(at);
        let whole = is_received(ended.status) && word & NOTICE == 0;
        let from = self.from(env.vector, ended.partner.filter(|_| whole)?);
        let Some(Task::Receive(report, payload, _)) = self.operations.task(at) else { return None };
        let meta = MessageMeta::new(*report, ended.match_info, (from, data, word), payload.len());
        self.operations.end(at);
        Some(meta.short(ended))
    }

    /// Continues a receive that has a notice, or failed.
    #[cold]
    fn continue_with_notice(&mut self, env: DomainEnv<'_>, at: u32, ended: &Completion) {
        let (data, word) = self.operations.words(at);
        let Some(Task::Receive(report, payload, _)) = self.operations.end(at) else { return };
        let Some(partner) = ended.partner.filter(|_| is_received(ended.status)) else {
            self.completions.push(OpCompletion::failed(
                report,
                of_status(ended.status),
                ended.status,
            ));
            return;
        };
        let from = self.from(env.vector, partner);
        let meta = MessageMeta::new(report, ended.match_info, (from, data, word), payload.len());
        self.long(partner, meta, word, payload);
    }

    /// Receives the bytes of a long message after its notice, or completes with an error.
    pub(super) fn long(
        &mut self,
        partner: Partner,
        meta: MessageMeta,
        word: u64,
        payload: Payload,
    ) {
        let (name, len) = parse_notice(word);
        if let Err(done) = self.fetch(partner, name, Task::Body(meta, len), payload, &meta) {
            self.completions.push(done);
        }
    }

    /// Receives the bytes of a long message from the sender of its notice. `name` is the name of
    /// the sender's operation, with [`DEFERRED`] if the bytes must be requested. On an error
    /// returns the failed completion.
    pub(super) fn fetch(
        &mut self,
        partner: Partner,
        name: u64,
        task: Task,
        payload: Payload,
        meta: &MessageMeta,
    ) -> Result<(), OpCompletion> {
        let failed = |err, status| OpCompletion::failed(meta.report, err, status);
        let (is_deferred, name) = (name & DEFERRED != 0, name & !DEFERRED);
        let lost = self.is_body_lost(partner, name);
        let library = &self.endpoint.library;
        // A deferred message is sent on the current connection.
        let again = library.source_of(partner).and_then(|source| library.reached(source));
        let partner = again.filter(|_| is_deferred).unwrap_or(partner);
        let matching = (BODY | name, u64::MAX);
        let source = library.source_of(partner);
        let comes = library.is_reached(partner)
            || !matches!(library.probe(source, matching, &mut []), Ok(None));
        let Some(source) = source.filter(|_| comes && !lost) else {
            return Err(failed(FI_ECONNRESET, Status::EndpointClosed));
        };
        let again = failed(FI_EAGAIN, Status::NoResources);
        if matches!(task, Task::Body(..) | Task::Part(..)) {
            count(&mut self.stats.long_received);
        }
        let operation = self.begin(task).map_err(|_| again)?;
        let posted =
            self.post_bare(operation, Some(source), matching, MessageBuffer::bare(payload));
        posted.map_err(|_| again)?;
        // Last, because the requested bytes must find their receive.
        let name = u32::try_from(name).unwrap_or(u32::MAX);
        if is_deferred
            && self.request_body(partner, name).is_err()
            && self.cancel_request(operation)
        {
            self.operations.end(operation);
            return Err(again);
        }
        Ok(())
    }

    /// Cancels the receive of an operation, which continues without it. Returns `false` if a
    /// message arrived.
    pub(super) fn cancel_request(&mut self, operation: u32) -> bool {
        let Some(request) = self.operations.request(operation) else { return false };
        let endpoint = &mut self.endpoint;
        endpoint.library.cancel(&mut endpoint.paths, request) == Ok(true)
    }
}
