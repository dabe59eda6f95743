//! Delivery into a guest's receive buffers: the last step of a packet on its way.
//!
//! [`crate::transmit`] calls [`fill`] for data that fits at once; the shard and the end of a batch
//! call [`Socket::deliver`] for queued packets of a port. Bytes come from the sender's descriptors,
//! from a staged copy, or (by [`crate::host`]) from a process. After the call the shard publishes
//! the buffers and notifies the guest.
//!
//! A port's connections are served in rotation, at most [`TURN_BUFFERS`] (16) buffers each; resets
//! go first. Within a connection the order is: request or answer, data, credit, shutdown. Small
//! data of one stream shares a buffer until the batch (the packets of one call of the shard) ends;
//! messages do not share. If the receiver has no buffer or its kernel's queue is full, the packet
//! stays queued ([`crate::stall`] bounds the time if a sender stands still for it). A buffer
//! without room for a header and one byte, or a buffer that is not granted, closes the receiver's
//! port; data in memory that the sender did not grant closes the sender's port. The module does not
//! check credit: the sender's side did.
//!
//! # Budget
//! A data packet costs one copy from the sender's descriptors, and a header of 44 bytes per receive
//! buffer. Data of a guest is not staged (copied aside) while the receiver has room. The shard
//! publishes the buffers once per batch.

use causeway_fabric::{Context, Port, PortId, Progress, cost};
use causeway_memory::{Cursor, Map, OutOfGrant, copy};
use causeway_ring::RingError;
use causeway_wire::pcapng::Direction;
use causeway_wire::vsock::{HEADER_LEN, Header, Op, Type};

use crate::capture;
use crate::conn::{Party, PendingData, Phase, Role, Signals};
use crate::counters::bump;
use crate::limits::{RESETS_WAITING_MAX, TURN_BUFFERS};
use crate::pack::Pack;
use crate::service::{RX, Socket, TX};
use crate::socket_port::SocketPort;
use crate::table::{ConnId, ConnTable};

/// A fault of the receiver's own ring or memory.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum RxFault {
    /// The receive ring is broken: the port closes.
    #[error("receive queue: {0}")]
    Ring(#[from] RingError),
    /// A receive buffer of this many bytes has no room for a header and data.
    #[error("a receive buffer of {0} bytes has no room for a header and data")]
    Small(u64),
    /// A receive buffer lies outside of granted memory.
    #[error("a receive buffer is not granted: {0}")]
    Memory(#[from] OutOfGrant),
}

/// A failed copy, by the port at fault.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CopyFault {
    /// The receiver is at fault.
    Receiver(RxFault),
    /// The sender is at fault: its data lies outside of granted memory.
    Sender(OutOfGrant),
}

impl From<RxFault> for CopyFault {
    fn from(fault: RxFault) -> Self {
        Self::Receiver(fault)
    }
}

