//! The transmit path: packets of guests are checked, resolved to a connection, and passed to
//! delivery.
//!
//! The shard calls [`Socket::transmit`] when a guest's transmit queue has chains. Each packet is
//! popped, its header is copied once and checked, its connection is found in [`crate::table`] and
//! processes it ([`crate::conn`]); data goes on to [`crate::deliver`] if the receiver is a guest,
//! and to [`crate::host`] if it is a process. A request without a connection opens one, if the
//! rules, the quotas and the destination admit it; a request that is not admitted, and any other
//! packet without a connection except a reset, is answered with a reset.
//!
//! A header that lies about its length or its source CID, data longer than [`PACKET_BYTES_MAX`] (64
//! KiB), memory that is not granted, or a broken ring closes the sender's port; a violation on a
//! connection resets that connection alone. Data for a receiver without room is not dropped: it
//! stays in the sender's descriptors, is staged (copied, [`Pack`]), or stops the sender's whole
//! ring ([`crate::stall`]), so a slow receiver can delay the sender's other connections; data for a
//! process without room is copied within its credit ([`crate::host`]). A ring
//! with [`RESETS_WAITING_MAX`] (256) unread resets stops too. Packets of one connection keep their
//! order. The module writes no receive buffer itself and sends nothing to other hosts.

use causeway_fabric::{Context, PortId, Progress, RuleEnd, cost};
use causeway_memory::Cursor;
use causeway_ring::Chain;
use causeway_wire::pcapng::Direction;
use causeway_wire::vsock::{
    HEADER_LEN, Header, Op, SEQ_EOM, SEQ_EOR, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type,
};

use crate::capture;
use crate::conn::{Conn, PacketEffect, Party, PendingData, Role, Side, Signals};
use crate::counters::{add, bump};
use crate::deliver::{CopyFault, DataSource, end_message, fill};
use crate::expiry::Expiry;
use crate::limits::{CONNECTIONS_PER_PORT_MAX, PACKET_BYTES_MAX, RESETS_WAITING_MAX};
use crate::pack::Pack;
use crate::service::{CID_HOST, Socket, TX, VSOCK_F_SEQPACKET};
use crate::socket_port::Reset;
use crate::table::{ConnId, ConnKey};

/// Outcome of a transmitted chain.
enum ChainOutcome {
    /// The packet is processed and its data delivered or dropped: the caller returns the chain to
    /// the guest, and reuses its memory.
    Used(Chain),
    /// The data is staged in a copy: the caller returns the chain to the guest, by its head.
    Copied(u16),
    /// The chain waits for its receiver: its descriptors stay with the connection
    /// ([`PendingData::Held`]), which returns them later.
    Kept,
}

/// A violation by the sender, which closes its port; the text is the reason.
struct TxFault(String);

