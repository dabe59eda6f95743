//! Sends of messages: eager with a head, or a notice and a separate message with the bytes.
//!
//! A message is eager if head (16 bytes) and bytes together are within the eager limit of its path
//! (32 KiB to a connected peer that is reached by rings, else 8 KiB) and its completion does not
//! wait for delivery. Most eager messages leave at once and have no operation; the others occupy an
//! operation until the engine has sent them. A message to a peer that is not connected yet waits in
//! the queue of [`connect`](super::connect), a long message to a peer without a channel, beyond the
//! limit of offers, in [`deferred`](super::deferred).
//!
//! # Limits
//! [`Rdm::send`] fails with `FI_EMSGSIZE` above [`MESSAGE_MAX`] (4,294,967,231), with `FI_EINVAL`
//! for an unknown index, with `FI_ECONNRESET` for an injected message to a broken peer, and with
//! `FI_EAGAIN`, without effect, at [`SENDS_MAX`] (65,536) sends or without a free operation. A send
//! cannot be cancelled. A later failure is an error completion; for an injected message, which has
//! no completion, it is a warning and an error of a bound counter, and the peer is marked as
//! broken. A completion without delivery means that the buffer is free, not that the peer has the
//! message. The order of messages to a peer is the order of the calls.
//!
//! # Place
//! `shell::tagged` calls [`Rdm::send`] and [`Rdm::send_injected`] in the application's thread; the
//! other modules of `rdm` send their internal messages by `send_to`, `send_near` and `send_headed`;
//! [`resend`](super::resend) also passes messages to the engine itself. All run under the lock of
//! the domain.

use std::ptr::NonNull;

use causeway_message::library::{Completion, Partner, RequestId};
use causeway_message::status::Status;

use super::buffer::{HEAD_BYTES, MessageBuffer, Payload};
use super::completion::{OpCompletion, ReportTemplate};
use super::engine_send::EngineSend;
use super::operation::{Operations, Task};
use super::span::AppSpan;
use super::stats::count;
use super::wire::{BODY, DEFERRED, NAME_MASK, NOTICE, PLAIN, TAG_MASK, TAGGED, first_word};
use super::{DomainEnv, Rdm};
use crate::abi::{FI_EAGAIN, FI_EHOSTUNREACH, FI_EMSGSIZE, FI_INJECT, FI_TAGGED};
use crate::errno::{Errno, of_status};
use crate::limits::{MESSAGE_MAX, ORDERED_MAX, SENDS_MAX};

/// A message to send.
#[derive(Debug)]
pub struct Message {
    /// The destination's index in the address vector.
    pub to: u64,
    /// The completion; `FI_TAGGED` in its flags marks a message with a tag.
    pub report: ReportTemplate,
    /// The bytes.
    pub payload: Payload,
    /// Immediate data.
    pub data: Option<u64>,
    /// Whether the application may reuse the memory at once.
    pub inject: bool,
    /// Whether the send completes on delivery instead of on transmission.
    pub delivered: bool,
}

impl Rdm {
    /// Sends a message.
    ///
    /// # Errors
    /// The address is not in the vector; the message is too long; too many sends are in progress;
    /// the message is injected and the peer is broken.
    #[inline]
    pub fn send(&mut self, env: DomainEnv<'_>, message: Message) -> Result<(), Errno> {
        let Message { to, report, payload, data, inject, delivered } = message;
        let len = payload.len();
        if len > MESSAGE_MAX {
            return Err(Errno(FI_EMSGSIZE));
        }
        let tagged = report.flags & FI_TAGGED != 0;
        let info = if tagged { TAGGED | report.tag & TAG_MASK } else { PLAIN };
        if self.sending >= SENDS_MAX || !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        let partner = self.reach(env.vector, to)?;
        let long = delivered || len > self.eager_payload_max(partner);
        if let Some(partner) = partner.filter(|_| !long) {
            return self.send_short(partner, info, &report, (payload, data, inject));
        }
        let operation = self.begin(Task::Send(report))?;
        self.sending = self.sending.saturating_add(1);
        let deferred = long && self.must_defer(partner, operation, len);
        let (info, buffer) = if long {
            if let Err(errno) = self.notice(to, partner, info, (data, len, operation), deferred) {
                self.drop_operation(operation);
                return Err(errno);
            }
            (BODY | u64::from(self.operations.name(operation)), MessageBuffer::bare(payload))
        } else {
            self.operations.set_words(operation, data.unwrap_or(0), first_word(data));
            let head = self.operations.head(operation).ok_or(Errno(FI_EAGAIN))?;
            // SAFETY: heads live as long as the engine, and an operation's head belongs to its
            // request.
            (info, unsafe { MessageBuffer::headed(head, payload) })
        };
        let message = EngineSend::new(operation, info, buffer, delivered);
        match partner {
            _ if deferred => self.defer(env, to, message, inject),
            Some(partner) => self.submit(env, partner, message, inject).inspect_err(|_| {
                self.drop_operation(operation);
            }),
            None => self.queue(to, message, inject),
        }
    }

