//! Reads, writes and atomic operations at the initiator: a control request to the target, and its
//! reply. Such an operation is a *call*. [`target`](super::target) serves the request.
//!
//! A write of up to [`INLINE_BYTES_MAX`] (4,096) bytes travels in its request, and the buffer is
//! free at once. The bytes of a longer write follow as a separate message. A call completes when
//! its reply has arrived: the target performed it, or refused it with an error.
//!
//! # Limits
//! At most [`CALLS_MAX`] (4,096) calls of an endpoint, and [`CALLS_PER_TARGET_MAX`] (256) to a
//! target, are in progress (`FI_EAGAIN` beyond, and without a free operation). Reads and writes
//! have at most [`MESSAGE_MAX`] (4,294,967,231) bytes, atomic operations [`INLINE_BYTES_MAX`]
//! (`FI_EMSGSIZE` beyond). There is one remote segment per call. A call has no time limit and
//! cannot be cancelled: it ends when the target replies, or fails when the target is gone or broken
//! ([`connect`](super::connect)); a request that a target drops ([`target`](super::target)) ends
//! only with the target. Keys and bounds are checked at the target.
//!
//! # Place
//! `shell::rma` and `shell::atomic` start calls in the application's thread; [`Rdm::complete`] ends
//! them, in the thread that makes progress, when the receive of the reply ends. Both run under the
//! lock of the domain.

use causeway_message::library::{Completion, Partner};
use causeway_message::status::Status;

use super::buffer::{MessageBuffer, Payload};
use super::completion::{OpCompletion, ReportTemplate};
use super::control::{ControlKind, ControlRequest};
use super::message_meta::is_received;
use super::operation::Task;
use super::stats::count;
use super::wire::{BODY, CONTROL, REPLY};
use super::{DomainEnv, Rdm};
use crate::abi::{FI_EAGAIN, FI_EINVAL, FI_EIO, FI_EMSGSIZE};
use crate::errno::{Errno, of_status};
use crate::limits::{CALLS_MAX, CALLS_PER_TARGET_MAX, INLINE_BYTES_MAX, MESSAGE_MAX};

/// Memory of another endpoint.
#[derive(Debug, Clone, Copy)]
pub struct RemoteMemory {
    /// The target's index in the address vector.
    pub to: u64,
    /// The key of the memory.
    pub key: u64,
    /// The address in the memory.
    pub address: u64,
}

/// An atomic operation.
#[derive(Debug)]
pub struct AtomicRequest {
    /// libfabric's number of the data type.
    pub datatype: u8,
    /// libfabric's number of the operation.
    pub operation: u8,
    /// The operands, one after another.
    pub operands: Vec<u8>,
    /// The values to compare with.
    pub compare: Option<Vec<u8>>,
    /// The buffer of the previous values; `None` if they are not requested.
    pub result: Option<Payload>,
    /// Length of the affected memory, in bytes.
    pub len: usize,
}

impl Rdm {
    /// Starts a write to remote memory.
    ///
    /// # Errors
    /// The address is not in the vector; too many bytes or operations.
    pub fn write(
        &mut self,
        env: DomainEnv<'_>,
        remote: RemoteMemory,
        report: ReportTemplate,
        payload: Payload,
        data: Option<u64>,
    ) -> Result<(), Errno> {
        let len = self.length(&payload)?;
        let long = payload.len() > INLINE_BYTES_MAX;
        let kind = if long { ControlKind::WriteLong } else { ControlKind::Write };
        let control = ControlRequest { kind, data, len, ..blank(remote) };
        let more = if long { Payload::EMPTY } else { payload.to_owned() };
        let (name, partner) =
            self.call_target(env, remote, report, control, more.bytes(0), Payload::EMPTY)?;
        if long {
            // The reply completes the call; this send is internal.
            let (info, buffer) = (BODY | u64::from(name), MessageBuffer::bare(payload));
            match self.send_to(remote.to, partner, info, Task::Request(name), buffer) {
                Ok(operation) => {
                    let call = self.operations.named(name);
                    if let Some(Task::Call(_, _, body)) =
                        call.and_then(|call| self.operations.task(call))
                    {
                        *body = Some(operation);
                    }
                }
                Err(_) => self.fail_call(name, FI_EIO, Status::NoResources),
            }
        }
        Ok(())
    }

