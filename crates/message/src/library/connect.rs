//! Connects and disconnects, and the ends of requests to a lost peer.
//!
//! A connect is passed to the transport, which finds the peer; if the transport has no room,
//! [`Library::progress`] repeats it. A connect to the own address ends at once, with
//! [`Status::BadKey`] for a wrong key. The library does not retry a failed connect and does not
//! reconnect: the libfabric provider does, for the peers of [`Library::take_departed`].
//!
//! When a peer is lost, sends to it and receives that pull from it end with the reason, its offers
//! are dropped, and its eager messages stay for receives. Sends that were complete early and are
//! not confirmed count as lost ([`Library::take_lost`]), unless the caller resends them
//! ([`Library::set_resends`]). Receives of any sender stay posted; directed receives end, unless
//! [`Library::keep_directed`] was called and the peer is on another host. The loss of a peer is
//! linear in the places of the tables of requests and unexpected messages, which never shrink. With
//! [`Library::keep_directed`] the caller takes [`Library::take_departed`] and
//! [`Library::take_broken`] regularly: the first list has an entry for each loss, the second one
//! for each endpoint, and neither has another limit. A disconnect of a peer that is lost already
//! fails with [`Error::BadRequest`].
//!
//! Called by the API libraries, in the thread that holds the lock of the endpoint, and by
//! `library::progress` for the transport's events.

use causeway_wire::mx::{Address, NicId, PeerId, Status, Token};

use super::request::{RequestEntry, RequestKind, RequestState};
use super::unexpected::UnexpectedContent;
use super::{
    Buffer, EndpointIdentity, Error, Library, Partner, RequestId, Transport, TransportError,
    is_remote,
};

/// A remote endpoint that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostPeer {
    /// Identity of the endpoint.
    pub source: EndpointIdentity,
    /// The lost peer as [`Partner`] of this endpoint.
    pub partner: Partner,
    /// Reason.
    pub status: Status,
    /// Eager messages from it since it connected.
    pub received: u64,
    /// Eager messages to it since then that its host has acknowledged.
    pub acked: u64,
}

/// Returns whether a lost endpoint may still run, because a daemon in between restarted.
pub fn is_interrupted(status: Status) -> bool {
    matches!(status, Status::EndpointUnreachable | Status::BadSession)
}

