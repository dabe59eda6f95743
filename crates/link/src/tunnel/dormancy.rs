//! On-demand tunnels: dormant without traffic, awake from the first frame on.
//!
//! A dormant tunnel has no session, no timer and sends nothing; only its configuration and the
//! address claims of both ends stay. It wakes when a sender requests a session ([`Tunnel::wake`]),
//! or when the peer completes a handshake. First frames wait on the TX path
//! ([`crate::tx_path`]) and leave with the new session. If the peer does not answer for
//! [`WAKE_NS_MAX`] (5 s), the tunnel is down, drops the frames, and continues with handshakes until
//! the idle time has passed; then it is dormant again, and the next frame tries again.
//!
//! Traffic keeps a tunnel awake for the idle time: frames to one destination, and connections of
//! the stream protocol, in either direction. Heartbeats, announcements, flooded frames, and hellos
//! and addresses of the stream protocol do not; an end that wakes without traffic stays awake for
//! [`LINGER_NS`] (10 s).
//!
//! An end goes dormant only if the peer is on demand too, which its heartbeats state
//! ([`record::ON_DEMAND`]); so a peer of another configuration or version never misses answers. The
//! end that goes dormant first informs the peer, which follows at once. It accepts datagrams of the
//! last session for [`SESSION_GRACE_NS`](crate::limits::SESSION_GRACE_NS) (10 s): traffic among
//! them is delivered and wakes the tunnel, and a heartbeat is answered with the same notice, in case
//! the first was lost. If all are lost, the peer begins a handshake, and both ends are awake for
//! 10 s.
//!
//! All of it runs in the thread of the tunnel (in the daemon, the shard of links).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use causeway_wire::tunnel::record;

use super::keepalive::record_of;
use super::{SessionSlot, Tunnel, TunnelConfig};
use crate::event::EventKind;
use crate::limits::{LINGER_NS, REKEY_LATE_NS, REKEY_NS, WAKE_NS_MAX, WAKE_PAUSE_NS};
use crate::pack::{Batch, Packer};
use crate::reassembly::Reassembler;
use crate::tx_path::TunnelTxPath;
use crate::unpack::Sink;

/// Configuration of an on-demand tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDemand {
    /// Time without traffic after which the tunnel goes dormant, in ns.
    pub idle: u64,
    /// Whether both ends know each other's addresses from a directory. The tunnel is then dormant
    /// from the beginning, and a change of addresses does not wake it.
    pub has_directory: bool,
}

/// The state of an on-demand tunnel.
#[derive(Debug)]
pub(super) struct Dormancy {
    config: OnDemand,
    is_dormant: bool,
    /// A link on the tunnel is not on demand.
    is_pinned: bool,
    /// When the peer counts as down unless it has answered; `None` once it has, or was down.
    answer_by: Option<u64>,
    /// When the tunnel goes dormant unless there is traffic before.
    sleep_at: u64,
    /// When the tunnel went dormant; 0 if it never did.
    slept_at: u64,
    /// The peer stated on the current session that it is on demand.
    is_peer_on_demand: bool,
}

impl Dormancy {
    /// Returns the state for a configuration; `None` if the tunnel is always awake. A tunnel
    /// without encryption has no handshake, and a tunnel without an address of the peer cannot
    /// begin one: both are always awake.
    pub(super) fn new(config: &TunnelConfig, now: u64) -> Option<Self> {
        let on_demand = config.on_demand?;
        if config.keys.is_none() || config.remote.is_none() {
            return None;
        }
        let mut dormancy = Self {
            config: on_demand,
            is_dormant: on_demand.has_directory,
            is_pinned: false,
            answer_by: None,
            sleep_at: 0,
            slept_at: 0,
            is_peer_on_demand: false,
        };
        if !dormancy.is_dormant {
            dormancy.begin(now);
        }
        Some(dormancy)
    }

    pub(super) const fn is_dormant(&self) -> bool {
        self.is_dormant
    }

    /// Begins a time awake.
    fn begin(&mut self, now: u64) {
        self.is_dormant = false;
        self.answer_by = Some(now.saturating_add(WAKE_NS_MAX));
        self.sleep_at = now.saturating_add(LINGER_NS.min(self.config.idle));
    }

    /// Notes traffic.
    fn touch(&mut self, now: u64) {
        self.sleep_at = self.sleep_at.max(now.saturating_add(self.config.idle));
    }
}

