//! Rekeying: handshakes of a tunnel, their timers, and the succession of sessions.
//!
//! The initiator of a session begins a new handshake after [`REKEY_NS`] (2 min), or the responder
//! [`REKEY_LATE_NS`] (15 s) later; either end also does so at once when the peer no longer answers,
//! or when the session has sealed 2^48 datagrams. The session stays in use until the handshake
//! succeeds. Up to three sessions accept datagrams at a time: the current session, its predecessor
//! for [`SESSION_GRACE_NS`] (10 s), and an answered session that the peer has not used yet, for
//! [`CONFIRM_NS_MAX`] (10 s). No session is current for longer than [`SESSION_NS_MAX`] (5 min):
//! without a successor the tunnel is then down, and senders refuse frames
//! ([`crate::pack::PushError::NoPath`]). Only the current session seals.
//!
//! Initiations are retransmitted after [`INITIATION_NS_MIN`] (0.5 s), doubled up to
//! [`INITIATION_NS_MAX`] (5 s), without end while the tunnel has an address of the peer. If both
//! ends begin at once, the end with the smaller public key has precedence: it refuses the other's
//! initiation ([`Refusal::Crossed`]), but yields after [`CROSSED_MAX`] (3) tries of its own.
//! Tunnels without encryption have one session for ever and run no handshake.
//!
//! `crate::tunnel_set` passes initiations that [`crate::handshake_guard`] admitted, and the timers,
//! in the thread of the tunnel (in the daemon, the shard of links); [`crate::handshake`] encodes
//! the messages. The module does not limit the rate of initiations.

use std::net::SocketAddr;
use std::sync::Arc;

use causeway_wire::tunnel::Outer;

use super::{HandshakeFault, SessionSlot, Tunnel};
use crate::clock::Clock;
use crate::event::EventKind;
use crate::handshake::{Initiation, ReceivedInitiation};
use crate::health::Changes;
use crate::limits::{
    CONFIRM_NS_MAX, CROSSED_MAX, HANDSHAKE_FAULT_NS, HEARD_NS, INITIATION_JITTER_NS,
    INITIATION_NS_MAX, INITIATION_NS_MIN, REKEY_LATE_NS, REKEY_NS, SESSION_GRACE_NS,
    SESSION_NS_MAX,
};
use crate::refusal::Refusal;
use crate::replay::Replay;
use crate::session::TunnelSession;
use crate::unpack::Sink;

impl Tunnel {
    /// Processes an initiation that proves to own the peer's key. Answers it if it is new.
    ///
    /// # Errors
    /// Why the initiation was refused, already counted.
    pub fn accept(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        initiation: ReceivedInitiation,
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let result = self.try_accept(clock, from, initiation, sink);
        if let Err(refusal) = result {
            self.refusals.count(refusal);
        }
        result
    }

    /// Does the work of [`Tunnel::accept`] without counting a refusal.
    fn try_accept(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        initiation: ReceivedInitiation,
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        if self.peer() != Some(initiation.peer()) {
            return Err(Refusal::Peer);
        }
        let aged = initiation.time() < self.peer_time;
        if initiation.time() <= self.peer_time {
            // A peer whose clock went back is answered once no session can be lost. Only the peer
            // can use the answer, so a replayed initiation has no effect.
            if !aged || self.current.is_some() {
                let behind = self.peer_time.saturating_sub(initiation.time());
                self.report_fault(clock.now, HandshakeFault::Behind(behind), sink);
                return Err(Refusal::Timestamp);
            }
        }
        // A replayed initiation does not displace the answer to a newer one.
        if self.next.as_ref().is_some_and(|next| next.peer_time > initiation.time()) {
            return Err(Refusal::Timestamp);
        }
        let is_heard = clock.now < self.received_at.saturating_add(HEARD_NS);
        if is_heard && self.current.is_some() && self.remote != Some(from) {
            self.report_fault(clock.now, HandshakeFault::Clone(from), sink);
            return Err(Refusal::Clone);
        }
        if !aged {
            self.peer_time = initiation.time();
        }
        if !aged && self.pending.is_some() && self.has_precedence && self.tries <= CROSSED_MAX {
            return Err(Refusal::Crossed);
        }
        let index = self.new_index(clock);
        let time = initiation.time();
        let (session, datagram) = initiation.answer(index)?;
        self.next = Some(Self::new_slot(clock.now, session, time, false));
        sink.datagrams.push((from, datagram));
        if aged {
            return Ok(());
        }
        self.pending = None;
        if self.initiate_at != u64::MAX {
            self.back_off(clock);
        }
        Ok(())
    }

