//! The connection of the backend: reads messages, passes them to the protocol, sends replies.
//!
//! The dispatcher calls [`Server::receive`] (by [`Attachment::poll`]) when the socket is readable.
//! A call handles at most [`MESSAGES_PER_TURN`] (64) messages and charges each message's cost to
//! the frontend, in units of [`COST_NS`] (5 us), so that the port can limit the rate. While more
//! than 7 TiB of the frontend's earlier grants wait for `munmap`
//! ([`causeway_memory::has_unmap_backlog`]), messages stay unread ([`Server::must_wait`]).
//!
//! No send waits: a frontend that leaves no room for a reply in the socket loses the attachment.
//! After the end, further calls read nothing and return `Ok`. The module does not limit the rate or
//! accept connections; `fabric` does. The rules of the protocol are in [`Backend`].

use std::os::fd::{AsFd, BorrowedFd};

use causeway_host::fd::receive::UntrustedSocket;
use causeway_memory::{Map, has_unmap_backlog};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::super::fault::{Fault, Reason};
use super::super::message::{Header, Message};
use super::super::stream::{MessageStream, RawMessage, ReadOutcome};
use super::Event;
use super::backend::{Backend, Outcome, Reply};
use super::device::Device;
use super::model::Model;
use crate::attachment::{Attachment, AttachmentError};
use crate::limits::{COST_NS, MAPPING_COST, MESSAGE_SLOW_NS, MESSAGES_PER_TURN, QUEUE_COST};
use crate::vhost_user::codes::FrontendReq;

/// Returns the cost of reading a message and of mappings other than guest memory, as in
/// [`Server::cost`].
fn message_cost(request: FrontendReq) -> u64 {
    use FrontendReq as R;
    match request {
        R::SET_LOG_BASE | R::SET_INFLIGHT_FD | R::GET_INFLIGHT_FD => MAPPING_COST,
        _ => 1,
    }
}

/// Returns the additional cost of a message's consequence.
fn event_cost(event: &Event) -> u64 {
    match event {
        // The message itself was counted as 1.
        Event::MemoryChanged => MAPPING_COST.saturating_sub(1),
        Event::QueueStarted(_) | Event::QueueStopped(_) | Event::Reset => QUEUE_COST,
        Event::Doorbell(_) | Event::Message | Event::Resumed | Event::Closed => 0,
    }
}

/// Returns the processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// The backend of one port on one connection.
#[derive(Debug)]
pub struct Server {
    /// The socket.
    stream: MessageStream,
    backend: Backend,
    /// The attachment has ended, by a fault or by the frontend.
    over: bool,
    /// As returned by [`Self::cost`].
    cost: u64,
    /// As returned by [`Self::must_wait`].
    must_wait: bool,
}

impl Server {
    /// Serves `model` to the frontend at the other end of `stream`, a connected Unix socket.
    pub fn new(model: Model, stream: impl Into<UntrustedSocket>) -> Self {
        let (stream, backend) = (MessageStream::new(stream), Backend::new(model));
        Self { stream, backend, over: false, cost: 0, must_wait: false }
    }

    /// Returns whether the last [`Self::receive`] left messages unread because earlier grants of
    /// this frontend are not unmapped yet. Call again some milliseconds later.
    pub fn must_wait(&self) -> bool {
        self.must_wait
    }

    /// Returns the total cost of all messages, in units of about 5 us: 1 for each message,
    /// [`MAPPING_COST`] (16) if memory is mapped, unmapped or put into a new epoch, [`QUEUE_COST`]
    /// (4) for each queue that starts or stops and for a reset, and the thread time of a message
    /// that takes longer than [`MESSAGE_SLOW_NS`] (500 us).
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the device as granted so far.
    pub fn device(&self) -> &Device {
        self.backend.device()
    }

    /// Returns the device as granted so far.
    pub fn device_mut(&mut self) -> &mut Device {
        self.backend.device_mut()
    }

    /// Handles waiting messages without blocking, at most [`MESSAGES_PER_TURN`] (64). More may be
    /// left: watch the descriptor level-triggered, or call again.
    ///
    /// # Errors
    /// Returns the fault if the frontend broke a rule or the connection broke. All grants have been
    /// released, and `events` names every queue that stopped.
    pub fn receive(&mut self, events: &mut Vec<Event>) -> Result<(), Fault> {
        // Mappings are charged to the peer until they are unmapped.
        let turn = self.stream.giver().serve(|| self.turn(events));
        let turn = if turn.is_err() { self.end(events).and(turn) } else { turn };
        turn.map_err(Fault::from)
    }

