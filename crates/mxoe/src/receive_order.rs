//! Receiving messages: restoring their order, delivery to the host side, and acknowledgements.
//!
//! A message that is out of order, incomplete, or without room at the host side stays pending here,
//! within the quota of [`reorder_quota`](crate::reorder_quota). Within one session of both
//! endpoints each message is delivered at most once; pending messages of a removed peer are
//! discarded.
//!
//! A message, offer or notification up to [`EARLY_MAX`] (255) numbers ahead of the next is kept; a
//! packet further ahead or, except offers and notifications, beyond the quota is dropped. No
//! acknowledgement covers dropped messages, and the peer retransmits. A packet with another session
//! or generation, or of an endpoint that is not a peer, is refused with a nack. An acknowledgement
//! leaves with the next message to the peer, after [`UNACKED_MAX`] (4) messages, or after
//! [`ACK_DELAY_NS`] (15.6 ms); at once after a duplicate, a message that is early or too far ahead,
//! a filled gap or a notification.
//!
//! Order holds per peer only; a notification ends its send at once, before earlier messages are
//! delivered. While the host side has no room, messages and offers of a peer wait here and are not
//! acknowledged, which slows the sender. Called by [`Nic::receive`](crate::Nic::receive) for
//! packets with a sequence number and acknowledgements, and by [`Nic::room`](crate::Nic::room);
//! delivers to [`Outside::event`](crate::Outside::event). The number `host` names the sending or
//! receiving NIC in the [`NicTable`](crate::nic_table::NicTable).

use causeway_wire::mx::{Event, PeerId};
use causeway_wire::mxoe::{
    Ack, Eager, EndpointPair, FragmentPlace, Notify, Packet, Rendezvous, nack,
};

use crate::context::{EngineContext, add, count};
use crate::drop_reason::DropReason;
use crate::endpoint::NicEndpoint;
use crate::limits::{ACK_DELAY_NS, EARLY_MAX, FOREIGN_PACKETS_MAX, UNACKED_MAX};
use crate::offers::OfferHeader;
use crate::peer::PendingMessage;
use crate::sequence::{HALF, SequenceNumber};

/// Common fields of the packets with a sequence number.
pub(crate) struct Envelope {
    /// Destination and source endpoint.
    pub(crate) ends: EndpointPair,
    /// Number of the message.
    pub(crate) sequence: u16,
    /// Number that the sender expects next.
    pub(crate) acknowledged: u16,
    /// Session of the receiving endpoint.
    pub(crate) session: u32,
}

/// Content of a packet with a sequence number.
pub(crate) enum PacketContent<'a> {
    /// A whole message: match information and bytes.
    Whole(u64, &'a [u8]),
    /// A part of a message: match information, position and bytes.
    Fragment(u64, FragmentPlace, &'a [u8]),
    /// An offer of a large message.
    Offer(OfferHeader),
    /// The end of a pull by the peer: the pulled bytes, and the send window of this endpoint.
    Notify { total_len: u32, window: u8, window_sequence: u8 },
}

impl PacketContent<'_> {
    /// Returns the fields and content of an offer.
    pub(crate) fn of_rendezvous(offer: &Rendezvous) -> (Envelope, Self) {
        let Rendezvous { ends, sequence, acknowledged, session, .. } = *offer;
        let offered = OfferHeader {
            match_info: offer.match_info,
            len: offer.message_len,
            window: offer.window,
            window_sequence: offer.window_sequence,
            offset: offer.offset,
        };
        (Envelope { ends, sequence, acknowledged, session }, Self::Offer(offered))
    }

    /// Returns the fields and content of a notification.
    pub(crate) fn of_notify(notify: &Notify) -> (Envelope, Self) {
        let Notify { ends, sequence, acknowledged, session, total_len, window, window_sequence } =
            *notify;
        let envelope = Envelope { ends, sequence, acknowledged, session };
        (envelope, Self::Notify { total_len, window, window_sequence })
    }
}

impl Envelope {
    /// Returns the fields of an eager packet.
    pub(crate) fn of(eager: &Eager<'_>) -> Self {
        let Eager { ends, sequence, acknowledged, session, .. } = *eager;
        Self { ends, sequence, acknowledged, session }
    }
}

/// Returns the mask of `count` fragments.
fn all(count: usize) -> u32 {
    u32::MAX.checked_shr(32_u32.saturating_sub(u32::try_from(count).unwrap_or(32))).unwrap_or(0)
}

