//! The service's interface to the fabric: ports, queues, deadlines, and the end of connections.

use std::collections::{BTreeMap, HashMap};

use causeway_attach::Model;
use causeway_fabric::{Context, GroupId, Port, PortId, Ports, Progress, Rules, Service};
use causeway_model::{CommandError, TraceQuery, TraceView};
use causeway_model::{PortSpec, VsockSpec};
use causeway_wire::vsock::{Op, VIRTIO_VSOCK_F_SEQPACKET, VIRTIO_VSOCK_F_STREAM};

use crate::conn::{Party, Signals, Which};
use crate::counters::bump;
use crate::deadline::Deadlines;
use crate::host::HostTokens;
use crate::ledger::Ledger;
use crate::limits::{
    DRAIN_NS_MAX, LINGER_NS_MAX, REQUEST_NS_MAX, RESETS_WAITING_MAX, RING_SIZE_MAX,
};
use crate::revive::Revival;
use crate::seat::{Reset, Seat};
use crate::table::{ConnId, Table};

/// Receive queue of a guest (virtio 1.3, 5.10.2).
pub(crate) const RX: usize = 0;
/// Transmit queue of a guest.
pub(crate) const TX: usize = 1;
/// Event queue of a guest.
pub(crate) const EVENT: usize = 2;
/// Receive, transmit, event.
pub(crate) const QUEUES: usize = 3;
pub(crate) use causeway_model::CID_HOST;
/// The guest supports SEQPACKET sockets.
pub(crate) const VSOCK_F_SEQPACKET: u64 = 1 << VIRTIO_VSOCK_F_SEQPACKET;

/// The states of all ports, by the slot of the port.
#[derive(Debug, Default)]
pub(crate) struct Seats(Vec<Option<Seat>>);

impl Seats {
    #[inline]
    pub(crate) fn get(&self, id: PortId) -> Option<&Seat> {
        self.0.get(id.slot())?.as_ref().filter(|s| s.id == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PortId) -> Option<&mut Seat> {
        self.0.get_mut(id.slot())?.as_mut().filter(|s| s.id == id)
    }

    /// Returns a port and its state.
    #[inline]
    pub(crate) fn with_port<'a>(
        &'a mut self,
        cx: &'a mut Context<'_>,
        id: PortId,
    ) -> Option<(&'a mut Port, &'a mut Seat)> {
        Some((cx.ports.get_mut(id)?, self.get_mut(id)?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.0.iter().flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Seat> {
        self.0.iter_mut().flatten()
    }

    fn insert(&mut self, seat: Seat) {
        let slot = seat.id.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot.saturating_add(1), || None);
        }
        if let Some(place) = self.0.get_mut(slot) {
            *place = Some(seat);
        }
    }

    fn remove(&mut self, id: PortId) -> Option<Seat> {
        self.0.get_mut(id.slot())?.take_if(|s| s.id == id)
    }
}

/// Reason for which a connection expires; each reason has a fixed time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expiry {
    /// The connect is unanswered.
    Request,
    /// Both directions are shut down.
    Linger,
    /// A process still has data of its guest to take.
    Drain,
}

/// AF_VSOCK for the vsock ports of a shard.
#[derive(Debug, Default)]
pub struct Socket {
    pub(crate) seats: Seats,
    /// Port of each CID.
    pub(crate) directory: HashMap<(GroupId, u32), PortId>,
    pub(crate) table: Table,
    /// Ports with an open receive buffer in this batch.
    pub(crate) open: Vec<PortId>,
    /// Ports with new deliveries in this batch.
    pub(crate) attention: Vec<PortId>,
    /// Ports with resets in their unpublished receive ring, which their ledgers still record.
    pub(crate) told: Vec<PortId>,
    /// Connects without an answer, shut connections, and connections that only drain to a process.
    pub(crate) requests: Deadlines<ConnId>,
    pub(crate) lingering: Deadlines<ConnId>,
    pub(crate) draining: Deadlines<ConnId>,
    /// Sides that are held back, with the time of the next credit request.
    pub(crate) asks_soon: Deadlines<(ConnId, Which)>,
    /// The same, for sides that did not answer the first requests.
    pub(crate) asks_later: Deadlines<(ConnId, Which)>,
    pub(crate) tokens: HostTokens,
    /// First check of a receiver for which a sender stands still.
    pub(crate) judge_ns: Option<u64>,
}

