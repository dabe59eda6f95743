//! The steps of an endpoint with its local peers.
//!
//! The sending half: which messages of a peer's queue may be given ([`NicEndpoint::local_take`]),
//! and their ends. The receiving half: delivery to the host side ([`NicEndpoint::local_accept`]),
//! and the state of a pull. Neither half sees the other endpoint.
//!
//! A message is taken from its queue before it is given; the caller must end it
//! ([`NicEndpoint::local_delivered`]) or put it back. An offer without a free send window stays in
//! the queue, and later messages of its peer behind it. The receiver counts a message of another
//! session or of an unknown endpoint, and refuses it with `BadSession`; it keeps no message without
//! room, but notes the peer and asks for the message once. A notification needs no room. A step
//! with a handle, peer or session that is no longer valid has no effect; a window that is no longer
//! offered is an error status.
//!
//! Called by [`perform`](super::perform()), [`deliver`](super::deliver) and [`route`](super::route)
//! through [`Nic`](crate::Nic), and by `transmit`, `endpoint` and `pull` where a peer is local, on
//! the thread of the NIC.

use causeway_wire::mx::{Address, Event, Handle, NicId, PeerId, Status, Token, Window};

use super::queue::{LocalEnds, Step};
use crate::context::{EngineContext, add, count};
use crate::endpoint::NicEndpoint;
use crate::nic_table::NicTable;
use crate::offers::{OfferHeader, OfferState};
use crate::peer::{MessageContent, QueuedMessage, RemoteEndpoint};
use crate::receive_order::PacketContent;
use crate::transmit::give_window;

/// Result of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The host side has the message.
    Done,
    /// The host side has no room. The receiver asks for the message when it has.
    Full,
    /// The receiver does not know the sender: the peer ends with this status.
    Refused(Status),
}

/// A message that was taken from the queue of its peer.
#[derive(Debug)]
pub(super) struct TakenMessage {
    /// Sender and receiver.
    pub(super) ends: LocalEnds,
    /// The message.
    pub(super) message: QueuedMessage,
}

/// The next piece of a pull.
#[derive(Debug, Clone, Copy)]
pub(super) struct PullPiece {
    /// From the pulling endpoint to the endpoint that offers the message.
    pub(super) ends: LocalEnds,
    /// The offer.
    pub(super) offered: OfferHeader,
    /// Memory into which the whole message is written.
    pub(super) into: Window,
    /// Bytes that were copied.
    pub(super) done: u32,
}

/// Returns the address of a peer.
fn address(hosts: &NicTable, remote: &RemoteEndpoint) -> Option<Address> {
    let (mac, _) = hosts.get(remote.host)?;
    Some(Address { nic: NicId::of(mac), endpoint: remote.endpoint })
}

impl MessageContent {
    /// Returns the content as the receiver processes it, or `None` for an offer without a window.
    pub(super) fn as_packet(&self) -> Option<PacketContent<'_>> {
        Some(match *self {
            Self::Eager { match_info, ref data } => PacketContent::Whole(match_info, data),
            Self::Offer { match_info, from, window } => {
                let (window, window_sequence) = window?;
                let len = from.len;
                PacketContent::Offer(OfferHeader {
                    match_info,
                    len,
                    window,
                    window_sequence,
                    offset: 0,
                })
            }
            Self::Notify { total_len, window, window_sequence } => {
                PacketContent::Notify { total_len, window, window_sequence }
            }
        })
    }
}

impl NicEndpoint {
    /// Returns the ends of the connection to a peer, or `None` if the peer is not local or its
    /// session is not known yet.
    pub(super) fn local_ends(
        &self,
        hosts: &NicTable,
        own: NicId,
        remote: &RemoteEndpoint,
    ) -> Option<LocalEnds> {
        let session = remote.session.filter(|_| hosts.is_local(remote.host))?;
        let from = Address { nic: own, endpoint: self.id };
        Some(LocalEnds { from: (from, self.session), to: (address(hosts, remote)?, session) })
    }