    /// Sends a contiguous message without a completion, if it is eager and can leave at once.
    /// Returns `false` if nothing was done; the caller must use [`Self::send`] then.
    #[inline(always)]
    pub fn send_injected(
        &mut self,
        env: DomainEnv<'_>,
        to: u64,
        (tag, data): (Option<u64>, Option<u64>),
        piece: &AppSpan,
    ) -> bool {
        let len = piece.len();
        let Some(partner) = self.known(env.vector, to) else { return false };
        if len > self.eager_payload_max(Some(partner)) {
            return false;
        }
        let info = tag.map_or(PLAIN, |tag| TAGGED | tag & TAG_MASK);
        let mut head = Operations::head_of(data.unwrap_or(0), first_word(data));
        // SAFETY: the buffer is dropped before this returns, and thus before the head and before
        // the next use of the caller's segment.
        let buffer =
            unsafe { MessageBuffer::headed(NonNull::from(&mut head), Payload::One(piece.alias())) };
        let endpoint = &mut self.endpoint;
        let gone = endpoint.library.send_at_once(&mut endpoint.paths, partner, info, &buffer);
        if gone {
            self.stats.count_injected(len);
        }
        gone
    }

    /// Sends an eager message. Most leave at once, without an operation.
    #[inline]
    fn send_short(
        &mut self,
        partner: Partner,
        info: u64,
        report: &ReportTemplate,
        (payload, data, inject): (Payload, Option<u64>, bool),
    ) -> Result<(), Errno> {
        let bytes = Operations::head_of(data.unwrap_or(0), first_word(data));
        let mut head = bytes;
        // SAFETY: the buffer is dropped or gets another head before this returns.
        let buffer = unsafe { MessageBuffer::headed(NonNull::from(&mut head), payload) };
        let endpoint = &mut self.endpoint;
        let (library, way) = (&mut endpoint.library, &mut endpoint.paths);
        if library.send_at_once(way, partner, info, &buffer) {
            if report.quiet {
                self.stats.count_injected(report.len);
            } else {
                self.completions.push(OpCompletion::success(*report));
            }
            return Ok(());
        }
        self.send_later(partner, info, report, (buffer, bytes, inject))
    }

    /// Sends an eager message that cannot leave at once, as an operation that owns its head.
    fn send_later(
        &mut self,
        partner: Partner,
        info: u64,
        report: &ReportTemplate,
        (mut buffer, bytes, inject): (MessageBuffer, [u8; HEAD_BYTES], bool),
    ) -> Result<(), Errno> {
        let operation = self.begin(Task::Send(*report))?;
        self.operations.set_head(operation, bytes);
        let Some(head) = self.operations.head(operation) else {
            self.operations.end(operation);
            return Err(Errno(FI_EAGAIN));
        };
        // SAFETY: heads live as long as the engine, and an operation's head belongs to its request.
        unsafe { buffer.set_head(head) };
        let Ok(request) = self.isend(partner, info, u64::from(operation), buffer) else {
            self.operations.end(operation);
            return Err(Errno(FI_EAGAIN));
        };
        let ended = self.endpoint.library.test(request);
        self.sending = self.sending.saturating_add(1);
        match ended {
            Ok(Some(ended)) => {
                self.operations.end(operation);
                self.complete_send(*report, &ended);
            }
            _ => {
                self.operations.set_request(operation, request);
                if inject {
                    self.endpoint.library.with_buffer(request, MessageBuffer::copy_payload);
                }
            }
        }
        Ok(())
    }

