//! Sending messages: sequence numbers, the congestion window, acknowledgements and retransmission.
//!
//! A message waits in the queue of its peer, is in flight until the peer acknowledges it, and is
//! retransmitted after a timeout or three duplicate acknowledgements. Large messages are offered
//! here; their data is sent by [`pull_reply`](crate::pull_reply). Messages to a local peer wait in
//! the same queue; [`local`](crate::local) takes them, without numbers and windows of packets.
//!
//! Limits to a peer: [`IN_FLIGHT_MAX`] (255) unacknowledged messages, and the congestion window
//! ([`WINDOW_PACKETS`]: 32 packets at first, 8 to 512, halved after a loss); further messages wait
//! in the queue, which [`request`](crate::request) bounds. A retransmission follows after the
//! smoothed round trip and four deviations (RFC 6298), doubled each time, 20 ms to 0.5 s
//! ([`RESEND`](crate::limits::RESEND)), without a limit of their number. A peer that sends no
//! packet for [`NicConfig::give_up_ns`](crate::NicConfig) (500 s unless configured) while messages,
//! open offers or a watch of the host side (`Request::Watch`) wait for it is removed, and its
//! messages end with `EndpointUnreachable`, whether or not they were delivered.
//!
//! Messages, offers and notifications leave in order, one queue per peer; an offer without a free
//! send window delays later messages, and notifications precede all others. Nothing new leaves
//! before the peer's session is known, during [`QUIET_NS`](crate::limits::QUIET_NS) (60 ms) after a
//! restart of the peer whose numbers were in use, or while the query of a sequence conflict is
//! unanswered. Called within [`Nic`](crate::Nic) by requests, received packets and timers.

use std::collections::VecDeque;

use causeway_wire::mx::{PeerId, Status};
use causeway_wire::mxoe::{
    Eager, EndpointPair, FRAGMENT_LEN, Fragment, FragmentPlace, Notify, PIPELINE, Packet,
    Rendezvous,
};

use crate::context::{EngineContext, add, count};
use crate::endpoint::NicEndpoint;
use crate::limits::{
    DUPLICATE_ACKS, IN_FLIGHT_MAX, SMALL_BYTES_MAX, TINY_BYTES_MAX, WINDOW_PACKETS,
};
use crate::peer::{MessageContent, QueuedMessage, RemoteEndpoint, SendState};
use crate::send_windows::{SendWindow, SendWindows};
use crate::sequence::SequenceNumber;

/// Maximum number of messages that an acknowledgement causes to be retransmitted. The rest follows
/// with later acknowledgements.
const RECOVERY_STEP_MAX: usize = 64;

impl MessageContent {
    /// Returns the number of packets.
    fn packets(&self) -> usize {
        match self {
            Self::Eager { data, .. } => data.len().div_ceil(FRAGMENT_LEN).max(1),
            _ => 1,
        }
    }

    /// Returns whether the content is a notification.
    fn is_notify(&self) -> bool {
        matches!(self, Self::Notify { .. })
    }

    /// Returns the number of bytes in the packets.
    fn bytes(&self) -> usize {
        if let Self::Eager { data, .. } = self { data.len() } else { 0 }
    }
}

/// Common fields of the packets to a peer.
#[derive(Clone, Copy)]
struct PeerHeader {
    host: u16,
    ends: EndpointPair,
    session: u32,
    acknowledged: u16,
}

impl PeerHeader {
    /// Returns the fields for a peer; `None` before its session is known.
    fn of(source: u8, remote: &RemoteEndpoint) -> Option<Self> {
        Some(Self {
            host: remote.host,
            ends: EndpointPair { destination: remote.endpoint, source },
            session: remote.session?,
            acknowledged: remote.receive.next.0,
        })
    }

    /// Sends the packets of a message.
    fn send(
        self,
        ctx: &mut EngineContext<'_>,
        SequenceNumber(sequence): SequenceNumber,
        content: &MessageContent,
    ) {
        let Self { host, ends, session, acknowledged } = self;
        let eager =
            |match_info, data| Eager { ends, sequence, acknowledged, match_info, session, data };
        match *content {
            MessageContent::Eager { match_info, ref data } if data.len() <= TINY_BYTES_MAX => {
                ctx.send(host, &Packet::Tiny(eager(match_info, data)));
            }
            MessageContent::Eager { match_info, ref data } if data.len() <= SMALL_BYTES_MAX => {
                ctx.send(host, &Packet::Small(eager(match_info, data)));
            }
            MessageContent::Eager { match_info, ref data } => {
                let message_len = u16::try_from(data.len()).unwrap_or(u16::MAX);
                for (number, part) in (0..).zip(data.chunks(FRAGMENT_LEN)) {
                    let place = FragmentPlace { message_len, number, pipeline: PIPELINE };
                    let fragment = Fragment { eager: eager(match_info, part), place };
                    ctx.send(host, &Packet::Medium(fragment));
                }
            }
            MessageContent::Offer { match_info, from, window } => {
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
                ctx.send(host, &Packet::Rendezvous(offer));
            }
            MessageContent::Notify { total_len, window, window_sequence } => {
                let notify = Notify {
                    ends,
                    session,
                    total_len,
                    window,
                    window_sequence,
                    sequence,
                    acknowledged,
                };
                ctx.send(host, &Packet::Notify(notify));
            }
        }
    }
}

