//! An endpoint of the MX API: the endpoint of [`causeway_endpoint`] with handlers and waiting
//! threads.
//!
//! [`MxEndpoint`] adds to the core endpoint: the error handler, the handler of unexpected messages,
//! the cache of mapped buffers, and the state of waiting threads. It converts between the values of
//! the API and those of the matching engine. It has no lock of its own: the slot in `table` has it,
//! and every method runs with that lock. It runs no handler; [`MxEndpoint::advance`] returns false,
//! and `wait` runs it.
//!
//! The functions of `call`, and `wait` for them, call it in threads of the application; after a
//! fork the child abandons the endpoints of its parent (`fork`). A process opens at most
//! [`ENDPOINTS_MAX`](crate::limits::ENDPOINTS_MAX) (1,024) endpoints. Paths to peers, reconnects
//! and the connection to the daemon belong to [`causeway_endpoint`].

use std::thread::ThreadId;

use causeway_endpoint::lock::Room;
use causeway_endpoint::nic::Conversation;
use causeway_endpoint::paths::StagingCounters;
use causeway_endpoint::waiter::WakeReasons;
use causeway_endpoint::{Endpoint as CoreEndpoint, OpenOptions as CoreParams};
use causeway_message::library::{
    Buffer, Completion, Counters, HandlerMessage, Library, Partner, ProgressStep, RequestId,
};

use crate::abi::{EndpointAddr, ErrorHandler, MxStatus, UnexpHandler};
use crate::address::{LocalEndpoint, pack, unpack};
use crate::code::Return;
use crate::limits::TESTS_PER_YIELD;
use crate::memory::{MappedPages, MessageSegments};

/// Number of the counters of an endpoint.
pub const COUNTERS: usize = Counters::COUNT + 8;

/// Returns the counters of an endpoint with their names. The other arguments: checks of buffers by
/// the kernel, messages that were read directly, and counters of memory for the NIC side.
pub fn named_counters(
    messages: &Counters,
    (asked, direct): (u64, u64),
    staged: StagingCounters,
) -> [(&'static str, u64); COUNTERS] {
    let mut all = [("", 0); COUNTERS];
    let memory = [
        ("buffer_checks", asked),
        ("regions_lent", staged.lent),
        ("receives_direct", direct),
        ("memory_registered", staged.cache.registered),
        ("memory_reused", staged.cache.reused),
        ("memory_invalidated", staged.cache.invalidated),
        ("memory_unwatched", staged.cache.unwatched),
        ("memory_copied", staged.cache.copied),
    ];
    let named = messages.named().into_iter().chain(memory);
    all.iter_mut().zip(named).for_each(|(to, from)| *to = from);
    all
}

/// Parameters of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenParams {
    /// Key that a peer must present to connect.
    pub key: u32,
    /// Error handler of the endpoint; `None` for that of the process.
    pub errors: Option<ErrorHandler>,
    /// Bits of the match information that hold the context id; 0 for none.
    pub context_bits: u8,
    /// Position of the lowest of these bits.
    pub context_shift: u8,
}

/// The handler of unexpected messages.
#[derive(Debug, Clone, Copy)]
pub struct UnexpectedHandler {
    /// Function of the application.
    pub run: UnexpHandler,
    /// Pointer of the application as a number. It is only passed back.
    pub context: usize,
}

/// An endpoint of the MX API.
#[derive(Debug)]
pub struct MxEndpoint {
    /// The endpoint's number in this process.
    pub own: LocalEndpoint,
    /// Number of the NIC in this process ("board" in MX).
    pub board: u32,
    /// Endpoint with its matching engine and paths.
    pub core: CoreEndpoint<MessageSegments>,
    /// Cache of buffers that the kernel validated.
    pub mapped: MappedPages,
    /// Error handler of the endpoint; `None` for that of the process.
    pub errors: Option<ErrorHandler>,
    /// Handler of unexpected messages; `None` if the application set none.
    pub handler: Option<UnexpectedHandler>,
    /// The message for which the handler must run.
    pub asked: Option<HandlerMessage>,
    /// The thread that runs the handler.
    pub handling: Option<ThreadId>,
    /// A thread reports failures to the error handler.
    pub raising: bool,
    /// Nesting depth of `mx_disable_progression`.
    pub disabled: u32,
    /// A thread (the leader) sleeps on the doorbell, and makes progress for all waiting threads.
    pub has_leader: bool,
    /// Number of threads (followers) that sleep until they are called.
    pub followers: u32,
    /// Number of calls of `mx_wakeup`.
    pub wakeups: u64,
    /// Number of calls that did not wait and found nothing.
    idle_tests: u32,
    /// The followers of this endpoint.
    room: &'static Room,
}