impl PendingMessage {
    /// Returns whether no fragment is missing.
    fn is_whole(&self) -> bool {
        !matches!(self, Self::Message { missing: 1.., .. })
    }

    /// Returns whether to discard the pending message because the packet belongs to another
    /// message: one of both has a damaged number, and only the other is retransmitted. A few
    /// foreign packets do not discard an incomplete message.
    fn is_conflicting(&mut self, content: &PacketContent<'_>) -> bool {
        match (self, content) {
            (Self::Message { match_info, data, missing, pipeline, strange }, content) => {
                let same = match content {
                    PacketContent::Fragment(info, place, _) => {
                        info == match_info
                            && (*missing == 0 || place.pipeline == *pipeline)
                            && usize::from(place.message_len) == data.len()
                    }
                    PacketContent::Whole(info, whole) => {
                        *missing == 0 && info == match_info && whole == data
                    }
                    PacketContent::Offer(_) | PacketContent::Notify { .. } => false,
                };
                *strange = strange.saturating_add(u8::from(!same));
                !same && *missing == 0 || *strange > FOREIGN_PACKETS_MAX
            }
            (Self::Offer(offered), PacketContent::Offer(other)) => offered != other,
            (Self::Notified, PacketContent::Notify { .. }) => false,
            (Self::Offer(_) | Self::Notified, _) => true,
        }
    }

    /// Returns the length of the pending data in bytes.
    pub(crate) fn len(&self) -> usize {
        if let Self::Message { data, .. } = self { data.len() } else { 0 }
    }
}

impl NicEndpoint {
    /// Processes a packet with a sequence number.
    ///
    /// # Errors
    /// [`DropReason`]: the session, peer or number is wrong, or a limit is reached.
    pub(crate) fn on_sequenced(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        envelope: &Envelope,
        content: &PacketContent<'_>,
    ) -> Result<(), DropReason> {
        let Envelope { ends, sequence, acknowledged, session } = *envelope;
        if session != self.session {
            count(&mut self.counters.wrong_session);
            self.refuse(ctx, host, ends.source, sequence, nack::BAD_SESSION);
            return Err(DropReason::Session);
        }
        let Some(peer) = self.peers.at((host, ends.source)) else {
            count(&mut self.counters.strangers);
            self.refuse(ctx, host, ends.source, sequence, nack::BAD_SESSION);
            return Err(DropReason::UnknownPeer);
        };
        if self.accepts_ack(ctx, peer, SequenceNumber(acknowledged), false) {
            self.on_acknowledgement(ctx, peer, SequenceNumber(acknowledged), false);
        }
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        remote.heard_at = ctx.now;
        let ahead = SequenceNumber(sequence).ahead_of(remote.receive.next).map(usize::from);
        let ours = ahead.is_some_and(|ahead| !(EARLY_MAX + 1..HALF).contains(&ahead));
        if ours && remote.adopt_unaware(acknowledged, ctx.now) {
            self.pump(ctx, peer);
            // The pulls were requested before the session of the peer was known.
            self.begin_pulls(ctx, peer);
        }
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        match ahead {
            None => {
                count(&mut remote.counters.wrong_number);
                self.refuse(ctx, host, ends.source, sequence, nack::BAD_SESSION);
                return Err(DropReason::Number);
            }
            Some(ahead) if ahead <= EARLY_MAX => self.accept(ctx, peer, ahead, content)?,
            Some(ahead) if ahead >= HALF => {
                count(&mut remote.counters.duplicates);
                self.send_ack(ctx, peer);
            }
            Some(_) => {
                count(&mut remote.counters.wrong_number);
                // The acknowledgement contains the expected number.
                self.send_ack(ctx, peer);
                return Err(DropReason::Number);
            }
        }
        self.rearm(ctx, peer);
        Ok(())
    }

