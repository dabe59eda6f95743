//! Pulls: the receiver's side of a large message.
//!
//! The engine requests blocks (eight frames of 4,096 bytes) of an offered message, several at the
//! same time for each peer, and requests lost blocks again. Data is written to the region as it
//! arrives, in any order. At the end the host side gets an event, and the sender a notification. A
//! pull from a local peer requests no blocks: [`local`](crate::local) copies from region to region.
//!
//! Limits: [`PULLS_OF_PEER_MAX`] (8) pulls of a peer run at a time, others wait in order; the
//! [request window](crate::request_window) bounds the requested blocks, and [`BLOCKS_SPAN_MAX`]
//! (64) bounds how far a pull runs ahead of its first incomplete block. A block that completes
//! requests the incomplete blocks before it again at once, each once. Else an incomplete block is
//! requested again after the smoothed round trip and four deviations, at least 4 ms and at most 1 s
//! ([`REREQUEST`](crate::limits::REREQUEST)), doubled each time. A pull without data for
//! [`NicConfig::give_up_ns`](crate::NicConfig) ends with a timeout.
//!
//! A region that was unmapped or removed, a cancel, or a refusal that a repeated request confirms
//! ends the pull with an error; the bytes written so far stay, and the sender is notified of 0
//! bytes. A pull shorter than the message gets its first bytes, and a pull of 0 bytes ends at once.
//! Data for no active pull is dropped. At most [`OFFERS_OF_PEER_MAX`] (256) offers of a peer and
//! 4,096 of an endpoint are open; an offer without room stays in the order of received messages and
//! is delivered when the host side has room (`crate::receive_order`). Called by requests of the
//! host side, [`Nic::receive`](crate::Nic::receive) and the peer's timer. The arithmetic of frames
//! and blocks is in [`offers`](crate::offers), the sender's side in
//! [`pull_reply`](crate::pull_reply). The number `host` names the sending or receiving NIC in the
//! [`NicTable`](crate::nic_table::NicTable).

use std::collections::VecDeque;

use causeway_wire::mx::{Event, Handle, PeerId, Status, Token, Window};
use causeway_wire::mxoe::{EndpointPair, FRAGMENT_LEN, Packet, Pull as PullRequest, PullReply};

use crate::context::{EngineContext, add, count};
use crate::drop_reason::DropReason;
use crate::endpoint::NicEndpoint;
use crate::limits::{BLOCKS_SPAN_MAX, OFFERS_OF_PEER_MAX, PULLS_OF_PEER_MAX};
use crate::offers::{ActivePull, FrameLayout, Offer, OfferHeader, OfferState};
use crate::peer::{MessageContent, QueuedMessage, RemoteEndpoint};

/// Lowest byte of each magic, combined with the endpoint by XOR. Hardware that serves native MX
/// finds the endpoint in this byte.
const MAGIC_BYTE: u8 = 0x80;

/// Returns the endpoint of a magic.
pub(crate) const fn endpoint_of(magic: u32) -> u8 {
    let [.., last] = magic.to_be_bytes();
    last ^ MAGIC_BYTE
}

/// Returns an unpredictable magic for an endpoint.
pub(crate) fn magic_of(endpoint: u8, random: u32) -> u32 {
    random & !0xff | u32::from(endpoint ^ MAGIC_BYTE)
}

/// Requests the missing frames of the block at index `at` of [`ActivePull::blocks`].
fn request_block(
    ctx: &mut EngineContext<'_>,
    id: u8,
    remote: &mut RemoteEndpoint,
    offered: OfferHeader,
    named: Handle,
    pull: &ActivePull,
    at: usize,
) {
    let Some(session) = remote.session else { return };
    let Some((frame_index, frames)) = pull.missing_frames(at) else { return };
    let layout = FrameLayout::new(offered.offset, pull.into.len);
    let (from, _) = layout.range(frame_index);
    let (_, to) = layout.range(frame_index.saturating_add(frames).saturating_sub(1));
    let base = if frame_index == 0 { layout.base } else { 0 };
    let ask = PullRequest {
        ends: EndpointPair { destination: remote.endpoint, source: id },
        session,
        total_len: pull.into.len,
        window: offered.window,
        window_sequence: offered.window_sequence,
        offset: offered.offset,
        handle: named.0,
        magic: pull.magic,
        first_frame_offset: u16::try_from(base).unwrap_or(0),
        block_len: u16::try_from(to.saturating_sub(from)).unwrap_or(0),
        frame_index,
        wide: ctx.wide && remote.pulling.jumbo.is_requested(ctx.now, pull.tries),
    };
    count(&mut remote.counters.blocks_asked);
    ctx.send(remote.host, &Packet::Pull(ask));
}

