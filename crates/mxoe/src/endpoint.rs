//! One endpoint: what it keeps, how it tells its library, and how peers end.

use std::collections::VecDeque;

use causeway_wire::mx::{Address, Event, NicId, PeerId, Status, Token};

use crate::connect::Connecting;
use crate::context::{Env, count};
use crate::counters::{EndpointCounters, PeerCounters};
use crate::limits::{LOOKED_THROUGH_AT_ONCE, OUTBOX_MAX, PROBE_NS, REGIONS_MAX, WATCH_NS};
use crate::offers::{Offers, State};
use crate::peer::{Content, Doubt, Message, Peers};
use crate::reorder_quota::ReorderQuota;
use crate::send_windows::Windows;
use crate::timers::{Alarm, Owner};

/// Events that wait for the library. They carry no message: those wait with their peers.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Event<'static>>,
}

impl Outbox {
    /// Tells the library, now or when it has room.
    pub(crate) fn tell(&mut self, env: &mut Env<'_>, endpoint: u8, event: Event<'static>) {
        if !self.waiting.is_empty() || !env.out.event(endpoint, &event) {
            self.waiting.push_back(event);
        }
    }

    /// Tells the library if it has room now.
    pub(crate) fn offer(&self, env: &mut Env<'_>, endpoint: u8, event: &Event<'_>) -> bool {
        self.waiting.is_empty() && env.out.event(endpoint, event)
    }

    /// Tells what waits: whether that is all.
    pub(crate) fn flush(&mut self, env: &mut Env<'_>, endpoint: u8) -> bool {
        while let Some(event) = self.waiting.front() {
            if !env.out.event(endpoint, event) {
                return false;
            }
            self.waiting.pop_front();
        }
        true
    }

    /// Whether requests are to wait too.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= OUTBOX_MAX
    }
}

/// Sends that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// Of the messages, those that the host side is not told of.
    pub(crate) untold: usize,
}

impl Sends {
    /// One ended.
    pub(crate) fn end(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) id: u8,
    pub(crate) session: u32,
    pub(crate) key: u32,
    pub(crate) peers: Peers,
    pub(crate) connects: Vec<Connecting>,
    /// Of the latest connect.
    pub(crate) connect_number: u8,
    pub(crate) connect_alarm: Alarm,
    pub(crate) windows: Windows,
    /// Peers that wait for a window.
    pub(crate) window_waiters: VecDeque<PeerId>,
    pub(crate) offers: Offers,
    pub(crate) outbox: Outbox,
    /// Peers whose next message the library had no room for.
    pub(crate) ready: VecDeque<PeerId>,
    pub(crate) parking: ReorderQuota,
    pub(crate) sends: Sends,
    /// Lengths of regions.
    pub(crate) regions: Vec<Option<u64>>,
    pub(crate) counters: EndpointCounters,
    /// Of peers that are gone.
    pub(crate) past: PeerCounters,
}

/// What is to be seen of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerState {
    /// As the library knows it.
    pub peer: PeerId,
    /// Where it is.
    pub address: Address,
    /// Its session, when it said so.
    pub session: Option<u32>,
    /// Messages in flight, and those that wait before them.
    pub sending: (usize, usize),
    /// Bytes that are parked.
    pub parked: usize,
    /// The round trip, smoothed, in ns; 0 when none was measured.
    pub round_trip_ns: u64,
    /// What was counted.
    pub counters: PeerCounters,
}

/// The MAC of such a number; none if it is longer.
pub(crate) fn mac_of(nic: NicId) -> Option<[u8; 6]> {
    match nic.0.to_be_bytes() {
        [0, 0, a, b, c, d, e, f] => Some([a, b, c, d, e, f]),
        _ => None,
    }
}

impl Endpoint {
    pub(crate) fn new(id: u8, session: u32, key: u32, random: u32) -> Self {
        Self {
            id,
            session,
            key,
            peers: Peers::default(),
            connects: Vec::new(),
            connect_number: 0,
            connect_alarm: Alarm::default(),
            windows: Windows::new(random),
            window_waiters: VecDeque::new(),
            offers: Offers::default(),
            outbox: Outbox::default(),
            ready: VecDeque::new(),
            parking: ReorderQuota::default(),
            sends: Sends::default(),
            regions: vec![None; REGIONS_MAX],
            counters: EndpointCounters::default(),
            past: PeerCounters::default(),
        }
    }

