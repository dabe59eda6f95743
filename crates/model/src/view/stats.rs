//! Views of the daemon: its process ([`InfoView`]) and a sample of its counters ([`StatsView`]).
//!
//! The daemon fills them in for `GET /v1/info` and `GET /v1/stats`, from answers of every shard;
//! `causeway info` and `causeway stats` read them. Counters of a port or link grow from 0 at its
//! addition and end with it, counters of the daemon from 0 at its start; nothing resets them but
//! those of register accesses (when a frontend of an `hca` port disconnects), and no history is
//! kept. Rates are computed by the reader from two samples and `uptime_seconds`. Objects are
//! sampled one after the other, so sums of different objects need not agree.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LinkState, PortState, Typed, ViewForm};
use crate::Name;

/// The daemon's version, process and paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InfoView {
    /// Name of the program.
    #[serde(default)]
    pub name: String,
    /// Version of the daemon.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Process id of the holder, if there is one.
    pub holder_pid: Option<u32>,
    /// Time since the daemon's start, in seconds.
    pub uptime_seconds: f64,
    /// Path of the control socket.
    pub control: String,
    /// Directory of ports' sockets.
    pub run_dir: String,
    /// Path of the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Path of the state file; absent if the daemon keeps no state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_file: Option<String>,
    /// Reason why changes are not kept across a restart, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_error: Option<String>,
}

/// A sample of all counters of the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct StatsView<F: ViewForm = Typed> {
    /// Time since the daemon's start, in seconds.
    pub uptime_seconds: f64,
    /// Counters of each port.
    pub ports: Vec<PortStats<F>>,
    /// Counters of each link.
    #[serde(default = "Vec::new")]
    pub links: Vec<LinkStats<F>>,
    /// Refusals at the daemon's control interfaces.
    #[serde(default)]
    pub doors: Vec<RefusalStats>,
    /// Counters of the daemon's log.
    #[serde(default)]
    pub log: LogStats,
}

impl StatsView {
    /// Returns a sample without counters of objects, `uptime_seconds` after the daemon's start.
    pub fn new(uptime_seconds: f64, doors: Vec<RefusalStats>, log: LogStats) -> Self {
        Self { uptime_seconds, ports: Vec::new(), links: Vec::new(), doors, log }
    }
}

/// Counters of a port or a link.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ObjectStats<F: ViewForm = Typed> {
    /// Name of the port or link.
    pub name: F::Text<Name>,
    /// Group of the port or link.
    pub group: F::Text<Name>,
    /// Kind of the port or link.
    pub kind: F::Text<Cow<'static, str>>,
    /// Counters by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// Counters of a port.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct PortStats<F: ViewForm = Typed> {
    /// The port and its counters.
    #[serde(flatten)]
    pub object: ObjectStats<F>,
    /// State of the attachment.
    pub state: F::Text<PortState>,
    /// Protocol violations, also those that left the port open.
    #[serde(default)]
    pub faults_total: u64,
    /// Connections of frontends.
    #[serde(default)]
    pub connects_total: u64,
}

/// Counters of a link.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct LinkStats<F: ViewForm = Typed> {
    /// The link and its counters.
    #[serde(flatten)]
    pub object: ObjectStats<F>,
    /// Whether the link carries frames.
    pub state: F::Text<LinkState>,
    /// Changes of the state to up.
    #[serde(default)]
    pub ups_total: u64,
    /// Expiry of this host's certificate, in seconds since 1970.
    pub certificate_expires: Option<i64>,
}

/// Refusals at a control interface of the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusalStats {
    /// Name of the interface.
    pub name: String,
    /// Counters by name: `refused_<reason>_total`.
    pub counters: BTreeMap<String, u64>,
}

/// Counters of the daemon's log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LogStats {
    /// Lines that were dropped.
    #[serde(default)]
    pub dropped_lines_total: u64,
}
