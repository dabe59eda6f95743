//! The queue pair of a session: messages in both directions, doorbells, and events for sleeps.
//!
//! Every send reports a completion. Commands for which the send queue has no room wait in a queue.
//! Received messages stay in their receive buffers until they are taken; only then the buffer is
//! posted again, so that the daemon holds back messages that the process does not take. After the
//! first failed work request, poll or arming the link is broken for good. A broken link gives the
//! messages that had arrived and then [`Error::DaemonGone`]; at most 1,024 commands wait
//! ([`COMMANDS_UNSENT_MAX`]), and a further one breaks it. A doorbell without room waits, each
//! endpoint once; on a broken link a doorbell has no effect. A message of another length than
//! [`MESSAGE_BYTES`] breaks the link, too.
//!
//! # Sleeps
//! [`Link::arm`] requests an event for the next completion, and polls afterwards: a completion in
//! between is found by the poll. While a thread sleeps, another thread that takes the event
//! requests the next one, so that the sleeping thread is woken by later completions.
//!
//! # Place
//! [`session`](super::session) sends and receives, and the doorbell of the rings (`paths`) rings;
//! nothing here knows the messages. The state has a lock of its own, because the session and the
//! doorbell share the link. No call blocks except [`Link::open`], which waits for commands of the
//! adapter. After [`Link::arm`] the caller calls [`Link::disarm`], also if it does not sleep.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_ibverbs::{
    Adapter, Completion, CompletionQueue, Gid, Port, ProtectionDomain, QueuePair, Registration,
};
use causeway_memory::{Mapping, View};
use causeway_wire::session::{MESSAGE_BYTES, RECEIVES, SERVICE_QPN};

use crate::error::Error;
use crate::limits::{COMMANDS_IN_FLIGHT_MAX, COMMANDS_UNSENT_MAX, DOORBELLS_IN_FLIGHT_MAX};

/// Room of the send queue and of the receive queue.
const DEPTH: u32 = 64;
const _: () = assert!(COMMANDS_IN_FLIGHT_MAX + DOORBELLS_IN_FLIGHT_MAX <= DEPTH as usize);
const _: () = assert!(RECEIVES <= DEPTH as usize);
/// Completions that are polled at once.
const BATCH: usize = 16;
/// Identifiers of work requests: a receive has the number of its buffer.
const COMMAND: u64 = 1 << 32;
const DOORBELL: u64 = 2 << 32;

/// A message as it travels.
type Bytes = [u8; MESSAGE_BYTES];

/// A queue pair that is connected to the daemon.
#[derive(Debug)]
pub struct Link {
    state: Mutex<LinkState>,
    queue: CompletionQueue,
    /// Domain of the queue pair.
    pub domain: ProtectionDomain,
}

/// State of a link, under its lock.
#[derive(Debug)]
struct LinkState {
    pair: QueuePair,
    /// Receive buffers.
    buffers: Registration,
    /// Buffers with messages that were not taken, in their order.
    arrived: VecDeque<usize>,
    /// Commands for which the send queue had no room.
    unsent: VecDeque<Bytes>,
    /// Commands in the send queue.
    commands: usize,
    /// Doorbells in the send queue.
    doorbells: usize,
    /// Endpoints with a doorbell that found no room.
    unrung: Vec<u8>,
    /// An event was requested and not taken.
    is_armed: bool,
    /// A thread sleeps, or is about to.
    is_sleeping: bool,
    /// A work request failed.
    is_broken: bool,
}

/// Converts an error of the library.
pub(super) fn converted(error: causeway_ibverbs::Error) -> Error {
    use causeway_ibverbs::Error as Verbs;
    match &error {
        Verbs::Library(_) => Error::NoLibrary,
        Verbs::NoDevice(_) | Verbs::NoGid { .. } => Error::NoAdapter,
        _ if error.is_permission() => Error::NoPermission,
        _ if error.is_shortage() => Error::NoResources,
        _ => Error::NoAdapter,
    }
}

/// Registers `len` bytes of new memory.
pub(crate) fn allocate(domain: &ProtectionDomain, len: usize) -> Result<Registration, Error> {
    let mapping = Mapping::private(len as u64).map_err(|_| Error::NoResources)?;
    let view = View::new(Arc::new(mapping), 0, len).map_err(|_| Error::NoResources)?;
    domain.register(view).map_err(converted)
}

