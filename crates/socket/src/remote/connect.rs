//! Connects to guests of peers and from them, and the ends of such connections.
//!
//! `crate::transmit` calls [`Socket::connect_to_peer`] after it checked the rules; `super::data`
//! calls `accept_from_peer` for the request of a peer, which is checked here as one of a guest:
//! address, rules, callee, type, limits. A request that is refused is answered with a reset and
//! counted. `Socket::end` closes the channel of a connection, and `super::serve` ends the
//! connection of a channel on which the peer sends no more. All of it runs in the thread of the
//! shard.

use causeway_fabric::carrier::LinkId;
use causeway_fabric::{Context, PortId};
use causeway_wire::multiplex::{Opening, SocketMessage};
use causeway_wire::vsock::{Op, Type};

use super::{Peers, StoppedSender, owner_of};
use crate::conn::{Conn, Party, Role, Side};
use crate::counters::bump;
use crate::limits::{PEER_QUEUED_BYTES_MAX, REMOTE_BUFFER_BYTES};
use crate::multiplex::DISOWNED;
use crate::service::{CID_HOST, Socket, VSOCK_F_SEQPACKET};
use crate::table::ConnId;
use crate::transmit::Refusal;

/// A side at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteEnd {
    /// Link of the peer.
    pub link: LinkId,
    /// Channel of the connection.
    pub channel: u32,
}

impl Peers {
    /// Ends the channel of a connection that ended here; with `resets`, the peer gets a reset.
    pub(crate) fn close(&mut self, end: RemoteEnd, resets: bool) {
        let Some(peer) = self.peers.get_mut(&end.link) else { return };
        if resets {
            let op = u8::try_from(Op::Reset.raw()).unwrap_or(0);
            let reset = SocketMessage { op, flags: 0, buf_alloc: 0, fwd_cnt: 0 };
            peer.session.send(end.channel, DISOWNED, [&reset.emit(), &[]]);
        }
        peer.session.end(end.channel);
        peer.conns.remove(&end.channel);
        self.has_work = true;
    }

    /// Returns whether a channel carries this connection.
    pub(crate) fn is_channel_of(&self, end: RemoteEnd, id: ConnId) -> bool {
        let peer = self.peers.get(&end.link);
        peer.and_then(|peer| peer.conns.get(&end.channel)).is_some_and(|(of, _)| *of == id)
    }
}

impl Socket {
    /// Opens the connection that a guest or a process requests to a CID of a peer. The caller has
    /// checked the rules, and answers a refusal: an unknown link, or a limit of channels or
    /// connections.
    pub(crate) fn connect_to_peer(
        &mut self,
        cx: &mut Context<'_>,
        caller: Side,
        (link, cid, number): (LinkId, u32, u32),
        kind: Type,
    ) -> Result<ConnId, Refusal> {
        let peer = self.peers.peers.get_mut(&link).ok_or(Refusal::Unknown)?;
        let owner = caller.owner().map_or(DISOWNED, owner_of);
        let channel = peer.session.open(owner).ok_or(Refusal::Limit)?;
        bump(&mut peer.counters.connects);
        let end = RemoteEnd { link, channel };
        let callee = Side::new(Party::Remote(end), cid, number);
        let opened = self.open_connection(cx, Conn::new(kind, caller, callee));
        match opened {
            Ok(id) => {
                if let Some(peer) = self.peers.peers.get_mut(&link) {
                    peer.conns.insert(channel, (id, Role::Callee));
                }
                Ok(id)
            }
            Err(refusal) => {
                self.peers.close(end, false);
                Err(refusal)
            }
        }
    }

    /// Opens the connection that a peer requests, or answers with a reset.
    pub(super) fn accept_from_peer(
        &mut self,
        cx: &mut Context<'_>,
        end: RemoteEnd,
        message: SocketMessage,
        data: &[u8],
    ) {
        let opened = self.open_from_peer(cx, end, message, data);
        let Some(peer) = self.peers.peers.get_mut(&end.link) else { return };
        let counters = &mut peer.counters;
        match opened {
            Ok(conn) => {
                bump(&mut counters.accepts);
                peer.conns.insert(end.channel, (conn, Role::Caller));
            }
            Err(_) => {
                bump(&mut counters.refused);
                self.peers.close(end, true);
            }
        }
    }

    /// Checks the request of a peer as one of a guest, and opens the connection.
    fn open_from_peer(
        &mut self,
        cx: &mut Context<'_>,
        end: RemoteEnd,
        message: SocketMessage,
        data: &[u8],
    ) -> Result<ConnId, Refusal> {
        let Opening { from, to, kind } = Opening::parse(data).map_err(|_| Refusal::Stray)?;
        let kind = Type::from_raw(kind).ok_or(Refusal::Type)?;
        // All ports of a shard are in one group.
        let group = self.socket_ports.iter().next().map(|socket_port| socket_port.group);
        let group = group.ok_or(Refusal::Unknown)?;
        // Rules know a process of this host by CID 2, so no peer may use it.
        let is_guest = from.0 > CID_HOST && from.0 != u32::MAX;
        let is_local = self.directory.contains_key(&(group, from.0));
        if !is_guest || is_local || !self.peers.may_use(end.link, from.0) {
            return Err(Refusal::Stray);
        }
        if !self.admits(cx, group, from, to) {
            return Err(Refusal::Rule);
        }
        let port = *self.directory.get(&(group, to.0)).ok_or(Refusal::Unknown)?;
        let target = cx.ports.get(port).filter(|p| p.is_running(0) && p.is_running(1));
        let target = target.ok_or(Refusal::Unknown)?;
        if kind == Type::Seqpacket && target.features() & VSOCK_F_SEQPACKET == 0 {
            return Err(Refusal::Type);
        }
        let mut caller = Side::new(Party::Remote(end), from.0, from.1);
        let buffer = message.buf_alloc.min(REMOTE_BUFFER_BYTES);
        caller.credit.advertise(buffer, message.fwd_cnt).map_err(|_| Refusal::Stray)?;
        let callee = Side::new(Party::Guest(port), to.0, to.1);
        self.open_connection(cx, Conn::new(kind, caller, callee))
    }

    /// Resets the connection of a channel on which the peer sends no more; without a connection,
    /// the channel is closed.
    pub(super) fn end_channel(&mut self, cx: &mut Context<'_>, link: LinkId, channel: u32) {
        let Some(peer) = self.peers.peers.get_mut(&link) else { return };
        let conn = peer.conns.get(&channel).copied();
        if let Some((id, _)) = conn {
            self.flush_process(cx, id);
        }
        match conn {
            // A process still takes data that arrived before.
            Some((id, role)) if self.table.get(id).is_some_and(|c| c.side(role).is_gone) => {
                self.peers.close(RemoteEnd { link, channel }, false);
            }
            Some((id, _)) => self.end(cx, id, true),
            None => self.peers.close(RemoteEnd { link, channel }, false),
        }
    }

    /// Stops the transmit ring of a guest with more than [`PEER_QUEUED_BYTES_MAX`] (4 MiB) that a
    /// peer has not acknowledged; `Socket::resume_senders` resumes it.
    pub(super) fn stop_if_full(&mut self, port: PortId, link: LinkId) {
        if self.peers.queued_by(port, link) > PEER_QUEUED_BYTES_MAX
            && self.peers.stopped.iter().all(|stop| (stop.port, stop.link) != (port, link))
            && let Some(socket_port) = self.socket_ports.get_mut(port)
        {
            socket_port.is_stopped_by_peer = true;
            let since_ns = self.peers.now_ns;
            self.peers.stopped.push(StoppedSender { port, link, since_ns });
        }
    }
}
