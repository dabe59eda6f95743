//! Requests of connected queue pairs: send, write and read.
//!
//! The responder is the peer of the queue pair: a queue pair of the same kind (of an XRC initiator,
//! a target) that receives and names the requester as its own peer. Without such a peer, a reliable
//! request waits (`wait.rs`) and fails with [`Status::RetryExceeded`] unless the peer appears in
//! time (without end if the requester's timeout is 0); an unreliable message is lost and succeeds.
//! A request to the service of the own adapter goes to `session.rs`. Reads, atomic operations and
//! sends with invalidation need a reliable connection, and the first two have no inline data; else
//! the request fails with [`Status::LocalQueuePairOperation`].
//!
//! The requester's memory is checked before the responder's, and before a send takes its receive
//! work request, as far as the first step reaches; that of a message of more than a step (64 KiB)
//! or of more than 16 segments as a whole. The responder's range of a write or read is checked as a
//! whole beyond a step. A write with immediate data takes its receive work request after the last
//! byte. A message that fails later leaves the bytes of its earlier steps in the responder's
//! memory. [`Subnet::progress`] calls this module for each message of a connected queue pair, again
//! after a spent budget or a wait. All of it runs in the dispatcher's thread that serves the
//! subnet.

use causeway_memory::Cursor;
use causeway_memory::copy::{CopyError, copy};

use crate::adapter::Adapter;
use crate::adapter_id::AdapterId;
use crate::attributes::{Kind, State};
use crate::budget::Budget;
use crate::engine::responder::Fault;
use crate::engine::segments::{Access, payload};
use crate::engine::state::{FirstRequest, Requester, Scratch, Transfer, WaitReason};
use crate::engine::step::{Origin, Step};
use crate::engine::wait::retry_time;
use crate::limits::{STEP_BYTES_MAX, STEP_SPANS_MAX};
use crate::queues::Queues;
use crate::region::Rights;
use crate::session::names_service;
use crate::subnet::Subnet;
use crate::transport::Refusal;
use crate::work::{Operation, RemoteAddress, Status};

/// Segments up to which a message of a single step is not checked as a whole.
const FEW_SEGMENTS: usize = 16;

/// The responder's memory that a request reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The segments of a receive work request.
    Receive,
    /// A range that the request writes.
    Write(RemoteAddress),
    /// A range that the request reads.
    Read(RemoteAddress),
}

/// Returns the target of an operation, or `None` for other operations.
fn target(operation: &Operation) -> Option<Target> {
    match operation {
        Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) => {
            Some(Target::Receive)
        }
        Operation::Write(remote) | Operation::WriteImmediate(remote, _) => {
            Some(Target::Write(*remote))
        }
        Operation::Read(remote) => Some(Target::Read(*remote)),
        _ => None,
    }
}

impl<Q: Queues> Subnet<Q> {
    /// Executes the work request in progress of a connected queue pair.
    #[inline]
    pub(super) fn connected(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        (budget, now_ns): (&mut Budget, u64),
    ) -> Step {
        let at = match self.locate_responder(origin, requester, budget) {
            Ok(at) => at,
            Err(_) if names_service(origin.mac, origin.kind, &origin.attributes) => {
                return self.session_request(origin, requester, scratch, (budget, now_ns));
            }
            Err(refusal) => {
                requester.note_refusal(refusal);
                return self.unanswered(origin, requester, refusal, now_ns);
            }
        };
        if origin.kind == Kind::XrcInitiator
            && let Err(step) = self.select_xrc_queue(origin, requester, at)
        {
            return step;
        }
        let Some(target) = target(&requester.work.operation) else {
            return self.atomic(origin, requester, scratch, at);
        };
        if requester.first != FirstRequest::Ordinary && self.was_received(requester, at, target) {
            requester.transfer.total = self.check_requester(origin, requester).unwrap_or_default();
            requester.messages = requester.next_message();
            return Step::Done;
        }
        if !requester.transfer.is_admitted {
            let most = budget.bytes();
            match self.copy_direct(origin, requester, (at, target), (most, now_ns)) {
                Ok(bytes) => budget.take_payload(bytes),
                Err(step) => return step,
            }
        }
        if !requester.transfer.is_admitted
            && let Err(step) = self.admit(origin, requester, at, target)
        {
            return step;
        }
        while requester.transfer.done < requester.transfer.total {
            if budget.bytes() == 0 {
                return Step::More;
            }
            let most = budget.bytes().min(STEP_BYTES_MAX);
            match self.transfer(origin, requester, scratch, (at, target), (most, now_ns)) {
                Ok(bytes) => {
                    budget.take_payload(bytes);
                    budget.take_bytes(scratch.cost());
                }
                Err(step) => return step,
            }
        }
        self.deliver(origin, requester, at, now_ns)
    }

