//! The side of a large message that wants it: blocks are asked for, several at a time, and what
//! is lost of them again.

use std::collections::VecDeque;

use causeway_wire::mx::{Event, Handle, PeerId, Status, Token, Window};
use causeway_wire::mxoe::{Ends, FRAGMENT_LEN, Packet, Pull as Ask, PullNack, PullReply};

use crate::context::{Env, add, count};
use crate::endpoint::Endpoint;
use crate::limits::{BLOCKS_SPAN_MAX, OFFERS_OF_PARTNER_MAX, PULLS_OF_PARTNER_MAX};
use crate::nic::Dropped;
use crate::offers::{Layout, Pull, State};
use crate::peer::{Content, Message, Offered, Partner};
use crate::refusal::status_of;

/// What all magics of an endpoint have in their lowest byte beside its number: by it, hardware
/// that serves native MX finds the endpoint.
const MAGIC_BYTE: u8 = 0x80;

/// The endpoint that a magic is of.
pub(crate) const fn endpoint_of(magic: u32) -> u8 {
    let [.., last] = magic.to_be_bytes();
    last ^ MAGIC_BYTE
}

/// A magic of an endpoint that nobody guesses.
fn magic_of(endpoint: u8, random: u32) -> u32 {
    random & !0xff | u32::from(endpoint ^ MAGIC_BYTE)
}

/// The block that a place in [`Pull::blocks`] is asked for, or what is missing of it.
fn ask(
    env: &mut Env<'_>,
    id: u8,
    partner: &mut Partner,
    offered: Offered,
    named: Handle,
    pull: &Pull,
    at: usize,
) {
    let Some(session) = partner.session else { return };
    let Some((frame_index, frames)) = pull.hole(at) else { return };
    let layout = Layout::new(offered.offset, pull.into.len);
    let (from, _) = layout.range(frame_index);
    let (_, to) = layout.range(frame_index.saturating_add(frames).saturating_sub(1));
    let base = if frame_index == 0 { layout.base } else { 0 };
    let ask = Ask {
        ends: Ends { destination: partner.endpoint, source: id },
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
        wide: env.wide && partner.pulling.wide.is_asked(env.now, pull.tries),
    };
    count(&mut partner.counters.blocks_asked);
    env.send(partner.host, &Packet::Pull(ask));
}

impl Endpoint {
    /// Tells the library of an offer, if there is room for it.
    pub(crate) fn give_offer(&mut self, env: &mut Env<'_>, peer: PeerId, offered: Offered) -> bool {
        let Some(partner) = self.peers.get(peer) else { return false };
        if partner.pulling.offers.len() >= OFFERS_OF_PARTNER_MAX {
            return false;
        }
        let Some(handle) = self.offers.add(peer, offered) else { return false };
        let Offered { match_info, len, .. } = offered;
        if !self.offer(env, peer, &Event::Offered { peer, match_info, len, handle }) {
            self.offers.remove(handle);
            return false;
        }
        if let Some(partner) = self.peers.get_mut(peer) {
            partner.pulling.offers.push(handle);
            count(&mut partner.counters.messages_received);
        }
        true
    }

    /// The library wants an offered message.
    pub(crate) fn pull(&mut self, env: &mut Env<'_>, handle: Handle, token: Token, into: Window) {
        let offer = self.offers.get(handle);
        let Some(offer) = offer.filter(|offer| matches!(offer.state, State::Offered)) else {
            count(&mut self.counters.wrong_requests);
            let status = Status::EndpointUnreachable;
            self.tell(env, Event::Pulled { token, status });
            return;
        };
        let len = into.len.min(offer.offered.len);
        let into = Window { len, ..into };
        offer.state = State::Waiting { token, into };
        let peer = offer.peer;
        if !self.is_registered(into) {
            count(&mut self.counters.wrong_requests);
            self.end_pull(env, handle, Status::BadRdmaWindow);
        } else if len == 0 {
            self.end_pull(env, handle, Status::Success);
        } else {
            if let Some(partner) = self.peers.get_mut(peer) {
                partner.pulling.waiting.push_back(handle);
            }
            self.begin_pulls(env, peer);
        }
    }

    /// Begins pulls that wait, as many as may be.
    pub(crate) fn begin_pulls(&mut self, env: &mut Env<'_>, peer: PeerId) {
        while let Some(partner) = self.peers.get_mut(peer) {
            if partner.pulling.active.len() >= PULLS_OF_PARTNER_MAX || partner.session.is_none() {
                break;
            }
            let Some(handle) = partner.pulling.waiting.pop_front() else { break };
            let Some(offer) = self.offers.get(handle) else { continue };
            let State::Waiting { token, into } = offer.state else { continue };
            let layout = Layout::new(offer.offered.offset, into.len);
            offer.state = State::Pulling(Pull {
                token,
                into,
                magic: magic_of(self.id, env.out.random()),
                frames: layout.frames(),
                first: 0,
                blocks: VecDeque::with_capacity(BLOCKS_SPAN_MAX),
                due: 0,
                tries: 0,
                heard_at: env.now,
                refused: false,
            });
            partner.pulling.active.push(handle);
        }
        self.ask_more(env, peer);
        self.rearm(env, peer);
    }