    /// Returns the length of the longest eager message to a peer, without the head.
    #[inline]
    fn eager_payload_max(&self, partner: Option<Partner>) -> usize {
        use causeway_message::limits::CHANNEL_EAGER_BYTES_MAX;
        let known = partner.filter(|partner| *partner != Partner::SELF);
        let eager = known.map_or(CHANNEL_EAGER_BYTES_MAX, |partner| self.eager_max(partner));
        eager.saturating_sub(HEAD_BYTES)
    }

    /// Returns the length of the longest eager message to another endpoint, in bytes.
    #[inline]
    pub(super) fn eager_max(&self, partner: Partner) -> usize {
        use causeway_message::library::Transport;
        let way: &dyn Transport<MessageBuffer> = &self.endpoint.paths;
        way.eager_max(partner.peer)
    }

    /// Sends the notice of a long message, whose send is operation `of`. `deferred`: the receiver
    /// must request the bytes.
    fn notice(
        &mut self,
        to: u64,
        partner: Option<Partner>,
        info: u64,
        (data, len, of): (Option<u64>, usize, u32),
        deferred: bool,
    ) -> Result<(), Errno> {
        let operation = self.begin(Task::Internal)?;
        let name = u64::from(self.operations.name(of) & NAME_MASK);
        let len = u64::try_from(len).unwrap_or(u64::MAX) & 0xffff_ffff;
        let word = NOTICE | first_word(data) | if deferred { DEFERRED } else { 0 };
        self.operations.set_words(operation, data.unwrap_or(0), word | name << 32 | len);
        let head = self.operations.head(operation).ok_or(Errno(FI_EAGAIN))?;
        // SAFETY: heads live as long as the engine, and an operation's head belongs to its request.
        let buffer = unsafe { MessageBuffer::headed(head, Payload::EMPTY) };
        let message = EngineSend::of(operation, info, buffer);
        count(&mut self.stats.long_sent);
        match partner {
            Some(partner) => self.post_internal(partner, message),
            None => self.queue(to, message, false),
        }
    }

    /// Adds an operation and returns its index.
    ///
    /// # Errors
    /// `FI_EAGAIN` if the table is full.
    #[inline]
    pub(super) fn begin(&mut self, task: Task) -> Result<u32, Errno> {
        self.operations.add(task).ok_or(Errno(FI_EAGAIN))
    }

    /// Passes a message to the engine, and completes the operation if the message leaves at once.
    #[inline]
    pub(super) fn submit(
        &mut self,
        env: DomainEnv<'_>,
        partner: Partner,
        mut message: EngineSend,
        inject: bool,
    ) -> Result<(), Errno> {
        if inject && message.is_delivered() {
            // An offered message stays in its buffer until it is pulled.
            message.copy_payload();
        }
        let partner = self.current(partner);
        let Some(message) = self.postpone(partner, message, inject) else {
            return Ok(());
        };
        let request = self.post(partner, message)?;
        let library = &mut self.endpoint.library;
        match library.test(request) {
            Ok(Some(ended)) => self.complete(env, &ended),
            _ if inject => library.with_buffer(request, MessageBuffer::copy_payload),
            _ => {}
        }
        Ok(())
    }

    /// Passes a message to the engine after its call returned: an error fails the operation.
    pub(super) fn submit_late(
        &mut self,
        env: DomainEnv<'_>,
        partner: Partner,
        message: EngineSend,
    ) {
        let operation = message.operation();
        if self.submit(env, partner, message, false).is_err() {
            self.fail(operation, FI_EHOSTUNREACH, Status::NoResources);
        }
    }

    /// Passes a message to the engine as a request of its operation. On an error the operation
    /// stays.
    #[inline]
    fn post(&mut self, partner: Partner, message: EngineSend) -> Result<RequestId, Errno> {
        let delivered = message.is_delivered();
        let (operation, info, buffer) = message.into_parts();
        let context = u64::from(operation);
        let made = if delivered {
            let endpoint = &mut self.endpoint;
            endpoint.library.issend(&mut endpoint.paths, partner, info, context, buffer)
        } else {
            self.isend(partner, info, context, buffer)
        };
        match made {
            Ok(request) => {
                self.operations.set_request(operation, request);
                Ok(request)
            }
            Err(_) => Err(Errno(FI_EAGAIN)),
        }
    }

    /// Passes an internal message to the engine; on an error its operation is removed.
    fn post_internal(&mut self, partner: Partner, message: EngineSend) -> Result<(), Errno> {
        let partner = self.current(partner);
        let Some(message) = self.postpone(partner, message, false) else { return Ok(()) };
        let operation = message.operation();
        self.post(partner, message).map(drop).inspect_err(|_| {
            self.operations.end(operation);
        })
    }

