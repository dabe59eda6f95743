//! Execution of work requests.
//!
//! [`Subnet::progress`] executes the send work requests of a queue pair in order, until its queue
//! is empty, the [`Budget`] is used up, the responder is not ready, or a request fails; only in the
//! state ready to send does it begin requests. The requester and the responder are served in the
//! same call: the payload is copied once, and the completions of both sides are written (a
//! requester's success only if its work request is signaled). `mlx5::poll` calls it, in the
//! dispatcher's turn of the group's `hca` shard.
//!
//! | file | subject |
//! |---|---|
//! | `connected.rs` | requests of connected queue pairs |
//! | `responder.rs` | receive work requests, refusals, and errors at the responder |
//! | `direct.rs` | short requests of these |
//! | `datagram.rs` | datagrams and multicast |
//! | `atomic.rs` | compare-and-swap, fetch-and-add |
//! | `registration.rs` | fast registration and invalidation |
//! | `flush.rs` | completions of work requests in the error state |
//! | `wait.rs` | waiting times of unanswered requests |
//! | `resume.rs` | the first request after a restart of the daemon |
//! | `observe.rs` | copies of messages for captures |
//! | `session.rs` | messages between queue pairs and the service of their adapter |
//! | `segments.rs` | positions in lists of segments |
//! | `state.rs` | what a queue pair keeps between calls |
//! | `step.rs` | the values of a call |
//! | `observer.rs` | the state of captures, and an observed message |
//! | `xrc.rs` | receive queues that requests of extended connections name |
//!
//! # Cost
//! A message of up to [`STEP_BYTES_MAX`](crate::limits::STEP_BYTES_MAX) bytes takes a look-up of
//! each queue pair, a look-up of a region per segment on either side, a copy, and no allocation. A
//! longer message continues over steps, each of at most this length and of
//! [`STEP_SPANS_MAX`](crate::limits::STEP_SPANS_MAX) ranges per side; each step checks keys and
//! rights again, so that a key that its owner invalidates stops the message. The place of a message
//! that ran out of budget is kept in its queue pair. Each range beyond the first takes
//! [`SPAN_BYTES`](crate::limits::SPAN_BYTES) of the budget.
//!
//! # Errors
//! A failed request ends with an error completion, and its queue pair moves to an error state; the
//! rules of the InfiniBand specification, 9.9 and 10.10, are in the functions that apply them.
//! Neither side can harm queue pairs of other adapters than the two of the connection; queue pairs
//! of one adapter that share a completion or receive queue share its faults (`crate::queues`).

mod atomic;
mod connected;
mod datagram;
mod direct;
mod flush;
mod observe;
pub(crate) mod observer;
mod registration;
mod responder;
mod resume;
mod segments;
mod session;
pub(crate) mod state;
mod step;
mod wait;
mod xrc;

use crate::adapter_id::AdapterId;
use crate::attributes::{Kind, State};
use crate::budget::Budget;
use crate::queues::{AsyncEvent, Queues};
use crate::subnet::Subnet;
use crate::work::{Operation, Status};

pub use observer::{Endpoint, Observation, ObservedMessage};
pub use resume::Resume;
pub use state::WaitReason;
use state::{FirstRequest, Requester, Scratch, Transfer};
pub use step::Progress;
use step::{Origin, Step};

/// The result of looking for the next work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    /// The requester has a work request.
    Ready,
    /// The queue is empty.
    Empty,
    /// The queue cannot be read.
    Broken,
    /// The queue pair executes no work requests.
    Stopped,
}

impl<Q: Queues> Subnet<Q> {
    /// Executes send work requests of a queue pair, or flushes its work requests if it failed.
    ///
    /// `now_ns` is a monotonic time. The budget bounds the time of the call; a call with a spent
    /// budget returns [`Progress::Yielded`].
    pub fn progress(
        &mut self,
        id: AdapterId,
        number: u32,
        budget: &mut Budget,
        now_ns: u64,
    ) -> Progress {
        let Some(adapter) = self.adapter_mut(id) else { return Progress::Stopped };
        let mac = adapter.mac;
        let Some(pair) = adapter.queue_pairs.get_mut(number) else { return Progress::Stopped };
        let origin = Origin::new(id, number, mac, pair);
        let state = pair.state();
        if matches!(state, State::Reset | State::Init | State::ReadyToReceive) {
            return Progress::Stopped;
        }
        let Some(mut requester) = pair.requester.take() else { return Progress::Stopped };
        let mut scratch = std::mem::take(&mut self.scratch);
        let progress = if matches!(state, State::Error | State::SendQueueError) {
            self.flush(&origin, &mut requester, budget)
        } else {
            self.execute(&origin, &mut requester, &mut scratch, (budget, now_ns))
        };
        self.scratch = scratch;
        if let Some(adapter) = self.adapter_mut(id)
            && let Some(pair) = adapter.queue_pairs.get_mut(number)
        {
            if requester.is_busy && requester.transfer.has_receive {
                adapter.unfinished.insert(number);
            }
            pair.requester = Some(requester);
        }
        progress
    }

