//! The thread that serves all forwards of a process.
//!
//! [`Relay::open`] opens the listeners, [`Relay::run`] serves until a time or a stop. One epoll
//! instance reports sockets that became ready (edge-triggered); connections that can move bytes are
//! served in turn, at most [`TURN_BYTES`](crate::limits::TURN_BYTES) (256 KiB) a direction each, so
//! that no connection delays another by more. With [`CONNECTIONS_MAX`] (1,024) connections, or as
//! many as [`Relay::set_connections_max`] permits, no further ones are accepted until one ends, and
//! without a free descriptor none for [`RETRY_TIME`] (50 ms). A source that cannot be listened at,
//! because another forward has it for example, is an error of [`Relay::open`], which then opens
//! none. All of it runs in the thread that calls
//! [`Relay::run`], which can be called again. A failed connection is reported, at most one in
//! [`REPORT_TIME`] (1 s) for each forward with the number of the others, and counted; it affects no
//! other connection and ends no forward. Dropping the relay aborts all connections and removes the
//! files of its Unix sockets.
//!
//! `commands::forward` of the crate `cli` is the caller, in the main thread of a process of
//! `causeway forward`; the process has one relay.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::connection::{Connection, Next, Side};
use crate::limits::{BUFFER_BYTES, CONNECTIONS_MAX, FORWARDS_MAX, REPORT_TIME, RETRY_TIME};
use crate::listener::Listener;
use crate::pipe::Readiness;
use crate::{ForwardError, SocketAddress};

/// A source and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Where clients connect.
    pub from: SocketAddress,
    /// Where their connections go.
    pub to: SocketAddress,
}

/// Totals of a forward since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accepted connections.
    pub accepted_total: u64,
    /// Connections that are open or being opened.
    pub open: u64,
    /// Connections whose target refused, could not be reached, or did not answer within 10 s.
    pub refused_total: u64,
    /// Connections that failed after they were open.
    pub lost_total: u64,
    /// Bytes passed to the target.
    pub to_target_bytes: u64,
    /// Bytes passed to clients.
    pub to_source_bytes: u64,
}

/// The last failure to reach a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetFailure {
    /// The guest refused; otherwise the target could not be reached.
    pub is_refusal: bool,
    /// The reason.
    pub reason: String,
}

/// A report of [`Relay::run`].
#[derive(Debug)]
pub enum Event<'a> {
    /// A connection failed.
    Failed {
        /// Its forward.
        forward: &'a Forward,
        /// The reason.
        error: &'a ForwardError,
        /// Failures since the last report that were not reported.
        unreported: u64,
    },
}

/// The state of a forward.
#[derive(Debug)]
struct ForwardState {
    forward: Forward,
    listener: Listener,
    /// Connections may wait to be accepted.
    is_ready: bool,
    counters: Counters,
    /// `None` after a connection that has reached the target was served.
    failure: Option<TargetFailure>,
    reported_at: Option<Instant>,
    unreported: u64,
}

/// A place for a connection; the number tells connections apart that had the same place.
#[derive(Debug, Default)]
struct Place {
    connection: Option<Connection>,
    number: u32,
    /// The place is in the queue of connections to serve.
    is_queued: bool,
    /// The connection must be served at this time.
    due: Option<Instant>,
}

/// All forwards of a process.
#[derive(Debug)]
pub struct Relay {
    epoll: OwnedFd,
    forwards: Vec<ForwardState>,
    places: Vec<Place>,
    free: Vec<usize>,
    /// Most connections at a time.
    connections_max: usize,
    /// Places to serve, in turn.
    queue: VecDeque<usize>,
    /// Nothing is accepted before: the process has no descriptor left.
    paused_until: Option<Instant>,
    scratch: Vec<u8>,
}

/// Value of the stop descriptor's events.
const STOP: u64 = u64::MAX;
/// Bit of events of connections; others are of listeners.
const OF_CONNECTION: u64 = 1 << 62;
/// Connections accepted at a listener before connections are served.
const ACCEPTS_PER_TURN: usize = 16;

