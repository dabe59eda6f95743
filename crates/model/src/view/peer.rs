//! Views of NICs of other hosts, with the connections of MX endpoints to them.
//!
//! The MX service fills them in, in the threads of its shards, for `GET /v1/peers`
//! ([`crate::commands::peers`]); `causeway peer` prints them. A peer that several NICs of this host
//! know has a view for each. The values are samples of the moment; counters count since the
//! connection of the pair began. The module holds values only, and the list is not bounded here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Typed, ViewForm};
use crate::{Mac, Name};

/// A NIC of another host, as a NIC of this host knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct PeerView<F: ViewForm = Typed> {
    /// The port of the NIC of this host.
    pub port: F::Text<Name>,
    /// Group of that port.
    pub group: F::Text<Name>,
    /// Address of the peer's NIC.
    pub mac: F::Text<Mac>,
    /// Hostname of the peer's NIC, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Source of the entry: `static` (configured by the operator) or `announced`.
    pub known: F::Text<Cow<'static, str>>,
    /// `answers`, or `silent`: the peer has not answered a query for its name.
    pub state: F::Text<Cow<'static, str>>,
    /// Time since the last announcement or answer of the peer, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_seconds: Option<f64>,
    /// Number of connected pairs of endpoints.
    pub partners: usize,
    /// Messages that are queued, or sent and not acknowledged by the peer.
    #[serde(default)]
    pub sending: usize,
    /// Shortest smoothed round-trip time of all pairs, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Counters of these pairs by name, e.g. `messages_sent_total`.
    pub counters: BTreeMap<String, u64>,
    /// The connected pairs of endpoints.
    pub pairs: Vec<PairView>,
}

/// A connection between an endpoint of a NIC of this host and an endpoint of a peer's NIC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PairView {
    /// Number of this host's endpoint.
    pub endpoint: u8,
    /// Number of the peer's endpoint.
    pub partner: u8,
    /// Messages sent and not acknowledged.
    pub in_flight: usize,
    /// Messages queued behind these.
    pub waiting: usize,
    /// Bytes of received messages that wait for an earlier message, or for room at the process.
    pub parked_bytes: usize,
    /// Smoothed round-trip time, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Counters of the connection by name.
    pub counters: BTreeMap<String, u64>,
}
