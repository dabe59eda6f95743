//! Events of the transport, handled in order: arriving messages, offers, pulls, and the ends of
//! sends. Replies to the unexpected handler are handled here, too.

use causeway_wire::mx::{PeerId, Status, Token};

use super::request::{Kind, Request, State};
use super::unexpected::{Content, Message};
use super::{Arrival, Buffer, Library, Partner, Transport, fill};
use crate::limits::ARRIVALS_PER_CALL;

/// Result of [`Library::progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// No event came, and no waiting request was handed over.
    Idle,
    /// Some work was done; there may be more.
    Worked,
    /// The caller must run the handler for a message; no event is handled before
    /// [`Library::answer`].
    Ask(Asked),
    /// The handler is running.
    Asking,
}

/// The message that is offered to the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
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
pub enum Action {
    /// The message is matched as without a handler.
    Continue,
    /// The message is dropped.
    Finished,
}

/// Origin of the message that is offered to the handler.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    Arrived(Arrival),
    Own(u32),
}

/// Result of handling an event.
enum Verdict {
    Taken,
    Later,
    Ask(Asked),
}

impl<B: Buffer> Library<B> {
    /// Handles events and hands over waiting requests, at most [`ARRIVALS_PER_CALL`] events.
    #[inline]
    pub fn progress<T: Transport<B>>(&mut self, way: &mut T) -> Step {
        if self.asked.is_some() {
            return Step::Asking;
        }
        let mut worked = false;
        if !self.own.is_empty()
            && let Some(asked) = self.look_at_own()
        {
            return Step::Ask(asked);
        }
        for _ in 0..ARRIVALS_PER_CALL {
            if let Some(more) = self.take_short(way) {
                worked = true;
                if more {
                    continue;
                }
                break;
            }
            let Some(arrival) = way.next() else { break };
            match self.take(way, arrival, false) {
                Verdict::Taken => {
                    way.done();
                    worked = true;
                    if !way.more() {
                        break;
                    }
                }
                Verdict::Later => way.defer(),
                Verdict::Ask(asked) => {
                    self.asked = Some(Question::Arrived(arrival));
                    return Step::Ask(asked);
                }
            }
        }
        if !self.retry.is_empty() || !self.busy.is_empty() {
            worked |= self.hand_over_all(way);
        }
        if worked { Step::Worked } else { Step::Idle }
    }

    /// Returns whether [`Self::progress`] has no work other than new events.
    #[inline]
    pub fn is_still(&self) -> bool {
        self.asked.is_none() && self.own.is_empty() && self.retry.is_empty() && self.busy.is_empty()
    }

    /// Hands over requests that waited for room. Returns whether any was accepted.
    fn hand_over_all<T: Transport<B>>(&mut self, way: &mut T) -> bool {
        let mut waiting = std::mem::take(&mut self.retry);
        let mut worked = false;
        while let Some(at) = waiting.first() {
            self.requests.unlink(&mut waiting, at);
            match self.requests.get(at).map(|request| request.kind) {
                Some(Kind::Connect) => self.connect(way, at),
                _ => self.pull(way, at),
            }
            let state = self.requests.get(at).map(|request| request.state);
            worked |= !matches!(state, Some(State::WantsPull | State::WantsConnect));
        }
        for _ in 0..self.busy.len() {
            let Some(peer) = self.busy.pop_front() else { break };
            let before = self.sent_to(peer);
            if self.serve(way, peer) {
                self.busy.push_back(peer);
            } else if let Some(known) = self.partners.get_mut(peer) {
                known.listed = false;
            }
            worked |= before != self.sent_to(peer);
        }
        worked
    }

    /// Returns a value that changes when a request is handed over to a peer.
    fn sent_to(&self, peer: PeerId) -> Option<(Option<u32>, Option<u32>, u32)> {
        let known = self.partners.get(peer)?;
        let stream = known.streams.first();
        let at = stream.and_then(|at| self.requests.get(at)).map_or(0, |request| request.at);
        Some((known.waiting.first(), stream, at))
    }

