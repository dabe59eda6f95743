//! Messages that come: their order, what is parked, and acknowledging.

use causeway_wire::mx::{Event, PeerId};
use causeway_wire::mxoe::{Ack, Eager, Ends, FragmentPlace, Notify, Packet, Rendezvous, nack};

use crate::context::{Env, add, count};
use crate::endpoint::Endpoint;
use crate::limits::{ACK_DELAY_NS, EARLY_MAX, STRANGE_PACKETS_MAX, UNACKED_MAX};
use crate::nic::Dropped;
use crate::peer::{Incoming, Offered};
use crate::sequence::Number;

/// Numbers that are so far ahead were behind.
pub(crate) const HALF: usize = 8192;

/// What messages say of themselves.
pub(crate) struct Envelope {
    pub(crate) ends: Ends,
    pub(crate) sequence: u16,
    pub(crate) acknowledged: u16,
    pub(crate) session: u32,
}

/// What a packet brings.
pub(crate) enum Brought<'a> {
    Whole(u64, &'a [u8]),
    Fragment(u64, FragmentPlace, &'a [u8]),
    Offer(Offered),
    Notify { total_len: u32, window: u8, window_sequence: u8 },
}

impl Brought<'_> {
    pub(crate) fn of_rendezvous(offer: &Rendezvous) -> (Envelope, Self) {
        let Rendezvous { ends, sequence, acknowledged, session, .. } = *offer;
        let offered = Offered {
            match_info: offer.match_info,
            len: offer.message_len,
            window: offer.window,
            window_sequence: offer.window_sequence,
            offset: offer.offset,
        };
        (Envelope { ends, sequence, acknowledged, session }, Self::Offer(offered))
    }

    pub(crate) fn of_notify(notify: &Notify) -> (Envelope, Self) {
        let Notify { ends, sequence, acknowledged, session, total_len, window, window_sequence } =
            *notify;
        let envelope = Envelope { ends, sequence, acknowledged, session };
        (envelope, Self::Notify { total_len, window, window_sequence })
    }
}

impl Envelope {
    pub(crate) fn of(eager: &Eager<'_>) -> Self {
        let Eager { ends, sequence, acknowledged, session, .. } = *eager;
        Self { ends, sequence, acknowledged, session }
    }
}

/// All fragments of so many.
fn all(count: usize) -> u32 {
    u32::MAX.checked_shr(32_u32.saturating_sub(u32::try_from(count).unwrap_or(32))).unwrap_or(0)
}

impl Incoming {
    fn is_whole(&self) -> bool {
        !matches!(self, Self::Message { missing: 1.., .. })
    }

    /// Whether what came of this number before is to be thrown away, because what comes now is of
    /// another message: one of them has a wrong number, and only the other comes again. What is
    /// not whole would wait for ever; but it is not for one strange packet to say so.
    fn is_doubtful(&mut self, brought: &Brought<'_>) -> bool {
        match (self, brought) {
            (Self::Message { match_info, data, missing, pipeline, strange }, brought) => {
                let same = match brought {
                    Brought::Fragment(info, place, _) => {
                        info == match_info
                            && (*missing == 0 || place.pipeline == *pipeline)
                            && usize::from(place.message_len) == data.len()
                    }
                    Brought::Whole(info, whole) => {
                        *missing == 0 && info == match_info && whole == data
                    }
                    Brought::Offer(_) | Brought::Notify { .. } => false,
                };
                *strange = strange.saturating_add(u8::from(!same));
                !same && *missing == 0 || *strange > STRANGE_PACKETS_MAX
            }
            (Self::Offer(offered), Brought::Offer(other)) => offered != other,
            (Self::Notified, Brought::Notify { .. }) => false,
            (Self::Offer(_) | Self::Notified, _) => true,
        }
    }

    /// Bytes that wait with it.
    pub(crate) fn len(&self) -> usize {
        if let Self::Message { data, .. } = self { data.len() } else { 0 }
    }
}