/// Returns a TX path for the configuration. `waiting_bytes` counts the bytes that wait at all
/// tunnels of the socket.
pub(super) fn tx_path_of(
    dormancy: Option<&Dormancy>,
    waiting_bytes: &Arc<AtomicUsize>,
) -> Arc<TunnelTxPath> {
    match dormancy {
        Some(_) => Arc::new(TunnelTxPath::on_demand(Arc::clone(waiting_bytes))),
        None => Arc::default(),
    }
}

impl Tunnel {
    /// Returns whether the tunnel is dormant.
    pub fn is_dormant(&self) -> bool {
        self.dormancy.as_ref().is_some_and(|dormancy| dormancy.is_dormant)
    }

    /// Returns whether an on-demand tunnel has requested a session and waits for the peer's first
    /// answer.
    pub fn is_waking(&self) -> bool {
        let dormancy = self.dormancy.as_ref();
        !self.health.is_up() && dormancy.is_some_and(|d| !d.is_dormant && d.answer_by.is_some())
    }

    /// Wakes a dormant tunnel: the next [`Tunnel::tick`] begins a handshake. No effect on a tunnel
    /// that is awake. Without traffic it is dormant again after 10 s ([`LINGER_NS`]). Handshakes
    /// begin [`WAKE_PAUSE_NS`] (100 ms) after the last end of a session at the earliest: a peer that
    /// ends each session at once costs ten handshakes a second.
    pub fn wake(&mut self, now: u64) {
        let Some(dormancy) = self.dormancy.as_mut().filter(|d| d.is_dormant) else { return };
        dormancy.begin(now);
        let earliest = dormancy.slept_at.saturating_add(WAKE_PAUSE_NS);
        let initiate_at = if dormancy.slept_at == 0 { now } else { now.max(earliest) };
        (self.tries, self.initiate_at) = (0, initiate_at);
    }

    /// Sets whether the tunnel stays awake for a link that is not on demand.
    pub fn pin(&mut self, now: u64, is_pinned: bool) {
        if is_pinned {
            self.wake(now);
        }
        if let Some(dormancy) = &mut self.dormancy {
            dormancy.is_pinned = is_pinned;
        }
    }

    /// Returns whether the peer is informed that this end may go dormant.
    pub(super) fn advertises_on_demand(&self) -> bool {
        self.dormancy.as_ref().is_some_and(|dormancy| !dormancy.is_pinned)
    }

    /// Returns whether a change of addresses wakes a dormant tunnel; false for a tunnel with a
    /// directory, whose peer learns the change from it.
    pub(super) fn announces_dormant(&self) -> bool {
        self.dormancy.as_ref().is_none_or(|dormancy| !dormancy.config.has_directory)
    }

    /// Notes that the peer sent traffic. Traffic on the last session of a dormant tunnel wakes it.
    pub(super) fn note_received_traffic(&mut self, now: u64) {
        self.wake(now);
        if let Some(dormancy) = &mut self.dormancy {
            dormancy.touch(now);
        }
    }

    /// Notes what the peer stated about its end on the current session. If it has gone dormant, so
    /// does this end.
    pub(super) fn note_peer_on_demand(&mut self, now: u64, is_dormant: bool, sink: &mut Sink) {
        if self.is_dormant() {
            return;
        }
        let Some(dormancy) = &mut self.dormancy else { return };
        dormancy.is_peer_on_demand = true;
        if is_dormant && !dormancy.is_pinned {
            self.sleep(now, false, sink);
        }
    }

    /// Notes a new session. If the peer's handshake woke the tunnel, begins a time awake.
    pub(super) fn note_session(&mut self, now: u64) {
        let Some(dormancy) = &mut self.dormancy else { return };
        dormancy.is_peer_on_demand = false;
        if dormancy.is_dormant {
            dormancy.begin(now);
        }
    }

    /// Notes that the peer answers, or no longer does.
    pub(super) fn note_reachable(&mut self, is_up: bool) {
        if let Some(dormancy) = &mut self.dormancy {
            dormancy.answer_by = None;
            self.tx_path.set_unanswered(!is_up);
        }
    }

    /// Goes dormant if there was no traffic for the idle time, and reports a peer that did not
    /// answer in time as down.
    pub(super) fn tick_dormancy(&mut self, now: u64, sink: &mut Sink) {
        let Some(dormancy) = self.dormancy.as_mut().filter(|d| !d.is_dormant) else { return };
        if self.tx_path.take_traffic() {
            dormancy.touch(now);
        }
        let is_late = dormancy.answer_by.is_some_and(|at| at <= now);
        if is_late && !self.health.is_up() {
            self.note_reachable(false);
            self.event(EventKind::Down, sink);
        }
        if self.sleep_deadline() <= now {
            self.sleep(now, true, sink);
        }
    }