    /// Accepts the next message, or a message up to [`EARLY_MAX`] (255) ahead.
    fn accept(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        ahead: usize,
        content: &PacketContent<'_>,
    ) -> Result<(), DropReason> {
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        let early = &mut remote.receive.early;
        if early.len() <= ahead {
            early.resize_with(ahead.saturating_add(1), || None);
        }
        let gap = early.len() > 1;
        if let Some(place) = early.get_mut(ahead)
            && place.as_mut().is_some_and(|parked| parked.is_conflicting(content))
        {
            let len = place.take().map_or(0, |parked| parked.len());
            self.reorder_quota.give(remote.host, len);
            remote.receive.bytes = remote.receive.bytes.saturating_sub(len);
            return Err(DropReason::Number);
        }
        let early = &remote.receive.early;
        let known = matches!(early.get(ahead), Some(Some(_)));
        // A notification ends an operation at once; earlier messages may have to wait for room.
        if let PacketContent::Notify { total_len, window, window_sequence } = *content
            && !known
        {
            self.on_notify(ctx, peer, total_len, window, window_sequence);
        }
        if ahead == 0 && !known && self.give(ctx, peer, content) {
            self.advance(peer);
            self.deliver(ctx, peer);
            // The sender of a notification may wait for it alone; a filled gap is news for the
            // sender.
            let urgent = gap || matches!(content, PacketContent::Notify { .. });
            self.acknowledge(ctx, peer, urgent);
            return Ok(());
        }
        let parked = self.park(ctx, peer, ahead, content);
        if ahead == 0 && parked.is_ok() {
            self.deliver(ctx, peer);
            self.acknowledge(ctx, peer, gap);
        } else if ahead > 0 && !known && parked.is_ok() {
            // The acknowledgement reports the missing message.
            self.send_ack(ctx, peer);
        }
        parked
    }

    /// Discards early messages that arrived before the connect of their peer: they may belong to a
    /// previous peer with the same numbers. They were not acknowledged, so a live peer retransmits.
    pub(crate) fn forget_early(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let host = remote.host;
        for incoming in std::mem::take(&mut remote.receive.early).into_iter().flatten() {
            self.reorder_quota.give(host, incoming.len());
            if let PendingMessage::Message { data, .. } = incoming {
                ctx.pool.give(data);
            }
        }
        remote.receive.bytes = 0;
    }

    /// Delivers the next message directly from the packet. Returns whether it was delivered.
    pub(crate) fn give(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        content: &PacketContent<'_>,
    ) -> bool {
        match *content {
            PacketContent::Whole(match_info, data) => {
                self.give_message(ctx, peer, match_info, data)
            }
            PacketContent::Fragment(match_info, place, data) if place.count() == 1 => {
                self.give_message(ctx, peer, match_info, data)
            }
            PacketContent::Fragment(..) => false,
            PacketContent::Offer(offered) => self.give_offer(ctx, peer, offered),
            PacketContent::Notify { .. } => true,
        }
    }

    /// Reports a complete message. Returns whether the host side had room.
    fn give_message(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        match_info: u64,
        data: &[u8],
    ) -> bool {
        let given = self.try_report(ctx, peer, &Event::Message { peer, match_info, data });
        if given && let Some(remote) = self.peers.get_mut(peer) {
            count(&mut remote.counters.messages_received);
            add(&mut remote.counters.bytes_received, data.len());
        }
        given
    }

    /// Keeps a message or fragment that cannot be delivered yet.
    fn park(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        ahead: usize,
        content: &PacketContent<'_>,
    ) -> Result<(), DropReason> {
        let Some(remote) = self.peers.get(peer) else { return Err(DropReason::UnknownPeer) };
        if !matches!(remote.receive.early.get(ahead), Some(Some(_))) {
            let incoming = match *content {
                PacketContent::Whole(match_info, data) => {
                    self.charge_pending(ctx, peer, ahead, data.len())?;
                    let data = ctx.pool.with(data);
                    PendingMessage::Message {
                        match_info,
                        data,
                        missing: 0,
                        pipeline: 0,
                        strange: 0,
                    }
                }
                PacketContent::Fragment(match_info, place, _) => {
                    let len = usize::from(place.message_len);
                    self.charge_pending(ctx, peer, ahead, len)?;
                    let mut data = ctx.pool.take(len);
                    data.resize(len, 0);
                    let (missing, pipeline) = (all(place.count()), place.pipeline);
                    PendingMessage::Message { match_info, data, missing, pipeline, strange: 0 }
                }
                PacketContent::Offer(offered) => PendingMessage::Offer(offered),
                PacketContent::Notify { .. } => PendingMessage::Notified,
            };
            let Some(remote) = self.peers.get_mut(peer) else {
                return Err(DropReason::UnknownPeer);
            };
            if ahead > 0 {
                count(&mut remote.counters.early);
            }
            if let Some(place) = remote.receive.early.get_mut(ahead) {
                *place = Some(incoming);
            }
            if !matches!(content, PacketContent::Fragment(..)) {
                return Ok(());
            }
        }
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        let fresh = match (remote.receive.early.get_mut(ahead), content) {
            (Some(Some(incoming)), PacketContent::Fragment(match_info, place, data)) => {
                incoming.fill(*match_info, *place, data)
            }
            _ => false,
        };
        if !fresh {
            // The fragment has arrived but is not acknowledged: the sender must learn that this
            // side is alive.
            count(&mut remote.counters.duplicates);
            self.send_ack(ctx, peer);
        }
        Ok(())
    }

