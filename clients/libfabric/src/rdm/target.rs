//! Serves control requests of peers at the target: reads, writes and atomic operations on
//! registered memory, and requests about messages and connections.
//!
//! A peer may be hostile: keys, addresses and lengths are checked against the registered regions,
//! and a request that fails the check is answered with an error. The application takes no part in
//! it.
//!
//! # Limits
//! Requests are served within calls of the target's process, in the order of their arrival. An
//! initiator may have `SERVED_PER_PEER_MIN` (512) operations in progress, and up to
//! `SERVED_PER_PEER_MAX` (4,096) while it has fewer than are left of the `SERVED_ALL_MAX` (65,536)
//! of all initiators; requests for memory beyond are dropped without a reply. An initiator of this
//! provider has at most 256, so none of its requests is dropped. Well-formed requests about
//! messages and connections are never dropped. Any peer that could connect is served, in the
//! address vector or not. While the completion queue is full, or the engine has no room for
//! requests, requests of all kinds stay unexpected messages and their senders wait. Atomic
//! operations are atomic among themselves, not against the application's own stores. A malformed
//! request is dropped without a reply, and a reply without a free operation is not sent.
//!
//! # Place
//! [`Rdm::progress`], under the lock of the domain, serves requests if unexpected messages are
//! there. At the peer, [`initiator`](super::initiator) sent those for memory, and
//! [`deferred`](super::deferred), [`connect`](super::connect) and [`resend`](super::resend) the
//! others. [`regions`](super::regions) checks and [`super::atomic`] computes.

use causeway_message::library::{Completion, KeptMessage, Partner};
use causeway_message::status::Status;

use super::address_vector::NOT_IN_VECTOR;
use super::atomic::{self, Operands};
use super::buffer::{MessageBuffer, Payload};
use super::completion::{OpCompletion, ReportTemplate};
use super::control::{ControlKind, ControlRequest};
use super::message_meta::MessageMeta;
use super::operation::{TargetWrite, Task};
use super::stats::count;
use super::wire::{CONTROL, NAME_MASK, REPLY, SPACES};
use super::{DomainEnv, Rdm};
use crate::abi::{
    FI_ATOMIC_READ, FI_EINVAL, FI_EIO, FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA,
};
use crate::errno::Errno;
use crate::limits::INLINE_BYTES_MAX;

impl Rdm {
    /// Serves the pending requests. Returns true if there were any.
    pub(super) fn serve_requests(&mut self, env: DomainEnv<'_>) -> bool {
        let mut answered = false;
        // Requests that are not taken here stay with their senders when their part of the
        // unexpected limit is full; so does a sender when the reply cannot be sent.
        while !self.is_cq_full && self.endpoint.library.takes_more() {
            let endpoint = &mut self.endpoint;
            let taken = endpoint.library.take_kept(&mut endpoint.paths, None, (CONTROL, SPACES));
            let Ok(Some(KeptMessage { probed, bytes })) = taken else { return answered };
            answered = true;
            match ControlRequest::parse(&bytes) {
                Some((ControlRequest { kind: ControlKind::Want, name, .. }, _)) => {
                    self.send_deferred(env, probed.partner, name);
                }
                Some((ControlRequest { kind: ControlKind::Lost, .. }, _)) => {
                    if let Some(source) = self.endpoint.library.source_of(probed.partner) {
                        self.mark_broken(source);
                    }
                }
                Some((ControlRequest { kind: ControlKind::Resume, len, .. }, _)) => {
                    self.process_resume(env, probed.partner, len);
                }
                Some((ControlRequest { kind: ControlKind::NoBody, name, .. }, _)) => {
                    self.cancel_body(probed.partner, name);
                }
                Some((control, more)) if self.served.may_start(probed.partner.peer.0) => {
                    self.serve(env, probed.partner, control, more);
                }
                _ => {}
            }
            self.give_back(bytes);
        }
        answered
    }