/// Retransmits the message at index `at` of those in flight.
fn retransmit(ctx: &mut EngineContext<'_>, source: u8, remote: &mut RemoteEndpoint, at: usize) {
    let Some(header) = PeerHeader::of(source, remote) else { return };
    let Ok(steps) = u16::try_from(at) else { return };
    let number = remote.send.first.plus(steps);
    let Some(message) = remote.send.flight.get_mut(at) else { return };
    message.resent = true;
    message.sent_at = ctx.now;
    count(&mut remote.counters.resent);
    header.send(ctx, number, &message.content);
}

/// Opens a window for the first queued message to `peer`, if it is an offer without one. Returns
/// `None` if no message waits, or if it must wait: an offer that awaits a window delays later
/// messages, but not notifications before it.
pub(crate) fn give_window(
    send: &mut SendState,
    (windows, waiters): (&mut SendWindows, &mut VecDeque<PeerId>),
    peer: PeerId,
) -> Option<()> {
    let message = send.queue.front_mut()?;
    if send.awaits_window && !message.content.is_notify() {
        return None;
    }
    if let MessageContent::Offer { from, window: window @ None, .. } = &mut message.content {
        let token = message.token?;
        *window = windows.open(SendWindow { peer, token, from: *from });
        if window.is_none() {
            send.awaits_window = true;
            waiters.push_back(peer);
            return None;
        }
        send.windows = send.windows.saturating_add(1);
    }
    Some(())
}

impl NicEndpoint {
    /// Queues a message. Notifications precede all other messages: those may wait for a window
    /// here, and windows of the peer wait for the notification.
    pub(crate) fn enqueue(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        message: QueuedMessage,
    ) {
        if let Some(remote) = self.peers.get_mut(peer) {
            let queue = &mut remote.send.queue;
            let first = message
                .content
                .is_notify()
                .then(|| queue.iter().position(|other| !other.content.is_notify()));
            match first.flatten() {
                Some(at) => queue.insert(at, message),
                None => queue.push_back(message),
            }
            self.pump(ctx, peer);
        }
    }

    /// Sends queued messages to a peer until a limit is reached.
    pub(crate) fn pump(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        if self.pump_local(ctx, peer) {
            return;
        }
        while self.send_next(ctx, peer).is_some() {}
        self.rearm(ctx, peer);
    }

    /// Sends the next message. Returns `None` if there is none, or if it must wait.
    fn send_next(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) -> Option<()> {
        let remote = self.peers.get_mut(peer)?;
        let header = PeerHeader::of(self.id, remote)?;
        let send = &mut remote.send;
        if send.quiet_until.is_some_and(|until| until > ctx.now) || send.pending_query().is_some() {
            return None;
        }
        let message = send.queue.front()?;
        let packets = send.packets.saturating_add(message.content.packets());
        let wide = send.flight.is_empty() || packets <= send.window;
        if !wide || send.flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        give_window(send, (&mut self.windows, &mut self.window_waiters), peer)?;
        let mut message = send.queue.pop_front()?;
        (message.first_at, message.sent_at) = (ctx.now, ctx.now);
        let number = send.first.plus(u16::try_from(send.flight.len()).ok()?);
        header.send(ctx, number, &message.content);
        count(&mut remote.counters.messages_sent);
        add(&mut remote.counters.bytes_sent, message.content.bytes());
        send.packets = packets;
        send.flight.push_back(message);
        let wait = send.trip.wait(send.tries);
        send.resend_at.get_or_insert(ctx.now.saturating_add(wait));
        // The message contains an acknowledgement.
        (remote.receive.unacked, remote.receive.ack_at) = (0, None);
        Some(())
    }