/// Completes the block at index `at`: measures the round trip, and requests the missing frames of
/// earlier blocks, which may be lost because they were requested earlier.
fn complete_block(
    ctx: &mut EngineContext<'_>,
    id: u8,
    remote: &mut RemoteEndpoint,
    offered: OfferHeader,
    handle: Handle,
    pull: &mut ActivePull,
    at: usize,
) {
    if let Some(block) = pull.blocks.get(at)
        && !block.again
    {
        remote.pulling.trip.measured(ctx.now.saturating_sub(block.asked_at));
        remote.pulling.request_window.arrived();
    }
    for before in 0..at {
        let Some(earlier) = pull.blocks.get_mut(before) else { break };
        if earlier.missing != 0 && !earlier.again {
            earlier.again = true;
            let trip_ns = remote.pulling.trip.smoothed();
            remote.pulling.request_window.lost(ctx.now, trip_ns);
            count(&mut remote.counters.blocks_asked_again);
            request_block(ctx, id, remote, offered, handle, pull, before);
        }
    }
}

impl NicEndpoint {
    /// Reports an offer to the host side. Returns false if the peer, the endpoint or the host side
    /// has no room for it: the caller keeps the offer or lets the peer send it again.
    pub(crate) fn give_offer(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        offered: OfferHeader,
    ) -> bool {
        let Some(remote) = self.peers.get(peer) else { return false };
        if remote.pulling.offers.len() >= OFFERS_OF_PEER_MAX {
            return false;
        }
        let Some(handle) = self.offers.add(peer, offered) else { return false };
        let OfferHeader { match_info, len, .. } = offered;
        if !self.try_report(ctx, peer, &Event::Offered { peer, match_info, len, handle }) {
            self.offers.remove(handle);
            return false;
        }
        if let Some(remote) = self.peers.get_mut(peer) {
            remote.pulling.offers.push(handle);
            count(&mut remote.counters.messages_received);
        }
        true
    }

    /// Processes the request of the host side to pull an offered message. The event `Pulled` ends
    /// it: with `EndpointUnreachable` for an unknown handle or a second pull of the offer, with
    /// `BadRdmaWindow` for memory outside of a region.
    pub(crate) fn pull(
        &mut self,
        ctx: &mut EngineContext<'_>,
        handle: Handle,
        token: Token,
        into: Window,
    ) {
        let offer = self.offers.get(handle);
        let Some(offer) = offer.filter(|offer| matches!(offer.state, OfferState::Offered)) else {
            count(&mut self.counters.wrong_requests);
            let status = Status::EndpointUnreachable;
            self.report(ctx, Event::Pulled { token, status });
            return;
        };
        let len = into.len.min(offer.offered.len);
        let into = Window { len, ..into };
        offer.state = OfferState::Waiting { token, into };
        let peer = offer.peer;
        if !self.is_registered(into) {
            count(&mut self.counters.wrong_requests);
            self.end_pull(ctx, handle, Status::BadRdmaWindow);
        } else if len == 0 {
            self.end_pull(ctx, handle, Status::Success);
        } else {
            if let Some(remote) = self.peers.get_mut(peer) {
                remote.pulling.waiting.push_back(handle);
            }
            self.begin_pulls(ctx, peer);
        }
    }