    /// Executes work requests until a reason to stop.
    fn execute(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        (budget, now_ns): (&mut Budget, u64),
    ) -> Progress {
        if requester.wait.is_some() && !budget.take_message() {
            return Progress::Yielded;
        }
        loop {
            if !requester.is_busy {
                if budget.is_spent() {
                    return Progress::Yielded;
                }
                match self.fetch(origin, requester) {
                    Fetch::Ready => requester.is_busy = budget.take_message(),
                    Fetch::Empty => return Progress::Idle,
                    Fetch::Stopped => return self.stopped(origin, requester, budget),
                    Fetch::Broken => {
                        self.break_queue(origin, requester);
                        return self.flush(origin, requester, budget);
                    }
                }
            }
            match self.step(origin, requester, scratch, (budget, now_ns)) {
                step @ (Step::Done | Step::Lost) => {
                    if self.observer.is_some() {
                        let end = (Status::Success, step == Step::Lost);
                        self.observe_message(origin, requester, end, budget);
                    }
                    self.succeed(origin, requester, step == Step::Lost);
                }
                Step::More => return Progress::Yielded,
                Step::Blocked(until_ns) => return Progress::Waiting { until_ns },
                Step::Failed(status) => {
                    if self.observer.is_some() {
                        self.observe_message(origin, requester, (status, false), budget);
                    }
                    self.fail_request(origin, requester, status);
                    return self.flush(origin, requester, budget);
                }
            }
        }
    }

    /// Takes the next work request if the queue pair may execute it.
    #[inline]
    fn fetch(&mut self, origin: &Origin, requester: &mut Requester) -> Fetch {
        let Some(adapter) = self.adapter_mut(origin.id) else { return Fetch::Stopped };
        let state = adapter.queue_pairs.get(origin.number).map(|pair| pair.state());
        if state != Some(State::ReadyToSend) {
            return Fetch::Stopped;
        }
        match adapter.queues.next_send(origin.number, &mut requester.work) {
            Ok(false) => return Fetch::Empty,
            Err(_) => return Fetch::Broken,
            Ok(true) => {}
        }
        requester.transfer = Transfer::default();
        Fetch::Ready
    }

    /// Returns the progress of a queue pair that left the state in which it sends.
    fn stopped(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        budget: &mut Budget,
    ) -> Progress {
        let adapter = self.adapter(origin.id);
        let pair = adapter.and_then(|adapter| adapter.queue_pairs.get(origin.number));
        match pair.map(|pair| pair.state()) {
            Some(State::Error | State::SendQueueError) => self.flush(origin, requester, budget),
            Some(State::Drained) => Progress::Idle,
            _ => Progress::Stopped,
        }
    }

    /// Executes the work request in progress, as far as possible.
    #[inline]
    fn step(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        (budget, now_ns): (&mut Budget, u64),
    ) -> Step {
        match &requester.work.operation {
            Operation::Nop => return Step::Done,
            Operation::Invalidate(_) | Operation::Register(_) => {
                return self.change_region(origin, &requester.work, scratch, budget);
            }
            _ => {}
        }
        match origin.kind {
            Kind::Rc | Kind::Uc | Kind::XrcInitiator => {
                self.connected(origin, requester, scratch, (budget, now_ns))
            }
            Kind::Ud | Kind::Gsi => self.datagram(origin, requester, scratch, (budget, now_ns)),
            Kind::Registration | Kind::XrcTarget => Step::Failed(Status::LocalQueuePairOperation),
        }
    }

    /// Ends the work request in progress with success; no responder received a message that is
    /// lost.
    #[inline]
    fn succeed(&mut self, origin: &Origin, requester: &mut Requester, is_lost: bool) {
        requester.is_busy = false;
        self.stop_waiting(origin, requester);
        let Some(adapter) = self.adapter_mut(origin.id) else { return };
        let bytes = requester.transfer.total;
        adapter.counters.requests = adapter.counters.requests.wrapping_add(1);
        adapter.counters.request_bytes = adapter.counters.request_bytes.wrapping_add(bytes);
        if let Some(route) = &requester.route
            && !is_lost
        {
            let operation = &requester.work.operation;
            let is_read = matches!(operation, Operation::Read(_));
            if !operation.is_local() {
                adapter.traffic.count((route.adapter, route.peer), is_read, bytes);
            }
        }
        requester.first = FirstRequest::Ordinary;
        if requester.work.is_signaled || origin.attributes.signals_all {
            let completion = requester.completion(origin, Status::Success);
            adapter.complete(origin.attributes.send_queue, &completion);
        } else {
            adapter.queues.ended(origin.number, requester.messages);
        }
        if origin.is_drained {
            adapter.queues.report(AsyncEvent::SendQueueDrained(origin.number));
        }
    }

    /// Ends the work request in progress with an error.
    fn fail_request(&mut self, origin: &Origin, requester: &mut Requester, status: Status) {
        self.stop_waiting(origin, requester);
        self.cut(origin, requester);
        requester.is_busy = false;
        let Some(adapter) = self.adapter_mut(origin.id) else { return };
        adapter.counters.count_error(status);
        if let Some(next) = adapter.state_of_failed_requester(origin.number) {
            adapter.queues.fails(origin.number, next, false);
        }
        let completion = requester.completion(origin, status);
        adapter.complete(origin.attributes.send_queue, &completion);
        adapter.fail_requester(origin.number);
    }

    /// Ends the service of a send queue that cannot be read.
    fn break_queue(&mut self, origin: &Origin, requester: &mut Requester) {
        let Some(adapter) = self.adapter_mut(origin.id) else { return };
        let status = Status::LocalQueuePairOperation;
        adapter.counters.count_error(status);
        requester.transfer = Transfer::default();
        adapter.queues.fails(origin.number, State::Error, false);
        let completion = requester.completion(origin, status);
        adapter.complete(origin.attributes.send_queue, &completion);
        adapter.fail(origin.number);
        adapter.queues.report(AsyncEvent::QueuePairFatal(origin.number));
    }
}