    /// Returns the adapter and number of the peer of a connected queue pair, if it receives the
    /// requester's messages.
    #[inline]
    fn locate_responder(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        budget: &mut Budget,
    ) -> Result<(AdapterId, u32), Refusal> {
        let peer = origin.attributes.peer.as_ref().ok_or(Refusal::NoPeer)?;
        let route = match requester.route {
            Some(route) if self.transport.is_current(&route, peer.mac) => route,
            _ => {
                let found = self.transport.connect(origin.mac, peer.mac, origin.kind, budget)?;
                requester.route = Some(found);
                found
            }
        };
        if let Some(refusal) = route.refusal {
            return Err(refusal);
        }
        let adapter = self.adapter(route.adapter).ok_or(Refusal::NotOnThisHost)?;
        let pair = adapter.queue_pairs.get(peer.queue_pair).ok_or(Refusal::NotConnected)?;
        let back = pair.attributes().peer.as_ref().ok_or(Refusal::NotConnected)?;
        let names_origin = back.queue_pair == origin.number && back.mac == origin.mac;
        // A message in progress ends with the life of the queue pair that began to receive it.
        let is_same = !requester.transfer.has_receive || pair.responder.is_taken;
        let is_kind = pair.kind() == origin.kind.responder();
        if is_kind && pair.state().is_receiving() && names_origin && is_same {
            Ok((adapter.id, peer.queue_pair))
        } else {
            Err(Refusal::NotConnected)
        }
    }

    /// Ends or delays a request without a responder.
    fn unanswered(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        refusal: Refusal,
        now_ns: u64,
    ) -> Step {
        if origin.kind == Kind::Uc {
            // The requester's own errors are found even if the message is lost.
            return match self.check_requester(origin, requester) {
                Ok(total) => {
                    requester.transfer.total = total;
                    Step::Lost
                }
                Err(status) => Step::Failed(status),
            };
        }
        if let Some(until_ns) = self.restart_wait_ns(origin, requester, refusal, now_ns) {
            let total = Some(until_ns.saturating_sub(now_ns));
            return self.wait(origin, requester, (WaitReason::Restart, total), now_ns);
        }
        let attributes = &origin.attributes;
        let total = retry_time(attributes.timeout, attributes.retry_count);
        self.wait(origin, requester, (WaitReason::Unanswered, total), now_ns)
    }

    /// Returns the payload length of a work request after the checks of the requester's own values.
    /// The segments are checked if the first step may not reach them all.
    pub(super) fn check_requester(
        &self,
        origin: &Origin,
        requester: &Requester,
    ) -> Result<u64, Status> {
        let work = &requester.work;
        let reads = match &work.operation {
            Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => true,
            Operation::Send
            | Operation::SendImmediate(_)
            | Operation::SendInvalidate(_)
            | Operation::Write(_)
            | Operation::WriteImmediate(..) => false,
            _ => return Err(Status::LocalQueuePairOperation),
        };
        let needs_reliable = reads || matches!(work.operation, Operation::SendInvalidate(_));
        if reads && work.is_inline || needs_reliable && origin.kind == Kind::Uc {
            return Err(Status::LocalQueuePairOperation);
        }
        let in_memory = payload(&work.segments).ok_or(Status::LocalLength)?;
        let total = in_memory.saturating_add(work.inline.len() as u64);
        // The first step of an inline payload does not reach the segments.
        let is_long = total > STEP_BYTES_MAX || work.segments.len() > FEW_SEGMENTS;
        if is_long || work.is_inline && in_memory > 0 {
            let adapter = self.adapter(origin.id).ok_or(Status::LocalQueuePairOperation)?;
            let needed = if reads { Rights::LOCAL_WRITE } else { Rights::LOCAL_READ };
            let access = adapter.access(origin.attributes.domain, needed);
            access.check(&work.segments).map_err(|_| Status::LocalProtection)?;
        }
        Ok(total)
    }

