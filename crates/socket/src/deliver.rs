//! Delivery into a guest's receive buffers: the last step of a packet's way.
//!
//! # Budget
//! A data packet costs one copy from the sender's descriptors, and a header of 44 bytes per receive
//! buffer. Data is not staged while the receiver has room. The dispatcher publishes the buffers
//! once per batch.

use causeway_fabric::{Context, Port, PortId, Progress, cost};
use causeway_memory::{Cursor, Map, OutOfGrant, copy};
use causeway_ring::RingError;
use causeway_wire::vsock::{HEADER_LEN, Header, Op, Type};

use crate::conn::{Party, Pending, Phase, Signals, Which};
use crate::counters::bump;
use crate::limits::{RESETS_WAITING_MAX, TURN_BUFFERS};
use crate::pack::Pack;
use crate::seat::Seat;
use crate::service::{RX, Socket, TX};
use crate::table::{ConnId, Table};

/// A fault of the receiver's own ring or memory.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum RxFault {
    #[error("receive queue: {0}")]
    Ring(#[from] RingError),
    #[error("a receive buffer of {0} bytes has no room for a header and data")]
    Small(u64),
    #[error("a receive buffer is not granted: {0}")]
    Memory(#[from] OutOfGrant),
}

/// A failed copy, by the port at fault.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Blame {
    Receiver(RxFault),
    Sender(OutOfGrant),
}

impl From<RxFault> for Blame {
    fn from(fault: RxFault) -> Self {
        Self::Receiver(fault)
    }
}

/// Origin of data.
pub(crate) enum Source<'a, 'b> {
    Guest(&'a Map, &'a mut Cursor<'b>),
    Bytes(&'a [u8]),
}

const HEADER_BYTES: u64 = HEADER_LEN as u64;

/// Pops the next receive buffer; returns false if the ring is empty.
pub(crate) fn take(port: &mut Port, seat: &mut Seat) -> Result<bool, RxFault> {
    let Some((map, ring)) = port.queue(RX) else { return Ok(false) };
    if !ring.pop(map, &mut seat.filling.chain)? {
        return Ok(false);
    }
    let room = seat.filling.chain.writable_bytes();
    if room <= HEADER_BYTES { Err(RxFault::Small(room)) } else { Ok(true) }
}

/// Completes the buffer being filled: writes its header and pushes its used entry.
pub(crate) fn close(
    table: &mut Table,
    port: &mut Port,
    seat: &mut Seat,
    flags: u32,
) -> Result<(), RxFault> {
    let Some((id, which)) = seat.filling.of.take() else { return Ok(()) };
    let Some((map, ring)) = port.queue(RX) else { return Ok(()) };
    let head = seat.filling.chain.head();
    let Some(conn) = table.get_mut(id) else {
        ring.put_back(head);
        return Ok(());
    };
    let written = seat.filling.written;
    let header = conn.header(which, Op::Data, written, flags).emit();
    seat.filling.chain.writer().write(map, &header)?;
    ring.push(head, written.saturating_add(HEADER_LEN as u32))?;
    conn.side_mut(which).unread.add(written);
    seat.got_data(written);
    Ok(())
}

/// Puts a packet without data in its own buffer; returns false if no buffer is left.
pub(crate) fn put(
    table: &mut Table,
    port: &mut Port,
    seat: &mut Seat,
    header: &Header,
) -> Result<bool, RxFault> {
    close(table, port, seat, 0)?;
    if !take(port, seat)? {
        return Ok(false);
    }
    let Some((map, ring)) = port.queue(RX) else { return Ok(false) };
    seat.filling.chain.writer().write(map, &header.emit())?;
    ring.push(seat.filling.chain.head(), HEADER_LEN as u32)?;
    bump(&mut seat.counters.receive_packets);
    Ok(true)
}

/// Copies data into receive buffers, of which at most `buffers` are new. Returns the number of
/// bytes.
///
/// Data of a stream is appended to the buffer that the same stream is filling. The last buffer
/// stays open for more data; the end of the batch closes it.
pub(crate) fn fill(
    table: &mut Table,
    port: &mut Port,
    seat: &mut Seat,
    to: (ConnId, Which),
    mut source: Source<'_, '_>,
    left: u32,
    buffers: &mut usize,
) -> Result<u32, Blame> {
    let mut moved = 0_u32;
    while moved < left {
        let mut room = room_for(seat, to);
        if room == 0 {
            close(table, port, seat, 0)?;
            if *buffers == 0 || !take(port, seat)? {
                break;
            }
            *buffers = buffers.saturating_sub(1);
            seat.filling.of = Some(to);
            seat.filling.written = 0;
            room = room_for(seat, to);
        }
        let now = room.min(left.saturating_sub(moved));
        let at = HEADER_BYTES.saturating_add(u64::from(seat.filling.written));
        let mut writer = Cursor::at(seat.filling.chain.writable(), at);
        let Some(map) = port.map() else { break };
        match &mut source {
            Source::Guest(from, cursor) => {
                copy::copy((from, cursor), (map, &mut writer), u64::from(now)).map_err(
                    |e| match e {
                        copy::CopyError::Source(gap) => Blame::Sender(gap),
                        copy::CopyError::Destination(gap) => Blame::Receiver(RxFault::Memory(gap)),
                    },
                )?;
            }
            Source::Bytes(bytes) => {
                let (head, tail) = bytes.split_at_checked(now as usize).unwrap_or((bytes, &[]));
                writer.write(map, head).map_err(RxFault::Memory)?;
                *bytes = tail;
            }
        }
        seat.filling.written = seat.filling.written.saturating_add(now);
        moved = moved.saturating_add(now);
    }
    Ok(moved)
}

/// Returns the bytes left in the buffer being filled, if it belongs to this connection.
fn room_for(seat: &Seat, to: (ConnId, Which)) -> u32 {
    if seat.filling.of != Some(to) {
        return 0;
    }
    let used = HEADER_BYTES.saturating_add(u64::from(seat.filling.written));
    let room = seat.filling.chain.writable_bytes().saturating_sub(used);
    u32::try_from(room).unwrap_or(u32::MAX)
}

/// Result of a connection's turn.
enum Turn {
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
            Err(Blame::Receiver(fault)) => {
                cx.fault(to, fault);
                return Progress::Parked;
            }
            // `deliver_pending` reported it.
            Err(Blame::Sender(_)) => {}
        }
        self.unchoke(cx, to);
        cx.touch(to, RX);
        let backlog = self.seats.get(to).is_some_and(Seat::has_backlog);
        let polled = cx.polls(to, RX);
        let Some((_, ring)) = cx.ports.get_mut(to).and_then(|p| p.queue(RX)) else {
            return Progress::Parked;
        };
        let armed = match (backlog, polled) {
            (true, false) => ring.arm(),
            (true, true) => ring.available().map(|count| count > 0),
            (false, _) => ring.disarm().map(|()| false),
        };
        match armed {
            Ok(true) => Progress::Worked,
            Ok(false) if backlog && polled => Progress::Idle,
            Ok(false) => Progress::Parked,
            Err(error) => {
                cx.fault(to, format_args!("receive queue: {error}"));
                Progress::Parked
            }
        }
    }