impl<B: Buffer> Library<B> {
    /// Connects to an endpoint; [`Completion::partner`](super::Completion::partner) is the peer.
    /// Without `timeout_ns`, the default of [`Self::set_timeout`] applies.
    ///
    /// # Errors
    /// [`Error::NoResources`] with too many requests.
    pub fn iconnect<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        to: Address,
        key: u32,
        match_info: u64,
        context: u64,
        timeout_ns: Option<u64>,
    ) -> Result<RequestId, Error> {
        let mut request = RequestEntry::new(
            RequestKind::Connect,
            RequestState::WantsConnect,
            match_info,
            context,
        );
        request.other = to.nic.0;
        request.more = (key, to.endpoint);
        request.deadline = self.clock.start(timeout_ns);
        self.counters.connects = self.counters.connects.wrapping_add(1);
        let own = to == self.options.address;
        request.set_partner(own.then_some(Partner::SELF));
        let at = self.add(request)?;
        if own {
            let right = key == self.options.key;
            self.finish(at, if right { Status::Success } else { Status::BadKey });
        } else {
            self.connect(transport, at);
        }
        Ok(self.id(at))
    }

    /// Hands a connect to the transport; queues it for a retry if there is no room.
    pub(super) fn connect<T: Transport<B>>(&mut self, transport: &mut T, at: u32) {
        let token = self.token(at);
        let Some(request) = self.requests.get_mut(at) else { return };
        let (key, endpoint) = request.more;
        let to = Address { nic: NicId(request.other), endpoint };
        let timeout = self.clock.left(request.deadline);
        match transport.connect(token, to, key, timeout) {
            Ok(()) => request.state = RequestState::Connecting,
            Err(TransportError::Full) => {
                request.state = RequestState::WantsConnect;
                self.requests.push(&mut self.retry, at);
            }
            Err(TransportError::Never(status)) => self.finish(at, status),
        }
    }

    /// Ends the connect with this token, if it has not ended.
    pub(super) fn connected(&mut self, token: Token, status: Status, peer: PeerId) {
        let Some(at) = self.requests.find(token.0) else { return };
        let partner = self.partners.current(peer);
        let Some(request) = self.requests.get_mut(at) else { return };
        if request.state != RequestState::Connecting {
            return;
        }
        request.set_partner(partner.filter(|_| status == Status::Success));
        let reached = request.partner().is_some() || status != Status::Success;
        self.finish(at, if reached { status } else { Status::EndpointUnreachable });
    }

    /// Disconnects a peer: its requests end with [`Status::EndpointUnreachable`].
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such peer, or the peer is lost. For [`Partner::SELF`]
    /// the call has no effect.
    pub fn disconnect<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        partner: Partner,
    ) -> Result<(), Error> {
        if partner == Partner::SELF {
            return Ok(());
        }
        if self.partners.of(partner).is_none_or(|known| !known.is_alive) {
            return Err(Error::BadRequest);
        }
        transport.disconnect(partner.peer);
        let received = transport.received(partner.peer);
        self.lose_peer(partner.peer, Status::EndpointUnreachable, received);
        Ok(())
    }

    /// Ends all requests of a lost peer. `received`: number of eager messages that came from it.
    pub(super) fn lose_peer(&mut self, peer: PeerId, status: Status, received: u64) {
        let was_alive = self.partners.get(peer).is_some_and(|known| known.is_alive);
        if let Some(known) = self.partners.get_mut(peer) {
            known.is_alive = false;
        }
        self.end_requests_to(peer, status);
        let source = self.partners.source(peer);
        let partner = self.partners.current(peer);
        match source.zip(partner) {
            Some((source, partner)) if self.losses.keeps_directed() && is_remote(peer) => {
                if was_alive {
                    let acked = self.partners.get(peer).map_or(0, |known| known.acked);
                    self.losses.depart(LostPeer { source, partner, status, received, acked });
                }
            }
            _ => self.end_directed(peer, status),
        }
    }

    /// Ends all requests to a peer. If the peer is not lost, messages that it sent are still
    /// received.
    pub(super) fn end_requests_to(&mut self, peer: PeerId, status: Status) {
        let Some(epoch) = self.partners.get(peer).map(|known| known.epoch) else { return };
        let gone = Partner { peer, epoch };
        for at in 0..self.requests.places() {
            let Some(request) = self.requests.get(at) else { continue };
            if request.partner() != Some(gone) {
                continue;
            }
            match request.state {
                RequestState::Waiting => {
                    if let Some(known) = self.partners.get_mut(peer) {
                        self.requests.unlink(&mut known.waiting, at);
                    }
                }
                RequestState::Streaming => {
                    if let Some(known) = self.partners.get_mut(peer) {
                        self.requests.unlink(&mut known.streams, at);
                    }
                }
                RequestState::WantsPull => self.requests.unlink(&mut self.retry, at),
                RequestState::Offered | RequestState::Unacked | RequestState::Pulling => {}
                RequestState::Done | RequestState::Detached if request.unacked => {
                    self.confirmed(at, status);
                    continue;
                }
                _ => continue,
            }
            self.finish(at, status);
        }
        self.drop_offers(gone);
    }

    /// Drops the offers of a lost peer; its eager messages stay.
    fn drop_offers(&mut self, gone: Partner) {
        for at in 0..self.unexpected.places() {
            let Some(message) = self.unexpected.get(at) else { continue };
            let offered = matches!(message.content, UnexpectedContent::Offered(_));
            if message.partner == gone && offered {
                self.remove_unexpected(at);
            }
        }
    }

    /// Records the real end of an early completed send.
    pub(super) fn confirmed(&mut self, at: u32, status: Status) {
        let Some(request) = self.requests.get_mut(at) else { return };
        request.unacked = false;
        self.losses.end_early();
        let partner = request.partner();
        if status == Status::Success {
            if let Some(partner) = partner {
                self.partners.acked(partner);
            }
        } else {
            let source = partner.and_then(|partner| self.source_of(partner));
            self.losses.fail_early(status, source);
        }
        let Some(request) = self.requests.get_mut(at) else { return };
        if request.state == RequestState::Detached {
            self.requests.discard(at);
        }
    }

    /// Returns address and session of a peer; also of a lost peer until its number is reused.
    pub fn decompose(&self, partner: Partner) -> Option<(Address, u32)> {
        if partner == Partner::SELF {
            return Some((self.options.address, self.options.session));
        }
        self.partners.of(partner).map(|known| (known.address, known.session))
    }

    /// Returns the session of a peer, as [`Self::decompose`] does.
    #[inline]
    pub fn session(&self, partner: Partner) -> Option<u32> {
        if partner == Partner::SELF {
            return Some(self.options.session);
        }
        self.partners.of(partner).map(|known| known.session)
    }

    /// Returns the number of eager messages to a peer that its host has acknowledged.
    pub fn acked(&self, partner: Partner) -> u64 {
        self.partners.of(partner).map_or(0, |known| known.acked)
    }

    /// Returns the connected peer with this identity, whichever side connected.
    pub fn reached(&self, source: EndpointIdentity) -> Option<Partner> {
        self.partners.reached(source)
    }

    /// Returns whether messages to a peer can arrive.
    pub fn is_reached(&self, partner: Partner) -> bool {
        partner == Partner::SELF || self.partners.of(partner).is_some_and(|known| known.is_alive)
    }

    /// Sets whether a request waits for this peer without sending to it: the transport checks it
    /// from time to time, and [`Self::is_reached`] turns false when it is lost. No effect for a
    /// lost peer and for the own endpoint.
    pub fn watch<T: Transport<B>>(&mut self, transport: &mut T, partner: Partner, on: bool) {
        if partner != Partner::SELF && self.is_reached(partner) {
            transport.watch(partner.peer, on);
        }
    }

    /// Returns the application's value for a peer; 0 until it is set.
    #[inline]
    pub fn partner_context(&self, partner: Partner) -> Option<u64> {
        self.partners.context(partner)
    }

    /// Sets the application's value for a peer. Returns false if there is no such peer.
    pub fn set_partner_context(&mut self, partner: Partner, context: u64) -> bool {
        self.partners.set_context(partner, context)
    }
}
