//! An endpoint of kind `FI_EP_RDM`, without the C interface around it.
//!
//! # How messages cross
//! The engine matches 64 bits ([`causeway_message::library`]). The upper two say what a message is
//! for, each with queues of its own:
//!
//! | bits 63, 62 | what | the other bits |
//! |---|---|---|
//! | 0 0 | a message with a tag | the tag |
//! | 0 1 | a message without | 0 |
//! | 1 0 | a question about memory ([`control`]) | 0 |
//! | 1 1 | what follows: a long message's bytes, or (bit 61) a reply | its name |
//!
//! A message begins with a head of 16 bytes: immediate data, and a word that has no bit 63 if the
//! message's bytes follow. A message too long for that is a *notice*: its word has bit 63, a name
//! of 29 bits and the length, and the bytes come as a message of that name, at once or, if bit 61
//! says so, when they are asked for ([`later`]). So what waits for a receive is always there as a
//! whole, with all that `FI_PEEK` is to tell, and long messages lie in the memory of both sides as
//! the application has it.
//!
//! Reads, writes and atomic operations are questions to the other process, which answers when it
//! makes progress; so there is no memory that others map.
//!
//! # The straight way
//! Most messages have a few bytes, and a receive waits for them. Who reads a queue takes such a one
//! with [`Rdm::receive_straight`]: from the partner's cache line into the application's memory and
//! the entry that it reads, by values in registers. No list, no queue and no copy is in between; one
//! line moves from one processor to the other, and nobody calls the kernel. Whatever else there is
//! to do is found by [`Rdm::progress`], which comes to the same for such a message, too.
//!
//! # Addresses
//! A name of an endpoint is its address and session; so an endpoint that begins anew at the same
//! address is another one. It is connected to when something is first sent to it, or received from
//! it alone.

mod atomic;
mod book;
mod call;
mod connect;
mod control;
mod crowd;
mod done;
mod later;
mod multi;
mod operation;
mod parcel;
mod peek;
mod receive;
mod regions;
mod resend;
mod send;
mod serve;
pub mod service;
mod span;
pub mod tally;
#[cfg(test)]
mod tests;

pub use atomic::{Kind as AtomicKind, valid as atomic_valid};
pub use book::{Book, Name};
pub use call::{Atomic, Remote};
pub use connect::Helps;
pub use done::{Done, Report};
pub use later::LOOK_EVERY;
pub use parcel::Place;
pub use receive::Wanted;
pub use regions::{Region, Regions};
pub use send::Message;
pub use span::Span;
pub use tally::Account;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use causeway_endpoint::limits::ENDPOINT_ANY;
use causeway_endpoint::{Endpoint, Opening};
use causeway_message::library::{Missed, Partner, Source, Step};

use crate::limits::{STEPS_AT_ONCE, TAG_BITS, UNEXPECTED_GRAIN};
use connect::Peer;
use operation::Operations;
use parcel::Parcel;
use tally::Tally;

/// What others of the same kind know to connect: an MX program does not.
pub const KEY: u32 = u32::from_le_bytes(*b"CWFI");
/// Where the bits are that say what a message is for.
const SPACE_SHIFT: u8 = 62;
/// All of them.
const SPACES: u64 = 0b11 << SPACE_SHIFT;
/// A message with a tag, and one without.
const TAGGED: u64 = 0;
const PLAIN: u64 = 0b01 << SPACE_SHIFT;
/// A question about memory.
const CONTROL: u64 = 0b10 << SPACE_SHIFT;
/// A long message's bytes.
const BODY: u64 = 0b11 << SPACE_SHIFT;
/// A reply to a question.
const REPLY: u64 = BODY | 1 << 61;
/// The bits of a tag: `mem_tag_format` says as many.
pub const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

/// Why an operation was not begun: one of libfabric's numbers, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What an endpoint needs of its domain.
#[derive(Debug, Clone, Copy)]
pub struct Env<'a> {
    /// The names that the application knows.
    pub book: &'a Book,
    /// The memory that it registered.
    pub regions: &'a Regions,
}