    fn deliver_all(&mut self, cx: &mut Context<'_>, to: PortId) -> Result<(), Blame> {
        if let Some(seat) = self.seats.get_mut(to) {
            seat.starved = false;
        }
        loop {
            let Some((port, seat)) = self.seats.with_port(cx, to) else { return Ok(()) };
            let Some(reset) = seat.resets.front().copied() else { break };
            if !put(&mut self.table, port, seat, &reset.header)? {
                seat.starved = true;
                return Ok(());
            }
            if seat.reset_given() && !self.told.contains(&to) {
                self.told.push(to);
            }
        }
        let turns = self.seats.get(to).map_or(0, |s| s.ready.len());
        for nth in 0..turns {
            if nth > 0 && cx.is_over() {
                break;
            }
            let next = self.seats.get_mut(to).and_then(|s| s.ready.pop_front());
            let Some((id, which)) = next else { break };
            let turn = self.deliver_conn(cx, to, id, which)?;
            let Some(seat) = self.seats.get_mut(to) else { break };
            match turn {
                Turn::Done => {
                    if let Some(conn) = self.table.get_mut(id) {
                        conn.side_mut(which).queued = false;
                    }
                }
                Turn::More => seat.ready.push_back((id, which)),
                Turn::HeldBack => self.hold_back(cx, id, which),
                Turn::Starved => {
                    seat.ready.push_front((id, which));
                    seat.starved = true;
                    break;
                }
            }
        }
        let Some((port, seat)) = self.seats.with_port(cx, to) else { return Ok(()) };
        close(&mut self.table, port, seat, 0)?;
        Ok(())
    }