impl Endpoint {
    /// A packet with a number came.
    pub(crate) fn sequenced(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        envelope: &Envelope,
        brought: &Brought<'_>,
    ) -> Result<(), Dropped> {
        let Envelope { ends, sequence, acknowledged, session } = *envelope;
        if session != self.session {
            count(&mut self.counters.wrong_session);
            self.refuse(env, host, ends.source, sequence, nack::BAD_SESSION);
            return Err(Dropped::Session);
        }
        let Some(peer) = self.peers.at((host, ends.source)) else {
            count(&mut self.counters.strangers);
            self.refuse(env, host, ends.source, sequence, nack::BAD_SESSION);
            return Err(Dropped::UnknownPeer);
        };
        if self.at_one(env, peer, Number(acknowledged), false) {
            self.acknowledged(env, peer, Number(acknowledged), false);
        }
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        partner.heard_at = env.now;
        let ahead = Number(sequence).ahead_of(partner.receive.next).map(usize::from);
        let ours = ahead.is_some_and(|ahead| !(EARLY_MAX + 1..HALF).contains(&ahead));
        if ours && partner.adopt_unaware(acknowledged, env.now) {
            self.pump(env, peer);
            // They were asked for before it was known which session it has.
            self.begin_pulls(env, peer);
        }
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        match ahead {
            None => {
                count(&mut partner.counters.wrong_number);
                self.refuse(env, host, ends.source, sequence, nack::BAD_SESSION);
                return Err(Dropped::Number);
            }
            Some(ahead) if ahead <= EARLY_MAX => self.accept(env, peer, ahead, brought)?,
            Some(ahead) if ahead >= HALF => {
                count(&mut partner.counters.duplicates);
                self.send_ack(env, peer);
            }
            Some(_) => {
                count(&mut partner.counters.wrong_number);
                // So that it is known which is expected.
                self.send_ack(env, peer);
                return Err(Dropped::Number);
            }
        }
        self.rearm(env, peer);
        Ok(())
    }

    /// The message that is next, or an early one.
    fn accept(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        ahead: usize,
        brought: &Brought<'_>,
    ) -> Result<(), Dropped> {
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        let early = &mut partner.receive.early;
        if early.len() <= ahead {
            early.resize_with(ahead.saturating_add(1), || None);
        }
        let gap = early.len() > 1;
        if let Some(place) = early.get_mut(ahead)
            && place.as_mut().is_some_and(|parked| parked.is_doubtful(brought))
        {
            let len = place.take().map_or(0, |parked| parked.len());
            self.parking.give(partner.host, len);
            partner.receive.bytes = partner.receive.bytes.saturating_sub(len);
            return Err(Dropped::Number);
        }
        let early = &partner.receive.early;
        let known = matches!(early.get(ahead), Some(Some(_)));
        // What it ends is not to wait for the messages before it, which may have to.
        if let Brought::Notify { total_len, window, window_sequence } = *brought
            && !known
        {
            self.notified(env, peer, total_len, window, window_sequence);
        }
        if ahead == 0 && !known && self.give(env, peer, brought) {
            self.advance(peer);
            self.deliver(env, peer);
            // Who notifies may wait for this alone; and who fills a gap wants to know how far.
            let urgent = gap || matches!(brought, Brought::Notify { .. });
            self.acknowledge(env, peer, urgent);
            return Ok(());
        }
        let parked = self.park(env, peer, ahead, brought);
        if ahead == 0 && parked.is_ok() {
            self.deliver(env, peer);
            self.acknowledge(env, peer, gap);
        } else if ahead > 0 && !known && parked.is_ok() {
            // So that it is known that the one before is missing.
            self.send_ack(env, peer);
        }
        parked
    }

    /// What came early of a peer before it was heard that it connected may be of one before, whose
    /// numbers were the same. It was not acknowledged, and comes again if it is of this one.
    pub(crate) fn forget_early(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let host = partner.host;
        for incoming in std::mem::take(&mut partner.receive.early).into_iter().flatten() {
            self.parking.give(host, incoming.len());
            if let Incoming::Message { data, .. } = incoming {
                env.pool.give(data);
            }
        }
        partner.receive.bytes = 0;
    }