impl Link {
    /// Connects a new queue pair to the daemon at the own address `own` of a port.
    ///
    /// # Errors
    /// [`Error`] of the adapter.
    pub fn open(adapter: &Adapter, port: &Port, own: &Gid) -> Result<Self, Error> {
        let domain = ProtectionDomain::new(adapter).map_err(converted)?;
        let queue = CompletionQueue::new(adapter, 2 * DEPTH).map_err(converted)?;
        let pair = QueuePair::new(&domain, &queue, DEPTH).map_err(converted)?;
        let buffers = allocate(&domain, RECEIVES.saturating_mul(MESSAGE_BYTES))?;
        pair.initialise(port).map_err(converted)?;
        for buffer in 0..RECEIVES {
            post(&pair, &buffers, buffer).map_err(converted)?;
        }
        pair.connect_to_own(port, own, SERVICE_QPN).map_err(converted)?;
        let state = LinkState {
            pair,
            buffers,
            arrived: VecDeque::with_capacity(RECEIVES),
            unsent: VecDeque::new(),
            commands: 0,
            doorbells: 0,
            unrung: Vec::new(),
            is_armed: false,
            is_sleeping: false,
            is_broken: false,
        };
        Ok(Self { state: Mutex::new(state), queue, domain })
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message, or queues it while the send queue has no room.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the link is broken, or the daemon takes no messages.
    pub fn send(&self, bytes: Bytes) -> Result<(), Error> {
        let mut state = self.state();
        if state.unsent.len() >= COMMANDS_UNSENT_MAX {
            state.is_broken = true;
        }
        state.unsent.push_back(bytes);
        state.poll(&self.queue);
        if state.is_broken { Err(Error::DaemonGone) } else { Ok(()) }
    }

    /// Returns the next message of the daemon, or `None` if there is none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the link is broken and all messages were taken.
    pub fn receive(&self) -> Result<Option<Bytes>, Error> {
        let mut state = self.state();
        if state.arrived.is_empty() {
            state.take_event(&self.queue);
            state.poll(&self.queue);
        }
        match state.take_message() {
            None if state.is_broken => Err(Error::DaemonGone),
            message => Ok(message),
        }
    }

    /// Wakes the daemon for the rings of an endpoint.
    pub fn ring(&self, endpoint: u8) {
        let mut state = self.state();
        if state.doorbells >= DOORBELLS_IN_FLIGHT_MAX {
            state.poll(&self.queue);
        }
        if !state.unrung.contains(&endpoint) {
            state.unrung.push(endpoint);
        }
        state.ring_all();
    }

    /// Requests an event for the next completion. Returns false if the thread must not sleep: a
    /// message is there, or the link is broken.
    pub fn arm(&self) -> bool {
        let mut state = self.state();
        // Events of completions that were polled would end the sleep at once.
        while self.queue.take_event() {}
        state.is_sleeping = true;
        state.request_event(&self.queue);
        state.poll(&self.queue);
        state.arrived.is_empty() && !state.is_broken
    }

    /// Ends a sleep.
    pub fn disarm(&self) {
        self.state().is_sleeping = false;
    }

    /// Returns the descriptor on which events arrive.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Posts a receive buffer.
fn post(
    pair: &QueuePair,
    buffers: &Registration,
    buffer: usize,
) -> Result<(), causeway_ibverbs::Error> {
    pair.receive(buffer as u64, buffers, buffer.saturating_mul(MESSAGE_BYTES), MESSAGE_BYTES)
}

impl LinkState {
    /// Takes an event if one was requested and is there.
    fn take_event(&mut self, queue: &CompletionQueue) {
        if self.is_armed && queue.take_event() {
            self.is_armed = false;
            if self.is_sleeping {
                self.request_event(queue);
            }
        }
    }

    /// Requests an event; the caller polls afterwards.
    fn request_event(&mut self, queue: &CompletionQueue) {
        self.is_armed = true;
        self.is_broken |= queue.arm().is_err();
    }

    /// Handles all completions, then sends what waits for room.
    fn poll(&mut self, queue: &CompletionQueue) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            match queue.poll(&mut batch) {
                Ok(0) => break,
                Ok(_) => batch.iter().for_each(|of| self.complete(of)),
                Err(_) => {
                    self.is_broken = true;
                    break;
                }
            }
        }
        self.send_all();
        self.ring_all();
    }

    fn complete(&mut self, of: &Completion) {
        if of.error().is_some() {
            self.is_broken = true;
            return;
        }
        match of.id {
            COMMAND => self.commands = self.commands.saturating_sub(1),
            DOORBELL => self.doorbells = self.doorbells.saturating_sub(1),
            buffer => match usize::try_from(buffer) {
                Ok(buffer) if of.len as usize == MESSAGE_BYTES => self.arrived.push_back(buffer),
                // The daemon breaks the protocol.
                _ => self.is_broken = true,
            },
        }
    }

    /// Takes the oldest message, and posts its buffer again.
    fn take_message(&mut self) -> Option<Bytes> {
        let buffer = self.arrived.pop_front()?;
        let at = buffer.saturating_mul(MESSAGE_BYTES);
        let bytes = self.buffers.memory()?.read::<MESSAGE_BYTES>(at).ok();
        if bytes.is_none() || post(&self.pair, &self.buffers, buffer).is_err() {
            self.is_broken = true;
        }
        bytes
    }

    /// Sends the commands for which there is room.
    fn send_all(&mut self) {
        while !self.is_broken && self.commands < COMMANDS_IN_FLIGHT_MAX {
            let Some(bytes) = self.unsent.pop_front() else { return };
            match self.pair.send(COMMAND, &bytes, None) {
                Ok(()) => self.commands = self.commands.saturating_add(1),
                Err(_) => self.is_broken = true,
            }
        }
    }

    /// Rings the doorbells for which there is room.
    fn ring_all(&mut self) {
        while !self.is_broken && self.doorbells < DOORBELLS_IN_FLIGHT_MAX {
            let Some(endpoint) = self.unrung.pop() else { return };
            match self.pair.send(DOORBELL, &[], Some(endpoint.into())) {
                Ok(()) => self.doorbells = self.doorbells.saturating_add(1),
                Err(_) => self.is_broken = true,
            }
        }
    }
}
