//! Views of host channel adapters: objects of the guest's driver with their limits, and queue pairs.
//!
//! The HCA service fills them in for `GET /v1/hcas` and `GET /v1/hcas/PORT`
//! ([`crate::commands::hca`]); `causeway hca` prints them. The values are samples; counters count
//! since the port was added. The view of one adapter has at most
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
    /// Transport service: `RC`, `UC`, `UD`, `GSI` (general services) or `registration` (changes
    /// memory regions only).
    #[serde(rename = "type")]
    pub kind: F::Text<Cow<'static, str>>,
    /// State by the InfiniBand specification: `reset`, `init`, `ready to receive`, `ready to send`,
    /// `send queue drained`, `send queue error` or `error`.
    pub state: F::Text<Cow<'static, str>>,
    /// Port of the connected queue pair; its Ethernet address if no adapter of the group has the
    /// address.
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
}