impl Socket {
    /// Makes a service without ports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Schedules deliveries to side `which`: a guest receives them at the end of the batch, a
    /// process at once.
    pub(crate) fn attend(&mut self, cx: &mut Context<'_>, id: ConnId, which: Which) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let side = conn.side_mut(which);
        match side.party {
            // It has ended the connection, and may have a new connection with the same addresses.
            Party::Guest(_) if side.gone => {}
            Party::Guest(to) => {
                if !side.queued {
                    side.queued = true;
                    if let Some(seat) = self.seats.get_mut(to) {
                        seat.ready.push_back((id, which));
                    }
                }
                self.attend_seat(cx, to);
            }
            Party::Host(_) => self.tell_host(cx, id, which),
        }
    }

    /// Schedules a delivery to a port at the end of the batch.
    pub(crate) fn attend_seat(&mut self, _cx: &mut Context<'_>, to: PortId) {
        if !self.attention.contains(&to) {
            self.attention.push(to);
        }
    }

    /// Delivers to every scheduled port.
    pub(crate) fn attend_all(&mut self, cx: &mut Context<'_>) {
        // A delivery may schedule further deliveries (a process's answer). Each round delivers, or
        // leaves its port waiting for buffers, so the number of rounds is bounded.
        for _ in 0..4 {
            let seats = std::mem::take(&mut self.attention);
            if seats.is_empty() {
                return;
            }
            for to in seats {
                // Beyond the turn's time, ports are served in their own turns.
                if cx.is_over() || self.deliver(cx, to) != Progress::Parked {
                    cx.wake(to, RX);
                }
            }
        }
        for to in std::mem::take(&mut self.attention) {
            cx.wake(to, RX);
        }
    }

    /// Ends a connection that side `which` ended; the other side gets a reset.
    pub(crate) fn ended_by(&mut self, cx: &mut Context<'_>, id: ConnId, which: Which) {
        if self.drains_on(cx.now_ns, id, which) {
            self.table.unkey(id, which);
            return;
        }
        self.finish(cx, id, |w| w != which);
    }

    /// Handles a reset from side `which`. If an earlier connection had the same addresses, the
    /// reset may be late and the side would wait forever, so the side gets a reset too. Guests do
    /// not answer a reset.
    pub(crate) fn reset_by(&mut self, cx: &mut Context<'_>, id: ConnId, which: Which) {
        let late = self.table.get(id).is_some_and(|conn| conn.reused);
        if late && !self.has_to_drain(id) {
            self.end(cx, id, true);
        } else {
            self.ended_by(cx, id, which);
        }
    }

    /// Ends a connection; if `tell` is set, its guests get a reset.
    pub(crate) fn end(&mut self, cx: &mut Context<'_>, id: ConnId, tell: bool) {
        self.finish(cx, id, |_| tell);
    }

