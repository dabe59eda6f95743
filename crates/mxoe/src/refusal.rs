//! Refusals: those that are sent, and what those that come mean.

use causeway_wire::mx::{PeerId, Status};
use causeway_wire::mxoe::{Ends, Nack, Packet, PullNack, nack};

use crate::context::{Env, count};
use crate::endpoint::Endpoint;
use crate::nic::Dropped;
use crate::peer::Doubt;
use crate::sequence::Number;

/// What a refusal means for who is refused; none if nobody knows.
pub(crate) fn status_of(reason: u8) -> Option<Status> {
    match reason {
        nack::BAD_ENDPOINT => Some(Status::BadEndpoint),
        nack::ENDPOINT_CLOSED => Some(Status::EndpointClosed),
        nack::BAD_SESSION => Some(Status::BadSession),
        _ => None,
    }
}

/// Refuses a packet of a message or a connect, in the name of an endpoint that may not be there.
pub(crate) fn refuse(env: &mut Env<'_>, host: u16, ends: Ends, sequence: u16, reason: u8) {
    let Some((_, peer_index)) = env.hosts.get(host) else { return };
    env.send(host, &Packet::Nack(Nack { ends, reason, peer_index, sequence }));
}

impl Endpoint {
    /// Refuses a packet of the endpoint `to`.
    pub(crate) fn refuse(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        to: u8,
        sequence: u16,
        reason: u8,
    ) {
        count(&mut self.counters.nacks_sent);
        refuse(env, host, Ends { destination: to, source: self.id }, sequence, reason);
    }

    /// Refuses a pull.
    pub(crate) fn refuse_pull(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        (handle, magic): (u32, u32),
        reason: u8,
    ) {
        count(&mut self.counters.nacks_sent);
        env.send(host, &Packet::PullNack(PullNack { source: self.id, reason, handle, magic }));
    }

    /// It is said that a peer is gone. Whoever is on the network can say so: it is asked, and gone
    /// only if it is not heard of; where peers may be [silent](crate::Config::silent), only if the
    /// question is refused, too.
    pub(crate) fn doubt(&mut self, env: &mut Env<'_>, peer: PeerId, status: Status) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        if let Some(doubt) = &mut partner.doubt {
            doubt.refused = true;
            return;
        }
        partner.doubt = Some(Doubt::new(env.now, status, partner.trip()));
        count(&mut self.counters.doubts);
        self.ask_whether_there(env, peer);
        self.rearm(env, peer);
    }

    /// Something that was sent was refused: a connect, or a message that is in flight.
    pub(crate) fn refused(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        nack: &Nack,
    ) -> Result<(), Dropped> {
        count(&mut self.counters.nacks_received);
        let address = (host, nack.ends.source);
        let Some(status) = status_of(nack.reason) else {
            count(&mut self.counters.nacks_strange);
            return Err(Dropped::Refusal);
        };
        if nack.sequence == 0 && self.connect_doubted(env, address, status) {
            return Ok(());
        }
        let peer = self.peers.at(address);
        let in_flight = peer.and_then(|peer| self.peers.get(peer)).is_some_and(|partner| {
            let number = Number(nack.sequence);
            let ahead = number.ahead_of(partner.send.first);
            // Who is asked whether it is there is sent what it had.
            let asked = partner.send.is_waited_for() || partner.doubt.is_some();
            let asked = asked && number == partner.send.first.before();
            asked || ahead.is_some_and(|ahead| usize::from(ahead) < partner.send.flight.len())
        });
        match peer.filter(|_| in_flight) {
            Some(peer) => {
                self.doubt(env, peer, status);
                Ok(())
            }
            None => {
                count(&mut self.counters.nacks_strange);
                Err(Dropped::Refusal)
            }
        }
    }
}