    /// Returns the peer that is the sender of a step.
    pub(super) fn local_peer(&self, host: u16, ends: &LocalEnds) -> Option<PeerId> {
        let peer = self.peers.at((host, ends.from.0.endpoint))?;
        let session = self.peers.get(peer)?.session;
        (ends.to.1 == self.session && session == Some(ends.from.1)).then_some(peer)
    }

    /// Returns the route of a message that may be delivered at once.
    #[inline]
    pub(super) fn local_route(
        &self,
        hosts: &NicTable,
        own: NicId,
        peer: PeerId,
    ) -> Option<LocalEnds> {
        let remote = self.peers.get(peer)?;
        if !remote.is_reported || !remote.send.queue.is_empty() || self.outbox.is_full() {
            return None;
        }
        self.local_ends(hosts, own, remote)
    }

    /// Queues the work of passing the messages for a local peer. Returns false if the peer is not
    /// local.
    pub(crate) fn pump_local(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) -> bool {
        let Some(remote) = self.peers.get_mut(peer).filter(|r| ctx.hosts.is_local(r.host)) else {
            return false;
        };
        let send = &mut remote.send;
        if !send.is_pumped && !send.queue.is_empty() && remote.session.is_some() {
            let Some((mac, _)) = ctx.hosts.get(remote.host) else { return true };
            send.is_pumped = true;
            ctx.local.push(Step::Send { to: NicId::of(mac), endpoint: self.id, peer });
        }
        true
    }

    /// Takes the next message for a local peer from its queue. Returns `None` if there is none, or
    /// if the first message must wait.
    pub(super) fn local_take(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
    ) -> Option<TakenMessage> {
        let remote = self.peers.get(peer)?;
        let ends = self.local_ends(ctx.hosts, NicId::of(ctx.own), remote)?;
        let send = &mut self.peers.get_mut(peer)?.send;
        send.is_pumped = false;
        give_window(send, (&mut self.windows, &mut self.window_waiters), peer)?;
        Some(TakenMessage { ends, message: send.queue.pop_front()? })
    }

    /// Puts a message back that found no room.
    pub(super) fn local_put_back(&mut self, peer: PeerId, message: QueuedMessage) {
        if let Some(remote) = self.peers.get_mut(peer) {
            remote.send.queue.push_front(message);
        }
    }

    /// Ends a message that was delivered.
    pub(super) fn local_delivered(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        message: QueuedMessage,
    ) {
        if let Some(remote) = self.peers.get_mut(peer) {
            let counters = &mut remote.counters;
            count(&mut counters.messages_sent);
            if let MessageContent::Eager { data, .. } = &message.content {
                add(&mut counters.bytes_sent, data.len());
            }
        }
        self.end_message(ctx, message, Status::Success);
    }

    /// Ends an eager message that was delivered and never queued.
    pub(super) fn local_sent(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        token: Token,
        len: usize,
    ) {
        if let Some(remote) = self.peers.get_mut(peer) {
            count(&mut remote.counters.messages_sent);
            add(&mut remote.counters.bytes_sent, len);
        }
        if token != Token::UNREPORTED {
            let taken = u32::try_from(len).unwrap_or(u32::MAX);
            self.report(ctx, Event::Sent { token, status: Status::Success, taken });
        }
    }

    /// Delivers a message of a local peer to the host side.
    pub(super) fn local_accept(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        ends: &LocalEnds,
        content: &PacketContent<'_>,
    ) -> Delivery {
        if ends.to.1 != self.session {
            count(&mut self.counters.wrong_session);
            return Delivery::Refused(Status::BadSession);
        }
        let peer = self.peers.at((host, ends.from.0.endpoint));
        let Some((peer, remote)) = peer.and_then(|peer| Some((peer, self.peers.get_mut(peer)?)))
        else {
            count(&mut self.counters.strangers);
            return Delivery::Refused(Status::BadSession);
        };
        // The answer to the own connect may still be on its way.
        if *remote.session.get_or_insert(ends.from.1) != ends.from.1 {
            count(&mut self.counters.strangers);
            return Delivery::Refused(Status::BadSession);
        }
        remote.heard_at = ctx.now;
        if let PacketContent::Notify { total_len, window, window_sequence } = *content {
            self.on_notify(ctx, peer, total_len, window, window_sequence);
            return Delivery::Done;
        }
        if remote.receive.ready {
            return Delivery::Full;
        }
        if self.give(ctx, peer, content) {
            return Delivery::Done;
        }
        if let Some(remote) = self.peers.get_mut(peer) {
            remote.receive.ready = true;
            self.ready.push_back(peer);
        }
        Delivery::Full
    }

