//! Data between host processes that have the CID of a port, and guests of peers.
//!
//! A process takes the place of a guest at this host (`crate::host::processes`): its bytes become data
//! messages of a channel, within the credit of the guest at the peer, and data messages become bytes
//! of its socket. `Socket::schedule_side` calls [`Socket::read_from_process`] when the process has
//! written or its connection was opened, `super::data` after each message of the peer, which may have
//! brought credit. All of it runs in the thread of the shard.
//!
//! A process with more than 64 KiB to read waits for the next tick ([`Socket::continue_reading`]), so
//! that the others of the shard are served. The bytes that a peer has not acknowledged are charged to
//! the port for processes, as those of a guest to its port: beyond 4 MiB none of its processes is
//! read, and after 2 s the port loses its connections with the peer. Bytes for which a process has no
//! room wait in its [`HostEnd`](crate::host::HostEnd), within the 256 KiB that the guest is granted.
//!
//! # Budget
//! Data of a process is copied from its socket into a buffer, into the channel and into a datagram.
//! The first system call of a turn reads 4 KiB, the next ones up to 64 KiB. Data for a process is
//! copied from the datagrams of a receive buffer into its `HostEnd`, and sent together, by one or two
//! system calls, at the end of the receive buffer or of a tick, or before a message without data.

use causeway_fabric::{Context, PortId, cost};
use causeway_wire::vsock::Op;

use super::data::message;
use super::owner_of;
use crate::conn::{Party, Phase, Role, Signals};
use crate::host::host_end_of;
use crate::limits::{MESSAGE_DATA_BYTES, PROCESS_BYTES_PER_TURN, PROCESS_READS_PER_TURN};
use crate::service::Socket;
use crate::table::ConnId;

/// The result of a read.
enum ReadOutcome {
    /// This many bytes; more may follow.
    More(usize),
    /// Nothing can be read before an event: data, credit, or acknowledgements.
    Waits,
    /// The process has written nothing, ended its direction (`true`), or its socket failed.
    Idle(Role, Result<bool, rustix::io::Errno>),
}

impl Socket {
    /// Reads from the process of a connection with a peer, until it has written no more, or the guest
    /// has no credit. No effect on other connections.
    pub(crate) fn read_from_process(&mut self, cx: &mut Context<'_>, id: ConnId) {
        // Most processes write little.
        let (mut left, mut limit) = (PROCESS_BYTES_PER_TURN, MESSAGE_DATA_BYTES);
        for count in 0..=PROCESS_READS_PER_TURN {
            if count == PROCESS_READS_PER_TURN || left == 0 || (count > 0 && cx.is_over()) {
                return self.read_later(id);
            }
            match self.read_once(cx, id, limit.min(left)) {
                ReadOutcome::More(got) => {
                    left = left.saturating_sub(got);
                    if got >= limit {
                        limit = PROCESS_BYTES_PER_TURN;
                    }
                }
                ReadOutcome::Waits => return,
                ReadOutcome::Idle(role, ended) => {
                    // No buffer of a guest is involved, so no other error is possible.
                    let _ = self.process_idle(cx, id, role, ended);
                    return self.signal_peer(id, role);
                }
            }
        }
    }