    /// Removes an operation that was not started.
    pub(super) fn drop_operation(&mut self, at: u32) {
        self.deferred.forget(at);
        if let Some(Task::Send(_)) = self.operations.end(at) {
            self.sending = self.sending.saturating_sub(1);
        }
    }

    /// Sends an internal message: a control request, a reply, or the bytes of a long write. Without
    /// `partner` it waits for the connect to index `to`. Returns the operation.
    pub(super) fn send_to(
        &mut self,
        to: u64,
        partner: Option<Partner>,
        info: u64,
        task: Task,
        buffer: MessageBuffer,
    ) -> Result<u32, Errno> {
        let operation = self.begin(task)?;
        let message = EngineSend::of(operation, info, buffer);
        match partner {
            Some(partner) => self.post_internal(partner, message)?,
            None => self.queue(to, message, false)?,
        }
        Ok(operation)
    }

    /// Sends an internal message as [`Self::send_to`] does, to a connected peer.
    pub(super) fn send_near(
        &mut self,
        partner: Partner,
        info: u64,
        task: Task,
        buffer: MessageBuffer,
    ) -> Result<(), Errno> {
        let operation = self.begin(task)?;
        self.post_internal(partner, EngineSend::of(operation, info, buffer))
    }

    /// Sends an internal message to a connected peer, with a head of two words before the bytes.
    pub(super) fn send_headed(
        &mut self,
        partner: Partner,
        info: u64,
        (first, second): (u64, u64),
        task: Task,
        payload: Payload,
    ) -> Result<(), Errno> {
        let operation = self.begin(task)?;
        self.operations.set_words(operation, first, second);
        let head = self.operations.head(operation).ok_or(Errno(FI_EAGAIN))?;
        let ordered = payload.len() <= ORDERED_MAX;
        // SAFETY: heads live as long as the engine, and an operation's head belongs to its request.
        let buffer = unsafe { MessageBuffer::headed(head, payload) };
        self.post_internal(partner, EngineSend::of(operation, info, buffer))?;
        // A later write must not change the bytes of this read.
        if ordered && let Some(request) = self.operations.request(operation) {
            self.endpoint.library.with_buffer(request, MessageBuffer::copy_payload);
        }
        Ok(())
    }

    /// Fails an operation before the engine has it.
    pub(super) fn fail(&mut self, operation: u32, err: i32, status: Status) {
        self.deferred.forget(operation);
        match self.operations.end(operation) {
            Some(Task::Send(report)) => {
                self.sending = self.sending.saturating_sub(1);
                self.completions.push(OpCompletion::failed(report, err, status));
            }
            Some(Task::Request(call)) => self.fail_call(call, err, status),
            _ => {}
        }
    }

    /// Fails a receive that the engine does not have any more.
    pub(super) fn fail_receive(&mut self, operation: u32, err: i32, status: Status) {
        match self.operations.task(operation) {
            Some(Task::Multi(multi)) => {
                multi.is_posted = false;
                multi.end(err, status);
                self.end_multi(operation);
            }
            Some(&mut Task::Receive(report, ..)) => {
                self.operations.end(operation);
                self.completions.push(OpCompletion::failed(report, err, status));
            }
            _ => {}
        }
    }

    /// Completes a send.
    #[inline]
    pub(super) fn complete_send(&mut self, report: ReportTemplate, ended: &Completion) {
        self.sending = self.sending.saturating_sub(1);
        // A receiver's lack of room is no failure of the send.
        if matches!(ended.status, Status::Success | Status::Truncated) || self.will_resend(ended) {
            self.completions.push(OpCompletion::success(report));
        } else {
            self.fail_send(report, ended);
        }
    }

    /// Fails a send. After an injected message the peer is broken, because later messages would
    /// follow a gap.
    #[cold]
    fn fail_send(&mut self, report: ReportTemplate, ended: &Completion) {
        self.completions.push(OpCompletion::failed(report, of_status(ended.status), ended.status));
        let source = ended.partner.and_then(|partner| self.endpoint.library.source_of(partner));
        if report.flags & FI_INJECT != 0
            && let Some(source) = source
        {
            self.mark_broken(source);
        }
    }
}