    /// Serves a connection: the answer to a connect, data, credit, the shutdown, in this order.
    fn deliver_conn(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        id: ConnId,
        which: Which,
    ) -> Result<Turn, Blame> {
        if self.table.get(id).is_none_or(|c| c.side(which).gone) {
            return Ok(Turn::Done);
        }
        for (signal, op) in [(Signals::REQUEST, Op::Request), (Signals::RESPONSE, Op::Response)] {
            if !self.deliver_signal(cx, to, id, which, signal, op, 0)? {
                return Ok(Turn::Starved);
            }
        }
        cx.charge(cost::CHAIN_NS);
        let room = self.room_packets(to, id, which);
        let mut buffers = TURN_BUFFERS.min(room);
        let mut all = true;
        while all && let Some(pending) = self.next_pending(id, which) {
            all = self.deliver_pending(cx, to, (id, which), pending, &mut buffers)?;
            if all && cx.is_over() {
                return Ok(Turn::More);
            }
        }
        let all = all && self.pump(cx, to, id, which, &mut buffers)? != Some(true);
        if !all && cx.is_over() {
            return Ok(Turn::More);
        }
        let held_back = !all && buffers == 0 && room <= TURN_BUFFERS;
        if let Some(conn) = self.table.get_mut(id) {
            let side = conn.side_mut(which);
            side.held_back = held_back;
            side.ask_early();
        }
        if !all && !held_back {
            return Ok(if buffers == 0 { Turn::More } else { Turn::Starved });
        }
        for (signal, op) in [
            (Signals::CREDIT_UPDATE, Op::CreditUpdate),
            (Signals::CREDIT_REQUEST, Op::CreditRequest),
            (Signals::SHUTDOWN, Op::Shutdown),
        ] {
            if held_back && signal == Signals::SHUTDOWN {
                // The shutdown follows the data.
                return Ok(Turn::HeldBack);
            }
            let shut = self.table.get(id).map_or(0, |c| c.side(which.other()).shut);
            let flags = if op == Op::Shutdown { shut } else { 0 };
            if !self.deliver_signal(cx, to, id, which, signal, op, flags)? {
                return Ok(Turn::Starved);
            }
        }
        Ok(Turn::Done)
    }

    /// Delivers a signal if it is set; returns false if no buffer is left.
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    fn deliver_signal(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        id: ConnId,
        which: Which,
        signal: Signals,
        op: Op,
        flags: u32,
    ) -> Result<bool, RxFault> {
        let Some(conn) = self.table.get(id) else { return Ok(true) };
        if !conn.side(which).signals.contains(signal) {
            return Ok(true);
        }
        let header = conn.header(which, op, 0, flags);
        let Some((port, seat)) = self.seats.with_port(cx, to) else { return Ok(true) };
        if !put(&mut self.table, port, seat, &header)? {
            return Ok(false);
        }
        if let Some(conn) = self.table.get_mut(id) {
            let side = conn.side_mut(which);
            side.signals.remove(signal);
            side.met |= signal == Signals::REQUEST;
        }
        Ok(true)
    }

    fn next_pending(&mut self, id: ConnId, which: Which) -> Option<Pending> {
        let conn = self.table.get_mut(id).filter(|c| c.phase == Phase::Open)?;
        conn.side_mut(which).pending.pop_front()
    }

