//! Sending messages: numbers, windows, acknowledgements that come, and sending again.

use causeway_wire::mx::{PeerId, Status};
use causeway_wire::mxoe::{
    Eager, Ends, FRAGMENT_LEN, Fragment, FragmentPlace, Notify, PIPELINE, Packet, Rendezvous,
};

use crate::context::{Env, add, count};
use crate::endpoint::Endpoint;
use crate::limits::{
    DUPLICATE_ACKS, IN_FLIGHT_MAX, SMALL_BYTES_MAX, TINY_BYTES_MAX, WINDOW_PACKETS,
};
use crate::peer::{Content, Message, Partner};
use crate::send_windows::Open;
use crate::sequence::Number;

/// Most messages that are sent again at one sign.
const RECOVERY_STEP_MAX: usize = 64;

impl Content {
    /// How many packets it takes.
    fn packets(&self) -> usize {
        match self {
            Self::Eager { data, .. } => data.len().div_ceil(FRAGMENT_LEN).max(1),
            _ => 1,
        }
    }

    fn is_notify(&self) -> bool {
        matches!(self, Self::Notify { .. })
    }

    /// How many bytes go with it.
    fn bytes(&self) -> usize {
        if let Self::Eager { data, .. } = self { data.len() } else { 0 }
    }
}

/// What packets to a peer have in common.
#[derive(Clone, Copy)]
struct Way {
    host: u16,
    ends: Ends,
    session: u32,
    acknowledged: u16,
}

impl Way {
    fn to(source: u8, partner: &Partner) -> Option<Self> {
        Some(Self {
            host: partner.host,
            ends: Ends { destination: partner.endpoint, source },
            session: partner.session?,
            acknowledged: partner.receive.next.0,
        })
    }

    /// Puts a message on the wire.
    fn put(self, env: &mut Env<'_>, Number(sequence): Number, content: &Content) {
        let Self { host, ends, session, acknowledged } = self;
        let eager =
            |match_info, data| Eager { ends, sequence, acknowledged, match_info, session, data };
        match *content {
            Content::Eager { match_info, ref data } if data.len() <= TINY_BYTES_MAX => {
                env.send(host, &Packet::Tiny(eager(match_info, data)));
            }
            Content::Eager { match_info, ref data } if data.len() <= SMALL_BYTES_MAX => {
                env.send(host, &Packet::Small(eager(match_info, data)));
            }
            Content::Eager { match_info, ref data } => {
                let message_len = u16::try_from(data.len()).unwrap_or(u16::MAX);
                for (number, part) in (0..).zip(data.chunks(FRAGMENT_LEN)) {
                    let place = FragmentPlace { message_len, number, pipeline: PIPELINE };
                    let fragment = Fragment { eager: eager(match_info, part), place };
                    env.send(host, &Packet::Medium(fragment));
                }
            }
            Content::Offer { match_info, from, window } => {
                let Some((window, window_sequence)) = window else { return };
                let offer = Rendezvous {
                    ends,
                    sequence,
                    acknowledged,
                    match_info,
                    session,
                    message_len: from.len,
                    window,
                    window_sequence,
                    offset: 0,
                };
                env.send(host, &Packet::Rendezvous(offer));
            }
            Content::Notify { total_len, window, window_sequence } => {
                let notify = Notify {
                    ends,
                    session,
                    total_len,
                    window,
                    window_sequence,
                    sequence,
                    acknowledged,
                };
                env.send(host, &Packet::Notify(notify));
            }
        }
    }
}

/// Sends a message that is in flight once more.
fn again(env: &mut Env<'_>, source: u8, partner: &mut Partner, at: usize) {
    let Some(way) = Way::to(source, partner) else { return };
    let Ok(steps) = u16::try_from(at) else { return };
    let number = partner.send.first.plus(steps);
    let Some(message) = partner.send.flight.get_mut(at) else { return };
    message.resent = true;
    message.sent_at = env.now;
    count(&mut partner.counters.resent);
    way.put(env, number, &message.content);
}

