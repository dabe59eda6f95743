//! Matching engine of an endpoint: requests and matching, with the semantics of MX.
//!
//! The library runs in the application's process, and only within its calls: [`Library::progress`]
//! handles events of the transport, other calls add, test and cancel requests. It never waits
//! (except [`Channels`], up to 2 s for a peer that writes into this process when the peer or a
//! receive is given up), has no clock ([`Library::tick`] sets the time) and takes no lock; a caller
//! with several threads locks it. Each call that may send is given the [`Transport`]: [`Channels`]
//! to endpoints of this host, [`Rings`] to the NIC side, or both behind one implementation. A peer
//! behind the rings is *remote* ([`is_remote`]) and named a peer of another host here, also where
//! it is on this host without a channel: a process in a guest, or one that accepts no channels.
//!
//! Requests, messages and peers lie in tables that grow to their highest use and never shrink. An
//! eager message for a posted receive costs no allocation after that. With [`REQUESTS_MAX`] (2^20)
//! requests, calls that add a request fail with [`Error::NoResources`]; the caller collects
//! requests and repeats the call.
//!
//! A request that has ended releases its buffer, and keeps its name and its place until the
//! application collects or forgets it. Until then [`Library::set_timeout`],
//! [`Library::with_buffer`] and [`Library::lose_buffer`] have no effect on it, and
//! [`Library::cancel`] returns false if it is no send. A call with the name of a collected,
//! cancelled or forgotten request fails with [`Error::BadRequest`], or has no effect where it
//! returns no error.
//!
//! # Place
//! `causeway-endpoint` owns the [`Library`] and its transports, and calls [`Library::progress`].
//! The API libraries (`libmyriexpress`, the libfabric provider) hold a lock, make the other calls,
//! and repeat progress until it returns [`ProgressStep::Idle`] before a thread sleeps. The library
//! does not connect processes, copy between processes or retransmit: those are tasks of the
//! transport.
//!
//! # Matching
//! A receive matches a message if the message's match information under the receive's mask equals
//! the receive's match information. Messages of one sender are matched in the order of sending. A
//! message takes the oldest matching receive; a receive takes the oldest matching message. The
//! search is linear in the posted receives or unexpected messages of one context id. Messages of
//! different senders have no order.
//!
//! # Unexpected handler
//! With [`Library::set_handler`], a message without a posted receive is offered to the application
//! first: [`Library::progress`] returns [`ProgressStep::Ask`], the caller releases its lock, runs
//! the handler, and calls [`Library::answer`]. Other calls are allowed in between, also from the
//! handler; the library handles no further event until the answer.
//!
//! # Error handler
//! With [`Library::set_raises`], a failed request is not collectable at once: the caller takes it
//! by [`Library::next_failed`], calls the error handler, and sets the completion code by
//! [`Library::set_failure_code`].

mod buffer;
mod channels;
mod clock;
mod complete;
mod connect;
mod contexts;
mod counters;
mod directed;
mod ended;
mod error;
mod failed;
mod fast_receive;
mod losses;
mod partners;
mod progress;
mod receive;
mod request;
mod rings;
mod send;
mod slab;
mod time;
mod transport;
mod unexpected;

pub use buffer::{Buffer, fill, pieces};
pub use channels::{
    Channel, Channels, DirectCounters, Inaccessible, PeerDoorbell, RemoteMemory, RemoteRange,
};
pub use connect::{LostPeer, is_interrupted};
pub use counters::Counters;
pub use directed::{EndpointIdentity, KeptMessage};
pub use error::Error;
pub use fast_receive::FastMiss;
pub use partners::Partner;
pub use progress::{HandlerAction, HandlerMessage, ProgressStep};
pub use receive::ProbedMessage;
pub use request::{Completion, RequestId};
pub use rings::{Purpose, Rings, Staging, is_remote};
pub use transport::{Handover, Transport, TransportError, TransportEvent};

use std::collections::VecDeque;

use causeway_wire::mx::{Address, PeerId, Status, Token};

use crate::limits::REQUESTS_MAX;
use clock::Clock;
use contexts::Contexts;
use ended::EndedRequests;
use losses::PeerLosses;
use partners::PartnerTable;
use request::{RequestEntry, RequestKind, RequestState};
use slab::{Slab, SlabList};
use unexpected::Unexpected;

/// Parameters of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryOptions {
    /// Address of the endpoint.
    pub address: Address,
    /// Session number; differs each time the endpoint is opened.
    pub session: u32,
    /// Key that a peer must present to connect.
    pub key: u32,
    /// Bits of the match information that hold the context id; 0 for none.
    pub context_bits: u8,
    /// Position of the lowest of these bits.
    pub context_shift: u8,
}

/// Matching engine of one endpoint. `B` is the application's memory.
#[derive(Debug)]
pub struct Library<B> {
    options: LibraryOptions,
    contexts: Contexts,
    requests: Slab<RequestEntry<B>>,
    /// Ended requests, in the order of their end.
    ended: EndedRequests,
    /// Pulls and connects that the transport had no room for.
    retry: SlabList,
    /// Sends to the endpoint itself that were not offered to the handler.
    own: SlabList,
    partners: PartnerTable,
    /// Peers with sends to hand over or pulls to feed.
    busy: VecDeque<PeerId>,
    unexpected: Unexpected,
    /// The application has an unexpected handler.
    handler: bool,
    /// The message that the handler decides about; no event is handled meanwhile.
    asked: Option<progress::HandlerQuestion>,
    losses: PeerLosses,
    clock: Clock,
    counters: Counters,
}

