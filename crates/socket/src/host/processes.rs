//! Connects of processes that have the CID of a port.
//!
//! A port with `processes` has a host socket and no guest. A process connects to the host socket and
//! writes `CONNECT <CID>:<port>\n`; the guest with that CID, on this host or behind a link, sees a
//! connect from the CID of the port, and so do the rules of both hosts. `super::listeners` reads the
//! line and calls [`Socket::connect_as_port`] in the thread of the shard; from then on the connection
//! is one of [`super`], or with a peer of `crate::remote`.
//!
//! The CID is announced to peers while the port exists, so that they admit it as a source, and nothing
//! listens there: a connect to it is answered with a reset. Messages (SEQPACKET) reach guests of this
//! host only. A process that is refused reads `ERR <reason>\n`; at a limit of connections or channels
//! its stream closes without a line.

use causeway_fabric::host::HostStream;
use causeway_fabric::{Context, PortId};
use causeway_wire::vsock::Type;

use super::{host_token, refuse};
use crate::conn::{Conn, Party, Side};
use crate::counters::{Counters, bump};
use crate::limits::{HOST_PORT_FIRST, HOST_PORT_LAST};
use crate::service::{Socket, VSOCK_F_SEQPACKET};
use crate::table::ConnKey;

/// The place of a CID.
enum Callee {
    /// A guest of this host.
    Guest(PortId),
    /// A guest behind a link.
    Peer(causeway_fabric::carrier::LinkId),
}

/// A refusal: its counter, and the reason for the process.
type Refused = (fn(&mut Counters) -> &mut u64, String);

impl Socket {
    /// Opens a connection of a process with the CID of the port `own` to the guest with that CID.
    pub(super) fn connect_as_port(
        &mut self,
        cx: &mut Context<'_>,
        own: PortId,
        mut stream: HostStream,
        (cid, port): (u32, u32),
        kind: Type,
    ) {
        let (source, callee) = match self.find_callee(cx, own, (cid, port), kind) {
            Ok(found) => found,
            Err((counter, reason)) => {
                if let Some(socket_port) = self.socket_ports.get_mut(own) {
                    bump(counter(&mut socket_port.counters));
                }
                return refuse(&mut stream, &reason);
            }
        };
        let Some(caller) = self.host_side(cx, stream, (Some(own), source), kind) else { return };
        let token = host_token(&caller);
        let opened = match callee {
            Callee::Guest(to) => {
                let callee = Side::new(Party::Guest(to), cid, port);
                self.open_connection(cx, Conn::new(kind, caller, callee))
            }
            Callee::Peer(link) => self.connect_to_peer(cx, caller, (link, cid, port), kind),
        };
        self.note_opened(own, token, opened);
    }

    /// Checks a connect by the limits, the rules and the state of the guest. Returns a source port, and
    /// the place of the guest.
    fn find_callee(
        &mut self,
        cx: &mut Context<'_>,
        own: PortId,
        (cid, port): (u32, u32),
        kind: Type,
    ) -> Result<(u32, Callee), Refused> {
        let unknown = |reason: String| -> Refused { (|c| &mut c.refused_unknown, reason) };
        let limit = |reason: &str| -> Refused { (|c| &mut c.refused_limit, reason.into()) };
        let socket_port = self.socket_ports.get(own);
        let socket_port = socket_port.ok_or_else(|| unknown("the port is gone".into()))?;
        let (group, own_cid) = (socket_port.group, socket_port.cid);
        if self.host_full(socket_port) {
            return Err(limit("the port has its most connections with host processes"));
        }
        let source = self.next_source(own, (cid, port));
        let source = source.ok_or_else(|| limit("no source port is free"))?;
        if !self.admits(cx, group, (own_cid, source), (cid, port)) {
            return Err((|c| &mut c.refused_rule, "a rule rejects the connection".into()));
        }
        let local = self.directory.get(&(group, cid)).copied();
        let local = local.and_then(|id| Some((id, cx.ports.get(id)?)));
        let Some((to, target)) = local.filter(|(_, p)| p.is_running(0) && p.is_running(1)) else {
            let Some((link, _)) = self.peers.find(cid) else {
                return Err(unknown(format!(
                    "no guest with CID {cid} runs in the group, on this host or a linked one"
                )));
            };
            if kind == Type::Seqpacket {
                let reason = "messages of processes reach guests of this host only";
                return Err((|c| &mut c.refused_type, reason.into()));
            }
            return Ok((source, Callee::Peer(link)));
        };
        if kind == Type::Seqpacket && target.features() & VSOCK_F_SEQPACKET == 0 {
            let reason = "the guest's driver has no SOCK_SEQPACKET";
            return Err((|c| &mut c.refused_type, reason.into()));
        }
        Ok((source, Callee::Guest(to)))
    }

    /// Returns a source port of the port `own` that no connection to that address uses. `None`: all are
    /// in use.
    fn next_source(&mut self, own: PortId, (cid, port): (u32, u32)) -> Option<u32> {
        for _ in HOST_PORT_FIRST..=HOST_PORT_LAST {
            let source = self.socket_ports.get_mut(own)?.host_listeners.as_mut()?.next_port();
            let key = ConnKey { port: own, peer_cid: cid, local_port: source, peer_port: port };
            if self.table.find(key).is_none() {
                return Some(source);
            }
        }
        None
    }
}