impl Endpoint {
    /// Takes a message on its way. That something was pulled goes before all that waits: that may
    /// be for a window, and the peer's windows for this.
    pub(crate) fn enqueue(&mut self, env: &mut Env<'_>, peer: PeerId, message: Message) {
        if let Some(partner) = self.peers.get_mut(peer) {
            let queue = &mut partner.send.queue;
            let first = message
                .content
                .is_notify()
                .then(|| queue.iter().position(|other| !other.content.is_notify()));
            match first.flatten() {
                Some(at) => queue.insert(at, message),
                None => queue.push_back(message),
            }
            self.pump(env, peer);
        }
    }

    /// Sends what may be sent to a peer.
    pub(crate) fn pump(&mut self, env: &mut Env<'_>, peer: PeerId) {
        while self.send_next(env, peer).is_some() {}
        self.rearm(env, peer);
    }

    /// Sends the next message, if it may be sent.
    fn send_next(&mut self, env: &mut Env<'_>, peer: PeerId) -> Option<()> {
        let partner = self.peers.get_mut(peer)?;
        let way = Way::to(self.id, partner)?;
        let send = &mut partner.send;
        if send.quiet_until.is_some_and(|until| until > env.now) || send.question().is_some() {
            return None;
        }
        let message = send.queue.front_mut()?;
        let packets = send.packets.saturating_add(message.content.packets());
        let wide = send.flight.is_empty() || packets <= send.window;
        // What waits for a window holds up what is behind it, not what goes before.
        let waits = send.waits && !message.content.is_notify();
        if !wide || send.flight.len() >= IN_FLIGHT_MAX || waits {
            return None;
        }
        if let Content::Offer { from, window: window @ None, .. } = &mut message.content {
            let token = message.token?;
            *window = self.windows.open(Open { peer, token, from: *from });
            if window.is_none() {
                send.waits = true;
                self.window_waiters.push_back(peer);
                return None;
            }
            send.windows = send.windows.saturating_add(1);
        }
        let mut message = send.queue.pop_front()?;
        (message.first_at, message.sent_at) = (env.now, env.now);
        let number = send.first.plus(u16::try_from(send.flight.len()).ok()?);
        way.put(env, number, &message.content);
        count(&mut partner.counters.messages_sent);
        add(&mut partner.counters.bytes_sent, message.content.bytes());
        send.packets = packets;
        send.flight.push_back(message);
        let wait = send.trip.wait(send.tries);
        send.resend_at.get_or_insert(env.now.saturating_add(wait));
        // It went with the message.
        (partner.receive.unacked, partner.receive.ack_at) = (0, None);
        Some(())
    }