    /// Asks a peer for the next blocks of what is pulled from it, as many as may be asked for;
    /// what was lost comes first. At least one of each pull, else of those that began first.
    fn ask_more(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let id = self.id;
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let mut asked = 0_usize;
        for handle in &partner.pulling.active {
            if let Some(State::Pulling(pull)) = self.offers.get(*handle).map(|offer| &offer.state) {
                asked = asked.saturating_add(pull.asked());
            }
        }
        for index in 0..partner.pulling.active.len() {
            let Some(handle) = partner.pulling.active.get(index).copied() else { return };
            let Some(offer) = self.offers.get(handle) else { continue };
            let offered = offer.offered;
            let State::Pulling(pull) = &mut offer.state else { continue };
            let mut of_pull = pull.asked();
            // Who does not answer is asked for less.
            let most = if pull.tries > 2 { 0 } else { partner.pulling.breadth.blocks() };
            while (asked < most || of_pull == 0)
                && let Some(at) = pull.next_block(env.now)
            {
                if pull.blocks.get(at).is_some_and(|block| block.again) {
                    count(&mut partner.counters.blocks_asked_again);
                }
                pull.due = env.now.saturating_add(partner.pulling.trip.wait(pull.tries));
                ask(env, id, partner, offered, handle, pull, at);
                (asked, of_pull) = (asked.saturating_add(1), of_pull.saturating_add(1));
            }
        }
    }

    /// A frame of a block came.
    pub(crate) fn replied(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        reply: &PullReply<'_>,
    ) -> Result<(), Dropped> {
        let id = self.id;
        let handle = Handle(reply.handle);
        let found = self.offers.get(handle).and_then(|offer| {
            let partner = self.peers.get_mut(offer.peer)?;
            (partner.host == host).then_some((offer, partner))
        });
        let Some((offer, partner)) = found else {
            count(&mut self.counters.replies_forged);
            return Err(Dropped::Handle);
        };
        let (peer, offered) = (offer.peer, offer.offered);
        let State::Pulling(pull) = &mut offer.state else {
            count(&mut self.counters.replies_forged);
            return Err(Dropped::Handle);
        };
        if pull.magic != reply.magic {
            count(&mut self.counters.replies_forged);
            return Err(Dropped::Handle);
        }
        partner.heard_at = env.now;
        let layout = Layout::new(offered.offset, pull.into.len);
        let frames = layout.frames_at(reply.offset, reply.data.len()).filter(|(frame, two)| {
            let [sequence, ..] = frame.to_le_bytes();
            sequence == reply.frame_sequence && (env.wide || !two)
        });
        let (into, tries) = (pull.into, pull.tries);
        let missing = frames.and_then(|(frame, two)| pull.missing(frame, two));
        let Some((at, block, bits)) = missing else {
            count(&mut partner.counters.replies_stray);
            return Err(Dropped::Number);
        };
        let offset = into.offset.saturating_add(reply.offset.into());
        if env.out.write(id, into.region, offset, reply.data).is_err() {
            count(&mut self.counters.region_faults);
            self.end_pull(env, handle, Status::BadRdmaWindow);
            return Err(Dropped::Window);
        }
        count(&mut partner.counters.replies_received);
        add(&mut partner.counters.bytes_pulled, reply.data.len());
        let wide = &mut partner.pulling.wide;
        if reply.data.len() > FRAGMENT_LEN {
            wide.came();
        } else if env.wide && block.missing & bits.wrapping_shl(1) != 0 {
            wide.one_came(env.now, tries);
        }
        block.missing &= !bits;
        let block = *block;
        (pull.heard_at, pull.tries, pull.refused) = (env.now, 0, false);
        let wait = partner.pulling.trip.wait(0);
        pull.due = env.now.saturating_add(wait);
        if block.missing == 0 {
            let trip = &mut partner.pulling.trip;
            if !block.again {
                trip.measured(env.now.saturating_sub(block.asked_at));
                partner.pulling.breadth.came();
            }
            // Blocks before it were asked for before: what is missing of them may be lost.
            for before in 0..at {
                let Some(earlier) = pull.blocks.get_mut(before) else { break };
                if earlier.missing != 0 && !earlier.again {
                    earlier.again = true;
                    let trip_ns = partner.pulling.trip.smoothed();
                    partner.pulling.breadth.lost(env.now, trip_ns);
                    count(&mut partner.counters.blocks_asked_again);
                    ask(env, id, partner, offered, handle, pull, before);
                }
            }
            if pull.is_over() {
                self.end_pull(env, handle, Status::Success);
            } else {
                self.ask_more(env, peer);
            }
        }
        self.rearm(env, peer);
        Ok(())
    }