    /// Handles one event. `passed`: the handler let the message through.
    #[inline]
    fn take<T: Transport<B>>(&mut self, way: &mut T, arrival: Arrival, passed: bool) -> Verdict {
        match arrival {
            Arrival::Message { peer, match_info, len } => {
                return self.message(way, peer, (match_info, len), passed);
            }
            Arrival::Offered { peer, match_info, len, offer } => {
                return self.offered(way, peer, (match_info, len), offer, passed);
            }
            Arrival::Wanted { peer, token, to, len } => self.wanted(way, peer, token, to, len),
            Arrival::Fetched { peer, token, len } => {
                if let Some(at) = self.offered_to(peer, token) {
                    self.end_offer(at, Status::Success, len);
                }
            }
            Arrival::Push { peer, token } => {
                let offered = self.offered_to(peer, token).and_then(|at| self.requests.get(at));
                if let Some(data) = offered.and_then(|request| request.buffer.as_ref()) {
                    way.push(data);
                }
            }
            Arrival::Chunk { peer, token, len } => self.bytes_of(way, (peer, token), None, len),
            Arrival::Part { peer, token, at, len } => {
                self.bytes_of(way, (peer, token), Some(at), len);
            }
            Arrival::Failed { peer, token } => {
                if let Some(at) = self.pulling(token, Some(peer)) {
                    self.finish(at, Status::Aborted);
                }
            }
            Arrival::Sent { token, status, taken } => self.sent(token, status, taken),
            Arrival::Pulled { token, status } => {
                if let Some(at) = self.pulling(token, None) {
                    let end = self.requests.get(at).map_or(0, |request| request.end);
                    match status {
                        Status::Success => self.end_pull(at, end),
                        status => self.finish(at, status),
                    }
                }
            }
            Arrival::Connected { token, status, peer } => self.connected(token, status, peer),
            Arrival::PeerSeen { peer, address, session } => {
                // The number is reused: its previous owner is lost.
                self.part(peer, Status::EndpointUnreachable, 0);
                if self.partners.seen(peer, address, session).is_none() {
                    way.broken(peer);
                }
            }
            Arrival::Unreached { peer, status } => self.end_all(peer, status),
            Arrival::PeerGone { peer, status } => {
                self.part(peer, status, way.received(peer));
                way.forget(peer);
            }
        }
        Verdict::Taken
    }

    /// Returns the peer with that number unless it is lost, which may happen while the handler
    /// runs.
    #[inline]
    pub(super) fn alive(&self, peer: PeerId) -> Option<Partner> {
        let known = self.partners.get(peer).filter(|known| known.alive)?;
        Some(Partner { peer, epoch: known.epoch })
    }

    /// Handles an eager message.
    #[inline]
    fn message<T: Transport<B>>(
        &mut self,
        way: &mut T,
        peer: PeerId,
        (match_info, len): (u64, u32),
        passed: bool,
    ) -> Verdict {
        let Some(partner) = self.alive(peer) else { return Verdict::Taken };
        let size = len as usize;
        if let Some(at) = self.take_posted(peer, match_info) {
            let Some(request) = self.requests.get_mut(at) else { return Verdict::Taken };
            let into = request.buffer.as_mut();
            let taken = into.map_or(0, |into| fill(into, 0, size, |at, piece| way.copy(at, piece)));
            self.end_whole(at, partner, match_info, len, taken);
            return Verdict::Taken;
        }
        if !passed && !self.has_room(peer, size) {
            return Verdict::Later;
        }
        if self.handler && !passed {
            return Verdict::Ask(Asked { partner, match_info, len, whole: true });
        }
        let mut bytes = self.unexpected.buffer(size);
        way.copy(0, &mut bytes);
        self.keep(partner, match_info, len, Content::Whole(bytes));
        Verdict::Taken
    }