impl Relay {
    /// Listens at the sources of all forwards.
    ///
    /// # Errors
    /// A source cannot be listened at, or there are more than 256 forwards. Sources opened before
    /// are closed.
    pub fn open(forwards: Vec<Forward>) -> Result<Self, ForwardError> {
        if forwards.len() > FORWARDS_MAX {
            return Err(ForwardError::TooMany(FORWARDS_MAX));
        }
        let failed = |error: Errno| ForwardError::Wait(error.into());
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let mut states = Vec::new();
        for forward in forwards {
            let listener = Listener::open(&forward.from)?;
            let data = EventData::new_u64(states.len() as u64);
            epoll::add(&epoll, &listener, data, EventFlags::IN | EventFlags::ET).map_err(failed)?;
            states.push(ForwardState {
                forward,
                listener,
                is_ready: true,
                counters: Counters::default(),
                failure: None,
                reported_at: None,
                unreported: 0,
            });
        }
        Ok(Self {
            epoll,
            forwards: states,
            places: Vec::new(),
            free: Vec::new(),
            connections_max: CONNECTIONS_MAX,
            queue: VecDeque::new(),
            paused_until: None,
            scratch: vec![0; BUFFER_BYTES],
        })
    }

    /// Sets the most connections at a time; at most [`CONNECTIONS_MAX`] (1,024), and 0 counts as 1.
    /// Must be called before [`Self::run`].
    pub fn set_connections_max(&mut self, connections: usize) {
        self.connections_max = connections.clamp(1, CONNECTIONS_MAX);
    }

    /// Returns the last failure to reach the target of the forward at `index`; `None` once a
    /// connection that has reached the target, this or an earlier one, was served since. A
    /// connection that fails after it reached its target is no such failure.
    pub fn failure(&self, index: usize) -> Option<&TargetFailure> {
        self.forwards.get(index)?.failure.as_ref()
    }

    /// Returns the forwards with their counters, in their order.
    pub fn counters(&self) -> Vec<(&Forward, Counters)> {
        let mut all: Vec<_> = self.forwards.iter().map(|f| (&f.forward, f.counters)).collect();
        for connection in self.places.iter().filter_map(|place| place.connection.as_ref()) {
            if let Some((_, counters)) = all.get_mut(connection.forward) {
                counters.add_bytes(connection.bytes());
            }
        }
        all
    }

    /// Serves until `until`, or until `stop` becomes readable. Returns whether it stopped.
    ///
    /// # Errors
    /// The kernel refuses to wait for sockets.
    pub fn run(
        &mut self,
        stop: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
        report: &mut dyn FnMut(Event<'_>),
    ) -> Result<bool, ForwardError> {
        if let Some(stop) = stop {
            let data = EventData::new_u64(STOP);
            match epoll::add(&self.epoll, stop, data, EventFlags::IN) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(ForwardError::Wait(error.into())),
            }
        }
        loop {
            if self.wait(until)? {
                return Ok(true);
            }
            let now = Instant::now();
            self.accept(now);
            self.queue_due(now);
            for _ in 0..self.queue.len() {
                let Some(at) = self.queue.pop_front() else { break };
                self.serve(at, now, report);
            }
            if until.is_some_and(|until| now >= until) {
                return Ok(false);
            }
        }
    }

