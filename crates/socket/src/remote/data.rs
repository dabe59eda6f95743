//! Messages of connections: packets of a guest to the peer, and messages of the peer to the guest.
//!
//! `crate::transmit` calls [`Socket::data_to_peer`] for the data of a guest's packet,
//! `Socket::schedule_side` calls [`Socket::signal_peer`] for packets without data, and
//! `super::serve` calls `process_message` for each whole message of a channel but that of
//! addresses. All of it runs on the dispatcher's thread of the shard. Messages are queued in the
//! session of the peer; its datagrams leave at the end of the turn or later.
//!
//! A guest's transmit ring stops when more than 4 MiB of it are not acknowledged by a peer's
//! daemon, until at most half is left, for at most 2 s; then the guest loses its connections with
//! that peer. Data of a peer that a guest has no buffers for is staged; beyond the 4 MiB of staged
//! data that each port has for all senders, the connection is reset. A message that breaks the
//! protocol resets its connection; one for a channel without a connection is answered with a reset
//! and closes that channel, unless it is a request, which opens a connection. Without the peer's
//! session nothing is sent.
//!
//! # Budget
//! Towards the peer, data is copied twice before the link seals it: from the guest's descriptors into
//! the channel of the session, and from there into the plaintext of the link's datagram; several
//! pieces of channels in one datagram are copied once more, but for the last. From the peer, data is
//! copied from the opened datagram into the guest's buffers; a message that crosses in several
//! pieces, and data for which the guest has no buffers, are copied once more each. A message has 12
//! bytes besides its data, a datagram of the session 10, and each piece in it 11. Per 64 KiB and MTU
//! of 1,500 B: 16 messages, 46 datagrams, one acknowledgement for each turn of the receiver.

use causeway_fabric::carrier::LinkId;
use causeway_fabric::{Context, PortId, cost};
use causeway_memory::Cursor;
use causeway_ring::Chain;
use causeway_wire::multiplex::{Opening, SocketMessage};
use causeway_wire::vsock::{HEADER_LEN, Header, Op, SEQ_EOM, SEQ_EOR, Type};

use super::connect::RemoteEnd;
use super::owner_of;
use crate::conn::{Conn, PacketEffect, Party, PendingData, Role, Signals};
use crate::counters::bump;
use crate::deliver::{CopyFault, DataSource, end_message, fill};
use crate::limits::{MESSAGE_DATA_BYTES, REMOTE_BUFFER_BYTES, STAGED_BYTES_MAX};
use crate::pack::{Pack, staged_cost};
use crate::service::Socket;
use crate::table::ConnId;

/// The signals of a side, in the order of their packets.
const SIGNALS: [(Signals, Op); 5] = [
    (Signals::REQUEST, Op::Request),
    (Signals::RESPONSE, Op::Response),
    (Signals::CREDIT_UPDATE, Op::CreditUpdate),
    (Signals::CREDIT_REQUEST, Op::CreditRequest),
    (Signals::SHUTDOWN, Op::Shutdown),
];

/// Returns the peer's end of side `role`, and the port of the other side.
fn ends(conn: &Conn, role: Role) -> Option<(RemoteEnd, PortId)> {
    let Party::Remote(end) = conn.side(role).party else { return None };
    Some((end, conn.side(role.other()).owner()?))
}

/// Returns the message of a packet to side `role`, with the credit of the other side.
pub(super) fn message(conn: &Conn, role: Role, op: Op, flags: u32) -> SocketMessage {
    let header = conn.header(role, op, 0, flags);
    SocketMessage {
        op: u8::try_from(op.raw()).unwrap_or(0),
        flags: u8::try_from(flags & 0xff).unwrap_or(0),
        buf_alloc: header.buf_alloc.min(REMOTE_BUFFER_BYTES),
        fwd_cnt: header.fwd_cnt,
    }
}