    /// Performs an operation on memory and replies.
    fn serve(
        &mut self,
        env: DomainEnv<'_>,
        partner: Partner,
        control: ControlRequest,
        more: &[u8],
    ) {
        let ControlRequest { kind, name, key, len, data, operation, .. } = control;
        let done = match kind {
            ControlKind::Write => self.write_region(env, &control, more).map(|()| Payload::EMPTY),
            ControlKind::WriteLong => {
                self.receive_long_write(env, partner, &control);
                return;
            }
            ControlKind::Want | ControlKind::Lost | ControlKind::Resume | ControlKind::NoBody => {
                return;
            }
            // SAFETY: the engine has the payload until the reply is sent, and accesses one payload
            // at a time.
            ControlKind::Read => unsafe { reached(env, &control, FI_REMOTE_READ) },
            ControlKind::Atomic | ControlKind::Fetch | ControlKind::Compare => {
                apply(env, &control, more)
            }
        };
        if done.is_ok() {
            // A fetching operation counts as a read (fi_cntr(3)).
            let fetches =
                matches!(kind, ControlKind::Read | ControlKind::Fetch | ControlKind::Compare);
            let reads = fetches || u32::from(operation) == FI_ATOMIC_READ;
            let data = data.filter(|_| kind == ControlKind::Write);
            if matches!(kind, ControlKind::Atomic | ControlKind::Fetch | ControlKind::Compare) {
                count(&mut self.stats.remote_atomics);
            }
            self.report_access(
                env,
                partner,
                if reads { FI_REMOTE_READ } else { FI_REMOTE_WRITE },
                len,
                data,
            );
        }
        self.reply(partner, (name, key), done);
    }

    /// Sends the reply to the operation `name` of an initiator: an error number or 0, and the
    /// requested bytes.
    fn reply(&mut self, partner: Partner, (name, key): (u32, u64), done: Result<Payload, Errno>) {
        let (err, payload) = match done {
            Ok(payload) => (0, payload),
            Err(Errno(err)) => (u64::try_from(err).unwrap_or(1), Payload::EMPTY),
        };
        let info = REPLY | u64::from(name & NAME_MASK);
        let peer = partner.peer.0;
        self.served.start(peer);
        let task = Task::Reply(peer, key);
        // Without room for the reply the initiator exceeded its limit; its call ends when this
        // endpoint closes.
        if self.send_headed(partner, info, (err, 0), task, payload).is_err() {
            self.served.end(peer);
        }
    }

    /// Releases the memory of a region that is deregistered: operations on it continue without it.
    pub fn release(&mut self, key: u64) {
        let with = self.operations.all(|task| match task {
            Task::Reply(_, of) => *of == key,
            Task::TargetWrite(served) => served.key == key,
            _ => false,
        });
        if !with.is_empty() {
            // Before the application may use the memory again.
            self.endpoint.paths.withdraw();
        }
        for operation in with {
            if let Some(request) = self.operations.request(operation) {
                let endpoint = &mut self.endpoint;
                endpoint.library.lose_buffer(&mut endpoint.paths, request, MessageBuffer::release);
            }
            if let Some(Task::TargetWrite(served)) = self.operations.task(operation) {
                served.lost = true;
            }
        }
    }

    /// Writes the bytes `more` that came with a request.
    fn write_region(
        &self,
        env: DomainEnv<'_>,
        control: &ControlRequest,
        more: &[u8],
    ) -> Result<(), Errno> {
        // SAFETY: the payload is dropped here, and no reference to the memory is made.
        let mut payload = unsafe { reached(env, control, FI_REMOTE_WRITE) }?;
        if payload.len() != more.len() {
            return Err(Errno(FI_EINVAL));
        }
        payload.publish(more);
        Ok(())
    }

    /// Receives the bytes of a long write: to the region, or, if the request is invalid, discards
    /// them.
    fn receive_long_write(
        &mut self,
        env: DomainEnv<'_>,
        partner: Partner,
        control: &ControlRequest,
    ) {
        let &ControlRequest { name, key, data, .. } = control;
        let name = name & NAME_MASK;
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let meta = MessageMeta {
            report: ReportTemplate::default(),
            from: NOT_IN_VECTOR,
            data: 0,
            room: 0,
        };
        // SAFETY: the engine has the payload until the bytes arrived, and accesses one payload at a
        // time.
        match unsafe { reached(env, control, FI_REMOTE_WRITE) } {
            Ok(payload) => {
                let peer = partner.peer.0;
                let served = TargetWrite { source, peer, name, data, key, lost: false };
                self.served.start(peer);
                let task = Task::TargetWrite(served);
                if self.fetch(partner, u64::from(name), task, payload, &meta).is_err() {
                    self.served.end(peer);
                    self.reply(partner, (name, key), Err(Errno(FI_EIO)));
                }
            }
            Err(errno) => {
                // The initiator keeps its buffer until the bytes are received or refused.
                let (task, nowhere) = (Task::Reply(partner.peer.0, key), Payload::EMPTY);
                self.served.start(partner.peer.0);
                if self.fetch(partner, u64::from(name), task, nowhere, &meta).is_err() {
                    self.served.end(partner.peer.0);
                }
                self.reply(partner, (name, key), Err(errno));
            }
        }
    }

