//! Refusals (nacks, with a reason): sent for packets that cannot be accepted, and received for sent
//! packets.
//!
//! A received refusal may be forged, so it only starts a liveness query of the peer (a packet with
//! a number that the peer acknowledged before, and must acknowledge again). The peer has three
//! round trips, 20 ms ([`DOUBT_NS`](crate::limits::DOUBT_NS)) to 0.5 s, to answer. The query is
//! repeated once at half of the time; any packet of the peer answers it. Without an answer the peer
//! ends with the status of the refusal; with [`NicConfig::silent`](crate::NicConfig) only if the
//! query was refused too. A refusal of a connect is processed in [`connect`](crate::connect). A
//! refusal of a local NIC cannot be forged: it ends the connects to its sender at once, and has no
//! other effect. A refusal of a pull repeats the pull once with a new magic (the random number that
//! replies repeat); a second ends it. Refusals of packets that were not sent are counted and
//! ignored.
//!
//! Refused to an endpoint that is not open: messages, offers, notifications, pulls and connect
//! requests; to an open endpoint: all of these except connect requests, with another session or of
//! an endpoint that is not a peer, packets of another generation, and pulls of a window that is not
//! offered. The refused packet is dropped. Acknowledgements, connect replies, pull replies and
//! refusals are never refused. Nothing is refused in the name of closed endpoints whose processes
//! are expected back ([`Nic::set_awaited`](crate::Nic::set_awaited)). Called by
//! [`Nic::receive`](crate::Nic::receive) and by the modules that check packets. The number `host`
//! names the sending or receiving NIC in the [`NicTable`](crate::nic_table::NicTable).

use causeway_wire::mx::{Handle, PeerId, Status};
use causeway_wire::mxoe::{EndpointPair, Nack, Packet, PullNack, nack};

use crate::context::{EngineContext, count};
use crate::drop_reason::DropReason;
use crate::endpoint::NicEndpoint;
use crate::liveness::LivenessQuery;
use crate::offers::OfferState;
use crate::pull::magic_of;
use crate::sequence::SequenceNumber;

/// Returns the status of an operation that is refused for `reason`, or `None` for unknown reasons.
pub(crate) fn status_of(reason: u8) -> Option<Status> {
    match reason {
        nack::BAD_ENDPOINT => Some(Status::BadEndpoint),
        nack::ENDPOINT_CLOSED => Some(Status::EndpointClosed),
        nack::BAD_SESSION => Some(Status::BadSession),
        _ => None,
    }
}

/// Refuses a message or connect in the name of an endpoint, which need not be open.
pub(crate) fn refuse(
    ctx: &mut EngineContext<'_>,
    host: u16,
    ends: EndpointPair,
    sequence: u16,
    reason: u8,
) {
    let Some((_, peer_index)) = ctx.hosts.get(host) else { return };
    ctx.send(host, &Packet::Nack(Nack { ends, reason, peer_index, sequence }));
}

impl NicEndpoint {
    /// Refuses a packet of the endpoint `to`.
    pub(crate) fn refuse(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        to: u8,
        sequence: u16,
        reason: u8,
    ) {
        count(&mut self.counters.nacks_sent);
        refuse(ctx, host, EndpointPair { destination: to, source: self.id }, sequence, reason);
    }

    /// Refuses a pull.
    pub(crate) fn refuse_pull(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        (handle, magic): (u32, u32),
        reason: u8,
    ) {
        count(&mut self.counters.nacks_sent);
        ctx.send(host, &Packet::PullNack(PullNack { source: self.id, reason, handle, magic }));
    }

    /// Starts a liveness query of a peer that was reported gone. Any NIC can send such a report, so
    /// the peer is gone only if it does not answer. If [peers can be
    /// silent](crate::NicConfig::silent), the query must also be refused. A call during a query
    /// counts as a refusal of the query.
    pub(crate) fn doubt(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId, status: Status) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        if let Some(doubt) = &mut remote.doubt {
            doubt.refused = true;
            return;
        }
        remote.doubt = Some(LivenessQuery::new(ctx.now, status, remote.trip()));
        count(&mut self.counters.doubts);
        self.query_liveness(ctx, peer);
        self.rearm(ctx, peer);
    }

    /// Processes a refusal of a connect or of a message in flight.
    ///
    /// # Errors
    /// [`DropReason::Refusal`]: the reason is unknown, or no such packet was sent.
    pub(crate) fn on_nack(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        nack: &Nack,
    ) -> Result<(), DropReason> {
        count(&mut self.counters.nacks_received);
        let address = (host, nack.ends.source);
        let Some(status) = status_of(nack.reason) else {
            count(&mut self.counters.nacks_strange);
            return Err(DropReason::Refusal);
        };
        // A refusal of the same daemon is not forged.
        if ctx.hosts.is_local(host) {
            let ended = self.end_connects(ctx, address, status);
            return if ended { Ok(()) } else { Err(DropReason::Refusal) };
        }
        if nack.sequence == 0 && self.doubt_connects(ctx, address, status) {
            return Ok(());
        }
        let peer = self.peers.at(address);
        let in_flight = peer.and_then(|peer| self.peers.get(peer)).is_some_and(|remote| {
            let number = SequenceNumber(nack.sequence);
            let ahead = number.ahead_of(remote.send.first);
            // A liveness query repeats the number before the first in flight.
            let asked = remote.send.is_waited_for() || remote.doubt.is_some();
            let asked = asked && number == remote.send.first.before();
            asked || ahead.is_some_and(|ahead| usize::from(ahead) < remote.send.flight.len())
        });
        match peer.filter(|_| in_flight) {
            Some(peer) => {
                self.doubt(ctx, peer, status);
                Ok(())
            }
            None => {
                count(&mut self.counters.nacks_strange);
                Err(DropReason::Refusal)
            }
        }
    }

    /// Processes a refusal of a pull: the first repeats the pull, the second ends it.
    ///
    /// # Errors
    /// [`DropReason::Refusal`]: the refusal belongs to no pull, or its reason is unknown.
    pub(crate) fn on_pull_nack(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        nack: &PullNack,
    ) -> Result<(), DropReason> {
        count(&mut self.counters.nacks_received);
        let handle = Handle(nack.handle);
        let known = self.offers.get(handle).is_some_and(|offer| {
            let remote = self.peers.get(offer.peer);
            let from = remote.map(|remote| (remote.host, remote.endpoint));
            matches!(&offer.state, OfferState::Pulling(pull) if pull.magic == nack.magic)
                && from == Some((host, nack.source))
        });
        let status = match nack.reason {
            nack::BAD_WINDOW => Some(Status::BadRdmaWindow),
            other => status_of(other),
        };
        let Some(status) = status.filter(|_| known) else {
            count(&mut self.counters.nacks_strange);
            return Err(DropReason::Refusal);
        };
        let Some(offer) = self.offers.get(handle) else { return Err(DropReason::Handle) };
        let peer = offer.peer;
        if let OfferState::Pulling(pull) = &mut offer.state
            && !pull.refused
        {
            // The request may have been damaged, so it is repeated once. A new magic prevents that
            // late or duplicate refusals of other blocks answer it.
            pull.refused = true;
            pull.magic = magic_of(self.id, ctx.out.random());
            pull.mark_lost();
            self.request_blocks(ctx, peer);
            self.rearm(ctx, peer);
            return Ok(());
        }
        // The notification to the sender ends its offer.
        self.end_pull(ctx, handle, status);
        Ok(())
    }
}