    /// Starts a read of remote memory.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn read(
        &mut self,
        env: DomainEnv<'_>,
        remote: RemoteMemory,
        report: ReportTemplate,
        payload: Payload,
    ) -> Result<(), Errno> {
        let len = self.length(&payload)?;
        let control = ControlRequest { kind: ControlKind::Read, len, ..blank(remote) };
        self.call_target(env, remote, report, control, &[], payload).map(drop)
    }

    /// Starts an atomic operation on remote memory.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn atomic(
        &mut self,
        env: DomainEnv<'_>,
        remote: RemoteMemory,
        report: ReportTemplate,
        atomic: AtomicRequest,
    ) -> Result<(), Errno> {
        let AtomicRequest { datatype, operation, mut operands, compare, result, len } = atomic;
        let kind = match (&compare, &result) {
            (Some(_), _) => ControlKind::Compare,
            (None, Some(_)) => ControlKind::Fetch,
            (None, None) => ControlKind::Atomic,
        };
        operands.extend_from_slice(compare.as_deref().unwrap_or_default());
        if operands.len() > INLINE_BYTES_MAX || len > INLINE_BYTES_MAX {
            return Err(Errno(FI_EMSGSIZE));
        }
        let len = u64::try_from(len).map_err(|_| Errno(FI_EMSGSIZE))?;
        let control = ControlRequest { kind, datatype, operation, len, ..blank(remote) };
        let into = result.unwrap_or(Payload::EMPTY);
        self.call_target(env, remote, report, control, &operands, into)?;
        count(&mut self.stats.atomics);
        Ok(())
    }

    /// Returns the length of a payload.
    ///
    /// # Errors
    /// `FI_EMSGSIZE` above [`MESSAGE_MAX`] (4,294,967,231 bytes).
    fn length(&self, payload: &Payload) -> Result<u64, Errno> {
        let len = Some(payload.len()).filter(|&len| len <= MESSAGE_MAX);
        len.and_then(|len| u64::try_from(len).ok()).ok_or(Errno(FI_EMSGSIZE))
    }

    /// Sends a control request and posts the receive of its reply, which matches the target alone
    /// and fails with it. Returns the name of the call, and the target if it is connected.
    fn call_target(
        &mut self,
        env: DomainEnv<'_>,
        remote: RemoteMemory,
        report: ReportTemplate,
        mut control: ControlRequest,
        more: &[u8],
        into: Payload,
    ) -> Result<(u32, Option<Partner>), Errno> {
        let source = env.vector.get(remote.to).ok_or(Errno(FI_EINVAL))?;
        let partner = self.reach(env.vector, remote.to)?;
        let to = usize::try_from(env.vector.first(remote.to)).map_err(|_| Errno(FI_EINVAL))?;
        if self.peers.len() <= to {
            self.peers.resize_with(to.saturating_add(1), Default::default);
        }
        let of_it = self.peers.get(to).map_or(0, |peer| peer.calls);
        let much = self.calls >= CALLS_MAX || of_it >= CALLS_PER_TARGET_MAX;
        if much || !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        let call = self.begin(Task::Call(report, to, None))?;
        let name = self.operations.name(call);
        control.name = name;
        let matching = (REPLY | u64::from(control.name), u64::MAX);
        self.post_receive(call, Some(source), matching, into)?;
        self.calls = self.calls.saturating_add(1);
        if let Some(peer) = self.peers.get_mut(to) {
            peer.calls = peer.calls.saturating_add(1);
        }
        let mut bytes = control.emit(more.len());
        bytes.extend_from_slice(more);
        let buffer = MessageBuffer::bare(Payload::Owned(bytes.into()));
        if self.send_to(remote.to, partner, CONTROL, Task::Request(name), buffer).is_err() {
            self.drop_call(name);
            return Err(Errno(FI_EAGAIN));
        }
        Ok((name, partner))
    }

    /// Cancels the receive of a reply and ends the call. Returns `None`, without effect, if the
    /// reply has arrived.
    fn drop_call(&mut self, name: u32) -> Option<ReportTemplate> {
        let call = self.operations.named(name)?;
        let Some(&mut Task::Call(report, to, body)) = self.operations.task(call) else {
            return None;
        };
        if !self.cancel_request(call) {
            return None;
        }
        self.operations.end(call);
        self.count_call_ended(to);
        self.release_body(name, body);
        Some(report)
    }

    /// Releases the buffer of a long write after its call ended, because the application may reuse
    /// it. A hostile target may reply before it takes the bytes.
    fn release_body(&mut self, name: u32, body: Option<u32>) {
        let Some(body) = body else { return };
        // The slot may belong to another operation by now.
        if let Some(Task::Request(of)) = self.operations.task(body)
            && *of == name
            && let Some(request) = self.operations.request(body)
        {
            let endpoint = &mut self.endpoint;
            endpoint.paths.withdraw();
            endpoint.library.lose_buffer(&mut endpoint.paths, request, MessageBuffer::release);
        }
    }

    /// Counts a call to the target at index `to` as ended.
    fn count_call_ended(&mut self, to: usize) {
        self.calls = self.calls.saturating_sub(1);
        if let Some(peer) = self.peers.get_mut(to) {
            peer.calls = peer.calls.saturating_sub(1);
        }
    }

    /// Fails a call after its request or bytes did not arrive.
    pub(super) fn fail_call(&mut self, name: u32, err: i32, status: Status) {
        if let Some(report) = self.drop_call(name) {
            self.completions.push(OpCompletion::failed(report, err, status));
        }
    }

    /// Completes a call after its reply arrived or failed. The first word of the reply is an error
    /// number or 0.
    pub(super) fn complete_call(
        &mut self,
        name: u32,
        (report, to, body): (ReportTemplate, usize, Option<u32>),
        (err, _): (u64, u64),
        ended: &Completion,
    ) {
        self.count_call_ended(to);
        self.release_body(name, body);
        let failed = |err, status| OpCompletion::failed(report, err, status);
        self.completions.push(match (ended.status, i32::try_from(err)) {
            (status, _) if !is_received(status) => failed(of_status(status), status),
            (Status::Success, Ok(0)) => OpCompletion::success(report),
            (status, Ok(err)) if err > 0 => failed(err, status),
            (status, _) => failed(FI_EIO, status),
        });
    }
}

/// Returns a request for this memory; the caller sets the kind.
fn blank(remote: RemoteMemory) -> ControlRequest {
    let RemoteMemory { key, address, .. } = remote;
    ControlRequest { key, address, ..ControlRequest::blank(ControlKind::Read) }
}