    fn finish(&mut self, cx: &mut Context<'_>, id: ConnId, tell: impl Fn(Which) -> bool) {
        for which in [Which::Caller, Which::Callee] {
            self.close_of(cx, id, which);
        }
        let Some(mut conn) = self.table.remove(id) else { return };
        for which in [Which::Caller, Which::Callee] {
            let waiting = std::mem::take(&mut conn.side_mut(which).pending);
            let header = conn.header(which, Op::Reset, 0, 0);
            let side = conn.side(which);
            let to = side.guest();
            if let Some(seat) = to.and_then(|to| self.seats.get_mut(to)) {
                seat.connections = seat.connections.saturating_sub(1);
                if conn.side(which.other()).guest().is_none() {
                    seat.host_connections = seat.host_connections.saturating_sub(1);
                }
                if side.queued {
                    seat.forget_ready(|other| self.table.get(other).is_some());
                }
                // A side that never received the request has no state to reset.
                let unmet = side.signals.contains(Signals::REQUEST) && !side.met;
                if tell(which) && !side.gone && !unmet {
                    let entry = seat.ledger.as_mut().and_then(|ledger| ledger.ended(id));
                    seat.resets.push_back(Reset { header, entry });
                    // A guest that receives no resets must not cause further ones.
                    seat.choked |= seat.resets.len() >= RESETS_WAITING_MAX;
                } else if let Some(ledger) = &mut seat.ledger {
                    ledger.forget(id);
                }
            }
            for pending in waiting {
                self.release(cx, to, pending);
            }
            if let Some(to) = to {
                self.attend_seat(cx, to);
            }
        }
        self.drop_host(conn);
    }

    /// Closes the receive buffer of side `which` if it holds data of this connection.
    fn close_of(&mut self, cx: &mut Context<'_>, id: ConnId, which: Which) {
        let Some(to) = self.table.get(id).and_then(|c| c.side(which).guest()) else { return };
        let Some((port, seat)) = self.seats.with_port(cx, to) else { return };
        if seat.filling.of == Some((id, which)) {
            if let Err(fault) = crate::deliver::close(&mut self.table, port, seat, 0) {
                cx.fault(to, fault);
            }
            cx.touch(to, RX);
        }
    }

    /// Ends every connection of a guest that is gone; the peers get resets.
    pub(crate) fn end_all_of(&mut self, cx: &mut Context<'_>, port: PortId) {
        let ids: Vec<_> = self.table.of_port(port).map(|(id, _)| id).collect();
        for id in ids {
            self.end(cx, id, true);
        }
    }

    /// Sets the expiry of a connection, which progress cancels.
    pub(crate) fn expire_for(&mut self, now_ns: u64, id: ConnId, why: Expiry) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let (list, after) = match why {
            Expiry::Request => (&mut self.requests, REQUEST_NS_MAX),
            Expiry::Linger => (&mut self.lingering, LINGER_NS_MAX),
            Expiry::Drain => (&mut self.draining, DRAIN_NS_MAX),
        };
        let at = now_ns.saturating_add(after);
        conn.expires_ns = Some(at);
        let table = &self.table;
        list.set(at, id, |at, id| table.get(id).is_some_and(|c| c.expires_ns == Some(at)));
    }

    /// Ends the connections that have expired.
    fn expire(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        let mut due = Vec::new();
        for list in [&mut self.requests, &mut self.lingering, &mut self.draining] {
            due.extend(std::iter::from_fn(|| list.take_due(now)));
        }
        for (at, id) in due {
            let Some(conn) = self.table.get(id).filter(|c| c.expires_ns == Some(at)) else {
                continue;
            };
            let callee = conn.side(Which::Callee).guest();
            let asked = conn.phase == crate::conn::Phase::Requested;
            if let Some(seat) = callee.and_then(|id| self.seats.get_mut(id))
                && asked
            {
                bump(&mut seat.counters.unanswered);
            }
            self.end(cx, id, true);
        }
    }
}

impl Service for Socket {
    fn model(&self, spec: &PortSpec) -> Model {
        let cid = spec.kind.get::<VsockSpec>().map_or(0, |vsock| u64::from(vsock.cid));
        let features = 1 << VIRTIO_VSOCK_F_STREAM | VSOCK_F_SEQPACKET;
        let model = Model::new(QUEUES, features, cid.to_le_bytes().to_vec());
        Model { ring_size_max: RING_SIZE_MAX, ..model }
    }

    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError> {
        let Some(added) = cx.ports.get(port) else { return Ok(()) };
        let Some(vsock) = added.spec.kind.get::<VsockSpec>() else { return Ok(()) };
        let group = added.group;
        if let Some(other) =
            self.directory.get(&(group, vsock.cid)).and_then(|id| cx.ports.get(*id))
        {
            let (cid, name) = (vsock.cid, &other.spec.name);
            return Err(CommandError::Conflict(format!(
                "cid {cid}: port {name} of this group has this CID"
            )));
        }
        let socket = added.spec.socket.clone();
        let mut seat = Seat::new(port, group, vsock.cid);
        seat.ledger = Ledger::of(&socket).map_err(|error| {
            CommandError::Host(format!("cannot open the ledger of {}: {error}", socket.display()))
        })?;
        if let Some(path) = &vsock.host_socket {
            seat.door = Some(self.open_door(cx, port, path)?);
        }
        self.seats.insert(seat);
        self.directory.insert((group, vsock.cid), port);
        Ok(())
    }