    /// Handles waiting messages, at most [`MESSAGES_PER_TURN`] (64).
    fn turn(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.must_wait = false;
        for _ in 0..MESSAGES_PER_TURN {
            if self.over {
                return Ok(());
            }
            if has_unmap_backlog(self.stream.giver().owner()) {
                self.must_wait = true;
                return Ok(());
            }
            match self.stream.receive()? {
                ReadOutcome::Message(raw) => match self.handle(raw, events) {
                    // The frontend closed the connection without waiting for its reply.
                    Err(Reason::Socket(Errno::PIPE | Errno::CONNRESET)) => {
                        self.close_by_peer(events)?
                    }
                    handled => {
                        handled?;
                        self.backend.check_notifications()?;
                    }
                },
                ReadOutcome::Nothing => return Ok(()),
                ReadOutcome::Closed => self.close_by_peer(events)?,
            }
        }
        Ok(())
    }

    /// Handles one message, sends its reply, and charges its cost.
    fn handle(&mut self, raw: RawMessage, events: &mut Vec<Event>) -> Result<(), Reason> {
        let RawMessage { header, payload, fds, .. } = raw;
        let request = header.request;
        self.cost = self.cost.saturating_add(message_cost(request));
        if header.is_reply() {
            return Err(Reason::Flags(header.flags()));
        }
        let (before, since) = (events.len(), thread_ns());
        let result = Message::decode(request, &payload, fds)
            .and_then(|message| self.backend.handle(message, events));
        let caused = events.iter().skip(before).map(event_cost);
        self.cost = caused.fold(self.cost, u64::saturating_add);
        let took_ns = thread_ns().saturating_sub(since);
        if took_ns > MESSAGE_SLOW_NS {
            // For example a notification through a slow descriptor, or the release of a large file.
            self.cost = self.cost.saturating_add(took_ns.checked_div(COST_NS).unwrap_or(0));
        }
        let acks = header.needs_reply() && self.backend.acknowledges();
        let refusal = Reply::number(1);
        let reply = match &result {
            Ok(Outcome::Reply(reply)) => reply,
            Ok(Outcome::Done) if acks => &Reply::number(0),
            Ok(Outcome::Refused) if acks => &refusal,
            Ok(_) => return Ok(()),
            Err(_) => {
                if acks {
                    // The frontend learns that the request failed before the connection is closed.
                    let _ = self.send(request, &refusal);
                }
                return result.map(drop);
            }
        };
        self.send(request, reply)
    }

    /// Sends a reply.
    fn send(&self, request: FrontendReq, reply: &Reply) -> Result<(), Reason> {
        let size = u32::try_from(reply.payload.len()).unwrap_or(u32::MAX);
        let fds: Vec<BorrowedFd<'_>> = reply.fd.iter().map(AsFd::as_fd).collect();
        self.stream.send(Header::reply(request, size), &reply.payload, &fds)
    }

    /// Handles the close of the connection by the frontend.
    fn close_by_peer(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.end(events)?;
        events.push(Event::Closed);
        Ok(())
    }

    /// Stops every queue and releases all grants; no more messages are read.
    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.over = true;
        self.backend.release(events)
    }

    /// Checks that all granted memory still exists, the in-flight buffer included. For users
    /// without `fabric`, which checks the map itself ([`Map::is_poisoned`]) and drops the server.
    ///
    /// # Errors
    /// Returns a fault if a granted file shrank. As with [`Self::receive`], all grants have been
    /// released.
    pub fn check_memory(&mut self, events: &mut Vec<Event>) -> Result<(), Fault> {
        if !self.backend.memory_lost() {
            return Ok(());
        }
        self.end(events).and(Err(Reason::MemoryLost)).map_err(Fault::from)
    }

    /// Returns whether the attachment has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }
}

impl Attachment for Server {
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), AttachmentError> {
        self.receive(events).map_err(AttachmentError::from)
    }

    fn cost(&self) -> u64 {
        self.cost
    }

    fn must_wait(&self) -> bool {
        self.must_wait
    }

    fn map(&self) -> Option<&Map> {
        Some(&Self::device(self).map)
    }

    fn device(&self) -> Option<&Device> {
        Some(Self::device(self))
    }

    fn device_mut(&mut self) -> Option<&mut Device> {
        Some(Self::device_mut(self))
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