/// See above.
#[derive(Debug)]
pub struct Rdm {
    /// First: it has memory of the operations.
    pub endpoint: Endpoint<Parcel>,
    operations: Operations,
    /// The service that it was opened for, or 0.
    service: u32,
    /// Endpoints to which a message was lost that was reported as sent.
    broken: HashSet<Source>,
    /// Those of them that are to be told.
    untold: Vec<Source>,
    /// Messages to other hosts are sent again when a daemon between began anew.
    resends: bool,
    /// What is known of messages to endpoints of other hosts.
    flows: HashMap<Source, resend::Flow>,
    /// Endpoints of other hosts that are not reached any more, to be looked at.
    departed: Vec<Source>,
    /// Long messages that were said not to come before a receive took what told of them.
    bodies_lost: HashSet<(Source, u32)>,
    /// Makes connects progress while the application makes no calls.
    pub helper: Option<Arc<dyn Helps>>,
    /// What is known of those whom the book names, by their number there.
    peers: Vec<Peer>,
    /// Messages that were peeked at and claimed.
    claimed: Vec<peek::Claimed>,
    /// Least room in a buffer for many messages.
    pub multi_receive_min: usize,
    /// Long messages that are offered before they are asked for, and those that are not.
    later: later::Later,
    /// Sends that have not ended.
    sending: usize,
    /// Reads, writes and atomic operations that have not.
    calls: usize,
    /// What partners asked for that has not ended, by their numbers.
    served: Vec<u32>,
    /// The same of all of them.
    served_all: usize,
    /// Buffers for many messages.
    multis: multi::Multis,
    /// Those of them that take no message for now.
    parked: Vec<u32>,
    /// It was said that more was sent than is kept for receives that are not posted.
    crowded: bool,
    /// What could not be taken may be, since somebody looked last.
    stirred: bool,
    /// Where it is told what others do there is no room: they wait until there is.
    pub held: bool,
    /// What is over and was not told yet.
    pub done: Vec<Done>,
    pub tally: Tally,
}

impl Rdm {
    /// Opens one of a board of this host, by number: with any endpoint number, or for a service.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses; another endpoint of the board has the service.
    pub fn open(board: u32, service: u32) -> Result<Self, causeway_endpoint::Error> {
        if service == 0 {
            return Ok(Self::new(Endpoint::open(board, ENDPOINT_ANY, Self::OPENING)?));
        }
        let mut opened = Self::new(service::open(board, service)?);
        opened.service = service;
        Ok(opened)
    }

    /// How the engine is opened.
    pub const OPENING: Opening =
        Opening { key: KEY, context_bits: 2, context_shift: SPACE_SHIFT, raises: false };

