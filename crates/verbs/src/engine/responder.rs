//! The responder's side of messages: receive work requests, completions, and errors.
//!
//! [`Subnet::refuse`] applies a [`Fault`] to a connected responder: the receive work request that
//! the message has taken ends, the responder's queue pair moves to the error state, and the request
//! of a reliable requester fails, and its queue pair with it.
//!
//! | fault | receive work request | event of the responder | reliable requester |
//! |---|---|---|---|
//! | `Request` | flushed | `InvalidRequest` | `RemoteInvalidRequest` |
//! | `Access` | flushed | `AccessViolation` | `RemoteAccess` |
//! | `Receive` | `LocalProtection` | | `RemoteOperation` |
//! | `Length` | `LocalLength` | | `RemoteInvalidRequest` |
//! | `Queue` | none taken | `QueuePairFatal`, `SharedReceiveError` | `RemoteOperation` |
//!
//! A message of an unreliable connection is lost and succeeds; `Request` and `Access` have no
//! effect at its responder unless a receive work request was taken (InfiniBand specification,
//! 9.9.3). Datagrams have rules of their own (`datagram.rs`). A send or a write with immediate data
//! takes one receive work request, once; without one, a reliable message waits (`wait.rs`), others
//! are dropped and counted.
//!
//! Other modules of the engine call the functions in the requester's [`Subnet::progress`]; the
//! responder's owner need not be served. [`Subnet::modify`] to the reset state and
//! [`Subnet::destroy_queue_pair`] call `abandon`; `causeway-mlx5` calls [`Subnet::cut_retired`] in
//! each poll after a device reset until no message is left. All run in the dispatcher of the group.

use crate::adapter::{Adapter, Retired};
use crate::adapter_id::AdapterId;
use crate::attributes::{Kind, Receive, State};
use crate::engine::segments::capacity;
use crate::engine::state::{Requester, WaitReason};
use crate::engine::step::{Origin, Step};
use crate::engine::wait::rnr_time;
use crate::queue_pair::QueuePair;
use crate::queues::{AsyncEvent, Queues};
use crate::region::Rights;
use crate::subnet::Subnet;
use crate::work::{
    Completion, CompletionKind, NetworkHeader, Operation, ReceiveQueue, ReceivedData, Status,
};

/// The reason why a responder does not execute a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The queue pair does not permit the operation, or the request is malformed.
    Request,
    /// The key of the request does not permit the access.
    Access,
    /// The memory of the receive work request is not accessible.
    Receive,
    /// The message is longer than the receive work request.
    Length,
    /// The receive queue cannot be read.
    Queue,
}

/// The values of a receive completion that the requester decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    /// Result of the receive work request.
    pub status: Status,
    /// Immediate data, or the key that the message invalidated, if any.
    pub data: ReceivedData,
    /// Queue pair number of the requester; 0 for [`Self::failed`].
    pub source: u32,
    /// Network header of a datagram.
    pub network: Option<NetworkHeader>,
    /// Number of received bytes; 0 after an error.
    pub bytes: u64,
    /// The requester asks for a solicited event.
    pub is_solicited: bool,
}

impl Received {
    /// Returns the values of a message that was not received.
    pub fn failed(status: Status) -> Self {
        let (data, network) = (ReceivedData::Plain, None);
        Self { status, data, source: 0, network, bytes: 0, is_solicited: false }
    }
}

impl QueuePair {
    /// Returns the protection domain of the receive work requests.
    pub(super) fn receive_domain(&self) -> u32 {
        match self.attributes().receive {
            Receive::Shared { domain, .. } => domain,
            Receive::XrcDomain(_) => self.responder.xrc.domain,
            _ => self.attributes().domain,
        }
    }

    /// Returns the protection domain of the memory that requests of the peer read or write.
    #[inline]
    pub(super) fn remote_domain(&self) -> u32 {
        match self.attributes().receive {
            Receive::XrcDomain(_) => self.responder.xrc.domain,
            _ => self.attributes().domain,
        }
    }

