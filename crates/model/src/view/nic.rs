//! Views of NICs of this host (ports of kind `mx`), with their processes and endpoints.
//!
//! The MX service fills them in, in the threads of its shards, for `GET /v1/nics` and `GET
//! /v1/nics/PORT` ([`crate::commands::nics`]); `causeway nic` prints them. The values are samples;
//! counters of an endpoint count since it was opened. A NIC has at most 256 processes and 255
//! endpoints, which the view of one NIC has all; those of a list have none. NICs of other hosts are
//! [`PeerView`](super::PeerView)s.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Typed, ViewForm};
use crate::{Mac, Name};

/// A NIC of this host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct NicView<F: ViewForm = Typed> {
    /// The port of the NIC.
    pub port: F::Text<Name>,
    /// Group of the port.
    pub group: F::Text<Name>,
    /// Address of the NIC.
    pub mac: F::Text<Mac>,
    /// Hostname, by which peers find the NIC.
    pub hostname: String,
    /// Port of the adapter of the guest that the NIC serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<F::Text<Name>>,
    /// State of the guest's side: `served`, `waits` (the port of the adapter does not exist), or
    /// `none` (the NIC serves no guest).
    pub guest: F::Text<Cow<'static, str>>,
    /// Number of attached processes, of the host and of the guest.
    pub processes: usize,
    /// Number of processes of the guest: its sessions.
    pub sessions: usize,
    /// Number of open endpoints.
    pub endpoints: usize,
    /// Conditions that keep processes from exchanging messages, with their remedies.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Reason of the last refusal or disconnection of a process that broke a rule or met a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Time since then, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal_age_seconds: Option<u64>,
    /// The last request of a guest's process that was answered with a shortage of resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Time since then, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_age_seconds: Option<u64>,
    /// Counters of the port by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// The processes. Empty in a list of NICs.
    #[serde(default)]
    pub process_list: Vec<NicProcessView<F>>,
}

/// A process that is attached to a NIC.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct NicProcessView<F: ViewForm = Typed> {
    /// `guest` or `host`.
    pub place: F::Text<Cow<'static, str>>,
    /// Number of the session of a guest's process. A new session gets a new number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// User of a process of the host, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// `attaching` (it has not sent its version), `active`, `paused` (at a limit of rate), `not
    /// reading` (16 messages wait for it), or `ending` (its endpoints close).
    pub state: F::Text<Cow<'static, str>>,
    /// Messages that wait for the process.
    pub unread_messages: usize,
    /// Regions of memory that the process lends for long messages.
    pub regions: usize,
    /// Bytes of these regions.
    pub region_bytes: u64,
    /// Its open endpoints, by number.
    #[serde(default)]
    pub endpoint_list: Vec<NicEndpointView<F>>,
}

/// An open endpoint of a NIC.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct NicEndpointView<F: ViewForm = Typed> {
    /// Number of the endpoint in its NIC.
    pub number: u8,
    /// State of its rings: `polled`, `parked` (the dispatcher waits for its doorbell), `deferred` (its
    /// next request waits for a limit), `unread` (its process reads no events), `closing`, `direct`
    /// (its process has the network itself), or `channels` (messages do not pass the daemon).
    pub state: F::Text<Cow<'static, str>>,
    /// Time for which an event has waited because the process reads none, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread_seconds: Option<f64>,
    /// Number of connected peers.
    pub peers: usize,
    /// Counters of the endpoint and of all of its peers by name; none without rings.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}
