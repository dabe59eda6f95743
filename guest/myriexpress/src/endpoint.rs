//! One endpoint: the library half of the engine, the way to partners, and who waits.

use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Instant;

use causeway_message::library::{
    Asked, Completion, Counters, Library, Options, Partner, RequestId, Step, Transport,
};
use causeway_message::split::{Address, NicId};
use causeway_wire::local::{Ask, Tell};

use crate::abi::{EndpointAddr, ErrorHandler, MxStatus, UnexpHandler};
use crate::address::{Own, pack, unpack};
use crate::board::Conversation;
use crate::code::Return;
use crate::ears::{Ears, Rung};
use crate::limits::{CLOSE_MAX, GLANCES, IDLE_WEIGHT, RARELY_CALLS, RARELY_TICKS};
use crate::memory::{Known, Segments};
use crate::way::Way;

/// How much is counted of an endpoint.
pub const COUNTERS: usize = Counters::COUNT + 2;

/// Its counters, with their names.
pub fn counted(messages: &Counters, asked: u64, lent: u64) -> [(&'static str, u64); COUNTERS] {
    let mut all = [("", 0); COUNTERS];
    let memory = [("buffer_checks", asked), ("regions_lent", lent)];
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
    pub library: Library<Segments>,
    pub way: Way,
    pub ears: Arc<Ears>,
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
    calls: u32,
    looked: u64,
}

/// Nanoseconds since whenever.
pub fn now() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let since = BEGIN.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The processor's counter: cheap, and good enough for how often to look.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every 64-bit processor has the counter, and reading it changes nothing.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        now()
    }
}

impl Endpoint {
    /// Opens one of a board.
    pub fn open(own: Own, board: u32, wanted: u8, opening: Opening) -> Result<Self, Return> {
        Self::open_over(Conversation::new(board)?, own, board, wanted, opening)
    }

    /// Opens one by a conversation of its own.
    pub fn open_over(
        mut conversation: Conversation,
        own: Own,
        board: u32,
        wanted: u8,
        opening: Opening,
    ) -> Result<Self, Return> {
        conversation.ask(Ask::Open { tag: 0, endpoint: wanted, key: opening.key })?;
        let (told, fds) = conversation.wait()?;
        let Tell::Opened { code, session, endpoint, .. } = told else {
            return Err(Return::NoDriver);
        };
        match code {
            0 => {}
            15 => return Err(Return::NoResources),
            32 => return Err(Return::BadEndpointId),
            _ => return Err(Return::Busy),
        }
        let nic = NicId(conversation.board.nic);
        let way = Way::new(endpoint, conversation, fds).map_err(|_| Return::NoResources)?;
        let ears = Ears::new(way.bells(), &way.conversation).map_err(|_| Return::NoResources)?;
        let mut library = Library::new(Options {
            address: Address { nic, endpoint },
            session,
            key: opening.key,
            context_bits: opening.context_bits,
            context_shift: opening.context_shift,
        })?;
        library.set_raises(true);
        Ok(Self {
            own,
            board,
            library,
            way,
            ears: Arc::new(ears),
            known: Known::new(),
            errors: opening.errors,
            handler: None,
            asked: None,
            handling: None,
            raising: false,
            disabled: 0,
            led: false,
            followers: 0,
            wakeups: 0,
            calls: 0,
            looked: 0,
        })
    }

    /// Goes on with what came in.
    #[inline]
    pub fn step(&mut self) -> Step {
        if self.disabled > 0 {
            return Step::Idle;
        }
        let step = self.library.progress(&mut self.way);
        let weight = if step == Step::Idle { IDLE_WEIGHT } else { 1 };
        self.calls = self.calls.wrapping_add(weight);
        if self.calls >= RARELY_CALLS {
            self.calls = 0;
            self.rarely();
        }
        if step == Step::Worked {
            // What others wait for may have ended.
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
                Step::Idle if left > 1 && !self.stays_quiet() => left = left.saturating_sub(1),
                _ => return !self.library.has_failed(),
            }
        }
    }

    /// Looks at nothing but whether something comes, where that is seen so cheaply; for a moment.
    /// False: something did, or it is not seen so.
    #[inline]
    fn stays_quiet(&self) -> bool {
        (0..GLANCES).all(|_| !self.way.more())
    }

    /// What is not looked at each time, if it is time.
    #[inline]
    fn rarely(&mut self) {
        let ticks = ticks();
        let (soon, later) = RARELY_TICKS;
        let due = if self.way.connecting() { soon } else { later };
        if ticks.wrapping_sub(self.looked) >= due {
            self.looked = ticks;
            if self.look() {
                // The one who sleeps would not hear of it any more.
                self.wake();
            }
        }
    }

    /// Looks at the daemon's socket and the clock. Says whether there was something.
    #[cold]
    pub fn look(&mut self) -> bool {
        self.way.hear() | self.look_at_clock()
    }

    /// Looks at the clock. Says whether anything was due.
    pub fn look_at_clock(&mut self) -> bool {
        let deadline = self.library.deadline();
        if deadline.is_some() {
            self.tell_time();
        }
        self.library.deadline() != deadline
    }

    /// Before a request gets a limit, and when one is over.
    #[cold]
    pub fn tell_time(&mut self) {
        self.library.tick(&mut self.way, now());
    }

    /// Requests that are made now may have limits: it must know the time.
    #[inline]
    pub fn before_send(&mut self) {
        if self.library.limits_sends() {
            self.tell_time();
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
            self.ears.ring();
        }
        self.call(self.followers);
    }

    /// What rang is known.
    pub fn hush(&mut self, rung: Rung) {
        let Self { ears, way, .. } = self;
        ears.hush(rung, |bell| way.heard(bell));
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

    /// It is closed: waits until what was said to be sent is known to be there, but not for ever.
    pub fn finish(&mut self) {
        let since = Instant::now();
        self.library.set_handler(false);
        while self.library.unconfirmed() > 0 {
            let Some(left) = CLOSE_MAX.checked_sub(since.elapsed()) else { break };
            if self.library.progress(&mut self.way) == Step::Idle {
                if self.way.arm() {
                    let rung = self.ears.listen(self.way.awaited(), left);
                    self.hush(rung);
                }
                self.way.disarm();
                self.way.hear();
            }
        }
        self.way.end();
    }

    /// In a child process: it is the parent's. Nobody is told anything.
    pub fn abandon(self) {
        let Self { ears, .. } = self;
        ears.abandon();
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
        let session = self.library.session(partner).unwrap_or(0);
        pack(self.own, partner, session)
    }

    /// The request of a handle.
    #[inline]
    pub fn request(&self, handle: *mut std::ffi::c_void) -> Result<RequestId, Return> {
        self.own.request(handle).ok_or(Return::BadRequest)
    }

    /// What was counted here: names and values.
    pub fn counters(&self) -> [(&'static str, u64); COUNTERS] {
        counted(&self.library.counters(), self.known.asked, self.way.lent())
    }

    /// How a request ended, as the application is told.
    #[inline(always)]
    pub fn status(&self, ended: &Completion) -> MxStatus {
        MxStatus {
            code: ended.code,
            source: ended.partner.map_or_else(EndpointAddr::default, |p| self.address(p)),
            match_info: ended.match_info,
            msg_length: ended.msg_length,
            xfer_length: ended.xfer_length,
            context: std::ptr::without_provenance_mut(ended.context as usize),
        }
    }
}
