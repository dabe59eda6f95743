//! An endpoint: its state, its events to the host side, and the end of its peers.
//!
//! The protocol steps are further methods of [`NicEndpoint`] in other modules: `connect`,
//! `transmit`, `receive_order`, `pull`, `pull_reply`, `refusal` and `request`.
//!
//! An event without room at the host side waits in the outbox, in order; at [`OUTBOX_MAX`] (1,024)
//! waiting events, all requests are deferred, and only ends of running operations and of peers are
//! added. Messages and offers do not wait there: they stay with their peer, unacknowledged, and
//! slow the sender. A peer is introduced to the host side (`PeerSeen`) before its first event.
//!
//! A peer ends by a restart, a confirmed refusal, an open sequence conflict,
//! [`NicConfig::give_up_ns`](crate::NicConfig) without a packet while it is waited for, a
//! [`Request::Disconnect`](causeway_wire::mx::Request), the removal of its NIC, a failed connect if
//! its session is not known, or, if it is local ([`local`](crate::local)), the report of its own
//! end or the refusal of a message. Its sends, pulls and windows end with one status (an ended send
//! may have been delivered), offers that were not pulled and pending messages are discarded, and
//! `PeerGone` is the last event. Connects to its address go on, except after the removal of the
//! NIC. The number of a peer that the host side knows is reused only after its
//! [`Request::Forget`](causeway_wire::mx::Request).
//!
//! Called by [`Nic`](crate::Nic) for frames, requests and timers of the endpoint. All steps run to
//! their end in the call of the NIC, in its thread. A peer that is removed already, and a repeated
//! end, have no effect.

use std::collections::VecDeque;

use causeway_wire::mx::{Address, Event, NicId, PeerId, Status, Token};

use crate::context::{EngineContext, count};
use crate::counters::{EndpointCounters, PeerCounters};
use crate::limits::{CANCEL_SEARCH_UNIT, OUTBOX_MAX, PROBE_NS, REGIONS_MAX, WATCH_NS};
use crate::liveness::LivenessQuery;
use crate::offers::{OfferState, OfferTable};
use crate::peer::{MessageContent, PeerTable, QueuedMessage};
use crate::pending_connect::PendingConnect;
use crate::reorder_quota::ReorderQuota;
use crate::send_windows::SendWindows;
use crate::timers::{Timer, TimerOwner};
use crate::undiscovered::UndiscoveredConnects;

/// Events that wait for room at the host side. Messages do not wait here but with their peers.
#[derive(Debug, Default)]
pub(crate) struct EventOutbox {
    /// The events, in order.
    waiting: VecDeque<Event<'static>>,
}

impl EventOutbox {
    /// Reports an event, now or when the host side has room.
    pub(crate) fn report(
        &mut self,
        ctx: &mut EngineContext<'_>,
        endpoint: u8,
        event: Event<'static>,
    ) {
        if !self.waiting.is_empty() || !ctx.out.event(endpoint, &event) {
            self.waiting.push_back(event);
        }
    }

    /// Reports an event if the host side has room now. Returns whether it was reported.
    pub(crate) fn try_report(
        &self,
        ctx: &mut EngineContext<'_>,
        endpoint: u8,
        event: &Event<'_>,
    ) -> bool {
        self.waiting.is_empty() && ctx.out.event(endpoint, event)
    }

    /// Reports the waiting events. Returns whether none is left.
    pub(crate) fn flush(&mut self, ctx: &mut EngineContext<'_>, endpoint: u8) -> bool {
        while let Some(event) = self.waiting.front() {
            if !ctx.out.event(endpoint, event) {
                return false;
            }
            self.waiting.pop_front();
        }
        true
    }

    /// Returns whether requests must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= OUTBOX_MAX
    }
}

/// Sends that have not ended.
#[derive(Debug, Default)]
pub(crate) struct PendingSends {
    /// Messages and offers.
    pub(crate) messages: usize,
    /// Bytes of the eager messages.
    pub(crate) bytes: usize,
    /// Messages without an event on success.
    pub(crate) unreported: usize,
}

