//! Samples of the rings of endpoints, for the operator ([`crate::view`]).
//!
//! A sample is made in the dispatcher's thread from values of the engine; the rings themselves, which
//! a process may change or take away, are not read.

use std::collections::BTreeMap;
use std::time::Duration;

use super::NicNetwork;

/// What the dispatcher does with the rings of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingState {
    /// It polls them.
    Polled,
    /// It waits for their doorbell.
    Parked,
    /// The next request waits until a limit allows it.
    Deferred,
    /// An event waits because the process reads none.
    Unread,
}

/// A sample of the rings of an endpoint.
#[derive(Debug)]
pub struct RingSample {
    /// Their state.
    pub state: RingState,
    /// Time for which an event has waited for room.
    pub unread_for: Option<Duration>,
    /// Number of peers.
    pub peers: usize,
    /// Counters of the endpoint and of its present and past peers by name, each of which ends in
    /// `_total`.
    pub counters: BTreeMap<String, u64>,
}

impl NicNetwork {
    /// Returns a sample of the rings of an endpoint; `None` if the daemon serves none.
    pub fn rings(&self, endpoint: u8) -> Option<RingSample> {
        let endpoint_io = self.engine.tx_path.endpoints.get(&endpoint)?;
        let unread_for = endpoint_io.full_for();
        let state = if unread_for.is_some() {
            RingState::Unread
        } else if endpoint_io.is_deferred() {
            RingState::Deferred
        } else if endpoint_io.is_parked() {
            RingState::Parked
        } else {
            RingState::Polled
        };
        let (its, of_peers) = self.counted(endpoint);
        let named = its.named().chain(of_peers.named());
        let counters = named.map(|(name, value)| (format!("{name}_total"), value)).collect();
        let peers = self.engine.nic.peer_states(endpoint).len();
        Some(RingSample { state, unread_for, peers, counters })
    }
}
