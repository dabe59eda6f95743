//! The relay of one vhost-user frontend: forwards its messages to causewayd one at a time, and the
//! replies back.
//!
//! [`crate::port`] starts the relay in a thread of its own, which may block, also without a time
//! limit; the main thread changes the route. Because a message waits until causewayd has
//! acknowledged its predecessor, at most one message is unacknowledged when causewayd ends; it is
//! sent again after the replay. While causewayd is away the relay reads nothing from the frontend,
//! which sees a slow backend; it looks for the next causewayd every 1 to 50 ms
//! ([`RETRY_PAUSE_MIN`], [`RETRY_PAUSE_MAX`]).
//!
//! Messages and replies pass unchanged, except that the dirty log is not offered, and that the
//! holder's own features are added ([`NEEDED`]). Before a queue starts while none runs, the relay
//! requests and sets an inflight region, unless the frontend has set one, or the relay one for the
//! same ring format; in its own region it clears the part of a queue that restarts. A message is
//! recorded ([`crate::record`]) after its acknowledgement and before the reply to the frontend. A
//! message that causewayd refuses is not recorded; its refusal reaches only a frontend that asked
//! for an acknowledgement. Rings, doorbells and data do not pass here. A flood of messages uses
//! half a processor ([`causeway_attach::allowance`]).
//!
//! The frontend is disconnected if
//!
//! - it violates the protocol, or a clear of its inflight region fails,
//! - causewayd closes the connection, or the relay closes it after an invalid reply, and causewayd
//!   still runs after 250 ms,
//! - causewayd left the holder, and its process still runs 4 s after the end of the connection,
//! - 10 connections to one causewayd end before the replay is complete ([`crate::route`]),
//! - the next causewayd lacks a feature, or refuses or answers invalidly a recorded message,
//! - [`DEATHS_MAX`] (3) causewayds in a row end during one message, or 12 during replays of other
//!   frontends ([`crate::deaths`]).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_attach::allowance::Allowance;
use causeway_attach::vhost_user::message::{Header, InflightSpec, Message};
use causeway_attach::vhost_user::stream::{MessageStream, RawMessage, ReadOutcome};
use causeway_attach::vhost_user::{FrontendReq as R, VhostUserProtocolFeatures as Protocol};
use causeway_attach::{FaultKind, Reason};
use causeway_host::fd::receive::UntrustedSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::deaths::{Deaths, Replays};
use crate::inflight::Inflight;
use crate::inner::{DaemonStream, ExchangeError, NEEDED, expects_reply};
use crate::limits::{DEATHS_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use crate::record::Record;
use crate::replay::{RING_PACKED, replay};
use crate::route::{DaemonRoute, RouteWatch, SharedRoute, Verdict};

/// Why a relay ended.
#[derive(Debug, thiserror::Error)]
pub enum RelayEnd {
    /// The frontend closed its connection.
    #[error("the frontend left")]
    FrontendLeft,
    /// The frontend violated the protocol.
    #[error("the frontend violated the protocol: {0}")]
    Frontend(Reason),
    /// A running causewayd closed the connection; its log has the reason.
    #[error("causewayd closed the connection")]
    DaemonClosed,
    /// The next causewayd cannot continue the connection.
    #[error("the connection cannot continue: {0}")]
    NotResumed(ExchangeError),
    /// Several causewayds ended while they processed the same message.
    #[error("causewayd ended {DEATHS_MAX} times or more while it processed one {0}")]
    RepeatedCrash(String),
    /// A vfio-user frontend violated the protocol.
    #[error("the frontend violated the protocol: {0}")]
    VfioFrontend(causeway_attach::vfio_user::fault::Reason),
    /// The next causewayd refuses a vfio-user command that an earlier causewayd accepted.
    #[error(
        "causewayd refuses vfio-user command {command} of the frontend's set-up with errno {errno}"
    )]
    NotContinued {
        /// The command.
        command: u16,
        /// The errno.
        errno: i32,
    },
    /// The next causewayd sent an invalid reply.
    #[error("invalid reply of causewayd to vfio-user command {0}")]
    InvalidReply(u16),
    /// A system call failed.
    #[error("{0}")]
    Host(#[from] Errno),
}

/// A frontend's connection and its recorded state.
#[derive(Debug)]
pub struct Relay {
    frontend: MessageStream,
    /// The connection to causewayd; `None` while it is away.
    inner: Option<DaemonStream>,
    /// State that the frontend has set up, for the next causewayd.
    record: Record,
    /// The causewayd to forward to.
    watch: RouteWatch,
    /// A message that causewayd has not acknowledged.
    pending: Option<RawMessage>,
    /// Ends of causewayd while `pending` was in progress.
    deaths: Deaths,
}

/// Result of an exchange with causewayd.
type ExchangeResult = Result<(), ExchangeError>;

impl Relay {
    /// Returns a relay between the frontend on `frontend` and the causewayd on `route`. `replays`
    /// are those of the holder.
    pub fn new(frontend: UntrustedSocket, route: SharedRoute, replays: Arc<Replays>) -> Self {
        Self {
            frontend: MessageStream::new(frontend),
            inner: None,
            record: Record::default(),
            watch: RouteWatch::new(route, replays),
            pending: None,
            deaths: Deaths::default(),
        }
    }

