//! What the host side asks for.

use causeway_wire::mx::{Event, PeerId, RegionId, Request, Status, Token, Window};

use crate::Admission;
use crate::context::{Env, count};
use crate::endpoint::Endpoint;
use crate::limits::{EARLY_SENDS_MAX, MEDIUM_BYTES_MAX, SEND_BYTES_MAX, SENDS_MAX};
use crate::offers::State;
use crate::peer::{Content, Message};

/// Who waits for a message, and where it is.
enum Found {
    Queued(PeerId, usize),
    Flying(PeerId, usize),
}

impl Endpoint {
    /// Does what was asked.
    pub(crate) fn request(&mut self, env: &mut Env<'_>, request: &Request<'_>) -> Admission {
        if self.outbox.is_full() {
            return Admission::Later;
        }
        match *request {
            Request::Connect { token, to, key, timeout_ns } => {
                return self.connect(env, token, to, key, timeout_ns);
            }
            Request::Disconnect { peer } => {
                if self.peers.get(peer).is_some_and(|partner| partner.told) {
                    self.end_peer(env, peer, Status::EndpointUnreachable);
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
                return self.send_eager(env, peer, token, match_info, data);
            }
            Request::Offer { peer, token, match_info, from } => {
                return self.send_offer(env, peer, token, match_info, from);
            }
            Request::Pull { handle, token, into } => self.pull(env, handle, token, into),
            Request::Watch { peer, on } => self.watch(env, peer, on),
            Request::Cancel { token } => self.cancel(env, token),
        }
        self.heed_freed(env);
        Admission::Yes
    }

    /// Why nothing can be sent to a peer, if so.
    fn unsendable(&mut self, peer: PeerId) -> Option<Status> {
        match self.peers.get(peer) {
            Some(partner) if partner.told => None,
            _ => {
                count(&mut self.counters.wrong_requests);
                Some(Status::EndpointUnreachable)
            }
        }
    }

    fn send_eager(
        &mut self,
        env: &mut Env<'_>,
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
            self.tell(env, Event::Sent { token, status, taken: 0 });
            return Admission::Yes;
        }
        self.sends.messages = self.sends.messages.saturating_add(1);
        self.sends.bytes = bytes;
        let untold = usize::from(token == Token::UNREPORTED);
        self.sends.untold = self.sends.untold.saturating_add(untold);
        let content = Content::Eager { match_info, data: env.pool.with(data) };
        self.enqueue(env, peer, message(token, content));
        Admission::Yes
    }

    /// Sends a message of which nobody is told, unless it fails. False: nothing was done, and it is
    /// to be asked for.
    pub(crate) fn send_untold(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        match_info: u64,
        data: &[u8],
    ) -> bool {
        let may = self.takes_untold()
            && data.len() <= MEDIUM_BYTES_MAX
            && !self.outbox.is_full()
            && self.peers.get(peer).is_some_and(|partner| partner.told);
        may && self.send_eager(env, peer, Token::UNREPORTED, match_info, data) == Admission::Yes
    }

    /// Whether there may be one more of those.
    pub(crate) fn takes_untold(&self) -> bool {
        self.sends.untold < EARLY_SENDS_MAX
    }