    /// Over what is open.
    pub fn new(mut endpoint: Endpoint<Parcel>) -> Self {
        let bytes = crowd::bytes_max();
        endpoint.library.set_unexpected_max(bytes / UNEXPECTED_GRAIN, bytes);
        endpoint.library.keep_directed();
        // Past the daemon it does not matter to messages.
        let resends = endpoint.way.is_networked() && !endpoint.way.goes_past();
        if resends {
            endpoint.library.set_resends();
        }
        Self {
            endpoint,
            operations: Operations::new(),
            service: 0,
            broken: HashSet::new(),
            untold: Vec::new(),
            resends,
            flows: HashMap::new(),
            departed: Vec::new(),
            bodies_lost: HashSet::new(),
            helper: None,
            peers: Vec::new(),
            claimed: Vec::new(),
            multi_receive_min: crate::limits::MULTI_RECEIVE_MIN,
            later: later::Later::default(),
            sending: 0,
            calls: 0,
            served: Vec::new(),
            served_all: 0,
            multis: multi::Multis::default(),
            parked: Vec::new(),
            crowded: false,
            stirred: false,
            held: false,
            done: Vec::with_capacity(64),
            tally: Tally::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> Name {
        let own = self.endpoint.library.source_of(Partner::SELF);
        let address = self.endpoint.library.address();
        let source = own.unwrap_or(Source { address, session: 0 });
        Name { source, service: self.service }
    }

    /// Goes on with what came in. True: something was done, and who waits elsewhere for this
    /// endpoint is to look again.
    #[inline]
    pub fn progress(&mut self, env: Env<'_>) -> bool {
        let mut worked = false;
        self.stirred = false;
        for _ in 0..STEPS_AT_ONCE {
            let (step, stirs) = self.endpoint.step();
            worked |= stirs;
            self.collect(env);
            if !self.parked.is_empty() {
                self.unpark(env);
            }
            if self.endpoint.library.unexpected() > 0 {
                worked |= self.answer(env);
                self.look_at_crowd();
            }
            if step != Step::Worked || !self.endpoint.way.comes() {
                break;
            }
        }
        if self.later.seen != self.endpoint.looked() {
            self.progress_rarely(env);
        }
        worked
    }

    /// The part of [`Self::progress`] that is not due each time.
    #[cold]
    #[inline(never)]
    fn progress_rarely(&mut self, env: Env<'_>) {
        self.look_after_partners();
        self.find_departed(env);
    }

    /// As [`Self::progress`], where a message of a few bytes comes for a receive that is posted and
    /// its end is told in a queue, and there is nothing else to do: gives what is told, and whether
    /// there may be more of the kind.
    ///
    /// # Errors
    /// Nothing came, or [`Self::progress`] is to be called.
    #[inline(always)]
    pub fn receive_straight(&mut self, env: Env<'_>) -> Result<(Done, bool), Missed> {
        let library = &self.endpoint.library;
        if self.stirred
            || !self.done.is_empty()
            || !self.parked.is_empty()
            || library.ipeek().is_some()
            || library.unexpected() > 0
        {
            return Err(Missed::Unsure);
        }
        let (ended, more) = self.endpoint.receive_straight()?;
        let Some(done) = self.received_straight(env, &ended) else {
            // Of a copy: what nobody has a pointer to may stay in registers.
            let otherwise = ended;
            self.ended(env, &otherwise);
            return Err(Missed::Worked);
        };
        if done.fault.is_some() {
            self.done.push(done);
            return Err(Missed::Worked);
        }
        self.tally.over(tally::RECEIVED, &done);
        self.tally.queued();
        Ok((done, more))
    }

    /// Operations of all kinds that have not ended.
    #[cfg(any(test, feature = "story"))]
    pub fn operations(&self) -> usize {
        self.operations.all(|task| !matches!(task, operation::Task::Free(_))).len()
    }

    /// What is counted of them: sends, calls, and what partners asked for.
    #[cfg(feature = "story")]
    pub fn counted(&self) -> [usize; 3] {
        [self.sending, self.calls, self.served_all]
    }

    /// Whether something was begun that goes on only while somebody looks after it, or has ended
    /// and waits to be told of: a receive that found its message there already; or may find it
    /// where there was no room for it before.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.sending > 0
            || self.calls > 0
            || self.stirred
            || self.endpoint.library.ipeek().is_some()
    }

    /// Whether messages wait for their connect: the application may have been told that they are
    /// sent.
    pub fn waits(&self) -> bool {
        self.peers.iter().any(Peer::waits)
    }

    /// How many messages the application was told are sent that no transport has yet. Such have a
    /// copy of their bytes.
    pub fn unsent(&mut self) -> usize {
        let waiting = self.peers.iter().map(Peer::unsent).fold(0_usize, usize::saturating_add);
        let Self { operations, endpoint, .. } = self;
        let posted = operations.all(operation::Task::sends);
        let mut owned = 0_usize;
        for request in posted.into_iter().filter_map(|at| operations.request(at)) {
            endpoint.library.with_buffer(request, |parcel| {
                owned = owned.saturating_add(usize::from(parcel.is_own()));
            });
        }
        owned.saturating_add(waiting).saturating_add(self.interrupted())
    }

    /// It is closed: what was said to be sent is waited for, but not for ever.
    pub fn finish(&mut self) {
        self.endpoint.finish();
        self.look_at_lost();
    }

    /// In a child process: it is the parent's. Nobody is told anything.
    pub fn abandon(self) {
        self.endpoint.abandon();
    }

    /// Takes note of what ended.
    #[inline]
    fn collect(&mut self, env: Env<'_>) {
        while let Ok(Some(ended)) = self.endpoint.library.test_any(0, 0) {
            self.ended(env, &ended);
        }
    }

    /// The number of a partner in the book.
    #[inline(always)]
    fn from(&mut self, book: &Book, partner: Partner) -> u64 {
        let library = &mut self.endpoint.library;
        let Some(source) = library.source_of(partner) else { return book::NOBODY };
        let known = library.partner_context(partner).unwrap_or(0).wrapping_sub(1);
        if book.get(known) == Some(source) {
            return known;
        }
        let found = book.find(source);
        library.set_partner_context(partner, found.wrapping_add(1));
        found
    }
}

/// The bits of an operation's name.
const NAME_MASK: u32 = (1 << 29) - 1;