    /// Tells the library.
    pub(crate) fn tell(&mut self, env: &mut Env<'_>, event: Event<'static>) {
        self.outbox.tell(env, self.id, event);
    }

    /// Tells the library something of a peer, if it has room; first that there is the peer.
    pub(crate) fn offer(&mut self, env: &mut Env<'_>, peer: PeerId, event: &Event<'_>) -> bool {
        let given = self.introduce(env, peer) && self.outbox.offer(env, self.id, event);
        if !given {
            count(&mut self.counters.library_full);
        }
        given
    }

    /// What the library hears first of a peer, if it has not heard it.
    fn introduction(&mut self, env: &Env<'_>, peer: PeerId) -> Option<Event<'static>> {
        let partner = self.peers.get_mut(peer)?;
        if partner.told {
            return None;
        }
        let (mac, _) = env.hosts.get(partner.host)?;
        let address = Address { nic: NicId::of(mac), endpoint: partner.endpoint };
        let unaware = partner.unaware.map(|unaware| unaware.session);
        let session = partner.session.or(unaware).unwrap_or(0);
        partner.told = true;
        Some(Event::PeerSeen { peer, address, session })
    }

    /// Tells the library of a peer if it has room.
    fn introduce(&mut self, env: &mut Env<'_>, peer: PeerId) -> bool {
        let Some(event) = self.introduction(env, peer) else { return true };
        let given = self.outbox.offer(env, self.id, &event);
        if !given && let Some(partner) = self.peers.get_mut(peer) {
            partner.told = false;
        }
        given
    }

    /// Tells the library something of a peer, now or later; first that there is the peer.
    pub(crate) fn tell_of(&mut self, env: &mut Env<'_>, peer: PeerId, event: Event<'static>) {
        if let Some(introduction) = self.introduction(env, peer) {
            self.tell(env, introduction);
        }
        self.tell(env, event);
    }

    /// Sets the alarm of a peer.
    pub(crate) fn rearm(&mut self, env: &mut Env<'_>, peer: PeerId) {
        let Some(partner) = self.peers.get_mut(peer) else { return };
        let mut due = u64::MAX;
        let send = &mut partner.send;
        let quiet = send.is_waited_for() && send.flight.is_empty();
        let probe_ns = if send.watched.is_some() { WATCH_NS } else { PROBE_NS };
        send.probe_at = match send.probe_at {
            _ if !quiet => None,
            at => at.or(Some(env.now.saturating_add(probe_ns))),
        };
        let quiet = |until: &u64| *until > env.now && !send.queue.is_empty();
        let quiet_until = send.quiet_until.filter(quiet);
        let times = [partner.receive.ack_at, send.resend_at, send.probe_at, quiet_until];
        let doubt = partner.doubt.map(Doubt::due);
        let question = send.question().map(Doubt::due);
        times.into_iter().chain([doubt, question]).flatten().for_each(|time| due = due.min(time));
        for handle in &partner.pulling.active {
            if let Some(State::Pulling(pull)) = self.offers.get(*handle).map(|offer| &offer.state) {
                due = due.min(pull.due);
            }
        }
        let owner = Owner { endpoint: self.id, peer: Some(peer.0) };
        env.alarms.arm(&mut partner.alarm, due, owner);
    }

    /// A message to be sent ended.
    pub(crate) fn end_message(&mut self, env: &mut Env<'_>, message: Message, status: Status) {
        match message.content {
            Content::Eager { data, .. } => {
                let len = data.len();
                env.pool.give(data);
                self.sends.end(len);
                let well = status == Status::Success;
                let untold = message.token == Some(Token::UNREPORTED);
                self.sends.untold = self.sends.untold.saturating_sub(untold.into());
                if let Some(token) = message.token.filter(|_| !(untold && well)) {
                    let taken = u32::try_from(len).unwrap_or(u32::MAX);
                    let taken = if well { taken } else { 0 };
                    self.tell(env, Event::Sent { token, status, taken });
                }
            }
            // With a window, it ends with that.
            Content::Offer { window: Some(_), .. } | Content::Notify { .. } => {}
            Content::Offer { window: None, .. } => {
                if let Some(token) = message.token {
                    self.end_offer(env, token, status, 0);
                }
            }
        }
    }

    /// A message that was offered ended.
    pub(crate) fn end_offer(
        &mut self,
        env: &mut Env<'_>,
        token: Token,
        status: Status,
        taken: u32,
    ) {
        self.sends.end(0);
        self.tell(env, Event::Sent { token, status, taken });
    }

    /// A window is not needed any more: a peer that waits for one goes on, and another if that
    /// one has no use for it now.
    pub(crate) fn close_window(&mut self, env: &mut Env<'_>, number: u8) {
        let open = self.windows.close(number);
        if let Some(partner) = open.and_then(|open| self.peers.get_mut(open.peer)) {
            partner.send.windows = partner.send.windows.saturating_sub(1);
        }
        while self.windows.has_free()
            && let Some(waiter) = self.window_waiters.pop_front()
        {
            if let Some(partner) = self.peers.get_mut(waiter) {
                partner.send.waits = false;
            }
            self.pump(env, waiter);
        }
    }

    /// A peer is gone: all that waits for it ends.
    pub(crate) fn end_peer(&mut self, env: &mut Env<'_>, peer: PeerId, status: Status) {
        let Some(mut partner) = self.peers.remove(peer) else { return };
        count(&mut self.counters.gone);
        self.past.add(&partner.counters);
        let owner = Owner { endpoint: self.id, peer: Some(peer.0) };
        env.alarms.disarm(&mut partner.alarm, owner);
        self.ready.retain(|other| *other != peer);
        self.window_waiters.retain(|other| *other != peer);
        for incoming in partner.receive.early.drain(..).flatten() {
            if let crate::peer::Incoming::Message { data, .. } = incoming {
                env.pool.give(data);
            }
        }
        self.parking.give(partner.host, partner.receive.bytes);
        let messages = partner.send.flight.drain(..).chain(partner.send.queue.drain(..));
        for message in messages {
            self.end_message(env, message, status);
        }
        while let Some((number, open)) = self.windows.find(|open| open.peer == peer) {
            self.end_offer(env, open.token, status, 0);
            self.close_window(env, number);
        }
        for handle in partner.pulling.offers.drain(..) {
            match self.offers.remove(handle).map(|offer| offer.state) {
                Some(State::Pulling(pull)) => {
                    self.tell(env, Event::Pulled { token: pull.token, status });
                }
                Some(State::Waiting { token, .. }) => {
                    self.tell(env, Event::Pulled { token, status });
                }
                Some(State::Offered) | None => {}
            }
        }
        self.connect_anew(env, (partner.host, partner.endpoint));
        if partner.told {
            self.tell(env, Event::PeerGone { peer, status });
        }
    }

    /// The library has room: what waits is told, and then messages, a peer after the other.
    pub(crate) fn room(&mut self, env: &mut Env<'_>) {
        if !self.outbox.flush(env, self.id) {
            return;
        }
        for _ in 0..self.ready.len() {
            let Some(peer) = self.ready.pop_front() else { return };
            if let Some(partner) = self.peers.get_mut(peer) {
                partner.receive.ready = false;
            }
            let full = self.counters.library_full;
            let all = self.deliver(env, peer);
            self.acknowledge(env, peer, false);
            self.rearm(env, peer);
            // Another may have what there is room for, unless there is none at all.
            let full = self.counters.library_full != full && !env.out.holds(self.id, peer);
            if !all && full {
                return;
            }
        }
    }

    /// Where an offer went, another may come that waits with its peer.
    pub(crate) fn heed_freed(&mut self, env: &mut Env<'_>) {
        if self.offers.freed() && !self.ready.is_empty() {
            self.room(env);
        }
    }

    /// See [`Nic::cancel_cost`](crate::Nic::cancel_cost).
    pub(crate) fn cancel_cost(&self) -> usize {
        self.sends.messages / LOOKED_THROUGH_AT_ONCE
    }

    /// What is to be seen of its peers.
    pub(crate) fn states(&self, macs: impl Fn(u16) -> Option<[u8; 6]>) -> Vec<PeerState> {
        let state = |(peer, partner): (PeerId, &crate::peer::Partner)| {
            let nic = NicId::of(macs(partner.host)?);
            Some(PeerState {
                peer,
                address: Address { nic, endpoint: partner.endpoint },
                session: partner.session,
                sending: (partner.send.flight.len(), partner.send.queue.len()),
                parked: partner.receive.bytes,
                round_trip_ns: partner.send.trip.smoothed(),
                counters: partner.counters,
            })
        };
        self.peers.all().filter_map(state).collect()
    }
}
