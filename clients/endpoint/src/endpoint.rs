//! One endpoint: matching engine, paths to peers, and waiter, and the order in which they are
//! polled.
//!
//! [`Endpoint::step`] polls once. While the poll counter is below [`CHEAP_CHECK_WEIGHT`] (48), a
//! poll without an event is only a cheap check of memory. At [`RARE_CHECK_WEIGHT`] (64) the *rare
//! checks* (the daemon's socket, timeouts) run if [`RARE_CHECK_TICKS`] have passed: about 20 us
//! during a connect, else about 200 us.
//!
//! # Limits
//! All work happens within calls: an endpoint whose process makes no calls starts, matches and
//! completes nothing. Only messages that the daemon holds go on, and copies by peers that read this
//! process's memory. The endpoint has no lock: the caller serialises its calls, and only the
//! [`Waiter`] is shared with sleeping threads. Completions stay in `library` until the caller
//! collects them. [`Endpoint::open`] blocks for the search of NICs and the connect
//! ([`crate::nic`]), and for two answers of the daemon, at most 10 s each. [`Endpoint::finish`]
//! waits at most [`CLOSE_MAX`] (30 s) for messages that were reported as sent and that the peer's
//! host has not acknowledged; then the endpoint closes, and they may be lost. The close itself may
//! wait, too: at most 2 s for each peer that writes to this process, about 1 s for a daemon behind
//! an adapter. Requests that have not ended by then get no completion.
//!
//! # Place
//! The libfabric provider (`rdm`) and `libmyriexpress.so` call the endpoint. The endpoint calls the
//! matching engine ([`Library`]), which sends and receives through [`Paths`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_message::library::{
    Buffer, Completion, FastMiss, Library, LibraryOptions, ProgressStep, RequestId,
};
use causeway_message::split::{Address, NicId};
use causeway_wire::local::{ClientMessage, DaemonMessage};

use crate::clock::{now, ticks};
use crate::error::Error;
use crate::limits::{
    CHEAP_CHECK_WEIGHT, CHEAP_CHECKS, CLOSE_MAX, CONNECT_CHECK_TICKS, EMPTY_POLL_WEIGHT,
    RARE_CHECK_TICKS, RARE_CHECK_WEIGHT, STREAM_TICKS,
};
use crate::nic::Conversation;
use crate::paths::Paths;
use crate::waiter::{Waiter, WakeReasons};

/// Parameters of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Key that a peer must present to connect.
    pub key: u32,
    /// Bits of the match information that hold the context id; 0 for none.
    pub context_bits: u8,
    /// Position of the lowest of these bits.
    pub context_shift: u8,
    /// Whether a failed request waits until the caller has taken it from [`Library::next_failed`],
    /// before its completion can be collected.
    pub raises: bool,
}

/// An open endpoint. `B` is the application's memory.
#[derive(Debug)]
pub struct Endpoint<B> {
    /// Matching engine.
    pub library: Library<B>,
    /// Paths to peers.
    pub paths: Paths,
    /// Waiter; each sleeping thread holds a reference.
    pub waiter: Arc<Waiter>,
    /// Poll counter: 1 for each poll with work, [`EMPTY_POLL_WEIGHT`] (8) for each empty poll; set
    /// to 0 at [`RARE_CHECK_WEIGHT`] (64).
    poll_weight: u32,
    /// The last step did work or read an answer of the daemon: another one may find more.
    has_stirred: bool,
    /// Time of the last rare checks, in TSC ticks.
    checked_at: u64,
    /// Resumptions with another daemon that the waiter has seen.
    resumed: u32,
}

impl<B: Buffer> Endpoint<B> {
    /// Opens the endpoint number `wanted` of a NIC, or any free endpoint
    /// ([`ENDPOINT_ANY`](crate::limits::ENDPOINT_ANY)). `board` is the NIC's number, an index of
    /// [`places`](crate::nic::places).
    ///
    /// # Errors
    /// [`Error`] if there is no such NIC, or its daemon does not answer or refuses.
    pub fn open(board: u32, wanted: u8, opening: OpenOptions) -> Result<Self, Error> {
        Self::open_over(Conversation::new(board)?, wanted, opening)
    }