impl MxEndpoint {
    /// Opens an endpoint of a NIC. Its followers wait in `room`.
    pub fn open(
        (own, room): (LocalEndpoint, &'static Room),
        board: u32,
        wanted: u8,
        opening: OpenParams,
    ) -> Result<Self, Return> {
        Self::open_over(Conversation::new(board)?, (own, room), board, wanted, opening)
    }

    /// Opens an endpoint over an existing connection to the daemon.
    pub fn open_over(
        conversation: Conversation,
        (own, room): (LocalEndpoint, &'static Room),
        board: u32,
        wanted: u8,
        opening: OpenParams,
    ) -> Result<Self, Return> {
        let OpenParams { key, errors, context_bits, context_shift } = opening;
        let begin = CoreParams { key, context_bits, context_shift, raises: true };
        Ok(Self {
            own,
            board,
            core: CoreEndpoint::open_over(conversation, wanted, begin)?,
            mapped: MappedPages::new(),
            errors,
            handler: None,
            asked: None,
            handling: None,
            raising: false,
            disabled: 0,
            has_leader: false,
            followers: 0,
            wakeups: 0,
            idle_tests: 0,
            room,
        })
    }

    /// Makes progress with received events.
    #[inline]
    pub fn step(&mut self) -> ProgressStep {
        if self.disabled > 0 {
            return ProgressStep::Idle;
        }
        let (step, stirs) = self.core.step();
        if stirs {
            // An operation of another thread may have ended. A sleeping thread would miss that
            // otherwise.
            self.wake();
        }
        step
    }

    /// Makes progress until nothing is left, or the work of one call is done. Polls at most `polls`
    /// times. While progress is disabled (`disabled`), nothing is received. Returns false if a
    /// handler must run: for a message (`asked`), or for failed requests.
    pub fn advance(&mut self, polls: u32) -> bool {
        let mut left = polls;
        loop {
            match self.step() {
                ProgressStep::Ask(asked) => {
                    self.asked = Some(asked);
                    return false;
                }
                ProgressStep::Idle if left > 1 && !self.core.stays_quiet() => {
                    left = left.saturating_sub(1)
                }
                _ => return !self.core.library.has_failed(),
            }
        }
    }

    /// Counts a call that found nothing and does not wait. Returns whether to yield the processor:
    /// if the daemon carries messages, it may need this processor for the next.
    #[inline]
    pub fn should_yield(&mut self) -> bool {
        if !self.core.paths.is_through_daemon {
            return false;
        }
        self.idle_tests = self.idle_tests.wrapping_add(1);
        self.idle_tests.is_multiple_of(TESTS_PER_YIELD)
    }

    /// Updates the clock if new requests have timeouts.
    #[inline]
    pub fn before_send(&mut self) {
        if self.core.library.limits_sends() {
            self.core.update_time();
        }
    }

    /// Wakes sleeping threads.
    #[inline]
    pub fn wake(&self) {
        if self.has_leader || self.followers > 0 {
            self.wake_all();
        }
    }

    /// Wakes the leader and all followers.
    #[cold]
    fn wake_all(&self) {
        if self.has_leader {
            self.core.waiter.ring();
        }
        self.call(self.followers);
    }

    /// Clears the doorbells that rang.
    pub fn clear(&mut self, rung: WakeReasons) {
        self.core.hush(rung);
    }

    /// Ends the wait of a thread. Calls another waiting thread if there is no leader.
    #[inline]
    pub fn end_wait(&self) {
        if !self.has_leader {
            self.call(self.followers.min(1));
        }
    }

    /// Wakes `count` followers.
    fn call(&self, count: u32) {
        if count > 0 {
            self.room.call(count);
        }
    }

    /// Releases an endpoint of the parent in a child process, without a message to the daemon or
    /// peers.
    pub fn abandon(self) {
        self.core.abandon();
    }

    /// Returns the peer of an address of this endpoint.
    #[inline]
    pub fn partner(&self, address: EndpointAddr) -> Result<Partner, Return> {
        match unpack(address) {
            Some((own, partner)) if self.own.matches(own) => Ok(partner),
            _ => Err(Return::BadEndpoint),
        }
    }

    /// Encodes the address of a peer for the application.
    #[inline]
    pub fn address(&self, partner: Partner) -> EndpointAddr {
        let session = self.core.library.session(partner).unwrap_or(0);
        pack(self.own, partner, session)
    }

    /// Returns the request of a handle.
    #[inline]
    pub fn request(&self, handle: *mut std::ffi::c_void) -> Result<RequestId, Return> {
        self.own.request(handle).ok_or(Return::BadRequest)
    }

    /// Returns the counters with their names.
    pub fn counters(&self) -> [(&'static str, u64); COUNTERS] {
        let way = &self.core.paths;
        let checks = (self.mapped.checks, way.channels.fetched().messages);
        named_counters(&self.core.library.counters(), checks, way.staged())
    }
}

/// Converts a completion to a status for the application.
#[inline(always)]
pub fn status_of<B: Buffer>(
    own: LocalEndpoint,
    library: &Library<B>,
    ended: Completion,
) -> MxStatus {
    let address = |partner| pack(own, partner, library.session(partner).unwrap_or(0));
    MxStatus {
        code: ended.code,
        source: ended.partner.map(address).unwrap_or_default(),
        match_info: ended.match_info,
        msg_length: ended.msg_length,
        xfer_length: ended.xfer_length,
        context: std::ptr::without_provenance_mut(ended.context as usize),
    }
}
