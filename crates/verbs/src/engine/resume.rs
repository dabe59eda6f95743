//! Continuation of queue pairs with recorded progress, after the daemon was killed.
//!
//! The owner of an adapter (`causeway-mlx5`) records the progress of its queue pairs by the notes
//! of [`crate::Queues`]. When `causeway-hca` has the record of a port restored, before the first
//! poll of the adapter, `causeway-mlx5` creates the queue pairs again and calls [`Subnet::resume`]
//! for each. A work request that had not ended is executed again. To copy its payload again is
//! harmless; the following is not, and is prevented:
//!
//! | effect | rule |
//! |---|---|
//! | message to a receive work request | each has a number. A responder that has recorded the requester's present number does not receive the message again |
//! | datagram | it began: it is not sent again, as if it was lost |
//! | atomic operation | it began: the owner restores the queue pair in the error state |
//! | session with the service of the adapter ([`crate::session`]) | its queue pair is restored in the error state |
//! | receive work request of a shared queue in progress | its queue pair holds it, and fills it with the next message |
//!
//! Numbers of messages have 16 bits, and the rule compares a single pair of them: the requester's
//! present number and the responder's last. A queue pair that is reset continues the numbers that
//! it sends. The time of a waiting request begins again; it does not pass while the peer's adapter
//! is not restored yet (`wait.rs`). The module touches no guest memory.
//!
//! The caller reserves the number ([`Subnet::prepare_queue_pair`]), creates the queue pair, and
//! calls [`Subnet::resume`] once before it executes work: a later call would begin the numbers
//! again. After an error the queue pair is as it was created, and the owner does not restore the
//! adapter. All of it runs in the dispatcher's thread that serves the subnet.

use crate::adapter_id::AdapterId;
use crate::attributes::{Change, QueuePairError, State};
use crate::engine::connected::Target;
use crate::engine::state::{FirstRequest, Requester};
use crate::engine::step::Origin;
use crate::queues::Queues;
use crate::session::names_service;
use crate::subnet::Subnet;
use crate::work::{Operation, ReceiveWork};

/// The progress of a queue pair, as its owner recorded it.
#[derive(Debug, Clone, Default)]
pub struct Resume {
    /// State.
    pub state: State,
    /// Attributes that commands changed since the creation.
    pub change: Change,
    /// Number of the last message that ended ([`crate::work::Completion::message`]).
    pub sent: u16,
    /// Number of the peer's last message that was received.
    pub received: u16,
    /// The datagram of the first work request was sent.
    pub is_sent: bool,
    /// Entry of a shared receive queue that the queue pair holds, with the number of the queue.
    pub held: Option<(u32, ReceiveWork)>,
}

impl<Q: Queues> Subnet<Q> {
    /// Reserves a number for the next queue pair of an adapter. Returns false if it is not free.
    pub fn prepare_queue_pair(&mut self, id: AdapterId, number: u32) -> bool {
        self.adapter_mut(id).is_some_and(|adapter| adapter.queue_pairs.prepare(number))
    }

    /// Restores the progress of a queue pair that was created since the start of the process.
    ///
    /// # Errors
    /// [`QueuePairError`]: an attribute is out of range, or there is no such queue pair.
    pub fn resume(
        &mut self,
        id: AdapterId,
        number: u32,
        resume: Resume,
    ) -> Result<(), QueuePairError> {
        let adapter = self.adapter_mut(id).ok_or(QueuePairError::NoAdapter)?;
        let pair = adapter.queue_pairs.get_mut(number).ok_or(QueuePairError::NoQueuePair)?;
        pair.resume(resume.state, &resume.change)?;
        if let Some(requester) = &mut pair.requester {
            requester.is_restored = true;
            requester.messages = resume.sent;
            requester.first = match resume.is_sent {
                true => FirstRequest::IsSent,
                false => FirstRequest::MayBeReceived,
            };
        }
        pair.responder.message = resume.received;
        if let Some((shared, work)) = resume.held {
            pair.responder.xrc = adapter.queues.xrc_queue(shared).unwrap_or_default();
            pair.responder.work = work;
            (pair.responder.is_taken, pair.responder.is_held) = (true, true);
        }
        // The service lost the session with the process of the daemon.
        let lost = names_service(adapter.mac, pair.kind(), pair.attributes())
            && !matches!(resume.state, State::Reset | State::Init);
        if lost {
            adapter.stop(number, State::Error);
        } else if matches!(resume.state, State::Error | State::SendQueueError) {
            adapter.stop(number, resume.state);
        }
        Ok(())
    }

    /// Returns whether the responder received the message of the work request in progress before a
    /// restart.
    pub(super) fn was_received(
        &self,
        requester: &mut Requester,
        (there, number): (AdapterId, u32),
        target: Target,
    ) -> bool {
        let receives = target == Target::Receive
            || matches!(requester.work.operation, Operation::WriteImmediate(..));
        let pair = self.adapter(there).and_then(|adapter| adapter.queue_pairs.get(number));
        receives
            && requester.first == FirstRequest::MayBeReceived
            && pair.is_some_and(|pair| pair.responder.message == requester.next_message())
    }

    /// Returns whether the datagram of the work request in progress was sent before a restart.
    /// Otherwise notes that it begins.
    pub(super) fn was_sent(&mut self, origin: &Origin, requester: &Requester) -> bool {
        if requester.first == FirstRequest::IsSent {
            return true;
        }
        if let Some(adapter) = self.adapter_mut(origin.id) {
            adapter.queues.begins(origin.number);
        }
        false
    }
}

impl Requester {
    /// Returns the requester of the same queue pair after a reset.
    pub(crate) fn renewed(&self) -> Self {
        Self { messages: self.messages, ..Self::default() }
    }

    /// Returns the number of the message in progress to a receive work request.
    pub(super) fn next_message(&self) -> u16 {
        self.messages.wrapping_add(1)
    }
}
