//! One endpoint: the library half of the engine, the way to partners, and what it hears by.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_message::library::{Buffer, Completion, Library, Missed, LibraryOptions, RequestId, Step};
use causeway_message::split::{Address, NicId};
use causeway_wire::local::{Ask, Tell};

use crate::board::Conversation;
use crate::ears::{Ears, Rung};
use crate::error::Error;
use crate::limits::{
    CLOSE_MAX, GLANCES, IDLE_WEIGHT, RARELY_CALLS, RARELY_TICKS, STILL_CALLS, STREAM_TICKS,
};
use crate::way::Way;

/// How an endpoint is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opening {
    /// What others must know to connect.
    pub key: u32,
    /// Bits of the match information that are the context id; 0 for none.
    pub context_bits: u8,
    /// Where these bits begin.
    pub context_shift: u8,
    /// Whether failures are told of before they are collected.
    pub raises: bool,
}

/// See above. `B` is the application's memory.
#[derive(Debug)]
pub struct Endpoint<B> {
    /// Requests and matching.
    pub library: Library<B>,
    /// To partners.
    pub way: Way,
    /// Whoever sleeps has a share of it.
    pub ears: Arc<Ears>,
    calls: u32,
    looked: u64,
    /// How often it was seen to go on by another daemon.
    resumed: u32,
}

