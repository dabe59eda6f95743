//! One frontend: its messages go on to causewayd one at a time, and the answers back.
//!
//! Because a message waits until causewayd has taken the one before, there is at
//! most one whose fate is open when causewayd dies; it is sent again after the
//! replay. While causewayd is away nothing is read from the frontend, which sees
//! a backend that takes its time.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_attach::vhost_user::message::{Header, InflightSpec, Message};
use causeway_attach::vhost_user::stream::{Raw, Received, Stream};
use causeway_attach::vhost_user::{FrontendReq as R, VhostUserProtocolFeatures as Protocol};
use causeway_attach::{FaultKind, Reason};
use causeway_host::fd::receive::Incoming;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::inflight::Inflight;
use crate::inner::{Inner, NEEDED, Trouble, is_question};
use crate::limits::{DEATHS_MAX, PARTING_GRACE, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, TRIES_MAX};
use crate::record::Record;
use crate::replay::{RING_PACKED, replay};

/// Where a port's causewayd is; changed by the holder's main thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Counts the causewayds so far, from 1; none while none is there.
    pub life: Option<u64>,
    /// Its socket for this port.
    pub inner: PathBuf,
    /// Queues of the device.
    pub queues: u16,
    /// Largest ring that it takes.
    pub ring_size: u16,
}

/// A route that two threads look at.
pub type SharedRoute = Arc<Mutex<Route>>;

/// Why a relay ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The frontend hung up.
    #[error("the frontend left")]
    Left,
    /// The frontend broke a rule.
    #[error("the frontend broke a rule: {0}")]
    Frontend(Reason),
    /// causewayd is there and hung up: it says why in its own log.
    #[error("causewayd closed the connection")]
    Parted,
    /// causewayd came back and cannot go on with this connection.
    #[error("the connection cannot be taken up again: {0}")]
    Lost(Trouble),
    /// One message ended several causewayds.
    #[error("causewayd ended {DEATHS_MAX} times over one {0:?}")]
    Deadly(R),
    /// The host failed.
    #[error("{0}")]
    Host(#[from] Errno),
}

/// One frontend's connection and all that it has set up.
#[derive(Debug)]
pub struct Relay {
    frontend: Stream,
    inner: Option<Inner>,
    record: Record,
    route: SharedRoute,
    /// The causewayd that `inner` was last made to; 0 is none yet.
    life: u64,
    /// A message that causewayd may not have taken.
    pending: Option<Raw>,
    tries: u32,
    /// Connections that ended while `pending` was under way.
    deaths: u32,
}

/// What to do after a failed exchange.
type Step = Result<(), Trouble>;

impl Relay {
    /// Between the frontend at the other end of `frontend` and whoever `route` leads to.
    pub fn new(frontend: Incoming, route: SharedRoute) -> Self {
        Self {
            frontend: Stream::new(frontend),
            inner: None,
            record: Record::default(),
            route,
            life: 0,
            pending: None,
            tries: 0,
            deaths: 0,
        }
    }

