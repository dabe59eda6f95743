//! The interface between the engine and the work queues of one adapter.
//!
//! [`Queues`] is implemented by a format of queues in the memory of a guest: `causeway-mlx5`. Tests
//! and the example `rate` have implementations in private memory. The engine ([`crate::Subnet`])
//! calls it in the dispatcher's turn of the group's shard; no method blocks. Each call copies an
//! entry out of shared memory once and checks the format of the copy. The engine checks everything
//! that the verbs define: states, keys, rights and lengths.
//!
//! After an error the engine calls the method for this queue again, to flush it or, if the queue is
//! shared, for the messages of other queue pairs: a broken work queue must then read as empty.
//! After [`Overrun`] the engine reports [`AsyncEvent::CompletionQueueError`] once for each queue
//! pair that completes there and moves it to the error state; completions of its flush are offered,
//! and lost, too. The implementation limits repeated events and counts lost ones; the engine does
//! neither.

use std::sync::Arc;

use causeway_memory::Map;

use crate::attributes::State;
use crate::region::Region;
use crate::work::{Completion, ReceiveQueue, ReceiveWork, SendWork};

/// A work queue that cannot be read: an index out of range, a malformed entry, or memory that is
/// not granted. The engine moves the queue pair to the error state; of a shared receive queue, the
/// queue pair that took the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed work queue entry: {0}")]
pub struct QueueError(pub &'static str);

/// A completion queue without room, or in memory that is not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the completion queue has no room")]
pub struct Overrun;

/// An event that is not a completion (InfiniBand specification, 11.6.3), with the number of the
/// queue pair, shared receive queue or completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AsyncEvent {
    /// A queue pair received a message before it was ready to send.
    CommunicationEstablished(u32),
    /// The send queue of a queue pair is drained.
    SendQueueDrained(u32),
    /// A queue pair has a malformed work queue.
    QueuePairFatal(u32),
    /// A queue pair received an invalid request.
    InvalidRequest(u32),
    /// A queue pair received a request without sufficient rights.
    AccessViolation(u32),
    /// A queue pair in the error state has taken its last entry from a shared receive queue.
    LastWorkRequest(u32),
    /// A shared receive queue has fewer entries than its limit.
    SharedReceiveLimit(u32),
    /// A shared receive queue is broken.
    SharedReceiveError(u32),
    /// A completion queue overran.
    CompletionQueueError(u32),
}

/// A shared receive queue of an XRC domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XrcQueue {
    /// Number of the queue.
    pub number: u32,
    /// XRC domain: only target queue pairs of this domain receive into the queue.
    pub xrc_domain: u32,
    /// Protection domain of its work requests, and of the memory that requests to it reach.
    pub domain: u32,
    /// Completion queue of its work requests.
    pub completion_queue: u32,
}

/// The work queues, receive queues and completion queues of one adapter.
pub trait Queues: std::fmt::Debug {
    /// Returns the memory of the adapter's owner in its present epoch.
    fn map(&self) -> &Map;

    /// As [`Self::map`], for a user that keeps the epoch.
    fn shared_map(&self) -> Arc<Map>;

    /// Takes the next send work request of a queue pair. Returns false if the queue is empty;
    /// `work` is then unspecified.
    ///
    /// # Errors
    /// [`QueueError`]; the queue cannot be read further. `work.token` names the entry.
    fn next_send(&mut self, queue_pair: u32, work: &mut SendWork) -> Result<bool, QueueError>;

    /// Takes the next receive work request. Returns false if the queue is empty; `work` is then
    /// unspecified.
    ///
    /// # Errors
    /// As for [`Self::next_send`].
    fn next_receive(
        &mut self,
        queue: ReceiveQueue,
        work: &mut ReceiveWork,
    ) -> Result<bool, QueueError>;

    /// Returns the number of posted receive work requests that were not taken, for the limit of a
    /// shared receive queue.
    fn posted(&self, queue: ReceiveQueue) -> u32;

    /// Returns the shared receive queue of an XRC domain with this number. Queues without XRC have
    /// none.
    fn xrc_queue(&self, _number: u32) -> Option<XrcQueue> {
        None
    }

    /// Adds a completion to a completion queue.
    ///
    /// # Errors
    /// [`Overrun`]; the completion is lost. Later completions may be offered and are lost too.
    fn complete(&mut self, completion_queue: u32, completion: &Completion) -> Result<(), Overrun>;

    /// Reports an event.
    fn report(&mut self, event: AsyncEvent);

    /// Returns the guest address of an entry of a page list.
    fn decode_page(&self, entry: [u8; 8]) -> u64;

    /// Returns the network header for a datagram of `payload` bytes, as a receiver sees it in the
    /// 40 bytes before the payload.
    fn network_header(
        &self,
        to: &crate::work::AddressVector,
        payload: u32,
    ) -> ([u8; 40], crate::work::NetworkHeader);

    /// Notes that the send work request that was taken last has ended without a completion.
    /// `message` is that of [`Completion::message`]. This method and the following ones are for
    /// owners that record the progress of work; they have no effect by default.
    #[inline]
    fn ended(&mut self, _queue_pair: u32, _message: u16) {}

    /// Notes that the send work request that was taken last begins to change something that a
    /// second execution would change again: an atomic operation, or a datagram.
    fn begins(&mut self, _queue_pair: u32) {}

    /// Notes the next state of a queue pair that fails. It is reached now, or together with the
    /// next completion of the queue pair.
    fn fails(&mut self, _queue_pair: u32, _state: State, _is_now: bool) {}

    /// Notes that a queue pair took the entry `index` of a shared receive queue.
    fn holds(&mut self, _queue_pair: u32, _shared: u32, _index: u16) {}

    /// Notes that a work request changed a region. The change belongs to the next completion or end
    /// of a work request of this adapter.
    fn region_changed(&mut self, _number: u32, _region: &Region) {}
}