    /// Processes an acknowledgement of every message before `number`. `alone`: in a separate
    /// packet.
    pub(crate) fn on_acknowledgement(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        number: SequenceNumber,
        alone: bool,
    ) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let send = &mut remote.send;
        let there = number.ahead_of(send.first).map(usize::from);
        let Some(there) = there.filter(|there| *there <= send.flight.len()) else { return };
        if there == 0 {
            if alone && !send.flight.is_empty() {
                self.duplicate_ack(ctx, peer);
            }
            return;
        }
        send.first = number;
        (send.tries, send.duplicates) = (0, 0);
        for left in (0..there).rev() {
            let Some(remote) = self.peers.get_mut(peer) else { return };
            let send = &mut remote.send;
            let Some(message) = send.flight.pop_front() else { break };
            if left == 0 && !message.resent {
                send.trip.measured(ctx.now.saturating_sub(message.sent_at));
            }
            let packets = message.content.packets();
            send.packets = send.packets.saturating_sub(packets);
            send.window = send.window.saturating_add(packets).min(WINDOW_PACKETS.most);
            self.end_message(ctx, message, Status::Success);
        }
        self.recover(ctx, peer, there);
        self.pump(ctx, peer);
    }

    /// Continues the recovery after an acknowledgement: retransmits the next messages.
    fn recover(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId, there: usize) {
        let id = self.id;
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let send = &mut remote.send;
        let (lost, resent, step) = send.recovery;
        let (lost, resent) = (lost.saturating_sub(there), resent.saturating_sub(there));
        let to = lost.min(resent.saturating_add(step));
        let step = step.saturating_mul(2).min(RECOVERY_STEP_MAX);
        send.recovery = if lost == 0 { (0, 0, 0) } else { (lost, to.max(resent), step) };
        let wait = send.trip.wait(0);
        send.resend_at = (!send.flight.is_empty()).then_some(ctx.now.saturating_add(wait));
        for at in resent..to {
            retransmit(ctx, id, remote, at);
        }
    }

    /// Counts a duplicate acknowledgement, and retransmits the first message after several.
    fn duplicate_ack(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let id = self.id;
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let send = &mut remote.send;
        send.duplicates = send.duplicates.saturating_add(1);
        let since = ctx.now.saturating_sub(send.resent_early_at);
        if send.duplicates < DUPLICATE_ACKS || since <= send.trip.smoothed() || send.tries > 0 {
            return;
        }
        (send.duplicates, send.resent_early_at) = (0, ctx.now);
        send.window = send.window.wrapping_shr(1).max(WINDOW_PACKETS.least);
        count(&mut remote.counters.resent_early);
        retransmit(ctx, id, remote, 0);
    }

    /// Retransmits the first message after a timeout, or removes a peer that was silent for too
    /// long.
    pub(crate) fn resend(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let id = self.id;
        let Some(remote) = self.peers.get_mut(peer) else { return };
        let send = &mut remote.send;
        let Some(first) = send.flight.front() else {
            send.resend_at = None;
            return;
        };
        let silent = ctx.now.saturating_sub(remote.heard_at.max(first.first_at));
        if silent >= ctx.give_up_ns {
            self.end_peer(ctx, peer, Status::EndpointUnreachable);
            return;
        }
        send.window = send.window.wrapping_shr(1).max(WINDOW_PACKETS.least);
        send.tries = send.tries.saturating_add(1);
        send.recovery = (send.flight.len(), 1, 2);
        let wait = send.trip.wait(send.tries);
        send.resend_at = Some(ctx.now.saturating_add(wait));
        retransmit(ctx, id, remote, 0);
    }

    /// Runs the liveness timer of a peer that does not pull an offer, or that the host side waits
    /// for.
    pub(crate) fn probe(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        remote.send.probe_at = None;
        // The peer had no reason to send before it was watched.
        let since = remote.heard_at.max(remote.send.watched.unwrap_or(0));
        if ctx.now.saturating_sub(since) >= ctx.give_up_ns {
            self.end_peer(ctx, peer, Status::EndpointUnreachable);
            return;
        }
        self.query_liveness(ctx, peer);
    }

    /// Starts or ends the supervision of a peer for which the host side waits: liveness queries at
    /// intervals of [`WATCH_NS`](crate::limits::WATCH_NS) (0.5 s) while nothing is in flight. A
    /// repeated call has no effect.
    pub(crate) fn watch(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId, on: bool) {
        let Some(remote) = self.peers.get_mut(peer).filter(|remote| remote.is_reported) else {
            count(&mut self.counters.wrong_requests);
            return;
        };
        let send = &mut remote.send;
        if send.watched.is_some() == on {
            return;
        }
        send.watched = on.then_some(ctx.now);
        send.probe_at = None;
        if on && send.flight.is_empty() {
            self.query_liveness(ctx, peer);
        }
        self.rearm(ctx, peer);
    }

    /// Sends a liveness query: the last acknowledged message again, without its content. A live
    /// peer acknowledges the known number at once.
    pub(crate) fn query_liveness(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        // The end of a peer of the same daemon is reported without a query.
        if ctx.hosts.is_local(remote.host) {
            return;
        }
        let Some(header) = PeerHeader::of(self.id, remote) else { return };
        let content = MessageContent::Eager { match_info: 0, data: Vec::new() };
        header.send(ctx, remote.send.first.before(), &content);
    }
}