    /// Delivers queued data; returns false if a part of it stays queued.
    pub(crate) fn deliver_pending(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        target: (ConnId, Which),
        pending: Pending,
        buffers: &mut usize,
    ) -> Result<bool, Blame> {
        let (id, which) = target;
        let kind = self.table.get(id).map_or(Type::Stream, |c| c.kind);
        let Some(seat) = self.seats.get_mut(to) else { return Ok(true) };
        let table = &mut self.table;
        let (outcome, pending) = match pending {
            Pending::Held { from, chain, at, left, flags } => {
                let Some((source, port)) = cx.ports.pair(from, to) else { return Ok(true) };
                let Some(map) = source.map() else { return Ok(true) };
                let mut cursor = Cursor::at(chain.readable(), at);
                let data = Source::Guest(map, &mut cursor);
                let moved = fill(table, port, seat, target, data, left, buffers);
                let done = moved.as_ref().copied().unwrap_or(0);
                let end =
                    end_message(table, port, seat, target, kind, done == left, flags, buffers);
                let (at, left) = (at.saturating_add(u64::from(done)), left.saturating_sub(done));
                let outcome = moved.and_then(|n| Ok((n, end?)));
                (outcome, Pending::Held { from, chain, at, left, flags })
            }
            Pending::Staged(mut pack) => {
                let Some(port) = cx.ports.get_mut(to) else { return Ok(true) };
                let outcome = fill_of(table, port, seat, target, kind, &mut pack, buffers);
                (outcome, Pending::Staged(pack))
            }
        };
        let (moved, ended) = match outcome {
            Ok(done) => done,
            Err(Blame::Sender(gap)) => {
                cx.fault(pending.from(), format_args!("transmit data is not granted: {gap}"));
                (0, true)
            }
            Err(blame) => {
                // The receiver's port closes, which returns the sender's descriptors.
                if let Some(conn) = self.table.get_mut(id) {
                    conn.side_mut(which).pending.push_front(pending);
                }
                return Err(blame);
            }
        };
        cx.charge(cost::CHAIN_NS.saturating_add(cost::bytes(moved as usize)));
        if let Some(conn) = self.table.get_mut(id) {
            let side = conn.side_mut(which);
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
    pub(crate) fn close_open(&mut self, cx: &mut Context<'_>) {
        let mut open = std::mem::take(&mut self.open);
        for to in open.drain(..) {
            let Some((port, seat)) = self.seats.with_port(cx, to) else { continue };
            if let Err(fault) = close(&mut self.table, port, seat, 0) {
                cx.fault(to, fault);
            }
            cx.touch(to, RX);
        }
        // Keeps its capacity for the next batch.
        self.open = open;
    }

    /// Clears the ledger entries of resets whose receive ring is published.
    pub(crate) fn settle_told(&mut self, cx: &mut Context<'_>) {
        let Self { told, seats, .. } = self;
        told.retain(|to| {
            let Some((port, seat)) = seats.with_port(cx, *to) else { return false };
            // Stopping a queue has published it.
            let waits = port.queue(RX).is_some_and(|(_, ring)| !ring.is_published());
            if !waits {
                seat.resets_known();
            }
            waits
        });
    }

    /// Resumes a guest's transmit ring once the guest has received its resets.
    fn unchoke(&mut self, cx: &mut Context<'_>, id: PortId) {
        if let Some(seat) = self.seats.get_mut(id)
            && seat.choked
            && seat.resets.len() < RESETS_WAITING_MAX / 2
        {
            seat.choked = false;
            cx.wake(id, TX);
        }
    }

    /// Returns whether side `which` is a guest that can receive data at once.
    pub(crate) fn takes_now(&self, id: ConnId, which: Which) -> bool {
        self.table.get(id).is_some_and(|conn| {
            let side = conn.side(which);
            let waits = side.signals.intersects(Signals::REQUEST | Signals::RESPONSE);
            let direct = matches!(side.party, Party::Guest(_)) && side.pending.is_empty();
            direct && !waits && side.room_packets() > 0
        })
    }

    /// Returns the number of packets that side `which`, the guest at `to`, accepts before it must
    /// consume some.
    pub(crate) fn room_packets(&self, to: PortId, id: ConnId, which: Which) -> usize {
        let room = self.table.get(id).map_or(0, |conn| conn.side(which).room_packets());
        // The buffer being filled is a packet that is not counted yet.
        let filling = self.seats.get(to).is_some_and(|seat| seat.filling.of == Some((id, which)));
        room.saturating_sub(usize::from(filling))
    }
}

/// Copies pieces of a pack into receive buffers. Returns the number of bytes, and whether the pack
/// is done.
fn fill_of(
    table: &mut Table,
    port: &mut Port,
    seat: &mut Seat,
    to: (ConnId, Which),
    kind: Type,
    pack: &mut Pack,
    buffers: &mut usize,
) -> Result<(u32, bool), Blame> {
    let mut moved = 0_u32;
    while let Some((rest, flags)) = pack.first() {
        let left = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let done = fill(table, port, seat, to, Source::Bytes(rest), left, buffers)?;
        moved = moved.saturating_add(done);
        pack.advance(done as usize);
        if !end_message(table, port, seat, to, kind, done == left, flags, buffers)? {
            return Ok((moved, false));
        }
        if pack.drop_first() {
            break;
        }
    }
    Ok((moved, true))
}

/// Ends a packet: returns whether it is wholly delivered, and marks the end of a message.
#[expect(clippy::too_many_arguments, reason = "the ends of one packet, each value another kind")]
pub(crate) fn end_message(
    table: &mut Table,
    port: &mut Port,
    seat: &mut Seat,
    to: (ConnId, Which),
    kind: Type,
    all: bool,
    flags: u32,
    buffers: &mut usize,
) -> Result<bool, Blame> {
    if !all || kind == Type::Stream {
        return Ok(all);
    }
    if seat.filling.of != Some(to) {
        // An empty message still has an end to mark.
        close(table, port, seat, 0)?;
        if *buffers == 0 || !take(port, seat)? {
            return Ok(false);
        }
        *buffers = buffers.saturating_sub(1);
        seat.filling.of = Some(to);
        seat.filling.written = 0;
    }
    close(table, port, seat, flags)?;
    Ok(true)
}