    /// Sends the peer what a single read of at most `limit` bytes from the process returns.
    fn read_once(&mut self, cx: &mut Context<'_>, id: ConnId, limit: usize) -> ReadOutcome {
        let conn = self.table.get_mut(id).filter(|conn| conn.phase == Phase::Open);
        let Some(conn) = conn else { return ReadOutcome::Waits };
        let Some((role, end)) = host_end_of(conn) else { return ReadOutcome::Waits };
        let (Party::Remote(to), Some(owner)) = (&conn.side(role.other()).party, end.owner) else {
            return ReadOutcome::Waits;
        };
        let (to, free) = (*to, conn.side(role.other()).credit.free() as usize);
        let is_stopped = self.socket_ports.get(owner).is_none_or(|s| s.is_stopped_by_peer);
        if !end.readable || end.read_done || free == 0 || is_stopped {
            return ReadOutcome::Waits;
        }
        cx.charge(cost::CALL_NS);
        let (buffer, wanted) = (&mut self.peers.process_bytes, free.min(limit));
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        let room = buffer.get_mut(..wanted).unwrap_or(&mut []);
        let got = match end.stream.receive_bytes(room) {
            Ok(Some(got)) if got > 0 => got,
            other => return ReadOutcome::Idle(role.other(), other.map(|got| got.is_some())),
        };
        let len = u32::try_from(got).unwrap_or(u32::MAX);
        let side = conn.side_mut(role.other());
        // Never fails: `free` bounds the received bytes.
        let _ = side.credit.accept(len);
        side.credit.deliver(len);
        side.signals.remove(Signals::CREDIT_UPDATE);
        let head = message(conn, role.other(), Op::Data, 0).emit();
        if let Some(peer) = self.peers.peers.get_mut(&to.link) {
            let data = self.peers.process_bytes.get(..got).unwrap_or(&[]);
            for part in data.chunks(MESSAGE_DATA_BYTES) {
                peer.session.send(to.channel, owner_of(owner), [&head, part]);
            }
        }
        self.peers.has_work = true;
        cx.charge(cost::bytes(got));
        if let Some(socket_port) = self.socket_ports.get_mut(owner) {
            socket_port.count_sent(len);
        }
        self.stop_if_full(owner, to.link);
        ReadOutcome::More(got)
    }

    /// Continues with the processes that were not read to the end.
    pub(super) fn continue_reading(&mut self, cx: &mut Context<'_>) {
        let mut unread = std::mem::take(&mut self.peers.unread);
        while let Some(id) = unread.pop_front() {
            if let Some((_, end)) = self.host_end(id) {
                end.is_unread = false;
            }
            self.read_from_process(cx, id);
            if cx.is_over() {
                break;
            }
        }
        unread.into_iter().rev().for_each(|id| self.peers.unread.push_front(id));
    }

    /// Reads from the process of a connection in the next tick.
    fn read_later(&mut self, id: ConnId) {
        if let Some((_, end)) = self.host_end(id)
            && !std::mem::replace(&mut end.is_unread, true)
        {
            self.peers.unread.push_back(id);
        }
    }

    /// Reads from all processes of a port in the next tick: the peer has acknowledged their data.
    pub(super) fn read_from_processes(&mut self, port: PortId) {
        let all: Vec<ConnId> = self.table.of_port(port).map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.read_later(id));
    }

    /// Adds data of a peer to that for the process of a connection; [`Self::flush_processes`] sends it.
    pub(super) fn data_to_process(&mut self, cx: &mut Context<'_>, data: &[u8], id: ConnId) {
        let Some((_, end)) = self.host_end(id) else { return };
        cx.charge(cost::bytes(data.len()));
        let owner = end.owner;
        // A process without room gets its data when its socket is writable.
        let is_first = end.out.is_empty() && !end.is_unsent;
        end.is_unsent |= is_first;
        end.out.extend(data);
        if is_first {
            self.peers.unsent.push(id);
        }
        if let Some(socket_port) = owner.and_then(|owner| self.socket_ports.get_mut(owner)) {
            socket_port.count_data(u32::try_from(data.len()).unwrap_or(u32::MAX));
        }
    }

    /// Sends all processes the data of the datagrams that were processed.
    pub(super) fn flush_processes(&mut self, cx: &mut Context<'_>) {
        while let Some(id) = self.peers.unsent.pop() {
            self.flush_process(cx, id);
        }
    }

    /// Sends the process of a connection the data of the datagrams that were processed, and keeps the
    /// data for which the process has no room. A process that fails ends its connection.
    pub(super) fn flush_process(&mut self, cx: &mut Context<'_>, id: ConnId) {
        if let Some((_, end)) = self.host_end(id)
            && std::mem::take(&mut end.is_unsent)
        {
            cx.charge(cost::CALL_NS);
            self.flush(cx, id);
        }
    }
}
