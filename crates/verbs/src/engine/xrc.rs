//! Extended reliable connections (InfiniBand specification, annex A14): the receive queue that a
//! request names.
//!
//! An initiator sends, its peer (a target) receives. A target has no receive queue and no process
//! of its own: each request, also a write, read or atomic operation, names a shared receive queue,
//! which must be in the target's XRC domain. That queue gives the receive work requests, their
//! completion queue, and the protection domain of the memory that the request reaches; the access
//! rights are the target's. So a process that shares a target with others is protected by its own
//! domain.
//!
//! A request that names no queue, or a queue of another XRC domain, fails with
//! [`Status::RemoteInvalidRequest`], the target reports an invalid request, and both queue pairs
//! move to the error state. If the queue is destroyed while a message is under way, the message
//! fails in the same way and its receive work request gets no completion. `connected.rs` selects
//! the queue whenever it begins or continues a message; there is no limit but that of the queues of
//! the adapter. All of it runs in the dispatcher's thread that serves the subnet.

use crate::adapter::Adapter;
use crate::adapter_id::AdapterId;
use crate::attributes::Receive;
use crate::engine::responder::{Fault, Received};
use crate::engine::state::Requester;
use crate::engine::step::{Origin, Step};
use crate::queues::Queues;
use crate::subnet::Subnet;
use crate::work::Status;

impl<Q: Queues> Subnet<Q> {
    /// Makes a target use the receive queue that the request in progress names.
    pub(super) fn select_xrc_queue(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (there, number): (AdapterId, u32),
    ) -> Result<(), Step> {
        let Some(adapter) = self.adapter_mut(there) else { return Err(Step::More) };
        let named = requester.work.xrc_queue;
        let queue = adapter.queues.xrc_queue(named);
        let pair = adapter.queue_pairs.get(number).map(|pair| &pair.responder);
        let holds = pair.is_some_and(|own| own.is_held && own.xrc.number == named);
        if !requester.transfer.has_receive && !holds {
            // A receive work request that an earlier message left is completed to its own queue.
            adapter.complete_receive(number, &Received::failed(Status::Flushed));
        }
        let Some(pair) = adapter.queue_pairs.get_mut(number) else { return Err(Step::More) };
        let receive = pair.attributes().receive;
        if let Some(queue) = queue
            && receive == Receive::XrcDomain(queue.xrc_domain)
        {
            pair.responder.xrc = queue;
            return Ok(());
        }
        requester.transfer.has_receive = false;
        Err(self.refuse(origin, (there, number), Fault::Request))
    }
}

impl<Q: Queues> Adapter<Q> {
    /// Returns the completion queue of the receive work request that a queue pair has taken; `None`
    /// if its shared receive queue no longer exists.
    #[inline]
    pub(super) fn receive_completion_queue(&self, number: u32) -> Option<u32> {
        let pair = self.queue_pairs.get(number)?;
        match pair.attributes().receive {
            Receive::XrcDomain(_) => {
                self.queues.xrc_queue(pair.responder.xrc.number).map(|queue| queue.completion_queue)
            }
            _ => Some(pair.attributes().receive_queue),
        }
    }
}