    /// Completes a long write.
    pub(super) fn complete_long_write(
        &mut self,
        env: DomainEnv<'_>,
        served: &TargetWrite,
        ended: &Completion,
    ) {
        let &TargetWrite { source, peer, name, data, key, lost } = served;
        self.served.end(peer);
        let Some(partner) = ended.partner else { return };
        if self.endpoint.library.source_of(partner) != Some(source) {
            return;
        }
        let whole = ended.status == Status::Success && !lost;
        if whole {
            self.report_access(env, partner, FI_REMOTE_WRITE, u64::from(ended.msg_length), data);
        }
        let done = if whole { Ok(Payload::EMPTY) } else { Err(Errno(FI_EIO)) };
        self.reply(partner, (name, key), done);
    }

    /// Reports an operation on a region to the application: to counters, and to the queue if the
    /// operation has immediate data. `what` is `FI_REMOTE_READ` or `FI_REMOTE_WRITE`.
    fn report_access(
        &mut self,
        env: DomainEnv<'_>,
        partner: Partner,
        what: u64,
        len: u64,
        data: Option<u64>,
    ) {
        let from = self.from(env.vector, partner);
        let immediate = if data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let report = ReportTemplate {
            flags: FI_RMA | what | immediate,
            quiet: data.is_none(),
            len: usize::try_from(len).unwrap_or(usize::MAX),
            ..ReportTemplate::default()
        };
        self.completions.push(OpCompletion {
            from,
            data: data.unwrap_or(0),
            ..OpCompletion::success(report)
        });
    }
}

/// Returns the memory that a request refers to.
///
/// # Safety
/// As for [`RegionTable::find`](super::RegionTable::find). The engine accesses two payloads at once
/// only for a message of an endpoint to itself, and the application must keep these apart.
unsafe fn reached(
    env: DomainEnv<'_>,
    control: &ControlRequest,
    access: u64,
) -> Result<Payload, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe { env.regions.find(control.key, control.address, control.len, access) }
}

/// Applies an atomic operation to the region; returns the previous values if they are requested.
/// The application may poll the memory: it sees each value either before or after the operation.
fn apply(env: DomainEnv<'_>, control: &ControlRequest, more: &[u8]) -> Result<Payload, Errno> {
    let ControlRequest { kind, datatype, operation, len, .. } = *control;
    let len = usize::try_from(len).map_err(|_| Errno(FI_EINVAL))?;
    if len > INLINE_BYTES_MAX {
        return Err(Errno(FI_EINVAL));
    }
    let size = atomic::size(u32::from(datatype)).ok_or(Errno(FI_EINVAL))?;
    let reads = u32::from(operation) == FI_ATOMIC_READ;
    let access = match kind {
        _ if reads => FI_REMOTE_READ,
        // A request for the previous values reads the memory as well.
        ControlKind::Fetch | ControlKind::Compare => FI_REMOTE_READ | FI_REMOTE_WRITE,
        _ => FI_REMOTE_WRITE,
    };
    // SAFETY: the payload is dropped here, and no reference to the memory is made.
    let mut payload = unsafe { reached(env, control, access) }?;
    let mut before = vec![0; len];
    for (value, at) in before.chunks_mut(size).zip((0..).step_by(size)) {
        payload.load(at, value);
    }
    let (operand, compare) = match kind {
        ControlKind::Compare => more.split_at_checked(more.len() / 2).ok_or(Errno(FI_EINVAL))?,
        _ => (more, &[][..]),
    };
    let mut after = before.clone();
    let operands = Operands { datatype, operation, operand, compare };
    if !atomic::apply(&operands, &mut after) {
        return Err(Errno(FI_EINVAL));
    }
    if !reads {
        for (value, at) in after.chunks(size).zip((0..).step_by(size)) {
            payload.store(at, value);
        }
    }
    let wanted = kind != ControlKind::Atomic;
    Ok(if wanted { Payload::Owned(before.into()) } else { Payload::EMPTY })
}
