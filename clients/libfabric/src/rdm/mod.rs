//! An endpoint of type `FI_EP_RDM`, without the C interface around it: operations go in,
//! completions come out in [`Rdm::completions`]. The module knows no completion queue, counter or
//! lock; `domain` has these. It matches and transports nothing itself: the engine of
//! [`causeway_message::library`] does.
//!
//! # Messages
//! The engine matches 64 bits and moves bytes; [`wire`] states the form of both. A short message is
//! *eager*: head and bytes are sent together. Of a long message a *notice* is sent, and the bytes as
//! a separate message, at once or on request ([`deferred`]). So an unexpected message is always
//! complete, with all that `FI_PEEK` reports, and the bytes of a long message are moved between the
//! applications' buffers.
//!
//! Reads, writes and atomic operations are requests to the target process ([`initiator`],
//! [`target`]), which serves them when it makes progress. No process maps the memory of another.
//!
//! # Fast path
//! Most messages are small and find a posted receive. A reader of a queue takes such a message with
//! [`Rdm::receive_fast`]: from the peer's cache line to the application's buffer and the completion
//! entry, through registers. No list, queue or copy is in between; one line moves from one
//! processor to the other, without a system call. [`Rdm::progress`] does all other work, and has
//! the same effect on such a message.
//!
//! # Addresses
//! The name of an endpoint contains its address and its session, so an endpoint that is opened
//! again at the same address is a different endpoint. The first send, read, write or atomic
//! operation to an endpoint, or the first receive or peek from it alone, starts the connect
//! ([`connect`]).
//!
//! # Limits
//! A message has at most [`MESSAGE_MAX`](crate::limits::MESSAGE_MAX) (4,294,967,231) bytes
//! (`FI_EMSGSIZE` beyond). An endpoint has at most [`SENDS_MAX`](crate::limits::SENDS_MAX) (65,536)
//! sends and [`CALLS_MAX`](crate::limits::CALLS_MAX) (4,096) reads, writes and atomic operations in
//! progress, and the application starts operations only while fewer than half of
//! [`SLOTS_MAX`](crate::limits::SLOTS_MAX) (2^20) slots are in use. Beyond these numbers a send,
//! receive, read, write or atomic operation fails with `FI_EAGAIN` and starts nothing; the caller
//! makes progress and repeats the call. All progress happens within calls: by the application, or
//! by a thread of `domain`. An endpoint is not synchronised: `shell` and `domain` call it under the
//! domain's lock.

mod address_vector;
mod atomic;
mod broken;
mod buffer;
mod completion;
mod connect;
mod control;
mod deferred;
mod engine_send;
mod initiator;
mod message_meta;
mod multi;
mod multi_buffer;
mod operation;
mod peek;
mod receive;
mod regions;
mod report;
mod resend;
mod send;
mod served;
pub mod service;
mod span;
pub mod stats;
mod target;
#[cfg(test)]
mod tests;
mod unexpected;
mod wire;

pub use address_vector::{AddressVector, EndpointName};
pub use atomic::{AtomicKind, valid as atomic_valid};
pub use buffer::Payload;
pub use completion::{OpCompletion, ReportTemplate};
pub use connect::ConnectHelper;
pub use deferred::PARTNER_CHECK;
pub use initiator::{AtomicRequest, RemoteMemory};
pub use receive::ReceiveSpec;
pub use regions::{RegionTable, RegisteredRegion};
pub use send::Message;
pub use span::AppSpan;
pub use wire::TAG_MASK;

use std::sync::Arc;

use causeway_endpoint::limits::ENDPOINT_ANY;
use causeway_endpoint::{Endpoint, OpenOptions};
use causeway_message::library::{EndpointIdentity, FastMiss, Partner, ProgressStep};

use crate::limits::{STEPS_PER_CALL, UNEXPECTED_GRAIN};
use buffer::MessageBuffer;
use connect::PeerState;
use operation::Operations;
use stats::EndpointStats;
use wire::SPACE_SHIFT;

/// The key of a connect. Endpoints of MX programs have other keys and are refused.
pub const KEY: u32 = u32::from_le_bytes(*b"CWFI");
/// The tables of the domain that an endpoint uses.
#[derive(Debug, Clone, Copy)]
pub struct DomainEnv<'a> {
    /// The endpoint's address vector.
    pub vector: &'a AddressVector,
    /// The registered memory.
    pub regions: &'a RegionTable,
}

