//! Events of the transport, handled in order: arriving messages, offers, pulls, and the ends of
//! sends. Decisions of the unexpected handler are handled here, too.
//!
//! [`Library::progress`] handles at most [`ARRIVALS_PER_CALL`] (64) events, then passes waiting
//! sends, pulls and connects to the transport. It returns without sleeping; the caller repeats it
//! while it returns [`ProgressStep::Worked`]. A message or offer without a receive and without room
//! in the unexpected queue (limits: `library::unexpected`) is deferred: the event stays in the
//! transport, later messages of its peer wait behind it, and events of other peers pass, in rings
//! until a limit of their pending queue (`rings::pending`).
//!
//! A peer that breaks the protocol (bytes beyond the end of a pull, or for no running pull) is
//! disconnected, and its requests end as for a lost peer. A pull of an offer that has ended fails
//! at the peer ([`Transport::fail`]) without a disconnect, because it may have crossed the end.
//! Other events with an unknown or outdated token, and messages of a lost peer, are ignored.
//!
//! Called by `causeway-endpoint` (the crate of `clients/endpoint`) in its poll loop, in the thread
//! that holds the lock of the endpoint: a thread of the application, within a call, or the progress
//! or connect thread of the libfabric provider. Ended requests wait in the list `done` until
//! `library::complete` collects them; they count to the limit of requests.

use causeway_wire::mx::{PeerId, Status, Token};

use super::request::{RequestEntry, RequestKind, RequestState};
use super::unexpected::{UnexpectedContent, UnexpectedMessage};
use super::{Buffer, Library, Partner, Transport, TransportEvent, fill};
use crate::limits::ARRIVALS_PER_CALL;

/// Result of [`Library::progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressStep {
    /// No event came, and no waiting request was handed over. Events that were deferred again do
    /// not count.
    Idle,
    /// Some work was done; there may be more.
    Worked,
    /// The caller must run the handler for a message; no event is handled before
    /// [`Library::answer`].
    Ask(HandlerMessage),
    /// The handler has not answered [`Self::Ask`]; no event was handled.
    Asking,
}

/// The message that is offered to the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerMessage {
    /// Sender.
    pub partner: Partner,
    /// Match information.
    pub match_info: u64,
    /// Length, in bytes.
    pub len: u32,
    /// Whether [`Library::asked_bytes`] has the bytes.
    pub whole: bool,
}

/// Decision of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerAction {
    /// The message is matched as without a handler.
    Continue,
    /// The message is dropped: an eager send and a send to the own endpoint succeed, an offered
    /// send ends with [`Status::Truncated`].
    Finished,
}

/// Origin of the message that is offered to the handler.
#[derive(Debug, Clone, Copy)]
pub(super) enum HandlerQuestion {
    /// A message or offer of a peer: the current event of the transport.
    Arrived(TransportEvent),
    /// A send of this endpoint to itself: the index of its request.
    Own(u32),
}

/// Result of handling an event.
enum EventOutcome {
    /// The event was handled.
    Done,
    /// The unexpected queue has no room: the transport keeps the event.
    Deferred,
    /// The handler must decide; the event stays the current event.
    Ask(HandlerMessage),
}

impl<B: Buffer> Library<B> {
    /// Handles at most [`ARRIVALS_PER_CALL`] (64) events, and hands over waiting requests.
    #[inline]
    pub fn progress<T: Transport<B>>(&mut self, transport: &mut T) -> ProgressStep {
        if self.asked.is_some() {
            return ProgressStep::Asking;
        }
        let mut worked = false;
        if !self.own.is_empty()
            && let Some(asked) = self.match_own()
        {
            return ProgressStep::Ask(asked);
        }
        for _ in 0..ARRIVALS_PER_CALL {
            if let Some(more) = self.take_short(transport) {
                worked = true;
                if more {
                    continue;
                }
                break;
            }
            let Some(arrival) = transport.next() else { break };
            match self.take(transport, arrival, false) {
                EventOutcome::Done => {
                    transport.done();
                    worked = true;
                    if !transport.more() {
                        break;
                    }
                }
                EventOutcome::Deferred => transport.defer(),
                EventOutcome::Ask(asked) => {
                    self.asked = Some(HandlerQuestion::Arrived(arrival));
                    return ProgressStep::Ask(asked);
                }
            }
        }
        if !self.retry.is_empty() || !self.busy.is_empty() {
            worked |= self.hand_over_all(transport);
        }
        if worked { ProgressStep::Worked } else { ProgressStep::Idle }
    }