    /// Gives what is next to whom it is for, straight from the packet: whether it was.
    fn give(&mut self, env: &mut Env<'_>, peer: PeerId, brought: &Brought<'_>) -> bool {
        match *brought {
            Brought::Whole(match_info, data) => self.give_message(env, peer, match_info, data),
            Brought::Fragment(match_info, place, data) if place.count() == 1 => {
                self.give_message(env, peer, match_info, data)
            }
            Brought::Fragment(..) => false,
            Brought::Offer(offered) => self.give_offer(env, peer, offered),
            Brought::Notify { .. } => true,
        }
    }

    fn give_message(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        match_info: u64,
        data: &[u8],
    ) -> bool {
        let given = self.offer(env, peer, &Event::Message { peer, match_info, data });
        if given && let Some(partner) = self.peers.get_mut(peer) {
            count(&mut partner.counters.messages_received);
            add(&mut partner.counters.bytes_received, data.len());
        }
        given
    }

    /// Puts aside what is not to be given yet.
    fn park(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        ahead: usize,
        brought: &Brought<'_>,
    ) -> Result<(), Dropped> {
        let Some(partner) = self.peers.get(peer) else { return Err(Dropped::UnknownPeer) };
        if !matches!(partner.receive.early.get(ahead), Some(Some(_))) {
            let incoming = match *brought {
                Brought::Whole(match_info, data) => {
                    self.take_room(env, peer, ahead, data.len())?;
                    let data = env.pool.with(data);
                    Incoming::Message { match_info, data, missing: 0, pipeline: 0, strange: 0 }
                }
                Brought::Fragment(match_info, place, _) => {
                    let len = usize::from(place.message_len);
                    self.take_room(env, peer, ahead, len)?;
                    let mut data = env.pool.take(len);
                    data.resize(len, 0);
                    let (missing, pipeline) = (all(place.count()), place.pipeline);
                    Incoming::Message { match_info, data, missing, pipeline, strange: 0 }
                }
                Brought::Offer(offered) => Incoming::Offer(offered),
                Brought::Notify { .. } => Incoming::Notified,
            };
            let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
            if ahead > 0 {
                count(&mut partner.counters.early);
            }
            if let Some(place) = partner.receive.early.get_mut(ahead) {
                *place = Some(incoming);
            }
            if !matches!(brought, Brought::Fragment(..)) {
                return Ok(());
            }
        }
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        let fresh = match (partner.receive.early.get_mut(ahead), brought) {
            (Some(Some(incoming)), Brought::Fragment(match_info, place, data)) => {
                incoming.fill(*match_info, *place, data)
            }
            _ => false,
        };
        if !fresh {
            // It is there, but not acknowledged: its sender is to know that we are here.
            count(&mut partner.counters.duplicates);
            self.send_ack(env, peer);
        }
        Ok(())
    }

    /// Gives parked messages, as far as the library has room: whether it had for all.
    pub(crate) fn deliver(&mut self, env: &mut Env<'_>, peer: PeerId) -> bool {
        loop {
            let Some(partner) = self.peers.get_mut(peer) else { return true };
            let next = partner.receive.early.front_mut();
            let Some(next) = next.filter(|next| next.as_ref().is_some_and(Incoming::is_whole))
            else {
                return true;
            };
            let Some(incoming) = next.take() else { return true };
            let given = match incoming {
                Incoming::Message { match_info, ref data, .. } => {
                    self.give_message(env, peer, match_info, data)
                }
                Incoming::Offer(offered) => self.give_offer(env, peer, offered),
                Incoming::Notified => true,
            };
            let Some(partner) = self.peers.get_mut(peer) else { return true };
            if !given {
                if let Some(next) = partner.receive.early.front_mut() {
                    *next = Some(incoming);
                }
                if !partner.receive.ready {
                    partner.receive.ready = true;
                    self.ready.push_back(peer);
                }
                return false;
            }
            if let Incoming::Message { data, .. } = incoming {
                self.parking.give(partner.host, data.len());
                partner.receive.bytes = partner.receive.bytes.saturating_sub(data.len());
                env.pool.give(data);
            }
            self.advance(peer);
        }
    }

