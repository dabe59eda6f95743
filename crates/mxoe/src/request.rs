//! Requests of the host side: validation, limits, and the first step of each.
//!
//! Connects continue in [`connect`](crate::connect), messages in [`transmit`](crate::transmit),
//! pulls in [`pull`](crate::pull). A request that names an unknown peer, handle or region is
//! counted as `wrong_requests` and, if it has a token, ends with an error event; it does not close
//! the endpoint. A message of more than 32 KiB likewise ends with `NoResources` (in a ring, the
//! driver takes it for a broken rule before). A disconnect ends the peer here and sends no packet;
//! a local peer ends too.
//!
//! Limits of an endpoint: [`SENDS_MAX`] (16,384) sends of together [`SEND_BYTES_MAX`] (16 MiB)
//! eager bytes, [`CONNECTS_MAX`](crate::limits::CONNECTS_MAX) (256) connects, and
//! [`OUTBOX_MAX`](crate::limits::OUTBOX_MAX) (1,024) waiting events, at which requests of all kinds
//! are deferred. At a limit the result is [`Admission::Later`]; the caller repeats the request
//! before later ones.
//!
//! A cancel is linear in the sends of the endpoint. The cancelled operation ends at once with
//! `Cancelled`: a message in flight is retransmitted and delivered nevertheless, without a second
//! event; pulls of a cancelled offer are refused; bytes that a cancelled pull wrote stay. A cancel
//! of an unknown or ended token has no effect. Called by [`Nic::request`](crate::Nic::request) for
//! each request of the ring that [`local::deliver`](crate::local::deliver) did not perform, and for
//! regions and unreported sends.

use causeway_wire::mx::{Event, PeerId, RegionId, Request, Status, Token, Window};

use crate::Admission;
use crate::context::{EngineContext, count};
use crate::endpoint::NicEndpoint;
use crate::limits::{EARLY_SENDS_MAX, MEDIUM_BYTES_MAX, SEND_BYTES_MAX, SENDS_MAX};
use crate::offers::OfferState;
use crate::peer::{MessageContent, QueuedMessage};

/// The position of a message to cancel.
enum CancelTarget {
    /// Index in the queue of a peer.
    Queued(PeerId, usize),
    /// Index in the messages in flight to a peer.
    InFlight(PeerId, usize),
}

impl NicEndpoint {
    /// Performs a request.
    pub(crate) fn request(
        &mut self,
        ctx: &mut EngineContext<'_>,
        request: &Request<'_>,
    ) -> Admission {
        if self.outbox.is_full() {
            return Admission::Later;
        }
        match *request {
            Request::Connect { token, to, key, timeout_ns } => {
                return self.connect(ctx, token, to, key, timeout_ns);
            }
            Request::Disconnect { peer } => {
                if self.peers.get(peer).is_some_and(|remote| remote.is_reported) {
                    self.end_peer(ctx, peer, Status::EndpointUnreachable);
                } else {
                    count(&mut self.counters.wrong_requests);
                }
            }
            Request::Forget { peer } => {
                if !self.peers.forget(peer) {
                    count(&mut self.counters.wrong_requests);
                }
            }
            Request::Eager { peer, token, match_info, data } => {
                return self.send_eager(ctx, peer, token, match_info, data);
            }
            Request::Offer { peer, token, match_info, from } => {
                return self.send_offer(ctx, peer, token, match_info, from);
            }
            Request::Pull { handle, token, into } => self.pull(ctx, handle, token, into),
            Request::Watch { peer, on } => self.watch(ctx, peer, on),
            Request::Cancel { token } => self.cancel(ctx, token),
        }
        self.deliver_offers(ctx);
        Admission::Yes
    }

    /// Returns the reason if nothing can be sent to a peer.
    fn unsendable(&mut self, peer: PeerId) -> Option<Status> {
        match self.peers.get(peer) {
            Some(remote) if remote.is_reported => None,
            _ => {
                count(&mut self.counters.wrong_requests);
                Some(Status::EndpointUnreachable)
            }
        }
    }

    /// Queues a message that is sent whole, at most [`MEDIUM_BYTES_MAX`] (32 KiB).
    fn send_eager(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &[u8],
    ) -> Admission {
        let bytes = self.sends.bytes.saturating_add(data.len());
        if self.sends.messages >= SENDS_MAX || bytes > SEND_BYTES_MAX {
            return Admission::Later;
        }
        let mut refused = self.unsendable(peer);
        if data.len() > MEDIUM_BYTES_MAX {
            count(&mut self.counters.wrong_requests);
            refused = Some(Status::NoResources);
        }
        if let Some(status) = refused {
            self.report(ctx, Event::Sent { token, status, taken: 0 });
            return Admission::Yes;
        }
        self.sends.messages = self.sends.messages.saturating_add(1);
        self.sends.bytes = bytes;
        let unreported = usize::from(token == Token::UNREPORTED);
        self.sends.unreported = self.sends.unreported.saturating_add(unreported);
        let content = MessageContent::Eager { match_info, data: ctx.pool.with(data) };
        self.enqueue(ctx, peer, message(token, content));
        Admission::Yes
    }

    /// Sends a message; success is not reported. Returns false if nothing was done; then the
    /// caller must submit a request instead.
    pub(crate) fn send_unreported(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        match_info: u64,
        data: &[u8],
    ) -> bool {
        let may = self.admits_unreported()
            && data.len() <= MEDIUM_BYTES_MAX
            && !self.outbox.is_full()
            && self.peers.get(peer).is_some_and(|remote| remote.is_reported);
        may && self.send_eager(ctx, peer, Token::UNREPORTED, match_info, data) == Admission::Yes
    }