impl<B: Buffer> Library<B> {
    /// Returns an endpoint without requests or peers.
    ///
    /// # Errors
    /// [`Error::BadParameterValue`] if the context id does not fit into the match information.
    pub fn new(options: LibraryOptions) -> Result<Self, Error> {
        Ok(Self {
            options,
            contexts: Contexts::new(options.context_bits, options.context_shift)?,
            requests: Slab::new(256, REQUESTS_MAX),
            ended: EndedRequests::default(),
            retry: SlabList::default(),
            own: SlabList::default(),
            partners: PartnerTable::default(),
            busy: VecDeque::with_capacity(16),
            unexpected: Unexpected::new(),
            handler: false,
            asked: None,
            losses: PeerLosses::default(),
            clock: Clock::new(),
            counters: Counters::default(),
        })
    }

    /// Bounds the unexpected messages: at most `messages`, itself at most
    /// [`UNEXPECTED_LIMIT_MAX`](crate::limits::UNEXPECTED_LIMIT_MAX) (2^22), and at most `bytes`,
    /// beside a few that each sender may always have (`library::unexpected`). A message that
    /// exceeds a limit stays in the transport, and so do all later messages of its sender.
    pub fn set_unexpected_max(&mut self, messages: usize, bytes: usize) {
        self.unexpected.set_max(messages, bytes);
    }

    /// Returns whether a message found the unexpected queue full since the last call.
    pub fn take_unexpected_full(&mut self) -> bool {
        self.unexpected.take_full()
    }

    /// Returns the endpoint's own address.
    pub fn address(&self) -> Address {
        self.options.address
    }

    /// Returns the counters. A send counts when it is made, a receive when it ends with a message.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of requests in any state.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether another request fits.
    #[inline]
    pub fn takes_more(&self) -> bool {
        !self.requests.is_full()
    }

    /// Returns the number of unexpected messages that wait for a receive.
    pub fn unexpected(&self) -> usize {
        self.unexpected.len()
    }

    /// Returns the number of sends that were completed early and are not confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.losses.early()
    }

    /// Sets whether unexpected messages are offered to the application's handler.
    pub fn set_handler(&mut self, handler: bool) {
        self.handler = handler;
    }

    /// Keeps receives from one remote endpoint posted when that endpoint is unreachable, since the
    /// daemon in between may have restarted. [`Self::take_departed`] names such endpoints; the
    /// caller reconnects or cancels the receives.
    pub fn keep_directed(&mut self) {
        self.losses.keep_directed();
    }

    /// Declares that the caller keeps copies of all eager messages and resends them: messages to
    /// endpoints that are unreachable because a daemon restarted do not count as lost.
    pub fn set_resends(&mut self) {
        self.losses.set_resends();
    }

    /// Returns the remote endpoints that were lost since the last call; empty without
    /// [`Self::keep_directed`].
    pub fn take_departed(&mut self) -> Vec<LostPeer> {
        self.losses.take_departed()
    }

    /// Returns the endpoints to which early completed messages were lost since the last call: later
    /// messages would arrive behind a gap. Empty without [`Self::keep_directed`].
    pub fn take_broken(&mut self) -> Vec<EndpointIdentity> {
        self.losses.take_broken()
    }

    /// Adds a request, and returns its index in `requests`.
    #[inline]
    fn add(&mut self, request: RequestEntry<B>) -> Result<u32, Error> {
        self.requests.insert(request).ok_or(Error::NoResources)
    }

    /// Returns the name of the request at an index, for the application.
    #[inline]
    fn id(&self, at: u32) -> RequestId {
        RequestId(self.requests.name(at))
    }

    /// Returns the name of the request at an index, for the transport: the same number.
    #[inline]
    fn token(&self, at: u32) -> Token {
        Token(self.requests.name(at))
    }

    /// Returns the index of a request that the application still owns.
    #[inline]
    fn find(&self, id: RequestId) -> Result<u32, Error> {
        let found = self.requests.find(id.0).filter(|&at| {
            self.requests.get(at).is_some_and(|r| !r.forgotten && r.state != RequestState::Detached)
        });
        found.ok_or(Error::BadRequest)
    }

    /// Ends a request that stands in no list.
    fn finish(&mut self, at: u32, status: Status) {
        self.finish_inline(at, status);
    }

    /// Inlined body of [`Self::finish`] for the fast path.
    #[inline(always)]
    fn finish_inline(&mut self, at: u32, status: Status) {
        let Some(request) = self.requests.get_mut(at) else { return };
        request.buffer = None;
        request.status = status;
        match (request.kind, status) {
            (RequestKind::Receive, Status::Success) => self.counters.received.count(request.at),
            (_, Status::Success) => {}
            (kind, status) => self.counters.count_failure(kind, status, request.at),
        }
        request.code = status as u32;
        request.deadline = u64::MAX;
        if status != Status::Success && self.ended.raises() && !request.hidden {
            self.ended.push_failed(&mut self.requests, at);
        } else {
            self.make_collectable(at);
        }
    }

    /// Makes an ended request collectable, after its failure was reported if it failed.
    #[inline]
    fn make_collectable(&mut self, at: u32) {
        let Some(request) = self.requests.get_mut(at) else { return };
        if !request.forgotten {
            request.state = RequestState::Done;
            if !request.hidden {
                self.ended.push_done(&mut self.requests, at);
            }
        } else if request.unacked {
            request.state = RequestState::Detached;
        } else {
            self.requests.discard(at);
        }
    }
}

/// Refuses match information with bits that `mask` does not cover: they would match nothing.
#[inline]
fn check_mask(info: u64, mask: u64) -> Result<(), Error> {
    if info & !mask == 0 { Ok(()) } else { Err(Error::BadMatchMask) }
}