impl Socket {
    /// Serves the transmit queue of a guest, at most `budget` packets, then delivers to the ports
    /// for which it queued packets.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        budget: usize,
    ) -> Progress {
        let mut served = 0_usize;
        let progress = loop {
            let is_over = served > 0 && cx.is_over();
            let Some((port, socket_port)) = self.socket_ports.with_port(cx, from) else {
                break Progress::Parked;
            };
            let is_stopped = socket_port.is_stopped_by_resets || socket_port.is_stopped_by_peer;
            if is_stopped || socket_port.stalls.is_stopped() {
                break Progress::Parked;
            }
            if served >= budget || is_over {
                break Progress::Worked;
            }
            let Some((map, ring)) = port.queue(TX) else { break Progress::Parked };
            let mut chain = std::mem::take(&mut socket_port.scratch);
            match ring.pop(map, &mut chain) {
                Ok(true) => {}
                Ok(false) => {
                    socket_port.scratch = chain;
                    break if served == 0 { Progress::Idle } else { Progress::Worked };
                }
                Err(error) => {
                    cx.fault(from, format_args!("transmit queue: {error}"));
                    break Progress::Parked;
                }
            }
            served = served.saturating_add(1);
            match self.process_packet(cx, from, chain) {
                Ok(ChainOutcome::Used(chain)) => {
                    self.return_chain(cx, from, chain.head());
                    if let Some(socket_port) = self.socket_ports.get_mut(from) {
                        // Keeps its capacity for the next packet.
                        socket_port.scratch = chain;
                    }
                }
                Ok(ChainOutcome::Copied(head)) => self.return_chain(cx, from, head),
                Ok(ChainOutcome::Kept) => {}
                Err(TxFault(reason)) => {
                    cx.fault(from, reason);
                    break Progress::Parked;
                }
            }
        };
        if served > 0 {
            cx.touch(from, TX);
        }
        self.close_filling(cx);
        self.deliver_scheduled(cx);
        progress
    }

    /// Returns the chain with head `head` to the guest at `from`; the used entry is published after
    /// the call.
    pub(crate) fn return_chain(&self, cx: &mut Context<'_>, from: PortId, head: u16) {
        let ring = cx.ports.get_mut(from).and_then(|p| p.queue(TX));
        if let Some((_, ring)) = ring
            && let Err(error) = ring.push(head, 0)
        {
            cx.fault(from, format_args!("transmit queue: {error}"));
        }
    }

    /// Checks a packet and passes it to its connection.
    fn process_packet(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
    ) -> Result<ChainOutcome, TxFault> {
        let spans = (chain.readable().len() as u64).saturating_mul(cost::SPAN_NS);
        cx.charge(cost::CHAIN_NS.saturating_add(spans));
        let Some((port, socket_port)) = self.socket_ports.with_port(cx, from) else {
            return Ok(ChainOutcome::Used(chain));
        };
        let mut bytes = [0_u8; HEADER_LEN];
        let map = port.map().ok_or_else(|| TxFault("the device has no memory".into()))?;
        let short = |_| {
            TxFault(format!("a packet of {} bytes has no complete header", chain.readable_bytes()))
        };
        chain.reader().read(map, &mut bytes).map_err(short)?;
        let sent = Header::parse(&bytes).map_err(|e| TxFault(e.to_string()))?;
        let header = socket_port.guest_cid.translate(sent);
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
        if header.src_cid != u64::from(socket_port.cid) {
            let (forged, own) = (sent.src_cid, socket_port.guest_cid.shown());
            return Err(TxFault(format!("source CID {forged} is forged, this guest's is {own}")));
        }
        bump(&mut socket_port.counters.transmit_packets);
        add(&mut socket_port.counters.transmit_bytes, u64::from(len));
        if !socket_port.captures.is_empty() {
            let data = (map, capture::data_of(chain.readable()));
            socket_port.captures.add(Direction::In, &header, data, len);
            cx.charge(cost::bytes(len as usize));
        }
        let key = u32::try_from(header.dst_cid).ok().map(|peer_cid| ConnKey {
            port: from,
            peer_cid,
            local_port: header.src_port,
            peer_port: header.dst_port,
        });
        match key.and_then(|key| self.table.find(key)) {
            Some((id, role)) => self.packet_of_connection(cx, from, chain, &header, id, role),
            None => {
                self.packet_without_connection(cx, from, &header);
                Ok(ChainOutcome::Used(chain))
            }
        }
    }

    /// Processes a packet from side `role` of connection `id`.
    fn packet_of_connection(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
        header: &Header,
        id: ConnId,
        role: Role,
    ) -> Result<ChainOutcome, TxFault> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(ChainOutcome::Used(chain)) };
        let connects = header.operation() == Some(Op::Request);
        let effect = if connects || header.kind == conn.kind.raw() {
            conn.process(role, header).map_err(|breach| breach.to_string())
        } else {
            Err(format!("socket type {} on a connection of another type", header.kind))
        };
        cx.charge(cost::bytes(header.len as usize));
        self.handle_credit(cx, from, id, role);
        match effect {
            Ok(PacketEffect::Data) => return Ok(self.data(cx, from, chain, header, id, role)),
            Ok(PacketEffect::Signals) if self.table.get(id).is_some_and(Conn::is_over) => {
                // Crossing shutdowns: Linux would wait 8 s for a reset, and keep its port number.
                self.end(cx, id, true);
            }
            Ok(PacketEffect::Signals) => {
                self.start_linger(cx.now_ns, id);
                self.schedule_side(cx, id, role.other());
                // A side that receives no more must not be held back.
                if self.table.get(id).is_some_and(|conn| conn.side(role).is_freed()) {
                    self.schedule_side(cx, id, role);
                }
            }
            Ok(PacketEffect::Nothing) => {}
            Ok(PacketEffect::Ended) => self.handle_reset(cx, id, role),
            Ok(PacketEffect::Reconnect) => {
                self.end_from(cx, id, role);
                self.packet_without_connection(cx, from, header);
            }
            Err(breach) => {
                let reason = format!(
                    "connection {}:{} to {}:{} reset: {breach}",
                    header.src_cid, header.src_port, header.dst_cid, header.dst_port
                );
                cx.note(from, reason);
                if let Some(socket_port) = self.socket_ports.get_mut(from) {
                    bump(&mut socket_port.counters.breach);
                }
                self.end(cx, id, true);
            }
        }
        // Each packet may carry the credit that a process waits for.
        self.resume_reading(cx, id, role);
        Ok(ChainOutcome::Used(chain))
    }

    /// Sets the expiry of a connection on which no more data may be sent, unless an expiry is set
    /// already.
    pub(crate) fn start_linger(&mut self, now_ns: u64, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        let (a, b) = (conn.side(Role::Caller).shut, conn.side(Role::Callee).shut);
        let over = a == SHUTDOWN_BOTH || b == SHUTDOWN_BOTH || (a & b & SHUTDOWN_SEND != 0);
        if over && conn.expires_ns.is_none() {
            let why = if self.has_undelivered_output(id) { Expiry::Drain } else { Expiry::Linger };
            self.expire_for(now_ns, id, why);
        }
    }

    /// Processes data that the receiver's credit covers: delivers as much as the receiver has room
    /// for, and queues the rest.
    fn data(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
        header: &Header,
        id: ConnId,
        role: Role,
    ) -> ChainOutcome {
        let Some(conn) = self.table.get(id) else { return ChainOutcome::Used(chain) };
        let kind = conn.kind;
        let flags = if kind == Type::Seqpacket { header.flags & (SEQ_EOM | SEQ_EOR) } else { 0 };
        if header.len == 0 && flags == 0 {
            return ChainOutcome::Used(chain);
        }
        if matches!(conn.side(role.other()).party, Party::Remote(_)) {
            self.data_to_peer(cx, from, &chain, header.len, flags, id, role.other());
            return ChainOutcome::Used(chain);
        }
        let Some(to) = conn.side(role.other()).guest() else {
            match kind {
                Type::Stream => self.data_to_host(cx, from, &chain, header.len, id, role),
                Type::Seqpacket => {
                    self.message_to_host(cx, from, &chain, header.len, flags, id, role);
                }
            }
            // Data carries credit too, and an update may never follow.
            self.resume_reading(cx, id, role);
            return ChainOutcome::Used(chain);
        };
        let target = (id, role.other());
        let data = (kind, header.len, flags);
        let Some(done) = self.deliver_now(cx, (from, to), &chain, data, target) else {
            return ChainOutcome::Used(chain);
        };
        let at = (HEADER_LEN as u64).saturating_add(u64::from(done));
        let left = header.len.saturating_sub(done);
        self.queue_data(cx, from, chain, at, left, flags, target)
    }

    /// Delivers a packet's data as far as the receiver, a guest, has room. Returns the number of
    /// delivered bytes, of which the caller queues the rest; or `None` if nothing is left to do:
    /// all was delivered, or the sender's memory is at fault.
    fn deliver_now(
        &mut self,
        cx: &mut Context<'_>,
        (from, to): (PortId, PortId),
        chain: &Chain,
        (kind, len, flags): (Type, u32, u32),
        target: (ConnId, Role),
    ) -> Option<u32> {
        let (id, role) = target;
        let mut buffers = self.room_packets(to, id, role);
        if !self.can_deliver_now(id, role) {
            return Some(0);
        }
        let socket_port = self.socket_ports.get_mut(to).filter(|s| !s.is_starved);
        let (Some(socket_port), Some((source, port))) = (socket_port, cx.ports.pair(from, to))
        else {
            return Some(0);
        };
        let Some(map) = source.map() else { return Some(0) };
        let mut cursor = Cursor::at(chain.readable(), HEADER_LEN as u64);
        let data = DataSource::Guest(map, &mut cursor);
        let table = &mut self.table;
        let moved = fill(table, port, socket_port, target, data, len, &mut buffers);
        let done = *moved.as_ref().unwrap_or(&0);
        let all = done == len;
        let end = end_message(table, port, socket_port, target, kind, all, flags, &mut buffers);
        self.batch.note_filling(to);
        if let Some(conn) = self.table.get_mut(id) {
            let side = conn.side_mut(role);
            side.credit.deliver(done);
            side.signals.remove(Signals::CREDIT_UPDATE);
            if side.request_credit_early() {
                self.schedule_side(cx, id, role);
            }
        }
        match moved.and(end) {
            Ok(true) => None,
            Ok(false) => Some(done),
            Err(CopyFault::Receiver(fault)) => {
                cx.fault(to, fault);
                Some(done)
            }
            Err(CopyFault::Sender(gap)) => {
                cx.fault(from, format_args!("transmit data is not granted: {gap}"));
                None
            }
        }
    }

    /// Queues the last `left` bytes of a chain, for which the receiver has no room: held in the
    /// sender's descriptors, or staged. If neither has room, the data is held all the same and the
    /// sender's ring stops.
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    fn queue_data(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: Chain,
        at: u64,
        left: u32,
        flags: u32,
        target: (ConnId, Role),
    ) -> ChainOutcome {
        let (id, role) = target;
        let Some(to) = self.table.get(id).and_then(|c| c.side(role).guest()) else {
            return ChainOutcome::Used(chain);
        };
        let room = self.placement_of(cx, from, to, left as usize);
        if matches!(room, Placement::Full) {
            self.stop_transmit(cx, from, to);
        }
        if matches!(room, Placement::Staged) {
            return self.stage(cx, from, &chain, at, left, flags, target);
        }
        let pending = PendingData::Held { from, chain, at, left, flags };
        if let Some(socket_port) = self.socket_ports.get_mut(from) {
            socket_port.hold(to);
            bump(&mut socket_port.counters.held);
        }
        if let Some(conn) = self.table.get_mut(id) {
            conn.side_mut(role).pending.push_back(pending);
        }
        self.schedule_side(cx, id, role);
        ChainOutcome::Kept
    }

    /// Stages the last `left` bytes of a chain, in the last pack of the connection or a new pack
    /// ([`Pack`]: a copy of consecutive pieces of data).
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    fn stage(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: &Chain,
        at: u64,
        left: u32,
        flags: u32,
        target: (ConnId, Role),
    ) -> ChainOutcome {
        let ((id, role), len) = (target, left as usize);
        let cursor = Cursor::at(chain.readable(), at);
        let Some(map) = cx.ports.get(from).and_then(|p| p.map()) else { return ChainOutcome::Kept };
        let Some(conn) = self.table.get_mut(id) else { return ChainOutcome::Copied(chain.head()) };
        let pending = &mut conn.side_mut(role).pending;
        let (appended, cost) = match pending.back_mut() {
            Some(PendingData::Staged(pack)) if pack.takes(from, len) => {
                let before = pack.cost();
                let appended = pack.append(map, cursor, len, flags);
                (appended, pack.cost().saturating_sub(before))
            }
            _ => {
                let mut pack = Pack::new(from);
                let (appended, cost) = (pack.append(map, cursor, len, flags), pack.cost());
                if appended.is_ok() {
                    pending.push_back(PendingData::Staged(pack));
                }
                (appended, cost)
            }
        };
        if let Err(gap) = appended {
            cx.fault(from, format_args!("transmit data is not granted: {gap}"));
            return ChainOutcome::Kept;
        }
        if let Some(socket_port) = self.socket_ports.get_mut(from) {
            socket_port.staged = socket_port.staged.saturating_add(cost);
            bump(&mut socket_port.counters.staged);
        }
        self.schedule_side(cx, id, role);
        ChainOutcome::Copied(chain.head())
    }

    /// Processes a packet without a connection: a connect, or a stray packet.
    fn packet_without_connection(&mut self, cx: &mut Context<'_>, from: PortId, header: &Header) {
        match header.operation() {
            Some(Op::Reset) => {}
            Some(Op::Request) => {
                if let Some(socket_port) = self.socket_ports.get_mut(from) {
                    socket_port.drop_stale_reset(header);
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

    /// Answers a packet with a reset, and counts the reason. Stops the transmit ring of a guest
    /// that does not take its resets.
    fn refuse(&mut self, cx: &mut Context<'_>, from: PortId, header: &Header, why: Refusal) {
        let Some(socket_port) = self.socket_ports.get_mut(from) else { return };
        bump(match why {
            Refusal::Unknown => &mut socket_port.counters.refused_unknown,
            Refusal::Rule => &mut socket_port.counters.refused_rule,
            Refusal::Limit => &mut socket_port.counters.refused_limit,
            Refusal::Type => &mut socket_port.counters.refused_type,
            Refusal::Stray => &mut socket_port.counters.stray,
        });
        let (peer, own) = ((header.dst_cid, header.dst_port), (header.src_cid, header.src_port));
        let header = Header::between(peer, own, header.kind, Op::Reset);
        socket_port.resets.push_back(Reset { header, slot: None });
        socket_port.is_stopped_by_resets = socket_port.resets.len() >= RESETS_WAITING_MAX;
        self.schedule_port(cx, from);
    }

    /// Opens the connection that a guest requests, to another guest or to a host process.
    fn connect(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        header: &Header,
        kind: Type,
    ) -> Result<(), Refusal> {
        let cid = u32::try_from(header.dst_cid).map_err(|_| Refusal::Unknown)?;
        let socket_port = self.socket_ports.get(from).ok_or(Refusal::Unknown)?;
        let (group, own) = (socket_port.group, socket_port.cid);
        if socket_port.connections >= CONNECTIONS_PER_PORT_MAX {
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
        if cid == own {
            return Err(Refusal::Unknown);
        }
        let local = self.directory.get(&(group, cid)).copied();
        let target = local.and_then(|to| Some((to, cx.ports.get(to)?)));
        let target = target.filter(|(_, port)| port.is_running(0) && port.is_running(1));
        let Some((to, target)) = target else {
            let (link, _) = self.peers.find(cid).ok_or(Refusal::Unknown)?;
            return self.connect_to_peer(cx, caller, (link, cid, header.dst_port), kind).map(drop);
        };
        if kind == Type::Seqpacket && target.features() & VSOCK_F_SEQPACKET == 0 {
            return Err(Refusal::Type);
        }
        let callee = Side::new(Party::Guest(to), cid, header.dst_port);
        self.open_connection(cx, Conn::new(kind, caller, callee)).map(drop)
    }

    /// Adds a connection whose callee is a guest, and sends the guest the request. The connection
    /// expires if it is not answered.
    pub(crate) fn open_connection(
        &mut self,
        cx: &mut Context<'_>,
        mut conn: Conn,
    ) -> Result<ConnId, Refusal> {
        conn.opened_ns = cx.now_ns;
        conn.side_mut(Role::Callee).signals |= Signals::REQUEST;
        let id = self.add_connection(conn)?;
        self.expire_for(cx.now_ns, id, Expiry::Request);
        self.schedule_side(cx, id, Role::Callee);
        Ok(id)
    }

    /// Adds a connection, if its ports are within their quotas. A port for processes has no ledger.
    pub(crate) fn add_connection(&mut self, conn: Conn) -> Result<ConnId, Refusal> {
        let owners = [conn.side(Role::Caller).owner(), conn.side(Role::Callee).owner()];
        let process_port = conn.process_port();
        let is_full = |&id: &PortId| {
            self.socket_ports.get(id).is_none_or(|socket_port| {
                socket_port.connections >= CONNECTIONS_PER_PORT_MAX
                    || (process_port == Some(id) && self.host_full(socket_port))
            })
        };
        if owners.iter().flatten().any(is_full) {
            return Err(Refusal::Limit);
        }
        let opens = [Role::Caller, Role::Callee].map(|role| conn.open_connection_of(role));
        let id = self.table.insert(conn).ok_or(Refusal::Limit)?;
        for (owner, open) in owners.into_iter().zip(opens) {
            if let Some(socket_port) = owner.and_then(|owner| self.socket_ports.get_mut(owner)) {
                if let Some(ledger) = &mut socket_port.ledger {
                    ledger.record(id, open);
                }
                socket_port.connections = socket_port.connections.saturating_add(1);
                let is_of_process = usize::from(owner == process_port);
                socket_port.host_connections =
                    socket_port.host_connections.saturating_add(is_of_process);
                bump(&mut socket_port.counters.connects);
            }
        }
        Ok(id)
    }

    /// Returns whether the rules admit a connect, and counts the rule that decided. `from` and `to`
    /// are a CID and a port number each.
    pub(crate) fn admits(
        &self,
        cx: &mut Context<'_>,
        group: causeway_fabric::GroupId,
        from: (u32, u32),
        to: (u32, u32),
    ) -> bool {
        let Some(group) = cx.ports.group_name(group) else { return false };
        let end = |(cid, port)| RuleEnd { group, cid, port };
        cx.rules.admits(end(from), end(to))
    }
}

/// Reason of a reset that answers a packet without a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No port of the group has the CID, its device does not run, or no host process listens.
    Unknown,
    /// A rule rejects the connect.
    Rule,
    /// A limit on connections is reached.
    Limit,
    /// The destination does not support the socket type, or no such type exists.
    Type,
    /// The packet belongs to no connection and opens none.
    Stray,
}

/// Place in which data waits for its receiver.
pub(crate) enum Placement {
    /// In the sender's own descriptors.
    Held,
    /// In a copy.
    Staged,
    /// In the sender's descriptors beyond its share: the sender's ring stops.
    Full,
}
