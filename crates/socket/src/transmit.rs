//! The transmit path: packets of guests are checked, resolved to a connection, and passed to
//! delivery.

use causeway_fabric::{Context, End, PortId, Progress, cost};
use causeway_memory::Cursor;
use causeway_ring::Chain;
use causeway_wire::vsock::{
    HEADER_LEN, Header, Op, SEQ_EOM, SEQ_EOR, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type,
};

use crate::conn::{Conn, Heard, Party, Pending, Side, Signals, Which};
use crate::counters::{add, bump};
use crate::deliver::{Blame, Source, end_message, fill};
use crate::limits::{CONNECTIONS_PER_PORT_MAX, PACKET_BYTES_MAX, RESETS_WAITING_MAX};
use crate::pack::Pack;
use crate::seat::{Reset, Seat};
use crate::service::{CID_HOST, Expiry, Socket, TX, VSOCK_F_SEQPACKET};
use crate::table::{ConnId, Key};

/// Outcome of a transmitted chain.
enum Fate {
    /// The chain is processed: return it.
    Used(Chain),
    /// The data is staged: return the head.
    Copied(u16),
    /// The chain waits for its receiver: keep its descriptors.
    Kept,
}

/// A violation by the sender, which closes its port.
struct TxFault(String);

impl Socket {
    /// Serves the transmit queue of a guest, at most `budget` packets.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        budget: usize,
    ) -> Progress {
        let mut served = 0_usize;
        let progress = loop {
            let is_over = served > 0 && cx.is_over();
            let Some((port, seat)) = self.seats.with_port(cx, from) else { break Progress::Parked };
            if seat.choked || seat.waits.is_stopped() {
                break Progress::Parked;
            }
            if served >= budget || is_over {
                break Progress::Worked;
            }
            let Some((map, ring)) = port.queue(TX) else { break Progress::Parked };
            let mut chain = std::mem::take(&mut seat.scratch);
            match ring.pop(map, &mut chain) {
                Ok(true) => {}
                Ok(false) => {
                    seat.scratch = chain;
                    break if served == 0 { Progress::Idle } else { Progress::Worked };
                }
                Err(error) => {
                    cx.fault(from, format_args!("transmit queue: {error}"));
                    break Progress::Parked;
                }
            }
            served = served.saturating_add(1);
            match self.packet(cx, from, chain) {
                Ok(Fate::Used(chain)) => {
                    self.give_back(cx, from, chain.head());
                    if let Some(seat) = self.seats.get_mut(from) {
                        // Keeps its capacity for the next packet.
                        seat.scratch = chain;
                    }
                }
                Ok(Fate::Copied(head)) => self.give_back(cx, from, head),
                Ok(Fate::Kept) => {}
                Err(TxFault(reason)) => {
                    cx.fault(from, reason);
                    break Progress::Parked;
                }
            }
        };
        if served > 0 {
            cx.touch(from, TX);
        }
        self.close_open(cx);
        self.attend_all(cx);
        progress
    }

    /// Returns a chain to its sender.
    pub(crate) fn give_back(&self, cx: &mut Context<'_>, from: PortId, head: u16) {
        let ring = cx.ports.get_mut(from).and_then(|p| p.queue(TX));
        if let Some((_, ring)) = ring
            && let Err(error) = ring.push(head, 0)
        {
            cx.fault(from, format_args!("transmit queue: {error}"));
        }
    }

    /// Checks and processes a packet.
    fn packet(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
    ) -> Result<Fate, TxFault> {
        let spans = (chain.readable().len() as u64).saturating_mul(cost::SPAN_NS);
        cx.charge(cost::CHAIN_NS.saturating_add(spans));
        let Some((port, seat)) = self.seats.with_port(cx, from) else {
            return Ok(Fate::Used(chain));
        };
        let mut bytes = [0_u8; HEADER_LEN];
        let map = port.map().ok_or_else(|| TxFault("the device has no memory".into()))?;
        let short = |_| TxFault(format!("a packet of {} bytes has no complete header", chain.readable_bytes()));
        chain.reader().read(map, &mut bytes).map_err(short)?;
        let header = Header::parse(&bytes).map_err(|e| TxFault(e.to_string()))?;
        let data = chain.readable_bytes().saturating_sub(HEADER_LEN as u64);
        let len = if header.operation() == Some(Op::Data) { header.len } else { 0 };
        if u64::from(len) > data {
            return Err(TxFault(format!("a packet announces {len} bytes of data and has {data}")));
        }
        if len > PACKET_BYTES_MAX {
            return Err(TxFault(format!(
                "a packet of {len} bytes of data, at most {PACKET_BYTES_MAX} are accepted"
            )));
        }
        if header.src_cid != u64::from(seat.cid) {
            let (forged, own) = (header.src_cid, seat.cid);
            return Err(TxFault(format!("source CID {forged} is forged, this port's is {own}")));
        }
        bump(&mut seat.counters.transmit_packets);
        add(&mut seat.counters.transmit_bytes, u64::from(len));
        let key = u32::try_from(header.dst_cid).ok().map(|peer_cid| Key {
            seat: from,
            peer_cid,
            local_port: header.src_port,
            peer_port: header.dst_port,
        });
        match key.and_then(|key| self.table.find(key)) {
            Some((id, which)) => self.of_connection(cx, from, chain, &header, id, which),
            None => {
                self.of_none(cx, from, &header);
                Ok(Fate::Used(chain))
            }
        }
    }

    /// Processes a packet of a connection.
    fn of_connection(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
        header: &Header,
        id: ConnId,
        which: Which,
    ) -> Result<Fate, TxFault> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(Fate::Used(chain)) };
        let connects = header.operation() == Some(Op::Request);
        let heard = if connects || header.kind == conn.kind.raw() {
            conn.hear(which, header).map_err(|breach| breach.to_string())
        } else {
            Err(format!("socket type {} on a connection of another type", header.kind))
        };
        cx.charge(cost::bytes(header.len as usize));
        self.credited(cx, from, id, which);
        match heard {
            Ok(Heard::Data) => return Ok(self.data(cx, from, chain, header, id, which)),
            Ok(Heard::Signals) if self.table.get(id).is_some_and(Conn::is_over) => {
                // Crossing shutdowns: Linux would wait 8 s for a reset, and keep its port number.
                self.end(cx, id, true);
            }
            Ok(Heard::Signals) => {
                self.lingers(cx.now_ns, id);
                self.attend(cx, id, which.other());
                // A side that receives no more must not be held back.
                if self.table.get(id).is_some_and(|conn| conn.side(which).is_freed()) {
                    self.attend(cx, id, which);
                }
            }
            Ok(Heard::Nothing) => {}
            Ok(Heard::Ended) => self.reset_by(cx, id, which),
            Ok(Heard::Anew) => {
                self.ended_by(cx, id, which);
                self.of_none(cx, from, header);
            }
            Err(breach) => {
                let reason = format!(
                    "connection {}:{} to {}:{} reset: {breach}",
                    header.src_cid, header.src_port, header.dst_cid, header.dst_port
                );
                cx.note(from, reason);
                if let Some(seat) = self.seats.get_mut(from) {
                    bump(&mut seat.counters.breach);
                }
                self.end(cx, id, true);
            }
        }
        // Each packet may carry the credit that a process waits for.
        self.attend_host(cx, id, which);
        Ok(Fate::Used(chain))
    }

    /// Sets the expiry of a connection that is shut down in both directions.
    pub(crate) fn lingers(&mut self, now_ns: u64, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        let (a, b) = (conn.side(Which::Caller).shut, conn.side(Which::Callee).shut);
        let over = a == SHUTDOWN_BOTH || b == SHUTDOWN_BOTH || (a & b & SHUTDOWN_SEND != 0);
        if over && conn.expires_ns.is_none() {
            let why = if self.has_to_drain(id) { Expiry::Drain } else { Expiry::Linger };
            self.expire_for(now_ns, id, why);
        }
    }

    /// Processes data whose credit is accepted: delivers it, or queues the rest.
    fn data(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
        header: &Header,
        id: ConnId,
        which: Which,
    ) -> Fate {
        let target = (id, which.other());
        let Some(conn) = self.table.get(id) else { return Fate::Used(chain) };
        let kind = conn.kind;
        let flags = if kind == Type::Seqpacket { header.flags & (SEQ_EOM | SEQ_EOR) } else { 0 };
        if header.len == 0 && flags == 0 {
            return Fate::Used(chain);
        }
        let Some(to) = conn.side(which.other()).guest() else {
            match kind {
                Type::Stream => self.data_to_host(cx, from, &chain, header.len, id, which),
                Type::Seqpacket => {
                    self.message_to_host(cx, from, &chain, header.len, flags, id, which);
                }
            }
            // Data carries credit too, and an update may never follow.
            self.attend_host(cx, id, which);
            return Fate::Used(chain);
        };
        let mut at = HEADER_LEN as u64;
        let mut left = header.len;
        let mut buffers = self.room_packets(to, id, which.other());
        if self.takes_now(id, which.other())
            && let Some(seat) = self.seats.get_mut(to).filter(|s| !s.starved)
            && let Some((source, port)) = cx.ports.pair(from, to)
            && let Some(map) = source.map()
        {
            let mut cursor = Cursor::at(chain.readable(), at);
            let moved = fill(
                &mut self.table,
                port,
                seat,
                target,
                Source::Guest(map, &mut cursor),
                left,
                &mut buffers,
            );
            let done = *moved.as_ref().unwrap_or(&0);
            let all = done == left;
            let end =
                end_message(&mut self.table, port, seat, target, kind, all, flags, &mut buffers);
            if !self.open.contains(&to) {
                self.open.push(to);
            }
            at = at.saturating_add(u64::from(done));
            left = left.saturating_sub(done);
            if let Some(conn) = self.table.get_mut(id) {
                let side = conn.side_mut(which.other());
                side.credit.deliver(done);
                side.signals.remove(Signals::CREDIT_UPDATE);
                if side.ask_early() {
                    self.attend(cx, id, which.other());
                }
            }
            match moved.and(end) {
                Ok(true) => return Fate::Used(chain),
                Ok(false) => {}
                Err(Blame::Receiver(fault)) => cx.fault(to, fault),
                Err(Blame::Sender(gap)) => {
                    cx.fault(from, format_args!("transmit data is not granted: {gap}"));
                    return Fate::Used(chain);
                }
            }
        }
        self.hold(cx, from, chain, at, left, flags, target)
    }

    /// Queues data for which its receiver has no room: in descriptors, staged, or with a stop of
    /// the sender.
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    fn hold(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
        at: u64,
        left: u32,
        flags: u32,
        target: (ConnId, Which),
    ) -> Fate {
        let (id, which) = target;
        let Some(to) = self.table.get(id).and_then(|c| c.side(which).guest()) else {
            return Fate::Used(chain);
        };
        let room = self.room_to_hold(cx, from, to, left as usize);
        if matches!(room, Room::Full) {
            self.stop(cx, from, to);
        }
        if matches!(room, Room::Staged) {
            return self.stage(cx, from, &chain, at, left, flags, target);
        }
        let pending = Pending::Held { from, chain, at, left, flags };
        if let Some(seat) = self.seats.get_mut(from) {
            seat.hold(to);
            bump(&mut seat.counters.held);
        }
        if let Some(conn) = self.table.get_mut(id) {
            conn.side_mut(which).pending.push_back(pending);
        }
        self.attend(cx, id, which);
        Fate::Kept
    }

    /// Stages data, in the last pack or a new one.
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    fn stage(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: &Chain,
        at: u64,
        left: u32,
        flags: u32,
        target: (ConnId, Which),
    ) -> Fate {
        let ((id, which), len) = (target, left as usize);
        let cursor = Cursor::at(chain.readable(), at);
        let Some(map) = cx.ports.get(from).and_then(|p| p.map()) else { return Fate::Kept };
        let Some(conn) = self.table.get_mut(id) else { return Fate::Copied(chain.head()) };
        let pending = &mut conn.side_mut(which).pending;
        let (appended, cost) = match pending.back_mut() {
            Some(Pending::Staged(pack)) if pack.takes(from, len) => {
                let before = pack.cost();
                let appended = pack.append(map, cursor, len, flags);
                (appended, pack.cost().saturating_sub(before))
            }
            _ => {
                let mut pack = Pack::new(from);
                let (appended, cost) = (pack.append(map, cursor, len, flags), pack.cost());
                if appended.is_ok() {
                    pending.push_back(Pending::Staged(pack));
                }
                (appended, cost)
            }
        };
        if let Err(gap) = appended {
            cx.fault(from, format_args!("transmit data is not granted: {gap}"));
            return Fate::Kept;
        }
        if let Some(seat) = self.seats.get_mut(from) {
            seat.staged = seat.staged.saturating_add(cost);
            bump(&mut seat.counters.staged);
        }
        self.attend(cx, id, which);
        Fate::Copied(chain.head())
    }

    /// Processes a packet without a connection: a connect, or a stray packet.
    fn of_none(&mut self, cx: &mut Context<'_>, from: PortId, header: &Header) {
        match header.operation() {
            Some(Op::Reset) => {}
            Some(Op::Request) => {
                if let Some(seat) = self.seats.get_mut(from) {
                    seat.drop_stale_reset(header);
                }
                let refusal = match header.socket_type() {
                    Some(kind) => self.connect(cx, from, header, kind),
                    None => Err(Refusal::Type),
                };
                if let Err(why) = refusal {
                    self.refuse(cx, from, header, why);
                }
            }
            _ => self.refuse(cx, from, header, Refusal::Stray),
        }
    }

    /// Answers a packet with a reset.
    fn refuse(&mut self, cx: &mut Context<'_>, from: PortId, header: &Header, why: Refusal) {
        let Some(seat) = self.seats.get_mut(from) else { return };
        bump(match why {
            Refusal::Unknown => &mut seat.counters.refused_unknown,
            Refusal::Rule => &mut seat.counters.refused_rule,
            Refusal::Limit => &mut seat.counters.refused_limit,
            Refusal::Type => &mut seat.counters.refused_type,
            Refusal::Stray => &mut seat.counters.stray,
        });
        let (peer, own) = ((header.dst_cid, header.dst_port), (header.src_cid, header.src_port));
        let header = Header::between(peer, own, header.kind, Op::Reset);
        seat.resets.push_back(Reset { header, entry: None });
        seat.choked = seat.resets.len() >= RESETS_WAITING_MAX;
        self.attend_seat(cx, from);
    }

    /// Connects a guest.
    fn connect(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        header: &Header,
        kind: Type,
    ) -> Result<(), Refusal> {
        let cid = u32::try_from(header.dst_cid).map_err(|_| Refusal::Unknown)?;
        let seat = self.seats.get(from).ok_or(Refusal::Unknown)?;
        let (group, own) = (seat.group, seat.cid);
        if seat.connections >= CONNECTIONS_PER_PORT_MAX {
            return Err(Refusal::Limit);
        }
        if !self.admits(cx, group, (own, header.src_port), (cid, header.dst_port)) {
            return Err(Refusal::Rule);
        }
        let mut caller = Side::new(Party::Guest(from), own, header.src_port);
        // No data was delivered yet, so `fwd_cnt` must be zero.
        caller.credit.advertise(header.buf_alloc, header.fwd_cnt).map_err(|_| Refusal::Stray)?;
        if cid == CID_HOST {
            return self.connect_to_host(cx, from, caller, header.dst_port, kind);
        }
        let to = *self.directory.get(&(group, cid)).ok_or(Refusal::Unknown)?;
        let target = cx.ports.get(to).filter(|p| p.runs(0) && p.runs(1) && to != from);
        let target = target.ok_or(Refusal::Unknown)?;
        if kind == Type::Seqpacket && target.features() & VSOCK_F_SEQPACKET == 0 {
            return Err(Refusal::Type);
        }
        let callee = Side::new(Party::Guest(to), cid, header.dst_port);
        self.open_connection(cx, Conn::new(kind, caller, callee)).map(drop)
    }

    /// Adds a connection whose callee is a guest, and sends the request.
    pub(crate) fn open_connection(
        &mut self,
        cx: &mut Context<'_>,
        mut conn: Conn,
    ) -> Result<ConnId, Refusal> {
        conn.side_mut(Which::Callee).signals |= Signals::REQUEST;
        let id = self.add_connection(conn)?;
        self.expire_for(cx.now_ns, id, Expiry::Request);
        self.attend(cx, id, Which::Callee);
        Ok(id)
    }

    /// Adds a connection within its guests' quotas.
    pub(crate) fn add_connection(&mut self, conn: Conn) -> Result<ConnId, Refusal> {
        let guests = [conn.side(Which::Caller).guest(), conn.side(Which::Callee).guest()];
        let host = guests.iter().any(Option::is_none);
        let full = |seat: &Seat| {
            seat.connections >= CONNECTIONS_PER_PORT_MAX || (host && self.host_full(seat))
        };
        if guests.iter().flatten().any(|&id| self.seats.get(id).is_none_or(full)) {
            return Err(Refusal::Limit);
        }
        let opens = [Which::Caller, Which::Callee].map(|which| conn.open_of(which));
        let id = self.table.insert(conn).ok_or(Refusal::Limit)?;
        for (guest, open) in guests.into_iter().zip(opens) {
            if let Some(seat) = guest.and_then(|guest| self.seats.get_mut(guest)) {
                if let Some(ledger) = &mut seat.ledger {
                    ledger.note(id, open);
                }
                seat.connections = seat.connections.saturating_add(1);
                seat.host_connections = seat.host_connections.saturating_add(usize::from(host));
                bump(&mut seat.counters.connects);
            }
        }
        Ok(id)
    }

    /// Returns whether the rules admit a connect.
    pub(crate) fn admits(
        &self,
        cx: &mut Context<'_>,
        group: causeway_fabric::GroupId,
        from: (u32, u32),
        to: (u32, u32),
    ) -> bool {
        let Some(group) = cx.ports.group_name(group) else { return false };
        let end = |(cid, port)| End { group, cid, port };
        cx.rules.admits(end(from), end(to))
    }
}

/// Reason of a reset that answers a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unknown,
    Rule,
    Limit,
    Type,
    Stray,
}

/// Place of queued data.
pub(crate) enum Room {
    /// In its own descriptors.
    Held,
    /// In a copy.
    Staged,
    /// No room: the sender stops.
    Full,
}
