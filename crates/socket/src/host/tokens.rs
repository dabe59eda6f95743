//! The watched descriptors of a shard's host sockets, by token: listeners, processes in their
//! handshake, and processes with a connection.
//!
//! A token is the number by which the shard reports the events of a descriptor
//! ([`Context::watch`](causeway_fabric::Context::watch)). Tokens are reused; deadlines of
//! handshakes therefore name the time beside the token. The module keeps the subjects and the order
//! of deadlines and pauses; [`super`] and `super::listeners` call it and own the protocol, in the
//! thread of the shard.
//!
//! No limit is checked here: [`super`] refuses connects by [`HostTokens::count`]
//! (`HOST_CONNECTIONS_MAX`, 16,384). A reserved token without a subject must be released. A token
//! that is not in use has no subject, so that an event which was read before its end finds nothing,
//! or the token's next subject.

use std::collections::VecDeque;

use causeway_fabric::host::HostStream;
use causeway_fabric::{PortId, ServiceWatch};
use causeway_wire::vsock::Type;

use crate::table::ConnId;

/// A process that has connected and not yet sent its `CONNECT` line.
#[derive(Debug)]
pub(super) struct Handshake {
    /// Port to whose host socket the process connected.
    pub(super) port: PortId,
    /// Stream or messages.
    pub(super) kind: Type,
    /// Socket to the process.
    pub(super) stream: HostStream,
    pub(super) _watch: ServiceWatch,
    /// Time at which the process is refused.
    pub(super) deadline_ns: u64,
}

/// The subject of a watched descriptor.
#[derive(Debug)]
pub(super) enum HostToken {
    /// The listener of a port for one socket type.
    Listener(PortId, Type),
    /// A process in its handshake.
    Handshake(Handshake),
    /// The process of a connection.
    Conn(ConnId),
}

/// Watched descriptors by token: the number by which the shard reports their events
/// ([`Context::watch`](causeway_fabric::Context::watch)).
#[derive(Debug, Default)]
pub(crate) struct HostTokens {
    /// Subjects by token.
    list: Vec<Option<HostToken>>,
    /// Tokens that are not in use.
    free: Vec<u32>,
    /// Deadlines of handshakes in order; some handshakes have ended since.
    handshake_deadlines: VecDeque<(u64, u32)>,
    /// Ends of pauses in order, with the port of the host socket.
    paused: VecDeque<(u64, PortId)>,
}

impl HostTokens {
    /// Takes a free token; the caller sets its subject, or returns it by
    /// [`Self::release`].
    pub(super) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            u32::try_from(self.list.len().saturating_sub(1)).unwrap_or(u32::MAX)
        })
    }

    /// Returns a reserved token without a subject.
    pub(super) fn release(&mut self, token: u32) {
        self.free.push(token);
    }

    /// Returns the number of tokens in use.
    pub(super) fn count(&self) -> usize {
        self.list.len().saturating_sub(self.free.len())
    }

    /// Sets the subject of a reserved token.
    pub(super) fn set(&mut self, token: u32, subject: HostToken) {
        if let Some(place) = self.list.get_mut(token as usize) {
            *place = Some(subject);
        }
    }

    /// Returns the subject of a token; `None` if it is not in use.
    pub(super) fn get(&self, token: u32) -> Option<&HostToken> {
        self.list.get(token as usize)?.as_ref()
    }

    /// Returns whether an entry belongs to a handshake in progress: tokens are reused.
    fn is_handshaking(&self, (deadline_ns, token): (u64, u32)) -> bool {
        matches!(self.get(token), Some(HostToken::Handshake(own)) if own.deadline_ns == deadline_ns)
    }

    /// Drops the entries of ended handshakes before the first handshake in progress. The rest is
    /// bounded by the connects accepted within `HANDSHAKE_NS_MAX` (5 s).
    fn drop_ended(&mut self) {
        while self.handshake_deadlines.front().is_some_and(|entry| !self.is_handshaking(*entry)) {
            self.handshake_deadlines.pop_front();
        }
    }

    /// Frees a token, and returns its subject.
    pub(super) fn remove(&mut self, token: u32) -> Option<HostToken> {
        let subject = self.list.get_mut(token as usize)?.take()?;
        self.free.push(token);
        Some(subject)
    }

    /// Begins a handshake at a reserved token. Handshakes begin in the order of their deadlines.
    pub(super) fn begin_handshake(&mut self, token: u32, handshake: Handshake) {
        self.handshake_deadlines.push_back((handshake.deadline_ns, token));
        self.set(token, HostToken::Handshake(handshake));
    }

    /// Removes a handshake in progress.
    pub(super) fn end_handshake(&mut self, token: u32) -> Option<Handshake> {
        let Some(HostToken::Handshake(handshake)) = self.remove(token) else { return None };
        self.drop_ended();
        Some(handshake)
    }

    /// Returns the first deadline of a handshake, which may have ended.
    pub(super) fn handshake_deadline_ns(&self) -> Option<u64> {
        self.handshake_deadlines.front().map(|(at, _)| *at)
    }

    /// Returns the token of a handshake in progress of which the deadline has passed; the deadline
    /// is removed.
    pub(super) fn take_expired_handshake(&mut self, now_ns: u64) -> Option<u32> {
        while self.handshake_deadline_ns().is_some_and(|at| at <= now_ns) {
            let entry = self.handshake_deadlines.pop_front()?;
            if self.is_handshaking(entry) {
                return Some(entry.1);
            }
        }
        None
    }

    /// Drops the handshakes and pauses of a port.
    pub(super) fn drop_port(&mut self, port: PortId) {
        for (deadline_ns, token) in std::mem::take(&mut self.handshake_deadlines) {
            match self.get(token) {
                Some(HostToken::Handshake(handshake)) if handshake.deadline_ns != deadline_ns => {}
                Some(HostToken::Handshake(handshake)) if handshake.port == port => {
                    self.remove(token);
                }
                Some(HostToken::Handshake(_)) => {
                    self.handshake_deadlines.push_back((deadline_ns, token))
                }
                _ => {}
            }
        }
        self.paused.retain(|(_, paused)| *paused != port);
    }

    /// Notes that the listeners of a port pause until `at_ns`; not earlier than the last pause.
    pub(super) fn pause(&mut self, at_ns: u64, port: PortId) {
        self.paused.push_back((at_ns, port));
    }

    /// Removes the first pause if it has ended, and returns its port.
    pub(super) fn take_ended_pause(&mut self, now_ns: u64) -> Option<PortId> {
        self.paused.front().filter(|(at, _)| *at <= now_ns)?;
        self.paused.pop_front().map(|(_, port)| port)
    }

    /// Returns the end of the first pause.
    pub(super) fn first_pause_end_ns(&self) -> Option<u64> {
        self.paused.front().map(|(at, _)| *at)
    }
}