    /// Records a fault of initiations with the peer's key, unless the peer is behind by less than
    /// [`HANDSHAKE_FAULT_NS`] (1 min). Reports it at most once in that time.
    fn report_fault(&mut self, now: u64, fault: HandshakeFault, sink: &mut Sink) {
        // Small differences come from replays or from duplication in the network.
        if matches!(fault, HandshakeFault::Behind(ns) if ns < HANDSHAKE_FAULT_NS) {
            return;
        }
        let same = |(known, at): &(HandshakeFault, u64)| {
            std::mem::discriminant(known) == std::mem::discriminant(&fault)
                && now < at.saturating_add(HANDSHAKE_FAULT_NS)
        };
        let since = self.fault.filter(same).map(|(_, at)| at);
        self.fault = Some((fault, since.unwrap_or(now)));
        if since.is_some() {
            return;
        }
        let event = match fault {
            HandshakeFault::Clone(at) => EventKind::Clone(at),
            HandshakeFault::Behind(ns) => EventKind::Behind(ns),
        };
        self.event(event, sink);
    }

    /// Processes the response to our initiation.
    pub(super) fn response(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        outer: &Outer,
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let Some(pending) = self.pending.as_mut().filter(|p| p.index() == outer.receiver) else {
            return Err(Refusal::Unasked);
        };
        let remote = pending.read(body)?;
        let Some(pending) = self.pending.take() else { return Err(Refusal::Unasked) };
        let session = pending.finish(remote)?;
        let slot = Self::new_slot(clock.now, session, 0, true);
        self.next = None;
        self.commit(clock, from, slot, sink);
        Ok(())
    }

    /// Processes a cookie reply: repeats our initiation with the cookie.
    pub(super) fn cookie(
        &mut self,
        from: SocketAddr,
        outer: &Outer,
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let Some(pending) = self.pending.as_mut().filter(|p| p.index() == outer.receiver) else {
            return Err(Refusal::Unasked);
        };
        if self.initiated_to != Some(from) {
            return Err(Refusal::Peer);
        }
        pending.take_cookie(body)?;
        sink.datagrams.push((from, pending.datagram().to_vec()));
        Ok(())
    }

    /// Makes the answered session current, because the peer has used it.
    pub(super) fn confirm(&mut self, clock: &mut Clock<'_>, from: SocketAddr, sink: &mut Sink) {
        if let Some(slot) = self.next.take() {
            self.commit(clock, from, slot, sink);
        }
    }

    /// Makes a session current and publishes it.
    fn commit(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        slot: SessionSlot,
        sink: &mut Sink,
    ) {
        let wait = if slot.ours { REKEY_NS } else { REKEY_NS.saturating_add(REKEY_LATE_NS) };
        if !slot.ours {
            self.peer_time = slot.peer_time;
        }
        self.previous = self.current.take();
        if let Some(previous) = &mut self.previous {
            previous.since = clock.now;
        }
        self.current = Some(SessionSlot { since: clock.now, ..slot });
        self.received_at = clock.now;
        self.handshakes = self.handshakes.saturating_add(1);
        (self.pending, self.tries) = (None, 0);
        self.initiate_at = clock.now.saturating_add(wait);
        if self.remote != Some(from) {
            self.remote = Some(from);
            self.event(EventKind::Roamed(from), sink);
        }
        self.note_session(clock.now);
        self.publish();
        self.send_waiting(sink);
        self.event(EventKind::Session, sink);
        self.health.wake();
        // Without delay: the responder sends nothing before our first datagram.
        self.send_heartbeats(clock, sink);
    }

    /// Returns a slot for a session that begins now.
    fn new_slot(now: u64, session: TunnelSession, peer_time: u64, ours: bool) -> SessionSlot {
        let session = Arc::new(session);
        SessionSlot {
            session,
            replay: Replay::default(),
            since: now,
            received: 0,
            reported: (0, 0),
            peer_time,
            ours,
        }
    }