    /// Returns the receive queue, of a queue pair with this number.
    pub(super) fn receive_queue(&self, number: u32) -> Option<ReceiveQueue> {
        match self.attributes().receive {
            Receive::None => None,
            Receive::Own => Some(ReceiveQueue::Own(number)),
            Receive::Shared { number, .. } => Some(ReceiveQueue::Shared(number)),
            Receive::XrcDomain(_) => Some(ReceiveQueue::Shared(self.responder.xrc.number)),
        }
    }
}

impl<Q: Queues> Adapter<Q> {
    /// Takes a receive work request of a queue pair. Returns false if none is posted. A receive
    /// work request that an earlier message left is flushed first; one that was taken before a
    /// restart is used instead of a new one.
    ///
    /// # Errors
    /// [`Fault::Queue`] if the queue cannot be read, which is reported as an event;
    /// [`Fault::Request`] if the queue pair does not exist or has no receive queue.
    #[inline]
    pub(super) fn take_receive(&mut self, number: u32) -> Result<bool, Fault> {
        let pair = self.queue_pairs.get_mut(number).ok_or(Fault::Request)?;
        if pair.responder.is_taken {
            if std::mem::take(&mut pair.responder.is_held) {
                return Ok(true);
            }
            // Each message ends its receive work request; a lost request would shift all others.
            self.complete_receive(number, &Received::failed(Status::Flushed));
        }
        let pair = self.queue_pairs.get_mut(number).ok_or(Fault::Request)?;
        let queue = pair.receive_queue(number).ok_or(Fault::Request)?;
        let taken = self.queues.next_receive(queue, &mut pair.responder.work);
        if let Ok(is_taken) = taken {
            pair.responder.is_taken = is_taken;
            pair.responder.at = Default::default();
            if let (ReceiveQueue::Shared(shared), true) = (queue, is_taken) {
                let index = pair.responder.work.token.index;
                self.queues.holds(number, shared, index);
                self.check_shared_limit(shared);
            }
            return Ok(is_taken);
        }
        self.queues.report(match queue {
            ReceiveQueue::Own(number) => AsyncEvent::QueuePairFatal(number),
            ReceiveQueue::Shared(shared) => AsyncEvent::SharedReceiveError(shared),
        });
        Err(Fault::Queue)
    }

    /// Completes the receive work request that a queue pair has taken; no effect if it has taken
    /// none. If the completion queue is full, the completion is lost and the queue pair fails
    /// ([`Adapter::complete`]); if the shared receive queue of an XRC target was destroyed, there
    /// is no completion.
    #[inline]
    pub(super) fn complete_receive(&mut self, number: u32, received: &Received) {
        let Some(pair) = self.queue_pairs.get_mut(number) else { return };
        if !std::mem::take(&mut pair.responder.is_taken) {
            return;
        }
        pair.responder.is_held = false;
        let shared = match pair.attributes().receive {
            Receive::Shared { number, .. } => Some(number),
            Receive::XrcDomain(_) => Some(pair.responder.xrc.number),
            _ => None,
        };
        let counters = &mut self.counters;
        match received.status {
            Status::Success => counters.received = counters.received.wrapping_add(1),
            Status::Flushed => counters.flushed = counters.flushed.wrapping_add(1),
            status => counters.count_error(status),
        }
        self.counters.received_bytes = self.counters.received_bytes.wrapping_add(received.bytes);
        let Received { data, source, network, .. } = *received;
        let completion = Completion {
            queue_pair: number,
            kind: CompletionKind::Receive { data, source, network, shared },
            status: received.status,
            bytes: u32::try_from(received.bytes).unwrap_or(u32::MAX),
            token: pair.responder.work.token,
            is_solicited: received.is_solicited,
            message: pair.responder.message,
        };
        if let Some(queue) = self.receive_completion_queue(number) {
            self.complete(queue, &completion);
        }
    }

    /// Reports the first message of a queue pair that is not ready to send.
    pub(super) fn establish(&mut self, number: u32) {
        let Some(pair) = self.queue_pairs.get_mut(number) else { return };
        if pair.state() == State::ReadyToReceive && !pair.is_established {
            pair.is_established = true;
            self.queues.report(AsyncEvent::CommunicationEstablished(number));
        }
    }
}

