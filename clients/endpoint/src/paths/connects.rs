//! Connects of an endpoint: those in progress by token, and the results that the matching engine
//! has not taken.
//!
//! A *token* is the engine's number of a connect. At most `CONNECTS_PENDING_MAX` (256) are in
//! progress; the caller checks `is_full`, and a further connect waits in the engine
//! (`TransportError::Full`). The table sends nothing and has no timer: the engine cancels a connect
//! that times out (`end`). An unknown token has no effect, as it belongs to a connect that was
//! cancelled. Results keep the order in which the connects ended.
//!
//! `transport` adds connects, `control` ends them with the daemon's answers and moves connects to
//! other hosts into the rings, and `resume` repeats or fails them after a restart of the daemon.
//! The engine takes the results as events of the transport. All run in the thread that holds the
//! lock of the endpoint.

use std::collections::{BTreeMap, VecDeque};

use causeway_message::library::TransportEvent;
use causeway_message::split::{Address, PeerId, Token};
use causeway_message::status::Status;

use crate::limits::CONNECTS_PENDING_MAX;

/// Parameters of a connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectParameters {
    /// Peer.
    pub to: Address,
    /// Key of the peer's endpoint.
    pub key: u32,
    /// Time limit for the rings, in ns; `None` for no limit.
    pub timeout_ns: Option<u64>,
}

/// All connects of an endpoint, by token.
#[derive(Debug, Default)]
pub(super) struct Connects {
    /// Connects in progress, including those in `remote`.
    pending: BTreeMap<u64, ConnectParameters>,
    /// Connects to other hosts that wait for room in the rings, in order.
    remote: VecDeque<u64>,
    /// Results for the matching engine.
    ended: VecDeque<TransportEvent>,
}

impl Connects {
    /// Returns whether no connect is in progress.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= CONNECTS_PENDING_MAX
    }

    /// Adds a connect.
    pub fn begin(&mut self, token: u64, parameters: ConnectParameters) {
        self.pending.insert(token, parameters);
    }

    /// Returns the parameters of a connect in progress.
    pub fn parameters(&self, token: u64) -> Option<ConnectParameters> {
        self.pending.get(&token).copied()
    }

    /// Removes a connect without a result. Returns its parameters if it was in progress.
    pub fn end(&mut self, token: u64) -> Option<ConnectParameters> {
        self.pending.remove(&token)
    }

    /// Returns all connects in progress.
    pub fn all(&self) -> Vec<(u64, ConnectParameters)> {
        self.pending.iter().map(|(token, parameters)| (*token, *parameters)).collect()
    }

    /// Queues a connect for the rings.
    pub fn push_remote(&mut self, token: u64) {
        self.remote.push_back(token);
    }

    /// Returns the next connect for the rings.
    pub fn next_remote(&self) -> Option<u64> {
        self.remote.front().copied()
    }

    /// Returns whether a connect waits for the rings.
    #[inline]
    pub fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }

    /// Removes the connect that [`Self::next_remote`] returned, after the rings accepted or refused
    /// it.
    pub fn end_remote(&mut self) {
        if let Some(token) = self.remote.pop_front() {
            self.pending.remove(&token);
        }
    }

    /// Drops the queue for the rings.
    pub fn clear_remote(&mut self) {
        self.remote.clear();
    }

    /// Queues the result of a connect.
    pub fn note(&mut self, token: u64, status: Status, peer: PeerId) {
        self.ended.push_back(TransportEvent::Connected { token: Token(token), status, peer });
    }

    /// Fails all connects in progress.
    pub fn fail_all(&mut self) {
        self.remote.clear();
        for (token, _) in std::mem::take(&mut self.pending) {
            self.note(token, Status::EndpointUnreachable, PeerId::NONE);
        }
    }

    /// Returns whether there is a result for the matching engine.
    #[inline]
    pub fn has_notes(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns the oldest result for the matching engine.
    #[inline]
    pub fn first_note(&self) -> Option<TransportEvent> {
        self.ended.front().copied()
    }

    /// Drops the oldest result.
    pub fn drop_note(&mut self) {
        self.ended.pop_front();
    }
}