/// An endpoint. See the [module](self).
#[derive(Debug)]
pub struct Rdm {
    /// Dropped first, because it refers to memory of the operations.
    pub endpoint: Endpoint<MessageBuffer>,
    operations: Operations,
    /// The service that the endpoint was opened for, or 0.
    service: u32,
    /// Peers to which a message was lost that was reported as sent.
    broken: broken::BrokenPeers,
    /// Messages with endpoints of other hosts, across connections.
    flows: resend::Flows,
    /// Makes connects progress while the application makes no calls.
    pub helper: Option<Arc<dyn ConnectHelper>>,
    /// State of the peers, by their index in the address vector.
    peers: Vec<PeerState>,
    /// Messages that were peeked at and claimed.
    claimed: Vec<peek::ClaimedMessage>,
    /// Long messages that are sent on request.
    deferred: deferred::DeferredSends,
    /// Sends in progress.
    sending: usize,
    /// Reads, writes and atomic operations in progress.
    calls: usize,
    /// Operations of peers that are in progress here.
    served: served::ServedCalls,
    /// Multi-receive buffers.
    multi_buffers: multi::MultiBuffers,
    /// Whether the warning about unexpected messages was written.
    has_warned_unexpected: bool,
    /// Set when room became free for messages that could not be accepted; cleared by the next
    /// progress.
    has_new_room: bool,
    /// A call slept for the endpoint, which withdrew the wake-ups of other sleeping threads.
    has_slept: bool,
    /// Whether the queue for completions of peers' operations is full. Peers wait while it is.
    pub is_cq_full: bool,
    /// Completions that were not reported yet.
    pub completions: Vec<OpCompletion>,
    /// Counters for the report when the endpoint closes.
    pub stats: EndpointStats,
}

impl Rdm {
    /// Opens an endpoint of a NIC of this host: with any endpoint number, or for a service.
    ///
    /// # Errors
    /// The daemon does not answer or refuses; another endpoint of the NIC has the service.
    pub fn open(nic_index: u32, service: u32) -> Result<Self, causeway_endpoint::Error> {
        if service == 0 {
            return Ok(Self::new(Endpoint::open(nic_index, ENDPOINT_ANY, Self::OPENING)?));
        }
        let mut opened = Self::new(service::open(nic_index, service)?);
        opened.service = service;
        Ok(opened)
    }

    /// The parameters with which the engine is opened.
    pub const OPENING: OpenOptions =
        OpenOptions { key: KEY, context_bits: 2, context_shift: SPACE_SHIFT, raises: false };

    /// Wraps an open endpoint.
    pub fn new(mut endpoint: Endpoint<MessageBuffer>) -> Self {
        let bytes = unexpected::bytes_max();
        endpoint.library.set_unexpected_max(bytes / UNEXPECTED_GRAIN, bytes);
        endpoint.library.keep_directed();
        // Peers that receive directly from the network do not depend on the daemon for messages.
        let resends = endpoint.paths.is_networked() && !endpoint.paths.goes_past();
        if resends {
            endpoint.library.set_resends();
        }
        Self {
            endpoint,
            operations: Operations::new(),
            service: 0,
            broken: broken::BrokenPeers::default(),
            flows: resend::Flows::new(resends),
            helper: None,
            peers: Vec::new(),
            claimed: Vec::new(),
            deferred: deferred::DeferredSends::default(),
            sending: 0,
            calls: 0,
            served: served::ServedCalls::default(),
            multi_buffers: multi::MultiBuffers::new(),
            has_warned_unexpected: false,
            has_new_room: false,
            has_slept: false,
            is_cq_full: false,
            completions: Vec::with_capacity(64),
            stats: EndpointStats::new(),
        }
    }

    /// Returns the endpoint's name.
    pub fn name(&self) -> EndpointName {
        let own = self.endpoint.library.source_of(Partner::SELF);
        let address = self.endpoint.library.address();
        let source = own.unwrap_or(EndpointIdentity { address, session: 0 });
        EndpointName { source, service: self.service }
    }

    /// Processes received messages and completed requests. Returns true if there were any: threads
    /// that sleep on this endpoint must poll then.
    #[inline]
    pub fn progress(&mut self, env: DomainEnv<'_>) -> bool {
        let mut worked = false;
        self.has_new_room = false;
        for _ in 0..STEPS_PER_CALL {
            let (step, wakes) = self.endpoint.step();
            worked |= wakes;
            self.collect(env);
            if self.multi_buffers.has_paused() {
                self.resume_paused(env);
            }
            if self.endpoint.library.unexpected() > 0 {
                worked |= self.serve_requests(env);
                self.warn_unexpected();
            }
            if step != ProgressStep::Worked || !self.endpoint.paths.comes() {
                break;
            }
        }
        if self.deferred.seen != self.endpoint.looked() {
            self.progress_rarely(env);
        }
        worked
    }

    /// Requests wake-ups for a thread that is about to sleep. Returns false if it must not: there is
    /// an event, or a completion that is not reported.
    pub fn arm(&mut self) -> bool {
        self.check_partners();
        self.completions.is_empty() & self.endpoint.arm()
    }

    /// Returns whether a call has slept for the endpoint since the last query: threads that sleep
    /// must be woken, because it withdrew their wake-ups.
    #[inline]
    pub fn take_slept(&mut self) -> bool {
        std::mem::take(&mut self.has_slept)
    }