/// Origin of data.
pub(crate) enum DataSource<'a, 'b> {
    /// Descriptors of a guest: its map, and the position of the next byte.
    Guest(&'a Map, &'a mut Cursor<'b>),
    /// Staged bytes, or bytes of a process.
    Bytes(&'a [u8]),
}

/// Length of a packet's header.
const HEADER_BYTES: u64 = HEADER_LEN as u64;

/// Pops the next receive buffer of the guest into `socket_port.filling`; returns false if the ring
/// is empty.
pub(crate) fn pop_buffer(port: &mut Port, socket_port: &mut SocketPort) -> Result<bool, RxFault> {
    let Some((map, ring)) = port.queue(RX) else { return Ok(false) };
    if !ring.pop(map, &mut socket_port.filling.chain)? {
        return Ok(false);
    }
    let room = socket_port.filling.chain.writable_bytes();
    if room <= HEADER_BYTES { Err(RxFault::Small(room)) } else { Ok(true) }
}

/// Completes the receive buffer that is being filled, if there is one: writes its header and pushes
/// its used entry. A buffer of a connection that has ended goes back to the ring unused.
pub(crate) fn close_buffer(
    table: &mut ConnTable,
    port: &mut Port,
    socket_port: &mut SocketPort,
    flags: u32,
) -> Result<(), RxFault> {
    let Some((id, role)) = socket_port.filling.of.take() else { return Ok(()) };
    let Some((map, ring)) = port.queue(RX) else { return Ok(()) };
    let head = socket_port.filling.chain.head();
    let Some(conn) = table.get_mut(id) else {
        ring.put_back(head);
        return Ok(());
    };
    let written = socket_port.filling.written;
    let header = conn.header(role, Op::Data, written, flags);
    let shown = socket_port.guest_cid.translate(header).emit();
    socket_port.filling.chain.writer().write(map, &shown)?;
    if !socket_port.captures.is_empty() {
        let data = capture::data_of(socket_port.filling.chain.writable());
        socket_port.captures.add(Direction::Out, &header, (map, data), written);
    }
    ring.push(head, written.saturating_add(HEADER_LEN as u32))?;
    conn.side_mut(role).unread.add(written);
    socket_port.count_data(written);
    Ok(())
}

/// Puts a packet without data in its own buffer; returns false if no buffer is left.
pub(crate) fn put_control(
    table: &mut ConnTable,
    port: &mut Port,
    socket_port: &mut SocketPort,
    header: &Header,
) -> Result<bool, RxFault> {
    close_buffer(table, port, socket_port, 0)?;
    if !pop_buffer(port, socket_port)? {
        return Ok(false);
    }
    let Some((map, ring)) = port.queue(RX) else { return Ok(false) };
    let shown = socket_port.guest_cid.translate(*header).emit();
    socket_port.filling.chain.writer().write(map, &shown)?;
    if !socket_port.captures.is_empty() {
        socket_port.captures.add_control(Direction::Out, header, map);
    }
    ring.push(socket_port.filling.chain.head(), HEADER_LEN as u32)?;
    bump(&mut socket_port.counters.receive_packets);
    Ok(true)
}

/// Copies at most `left` bytes of `source` into receive buffers for side `to.1` of connection
/// `to.0`. Takes at most `buffers` new buffers, and subtracts them from `buffers`. Returns the
/// number of bytes, less than `left` if the buffers are used up.
///
/// Data of a stream is appended to the buffer that the same stream is filling. The last buffer
/// stays open for more data; the end of the batch closes it.
pub(crate) fn fill(
    table: &mut ConnTable,
    port: &mut Port,
    socket_port: &mut SocketPort,
    to: (ConnId, Role),
    mut source: DataSource<'_, '_>,
    left: u32,
    buffers: &mut usize,
) -> Result<u32, CopyFault> {
    let mut moved = 0_u32;
    while moved < left {
        let mut room = room_for(socket_port, to);
        if room == 0 {
            close_buffer(table, port, socket_port, 0)?;
            if *buffers == 0 || !pop_buffer(port, socket_port)? {
                break;
            }
            *buffers = buffers.saturating_sub(1);
            socket_port.filling.of = Some(to);
            socket_port.filling.written = 0;
            room = room_for(socket_port, to);
        }
        let now = room.min(left.saturating_sub(moved));
        let at = HEADER_BYTES.saturating_add(u64::from(socket_port.filling.written));
        let mut writer = Cursor::at(socket_port.filling.chain.writable(), at);
        let Some(map) = port.map() else { break };
        match &mut source {
            DataSource::Guest(from, cursor) => {
                copy::copy((from, cursor), (map, &mut writer), u64::from(now)).map_err(
                    |e| match e {
                        copy::CopyError::Source(gap) => CopyFault::Sender(gap),
                        copy::CopyError::Destination(gap) => {
                            CopyFault::Receiver(RxFault::Memory(gap))
                        }
                    },
                )?;
            }
            DataSource::Bytes(bytes) => {
                let (head, tail) = bytes.split_at_checked(now as usize).unwrap_or((bytes, &[]));
                writer.write(map, head).map_err(RxFault::Memory)?;
                *bytes = tail;
            }
        }
        socket_port.filling.written = socket_port.filling.written.saturating_add(now);
        moved = moved.saturating_add(now);
    }
    Ok(moved)
}

/// Returns the bytes left in the buffer being filled, if it belongs to this connection.
fn room_for(socket_port: &SocketPort, to: (ConnId, Role)) -> u32 {
    if socket_port.filling.of != Some(to) {
        return 0;
    }
    let used = HEADER_BYTES.saturating_add(u64::from(socket_port.filling.written));
    let room = socket_port.filling.chain.writable_bytes().saturating_sub(used);
    u32::try_from(room).unwrap_or(u32::MAX)
}

/// Result of serving a connection in the rotation of its port.
enum ConnTurn {
    /// No delivery is left.
    Done,
    /// Deliveries are left, but other connections are served first.
    More,
    /// No receive buffer is left.
    Starved,
    /// The guest must consume packets first.
    HeldBack,
}

impl Socket {
    /// Delivers queued packets to a guest, as far as it has buffers.
    pub(crate) fn deliver(&mut self, cx: &mut Context<'_>, to: PortId) -> Progress {
        match self.deliver_all(cx, to) {
            Ok(()) => {}
            Err(CopyFault::Receiver(fault)) => {
                cx.fault(to, fault);
                return Progress::Parked;
            }
            // `deliver_pending` reported it.
            Err(CopyFault::Sender(_)) => {}
        }
        self.resume_after_resets(cx, to);
        cx.touch(to, RX);
        let is_pending = self.socket_ports.get(to).is_some_and(SocketPort::has_pending);
        let polled = cx.polls(to, RX);
        let Some((_, ring)) = cx.ports.get_mut(to).and_then(|p| p.queue(RX)) else {
            return Progress::Parked;
        };
        let armed = match (is_pending, polled) {
            (true, false) => ring.arm(),
            (true, true) => ring.available().map(|count| count > 0),
            (false, _) => ring.disarm().map(|()| false),
        };
        match armed {
            Ok(true) => Progress::Worked,
            Ok(false) if is_pending && polled => Progress::Idle,
            Ok(false) => Progress::Parked,
            Err(error) => {
                cx.fault(to, format_args!("receive queue: {error}"));
                Progress::Parked
            }
        }
    }

    /// Delivers resets, then each ready connection once, until the buffers or the time of the turn
    /// are used.
    fn deliver_all(&mut self, cx: &mut Context<'_>, to: PortId) -> Result<(), CopyFault> {
        if let Some(socket_port) = self.socket_ports.get_mut(to) {
            socket_port.is_starved = false;
        }
        loop {
            let Some((port, socket_port)) = self.socket_ports.with_port(cx, to) else {
                return Ok(());
            };
            let Some(reset) = socket_port.resets.front().copied() else { break };
            if !put_control(&mut self.table, port, socket_port, &reset.header)? {
                socket_port.is_starved = true;
                return Ok(());
            }
            if socket_port.pop_pushed_reset() {
                self.batch.note_unpublished_reset(to);
            }
        }
        let turns = self.socket_ports.get(to).map_or(0, |s| s.ready.len());
        for nth in 0..turns {
            if nth > 0 && cx.is_over() {
                break;
            }
            let next = self.socket_ports.get_mut(to).and_then(|s| s.ready.pop_front());
            let Some((id, role)) = next else { break };
            let turn = self.deliver_conn(cx, to, id, role)?;
            let Some(socket_port) = self.socket_ports.get_mut(to) else { break };
            match turn {
                ConnTurn::Done => {
                    if let Some(conn) = self.table.get_mut(id) {
                        conn.side_mut(role).is_queued = false;
                    }
                }
                ConnTurn::More => socket_port.ready.push_back((id, role)),
                ConnTurn::HeldBack => self.hold_back(cx, id, role),
                ConnTurn::Starved => {
                    socket_port.ready.push_front((id, role));
                    socket_port.is_starved = true;
                    break;
                }
            }
        }
        let Some((port, socket_port)) = self.socket_ports.with_port(cx, to) else { return Ok(()) };
        close_buffer(&mut self.table, port, socket_port, 0)?;
        Ok(())
    }

    /// Serves a connection: the request or its answer, data, credit, the shutdown, in this order.
    fn deliver_conn(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        id: ConnId,
        role: Role,
    ) -> Result<ConnTurn, CopyFault> {
        if self.table.get(id).is_none_or(|c| c.side(role).is_gone) {
            return Ok(ConnTurn::Done);
        }
        for (signal, op) in [(Signals::REQUEST, Op::Request), (Signals::RESPONSE, Op::Response)] {
            if !self.deliver_signal(cx, to, id, role, signal, op, 0)? {
                return Ok(ConnTurn::Starved);
            }
        }
        cx.charge(cost::CHAIN_NS);
        let room = self.room_packets(to, id, role);
        let mut buffers = TURN_BUFFERS.min(room);
        let mut all = true;
        while all && let Some(pending) = self.next_pending(id, role) {
            all = self.deliver_pending(cx, to, (id, role), pending, &mut buffers)?;
            if all && cx.is_over() {
                return Ok(ConnTurn::More);
            }
        }
        let all = all && self.receive_from_host(cx, to, id, role, &mut buffers)? != Some(true);
        if !all && cx.is_over() {
            return Ok(ConnTurn::More);
        }
        let is_held_back = !all && buffers == 0 && room <= TURN_BUFFERS;
        if let Some(conn) = self.table.get_mut(id) {
            let side = conn.side_mut(role);
            side.is_held_back = is_held_back;
            side.request_credit_early();
            if side.is_capped && side.awaits_credit() {
                self.schedule_credit_request(cx.now_ns, id, role);
            }
        }
        if !all && !is_held_back {
            return Ok(if buffers == 0 { ConnTurn::More } else { ConnTurn::Starved });
        }
        for (signal, op) in [
            (Signals::CREDIT_UPDATE, Op::CreditUpdate),
            (Signals::CREDIT_REQUEST, Op::CreditRequest),
            (Signals::SHUTDOWN, Op::Shutdown),
        ] {
            if is_held_back && signal == Signals::SHUTDOWN {
                // The shutdown follows the data.
                return Ok(ConnTurn::HeldBack);
            }
            let shut = self.table.get(id).map_or(0, |c| c.side(role.other()).shut);
            let flags = if op == Op::Shutdown { shut } else { 0 };
            if !self.deliver_signal(cx, to, id, role, signal, op, flags)? {
                return Ok(ConnTurn::Starved);
            }
        }
        Ok(ConnTurn::Done)
    }

    /// Delivers signal `signal` as a packet of operation `op`, if it is set; returns false if no
    /// buffer is left.
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    fn deliver_signal(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        id: ConnId,
        role: Role,
        signal: Signals,
        op: Op,
        flags: u32,
    ) -> Result<bool, RxFault> {
        let Some(conn) = self.table.get(id) else { return Ok(true) };
        if !conn.side(role).signals.contains(signal) {
            return Ok(true);
        }
        let header = conn.header(role, op, 0, flags);
        let Some((port, socket_port)) = self.socket_ports.with_port(cx, to) else {
            return Ok(true);
        };
        if !put_control(&mut self.table, port, socket_port, &header)? {
            return Ok(false);
        }
        if let Some(conn) = self.table.get_mut(id) {
            let side = conn.side_mut(role);
            side.signals.remove(signal);
            side.is_request_delivered |= signal == Signals::REQUEST;
        }
        Ok(true)
    }

    /// Removes the first queued data of an open connection.
    fn next_pending(&mut self, id: ConnId, role: Role) -> Option<PendingData> {
        let conn = self.table.get_mut(id).filter(|c| c.phase == Phase::Open)?;
        conn.side_mut(role).pending.pop_front()
    }

    /// Delivers queued data; returns false if a part of it stays queued.
    pub(crate) fn deliver_pending(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        target: (ConnId, Role),
        pending: PendingData,
        buffers: &mut usize,
    ) -> Result<bool, CopyFault> {
        let (id, role) = target;
        let kind = self.table.get(id).map_or(Type::Stream, |c| c.kind);
        let Some(socket_port) = self.socket_ports.get_mut(to) else { return Ok(true) };
        let table = &mut self.table;
        let (outcome, pending) = match pending {
            PendingData::Held { from, chain, at, left, flags } => {
                let Some((source, port)) = cx.ports.pair(from, to) else { return Ok(true) };
                let Some(map) = source.map() else { return Ok(true) };
                let mut cursor = Cursor::at(chain.readable(), at);
                let data = DataSource::Guest(map, &mut cursor);
                let moved = fill(table, port, socket_port, target, data, left, buffers);
                let done = moved.as_ref().copied().unwrap_or(0);
                let end = end_message(
                    table,
                    port,
                    socket_port,
                    target,
                    kind,
                    done == left,
                    flags,
                    buffers,
                );
                let (at, left) = (at.saturating_add(u64::from(done)), left.saturating_sub(done));
                let outcome = moved.and_then(|n| Ok((n, end?)));
                (outcome, PendingData::Held { from, chain, at, left, flags })
            }
            PendingData::Staged(mut pack) => {
                let Some(port) = cx.ports.get_mut(to) else { return Ok(true) };
                let outcome =
                    fill_from_pack(table, port, socket_port, target, kind, &mut pack, buffers);
                (outcome, PendingData::Staged(pack))
            }
        };
        let (moved, ended) = match outcome {
            Ok(done) => done,
            Err(CopyFault::Sender(gap)) => {
                cx.fault(pending.from(), format_args!("transmit data is not granted: {gap}"));
                (0, true)
            }
            Err(blame) => {
                // The receiver's port closes, which returns the sender's descriptors.
                if let Some(conn) = self.table.get_mut(id) {
                    conn.side_mut(role).pending.push_front(pending);
                }
                return Err(blame);
            }
        };
        cx.charge(cost::CHAIN_NS.saturating_add(cost::bytes(moved as usize)));
        if let Some(conn) = self.table.get_mut(id) {
            let side = conn.side_mut(role);
            side.credit.deliver(moved);
            // The header of the data carries the credit.
            side.signals.remove(Signals::CREDIT_UPDATE);
            if !ended {
                side.pending.push_front(pending);
                return Ok(false);
            }
        }
        self.release(cx, Some(to), pending);
        Ok(true)
    }

    /// Closes the buffers that are being filled: the end of a batch.
    pub(crate) fn close_filling(&mut self, cx: &mut Context<'_>) {
        let mut open = self.batch.take_filling();
        for to in open.drain(..) {
            let Some((port, socket_port)) = self.socket_ports.with_port(cx, to) else { continue };
            if let Err(fault) = close_buffer(&mut self.table, port, socket_port, 0) {
                cx.fault(to, fault);
            }
            cx.touch(to, RX);
        }
        // Keeps its capacity for the next batch.
        self.batch.put_filling(open);
    }

    /// Clears the ledger entries of resets that are now in a published receive ring, where they
    /// survive this process.
    pub(crate) fn clear_published_resets(&mut self, cx: &mut Context<'_>) {
        let Self { batch, socket_ports, .. } = self;
        batch.retain_unpublished_resets(|to| {
            let Some((port, socket_port)) = socket_ports.with_port(cx, *to) else { return false };
            // Stopping a queue has published it.
            let waits = port.queue(RX).is_some_and(|(_, ring)| !ring.is_published());
            if !waits {
                socket_port.clear_published_resets();
            }
            waits
        });
    }

    /// Resumes a guest's transmit ring once the guest has received its resets.
    fn resume_after_resets(&mut self, cx: &mut Context<'_>, id: PortId) {
        if let Some(socket_port) = self.socket_ports.get_mut(id)
            && socket_port.is_stopped_by_resets
            && socket_port.resets.len() < RESETS_WAITING_MAX / 2
        {
            socket_port.is_stopped_by_resets = false;
            cx.wake(id, TX);
        }
    }

    /// Returns whether side `role` is a guest that can receive data at once.
    pub(crate) fn can_deliver_now(&self, id: ConnId, role: Role) -> bool {
        self.table.get(id).is_some_and(|conn| {
            let side = conn.side(role);
            let waits = side.signals.intersects(Signals::REQUEST | Signals::RESPONSE);
            let direct = matches!(side.party, Party::Guest(_)) && side.pending.is_empty();
            direct && !waits && side.room_packets() > 0
        })
    }

    /// Returns the number of packets that side `role`, the guest at `to`, accepts before it must
    /// consume some.
    pub(crate) fn room_packets(&self, to: PortId, id: ConnId, role: Role) -> usize {
        let room = self.table.get(id).map_or(0, |conn| conn.side(role).room_packets());
        // The buffer being filled is a packet that is not counted yet.
        let filling = self
            .socket_ports
            .get(to)
            .is_some_and(|socket_port| socket_port.filling.of == Some((id, role)));
        room.saturating_sub(usize::from(filling))
    }
}

/// Copies pieces of a pack into receive buffers. Returns the number of bytes, and whether the pack
/// is done.
fn fill_from_pack(
    table: &mut ConnTable,
    port: &mut Port,
    socket_port: &mut SocketPort,
    to: (ConnId, Role),
    kind: Type,
    pack: &mut Pack,
    buffers: &mut usize,
) -> Result<(u32, bool), CopyFault> {
    let mut moved = 0_u32;
    while let Some((rest, flags)) = pack.first() {
        let left = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let done = fill(table, port, socket_port, to, DataSource::Bytes(rest), left, buffers)?;
        moved = moved.saturating_add(done);
        pack.advance(done as usize);
        if !end_message(table, port, socket_port, to, kind, done == left, flags, buffers)? {
            return Ok((moved, false));
        }
        if pack.drop_first() {
            break;
        }
    }
    Ok((moved, true))
}

/// Ends a packet (`all`: its bytes are delivered): returns whether it is wholly delivered, and
/// marks the end of a message (SEQPACKET).
#[expect(clippy::too_many_arguments, reason = "the ends of one packet, each value another kind")]
pub(crate) fn end_message(
    table: &mut ConnTable,
    port: &mut Port,
    socket_port: &mut SocketPort,
    to: (ConnId, Role),
    kind: Type,
    all: bool,
    flags: u32,
    buffers: &mut usize,
) -> Result<bool, CopyFault> {
    if !all || kind == Type::Stream {
        return Ok(all);
    }
    if socket_port.filling.of != Some(to) {
        // An empty message still has an end to mark.
        close_buffer(table, port, socket_port, 0)?;
        if *buffers == 0 || !pop_buffer(port, socket_port)? {
            return Ok(false);
        }
        *buffers = buffers.saturating_sub(1);
        socket_port.filling.of = Some(to);
        socket_port.filling.written = 0;
    }
    close_buffer(table, port, socket_port, flags)?;
    Ok(true)
}
