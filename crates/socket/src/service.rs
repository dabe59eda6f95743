//! The service's interface to the fabric: ports, queues, deadlines, and the end of connections.
//!
//! The shard calls [`Socket`] as its [`Service`]: `transmit` for transmit queues, `deliver` for
//! receive queues, [`crate::host`] for ready sockets, and [`Service::tick`] for deadlines: expiry,
//! handshakes, pauses, stalls and credit requests. Deliveries that a call causes are collected and
//! made at its end, in at most four rounds; the rest follows in the turns of the ports.
//!
//! A CID is unique in a group; a second port with the same CID cannot be added, nor a port with a
//! ledger or host socket that cannot be opened. A guest that is paused keeps its connections; a
//! guest that resets its device, leaves or faults loses all of them: guests at the other side get
//! resets, and the streams of processes close. A connect expires after 30 s, a connection of which
//! both directions are shut down after 10 s, or 5 min while a process has data left to take
//! ([`crate::expiry`]): then it is reset. Connections do not survive the daemon; [`crate::resume`]
//! resets them for the guest, by a transport reset event and by packets. The event queue is used
//! for that event alone. One thread at a time calls the service; it waits for no guest and no
//! process, but for file operations: the ledger's small writes ([`crate::ledger`]), and the look-up
//! of the sockets of processes.

use std::collections::{BTreeMap, HashMap};

use causeway_attach::Model;
use causeway_fabric::capture::JoinCapture;
use causeway_fabric::carrier::{AssignCids, Join, Leave, OpenInbox, ReadCids, ReadDrops};
use causeway_fabric::{
    Context, GroupId, Port, PortId, Ports, Progress, Rules, Service, SourceProgress,
};
use causeway_model::{CommandError, RequestDispatch, ServiceRequest, TraceQuery, TraceView};
use causeway_model::{PortSpec, VsockSpec};
use causeway_wire::vsock::{Op, VIRTIO_VSOCK_F_SEQPACKET, VIRTIO_VSOCK_F_STREAM};

use crate::conn::{Party, Role, Signals};
use crate::control;
use crate::counters::bump;
use crate::credit_requests::CreditRequests;
use crate::expiry::{Expiries, Expiry};
use crate::host::HostTokens;
use crate::ledger::Ledger;
use crate::limits::{RESETS_WAITING_MAX, RING_SIZE_MAX};
use crate::port_batch::PortBatch;
use crate::remote::Peers;
use crate::resume::ResumeState;
use crate::socket_port::{Reset, SocketPort};
use crate::stall::StallChecks;
use crate::table::{ConnId, ConnTable};

/// Name of the service.
pub(crate) const NAME: &str = "vsock";
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

/// The states of all ports, by the slot of the port. Look-ups with the identifier of a deleted port
/// return `None`.
#[derive(Debug, Default)]
pub(crate) struct SocketPorts(Vec<Option<SocketPort>>);