impl Socket {
    /// Sends the signals of side `role`, which is at a peer.
    pub(crate) fn signal_peer(&mut self, id: ConnId, role: Role) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let Some((end, guest)) = ends(conn, role) else { return };
        let signals = std::mem::take(&mut conn.side_mut(role).signals);
        let shut = conn.side(role.other()).shut;
        let Some(peer) = self.peers.peers.get_mut(&end.link) else { return };
        self.peers.has_work = true;
        for (signal, op) in SIGNALS {
            if !signals.contains(signal) {
                continue;
            }
            let flags = if op == Op::Shutdown { shut } else { 0 };
            let head = message(conn, role, op, flags).emit();
            let (from, to) = (conn.side(role.other()), conn.side(role));
            let opening = Opening {
                from: (from.cid, from.port),
                to: (to.cid, to.port),
                kind: conn.kind.raw(),
            };
            let body = if op == Op::Request { &opening.emit()[..] } else { &[] };
            peer.session.send(end.channel, owner_of(guest), [&head, body]);
        }
        conn.side_mut(role).is_request_delivered |= signals.contains(Signals::REQUEST);
        self.stop_if_full(guest, end.link);
    }

    /// Sends the data of a guest's packet to side `role`, which is at a peer. Its credit is used
    /// already.
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    pub(crate) fn data_to_peer(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: &Chain,
        len: u32,
        flags: u32,
        id: ConnId,
        role: Role,
    ) {
        let Some(map) = cx.ports.get(from).and_then(|p| p.map()) else { return };
        let Some(conn) = self.table.get_mut(id) else { return };
        let Some((end, guest)) = ends(conn, role) else { return };
        let Some(peer) = self.peers.peers.get_mut(&end.link) else { return };
        self.peers.has_work = true;
        let mut cursor = Cursor::at(chain.readable(), HEADER_LEN as u64);
        let mut left = len as usize;
        loop {
            let now = left.min(MESSAGE_DATA_BYTES);
            left = left.saturating_sub(now);
            // The end of a message is marked on its last part.
            let flags = if left == 0 { flags } else { 0 };
            let head = message(conn, role, Op::Data, flags).emit();
            let read = |into: &mut [u8]| cursor.read(map, into);
            let sent = peer.session.send_with(end.channel, owner_of(guest), &head, now, read);
            if let Err(gap) = sent {
                cx.fault(from, format_args!("transmit data is not granted: {gap}"));
                return;
            }
            if left == 0 {
                break;
            }
        }
        let side = conn.side_mut(role);
        side.credit.deliver(len);
        // The message of the data carries the credit.
        side.signals.remove(Signals::CREDIT_UPDATE);
        cx.charge(cost::bytes(len as usize));
        self.stop_if_full(from, end.link);
    }

    /// Processes a message of a peer.
    pub(super) fn process_message(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        channel: u32,
        bytes: &[u8],
    ) {
        let end = RemoteEnd { link, channel };
        let Some(peer) = self.peers.peers.get_mut(&link) else { return };
        let known = peer.conns.get(&channel).copied();
        let parsed = SocketMessage::parse(bytes);
        let (id, role, message, data) = match (known, parsed) {
            (Some((id, role)), Ok((message, data))) => (id, role, message, data),
            (None, Ok((message, data))) if u16::from(message.op) == Op::Request.raw() => {
                return self.accept_from_peer(cx, end, message, data);
            }
            (Some((id, _)), Err(_)) => return self.breach_of_peer(cx, link, id),
            (None, _) => return self.peers.close(end, true),
        };
        let is_data = u16::from(message.op) == Op::Data.raw();
        if !is_data {
            // The message may end the connection.
            self.flush_process(cx, id);
        }
        let Some(conn) = self.table.get_mut(id) else { return self.peers.close(end, false) };
        let (own, other) = (conn.side(role), conn.side(role.other()));
        let header = Header {
            src_cid: u64::from(own.cid),
            dst_cid: u64::from(other.cid),
            src_port: own.port,
            dst_port: other.port,
            len: if is_data { u32::try_from(data.len()).unwrap_or(u32::MAX) } else { 0 },
            kind: conn.kind.raw(),
            op: u16::from(message.op),
            flags: u32::from(message.flags),
            buf_alloc: message.buf_alloc.min(REMOTE_BUFFER_BYTES),
            fwd_cnt: message.fwd_cnt,
        };
        let has_process = matches!(other.party, Party::Host(_));
        match conn.process(role, &header) {
            Ok(PacketEffect::Data) => {
                self.data_from_peer(cx, data, header.flags, (id, role.other()))
            }
            Ok(PacketEffect::Signals) if self.table.get(id).is_some_and(Conn::is_over) => {
                self.end(cx, id, true);
            }
            Ok(PacketEffect::Signals) => {
                self.start_linger(cx.now_ns, id);
                self.schedule_side(cx, id, role.other());
            }
            // A guest may repeat its request while the response is under way.
            Ok(PacketEffect::Reconnect) if role == Role::Caller => {}
            Ok(PacketEffect::Nothing) => {}
            Ok(PacketEffect::Ended) => self.handle_reset(cx, id, role),
            Ok(PacketEffect::Reconnect) | Err(_) => self.breach_of_peer(cx, link, id),
        }
        if has_process {
            // The message may have brought credit.
            self.read_from_process(cx, id);
        }
    }

    /// Resets a connection on which a peer broke the protocol.
    fn breach_of_peer(&mut self, cx: &mut Context<'_>, link: LinkId, id: ConnId) {
        if let Some(peer) = self.peers.peers.get_mut(&link) {
            bump(&mut peer.counters.breaches);
        }
        self.flush_process(cx, id);
        self.end(cx, id, true);
    }

    /// Delivers data of a peer to the guest at side `target.1`, as far as the guest has buffers, and
    /// stages the rest.
    fn data_from_peer(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        flags: u32,
        target: (ConnId, Role),
    ) {
        let (id, role) = target;
        let Some(conn) = self.table.get(id) else { return };
        let (kind, Some(to)) = (conn.kind, conn.side(role).guest()) else {
            return self.data_to_process(cx, data, id);
        };
        let flags = if kind == Type::Seqpacket { flags & (SEQ_EOM | SEQ_EOR) } else { 0 };
        if data.is_empty() && flags == 0 {
            return;
        }
        cx.charge(cost::bytes(data.len()));
        let mut done = 0;
        if self.can_deliver_now(id, role) {
            let mut buffers = self.room_packets(to, id, role);
            let Some((port, socket_port)) = self.socket_ports.with_port(cx, to) else { return };
            if !socket_port.is_starved {
                let (table, len) = (&mut self.table, u32::try_from(data.len()).unwrap_or(0));
                let moved = fill(
                    table,
                    port,
                    socket_port,
                    target,
                    DataSource::Bytes(data),
                    len,
                    &mut buffers,
                );
                done = *moved.as_ref().unwrap_or(&0);
                let all = done == len;
                let end =
                    end_message(table, port, socket_port, target, kind, all, flags, &mut buffers);
                self.batch.note_filling(to);
                if let Some(conn) = self.table.get_mut(id) {
                    let side = conn.side_mut(role);
                    side.credit.deliver(done);
                    side.signals.remove(Signals::CREDIT_UPDATE);
                    let (asks, awaits) = (side.request_credit_early(), side.awaits_credit());
                    if asks {
                        self.schedule_side(cx, id, role);
                    }
                    if awaits {
                        self.schedule_credit_request(cx.now_ns, id, role);
                    }
                }
                match moved.and(end) {
                    Ok(true) => return,
                    Ok(false) | Err(CopyFault::Sender(_)) => {}
                    Err(CopyFault::Receiver(fault)) => return cx.fault(to, fault),
                }
            }
        }
        self.stage_from_peer(cx, to, data.get(done as usize..).unwrap_or(&[]), flags, target);
    }

    /// Stages data of a peer, charged to the guest's port. Beyond its quota, the connection is reset.
    fn stage_from_peer(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        data: &[u8],
        flags: u32,
        (id, role): (ConnId, Role),
    ) {
        let staged = self.socket_ports.get(to).map_or(0, |socket_port| socket_port.staged);
        if staged.saturating_add(staged_cost(data.len())) > STAGED_BYTES_MAX {
            cx.remark(
                to,
                "connection reset: the guest has too few receive buffers for data of a peer",
            );
            return self.end(cx, id, true);
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        let pending = &mut conn.side_mut(role).pending;
        let cost = match pending.back_mut() {
            Some(PendingData::Staged(pack)) if pack.takes(to, data.len()) => {
                let before = pack.cost();
                pack.append_bytes(data, flags);
                pack.cost().saturating_sub(before)
            }
            _ => {
                let mut pack = Pack::new(to);
                pack.append_bytes(data, flags);
                let cost = pack.cost();
                pending.push_back(PendingData::Staged(pack));
                cost
            }
        };
        if let Some(socket_port) = self.socket_ports.get_mut(to) {
            socket_port.staged = socket_port.staged.saturating_add(cost);
            bump(&mut socket_port.counters.staged);
        }
        self.schedule_side(cx, id, role);
    }
}
