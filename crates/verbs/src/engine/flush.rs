//! Flushing: completions of the work requests of a failed queue pair.
//!
//! A queue pair in [`State::Error`] completes its send and own receive work requests with
//! [`Status::Flushed`], first the requests in progress; in [`State::SendQueueError`] the send work
//! requests only. Entries of a shared receive queue stay for other queue pairs; the queue pair
//! reports once that it has taken its last. Each flushed work request but those in progress takes a
//! message of the budget; a spent budget returns [`Progress::Yielded`], and the next call
//! continues. A queue that cannot be read counts as empty: its remaining work requests get no
//! completions.
//!
//! [`Subnet::progress`] calls [`Subnet::flush`] right after a failure, and for queue pairs that
//! [`Subnet::next_due`] returned. Work requests that are posted later are flushed by a later call.
//! Completions that find their queue full are lost; the flush goes on. A reset ends a flush, and
//! the remaining work requests get no completions. All of it runs in the dispatcher's thread that
//! serves the subnet.

use crate::attributes::{Receive, State};
use crate::budget::Budget;
use crate::engine::responder::Received;
use crate::engine::state::Requester;
use crate::engine::step::{Origin, Progress};
use crate::queues::{AsyncEvent, Queues};
use crate::subnet::Subnet;
use crate::work::Status;

impl<Q: Queues> Subnet<Q> {
    /// Flushes work requests of a failed queue pair, until its queues are empty or the budget is
    /// used up.
    pub(super) fn flush(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        budget: &mut Budget,
    ) -> Progress {
        if requester.is_busy {
            self.stop_waiting(origin, requester);
            self.cut(origin, requester);
            requester.is_busy = false;
            self.flush_send(origin, requester);
        }
        loop {
            let Some(adapter) = self.adapter_mut(origin.id) else { return Progress::Stopped };
            if !budget.take_message() {
                return Progress::Yielded;
            }
            if !matches!(adapter.queues.next_send(origin.number, &mut requester.work), Ok(true)) {
                budget.return_message();
                break;
            }
            self.flush_send(origin, requester);
        }
        self.flush_receives(origin, budget)
    }

    /// Completes the send work request of a requester as flushed.
    fn flush_send(&mut self, origin: &Origin, requester: &mut Requester) {
        requester.transfer = Default::default();
        let Some(adapter) = self.adapter_mut(origin.id) else { return };
        adapter.counters.flushed = adapter.counters.flushed.wrapping_add(1);
        let completion = requester.completion(origin, Status::Flushed);
        adapter.complete(origin.attributes.send_queue, &completion);
    }

    /// Flushes the receive work requests of a queue pair in the error state.
    fn flush_receives(&mut self, origin: &Origin, budget: &mut Budget) -> Progress {
        let Some(adapter) = self.adapter_mut(origin.id) else { return Progress::Stopped };
        let Some(pair) = adapter.queue_pairs.get_mut(origin.number) else {
            return Progress::Stopped;
        };
        if pair.state() != State::Error {
            return Progress::Idle;
        }
        let receive = pair.attributes().receive;
        adapter.complete_receive(origin.number, &Received::failed(Status::Flushed));
        match receive {
            Receive::None => return Progress::Idle,
            Receive::Shared { .. } | Receive::XrcDomain(_) => {
                if let Some(pair) = adapter.queue_pairs.get_mut(origin.number)
                    && !std::mem::replace(&mut pair.has_left_shared, true)
                {
                    adapter.queues.report(AsyncEvent::LastWorkRequest(origin.number));
                }
                return Progress::Idle;
            }
            Receive::Own => {}
        }
        loop {
            if !budget.take_message() {
                return Progress::Yielded;
            }
            if !adapter.take_flushed(origin.number) {
                budget.return_message();
                return Progress::Idle;
            }
            adapter.complete_receive(origin.number, &Received::failed(Status::Flushed));
        }
    }
}

impl<Q: Queues> crate::adapter::Adapter<Q> {
    /// Takes a receive work request to flush it. Returns false if there is none.
    fn take_flushed(&mut self, number: u32) -> bool {
        let Some(pair) = self.queue_pairs.get_mut(number) else { return false };
        let Some(queue) = pair.receive_queue(number) else { return false };
        let taken = self.queues.next_receive(queue, &mut pair.responder.work);
        pair.responder.is_taken = taken == Ok(true);
        pair.responder.is_taken
    }
}