    /// Returns whether [`Self::progress`] has no work other than new events.
    #[inline]
    pub fn is_still(&self) -> bool {
        self.asked.is_none() && self.own.is_empty() && self.retry.is_empty() && self.busy.is_empty()
    }

    /// Hands over requests that waited for room. Returns whether any was accepted.
    fn hand_over_all<T: Transport<B>>(&mut self, transport: &mut T) -> bool {
        let mut waiting = std::mem::take(&mut self.retry);
        let mut worked = false;
        while let Some(at) = waiting.first() {
            self.requests.unlink(&mut waiting, at);
            match self.requests.get(at).map(|request| request.kind) {
                Some(RequestKind::Connect) => self.connect(transport, at),
                _ => self.pull(transport, at),
            }
            let state = self.requests.get(at).map(|request| request.state);
            worked |= !matches!(state, Some(RequestState::WantsPull | RequestState::WantsConnect));
        }
        for _ in 0..self.busy.len() {
            let Some(peer) = self.busy.pop_front() else { break };
            let before = self.handover_mark(peer);
            if self.serve(transport, peer) {
                self.busy.push_back(peer);
            } else if let Some(known) = self.partners.get_mut(peer) {
                known.is_busy = false;
            }
            worked |= before != self.handover_mark(peer);
        }
        worked
    }

    /// Returns a value that changes when a request is handed over to a peer: the first waiting
    /// send, the first fed pull, and the fed bytes of that pull.
    fn handover_mark(&self, peer: PeerId) -> Option<(Option<u32>, Option<u32>, u32)> {
        let known = self.partners.get(peer)?;
        let stream = known.streams.first();
        let at = stream.and_then(|at| self.requests.get(at)).map_or(0, |request| request.at);
        Some((known.waiting.first(), stream, at))
    }