    /// Waits for events and notes them. Returns whether the stop descriptor is readable.
    fn wait(&mut self, until: Option<Instant>) -> Result<bool, ForwardError> {
        let now = Instant::now();
        let due = self.places.iter().filter_map(|place| place.due);
        let due = due.chain(until).chain(self.paused_until).min();
        let can_accept = self.paused_until.is_none()
            && self.has_room()
            && self.forwards.iter().any(|forward| forward.is_ready);
        let left = match due {
            _ if can_accept || !self.queue.is_empty() => Some(Duration::ZERO),
            due => due.map(|at| at.saturating_duration_since(now)),
        };
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut events = Vec::with_capacity(256);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(ForwardError::Wait(error.into())),
        }
        let mut stopped = false;
        for event in events {
            match event.data.u64() {
                STOP => stopped = true,
                value if value & OF_CONNECTION != 0 => self.note_event(value, event.flags),
                listener => {
                    let at = usize::try_from(listener).ok();
                    if let Some(state) = at.and_then(|at| self.forwards.get_mut(at)) {
                        state.is_ready = true;
                    }
                }
            }
        }
        Ok(stopped)
    }

    /// Notes that a socket of a connection is ready.
    fn note_event(&mut self, value: u64, flags: EventFlags) {
        let (at, number, side) = place_of(value);
        let Some(place) = self.places.get_mut(at).filter(|place| place.number == number) else {
            return;
        };
        let Some(connection) = &mut place.connection else { return };
        // A socket that failed reports the error to the next read and write.
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let readable = failed || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        let writable = failed || flags.contains(EventFlags::OUT);
        connection.note_ready(side, Readiness { readable, writable });
        self.enqueue(at);
    }

    /// Adds a place to the queue, once.
    fn enqueue(&mut self, at: usize) {
        if let Some(place) = self.places.get_mut(at)
            && !std::mem::replace(&mut place.is_queued, true)
        {
            self.queue.push_back(at);
        }
    }

    /// Queues the connections whose time is due.
    fn queue_due(&mut self, now: Instant) {
        self.paused_until = self.paused_until.filter(|until| *until > now);
        for at in 0..self.places.len() {
            let due =
                self.places.get_mut(at).and_then(|place| place.due.take_if(|due| *due <= now));
            if due.is_some() {
                self.enqueue(at);
            }
        }
    }

    /// Returns whether there is room for a connection.
    fn has_room(&self) -> bool {
        !self.free.is_empty() || self.places.len() < self.connections_max
    }

    /// Accepts connections.
    fn accept(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| until > now) {
            return;
        }
        for forward in 0..self.forwards.len() {
            for _ in 0..ACCEPTS_PER_TURN {
                if !self.has_room() {
                    return;
                }
                let Some(state) = self.forwards.get_mut(forward).filter(|state| state.is_ready)
                else {
                    break;
                };
                match state.listener.accept() {
                    Ok(Some(client)) => {
                        state.counters.accepted_total =
                            state.counters.accepted_total.wrapping_add(1);
                        state.counters.open = state.counters.open.saturating_add(1);
                        self.insert(Connection::new(forward, client, now));
                    }
                    Ok(None) => state.is_ready = false,
                    // The next client is accepted: no further event reports those that wait.
                    Err(error) if is_passing(&error) => {}
                    // No descriptor or memory is left: others must end first.
                    Err(_) => {
                        self.paused_until = now.checked_add(RETRY_TIME);
                        return;
                    }
                }
            }
        }
    }

    /// Adds a connection and watches its client.
    fn insert(&mut self, connection: Connection) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len().saturating_sub(1)
        });
        let Some(place) = self.places.get_mut(at) else { return };
        place.number = place.number.wrapping_add(1) & 0x3fff_ffff;
        place.connection = Some(connection);
        self.watch(at, Side::Client);
        self.enqueue(at);
    }

    /// Watches a socket of a connection. A socket that cannot be watched (no memory) is served
    /// only when its other side is ready; the deadline of a dial still applies.
    fn watch(&self, at: usize, side: Side) {
        let Some(place) = self.places.get(at) else { return };
        let Some(socket) = place.connection.as_ref().and_then(|c| c.socket(side)) else { return };
        let data = EventData::new_u64(value_of(at, place.number, side));
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let _ = epoll::add(&self.epoll, socket.as_fd(), data, flags);
    }

    /// Serves a connection.
    fn serve(&mut self, at: usize, now: Instant, report: &mut dyn FnMut(Event<'_>)) {
        let Some(place) = self.places.get_mut(at) else { return };
        place.is_queued = false;
        let Some(connection) = &mut place.connection else { return };
        let Some(state) = self.forwards.get_mut(connection.forward) else { return };
        let was_open = connection.is_open();
        let next = connection.serve(&state.forward.to, now, &mut self.scratch);
        if !was_open && connection.is_open() {
            state.failure = None;
        }
        match next {
            Ok(Next::Again) => self.enqueue(at),
            Ok(Next::Wait(due)) => place.due = due,
            Ok(Next::Watch) => {
                place.due = connection.deadline();
                self.watch(at, Side::Target);
                self.enqueue(at);
            }
            Ok(Next::Done) => {
                if let Some(connection) = place.connection.take() {
                    state.counters.close(&connection);
                }
                self.release(at);
            }
            Err(error) => {
                state.note_failure(&error, now, report);
                if let Some(connection) = place.connection.take() {
                    state.counters.close(&connection);
                    connection.abort();
                }
                self.release(at);
            }
        }
    }

    /// Returns a place for reuse.
    fn release(&mut self, at: usize) {
        if let Some(place) = self.places.get_mut(at) {
            place.due = None;
        }
        self.free.push(at);
    }
}