impl SocketPorts {
    #[inline]
    pub(crate) fn get(&self, id: PortId) -> Option<&SocketPort> {
        self.0.get(id.slot())?.as_ref().filter(|s| s.id == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PortId) -> Option<&mut SocketPort> {
        self.0.get_mut(id.slot())?.as_mut().filter(|s| s.id == id)
    }

    /// Returns a port and its state.
    #[inline]
    pub(crate) fn with_port<'a>(
        &'a mut self,
        cx: &'a mut Context<'_>,
        id: PortId,
    ) -> Option<(&'a mut Port, &'a mut SocketPort)> {
        Some((cx.ports.get_mut(id)?, self.get_mut(id)?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SocketPort> {
        self.0.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut SocketPort> {
        self.0.iter_mut().flatten()
    }

    fn insert(&mut self, socket_port: SocketPort) {
        let slot = socket_port.id.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot.saturating_add(1), || None);
        }
        if let Some(place) = self.0.get_mut(slot) {
            *place = Some(socket_port);
        }
    }

    fn remove(&mut self, id: PortId) -> Option<SocketPort> {
        self.0.get_mut(id.slot())?.take_if(|s| s.id == id)
    }
}

/// AF_VSOCK for the vsock ports of a shard.
#[derive(Debug, Default)]
pub struct Socket {
    /// States of the ports.
    pub(crate) socket_ports: SocketPorts,
    /// Port of each CID in each group.
    pub(crate) directory: HashMap<(GroupId, u32), PortId>,
    /// Connections of all ports.
    pub(crate) table: ConnTable,
    /// Ports with work that ends with the present batch.
    pub(crate) batch: PortBatch,
    /// Times after which connections end.
    expiries: Expiries,
    /// Credit requests to receivers that are held back.
    pub(crate) credit_requests: CreditRequests,
    /// Watched sockets of host processes.
    pub(crate) tokens: HostTokens,
    /// Checks of receivers for which senders stand still.
    pub(crate) stall_checks: StallChecks,
    /// Linked daemons.
    pub(crate) peers: Peers,
}

impl Socket {
    /// Makes a service without ports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Schedules deliveries to side `role`: a guest receives them at the end of the batch, a
    /// process at once.
    pub(crate) fn schedule_side(&mut self, cx: &mut Context<'_>, id: ConnId, role: Role) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let side = conn.side_mut(role);
        match side.party {
            // It has ended the connection, and may have a new connection with the same addresses.
            Party::Guest(_) if side.is_gone => {}
            Party::Guest(to) => {
                if !side.is_queued {
                    side.is_queued = true;
                    if let Some(socket_port) = self.socket_ports.get_mut(to) {
                        socket_port.ready.push_back((id, role));
                    }
                }
                self.schedule_port(cx, to);
            }
            Party::Host(_) => self.signal_host(cx, id, role),
            // The channel has ended, and its number may have a new user.
            Party::Remote(_) if side.is_gone => {}
            Party::Remote(_) => {
                self.signal_peer(id, role);
                self.read_from_process(cx, id);
            }
        }
    }

    /// Schedules a delivery to a port at the end of the batch.
    pub(crate) fn schedule_port(&mut self, _cx: &mut Context<'_>, to: PortId) {
        self.batch.schedule(to);
    }

    /// Delivers to every scheduled port.
    pub(crate) fn deliver_scheduled(&mut self, cx: &mut Context<'_>) {
        // A delivery may schedule further deliveries (a process's answer). Each round delivers, or
        // leaves its port waiting for buffers, so the number of rounds is bounded.
        for _ in 0..4 {
            let socket_ports = self.batch.take_scheduled();
            if socket_ports.is_empty() {
                return;
            }
            for to in socket_ports {
                // Beyond the turn's time, ports are served in their own turns.
                if cx.is_over() || self.deliver(cx, to) != Progress::Parked {
                    cx.wake(to, RX);
                }
            }
        }
        for to in self.batch.take_scheduled() {
            cx.wake(to, RX);
        }
    }

    /// Ends a connection that side `role` ended: the other side gets a reset. If the other side is
    /// a process with data left to take, the connection stays until that is done.
    pub(crate) fn end_from(&mut self, cx: &mut Context<'_>, id: ConnId, role: Role) {
        if self.begin_drain(cx.now_ns, id, role) {
            self.table.unkey(id, role);
            return;
        }
        self.finish(cx, id, |w| w != role);
    }

    /// Handles a reset from side `role`. If an earlier connection had the same addresses, the
    /// reset may be late and the side would wait forever, so the side gets a reset too. Guests do
    /// not answer a reset.
    pub(crate) fn handle_reset(&mut self, cx: &mut Context<'_>, id: ConnId, role: Role) {
        let late = self.table.get(id).is_some_and(|conn| conn.is_reused);
        if late && !self.has_undelivered_output(id) {
            self.end(cx, id, true);
        } else {
            self.end_from(cx, id, role);
        }
    }

    /// Ends a connection at once, and drops its undelivered data; if `resets` is set, its guests
    /// get a reset.
    pub(crate) fn end(&mut self, cx: &mut Context<'_>, id: ConnId, resets: bool) {
        self.finish(cx, id, |_| resets);
    }

    /// Ends a connection; the guests at the sides for which `resets` is true get a reset.
    fn finish(&mut self, cx: &mut Context<'_>, id: ConnId, resets: impl Fn(Role) -> bool) {
        for role in [Role::Caller, Role::Callee] {
            self.close_of(cx, id, role);
        }
        let Some(mut conn) = self.table.remove(id) else { return };
        let process_port = conn.process_port();
        for role in [Role::Caller, Role::Callee] {
            let waiting = std::mem::take(&mut conn.side_mut(role).pending);
            let header = conn.header(role, Op::Reset, 0, 0);
            let side = conn.side(role);
            let to = side.guest();
            // A connection that drained may outlive its channel, and the number has a new user then.
            if let Party::Remote(end) = side.party
                && self.peers.is_channel_of(end, id)
            {
                self.peers.close(end, resets(role));
            }
            let owner = side.owner();
            if let Some(socket_port) = owner.and_then(|id| self.socket_ports.get_mut(id)) {
                socket_port.connections = socket_port.connections.saturating_sub(1);
                let is_of_process = usize::from(owner == process_port);
                socket_port.host_connections =
                    socket_port.host_connections.saturating_sub(is_of_process);
            }
            if let Some(socket_port) = to.and_then(|to| self.socket_ports.get_mut(to)) {
                if side.is_queued {
                    socket_port.forget_ready(|other| self.table.get(other).is_some());
                }
                // A side that never received the request has no state to reset.
                let unmet = side.signals.contains(Signals::REQUEST) && !side.is_request_delivered;
                if resets(role) && !side.is_gone && !unmet {
                    let slot = socket_port.ledger.as_mut().and_then(|ledger| ledger.take_slot(id));
                    socket_port.resets.push_back(Reset { header, slot });
                    // A guest that receives no resets must not cause further ones.
                    socket_port.is_stopped_by_resets |=
                        socket_port.resets.len() >= RESETS_WAITING_MAX;
                } else if let Some(ledger) = &mut socket_port.ledger {
                    ledger.erase(id);
                }
            }
            for pending in waiting {
                self.release(cx, to, pending);
            }
            if let Some(to) = to {
                self.schedule_port(cx, to);
            }
        }
        self.drop_host(conn);
    }

    /// Closes the receive buffer of side `role` if the buffer holds data of this connection.
    fn close_of(&mut self, cx: &mut Context<'_>, id: ConnId, role: Role) {
        let Some(to) = self.table.get(id).and_then(|c| c.side(role).guest()) else { return };
        let Some((port, socket_port)) = self.socket_ports.with_port(cx, to) else { return };
        if socket_port.filling.of == Some((id, role)) {
            if let Err(fault) = crate::deliver::close_buffer(&mut self.table, port, socket_port, 0)
            {
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

    /// Sets the expiry of a connection.
    pub(crate) fn expire_for(&mut self, now_ns: u64, id: ConnId, why: Expiry) {
        self.expiries.set(&mut self.table, now_ns, id, why);
    }

    /// Ends the connections that have expired.
    fn expire(&mut self, cx: &mut Context<'_>) {
        for (at, id) in self.expiries.take_due(cx.now_ns) {
            let Some(conn) = self.table.get(id).filter(|c| c.expires_ns == Some(at)) else {
                continue;
            };
            let callee = conn.side(Role::Callee).guest();
            let credit_requested = conn.phase == crate::conn::Phase::Requested;
            if let Some(socket_port) = callee.and_then(|id| self.socket_ports.get_mut(id))
                && credit_requested
            {
                bump(&mut socket_port.counters.unanswered);
            }
            self.end(cx, id, true);
        }
    }
}

impl Service for Socket {
    fn model(&self, spec: &PortSpec) -> Model {
        let cid = spec.kind.get::<VsockSpec>().map_or(0, |vsock| u64::from(vsock.shown_cid()));
        let features = 1 << VIRTIO_VSOCK_F_STREAM | VSOCK_F_SEQPACKET;
        let model = Model::new(QUEUES, features, cid.to_le_bytes().to_vec());
        Model { ring_size_max: RING_SIZE_MAX, ..model }
    }

    /// No frontend attaches to a port for processes.
    fn opens_socket(&self, spec: &PortSpec) -> bool {
        spec.kind.get::<VsockSpec>().is_some_and(|vsock| vsock.processes)
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
        let mut socket_port = SocketPort::new(port, group, &vsock);
        if !vsock.processes {
            socket_port.ledger = Ledger::of(&socket).map_err(|error| {
                let socket = socket.display();
                CommandError::Host(format!("cannot open the ledger of {socket}: {error}"))
            })?;
        }
        if let Some(path) = &vsock.host_socket {
            socket_port.host_listeners = Some(self.open_listeners(cx, port, path)?);
        }
        self.socket_ports.insert(socket_port);
        self.directory.insert((group, vsock.cid), port);
        self.peers.set_now(cx.now_ns);
        self.claim_cid(cx, port);
        Ok(())
    }

    fn removed(&mut self, cx: &mut Context<'_>, port: PortId) {
        self.peers.set_now(cx.now_ns);
        // Those of a guest have ended with its frontend.
        self.end_all_of(cx, port);
        self.withdraw_cid(port);
        if let Some(mut socket_port) = self.socket_ports.remove(port) {
            socket_port.captures.close();
            self.directory.remove(&(socket_port.group, socket_port.cid));
            if let Some(host_listeners) = socket_port.host_listeners.take() {
                self.close_listeners(host_listeners);
            }
            if let Some(ledger) = socket_port.ledger.take() {
                ledger.remove();
            }
        }
        for socket_port in self.socket_ports.iter_mut() {
            socket_port.stalls.forget(port);
        }
        self.deliver_scheduled(cx);
    }

    fn started(&mut self, cx: &mut Context<'_>, port: PortId, queue: usize) {
        self.peers.set_now(cx.now_ns);
        self.detect_resume(cx, port, queue);
        self.claim_cid(cx, port);
    }

    fn paused(&mut self, cx: &mut Context<'_>, port: PortId, queue: usize) {
        self.peers.set_now(cx.now_ns);
        match queue {
            RX => {
                if let Some(socket_port) = self.socket_ports.get_mut(port) {
                    socket_port.filling.of = None;
                }
            }
            TX => self.stage_held(cx, port),
            _ => {}
        }
    }

    fn stopped(&mut self, cx: &mut Context<'_>, port: PortId) {
        self.peers.set_now(cx.now_ns);
        if let Some(socket_port) = self.socket_ports.get_mut(port) {
            socket_port.filling.of = None;
        }
        self.end_all_of(cx, port);
        self.withdraw_cid(port);
        if let Some(socket_port) = self.socket_ports.get_mut(port) {
            // The guest is gone, and its held chains went with its ring.
            socket_port.drop_resets();
            socket_port.clear_ready();
            socket_port.forget_holds();
            socket_port.staged = 0;
            socket_port.stalls.clear();
            socket_port.is_stopped_by_resets = false;
            socket_port.resume = ResumeState::default();
        }
        self.deliver_scheduled(cx);
    }

    fn serve(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        queue: usize,
        budget: usize,
    ) -> Progress {
        self.peers.set_now(cx.now_ns);
        match queue {
            RX => {
                let progress = self.deliver(cx, port);
                self.deliver_scheduled(cx);
                progress
            }
            TX => self.transmit(cx, port, budget),
            EVENT => self.serve_events(cx, port),
            _ => Progress::Parked,
        }
    }

    fn ready(&mut self, cx: &mut Context<'_>, value: u32, readable: bool, writable: bool) {
        self.peers.set_now(cx.now_ns);
        self.host_ready(cx, value, readable, writable);
        self.deliver_scheduled(cx);
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, _value: u32, budget: usize) -> SourceProgress {
        self.serve_peers(cx, budget)
    }

    /// Sends datagrams to peers, so that data of several guests leaves together.
    fn turned(&mut self) {
        self.peers.flush();
    }

    fn deadline_ns(&self) -> Option<u64> {
        let times = [
            self.expiries.first_ns(),
            self.credit_requests.first_ns(),
            self.handshake_deadline_ns(),
            self.next_resume_ns(),
            self.stall_checks.first_ns(),
            self.batch.has_unpublished_resets().then_some(0),
            self.peers.deadline_ns(),
        ];
        times.into_iter().flatten().min()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.peers.set_now(cx.now_ns);
        self.expire(cx);
        self.expire_handshakes(cx.now_ns);
        self.resume_listeners(cx);
        self.check_stalls(cx);
        self.send_credit_requests(cx);
        self.clear_published_resets(cx);
        self.tick_peers(cx);
        self.deliver_scheduled(cx);
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        self.peers.set_now(cx.now_ns);
        RequestDispatch::new(request)
            .on(|request| {
                Ok(control::piece(&self.table, cx.ports, &self.peers, cx.now_ns, &request))
            })
            .on(|join: JoinCapture| self.join_capture(cx.ports, join))
            .on(|OpenInbox| self.peers.sender(cx))
            .on(|ReadDrops(link)| Ok(self.peers.counters(link)))
            .on(|ReadCids(changes)| Ok(self.peers.local_cids(changes)))
            .on(|assign: AssignCids| {
                self.peers.assign(&assign);
                Ok(())
            })
            .on(|Join(member)| self.peers.join(cx.now_ns, member))
            .on(|Leave(link)| {
                self.leave_link(cx, link);
                Ok(())
            })
    }

    fn counters(&self, port: PortId) -> BTreeMap<String, u64> {
        let Some(socket_port) = self.socket_ports.get(port) else { return BTreeMap::new() };
        let mut view = socket_port.counters.view();
        view.insert("connections".into(), socket_port.connections as u64);
        view.insert("host_connections".into(), socket_port.host_connections as u64);
        view
    }

    fn trace(
        &self,
        ports: &Ports,
        rules: &Rules,
        query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        crate::trace::connect((&self.directory, &self.peers), ports, rules, query)
    }
}