    fn removed(&mut self, _cx: &mut Context<'_>, port: PortId) {
        if let Some(mut seat) = self.seats.remove(port) {
            self.directory.remove(&(seat.group, seat.cid));
            if let Some(door) = seat.door.take() {
                self.close_door(door);
            }
            if let Some(ledger) = seat.ledger.take() {
                ledger.remove();
            }
        }
        for seat in self.seats.iter_mut() {
            seat.waits.forget(port);
        }
    }

    fn started(&mut self, cx: &mut Context<'_>, port: PortId, queue: usize) {
        self.look_back(cx, port, queue);
    }

    fn paused(&mut self, cx: &mut Context<'_>, port: PortId, queue: usize) {
        match queue {
            RX => {
                if let Some(seat) = self.seats.get_mut(port) {
                    seat.filling.of = None;
                }
            }
            TX => self.save_held(cx, port),
            _ => {}
        }
    }

    fn stopped(&mut self, cx: &mut Context<'_>, port: PortId) {
        if let Some(seat) = self.seats.get_mut(port) {
            seat.filling.of = None;
        }
        self.end_all_of(cx, port);
        if let Some(seat) = self.seats.get_mut(port) {
            // The guest is gone, and its held chains went with its ring.
            seat.drop_resets();
            seat.clear_ready();
            seat.forget_holds();
            seat.staged = 0;
            seat.waits.clear();
            seat.choked = false;
            seat.revival = Revival::default();
        }
        self.attend_all(cx);
    }

    fn serve(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        queue: usize,
        budget: usize,
    ) -> Progress {
        match queue {
            RX => {
                let progress = self.deliver(cx, port);
                self.attend_all(cx);
                progress
            }
            TX => self.transmit(cx, port, budget),
            EVENT => self.serve_events(cx, port),
            _ => Progress::Parked,
        }
    }

    fn ready(&mut self, cx: &mut Context<'_>, value: u32, readable: bool, writable: bool) {
        self.host_ready(cx, value, readable, writable);
        self.attend_all(cx);
    }

    fn deadline_ns(&self) -> Option<u64> {
        let ends = [&self.requests, &self.lingering, &self.draining].map(Deadlines::first_ns);
        let settle = (!self.told.is_empty()).then_some(0);
        let asks = [&self.asks_soon, &self.asks_later].map(Deadlines::first_ns);
        let other = [self.handshake_deadline_ns(), self.doors_ns(), self.judge_ns, settle];
        ends.into_iter().chain(asks).chain(other).flatten().min()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.expire(cx);
        self.expire_handshakes(cx.now_ns);
        self.open_doors(cx);
        self.judge_stalls(cx);
        self.ask_held_back(cx);
        self.settle_told(cx);
        self.attend_all(cx);
    }

    fn counters(&self, port: PortId) -> BTreeMap<String, u64> {
        let Some(seat) = self.seats.get(port) else { return BTreeMap::new() };
        let mut view = seat.counters.view();
        view.insert("connections".into(), seat.connections as u64);
        view.insert("host_connections".into(), seat.host_connections as u64);
        view
    }

    fn trace(
        &self,
        ports: &Ports,
        rules: &Rules,
        query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        crate::trace::connect(&self.directory, ports, rules, query)
    }
}