    /// Returns whether another unreported send is admitted.
    pub(crate) fn admits_unreported(&self) -> bool {
        self.sends.unreported < EARLY_SENDS_MAX
    }

    /// Queues the offer of a large message in a region.
    fn send_offer(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        token: Token,
        match_info: u64,
        from: Window,
    ) -> Admission {
        if self.sends.messages >= SENDS_MAX {
            return Admission::Later;
        }
        let mut refused = self.unsendable(peer);
        if !self.is_registered(from) {
            count(&mut self.counters.wrong_requests);
            refused = Some(Status::BadRdmaWindow);
        }
        if let Some(status) = refused {
            self.report(ctx, Event::Sent { token, status, taken: 0 });
            return Admission::Yes;
        }
        self.sends.messages = self.sends.messages.saturating_add(1);
        let content = MessageContent::Offer { match_info, from, window: None };
        self.enqueue(ctx, peer, message(token, content));
        Admission::Yes
    }

    /// Returns whether a window lies within its region. An empty window always does.
    pub(crate) fn is_registered(&self, window: Window) -> bool {
        let region = self.regions.get(usize::from(window.region.0)).copied().flatten();
        let end = window.offset.checked_add(window.len.into());
        window.len == 0 || matches!((region, end), (Some(len), Some(end)) if end <= len)
    }

    /// Registers a region of `len` bytes. Returns `None` if all numbers are in use.
    pub(crate) fn region_add(&mut self, len: u64) -> Option<RegionId> {
        let at = self.regions.iter().position(Option::is_none)?;
        *self.regions.get_mut(at)? = Some(len);
        u8::try_from(at).ok().map(RegionId)
    }

    /// Removes a region and ends its offers and pulls. Returns whether it was registered.
    pub(crate) fn region_remove(&mut self, ctx: &mut EngineContext<'_>, region: RegionId) -> bool {
        let place = self.regions.get_mut(usize::from(region.0));
        if place.is_none_or(|place| place.take().is_none()) {
            return false;
        }
        // Queued offers first, so that none of them takes a window of a withdrawn offer.
        self.end_queued_offers(ctx, region);
        for (number, open) in self.windows.all(|open| open.from.region == region) {
            self.withdraw(ctx, number, open, Status::BadRdmaWindow);
        }
        let into = |state: &OfferState| state.pull().map(|(_, into)| into.region);
        for handle in self.offers.all(|offer| into(&offer.state) == Some(region)) {
            self.end_pull(ctx, handle, Status::BadRdmaWindow);
        }
        self.deliver_offers(ctx);
        true
    }

    /// Ends the offers of a region that have no window yet.
    fn end_queued_offers(&mut self, ctx: &mut EngineContext<'_>, region: RegionId) {
        let of_region = |message: &QueuedMessage| {
            let MessageContent::Offer { from, window: None, .. } = &message.content else {
                return false;
            };
            from.region == region
        };
        let mut from = 0;
        while let Some(peer) = self.peers.first_from(from) {
            from = peer.0.saturating_add(1);
            let Some(remote) = self.peers.get_mut(peer) else { continue };
            let queue = &mut remote.send.queue;
            if !queue.iter().any(of_region) {
                continue;
            }
            let (ended, left): (Vec<_>, Vec<_>) = queue.drain(..).partition(of_region);
            queue.extend(left);
            for message in ended {
                self.end_message(ctx, message, Status::BadRdmaWindow);
            }
            // The messages behind them may be sent now.
            self.pump(ctx, peer);
        }
    }

    /// Cancels the operation of a token, if it has not ended.
    fn cancel(&mut self, ctx: &mut EngineContext<'_>, token: Token) {
        if self.cancel_connect(ctx, token) {
            return;
        }
        if let Some((number, open)) = self.windows.find(|open| open.token == token) {
            self.windows.mark_cancelled(number);
            self.withdraw(ctx, number, open, Status::Cancelled);
            return;
        }
        let is_pull = |state: &OfferState| state.pull().is_some_and(|(other, _)| other == token);
        if let Some(handle) = self.offers.find(|offer| is_pull(&offer.state)) {
            self.end_pull(ctx, handle, Status::Cancelled);
            return;
        }
        let named = |message: &QueuedMessage| {
            // An offer with a window ends with the window.
            let windowed = matches!(message.content, MessageContent::Offer { window: Some(_), .. });
            message.token == Some(token) && !windowed
        };
        let found = self.peers.all().find_map(|(peer, remote)| {
            let queued = remote.send.queue.iter().position(named);
            let in_flight = || remote.send.flight.iter().position(named);
            let queued = queued.map(|at| CancelTarget::Queued(peer, at));
            queued.or_else(|| in_flight().map(|at| CancelTarget::InFlight(peer, at)))
        });
        match found {
            Some(CancelTarget::Queued(peer, at)) => {
                let Some(remote) = self.peers.get_mut(peer) else { return };
                if let Some(message) = remote.send.queue.remove(at) {
                    self.end_message(ctx, message, Status::Cancelled);
                    self.pump(ctx, peer);
                }
            }
            // The message has a number, and later messages depend on it: it continues without an
            // event.
            Some(CancelTarget::InFlight(peer, at)) => {
                let Some(remote) = self.peers.get_mut(peer) else { return };
                let message = remote.send.flight.get_mut(at);
                if let Some(token) = message.and_then(|message| message.token.take()) {
                    let status = Status::Cancelled;
                    self.report(ctx, Event::Sent { token, status, taken: 0 });
                }
            }
            None => {}
        }
    }
}

/// Creates a message that has not been sent.
fn message(token: Token, content: MessageContent) -> QueuedMessage {
    QueuedMessage { token: Some(token), content, first_at: 0, sent_at: 0, resent: false }
}