    /// Handles an offer.
    fn offered<T: Transport<B>>(
        &mut self,
        way: &mut T,
        peer: PeerId,
        (match_info, len): (u64, u32),
        offer: u64,
        passed: bool,
    ) -> Verdict {
        let Some(partner) = self.alive(peer) else { return Verdict::Taken };
        if let Some(at) = self.take_posted(peer, match_info) {
            self.match_offer(at, partner, match_info, len, offer);
            self.pull(way, at);
            return Verdict::Taken;
        }
        if !passed && !self.has_room(peer, 0) {
            return Verdict::Later;
        }
        if self.handler && !passed {
            return Verdict::Ask(Asked { partner, match_info, len, whole: false });
        }
        self.keep(partner, match_info, len, Content::Offered(offer));
        Verdict::Taken
    }

    /// Returns whether a message of `len` bytes fits into the unexpected queue of a peer.
    fn has_room(&mut self, peer: PeerId, len: usize) -> bool {
        let kept = self.partners.get(peer).map(|known| known.kept).unwrap_or_default();
        let room = self.unexpected.has_room_for(kept, len);
        self.crowded |= !room;
        room
    }

    /// Appends a message to the unexpected queue of its context.
    fn keep(&mut self, partner: Partner, match_info: u64, len: u32, content: Content) {
        if let Some(known) = self.partners.get_mut(partner.peer) {
            known.kept.messages = known.kept.messages.saturating_add(1);
            known.kept.bytes = known.kept.bytes.saturating_add(content.bytes());
        }
        self.counters.unexpected = self.counters.unexpected.wrapping_add(1);
        let order = self.unexpected.next_order();
        let source = self.source(partner.peer).unwrap_or(self.own_source());
        let message = Message { partner, source, match_info, len, content, order };
        if let Some(at) = self.unexpected.messages.insert(message)
            && let Some(queues) = self.contexts.of_mut(match_info)
        {
            self.unexpected.messages.push(&mut queues.unexpected, at);
        }
    }