impl<Q: Queues> Subnet<Q> {
    /// Takes a receive work request for the message of a connected queue pair, once.
    #[inline]
    pub(super) fn take_receive(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (there, number): (AdapterId, u32),
        now_ns: u64,
    ) -> Result<(), Step> {
        if requester.transfer.has_receive {
            return Ok(());
        }
        let Some(adapter) = self.adapter_mut(there) else { return Err(Step::More) };
        match adapter.take_receive(number) {
            Ok(true) => {}
            Ok(false) => return Err(self.not_ready(origin, requester, (there, number), now_ns)),
            Err(fault) => return Err(self.refuse(origin, (there, number), fault)),
        }
        requester.transfer.has_receive = true;
        let is_write = matches!(requester.work.operation, Operation::WriteImmediate(..));
        let pair = adapter.queue_pairs.get(number);
        let room = pair.map_or(0, |pair| capacity(&pair.responder.work.segments));
        self.end_not_ready(origin, requester);
        if !is_write && room < requester.transfer.total {
            requester.transfer.has_receive = false;
            return Err(self.refuse(origin, (there, number), Fault::Length));
        }
        Ok(())
    }

    /// Delays or loses a message for lack of a receive work request.
    fn not_ready(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (there, number): (AdapterId, u32),
        now_ns: u64,
    ) -> Step {
        let Some(adapter) = self.adapter_mut(there) else { return Step::More };
        if origin.kind == Kind::Uc {
            adapter.counters.dropped = adapter.counters.dropped.wrapping_add(1);
            return Step::Lost;
        }
        let pair = adapter.queue_pairs.get(number);
        let code = pair.map_or(0, |pair| pair.attributes().min_rnr_timer);
        let total = rnr_time(code, origin.attributes.rnr_retry);
        self.wait(origin, requester, (WaitReason::NotReady, total), now_ns)
    }