impl PendingSends {
    /// Records the end of a send.
    pub(crate) fn end(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// An endpoint of a NIC.
#[derive(Debug)]
pub(crate) struct NicEndpoint {
    /// Number of the endpoint in its NIC.
    pub(crate) id: u8,
    /// Session of this instance of the endpoint; peers must name it.
    pub(crate) session: u32,
    /// Key that a connect request must have.
    pub(crate) key: u32,
    /// Peers, live and not yet forgotten.
    pub(crate) peers: PeerTable,
    /// Connects that have not ended.
    pub(crate) connects: Vec<PendingConnect>,
    /// Connects that wait for discovery.
    pub(crate) undiscovered: UndiscoveredConnects,
    /// Number of the latest connect.
    pub(crate) connect_number: u8,
    /// The timer of all connects.
    pub(crate) connect_timer: Timer,
    /// Windows of the large messages that this endpoint offers.
    pub(crate) windows: SendWindows,
    /// Peers that wait for a window.
    pub(crate) window_waiters: VecDeque<PeerId>,
    /// Large messages that peers offer.
    pub(crate) offers: OfferTable,
    /// Events without room at the host side.
    pub(crate) outbox: EventOutbox,
    /// Peers whose next message found no room at the host side.
    pub(crate) ready: VecDeque<PeerId>,
    /// Bytes of the received messages that are pending.
    pub(crate) reorder_quota: ReorderQuota,
    /// Sends that have not ended.
    pub(crate) sends: PendingSends,
    /// Lengths of the regions in bytes, by number.
    pub(crate) regions: Vec<Option<u64>>,
    /// Counters of the endpoint, since it was opened.
    pub(crate) counters: EndpointCounters,
    /// Sum of the counters of removed peers.
    pub(crate) past: PeerCounters,
}

/// Observable state of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerState {
    /// Number of the peer in events and requests.
    pub peer: PeerId,
    /// Address of the peer.
    pub address: Address,
    /// Session of the peer, once received.
    pub session: Option<u32>,
    /// Messages in flight, and messages queued.
    pub sending: (usize, usize),
    /// Bytes of received messages that wait for an earlier message or for room.
    pub pending_bytes: usize,
    /// Smoothed round trip in ns, or 0 if none was measured.
    pub round_trip_ns: u64,
    /// Counters of the peer.
    pub counters: PeerCounters,
}

/// Returns the MAC of a NIC, or `None` if the number has more than 48 bits.
pub(crate) fn mac_of(nic: NicId) -> Option<[u8; 6]> {
    match nic.0.to_be_bytes() {
        [0, 0, a, b, c, d, e, f] => Some([a, b, c, d, e, f]),
        _ => None,
    }
}

impl NicEndpoint {
    pub(crate) fn new(id: u8, session: u32, key: u32, random: u32) -> Self {
        Self {
            id,
            session,
            key,
            peers: PeerTable::default(),
            connects: Vec::new(),
            undiscovered: UndiscoveredConnects::default(),
            connect_number: 0,
            connect_timer: Timer::default(),
            windows: SendWindows::new(random),
            window_waiters: VecDeque::new(),
            offers: OfferTable::default(),
            outbox: EventOutbox::default(),
            ready: VecDeque::new(),
            reorder_quota: ReorderQuota::default(),
            sends: PendingSends::default(),
            regions: vec![None; REGIONS_MAX],
            counters: EndpointCounters::default(),
            past: PeerCounters::default(),
        }
    }

    /// Reports an event to the host side, now or later.
    pub(crate) fn report(&mut self, ctx: &mut EngineContext<'_>, event: Event<'static>) {
        self.outbox.report(ctx, self.id, event);
    }

    /// Reports an event of a peer if the host side has room, preceded by the peer itself if it is
    /// new.
    pub(crate) fn try_report(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        event: &Event<'_>,
    ) -> bool {
        let given = self.introduce(ctx, peer) && self.outbox.try_report(ctx, self.id, event);
        if !given {
            count(&mut self.counters.library_full);
        }
        given
    }