    /// Returns when [`Tunnel::tick_dormancy`] has work.
    pub(super) fn dormancy_deadline(&self) -> u64 {
        let Some(dormancy) = self.dormancy.as_ref().filter(|d| !d.is_dormant) else {
            return u64::MAX;
        };
        dormancy.answer_by.unwrap_or(u64::MAX).min(self.sleep_deadline())
    }

    /// Returns when the tunnel goes dormant without traffic. Without a session, the peer cannot
    /// miss this end.
    fn sleep_deadline(&self) -> u64 {
        let may_sleep = |dormancy: &&Dormancy| {
            !dormancy.is_pinned && (dormancy.is_peer_on_demand || self.current.is_none())
        };
        self.dormancy.as_ref().filter(may_sleep).map_or(u64::MAX, |dormancy| dormancy.sleep_at)
    }

    /// Returns whether a due handshake waits, because the tunnel goes dormant soon without traffic: a
    /// new session would not be used. Not longer than twice [`REKEY_LATE_NS`] (30 s), because
    /// traffic moves that time.
    pub(super) fn defers_rekey(&mut self, now: u64) -> bool {
        let sleeps = self.sleep_deadline();
        let is_soon = sleeps > now && sleeps <= now.saturating_add(REKEY_LATE_NS);
        let latest = REKEY_NS.saturating_add(REKEY_LATE_NS.saturating_mul(2));
        let is_young = |slot: &SessionSlot| now < slot.since.saturating_add(latest);
        let defers = is_soon && self.current.as_ref().is_some_and(is_young) && self.health.is_up();
        if defers {
            self.initiate_at = sleeps;
        }
        defers
    }

    /// Goes dormant; with `informs`, informs the peer. An answered handshake of the peer stays
    /// valid, and the last session opens for a while.
    fn sleep(&mut self, now: u64, informs: bool, sink: &mut Sink) {
        if informs {
            self.send_records(0, &record_of(record::ON_DEMAND, &[record::DORMANT]), 0, sink);
        }
        self.previous = self.current.take().map(|slot| SessionSlot { since: now, ..slot });
        self.pending = None;
        (self.tries, self.initiate_at, self.requested_at) = (0, u64::MAX, None);
        // The digest in the first heartbeat replaces announcements that were not sent.
        self.announcements.clear();
        self.fragments = Reassembler::default();
        self.health.reset();
        if let Some(dormancy) = &mut self.dormancy {
            (dormancy.is_dormant, dormancy.is_peer_on_demand) = (true, false);
            dormancy.slept_at = now;
        }
        self.note_reachable(true);
        self.tx_path.set_lossy(false);
        self.publish();
        self.event(EventKind::Dormant, sink);
        // Left by a sender after the tunnel had looked for traffic.
        if self.tx_path.has_waiting() {
            self.wake(now);
        }
    }

    /// Informs the peer again that this end is dormant, on the last session.
    pub(super) fn repeat_dormant(&self, sink: &mut Sink) {
        if let (Some(slot), Some(to)) = (&self.previous, self.remote) {
            let notice = record_of(record::ON_DEMAND, &[record::DORMANT]);
            Self::seal_records(slot, to, (0, &notice, 0), sink);
        }
    }

    /// Sends the frames that waited for the session, after it was published.
    pub(super) fn send_waiting(&self, sink: &mut Sink) {
        let waiting = self.tx_path.take_waiting();
        if waiting.is_empty() {
            return;
        }
        let mut packer = Packer::new(Arc::clone(&self.tx_path));
        let mut send = |batch: &Batch| {
            let Some(to) = batch.to() else { return };
            let datagrams = batch.bytes().chunks(batch.segment().max(1));
            sink.datagrams.extend(datagrams.map(|datagram| (to, datagram.to_vec())));
        };
        let mut lost = 0_u64;
        for frame in waiting {
            let (vni, len, bytes) = (frame.vni, frame.bytes.len(), frame.bytes.as_slice());
            let copy = |offset: usize, into: &mut [u8]| {
                // The packer reads within `len`.
                if let Some(from) = bytes.get(offset..).and_then(|bytes| bytes.get(..into.len())) {
                    into.copy_from_slice(from);
                }
                Ok::<(), Infallible>(())
            };
            let packed = if frame.is_segment {
                packer.push_segment(vni, len, |into| copy(0, into), &mut send)
            } else {
                packer.push(vni, frame.hops, &frame.metadata, len, copy, &mut send)
            };
            lost = lost.saturating_add(u64::from(packed.is_err()));
        }
        lost = lost.saturating_add(u64::from(packer.finish(&mut send).is_err()));
        self.tx_path.count_expired(lost);
    }
}
