//! The library half of an endpoint: requests and matching, with MX's semantics.
//!
//! It lives in the application and does nothing by itself: every call does what it is named for,
//! and [`Library::progress`] takes what came in. It never waits, knows no clock ([`Library::tick`]
//! tells the time) and takes no lock: whoever shares it between threads has one around it. What
//! carries the messages is a [`Transport`], which every call that needs it is given: channels to
//! endpoints of this host ([`Channels`]), or rings to the backend half.
//!
//! Requests, messages and partners lie in tables that are only ever as large as the most there
//! were at a time; nothing is allocated for a message once they are.
//!
//! # What is matched with what
//! A receive takes a message if the message's match information under the receive's mask is the
//! receive's. Messages of one sender are matched in the order in which they were sent, a message
//! with the receive that was posted first, and a receive with the message that came first.
//!
//! # The unexpected handler
//! A message that no posted receive takes is put to the application first, if it wants that
//! ([`Library::set_handler`]): [`Library::progress`] gives [`Step::Ask`], the caller runs the
//! handler, with its lock released, and brings [`Library::answer`]. Other calls may come
//! meanwhile, from the handler too, but nothing else that came in is looked at.
//!
//! # The error handler
//! Who wants to hear of every request that fails before the application can collect it
//! ([`Library::set_raises`]) asks for them ([`Library::next_failed`]) after each call, and says
//! what the application is told ([`Library::tell_failed`]).

mod buffer;
mod channels;
mod complete;
mod contexts;
mod counters;
mod error;
mod failed;
mod from;
mod partner;
mod partners;
mod progress;
mod receive;
mod request;
mod rings;
mod send;
mod slab;
mod straight;
mod time;
mod transport;
mod unexpected;

pub use buffer::{Buffer, fill, pieces};
pub use channels::{Bell, Channel, Channels, Direct, Fetched, Never, Place};
pub use counters::Counters;
pub use error::Error;
pub use from::{Source, Taken};
pub use partner::{Departed, is_interrupted};
pub use partners::Partner;
pub use progress::{Action, Asked, Step};
pub use receive::Probed;
pub use request::{Completion, RequestId};
pub use rings::{Purpose, Rings, Staging, is_remote};
pub use straight::Missed;
pub use transport::{Arrival, Handed, Refused, Transport};

use std::collections::VecDeque;

use causeway_wire::mx::{Address, PeerId, Status, Token};

use crate::limits::REQUESTS_MAX;
use contexts::Contexts;
use partners::Partners;
use request::{Kind, Request, State};
use slab::{List, Slab};
use unexpected::Unexpected;

/// How an endpoint is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Its own address.
    pub address: Address,
    /// Differs each time that the endpoint is opened.
    pub session: u32,
    /// What others must know to connect.
    pub key: u32,
    /// Bits of the match information that are the context id; 0 for none.
    pub context_bits: u8,
    /// Where these bits begin.
    pub context_shift: u8,
}

/// The library half of one endpoint. `B` is the application's memory.
#[derive(Debug)]
pub struct Library<B> {
    options: Options,
    contexts: Contexts,
    requests: Slab<Request<B>>,
    /// Ended requests, in the order in which they ended.
    done: List,
    /// Ended requests that failed and are not told of, in that order.
    failed: List,
    raises: bool,
    /// Pulls and connects that were not handed over.
    retry: List,
    /// Sends to this endpoint itself that the handler was not asked about.
    own: List,
    partners: Partners,
    own_context: u64,
    /// Partners with sends to hand over or to feed.
    busy: VecDeque<PeerId>,
    unexpected: Unexpected,
    /// A message found no room there.
    crowded: bool,
    handler: bool,
    asked: Option<progress::Question>,
    /// Sends that ended early and are not confirmed.
    early: usize,
    /// How the last of them failed that nobody is told of.
    lost: Option<Status>,
    /// Partners of other hosts that are not reached any more, where receives from them stay.
    departed: Option<Vec<Departed>>,
    /// Partners to which a message was lost that had ended early; noted where those are.
    broken: Vec<Source>,
    /// The caller has copies of messages, and sends them again if a daemon in between began anew.
    resends: bool,
    now: u64,
    deadline: u64,
    send_timeout: Option<u64>,
    counters: Counters,
}

impl<B: Buffer> Library<B> {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// The context id does not fit.
    pub fn new(options: Options) -> Result<Self, Error> {
        Ok(Self {
            options,
            contexts: Contexts::new(options.context_bits, options.context_shift)?,
            requests: Slab::new(256, REQUESTS_MAX),
            done: List::default(),
            failed: List::default(),
            raises: false,
            retry: List::default(),
            own: List::default(),
            partners: Partners::default(),
            own_context: 0,
            busy: VecDeque::with_capacity(16),
            unexpected: Unexpected::new(),
            crowded: false,
            handler: false,
            asked: None,
            early: 0,
            lost: None,
            departed: None,
            broken: Vec::new(),
            resends: false,
            now: 0,
            deadline: u64::MAX,
            send_timeout: None,
            counters: Counters::default(),
        })
    }