/// Nanoseconds since whenever.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, rest) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// The processor's counter: cheap, and good enough for how often to look.
#[inline]
pub(crate) fn ticks() -> u64 {
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

impl<B: Buffer> Endpoint<B> {
    /// Opens the endpoint `wanted` of a board, or any
    /// ([`ENDPOINT_ANY`](crate::limits::ENDPOINT_ANY)).
    ///
    /// # Errors
    /// There is no such board, its daemon does not answer or refuses.
    pub fn open(board: u32, wanted: u8, opening: Opening) -> Result<Self, Error> {
        Self::open_over(Conversation::new(board)?, wanted, opening)
    }

    /// The same, by a conversation of its own.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn open_over(
        mut conversation: Conversation,
        wanted: u8,
        opening: Opening,
    ) -> Result<Self, Error> {
        conversation.ask(Ask::Open { tag: 0, endpoint: wanted, key: opening.key })?;
        let (told, fds) = conversation.wait()?;
        let Tell::Opened { code, session, endpoint, bypass, .. } = told else {
            return Err(Error::NoDaemon);
        };
        match code {
            0 => {}
            15 => return Err(Error::NoResources),
            32 => return Err(Error::EndpointNumber),
            _ => return Err(Error::Taken),
        }
        let nic = NicId(conversation.board.nic);
        let secrets = (bypass == 1).then_some((opening.key, session));
        let way = Way::new(endpoint, secrets, conversation, fds);
        let mut way = way.map_err(|_| Error::NoResources)?;
        way.set_secrets((opening.key, session));
        let ears = Ears::new(way.bells(), &way.conversation).map_err(|_| Error::NoResources)?;
        let mut library = Library::new(LibraryOptions {
            address: Address { nic, endpoint },
            session,
            key: opening.key,
            context_bits: opening.context_bits,
            context_shift: opening.context_shift,
        })?;
        library.set_raises(opening.raises);
        Ok(Self { library, way, ears: Arc::new(ears), calls: 0, looked: 0, resumed: 0 })
    }

    /// Goes on with what came in. Also says whether others that wait for this endpoint are to look
    /// again: something was done, or the daemon was heard that would have woken them.
    #[inline]
    pub fn step(&mut self) -> (Step, bool) {
        // Nothing came, as a glance shows: all is looked at now and then.
        let still = self.calls < STILL_CALLS
            && self.library.is_still()
            && !self.way.comes()
            && !self.way.channels.is_reading();
        let step = if still { Step::Idle } else { self.library.progress(&mut self.way) };
        let weight = if step == Step::Idle { IDLE_WEIGHT } else { 1 };
        self.calls = self.calls.wrapping_add(weight);
        let mut stirs = step == Step::Worked;
        if self.calls >= RARELY_CALLS {
            self.calls = 0;
            stirs |= self.rarely();
        }
        (step, stirs)
    }

    /// As [`Self::step`], where a message of a few bytes comes for a receive that is posted, or
    /// nothing, and there is nothing else to do ([`Library::receive_straight`]).
    ///
    /// # Errors
    /// Nothing comes, or [`Self::step`] is to be called.
    #[inline(always)]
    pub fn receive_straight(&mut self) -> Result<(Completion, bool), Missed> {
        let Self { library, way, calls, .. } = self;
        // That nothing comes from other hosts is seen by a glance, and not by taking what comes.
        let comes = !way.is_networked() || way.comes();
        if comes && calls.saturating_add(1) < RARELY_CALLS {
            let took = library.receive_straight(way);
            if took != Err(Missed::Unsure) {
                *calls = calls.wrapping_add(1);
                return took;
            }
        }
        let comes = comes && way.comes();
        if *calls >= STILL_CALLS || comes || !library.is_still() || way.channels.is_reading() {
            return Err(Missed::Unsure);
        }
        *calls = calls.wrapping_add(IDLE_WEIGHT);
        Err(Missed::Nothing)
    }

    /// Whether something is under way that may need looks and not only what rings: a message that is
    /// fed, or copied from one memory into the other.
    pub fn goes_on(&self) -> bool {
        !self.library.is_still() || self.way.channels.is_reading()
    }

    /// Looks at nothing but whether something comes, where that is seen so cheaply; for a moment.
    /// False: something did, or it is not seen so.
    #[inline]
    pub fn stays_quiet(&mut self) -> bool {
        if self.way.is_networked() {
            return false;
        }
        if self.way.channels.streams() {
            self.let_write();
        }
        // The pause is first: it was looked just before.
        (0..GLANCES).all(|_| {
            std::hint::spin_loop();
            !self.way.comes()
        })
    }

    /// Who looks at a line takes it from who is about to write it. That is what a single message
    /// costs; of many in a row, the sender is to get ahead by some.
    #[cold]
    fn let_write(&mut self) {
        let since = ticks();
        while ticks().wrapping_sub(since) < STREAM_TICKS {
            std::hint::spin_loop();
        }
        if !self.way.comes() {
            self.way.channels.end_stream();
        }
    }

    /// What is not looked at each time, if it is time.
    #[inline]
    fn rarely(&mut self) -> bool {
        let ticks = ticks();
        let (soon, later) = RARELY_TICKS;
        let due = if self.way.connecting() { soon } else { later };
        if ticks.wrapping_sub(self.looked) < due {
            return false;
        }
        self.looked = ticks;
        self.look()
    }

    /// Changes whenever it was time to look at what is looked at rarely.
    #[inline]
    pub fn looked(&self) -> u64 {
        self.looked
    }

    /// Looks at the daemon's socket and the clock. Says whether there was something.
    #[cold]
    pub fn look(&mut self) -> bool {
        self.hear() | self.look_at_clock()
    }

    /// Hears the daemon, or looks for the next. Says whether there was something.
    pub fn hear(&mut self) -> bool {
        let heard = self.way.hear();
        if self.resumed != self.way.resumed() {
            // Without a descriptor now: when it is looked next.
            if self.ears.set_daemon(&self.way.conversation).is_ok() {
                self.resumed = self.way.resumed();
            }
        }
        heard
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

    /// How long until a request takes too long.
    pub fn time_left(&self) -> Option<Duration> {
        let deadline = self.library.deadline()?;
        Some(Duration::from_nanos(deadline.saturating_sub(now())))
    }

    /// What rang is known.
    pub fn hush(&mut self, rung: Rung) {
        let Self { ears, way, .. } = self;
        ears.hush(rung, |bell| way.heard(bell));
    }

    /// After somebody else slept for this endpoint: hears whatever may have rung.
    pub fn hear_all(&mut self) {
        self.hush(Rung::ANY);
        self.hear();
    }

    /// Waits until a request ends, at most so long, and returns whether it did; it is to be
    /// collected. The caller holds the endpoint meanwhile, so this is for requests that end soon:
    /// connects.
    pub fn await_end(&mut self, request: RequestId, patience: Duration) -> bool {
        let since = Instant::now();
        while !self.library.has_ended(request) {
            let Some(left) = patience.checked_sub(since.elapsed()) else { return false };
            self.go_on(left);
        }
        true
    }

    /// As [`Self::await_end`]; collects the request, or cancels it.
    pub fn wait_for(&mut self, request: RequestId, patience: Duration) -> Option<Completion> {
        if !self.await_end(request, patience) {
            let _ = self.library.cancel(&mut self.way, request);
        }
        self.library.test(request).ok().flatten()
    }

    /// Goes on with what came in; sleeps if there was nothing, until there is or so long.
    fn go_on(&mut self, time: Duration) {
        if self.library.progress(&mut self.way) == Step::Worked {
            return;
        }
        if self.way.arm() {
            let rung = self.ears.listen(self.way.awaited(), time);
            self.hush(rung);
        }
        self.way.disarm();
        self.look();
    }

    /// It is closed: waits until what was said to be sent is known to be there, but not for ever.
    pub fn finish(&mut self) {
        let since = Instant::now();
        self.library.set_handler(false);
        while self.library.unconfirmed() > 0 || self.way.is_sending() {
            let Some(left) = CLOSE_MAX.checked_sub(since.elapsed()) else { break };
            self.go_on(left);
        }
        self.way.end();
    }

    /// Drops the endpoint in a child process: it stays the parent's, and no partner hears of it.
    pub fn abandon(self) {
        self.ears.abandon();
    }
}
