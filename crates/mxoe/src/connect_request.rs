//! Connect requests of other endpoints: the key, the matching with the known peer, and the reply.
//!
//! A *session* is the random number of one opening of an endpoint. Requests can be late, and can
//! come from a restarted endpoint with the same or another session. Only a request that cannot be
//! late replaces the known peer.
//!
//! A request with a wrong key is answered with a reply of status *bad key*; a request that may be
//! late is dropped, and a live peer repeats it; if it has another session (not that of the previous
//! peer) or generation and the known peer was silent for 60 ms, that peer is queried too, and
//! removed if it does not answer ([`refusal`](crate::refusal)). A local NIC's request of another
//! session is not late and replaces the peer at once. If the peer table is full
//! ([`PARTNERS_MAX`](crate::limits::PARTNERS_MAX), 2,048), the request is dropped and counted as
//! `no_partner`. A peer that restarted is replaced: its operations end with `EndpointUnreachable`
//! first. A repeated request of a known peer is answered again and changes nothing.
//!
//! The host side is not asked: an endpoint that is open accepts every request with its key, and
//! learns of the peer with the first event. Called by [`connect`](crate::connect) for connect
//! packets; afterwards messages and pulls to the peer can start. The number `host` names the
//! sending or receiving NIC in the [`NicTable`](crate::nic_table::NicTable).

use causeway_wire::mx::{PeerId, Status};
use causeway_wire::mxoe::{Connect, ConnectBody, ConnectStatus, EndpointPair, Packet};

use crate::context::{EngineContext, count};
use crate::drop_reason::DropReason;
use crate::endpoint::NicEndpoint;
use crate::peer::Incarnation;
use crate::sequence::SequenceNumber;

impl NicEndpoint {
    /// Processes a connect request with a key.
    ///
    /// # Errors
    /// [`DropReason`]: the key is wrong, the request may be late, or the peer table is full.
    pub(crate) fn on_connect_request(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        connect: &Connect,
        key: u32,
    ) -> Result<(), DropReason> {
        count(&mut self.counters.connects_received);
        if key != self.key {
            self.reject_key(ctx, host, connect);
            return Err(DropReason::Key);
        }
        let Connect { ends, session, expected, number, .. } = *connect;
        let address = (host, ends.source);
        let past = self.peers.past(address, session);
        let (peer, restarted) = self.peer_of_request(ctx, address, connect, past.is_some())?;
        let before = self.peers.past_generation(address);
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::NoRoom) };
        remote.heard_at = ctx.now;
        let newer = remote.is_newer(number);
        if newer {
            remote.connect_seen = Some(number);
        }
        // A peer that does not know of the restart of this endpoint may have kept messages. It
        // learns the session from the reply, and then connects again or sends. A peer that
        // restarted itself is excluded: its generations may have wrapped around.
        let is_local = ctx.hosts.is_local(host);
        let unaware =
            !is_local && !restarted && past == Some(SequenceNumber(expected).generation());
        match remote.session {
            None if unaware => remote.mark_unaware(session, ctx.now),
            None => {
                remote.adopt(session, expected, ctx.now, before);
                self.forget_early(ctx, peer);
            }
            Some(_) if newer => self.check_expected(ctx, peer, SequenceNumber(expected)),
            Some(_) => {}
        }
        let greeting = ConnectBody::Reply { session: self.session, answer: ConnectStatus::SUCCESS };
        self.send_connect(ctx, peer, number, session, greeting);
        self.pump(ctx, peer);
        self.begin_pulls(ctx, peer);
        self.connects_due(ctx);
        Ok(())
    }

    /// Replies to a connect request with a wrong key.
    fn reject_key(&mut self, ctx: &mut EngineContext<'_>, host: u16, connect: &Connect) {
        count(&mut self.counters.wrong_key);
        let rejection = Connect {
            ends: EndpointPair { destination: connect.ends.source, source: self.id },
            index_of_destination: host,
            expected: 0,
            greeting: ConnectBody::Reply { session: 0, answer: ConnectStatus::BAD_KEY },
            ..*connect
        };
        ctx.send(host, &Packet::Connect(rejection));
    }

    /// Returns the peer of a connect request, which is created or replaced if necessary, and
    /// whether the known peer restarted. `is_past`: the previous peer at the address had the
    /// session.
    fn peer_of_request(
        &mut self,
        ctx: &mut EngineContext<'_>,
        address: (u16, u8),
        connect: &Connect,
        is_past: bool,
    ) -> Result<(PeerId, bool), DropReason> {
        let Connect { session, expected, number, .. } = *connect;
        let found = self.peers.at_or_new(address, ctx.now);
        let Some((peer, remote)) = found.and_then(|peer| Some((peer, self.peers.get_mut(peer)?)))
        else {
            count(&mut self.counters.no_partner);
            return Err(DropReason::NoRoom);
        };
        let newer = remote.is_newer(number);
        let is_known = remote.session.is_some();
        let replaced = match remote.session {
            // The pending messages are from another instance than the request.
            None => remote.unaware.is_some_and(|unaware| unaware.session != session),
            Some(known) if known == session => {
                match remote.incarnation(SequenceNumber(expected), newer, ctx.now) {
                    Incarnation::Same => false,
                    Incarnation::New => true,
                    Incarnation::Wrapped if remote.confirms_restart(ctx.now) => true,
                    Incarnation::Wrapped | Incarnation::Unknown => return Err(DropReason::Session),
                    Incarnation::OtherGeneration => {
                        self.doubt(ctx, peer, Status::EndpointUnreachable);
                        return Err(DropReason::Session);
                    }
                }
            }
            // Packets of the same daemon are not late.
            Some(_) if ctx.hosts.is_local(address.0) => true,
            // A late request of a previous instance, possibly one so short-lived that this is
            // its first packet. A live peer repeats its request.
            Some(_) if is_past || !remote.is_quiet(ctx.now) => return Err(DropReason::Session),
            // The peer repeats its request after the previous instance is known to be gone.
            Some(_) => {
                self.doubt(ctx, peer, Status::EndpointUnreachable);
                return Err(DropReason::Session);
            }
        };
        if !replaced {
            return Ok((peer, false));
        }
        let Some(peer) = self.replace_peer(ctx, address) else {
            count(&mut self.counters.no_partner);
            return Err(DropReason::NoRoom);
        };
        Ok((peer, is_known))
    }
}
