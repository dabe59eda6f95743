//! Messages between queue pairs and the service of their adapter ([`crate::session`]).
//!
//! `connected.rs` calls [`Subnet::session_request`] for a request whose peer is the service, in the
//! requester's [`Subnet::progress`]; the message is copied into private memory once, and a
//! [`Session`](crate::session::Session) begins with the first. A request that is no send, is longer
//! than 160 bytes ([`SESSION_MESSAGE_BYTES`]), or that the service or session refuses fails with
//! [`Status::RemoteInvalidRequest`], and its queue pair with it; one that finds the session full
//! waits without end, unless as many requests of the adapter wait as it permits (`wait.rs`).
//!
//! `causeway-hca` calls [`Subnet::answer_sessions`] in its turn, and again while a process has no
//! receive work request posted: each message takes one, as a solicited completion. A receive work
//! request that is too short, or that names memory without permission, completes with an error, and
//! its queue pair fails; a spent budget leaves the rest for the next call. The number of sessions
//! has no limit but that of the adapter's queue pairs and of the service. Nothing here blocks. All
//! of it runs in the dispatcher's thread that serves the subnet.

use causeway_memory::Cursor;

use crate::adapter::Adapter;
use crate::adapter_id::AdapterId;
use crate::attributes::State;
use crate::budget::Budget;
use crate::engine::responder::{Fault, Received};
use crate::engine::segments::{Place, capacity};
use crate::engine::state::{Requester, Scratch, WaitReason};
use crate::engine::step::{Origin, Step};
use crate::limits::{SERVICE_QPN, SESSION_MESSAGE_BYTES, SPAN_BYTES, STEP_SPANS_MAX};
use crate::queues::Queues;
use crate::region::Rights;
use crate::session::{Delivery, SessionMemory, SessionService, names_service};
use crate::subnet::Subnet;
use crate::work::{Operation, ReceivedData, Status};

/// The result of an attempt to pass a message to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The process has the message.
    Sent,
    /// The session has no message.
    Empty,
    /// The process has no receive work request posted, or its queue pair does not receive.
    NotReady,
}

impl<Q: Queues> Subnet<Q> {
    /// Sets the service behind [`SERVICE_QPN`] of an adapter; `None` removes it. Sessions of the
    /// last service end, and their queue pairs move to the error state.
    pub fn set_session_service(&mut self, id: AdapterId, service: Option<Box<dyn SessionService>>) {
        self.end_sessions(id);
        if let Some(adapter) = self.adapter_mut(id) {
            adapter.sessions.service = service;
        }
    }

    /// Ends the sessions of an adapter: their queue pairs move to the error state.
    pub fn end_sessions(&mut self, id: AdapterId) {
        let Some(adapter) = self.adapter_mut(id) else { return };
        for number in adapter.sessions.queue_pairs().collect::<Vec<_>>() {
            adapter.fail(number);
        }
    }

    /// Passes messages of an adapter's sessions to their processes, within the budget. Sessions
    /// that their service ended fail their queue pairs. Returns whether a session has messages that
    /// its process has no room for.
    pub fn answer_sessions(&mut self, id: AdapterId, budget: &mut Budget) -> bool {
        let Some(adapter) = self.adapter(id).filter(|adapter| !adapter.sessions.is_empty()) else {
            return false;
        };
        let mut waits = false;
        for number in adapter.sessions.queue_pairs().collect::<Vec<_>>() {
            loop {
                if budget.is_spent() {
                    return true;
                }
                let mut scratch = std::mem::take(&mut self.scratch);
                let adapter = self.adapter_mut(id);
                let answer = adapter.map_or(Answer::Empty, |a| a.answer(number, &mut scratch));
                self.scratch = scratch;
                match answer {
                    Answer::Sent => budget.take(1, SESSION_MESSAGE_BYTES as u64, 0),
                    Answer::Empty => break,
                    Answer::NotReady => {
                        waits = true;
                        break;
                    }
                }
            }
        }
        waits
    }

    /// Passes the work request in progress to the service of the adapter.
    #[cold]
    pub(super) fn session_request(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        (budget, now_ns): (&mut Budget, u64),
    ) -> Step {
        // The traffic of a session is none between adapters.
        requester.route = None;
        let immediate = match requester.work.operation {
            Operation::Send => None,
            Operation::SendImmediate(value) => Some(value),
            _ => return Step::Failed(Status::RemoteInvalidRequest),
        };
        let mut message = [0; SESSION_MESSAGE_BYTES];
        let message = match self.read_message(origin, requester, scratch, &mut message) {
            Ok(message) => message,
            Err(status) => return Step::Failed(status),
        };
        let Some(adapter) = self.adapter_mut(origin.id) else { return Step::More };
        let Adapter { sessions, regions, queues, .. } = adapter;
        let Some(session) = sessions.get_or_begin(origin.number) else {
            return Step::Failed(Status::RemoteInvalidRequest);
        };
        let (map, domain) = (queues.shared_map(), origin.attributes.domain);
        let mut memory = SessionMemory { regions, map, domain, looked_up: 0 };
        let delivery = session.receive(message, immediate, &mut memory);
        budget.take_bytes(memory.looked_up.saturating_mul(SPAN_BYTES / 8));
        budget.take_payload(message.len() as u64);
        match delivery {
            Delivery::Taken => {
                requester.transfer.total = message.len() as u64;
                requester.messages = requester.next_message();
                requester.refusal = None;
                Step::Done
            }
            Delivery::Full => self.wait(origin, requester, (WaitReason::NotReady, None), now_ns),
            Delivery::Refused => Step::Failed(Status::RemoteInvalidRequest),
        }
    }