    fn send_offer(
        &mut self,
        env: &mut Env<'_>,
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
            self.tell(env, Event::Sent { token, status, taken: 0 });
            return Admission::Yes;
        }
        self.sends.messages = self.sends.messages.saturating_add(1);
        let content = Content::Offer { match_info, from, window: None };
        self.enqueue(env, peer, message(token, content));
        Admission::Yes
    }

    /// Whether a window lies in a region. A window of nothing is everywhere.
    pub(crate) fn is_registered(&self, window: Window) -> bool {
        let region = self.regions.get(usize::from(window.region.0)).copied().flatten();
        let end = window.offset.checked_add(window.len.into());
        window.len == 0 || matches!((region, end), (Some(len), Some(end)) if end <= len)
    }

    /// Registers memory of so many bytes.
    pub(crate) fn region_add(&mut self, len: u64) -> Option<RegionId> {
        let at = self.regions.iter().position(Option::is_none)?;
        *self.regions.get_mut(at)? = Some(len);
        u8::try_from(at).ok().map(RegionId)
    }

    /// Memory is not registered any more: what was offered of it or pulled into it ends.
    pub(crate) fn region_remove(&mut self, env: &mut Env<'_>, region: RegionId) -> bool {
        let place = self.regions.get_mut(usize::from(region.0));
        if place.is_none_or(|place| place.take().is_none()) {
            return false;
        }
        // First, so that none of them gets a window that is withdrawn.
        self.end_queued_offers(env, region);
        for (number, open) in self.windows.all(|open| open.from.region == region) {
            self.withdraw(env, number, open, Status::BadRdmaWindow);
        }
        let into = |state: &State| match state {
            State::Offered => None,
            State::Waiting { into, .. } => Some(into.region),
            State::Pulling(pull) => Some(pull.into.region),
        };
        for handle in self.offers.all(|offer| into(&offer.state) == Some(region)) {
            self.end_pull(env, handle, Status::BadRdmaWindow);
        }
        self.heed_freed(env);
        true
    }

    /// Offers that have no window yet end too.
    fn end_queued_offers(&mut self, env: &mut Env<'_>, region: RegionId) {
        let of_region = |message: &Message| {
            let Content::Offer { from, window: None, .. } = &message.content else { return false };
            from.region == region
        };
        let mut from = 0;
        while let Some(peer) = self.peers.first_from(from) {
            from = peer.0.saturating_add(1);
            let Some(partner) = self.peers.get_mut(peer) else { continue };
            let queue = &mut partner.send.queue;
            if !queue.iter().any(of_region) {
                continue;
            }
            let (ended, left): (Vec<_>, Vec<_>) = queue.drain(..).partition(of_region);
            queue.extend(left);
            for message in ended {
                self.end_message(env, message, Status::BadRdmaWindow);
            }
            // What was behind them may go.
            self.pump(env, peer);
        }
    }

    /// Gives up what a token stands for, if it has not ended.
    fn cancel(&mut self, env: &mut Env<'_>, token: Token) {
        if self.cancel_connect(env, token) {
            return;
        }
        if let Some((number, open)) = self.windows.find(|open| open.token == token) {
            self.withdraw(env, number, open, Status::Cancelled);
            return;
        }
        let is_pull = |state: &State| match state {
            State::Offered => false,
            State::Waiting { token: other, .. } => *other == token,
            State::Pulling(pull) => pull.token == token,
        };
        if let Some(handle) = self.offers.find(|offer| is_pull(&offer.state)) {
            self.end_pull(env, handle, Status::Cancelled);
            return;
        }
        let named = |message: &Message| {
            // An offer that has a window ends with that.
            let windowed = matches!(message.content, Content::Offer { window: Some(_), .. });
            message.token == Some(token) && !windowed
        };
        let found = self.peers.all().find_map(|(peer, partner)| {
            let queued = partner.send.queue.iter().position(named);
            let flying = || partner.send.flight.iter().position(named);
            let queued = queued.map(|at| Found::Queued(peer, at));
            queued.or_else(|| flying().map(|at| Found::Flying(peer, at)))
        });
        match found {
            Some(Found::Queued(peer, at)) => {
                let Some(partner) = self.peers.get_mut(peer) else { return };
                if let Some(message) = partner.send.queue.remove(at) {
                    self.end_message(env, message, Status::Cancelled);
                    self.pump(env, peer);
                }
            }
            // It has its number, and the numbers behind it wait for it: it goes on unheard.
            Some(Found::Flying(peer, at)) => {
                let Some(partner) = self.peers.get_mut(peer) else { return };
                let message = partner.send.flight.get_mut(at);
                if let Some(token) = message.and_then(|message| message.token.take()) {
                    let status = Status::Cancelled;
                    self.tell(env, Event::Sent { token, status, taken: 0 });
                }
            }
            None => {}
        }
    }
}

/// A message that was not sent yet.
fn message(token: Token, content: Content) -> Message {
    Message { token: Some(token), content, first_at: 0, sent_at: 0, resent: false }
}