    /// Bounds what is kept of messages that no receive was posted for: so many, at most
    /// [`UNEXPECTED_ASKED_MAX`](crate::limits::UNEXPECTED_ASKED_MAX), and so many bytes. Their
    /// senders wait then, with whatever they send behind it.
    pub fn set_unexpected_max(&mut self, messages: usize, bytes: usize) {
        self.unexpected.set_max(messages, bytes);
    }

    /// Whether since the last call a message came that found no room there.
    pub fn take_crowded(&mut self) -> bool {
        std::mem::take(&mut self.crowded)
    }

    /// Its own address.
    pub fn address(&self) -> Address {
        self.options.address
    }

    /// What was counted. Sends count when they are made, receives when they end with a message.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many requests there are, in whatever state.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Whether there may be one more.
    #[inline]
    pub fn takes_more(&self) -> bool {
        !self.requests.is_full()
    }

    /// How many messages came that no receive was posted for and wait for one.
    pub fn unexpected(&self) -> usize {
        self.unexpected.messages.len()
    }

    /// How many sends ended although nobody said yet that the messages are there.
    pub fn unconfirmed(&self) -> usize {
        self.early
    }

    /// Whether unexpected messages are put to the application.
    pub fn set_handler(&mut self, handler: bool) {
        self.handler = handler;
    }

    /// Receives from one endpoint of another host stay posted when it is not reached any more: the
    /// daemon in between may have begun anew. [`Self::take_departed`] names such endpoints, and
    /// the caller connects to them, or cancels the receives.
    pub fn keep_directed(&mut self) {
        self.departed.get_or_insert_default();
    }

    /// Messages to endpoints that are not reached because a daemon in between began anew are not lost:
    /// the caller has copies of all that were sent whole, and sends them again.
    pub fn set_resends(&mut self) {
        self.resends = true;
    }

    /// Returns the endpoints of other hosts that were lost since the last call.
    pub fn take_departed(&mut self) -> Vec<Departed> {
        self.departed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the endpoints to which messages were lost since the last call that had ended early: what
    /// is sent to them from now on would arrive behind a gap. Empty without [`Self::keep_directed`].
    pub fn take_broken(&mut self) -> Vec<Source> {
        std::mem::take(&mut self.broken)
    }

    /// Adds a request.
    #[inline]
    fn add(&mut self, request: Request<B>) -> Result<u32, Error> {
        self.requests.insert(request).ok_or(Error::NoResources)
    }

    #[inline]
    fn id(&self, at: u32) -> RequestId {
        RequestId(self.requests.name(at))
    }

    #[inline]
    fn token(&self, at: u32) -> Token {
        Token(self.requests.name(at))
    }

    /// The request of that name, unless the application gave it away already.
    #[inline]
    fn find(&self, id: RequestId) -> Result<u32, Error> {
        let found = self.requests.find(id.0).filter(|&at| {
            self.requests.get(at).is_some_and(|r| !r.forgotten && r.state != State::Detached)
        });
        found.ok_or(Error::BadRequest)
    }

    /// Ends a request, which stands in no list.
    fn finish(&mut self, at: u32, status: Status) {
        self.finish_here(at, status);
    }

    /// The same, where it counts.
    #[inline(always)]
    fn finish_here(&mut self, at: u32, status: Status) {
        let Some(request) = self.requests.get_mut(at) else { return };
        request.buffer = None;
        request.status = status;
        match (request.kind, status) {
            (Kind::Receive, Status::Success) => self.counters.received.count(request.at),
            (_, Status::Success) => {}
            (kind, status) => self.counters.ended_ill(kind, status, request.at),
        }
        request.code = status as u32;
        request.deadline = u64::MAX;
        if status != Status::Success && self.raises && !request.hidden {
            request.state = State::Failed;
            self.requests.push(&mut self.failed, at);
        } else {
            self.over(at);
        }
    }

    /// A request has ended, and who is told of failures knows.
    #[inline]
    fn over(&mut self, at: u32) {
        let Some(request) = self.requests.get_mut(at) else { return };
        if !request.forgotten {
            request.state = State::Done;
            if !request.hidden {
                self.requests.push(&mut self.done, at);
            }
        } else if request.unacked {
            request.state = State::Detached;
        } else {
            self.requests.discard(at);
        }
    }
}

/// Bits of `info` that `mask` leaves free match nothing.
#[inline]
fn check_mask(info: u64, mask: u64) -> Result<(), Error> {
    if info & !mask == 0 { Ok(()) } else { Err(Error::BadMatchMask) }
}