    /// Handles one event. `passed`: the handler let the message through.
    #[inline]
    fn take<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        arrival: TransportEvent,
        passed: bool,
    ) -> EventOutcome {
        match arrival {
            TransportEvent::Message { peer, match_info, len } => {
                return self.message(transport, peer, (match_info, len), passed);
            }
            TransportEvent::Offered { peer, match_info, len, offer } => {
                return self.offered(transport, peer, (match_info, len), offer, passed);
            }
            TransportEvent::Wanted { peer, token, to, len } => {
                self.begin_stream(transport, peer, token, to, len)
            }
            TransportEvent::Fetched { peer, token, len } => {
                if let Some(at) = self.offer_of(peer, token) {
                    self.end_offer(at, Status::Success, len);
                }
            }
            TransportEvent::Push { peer, token } => {
                let offered = self.offer_of(peer, token).and_then(|at| self.requests.get(at));
                if let Some(data) = offered.and_then(|request| request.buffer.as_ref()) {
                    transport.push(data);
                }
            }
            TransportEvent::Chunk { peer, token, len } => {
                self.bytes_of(transport, (peer, token), None, len)
            }
            TransportEvent::Part { peer, token, at, len } => {
                self.bytes_of(transport, (peer, token), Some(at), len);
            }
            TransportEvent::Failed { peer, token } => {
                if let Some(at) = self.pull_of(token, Some(peer)) {
                    self.finish(at, Status::Aborted);
                }
            }
            TransportEvent::Sent { token, status, taken } => self.sent(token, status, taken),
            TransportEvent::Pulled { token, status } => {
                if let Some(at) = self.pull_of(token, None) {
                    let end = self.requests.get(at).map_or(0, |request| request.end);
                    match status {
                        Status::Success => self.end_pull(at, end),
                        status => self.finish(at, status),
                    }
                }
            }
            TransportEvent::Connected { token, status, peer } => {
                self.connected(token, status, peer)
            }
            TransportEvent::PeerSeen { peer, address, session } => {
                // The number is reused: its previous owner is lost.
                self.lose_peer(peer, Status::EndpointUnreachable, 0);
                if self.partners.seen(peer, address, session).is_none() {
                    transport.fail_peer(peer);
                }
            }
            TransportEvent::Unreached { peer, status } => self.end_requests_to(peer, status),
            TransportEvent::PeerGone { peer, status } => {
                self.lose_peer(peer, status, transport.received(peer));
                transport.forget(peer);
            }
        }
        EventOutcome::Done
    }

    /// Returns the peer with that number unless it is lost, which may happen while the handler
    /// runs.
    #[inline]
    pub(super) fn live_partner(&self, peer: PeerId) -> Option<Partner> {
        let known = self.partners.get(peer).filter(|known| known.is_alive)?;
        Some(Partner { peer, epoch: known.epoch })
    }

    /// Handles an eager message. `passed`: the handler let the message through, so that it is kept
    /// even beyond the limits of the unexpected queue.
    #[inline]
    fn message<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        (match_info, len): (u64, u32),
        passed: bool,
    ) -> EventOutcome {
        let Some(partner) = self.live_partner(peer) else { return EventOutcome::Done };
        let size = len as usize;
        if let Some(at) = self.take_posted(peer, match_info) {
            let Some(request) = self.requests.get_mut(at) else { return EventOutcome::Done };
            let into = request.buffer.as_mut();
            let taken =
                into.map_or(0, |into| fill(into, 0, size, |at, piece| transport.copy(at, piece)));
            self.end_whole(at, partner, match_info, len, taken);
            return EventOutcome::Done;
        }
        if !passed && !self.has_room(peer, size) {
            return EventOutcome::Deferred;
        }
        if self.handler && !passed {
            return EventOutcome::Ask(HandlerMessage { partner, match_info, len, whole: true });
        }
        let mut bytes = self.unexpected.buffer(size);
        transport.copy(0, &mut bytes);
        self.keep(partner, match_info, len, UnexpectedContent::Whole(bytes));
        EventOutcome::Done
    }

    /// Handles an offer. `passed` as in [`Self::message`].
    fn offered<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        (match_info, len): (u64, u32),
        offer: u64,
        passed: bool,
    ) -> EventOutcome {
        let Some(partner) = self.live_partner(peer) else { return EventOutcome::Done };
        if let Some(at) = self.take_posted(peer, match_info) {
            self.match_offer(at, partner, match_info, len, offer);
            self.pull(transport, at);
            return EventOutcome::Done;
        }
        if !passed && !self.has_room(peer, 0) {
            return EventOutcome::Deferred;
        }
        if self.handler && !passed {
            return EventOutcome::Ask(HandlerMessage { partner, match_info, len, whole: false });
        }
        self.keep(partner, match_info, len, UnexpectedContent::Offered(offer));
        EventOutcome::Done
    }

    /// Returns whether a message of `len` bytes fits into the unexpected queue of a peer.
    fn has_room(&mut self, peer: PeerId, len: usize) -> bool {
        let kept = self.partners.get(peer).map(|known| known.kept).unwrap_or_default();
        let room = self.unexpected.has_room_for(kept, len);
        self.unexpected.note_room(room);
        room
    }

    /// Appends a message to the unexpected queue of its context.
    fn keep(&mut self, partner: Partner, match_info: u64, len: u32, content: UnexpectedContent) {
        if let Some(known) = self.partners.get_mut(partner.peer) {
            known.kept.messages = known.kept.messages.saturating_add(1);
            known.kept.bytes = known.kept.bytes.saturating_add(content.bytes());
        }
        self.counters.unexpected = self.counters.unexpected.wrapping_add(1);
        let order = self.unexpected.next_order();
        let source = self.source(partner.peer).unwrap_or(self.own_source());
        let message = UnexpectedMessage { partner, source, match_info, len, content, order };
        if let Some(queues) = self.contexts.of_mut(match_info) {
            self.unexpected.insert(&mut queues.unexpected, message);
        }
    }

    /// Handles a pull of `len` bytes by a peer, and feeds its first bytes. The offer may have
    /// ended, or the peer may have invented it; then the pull fails.
    fn begin_stream<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        token: Token,
        to: u64,
        len: u32,
    ) {
        let Some(at) = self.offer_of(peer, token) else {
            transport.fail(peer, to);
            return;
        };
        let Some(request) = self.requests.get_mut(at) else { return };
        request.other = to;
        request.at = 0;
        request.end = len.min(request.len);
        if request.end == 0 {
            let status = if request.len > 0 { Status::Truncated } else { Status::Success };
            self.finish(at, status);
            return;
        }
        request.state = RequestState::Streaming;
        request.deadline = u64::MAX;
        if let Some(known) = self.partners.get_mut(peer) {
            self.requests.push(&mut known.streams, at);
        }
        if self.partners.get(peer).is_some_and(|known| !known.is_busy)
            && self.serve(transport, peer)
        {
            self.list(peer);
        }
    }

    /// Returns the send that is offered to that peer under that token.
    fn offer_of(&self, peer: PeerId, token: Token) -> Option<u32> {
        self.requests.find(token.0).filter(|&at| {
            self.requests.get(at).is_some_and(|request| {
                request.state == RequestState::Offered
                    && request.partner().is_some_and(|partner| partner.peer == peer)
            })
        })
    }

    /// Handles `len` bytes of a pull, from byte `at` of the message on; without `at`, the next
    /// bytes in order. A short copy starts the pull again from its first byte.
    fn bytes_of<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        (peer, token): (PeerId, Token),
        at: Option<u32>,
        len: u32,
    ) {
        let Some(place) = self.pull_of(token, Some(peer)) else {
            transport.fail_peer(peer);
            return;
        };
        let Some(request) = self.requests.get_mut(place) else { return };
        let done = request.at.saturating_add(len);
        let from = at.unwrap_or(request.at);
        let end = from.saturating_add(len);
        if done > request.end || end > request.end || len == 0 {
            transport.fail_peer(peer);
            return;
        }
        let mut cut = false;
        if let Some(into) = &mut request.buffer {
            fill(into, from as usize, end as usize, |at, piece| {
                let copied = transport.copy(at, piece);
                cut |= copied < piece.len();
                copied
            });
        }
        if cut {
            request.at = 0;
            return;
        }
        request.at = done;
        if done == request.end {
            self.end_pull(place, done);
        }
    }

    /// Returns the receive that pulls under that token, from that peer.
    fn pull_of(&self, token: Token, peer: Option<PeerId>) -> Option<u32> {
        let at = self.requests.find(token.0)?;
        let request = self.requests.get(at)?;
        let from = request.partner().map(|partner| partner.peer);
        (request.state == RequestState::Pulling && (peer.is_none() || from == peer)).then_some(at)
    }

    /// Handles the end of a send, or the confirmation of an early completed send.
    fn sent(&mut self, token: Token, status: Status, taken: u32) {
        if token == Token::UNREPORTED {
            // Only failures are reported under this token.
            self.losses.end_unreported(status);
            return;
        }
        let Some(at) = self.requests.find(token.0) else { return };
        let Some(request) = self.requests.get_mut(at) else { return };
        match request.state {
            RequestState::Done | RequestState::Detached if request.unacked => {
                self.confirmed(at, status)
            }
            RequestState::Unacked => {
                if status == Status::Success
                    && let Some(partner) = request.partner()
                {
                    self.partners.acked(partner);
                }
                let Some(request) = self.requests.get_mut(at) else { return };
                request.at = if status == Status::Success { request.len } else { 0 };
                self.finish(at, status);
            }
            RequestState::Offered => self.end_offer(at, status, taken),
            _ => {}
        }
    }

    /// Ends an offer of which `taken` bytes were pulled.
    fn end_offer(&mut self, at: u32, status: Status, taken: u32) {
        let Some(request) = self.requests.get_mut(at) else { return };
        request.at = taken.min(request.len);
        let cut = status == Status::Success && request.at < request.len;
        self.finish(at, if cut { Status::Truncated } else { status });
    }

    /// Matches sends to this endpoint, up to the next message for the handler.
    fn match_own(&mut self) -> Option<HandlerMessage> {
        while let Some(at) = self.own.first() {
            self.requests.unlink(&mut self.own, at);
            let request = self.requests.get_mut(at)?;
            request.state = RequestState::OwnUnexpected;
            let (match_info, len) = (request.match_info, request.len);
            if let Some(receive) = self.take_posted(Partner::SELF.peer, match_info) {
                self.deliver_own(at, receive);
            } else if self.handler {
                self.asked = Some(HandlerQuestion::Own(at));
                return Some(HandlerMessage {
                    partner: Partner::SELF,
                    match_info,
                    len,
                    whole: true,
                });
            } else {
                self.keep_own(at);
            }
        }
        None
    }

    /// Copies the first bytes of the message that is offered to the handler, if it has them
    /// ([`HandlerMessage::whole`]), and returns their number.
    pub fn asked_bytes<T: Transport<B>>(&self, transport: &T, into: &mut [u8]) -> usize {
        match self.asked {
            Some(HandlerQuestion::Arrived(TransportEvent::Message { .. })) => {
                transport.copy(0, into)
            }
            Some(HandlerQuestion::Own(at)) => self.own_bytes(at, into),
            _ => 0,
        }
    }

    /// Continues with the message that was offered to the handler. No effect if none is offered, as
    /// in a second call. The message of a peer that was lost meanwhile is dropped.
    pub fn answer<T: Transport<B>>(&mut self, transport: &mut T, action: HandlerAction) {
        match (self.asked.take(), action) {
            (Some(HandlerQuestion::Arrived(arrival)), HandlerAction::Continue) => {
                self.take(transport, arrival, true);
                transport.done();
            }
            (Some(HandlerQuestion::Arrived(arrival)), HandlerAction::Finished) => {
                if let TransportEvent::Offered { peer, match_info, len, offer } = arrival {
                    self.turn_down(transport, peer, match_info, len, offer);
                }
                transport.done();
            }
            (Some(HandlerQuestion::Own(at)), HandlerAction::Continue) => {
                let info = self.requests.get(at).map_or(0, |request| request.match_info);
                match self.take_posted(Partner::SELF.peer, info) {
                    Some(receive) => self.deliver_own(at, receive),
                    None => self.keep_own(at),
                }
            }
            (Some(HandlerQuestion::Own(at)), HandlerAction::Finished) => {
                if let Some(request) = self.requests.get_mut(at) {
                    request.at = request.len;
                }
                self.finish(at, Status::Success);
            }
            (None, _) => {}
        }
    }

    /// Refuses an offer: pulls 0 bytes, which ends the send at the sender. If the table of requests
    /// is full, the refusal is neither sent nor repeated: the send then ends with its time limit or
    /// the loss of this peer.
    pub(super) fn turn_down<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        match_info: u64,
        len: u32,
        offer: u64,
    ) {
        let Some(partner) = self.live_partner(peer) else { return };
        let mut request =
            RequestEntry::new(RequestKind::Receive, RequestState::WantsPull, match_info, 0);
        request.forgotten = true;
        if let Ok(at) = self.add(request) {
            self.match_offer(at, partner, match_info, len, offer);
            self.pull(transport, at);
        }
    }
}