    /// A peer has every message before a number. `alone`: it says nothing else.
    pub(crate) fn acknowledged(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        number: Number,
        alone: bool,
    ) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let send = &mut partner.send;
        let there = number.ahead_of(send.first).map(usize::from);
        let Some(there) = there.filter(|there| *there <= send.flight.len()) else { return };
        if there == 0 {
            if alone && !send.flight.is_empty() {
                self.duplicate_ack(env, peer);
            }
            return;
        }
        send.first = number;
        (send.tries, send.duplicates) = (0, 0);
        for left in (0..there).rev() {
            let Some(partner) = self.peers.get_mut(peer) else { return };
            let send = &mut partner.send;
            let Some(message) = send.flight.pop_front() else { break };
            if left == 0 && !message.resent {
                send.trip.measured(env.now.saturating_sub(message.sent_at));
            }
            let packets = message.content.packets();
            send.packets = send.packets.saturating_sub(packets);
            let (_, _, most) = WINDOW_PACKETS;
            send.window = send.window.saturating_add(packets).min(most);
            self.end_message(env, message, Status::Success);
        }
        self.recover(env, peer, there);
        self.pump(env, peer);
    }

    /// Some of what may have been lost is there: the next of it is sent again.
    fn recover(&mut self, env: &mut Env<'_>, peer: PeerId, there: usize) {
        let id = self.id;
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let send = &mut partner.send;
        let (lost, resent, step) = send.recovery;
        let (lost, resent) = (lost.saturating_sub(there), resent.saturating_sub(there));
        let to = lost.min(resent.saturating_add(step));
        let step = step.saturating_mul(2).min(RECOVERY_STEP_MAX);
        send.recovery = if lost == 0 { (0, 0, 0) } else { (lost, to.max(resent), step) };
        let wait = send.trip.wait(0);
        send.resend_at = (!send.flight.is_empty()).then_some(env.now.saturating_add(wait));
        for at in resent..to {
            again(env, id, partner, at);
        }
    }

    /// An acknowledgement said nothing new: something behind what is missing may be there.
    fn duplicate_ack(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let id = self.id;
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let send = &mut partner.send;
        send.duplicates = send.duplicates.saturating_add(1);
        let since = env.now.saturating_sub(send.resent_early_at);
        if send.duplicates < DUPLICATE_ACKS || since <= send.trip.smoothed() || send.tries > 0 {
            return;
        }
        (send.duplicates, send.resent_early_at) = (0, env.now);
        let (_, least, _) = WINDOW_PACKETS;
        send.window = send.window.wrapping_shr(1).max(least);
        count(&mut partner.counters.resent_early);
        again(env, id, partner, 0);
    }

    /// No sign of the first message in flight for too long. Gives up a peer that was not heard
    /// of at all.
    pub(crate) fn resend(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let id = self.id;
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let send = &mut partner.send;
        let Some(first) = send.flight.front() else {
            send.resend_at = None;
            return;
        };
        let silent = env.now.saturating_sub(partner.heard_at.max(first.first_at));
        if silent >= env.give_up_ns {
            self.end_peer(env, peer, Status::EndpointUnreachable);
            return;
        }
        let (_, least, _) = WINDOW_PACKETS;
        send.window = send.window.wrapping_shr(1).max(least);
        send.tries = send.tries.saturating_add(1);
        send.recovery = (send.flight.len(), 1, 2);
        let wait = send.trip.wait(send.tries);
        send.resend_at = Some(env.now.saturating_add(wait));
        again(env, id, partner, 0);
    }

    /// A peer was offered something and does not pull it, or the library waits for it: is it
    /// there? It acknowledges at once what it has already, so the last message is sent again, without
    /// what it said.
    pub(crate) fn probe(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        partner.send.probe_at = None;
        // Before it was watched it had no cause to say anything.
        let since = partner.heard_at.max(partner.send.watched.unwrap_or(0));
        if env.now.saturating_sub(since) >= env.give_up_ns {
            self.end_peer(env, peer, Status::EndpointUnreachable);
            return;
        }
        self.ask_whether_there(env, peer);
    }

    /// The library waits for a peer, or does not any more.
    pub(crate) fn watch(&mut self, env: &mut Env<'_>, peer: PeerId, on: bool) {
        let Some(partner) = self.peers.get_mut(peer).filter(|partner| partner.told) else {
            count(&mut self.counters.wrong_requests);
            return;
        };
        let send = &mut partner.send;
        if send.watched.is_some() == on {
            return;
        }
        send.watched = on.then_some(env.now);
        send.probe_at = None;
        if on && send.flight.is_empty() {
            self.ask_whether_there(env, peer);
        }
        self.rearm(env, peer);
    }

    /// Sends the last message that a peer had once more, without what it said.
    pub(crate) fn ask_whether_there(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let Some(way) = Way::to(self.id, partner) else { return };
        let content = Content::Eager { match_info: 0, data: Vec::new() };
        way.put(env, partner.send.first.before(), &content);
    }
}