    /// Ends a message after its last byte: completes the receive work request, if any.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (there, number): (AdapterId, u32),
        now_ns: u64,
    ) -> Step {
        let data = match requester.work.operation {
            Operation::Send => ReceivedData::Plain,
            Operation::SendImmediate(value) => ReceivedData::Immediate(value),
            Operation::SendInvalidate(key) => ReceivedData::Invalidated(key),
            Operation::WriteImmediate(_, value) => ReceivedData::WriteImmediate(value),
            _ => return Step::Done,
        };
        if let Err(step) = self.take_receive(origin, requester, (there, number), now_ns) {
            return step;
        }
        let Some(adapter) = self.adapter_mut(there) else { return Step::Done };
        if let ReceivedData::Invalidated(key) = data {
            let domain = adapter.queue_pairs.get(number).map(QueuePair::remote_domain);
            let needed = Rights::REMOTE_INVALIDATE;
            if adapter.invalidate(key, domain.unwrap_or_default(), needed).is_err() {
                requester.transfer.has_receive = false;
                return self.refuse(origin, (there, number), Fault::Access);
            }
        }
        requester.transfer.has_receive = false;
        requester.messages = requester.next_message();
        if let Some(pair) = adapter.queue_pairs.get_mut(number) {
            pair.responder.message = requester.messages;
        }
        adapter.complete_receive(
            number,
            &Received {
                status: Status::Success,
                data,
                source: origin.number,
                network: None,
                bytes: requester.transfer.total,
                is_solicited: requester.work.is_solicited,
            },
        );
        Step::Done
    }

    /// Applies an error of the responder to its queue pair. Returns the requester's result.
    pub(super) fn refuse(
        &mut self,
        origin: &Origin,
        (there, number): (AdapterId, u32),
        fault: Fault,
    ) -> Step {
        let is_reliable = origin.kind.is_reliable();
        let Some(adapter) = self.adapter_mut(there) else { return Step::Done };
        adapter.counters.refused = adapter.counters.refused.wrapping_add(1);
        let (own, event, status) = match fault {
            Fault::Request => (
                Status::Flushed,
                Some(AsyncEvent::InvalidRequest(number)),
                Status::RemoteInvalidRequest,
            ),
            Fault::Access => {
                (Status::Flushed, Some(AsyncEvent::AccessViolation(number)), Status::RemoteAccess)
            }
            Fault::Receive => (Status::LocalProtection, None, Status::RemoteOperation),
            Fault::Length => (Status::LocalLength, None, Status::RemoteInvalidRequest),
            Fault::Queue => (Status::Flushed, None, Status::RemoteOperation),
        };
        let pair = adapter.queue_pairs.get(number);
        let is_taken = pair.is_some_and(|pair| pair.responder.is_taken);
        let is_request = matches!(fault, Fault::Request | Fault::Access);
        let is_silent = is_request && !is_reliable && !is_taken;
        if !is_silent {
            adapter.queues.fails(number, State::Error, false);
            adapter.complete_receive(number, &Received::failed(own));
            adapter.fail(number);
            if let Some(event) = event {
                adapter.queues.report(event);
            }
        }
        if is_reliable { Step::Failed(status) } else { Step::Lost }
    }

    /// Ends the message in progress of a requester that fails, resets or disappears. The
    /// responder's receive work request is flushed, because the rest of its message never comes.
    pub(super) fn cut(&mut self, origin: &Origin, requester: &mut Requester) {
        if !std::mem::take(&mut requester.transfer.has_receive) || !requester.is_busy {
            return;
        }
        let there = requester.route.map(|route| route.adapter);
        let (Some(there), Some(peer)) = (there, origin.attributes.peer) else { return };
        let Some(adapter) = self.adapter_mut(there) else { return };
        let pair = adapter.queue_pairs.get(peer.queue_pair);
        let back = pair.filter(|pair| pair.responder.is_taken);
        let back = back.and_then(|pair| pair.attributes().peer);
        let names_origin =
            back.is_some_and(|own| own.queue_pair == origin.number && own.mac == origin.mac);
        if names_origin {
            adapter.queues.fails(peer.queue_pair, State::Error, false);
            adapter.complete_receive(peer.queue_pair, &Received::failed(Status::Flushed));
            adapter.fail(peer.queue_pair);
        }
    }

    /// Ends the message in progress of a queue pair that resets or is destroyed, before its
    /// attributes change. No effect without a message in progress.
    pub(crate) fn abandon(&mut self, id: AdapterId, number: u32) {
        let Some(adapter) = self.adapter_mut(id) else { return };
        let mac = adapter.mac;
        adapter.unfinished.remove(&number);
        let Some(pair) = adapter.queue_pairs.get_mut(number) else { return };
        let origin = Origin::new(id, number, mac, pair);
        let Some(mut requester) = pair.requester.take() else { return };
        self.stop_waiting(&origin, &mut requester);
        self.cut(&origin, &mut requester);
        requester.is_busy = false;
        let adapter = self.adapter_mut(id);
        if let Some(pair) = adapter.and_then(|adapter| adapter.queue_pairs.get_mut(number)) {
            pair.requester = Some(requester);
        }
    }

    /// Ends messages of queue pairs that a reset took out of an adapter, at most `most`. Returns
    /// the queue pairs once the messages of all have ended; `None` if the adapter has none, or
    /// messages are left ([`Adapter::has_unfinished`](crate::Adapter::has_unfinished)). The caller
    /// of [`Subnet::clear`] calls it until none is left; [`Subnet::remove`] calls it itself.
    pub fn cut_retired(&mut self, id: AdapterId, most: usize) -> Option<Retired> {
        for _ in 0..most {
            let adapter = self.adapter_mut(id)?;
            let mac = adapter.mac;
            let retired = adapter.retired.front_mut()?;
            let Some(number) = retired.unfinished.pop_first() else {
                return adapter.retired.pop_front();
            };
            let Some(pair) = retired.queue_pairs.get_mut(number) else { continue };
            let origin = Origin::new(id, number, mac, pair);
            if let Some(mut requester) = pair.requester.take() {
                self.cut(&origin, &mut requester);
            }
        }
        None
    }
}