    /// Copies the payload of the work request in progress. Returns the copied bytes.
    fn read_message<'a>(
        &self,
        origin: &Origin,
        requester: &Requester,
        scratch: &mut Scratch,
        into: &'a mut [u8; SESSION_MESSAGE_BYTES],
    ) -> Result<&'a [u8], Status> {
        let work = &requester.work;
        let total = self.check_requester(origin, requester)?;
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let message = into.get_mut(..total).ok_or(Status::RemoteInvalidRequest)?;
        let inline = if work.is_inline { work.inline.as_slice() } else { &[] };
        let (first, rest) =
            message.split_at_mut_checked(inline.len()).ok_or(Status::LocalLength)?;
        first.copy_from_slice(inline);
        if !rest.is_empty() {
            let adapter = self.adapter(origin.id).ok_or(Status::LocalProtection)?;
            let access = adapter.access(origin.attributes.domain, Rights::LOCAL_READ);
            scratch.from.clear();
            let (len, out) = (rest.len() as u64, (STEP_SPANS_MAX, &mut scratch.from));
            let resolved = access.resolve(&work.segments, Place::default(), len, out);
            resolved.ok().filter(|bytes| *bytes == len).ok_or(Status::LocalProtection)?;
            let read = Cursor::new(&scratch.from).read(adapter.queues.map(), rest);
            read.map_err(|_| Status::LocalProtection)?;
        }
        Ok(message)
    }
}

impl<Q: Queues> Adapter<Q> {
    /// Passes the next message of a session to its process.
    fn answer(&mut self, number: u32, scratch: &mut Scratch) -> Answer {
        let Some(session) = self.sessions.get_mut(number) else { return Answer::Empty };
        let next = session.next();
        // The last messages tell the process why the session ends.
        if next.is_none() && session.has_ended() {
            self.fail(number);
            return Answer::Empty;
        }
        let Some(message) = next else { return Answer::Empty };
        let state = self.queue_pairs.get(number).map(|pair| pair.state());
        if !state.is_some_and(State::is_receiving) {
            return Answer::NotReady;
        }
        let status = match self.take_receive(number) {
            Ok(true) => self.fill_receive(number, &message, scratch),
            Ok(false) => return Answer::NotReady,
            Err(Fault::Queue | _) => Some(Status::Flushed),
        };
        if let Some(status) = status {
            self.queues.fails(number, State::Error, false);
            self.complete_receive(number, &Received::failed(status));
            self.fail(number);
            return Answer::Empty;
        }
        if let Some(pair) = self.queue_pairs.get_mut(number) {
            pair.responder.message = pair.responder.message.wrapping_add(1);
        }
        let received = Received {
            status: Status::Success,
            data: ReceivedData::Plain,
            source: SERVICE_QPN,
            network: None,
            bytes: message.len() as u64,
            is_solicited: true,
        };
        self.complete_receive(number, &received);
        if let Some(session) = self.sessions.get_mut(number) {
            session.sent();
        }
        Answer::Sent
    }

    /// Copies a message into the receive work request that a queue pair has taken. Returns the
    /// status of a failure.
    fn fill_receive(&self, number: u32, message: &[u8], scratch: &mut Scratch) -> Option<Status> {
        let pair = self.queue_pairs.get(number)?;
        let (segments, len) = (&pair.responder.work.segments, message.len() as u64);
        if capacity(segments) < len {
            return Some(Status::LocalLength);
        }
        let access = self.access(pair.receive_domain(), Rights::LOCAL_WRITE);
        scratch.to.clear();
        let out = (STEP_SPANS_MAX, &mut scratch.to);
        let resolved = access.resolve(segments, Place::default(), len, out);
        if resolved != Ok(len) {
            return Some(Status::LocalProtection);
        }
        let written = Cursor::new(&scratch.to).write(self.queues.map(), message);
        written.is_err().then_some(Status::LocalProtection)
    }

    /// Ends the session of a queue pair that is no longer connected to the service.
    pub(crate) fn check_session(&mut self, number: u32) {
        if self.sessions.is_empty() {
            return;
        }
        let mac = self.mac;
        let is_kept = self.queue_pairs.get(number).is_some_and(|pair| {
            names_service(mac, pair.kind(), pair.attributes())
                && !matches!(pair.state(), State::Reset | State::Error)
        });
        if !is_kept {
            self.sessions.end(number);
        }
    }
}
