//! One endpoint as the MX API has it: with its handlers, and who waits.

use std::thread::ThreadId;

use causeway_endpoint::board::Conversation;
use causeway_endpoint::ears::Rung;
use causeway_endpoint::{Endpoint as Core, Opening as Begin};
use causeway_message::library::{
    Asked, Buffer, Completion, Counters, Library, Partner, RequestId, Step,
};

use crate::abi::{EndpointAddr, ErrorHandler, MxStatus, UnexpHandler};
use crate::address::{Own, pack, unpack};
use crate::code::Return;
use crate::limits::TESTS_PER_YIELD;
use crate::memory::{Known, Segments};

/// How much is counted of an endpoint.
pub const COUNTERS: usize = Counters::COUNT + 3;

/// Its counters, with their names.
pub fn counted(
    messages: &Counters,
    (asked, lent, direct): (u64, u64, u64),
) -> [(&'static str, u64); COUNTERS] {
    let mut all = [("", 0); COUNTERS];
    let memory = [("buffer_checks", asked), ("regions_lent", lent), ("receives_direct", direct)];
    let named = messages.named().into_iter().chain(memory);
    all.iter_mut().zip(named).for_each(|(to, from)| *to = from);
    all
}

/// How an endpoint is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opening {
    pub key: u32,
    pub errors: Option<ErrorHandler>,
    pub context_bits: u8,
    pub context_shift: u8,
}

/// The handler of unexpected messages.
#[derive(Debug, Clone, Copy)]
pub struct Handler {
    pub run: UnexpHandler,
    /// The application's pointer, as a number: it is only handed back.
    pub context: usize,
}

/// See above.
#[derive(Debug)]
pub struct Endpoint {
    pub own: Own,
    pub board: u32,
    pub core: Core<Segments>,
    pub known: Known,
    pub errors: Option<ErrorHandler>,
    pub handler: Option<Handler>,
    /// What it is to be asked about.
    pub asked: Option<Asked>,
    /// Who runs the handler now.
    pub handling: Option<ThreadId>,
    /// A thread puts failures to the error handler.
    pub raising: bool,
    /// How often progression is disabled.
    pub disabled: u32,
    /// A thread sleeps until the doorbell rings, and then goes on for all.
    pub led: bool,
    /// Threads that sleep until they are called.
    pub followers: u32,
    /// How often those that wait were told to stop.
    pub wakeups: u64,
    /// Calls that looked in vain, and did not wait.
    vain: u32,
}

impl Endpoint {
    /// Opens one of a board.
    pub fn open(own: Own, board: u32, wanted: u8, opening: Opening) -> Result<Self, Return> {
        Self::open_over(Conversation::new(board)?, own, board, wanted, opening)
    }

    /// Opens one by a conversation of its own.
    pub fn open_over(
        conversation: Conversation,
        own: Own,
        board: u32,
        wanted: u8,
        opening: Opening,
    ) -> Result<Self, Return> {
        let Opening { key, errors, context_bits, context_shift } = opening;
        let begin = Begin { key, context_bits, context_shift, raises: true };
        Ok(Self {
            own,
            board,
            core: Core::open_over(conversation, wanted, begin)?,
            known: Known::new(),
            errors,
            handler: None,
            asked: None,
            handling: None,
            raising: false,
            disabled: 0,
            led: false,
            followers: 0,
            wakeups: 0,
            vain: 0,
        })
    }

    /// Goes on with what came in.
    #[inline]
    pub fn step(&mut self) -> Step {
        if self.disabled > 0 {
            return Step::Idle;
        }
        let (step, stirs) = self.core.step();
        if stirs {
            // What others wait for may have ended; or who sleeps would not hear of it any more.
            self.wake();
        }
        step
    }

    /// Goes on until nothing is left, or enough was done for one call; looks so often whether
    /// something comes. False: a handler is to be asked about a message (`asked`), or about
    /// requests that failed.
    pub fn go_on(&mut self, looks: u32) -> bool {
        let mut left = looks;
        loop {
            match self.step() {
                Step::Ask(asked) => {
                    self.asked = Some(asked);
                    return false;
                }
                Step::Idle if left > 1 && !self.core.stays_quiet() => left = left.saturating_sub(1),
                _ => return !self.core.library.has_failed(),
            }
        }
    }

    /// A call that does not wait found nothing. Says whether it lets others have the processor: where the
    /// daemon brought the last message, it may be waiting for this very one to bring the next.
    #[inline]
    pub fn tests_in_vain(&mut self) -> bool {
        if !self.core.way.far {
            return false;
        }
        self.vain = self.vain.wrapping_add(1);
        self.vain.is_multiple_of(TESTS_PER_YIELD)
    }

    /// Requests that are made now may have limits: it must know the time.
    #[inline]
    pub fn before_send(&mut self) {
        if self.core.library.limits_sends() {
            self.core.tell_time();
        }
    }

    /// Wakes those who sleep, if there are any.
    #[inline]
    pub fn wake(&self) {
        if self.led || self.followers > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        if self.led {
            self.core.ears.ring();
        }
        self.call(self.followers);
    }

    /// What rang is known.
    pub fn hush(&mut self, rung: Rung) {
        self.core.hush(rung);
    }

    /// A thread that waited leaves: if nobody leads those who still wait, one is called to.
    #[inline]
    pub fn hand_over(&self) {
        if !self.led {
            self.call(self.followers.min(1));
        }
    }

    fn call(&self, count: u32) {
        if count > 0
            && let Some(slot) = crate::table::slot(self.own.slot)
        {
            slot.room.call(count);
        }
    }

    /// In a child process: it is the parent's. Nobody is told anything.
    pub fn abandon(self) {
        self.core.abandon();
    }

    /// The partner of an address of this endpoint.
    #[inline]
    pub fn partner(&self, address: EndpointAddr) -> Result<Partner, Return> {
        match unpack(address) {
            Some((own, partner)) if self.own.made(own) => Ok(partner),
            _ => Err(Return::BadEndpoint),
        }
    }

    /// A partner as the application holds it.
    #[inline]
    pub fn address(&self, partner: Partner) -> EndpointAddr {
        let session = self.core.library.session(partner).unwrap_or(0);
        pack(self.own, partner, session)
    }

    /// The request of a handle.
    #[inline]
    pub fn request(&self, handle: *mut std::ffi::c_void) -> Result<RequestId, Return> {
        self.own.request(handle).ok_or(Return::BadRequest)
    }

    /// What was counted here: names and values.
    pub fn counters(&self) -> [(&'static str, u64); COUNTERS] {
        let way = &self.core.way;
        let memory = (self.known.asked, way.lent(), way.channels.fetched().messages);
        counted(&self.core.library.counters(), memory)
    }
}

/// How a request ended, as the application is told.
#[inline(always)]
pub fn told<B: Buffer>(own: Own, library: &Library<B>, ended: Completion) -> MxStatus {
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