    /// Returns an unused session index: the tunnel's number in the upper half, a random number in
    /// the lower.
    fn new_index(&self, clock: &mut Clock<'_>) -> u32 {
        let [high, low] = self.number.to_be_bytes();
        let result = |index: u32| {
            let slots = [&self.current, &self.previous, &self.next];
            slots.iter().any(|s| s.as_ref().is_some_and(|s| s.session.local() == index))
                || self.pending.as_ref().is_some_and(|p| p.index() == index)
        };
        let [a, b] = clock.random();
        let mut at = u16::from_be_bytes([a, b]);
        loop {
            let [a, b] = at.to_be_bytes();
            let index = u32::from_be_bytes([high, low, a, b]);
            // At most four are in use.
            if !result(index) {
                return index;
            }
            at = at.wrapping_add(1);
        }
    }

    /// Begins a handshake.
    fn initiate(&mut self, clock: &mut Clock<'_>, sink: &mut Sink) {
        let (Some((own, peer)), Some(to)) = (self.keys.clone(), self.candidate()) else {
            self.initiate_at = u64::MAX;
            return;
        };
        self.own_time = clock.wall.max(self.own_time.saturating_add(1));
        let index = self.new_index(clock);
        self.pending = Initiation::new(&own, &peer, index, self.own_time, clock.random());
        if let Some(pending) = &self.pending {
            sink.datagrams.push((to, pending.datagram().to_vec()));
        }
        self.initiated_to = Some(to);
        self.tries = self.tries.saturating_add(1);
        self.back_off(clock);
    }

    /// Returns the destination of the next initiation: the address where the peer was seen last,
    /// then its configured addresses, in turn.
    fn candidate(&self) -> Option<SocketAddr> {
        let others = self.configured.iter().copied().filter(|at| Some(*at) != self.remote);
        let all: Vec<SocketAddr> = self.remote.into_iter().chain(others).collect();
        let turn = usize::try_from(self.tries).unwrap_or(0).checked_rem(all.len())?;
        all.get(turn).copied()
    }

    /// Delays the next initiation by the back-off time.
    fn back_off(&mut self, clock: &mut Clock<'_>) {
        let doubled = INITIATION_NS_MIN.saturating_mul(1 << self.tries.saturating_sub(1).min(8));
        let [a, b] = clock.random();
        let jitter =
            u64::from(u16::from_be_bytes([a, b])).saturating_mul(INITIATION_JITTER_NS) >> 16;
        let wait = doubled.min(INITIATION_NS_MAX).saturating_add(jitter);
        self.initiate_at = clock.now.saturating_add(wait);
    }

    /// Begins a handshake at once: the peer no longer answers on the current session.
    pub(super) fn request_session(&mut self, now: u64) {
        if self.keys.is_some() && self.remote.is_some() {
            self.initiate_at = self.initiate_at.min(now);
        }
    }

    /// Drops sessions that are too old, and begins handshakes that are due.
    pub(super) fn tick_sessions(&mut self, clock: &mut Clock<'_>, sink: &mut Sink) {
        let now = clock.now;
        let old = |slot: &Option<SessionSlot>, most: u64| {
            slot.as_ref().is_some_and(|slot| slot.since.saturating_add(most) <= now)
        };
        if old(&self.previous, SESSION_GRACE_NS) {
            self.previous = None;
        }
        if old(&self.next, CONFIRM_NS_MAX) {
            self.next = None;
        }
        if self.keys.is_some() && old(&self.current, SESSION_NS_MAX) {
            self.current = None;
            self.publish();
            if self.health.is_up() {
                self.health.set_down();
                self.report_changes(Changes { up: Some(false), ..Changes::default() }, sink);
            }
        }
        let worn = self.current.as_ref().is_some_and(|slot| slot.session.needs_rekey());
        if worn && self.tries == 0 {
            self.request_session(now);
        }
        if now >= self.initiate_at && !self.defers_rekey(now) {
            self.initiate(clock, sink);
        }
    }

    /// Returns when [`Tunnel::tick_sessions`] has work.
    pub(super) fn sessions_deadline(&self) -> u64 {
        let end = |slot: &Option<SessionSlot>, most: u64| {
            slot.as_ref().map_or(u64::MAX, |slot| slot.since.saturating_add(most))
        };
        let current =
            if self.keys.is_some() { end(&self.current, SESSION_NS_MAX) } else { u64::MAX };
        self.initiate_at
            .min(current)
            .min(end(&self.previous, SESSION_GRACE_NS))
            .min(end(&self.next, CONFIRM_NS_MAX))
    }
}