    /// The part of [`Self::progress`] that is due at intervals only.
    #[cold]
    #[inline(never)]
    fn progress_rarely(&mut self, env: DomainEnv<'_>) {
        self.check_partners();
        self.find_departed(env);
    }

    /// Receives a small message as [`Self::progress`] does, if a receive for it is posted and
    /// reported to a queue, and nothing else is pending. Returns the completion, and whether
    /// another such message may be there.
    ///
    /// # Errors
    /// [`FastMiss::Nothing`] if no message arrived; otherwise [`Self::progress`] must be called.
    #[inline(always)]
    pub fn receive_fast(&mut self, env: DomainEnv<'_>) -> Result<(OpCompletion, bool), FastMiss> {
        let library = &self.endpoint.library;
        if self.has_new_room
            || !self.completions.is_empty()
            || self.multi_buffers.has_paused()
            || library.ipeek().is_some()
            || library.unexpected() > 0
        {
            return Err(FastMiss::Unsure);
        }
        let (ended, more) = self.endpoint.receive_fast()?;
        let Some(done) = self.complete_receive_fast(env, &ended) else {
            // A copy, because a value without a reference can stay in registers.
            let otherwise = ended;
            self.complete(env, &otherwise);
            return Err(FastMiss::Worked);
        };
        if done.failure.is_some() {
            self.completions.push(done);
            return Err(FastMiss::Worked);
        }
        self.stats.count_completion(stats::RECEIVED, &done);
        self.stats.queued();
        Ok((done, more))
    }

    /// Returns the least room in a multi-receive buffer, in bytes (`FI_OPT_MIN_MULTI_RECV`).
    pub fn multi_receive_min(&self) -> usize {
        self.multi_buffers.min()
    }

    /// Sets the least room in multi-receive buffers that are posted from now on.
    pub fn set_multi_receive_min(&mut self, min: usize) {
        self.multi_buffers.set_min(min);
    }

    /// Returns the number of operations in progress, of all kinds.
    #[cfg(any(test, feature = "scenario"))]
    pub fn operations(&self) -> usize {
        self.operations.all(|task| !matches!(task, operation::Task::Free(_))).len()
    }

    /// Returns the counts of sends, of calls and of peers' operations in progress.
    #[cfg(feature = "scenario")]
    pub fn counted(&self) -> [usize; 3] {
        [self.sending, self.calls, self.served.all()]
    }

    /// Returns whether an operation progresses only while some thread polls, or has a completion
    /// that is not reported: a receive that found its message, or may find it now that there is
    /// room; a message that waits for room.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.sending > 0
            || self.calls > 0
            || self.has_new_room
            || self.endpoint.library.ipeek().is_some()
            || self.endpoint.goes_on()
    }

    /// Returns whether messages wait for a connect. The application may have got completions for
    /// them.
    pub fn has_waiting(&self) -> bool {
        self.peers.iter().any(PeerState::has_waiting)
    }

    /// Returns the number of messages that were reported as sent and that no transport has yet.
    /// Each has a copy of its bytes.
    pub fn unsent(&mut self) -> usize {
        let waiting = self.peers.iter().map(PeerState::unsent).fold(0_usize, usize::saturating_add);
        let Self { operations, endpoint, .. } = self;
        let posted = operations.all(operation::Task::sends);
        let mut owned = 0_usize;
        for request in posted.into_iter().filter_map(|at| operations.request(at)) {
            endpoint.library.with_buffer(request, |buffer| {
                owned = owned.saturating_add(usize::from(buffer.is_copy()));
            });
        }
        owned.saturating_add(waiting).saturating_add(self.interrupted_count())
    }

    /// Closes the endpoint: waits at most [`CLOSE_MAX`](causeway_endpoint::limits::CLOSE_MAX) (30
    /// s) for messages that were reported as sent.
    pub fn finish(&mut self) {
        self.endpoint.finish();
        self.count_lost();
    }

    /// Releases the endpoint in a child process without any message to peers, because it belongs to
    /// the parent.
    pub fn abandon(self) {
        self.endpoint.abandon();
    }

    /// Processes the requests that completed.
    #[inline]
    fn collect(&mut self, env: DomainEnv<'_>) {
        while let Ok(Some(ended)) = self.endpoint.library.test_any(0, 0) {
            self.complete(env, &ended);
        }
    }

    /// Returns the index of a peer in the address vector, or [`address_vector::NOT_IN_VECTOR`].
    #[inline(always)]
    fn from(&mut self, vector: &AddressVector, partner: Partner) -> u64 {
        let library = &mut self.endpoint.library;
        let Some(source) = library.source_of(partner) else { return address_vector::NOT_IN_VECTOR };
        let known = library.partner_context(partner).unwrap_or(0).wrapping_sub(1);
        if vector.get(known) == Some(source) {
            return known;
        }
        let found = vector.find(source);
        library.set_partner_context(partner, found.wrapping_add(1));
        found
    }
}
