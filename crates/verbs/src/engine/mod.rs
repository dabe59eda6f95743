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
//! | `xrc.rs` | receive queues that requests of extended connections name |
//!
//! # Cost
//! A message of up to [`STEP_BYTES_MAX`](crate::limits::STEP_BYTES_MAX) bytes takes a look-up of
//! each queue pair, a look-up of a region per segment on either side, a copy, and no allocation. A
//! longer message continues over steps, each of at most this length and of
//! [`STEP_SPANS_MAX`](crate::limits::STEP_SPANS_MAX) ranges per side; each step checks keys and
//! rights again, so that a key that its owner invalidates stops the message. The place of a message
//! that ran out of budget is kept in its queue pair. Each range beyond the first takes
//! [`SPAN_BYTES`] of the budget.
//!
//! # Errors
//! A failed request ends with an error completion, and its queue pair moves to an error state; the
//! rules of the InfiniBand specification, 9.9 and 10.10, are in the functions that apply them.
//! Neither side can harm queue pairs of other adapters than the two of the connection; queue pairs
//! of one adapter that share a completion or receive queue share its faults (`crate::queues`).

mod atomic;
mod budget;
mod connected;
mod datagram;
mod direct;
mod flush;
mod observe;
mod registration;
mod responder;
mod resume;
mod segments;
mod session;
mod wait;
mod xrc;

use causeway_memory::Span;

use crate::adapter::AdapterId;
use crate::limits::SPAN_BYTES;
use crate::queue_pair::{Attributes, Kind, QueuePair, State};
use crate::queues::{AsyncEvent, Queues, XrcQueue};
use crate::subnet::Subnet;
use crate::transport::{Refusal, Route};
use crate::work::{Completion, CompletionKind, Operation, ReceiveWork, SendWork, Status};

pub use budget::Budget;
pub(crate) use observe::Observer;
pub use observe::{Endpoint, Observation, ObservedMessage};
use resume::FirstRequest;
pub use resume::Resume;
pub(crate) use segments::Place;
pub(crate) use wait::Wait;
pub use wait::WaitReason;

/// The state of a queue pair after a call of [`Subnet::progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The send queue is empty or drained, or all work requests are flushed. Work requests that are
    /// posted later need another call.
    Idle,
    /// The budget is used up; work remains.
    Yielded,
    /// The responder is not ready. A call before the deadline tries again, which takes a message of
    /// the budget; a call at the deadline fails the request unless the responder is ready. Without
    /// a deadline, the request waits without end.
    Waiting {
        /// End of the waiting time.
        until_ns: Option<u64>,
    },
    /// The queue pair does not exist, or its state executes no send work requests.
    Stopped,
}

/// The execution of send work requests of a queue pair.
#[derive(Debug, Default)]
pub struct Requester {
    work: SendWork,
    /// `work` is in progress.
    is_busy: bool,
    transfer: Transfer,
    wait: Option<Wait>,
    /// Adapter of the peer, as found last.
    route: Option<Route>,
    /// Reason why the last request found no responder.
    refusal: Option<Refusal>,
    /// Messages to receive work requests that ended, modulo 2^16.
    messages: u16,
    first: FirstRequest,
    /// The queue pair comes from a record of an earlier process.
    is_restored: bool,
    /// Requests that found no responder; wraps.
    refusals: u64,
    /// Adapters that received the datagram in progress, while a capture runs.
    receivers: Vec<AdapterId>,
}

impl Requester {
    /// Returns whether a work request is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Returns the number of inline bytes that are not copied yet.
    #[inline]
    fn inline_left(&self) -> u64 {
        (self.work.inline.len() as u64).saturating_sub(self.transfer.done)
    }

    /// Returns the reason why the last request found no responder.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Returns the number of requests that found no responder.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Returns why the work request in progress waits.
    pub(crate) fn wait_reason(&self) -> Option<WaitReason> {
        self.wait.map(|wait| wait.reason())
    }

    /// Notes that the work request in progress found no responder. A request that waits already
    /// counts once.
    fn note_refusal(&mut self, refusal: Refusal) {
        self.refusal = Some(refusal);
        if self.wait.is_none() {
            self.refusals = self.refusals.wrapping_add(1);
        }
    }
}

/// The place of a message in progress.
#[derive(Debug, Default, Clone, Copy)]
struct Transfer {
    /// The message passed the checks before the first step.
    is_admitted: bool,
    /// The responder has taken a receive work request for the message.
    has_receive: bool,
    /// Payload length.
    total: u64,
    /// Copied bytes.
    done: u64,
    /// Position in the requester's segments.
    at: Place,
    /// Index of the next multicast member.
    member: usize,
}

/// The receive work request that a message in progress fills.
#[derive(Debug, Default)]
pub struct Responder {
    work: ReceiveWork,
    /// `work` is in progress.
    is_taken: bool,
    /// Position in the segments.
    at: Place,
    /// Receive queue that the last request named, of a queue pair of kind [`Kind::XrcTarget`].
    xrc: XrcQueue,
    /// `work` was taken before a restart: the next message fills it.
    is_held: bool,
    /// Number of the peer's last message.
    message: u16,
}

/// Lists that a call fills and empties; kept so that their memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Source of a copy.
    from: Vec<Span>,
    /// Destination of a copy.
    to: Vec<Span>,
    /// Decoded page list entries.
    pages: Vec<u64>,
}

impl Scratch {
    /// Returns the bytes of the budget that the ranges of a copy take beside its payload. A range
    /// on either side is part of the message.
    fn cost(&self) -> u64 {
        let further = |spans: &Vec<Span>| spans.len().saturating_sub(1) as u64;
        further(&self.from).saturating_add(further(&self.to)).saturating_mul(SPAN_BYTES)
    }
}

/// The requester's queue pair, in a call of [`Subnet::progress`].
#[derive(Debug, Clone, Copy)]
struct Origin {
    id: AdapterId,
    number: u32,
    mac: [u8; 6],
    kind: Kind,
    /// The queue pair is in [`State::Drained`].
    is_drained: bool,
    attributes: Attributes,
}

impl Origin {
    /// Returns the values of a queue pair.
    fn new(id: AdapterId, number: u32, mac: [u8; 6], pair: &QueuePair) -> Self {
        let (kind, attributes) = (pair.kind(), *pair.attributes());
        Self { id, number, mac, kind, is_drained: pair.state() == State::Drained, attributes }
    }
}

/// The result of an attempt to execute a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The work request succeeded.
    Done,
    /// The work request succeeded, and no responder received the message.
    Lost,
    /// The budget is used up.
    More,
    /// The responder is not ready.
    Blocked(Option<u64>),
    /// The work request failed.
    Failed(Status),
}

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

impl Requester {
    /// Returns the completion of the work request in progress.
    fn completion(&self, origin: &Origin, status: Status) -> Completion {
        Completion {
            queue_pair: origin.number,
            kind: CompletionKind::Send,
            status,
            bytes: u32::try_from(self.transfer.total).unwrap_or(u32::MAX),
            token: self.work.token,
            is_solicited: false,
            message: self.messages,
        }
    }
}