    /// The next message is done with.
    fn advance(&mut self, peer: PeerId) {
        if let Some(partner) = self.peers.get_mut(peer) {
            let receive = &mut partner.receive;
            receive.early.pop_front();
            receive.next = receive.next.next();
            receive.unacked = receive.unacked.saturating_add(1);
        }
    }

    /// Acknowledges now or soon what is not acknowledged.
    pub(crate) fn acknowledge(&mut self, env: &mut Env<'_>, peer: PeerId, urgent: bool) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let receive = &mut partner.receive;
        if receive.unacked >= UNACKED_MAX || urgent && receive.unacked > 0 {
            self.send_ack(env, peer);
        } else if receive.unacked > 0 {
            receive.ack_at.get_or_insert(env.now.saturating_add(ACK_DELAY_NS));
        }
    }

    /// Acknowledges now.
    pub(crate) fn send_ack(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let receive = &mut partner.receive;
        receive.ack_at = None;
        // Without a session it does not understand us: it will ask again.
        let Some(session) = partner.session else { return };
        receive.unacked = 0;
        receive.acks = receive.acks.wrapping_add(1);
        let ack = Ack {
            ends: Ends { destination: partner.endpoint, source: self.id },
            session,
            acknowledged: receive.next.0,
            number: receive.acks,
        };
        count(&mut partner.counters.acks_sent);
        env.send(partner.host, &Packet::Ack(ack));
    }

    /// An acknowledgement came on its own.
    pub(crate) fn acked(&mut self, env: &mut Env<'_>, host: u16, ack: &Ack) -> Result<(), Dropped> {
        if ack.session != self.session {
            count(&mut self.counters.wrong_session);
            return Err(Dropped::Session);
        }
        let Some(peer) = self.peers.at((host, ack.ends.source)) else {
            count(&mut self.counters.strangers);
            return Err(Dropped::UnknownPeer);
        };
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        partner.heard_at = env.now;
        let number = Number(ack.acknowledged);
        let newer = matches!(ack.number.wrapping_sub(partner.send.heard), 1..=0x7fff_ffff);
        if !self.at_one(env, peer, number, newer) {
            return Err(Dropped::Number);
        }
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        let send = &mut partner.send;
        let ahead = number.ahead_of(send.first).map(usize::from);
        // Whatever its own number is, one that says more is later. One that says nothing of what is
        // in flight may be of a former life of the peer's, or of ours, and its number too.
        let counts = match ahead {
            Some(0) => newer && send.quiet_until.is_none_or(|until| until <= env.now),
            Some(more) => more <= send.flight.len(),
            None => false,
        };
        if !counts {
            return Err(Dropped::Number);
        }
        send.heard = ack.number;
        count(&mut partner.counters.acks_received);
        self.acknowledged(env, peer, number, true);
        Ok(())
    }
}

impl Incoming {
    /// Puts a fragment in its place: whether it was missing.
    fn fill(&mut self, info: u64, place: FragmentPlace, part: &[u8]) -> bool {
        let Self::Message { match_info, data, missing, pipeline, .. } = self else { return false };
        let same = *match_info == info
            && *pipeline == place.pipeline
            && data.len() == usize::from(place.message_len);
        let bit = 1_u32.checked_shl(place.number.into()).unwrap_or(0);
        if !same || *missing & bit == 0 {
            return false;
        }
        let Some((offset, len)) = place.range() else { return false };
        let Some(room) = data.get_mut(offset..offset.saturating_add(len)) else { return false };
        if room.len() != part.len() {
            return false;
        }
        room.copy_from_slice(part);
        *missing &= !bit;
        true
    }
}