    /// Opens an endpoint over an existing conversation.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_over(
        mut conversation: Conversation,
        wanted: u8,
        opening: OpenOptions,
    ) -> Result<Self, Error> {
        conversation.ask(ClientMessage::Open { tag: 0, endpoint: wanted, key: opening.key })?;
        let (message, attached) = conversation.wait()?;
        let DaemonMessage::Opened { code, session, endpoint, bypass, .. } = message else {
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
        let paths = Paths::new(endpoint, secrets, conversation, attached);
        let mut paths = paths.map_err(|_| Error::NoResources)?;
        paths.set_secrets((opening.key, session));
        let waiter =
            Waiter::new(paths.doorbells(), &paths.conversation).map_err(|_| Error::NoResources)?;
        let mut library = Library::new(LibraryOptions {
            address: Address { nic, endpoint },
            session,
            key: opening.key,
            context_bits: opening.context_bits,
            context_shift: opening.context_shift,
        })?;
        library.set_raises(opening.raises);
        Ok(Self {
            library,
            paths,
            waiter: Arc::new(waiter),
            poll_weight: 0,
            has_stirred: false,
            checked_at: 0,
            resumed: 0,
        })
    }

    /// Polls once. Also returns whether other waiters of this endpoint must check again: work was
    /// done, or an answer of the daemon was read that would have woken them.
    #[inline]
    pub fn step(&mut self) -> (ProgressStep, bool) {
        // The cheap check found no event; a full poll follows from time to time.
        let still = self.poll_weight < CHEAP_CHECK_WEIGHT
            && self.library.is_still()
            && !self.paths.comes()
            && !self.paths.channels.is_reading();
        let step = if still { ProgressStep::Idle } else { self.library.progress(&mut self.paths) };
        let weight = if step == ProgressStep::Idle { EMPTY_POLL_WEIGHT } else { 1 };
        self.poll_weight = self.poll_weight.wrapping_add(weight);
        let mut wakes_others = step == ProgressStep::Worked;
        if self.poll_weight >= RARE_CHECK_WEIGHT {
            self.poll_weight = 0;
            wakes_others |= self.run_rare_checks();
        }
        self.has_stirred = wakes_others;
        (step, wakes_others)
    }

    /// Delivers a short message to a posted receive, if that is the only work
    /// ([`Library::receive_fast`]).
    ///
    /// # Errors
    /// [`FastMiss`] without an event, or if [`Self::step`] must be called.
    #[inline(always)]
    pub fn receive_fast(&mut self) -> Result<(Completion, bool), FastMiss> {
        let Self { library, paths, poll_weight, .. } = self;
        // For remote peers, the cheap check is required before the fast path.
        let comes = !paths.is_networked() || paths.comes();
        if comes && poll_weight.saturating_add(1) < RARE_CHECK_WEIGHT {
            let took = library.receive_fast(paths);
            if took != Err(FastMiss::Unsure) {
                *poll_weight = poll_weight.wrapping_add(1);
                return took;
            }
        }
        let comes = comes && paths.comes();
        if *poll_weight >= CHEAP_CHECK_WEIGHT
            || comes
            || !library.is_still()
            || paths.channels.is_reading()
        {
            return Err(FastMiss::Unsure);
        }
        *poll_weight = poll_weight.wrapping_add(EMPTY_POLL_WEIGHT);
        Err(FastMiss::Nothing)
    }

    /// Returns whether work is in progress that needs polls and not only wake-ups: a message that
    /// waits for room or an answer, or a long message that is fed into a channel or copied between
    /// processes. Threads that sleep must poll, because they requested wake-ups before it began.
    pub fn goes_on(&self) -> bool {
        !self.library.is_still()
            || self.paths.channels.is_reading()
            || self.paths.has_unpolled_answer()
    }

    /// Prepares to sleep, as [`Paths::arm`] does. Returns false also after a step that did work or
    /// read an answer: a message that waited may continue with the next step, and no event follows.
    pub fn arm(&mut self) -> bool {
        self.paths.arm() & !self.has_stirred
    }

    /// Runs a few cheap checks for events. Returns false if there is an event, or if cheap checks
    /// cannot detect it.
    #[inline]
    pub fn stays_quiet(&mut self) -> bool {
        if self.paths.is_networked() {
            return false;
        }
        if self.paths.channels.is_streaming() {
            self.yield_to_sender();
        }
        // The pause comes first, since the caller has just polled.
        (0..CHEAP_CHECKS).all(|_| {
            std::hint::spin_loop();
            !self.paths.comes()
        })
    }

    /// Pauses in a stream of short messages. Polling pulls the cache line out of the sender's
    /// cache; a single message pays for that, but in a stream the sender must run ahead.
    #[cold]
    fn yield_to_sender(&mut self) {
        let since = ticks();
        while ticks().wrapping_sub(since) < STREAM_TICKS {
            std::hint::spin_loop();
        }
        if !self.paths.comes() {
            self.paths.channels.end_stream();
        }
    }

    /// Runs the rare checks if they are due.
    #[inline]
    fn run_rare_checks(&mut self) -> bool {
        let ticks = ticks();
        let is_connecting = self.paths.connecting();
        let due = if is_connecting { CONNECT_CHECK_TICKS } else { RARE_CHECK_TICKS };
        if ticks.wrapping_sub(self.checked_at) < due {
            return false;
        }
        self.checked_at = ticks;
        self.look()
    }

    /// Returns the time of the last rare checks, in TSC ticks; a caller detects new checks by the
    /// changed value.
    #[inline]
    pub fn looked(&self) -> u64 {
        self.checked_at
    }

    /// Runs the rare checks now: handles the daemon's socket and timeouts. Returns whether there
    /// was any work.
    #[cold]
    pub fn look(&mut self) -> bool {
        self.hear() | self.look_at_clock()
    }

    /// Handles messages of the daemon, or tries to reach the next daemon. Returns whether there was
    /// any work.
    pub fn hear(&mut self) -> bool {
        let worked = self.paths.hear();
        if self.resumed != self.paths.resumed() {
            // Without a free descriptor, the next call retries.
            if self.waiter.set_daemon(&self.paths.conversation).is_ok() {
                self.resumed = self.paths.resumed();
            }
        }
        worked
    }

    /// Handles timeouts. Returns whether any was due.
    pub fn look_at_clock(&mut self) -> bool {
        let deadline = self.library.deadline();
        if deadline.is_some() {
            self.update_time();
        }
        self.library.deadline() != deadline
    }

    /// Sets the matching engine's time; required before a request gets a time limit.
    #[cold]
    pub fn update_time(&mut self) {
        self.library.tick(&mut self.paths, now());
    }

    /// Returns the time until the next timeout, or `None` if no request has a time limit.
    pub fn time_left(&self) -> Option<Duration> {
        let deadline = self.library.deadline()?;
        Some(Duration::from_nanos(deadline.saturating_sub(now())))
    }

    /// Clears the doorbells in `rung`, which [`Waiter::listen`] returned.
    pub fn hush(&mut self, rung: WakeReasons) {
        let Self { waiter, paths, .. } = self;
        waiter.hush(rung, |doorbell| paths.record_ring(doorbell));
    }

    /// Clears all doorbells and handles the daemon's messages, after another thread slept for this
    /// endpoint.
    pub fn hear_all(&mut self) {
        self.hush(WakeReasons::ANY);
        self.hear();
    }

    /// Waits until a request ends, at most `patience`, and returns whether it did; the caller
    /// collects it. The caller holds the endpoint meanwhile, so it is for requests that end soon:
    /// connects.
    pub fn await_end(&mut self, request: RequestId, patience: Duration) -> bool {
        let since = Instant::now();
        while !self.library.has_ended(request) {
            let Some(left) = patience.checked_sub(since.elapsed()) else { return false };
            self.poll_or_sleep(left);
        }
        true
    }

    /// Waits as [`Self::await_end`] does; collects the request, or cancels it after `patience`.
    pub fn wait_for(&mut self, request: RequestId, patience: Duration) -> Option<Completion> {
        if !self.await_end(request, patience) {
            let _ = self.library.cancel(&mut self.paths, request);
        }
        self.library.test(request).ok().flatten()
    }

    /// Polls once, and sleeps at most `time` if there was no work.
    fn poll_or_sleep(&mut self, time: Duration) {
        if self.library.progress(&mut self.paths) == ProgressStep::Worked {
            return;
        }
        if self.paths.arm() {
            let rung = self.waiter.listen(self.paths.awaited(), time);
            self.hush(rung);
        }
        self.paths.disarm();
        self.look();
    }

    /// Closes the endpoint: waits until the messages that were reported as sent are confirmed, at
    /// most [`CLOSE_MAX`] (30 s). No other call may follow.
    pub fn finish(&mut self) {
        let since = Instant::now();
        self.library.set_handler(false);
        while self.library.unconfirmed() > 0 || self.paths.is_sending() {
            let Some(left) = CLOSE_MAX.checked_sub(since.elapsed()) else { break };
            self.poll_or_sleep(left);
        }
        self.paths.end();
    }

    /// Drops the endpoint in a child process; it stays the parent's, and peers see no change.
    pub fn abandon(self) {
        self.waiter.abandon();
    }
}
