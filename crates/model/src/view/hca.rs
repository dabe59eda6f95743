//! Views of host channel adapters: objects of the guest's driver with their limits, and queue
//! pairs.
//!
//! The HCA service fills them in, in the thread of its shard, for `GET /v1/hcas` and `GET
//! /v1/hcas/PORT` ([`crate::commands::hca`]); `causeway hca` prints them. The values are samples;
//! counters count since the port was added, those of register accesses since its last frontend
//! disconnected. The view of one adapter has at most
//! [`HCA_QUEUE_PAIRS_SHOWN_MAX`](crate::limits::HCA_QUEUE_PAIRS_SHOWN_MAX) queue pairs, those of a
//! list have none: [`HcaView::queue_pairs_omitted`] is the number of the others.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Typed, ViewForm};
use crate::{Mac, Name};

/// The progress of a guest's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HcaState {
    /// No frontend is connected, or no driver has set its command queue.
    #[serde(rename = "no driver")]
    NoDriver,
    /// A driver initialises the function, and has no completion queues yet.
    #[serde(rename = "starting")]
    Starting,
    /// A driver uses the function.
    #[serde(rename = "active")]
    Active,
}

/// The state of a host channel adapter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct HcaView<F: ViewForm = Typed> {
    /// The port of the adapter.
    pub port: F::Text<Name>,
    /// Group of the port.
    pub group: F::Text<Name>,
    /// Ethernet address, by which other adapters of the group reach the adapter.
    pub mac: F::Text<Mac>,
    /// Progress of the guest's driver.
    pub state: F::Text<HcaState>,
    /// Number of queue pairs.
    pub queue_pairs: usize,
    /// Most queue pairs.
    pub queue_pairs_max: usize,
    /// Number of completion queues.
    pub completion_queues: usize,
    /// Most completion queues.
    pub completion_queues_max: usize,
    /// Number of memory regions.
    pub regions: usize,
    /// Most memory regions.
    pub regions_max: usize,
    /// Bytes in all memory regions; memory in two regions counts twice.
    pub registered_bytes: u64,
    /// Most bytes in all memory regions.
    pub registered_bytes_max: u64,
    /// Counters by name, e.g. `requests_total`.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Limits beside the objects, and what the adapter does now.
    #[serde(default)]
    pub activity: HcaActivity,
    /// The first queue pairs, by slot of their table. Empty in a list of adapters.
    #[serde(default)]
    pub queue_pair_list: Vec<HcaQueuePairView<F>>,
    /// Number of queue pairs that `queue_pair_list` does not contain.
    #[serde(default)]
    pub queue_pairs_omitted: usize,
}

/// The state of a queue pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct HcaQueuePairView<F: ViewForm = Typed> {
    /// Number, as the guest's programs show it.
    pub number: u32,
    /// Transport service: `RC`, `UC`, `UD`, `XRC-INI` and `XRC-TGT` (extended connections), `GSI`
    /// (general services) or `registration` (changes memory regions only).
    #[serde(rename = "type")]
    pub kind: F::Text<Cow<'static, str>>,
    /// State by the InfiniBand specification: `reset`, `init`, `ready to receive`, `ready to send`,
    /// `send queue drained`, `send queue error` or `error`.
    pub state: F::Text<Cow<'static, str>>,
    /// Port of the connected queue pair; its Ethernet address if no adapter of the group has the
    /// address; `(service)` if the peer is a service of the daemon, such as a NIC of MX endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Number of the connected queue pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_queue_pair: Option<u32>,
    /// Completion queue of send work requests.
    pub send_completion_queue: u32,
    /// Completion queue of receive work requests.
    pub receive_completion_queue: u32,
    /// Reason why the last request found no responder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Number of requests that found no responder, since the queue pair was reset.
    #[serde(default)]
    pub refusals: u64,
    /// What the request in progress waits for: `responder`; `receive`, a receive work request of
    /// the responder; or `restart`, the restoration of the responder's adapter after a restart of
    /// causewayd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// Limits of an adapter beside those of its objects, and its present work. An older daemon sends
/// fewer members; they read as 0 or absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HcaActivity {
    /// How posted work is found: `poll` or `trap`.
    pub doorbell: String,
    /// Share of the group's time.
    pub weight: u32,
    /// Most bytes a second of the guest's requests and frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_rate_max: Option<u64>,
    /// Most requests and frames a second of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_rate_max: Option<u64>,
    /// Calls that ended with the port at one of these limits.
    pub rate_pauses_total: u64,
    /// Reliable requests that wait for a responder or a receive work request: at most one of each
    /// queue pair.
    pub waiting_requests: usize,
    /// Most requests that wait.
    pub waiting_requests_max: usize,
    /// Number of queue pairs by state.
    pub queue_pair_states: BTreeMap<String, usize>,
    /// Objects of further kinds, by name.
    pub objects: BTreeMap<String, HcaObjects>,
    /// Failed work requests, flushes excluded, by the status of their completion.
    pub errors: BTreeMap<String, u64>,
    /// Rates over the last seconds.
    pub rates: HcaRates,
}

/// The objects of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HcaObjects {
    /// Their number.
    pub count: usize,
    /// Most objects of the kind.
    pub max: usize,
}

/// Means over the last seconds, in units a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HcaRates {
    /// Time that the means cover, in milliseconds; 0: the adapter has done nothing yet.
    pub over_ms: u64,
    /// Finished send work requests.
    pub requests: u64,
    /// Payload bytes of these.
    pub request_bytes: u64,
    /// Finished receive work requests.
    pub received_messages: u64,
    /// Payload bytes of these.
    pub received_bytes: u64,
    /// Failed work requests.
    pub request_errors: u64,
    /// Ethernet frames of the guest.
    pub sent_frames: u64,
    /// Ethernet frames to the guest.
    pub received_frames: u64,
}