    /// Nothing came of pulls of a peer for too long: what is missing is asked for again.
    pub(crate) fn pulls_due(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let (mut index, mut lost) = (0_usize, false);
        while let Some(partner) = self.peers.get_mut(peer) {
            let Some(handle) = partner.pulling.active.get(index).copied() else { break };
            index = index.saturating_add(1);
            let Some(offer) = self.offers.get(handle) else { continue };
            let State::Pulling(pull) = &mut offer.state else { continue };
            if pull.due > env.now {
                continue;
            }
            if env.now.saturating_sub(pull.heard_at) >= env.give_up_ns {
                self.end_pull(env, handle, Status::Timeout);
                index = index.saturating_sub(1);
                continue;
            }
            pull.tries = pull.tries.saturating_add(1);
            pull.due = env.now.saturating_add(partner.pulling.trip.wait(pull.tries));
            pull.lose();
            let trip_ns = partner.pulling.trip.smoothed();
            partner.pulling.breadth.lost(env.now, trip_ns);
            lost = true;
        }
        if lost {
            self.ask_more(env, peer);
        }
    }

    /// A pull was refused.
    pub(crate) fn pull_refused(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        nack: &PullNack,
    ) -> Result<(), Dropped> {
        count(&mut self.counters.nacks_received);
        let handle = Handle(nack.handle);
        let known = self.offers.get(handle).is_some_and(|offer| {
            let partner = self.peers.get(offer.peer);
            let from = partner.map(|partner| (partner.host, partner.endpoint));
            matches!(&offer.state, State::Pulling(pull) if pull.magic == nack.magic)
                && from == Some((host, nack.source))
        });
        let status = match nack.reason {
            causeway_wire::mxoe::nack::BAD_WINDOW => Some(Status::BadRdmaWindow),
            other => status_of(other),
        };
        let Some(status) = status.filter(|_| known) else {
            count(&mut self.counters.nacks_strange);
            return Err(Dropped::Refusal);
        };
        let Some(offer) = self.offers.get(handle) else { return Err(Dropped::Handle) };
        let peer = offer.peer;
        if let State::Pulling(pull) = &mut offer.state
            && !pull.refused
        {
            // It may have been another by a bit: it is asked for once more. By another magic, so
            // that neither this refusal nor those of other blocks, late or doubled, answer that
            // too.
            pull.refused = true;
            pull.magic = magic_of(self.id, env.out.random());
            pull.lose();
            self.ask_more(env, peer);
            self.rearm(env, peer);
            return Ok(());
        }
        // Who offered it hears so, lest it wait for ever.
        self.end_pull(env, handle, status);
        Ok(())
    }

    /// Takes a pull out: who hears of it.
    fn take_pull(&mut self, handle: Handle) -> Option<Token> {
        let offer = self.offers.remove(handle)?;
        if let Some(partner) = self.peers.get_mut(offer.peer) {
            partner.pulling.offers.retain(|other| *other != handle);
            partner.pulling.active.retain(|other| *other != handle);
            partner.pulling.waiting.retain(|other| *other != handle);
        }
        match offer.state {
            State::Offered => None,
            State::Waiting { token, .. } => Some(token),
            State::Pulling(pull) => Some(pull.token),
        }
    }

    /// A pull is over: the library and the sender hear of it.
    pub(crate) fn end_pull(&mut self, env: &mut Env<'_>, handle: Handle, status: Status) {
        let Some(offer) = self.offers.get(handle) else { return };
        let (peer, offered) = (offer.peer, offer.offered);
        let into = match &offer.state {
            State::Offered => return,
            State::Waiting { into, .. } => *into,
            State::Pulling(pull) => pull.into,
        };
        if let Some(token) = self.take_pull(handle) {
            self.tell(env, Event::Pulled { token, status });
        }
        let Offered { window, window_sequence, .. } = offered;
        let total_len = if status == Status::Success { into.len } else { 0 };
        let content = Content::Notify { total_len, window, window_sequence };
        let message = Message { token: None, content, first_at: 0, sent_at: 0, resent: false };
        self.enqueue(env, peer, message);
        self.begin_pulls(env, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_magic_says_its_endpoint_where_native_mx_looks_for_it() {
        assert_eq!(0x2107_1980 & 0xff, u32::from(MAGIC_BYTE));
        for endpoint in [0, 1, 254] {
            assert_eq!(endpoint_of(magic_of(endpoint, 0xdead_beef)), endpoint);
            assert_eq!(endpoint_of(0x2107_1980 ^ u32::from(endpoint)), endpoint);
        }
    }
}