    /// Checks a message before its first step.
    fn admit(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (there, number): (AdapterId, u32),
        target: Target,
    ) -> Result<(), Step> {
        self.end_unanswered(origin, requester);
        requester.refusal = None;
        let total = self.check_requester(origin, requester).map_err(Step::Failed)?;
        requester.transfer.total = total;
        requester.transfer.is_admitted = true;
        let Some(adapter) = self.adapter_mut(there) else { return Ok(()) };
        let Some(pair) = adapter.queue_pairs.get(number) else { return Ok(()) };
        if pair.state() == State::ReadyToReceive {
            adapter.establish(number);
        }
        let Some(pair) = adapter.queue_pairs.get(number) else { return Ok(()) };
        let (remote, needed) = match target {
            Target::Receive => return Ok(()),
            Target::Write(remote) => (remote, Rights::REMOTE_WRITE),
            Target::Read(remote) => (remote, Rights::REMOTE_READ),
        };
        if !pair.attributes().rights.contains(needed) {
            return Err(self.refuse(origin, (there, number), Fault::Request));
        }
        if total > STEP_BYTES_MAX {
            let range = (remote.address, total);
            let checked = adapter.regions.check(remote.key, pair.remote_domain(), range, needed);
            checked.map_err(|_| self.refuse(origin, (there, number), Fault::Access))?;
        }
        Ok(())
    }

    /// Copies the next bytes of a message, at most `most`. Returns their number, at least 1.
    #[inline]
    fn transfer(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        (at, target): ((AdapterId, u32), Target),
        (most, now_ns): (u64, u64),
    ) -> Result<u64, Step> {
        // A request that waits for a receive work request passed the checks of its own memory; its
        // retries do not resolve it again.
        if target == Target::Receive && requester.wait.is_some() {
            self.take_receive(origin, requester, at, now_ns)?;
        }
        let own = self.resolve_own(origin, requester, scratch, (target, most));
        let own = own.map_err(Step::Failed)?;
        if target == Target::Receive {
            self.take_receive(origin, requester, at, now_ns)?;
        }
        let bytes = match self.resolve_remote(requester, scratch, (at, target), own) {
            Ok(bytes) => bytes,
            Err(fault) => return Err(self.refuse(origin, at, fault)),
        };
        match self.copy_step(origin, requester, scratch, (at.0, target), bytes) {
            Ok(()) => {}
            Err(true) => return Err(Step::Failed(Status::LocalProtection)),
            Err(false) => {
                let fault = if target == Target::Receive { Fault::Receive } else { Fault::Access };
                return Err(self.refuse(origin, at, fault));
            }
        }
        let was_inline = requester.inline_left() > 0;
        let transfer = &mut requester.transfer;
        transfer.done = transfer.done.saturating_add(bytes);
        if transfer.done >= transfer.total {
            return Ok(bytes);
        }
        if !was_inline {
            transfer.at.advance(&requester.work.segments, bytes);
        }
        if target == Target::Receive {
            let pair = self.adapter_mut(at.0).and_then(|to| to.queue_pairs.get_mut(at.1));
            if let Some(pair) = pair {
                let responder = &mut pair.responder;
                responder.at.advance(&responder.work.segments, bytes);
            }
        }
        Ok(bytes)
    }