    /// Relays until the frontend leaves or its connection must end. Returns the reason, which
    /// [`crate::port`] logs.
    pub fn run(mut self) -> RelayEnd {
        let mut allowance = Allowance::of_thread();
        loop {
            let step = match &self.inner {
                None => self.resume(),
                Some(_) => self.step(),
            };
            let mut pause = || allowance.charge(0).map_or(Ok(()), |pause| self.sleep(pause));
            if let Err(end) = step.and_then(|()| pause()) {
                return end;
            }
        }
    }

    /// Connects to causewayd once it runs, and replays the state.
    fn resume(&mut self) -> Result<(), RelayEnd> {
        let lost = Instant::now();
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            match self.watch.verdict(lost) {
                Verdict::Connect(route) => return self.connect(&route),
                Verdict::Closed => return Err(RelayEnd::DaemonClosed),
                Verdict::Wait => {}
            }
            self.sleep(pause)?;
            pause = pause.saturating_mul(2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Sleeps, unless the frontend leaves.
    fn sleep(&self, pause: Duration) -> Result<(), RelayEnd> {
        let mut frontend = [PollFd::new(&self.frontend, PollFlags::RDHUP)];
        let pause = Timespec::try_from(pause).map_err(|_| Errno::INVAL)?;
        match poll(&mut frontend, Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(RelayEnd::FrontendLeft),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Connects to causewayd, replays the state, and sends the pending message again.
    fn connect(&mut self, route: &DaemonRoute) -> Result<(), RelayEnd> {
        let outcome = DaemonStream::connect(&route.inner).and_then(|mut inner| {
            replay(&self.record, &mut inner, self.frontend.as_fd())?;
            Ok(inner)
        });
        match outcome {
            Ok(inner) => {
                self.inner = Some(inner);
                self.watch.connected();
                match self.pending.take() {
                    Some(raw) => self.forward_with_retry(raw),
                    None => Ok(()),
                }
            }
            // causewayd may have ended again, or still serve the previous frontend.
            Err(ExchangeError::Gone) => {
                self.watch.failed();
                self.sleep(RETRY_PAUSE_MAX)
            }
            Err(ExchangeError::FrontendLeft) => Err(RelayEnd::FrontendLeft),
            Err(error) => Err(RelayEnd::NotResumed(error)),
        }
    }

    /// Waits for the frontend's next message, or for causewayd's end.
    fn step(&mut self) -> Result<(), RelayEnd> {
        match self.frontend.receive() {
            Ok(ReadOutcome::Message(raw)) => return self.forward_with_retry(raw),
            Ok(ReadOutcome::Closed) => return Err(RelayEnd::FrontendLeft),
            Ok(ReadOutcome::Nothing) => {}
            Err(reason) => return Err(end_of(reason)),
        }
        let Some(inner) = &self.inner else { return Ok(()) };
        let mut both =
            [PollFd::new(&self.frontend, PollFlags::IN), PollFd::new(inner, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [_, inner] = both;
        // causewayd sends no unsolicited messages here: readability means its end.
        if !inner.revents().is_empty() {
            self.inner = None;
        }
        Ok(())
    }

    /// Forwards a message to causewayd and the reply to the frontend. If causewayd ends meanwhile,
    /// the message is kept in `pending` and sent again after the replay.
    fn forward_with_retry(&mut self, raw: RawMessage) -> Result<(), RelayEnd> {
        if raw.header.is_reply() {
            return Err(RelayEnd::Frontend(Reason::Flags(raw.header.flags())));
        }
        let outcome = self.prepare(&raw).and_then(|()| self.forward(&raw));
        let answer = match outcome {
            Ok(answer) => answer,
            Err(ExchangeError::Gone | ExchangeError::Garbled(_)) => {
                self.inner = None;
                self.deaths.count(self.watch.is_shared_death());
                if self.deaths.are_too_many() {
                    return Err(RelayEnd::RepeatedCrash(format!("{:?}", raw.header.request)));
                }
                self.pending = Some(raw);
                return Ok(());
            }
            Err(ExchangeError::FrontendLeft) => return Err(RelayEnd::FrontendLeft),
            Err(error) => return Err(RelayEnd::NotResumed(error)),
        };
        self.deaths = Deaths::default();
        let (request, header) = (raw.header.request, raw.header);
        let taken = self.record_acknowledged(raw, &answer).map_err(end_of)?;
        let acks = header.needs_reply() && self.has_reply_ack();
        if !expects_reply(request) && !acks {
            return Ok(());
        }
        log::trace!(request:? = request, taken; "answered");
        let payload = filter_reply(request, &answer.payload);
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let fds: Vec<BorrowedFd<'_>> = match request {
            R::GET_INFLIGHT_FD => answer.fds.iter().map(AsFd::as_fd).collect(),
            _ => Vec::new(),
        };
        let sent = self.frontend.send(Header::reply(request, size), &payload, &fds);
        sent.map_err(end_of)
    }

    /// Prepares the start of a queue: its inflight region must fit, and be clear if the queue
    /// restarts.
    fn prepare(&mut self, raw: &RawMessage) -> ExchangeResult {
        if raw.header.request != R::SET_VRING_KICK {
            return Ok(());
        }
        let packed = self.record.features.unwrap_or(0) & RING_PACKED != 0;
        let suits = self.record.inflight.as_ref().is_some_and(|record| record.suits(packed));
        if !suits && !self.record.is_running() {
            self.record.inflight = Some(self.make_inflight(packed)?);
        }
        let index = raw.payload.first().map_or(0, |index| u32::from(*index));
        let is_restart = self
            .record
            .ring(index)
            .is_some_and(|ring| ring.kick.is_none() && ring.stopped_at != Some(ring.position()));
        if is_restart && let Some(inflight) = &self.record.inflight {
            inflight
                .clear(index)
                .map_err(|_| ExchangeError::Lacking("a record of chains in flight"))?;
        }
        Ok(())
    }

    /// Requests an inflight region from causewayd and sets it.
    fn make_inflight(&mut self, packed: bool) -> Result<Inflight, ExchangeError> {
        let DaemonRoute { queues, ring_size, .. } = self.watch.current();
        let spec = InflightSpec { len: 0, offset: 0, queues, ring_size, padded: false };
        let inner = self.inner.as_mut().ok_or(ExchangeError::Gone)?;
        let frontend = self.frontend.as_fd();
        let made = inner.exchange(R::GET_INFLIGHT_FD, &spec.emit(), &[], frontend)?;
        // The reply has the layout of SET_INFLIGHT_FD.
        let message = Message::decode(R::SET_INFLIGHT_FD, &made.payload, made.fds)?;
        let Message::SetInflightFd(spec, file) = message else { return Err(ExchangeError::Gone) };
        inner.send_checked(R::SET_INFLIGHT_FD, &spec.emit(), &[file.as_fd()], frontend)?;
        Ok(Inflight::ours(spec, file, packed))
    }

    /// Sends a message to causewayd and returns the reply.
    fn forward(&mut self, raw: &RawMessage) -> Result<RawMessage, ExchangeError> {
        let own = match raw.header.request {
            // Keeps the features that the holder needs for itself.
            R::SET_PROTOCOL_FEATURES => Message::decode_number(raw.header.request, &raw.payload)
                .ok()
                .map(|wanted| (wanted | NEEDED.bits()).to_ne_bytes()),
            _ => None,
        };
        let payload = own.as_ref().map_or(&raw.payload[..], |own| &own[..]);
        let fds: Vec<BorrowedFd<'_>> = raw.fds.iter().map(AsFd::as_fd).collect();
        let inner = self.inner.as_mut().ok_or(ExchangeError::Gone)?;
        inner.exchange(raw.header.request, payload, &fds, self.frontend.as_fd())
    }

    /// Records a message if causewayd's answer accepts it. Returns whether causewayd accepted it.
    fn record_acknowledged(
        &mut self,
        raw: RawMessage,
        answer: &RawMessage,
    ) -> Result<bool, Reason> {
        let RawMessage { header, payload, fds, .. } = raw;
        let request = header.request;
        if request == R::GET_VRING_BASE {
            let stands = Message::decode_ring_value(request, &answer.payload)?;
            self.record.stopped(stands);
            return Ok(true);
        }
        if expects_reply(request) {
            return Ok(true);
        }
        let taken = Message::decode_number(request, &answer.payload)? == 0;
        if taken {
            self.record.note(Message::decode(request, &payload, fds)?);
        }
        Ok(taken)
    }

    /// Returns whether the frontend negotiated REPLY_ACK.
    fn has_reply_ack(&self) -> bool {
        self.record.protocol.unwrap_or(0) & Protocol::REPLY_ACK.bits() != 0
    }
}

/// Returns a reply's payload without features that a held frontend cannot use: the dirty log of the
/// next causewayd would miss pages written by its predecessor.
fn filter_reply(request: R, payload: &[u8]) -> Vec<u8> {
    match (request, Message::decode_number(request, payload)) {
        (R::GET_PROTOCOL_FEATURES, Ok(offered)) => {
            (offered & !Protocol::LOG_SHMFD.bits()).to_ne_bytes().to_vec()
        }
        _ => payload.to_vec(),
    }
}

/// Returns why the relay ends after a fault of the frontend's connection.
fn end_of(reason: Reason) -> RelayEnd {
    match reason.kind() {
        FaultKind::Connection => RelayEnd::FrontendLeft,
        _ => RelayEnd::Frontend(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_frontend_is_offered_no_log_of_pages() {
        let all = Protocol::all().bits();
        let offered = filter_reply(R::GET_PROTOCOL_FEATURES, &all.to_ne_bytes());
        assert_eq!(offered, (all & !Protocol::LOG_SHMFD.bits()).to_ne_bytes());
        assert_eq!(filter_reply(R::GET_FEATURES, &all.to_ne_bytes()), all.to_ne_bytes());
    }
}