    /// Starts waiting pulls, up to [`PULLS_OF_PEER_MAX`] (8) for a peer.
    pub(crate) fn begin_pulls(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        while let Some(remote) = self.peers.get_mut(peer) {
            if remote.pulling.active.len() >= PULLS_OF_PEER_MAX || remote.session.is_none() {
                break;
            }
            let Some(handle) = remote.pulling.waiting.pop_front() else { break };
            let Some(offer) = self.offers.get(handle) else { continue };
            let OfferState::Waiting { token, into } = offer.state else { continue };
            if Self::pull_local(ctx, self.id, handle, remote.host) {
                offer.state = OfferState::Copying { token, into, done: 0 };
                remote.pulling.active.push(handle);
                continue;
            }
            let layout = FrameLayout::new(offer.offered.offset, into.len);
            offer.state = OfferState::Pulling(ActivePull {
                token,
                into,
                magic: magic_of(self.id, ctx.out.random()),
                frames: layout.frames(),
                first: 0,
                blocks: VecDeque::with_capacity(BLOCKS_SPAN_MAX),
                due: 0,
                tries: 0,
                heard_at: ctx.now,
                refused: false,
            });
            remote.pulling.active.push(handle);
        }
        self.request_blocks(ctx, peer);
        self.rearm(ctx, peer);
    }

    /// Requests blocks of the pulls from a peer, up to the request window. Lost blocks come first.
    /// Each pull has at least one requested block, and older pulls have precedence.
    pub(crate) fn request_blocks(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let id = self.id;
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let mut asked = 0_usize;
        for handle in &remote.pulling.active {
            if let Some(OfferState::Pulling(pull)) =
                self.offers.get(*handle).map(|offer| &offer.state)
            {
                asked = asked.saturating_add(pull.asked());
            }
        }
        for index in 0..remote.pulling.active.len() {
            let Some(handle) = remote.pulling.active.get(index).copied() else { return };
            let Some(offer) = self.offers.get(handle) else { continue };
            let offered = offer.offered;
            let OfferState::Pulling(pull) = &mut offer.state else { continue };
            let mut of_pull = pull.asked();
            // A peer that does not answer gets only one request for each pull.
            let most = if pull.tries > 2 { 0 } else { remote.pulling.request_window.blocks() };
            while (asked < most || of_pull == 0)
                && let Some(at) = pull.next_block(ctx.now)
            {
                if pull.blocks.get(at).is_some_and(|block| block.again) {
                    count(&mut remote.counters.blocks_asked_again);
                }
                pull.due = ctx.now.saturating_add(remote.pulling.trip.wait(pull.tries));
                request_block(ctx, id, remote, offered, handle, pull, at);
                (asked, of_pull) = (asked.saturating_add(1), of_pull.saturating_add(1));
            }
        }
    }

    /// Processes a frame of a block.
    ///
    /// # Errors
    /// [`DropReason`]: the frame belongs to no pull, or its data has already arrived.
    pub(crate) fn on_pull_reply(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        reply: &PullReply<'_>,
    ) -> Result<(), DropReason> {
        let id = self.id;
        let handle = Handle(reply.handle);
        let Some((offer, remote)) = self.pull_of_reply(host, reply) else {
            count(&mut self.counters.replies_forged);
            return Err(DropReason::Handle);
        };
        let (peer, offered) = (offer.peer, offer.offered);
        let OfferState::Pulling(pull) = &mut offer.state else { return Err(DropReason::Handle) };
        remote.heard_at = ctx.now;
        let layout = FrameLayout::new(offered.offset, pull.into.len);
        let frames = layout.frames_at(reply.offset, reply.data.len()).filter(|(frame, two)| {
            let [sequence, ..] = frame.to_le_bytes();
            sequence == reply.frame_sequence && (ctx.wide || !two)
        });
        let (into, tries) = (pull.into, pull.tries);
        let missing = frames.and_then(|(frame, two)| pull.missing(frame, two));
        let Some((at, block, bits)) = missing else {
            count(&mut remote.counters.replies_stray);
            return Err(DropReason::Number);
        };
        let offset = into.offset.saturating_add(reply.offset.into());
        if ctx.out.write(id, into.region, offset, reply.data).is_err() {
            count(&mut self.counters.region_faults);
            self.end_pull(ctx, handle, Status::BadRdmaWindow);
            return Err(DropReason::Window);
        }
        count(&mut remote.counters.replies_received);
        add(&mut remote.counters.bytes_pulled, reply.data.len());
        let jumbo = &mut remote.pulling.jumbo;
        if reply.data.len() > FRAGMENT_LEN {
            jumbo.arrived();
        } else if ctx.wide && block.missing & bits.wrapping_shl(1) != 0 {
            jumbo.common_arrived(ctx.now, tries);
        }
        block.missing &= !bits;
        let complete = block.missing == 0;
        (pull.heard_at, pull.tries, pull.refused) = (ctx.now, 0, false);
        let wait = remote.pulling.trip.wait(0);
        pull.due = ctx.now.saturating_add(wait);
        if complete {
            complete_block(ctx, id, remote, offered, handle, pull, at);
            if pull.drop_complete() {
                self.end_pull(ctx, handle, Status::Success);
            } else {
                self.request_blocks(ctx, peer);
            }
        }
        self.rearm(ctx, peer);
        Ok(())
    }