    /// Resolves the next bytes of the requester's segments. Returns their number.
    #[inline]
    fn resolve_own(
        &self,
        origin: &Origin,
        requester: &Requester,
        scratch: &mut Scratch,
        (target, most): (Target, u64),
    ) -> Result<u64, Status> {
        let inline = requester.inline_left();
        if inline > 0 {
            scratch.from.clear();
            return Ok(inline.min(most));
        }
        let Transfer { total, done, at, .. } = &requester.transfer;
        let len = total.saturating_sub(*done).min(most);
        let adapter = self.adapter(origin.id).ok_or(Status::LocalProtection)?;
        let (needed, out) = match target {
            Target::Read(_) => (Rights::LOCAL_WRITE, &mut scratch.to),
            _ => (Rights::LOCAL_READ, &mut scratch.from),
        };
        out.clear();
        let access = adapter.access(origin.attributes.domain, needed);
        let resolved = access.resolve(&requester.work.segments, *at, len, (STEP_SPANS_MAX, out));
        resolved.ok().filter(|&bytes| bytes > 0).ok_or(Status::LocalProtection)
    }

    /// Resolves up to `len` bytes of the responder's memory. Returns their number.
    #[inline]
    fn resolve_remote(
        &self,
        requester: &Requester,
        scratch: &mut Scratch,
        ((there, number), target): ((AdapterId, u32), Target),
        len: u64,
    ) -> Result<u64, Fault> {
        let adapter = self.adapter(there).ok_or(Fault::Request)?;
        let pair = adapter.queue_pairs.get(number).ok_or(Fault::Request)?;
        let (remote, needed, out) = match target {
            Target::Receive => {
                scratch.to.clear();
                let access = adapter.access(pair.receive_domain(), Rights::LOCAL_WRITE);
                let responder = &pair.responder;
                let out = (STEP_SPANS_MAX, &mut scratch.to);
                let resolved = access.resolve(&responder.work.segments, responder.at, len, out);
                return resolved.ok().filter(|&bytes| bytes > 0).ok_or(Fault::Receive);
            }
            Target::Write(remote) => (remote, Rights::REMOTE_WRITE, &mut scratch.to),
            Target::Read(remote) => (remote, Rights::REMOTE_READ, &mut scratch.from),
        };
        out.clear();
        let address = remote.address.checked_add(requester.transfer.done).ok_or(Fault::Access)?;
        let domain = pair.remote_domain();
        let out = (STEP_SPANS_MAX, out);
        let resolved =
            adapter.regions.resolve_some(remote.key, domain, (address, len), needed, out);
        resolved.map_err(|_| Fault::Access)
    }

    /// Copies bytes between resolved ranges. An error is true if the requester's memory failed.
    #[inline]
    fn copy_step(
        &self,
        origin: &Origin,
        requester: &Requester,
        scratch: &Scratch,
        (there, target): (AdapterId, Target),
        bytes: u64,
    ) -> Result<(), bool> {
        let own = self.adapter(origin.id).ok_or(true)?.queues.map();
        let remote = self.adapter(there).ok_or(false)?.queues.map();
        let (mut from, mut to) = (Cursor::new(&scratch.from), Cursor::new(&scratch.to));
        if requester.inline_left() > 0 {
            let done = usize::try_from(requester.transfer.done).unwrap_or(usize::MAX);
            let end = usize::try_from(bytes).ok().and_then(|bytes| done.checked_add(bytes));
            let piece = end.and_then(|end| requester.work.inline.get(done..end)).ok_or(true)?;
            return to.write(remote, piece).map_err(|_| false);
        }
        let reads = matches!(target, Target::Read(_));
        let (source, destination) = if reads { (remote, own) } else { (own, remote) };
        copy((source, &mut from), (destination, &mut to), bytes).map_err(|error| match error {
            CopyError::Source(_) => !reads,
            CopyError::Destination(_) => reads,
        })
    }
}

impl<Q: Queues> Adapter<Q> {
    /// Returns the adapter's side of an access by a queue pair of `domain`.
    #[inline]
    pub(super) fn access(&self, domain: u32, needed: Rights) -> Access<'_> {
        Access { regions: &self.regions, domain, needed }
    }
}