    /// Relays until the frontend leaves or causewayd lets go of it.
    pub fn run(mut self) -> End {
        loop {
            let step = match &self.inner {
                None => self.resume(),
                Some(_) => self.turn(),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    fn route(&self) -> Route {
        self.route.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connects to causewayd once it is there, and tells it all.
    fn resume(&mut self) -> Result<(), End> {
        let lost = Instant::now();
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let route = self.route();
            match route.life {
                Some(life) if life != self.life => {
                    self.life = life;
                    self.tries = 0;
                    return self.connect(&route);
                }
                Some(_) if self.tries > 0 && self.tries < TRIES_MAX => return self.connect(&route),
                Some(_) if lost.elapsed() >= PARTING_GRACE => return Err(End::Parted),
                _ => {}
            }
            self.rest(pause)?;
            pause = pause.saturating_mul(2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Waits a little, unless the frontend leaves.
    fn rest(&self, pause: Duration) -> Result<(), End> {
        let mut frontend = [PollFd::new(&self.frontend, PollFlags::RDHUP)];
        let pause = Timespec::try_from(pause).map_err(|_| Errno::INVAL)?;
        match poll(&mut frontend, Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(End::Left),
            Err(errno) => Err(errno.into()),
        }
    }

    fn connect(&mut self, route: &Route) -> Result<(), End> {
        let outcome = Inner::connect(&route.inner).and_then(|mut inner| {
            replay(&self.record, &mut inner, self.frontend.as_fd())?;
            Ok(inner)
        });
        match outcome {
            Ok(inner) => {
                self.inner = Some(inner);
                self.tries = 0;
                match self.pending.take() {
                    Some(raw) => self.pass(raw),
                    None => Ok(()),
                }
            }
            // It may have gone again, or still be busy with the frontend before.
            Err(Trouble::Gone) => {
                self.tries = self.tries.saturating_add(1);
                self.rest(RETRY_PAUSE_MAX)
            }
            Err(Trouble::Left) => Err(End::Left),
            Err(trouble) => Err(End::Lost(trouble)),
        }
    }

    /// Waits for the frontend's next message, or for causewayd's end.
    fn turn(&mut self) -> Result<(), End> {
        match self.frontend.receive() {
            Ok(Received::Message(raw)) => return self.pass(raw),
            Ok(Received::Closed) => return Err(End::Left),
            Ok(Received::Nothing) => {}
            Err(reason) => return Err(broken(reason)),
        }
        let Some(inner) = &self.inner else { return Ok(()) };
        let mut both =
            [PollFd::new(&self.frontend, PollFlags::IN), PollFd::new(inner, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [_, inner] = both;
        // causewayd never speaks first: whatever is there to read now is its end.
        if !inner.revents().is_empty() {
            self.inner = None;
        }
        Ok(())
    }

    /// Passes one message on, and its answer back.
    fn pass(&mut self, raw: Raw) -> Result<(), End> {
        if raw.header.is_reply() {
            return Err(End::Frontend(Reason::Flags(raw.header.flags)));
        }
        let outcome = self.prepare(&raw).and_then(|()| self.forward(&raw));
        let answer = match outcome {
            Ok(answer) => answer,
            Err(Trouble::Gone | Trouble::Garbled(_)) => {
                self.inner = None;
                self.deaths = self.deaths.saturating_add(1);
                if self.deaths >= DEATHS_MAX {
                    return Err(End::Deadly(raw.request));
                }
                self.pending = Some(raw);
                return Ok(());
            }
            Err(Trouble::Left) => return Err(End::Left),
            Err(trouble) => return Err(End::Lost(trouble)),
        };
        self.deaths = 0;
        let (request, header) = (raw.request, raw.header);
        let taken = self.note(raw, &answer).map_err(broken)?;
        let acks = header.needs_reply() && self.acknowledges();
        if !is_question(request) && !acks {
            return Ok(());
        }
        log::trace!(request:? = request, taken; "answered");
        let payload = withheld(request, &answer.payload);
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let fds: Vec<BorrowedFd<'_>> = match request {
            R::GET_INFLIGHT_FD => answer.fds.iter().map(AsFd::as_fd).collect(),
            _ => Vec::new(),
        };
        let sent = self.frontend.send(Header::reply(request, size), &payload, &fds);
        sent.map_err(broken)
    }

    /// What has to be done before causewayd sees a message.
    fn prepare(&mut self, raw: &Raw) -> Step {
        if raw.request != R::SET_VRING_KICK {
            return Ok(());
        }
        let packed = self.record.features.unwrap_or(0) & RING_PACKED != 0;
        let suits = self.record.inflight.as_ref().is_some_and(|record| record.suits(packed));
        if !suits && !self.record.runs() {
            self.record.inflight = Some(self.make_inflight(packed)?);
        }
        let index = raw.payload.first().map_or(0, |index| u32::from(*index));
        let anew = self
            .record
            .ring(index)
            .is_some_and(|ring| ring.kick.is_none() && ring.stood != Some(ring.stands()));
        if anew && let Some(inflight) = &self.record.inflight {
            inflight.clear(index).map_err(|_| Trouble::Lacking("a record of chains in flight"))?;
        }
        Ok(())
    }

    /// Has causewayd make a record of chains in flight, and use it.
    fn make_inflight(&mut self, packed: bool) -> Result<Inflight, Trouble> {
        let Route { queues, ring_size, .. } = self.route();
        let spec = InflightSpec { len: 0, offset: 0, queues, ring_size, padded: false };
        let inner = self.inner.as_mut().ok_or(Trouble::Gone)?;
        let frontend = self.frontend.as_fd();
        let made = inner.exchange(R::GET_INFLIGHT_FD, &spec.emit(), &[], frontend)?;
        // The answer has the shape of the message by which it is handed back.
        let message = Message::decode(R::SET_INFLIGHT_FD, &made.payload, made.fds)?;
        let Message::SetInflightFd(spec, file) = message else { return Err(Trouble::Gone) };
        inner.tell(R::SET_INFLIGHT_FD, &spec.emit(), &[file.as_fd()], frontend)?;
        Ok(Inflight::ours(spec, file, packed))
    }

    fn forward(&mut self, raw: &Raw) -> Result<Raw, Trouble> {
        let own = match raw.request {
            // What the holder agreed on for itself stays agreed on.
            R::SET_PROTOCOL_FEATURES => Message::decode_number(raw.request, &raw.payload)
                .ok()
                .map(|wanted| (wanted | NEEDED.bits()).to_ne_bytes()),
            _ => None,
        };
        let payload = own.as_ref().map_or(&raw.payload[..], |own| &own[..]);
        let fds: Vec<BorrowedFd<'_>> = raw.fds.iter().map(AsFd::as_fd).collect();
        let inner = self.inner.as_mut().ok_or(Trouble::Gone)?;
        inner.exchange(raw.request, payload, &fds, self.frontend.as_fd())
    }

    /// Notes what causewayd has taken; says whether it has.
    fn note(&mut self, raw: Raw, answer: &Raw) -> Result<bool, Reason> {
        let Raw { request, payload, fds, .. } = raw;
        if request == R::GET_VRING_BASE {
            let stands = Message::decode_ring_value(request, &answer.payload)?;
            self.record.stopped(stands);
            return Ok(true);
        }
        if is_question(request) {
            return Ok(true);
        }
        let taken = Message::decode_number(request, &answer.payload)? == 0;
        if taken {
            self.record.note(Message::decode(request, &payload, fds)?);
        }
        Ok(taken)
    }

    /// Whether the frontend agreed on acknowledgements.
    fn acknowledges(&self) -> bool {
        self.record.protocol.unwrap_or(0) & Protocol::REPLY_ACK.bits() != 0
    }
}

/// An answer without what a held frontend may not use: pages that the causewayd before wrote to
/// would be missing in the log of the next.
fn withheld(request: R, payload: &[u8]) -> Vec<u8> {
    match (request, Message::decode_number(request, payload)) {
        (R::GET_PROTOCOL_FEATURES, Ok(offered)) => {
            (offered & !Protocol::LOG_SHMFD.bits()).to_ne_bytes().to_vec()
        }
        _ => payload.to_vec(),
    }
}

fn broken(reason: Reason) -> End {
    match reason.kind() {
        FaultKind::Connection => End::Left,
        _ => End::Frontend(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_frontend_is_offered_no_log_of_pages() {
        let all = Protocol::all().bits();
        let offered = withheld(R::GET_PROTOCOL_FEATURES, &all.to_ne_bytes());
        assert_eq!(offered, (all & !Protocol::LOG_SHMFD.bits()).to_ne_bytes());
        assert_eq!(withheld(R::GET_FEATURES, &all.to_ne_bytes()), all.to_ne_bytes());
    }
}