    /// Returns the offer that a frame belongs to, and its peer. The host, handle and magic must
    /// match an active pull.
    fn pull_of_reply(
        &mut self,
        host: u16,
        reply: &PullReply<'_>,
    ) -> Option<(&mut Offer, &mut RemoteEndpoint)> {
        let offer = self.offers.get(Handle(reply.handle))?;
        let remote = self.peers.get_mut(offer.peer)?;
        let magic = match &offer.state {
            OfferState::Pulling(pull) => Some(pull.magic),
            OfferState::Offered | OfferState::Waiting { .. } | OfferState::Copying { .. } => None,
        };
        (remote.host == host && magic == Some(reply.magic)).then_some((offer, remote))
    }

    /// Runs the timers of the pulls from a peer: incomplete blocks are requested again.
    pub(crate) fn pulls_due(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let (mut index, mut lost) = (0_usize, false);
        while let Some(remote) = self.peers.get_mut(peer) {
            let Some(handle) = remote.pulling.active.get(index).copied() else { break };
            index = index.saturating_add(1);
            let Some(offer) = self.offers.get(handle) else { continue };
            let OfferState::Pulling(pull) = &mut offer.state else { continue };
            if pull.due > ctx.now {
                continue;
            }
            if ctx.now.saturating_sub(pull.heard_at) >= ctx.give_up_ns {
                self.end_pull(ctx, handle, Status::Timeout);
                index = index.saturating_sub(1);
                continue;
            }
            pull.tries = pull.tries.saturating_add(1);
            pull.due = ctx.now.saturating_add(remote.pulling.trip.wait(pull.tries));
            pull.mark_lost();
            let trip_ns = remote.pulling.trip.smoothed();
            remote.pulling.request_window.lost(ctx.now, trip_ns);
            lost = true;
        }
        if lost {
            self.request_blocks(ctx, peer);
        }
    }

    /// Removes a pull. Returns the token of its event.
    fn take_pull(&mut self, handle: Handle) -> Option<Token> {
        let offer = self.offers.remove(handle)?;
        if let Some(remote) = self.peers.get_mut(offer.peer) {
            remote.pulling.offers.retain(|other| *other != handle);
            remote.pulling.active.retain(|other| *other != handle);
            remote.pulling.waiting.retain(|other| *other != handle);
        }
        offer.state.pull().map(|(token, _)| token)
    }

    /// Ends a pull: reports it to the host side, and notifies the sender.
    pub(crate) fn end_pull(&mut self, ctx: &mut EngineContext<'_>, handle: Handle, status: Status) {
        let Some(offer) = self.offers.get(handle) else { return };
        let (peer, offered) = (offer.peer, offer.offered);
        let Some((_, into)) = offer.state.pull() else { return };
        if let Some(token) = self.take_pull(handle) {
            self.report(ctx, Event::Pulled { token, status });
        }
        let OfferHeader { window, window_sequence, .. } = offered;
        let total_len = if status == Status::Success { into.len } else { 0 };
        let content = MessageContent::Notify { total_len, window, window_sequence };
        let message =
            QueuedMessage { token: None, content, first_at: 0, sent_at: 0, resent: false };
        self.enqueue(ctx, peer, message);
        self.begin_pulls(ctx, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_has_the_endpoint_at_the_position_of_native_mx() {
        assert_eq!(0x2107_1980 & 0xff, u32::from(MAGIC_BYTE));
        for endpoint in [0, 1, 254] {
            assert_eq!(endpoint_of(magic_of(endpoint, 0xdead_beef)), endpoint);
            assert_eq!(endpoint_of(0x2107_1980 ^ u32::from(endpoint)), endpoint);
        }
    }
}