    /// Asks a local peer for its messages, because the host side has room. Returns false if the
    /// peer is not local.
    pub(crate) fn ask_local(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) -> bool {
        let ends =
            self.peers.get(peer).and_then(|r| self.local_ends(ctx.hosts, NicId::of(ctx.own), r));
        ends.into_iter().for_each(|ends| ctx.local.push(Step::Room(ends)));
        ends.is_some()
    }

    /// Reports to a peer that has just been removed that this end is gone. No effect if the peer is
    /// not local.
    pub(crate) fn part_from_local(
        &self,
        ctx: &mut EngineContext<'_>,
        remote: &RemoteEndpoint,
        status: Status,
    ) {
        if let Some(ends) = self.local_ends(ctx.hosts, NicId::of(ctx.own), remote) {
            ctx.local.push(Step::Gone(ends, status));
        }
    }

    /// Queues the work of a pull from a local peer. Returns false if the peer is not local.
    pub(crate) fn pull_local(
        ctx: &mut EngineContext<'_>,
        endpoint: u8,
        handle: Handle,
        host: u16,
    ) -> bool {
        if !ctx.hosts.is_local(host) {
            return false;
        }
        if let Some((mac, _)) = ctx.hosts.get(host) {
            ctx.local.push(Step::Pull { to: NicId::of(mac), endpoint, handle });
        }
        true
    }

    /// Returns the next piece of a pull, or `None` if the pull ended.
    pub(super) fn local_piece(
        &mut self,
        ctx: &EngineContext<'_>,
        handle: Handle,
    ) -> Option<PullPiece> {
        let offer = self.offers.get(handle)?;
        let OfferState::Copying { into, done, .. } = offer.state else { return None };
        let (peer, offered) = (offer.peer, offer.offered);
        let remote = self.peers.get(peer)?;
        let ends = self.local_ends(ctx.hosts, NicId::of(ctx.own), remote)?;
        Some(PullPiece { ends, offered, into, done })
    }

    /// Returns the memory of a message that is offered to a peer.
    ///
    /// # Errors
    /// [`Status::Aborted`] if the sender cancelled the message, [`Status::BadRdmaWindow`] if the
    /// message is not offered any more for another reason.
    pub(super) fn local_window(
        &self,
        peer: PeerId,
        offered: &OfferHeader,
    ) -> Result<Window, Status> {
        let (window, sequence) = (offered.window, offered.window_sequence);
        match self.windows.get(window, sequence, peer) {
            Some(open) if open.from.len == offered.len => Ok(open.from),
            None if self.windows.is_cancelled(window, sequence) => Err(Status::Aborted),
            _ => Err(Status::BadRdmaWindow),
        }
    }

    /// Ends an offer with memory that cannot be read.
    pub(super) fn local_fault(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        offered: &OfferHeader,
    ) {
        count(&mut self.counters.region_faults);
        let (window, sequence) = (offered.window, offered.window_sequence);
        if let Some(open) = self.windows.get(window, sequence, peer) {
            self.withdraw(ctx, window, open, Status::BadRdmaWindow);
        }
    }

    /// Records a copied piece. Returns whether more follow.
    pub(super) fn local_copied(
        &mut self,
        ctx: &mut EngineContext<'_>,
        handle: Handle,
        len: u32,
    ) -> bool {
        let Some(offer) = self.offers.get(handle) else { return false };
        let OfferState::Copying { into, done, .. } = &mut offer.state else { return false };
        *done = done.saturating_add(len);
        let more = *done < into.len;
        if let Some(remote) = self.peers.get_mut(offer.peer) {
            add(&mut remote.counters.bytes_pulled, len as usize);
        }
        if !more {
            self.end_pull(ctx, handle, Status::Success);
        }
        more
    }
}