    /// Delivers pending messages while the host side has room. Returns false if it has none.
    pub(crate) fn deliver(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) -> bool {
        loop {
            let Some(remote) = self.peers.get_mut(peer) else { return true };
            let next = remote.receive.early.front_mut();
            let Some(next) =
                next.filter(|next| next.as_ref().is_some_and(PendingMessage::is_whole))
            else {
                return true;
            };
            let Some(incoming) = next.take() else { return true };
            let given = match incoming {
                PendingMessage::Message { match_info, ref data, .. } => {
                    self.give_message(ctx, peer, match_info, data)
                }
                PendingMessage::Offer(offered) => self.give_offer(ctx, peer, offered),
                PendingMessage::Notified => true,
            };
            let Some(remote) = self.peers.get_mut(peer) else { return true };
            if !given {
                if let Some(next) = remote.receive.early.front_mut() {
                    *next = Some(incoming);
                }
                if !remote.receive.ready {
                    remote.receive.ready = true;
                    self.ready.push_back(peer);
                }
                return false;
            }
            if let PendingMessage::Message { data, .. } = incoming {
                self.reorder_quota.give(remote.host, data.len());
                remote.receive.bytes = remote.receive.bytes.saturating_sub(data.len());
                ctx.pool.give(data);
            }
            self.advance(peer);
        }
    }

    /// Advances to the next number.
    fn advance(&mut self, peer: PeerId) {
        if let Some(remote) = self.peers.get_mut(peer) {
            let receive = &mut remote.receive;
            receive.early.pop_front();
            receive.next = receive.next.next();
            receive.unacked = receive.unacked.saturating_add(1);
        }
    }

    /// Acknowledges received messages at once or after the delay.
    pub(crate) fn acknowledge(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId, urgent: bool) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let receive = &mut remote.receive;
        if receive.unacked >= UNACKED_MAX || urgent && receive.unacked > 0 {
            self.send_ack(ctx, peer);
        } else if receive.unacked > 0 {
            receive.ack_at.get_or_insert(ctx.now.saturating_add(ACK_DELAY_NS));
        }
    }

    /// Sends an acknowledgement.
    pub(crate) fn send_ack(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let receive = &mut remote.receive;
        receive.ack_at = None;
        // The peer would not accept it without a session. It will connect again.
        let Some(session) = remote.session else { return };
        receive.unacked = 0;
        receive.acks = receive.acks.wrapping_add(1);
        let ack = Ack {
            ends: EndpointPair { destination: remote.endpoint, source: self.id },
            session,
            acknowledged: receive.next.0,
            number: receive.acks,
        };
        count(&mut remote.counters.acks_sent);
        ctx.send(remote.host, &Packet::Ack(ack));
    }

    /// Processes a separate acknowledgement.
    ///
    /// # Errors
    /// [`DropReason`]: the session, peer or number is wrong.
    pub(crate) fn on_ack(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        ack: &Ack,
    ) -> Result<(), DropReason> {
        if ack.session != self.session {
            count(&mut self.counters.wrong_session);
            return Err(DropReason::Session);
        }
        let Some(peer) = self.peers.at((host, ack.ends.source)) else {
            count(&mut self.counters.strangers);
            return Err(DropReason::UnknownPeer);
        };
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        remote.heard_at = ctx.now;
        let number = SequenceNumber(ack.acknowledged);
        let newer = matches!(ack.number.wrapping_sub(remote.send.heard), 1..=0x7fff_ffff);
        if !self.accepts_ack(ctx, peer, number, newer) {
            return Err(DropReason::Number);
        }
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        let send = &mut remote.send;
        let ahead = number.ahead_of(send.first).map(usize::from);
        // An acknowledgement of more messages is newer in any case. An acknowledgement without news
        // may be of a previous instance of the peer or of this endpoint.
        let counts = match ahead {
            Some(0) => newer && send.quiet_until.is_none_or(|until| until <= ctx.now),
            Some(more) => more <= send.flight.len(),
            None => false,
        };
        if !counts {
            return Err(DropReason::Number);
        }
        send.heard = ack.number;
        count(&mut remote.counters.acks_received);
        self.on_acknowledgement(ctx, peer, number, true);
        Ok(())
    }
}

impl PendingMessage {
    /// Copies a fragment to its position. Returns whether it was missing.
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