    /// Handles a pull by a peer. The offer may have ended, or the peer may have invented it; then
    /// the pull fails.
    fn wanted<T: Transport<B>>(
        &mut self,
        way: &mut T,
        peer: PeerId,
        token: Token,
        to: u64,
        len: u32,
    ) {
        let Some(at) = self.offered_to(peer, token) else {
            way.fail(peer, to);
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
        request.state = State::Streaming;
        request.deadline = u64::MAX;
        if let Some(known) = self.partners.get_mut(peer) {
            self.requests.push(&mut known.streams, at);
        }
        if self.partners.get(peer).is_some_and(|known| !known.listed) && self.serve(way, peer) {
            self.list(peer);
        }
    }

    /// Returns the send that is offered to that peer under that token.
    fn offered_to(&self, peer: PeerId, token: Token) -> Option<u32> {
        self.requests.find(token.0).filter(|&at| {
            self.requests.get(at).is_some_and(|request| {
                request.state == State::Offered
                    && request.partner().is_some_and(|partner| partner.peer == peer)
            })
        })
    }

    /// Handles bytes of a pull: from `at` on, or the next bytes without it.
    fn bytes_of<T: Transport<B>>(
        &mut self,
        way: &mut T,
        (peer, token): (PeerId, Token),
        at: Option<u32>,
        len: u32,
    ) {
        let Some(place) = self.pulling(token, Some(peer)) else {
            way.broken(peer);
            return;
        };
        let Some(request) = self.requests.get_mut(place) else { return };
        let done = request.at.saturating_add(len);
        let from = at.unwrap_or(request.at);
        let end = from.saturating_add(len);
        if done > request.end || end > request.end || len == 0 {
            way.broken(peer);
            return;
        }
        let mut cut = false;
        if let Some(into) = &mut request.buffer {
            fill(into, from as usize, end as usize, |at, piece| {
                let copied = way.copy(at, piece);
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
    fn pulling(&self, token: Token, peer: Option<PeerId>) -> Option<u32> {
        let at = self.requests.find(token.0)?;
        let request = self.requests.get(at)?;
        let from = request.partner().map(|partner| partner.peer);
        (request.state == State::Pulling && (peer.is_none() || from == peer)).then_some(at)
    }

    /// Handles the end of a send, or the confirmation of an early completed send.
    fn sent(&mut self, token: Token, status: Status, taken: u32) {
        if token == Token::UNREPORTED {
            // Only failures are reported under this token.
            self.lost = Some(status).filter(|status| *status != Status::Success).or(self.lost);
            return;
        }
        let Some(at) = self.requests.find(token.0) else { return };
        let Some(request) = self.requests.get_mut(at) else { return };
        match request.state {
            State::Done | State::Detached if request.unacked => self.confirmed(at, status),
            State::Unacked => {
                if status == Status::Success
                    && let Some(partner) = request.partner()
                {
                    self.partners.acked(partner);
                }
                let Some(request) = self.requests.get_mut(at) else { return };
                request.at = if status == Status::Success { request.len } else { 0 };
                self.finish(at, status);
            }
            State::Offered => self.end_offer(at, status, taken),
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
    fn look_at_own(&mut self) -> Option<Asked> {
        while let Some(at) = self.own.first() {
            self.requests.unlink(&mut self.own, at);
            let request = self.requests.get_mut(at)?;
            request.state = State::OwnUnexpected;
            let (match_info, len) = (request.match_info, request.len);
            if let Some(receive) = self.take_posted(Partner::SELF.peer, match_info) {
                self.deliver_own(at, receive);
            } else if self.handler {
                self.asked = Some(Question::Own(at));
                return Some(Asked { partner: Partner::SELF, match_info, len, whole: true });
            } else {
                self.keep_own(at);
            }
        }
        None
    }

    /// Copies the first bytes of the message that is offered to the handler, if it has them
    /// ([`Asked::whole`]), and returns their number.
    pub fn asked_bytes<T: Transport<B>>(&self, way: &T, into: &mut [u8]) -> usize {
        match self.asked {
            Some(Question::Arrived(Arrival::Message { .. })) => way.copy(0, into),
            Some(Question::Own(at)) => self.own_bytes(at, into),
            _ => 0,
        }
    }

    /// Continues with the message that was offered to the handler.
    pub fn answer<T: Transport<B>>(&mut self, way: &mut T, action: Action) {
        match (self.asked.take(), action) {
            (Some(Question::Arrived(arrival)), Action::Continue) => {
                self.take(way, arrival, true);
                way.done();
            }
            (Some(Question::Arrived(arrival)), Action::Finished) => {
                if let Arrival::Offered { peer, match_info, len, offer } = arrival {
                    self.turn_down(way, peer, match_info, len, offer);
                }
                way.done();
            }
            (Some(Question::Own(at)), Action::Continue) => {
                let info = self.requests.get(at).map_or(0, |request| request.match_info);
                match self.take_posted(Partner::SELF.peer, info) {
                    Some(receive) => self.deliver_own(at, receive),
                    None => self.keep_own(at),
                }
            }
            (Some(Question::Own(at)), Action::Finished) => {
                if let Some(request) = self.requests.get_mut(at) {
                    request.at = request.len;
                }
                self.finish(at, Status::Success);
            }
            (None, _) => {}
        }
    }

    /// Pulls 0 bytes of an offer, which completes its sender.
    pub(super) fn turn_down<T: Transport<B>>(
        &mut self,
        way: &mut T,
        peer: PeerId,
        match_info: u64,
        len: u32,
        offer: u64,
    ) {
        let Some(partner) = self.alive(peer) else { return };
        let mut request = Request::new(Kind::Receive, State::WantsPull, match_info, 0);
        request.forgotten = true;
        if let Ok(at) = self.add(request) {
            self.match_offer(at, partner, match_info, len, offer);
            self.pull(way, at);
        }
    }
}