impl ForwardState {
    /// Counts a failed connection, and reports it unless another was reported just before.
    fn note_failure(
        &mut self,
        error: &ForwardError,
        now: Instant,
        report: &mut dyn FnMut(Event<'_>),
    ) {
        let total = match error {
            ForwardError::Lost { .. } => &mut self.counters.lost_total,
            error => {
                let is_refusal = matches!(error, ForwardError::Refused { .. });
                self.failure = Some(TargetFailure { is_refusal, reason: error.to_string() });
                &mut self.counters.refused_total
            }
        };
        *total = total.wrapping_add(1);
        let is_recent = |at: Instant| now.saturating_duration_since(at) < REPORT_TIME;
        if self.reported_at.is_some_and(is_recent) {
            self.unreported = self.unreported.saturating_add(1);
            return;
        }
        self.reported_at = Some(now);
        let unreported = std::mem::take(&mut self.unreported);
        report(Event::Failed { forward: &self.forward, error, unreported });
    }
}

impl Counters {
    fn add_bytes(&mut self, (to_target, to_source): (u64, u64)) {
        self.to_target_bytes = self.to_target_bytes.wrapping_add(to_target);
        self.to_source_bytes = self.to_source_bytes.wrapping_add(to_source);
    }

    /// Adds a connection that ends.
    fn close(&mut self, connection: &Connection) {
        self.open = self.open.saturating_sub(1);
        self.add_bytes(connection.bytes());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // First the listeners: a client that sees the end of its connection finds none.
        self.forwards.clear();
        for connection in self.places.iter_mut().filter_map(|place| place.connection.take()) {
            // An orderly end would make a cut-off stream look whole.
            connection.abort();
        }
    }
}

/// Returns whether an error of accept(2) concerns one client only.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Returns the value of a connection's events.
fn value_of(at: usize, number: u32, side: Side) -> u64 {
    let at = (at as u64 & 0xffff) << 1;
    OF_CONNECTION | u64::from(number & 0x3fff_ffff) << 24 | at | u64::from(side == Side::Target)
}

/// Returns place, number and side of an event's value.
fn place_of(value: u64) -> (usize, u32, Side) {
    let side = if value & 1 == 1 { Side::Target } else { Side::Client };
    let number = (value >> 24 & 0x3fff_ffff) as u32;
    ((value >> 1 & 0xffff) as usize, number, side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_values_name_place_number_and_side() {
        for (at, number, side) in
            [(0, 1, Side::Client), (1023, 0x3fff_ffff, Side::Target), (7, 9, Side::Target)]
        {
            let value = value_of(at, number, side);
            assert_eq!(place_of(value), (at, number, side));
            assert!(value & OF_CONNECTION != 0 && value != STOP);
        }
    }
}