    /// Returns the event that introduces a peer to the host side, if it is new.
    fn introduction(&mut self, ctx: &EngineContext<'_>, peer: PeerId) -> Option<Event<'static>> {
        let remote = self.peers.get_mut(peer)?;
        if remote.is_reported {
            return None;
        }
        let (mac, _) = ctx.hosts.get(remote.host)?;
        let address = Address { nic: NicId::of(mac), endpoint: remote.endpoint };
        let unaware = remote.unaware.map(|unaware| unaware.session);
        let session = remote.session.or(unaware).unwrap_or(0);
        remote.is_reported = true;
        Some(Event::PeerSeen { peer, address, session })
    }

    /// Introduces a peer to the host side. Returns false if there is no room.
    fn introduce(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) -> bool {
        let Some(event) = self.introduction(ctx, peer) else { return true };
        let given = self.outbox.try_report(ctx, self.id, &event);
        if !given && let Some(remote) = self.peers.get_mut(peer) {
            remote.is_reported = false;
        }
        given
    }

    /// Reports an event of a peer, now or later, preceded by the peer itself if it is new.
    pub(crate) fn report_of(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        event: Event<'static>,
    ) {
        if let Some(introduction) = self.introduction(ctx, peer) {
            self.report(ctx, introduction);
        }
        self.report(ctx, event);
    }

    /// Arms the timer of a peer for its earliest deadline.
    pub(crate) fn rearm(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId) {
        let Some(remote) = self.peers.get_mut(peer) else { return };
        // Nothing is lost between NICs of one daemon.
        if ctx.hosts.is_local(remote.host) {
            return;
        }
        let mut due = u64::MAX;
        let send = &mut remote.send;
        let quiet = send.is_waited_for() && send.flight.is_empty();
        let probe_ns = if send.watched.is_some() { WATCH_NS } else { PROBE_NS };
        send.probe_at = match send.probe_at {
            _ if !quiet => None,
            at => at.or(Some(ctx.now.saturating_add(probe_ns))),
        };
        let quiet = |until: &u64| *until > ctx.now && !send.queue.is_empty();
        let quiet_until = send.quiet_until.filter(quiet);
        let times = [remote.receive.ack_at, send.resend_at, send.probe_at, quiet_until];
        let doubt = remote.doubt.map(LivenessQuery::due);
        let query = send.pending_query().map(LivenessQuery::due);
        times.into_iter().chain([doubt, query]).flatten().for_each(|time| due = due.min(time));
        for handle in &remote.pulling.active {
            if let Some(OfferState::Pulling(pull)) =
                self.offers.get(*handle).map(|offer| &offer.state)
            {
                due = due.min(pull.due);
            }
        }
        let owner = TimerOwner { endpoint: self.id, peer: Some(peer.0) };
        ctx.timers.arm(&mut remote.timer, due, owner);
    }

    /// Ends a message to a peer, and reports its end where the host side expects an event.
    pub(crate) fn end_message(
        &mut self,
        ctx: &mut EngineContext<'_>,
        message: QueuedMessage,
        status: Status,
    ) {
        match message.content {
            MessageContent::Eager { data, .. } => {
                let len = data.len();
                ctx.pool.give(data);
                self.sends.end(len);
                let well = status == Status::Success;
                let unreported = message.token == Some(Token::UNREPORTED);
                self.sends.unreported = self.sends.unreported.saturating_sub(unreported.into());
                if let Some(token) = message.token.filter(|_| !(unreported && well)) {
                    let taken = u32::try_from(len).unwrap_or(u32::MAX);
                    let taken = if well { taken } else { 0 };
                    self.report(ctx, Event::Sent { token, status, taken });
                }
            }
            // An offer with a window ends with the window.
            MessageContent::Offer { window: Some(_), .. } | MessageContent::Notify { .. } => {}
            MessageContent::Offer { window: None, .. } => {
                if let Some(token) = message.token {
                    self.end_offer(ctx, token, status, 0);
                }
            }
        }
    }

    /// Reports the end of an offered message, of which `taken` bytes were pulled.
    pub(crate) fn end_offer(
        &mut self,
        ctx: &mut EngineContext<'_>,
        token: Token,
        status: Status,
        taken: u32,
    ) {
        self.sends.end(0);
        self.report(ctx, Event::Sent { token, status, taken });
    }

    /// Closes a window, and sends the offers of peers that waited until the windows are used up
    /// again. A window that is not open has no effect.
    pub(crate) fn close_window(&mut self, ctx: &mut EngineContext<'_>, number: u8) {
        let open = self.windows.close(number);
        if let Some(remote) = open.and_then(|open| self.peers.get_mut(open.peer)) {
            remote.send.windows = remote.send.windows.saturating_sub(1);
        }
        while self.windows.has_free()
            && let Some(waiter) = self.window_waiters.pop_front()
        {
            if let Some(remote) = self.peers.get_mut(waiter) {
                remote.send.awaits_window = false;
            }
            self.pump(ctx, waiter);
        }
    }

    /// Removes a peer, and ends all its operations with `status`.
    pub(crate) fn end_peer(&mut self, ctx: &mut EngineContext<'_>, peer: PeerId, status: Status) {
        let Some(mut remote) = self.peers.remove(peer) else { return };
        count(&mut self.counters.gone);
        self.past.add(&remote.counters);
        let owner = TimerOwner { endpoint: self.id, peer: Some(peer.0) };
        ctx.timers.disarm(&mut remote.timer, owner);
        self.ready.retain(|other| *other != peer);
        self.window_waiters.retain(|other| *other != peer);
        for incoming in remote.receive.early.drain(..).flatten() {
            if let crate::peer::PendingMessage::Message { data, .. } = incoming {
                ctx.pool.give(data);
            }
        }
        self.reorder_quota.give(remote.host, remote.receive.bytes);
        let messages = remote.send.flight.drain(..).chain(remote.send.queue.drain(..));
        for message in messages {
            self.end_message(ctx, message, status);
        }
        while let Some((number, open)) = self.windows.find(|open| open.peer == peer) {
            self.end_offer(ctx, open.token, status, 0);
            self.close_window(ctx, number);
        }
        for handle in remote.pulling.offers.drain(..) {
            let offer = self.offers.remove(handle);
            if let Some((token, _)) = offer.and_then(|offer| offer.state.pull()) {
                self.report(ctx, Event::Pulled { token, status });
            }
        }
        self.part_from_local(ctx, &remote, Status::EndpointUnreachable);
        self.renew_connects(ctx, (remote.host, remote.endpoint));
        if remote.is_reported {
            self.report(ctx, Event::PeerGone { peer, status });
        }
    }

    /// Continues after the host side got room: waiting events first, then messages, peer by peer.
    pub(crate) fn room(&mut self, ctx: &mut EngineContext<'_>) {
        if !self.outbox.flush(ctx, self.id) {
            return;
        }
        for _ in 0..self.ready.len() {
            let Some(peer) = self.ready.pop_front() else { return };
            if let Some(remote) = self.peers.get_mut(peer) {
                remote.receive.ready = false;
            }
            if self.ask_local(ctx, peer) {
                continue;
            }
            let full = self.counters.library_full;
            let all = self.deliver(ctx, peer);
            self.acknowledge(ctx, peer, false);
            self.rearm(ctx, peer);
            // A message of another peer may still fit, unless there is no room at all.
            let full = self.counters.library_full != full && !ctx.out.holds(self.id, peer);
            if !all && full {
                return;
            }
        }
    }

    /// Delivers waiting offers if offers were removed.
    pub(crate) fn deliver_offers(&mut self, ctx: &mut EngineContext<'_>) {
        if self.offers.take_freed() && !self.ready.is_empty() {
            self.room(ctx);
        }
    }

    /// Returns the cost of a cancel: see [`Nic::cancel_cost`](crate::Nic::cancel_cost).
    pub(crate) fn cancel_cost(&self) -> usize {
        self.sends.messages / CANCEL_SEARCH_UNIT
    }

    /// Returns the states of the peers.
    pub(crate) fn states(&self, macs: impl Fn(u16) -> Option<[u8; 6]>) -> Vec<PeerState> {
        let state = |(peer, remote): (PeerId, &crate::peer::RemoteEndpoint)| {
            let nic = NicId::of(macs(remote.host)?);
            Some(PeerState {
                peer,
                address: Address { nic, endpoint: remote.endpoint },
                session: remote.session,
                sending: (remote.send.flight.len(), remote.send.queue.len()),
                pending_bytes: remote.receive.bytes,
                round_trip_ns: remote.send.trip.smoothed(),
                counters: remote.counters,
            })
        };
        self.peers.all().filter_map(state).collect()
    }
}
